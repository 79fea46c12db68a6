//! One figure in sixteen batches.

use super::Estimate;
use crate::stats::LogHistogram;
use crate::workload::target::{At, Quantity};

/// Sessions are dealt to so many batches.
pub const BATCHES: usize = 16;
/// Half a 95 % interval over the deviation of a mean of sixteen: Student's t with 15 degrees.
const T_95: f64 = 2.131;

/// What is kept of a quantity.
#[derive(Clone, Debug)]
pub enum Figure {
    /// Values, times so much, as whole numbers.
    Spread(Vec<LogHistogram>, f64),
    /// Sums: part and whole.
    Ratio(Vec<(f64, f64)>),
    /// Sums and counts of two groups: the ratio of their means.
    Contrast(Vec<[(f64, f64); 2]>),
}

impl Figure {
    /// An empty figure of a quantity.
    #[must_use]
    pub fn of(quantity: Quantity) -> Self {
        match quantity {
            Quantity::FailedContext => Self::Contrast(vec![Default::default(); BATCHES]),
            _ if quantity.is_total() => Self::Ratio(vec![Default::default(); BATCHES]),
            _ => Self::Spread(vec![LogHistogram::default(); BATCHES], steps(quantity)),
        }
    }

    /// Adds a value.
    pub fn add(&mut self, batch: usize, value: f64) {
        if let Self::Spread(batches, steps) = self {
            // A float-to-int cast saturates; values below 0 do not occur.
            batches[batch].add((value * *steps).round() as u64);
        }
    }

    /// Adds to a part and to its whole.
    pub fn add_ratio(&mut self, batch: usize, part: f64, whole: f64) {
        if let Self::Ratio(batches) = self {
            batches[batch].0 += part;
            batches[batch].1 += whole;
        }
    }

    /// Adds a sum of so many values to one of the groups.
    pub fn add_contrast(&mut self, batch: usize, is_first: bool, sum: f64, count: f64) {
        if let Self::Contrast(batches) = self {
            let group = &mut batches[batch][usize::from(!is_first)];
            group.0 += sum;
            group.1 += count;
        }
    }

    /// The value with its error; `None` where nothing was added.
    #[must_use]
    pub fn estimate(&self, at: At) -> Option<Estimate> {
        let (value, parts): (Option<f64>, Vec<Option<f64>>) = match self {
            Self::Spread(batches, steps) => {
                let mut all = LogHistogram::default();
                batches.iter().for_each(|batch| all.merge(batch));
                let of = |histogram: &LogHistogram| value_at(histogram, at).map(|v| v / steps);
                (of(&all), batches.iter().map(of).collect())
            }
            Self::Ratio(batches) => {
                let sum = |sum: (f64, f64), b: &(f64, f64)| (sum.0 + b.0, sum.1 + b.1);
                let all = batches.iter().fold((0.0, 0.0), sum);
                let of = |(part, whole): (f64, f64)| (whole > 0.0).then(|| part / whole);
                (of(all), batches.iter().map(|batch| of(*batch)).collect())
            }
            Self::Contrast(batches) => {
                let mut all = [(0.0, 0.0); 2];
                for (sum, add) in batches.iter().flat_map(|batch| [0, 1].map(|g| (g, batch[g]))) {
                    all[sum].0 += add.0;
                    all[sum].1 += add.1;
                }
                let of = |[a, b]: [(f64, f64); 2]| {
                    (a.1 > 0.0 && b.1 > 0.0 && b.0 > 0.0).then(|| a.0 / a.1 / (b.0 / b.1))
                };
                (of(all), batches.iter().map(|batch| of(*batch)).collect())
            }
        };
        Some(Estimate { value: value?, error: half_interval(&parts) })
    }
}

fn value_at(histogram: &LogHistogram, at: At) -> Option<f64> {
    match at {
        At::Mean | At::Total => histogram.mean(),
        At::Percentile(share) => histogram.quantile(share),
    }
}

/// From the spread of the batches; `None` unless every one has a value.
fn half_interval(batches: &[Option<f64>]) -> Option<f64> {
    let values: Vec<f64> = batches.iter().copied().collect::<Option<_>>()?;
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let variance = values.iter().map(|v| (v - mean) * (v - mean)).sum::<f64>() / (n - 1.0);
    Some(T_95 * (variance / n).sqrt())
}

/// Whole steps of a unit, so that rounding to a step does not show.
const fn steps(quantity: Quantity) -> f64 {
    match quantity {
        Quantity::ToolGap | Quantity::UserGap | Quantity::Concurrency => 1_000.0,
        Quantity::CallRatio | Quantity::SessionMinutes => 60.0,
        _ => 1.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_means_and_percentiles() {
        let mut figure = Figure::of(Quantity::ToolGap);
        assert_eq!(figure.estimate(At::Mean), None);
        (0..160).for_each(|n| figure.add(n % BATCHES, if n < 80 { 0.25 } else { 0.5 }));
        let mean = figure.estimate(At::Mean).unwrap();
        assert_eq!((mean.value, mean.error), (0.375, Some(0.0)));
        assert_eq!(figure.estimate(At::Percentile(0.5)).unwrap().value, 0.25);
    }

    #[test]
    fn ratios_are_of_sums_and_contrasts_of_means() {
        let mut ratio = Figure::of(Quantity::TotalRatio);
        ratio.add_ratio(0, 10.0, 1.0);
        ratio.add_ratio(1, 10.0, 4.0);
        assert_eq!(ratio.estimate(At::Total), Some(Estimate { value: 4.0, error: None }));
        let mut contrast = Figure::of(Quantity::FailedContext);
        contrast.add_contrast(0, true, 90.0, 3.0);
        assert_eq!(contrast.estimate(At::Total), None);
        contrast.add_contrast(0, false, 30.0, 2.0);
        assert_eq!(contrast.estimate(At::Total).unwrap().value, 2.0);
    }
}
