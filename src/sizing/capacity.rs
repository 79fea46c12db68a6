//! How much load a given fleet carries before a target breaks, and where its hit rate bends.
//!
//! The load is counted in whole *units*: developers, or hundredths of the scenario's rate or of
//! the trace. Both searches are bisections between bounds that are simulated themselves.

use std::collections::BTreeMap;

use super::boundary::{Boundary, Question};
use super::case::Case;
use super::replicates::{Fleet, Replicates};
use crate::config::reshape::Reshape;
use crate::config::scenario::{Load, LoadKind, Scenario};
use crate::diag::Result;
use crate::fleet::Progress;

/// How the load is counted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Unit {
    /// People, each playing one session after another.
    Developers,
    /// Session starts an hour: this many a unit.
    SessionsPerHour(f64),
    /// Sessions over those of the trace: this share a unit.
    TraceFactor(f64),
}

/// Units of the scenario's own load, where it is no number of people.
const UNITS: u32 = 100;
/// More units than any fleet carries.
const MOST_UNITS: u32 = 1_000_000;
/// The largest factor by which a trace can be scaled.
const MOST_FACTOR: f64 = 1_000.0;
/// The largest rate of session starts.
const MOST_RATE: f64 = 1e6;

impl Unit {
    /// That of a scenario, and its own load in it.
    #[must_use]
    pub fn of(scenario: &Scenario) -> (Self, u32) {
        match scenario.load.kind {
            LoadKind::Developers { developers } => (Self::Developers, developers),
            LoadKind::SessionsPerHour { rate, .. } => {
                (Self::SessionsPerHour(rate / f64::from(UNITS)), UNITS)
            }
            LoadKind::Trace => {
                let factor = scenario.reshape.scale.unwrap_or(1.0);
                (Self::TraceFactor(factor / f64::from(UNITS)), UNITS)
            }
        }
    }

    /// So many units as a load.
    #[must_use]
    pub fn load(self, units: u32) -> f64 {
        match self {
            Self::Developers => f64::from(units),
            Self::SessionsPerHour(unit) | Self::TraceFactor(unit) => unit * f64::from(units),
        }
    }

    /// What is counted.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Developers => "developers",
            Self::SessionsPerHour(_) => "sessions an hour",
            Self::TraceFactor(_) => "times the trace",
        }
    }

    fn most(self) -> u32 {
        let most = match self {
            Self::Developers => f64::from(MOST_UNITS),
            Self::SessionsPerHour(unit) => MOST_RATE / unit,
            Self::TraceFactor(unit) => MOST_FACTOR / unit,
        };
        most.clamp(1.0, f64::from(MOST_UNITS)) as u32
    }

    /// The scenario under so many units. Of a trace at least one session is played; it has so many
    /// as recorded.
    fn scenario(self, scenario: &Scenario, units: u32, sessions: f64) -> Scenario {
        let kind = match (self, scenario.load.kind) {
            (Self::Developers, _) => LoadKind::Developers { developers: units },
            (Self::SessionsPerHour(_), LoadKind::SessionsPerHour { cv, .. }) => {
                LoadKind::SessionsPerHour { rate: self.load(units), cv }
            }
            (_, kind) => kind,
        };
        let scale = match self {
            Self::TraceFactor(_) => {
                let factor = self.load(units).max(1.0 / sessions);
                Some(factor).filter(|factor| *factor != 1.0)
            }
            _ => scenario.reshape.scale,
        };
        Scenario {
            load: Load { kind, ..scenario.load.clone() },
            reshape: Reshape { scale, ..scenario.reshape },
            ..scenario.clone()
        }
    }
}

/// A band of loads; 0 where not even one unit is carried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Band {
    /// In the worst case.
    pub low: u32,
    /// In the best.
    pub high: u32,
}

/// What a fleet carries.
#[derive(Debug)]
pub struct Capacity {
    /// How the load is counted.
    pub unit: Unit,
    /// Every load that was simulated, in units.
    pub tried: BTreeMap<u32, Fleet>,
    /// The largest load under which every target is met, in units; 0 if there is none.
    pub carried: u32,
    /// The next larger one that was simulated, under which a target breaks. None if the search
    /// ended at the largest load that can be played.
    pub breaks: Option<u32>,
    /// Where the hit rate bends.
    pub knee: Knee,
    /// With one of the seeds only, and with all of them. None for one seed.
    pub seeds: Option<Band>,
    /// With steps as much longer and as much shorter as the step-time band says; none if it is 0.
    pub step_time: Option<Band>,
    /// How far off step times were taken to be, as a share of them.
    pub step_time_by: f64,
}

/// Where the hit rate bends: the largest load under which the hit rate, as a share of its
/// infinite-cache ceiling, is within [`BEND`] of what it is under the lightest load.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Knee {
    /// In units; none if the hit rate is the same up to the largest load that was simulated.
    pub at: Option<u32>,
    /// The lightest load, in units.
    pub light: u32,
    /// The share of the ceiling under it; none without hits.
    pub share: Option<f64>,
    /// The largest load that was simulated, in units.
    pub looked_to: u32,
}

/// The part of the hit rate that is lost at the knee.
pub const BEND: f64 = 0.1;
/// A load so many times larger than what the targets allow is not of interest.
const KNEE_WITHIN: u32 = 4;
/// A load so many times smaller than what the targets allow is light.
const LIGHT: u32 = 8;
/// Units by which the answer may be too small, for each so many that are carried.
const UNITS_PER_STEP: u32 = 50;

/// How a fleet is simulated under another load.
pub type Siblings<'a> = dyn Fn(&Case, Scenario) -> Result<Case> + Sync + 'a;

impl Capacity {
    /// Looks for what the scenario's own fleet carries.
    ///
    /// # Errors
    /// The first error of a simulation.
    pub fn find(
        replicates: &Replicates,
        sibling: &Siblings<'_>,
        progress: &Progress,
    ) -> Result<Self> {
        let (unit, own) = Unit::of(&replicates.case().scenario);
        let search = Loads { replicates, sibling, progress, unit };
        let mut loads = Boundary::default();
        let breaks = search.breaks(&mut loads, own, &|fleet| !fleet.met())?;
        let carried = below(&loads, breaks, &Fleet::met);
        let by = replicates.case().scenario.step_time_band;
        let start = carried.max(1);
        let seeds = match replicates.seeds().len() {
            1 => None,
            _ => {
                let breaks = search.breaks(&mut loads, start, &|fleet| !fleet.met_once())?;
                Some(Band { low: carried, high: below(&loads, breaks, &Fleet::met_once) })
            }
        };
        let with_steps = |by: f64| {
            let replicates = replicates.with_step_time(by);
            let mut loads = Boundary::default();
            let search = Loads { replicates: &replicates, ..search };
            let breaks = search.breaks(&mut loads, start, &|fleet| !fleet.met())?;
            Ok(below(&loads, breaks, &Fleet::met))
        };
        let band = || Ok(Band { low: with_steps(1.0 + by)?, high: with_steps(1.0 - by)? });
        let step_time = (by > 0.0).then(band).transpose()?;
        let knee = search.knee(&mut loads, start)?;
        Ok(Self {
            unit,
            tried: loads.asked,
            carried,
            breaks,
            knee,
            seeds,
            step_time,
            step_time_by: by,
        })
    }

    /// Loads above the answer that meet every target, or below it that do not: if there are any,
    /// load does not decide alone.
    #[must_use]
    pub fn not_monotone(&self) -> Vec<u32> {
        let odd = |(units, fleet): &(&u32, &Fleet)| fleet.met() != (**units <= self.carried);
        self.tried.iter().filter(odd).map(|(units, _)| *units).collect()
    }
}

/// The largest load below the one that breaks for which `carries` holds; 0 if there is none.
fn below(loads: &Boundary<Fleet>, breaks: Option<u32>, carries: &dyn Fn(&Fleet) -> bool) -> u32 {
    let below = loads.asked.range(..breaks.unwrap_or(u32::MAX)).rev();
    below.into_iter().find(|(_, fleet)| carries(fleet)).map_or(0, |(units, _)| *units)
}

#[derive(Clone, Copy)]
struct Loads<'a> {
    replicates: &'a Replicates,
    sibling: &'a Siblings<'a>,
    progress: &'a Progress,
    unit: Unit,
}

impl Loads<'_> {
    fn fleet(&self, units: u32) -> Result<Fleet> {
        let replicates = self.replicates.changed(|case| {
            let sessions = case.workload.sessions.len() as f64;
            let recorded = sessions / case.scenario.reshape.scale.unwrap_or(1.0);
            let scenario = self.unit.scenario(&case.scenario, units, recorded.max(1.0));
            let mut sibling = (self.sibling)(case, scenario)?;
            // A band's step times are not in the scenario.
            sibling.setup.cost = case.setup.cost.clone();
            Ok(sibling.every_step(case.setup.every_step))
        })?;
        let replicas = replicates.case().scenario.replicas;
        replicates.judge(replicas, self.progress)
    }

    /// The smallest load, from `first` on or before it, that is too much.
    fn breaks(
        &self,
        loads: &mut Boundary<Fleet>,
        first: u32,
        is_too_much: &dyn Fn(&Fleet) -> bool,
    ) -> Result<Option<u32>> {
        loads.find(&Question {
            ask: &|units| self.fleet(units),
            is_yes: is_too_much,
            first,
            most: self.unit.most(),
            tolerance: &|units| units / UNITS_PER_STEP,
            gives_up: &|_| false,
        })
    }

    fn knee(&self, loads: &mut Boundary<Fleet>, carried: u32) -> Result<Knee> {
        let light = (carried / LIGHT).max(1);
        let most = carried.saturating_mul(KNEE_WITHIN).min(self.unit.most());
        let share = |fleet: &Fleet| {
            fleet.mean(|figures| Some(figures.hit.engine_counter? / figures.hit.infinite_cache?))
        };
        let ask = |units| self.fleet(units);
        let any = |_: &Fleet| false;
        let mut question = Question {
            ask: &ask,
            is_yes: &any,
            first: light,
            most,
            tolerance: &|units| units / UNITS_PER_STEP,
            gives_up: &|_| false,
        };
        loads.ask(&[light], &question)?;
        let at_light = loads.asked.get(&light).and_then(share).filter(|share| *share > 0.0);
        let Some(light_share) = at_light else {
            return Ok(Knee { at: None, light, share: None, looked_to: light });
        };
        let bent = |fleet: &Fleet| share(fleet).is_some_and(|s| s < light_share * (1.0 - BEND));
        question.is_yes = &bent;
        // What was simulated before and is lighter still is no part of the question.
        let mut heavier = Boundary::default();
        let known = loads.asked.range(light..=most);
        heavier.asked.extend(known.map(|(units, fleet)| (*units, fleet.clone())));
        let bends = heavier.find(&question)?;
        let at = bends.map(|bends| below(&heavier, Some(bends), &|fleet| !bent(fleet)));
        let looked_to = heavier.asked.keys().next_back().copied().unwrap_or(light);
        loads.asked.extend(heavier.asked);
        Ok(Knee { at: at.filter(|at| *at > 0), light, share: Some(light_share), looked_to })
    }
}
