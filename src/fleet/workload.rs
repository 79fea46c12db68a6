//! Sessions made ready to be played: names resolved to numbers, every call knowing who waits for
//! it.
//!
//! A [`Planner`] makes them one by one, so that a trace need not be held; a [`Workload`] holds all
//! of them, is made once and shared by every run over it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use rustc_hash::FxHashSet;

use crate::observe::records::Place;
use crate::trace::record::{AfterEvent, Finish, Name, Trace};
use crate::trace::tools::survey::COMMON_FROM_SESSIONS;
use crate::units::{Span, Tokens};

mod contexts;
mod planner;

pub use contexts::Contexts;
pub use planner::{Arrival, Planner};

/// A trace made ready to be played.
#[derive(Clone, Debug, Default)]
pub struct Workload {
    /// Sessions in the order of the trace, which is that of their first calls.
    pub sessions: Vec<Arc<SessionPlan>>,
    /// Shared contexts; a context's base stands before it.
    pub contexts: Contexts,
    /// What numbers in the plans mean.
    pub names: Names,
    /// What there is in it.
    pub counts: Counts,
}

/// What there is in a trace, or in the part of it that was read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Sessions.
    pub sessions: u64,
    /// Calls in all of them.
    pub calls: u64,
    /// Calls with no output as recorded, which are sent for one token.
    pub empty_outputs: u64,
    /// Calls with no prompt as recorded, which are sent with one token.
    pub empty_prompts: u64,
    /// Failed calls whose recorded duration is unknown: they take no time.
    pub failures_without_duration: u64,
}

impl Counts {
    /// Adds what is in another part.
    pub fn add(&mut self, more: &Self) {
        self.sessions += more.sessions;
        self.calls += more.calls;
        self.empty_outputs += more.empty_outputs;
        self.empty_prompts += more.empty_prompts;
        self.failures_without_duration += more.failures_without_duration;
    }
}

/// Names by number, in the order in which they were met.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names {
    /// Served models: calls of different ones share no KV.
    pub models: Vec<Name>,
    /// Tenants.
    pub tenants: Vec<Name>,
    /// Profiles.
    pub profiles: Vec<Name>,
    /// Model groups of the trace.
    pub groups: Vec<Name>,
}

impl Names {
    /// Adds names that were met later.
    pub fn extend(&mut self, more: Self) {
        self.models.extend(more.models);
        self.tenants.extend(more.tenants);
        self.profiles.extend(more.profiles);
        self.groups.extend(more.groups);
    }
}

/// A shared context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContextPlan {
    /// The context that it continues.
    pub base: Option<u32>,
    /// Leading tokens of it that are kept.
    pub kept: Tokens,
    /// Its whole length.
    pub tokens: Tokens,
    /// Whether so many sessions use it that it is tools and system prompt: the same for everybody
    /// and for ever. Others are somebody's conversation. It matters only where sessions are played
    /// more than once.
    pub common: bool,
}

/// One session, ready to be played. What calls have of several is in lists of the session, so that
/// a session is a handful of allocations however many calls it has.
#[derive(Clone, Debug, Default)]
pub struct SessionPlan {
    /// Its id in the trace.
    pub id: Name,
    /// Its start as recorded, from the start of the trace.
    pub at: Span,
    /// From its start to its first dispatch, where recorded starts are played.
    pub lead: Span,
    /// Its calls by number.
    pub calls: Vec<CallPlan>,
    /// Calls of each turn; calls name their turn by its position here.
    pub turn_calls: Vec<u32>,
    /// What calls wait for, call by call.
    after: Vec<Link>,
    /// Who waits for calls, call by call.
    then: Vec<Link>,
    /// From its recorded start to each call's recorded dispatch; none where that is not asked for.
    offsets: Vec<Span>,
    /// What its calls are like, each only once among those in a row.
    classes: Vec<Class>,
    /// Calls that had failed when recorded, and how long that took.
    failures: Vec<(u32, Span)>,
    /// At most so many segments of content come up in it.
    pub segments: u32,
    /// Its model time alone, where that was worked out beforehand.
    pub alone: Option<Span>,
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
}

/// One call, ready to be played. There are as many of these at once as open sessions have calls:
/// what few of them differ in is in their [`Class`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallPlan {
    /// Client time before the dispatch.
    pub gap: Span,
    kept: u32,
    goes_on: u32,
    prompt: u32,
    output: u32,
    base: u32,
    /// Calls that continue it.
    pub continued_by: u32,
    /// Position of its turn in [`SessionPlan::turn_calls`].
    pub turn: u32,
    class: u32,
    after_until: u32,
    then_until: u32,
}

/// What most calls of a session have in common.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Class {
    /// 0 for the main agent.
    pub lane: u32,
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
        let number = self.base & !BasePlan::SHARED;
        match self.base {
            BasePlan::NOTHING => BasePlan::None,
            shared if shared & BasePlan::SHARED != 0 => BasePlan::Context(number),
            _ => BasePlan::Call(number),
        }
    }
}

impl SessionPlan {
    /// Calls that are dispatched by the session's start alone, and how long after it: those that
    /// wait for no other; in an open loop all of them, as recorded.
    pub fn starts(&self, open_loop: bool) -> impl Iterator<Item = (u32, Span)> {
        let starts = move |(call, _): &(u32, _)| open_loop || self.after(*call).is_empty();
        let wait = move |(call, of): (u32, &CallPlan)| match open_loop {
            true => (call, self.offset(call)),
            false => (call, of.gap),
        };
        (0u32..).zip(&self.calls).filter(starts).map(wait)
    }

    /// What must have happened before a call.
    #[must_use]
    pub fn after(&self, call: u32) -> &[Link] {
        let until = self.calls[call as usize].after_until as usize;
        &self.after[self.from(call, |before| before.after_until)..until]
    }

    /// Who waits for a call.
    #[must_use]
    pub fn then(&self, call: u32) -> &[Link] {
        let until = self.calls[call as usize].then_until as usize;
        &self.then[self.from(call, |before| before.then_until)..until]
    }

    fn from(&self, call: u32, until: impl Fn(&CallPlan) -> u32) -> usize {
        let before = (call as usize).checked_sub(1);
        before.map_or(0, |before| until(&self.calls[before]) as usize)
    }

    /// What a call has in common with others.
    #[must_use]
    pub fn class(&self, call: u32) -> &Class {
        &self.classes[self.calls[call as usize].class as usize]
    }

    /// From the session's recorded start to a call's recorded dispatch, unless those were
    /// [forgotten](Self::forget_offsets).
    #[must_use]
    pub fn offset(&self, call: u32) -> Span {
        self.offsets.get(call as usize).copied().unwrap_or_default()
    }

    /// Recorded dispatches are of no use where calls wait for each other.
    pub fn forget_offsets(&mut self) {
        self.offsets = Vec::new();
    }

    /// For a call that had failed when recorded: how long that took.
    #[must_use]
    pub fn failed_after(&self, call: u32) -> Option<Span> {
        let found = self.failures.binary_search_by_key(&call, |(failed, _)| *failed);
        found.ok().map(|place| self.failures[place].1)
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

    const fn packed(self) -> u32 {
        match self {
            Self::None => Self::NOTHING,
            Self::Call(call) => call,
            Self::Context(context) => context | Self::SHARED,
        }
    }
}

impl Workload {
    /// The served models that calls ask for, those apart that had failed when they were recorded.
    pub fn asked_models(&self) -> impl Iterator<Item = &str> {
        let classes = self.sessions.iter().flat_map(|session| &session.classes);
        let asked: BTreeSet<u32> =
            classes.filter(|class| !class.failed).map(|class| class.model).collect();
        let name = |model: u32| self.names.models.get(model as usize).map(Name::as_ref);
        asked.into_iter().filter_map(name)
    }

    /// Makes a checked trace ready. `models` maps the trace's model groups to served models; a
    /// group that is not in it is a served model of its own.
    #[must_use]
    pub fn new(trace: &Trace, models: &BTreeMap<Name, Name>) -> Self {
        let mut planner = Planner::new(models);
        let mut workload = Self::default();
        for context in &trace.contexts {
            planner.context(context);
        }
        for session in &trace.sessions {
            let arrival = planner.session(session);
            workload.contexts.extend(arrival.contexts);
            workload.names.extend(arrival.names);
            workload.counts.add(&arrival.counts);
            workload.sessions.push(arrival.plan);
        }
        workload.mark_common_contexts();
        workload
    }

    /// Takes a context of `played` for tools and system prompt where it is one of those that are
    /// `common` in the whole trace: the part that is played may have too few users of it.
    pub fn keep_common(&mut self, played: &Trace, common: &FxHashSet<Name>) {
        for (context, plan) in played.contexts.iter().zip(self.contexts.iter_mut()) {
            plan.common |= common.contains(&context.name);
        }
    }

    /// Calls in all sessions.
    #[must_use]
    pub fn calls(&self) -> u64 {
        self.counts.calls
    }

    fn mark_common_contexts(&mut self) {
        let mut users = vec![0u32; self.contexts.len()];
        let mut last_user = vec![usize::MAX; self.contexts.len()];
        for (index, session) in self.sessions.iter().enumerate() {
            for call in &session.calls {
                let BasePlan::Context(context) = call.base() else { continue };
                let mut next = Some(context);
                // Who uses a context uses what it continues; a base seen in this session before
                // has been counted with all of its own bases.
                while let Some(context) = next.filter(|&at| last_user[at as usize] != index) {
                    last_user[context as usize] = index;
                    users[context as usize] += 1;
                    next = self.contexts.get(context).base;
                }
            }
        }
        for (context, users) in self.contexts.iter_mut().zip(users) {
            context.common = users >= COMMON_FROM_SESSIONS;
        }
    }
}
