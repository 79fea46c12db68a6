//! In which order a session's calls were made, what each waited for, and whose turn it was, by the
//! rules of `docs/import-weka.md`. What is said there of the main agent holds for subagents that
//! spawn others, too.

use super::recorded::{InputTypes, Lane, Recorded, Stop};
use crate::trace::import::blocks::PERSON_PAUSE;
use crate::trace::record::Cause;
use crate::units::Span;

/// An overlap below this is noise of the recorded clocks, not parallel work.
const OVERLAP_NOISE: Span = Span::from_secs(2);
/// How much later than what it caused an event may be recorded.
const CLOCK_SLACK: Span = Span::from_secs(1);
/// Least server time of a call for which none was recorded.
const SERVER_TIME_MIN: Span = Span::from_millis(1);
/// Estimated server time before the first token.
const SERVER_TIME_FIXED: Span = Span::from_secs(1);

/// The calls of a session in order of their first dispatch.
#[derive(Debug)]
pub(super) struct Timeline {
    /// The calls by number.
    pub(super) calls: Vec<Timed>,
    /// Calls whose server time is an estimate.
    pub(super) estimated: u64,
    /// Calls that ran beside an earlier one of their lane.
    pub(super) parallel: u64,
    /// Subagents that a later call waited for.
    pub(super) joined: u64,
}

/// One call's place in time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Timed {
    /// Its position in the file.
    pub(super) recorded: usize,
    /// When it was dispatched, from the session's start.
    pub(super) at: Span,
    /// When it had finished.
    pub(super) finish: Span,
    /// The calls that it waited for, by number, in order.
    pub(super) after: Vec<usize>,
    /// Client time since the last of them finished.
    pub(super) gap: Span,
    /// Its user turn.
    pub(super) turn: u32,
    /// Why it was made.
    pub(super) cause: Cause,
}

impl Timeline {
    /// Orders a session's calls; `assumed_rate` is the output speed, in tokens per second, of
    /// calls without a recorded server time.
    pub(super) fn of(session: &Recorded, assumed_rate: f64) -> Self {
        let mut order: Vec<usize> = (0..session.calls.len()).collect();
        order.sort_by_key(|&call| session.calls[call].at);
        let mut number_of = vec![0; order.len()];
        for (number, &call) in order.iter().enumerate() {
            number_of[call] = number;
        }
        let numbers_in = |lane: &Lane| lane.calls.iter().map(|&call| number_of[call]).collect();
        let lanes: Vec<Vec<usize>> = session.lanes.iter().map(numbers_in).collect();
        let calls = order.iter().map(|&call| Timed {
            recorded: call,
            at: session.calls[call].at,
            finish: session.calls[call].at,
            after: Vec::new(),
            gap: Span::ZERO,
            turn: 0,
            cause: Cause::User,
        });
        let mut line = Self { calls: calls.collect(), estimated: 0, parallel: 0, joined: 0 };
        for lane in &lanes {
            line.set_finishes(session, lane, assumed_rate);
        }
        let open: Vec<Vec<usize>> = lanes.iter().map(|lane| line.chain(lane)).collect();
        // A lane stands behind the one that spawned it, so the spawner's turn is known in time.
        for (lane, numbers) in lanes.iter().enumerate() {
            line.join(session, lane, numbers, &open);
            line.set_spawner(session, lane, &lanes);
            line.set_gaps(numbers);
            line.set_turns(session, lane, numbers);
        }
        line
    }

    fn set_finishes(&mut self, session: &Recorded, lane: &[usize], assumed_rate: f64) {
        for (position, &number) in lane.iter().enumerate() {
            let call = &session.calls[self.calls[number].recorded];
            let server_time = call.api_time.unwrap_or_else(|| {
                self.estimated += 1;
                let decode = Span::from_secs_f64(call.output.as_f64() / assumed_rate);
                let estimate = SERVER_TIME_FIXED + decode;
                let next = lane.get(position + 1).map(|&next| self.calls[next].at - call.at);
                next.map_or(estimate, |interval| estimate.min(interval)).max(SERVER_TIME_MIN)
            });
            self.calls[number].finish = call.at + server_time;
        }
    }

    /// Lets each call of a lane wait for those before it, and gives the calls for which none of
    /// the lane waited: its last one, and others that ran beside it.
    fn chain(&mut self, lane: &[usize]) -> Vec<usize> {
        let mut open: Vec<usize> = Vec::new();
        for (position, &number) in lane.iter().enumerate() {
            let at = self.calls[number].at;
            let over = |call: &usize| self.calls[*call].finish < at + OVERLAP_NOISE;
            let after = match position.checked_sub(1).map(|before| lane[before]) {
                None => Vec::new(),
                Some(_) if open.iter().all(over) => open.clone(),
                Some(before) if over(&before) => vec![before],
                Some(_) => {
                    self.parallel += 1;
                    self.last_finished(&lane[..position], |finish| finish <= at)
                }
            };
            open.retain(|call| !after.contains(call));
            open.push(number);
            self.calls[number].after = after;
        }
        open
    }

    /// The call among `calls` that finished last of those whose finish is `in_time`.
    fn last_finished(&self, calls: &[usize], in_time: impl Fn(Span) -> bool) -> Vec<usize> {
        let finished = calls.iter().copied().filter(|&call| in_time(self.calls[call].finish));
        finished.max_by_key(|&call| (self.calls[call].finish, call)).into_iter().collect()
    }

    /// Lets a lane's calls wait for the subagents that it had spawned and whose results were back.
    fn join(&mut self, session: &Recorded, lane: usize, numbers: &[usize], open: &[Vec<usize>]) {
        let spawned = (1..session.lanes.len()).filter(|&child| session.lanes[child].parent == lane);
        let mut waiting: Vec<usize> = spawned.collect();
        for &number in numbers {
            let at = self.calls[number].at;
            let is_back = |child: &usize| {
                let marker = session.lanes[*child].joined_at;
                marker.is_some_and(|marker| marker < at + CLOCK_SLACK)
                    && open[*child].iter().all(|&last| last < number)
            };
            for child in waiting.extract_if(.., |child| is_back(child)) {
                self.calls[number].after.extend(&open[child]);
                self.joined += 1;
            }
        }
    }

    /// Lets a subagent's first call wait for the call that spawned it, whose turn it shares.
    fn set_spawner(&mut self, session: &Recorded, lane: usize, lanes: &[Vec<usize>]) {
        let Lane { parent, spawn, .. } = session.lanes[lane];
        let Some(&first) = lanes[lane].first() else { return };
        if lane == parent {
            return;
        }
        let earlier = lanes[parent].partition_point(|&call| call < first);
        let spawner =
            self.last_finished(&lanes[parent][..earlier], |finish| finish < spawn + CLOCK_SLACK);
        self.calls[first].turn = spawner.first().map_or(0, |&call| self.calls[call].turn);
        self.calls[first].after.extend(spawner);
    }

    fn set_gaps(&mut self, numbers: &[usize]) {
        for &number in numbers {
            self.calls[number].after.sort_unstable();
            let call = &self.calls[number];
            let ready = call.after.iter().map(|&before| self.calls[before].finish).max();
            self.calls[number].gap = call.at.saturating_sub(ready.unwrap_or_default());
        }
    }

    fn set_turns(&mut self, session: &Recorded, lane: usize, numbers: &[usize]) {
        let Some(&first) = numbers.first() else { return };
        if lane > 0 {
            let turn = self.calls[first].turn;
            for &number in numbers {
                self.calls[number].turn = turn;
                self.calls[number].cause = Cause::Tool;
            }
            self.calls[first].cause = Cause::Subagent;
            return;
        }
        for pair in numbers.windows(2) {
            let [before, number] = [pair[0], pair[1]];
            let goes_on = self.turn_goes_on(session, before, number);
            self.calls[number].turn = self.calls[before].turn + u32::from(!goes_on);
            self.calls[number].cause = if goes_on { Cause::Tool } else { Cause::User };
        }
    }

    fn turn_goes_on(&self, session: &Recorded, before: usize, number: usize) -> bool {
        let recorded = |number: usize| &session.calls[self.calls[number].recorded];
        match recorded(before).stop {
            Stop::ToolUse => true,
            Stop::EndTurn => false,
            Stop::Unknown => match recorded(number).input {
                InputTypes::WithToolResult => true,
                InputTypes::Other => false,
                InputTypes::Unknown => {
                    // A parallel call counts its gap from an older call; the pause does not.
                    let since = self.calls[number].at.saturating_sub(self.calls[before].finish);
                    since.min(self.calls[number].gap) < PERSON_PAUSE
                }
            },
        }
    }
}

/// Calls in each turn of the main agent, where a turn is a run of its calls up to one that did not
/// end to call a tool. That is how the reference figures of the public traces count; the turns of
/// the trace itself also look at what the next call brings.
pub(super) fn turns_by_stop(session: &Recorded) -> Vec<u64> {
    let mut turns = Vec::new();
    let mut calls = 0;
    for &call in &session.lanes[0].calls {
        calls += 1;
        if session.calls[call].stop != Stop::ToolUse {
            turns.push(calls);
            calls = 0;
        }
    }
    turns.extend((calls > 0).then_some(calls));
    turns
}
