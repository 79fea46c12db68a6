//! The longest prompt of a session, from sessions of which most never reach it.
//!
//! A session that was compacted at some length says where its limit is. One that never was says
//! only that the limit is beyond its longest prompt. E. L. Kaplan and P. Meier's product of 1958
//! takes both in; a session counts from its first prompt on, since a shorter limit could not have
//! shown.

use super::sample::{Cells, EXACT_MAX};
use super::table;
use crate::workload::dist::{Dist, Family, Part};

/// A limit that no prompt reaches.
const NEVER: f64 = 1e9;
/// Weights are counted in so many parts of one.
const WEIGHT: f64 = 1e9;

/// What one session says of its limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Seen {
    first: u64,
    /// The prompt before the first compaction, or the longest.
    last: u64,
    is_reached: bool,
}

/// What the sessions say of their limits; the first 65,536 of them count.
#[derive(Clone, Debug, Default)]
pub struct Limits(Vec<Seen>);

impl Limits {
    /// Adds a session with its first prompt and the one before its first compaction, or without
    /// any its longest.
    pub fn add(&mut self, first: u64, last: u64, is_reached: bool) {
        if self.0.len() < EXACT_MAX {
            self.0.push(Seen { first, last: last.max(first), is_reached });
        }
    }

    /// Sessions that reached their limit.
    #[must_use]
    pub fn reached(&self) -> u64 {
        self.0.iter().filter(|seen| seen.is_reached).count() as u64
    }

    /// Where the limits are; `None` if no session reached one.
    #[must_use]
    pub fn dist(&self) -> Option<Dist> {
        let (cells, left) = self.product();
        if cells.count == 0 {
            return None;
        }
        let mut parts = table::parts(&cells, false, self.reached() < table::FEW);
        parts.iter_mut().for_each(|part| part.share *= 1.0 - left);
        if left > 0.0 {
            let name = "unlimited".to_owned();
            parts.push(Part { name, share: left, dist: Dist::constant(NEVER) });
        }
        match parts.len() {
            1 => Some(parts.remove(0).dist),
            _ => Some(Dist::of(Family::Mixture(parts))),
        }
    }

    /// Weights of the lengths at which a limit was reached, and the share beyond all of them.
    fn product(&self) -> (Cells, f64) {
        let mut firsts: Vec<u64> = self.0.iter().map(|seen| seen.first).collect();
        let mut lasts: Vec<u64> = self.0.iter().map(|seen| seen.last).collect();
        let reached = self.0.iter().filter(|seen| seen.is_reached);
        let mut reached: Vec<u64> = reached.map(|seen| seen.last).collect();
        for list in [&mut firsts, &mut lasts, &mut reached] {
            list.sort_unstable();
        }
        let (mut left, mut weights) = (1.0, Vec::new());
        for run in reached.chunk_by(|a, b| a == b) {
            let at = run[0];
            let begun = firsts.partition_point(|first| *first <= at);
            let gone = lasts.partition_point(|last| *last < at);
            // Those that reach it here have begun and are not gone, so nothing is divided by 0.
            let weight = left * run.len() as f64 / (begun - gone) as f64;
            weights.push((at as f64, (weight * WEIGHT).round() as u64));
            left -= weight;
        }
        weights.retain(|(_, weight)| *weight > 0);
        let left = if left < 1e-6 { 0.0 } else { left };
        (Cells::new(weights), left)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_product_worked_out_on_paper() {
        let mut limits = Limits::default();
        for (first, last, is_reached) in
            [(1, 50, false), (1, 100, true), (1, 120, false), (1, 200, true), (150, 300, false)]
        {
            limits.add(first, last, is_reached);
        }
        // At 100 three are there and one stops; at 200 two and one.
        let (cells, left) = limits.product();
        let third = (1e9_f64 / 3.0).round() as u64;
        assert_eq!(cells.values, [(100.0, third), (200.0, third)]);
        assert!((left - 1.0 / 3.0).abs() < 1e-9);
        let dist = limits.dist().unwrap();
        assert_eq!([0.2, 0.5, 0.8].map(|u| dist.quantile(u)), [100.0, 200.0, NEVER]);
    }

    #[test]
    fn without_a_compaction_there_is_no_limit() {
        let mut limits = Limits::default();
        limits.add(1, 50, false);
        assert_eq!(limits.dist(), None);
    }
}
