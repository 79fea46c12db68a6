//! From targets to a size: the language in which targets are written, what a run measures, and the
//! search for the smallest fleet.

pub mod around;
pub mod bands;
pub mod binding;
pub mod bootstrap;
pub mod boundary;
pub mod candidates;
pub mod capacity;
pub mod case;
pub mod cost;
pub mod explain;
pub mod figures;
pub mod formulas;
pub mod pods;
pub mod pool_sizes;
pub mod replicates;
pub mod search;
pub mod slo;
pub mod sweep;
pub mod tally;
