//! A trace made ready to be played: names resolved to numbers, every call knowing who waits for it.
//!
//! It is made once and shared by every run over it.

use std::collections::BTreeMap;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::observe::records::Place;
use crate::trace::record::{After, AfterEvent, Base, Call, Finish, Name, Session, Status, Trace};
use crate::trace::tools::survey::COMMON_FROM_SESSIONS;
use crate::units::{Span, Tokens};

/// A trace made ready to be played.
#[derive(Clone, Debug)]
pub struct Workload {
    /// Sessions in order of their recorded start.
    pub sessions: Vec<SessionPlan>,
    /// Shared contexts; a context's base stands before it.
    pub contexts: Vec<ContextPlan>,
    /// Served models: calls of different ones share no KV.
    pub models: Vec<Name>,
    /// Tenants, by the number that calls give.
    pub tenants: Vec<Name>,
    /// Profiles, by the number that calls give.
    pub profiles: Vec<Name>,
    /// Calls with no output as recorded, which are sent for one token.
    pub empty_outputs: u64,
    /// Calls with no prompt as recorded, which are sent with one token.
    pub empty_prompts: u64,
    /// Failed calls whose recorded duration is unknown: they take no time.
    pub failures_without_duration: u64,
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
    /// and for ever. Others are somebody's conversation.
    pub common: bool,
}

/// One session, ready to be played.
#[derive(Clone, Debug)]
pub struct SessionPlan {
    /// Its id in the trace.
    pub id: Name,
    /// Its start as recorded, from the start of the trace.
    pub at: Span,
    /// Its calls by number.
    pub calls: Vec<CallPlan>,
    /// Calls of each turn; calls name their turn by its position here.
    pub turn_calls: Vec<u32>,
}

/// One call, ready to be played.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallPlan {
    /// What must have happened before.
    pub after: Vec<After>,
    /// Calls that wait for this one's dispatch.
    pub then_dispatched: Vec<u32>,
    /// Calls that wait for this one's end.
    pub then_finished: Vec<u32>,
    /// Client time before the dispatch.
    pub gap: Span,
    /// From the session's recorded start to the call's recorded dispatch.
    pub offset: Span,
    /// Position of its turn in [`SessionPlan::turn_calls`].
    pub turn: u32,
    /// 0 for the main agent.
    pub lane: u32,
    /// The served model, by position in [`Workload::models`].
    pub model: u32,
    /// Who pays, by position in [`Workload::tenants`].
    pub tenant: u32,
    /// What kind of work it is, by position in [`Workload::profiles`].
    pub profile: u32,
    /// What the prompt continues.
    pub base: BasePlan,
    /// Leading tokens of it that are kept.
    pub kept: Tokens,
    /// Where the rest of the session goes on from this call, by what most of its calls continue:
    /// leading tokens of this call's context. Zero if nothing continues it.
    pub goes_on: Tokens,
    /// The whole prompt.
    pub prompt: Tokens,
    /// Tokens to generate, at least one.
    pub output: Tokens,
    /// Whether the engine knows `output` beforehand.
    pub finish: Finish,
    /// Scheduling priority.
    pub priority: i32,
    /// For a call that had failed when recorded: how long that took.
    pub failed_after: Option<Span>,
    /// What kind of place it has.
    pub place: Place,
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

impl Workload {
    /// Makes a checked trace ready. `models` maps the trace's model groups to served models; a
    /// group that is not in it is a served model of its own.
    #[must_use]
    pub fn new(trace: &Trace, models: &BTreeMap<Name, Name>) -> Self {
        let names = trace.contexts.iter().enumerate();
        let by_name: FxHashMap<&str, u32> =
            names.map(|(index, context)| (&*context.name, index as u32)).collect();
        let mut workload = Self {
            sessions: Vec::with_capacity(trace.sessions.len()),
            contexts: Vec::with_capacity(trace.contexts.len()),
            models: Vec::new(),
            tenants: Vec::new(),
            profiles: Vec::new(),
            empty_outputs: 0,
            empty_prompts: 0,
            failures_without_duration: 0,
        };
        for context in &trace.contexts {
            workload.contexts.push(ContextPlan {
                base: context.base.as_ref().map(|name| by_name[&**name]),
                kept: context.kept_tokens,
                tokens: context.prompt_tokens,
                common: false,
            });
        }
        for session in &trace.sessions {
            let plan = workload.session(session, models, &by_name);
            workload.sessions.push(plan);
        }
        workload.mark_common_contexts();
        workload
    }

    /// Takes a context of `played` for tools and system prompt where it is one of those that are
    /// `common` in the whole trace: the part that is played may have too few users of it.
    pub fn keep_common(&mut self, played: &Trace, common: &FxHashSet<Name>) {
        for (context, plan) in played.contexts.iter().zip(&mut self.contexts) {
            plan.common |= common.contains(&context.name);
        }
    }

    /// Calls in all sessions.
    #[must_use]
    pub fn calls(&self) -> u64 {
        self.sessions.iter().map(|session| session.calls.len() as u64).sum()
    }

    fn session(
        &mut self,
        session: &Session,
        models: &BTreeMap<Name, Name>,
        numbers: &FxHashMap<&str, u32>,
    ) -> SessionPlan {
        let mut turns: BTreeMap<u32, u32> = BTreeMap::new();
        for call in &session.calls {
            *turns.entry(call.turn).or_default() += 1;
        }
        let position: BTreeMap<u32, u32> = turns.keys().copied().zip(0..).collect();
        let first = &session.calls[0];
        let start = first.at.saturating_sub(first.gap);
        let mut lanes = LanePositions::default();
        let mut calls: Vec<CallPlan> = Vec::with_capacity(session.calls.len());
        for (number, call) in session.calls.iter().enumerate() {
            for after in &call.after {
                let waited_for = &mut calls[after.call as usize];
                match after.event {
                    AfterEvent::Finished => waited_for.then_finished.push(number as u32),
                    AfterEvent::Dispatched => waited_for.then_dispatched.push(number as u32),
                }
            }
            let model = models.get(&call.model).unwrap_or(&call.model);
            let model = number_of(&mut self.models, model);
            let mut place = lanes.place(call);
            let base = match &call.base {
                Base::None => BasePlan::None,
                Base::Call(base) => BasePlan::Call(*base),
                Base::Shared(name) => BasePlan::Context(numbers[&**name]),
            };
            if let BasePlan::Call(base) = base
                && calls[base as usize].model != model
            {
                place = place.and(Place::MODEL_SWITCH);
            }
            let plan = self.call(call, base, model, place, position[&call.turn]);
            calls.push(CallPlan { offset: call.at.saturating_sub(start), ..plan });
        }
        mark_where_it_goes_on(&mut calls);
        SessionPlan {
            id: Name::clone(&session.id),
            at: start,
            calls,
            turn_calls: turns.into_values().collect(),
        }
    }

    fn call(
        &mut self,
        call: &Call,
        base: BasePlan,
        model: u32,
        place: Place,
        turn: u32,
    ) -> CallPlan {
        let failed = call.status == Status::Failed;
        self.empty_outputs += u64::from(!failed && call.output_tokens == Tokens::ZERO);
        self.empty_prompts += u64::from(!failed && call.prompt_tokens == Tokens::ZERO);
        self.failures_without_duration += u64::from(failed && call.seen_duration.is_none());
        CallPlan {
            after: call.after.clone(),
            then_dispatched: Vec::new(),
            then_finished: Vec::new(),
            gap: call.gap,
            offset: Span::ZERO,
            turn,
            lane: call.lane,
            model,
            tenant: number_of(&mut self.tenants, &call.tenant),
            profile: number_of(&mut self.profiles, &call.profile),
            base,
            kept: call.kept_tokens,
            goes_on: Tokens::ZERO,
            prompt: call.prompt_tokens.max(Tokens(1)),
            output: call.output_tokens.max(Tokens(1)),
            finish: call.finish,
            priority: call.priority,
            failed_after: failed.then(|| call.seen_duration.unwrap_or_default()),
            place,
        }
    }

    fn mark_common_contexts(&mut self) {
        let mut users = vec![0u32; self.contexts.len()];
        let mut last_user = vec![usize::MAX; self.contexts.len()];
        for (index, session) in self.sessions.iter().enumerate() {
            for call in &session.calls {
                let BasePlan::Context(context) = call.base else { continue };
                let mut next = Some(context);
                // Who uses a context uses what it continues; a base seen in this session before
                // has been counted with all of its own bases.
                while let Some(context) = next.filter(|&at| last_user[at as usize] != index) {
                    last_user[context as usize] = index;
                    users[context as usize] += 1;
                    next = self.contexts[context as usize].base;
                }
            }
        }
        for (context, users) in self.contexts.iter_mut().zip(users) {
            context.common = users >= COMMON_FROM_SESSIONS;
        }
    }
}

/// Tells every call where most of the calls that continue it, directly or not, part from it.
fn mark_where_it_goes_on(calls: &mut [CallPlan]) {
    let mut followers = vec![1u32; calls.len()];
    let mut most = vec![0u32; calls.len()];
    // A call's base stands before it.
    for call in (0..calls.len()).rev() {
        let BasePlan::Call(base) = calls[call].base else { continue };
        let base = base as usize;
        followers[base] += followers[call];
        if followers[call] > most[base] {
            most[base] = followers[call];
            calls[base].goes_on = calls[call].kept;
        }
    }
}

/// The number of a name, which joins the list if it is new.
fn number_of(names: &mut Vec<Name>, name: &Name) -> u32 {
    let known = names.iter().position(|known| known == name);
    known.unwrap_or_else(|| {
        names.push(name.clone());
        names.len() - 1
    }) as u32
}

/// Where in its turn or its lane the next call stands.
#[derive(Default)]
struct LanePositions {
    turn: Option<u32>,
    calls_of_turn: u32,
    seen_lanes: Vec<u32>,
}

impl LanePositions {
    fn place(&mut self, call: &Call) -> Place {
        if call.lane > 0 {
            if self.seen_lanes.contains(&call.lane) {
                return Place::SUBAGENT_LATER;
            }
            self.seen_lanes.push(call.lane);
            return Place::SUBAGENT_FIRST;
        }
        let first_of_session = self.turn.is_none();
        if self.turn != Some(call.turn) {
            self.turn = Some(call.turn);
            self.calls_of_turn = 0;
        }
        self.calls_of_turn += 1;
        match self.calls_of_turn {
            1 if first_of_session => Place::FIRST_OF_TURN,
            1 => Place::FIRST_OF_TURN.and(Place::TURN_BOUNDARY),
            2 => Place::SECOND_OF_TURN,
            _ => Place::LATER_IN_TURN,
        }
    }
}
