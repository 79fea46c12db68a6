//! One fleet under several seeds: it meets a target if it does under every one of them.
//!
//! All fleets are compared on the same sessions: who plays what, when, follows from the seed alone.

use rayon::prelude::*;

use super::case::{Case, Judged};
use super::slo::Verdict;
use super::tally::Intervals;
use crate::config::scenario::Scenario;
use crate::diag::{Error, Result};
use crate::fleet::Progress;
use crate::sizing::figures::Figures;

/// A scenario under several seeds.
#[derive(Debug)]
pub struct Replicates {
    /// One case a seed; at least one.
    cases: Vec<Case>,
}

/// One fleet as it was simulated and judged under every seed.
#[derive(Clone, Debug)]
pub struct Fleet {
    /// Its replicas.
    pub replicas: u32,
    /// Pods of the gateway in front of it, if there is one.
    pub pods: Option<u32>,
    /// By seed.
    pub runs: Vec<Judged>,
}

impl Replicates {
    /// The same case under so many seeds, from its own on. `sibling` makes the case of another
    /// scenario over the same trace.
    ///
    /// # Errors
    /// Seeds beyond the largest number, or what `sibling` refuses.
    pub fn of(
        case: Case,
        seeds: u32,
        sibling: impl Fn(&Case, Scenario) -> Result<Case>,
    ) -> Result<Self> {
        let mut cases = vec![case];
        for more in 1..u64::from(seeds) {
            let first = &cases[0];
            let seed = first.scenario.seed.checked_add(more);
            let seed = seed.filter(|seed| i64::try_from(*seed).is_ok()).ok_or_else(|| {
                Error::new("the seeds of the replicates go beyond the largest seed")
                    .in_field("run.seed")
            })?;
            let scenario = Scenario { seed, ..first.scenario.clone() };
            let case = sibling(first, scenario)?;
            cases.push(case);
        }
        Ok(Self { cases })
    }

    /// The case with the first seed, for everything that no seed changes.
    #[must_use]
    pub fn case(&self) -> &Case {
        &self.cases[0]
    }

    /// The seeds.
    #[must_use]
    pub fn seeds(&self) -> Vec<u64> {
        self.cases.iter().map(|case| case.scenario.seed).collect()
    }

    /// The same with every step `by` times as long.
    #[must_use]
    pub fn with_step_time(&self, by: f64) -> Self {
        Self { cases: self.cases.iter().map(|case| case.with_step_time(by)).collect() }
    }

    /// The same behind another number of gateway pods.
    #[must_use]
    pub fn with_pods(&self, pods: u32) -> Self {
        Self { cases: self.cases.iter().map(|case| case.with_pods(pods)).collect() }
    }

    /// The same under another load.
    ///
    /// # Errors
    /// What `change` refuses.
    pub fn changed(&self, change: impl Fn(&Case) -> Result<Case>) -> Result<Self> {
        Ok(Self { cases: self.cases.iter().map(change).collect::<Result<_>>()? })
    }

    /// Simulates and judges a fleet under every seed.
    ///
    /// # Errors
    /// The first standstill, by seed.
    pub fn judge(&self, replicas: u32, progress: &Progress) -> Result<Fleet> {
        let judge = |case: &Case| Ok(case.judge(&case.run(replicas, progress)?));
        let runs: Vec<Result<Judged>> = self.cases.par_iter().map(judge).collect();
        let pods = self.case().scenario.gateway.as_ref().map(|gateway| gateway.config().pods);
        Ok(Fleet { replicas, pods, runs: runs.into_iter().collect::<Result<_>>()? })
    }

    /// The interval of each target's figure of a fleet that was judged, under the seed under which
    /// it came out worst. Only such seeds are simulated again.
    ///
    /// # Errors
    /// The first standstill, by seed.
    pub fn intervals(&self, judged: &Fleet, progress: &Progress) -> Result<Intervals> {
        let worst: Vec<usize> =
            (0..self.case().targets.len()).map(|target| judged.worst(target)).collect();
        let mut seeds = worst.clone();
        seeds.sort_unstable();
        seeds.dedup();
        let keep = |&seed: &usize| {
            let case = &self.cases[seed];
            let run = case.run_with(judged.replicas, case.tally().keeping(), progress)?;
            Ok(run.records.intervals(case.scenario.seed).unwrap_or_default())
        };
        let kept: Vec<Result<Intervals>> = seeds.par_iter().map(keep).collect();
        let kept = kept.into_iter().collect::<Result<Vec<_>>>()?;
        let interval = |(target, seed): (usize, &usize)| {
            let at = seeds.binary_search(seed).ok()?;
            kept[at].get(target).copied()
        };
        Ok(worst.iter().enumerate().filter_map(interval).collect())
    }
}

impl Fleet {
    /// Whether it meets every target under every seed.
    #[must_use]
    pub fn met(&self) -> bool {
        self.runs.iter().all(Judged::met)
    }

    /// Whether it meets every target under one of the seeds at least.
    #[must_use]
    pub fn met_once(&self) -> bool {
        self.runs.iter().any(Judged::met)
    }

    /// How this target came out under the seed under which it came out worst.
    #[must_use]
    pub fn verdict(&self, target: usize) -> &Verdict {
        &self.runs[self.worst(target)].verdicts[target]
    }

    /// The run in which this target came out worst.
    fn worst(&self, target: usize) -> usize {
        let inside = |run: &usize| inside(&self.runs[*run].verdicts[target]);
        let worst = (0..self.runs.len()).min_by(|a, b| inside(a).total_cmp(&inside(b)));
        worst.unwrap_or(0)
    }

    /// GPUs of its replicas; where they are scaled, of those that it starts with.
    #[must_use]
    pub fn gpus(&self) -> u32 {
        let figures = self.figures();
        figures.gpus / figures.replicas.max(1) * self.replicas
    }

    /// Most replicas that it held at once under any seed, if they are scaled.
    #[must_use]
    pub fn held_max(&self) -> Option<u32> {
        let held = self.runs.iter().map(|run| run.figures.replica_scaling);
        held.map(|scaling| scaling.map(|scaling| scaling.held_max)).max().flatten()
    }

    /// The target with the least margin under any seed: the one that binds.
    #[must_use]
    pub fn binding(&self) -> Option<usize> {
        let targets = 0..self.runs[0].verdicts.len();
        targets.min_by(|&a, &b| inside(self.verdict(a)).total_cmp(&inside(self.verdict(b))))
    }

    /// The figures under the first seed.
    #[must_use]
    pub fn figures(&self) -> &Figures {
        &self.runs[0].figures
    }

    /// The mean of a figure over the seeds; none if it is missing under one of them.
    #[must_use]
    pub fn mean(&self, figure: impl Fn(&Figures) -> Option<f64>) -> Option<f64> {
        let values = self.runs.iter().map(|run| figure(&run.figures));
        let sum = values.sum::<Option<f64>>()?;
        Some(sum / self.runs.len() as f64)
    }
}

/// The margin of a verdict, for comparing; without a sample the least of all.
fn inside(verdict: &Verdict) -> f64 {
    match verdict.margin {
        Some(margin) => margin,
        None if verdict.met => f64::INFINITY,
        None => f64::NEG_INFINITY,
    }
}
