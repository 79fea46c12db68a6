//! The figures of one run, as reports print them and JSON carries them.
//!
//! Times are in seconds and shares from 0 to 1. Units that completed in the measured window count;
//! failed ones are counted apart and are in no percentile.

use serde::Serialize;

use super::tally::{Part, Tally};
use crate::config::scenario::Scenario;
use crate::fleet::Run;

mod compute;
mod gateway;
mod pools;

pub use gateway::{GatewayFigures, Scaling};
pub use pools::PoolFigures;

/// The figures of one run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figures {
    /// Replicas of the fleet; where they are scaled, most at once in the window.
    pub replicas: u32,
    /// GPUs of so many replicas.
    pub gpus: u32,
    /// Length of the measured window.
    pub window_s: f64,
    /// How many units completed, failed or were cut off.
    pub units: Units,
    /// Each pool of the fleet, if there are any.
    // Keys of the scenario begin with `pools`, and are columns of the same table in a sweep.
    #[serde(rename = "by_pool", skip_serializing_if = "Vec::is_empty")]
    pub pools: Vec<PoolFigures>,
    /// What became of the calls that were sent.
    pub admission: Admission,
    /// Tokens of prompt and output of the calls that were answered.
    pub tokens: TokensOfCalls,
    /// The gateway, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gateway: Option<GatewayFigures>,
    /// What scales the gateway's pods did, if anything does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gateway_scaling: Option<Scaling>,
    /// What scales the replicas did, if anything does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replica_scaling: Option<Scaling>,
    /// Latency by name; see `docs/metrics.md`.
    pub latency: Latency,
    /// Token rates as a user sees them.
    pub interactivity: Interactivity,
    /// Time to first token by prompt length and cached share.
    pub ttft_bands: Vec<TtftBand>,
    /// Prefix-cache hits.
    pub hit: Hits,
    /// Preemptions.
    pub preemptions: Preemptions,
    /// Use of the KV pool.
    pub kv: KvUse,
    /// Use of the GPUs.
    pub gpu: GpuUse,
    /// Where the time of tasks goes; none without a completed task.
    pub time: Option<TaskTime>,
    /// Work done.
    pub throughput: Throughput,
    /// The busiest minute.
    pub burst: Option<Burst>,
    /// Money, where a price is known.
    pub cost: Option<Cost>,
}

/// How many units completed, failed or were cut off by the end of the run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Units {
    /// Calls that gave their answer.
    pub calls: u64,
    /// Turns without a failed call.
    pub turns: u64,
    /// Sessions without a failed call.
    pub tasks: u64,
    /// Calls that failed: rejected because they did not fit into the context, or refused.
    pub calls_failed: u64,
    /// Turns with such a call.
    pub turns_failed: u64,
    /// Sessions with such a call.
    pub tasks_failed: u64,
    /// Calls that had failed when they were recorded: no GPU work, and not counted as failed here.
    pub calls_failed_as_recorded: u64,
    /// Calls whose prompt was compacted to fit.
    pub calls_compacted: u64,
    /// Calls under way at the end.
    pub calls_cut_off: u64,
    /// Turns under way at the end.
    pub turns_cut_off: u64,
    /// Sessions under way at the end.
    pub tasks_cut_off: u64,
}

/// What became of the calls that were sent.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Admission {
    /// Calls that clients made, those that had failed when recorded apart.
    pub offered: u64,
    /// Of these, rejected because prompt and output did not fit into the context.
    pub rejected: u64,
    /// Of these, refused (HTTP 503) until the client gave up.
    pub refused: u64,
    /// Refusals (HTTP 503), those before a success included.
    pub http_503: u64,
    /// Times that a client asked again.
    pub retries: u64,
    /// Calls sent, retries included, over calls made.
    pub amplification: f64,
}

/// Nearest-rank percentiles of one quantity, each to within 0.1 % of itself; the others are exact.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Percentiles {
    /// Samples.
    pub n: u64,
    /// Mean.
    pub mean: f64,
    /// Median.
    pub p50: f64,
    /// 90th percentile.
    pub p90: f64,
    /// 95th percentile.
    pub p95: f64,
    /// 99th percentile.
    pub p99: f64,
    /// Largest.
    pub max: f64,
}

/// Tokens of a call that was answered. None where none was.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct TokensOfCalls {
    /// As it reached the engine.
    pub prompt: Option<Percentiles>,
    /// As generated.
    pub output: Option<Percentiles>,
}

/// Latency by name, in seconds (`stretch` is a ratio). None where nothing completed.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Latency {
    /// One user turn, tools included.
    pub turn: Option<Percentiles>,
    /// The same less tool time on the critical path.
    pub turn_llm: Option<Percentiles>,
    /// A session's turns together.
    pub task: Option<Percentiles>,
    /// The same less tool time.
    pub task_llm: Option<Percentiles>,
    /// A session on the wall clock.
    pub session: Option<Percentiles>,
    /// Model time of a task over the same task's alone on an idle replica.
    pub stretch: Option<Percentiles>,
    /// First token minus arrival at the gateway.
    pub ttft: Option<Percentiles>,
    /// First token minus arrival in the engine's queue.
    pub engine_ttft: Option<Percentiles>,
    /// First scheduled minus arrival in the engine's queue.
    pub queue: Option<Percentiles>,
    /// Time between tokens, per call.
    pub itl: Option<Percentiles>,
    /// Last token at the client minus arrival at the gateway.
    pub e2e: Option<Percentiles>,
}

/// Token rates: what at least so many calls reach.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Interactivity {
    /// 1 / p50(ITL), tok/s.
    pub p50: Option<f64>,
    /// 1 / p90(ITL), tok/s: 90 % of the calls are at least this fast.
    pub p90: Option<f64>,
    /// 1 / p50(E2E / output tokens), tok/s.
    pub e2e_p50: Option<f64>,
    /// 1 / p90(E2E / output tokens), tok/s.
    pub e2e_p90: Option<f64>,
    /// 3600 / mean task: jobs per hour of one user.
    pub jobs_per_hour_per_user: Option<f64>,
}

/// Time to first token of one kind of calls.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct TtftBand {
    /// Prompt length.
    pub prompt: &'static str,
    /// Share of the prompt found in the cache.
    pub cached: &'static str,
    /// Calls.
    pub n: u64,
    /// Median.
    pub p50: f64,
    /// 95th percentile.
    pub p95: f64,
    /// 99th percentile.
    pub p99: f64,
}

/// Prefix-cache hits, weighted by tokens.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Hits {
    /// Found at the first admission over prompt tokens: what the engine's counters show.
    pub engine_counter: Option<f64>,
    /// 1 - prefilled over prompt tokens: re-prefill after preemptions counts as a miss.
    pub true_hit: Option<f64>,
    /// What a cache that never evicts and serves the whole fleet would have given.
    pub infinite_cache: Option<f64>,
    /// Prefilled although the fleet had computed it before, over all prefilled.
    pub recompute_share: Option<f64>,
    /// Why the engine's counter is below the infinite cache.
    pub losses: Losses,
    /// By place in session and turn.
    pub segments: Vec<NamedHit>,
    /// By tenant, if there are several.
    pub tenants: Vec<NamedHit>,
    /// By model, if there are several.
    pub models: Vec<NamedHit>,
}

/// Prompt tokens that an infinite cache of the fleet would have held and the replica's did not, by
/// cause; exact, and together the difference of the two.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Losses {
    /// Tokens of the prompts.
    pub prompt_tokens: u64,
    /// Of these, found in the cache.
    pub cached_tokens: u64,
    /// Of these, what the infinite cache would have held.
    pub infinite_cache_tokens: u64,
    /// The process had computed and evicted them.
    pub evicted: u64,
    /// The process was computing them for a call still under way.
    pub under_way: u64,
    /// Only other replicas had computed them.
    pub elsewhere: u64,
    /// Only processes that are gone had.
    pub gone: u64,
    /// Prefix caching is off.
    pub uncached: u64,
}

/// The hit rate of some calls.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct NamedHit {
    /// Of which calls.
    pub name: String,
    /// Calls.
    pub calls: u64,
    /// Cached over prompt tokens.
    pub hit: f64,
    /// With a cache that never evicts.
    pub infinite_cache: f64,
}

/// Preemptions of calls that ended in the window.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Preemptions {
    /// How many.
    pub count: u64,
    /// Most of one call.
    pub max_of_one_call: u32,
    /// Computed tokens lost with them.
    pub tokens_lost: u64,
}

/// Use of the KV pool, over time and replicas.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct KvUse {
    /// Usable blocks of one replica.
    pub blocks: u64,
    /// Held by requests: median share.
    pub p50: f64,
    /// 95th percentile.
    pub p95: f64,
    /// Largest.
    pub max: f64,
    /// Share of time above 0.95.
    pub above_95: f64,
    /// Mean tokens in the contexts of open sessions over the tokens of all pools: above 1, not
    /// every session's context can be kept.
    pub live_context_over_pool: f64,
    /// Blocks that lost cached content, over the whole run.
    pub evicted_blocks: u64,
}

/// Use of the GPUs inside the window.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct GpuUse {
    /// Share of time without a step.
    pub idle: f64,
    /// Part of the busy time that decodes alone would take.
    pub decode_share: Option<f64>,
    /// The rest: what prefill adds.
    pub prefill_share: Option<f64>,
    /// Sequences that decode in a step, on average.
    pub mean_decode_batch: f64,
    /// Busy GPU-seconds per completed task in decode.
    pub decode_gpu_s_per_task: Option<f64>,
    /// The same in prefill of tokens never computed before.
    pub prefill_gpu_s_per_task: Option<f64>,
    /// The same in prefill of tokens that the fleet had computed before.
    pub recompute_gpu_s_per_task: Option<f64>,
}

/// Where the time of the tasks goes that completed in the window, on their critical paths.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TaskTime {
    /// Tasks.
    pub tasks: u64,
    /// Mean `task_llm`.
    pub task_llm_s: f64,
    /// Mean `session`.
    pub session_s: f64,
    /// The parts, which add up to the session.
    pub parts: Vec<TimePart>,
}

/// One part of a task's time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct TimePart {
    /// Which; see `docs/metrics.md`.
    pub name: &'static str,
    /// Mean over the tasks.
    pub mean_s: f64,
    /// Over the mean `task_llm`; none for what is no part of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub of_task_llm: Option<f64>,
    /// Over the mean `session`.
    pub of_session: f64,
}

impl TaskTime {
    /// Mean seconds of the part of that name.
    #[must_use]
    pub fn mean_s(&self, part: Part) -> f64 {
        let named = self.parts.iter().find(|of| of.name == part.name());
        named.map_or(0.0, |part| part.mean_s)
    }
}

/// Work done inside the window.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Throughput {
    /// Calls answered an hour.
    pub calls_per_hour: f64,
    /// Tasks completed an hour.
    pub tasks_per_hour: f64,
    /// Tasks completed an hour and GPU.
    pub tasks_per_hour_per_gpu: f64,
    /// Prompt tokens of answered calls a second.
    pub prompt_tokens_per_s: f64,
    /// Output tokens of answered calls a second.
    pub output_tokens_per_s: f64,
}

/// The minute in which most calls were dispatched.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Burst {
    /// Its start, from the start of the run.
    pub start_s: f64,
    /// Calls dispatched in it.
    pub calls: u64,
    /// 95th percentile of their time in the queue.
    pub queue_p95_s: f64,
    /// From its end until no more calls waited than before it; none if that never came.
    pub drain_s: Option<f64>,
}

/// Money.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Cost {
    /// Of one GPU for an hour.
    pub usd_per_gpu_hour: f64,
    /// Where that price is from.
    pub source: String,
    /// Of one pod of the gateway for an hour, if it has a price.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usd_per_gateway_replica_hour: Option<f64>,
    /// Of the fleet for an hour, the gateway included if it has a price.
    pub usd_per_hour: f64,
    /// Of the window over tasks completed in it, failures included in the cost.
    pub usd_per_completed_task: Option<f64>,
}

impl Figures {
    /// The figures of a run of this scenario.
    #[must_use]
    pub fn of(run: &Run<Tally>, scenario: &Scenario) -> Self {
        let tally = &run.records;
        let held = compute::Held::of(run, scenario);
        let (replicas, gpus) = (held.replicas_max, held.replicas_max * held.gpus_of_replica);
        let window_s = (run.window.until - run.window.from).secs();
        let hit = compute::hits(tally, &run.names);
        let tasks = tally.tasks[0];
        let recompute = hit.recompute_share.unwrap_or(0.0);
        Self {
            replicas,
            gpus,
            window_s,
            units: compute::units(run),
            pools: pools::pools(run, scenario),
            admission: compute::admission(tally),
            tokens: compute::tokens(tally),
            latency: compute::latency(tally),
            interactivity: compute::interactivity(tally),
            ttft_bands: compute::ttft_bands(tally),
            preemptions: compute::preemptions(tally),
            kv: compute::kv_use(run, scenario, &held),
            gpu: compute::gpu_use(run, &held, tasks, recompute),
            time: compute::task_time(tally, run.gateway.is_some()),
            throughput: compute::throughput(tally, held.gpus_mean(), window_s),
            burst: compute::burst(run),
            cost: compute::cost(scenario, &held, tasks, window_s),
            gateway: held.gateway,
            gateway_scaling: gateway::pod_scaling(run, scenario),
            replica_scaling: held.scaling,
            hit,
        }
    }
}
