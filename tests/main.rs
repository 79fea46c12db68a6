//! The one integration binary: the program from outside.

#[path = "main/stats.rs"]
mod stats;
