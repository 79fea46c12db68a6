//! From targets to a size: the language in which targets are written, and their evaluation.

pub mod slo;
