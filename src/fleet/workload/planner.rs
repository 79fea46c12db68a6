//! From recorded sessions to sessions that can be played, one by one in the order of the trace.

use std::collections::BTreeMap;
use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

use super::packed::{Draft, Packer};
use super::plan::Rest;
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
    /// Calls of the session at hand, what they wait for and who waits for them, call by call.
    drafts: Vec<Draft>,
    after: Vec<Link>,
    then: Vec<Link>,
    packer: Packer,
    /// Who waits for whom, in the order in which it is told: the calls waited for and who waits.
    waits: Vec<(u32, Link)>,
    /// Turns of the session at hand by their numbers in the trace, in ascending order, with the
    /// calls of each.
    turns: Vec<(u32, u32)>,
    /// From which call on calls are of which turn, by position.
    turn_runs: Vec<(u32, u32)>,
    /// Models that are not the first.
    other_models: Vec<u32>,
    /// Calls of subagents with their lanes, and calls that had failed with how long that took.
    lanes_of: Vec<(u32, u32)>,
    failures: Vec<(u32, Span)>,
    lanes: LanePositions,
    /// By call: how many continue it, directly or not, and the most behind one of them.
    followers: Vec<(u32, u32)>,
    counts: Counts,
    keeps_offsets: bool,
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
            drafts: Vec::new(),
            after: Vec::new(),
            then: Vec::new(),
            packer: Packer::default(),
            waits: Vec::new(),
            turns: Vec::new(),
            turn_runs: Vec::new(),
            other_models: Vec::new(),
            lanes_of: Vec::new(),
            failures: Vec::new(),
            lanes: LanePositions::default(),
            followers: Vec::new(),
            counts: Counts::default(),
            keeps_offsets: true,
        }
    }

    /// Recorded dispatches are of no use where calls wait for each other: plans come without them.
    pub fn forget_offsets(&mut self) {
        self.keeps_offsets = false;
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
        self.calls(session);
        self.link();
        self.mark_where_it_goes_on();
        let at = session.calls.first().map_or(Span::ZERO, |call| call.at.saturating_sub(call.gap));
        let at_once = session.calls.iter().filter(|call| call.after.is_empty());
        let plan = SessionPlan {
            id: Name::clone(&session.id),
            at,
            lead: at_once.map(|call| call.gap).min().unwrap_or_default(),
            // A call writes at most two segments, and a model that is not the first has its own.
            segments: (2 * session.calls.len() as u32)
                .saturating_mul(1 + self.other_models.len() as u32),
            turns: self.turns.len() as u32,
            calls: self.packer.pack(&self.drafts, &self.after, &self.then),
            turn_runs: self.turn_runs.as_slice().into(),
            rest: self.rest(session, at),
            alone: None,
        };
        let names = Names {
            models: self.models.take_new(),
            tenants: self.tenants.take_new(),
            profiles: self.profiles.take_new(),
            groups: self.groups.take_new(),
        };
        let contexts = std::mem::take(&mut self.new_contexts);
        Arrival { plan: Arc::new(plan), contexts, names, counts: self.counts }
    }

    /// What few sessions have, if this one has any of it.
    fn rest(&self, session: &Session, at: Span) -> Option<Box<Rest>> {
        let in_order = (0..).zip(&self.turn_runs).all(|(at, (_, turn))| *turn == at);
        if in_order && self.lanes_of.is_empty() && self.failures.is_empty() && !self.keeps_offsets {
            return None;
        }
        let offsets = session.calls.iter().filter(|_| self.keeps_offsets);
        let turn_calls = self.turns.iter().filter(|_| !in_order);
        Some(Box::new(Rest {
            offsets: offsets.map(|call| call.at.saturating_sub(at)).collect(),
            lanes: self.lanes_of.as_slice().into(),
            failures: self.failures.as_slice().into(),
            turn_calls: turn_calls.map(|(_, calls)| *calls).collect(),
        }))
    }

    fn calls(&mut self, session: &Session) {
        self.lanes.begin();
        self.count_turns(session);
        self.drafts.clear();
        self.after.clear();
        self.turn_runs.clear();
        self.other_models.clear();
        self.lanes_of.clear();
        self.failures.clear();
        let mut last: Option<&Call> = None;
        for (number, call) in (0u32..).zip(&session.calls) {
            if last.is_none_or(|before| before.turn != call.turn) {
                let turn = self.turns.partition_point(|(turn, _)| *turn < call.turn) as u32;
                self.turn_runs.push((number, turn));
            }
            let place = self.lanes.place(call);
            let (plan, class) = self.call(call, last, place);
            if class.model > 0 && !self.other_models.contains(&class.model) {
                self.other_models.push(class.model);
            }
            for after in &call.after {
                let on_dispatch = after.event == AfterEvent::Dispatched;
                self.waits.push((after.call, Link::new(number, on_dispatch)));
                self.after.push(Link::new(after.call, on_dispatch));
            }
            let duration = call.seen_duration.unwrap_or_default();
            self.failures.extend(class.failed.then_some((number, duration)));
            self.lanes_of.extend((call.lane > 0).then_some((number, call.lane)));
            let after_until = self.after.len() as u32;
            self.drafts.push(Draft { plan, class, after_until, then_until: 0 });
            last = Some(call);
        }
    }

    fn call(&mut self, call: &Call, before: Option<&Call>, place: Place) -> (CallPlan, Class) {
        let failed = call.status == Status::Failed;
        self.counts.empty_outputs += u64::from(!failed && call.output_tokens == Tokens::ZERO);
        self.counts.empty_prompts += u64::from(!failed && call.prompt_tokens == Tokens::ZERO);
        self.counts.failures_without_duration += u64::from(failed && call.seen_duration.is_none());
        let last = before.zip(self.drafts.last().map(|last| &last.class));
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
            BasePlan::Call(base) => self.drafts[base as usize].class.model != model,
            _ => false,
        };
        let class = Class {
            is_main: call.lane == 0,
            tenant: tenant.unwrap_or_else(|| self.tenants.of(&call.tenant)),
            profile: profile.unwrap_or_else(|| self.profiles.of(&call.profile)),
            model,
            priority: call.priority,
            place: if switches { place.and(Place::MODEL_SWITCH) } else { place },
            finish: call.finish,
            failed,
        };
        let plan = CallPlan {
            gap: call.gap,
            kept: small(call.kept_tokens),
            goes_on: 0,
            prompt: small(call.prompt_tokens.max(Tokens(1))),
            output: small(call.output_tokens.max(Tokens(1))),
            base,
            continued_by: 0,
            nobody_goes_beyond: true,
        };
        (plan, class)
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
    fn mark_where_it_goes_on(&mut self) {
        self.followers.clear();
        self.followers.resize(self.drafts.len(), (1, 0));
        // A call's base stands before it.
        for call in (0..self.drafts.len()).rev() {
            let CallPlan { base, kept, .. } = self.drafts[call].plan;
            let BasePlan::Call(base) = base else { continue };
            let behind = self.followers[call].0;
            let (followers, most) = &mut self.followers[base as usize];
            let base = &mut self.drafts[base as usize].plan;
            *followers += behind;
            base.continued_by += 1;
            if behind > *most {
                *most = behind;
                base.goes_on = kept;
            }
        }
        for call in 0..self.drafts.len() {
            let CallPlan { base, kept, .. } = self.drafts[call].plan;
            if let BasePlan::Call(base) = base {
                let base = &mut self.drafts[base as usize].plan;
                base.nobody_goes_beyond &= kept <= base.goes_on;
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
    fn link(&mut self) {
        self.waits.sort_by_key(|(call, then)| (*call, !then.on_dispatch()));
        self.then.clear();
        let mut waits = self.waits.drain(..).peekable();
        for (number, draft) in (0u32..).zip(&mut self.drafts) {
            while let Some((_, then)) = waits.next_if(|(waited_for, _)| *waited_for == number) {
                self.then.push(then);
            }
            draft.then_until = self.then.len() as u32;
        }
    }
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
