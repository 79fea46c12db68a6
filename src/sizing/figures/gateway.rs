//! What the gateway and the autoscalers did, as figures.

use serde::Serialize;

use super::Percentiles;
use crate::config::scenario::Scenario;
use crate::fleet::Run;
use crate::observe::gateway::GatewayUse;
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
    /// Requests that reached the gateway.
    pub offered: u64,
    /// Of these, given a slot at once or after a wait.
    pub admitted: u64,
    /// Of these, after a wait.
    pub queued: u64,
    /// Turned away by admission (503).
    pub rejected: u64,
    /// Turned away because no pod took requests.
    pub no_worker: u64,
    /// Turned away by the limits of a tenant (429).
    pub rate_limited: u64,
    /// Turned away because the key could not be looked up.
    pub database_errors: u64,
    /// Answered.
    pub answered: u64,
    /// Failed after all attempts.
    pub failed: u64,
    /// Ended because their pod was killed.
    pub killed: u64,
    /// Requests sent to replicas.
    pub attempts: u64,
    /// Of these, tries after a failure in the same group.
    pub retried: u64,
    /// Other groups tried.
    pub fallbacks: u64,
    /// Attempts that ran into the request's timeout.
    pub timeouts: u64,
    /// Times that a deployment was left alone.
    pub cooldowns: u64,
    /// Requests that clients sent after a refusal.
    pub asked_again: u64,
    /// Calls that clients gave up.
    pub given_up: u64,
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
    /// Counts of tokens.
    pub token_counts: u64,
    /// Share of calls that went where their session's call before had gone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stayed: Option<f64>,
    /// Requests whose session's pin was found and healthy.
    pub pin_hits: u64,
    /// Requests of sessions without such a pin.
    pub pin_misses: u64,
    /// Pins that had to go before their time.
    pub evicted_pins: u64,
    /// Requests whose key was known.
    pub key_hits: u64,
    /// Requests whose key had to be looked up.
    pub key_queries: u64,
    /// Most connections to the database at once, in the whole run.
    pub connections_max: u32,
    /// Connections that the database refused.
    pub connections_refused: u64,
    /// Spend rows written.
    pub spend_rows_written: u64,
    /// Spend rows lost.
    pub spend_rows_lost: u64,
    /// Spend rows that wait at the end.
    pub spend_rows_waiting: u64,
    /// Most bytes that ever waited in one worker, in the whole run.
    pub spend_queue_bytes_max: u64,
    /// Redis operations that local state stood in for.
    pub redis_stood_in: u64,
    /// Times that a breaker opened.
    pub breakers_opened: u64,
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
    let (used, config) = (run.gateway.as_ref()?, scenario.gateway.as_ref()?.config());
    let GatewayUse { counts, pods, .. } = used;
    Some(GatewayFigures {
        replicas: config.pods,
        replicas_mean: pods.mean,
        num_workers: config.workers,
        offered: counts.offered,
        admitted: counts.admitted,
        queued: counts.queued,
        rejected: counts.rejected,
        no_worker: counts.no_worker,
        rate_limited: counts.rate_limited,
        database_errors: counts.database_errors,
        answered: counts.answered,
        failed: counts.failed,
        killed: counts.killed,
        attempts: counts.attempts,
        retried: counts.retries,
        fallbacks: counts.fallbacks,
        timeouts: counts.timeouts,
        cooldowns: counts.cooldowns,
        asked_again: counts.asked_again,
        given_up: counts.given_up,
        attempts_per_answer: used.amplification(),
        overhead: percentiles(&used.overhead),
        admission_wait: percentiles(&used.queue_wait),
        cpu_utilisation: used.cpu_share(),
        counter_utilisation: used.counter_utilisation(),
        token_counts: counts.token_counts,
        stayed: used.stay_share(),
        pin_hits: counts.pin_hits,
        pin_misses: counts.pin_misses,
        evicted_pins: counts.evicted_pins,
        key_hits: counts.key_hits,
        key_queries: counts.key_queries,
        connections_max: used.connections_max,
        connections_refused: counts.connections_refused,
        spend_rows_written: counts.rows_written,
        spend_rows_lost: counts.rows_lost,
        spend_rows_waiting: used.spend_rows_waiting,
        spend_queue_bytes_max: used.spend_bytes_max.0,
        redis_stood_in: counts.redis_stood_in,
        breakers_opened: counts.breakers_opened,
    })
}

fn scaling(run: &Run<Tally>, what: Scaled, used: &MemberUse) -> Scaling {
    let window = run.window.until - run.window.from;
    let changes = run.scaling.events.iter().filter(|event| event.what == what).count() as u64;
    Scaling {
        held_mean: used.mean,
        serving_mean: used.serving.secs() / window.secs(),
        held_max: used.max,
        changes,
    }
}

/// What scales the pods did, if anything does.
pub(super) fn pod_scaling(run: &Run<Tally>, scenario: &Scenario) -> Option<Scaling> {
    let used = run.gateway.as_ref().filter(|_| scenario.autoscale.scales_pods())?;
    Some(scaling(run, Scaled::Pods, &used.pods))
}

/// What scales the replicas did, if anything does.
pub(super) fn replica_scaling(run: &Run<Tally>) -> Option<Scaling> {
    Some(scaling(run, Scaled::Replicas, run.scaling.replicas.as_ref()?))
}
