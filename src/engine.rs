//! One replica of the served model.

pub mod step_time;
