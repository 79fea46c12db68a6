//! Quantiles as measured, with a rule for what lies between and beyond them.

/// Measured quantiles: between two of them the logarithm of the value is linear in the share; below
/// the first and above the last the slope of the neighbouring piece goes on. Where the mean is
/// known, the end of the last piece is put where the mean comes out.
#[derive(Clone, Debug, PartialEq)]
pub struct QuantileTable {
    /// Shares above 0 and below 1 with their values above 0, both in ascending order.
    points: Vec<(f64, f64)>,
    /// Mean that the table is to have, if it is known.
    mean: Option<f64>,
    /// No value is above.
    top: f64,
    /// The value at the share 0.
    start: f64,
    /// The value at the share 1.
    end: f64,
}

/// How far off the wanted mean may be before a table is refused, as a share of it.
const MEAN_TOLERANCE: f64 = 0.02;

impl QuantileTable {
    /// A table; `top` is the largest value that may occur.
    ///
    /// # Errors
    /// What is wrong with the points, or why the mean cannot be met.
    pub fn new(points: Vec<(f64, f64)>, mean: Option<f64>, top: f64) -> Result<Self, String> {
        check(&points, top)?;
        let (first, last) = (points[0], points[points.len() - 1]);
        let start = extended(points[1], first, -first.0);
        let end = extended(points[points.len() - 2], last, 1.0 - last.0).min(top);
        let mut table = Self { points, mean, top, start, end };
        if let Some(mean) = mean {
            table.meet(mean)?;
        }
        Ok(table)
    }

    /// Every value multiplied.
    #[must_use]
    pub fn times(&self, factor: f64) -> Self {
        Self {
            points: self.points.iter().map(|(share, value)| (*share, value * factor)).collect(),
            mean: self.mean.map(|mean| mean * factor),
            top: self.top * factor,
            start: self.start * factor,
            end: self.end * factor,
        }
    }

    /// The points as given.
    #[must_use]
    pub fn points(&self) -> &[(f64, f64)] {
        &self.points
    }

    /// The mean as given.
    #[must_use]
    pub fn stated_mean(&self) -> Option<f64> {
        self.mean
    }

    /// The largest value that may occur, as given.
    #[must_use]
    pub fn top(&self) -> f64 {
        self.top
    }

    /// The value at a share.
    #[must_use]
    pub fn quantile(&self, u: f64) -> f64 {
        let above = self.points.partition_point(|(share, _)| *share < u);
        let low = match above.checked_sub(1) {
            Some(below) => self.points[below],
            None => (0.0, self.start),
        };
        let high = self.points.get(above).copied().unwrap_or((1.0, self.end));
        let part = (u - low.0) / (high.0 - low.0);
        low.1 * (high.1 / low.1).powf(part)
    }

    /// Puts the end where the mean comes out.
    fn meet(&mut self, mean: f64) -> Result<(), String> {
        let last = self.points[self.points.len() - 1];
        let body: f64 = std::iter::once(&(0.0, self.start))
            .chain(&self.points)
            .zip(&self.points)
            .map(|(low, high)| piece(*low, *high))
            .sum();
        let with_end = |end: f64| body + piece(last, (1.0, end));
        let (least, most) = (with_end(last.1), with_end(self.top));
        let slack = MEAN_TOLERANCE * mean;
        if mean + slack < least || mean - slack > most {
            return Err(format!(
                "a mean of {mean} cannot be met: with these quantiles it is from {least:.4} to \
                 {most:.4}, the latter with a largest value of {}",
                self.top
            ));
        }
        let (mut low, mut high) = (last.1, self.top);
        for _ in 0..200 {
            let middle = (low * high).sqrt();
            if with_end(middle) < mean { low = middle } else { high = middle }
        }
        self.end = high;
        Ok(())
    }
}

fn check(points: &[(f64, f64)], top: f64) -> Result<(), String> {
    if points.len() < 2 {
        return Err("at least two quantiles are needed".to_owned());
    }
    for (share, value) in points {
        let is_inside = *share > 0.0 && *share < 1.0;
        if !(is_inside && *value > 0.0 && *value <= top) {
            let percent = 100.0 * share;
            return Err(format!("the quantile p{percent} is {value}: above 0 and at most {top}"));
        }
    }
    match points.windows(2).find(|pair| pair[0].0 >= pair[1].0 || pair[0].1 > pair[1].1) {
        Some(pair) => Err(format!("the quantiles fall from {} to {}", pair[0].1, pair[1].1)),
        None => Ok(()),
    }
}

/// The value `further` beyond `at` on the line through `from` and `at`, in logarithms.
fn extended(from: (f64, f64), at: (f64, f64), further: f64) -> f64 {
    let slope = (at.1 / from.1).ln() / (at.0 - from.0);
    at.1 * (slope * further).exp()
}

/// The integral of the quantile function between two points.
fn piece(low: (f64, f64), high: (f64, f64)) -> f64 {
    let width = high.0 - low.0;
    let log = (high.1 / low.1).ln();
    match log.abs() < 1e-9 {
        true => width * low.1,
        false => width * (high.1 - low.1) / log,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::dist::{Dist, Family};

    /// Output tokens of a call in the Weka sessions.
    const OUTPUT: [(f64, f64); 8] = [
        (0.05, 89.0),
        (0.10, 105.0),
        (0.25, 137.0),
        (0.50, 216.0),
        (0.75, 426.0),
        (0.90, 898.0),
        (0.95, 1_554.0),
        (0.99, 3_687.0),
    ];

    #[test]
    fn every_point_and_the_mean_come_back() {
        let table = QuantileTable::new(OUTPUT.to_vec(), Some(440.0), 64_000.0).unwrap();
        for (share, value) in OUTPUT {
            assert!((table.quantile(share) / value - 1.0).abs() < 1e-9, "{share}");
        }
        let mean = Dist::of(Family::Quantiles(table)).mean();
        assert!((mean / 440.0 - 1.0).abs() < 2e-3, "{mean}");
    }

    #[test]
    fn between_two_points_the_logarithm_is_linear() {
        let table = QuantileTable::new(vec![(0.2, 10.0), (0.6, 1_000.0)], None, 1e9).unwrap();
        assert!((table.quantile(0.4) - 100.0).abs() < 1e-9);
        assert!((table.quantile(0.8) - 10_000.0).abs() < 1e-6);
        assert!((table.quantile(1e-12) - 1.0).abs() < 1e-9);
    }

    #[test]
    fn what_cannot_be_is_refused() {
        for (points, mean, top, said) in [
            (vec![(0.5, 1.0)], None, 9.0, "at least two"),
            (vec![(0.5, 2.0), (0.9, 1.0)], None, 9.0, "fall from 2 to 1"),
            (vec![(0.5, 0.0), (0.9, 1.0)], None, 9.0, "p50 is 0"),
            (vec![(0.5, 1.0), (0.9, 10.0)], None, 9.0, "p90 is 10"),
            (vec![(0.5, 1.0), (0.9, 2.0)], Some(50.0), 9.0, "a mean of 50 cannot be met"),
        ] {
            let error = QuantileTable::new(points, mean, top).unwrap_err();
            assert!(error.contains(said), "{error}");
        }
    }
}
