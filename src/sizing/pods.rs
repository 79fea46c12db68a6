//! How many pods the gateway needs in front of a fleet.
//!
//! More pods are not always better: without Redis each worker pins sessions for itself, so that
//! more of them keep fewer calls in place. So pods are doubled from one on, as long as the gateway
//! shows strain, and the first number that meets every target is then brought down.

use super::boundary::{Boundary, Question};
use super::replicates::{Fleet, Replicates};
use crate::diag::Result;
use crate::fleet::Progress;
use crate::sizing::figures::{Figures, GatewayFigures};

/// The fewest pods in front of one fleet.
#[derive(Clone, Debug)]
pub struct Pods {
    /// The fleet with every number of pods that was simulated, fewest first.
    pub tried: Vec<Fleet>,
    /// The fewest that meet every target.
    pub smallest: u32,
    /// Where the search would have given up.
    pub most: u32,
}

/// Core time or counting slots in use from which on more pods may help.
const BUSY: f64 = 0.5;
/// Seconds in the gateway, 95th percentile, from which on they may.
const OVERHEAD: f64 = 0.1;

/// A fleet behind as many pods as it needs, or as many as may help.
///
/// # Errors
/// The first error of a simulation.
pub fn enough(
    replicates: &Replicates,
    replicas: u32,
    most: u32,
    progress: &Progress,
) -> Result<Fleet> {
    let mut pods = 1;
    loop {
        let fleet = replicates.with_pods(pods).judge(replicas, progress)?;
        if fleet.met() || pods == most || !is_strained(&fleet) {
            return Ok(fleet);
        }
        pods = pods.saturating_mul(2).min(most);
    }
}

/// Whether anything of the gateway is used up under any seed, or turns calls away.
fn is_strained(fleet: &Fleet) -> bool {
    let strained = |gateway: &GatewayFigures| {
        let counts = &gateway.counts;
        let busy = [gateway.cpu_utilisation, gateway.counter_utilisation];
        let turned_away = counts.rejected + counts.no_worker + counts.database_errors;
        busy.iter().flatten().any(|share| *share > BUSY)
            || gateway.overhead.is_some_and(|overhead| overhead.p95 > OVERHEAD)
            || turned_away > 0
    };
    let of_run = |figures: &Figures| figures.gateway.as_ref().is_some_and(strained);
    fleet.runs.iter().any(|run| of_run(&run.figures))
}

impl Pods {
    /// Brings the pods in front of a fleet that meets every target down, and looks at the
    /// neighbours: one less and one more.
    ///
    /// # Errors
    /// The first error of a simulation.
    pub fn fewest(
        replicates: &Replicates,
        fleet: &Fleet,
        most: u32,
        progress: &Progress,
    ) -> Result<Self> {
        let (replicas, first) = (fleet.replicas, fleet.pods.unwrap_or(1));
        let ask = |pods| replicates.with_pods(pods).judge(replicas, progress);
        let question = Question {
            ask: &ask,
            is_yes: &Fleet::met,
            first,
            most,
            tolerance: &|_| 0,
            gives_up: &|_| false,
        };
        let mut numbers = Boundary::default();
        numbers.asked.insert(first, fleet.clone());
        let smallest = numbers.find(&question)?.unwrap_or(first);
        if smallest < most {
            numbers.ask(&[smallest + 1], &question)?;
        }
        Ok(Self { tried: numbers.asked.into_values().collect(), smallest, most })
    }

    /// The fleet behind so many pods, if that was simulated.
    #[must_use]
    pub fn of_number(&self, pods: u32) -> Option<&Fleet> {
        self.tried.iter().find(|fleet| fleet.pods == Some(pods))
    }

    /// Larger numbers that fail although a smaller one passes: pods that keep fewer calls in place,
    /// or open more connections than the database takes.
    #[must_use]
    pub fn failing_above_answer(&self) -> Vec<u32> {
        let failing = self.tried.iter().filter(|fleet| !fleet.met());
        failing.filter_map(|fleet| fleet.pods).filter(|pods| *pods > self.smallest).collect()
    }
}
