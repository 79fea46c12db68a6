//! What goes together in a trace: growth and answer, first prompt and calls, turns and calls.

use super::sample::EXACT_MAX;
use crate::workload::dist::{Dist, Family};

/// With fewer pairs no correlation is told.
const FEW: usize = 20;

/// Pairs of values, of the first growths and sessions only.
#[derive(Clone, Debug, Default)]
pub struct Couplings {
    growth_tool: Vec<(f64, f64)>,
    growth_user: Vec<(f64, f64)>,
    first_and_calls: Vec<(f64, f64)>,
    turns_and_calls: Vec<(f64, f64)>,
    calls_and_growth: Vec<(f64, f64)>,
}

/// Two quantities of a session that go together.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Coupling {
    /// The one and the other.
    pub what: &'static str,
    /// Their rank correlation, as that of normal scores.
    pub correlation: f64,
}

impl Couplings {
    /// Adds a growth with the answer in it.
    pub fn growth(&mut self, output: u64, by: u64, is_new_turn: bool) {
        let pairs = if is_new_turn { &mut self.growth_user } else { &mut self.growth_tool };
        if output > 0 {
            push(pairs, (output as f64, by as f64));
        }
    }

    /// Adds a session.
    pub fn session(&mut self, first: f64, calls: f64, turns: f64, last: f64) {
        push(&mut self.first_and_calls, (first, calls));
        if turns > 1.0 {
            push(&mut self.turns_and_calls, (turns, calls / turns));
        }
        if calls > 1.0 && last > first {
            push(&mut self.calls_and_growth, (calls, (last - first) / (calls - 1.0)));
        }
    }

    /// Correlation of growth and the answer in it, with the number of pairs.
    #[must_use]
    pub fn growth_follows(&self) -> Option<(f64, u64)> {
        let pairs = match self.growth_tool.len() < FEW {
            true => &self.growth_user,
            false => &self.growth_tool,
        };
        correlation(pairs).map(|correlation| (correlation, pairs.len() as u64))
    }

    /// What a profile draws apart although it goes together.
    #[must_use]
    pub fn of_sessions(&self) -> Vec<Coupling> {
        let pairs = [
            ("first prompt and calls of a session", &self.first_and_calls),
            ("turns of a session and calls of a turn", &self.turns_and_calls),
            ("calls of a session and growth of a call", &self.calls_and_growth),
        ];
        let couplings = pairs
            .into_iter()
            .filter_map(|(what, pairs)| Some(Coupling { what, correlation: correlation(pairs)? }));
        couplings.collect()
    }
}

fn push(pairs: &mut Vec<(f64, f64)>, pair: (f64, f64)) {
    if pairs.len() < EXACT_MAX {
        pairs.push(pair);
    }
}

/// The correlation of the normal scores of two lists; `None` where one does not vary.
fn correlation(pairs: &[(f64, f64)]) -> Option<f64> {
    if pairs.len() < FEW {
        return None;
    }
    let a = scores(&pairs.iter().map(|pair| pair.0).collect::<Vec<_>>());
    let b = scores(&pairs.iter().map(|pair| pair.1).collect::<Vec<_>>());
    let product = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    let spread = (product(&a, &a) * product(&b, &b)).sqrt();
    (spread > 0.0).then(|| product(&a, &b) / spread)
}

/// The normal score of each value's rank; equal values have the score of their middle.
fn scores(values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|a, b| values[*a].total_cmp(&values[*b]));
    // The logarithm of a log-normal with median 1 and sigma 1.
    let normal = Dist::of(Family::LogNormal { median: 1.0, sigma: 1.0 });
    let mut scores = vec![0.0; values.len()];
    let mut below = 0;
    for run in order.chunk_by(|a, b| values[*a] == values[*b]) {
        let share = (below as f64 + run.len() as f64 / 2.0) / values.len() as f64;
        run.iter().for_each(|index| scores[*index] = normal.quantile(share).ln());
        below += run.len();
    }
    scores
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::{Purpose, Stream};

    #[test]
    fn the_correlation_that_a_generator_puts_in_is_found() {
        let dist = Dist::of(Family::LogNormal { median: 684.0, sigma: 1.33 });
        let mut stream = Stream::new(3, Purpose::Pause, 1);
        let pairs: Vec<(f64, f64)> = (0..20_000)
            .map(|_| {
                let u = crate::workload::dist::open_uniform(&mut stream);
                (u, dist.draw_following(&mut stream, u, 0.77))
            })
            .collect();
        let found = correlation(&pairs).unwrap();
        assert!((found - 0.77).abs() < 0.02, "{found}");
    }

    #[test]
    fn what_does_not_vary_is_not_correlated() {
        assert_eq!(correlation(&[(1.0, 2.0); 30]), None);
        let falling: Vec<(f64, f64)> = (0..30).map(|n| (f64::from(n), -f64::from(n))).collect();
        assert!((correlation(&falling).unwrap() + 1.0).abs() < 1e-9);
    }
}
