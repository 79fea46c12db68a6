//! Synthetic workloads: named profiles of sessions, people who start them, and the trace that
//! they make.

pub mod dist;
pub mod profile;
pub mod target;
