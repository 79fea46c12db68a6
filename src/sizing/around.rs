//! The sizes around an answer: how targets go from missed to met as a fleet grows.
//!
//! A search simulates few sizes. Who wants to look at them wants the neighbours of its answer as
//! well, and every size with steps that are off.

use rayon::prelude::*;

use super::pods;
use super::replicates::{Fleet, Replicates};
use super::search::Search;
use crate::config::scenario::Scenario;
use crate::diag::{Error, Result};
use crate::fleet::Progress;

/// Sizes on either side of an answer that are looked at.
const NEIGHBOURS: u32 = 2;

/// Fleets by size.
#[derive(Clone, Debug)]
pub struct Around {
    /// In rising order; at least two.
    pub sizes: Vec<Size>,
    /// How far off step times were taken to be, as a share of them.
    pub step_time_by: f64,
}

/// One size.
#[derive(Clone, Debug)]
pub struct Size {
    /// The fleet under every seed.
    pub fleet: Fleet,
    /// Whether the search simulated it; else it is here only to be looked at.
    pub is_searched: bool,
    /// The same with steps shorter, and longer, by as much as the step-time band says; none if
    /// that is 0.
    pub off: Option<[Fleet; 2]>,
}

impl Around {
    /// Refuses what has no sizes to be compared, before anything is simulated.
    ///
    /// # Errors
    /// Several pools, or one size only.
    pub fn check(scenario: &Scenario) -> Result<()> {
        if !scenario.pools.is_empty() {
            let error = Error::new("a plot over sizes has one axis, and each pool has a size");
            return Err(error.in_field("--plot"));
        }
        if scenario.max_replicas > 1 {
            return Ok(());
        }
        let error = Error::found("one size", "two or more: a plot over sizes compares them");
        Err(error.in_field("size.max_replicas"))
    }

    /// What a search simulated, the neighbours of its answer, and all of them with steps that are
    /// off.
    ///
    /// # Errors
    /// The first error of a simulation, by size.
    pub fn of(search: &Search, replicates: &Replicates, progress: &Progress) -> Result<Self> {
        let scenario = &replicates.case().scenario;
        let by = scenario.step_time_band;
        let max_pods = scenario.gateway.as_ref().map(|_| scenario.max_pods);
        let mut sizes: Vec<u32> = search.tried.iter().map(|fleet| fleet.replicas).collect();
        if let Some(answer) = search.smallest {
            let first = answer.saturating_sub(NEIGHBOURS).max(1);
            let last = answer.saturating_add(NEIGHBOURS).min(search.max_replicas);
            sizes.extend(first..=last);
        }
        sizes.sort_unstable();
        sizes.dedup();
        let size = |&replicas: &u32| {
            let searched = match search.answer().filter(|answer| answer.replicas == replicas) {
                Some(answer) => Some(answer),
                None => search.of_size(replicas),
            };
            let fleet = match (searched, max_pods) {
                (Some(fleet), _) => fleet.clone(),
                (None, Some(most)) => pods::enough(replicates, replicas, most, progress)?,
                (None, None) => replicates.judge(replicas, progress)?,
            };
            let behind = fleet.pods.map(|pods| replicates.with_pods(pods));
            let replicates = behind.as_ref().unwrap_or(replicates);
            let off = |factor| replicates.with_step_time(factor).judge(replicas, progress);
            let off = (by > 0.0).then(|| Ok([off(1.0 - by)?, off(1.0 + by)?])).transpose()?;
            Ok(Size { fleet, is_searched: searched.is_some(), off })
        };
        let sizes: Vec<Result<Size>> = sizes.par_iter().map(size).collect();
        Ok(Self { sizes: sizes.into_iter().collect::<Result<_>>()?, step_time_by: by })
    }
}
