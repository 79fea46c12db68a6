//! Sessions made ready to be played: names resolved to numbers, every call knowing who waits for
//! it.
//!
//! A [`Planner`] makes them one by one, so that a trace need not be held; a [`Workload`] holds all
//! of them, is made once and shared by every run over it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use rustc_hash::FxHashSet;

use crate::trace::record::{Name, Trace};
use crate::trace::tools::survey::COMMON_FROM_SESSIONS;
use crate::units::Tokens;

mod contexts;
mod packed;
mod plan;
mod planner;

pub use contexts::Contexts;
pub use plan::{BasePlan, CallPlan, Class, Link, Links, SessionPlan};
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

impl Workload {
    /// The served models that calls ask for, those apart that had failed when they were recorded.
    pub fn asked_models(&self) -> impl Iterator<Item = &str> {
        let classes = self.sessions.iter().flat_map(|session| session.classes());
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
            for call in session.calls() {
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
