//! A scenario with its trace, ready to be run with any number of replicas.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use super::figures::Figures;
use super::slo::{Metric, Slo, Verdict};
use super::tally::{Intervals, Tally, check_target};
use crate::config::faults::FleetEvent;
use crate::config::scenario::{LoadKind, Scenario};
use crate::diag::{Error, Place, Result, Warning};
use crate::fleet::alone::AloneTimes;
use crate::fleet::arrivals::{Failure, Sessions, Stream};
use crate::fleet::observer::Observer;
use crate::fleet::played::{Played, Repeated, played};
use crate::fleet::shards::why_together;
use crate::fleet::workload::{Counts, SessionPlan, Workload};
use crate::fleet::{self, Progress, Run, Setup};
use crate::trace::record::{Name, Trace};
use crate::units::Time;

mod pools;
mod siblings;

const OPEN_LOOP: &str = "open loop: every call at its recorded time; what it waits for is ignored";

/// A scenario, ready to be run, with its trace unless that is read while it is played.
#[derive(Debug)]
pub struct Case {
    /// The scenario.
    pub scenario: Scenario,
    /// Its fleet.
    pub setup: Setup,
    /// The trace, ready to be played.
    pub workload: Arc<Workload>,
    /// Where its sessions are played several times over, or in another order: their numbers.
    repeats: Option<Arc<[u32]>>,
    /// What of the trace is played, where that is not all of it as recorded.
    pub notes: Vec<String>,
    /// What to check before the result is trusted, of scenario and trace together.
    warnings: Vec<Warning>,
    /// What a run has found to check, of a trace that was read while it was played.
    late_warning: OnceLock<Warning>,
    /// What the fleet must reach.
    pub targets: Vec<Slo>,
    alone: Arc<AloneTimes>,
    kinds: siblings::Kinds,
    threads: usize,
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
    /// How far each depends on which sessions were played, where samples were kept for it.
    pub intervals: Option<Intervals>,
    /// What there is in the trace that was played.
    pub counts: Counts,
    /// Where the run was stopped from outside, if it was: the figures are of what came before.
    pub interrupted: Option<Time>,
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
        let calls = trace.sessions.iter().flat_map(|session| &session.calls);
        check_models(&scenario, calls.map(|call| &*call.model).collect())?;
        let Played { trace: played, notes, common } =
            played(trace, &scenario.reshape, scenario.seed)?;
        let mut workload = Workload::new(&played, &scenario.served());
        workload.keep_common(&played, &common);
        let warning = check_names(&scenario, &targets, &workload)?;
        let mut case = Self::of(scenario, workload, notes, targets)?;
        case.warnings.extend(warning);
        Ok(case)
    }

    /// Makes a scenario ready whose trace is read while it is played, by [`Case::stream`]. What it
    /// says of tenants, models and profiles is only checked at the end of the run.
    ///
    /// # Errors
    /// As for [`Case::new`].
    pub fn streaming(scenario: Scenario, targets: &[String]) -> Result<Self> {
        let targets = read_targets(&scenario, targets)?;
        Self::of(scenario, Workload::default(), Vec::new(), targets)
    }

    /// Whether a scenario can be played while its trace is read: sessions start as recorded, and
    /// nothing that is asked for needs the whole trace.
    #[must_use]
    pub fn can_stream(scenario: &Scenario) -> bool {
        scenario.load.kind == LoadKind::Trace && Repeated::is_all_of(&scenario.reshape)
    }

    fn of(
        scenario: Scenario,
        workload: Workload,
        mut notes: Vec<String>,
        targets: Vec<Slo>,
    ) -> Result<Self> {
        let setup = Setup::of(&scenario)?;
        if scenario.open_loop {
            notes.push(OPEN_LOOP.to_owned());
        }
        let kinds = siblings::Kinds::default();
        let alone = kinds.alone(&setup, &workload);
        let (warnings, workload) = (Vec::new(), Arc::new(workload));
        Ok(Self {
            scenario,
            setup,
            workload,
            notes,
            warnings,
            late_warning: OnceLock::new(),
            targets,
            alone,
            kinds,
            threads: 1,
            repeats: None,
        })
    }

    /// The same with a trace that is made of another while it is played.
    ///
    /// # Errors
    /// A name in the scenario that is not in the trace, and calls that no replica takes.
    pub fn repeating(mut self, repeated: &Repeated) -> Result<Self> {
        let workload = &repeated.workload;
        let groups = workload.names.groups.iter().map(Name::as_ref);
        check_models(&self.scenario, groups.collect())?;
        self.warnings.extend(check_names(&self.scenario, &self.targets, workload)?);
        self.notes.splice(0..0, repeated.notes.iter().cloned());
        self.workload = Arc::clone(workload);
        self.repeats = Some(Arc::clone(&repeated.numbers));
        Ok(self)
    }

    /// The sessions that are played, in their order; none where that is only known afterwards.
    pub fn sessions(&self) -> impl Iterator<Item = &Arc<SessionPlan>> {
        let sessions = &self.workload.sessions;
        let as_held = if self.repeats.is_none() { &sessions[..] } else { &[] };
        let repeats = self.repeats.iter().flat_map(|numbers| numbers.iter());
        as_held.iter().chain(repeats.map(|number| &sessions[*number as usize]))
    }

    /// Whether the engines take every step by itself, as the reference does.
    #[must_use]
    pub fn every_step(mut self, every_step: bool) -> Self {
        self.setup.every_step = every_step;
        self.alone = self.kinds.alone(&self.setup, &self.workload);
        self
    }

    /// Has runs use so many threads at most; their results are the same for any number.
    #[must_use]
    pub fn on_threads(mut self, threads: usize) -> Self {
        self.threads = threads;
        self
    }

    /// Why one run of it is simulated on one thread, however many there are; `None` if it is not.
    #[must_use]
    pub fn why_one_thread(&self) -> Option<&'static str> {
        why_together(&self.setup)
    }

    /// Simulates the fleet with this many replicas, and adds up what figures and targets need.
    ///
    /// # Errors
    /// A fleet that comes to a standstill, with the state that explains it.
    pub fn run(&self, replicas: u32, progress: &Progress) -> Result<Run<Tally>> {
        self.run_with(replicas, self.tally(), progress)
    }

    /// The same with somebody else who is told of every call, turn and task.
    ///
    /// # Errors
    /// As for [`Case::run`].
    pub fn run_with<O: Observer + Send>(
        &self,
        replicas: u32,
        observer: O,
        progress: &Progress,
    ) -> Result<Run<O>> {
        self.check_events(replicas)?;
        let sessions = Sessions::Held(&self.workload);
        // Where one thread simulates, another plays sessions alone before they are asked for.
        let every_session =
            self.scenario.load.kind == LoadKind::Trace && self.setup.window.is_none();
        let beside = self.threads > 1 && self.why_one_thread().is_some() && every_session;
        if !(beside && observer.wants_alone()) {
            return self.finished(self.simulate(replicas, sessions, observer, progress)?);
        }
        let is_over = AtomicBool::new(false);
        let run = std::thread::scope(|scope| {
            scope.spawn(|| self.play_alone(&is_over));
            let run = self.simulate(replicas, sessions, observer, progress);
            is_over.store(true, Ordering::Relaxed);
            run
        });
        self.finished(run?)
    }

    /// Finds out how long every session takes alone, until nobody will ask for it any more.
    fn play_alone(&self, is_over: &AtomicBool) {
        for (number, plan) in (0..).zip(&self.workload.sessions) {
            if is_over.load(Ordering::Relaxed) {
                break;
            }
            self.alone.task_llm(number, plan, &self.workload.contexts);
        }
    }

    /// Simulates the fleet on sessions that come one by one and are forgotten when they are over.
    /// `None` if they do not come in the order of their first calls, so that the trace must be
    /// held: recorded times and gaps do not agree.
    ///
    /// # Errors
    /// As for [`Case::run`]; a trace that cannot be read, and a name in the scenario that is not in
    /// the trace.
    pub fn stream<O: Observer + Send>(
        &self,
        replicas: u32,
        sessions: Stream<'_>,
        observer: O,
        progress: &Progress,
    ) -> Result<Option<Run<O>>> {
        self.check_events(replicas)?;
        let run = self.simulate(replicas, Sessions::Stream(sessions), observer, progress)?;
        if run.failure == Some(Failure::Unsorted) {
            return Ok(None);
        }
        let run = self.finished(run)?;
        // Of a trace that is played several times over all was known before.
        if run.interrupted.is_none() && self.repeats.is_none() {
            check_models(&self.scenario, run.names.groups.iter().map(Name::as_ref).collect())?;
            let homeless = run.gateway.iter().flat_map(|gateway| &gateway.without_group);
            let names = homeless.filter_map(|model| run.names.models.get(*model as usize));
            if let Some(warning) = check_groups(&self.scenario, names.map(Name::as_ref))? {
                self.late_warning.get_or_init(|| warning);
            }
            for target in &self.targets {
                check_target(target, &run.names)?;
            }
            pools::check_names(&self.scenario, &run.names)?;
        }
        Ok(Some(run))
    }

    /// What to check before the result is trusted; of a trace that is read while it is played, once
    /// that is over.
    pub fn warnings(&self) -> impl Iterator<Item = &Warning> {
        let of_gateway = self.scenario.gateway.iter().flat_map(|gateway| &gateway.warnings);
        let of_engine = self.scenario.serving.warnings.iter();
        let of_trace = self.warnings.iter().chain(self.late_warning.get());
        of_engine.chain(self.setup.cost.warnings()).chain(of_gateway).chain(of_trace)
    }

    /// What else the user should know, of the engine, the gateway and the trace.
    pub fn all_notes(&self) -> impl Iterator<Item = &String> {
        let of_gateway = self.scenario.gateway.iter().flat_map(|gateway| &gateway.notes);
        self.scenario.serving.notes.iter().chain(of_gateway).chain(&self.notes)
    }

    /// What tells beforehand how long sessions of this case take alone, on the thread that makes
    /// them ready; none where that is found out on all threads.
    #[must_use]
    pub fn alone_times(&self) -> Option<AloneTimes> {
        let apart = self.threads > 1 && self.why_one_thread().is_none();
        (!apart).then(|| self.alone.afresh())
    }

    /// Whether a fleet of this size has every replica that an event names.
    fn check_events(&self, replicas: u32) -> Result<()> {
        let named = self.setup.events.iter().filter_map(FleetEvent::replica).max();
        match named.filter(|&named| named >= replicas) {
            None => Ok(()),
            Some(named) => {
                let text = format!(
                    "an event names replica {named}, and a fleet of {replicas} has none (they are \
                     numbered from 0)"
                );
                Err(Error::new(text).in_field("events"))
            }
        }
    }

    fn simulate<O: Observer + Send>(
        &self,
        replicas: u32,
        sessions: Sessions<'_>,
        observer: O,
        progress: &Progress,
    ) -> Result<Run<O>> {
        let setup = self.setup.with_replicas(&self.scenario, replicas)?;
        let alone = Some(&*self.alone);
        Ok(fleet::simulate_on(self.threads, &setup, sessions, observer, alone, progress))
    }

    /// A run that came to its end, or was stopped.
    fn finished<O>(&self, run: Run<O>) -> Result<Run<O>> {
        if let Some(why) = &run.stuck {
            return Err(Error::new(format!("the fleet came to a standstill: {why}")));
        }
        match run.failure {
            None | Some(Failure::Unsorted) => Ok(run),
            // Ctrl-C ends whoever writes into a pipe, too: a row that is cut off then is no fault.
            Some(Failure::Input(_)) if run.interrupted.is_some() => Ok(run),
            Some(Failure::Input(error)) => Err(error),
            Some(Failure::NoPool(call)) => Err(pools::homeless(&self.scenario, &call)),
            Some(Failure::TooMuchContent) => {
                let text = "more than 2^32 pieces of content: play a part of the trace at a time";
                Err(Error::new(text).help("workload.from_s and workload.to_s cut it"))
            }
        }
    }

    /// What adds up figures and targets of this case.
    #[must_use]
    pub fn tally(&self) -> Tally {
        Tally::new(&self.targets).with_pools(&self.setup.pools)
    }

    /// Measures a run and judges it by the targets.
    #[must_use]
    pub fn judge(&self, run: &Run<Tally>) -> Judged {
        Judged {
            replicas: run.replicas_at_start,
            figures: Figures::of(run, &self.scenario),
            verdicts: run.records.verdicts(),
            intervals: run.records.intervals(self.scenario.seed),
            counts: run.counts,
            interrupted: run.interrupted,
        }
    }
}

/// Refuses names in a scenario that are not in its trace, and calls that no replica takes; warns of
/// calls whose replica was not told.
fn check_names(
    scenario: &Scenario,
    targets: &[Slo],
    workload: &Workload,
) -> Result<Option<Warning>> {
    for target in targets {
        check_target(target, &workload.names)?;
    }
    pools::check_names(scenario, &workload.names)?;
    pools::check_homes(scenario, workload)?;
    check_groups(scenario, workload.asked_models())
}

/// Refuses a model group that the trace does not have.
fn check_models(scenario: &Scenario, groups: BTreeSet<&str>) -> Result<()> {
    match scenario.models.keys().find(|group| !groups.contains(&***group)) {
        Some(group) => Err(Error::unknown("model group of the trace", group, groups)
            .in_field(format!("models.{group}"))),
        None => Ok(()),
    }
}

/// Refuses a served model that no model group of the gateway answers.
fn check_groups<'a>(
    scenario: &Scenario,
    served: impl Iterator<Item = &'a str>,
) -> Result<Option<Warning>> {
    match &scenario.gateway {
        Some(gateway) => gateway.check_models(served),
        None => Ok(None),
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
        let checked = parsed.and_then(|slo| {
            if slo.metric == Metric::Gateway && scenario.gateway.is_none() {
                let text = "there is no gateway to spend time in: only goes with [gateway]";
                return Err(Error::new(text));
            }
            pools::check_target(scenario, &slo)?;
            Ok(slo)
        });
        checked.map_err(|error| error.at_place(place).in_field(field))
    };
    let targets = written.chain(given).map(parse).collect::<Result<Vec<_>>>()?;
    Ok(if targets.is_empty() { Slo::defaults() } else { targets })
}
