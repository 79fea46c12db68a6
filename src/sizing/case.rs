//! A scenario with its trace, ready to be run with any number of replicas.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::figures::{Figures, Names};
use super::measures::{Measures, alone_times};
use super::slo::{Slo, Verdict};
use crate::config::scenario::Scenario;
use crate::diag::{Error, Place, Result};
use crate::fleet::alone::AloneTimes;
use crate::fleet::played::{Played, played};
use crate::fleet::workload::Workload;
use crate::fleet::{self, Progress, Run, Setup};
use crate::trace::record::Trace;

mod siblings;

const OPEN_LOOP: &str = "open loop: every call at its recorded time; what it waits for is ignored";

/// A scenario with its trace, ready to be run.
#[derive(Debug)]
pub struct Case {
    /// The scenario.
    pub scenario: Scenario,
    /// Its fleet.
    pub setup: Setup,
    /// The trace, ready to be played.
    pub workload: Arc<Workload>,
    /// What of the trace is played, where that is not all of it as recorded.
    pub notes: Vec<String>,
    /// What the fleet must reach.
    pub targets: Vec<Slo>,
    alone: Arc<AloneTimes>,
    kinds: siblings::Kinds,
}

/// One fleet as it was simulated and judged.
#[derive(Clone, Debug)]
pub struct Judged {
    /// Replicas of the fleet.
    pub replicas: u32,
    /// What was measured.
    pub figures: Figures,
    /// How each target came out, in the order of [`Case::targets`].
    pub verdicts: Vec<Verdict>,
}

impl Judged {
    /// Whether the fleet meets every target.
    #[must_use]
    pub fn met(&self) -> bool {
        self.verdicts.iter().all(|verdict| verdict.met)
    }

    /// The position of the target with the least margin: the one that binds. A target without
    /// samples binds before all others.
    #[must_use]
    pub fn binding(&self) -> Option<usize> {
        let margin = |verdict: &Verdict| match verdict.margin {
            Some(margin) => margin,
            None if verdict.met => f64::INFINITY,
            None => f64::NEG_INFINITY,
        };
        let positions = 0..self.verdicts.len();
        positions.min_by(|&a, &b| margin(&self.verdicts[a]).total_cmp(&margin(&self.verdicts[b])))
    }
}

impl Case {
    /// Makes a scenario ready. `targets` of the command line come on top of the scenario's; the
    /// default targets stand in where there are none at all.
    ///
    /// # Errors
    /// A target that cannot be read or judged on this trace, or a replica without a step time.
    pub fn new(scenario: Scenario, trace: &Trace, targets: &[String]) -> Result<Self> {
        let targets = read_targets(&scenario, targets)?;
        check_models(&scenario, trace)?;
        let setup = Setup::of(&scenario)?;
        let Played { trace: played, mut notes, common } =
            played(trace, &scenario.reshape, scenario.seed)?;
        let mut workload = Workload::new(&played, &scenario.models);
        workload.keep_common(&played, &common);
        if scenario.open_loop {
            notes.push(OPEN_LOOP.to_owned());
        }
        for target in &targets {
            Measures::check_target(target, &workload)?;
        }
        let kinds = siblings::Kinds::default();
        let alone = kinds.alone(&setup, &workload);
        Ok(Self { scenario, setup, workload: Arc::new(workload), notes, targets, alone, kinds })
    }

    /// Whether the engines take every step by itself, as the reference does.
    #[must_use]
    pub fn every_step(mut self, every_step: bool) -> Self {
        self.setup.every_step = every_step;
        self.alone = self.kinds.alone(&self.setup, &self.workload);
        self
    }

    /// Simulates the fleet with this many replicas.
    ///
    /// # Errors
    /// A fleet that comes to a standstill, with the state that explains it.
    pub fn run(&self, replicas: u32, progress: &Progress) -> Result<Run> {
        let setup = Setup { replicas, ..self.setup.clone() };
        let run = fleet::simulate(&setup, &self.workload, progress);
        match &run.stuck {
            Some(why) => Err(Error::new(format!("the fleet came to a standstill: {why}"))),
            None => Ok(run),
        }
    }

    /// Measures a run and judges it by the targets.
    #[must_use]
    pub fn judge(&self, run: &Run) -> Judged {
        let alone = alone_times(&self.alone, &self.workload, run);
        let measures = Measures::new(run, &self.workload, &alone);
        let names = Names { tenants: &self.workload.tenants, models: &self.workload.models };
        Judged {
            replicas: run.replicas.len() as u32,
            figures: Figures::of(&measures, &self.scenario, &names),
            verdicts: self.targets.iter().map(|target| target.evaluate(&measures)).collect(),
        }
    }

    /// How much longer each completed task's model time was than alone, in the order of the run's
    /// task records; none where the task did not complete in the window.
    #[must_use]
    pub fn stretches(&self, run: &Run) -> Vec<Option<f64>> {
        let alone = alone_times(&self.alone, &self.workload, run);
        let measures = Measures::new(run, &self.workload, &alone);
        let tasks = run.records.tasks.iter();
        tasks
            .map(|task| run.window.holds(task.ended).then(|| measures.stretch(task)).flatten())
            .collect()
    }
}

/// Refuses a model group that the trace does not have.
fn check_models(scenario: &Scenario, trace: &Trace) -> Result<()> {
    let calls = trace.sessions.iter().flat_map(|session| &session.calls);
    let groups: BTreeSet<&str> = calls.map(|call| &*call.model).collect();
    match scenario.models.keys().find(|group| !groups.contains(&***group)) {
        Some(group) => Err(Error::unknown("model group of the trace", group, groups)
            .in_field(format!("models.{group}"))),
        None => Ok(()),
    }
}

/// The targets of the scenario and those of the command line; the default ones where there are
/// none at all.
pub(super) fn read_targets(scenario: &Scenario, given: &[String]) -> Result<Vec<Slo>> {
    let nowhere = Place::default();
    let written = scenario.targets.iter().zip(&scenario.target_places);
    let written = written.map(|(text, place)| (text, "slo.targets", place));
    let given = given.iter().map(|text| (text, "--slo", &nowhere));
    let parse = |(text, origin, place): (&String, &str, &Place)| {
        let field = format!("{origin} `{text}`");
        let parsed = match place.column.filter(|_| place.field.as_deref() == Some("slo.targets")) {
            // Behind the quote.
            Some(column) => Slo::parse_at_column(text, column + 1),
            None => Slo::parse(text).map_err(Error::without_place),
        };
        parsed.map_err(|error| error.at_place(place).in_field(field))
    };
    let targets = written.chain(given).map(parse).collect::<Result<Vec<_>>>()?;
    Ok(if targets.is_empty() { Slo::defaults() } else { targets })
}
