//! What a run records: calls, turns, tasks, and what the replicas did.
//!
//! Everything is recorded; what lies outside the measured window is left out when figures are made
//! of it. Records hold times as they were; names and targets are a matter of higher floors.

pub mod burst;
pub mod members;
pub mod records;
pub mod replica;
pub mod timeline;
