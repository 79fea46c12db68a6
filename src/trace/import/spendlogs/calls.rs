//! Turns the rows of a session into calls: lanes, what each waits for, turns, and lineage.

use std::sync::Arc;

use rustc_hash::FxHashSet;

use super::group::{Grouped, Part};
use super::lanes::{self, Facts, Step};
use super::names::Names;
use super::report::Evidence;
use super::rows::{Collector, Row};
use super::time::{Micros, span};
use crate::trace::record::{After, AfterEvent, Base, Call, Cause, Finish, Name, Session, Status};
use crate::units::{Span, Tokens};

/// A prompt this many times as long as those before and after it was hardly counted right.
const OUTLIER_FACTOR: u64 = 10;

/// The sessions and what was found while they were made.
#[derive(Debug, Default)]
pub(super) struct Built {
    /// In order of start.
    pub(super) sessions: Vec<Session>,
    /// Lanes of all sessions.
    pub(super) lanes: u64,
    /// What the lineage rests on.
    pub(super) evidence: Evidence,
    /// Calls whose prompt length was taken from the call before.
    pub(super) assumed_prompts: u64,
    /// Prompts that stand out by [`OUTLIER_FACTOR`].
    pub(super) outliers: u64,
    /// Turns that began because of a gap.
    pub(super) gap_turns: u64,
    /// Calls that were made while another of their lane was under way.
    pub(super) parallel: u64,
}

/// Builds all sessions.
pub(super) fn build(
    collector: &Collector,
    order: &[usize],
    grouped: &Grouped,
    turn_gap: Span,
    names: &mut Names,
) -> Built {
    let mut built = Built::default();
    let zero = order.first().map_or(0, |&index| collector.rows[index].start);
    for parts in &grouped.sessions {
        let plan = Plan::new(collector, parts);
        built.lanes += plan.lanes.len() as u64;
        let mut flow = Flow::new(&plan, turn_gap);
        let mut calls = Vec::with_capacity(plan.rows.len());
        for (number, row) in plan.rows.iter().enumerate() {
            let lineage = lineage(&plan, number, &mut built);
            flow.wait_for_base(number, &lineage, &plan);
            calls.push(call(collector, names, row, lineage, &flow.steps[number], zero));
        }
        built.gap_turns += flow.gap_turns;
        built.parallel += flow.parallel;
        built.outliers += outliers(&plan);
        let first = &collector.rows[parts[0].rows[0]];
        let id = names.session(collector.symbols.name(first.session), &first.request);
        built.sessions.push(Session { id, calls });
    }
    built
}

/// A session's rows in order of start, with lanes numbered over all of its parts.
struct Plan<'a> {
    rows: Vec<&'a Row>,
    /// Lane of each call.
    lane_of: Vec<usize>,
    /// What each call is to its lane; the numbers are calls of the session.
    steps: Vec<Step>,
    lanes: Vec<Lane>,
}

/// One context of the session.
#[derive(Clone, Copy, Debug)]
struct Lane {
    /// The lane that it works for.
    parent: Option<usize>,
    /// When its last call ended.
    end: Micros,
}

impl<'a> Plan<'a> {
    fn new(collector: &'a Collector, parts: &[Part]) -> Self {
        // Calls of all parts by start, as (row, part, position in the part).
        let mut calls: Vec<(&Row, usize, usize)> = Vec::new();
        for (part, rows) in parts.iter().enumerate() {
            let rows = rows.rows.iter().enumerate();
            calls.extend(rows.map(|(at, &row)| (&collector.rows[row], part, at)));
        }
        calls.sort_by(|a, b| (a.0.start, &a.0.request).cmp(&(b.0.start, &b.0.request)));
        let mut numbers: Vec<Vec<usize>> =
            parts.iter().map(|part| vec![0; part.rows.len()]).collect();
        for (number, &(_, part, at)) in calls.iter().enumerate() {
            numbers[part][at] = number;
        }
        let split: Vec<lanes::Lanes> = parts
            .iter()
            .map(|part| {
                let facts = part.rows.iter().map(|&row| facts(&collector.rows[row]));
                lanes::split(&facts.collect::<Vec<_>>())
            })
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
    fn number_lanes(
        &mut self,
        parts: &[Part],
        split: &[lanes::Lanes],
        calls: &[(&Row, usize, usize)],
    ) {
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

/// How the calls of a session hang together in time.
struct Flow {
    steps: Vec<FlowStep>,
    gap_turns: u64,
    parallel: u64,
}

/// What one call waits for, and why it was made.
struct FlowStep {
    after: Vec<usize>,
    gap: Span,
    cause: Cause,
    turn: u32,
    lane: u32,
}

/// A lane while the session is walked through.
#[derive(Clone, Default)]
struct Walk {
    /// Calls that no later call has waited for yet.
    open: Vec<usize>,
    /// The call that ended last among those waited for.
    waited: Option<usize>,
    /// The call that was dispatched last.
    latest: Option<usize>,
    /// Lanes that work for this one and have not been waited for.
    children: Vec<usize>,
}

impl Flow {
    fn new(plan: &Plan<'_>, turn_gap: Span) -> Self {
        let mut flow = Self { steps: Vec::new(), gap_turns: 0, parallel: 0 };
        let mut walks = vec![Walk::default(); plan.lanes.len()];
        let begin = plan.rows.first().map_or(0, |row| row.start);
        for (number, row) in plan.rows.iter().enumerate() {
            let lane = plan.lane_of[number];
            let after = flow.waits(plan, &mut walks, number);
            let last_end = after.iter().map(|&call| plan.rows[call].end).max();
            let gap = span(last_end.unwrap_or(begin), row.start);
            let (cause, turn) = flow.cause(plan, &walks, number, gap > turn_gap);
            let lane_number = u32::try_from(lane).unwrap_or(u32::MAX);
            flow.steps.push(FlowStep { after, gap, cause, turn, lane: lane_number });
            walks[lane].open.push(number);
            walks[lane].latest = Some(number);
        }
        flow
    }

    /// What a call waits for: the calls of its lane that have ended and nobody waited for (or else
    /// the last one that ended), and the lanes that ended since; the first call of a lane waits
    /// for the call of the parent lane that ended last.
    fn waits(&self, plan: &Plan<'_>, walks: &mut [Walk], number: usize) -> Vec<usize> {
        let (lane, start) = (plan.lane_of[number], plan.rows[number].start);
        let mut after = take_ended(plan, &mut walks[lane], start);
        if after.is_empty() {
            after.extend(walks[lane].waited);
        }
        if walks[lane].latest.is_none()
            && let Some(parent) = plan.lanes[lane].parent
        {
            let ended = |&call: &usize| plan.rows[call].end <= start;
            let open = walks[parent].open.iter().copied().filter(ended);
            let spawner = open.chain(walks[parent].waited);
            after.extend(spawner.max_by_key(|&call| (plan.rows[call].end, call)));
            walks[parent].children.push(lane);
        }
        let children = std::mem::take(&mut walks[lane].children);
        for child in children {
            if plan.lanes[child].end <= start {
                after.extend(take_ended(plan, &mut walks[child], start));
            } else {
                walks[lane].children.push(child);
            }
        }
        after.sort_unstable();
        after
    }

    /// A prompt that repeats an answer was sent after that answer. Where no chain of waits says so
    /// (the call in between failed late), the call waits for the answer itself.
    fn wait_for_base(&mut self, number: usize, lineage: &Lineage, plan: &Plan<'_>) {
        let Base::Call(base) = lineage.base else { return };
        let base = base as usize;
        if lineage.kept.0 <= plan.rows[base].prompt {
            return;
        }
        let mut open = self.steps[number].after.clone();
        let mut seen: FxHashSet<usize> = open.iter().copied().collect();
        while let Some(call) = open.pop() {
            if call == base {
                return;
            }
            // Calls wait for earlier ones only, so nothing before the base leads to it.
            let further = self.steps[call].after.iter().filter(|&&further| further >= base);
            open.extend(further.copied().filter(|&further| seen.insert(further)));
        }
        let after = &mut self.steps[number].after;
        after.push(base);
        after.sort_unstable();
    }

    fn cause(
        &mut self,
        plan: &Plan<'_>,
        walks: &[Walk],
        number: usize,
        long_gap: bool,
    ) -> (Cause, u32) {
        let lane = plan.lane_of[number];
        let Some(latest) = walks[lane].latest else {
            // The first of its lane: a person's word in the main lane, else a subagent in the
            // turn of the call that it comes after, or of whatever its parent did last.
            if lane == 0 {
                return (Cause::User, 0);
            }
            let parent = plan.lanes[lane].parent.map(|parent| &walks[parent]);
            let spawner = parent.and_then(|parent| parent.latest);
            return (Cause::Subagent, spawner.map_or(0, |call| self.steps[call].turn));
        };
        let before = &self.steps[latest];
        if !walks[lane].open.is_empty() {
            self.parallel += 1;
            let cause = if lane == 0 { before.cause } else { Cause::Tool };
            return (cause, before.turn);
        }
        if plan.rows[latest].status == Status::Failed {
            return (Cause::Retry, before.turn);
        }
        if lane == 0 && long_gap {
            self.gap_turns += 1;
            return (Cause::User, before.turn + 1);
        }
        (Cause::Tool, before.turn)
    }
}

/// Takes the calls of a lane that have ended by `start` and that nobody waited for.
fn take_ended(plan: &Plan<'_>, walk: &mut Walk, start: Micros) -> Vec<usize> {
    let (ended, open): (Vec<usize>, Vec<usize>) =
        walk.open.iter().partition(|&&call| plan.rows[call].end <= start);
    walk.open = open;
    let last = ended.iter().copied().chain(walk.waited);
    walk.waited = last.max_by_key(|&call| (plan.rows[call].end, call));
    ended
}

/// What a call's prompt continues, and how long it is.
struct Lineage {
    base: Base,
    kept: Tokens,
    prompt: Tokens,
}

/// The lineage that growth tells: a prompt that has room for the last answer repeats it, one that
/// grew by less repeats the last prompt, one that shrank starts over.
fn lineage(plan: &Plan<'_>, number: usize, built: &mut Built) -> Lineage {
    let row = plan.rows[number];
    let evidence = &mut built.evidence;
    let grown = |base: usize| {
        let (base_row, prompt) = (plan.rows[base], row.prompt);
        let whole = base_row.prompt + base_row.output;
        let has_answer = prompt >= whole && base_row.end <= row.start;
        (if has_answer { whole } else { base_row.prompt }, prompt)
    };
    let (base, kept, prompt) = match plan.steps[number] {
        Step::First => {
            evidence.first += 1;
            (None, 0, row.prompt)
        }
        Step::Compacted(_) => {
            evidence.compacted += 1;
            (None, 0, row.prompt)
        }
        Step::Grown(base) => {
            let (kept, prompt) = grown(base);
            if kept > plan.rows[base].prompt {
                evidence.with_output += 1;
            } else {
                evidence.prompt_only += 1;
            }
            (Some(base), kept, prompt)
        }
        Step::Parallel(twin) => {
            evidence.parallel += 1;
            let known = twin < number;
            (known.then_some(twin), if known { row.prompt } else { 0 }, row.prompt)
        }
        Step::Uncounted(Some(last))
            if row.status == Status::Aborted && row.prompt >= plan.rows[last].prompt =>
        {
            evidence.uncounted += 1;
            let (kept, prompt) = grown(last);
            (Some(last), kept, prompt)
        }
        Step::Uncounted(Some(last)) => {
            evidence.uncounted += 1;
            built.assumed_prompts += 1;
            (Some(last), plan.rows[last].prompt, plan.rows[last].prompt)
        }
        Step::Uncounted(None) => {
            evidence.uncounted += 1;
            (None, 0, row.prompt)
        }
    };
    let number = |base| u32::try_from(base).unwrap_or(u32::MAX);
    Lineage {
        base: base.map_or(Base::None, |base| Base::Call(number(base))),
        kept: Tokens(kept),
        prompt: Tokens(prompt),
    }
}

fn call(
    collector: &Collector,
    names: &Names,
    row: &Row,
    lineage: Lineage,
    flow: &FlowStep,
    zero: Micros,
) -> Call {
    let text = |symbol| -> Name { Arc::clone(collector.symbols.name(symbol)) };
    let after = flow.after.iter().map(|&call| After {
        call: u32::try_from(call).unwrap_or(u32::MAX),
        event: AfterEvent::Finished,
    });
    let seen_ttft = row.first_token.map(|at| span(row.start, at));
    Call {
        at: span(zero, row.start),
        after: after.collect(),
        gap: flow.gap,
        cause: flow.cause,
        turn: flow.turn,
        lane: flow.lane,
        model: text(row.model),
        tenant: names.tenant(row.tenant),
        user: names.user(row.user),
        profile: text(row.profile),
        base: lineage.base,
        kept_tokens: lineage.kept,
        prompt_tokens: lineage.prompt,
        output_tokens: Tokens(row.output),
        tools: None,
        status: row.status,
        finish: Finish::Stop,
        priority: 0,
        key: names.key(row.key),
        // Only a streamed answer has a first token before its end.
        stream: seen_ttft.map(|_| true),
        max_tokens: None,
        retries: row.retries,
        seen_cached: row.cached.map(Tokens),
        seen_ttft,
        seen_duration: Some(span(row.start, row.end)),
    }
}

/// Prompts far longer than the ones before and after them in their lane.
fn outliers(plan: &Plan<'_>) -> u64 {
    let prompt = |call: usize| plan.rows[call].prompt;
    let mut found = 0;
    for (number, step) in plan.steps.iter().enumerate() {
        let Step::Compacted(peak) = *step else { continue };
        let Step::Grown(before) = plan.steps[peak] else { continue };
        let near = prompt(before).max(prompt(number));
        found += u64::from(prompt(peak) >= near * OUTLIER_FACTOR);
    }
    found
}
