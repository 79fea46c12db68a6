//! Cases with pools: what is checked against the trace, and other sizes.

use std::sync::{Arc, OnceLock};

use super::Case;
use crate::config::pools::{Rules, Takes};
use crate::config::scenario::Scenario;
use crate::diag::{Error, Result};
use crate::fleet::Setup;
use crate::fleet::pools::{HomelessCall, Homes};
use crate::fleet::workload::{Names, Workload};
use crate::sizing::slo::{Filter, Slo};
use crate::trace::record::Name;

/// Refuses rules of pools about names that the trace does not have.
pub(super) fn check_names(scenario: &Scenario, names: &Names) -> Result<()> {
    for (pool, places) in scenario.pools.iter().zip(&scenario.pool_places) {
        let Takes::Calls(Rules { models, tenants, profiles, .. }) = &pool.takes else { continue };
        let lists = [
            ("served model", models, &names.models, &places.models),
            ("tenant", tenants, &names.tenants, &places.tenants),
            ("profile", profiles, &names.profiles, &places.profiles),
        ];
        for (kind, wanted, known, place) in lists {
            let unknown = wanted.iter().find(|name| !known.iter().any(|known| **known == **name));
            if let Some(name) = unknown {
                let known = known.iter().map(Name::as_ref);
                let error = Error::unknown(&format!("{kind} of the trace"), name, known);
                let field = place.field.as_deref().unwrap_or_default();
                return Err(error.at_place(place).in_field(field));
            }
        }
    }
    Ok(())
}

/// Refuses a target about a pool that there is not.
pub(super) fn check_target(scenario: &Scenario, slo: &Slo) -> Result<()> {
    let Some(Filter::Pool(name)) = &slo.filter else { return Ok(()) };
    let pools = scenario.pools.iter().map(|pool| pool.name.as_str());
    match pools.clone().any(|pool| pool == name) {
        true => Ok(()),
        false => Err(Error::unknown("pool", name, pools)),
    }
}

/// Refuses a trace with a call that no pool takes.
pub(super) fn check_homes(scenario: &Scenario, workload: &Workload) -> Result<()> {
    let mut homes = Homes::new(&scenario.pools);
    for session in &workload.sessions {
        for number in 0..session.len() as u32 {
            if homes.of(&session.class(number), &workload.names).is_none() {
                let call = HomelessCall::new(session, number, &workload.names);
                return Err(homeless(scenario, &call));
            }
        }
    }
    Ok(())
}

/// The error about a call that no pool takes.
pub(super) fn homeless(scenario: &Scenario, call: &HomelessCall) -> Error {
    let first = scenario.pool_places.first().map(|places| places.first.clone());
    Error::new(&*call.0)
        .at_place(&first.unwrap_or_default())
        .in_field("pools")
        .help("a pool with `rest = true` takes what no other pool does")
}

impl Case {
    /// The same with so many replicas in each pool.
    ///
    /// # Errors
    /// A size for which there is no pool, or an event in a pool that has no such replica then.
    pub fn with_pools(&self, sizes: &[u32]) -> Result<Self> {
        let mut scenario = self.scenario.clone();
        for (pool, size) in scenario.pools.iter_mut().zip(sizes) {
            pool.replicas = *size;
        }
        scenario.replicas = sizes.iter().sum();
        let setup = Setup {
            every_step: self.setup.every_step,
            // The step times of a band are not in the scenario.
            cost: self.setup.cost.clone(),
            ..Setup::of(&scenario)?
        };
        Ok(Self {
            scenario,
            setup,
            workload: Arc::clone(&self.workload),
            notes: self.notes.clone(),
            warnings: self.warnings.clone(),
            late_warning: OnceLock::new(),
            targets: self.targets.clone(),
            alone: Arc::clone(&self.alone),
            kinds: self.kinds.clone(),
            threads: self.threads,
            repeats: self.repeats.clone(),
        })
    }
}
