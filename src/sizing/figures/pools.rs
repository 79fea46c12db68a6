//! The figures of each pool of a fleet.

use serde::Serialize;

use super::Percentiles;
use super::compute::percentiles;
use crate::config::pools::{Pool, firsts};
use crate::config::scenario::Scenario;
use crate::fleet::Run;
use crate::observe::replica::ReplicaUse;
use crate::sizing::tally::{PoolSums, Tally};
use crate::stats::TimeWeighted;

/// One pool: its calls, whoever served them, and its replicas, whomever they served.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PoolFigures {
    /// Its name.
    pub name: String,
    /// Its replicas.
    pub replicas: u32,
    /// Its calls that were answered.
    pub calls: u64,
    /// Its calls that failed.
    pub calls_failed: u64,
    /// Its calls that another pool served.
    pub spilled: u64,
    /// Calls of other pools that it served.
    pub taken_in: u64,
    /// Cached over prompt tokens of its calls.
    pub hit: Option<f64>,
    /// The same with a cache that never evicts and serves the whole fleet.
    pub infinite_cache: Option<f64>,
    /// Their time to first token, in seconds.
    pub ttft: Option<Percentiles>,
    /// Blocks held by requests on its replicas: median share over time.
    pub kv_p50: f64,
    /// 95th percentile.
    pub kv_p95: f64,
    /// Share of time in which its replicas take no step.
    pub idle: f64,
}

pub(super) fn pools(run: &Run<Tally>, scenario: &Scenario) -> Vec<PoolFigures> {
    let blocks = scenario.serving.usable_blocks().0.max(1);
    let window_s = (run.window.until - run.window.from).secs();
    let figures = |((pool, first), sums): ((&Pool, u32), &PoolSums)| {
        let replicas: &[ReplicaUse] =
            &run.replicas[first as usize..(first + pool.replicas) as usize];
        let mut kv = TimeWeighted::new(blocks);
        replicas.iter().for_each(|replica| kv.absorb(&replica.kv_blocks));
        let kv_share = |p| kv.quantile(p).unwrap_or(0) as f64 / blocks as f64;
        let busy: f64 = replicas.iter().map(|replica| replica.busy.secs()).sum();
        let prompt = sums.hit.prompt;
        let share = |part: u64| (prompt > 0).then(|| part as f64 / prompt as f64);
        PoolFigures {
            name: pool.name.clone(),
            replicas: pool.replicas,
            calls: sums.hit.calls,
            calls_failed: sums.failed,
            spilled: sums.spilled,
            taken_in: sums.taken_in,
            hit: share(sums.hit.cached),
            infinite_cache: share(sums.hit.ceiling),
            ttft: percentiles(&sums.ttft, super::compute::NANO),
            kv_p50: kv_share(0.5),
            kv_p95: kv_share(0.95),
            idle: 1.0 - busy / (window_s * f64::from(pool.replicas)),
        }
    };
    let pools = scenario.pools.iter().zip(firsts(&scenario.pools));
    pools.zip(&run.records.pools).map(figures).collect()
}
