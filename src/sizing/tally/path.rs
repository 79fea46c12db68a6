//! Where the time of tasks goes: the critical path of every turn, taken apart.
//!
//! The path leads back from the call that ended last, always to what a call waited for longest, to
//! the start of the turn; `turn_llm` is defined by the same path. Only calls of open sessions are
//! remembered.

use rustc_hash::FxHashMap;

use crate::fleet::workload::SessionPlan;
use crate::observe::records::{CallOutcome, CallRecord, TaskRecord, TurnRecord};
use crate::trace::record::AfterEvent;
use crate::units::{Span, Time};

/// A part of a session's time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The gateway, and waits of clients that it refused; nothing without one.
    Gateway,
    /// The API server before the queue and after the last token, and waits after a 503.
    Host,
    /// In the engine's queue.
    Queue,
    /// From there to the first token, for tokens that the fleet had not computed before.
    Prefill,
    /// The same for tokens that it had computed before.
    Reprefill,
    /// From the first token to the last.
    Decode,
    /// Failures as recorded, and waits for calls of other turns.
    Other,
    /// Tools: the client's own time inside turns.
    Tool,
    /// People: between turns.
    Human,
}

impl Part {
    /// All of them, in the order of the documentation.
    pub const ALL: [Self; 9] = [
        Self::Gateway,
        Self::Host,
        Self::Queue,
        Self::Prefill,
        Self::Reprefill,
        Self::Decode,
        Self::Other,
        Self::Tool,
        Self::Human,
    ];

    /// Its name in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Gateway => "gateway",
            Self::Host => "host",
            Self::Queue => "queue",
            Self::Prefill => "prefill",
            Self::Reprefill => "re_prefill",
            Self::Decode => "decode",
            Self::Other => "other",
            Self::Tool => "tool",
            Self::Human => "human",
        }
    }

    /// Whether it is part of `task_llm`.
    #[must_use]
    pub const fn is_llm(self) -> bool {
        !matches!(self, Self::Tool | Self::Human)
    }
}

/// Nanoseconds by part, of one session: no more than it lasts.
type Parts = [u64; Part::ALL.len()];

/// Sums over the tasks that completed in the window, and what is needed of those under way.
#[derive(Clone, Debug, Default)]
pub struct PathTally {
    tasks: u64,
    sums: [u128; Part::ALL.len()],
    /// By number of the play.
    open: FxHashMap<u32, OpenPlay>,
    /// Room of sessions that are over, for others.
    rooms: Vec<Vec<(u32, Marks)>>,
}

/// So much room is kept: for so many sessions, of at most so many calls each.
const ROOMS_MAX: usize = 16;
const ROOM_MAX: usize = 64;

/// What is remembered of a session that is being played.
#[derive(Clone, Debug)]
struct OpenPlay {
    /// By number: calls of turns that are not over, and those that a later one waits for beside
    /// others. They are in ascending order when a turn is over; until then nobody looks at them,
    /// which takes long where many sessions are open.
    calls: Vec<(u32, Marks)>,
    /// The call that ended last.
    last: u32,
    /// The greatest that ended, and whether all ended in ascending order since they were sorted.
    greatest: u32,
    is_sorted: bool,
    parts: Parts,
}

/// When a call went from one phase to the next.
#[derive(Clone, Copy, Debug)]
struct Marks {
    dispatched: Time,
    sent: Time,
    queued: Time,
    scheduled: Time,
    first_token: Time,
    last_token: Time,
    ended: Time,
    /// Tokens prefilled before the first token: all, and those that had been computed before. A
    /// prompt has fewer than 2^32.
    prefilled: u32,
    again: u32,
}

impl Marks {
    /// A call of which nothing was told.
    const UNKNOWN: Self = Self {
        dispatched: Time::MAX,
        sent: Time::MAX,
        queued: Time::MAX,
        scheduled: Time::MAX,
        first_token: Time::MAX,
        last_token: Time::MAX,
        ended: Time::MAX,
        prefilled: 0,
        again: 0,
    };

    fn of(call: &CallRecord) -> Self {
        let CallRecord {
            dispatched, sent, queued, scheduled, first_token, last_token, ended, ..
        } = *call;
        if call.outcome != CallOutcome::Completed {
            // No phase of it is known: all of it is waiting for a failure.
            return Self { dispatched, ended, ..Self::UNKNOWN };
        }
        Self {
            dispatched,
            sent,
            queued,
            scheduled,
            first_token,
            last_token,
            ended,
            prefilled: (call.prompt - call.cached).0 as u32,
            again: call.ceiling.saturating_sub(call.cached).0 as u32,
        }
    }

    /// Adds the call's phases up to `until`.
    fn add(&self, until: Time, parts: &mut Parts) {
        let between = |from: Time, to: Time| to.min(until).saturating_since(from);
        if self.queued == Time::MAX {
            add(parts, Part::Other, between(self.dispatched, self.ended));
            return;
        }
        add(parts, Part::Gateway, between(self.dispatched, self.sent));
        add(parts, Part::Host, between(self.sent, self.queued));
        add(parts, Part::Queue, between(self.queued, self.scheduled));
        let prefill = between(self.scheduled, self.first_token);
        let again = self.again_of(prefill);
        add(parts, Part::Reprefill, again);
        add(parts, Part::Prefill, Span(prefill.0 - again.0));
        add(parts, Part::Decode, between(self.first_token, self.last_token));
        add(parts, Part::Host, between(self.last_token, self.ended));
    }

    /// The part of the time until the first token that went to tokens computed before.
    fn again_of(&self, prefill: Span) -> Span {
        let all = u64::from(self.prefilled.max(1));
        // Nearly always short enough: that is much faster.
        Span(match prefill.0.checked_mul(self.again.into()) {
            Some(again) => again / all,
            None => (u128::from(prefill.0) * u128::from(self.again) / u128::from(all)) as u64,
        })
    }
}

fn add(parts: &mut Parts, part: Part, span: Span) {
    parts[part as usize] += span.0;
}

/// The sum over the parts of `task_llm`.
fn llm(parts: &Parts) -> u64 {
    Part::ALL.iter().zip(parts).filter(|(part, _)| part.is_llm()).map(|(_, nanos)| nanos).sum()
}

impl PathTally {
    pub(super) fn call(&mut self, call: &CallRecord) {
        let rooms = &mut self.rooms;
        let open = self.open.entry(call.play).or_insert_with(|| OpenPlay::new(rooms));
        open.set(call.call, Marks::of(call));
    }

    pub(super) fn turn(&mut self, turn: &TurnRecord, plan: &SessionPlan) {
        let Some(open) = self.open.get_mut(&turn.play) else { return };
        open.sort();
        let mut parts = open.path(turn, plan);
        let known = llm(&parts);
        let rest = turn.turn_llm().0.saturating_sub(known);
        add(&mut parts, Part::Other, Span(rest));
        add(&mut parts, Part::Tool, turn.tool);
        for (sum, nanos) in open.parts.iter_mut().zip(parts) {
            *sum += nanos;
        }
        open.forget(turn.turn, plan);
    }

    /// `counts` is whether the task is one that figures are made of.
    pub(super) fn task(&mut self, task: &TaskRecord, counts: bool) {
        let Some(mut open) = self.open.remove(&task.play) else { return };
        if self.rooms.len() < ROOMS_MAX && open.calls.capacity() <= ROOM_MAX {
            self.rooms.push(std::mem::take(&mut open.calls));
        }
        if !counts {
            return;
        }
        let human = task.session_span().0.saturating_sub(task.task.0);
        add(&mut open.parts, Part::Human, Span(human));
        self.tasks += 1;
        for (sum, nanos) in self.sums.iter_mut().zip(open.parts) {
            *sum += u128::from(nanos);
        }
    }

    /// Tasks that completed in the window.
    #[must_use]
    pub fn tasks(&self) -> u64 {
        self.tasks
    }

    /// Mean seconds of a task in this part; none without a task.
    #[must_use]
    pub fn mean_secs(&self, part: Part) -> Option<f64> {
        let nanos = self.sums[part as usize] as f64;
        (self.tasks > 0).then(|| nanos / 1e9 / self.tasks as f64)
    }
}

impl OpenPlay {
    fn new(rooms: &mut Vec<Vec<(u32, Marks)>>) -> Self {
        let mut calls = rooms.pop().unwrap_or_default();
        calls.clear();
        Self { calls, last: 0, greatest: 0, is_sorted: true, parts: Parts::default() }
    }

    /// A call has ended, the last one so far.
    fn set(&mut self, call: u32, marks: Marks) {
        self.is_sorted &= call >= self.greatest;
        self.greatest = self.greatest.max(call);
        self.last = call;
        self.calls.push((call, marks));
    }

    fn sort(&mut self) {
        if !self.is_sorted {
            self.calls.sort_unstable_by_key(|(call, _)| *call);
            self.is_sorted = true;
        }
    }

    /// The place of a call among those that are remembered, and its marks. It is mostly the one
    /// before `near`.
    fn get(&self, call: u32, near: usize) -> (usize, &Marks) {
        let place = near.wrapping_sub(1);
        if let Some((number, marks)) = self.calls.get(place)
            && *number == call
        {
            return (place, marks);
        }
        let found = self.calls.binary_search_by_key(&call, |(number, _)| *number);
        found.map_or((near, &Marks::UNKNOWN), |place| (place, &self.calls[place].1))
    }

    /// A turn is over. Of its calls only those are still asked for that a call of another turn
    /// waits for together with others: where it waits for one call, of another turn, its path ends,
    /// whatever is known of that.
    fn forget(&mut self, turn: u32, plan: &SessionPlan) {
        self.calls.retain(|(call, _)| {
            let is_waited_for = || {
                let then = plan.then(*call).iter().map(|then| then.call());
                let mut elsewhere = then.filter(|then| plan.turn(*then) != turn);
                elsewhere.any(|then| plan.after(then).len() > 1)
            };
            plan.turn(*call) != turn || is_waited_for()
        });
    }

    /// The phases of the calls on the critical path of a turn that has just ended.
    fn path(&self, turn: &TurnRecord, plan: &SessionPlan) -> Parts {
        let (mut parts, mut call, mut until) = (Parts::default(), self.last, turn.ended);
        let mut near = self.calls.len();
        loop {
            let (place, marks) = self.get(call, near);
            marks.add(until, &mut parts);
            let reached = plan.after(call).iter().filter_map(|after| {
                let (_, waited_for) = self.get(after.call(), place);
                let at = match after.event() {
                    AfterEvent::Finished => waited_for.ended,
                    AfterEvent::Dispatched => waited_for.dispatched,
                };
                (at != Time::MAX).then_some((at, after.call()))
            });
            match reached.max() {
                Some((at, before)) if plan.turn(before) == turn.turn => {
                    until = until.min(marks.dispatched).min(at);
                    (call, near) = (before, place);
                }
                _ => return parts,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Tokens;

    fn marks(prompt: u64, cached: u64, ceiling: u64) -> Marks {
        Marks::of(&CallRecord {
            play: 0,
            session: 0,
            call: 0,
            replica: None,
            pool: 0,
            served_by: 0,
            dispatched: Time(10),
            asked: Time(10),
            sent: Time(10),
            queued: Time(12),
            scheduled: Time(20),
            first_token: Time(50),
            last_token: Time(90),
            ended: Time(95),
            prompt: Tokens(prompt),
            cached: Tokens(cached),
            ceiling: Tokens(ceiling),
            missed: Default::default(),
            output: Tokens(5),
            prefilled: Tokens(prompt - cached),
            preemptions: 0,
            lost: Tokens::ZERO,
            losses: 0,
            place: Default::default(),
            outcome: CallOutcome::Completed,
            compacted: false,
            refusals: 0,
            attempts: 1,
        })
    }

    #[test]
    fn a_call_is_taken_apart_without_a_rest() {
        let mut parts = Parts::default();
        // Of 900 prefilled tokens 600 had been computed before.
        marks(1_000, 100, 700).add(Time(95), &mut parts);
        assert_eq!(parts, [0, 7, 8, 10, 20, 40, 0, 0, 0]);
        let mut parts = Parts::default();
        marks(1_000, 100, 700).add(Time(60), &mut parts);
        assert_eq!(parts, [0, 2, 8, 10, 20, 10, 0, 0, 0]);
        let mut parts = Parts::default();
        marks(1_000, 100, 700).add(Time(5), &mut parts);
        assert_eq!(parts, Parts::default());
    }
    #[test]
    fn calls_are_found_in_whatever_order_they_ended() {
        let mut open = OpenPlay::new(&mut Vec::new());
        // Ascending, then some before them, then above all again.
        let ended = [3, 4, 9, 1, 8, 2, 20, 19, 21, 0];
        for (number, call) in (1u64..).zip(ended) {
            open.set(call, Marks { ended: Time(number), ..Marks::UNKNOWN });
            assert_eq!(open.last, call);
            open.sort();
            for call in 0..25 {
                let place = ended[..number as usize].iter().position(|ended| *ended == call);
                let expected = place.map_or(Time::MAX, |place| Time(place as u64 + 1));
                for near in 0..=open.calls.len() {
                    assert_eq!(open.get(call, near).1.ended, expected, "{call} near {near}");
                }
            }
        }
    }

    #[test]
    fn a_long_time_is_shared_out_as_exactly_as_a_short_one() {
        let marks = marks(1_000_000, 7, 999_990);
        for prefill in [0, 1, 999_999_999, u64::MAX / 999_983, u64::MAX / 999_983 + 1, u64::MAX] {
            let exact = u128::from(prefill) * 999_983 / 999_993;
            assert_eq!(u128::from(marks.again_of(Span(prefill)).0), exact, "{prefill}");
        }
    }
}
