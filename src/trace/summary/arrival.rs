//! How calls are spread over time.

use serde::Serialize;

use super::dist::{ratio, round};

const MICROS_PER_SEC: u64 = 1_000_000;

/// Rates and burstiness of the calls of all sessions together.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Arrival {
    /// From the first call to the last.
    pub span_s: f64,
    /// Calls a minute over that time.
    pub mean_per_min: Option<f64>,
    /// Standard deviation over mean of the times between calls.
    pub cv_interarrival: Option<f64>,
    /// Most calls in a minute; minutes count from the first call.
    pub peak_per_min: u64,
    /// Variance over mean of the calls in whole bins of 1 s.
    pub index_of_dispersion_1s: Option<f64>,
    /// The same in bins of 10 s.
    pub index_of_dispersion_10s: Option<f64>,
    /// The same in bins of 60 s.
    pub index_of_dispersion_60s: Option<f64>,
}

impl Arrival {
    /// Of calls at these times in microseconds, in order; `None` without any.
    #[must_use]
    pub fn of(times: &[u64]) -> Option<Self> {
        let (first, last) = (*times.first()?, *times.last()?);
        let span_s = (last - first) as f64 / MICROS_PER_SEC as f64;
        Some(Self {
            span_s: round(span_s, 3),
            mean_per_min: ratio(times.len() as f64, span_s / 60.0, 4),
            cv_interarrival: cv_interarrival(times),
            peak_per_min: bins(times, 60).map(|(_, calls)| calls).max().unwrap_or_default(),
            index_of_dispersion_1s: index_of_dispersion(times, 1),
            index_of_dispersion_10s: index_of_dispersion(times, 10),
            index_of_dispersion_60s: index_of_dispersion(times, 60),
        })
    }
}

/// The bins of `secs` seconds from the first call that hold any: number and calls.
fn bins(times: &[u64], secs: u64) -> impl Iterator<Item = (u64, u64)> + '_ {
    let bin = move |time: u64| (time - times[0]) / (secs * MICROS_PER_SEC);
    let same = times.chunk_by(move |a, b| bin(*a) == bin(*b));
    same.map(move |calls| (bin(calls[0]), calls.len() as u64))
}

/// Variance over mean of the calls in whole bins; most bins of a long trace are empty, so only
/// the others are visited.
fn index_of_dispersion(times: &[u64], secs: u64) -> Option<f64> {
    // The bin that the last call falls into is not over when the trace ends.
    let whole = (times[times.len() - 1] - times[0]) / (secs * MICROS_PER_SEC);
    let (mut sum, mut squares) = (0u128, 0u128);
    for (_, calls) in bins(times, secs).take_while(|(bin, _)| *bin < whole) {
        sum += u128::from(calls);
        squares += u128::from(calls) * u128::from(calls);
    }
    let whole = u128::from(whole);
    // Both sides are multiplied by the square of the number of bins: all integers until here.
    ratio((whole * squares - sum * sum) as f64, (whole * sum) as f64, 4)
}

fn cv_interarrival(times: &[u64]) -> Option<f64> {
    let gaps = || times.windows(2).map(|pair| (pair[1] - pair[0]) as f64);
    let count = times.len().saturating_sub(1) as f64;
    let mean = gaps().sum::<f64>() / count;
    if mean.is_nan() || mean == 0.0 {
        return None;
    }
    let variance = gaps().map(|gap| (gap - mean) * (gap - mean)).sum::<f64>() / count;
    Some(round(variance.sqrt() / mean, 4))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn worked_out_on_paper() {
        // Calls at 0, 0, 1, 5 and 62 s.
        let arrival = Arrival::of(&[0, 0, 1, 5, 62].map(|secs| secs * MICROS_PER_SEC)).unwrap();
        assert_eq!(arrival.span_s, 62.0);
        assert_eq!(arrival.mean_per_min, Some(round(5.0 / (62.0 / 60.0), 4)));
        assert_eq!(arrival.peak_per_min, 4);
        // One whole minute: no variance.
        assert_eq!(arrival.index_of_dispersion_60s, Some(0.0));
        // Six whole bins of 10 s with 4 0 0 0 0 0: mean 2/3, variance 16/6 - 4/9 = 20/9.
        assert_eq!(arrival.index_of_dispersion_10s, Some(3.3333));
        // Gaps 0 1 4 57: mean 15.5, variance (0 + 1 + 16 + 3249) / 4 - 15.5^2 = 576.25.
        assert_eq!(arrival.cv_interarrival, Some(round(576.25f64.sqrt() / 15.5, 4)));
    }

    #[test]
    fn what_has_no_value_has_none() {
        assert_eq!(Arrival::of(&[]), None);
        let one = Arrival::of(&[7]).unwrap();
        assert_eq!((one.span_s, one.peak_per_min), (0.0, 1));
        assert_eq!((one.mean_per_min, one.cv_interarrival), (None, None));
        assert_eq!(one.index_of_dispersion_1s, None);
    }
}
