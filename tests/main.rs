//! The integration tests, in one binary.
#![allow(clippy::unwrap_used, reason = "a helper of a test may panic like the test itself")]

mod main {
    mod alone;
    mod bad_input;
    mod bootstrap;
    mod claims;
    mod collapse;
    mod conformance;
    mod copilot_hits;
    mod docs;
    mod explain;
    mod fast;
    mod faults;
    mod fit;
    mod fleet_gateway;
    mod fleet_scaling;
    mod gateway;
    mod gateway_rows;
    mod gateway_scenarios;
    mod gateway_shown;
    mod generate;
    mod given;
    mod golden;
    mod import_blocks;
    mod import_plain;
    mod import_spendlogs;
    mod import_spendlogs_forms;
    mod import_weka;
    mod kernels;
    mod livelock;
    mod losses;
    mod memory;
    mod model_config;
    mod notebooks;
    mod over_time;
    mod pools;
    #[cfg(feature = "postgres")]
    mod postgres;
    mod property;
    mod ranks;
    mod ranks_gateway;
    mod reference;
    mod replica_events;
    mod rig;
    mod shards;
    mod size_plot;
    mod sizes;
    mod small;
    mod stats;
    mod step;
    mod stream;
    mod sweep;
    mod tidy;
    mod trace_tools;
    mod validate;
    mod vllm_serve;
    mod worked;
}
