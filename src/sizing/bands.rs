//! How far an answer moves with the seed and with step times that are off.

use super::boundary::{Boundary, Question};
use super::replicates::{Fleet, Replicates};
use super::search::Search;
use super::tally::Intervals;
use crate::diag::Result;
use crate::fleet::Progress;

/// A band of sizes; `None` where no fleet of at most the largest size meets every target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Band {
    /// The smallest fleet in the best case.
    pub low: Option<u32>,
    /// In the worst.
    pub high: Option<u32>,
}

/// The bands of an answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Bands {
    /// Smallest fleet that one of the seeds is content with, and that all are. None for one seed.
    pub seeds: Option<Band>,
    /// Smallest fleet with steps as much shorter, and as much longer, as the step-time band says.
    /// None if that is 0.
    pub step_time: Option<Band>,
    /// How far off step times were taken to be, as a share of them.
    pub step_time_by: f64,
    /// How far the figures of the answer depend on which sessions were played: the interval of each
    /// target under its worst seed. None without an answer, or where it is not wanted.
    pub sessions: Option<Intervals>,
}

impl Bands {
    /// The bands of what a search found. For that of the seeds the fleets that it simulated are not
    /// simulated again.
    ///
    /// # Errors
    /// The first error of a simulation.
    pub fn of(search: &Search, replicates: &Replicates, progress: &Progress) -> Result<Self> {
        let by = replicates.case().scenario.step_time_band;
        let behind = search.pods.as_ref().map(|pods| replicates.with_pods(pods.smallest));
        let replicates = behind.as_ref().unwrap_or(replicates);
        let seeds = replicates.seeds().len() > 1;
        let seeds = seeds.then(|| seed_band(search, replicates, progress)).transpose()?;
        let step_time = (by > 0.0).then(|| step_time_band(search, replicates, by, progress));
        let wanted = replicates.case().scenario.bootstrap.unwrap_or(true);
        let answer = search.smallest.filter(|_| wanted);
        let pools = match search.pools.as_ref().and_then(|pools| pools.smallest.as_ref()) {
            Some(sizes) => Some(replicates.changed(|case| case.with_pools(sizes))?),
            None => None,
        };
        let of = pools.as_ref().unwrap_or(replicates);
        let sessions = answer.map(|answer| of.intervals(answer, progress)).transpose()?;
        Ok(Self { seeds, step_time: step_time.transpose()?, step_time_by: by, sessions })
    }
}

fn seed_band(search: &Search, replicates: &Replicates, progress: &Progress) -> Result<Band> {
    if search.pools.is_some() {
        let low = near_pools(search, replicates, true, &Fleet::met_once, progress)?;
        return Ok(Band { low, high: search.smallest });
    }
    let mut sizes = Boundary::default();
    sizes.asked.extend(search.tried.iter().map(|fleet| (fleet.replicas, fleet.clone())));
    let ask = |replicas| replicates.judge(replicas, progress);
    let low = near(search, sizes, &ask, &Fleet::met_once)?;
    Ok(Band { low, high: search.smallest })
}

fn step_time_band(
    search: &Search,
    replicates: &Replicates,
    by: f64,
    progress: &Progress,
) -> Result<Band> {
    let smallest = |factor: f64| {
        let replicates = replicates.with_step_time(factor);
        if search.pools.is_some() {
            return near_pools(search, &replicates, false, &Fleet::met, progress);
        }
        let ask = |replicas| replicates.judge(replicas, progress);
        near(search, Boundary::default(), &ask, &Fleet::met)
    };
    // What no fleet meets, none meets with longer steps.
    let high = search.smallest.map(|_| smallest(1.0 + by)).transpose()?.flatten();
    Ok(Band { low: smallest(1.0 - by)?, high })
}

/// The same for pools, around the sizes that were found: replicas in all of them.
fn near_pools(
    search: &Search,
    replicates: &Replicates,
    is_known: bool,
    is_yes: &(dyn Fn(&Fleet) -> bool + Sync),
    progress: &Progress,
) -> Result<Option<u32>> {
    let Some(found) = &search.pools else { return Ok(None) };
    let largest = search.tried.last().map_or(1, |fleet| fleet.replicas);
    let most = match search.gave_up {
        Some(_) => largest.min(search.max_replicas),
        None => search.max_replicas,
    };
    found.fewest(replicates, most, is_known, is_yes, progress)
}

/// Looks where the answer is first, and no further than the search did.
fn near(
    search: &Search,
    mut sizes: Boundary<Fleet>,
    ask: &(dyn Fn(u32) -> Result<Fleet> + Sync),
    is_yes: &dyn Fn(&Fleet) -> bool,
) -> Result<Option<u32>> {
    let largest = search.tried.last().map_or(1, |fleet| fleet.replicas);
    let (first, most) = match search.smallest {
        Some(smallest) => ((smallest + 1).min(search.max_replicas), search.max_replicas),
        None => (largest, largest),
    };
    let question = Question { ask, is_yes, first, most, tolerance: &|_| 0, gives_up: &|_| false };
    if let Some(smallest) = search.smallest {
        let below = smallest.saturating_sub(1).max(1);
        sizes.ask(&[below, smallest], &question)?;
    }
    sizes.find(&question)
}
