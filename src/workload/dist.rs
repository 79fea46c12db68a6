//! Families of distributions, each drawn by turning one uniform number into a value.
//!
//! A draw takes exactly one number of its stream, whatever the family: another family or another
//! parameter never shifts the draws that follow. All values are zero or more.
//!
//! ```
//! use tonnage::workload::dist::{Dist, Family};
//!
//! let tokens = Dist::of(Family::LogNormal { median: 225.0, sigma: 1.165 });
//! assert!((tokens.quantile(0.5) - 225.0).abs() < 1e-9);
//! ```

use crate::rng::Stream;

mod normal;
mod table;

pub use table::QuantileTable;

/// `p90 / p50` of a log-normal is `exp(sigma * Z90)`.
pub const Z90: f64 = 1.281_551_565_544_600_4;

/// A family with its parameters.
#[derive(Clone, Debug, PartialEq)]
pub enum Family {
    /// Always the same.
    Constant(f64),
    /// Log-normal.
    LogNormal {
        /// Its median.
        median: f64,
        /// Deviation of its logarithm.
        sigma: f64,
    },
    /// Exponential.
    Exponential {
        /// Its mean.
        mean: f64,
    },
    /// Geometric, counted from 0: how many go on before the first that stops.
    Geometric {
        /// Its mean.
        mean: f64,
    },
    /// Quantiles as measured, log-linear in between.
    Quantiles(QuantileTable),
    /// One of several, by share.
    Mixture(Vec<Part>),
}

/// One part of a mixture.
#[derive(Clone, Debug, PartialEq)]
pub struct Part {
    /// Its name in the file.
    pub name: String,
    /// Its share; those of a mixture add up to 1.
    pub share: f64,
    /// What it gives; no mixture again.
    pub dist: Dist,
}

/// A family, moved and bounded: `plus` + draw, at least `least`, at most `cap`.
#[derive(Clone, Debug, PartialEq)]
pub struct Dist {
    /// What is drawn.
    pub family: Family,
    /// Added to every draw.
    pub plus: f64,
    /// The least value.
    pub least: f64,
    /// The largest value.
    pub cap: f64,
}

impl Dist {
    /// A family as it is.
    #[must_use]
    pub fn of(family: Family) -> Self {
        Self { family, plus: 0.0, least: 0.0, cap: f64::INFINITY }
    }

    /// Always this value.
    #[must_use]
    pub fn constant(value: f64) -> Self {
        Self::of(Family::Constant(value))
    }

    /// The log-normal with this median and 90th percentile.
    #[must_use]
    pub fn log_normal_through(median: f64, p90: f64) -> Self {
        Self::of(Family::LogNormal { median, sigma: (p90 / median).ln() / Z90 })
    }

    /// Every draw multiplied; of what counts trials, the mean of their number.
    #[must_use]
    pub fn times(&self, factor: f64) -> Self {
        let family = match &self.family {
            Family::Constant(value) => Family::Constant(value * factor),
            Family::LogNormal { median, sigma } => {
                Family::LogNormal { median: median * factor, sigma: *sigma }
            }
            Family::Exponential { mean } => Family::Exponential { mean: mean * factor },
            Family::Geometric { mean } => Family::Geometric { mean: mean * factor },
            Family::Quantiles(table) => Family::Quantiles(table.times(factor)),
            Family::Mixture(parts) => {
                let part = |part: &Part| Part { dist: part.dist.times(factor), ..part.clone() };
                Family::Mixture(parts.iter().map(part).collect())
            }
        };
        let Self { plus, least, cap, .. } = *self;
        Self { family, plus: plus * factor, least: least * factor, cap: cap * factor }
    }

    /// The value that a share `u` of all draws does not exceed; `u` is above 0 and below 1.
    #[must_use]
    pub fn quantile(&self, u: f64) -> f64 {
        let value = match &self.family {
            Family::Constant(value) => *value,
            Family::LogNormal { median, sigma } => median * (sigma * normal::quantile(u)).exp(),
            Family::Exponential { mean } => -mean * (1.0 - u).ln(),
            Family::Geometric { mean } => geometric(*mean, u),
            Family::Quantiles(table) => table.quantile(u),
            Family::Mixture(parts) => mixed(parts, u),
        };
        // A float that overflowed is as good as the cap.
        (self.plus + value).max(self.least).min(self.cap)
    }

    /// One value.
    #[must_use]
    pub fn draw(&self, stream: &mut Stream) -> f64 {
        self.quantile(open_uniform(stream))
    }

    /// One whole number, `floor` of a value: `plus = 0.5` rounds.
    #[must_use]
    pub fn draw_count(&self, stream: &mut Stream) -> u64 {
        // A float-to-int cast saturates and sends NaN to zero.
        self.draw(stream).floor() as u64
    }

    /// One value whose normal score has the correlation `rho` with that of `other`, a uniform
    /// number that something else was drawn with.
    #[must_use]
    pub fn draw_following(&self, stream: &mut Stream, other: f64, rho: f64) -> f64 {
        let own = normal::quantile(open_uniform(stream));
        let score = rho * normal::quantile(other) + (1.0 - rho * rho).sqrt() * own;
        self.quantile(normal::share_below(score).clamp(UNIFORM_STEP, 1.0 - UNIFORM_STEP))
    }

    /// The mean, to about a thousandth, by Gauss's rule on pieces of the quantile function.
    #[must_use]
    pub fn mean(&self) -> f64 {
        // The pieces shrink towards both ends, where heavy tails live.
        let mut edges: Vec<f64> = vec![0.5];
        edges.extend((2..=40).map(|power| 0.5_f64.powi(power)));
        let half = |mirror: bool| {
            let piece = |pair: &[f64]| {
                let (high, low) = (pair[0], pair[1]);
                let points = GAUSS.iter().map(|(at, weight)| {
                    let u = low + (high - low) * at;
                    weight * self.quantile(if mirror { 1.0 - u } else { u })
                });
                (high - low) * points.sum::<f64>()
            };
            edges.windows(2).map(piece).sum::<f64>()
        };
        half(false) + half(true)
    }
}

/// Points and weights of Gauss's rule of five points on 0 to 1.
const GAUSS: [(f64, f64); 5] = [
    (0.046_910_077_030_668, 0.118_463_442_528_094_5),
    (0.230_765_344_947_158_5, 0.239_314_335_249_683_2),
    (0.5, 0.284_444_444_444_444_5),
    (0.769_234_655_052_841_5, 0.239_314_335_249_683_2),
    (0.953_089_922_969_332, 0.118_463_442_528_094_5),
];

/// Half a step of a uniform number of 53 bits.
const UNIFORM_STEP: f64 = 1.0 / (1u64 << 54) as f64;

/// A uniform number that is neither 0 nor 1.
#[must_use]
pub fn open_uniform(stream: &mut Stream) -> f64 {
    stream.uniform_f64() + UNIFORM_STEP
}

/// Whether something of this probability happens.
#[must_use]
pub fn happens(stream: &mut Stream, probability: f64) -> bool {
    stream.uniform_f64() < probability
}

/// The least whole number k with `1 - q^(k + 1) >= u`, where q is the chance to go on.
fn geometric(mean: f64, u: f64) -> f64 {
    if mean <= 0.0 {
        return 0.0;
    }
    let go_on = mean / (1.0 + mean);
    ((1.0 - u).ln() / go_on.ln()).ceil() - 1.0
}

fn mixed(parts: &[Part], u: f64) -> f64 {
    let mut below = 0.0;
    let last = parts.len().saturating_sub(1);
    for (number, part) in parts.iter().enumerate() {
        if u < below + part.share || number == last {
            let within = (u - below) / part.share;
            return part.dist.quantile(within.clamp(UNIFORM_STEP, 1.0 - UNIFORM_STEP));
        }
        below += part.share;
    }
    0.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Purpose;

    fn sample(dist: &Dist, n: u32) -> Vec<f64> {
        let mut stream = Stream::new(7, Purpose::Pause, 1);
        let mut values: Vec<f64> = (0..n).map(|_| dist.draw(&mut stream)).collect();
        values.sort_by(f64::total_cmp);
        values
    }

    fn mean(values: &[f64]) -> f64 {
        values.iter().sum::<f64>() / values.len() as f64
    }

    #[test]
    fn a_pair_of_percentiles_gives_both_back() {
        let dist = Dist::log_normal_through(14.0, 67.0);
        assert!((dist.quantile(0.5) - 14.0).abs() < 1e-9);
        assert!((dist.quantile(0.9) - 67.0).abs() < 1e-6);
    }

    #[test]
    fn draws_have_the_mean_and_the_median_of_their_family() {
        let log_normal = Dist::of(Family::LogNormal { median: 225.0, sigma: 1.165 });
        let expected = 225.0 * (1.165_f64 * 1.165 / 2.0).exp();
        assert!((log_normal.mean() / expected - 1.0).abs() < 1e-3, "{}", log_normal.mean());
        let values = sample(&log_normal, 100_000);
        assert!((mean(&values) / expected - 1.0).abs() < 0.02);
        assert!((values[50_000] / 225.0 - 1.0).abs() < 0.02);
        for (dist, expected) in [
            (Dist::of(Family::Geometric { mean: 1.5 }), 1.5),
            (Dist::of(Family::Exponential { mean: 30.0 }), 30.0),
            (Dist { plus: 2.0, ..Dist::constant(5.0) }, 7.0),
        ] {
            let drawn = mean(&sample(&dist, 100_000));
            assert!((drawn / expected - 1.0).abs() < 0.02, "{dist:?}: {drawn}");
        }
    }

    #[test]
    fn a_geometric_number_stops_with_the_chance_of_its_mean() {
        let values = sample(&Dist::of(Family::Geometric { mean: 3.0 }), 40_000);
        let zero = values.iter().filter(|value| **value == 0.0).count() as f64 / 40_000.0;
        assert!((zero - 0.25).abs() < 0.01, "{zero}");
        assert!(values.iter().all(|value| value.fract() == 0.0 && *value >= 0.0));
    }

    #[test]
    fn a_mixture_gives_each_part_its_share() {
        let part = |name: &str, share, value| Part {
            name: name.to_owned(),
            share,
            dist: Dist::constant(value),
        };
        let dist = Dist::of(Family::Mixture(vec![part("a", 0.93, 1.0), part("b", 0.07, 2.0)]));
        assert_eq!((dist.quantile(0.929), dist.quantile(0.931)), (1.0, 2.0));
        assert!((dist.mean() - 1.07).abs() < 1e-2);
    }

    #[test]
    fn bounds_hold_and_counts_are_floors() {
        let dist = Dist { least: 2.0, cap: 40.0, ..Dist::log_normal_through(9.0, 300.0) };
        let values = sample(&dist, 10_000);
        assert_eq!((values[0], values[9_999]), (2.0, 40.0));
        let mut stream = Stream::new(1, Purpose::Pause, 1);
        assert_eq!(Dist::constant(2.9).draw_count(&mut stream), 2);
    }

    #[test]
    fn following_draws_keep_their_family_and_take_the_correlation() {
        let dist = Dist::of(Family::LogNormal { median: 684.0, sigma: 1.33 });
        let mut stream = Stream::new(3, Purpose::Pause, 1);
        let pairs: Vec<(f64, f64)> = (0..50_000)
            .map(|_| {
                let u = open_uniform(&mut stream);
                let value = dist.draw_following(&mut stream, u, 0.6);
                (normal::quantile(u), (value / 684.0).ln() / 1.33)
            })
            .collect();
        let n = pairs.len() as f64;
        let product = pairs.iter().map(|(a, b)| a * b).sum::<f64>() / n;
        let spread = pairs.iter().map(|(_, b)| b * b).sum::<f64>() / n;
        assert!((product - 0.6).abs() < 0.02, "{product}");
        assert!((spread - 1.0).abs() < 0.03, "{spread}");
    }
}
