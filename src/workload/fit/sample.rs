//! The values of one quantity, in bounded memory, and how far two such collections are apart.

use crate::stats::LogHistogram;

/// So many values are kept exactly; with more, all go into buckets of 0.4 %.
pub const EXACT_MAX: usize = 1 << 16;

/// Values as whole steps of their unit.
#[derive(Clone, Debug, Default)]
pub struct Sample {
    exact: Vec<u64>,
    rough: Option<LogHistogram>,
    count: u64,
    sum: u128,
    min: u64,
    max: u64,
}

impl Sample {
    /// Adds a value.
    pub fn add(&mut self, value: u64) {
        self.min = if self.count == 0 { value } else { self.min.min(value) };
        self.max = self.max.max(value);
        self.count += 1;
        self.sum += u128::from(value);
        if let Some(rough) = &mut self.rough {
            rough.add(value);
            return;
        }
        self.exact.push(value);
        if self.exact.len() > EXACT_MAX {
            self.rough = Some(histogram(&std::mem::take(&mut self.exact)));
        }
    }

    /// Values added.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Whether every value is known as it was.
    #[must_use]
    pub fn is_exact(&self) -> bool {
        self.rough.is_none()
    }

    /// The values in order, in the unit that has `steps` steps; in buckets if `as_rough`.
    #[must_use]
    pub fn cells(&self, steps: f64, as_rough: bool) -> Cells {
        let mut values: Vec<(f64, u64)> = Vec::new();
        match &self.rough {
            Some(rough) => values.extend(rough.buckets()),
            None if as_rough => values.extend(histogram(&self.exact).buckets()),
            None => {
                let mut sorted = self.exact.clone();
                sorted.sort_unstable();
                for value in sorted {
                    let value = value as f64;
                    match values.last_mut() {
                        Some((last, count)) if *last == value => *count += 1,
                        _ => values.push((value, 1)),
                    }
                }
            }
        }
        let (min, max) = (self.min as f64 / steps, self.max as f64 / steps);
        // The middle of a bucket may lie beyond the values in it.
        values.iter_mut().for_each(|(value, _)| *value = (*value / steps).clamp(min, max));
        let mean = (self.count > 0).then(|| self.sum as f64 / self.count as f64 / steps);
        Cells { values, count: self.count, mean: mean.unwrap_or(0.0) }
    }
}

fn histogram(values: &[u64]) -> LogHistogram {
    let mut histogram = LogHistogram::default();
    values.iter().for_each(|value| histogram.add(*value));
    histogram
}

/// Values in ascending order, each with how often it occurs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Cells {
    /// Different values, each with its count above 0.
    pub values: Vec<(f64, u64)>,
    /// All counts together.
    pub count: u64,
    /// The mean.
    pub mean: f64,
}

impl Cells {
    /// From values in ascending order with their counts.
    #[must_use]
    pub fn new(values: Vec<(f64, u64)>) -> Self {
        let count = values.iter().map(|(_, count)| count).sum();
        let sum: f64 = values.iter().map(|(value, count)| value * *count as f64).sum();
        let mean = if count > 0 { sum / count as f64 } else { 0.0 };
        Self { values, count, mean }
    }

    /// The values of both.
    #[must_use]
    pub fn and(&self, other: &Self) -> Self {
        let mut values = [self.values.as_slice(), other.values.as_slice()].concat();
        values.sort_by(|a, b| a.0.total_cmp(&b.0));
        values.dedup_by(|next, kept| {
            let is_same = next.0 == kept.0;
            kept.1 += if is_same { next.1 } else { 0 };
            is_same
        });
        let count = self.count + other.count;
        let sum = self.mean * self.count as f64 + other.mean * other.count as f64;
        Self { values, count, mean: if count > 0 { sum / count as f64 } else { 0.0 } }
    }

    /// Where these values lie among `all`: the share of those not above, on average.
    #[must_use]
    pub fn place_among(&self, all: &Self) -> f64 {
        let (mut below, mut sum, mut rest) = (0, 0.0, all.values.iter().peekable());
        for (value, count) in &self.values {
            while let Some((_, more)) = rest.next_if(|cell| cell.0 <= *value) {
                below += more;
            }
            sum += below as f64 / all.count as f64 * *count as f64;
        }
        sum / self.count as f64
    }

    /// The nearest-rank quantile; 0 where there is no value.
    #[must_use]
    pub fn quantile(&self, share: f64) -> f64 {
        // Rounding of the product must not reach the next rank.
        let rank = (share * self.count as f64 * (1.0 - 1e-12)).ceil().max(1.0) as u64;
        let mut seen = 0;
        let at = self.values.iter().find(|(_, count)| {
            seen += count;
            seen >= rank
        });
        at.or(self.values.last()).map_or(0.0, |(value, _)| *value)
    }

    /// The least value.
    #[must_use]
    pub fn min(&self) -> f64 {
        self.values.first().map_or(0.0, |(value, _)| *value)
    }

    /// The largest value.
    #[must_use]
    pub fn max(&self) -> f64 {
        self.values.last().map_or(0.0, |(value, _)| *value)
    }
}

/// How far two distributions are apart.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Distance {
    /// Kolmogorov and Smirnov's: the largest difference of the shares below any value.
    pub ks: f64,
    /// Wasserstein's first, how far values must be moved on average, over the first one's mean.
    pub moved: Option<f64>,
}

impl Distance {
    /// Between two collections; `None` where one is empty.
    #[must_use]
    pub fn between(one: &Cells, other: &Cells) -> Option<Self> {
        if one.count == 0 || other.count == 0 {
            return None;
        }
        let (mut a, mut b) = (one.values.iter().peekable(), other.values.iter().peekable());
        let (mut below, mut last) = ((0u64, 0u64), None::<f64>);
        let (mut ks, mut moved) = (0.0_f64, 0.0_f64);
        loop {
            let next = match (a.peek(), b.peek()) {
                (Some(a), Some(b)) => a.0.min(b.0),
                (Some(only), None) | (None, Some(only)) => only.0,
                (None, None) => break,
            };
            let share = |(a, b): (u64, u64)| {
                (a as f64 / one.count as f64 - b as f64 / other.count as f64).abs()
            };
            moved += last.map_or(0.0, |last| share(below) * (next - last));
            below.0 += a.next_if(|cell| cell.0 == next).map_or(0, |cell| cell.1);
            below.1 += b.next_if(|cell| cell.0 == next).map_or(0, |cell| cell.1);
            ks = ks.max(share(below));
            last = Some(next);
        }
        Some(Self { ks, moved: (one.mean > 0.0).then(|| moved / one.mean) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(values: impl IntoIterator<Item = u64>) -> Sample {
        let mut sample = Sample::default();
        values.into_iter().for_each(|value| sample.add(value));
        sample
    }

    #[test]
    fn quantiles_are_values_that_occur() {
        let cells = sample([40, 15, 35, 20, 50, 35]).cells(10.0, false);
        assert_eq!(cells.values, [(1.5, 1), (2.0, 1), (3.5, 2), (4.0, 1), (5.0, 1)]);
        assert_eq!((cells.quantile(0.5), cells.quantile(0.99)), (3.5, 5.0));
        assert_eq!((cells.min(), cells.max(), cells.mean), (1.5, 5.0, 3.25));
        let hundred = sample(1..=100).cells(1.0, false);
        assert!((1..100u32).all(|p| hundred.quantile(f64::from(p) / 100.0) == f64::from(p)));
    }

    #[test]
    fn many_values_are_known_to_a_bucket_and_their_mean_exactly() {
        let many = sample((1..=100_000).map(|n| 10 * n));
        let cells = many.cells(1.0, false);
        assert!(!many.is_exact() && cells.mean == 500_005.0 && cells.max() <= 1e6);
        assert!((cells.quantile(0.5) / 500_000.0 - 1.0).abs() < 0.004);
    }

    #[test]
    fn two_collections_together_and_one_among_the_other() {
        let (a, b) = (Cells::new(vec![(1.0, 1), (3.0, 1)]), Cells::new(vec![(2.0, 1), (3.0, 3)]));
        assert_eq!(a.and(&b), Cells::new(vec![(1.0, 1), (2.0, 1), (3.0, 4)]));
        assert_eq!(a.place_among(&b), 0.5);
        assert_eq!(b.place_among(&a), (0.5 + 3.0) / 4.0);
    }

    #[test]
    fn distances_worked_out_on_paper() {
        let (a, b) = (Cells::new(vec![(1.0, 1), (3.0, 1)]), Cells::new(vec![(2.0, 1), (3.0, 3)]));
        // Shares below: from 1 to 2 one half against none, from 2 to 3 one half against a quarter.
        let distance = Distance::between(&a, &b).unwrap();
        assert_eq!(distance, Distance { ks: 0.5, moved: Some(0.375) });
        assert_eq!(Distance::between(&a, &a).unwrap(), Distance { ks: 0.0, moved: Some(0.0) });
        assert_eq!(Distance::between(&a, &Cells::default()), None);
    }
}
