//! A run as targets and reports ask about it: samples of the units that completed in the window.

use super::slo::{Filter, Quantity, Segment, Share, Slo, SloSource};
use crate::diag::{Error, Result};
use crate::fleet::Run;
use crate::fleet::alone::AloneTimes;
use crate::fleet::workload::{CallPlan, Workload};
use crate::observe::records::{CallOutcome, CallRecord, Place, TaskRecord, TurnRecord};
use crate::stats::quantile;
use crate::trace::record::Name;
use crate::units::Span;

/// One run with what its figures are measured against.
pub struct Measures<'a> {
    /// The run.
    pub run: &'a Run,
    workload: &'a Workload,
    /// By session: its model time alone on an idle replica.
    alone: &'a [Span],
}

/// Model time of each session alone, for the sessions that completed in one of these runs.
#[must_use]
pub fn alone_times(times: &AloneTimes, workload: &Workload, run: &Run) -> Vec<Span> {
    use rayon::prelude::*;
    let mut wanted = vec![false; workload.sessions.len()];
    for task in run.records.tasks.iter().filter(|task| run.window.holds(task.ended)) {
        wanted[task.session as usize] = true;
    }
    let time = |(session, wanted): (usize, &bool)| {
        if *wanted { times.task_llm(workload, session as u32) } else { Span::ZERO }
    };
    wanted.par_iter().enumerate().map(time).collect()
}

impl<'a> Measures<'a> {
    /// Measures of a run; `alone` is from [`alone_times`].
    #[must_use]
    pub fn new(run: &'a Run, workload: &'a Workload, alone: &'a [Span]) -> Self {
        Self { run, workload, alone }
    }

    /// Refuses a target about a tenant, model or profile that the workload does not have.
    ///
    /// # Errors
    /// The name, with those that exist.
    pub fn check_target(slo: &Slo, workload: &Workload) -> Result<()> {
        let (kind, name, names) = match &slo.filter {
            Some(Filter::Profile(name)) => ("profile", name, &workload.profiles),
            Some(Filter::Tenant(name)) => ("tenant", name, &workload.tenants),
            Some(Filter::Model(name)) => ("model", name, &workload.models),
            _ => return Ok(()),
        };
        if names.iter().any(|known| **known == **name) {
            return Ok(());
        }
        let known = names.iter().map(|name| &**name);
        Err(Error::unknown(kind, name, known).in_field(&slo.text))
    }

    /// Calls that ended in the window.
    pub fn calls(&self) -> impl Iterator<Item = &'a CallRecord> + Clone {
        let window = self.run.window;
        self.run.records.calls.iter().filter(move |call| window.holds(call.ended))
    }

    /// Of these, those that gave their answer.
    pub fn answered(&self) -> impl Iterator<Item = &'a CallRecord> + Clone {
        self.calls().filter(|call| call.outcome == CallOutcome::Completed)
    }

    /// Turns that ended in the window.
    pub fn turns(&self) -> impl Iterator<Item = &'a TurnRecord> + Clone {
        let window = self.run.window;
        self.run.records.turns.iter().filter(move |turn| window.holds(turn.ended))
    }

    /// Tasks that ended in the window.
    pub fn tasks(&self) -> impl Iterator<Item = &'a TaskRecord> + Clone {
        let window = self.run.window;
        self.run.records.tasks.iter().filter(move |task| window.holds(task.ended))
    }

    /// How much longer a task's model time was than alone on an idle replica.
    #[must_use]
    pub fn stretch(&self, task: &TaskRecord) -> Option<f64> {
        let alone = self.alone[task.session as usize];
        (alone > Span::ZERO).then(|| task.task_llm.as_f64() / alone.as_f64())
    }

    /// Samples of a quantity, in ascending order.
    #[must_use]
    pub fn samples(&self, quantity: Quantity, filter: Option<&Filter>) -> Vec<f64> {
        let calls = || self.answered().filter(|call| self.call_passes(call, filter));
        let turns = || {
            let turns = self.turns().filter(|turn| !turn.failed);
            turns.filter(|turn| self.session_passes(turn.session, filter))
        };
        let tasks = || {
            let tasks = self.tasks().filter(|task| !task.failed);
            tasks.filter(|task| self.session_passes(task.session, filter))
        };
        let mut samples: Vec<f64> = match quantity {
            Quantity::Turn => turns().map(|turn| turn.turn().secs()).collect(),
            Quantity::TurnLlm => turns().map(|turn| turn.turn_llm().secs()).collect(),
            Quantity::Task => tasks().map(|task| task.task.secs()).collect(),
            Quantity::TaskLlm => tasks().map(|task| task.task_llm.secs()).collect(),
            Quantity::Session => tasks().map(|task| task.session_span().secs()).collect(),
            Quantity::Stretch => tasks().filter_map(|task| self.stretch(task)).collect(),
            Quantity::Ttft => calls().map(|call| call.ttft().secs()).collect(),
            Quantity::Itl => calls().filter_map(CallRecord::itl_secs).collect(),
            Quantity::Queue => calls().map(|call| call.queue().secs()).collect(),
            Quantity::E2ePerToken => {
                calls().map(|call| call.e2e().secs() / call.output.as_f64()).collect()
            }
        };
        samples.sort_unstable_by(f64::total_cmp);
        samples
    }

    /// The plan that a record's call followed.
    #[must_use]
    pub fn plan(&self, call: &CallRecord) -> &'a CallPlan {
        &self.workload.sessions[call.session as usize].calls[call.call as usize]
    }

    fn call_passes(&self, call: &CallRecord, filter: Option<&Filter>) -> bool {
        let plan = self.plan(call);
        let named = |names: &[Name], number: u32, name: &str| &*names[number as usize] == name;
        match filter {
            None => true,
            Some(Filter::PromptBand { from, below }) => {
                call.prompt >= *from && below.is_none_or(|below| call.prompt < below)
            }
            Some(Filter::Profile(name)) => named(&self.workload.profiles, plan.profile, name),
            Some(Filter::Tenant(name)) => named(&self.workload.tenants, plan.tenant, name),
            Some(Filter::Model(name)) => named(&self.workload.models, plan.model, name),
            Some(Filter::Segment(segment)) => call.place.is(place_of(*segment)),
        }
    }

    /// A turn or a task is its session's first call's tenant's and profile's.
    fn session_passes(&self, session: u32, filter: Option<&Filter>) -> bool {
        let plan = &self.workload.sessions[session as usize].calls[0];
        match filter {
            Some(Filter::Profile(name)) => *self.workload.profiles[plan.profile as usize] == **name,
            Some(Filter::Tenant(name)) => *self.workload.tenants[plan.tenant as usize] == **name,
            // The others narrow single calls; the language refuses them elsewhere.
            _ => true,
        }
    }
}

impl SloSource for Measures<'_> {
    fn percentile(&self, quantity: Quantity, q: f64, filter: Option<&Filter>) -> Option<f64> {
        quantile(&self.samples(quantity, filter), q)
    }

    fn share(&self, share: Share, filter: Option<&Filter>) -> Option<f64> {
        let calls = self.calls().filter(|call| self.call_passes(call, filter));
        let (mut part, mut whole) = (0u64, 0u64);
        for call in calls {
            match (share, call.outcome) {
                (Share::Hit, CallOutcome::Completed) => {
                    part += call.cached.0;
                    whole += call.prompt.0;
                }
                (Share::Failed, CallOutcome::RecordedFailure) | (Share::Hit, _) => {}
                (Share::Failed, outcome) => {
                    part += u64::from(outcome.is_failure());
                    whole += 1;
                }
            }
        }
        (whole > 0).then(|| part as f64 / whole as f64)
    }
}

/// The kind of place that a segment of the target language means.
#[must_use]
pub fn place_of(segment: Segment) -> Place {
    match segment {
        Segment::TurnBoundary => Place::TURN_BOUNDARY,
        Segment::FirstCall => Place::FIRST_OF_TURN,
        Segment::SecondCall => Place::SECOND_OF_TURN,
        Segment::LaterCalls => Place::LATER_IN_TURN,
        Segment::ModelSwitch => Place::MODEL_SWITCH,
        Segment::Subagent => Place::SUBAGENT_FIRST,
    }
}
