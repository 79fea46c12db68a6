//! Synthetic workloads: named profiles of sessions, people who start them, and the trace that
//! they make.
//!
//! [`profile`] holds what is known about a kind of work as data, [`generate`] turns profiles and
//! [`people`] into a trace, and [`measure`] holds that trace against the published figures that
//! the profile names as its targets. [`fit`] goes the other way: from a trace to a profile.

pub mod catalogue;
pub mod dist;
pub mod fit;
pub mod generate;
pub mod hours;
pub mod measure;
pub mod people;
pub mod profile;
pub mod session;
pub mod target;
pub mod verdict;
