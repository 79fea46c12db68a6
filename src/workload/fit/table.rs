//! From values to a distribution that a profile can hold.

use super::sample::Cells;
use crate::workload::dist::{Dist, Family, Part, QuantileTable};

/// With fewer values no table of quantiles is made.
pub const FEW: u64 = 20;
/// The largest amount that a profile can hold.
const AMOUNT_MAX: f64 = 1e9;
/// A count that so large a share of the values has, and so many of them, is drawn as itself.
const ATOM_SHARE: f64 = 0.01;
const ATOM_VALUES: u64 = 5;
/// How far off the mean of a table may be before it gets more points.
const MEAN_SLACK: f64 = 0.005;

/// The points of a table.
pub const POINTS: [f64; 8] = [0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99];
/// The points where those leave the mean wrong, with so many values at least.
const MANY: u64 = 50;
const MORE_POINTS: [f64; 17] =
    [0.01, 0.05, 0.1, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6, 0.7, 0.75, 0.8, 0.9, 0.95, 0.975, 0.99, 0.998];

/// What draws like these values: whole numbers if `is_count`. There is at least one value.
#[must_use]
pub fn dist(cells: &Cells, is_count: bool) -> Dist {
    let mut parts = parts(cells, is_count, cells.count < FEW);
    match parts.len() {
        1 => parts.remove(0).dist,
        _ => Dist::of(Family::Mixture(parts)),
    }
}

/// The same as parts of a mixture, in the order of their names. Of few values, what is there is
/// all that is known.
#[must_use]
pub fn parts(cells: &Cells, is_count: bool, are_few: bool) -> Vec<Part> {
    let whole = cells.count as f64;
    let is_atom = |cell: &(f64, u64)| are_few || is_atom(*cell, whole, is_count);
    let (atoms, rest): (Vec<_>, Vec<_>) = cells.values.iter().copied().partition(is_atom);
    let atoms = atoms.into_iter().enumerate().map(|(index, (value, count))| Part {
        name: if is_count { format!("n{value:07}") } else { format!("n{index:02}") },
        share: count as f64 / whole,
        dist: Dist::constant(value.min(AMOUNT_MAX)),
    });
    let mut parts: Vec<Part> = atoms.collect();
    let rest = Cells::new(rest);
    if rest.count > 0 {
        let share = rest.count as f64 / whole;
        parts.push(Part { name: "rest".to_owned(), share, dist: table(&rest, is_count) });
    }
    parts
}

fn is_atom((value, count): (f64, u64), whole: f64, is_count: bool) -> bool {
    // No table holds a zero.
    value == 0.0 || (is_count && count >= ATOM_VALUES && count as f64 / whole >= ATOM_SHARE)
}

/// A table of quantiles with the mean; one value alone is a constant. No value is 0.
fn table(cells: &Cells, is_count: bool) -> Dist {
    let (min, max) = (cells.min().min(AMOUNT_MAX), cells.max().min(AMOUNT_MAX));
    if min == max {
        return Dist::constant(min);
    }
    let of = |points: &[f64], mean| {
        let points = points.iter().map(|share| (*share, cells.quantile(*share).min(max)));
        let table = QuantileTable::new(points.collect(), mean, max).ok()?;
        // A count is the floor of a draw, so a half rounds it.
        let plus = if is_count { 0.5 } else { 0.0 };
        Some(Dist { family: Family::Quantiles(table), plus, least: min, cap: max })
    };
    let off = |dist: &Dist| (dist.mean() - dist.plus - cells.mean).abs() / cells.mean;
    let more: &[f64] = if cells.count < MANY { &POINTS } else { &MORE_POINTS };
    let tries = [(&POINTS[..], true), (more, true), (&POINTS[..], false), (more, false)];
    let tries = tries
        .into_iter()
        .filter_map(|(points, has_mean)| of(points, has_mean.then_some(cells.mean)));
    let mut best: Option<Dist> = None;
    for dist in tries {
        if off(&dist) <= MEAN_SLACK {
            return dist;
        }
        if best.as_ref().is_none_or(|best| off(&dist) < off(best)) {
            best = Some(dist);
        }
    }
    // Without a mean every table of values above 0 is one.
    best.unwrap_or_else(|| Dist::constant(cells.quantile(0.5)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cells(values: &[(f64, u64)]) -> Cells {
        Cells::new(values.to_vec())
    }

    #[test]
    fn a_single_value_is_a_constant_and_few_are_drawn_as_they_are() {
        assert_eq!(dist(&cells(&[(7.0, 90)]), false), Dist::constant(7.0));
        let few = dist(&cells(&[(0.0, 1), (3.0, 2), (70.0, 1)]), false);
        let at = |u| few.quantile(u);
        assert_eq!([at(0.2), at(0.3), at(0.7), at(0.8)], [0.0, 3.0, 3.0, 70.0]);
    }

    #[test]
    fn a_table_has_the_quantiles_the_mean_and_the_ends_of_its_values() {
        let values: Vec<(f64, u64)> = (1..=5_000).map(|n| (f64::from(n * n), 1)).collect();
        let values = cells(&values);
        let dist = dist(&values, false);
        for share in POINTS {
            assert!((dist.quantile(share) / values.quantile(share) - 1.0).abs() < 1e-9, "{share}");
        }
        assert!((dist.mean() / values.mean - 1.0).abs() < 0.01, "{}", dist.mean());
        assert!(dist.quantile(1e-9) >= 1.0 && dist.quantile(1.0 - 1e-9) <= 25e6);
    }

    #[test]
    fn frequent_counts_keep_their_share_and_rare_ones_go_into_a_table() {
        let mut values = vec![(1.0, 500), (2.0, 200), (3.0, 100)];
        values.extend((4..204).map(|n| (f64::from(n), 1)));
        let dist = dist(&cells(&values), true);
        assert_eq!([0.49, 0.51, 0.71, 0.79].map(|u| dist.quantile(u)), [1.0, 2.0, 3.0, 3.0]);
        let last = dist.quantile(0.9);
        assert!((last - 104.0).abs() < 8.0, "{last}");
    }

    #[test]
    fn zeros_are_drawn_as_often_as_they_occur() {
        let mut values = vec![(0.0, 60)];
        values.extend((1..=40).map(|n| (f64::from(n) / 10.0, 1)));
        let dist = dist(&cells(&values), false);
        assert_eq!((dist.quantile(0.59), dist.quantile(0.6 + 1e-6) > 0.0), (0.0, true));
    }
}
