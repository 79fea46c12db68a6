//! Many equal steps of a group at once.
//!
//! While every rank that works does the same from step to step and only decodes, each rank's time
//! grows by the same from step to step. The group's is that of the slowest, and a skip ends where
//! another rank would become that. Whatever asks or changes something in between first settles the
//! steps that have begun.

use super::{Occupancy, Rank, RankGroup};
use crate::engine::Due;
use crate::engine::request::{DecodeShare, Level, StepRun};
use crate::engine::step_time::{Contexts, Series, StepLoad, Ticks};
use crate::units::{Blocks, Time};

/// Steps that follow the running one and do the same.
#[derive(Clone, Copy, Debug)]
pub(super) struct Skip {
    /// When the first of them starts.
    at: Time,
    /// How many of them there are.
    pub(super) steps: u64,
    series: Series,
}

impl Skip {
    /// How many of them start before `now`.
    pub(super) fn begun(&self, now: Time) -> u64 {
        self.series.begun(now.saturating_since(self.at), self.steps)
    }

    /// When the first so many have ended.
    fn end(&self, steps: u64) -> Time {
        self.at + self.series.sum(steps)
    }
}

/// Steps that were taken and not told.
#[derive(Debug, Default)]
pub(super) struct Untold {
    runs: Vec<(StepRun, usize)>,
    /// The blocks held in them; a run's end where its number says.
    levels: Vec<Level>,
    /// Room for the levels of each rank.
    of_ranks: Vec<Vec<Level>>,
    /// Room for each rank's level, and the steps that are left of it.
    places: Vec<(usize, u64)>,
}

impl Untold {
    pub(super) fn take(&mut self, mut take: impl FnMut(&StepRun, &[Level])) {
        let mut from = 0;
        for (run, upto) in self.runs.drain(..) {
            take(&run, &self.levels[from..upto]);
            from = upto;
        }
        self.levels.clear();
    }

    /// Appends the sums of what the ranks hold in each of `steps` steps; `idle` is held by those
    /// that have no levels.
    fn add_levels(&mut self, steps: u64, idle: u64) {
        let mut left = steps;
        let first = |levels: &Vec<Level>| levels.first().map_or(u64::MAX, |level| level.steps);
        self.places.clear();
        self.places.extend(self.of_ranks.iter().map(|levels| (0, first(levels))));
        while left > 0 {
            let together =
                self.places.iter().map(|(_, rest)| *rest).min().unwrap_or(left).min(left);
            let mut used = idle;
            for ((at, rest), levels) in self.places.iter_mut().zip(&self.of_ranks) {
                let Some(level) = levels.get(*at) else { continue };
                used += level.used_blocks.0;
                *rest -= together;
                if *rest == 0 {
                    *at += 1;
                    *rest = levels.get(*at).map_or(u64::MAX, |level| level.steps);
                }
            }
            if together > 0 {
                self.levels.push(Level { steps: together, used_blocks: Blocks(used) });
            }
            left -= together;
        }
    }
}

impl<R: Rank> RankGroup<R> {
    /// Looks how many steps behind the one that runs until `end` will do the same, and skips to
    /// the last.
    pub(super) fn skip_ahead(&mut self, end: Time) {
        debug_assert!(self.skip.is_none(), "a skip begins in another");
        if self.loads.iter().any(|load| load.prefill_tokens() > 0) {
            return;
        }
        let working = || self.ranks.iter().zip(&self.loads).filter(|(_, load)| load.tokens() > 0);
        let steps = working().map(|(rank, _)| rank.equal_steps()).min().unwrap_or(0);
        if steps == 0 {
            return;
        }
        // Of each rank: its time in the first of the steps, and by how much each takes longer.
        let line = |(rank, load): (&R, &StepLoad)| {
            let (decode, decode_windowed) = rank.growth();
            let contexts = Contexts { decode, decode_windowed, ..Contexts::default() };
            let slope = self.cost.context_ticks(false, &contexts);
            (Ticks(self.cost.ticks(load).0 + slope.0), slope)
        };
        let Some(slowest) = working().map(line).max() else { return };
        let (first, slope) = slowest;
        // Another one is slower once it has made up what it is behind.
        let overtaken = |(other, growth): (Ticks, Ticks)| {
            let gained = growth.0.checked_sub(slope.0).filter(|gained| *gained > 0)?;
            Some(u64::try_from((first.0 - other.0) / gained).map_or(u64::MAX, |n| n + 1))
        };
        let alone = working().map(line).filter_map(overtaken).min().unwrap_or(u64::MAX);
        let skip = Skip {
            at: end,
            steps: steps.min(alone),
            series: Series { rest: self.carry, first, slope },
        };
        for ((rank, load), used) in self.ranks.iter_mut().zip(&self.loads).zip(&self.used) {
            if load.tokens() > 0 {
                rank.skip(skip.at, skip.steps, skip.series, *used);
            }
        }
        self.due = Some(Due::StepEnds(skip.end(skip.steps)));
        self.skip = Some(skip);
    }

    /// The first `steps` of the skipped steps have begun, the last of them runs: brings everything
    /// there.
    pub(super) fn take_steps(&mut self, steps: u64) {
        let Some(skip) = self.skip.take() else { return };
        let Occupancy { running, waiting, .. } = self.occupancy();
        self.untold.of_ranks.resize_with(self.ranks.len(), Vec::new);
        let mut idle = 0;
        for ((rank, load), told) in
            self.ranks.iter_mut().zip(&self.loads).zip(&mut self.untold.of_ranks)
        {
            told.clear();
            if load.tokens() > 0 {
                rank.take(steps);
                rank.take_runs(|_, levels| told.extend_from_slice(levels));
            } else {
                idle += rank.occupancy().used.0;
            }
        }
        if steps == 0 {
            return;
        }
        self.untold.add_levels(steps, idle);
        let run = StepRun {
            at: skip.at,
            steps,
            series: skip.series,
            decode: DecodeShare::All,
            decode_seqs: self.loads.iter().map(StepLoad::decode_seqs).sum(),
            running,
            waiting,
            ..StepRun::default()
        };
        self.untold.runs.push((run, self.untold.levels.len()));
        self.steps += steps;
        self.carry = skip.series.rest_after(steps);
    }

    /// Brings everything to where it is at this instant: a skip ends with the steps that have
    /// begun.
    pub(super) fn catch_up(&mut self, now: Time) {
        let Some(skip) = self.skip else { return };
        let begun = skip.begun(now);
        self.take_steps(begun);
        let end = skip.end(begun);
        self.due = Some(Due::StepEnds(end));
        if end == now && begun < skip.steps {
            let mut effects = Vec::new();
            self.end_step(now, &mut effects);
            debug_assert!(effects.is_empty(), "something happens in a step that was skipped");
        }
    }
}
