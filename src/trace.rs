//! Traces: the one record, its readers and writers, checks, statistics, imports, exports, and tools
//! that make one trace of another.

pub mod canonical;
pub mod check;
pub mod export;
mod gunzip;
pub mod import;
pub mod lineage;
pub mod meta;
pub mod record;
pub mod summary;
pub mod tools;
