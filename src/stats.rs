//! Exact quantiles, summaries of samples, and means over time.
//!
//! ```
//! use tonnage::stats::{Summary, TimeWeighted, quantile};
//! use tonnage::units::Span;
//!
//! let waits = [1_u64, 2, 3, 4, 50];
//! assert_eq!(quantile(&waits, 0.5), Some(3));
//! assert_eq!(Summary::of(&mut [2_u64, 4]).unwrap().mean, 3.0);
//!
//! let mut used = TimeWeighted::new(200);
//! used.add(50, Span::from_secs(3));
//! used.add(190, Span::from_secs(1));
//! assert_eq!(used.mean(), Some(85.0));
//! assert_eq!(used.share_above(900), Some(0.25));
//! ```

mod buckets;
mod log_histogram;
mod nearby;
mod quantile;
mod samples;
mod summary;
mod time_weighted;

pub use buckets::Buckets;
pub use log_histogram::LogHistogram;
pub use quantile::{nearest_rank, quantile, quantile_of_stats_files};
pub use samples::Samples;
pub use summary::{Sample, Summary};
pub use time_weighted::TimeWeighted;
