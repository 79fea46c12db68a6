//! A session's calls in order of start, with the lanes of all of its parts.

use super::lanes::{self, Facts, Step};
use super::row::Row;
use super::time::Micros;

/// The calls of one session id, or of calls put together.
#[derive(Clone, Debug, Default)]
pub(super) struct Part {
    /// In order of start.
    pub(super) rows: Vec<Row>,
    /// The part of the same session that it works for, by position in the session.
    pub(super) parent: Option<usize>,
}

/// A session's rows in order of start, with lanes numbered over all of its parts.
#[derive(Debug)]
pub(super) struct Plan<'a> {
    /// In order of start.
    pub(super) rows: Vec<&'a Row>,
    /// Lane of each call.
    pub(super) lane_of: Vec<usize>,
    /// What each call is to its lane; the numbers are calls of the session.
    pub(super) steps: Vec<Step>,
    /// The contexts, the main one first.
    pub(super) lanes: Vec<Lane>,
}

/// One context of the session.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lane {
    /// The lane that it works for.
    pub(super) parent: Option<usize>,
    /// When its last call ended.
    pub(super) end: Micros,
}

/// A call with its part and its position there.
type Seated<'a> = (&'a Row, usize, usize);

impl<'a> Plan<'a> {
    /// The plan of a session of these parts, the root first.
    pub(super) fn new(parts: &'a [Part]) -> Self {
        let mut calls: Vec<Seated<'_>> = Vec::new();
        for (part, rows) in parts.iter().enumerate() {
            calls.extend(rows.rows.iter().enumerate().map(|(at, row)| (row, part, at)));
        }
        calls.sort_by_key(|(row, ..)| row.standing());
        let mut numbers: Vec<Vec<usize>> =
            parts.iter().map(|part| vec![0; part.rows.len()]).collect();
        for (number, &(_, part, at)) in calls.iter().enumerate() {
            numbers[part][at] = number;
        }
        let split: Vec<lanes::Lanes> = parts
            .iter()
            .map(|part| lanes::split(&part.rows.iter().map(facts).collect::<Vec<_>>()))
            .collect();
        let mut plan = Self {
            rows: calls.iter().map(|&(row, ..)| row).collect(),
            lane_of: Vec::with_capacity(calls.len()),
            steps: Vec::with_capacity(calls.len()),
            lanes: Vec::new(),
        };
        plan.number_lanes(parts, &split, &calls);
        for &(_, part, at) in &calls {
            plan.steps.push(renumbered(split[part].steps[at], &numbers[part]));
        }
        plan
    }

    /// Numbers lanes by their first call, the root's main lane before all others.
    fn number_lanes(&mut self, parts: &[Part], split: &[lanes::Lanes], calls: &[Seated<'_>]) {
        let mut number_of: Vec<Vec<Option<usize>>> = split
            .iter()
            .map(|lanes| vec![None; lanes.of.iter().max().map_or(0, |most| most + 1)])
            .collect();
        let mut owner = vec![(0, split[0].main)];
        number_of[0][split[0].main] = Some(0);
        for &(_, part, at) in calls {
            let lane = split[part].of[at];
            let number = *number_of[part][lane].get_or_insert_with(|| {
                owner.push((part, lane));
                owner.len() - 1
            });
            self.lane_of.push(number);
        }
        for (part, lane) in owner {
            let spawner = if lane == split[part].main {
                parts[part].parent.map(|parent| (parent, split[parent].main))
            } else {
                Some((part, split[part].main))
            };
            let parent = spawner.and_then(|(part, lane)| number_of[part][lane]);
            self.lanes.push(Lane { parent, end: Micros::MIN });
        }
        for (&(row, ..), &lane) in calls.iter().zip(&self.lane_of) {
            self.lanes[lane].end = self.lanes[lane].end.max(row.end);
        }
    }
}

fn facts(row: &Row) -> Facts {
    Facts { start: row.start, end: row.end, prompt: row.prompt, counted: row.is_counted() }
}

fn renumbered(step: Step, numbers: &[usize]) -> Step {
    match step {
        Step::First => Step::First,
        Step::Grown(at) => Step::Grown(numbers[at]),
        Step::Compacted(at) => Step::Compacted(numbers[at]),
        Step::Parallel(at) => Step::Parallel(numbers[at]),
        Step::Uncounted(at) => Step::Uncounted(at.map(|at| numbers[at])),
    }
}
