//! What each call of a session waits for, why it was made, and in which turn.

use rustc_hash::FxHashSet;

use super::plan::Plan;
use super::prompt::Role;
use super::time::{Micros, span};
use crate::trace::record::{Cause, Status};
use crate::units::Span;

/// How the calls of a session hang together in time.
#[derive(Debug)]
pub(super) struct Flow {
    /// One for each call.
    pub(super) steps: Vec<FlowStep>,
    /// Turns that began because of a gap.
    pub(super) gap_turns: u64,
    /// Turns that began with a person's message.
    pub(super) said_turns: u64,
    /// Calls that were made while another of their lane was under way.
    pub(super) parallel: u64,
}

/// What one call waits for, and why it was made.
#[derive(Debug)]
pub(super) struct FlowStep {
    /// Calls that it waits for.
    pub(super) after: Vec<usize>,
    /// Client time since the last of them.
    pub(super) gap: Span,
    /// Why it was made.
    pub(super) cause: Cause,
    /// The turn.
    pub(super) turn: u32,
    /// The lane.
    pub(super) lane: u32,
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
    /// Walks through a session; a gap longer than `turn_gap` begins a turn where no message tells.
    pub(super) fn new(plan: &Plan<'_>, turn_gap: Span) -> Self {
        let mut flow = Self { steps: Vec::new(), gap_turns: 0, said_turns: 0, parallel: 0 };
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
    pub(super) fn wait_for(&mut self, number: usize, base: usize) {
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
        let said = plan.rows[number].last_role();
        let by_person = match said {
            Some(Role::User) => true,
            Some(Role::Tool) => false,
            _ => long_gap,
        };
        if lane == 0 && by_person {
            let turns =
                if said == Some(Role::User) { &mut self.said_turns } else { &mut self.gap_turns };
            *turns += 1;
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
