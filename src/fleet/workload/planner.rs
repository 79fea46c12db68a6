//! From recorded sessions to sessions that can be played, one by one in the order of the trace.

use std::collections::BTreeMap;
use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

use super::{BasePlan, CallPlan, Class, ContextPlan, Counts, Link, Names, SessionPlan};
use crate::observe::records::Place;
use crate::trace::record::{AfterEvent, Base, Call, Name, Session, SharedContext, Status};
use crate::units::{Span, Tokens};

/// A session with what came up in the trace before it and was not told yet.
#[derive(Clone, Debug)]
pub struct Arrival {
    /// The session.
    pub plan: Arc<SessionPlan>,
    /// Shared contexts; they are numbered on from those told before.
    pub contexts: Vec<ContextPlan>,
    /// Names; they are numbered on likewise.
    pub names: Names,
    /// What is in the session.
    pub counts: Counts,
}

/// Makes sessions ready.
#[derive(Debug)]
pub struct Planner {
    served: BTreeMap<Name, Name>,
    contexts: FxHashMap<Name, u32>,
    models: Numbers,
    tenants: Numbers,
    profiles: Numbers,
    /// By number of a model group: the number of the model that answers it.
    groups: Numbers,
    model_of: Vec<u32>,
    new_contexts: Vec<ContextPlan>,
    /// Who waits for whom, in the order in which it is told: the calls waited for and who waits.
    waits: Vec<(u32, Link)>,
    /// Turns of the session at hand by their numbers in the trace, in ascending order, with the
    /// calls of each.
    turns: Vec<(u32, u32)>,
    lanes: LanePositions,
    /// By call: how many continue it, directly or not, and the most behind one of them.
    followers: Vec<(u32, u32)>,
    counts: Counts,
}

impl Planner {
    /// `models` maps model groups to served models; a group that is not in it is a served model of
    /// its own.
    #[must_use]
    pub fn new(models: &BTreeMap<Name, Name>) -> Self {
        Self {
            served: models.clone(),
            contexts: FxHashMap::default(),
            models: Numbers::default(),
            tenants: Numbers::default(),
            profiles: Numbers::default(),
            groups: Numbers::default(),
            model_of: Vec::new(),
            new_contexts: Vec::new(),
            waits: Vec::new(),
            turns: Vec::new(),
            lanes: LanePositions::default(),
            followers: Vec::new(),
            counts: Counts::default(),
        }
    }

    /// A shared context, whose base came before.
    pub fn context(&mut self, context: &SharedContext) {
        let number = self.contexts.len() as u32;
        let plan = ContextPlan {
            base: context.base.as_ref().map(|name| self.contexts[name]),
            kept: context.kept_tokens,
            tokens: context.prompt_tokens,
            common: false,
        };
        self.contexts.insert(Name::clone(&context.name), number);
        self.new_contexts.push(plan);
    }

    /// A checked session, whose contexts came before.
    pub fn session(&mut self, session: &Session) -> Arrival {
        self.counts =
            Counts { sessions: 1, calls: session.calls.len() as u64, ..Counts::default() };
        let mut plan = SessionPlan {
            id: Name::clone(&session.id),
            calls: Vec::with_capacity(session.calls.len()),
            ..SessionPlan::default()
        };
        self.calls(session, &mut plan);
        let first = session.calls.first();
        plan.at = first.map_or(Span::ZERO, |call| call.at.saturating_sub(call.gap));
        let offset = |call: &Call| call.at.saturating_sub(plan.at);
        plan.offsets = session.calls.iter().map(offset).collect();
        let at_once = session.calls.iter().filter(|call| call.after.is_empty());
        plan.lead = at_once.map(|call| call.gap).min().unwrap_or_default();
        self.link(&mut plan);
        self.mark_where_it_goes_on(&mut plan.calls);
        plan.classes.shrink_to_fit();
        let names = Names {
            models: self.models.take_new(),
            tenants: self.tenants.take_new(),
            profiles: self.profiles.take_new(),
            groups: self.groups.take_new(),
        };
        let contexts = std::mem::take(&mut self.new_contexts);
        Arrival { plan: Arc::new(plan), contexts, names, counts: self.counts }
    }

    fn calls(&mut self, session: &Session, plan: &mut SessionPlan) {
        self.lanes.begin();
        self.count_turns(session);
        plan.after.reserve_exact(session.calls.iter().map(|call| call.after.len()).sum());
        plan.turn_calls = self.turns.iter().map(|(_, calls)| *calls).collect();
        let mut models: Vec<u32> = Vec::new();
        let mut last: Option<(&Call, u32)> = None;
        for (number, call) in (0u32..).zip(&session.calls) {
            let turn = match last {
                Some((before, turn)) if before.turn == call.turn => turn,
                _ => self.turns.partition_point(|(turn, _)| *turn < call.turn) as u32,
            };
            let place = self.lanes.place(call);
            let (ready, of) = self.call(call, last.map(|(call, _)| call), plan, turn, place);
            if of.model > 0 && !models.contains(&of.model) {
                models.push(of.model);
            }
            let class = class(&mut plan.classes, of);
            for after in &call.after {
                let on_dispatch = after.event == AfterEvent::Dispatched;
                self.waits.push((after.call, Link::new(number, on_dispatch)));
                plan.after.push(Link::new(after.call, on_dispatch));
            }
            let failed = call.status == Status::Failed;
            let duration = call.seen_duration.unwrap_or_default();
            plan.failures.extend(failed.then_some((number, duration)));
            let after_until = plan.after.len() as u32;
            plan.calls.push(CallPlan { after_until, class, ..ready });
            last = Some((call, turn));
        }
        // A call writes at most two segments, and a model that is not the first has its own.
        plan.segments = 2 * plan.calls.len() as u32 * (1 + models.len() as u32);
    }

    fn call(
        &mut self,
        call: &Call,
        before: Option<&Call>,
        plan: &SessionPlan,
        turn: u32,
        place: Place,
    ) -> (CallPlan, Class) {
        let failed = call.status == Status::Failed;
        self.counts.empty_outputs += u64::from(!failed && call.output_tokens == Tokens::ZERO);
        self.counts.empty_prompts += u64::from(!failed && call.prompt_tokens == Tokens::ZERO);
        self.counts.failures_without_duration += u64::from(failed && call.seen_duration.is_none());
        let last = before.zip(plan.calls.last().map(|last| &plan.classes[last.class as usize]));
        // Names of calls in a row are nearly always the same text, and the same copy of it.
        let same = |name: fn(&Call) -> &Name, number: fn(&Class) -> u32| {
            let (before, class) = last?;
            Arc::ptr_eq(name(before), name(call)).then(|| number(class))
        };
        let model = same(|call| &call.model, |class| class.model);
        let tenant = same(|call| &call.tenant, |class| class.tenant);
        let profile = same(|call| &call.profile, |class| class.profile);
        let model = model.unwrap_or_else(|| self.model(&call.model));
        let base = match &call.base {
            Base::None => BasePlan::None,
            Base::Call(call) => BasePlan::Call(*call),
            Base::Shared(name) => BasePlan::Context(self.contexts[name]),
        };
        let switches = match base {
            BasePlan::Call(base) => plan.class(base).model != model,
            _ => false,
        };
        let class = Class {
            lane: call.lane,
            tenant: tenant.unwrap_or_else(|| self.tenants.of(&call.tenant)),
            profile: profile.unwrap_or_else(|| self.profiles.of(&call.profile)),
            model,
            priority: call.priority,
            place: if switches { place.and(Place::MODEL_SWITCH) } else { place },
            finish: call.finish,
            failed,
        };
        let ready = CallPlan {
            gap: call.gap,
            kept: small(call.kept_tokens),
            goes_on: 0,
            prompt: small(call.prompt_tokens.max(Tokens(1))),
            output: small(call.output_tokens.max(Tokens(1))),
            base: base.packed(),
            continued_by: 0,
            turn,
            class: 0,
            after_until: 0,
            then_until: 0,
        };
        (ready, class)
    }

    fn count_turns(&mut self, session: &Session) {
        self.turns.clear();
        for call in &session.calls {
            match self.turns.last_mut() {
                // Calls come turn by turn, but for subagents that outlive theirs.
                Some((turn, calls)) if *turn == call.turn => *calls += 1,
                _ => match self.turns.binary_search_by_key(&call.turn, |(turn, _)| *turn) {
                    Ok(place) => self.turns[place].1 += 1,
                    Err(place) => self.turns.insert(place, (call.turn, 1)),
                },
            }
        }
    }

    /// Tells every call where most of the calls that continue it, directly or not, part from it.
    fn mark_where_it_goes_on(&mut self, calls: &mut [CallPlan]) {
        self.followers.clear();
        self.followers.resize(calls.len(), (1, 0));
        // A call's base stands before it.
        for call in (0..calls.len()).rev() {
            let BasePlan::Call(base) = calls[call].base() else { continue };
            let base = base as usize;
            let behind = self.followers[call].0;
            let (followers, most) = &mut self.followers[base];
            *followers += behind;
            calls[base].continued_by += 1;
            if behind > *most {
                *most = behind;
                calls[base].goes_on = calls[call].kept;
            }
        }
    }

    /// The model that answers a group.
    fn model(&mut self, group: &Name) -> u32 {
        let number = self.groups.of(group) as usize;
        if number == self.model_of.len() {
            let served = self.served.get(group).unwrap_or(group).clone();
            self.model_of.push(self.models.of(&served));
        }
        self.model_of[number]
    }

    /// Tells every call who waits for it: first those that wait for its dispatch, in order.
    fn link(&mut self, plan: &mut SessionPlan) {
        self.waits.sort_by_key(|(call, then)| (*call, !then.on_dispatch()));
        let mut waits = self.waits.drain(..).peekable();
        plan.then.reserve_exact(waits.len());
        for (number, call) in (0u32..).zip(&mut plan.calls) {
            while let Some((_, then)) = waits.next_if(|(waited_for, _)| *waited_for == number) {
                plan.then.push(then);
            }
            call.then_until = plan.then.len() as u32;
        }
    }
}

/// The number of a class among those of a session, of which the last ones are looked through.
fn class(classes: &mut Vec<Class>, of: Class) -> u32 {
    const LAST: usize = 8;
    let from = classes.len().saturating_sub(LAST);
    let found = classes[from..].iter().position(|class| *class == of);
    let place = found.map_or(classes.len(), |place| from + place);
    if place == classes.len() {
        classes.push(of);
    }
    place as u32
}

/// Counts of tokens in a trace are at most [`crate::trace::check::TOKENS_MAX`].
fn small(tokens: Tokens) -> u32 {
    u32::try_from(tokens.0).unwrap_or(u32::MAX)
}

/// Numbers of names, in the order in which they are met.
#[derive(Debug, Default)]
struct Numbers {
    by_name: FxHashMap<Name, u32>,
    new: Vec<Name>,
}

impl Numbers {
    fn of(&mut self, name: &Name) -> u32 {
        if let Some(number) = self.by_name.get(name) {
            return *number;
        }
        let number = self.by_name.len() as u32;
        self.by_name.insert(Name::clone(name), number);
        self.new.push(Name::clone(name));
        number
    }

    fn take_new(&mut self) -> Vec<Name> {
        std::mem::take(&mut self.new)
    }
}

/// Where in its turn or its lane the next call stands.
#[derive(Debug, Default)]
struct LanePositions {
    turn: Option<u32>,
    calls_of_turn: u32,
    seen_lanes: FxHashSet<u32>,
}

impl LanePositions {
    fn begin(&mut self) {
        (self.turn, self.calls_of_turn) = (None, 0);
        self.seen_lanes.clear();
    }

    fn place(&mut self, call: &Call) -> Place {
        if call.lane > 0 {
            return match self.seen_lanes.insert(call.lane) {
                true => Place::SUBAGENT_FIRST,
                false => Place::SUBAGENT_LATER,
            };
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
