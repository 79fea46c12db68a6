//! Running measured runs through the simulator.

use std::sync::atomic::{AtomicU64, Ordering};

use rayon::prelude::*;

use super::drive::{Driven, Served, drive};
use super::rules::{Deployment, Plan, Times};
use super::runs::{Latencies, Offered, Run};
use crate::diag::{Error, Result};

/// A run beside its simulation.
#[derive(Clone, Debug)]
pub struct Compared {
    /// The row.
    pub run: Run,
    /// What came of it.
    pub outcome: std::result::Result<Simulated, String>,
}

/// What the simulation of a run gave.
#[derive(Clone, Debug, PartialEq)]
pub struct Simulated {
    /// Its means.
    pub latencies: Latencies,
    /// What served.
    pub deployment: Deployment,
}

/// Simulates every run, on all threads; `done` counts them.
#[must_use]
pub fn compare(runs: &[Run], times: Times, seed: u64, done: &AtomicU64) -> Vec<Compared> {
    let one = |run: &Run| {
        let outcome = simulate(run, times, seed).map_err(|error| error.message().to_owned());
        done.fetch_add(1, Ordering::Relaxed);
        Compared { run: run.clone(), outcome }
    };
    runs.par_iter().map(one).collect()
}

/// Simulates one run.
///
/// # Errors
/// Why it cannot be simulated.
pub fn simulate(run: &Run, times: Times, seed: u64) -> Result<Simulated> {
    let plan = Plan::of(run, times, seed)?;
    let driven = drive(&plan.server, &plan.asks, &plan.pacing).map_err(Error::new)?;
    let latencies = latencies(&plan, &driven, run.offered);
    Ok(Simulated { latencies, deployment: plan.deployment })
}

fn latencies(plan: &Plan, driven: &Driven, offered: Offered) -> Latencies {
    let counted = driven.served.get(plan.warmup..).unwrap_or_default();
    let means = means(counted);
    let derived = plan.derived_gaps.and_then(|gaps| Some(means.ttft_ms? + means.itl_ms? * gaps));
    let e2e_ms = derived.or(means.e2e_ms);
    let rate_rps = match offered {
        // The rate is what was asked for.
        Offered::Rate(_) | Offered::Random(_) => None,
        Offered::Concurrency(_) => match plan.derived_rate {
            Some(seqs) => e2e_ms.map(|ms| seqs / ms * 1e3),
            None => means.rate_rps,
        },
    };
    Latencies { e2e_ms, rate_rps, ..means }
}

/// The means over requests.
#[must_use]
pub fn means(served: &[Served]) -> Latencies {
    let mean = |sum: f64, count: usize| (count > 0).then(|| sum / count as f64 / 1e6);
    let gaps: Vec<f64> = served.iter().filter_map(Served::itl).collect();
    let ttft = served.iter().map(|one| u128::from(one.ttft().0)).sum::<u128>() as f64;
    let e2e = served.iter().map(|one| u128::from(one.e2e().0)).sum::<u128>() as f64;
    let first = served.iter().map(|one| one.sent).min();
    let last = served.iter().map(|one| one.ended).max();
    let span = first.zip(last).map(|(first, last)| (last - first).secs());
    Latencies {
        ttft_ms: mean(ttft, served.len()),
        itl_ms: mean(gaps.iter().sum(), gaps.len()),
        e2e_ms: mean(e2e, served.len()),
        rate_rps: span.filter(|secs| *secs > 0.0).map(|secs| served.len() as f64 / secs),
    }
}
