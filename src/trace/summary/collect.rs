//! One pass over a trace, session by session: what the figures need of each call.

use rustc_hash::FxHashMap;
use std::collections::BTreeMap;

use super::blocks::BlockRun;
use super::cache::Prompts;
use super::dist::Dist;
use super::prompts::PromptBlocks;
use super::{Columns, Options};
use crate::diag::Result;
use crate::trace::canonical::Words;
use crate::trace::record::{Call, Cause, Name, Session, SharedContext, Status};
use crate::units::{SegmentId, Span};

/// Calls are put in order by the microsecond.
const NANOS_PER_MICRO: u64 = 1_000;

/// Kinds of call by cause and by status.
const CAUSES: usize = Cause::WORDS.len();
const STATUSES: usize = Status::WORDS.len();

/// A call of the merged timeline.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row {
    pub(super) at_micros: u64,
    pub(super) session: u32,
    /// Its number among the main lane's calls, if it is one.
    pub(super) main_step: Option<u32>,
    pub(super) prompt: u64,
    pub(super) output: u64,
    /// Its blocks: from here, so many, in the collector's list of runs.
    runs: (usize, u32),
}

/// Counts of one session.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SessionCounts {
    pub(super) calls: u64,
    pub(super) main_calls: u64,
    pub(super) subagents: u64,
}

/// Calls by model group, in order of first appearance.
#[derive(Debug, Default)]
pub(super) struct Models {
    places: FxHashMap<Name, usize>,
    counts: Vec<(Name, u64)>,
}

impl Models {
    fn add(&mut self, model: &Name) {
        let place = *self.places.entry(Name::clone(model)).or_insert_with(|| {
            self.counts.push((Name::clone(model), 0));
            self.counts.len() - 1
        });
        self.counts[place].1 += 1;
    }

    pub(super) fn most_first(&self) -> Vec<(Name, u64)> {
        let mut counts = self.counts.clone();
        counts.sort_by_key(|(_, calls)| std::cmp::Reverse(*calls));
        counts
    }
}

/// Everything that the figures are made of.
#[derive(Debug)]
pub(super) struct Collector {
    prompts: PromptBlocks,
    block_size: u64,
    unnumbered: BTreeMap<String, Vec<u32>>,
    runs: Vec<BlockRun>,
    pub(super) calls: Vec<Row>,
    pub(super) sessions: Vec<SessionCounts>,
    pub(super) durations: Vec<f64>,
    pub(super) first_prompts: Vec<u64>,
    pub(super) last_prompts: Vec<u64>,
    pub(super) max_prompts: Vec<u64>,
    pub(super) growth: Vec<i64>,
    pub(super) halvings: u64,
    pub(super) intervals: Vec<f64>,
    pub(super) api_times: Vec<f64>,
    pub(super) duty_cycles: Vec<f64>,
    pub(super) models: Models,
    pub(super) model_changes: u64,
    /// Pairs of main-lane calls that follow one another.
    pub(super) main_steps: u64,
    statuses: [u64; STATUSES],
    causes: [u64; CAUSES],
    gaps: [Vec<f64>; CAUSES],
    turns: Vec<u64>,
    turn_calls: Vec<u64>,
}

impl Collector {
    pub(super) fn new(options: &Options) -> Self {
        let block_size = options.block_size;
        Self {
            prompts: PromptBlocks::new(block_size, options.partial_block),
            block_size,
            unnumbered: options.unnumbered_blocks.clone(),
            runs: Vec::new(),
            calls: Vec::new(),
            sessions: Vec::new(),
            durations: Vec::new(),
            first_prompts: Vec::new(),
            last_prompts: Vec::new(),
            max_prompts: Vec::new(),
            growth: Vec::new(),
            halvings: 0,
            intervals: Vec::new(),
            api_times: Vec::new(),
            duty_cycles: Vec::new(),
            models: Models::default(),
            model_changes: 0,
            main_steps: 0,
            statuses: Default::default(),
            causes: Default::default(),
            gaps: Default::default(),
            turns: Vec::new(),
            turn_calls: Vec::new(),
        }
    }

    /// Takes in a shared context.
    pub(super) fn context(&mut self, context: &SharedContext) -> Result<()> {
        self.prompts.context(context)
    }

    /// Takes in a session.
    pub(super) fn session(&mut self, session: &Session) -> Result<()> {
        self.prompts_of(session)?;
        for (number, call) in session.calls.iter().enumerate() {
            self.models.add(&call.model);
            self.api_times.extend(call.seen_duration.map(Span::secs));
            self.statuses[call.status.place()] += 1;
            self.causes[call.cause.place()] += 1;
            if number > 0 {
                self.gaps[call.cause.place()].push(call.gap.secs());
            }
        }
        let mut lanes: BTreeMap<u32, Vec<&Call>> = BTreeMap::new();
        for call in &session.calls {
            lanes.entry(call.lane).or_default().push(call);
        }
        lanes.values().for_each(|lane| self.lane(lane));
        let main = lanes.get(&0).map_or(&[][..], |lane| &lane[..]);
        self.main_lane(main);
        self.sessions.push(SessionCounts {
            calls: session.calls.len() as u64,
            main_calls: main.len() as u64,
            subagents: lanes.len() as u64 - u64::from(!main.is_empty()),
        });
        Ok(())
    }

    /// The blocks of each prompt.
    fn prompts_of(&mut self, session: &Session) -> Result<()> {
        let Self { prompts, runs: all_runs, calls, .. } = self;
        let number = SegmentId::from_index(self.sessions.len()).0;
        let unnumbered = self.unnumbered.get(&*session.id).map_or(&[][..], Vec::as_slice);
        let mut main_step = 0;
        prompts.session(session, |position, call, runs| {
            let from = all_runs.len();
            all_runs.extend_from_slice(runs);
            if unnumbered.contains(&position) {
                drop_last(all_runs, from);
            }
            calls.push(Row {
                at_micros: (call.at.0 + NANOS_PER_MICRO / 2) / NANOS_PER_MICRO,
                session: number,
                main_step: (call.lane == 0).then_some(main_step),
                prompt: call.prompt_tokens.0,
                output: call.output_tokens.0,
                runs: (from, (all_runs.len() - from) as u32),
            });
            main_step += u32::from(call.lane == 0);
        })
    }

    /// Neighbours in one lane.
    fn lane(&mut self, calls: &[&Call]) {
        for pair in calls.windows(2) {
            let (before, now) = (pair[0].prompt_tokens.0, pair[1].prompt_tokens.0);
            self.growth.push(now as i64 - before as i64);
            self.halvings += u64::from(2 * now < before);
            self.intervals.push((pair[1].at - pair[0].at).secs());
        }
    }

    fn main_lane(&mut self, calls: &[&Call]) {
        let (Some(first), Some(last)) = (calls.first(), calls.last()) else { return };
        for pair in calls.windows(2) {
            self.main_steps += 1;
            self.model_changes += u64::from(pair[0].model != pair[1].model);
        }
        let span = (last.at - first.at).secs();
        self.durations.push(span);
        self.first_prompts.push(first.prompt_tokens.0);
        self.last_prompts.push(last.prompt_tokens.0);
        self.max_prompts.extend(calls.iter().map(|call| call.prompt_tokens.0).max());
        let served: Vec<f64> =
            calls.iter().filter_map(|call| call.seen_duration).map(Span::secs).collect();
        let span = span + last.seen_duration.unwrap_or_default().secs();
        if !served.is_empty() && span > 0.0 {
            self.duty_cycles.push(served.iter().sum::<f64>() / span);
        }
        let turns: Vec<u64> =
            calls.chunk_by(|a, b| a.turn == b.turn).map(|turn| turn.len() as u64).collect();
        self.turns.push(turns.len() as u64);
        self.turn_calls.extend(turns);
    }

    /// The prompts in the order of `calls`.
    pub(super) fn prompts(&self) -> Prompts<'_> {
        let prompts = self.calls.iter().map(|call| {
            let (from, count) = call.runs;
            (&self.runs[from..from + count as usize], call.prompt)
        });
        Prompts {
            prompts: prompts.collect(),
            blocks: self.prompts.blocks(),
            block_size: self.block_size,
        }
    }

    /// Figures of columns as they stand.
    pub(super) fn columns(&self) -> Columns {
        let causes = || Cause::WORDS.iter().map(|(word, _)| *word);
        let statuses = Status::WORDS.iter().map(|(word, _)| *word);
        let gaps = self.gaps.iter().map(|gaps| Dist::of_rounded(gaps.clone(), 3));
        Columns {
            status: statuses.zip(self.statuses).collect(),
            cause: causes().zip(self.causes).collect(),
            gap_s: causes().zip(gaps).collect(),
            turns_per_session: Dist::of_counts(self.turns.iter().copied()),
            calls_per_numbered_turn: Dist::of_counts(self.turn_calls.iter().copied()),
            shared_contexts: self.prompts.contexts() as u64,
        }
    }
}

/// Takes the last block off the runs from `from` on.
fn drop_last(runs: &mut Vec<BlockRun>, from: usize) {
    let Some(last) = runs[from..].last_mut() else { return };
    last.count -= 1;
    if last.count == 0 {
        runs.pop();
    }
}
