//! The integration tests, in one binary.
#![allow(clippy::unwrap_used, reason = "a helper of a test may panic like the test itself")]

mod main {
    mod conformance;
    mod faults;
    mod import_spendlogs;
    mod import_weka;
    mod livelock;
    mod memory;
    mod model_config;
    mod reference;
    mod rig;
    mod stats;
    mod tidy;
}
