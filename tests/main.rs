//! The one integration binary: the program from outside.

#[path = "main/import_weka.rs"]
mod import_weka;
#[path = "main/stats.rs"]
mod stats;
