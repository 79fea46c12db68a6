//! Traces: the one record, its readers and writers, checks, statistics, imports, and tools that
//! make one trace of another.

pub mod canonical;
pub mod check;
pub mod import;
pub mod lineage;
pub mod meta;
pub mod record;
pub mod summary;
pub mod tools;
