//! Targets: one line each, in scenario files and on the command line.
//!
//! A target names a percentile or a share, a metric, the part of the traffic if not all of it,
//! and a bound with its unit:
//!
//! ```text
//! p90 turn_llm <= 90 s
//! p90 interactivity >= 50 tok/s
//! p95 ttft[64k-128k] <= 8 s
//! p90 task_llm[profile=agentic] <= 15 min
//! hit[segment=turn_boundary] >= 50 %
//! failed <= 0.1 %
//! ```
//!
//! For a rate the percentile counts from the fast end: `p90 interactivity >= 50 tok/s` is met if
//! 90 % of the calls are at least that fast, so the figure is one over the 90th percentile of the
//! time between tokens, not the 90th percentile of a rate.
//!
//! ```
//! use tonnage::sizing::slo::Slo;
//!
//! let slo = Slo::parse("p95 ttft <= 250 ms").unwrap();
//! assert_eq!(slo.bound, 0.25);
//! assert_eq!(slo.to_string(), "p95 ttft <= 0.25 s");
//! assert!(Slo::parse("p95 ttft <= 250").is_err());
//! ```

use std::fmt;
use std::str::FromStr;

use crate::diag::{Error, Result};

mod filter;
mod metric;
mod parse;

pub use filter::{Filter, Segment};
pub use metric::{Asks, Dimension, Metric, Op, Quantity, Share};

/// The targets of a scenario that names none.
pub const DEFAULT_TARGETS: [&str; 4] =
    ["p95 ttft <= 10 s", "p90 interactivity >= 40 tok/s", "p90 stretch <= 2", "failed <= 0.1 %"];

/// What is taken of the samples of a metric.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Statistic {
    /// The nearest-rank percentile, in per cent: 90 for `p90`.
    Percentile(f64),
    /// The one share that the metric is.
    Share,
}

impl Statistic {
    /// The percentile as a share from 0 to 1; none for a share.
    #[must_use]
    pub fn quantile(self) -> Option<f64> {
        match self {
            // Through whole thousandths, so that p99.9 is the double nearest to 0.999.
            Self::Percentile(percent) => Some((percent * 10.0).round() / 1_000.0),
            Self::Share => None,
        }
    }
}

/// One target.
#[derive(Clone, Debug)]
pub struct Slo {
    /// What is taken of the samples.
    pub statistic: Statistic,
    /// What is bounded.
    pub metric: Metric,
    /// The part of the traffic it is about; all of it without.
    pub filter: Option<Filter>,
    /// From above or from below.
    pub op: Op,
    /// The bound in the metric's base unit: seconds, tokens per second, or 1 for all of a share.
    pub bound: f64,
    /// As it was written.
    pub text: String,
}

/// Two targets are equal if they ask the same, however they were written.
impl PartialEq for Slo {
    fn eq(&self, other: &Self) -> bool {
        self.statistic == other.statistic
            && self.metric == other.metric
            && self.filter == other.filter
            && self.op == other.op
            && self.bound == other.bound
    }
}

/// What a run must be able to tell for targets to be judged on it.
///
/// Times are in seconds. `None` means that there is no sample, which meets no target; a filter
/// that the run cannot apply must have been refused before the run.
pub trait SloSource {
    /// The nearest-rank quantile `q` (from 0 to 1) of the samples that pass the filter.
    fn percentile(&self, quantity: Quantity, q: f64, filter: Option<&Filter>) -> Option<f64>;

    /// The share, of the traffic that passes the filter.
    fn share(&self, share: Share, filter: Option<&Filter>) -> Option<f64>;
}

/// How a target came out.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Verdict {
    /// The figure in the metric's base unit; none if there was no sample.
    pub value: Option<f64>,
    /// Whether the target is met. Without a sample it is not.
    pub met: bool,
    /// How far inside the bound the figure is, as a share of the bound: 0.2 is 20 % better than
    /// asked, -0.5 is half as much again or half as fast. None without a sample, or if the bound
    /// is zero.
    pub margin: Option<f64>,
}

impl Slo {
    /// Reads a target; the columns of errors count from the start of `text`.
    ///
    /// # Errors
    /// If it is no target; the error points at the word and lists what is allowed there.
    pub fn parse(text: &str) -> Result<Self> {
        parse::parse(text, 1)
    }

    /// Reads a target that starts at this column (from 1) of a line of a file.
    ///
    /// # Errors
    /// As [`Slo::parse`].
    pub fn parse_at_column(text: &str, column: u64) -> Result<Self> {
        parse::parse(text, column)
    }

    /// The targets of a scenario that names none.
    ///
    /// # Panics
    /// Never: they are constants, and a test reads them.
    #[must_use]
    pub fn defaults() -> Vec<Self> {
        let read = |text: &str| Self::parse(text).expect("a default target reads");
        DEFAULT_TARGETS.into_iter().map(read).collect()
    }

    /// Judges the target on a run.
    #[must_use]
    pub fn evaluate(&self, source: &impl SloSource) -> Verdict {
        let Some(value) = self.value(source) else {
            return Verdict { value: None, met: false, margin: None };
        };
        let (met, inside) = match self.op {
            Op::AtMost => (value <= self.bound, self.bound - value),
            Op::AtLeast => (value >= self.bound, value - self.bound),
        };
        let margin = (self.bound > 0.0).then(|| inside / self.bound);
        Verdict { value: Some(value), met, margin }
    }

    fn value(&self, source: &impl SloSource) -> Option<f64> {
        let filter = self.filter.as_ref();
        let percentile = |quantity| source.percentile(quantity, self.statistic.quantile()?, filter);
        match self.metric.asks() {
            Asks::Percentile(quantity) => percentile(quantity),
            Asks::InversePercentile(quantity) => percentile(quantity).map(f64::recip),
            Asks::Share(share) => source.share(share, filter),
        }
    }
}

impl FromStr for Slo {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Self::parse(text)
    }
}

/// The canonical form: base units, shares in per cent. It reads back as an equal target.
impl fmt::Display for Slo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Statistic::Percentile(percent) = self.statistic {
            write!(f, "p{percent} ")?;
        }
        write!(f, "{}", self.metric)?;
        if let Some(filter) = &self.filter {
            write!(f, "[{filter}]")?;
        }
        match self.metric.dimension() {
            Dimension::Share => write!(f, " {} {} %", self.op, times_100(self.bound)),
            Dimension::Ratio => write!(f, " {} {}", self.op, self.bound),
            dimension => write!(f, " {} {} {}", self.op, self.bound, dimension.base_unit()),
        }
    }
}

/// A hundred times a number in decimal, by moving the point in its shortest form: multiplying
/// would print 0.07 as 7.000000000000001.
fn times_100(number: f64) -> String {
    let text = number.to_string();
    let (whole, decimals) = text.split_once('.').unwrap_or((&text, ""));
    let padded = format!("{decimals:0<2}");
    let (moved, rest) = padded.split_at(2);
    let joined = format!("{whole}{moved}");
    let whole = joined.trim_start_matches('0');
    let whole = if whole.is_empty() { "0" } else { whole };
    if rest.is_empty() { whole.to_owned() } else { format!("{whole}.{rest}") }
}

#[cfg(test)]
mod tests;
