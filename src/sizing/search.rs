//! The search for the smallest fleet that meets every target.
//!
//! Sizes double until one passes, then the gap to the largest failing one below it is closed. An
//! answer is no accident: the next smaller fleet fails and the next larger one passes, or the
//! report says that they do not. The search gives up early where more replicas move nothing.

use std::collections::BTreeMap;

use super::boundary::{Boundary, Question};
use super::pods::{self, Pods};
use super::pool_sizes::PoolSizes;
use super::replicates::{Fleet, Replicates};
use super::slo::{Op, Slo};
use crate::diag::Result;
use crate::fleet::Progress;

/// What the search found.
#[derive(Clone, Debug)]
pub struct Search {
    /// Every fleet that was simulated, smallest first; of several pools there may be more than one
    /// with the same number of replicas.
    pub tried: Vec<Fleet>,
    /// The smallest fleet that meets every target, if one up to the limit does.
    pub smallest: Option<u32>,
    /// Where the search would have given up.
    pub max_replicas: u32,
    /// Why it gave up before, if it did.
    pub gave_up: Option<GaveUp>,
    /// The fewest pods of the gateway in front of the smallest fleet.
    pub pods: Option<Pods>,
    /// The sizes of its pools, where there are any.
    pub pools: Option<PoolSizes>,
}

/// More replicas no longer move a target that is missed.
#[derive(Clone, Debug, PartialEq)]
pub struct GaveUp {
    /// The target, by its position among those of the case.
    pub target: usize,
    /// The last sizes with the target's figure.
    pub figures: Vec<(u32, Option<f64>)>,
    /// Share of time without a step in the largest of these fleets.
    pub idle: f64,
}

/// How much of its distance to the bound a figure must gain when the fleet doubles, so that it is
/// worth to go on.
const GAIN_MIN: f64 = 0.05;
/// A fleet that is idle for this share of the time does not miss its targets for want of replicas.
const IDLE_MIN: f64 = 0.5;
/// Sizes that are compared: two doublings.
const COMPARED: usize = 3;

impl Search {
    /// Looks for the smallest fleet of at most `max_replicas` replicas. Several are simulated at a
    /// time; which sizes are tried does not depend on the machine.
    ///
    /// # Errors
    /// The first error of a simulation, by size.
    pub fn run(replicates: &Replicates, max_replicas: u32, progress: &Progress) -> Result<Self> {
        let targets = &replicates.case().targets;
        let scenario = &replicates.case().scenario;
        if !scenario.pools.is_empty() {
            let found = PoolSizes::find(replicates, max_replicas, &Fleet::met, progress)?;
            return Ok(Self::of_pools(found, max_replicas));
        }
        let max_pods = scenario.gateway.as_ref().map(|_| scenario.max_pods);
        let ask = |replicas| match max_pods {
            Some(most) => pods::enough(replicates, replicas, most, progress),
            None => replicates.judge(replicas, progress),
        };
        let question = Question {
            ask: &ask,
            is_yes: &Fleet::met,
            first: 1,
            most: max_replicas,
            tolerance: &|_| 0,
            gives_up: &|asked| gave_up(targets, asked).is_some(),
        };
        let mut sizes = Boundary::default();
        let smallest = sizes.find(&question)?;
        if let Some(smallest) = smallest.filter(|&smallest| smallest < max_replicas) {
            sizes.ask(&[smallest + 1], &question)?;
        }
        let largest = sizes.asked.keys().next_back().copied();
        let early = smallest.is_none() && largest < Some(max_replicas);
        let gave_up = early.then(|| gave_up(targets, &sizes.asked)).flatten();
        let answer = smallest.and_then(|smallest| sizes.asked.get(&smallest)).zip(max_pods);
        let fewest = |(fleet, most)| Pods::fewest(replicates, fleet, most, progress);
        let pods = answer.map(fewest).transpose()?;
        let tried = sizes.asked.into_values().collect();
        Ok(Self { tried, smallest, max_replicas, gave_up, pods, pools: None })
    }

    fn of_pools(found: PoolSizes, max_replicas: u32) -> Self {
        Self {
            tried: found.tried.iter().map(|(_, fleet)| fleet.clone()).collect(),
            smallest: found.smallest.as_ref().map(|sizes| sizes.iter().sum()),
            max_replicas,
            gave_up: found.gave_up.clone(),
            pods: None,
            pools: Some(found),
        }
    }

    /// The fleet of this size, if it was simulated.
    #[must_use]
    pub fn of_size(&self, replicas: u32) -> Option<&Fleet> {
        self.tried.iter().find(|fleet| fleet.replicas == replicas)
    }

    /// The smallest fleet that meets every target.
    #[must_use]
    pub fn answer(&self) -> Option<&Fleet> {
        if let Some(pools) = &self.pools {
            return pools.smallest.as_ref().and_then(|sizes| pools.of_sizes(sizes));
        }
        let with_pods = self.pods.as_ref().and_then(|pods| pods.of_number(pods.smallest));
        with_pods.or_else(|| self.smallest.and_then(|smallest| self.of_size(smallest)))
    }

    /// Larger fleets that fail although a smaller one passes: then a fleet's size does not decide
    /// alone, and the answer is not to be trusted without more seeds.
    #[must_use]
    pub fn failing_above_answer(&self) -> Vec<u32> {
        let Some(smallest) = self.smallest.filter(|_| self.pools.is_none()) else {
            return Vec::new();
        };
        let above = self.tried.iter().filter(|fleet| fleet.replicas > smallest && !fleet.met());
        above.map(|fleet| fleet.replicas).collect()
    }
}

/// The first target that is missed by fleets that idle, and that the last doublings left where it
/// was.
pub(super) fn gave_up(targets: &[Slo], tried: &BTreeMap<u32, Fleet>) -> Option<GaveUp> {
    let last: Vec<&Fleet> = tried.values().rev().take(COMPARED).collect();
    let [largest, ..] = last[..] else { return None };
    let idle = largest.runs.iter().map(|run| run.figures.gpu.idle).fold(f64::INFINITY, f64::min);
    if last.len() < COMPARED || idle < IDLE_MIN {
        return None;
    }
    let stays = |target: &usize| {
        let distance = |fleet: &Fleet| {
            let verdict = fleet.verdict(*target);
            let outside = verdict.value.map(|value| match targets[*target].op {
                Op::AtMost => value - targets[*target].bound,
                Op::AtLeast => targets[*target].bound - value,
            });
            (!verdict.met).then_some(outside.unwrap_or(f64::INFINITY))
        };
        // A fleet that meets it, or one that has come nearer, speaks for going on.
        last.windows(2).all(|pair| match (distance(pair[0]), distance(pair[1])) {
            (Some(larger), Some(smaller)) => larger >= smaller * (1.0 - GAIN_MIN),
            _ => false,
        })
    };
    let target = (0..targets.len()).find(stays)?;
    let mut figures: Vec<(u32, Option<f64>)> =
        last.iter().map(|fleet| (fleet.replicas, fleet.verdict(target).value)).collect();
    figures.reverse();
    Some(GaveUp { target, figures, idle })
}
