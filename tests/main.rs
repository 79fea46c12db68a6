//! The integration tests, in one binary.
#![allow(clippy::unwrap_used, reason = "a helper of a test may panic like the test itself")]

mod main {
    mod bad_input;
    mod conformance;
    mod docs;
    mod fast;
    mod faults;
    mod given;
    mod golden;
    mod import_spendlogs;
    mod import_weka;
    mod livelock;
    mod memory;
    mod model_config;
    mod property;
    mod reference;
    mod rig;
    mod stats;
    mod tidy;
    mod vllm_serve;
    mod worked;
}
