//! The integration tests, all in one binary so that they link once.

#[path = "main/tidy.rs"]
mod tidy;
