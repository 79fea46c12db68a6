//! Traces: the one record, its readers and writers, checks, statistics, imports and exports.

pub mod canonical;
pub mod check;
pub mod export;
pub mod import;
pub mod lineage;
pub mod meta;
pub mod record;
pub mod summary;
