//! Importers: one file a format, each turning recorded traffic into canonical sessions.

pub mod spendlogs;
pub mod weka;
