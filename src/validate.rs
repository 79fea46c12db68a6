//! The model held against what was measured and recorded elsewhere.

pub mod accuracy;
pub mod calibrate;
pub mod conform;
pub mod drive;
pub mod kernels;
pub mod recording;
pub mod requests;
pub mod rules;
pub mod runs;
pub mod simulated;
pub mod sweeps;
pub mod table;
