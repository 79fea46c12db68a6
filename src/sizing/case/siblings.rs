//! Cases over one trace share what does not differ between them: the workload, and the times of
//! tasks alone on an idle replica.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use super::{Case, OPEN_LOOP, check_groups, check_models, pools, read_targets};
use crate::config::autoscale::Scaling;
use crate::config::router::{RouterKind, Routing};
use crate::config::scenario::{Client, Load, LoadKind, Scenario};
use crate::diag::Result;
use crate::fleet::Setup;
use crate::fleet::admission::Limits;
use crate::fleet::alone::AloneTimes;
use crate::fleet::workload::Workload;
use crate::sizing::tally::check_target;
use crate::trace::record::Trace;
use crate::units::Span;

/// The times alone by kind of replica, for one workload.
#[derive(Clone, Debug, Default)]
pub(super) struct Kinds(Arc<Mutex<BTreeMap<String, Arc<AloneTimes>>>>);

impl Kinds {
    /// Those of this kind of replica; each session is simulated when first asked for.
    pub(super) fn alone(&self, setup: &Setup, workload: &Workload) -> Arc<AloneTimes> {
        let setup = alone(setup);
        let kind = format!("{setup:?}");
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let make = || {
            let mut times = AloneTimes::new(&setup, workload.sessions.len());
            times.every_step(setup.every_step);
            Arc::new(times)
        };
        Arc::clone(known.entry(kind).or_insert_with(make))
    }
}

/// What a session that is alone on a replica depends on: not on the fleet, the load or the seed.
fn alone(setup: &Setup) -> Setup {
    let load =
        Load { kind: LoadKind::Trace, pause_median: Span::ZERO, pause_sigma: 0.0, office: None };
    Setup {
        replicas: 1,
        gateway: None,
        scaling: Scaling::default(),
        router: RouterKind::SessionAffinity,
        routing: Routing::default(),
        events: Vec::new(),
        pools: Vec::new(),
        limits: Limits::default(),
        client: Client { max_retries: 0, retry_base: Span::ZERO, retry_max: Span::ZERO },
        load,
        seed: 0,
        warmup: Span::ZERO,
        window: None,
        ..setup.clone()
    }
}

impl Case {
    /// Another scenario over the same trace. `targets` are those of the command line.
    ///
    /// # Errors
    /// As [`Case::new`].
    pub fn sibling(&self, scenario: Scenario, trace: &Trace, targets: &[String]) -> Result<Self> {
        if !self.plays_the_same(&scenario) {
            return Ok(Self::new(scenario, trace, targets)?.every_step(self.setup.every_step));
        }
        let targets = read_targets(&scenario, targets)?;
        for target in &targets {
            check_target(target, &self.workload.names)?;
        }
        let calls = trace.sessions.iter().flat_map(|session| &session.calls);
        check_models(&scenario, calls.map(|call| &*call.model).collect())?;
        pools::check_names(&scenario, &self.workload.names)?;
        pools::check_homes(&scenario, &self.workload)?;
        let warnings = check_groups(&scenario, self.workload.asked_models())?;
        let warnings = warnings.into_iter().collect();
        let setup = Setup { every_step: self.setup.every_step, ..Setup::of(&scenario)? };
        let of_trace = self.notes.iter().filter(|note| *note != OPEN_LOOP).cloned();
        let open_loop = scenario.open_loop.then(|| OPEN_LOOP.to_owned());
        Ok(Self {
            notes: of_trace.chain(open_loop).collect(),
            warnings,
            late_warning: OnceLock::new(),
            workload: Arc::clone(&self.workload),
            alone: self.kinds.alone(&setup, &self.workload),
            kinds: self.kinds.clone(),
            scenario,
            setup,
            targets,
            threads: self.threads,
            repeats: self.repeats.clone(),
        })
    }

    /// The same with every step `by` times as long, but never faster than the data sheet allows.
    #[must_use]
    pub fn with_step_time(&self, by: f64) -> Self {
        let setup = Setup { cost: self.setup.cost.clone().scaled(by), ..self.setup.clone() };
        Self {
            scenario: self.scenario.clone(),
            workload: Arc::clone(&self.workload),
            notes: self.notes.clone(),
            warnings: self.warnings.clone(),
            late_warning: OnceLock::new(),
            targets: self.targets.clone(),
            alone: self.kinds.alone(&setup, &self.workload),
            kinds: self.kinds.clone(),
            setup,
            threads: self.threads,
            repeats: self.repeats.clone(),
        }
    }

    /// The same with another number of gateway pods; without a gateway there is nothing to change.
    #[must_use]
    pub fn with_pods(&self, pods: u32) -> Self {
        let mut scenario = self.scenario.clone();
        scenario.gateway = scenario.gateway.map(|gateway| gateway.with_pods(pods));
        Self {
            scenario,
            workload: Arc::clone(&self.workload),
            notes: self.notes.clone(),
            warnings: self.warnings.clone(),
            late_warning: OnceLock::new(),
            targets: self.targets.clone(),
            alone: Arc::clone(&self.alone),
            kinds: self.kinds.clone(),
            setup: self.setup.clone(),
            threads: self.threads,
            repeats: self.repeats.clone(),
        }
    }

    /// Whether the trace is played as it is here: what is drawn of it may follow from the seed.
    fn plays_the_same(&self, scenario: &Scenario) -> bool {
        let draws = scenario.reshape.sample.is_some() || scenario.reshape.scale.is_some();
        self.scenario.reshape == scenario.reshape
            && self.scenario.served() == scenario.served()
            && (!draws || self.scenario.seed == scenario.seed)
    }
}
