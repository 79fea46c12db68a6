//! From targets to a size: the language in which targets are written, what a run measures, and the
//! search for the smallest fleet.

pub mod case;
pub mod figures;
pub mod search;
pub mod slo;
pub mod tally;
