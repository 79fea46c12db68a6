//! What the gateway and the autoscalers did, as figures.

use serde::Serialize;

use super::Percentiles;
use crate::config::scenario::Scenario;
use crate::fleet::{GatewayUse, Run};
use crate::gateway::metrics::GatewayCounts;
use crate::observe::members::{MemberUse, Scaled};
use crate::sizing::tally::Tally;
use crate::stats::LogHistogram;

/// Nanoseconds in a second, and billionths of the currency in one.
const NANO: f64 = 1e9;

/// The gateway inside the window. Requests are those that reach it: a client that asks again sends
/// another one.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct GatewayFigures {
    /// Pods at the start.
    pub replicas: u32,
    /// Pods in the mean, from the decision to start one until it has ended.
    pub replicas_mean: f64,
    /// Worker processes of a pod.
    pub num_workers: u32,
    /// What was counted.
    #[serde(flatten)]
    pub counts: GatewayCounts,
    /// Requests sent to replicas for one answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempts_per_answer: Option<f64>,
    /// From a request's arrival to its first attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub overhead: Option<Percentiles>,
    /// The wait of those that got a slot after one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub admission_wait: Option<Percentiles>,
    /// Share of the pods' core time that was used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_utilisation: Option<f64>,
    /// Share of the time of the counter's slots; none if nothing is counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub counter_utilisation: Option<f64>,
    /// Share of calls that went where their session's call before had gone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stayed: Option<f64>,
    /// Most connections to the database at once, in the whole run.
    pub connections_max: u32,
    /// Spend rows that wait at the end.
    pub spend_rows_waiting: u64,
    /// Most bytes that ever waited in one worker, in the whole run.
    pub spend_queue_bytes_max: u64,
    /// What the written rows bill, USD; none where tokens have no price.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spend_usd_written: Option<f64>,
    /// What the lost rows would have billed, likewise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spend_usd_lost: Option<f64>,
}

/// What an autoscaler did.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Scaling {
    /// Members in the mean, from the decision to start one until it has ended.
    pub held_mean: f64,
    /// Members that took calls, in the mean.
    pub serving_mean: f64,
    /// Most at once.
    pub held_max: u32,
    /// Hours of their GPUs, loading and draining included; none of pods.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu_hours: Option<f64>,
    /// Times that another number was wanted, in the whole run.
    pub changes: u64,
}

fn percentiles(samples: &LogHistogram) -> Option<Percentiles> {
    let at = |p| samples.quantile(p).map(|nanos| nanos / NANO);
    Some(Percentiles {
        n: samples.count(),
        mean: samples.mean()? / NANO,
        p50: at(0.50)?,
        p90: at(0.90)?,
        p95: at(0.95)?,
        p99: at(0.99)?,
        max: at(1.0)?,
    })
}

pub(super) fn gateway(run: &Run<Tally>, scenario: &Scenario) -> Option<GatewayFigures> {
    let (used, gateway) = (run.gateway.as_ref()?, scenario.gateway.as_ref()?);
    let config = gateway.config();
    let usd = |nanos: u64| gateway.has_token_price().then_some(nanos as f64 / NANO);
    let GatewayUse { counts, pods, .. } = used;
    Some(GatewayFigures {
        replicas: config.pods,
        replicas_mean: pods.mean,
        num_workers: config.workers,
        counts: *counts,
        attempts_per_answer: counts.amplification(),
        overhead: percentiles(&used.overhead),
        admission_wait: percentiles(&used.queue_wait),
        cpu_utilisation: used.cpu_share(),
        counter_utilisation: used.counter_utilisation(),
        stayed: counts.stay_share(),
        connections_max: used.connections_max,
        spend_rows_waiting: used.spend_rows_waiting,
        spend_queue_bytes_max: used.spend_bytes_max.0,
        spend_usd_written: usd(counts.spend_nanos_written),
        spend_usd_lost: usd(counts.spend_nanos_lost),
    })
}

fn scaling(run: &Run<Tally>, what: Scaled, used: &MemberUse) -> Scaling {
    let window = run.window.until - run.window.from;
    let changes = run.scaling.events.iter().filter(|event| event.what == what).count() as u64;
    Scaling {
        held_mean: used.mean,
        serving_mean: used.serving.secs() / window.secs(),
        held_max: used.max,
        gpu_hours: None,
        changes,
    }
}

/// What scales the pods did, if anything does.
pub(super) fn pod_scaling(run: &Run<Tally>, scenario: &Scenario) -> Option<Scaling> {
    let used = run.gateway.as_ref().filter(|_| scenario.autoscale.scales_pods())?;
    Some(scaling(run, Scaled::Pods, &used.pods))
}

/// What scales the replicas did, if anything does.
pub(super) fn replica_scaling(run: &Run<Tally>, gpus_of_replica: u32) -> Option<Scaling> {
    let used = run.scaling.replicas.as_ref()?;
    let gpu_hours = Some(used.held.secs() / 3_600.0 * f64::from(gpus_of_replica));
    Some(Scaling { gpu_hours, ..scaling(run, Scaled::Replicas, used) })
}
