//! The model held against what was measured and recorded elsewhere.

pub mod conform;
pub mod recording;
