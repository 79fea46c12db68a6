//! What is planned of a session.

use super::packed::Packed;
use crate::observe::records::Place;
use crate::trace::record::{AfterEvent, Finish, Name};
use crate::units::{Span, Tokens};

/// One session, ready to be played. There are as many of these at once as sessions are open, so
/// what calls are like is kept close together, and told one by one.
#[derive(Clone, Debug, Default)]
pub struct SessionPlan {
    /// Its id in the trace.
    pub id: Name,
    /// Its start as recorded, from the start of the trace.
    pub at: Span,
    /// From its start to its first dispatch, where recorded starts are played.
    pub lead: Span,
    /// At most so many segments of content come up in it.
    pub segments: u32,
    /// Its turns.
    pub turns: u32,
    pub(super) calls: Packed,
    /// From which call on calls are of which turn.
    pub(super) turn_runs: Box<[(u32, u32)]>,
    /// What few sessions have.
    pub(super) rest: Option<Box<Rest>>,
    /// Its model time alone, where that was worked out beforehand.
    pub alone: Option<Span>,
}

/// What few sessions, or few calls of a session, have.
#[derive(Clone, Debug, Default)]
pub(super) struct Rest {
    /// From its recorded start to each call's recorded dispatch; none where that is not asked for.
    pub(super) offsets: Box<[Span]>,
    /// Calls of subagents with their lanes.
    pub(super) lanes: Box<[(u32, u32)]>,
    /// Calls that had failed when recorded, and how long that took.
    pub(super) failures: Box<[(u32, Span)]>,
    /// Calls of each turn, where turns are mixed up.
    pub(super) turn_calls: Box<[u32]>,
}

/// A call that waits for another, or is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link(u32);

impl Link {
    /// A session has fewer calls than this.
    const ON_DISPATCH: u32 = 1 << 31;

    /// `on_dispatch` is whether it is enough that the call waited for is dispatched.
    #[must_use]
    pub const fn new(call: u32, on_dispatch: bool) -> Self {
        Self(if on_dispatch { call | Self::ON_DISPATCH } else { call })
    }

    /// Which call.
    #[must_use]
    pub const fn call(self) -> u32 {
        self.0 & !Self::ON_DISPATCH
    }

    /// Whether the dispatch of the one that is waited for is enough.
    #[must_use]
    pub const fn on_dispatch(self) -> bool {
        self.0 & Self::ON_DISPATCH != 0
    }

    /// What is waited for.
    #[must_use]
    pub const fn event(self) -> AfterEvent {
        match self.on_dispatch() {
            true => AfterEvent::Dispatched,
            false => AfterEvent::Finished,
        }
    }

    pub(super) const fn packed(self) -> u32 {
        self.0
    }
}

/// Links of a call, in order.
#[derive(Clone, Copy, Debug)]
pub struct Links<'a> {
    list: &'a [u32],
    /// Links to the ends of calls in a row.
    first: u32,
    until: u32,
}

impl<'a> Links<'a> {
    pub(super) const fn listed(list: &'a [u32]) -> Self {
        Self { list, first: 0, until: 0 }
    }

    pub(super) const fn in_a_row(first: u32, count: u32) -> Self {
        Self { list: &[], first, until: first + count }
    }

    /// How many there are.
    #[must_use]
    pub const fn len(&self) -> usize {
        (self.until - self.first) as usize + self.list.len()
    }

    /// Whether there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// One after the other.
    pub fn iter(&self) -> impl Iterator<Item = Link> + use<'a> {
        let Self { list, first, until } = *self;
        (first..until).map(|call| Link::new(call, false)).chain(list.iter().map(|link| Link(*link)))
    }
}

/// One call, ready to be played.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallPlan {
    /// Client time before the dispatch.
    pub gap: Span,
    pub(super) kept: u32,
    pub(super) goes_on: u32,
    pub(super) prompt: u32,
    pub(super) output: u32,
    pub(super) base: BasePlan,
    /// Calls that continue it.
    pub continued_by: u32,
    /// Whether none of them keeps more of it than [up to where](Self::goes_on) most do.
    pub nobody_goes_beyond: bool,
}

/// What most calls of a session have in common.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Class {
    /// Whether the main agent makes it, and no subagent.
    pub is_main: bool,
    /// Who pays, by number.
    pub tenant: u32,
    /// What kind of work it is, by number.
    pub profile: u32,
    /// The served model, by number.
    pub model: u32,
    /// Scheduling priority.
    pub priority: i32,
    /// What kind of place it has.
    pub place: Place,
    /// Whether the engine knows the output beforehand.
    pub finish: Finish,
    /// Whether it had failed when recorded.
    pub failed: bool,
}

impl CallPlan {
    /// Leading tokens of the base that are kept.
    #[must_use]
    pub fn kept(&self) -> Tokens {
        Tokens(self.kept.into())
    }

    /// Where the rest of the session goes on from this call, by what most of its calls continue:
    /// leading tokens of this call's context. Zero if nothing continues it.
    #[must_use]
    pub fn goes_on(&self) -> Tokens {
        Tokens(self.goes_on.into())
    }

    /// The whole prompt.
    #[must_use]
    pub fn prompt(&self) -> Tokens {
        Tokens(self.prompt.into())
    }

    /// Tokens to generate, at least one.
    #[must_use]
    pub fn output(&self) -> Tokens {
        Tokens(self.output.into())
    }

    /// What the prompt continues.
    #[must_use]
    pub fn base(&self) -> BasePlan {
        self.base
    }
}

impl SessionPlan {
    /// How many calls it has.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.calls.len()
    }

    /// Whether it has no call.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The call of this number.
    #[must_use]
    pub fn call(&self, call: u32) -> CallPlan {
        self.calls.plan(call)
    }

    /// Its calls by number.
    pub fn calls(&self) -> impl Iterator<Item = CallPlan> + '_ {
        (0..self.len() as u32).map(|call| self.call(call))
    }

    /// Client time before a call's dispatch.
    #[must_use]
    pub fn gap(&self, call: u32) -> Span {
        self.calls.gap(call)
    }

    /// Tokens that a call is to generate, at least one.
    #[must_use]
    pub fn output(&self, call: u32) -> Tokens {
        Tokens(self.calls.output(call).into())
    }

    /// Calls that are dispatched by the session's start alone, and how long after it: those that
    /// wait for no other; in an open loop all of them, as recorded.
    pub fn starts(&self, open_loop: bool) -> impl Iterator<Item = (u32, Span)> {
        let starts = move |call: &u32| open_loop || self.after(*call).is_empty();
        let wait = move |call| match open_loop {
            true => (call, self.offset(call)),
            false => (call, self.gap(call)),
        };
        (0..self.len() as u32).filter(starts).map(wait)
    }

    /// What must have happened before a call.
    #[must_use]
    pub fn after(&self, call: u32) -> Links<'_> {
        self.calls.after(call)
    }

    /// Who waits for a call.
    #[must_use]
    pub fn then(&self, call: u32) -> Links<'_> {
        self.calls.then(call)
    }

    /// What a call has in common with others.
    #[must_use]
    pub fn class(&self, call: u32) -> Class {
        self.calls.class(call)
    }

    /// The classes of its calls, by number.
    pub fn classes(&self) -> impl Iterator<Item = Class> + '_ {
        (0..self.len() as u32).map(|call| self.class(call))
    }

    /// Who makes a call: 0 for the main agent.
    #[must_use]
    pub fn lane(&self, call: u32) -> u32 {
        let Some(rest) = &self.rest else { return 0 };
        let found = rest.lanes.binary_search_by_key(&call, |(number, _)| *number);
        found.map_or(0, |place| rest.lanes[place].1)
    }

    /// The turn of a call, by its position among the turns.
    #[must_use]
    pub fn turn(&self, call: u32) -> u32 {
        self.turn_from(call).0
    }

    /// The same, and up to which call all others are of that turn, too.
    #[must_use]
    pub fn turn_from(&self, call: u32) -> (u32, u32) {
        let next = self.turn_runs.partition_point(|(first, _)| *first <= call);
        let until = self.turn_runs.get(next).map_or(self.len() as u32, |(first, _)| *first);
        (self.turn_runs[next - 1].1, until)
    }

    /// Calls of the turn at this position.
    #[must_use]
    pub fn turn_calls(&self, turn: u32) -> u32 {
        let mixed = self.rest.as_ref().map_or(&[][..], |rest| &rest.turn_calls);
        mixed.get(turn as usize).copied().unwrap_or_else(|| {
            let until = self.turn_runs.get(turn as usize + 1);
            let until = until.map_or(self.len() as u32, |(first, _)| *first);
            until - self.turn_runs[turn as usize].0
        })
    }

    /// From the session's recorded start to a call's recorded dispatch; zero where that was not
    /// asked for.
    #[must_use]
    pub fn offset(&self, call: u32) -> Span {
        let rest = self.rest.as_ref();
        rest.and_then(|rest| rest.offsets.get(call as usize)).copied().unwrap_or_default()
    }

    /// For a call that had failed when recorded: how long that took.
    #[must_use]
    pub fn failed_after(&self, call: u32) -> Option<Span> {
        let rest = self.rest.as_ref()?;
        let found = rest.failures.binary_search_by_key(&call, |(failed, _)| *failed);
        found.ok().map(|place| rest.failures[place].1)
    }
}

/// What a prompt continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BasePlan {
    /// Nothing.
    None,
    /// A call of the same session.
    Call(u32),
    /// A shared context.
    Context(u32),
}

impl BasePlan {
    const NOTHING: u32 = u32::MAX;
    /// There are fewer calls in a session, and fewer contexts, than this.
    const SHARED: u32 = 1 << 31;

    pub(super) const fn packed(self) -> u32 {
        match self {
            Self::None => Self::NOTHING,
            Self::Call(call) => call,
            Self::Context(context) => context | Self::SHARED,
        }
    }

    pub(super) const fn unpacked(word: u32) -> Self {
        match word {
            Self::NOTHING => Self::None,
            shared if shared & Self::SHARED != 0 => Self::Context(shared & !Self::SHARED),
            call => Self::Call(call),
        }
    }
}
