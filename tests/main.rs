//! The integration tests, all in one binary so that they link once.
#![allow(clippy::unwrap_used, reason = "a helper of a test may panic like the test itself")]

mod main {
    mod import_spendlogs;
    mod tidy;
}
