//! The figures of one run, as reports print them and JSON carries them.
//!
//! Times are in seconds and shares from 0 to 1. Units that completed in the measured window count;
//! failed ones are counted apart and are in no percentile.

use serde::Serialize;

use super::measures::Measures;
use super::slo::Quantity;
use crate::config::scenario::Scenario;
use crate::fleet::Run;
use crate::observe::records::{CallOutcome, CallRecord, Place};
use crate::stats::{Summary, TimeWeighted, quantile};
use crate::units::{Span, Time};

/// The figures of one run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figures {
    /// Replicas of the fleet.
    pub replicas: u32,
    /// GPUs of the fleet.
    pub gpus: u32,
    /// Length of the measured window.
    pub window_s: f64,
    /// How many units completed, failed or were cut off.
    pub units: Units,
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
    /// Calls rejected because the prompt did not fit into the context.
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

/// Nearest-rank percentiles of one quantity.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Percentiles {
    /// Samples.
    pub n: usize,
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

impl Percentiles {
    fn of(sorted: &[f64]) -> Option<Self> {
        let Summary { n, mean, p50, p90, p95, p99, max, .. } = Summary::of_sorted(sorted)?;
        Some(Self { n, mean, p50, p90, p95, p99, max })
    }

    fn of_unsorted(mut samples: Vec<f64>) -> Option<Self> {
        samples.sort_unstable_by(f64::total_cmp);
        Self::of(&samples)
    }
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
    pub n: usize,
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
    /// By place in session and turn.
    pub segments: Vec<NamedHit>,
    /// By tenant, if there are several.
    pub tenants: Vec<NamedHit>,
    /// By model, if there are several.
    pub models: Vec<NamedHit>,
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
    /// Of the fleet for an hour.
    pub usd_per_hour: f64,
    /// Of the window over tasks completed in it, failures included in the cost.
    pub usd_per_completed_task: Option<f64>,
}

/// Prompt bands of the time to first token.
const BANDS: [(&str, u64, u64); 5] = [
    ("0-8k", 0, 8_000),
    ("8k-32k", 8_000, 32_000),
    ("32k-64k", 32_000, 64_000),
    ("64k-128k", 64_000, 128_000),
    ("128k+", 128_000, u64::MAX),
];

const BURST: Span = Span::from_secs(60);

impl Figures {
    /// The figures of a run of this scenario.
    #[must_use]
    pub fn of(measures: &Measures<'_>, scenario: &Scenario, names: &Names<'_>) -> Self {
        let run = measures.run;
        let replicas = run.replicas.len() as u32;
        let gpus = replicas * scenario.serving.tensor_parallel_size;
        let window_s = (run.window.until - run.window.from).secs();
        let hit = hits(measures, names);
        let tasks = measures.tasks().filter(|task| !task.failed).count() as u64;
        let tp = scenario.serving.tensor_parallel_size;
        let recompute = hit.recompute_share.unwrap_or(0.0);
        Self {
            replicas,
            gpus,
            window_s,
            units: units(measures),
            latency: latency(measures),
            interactivity: interactivity(measures),
            ttft_bands: ttft_bands(measures),
            preemptions: preemptions(measures),
            kv: kv_use(run, scenario),
            gpu: gpu_use(run, tp, tasks, recompute),
            throughput: throughput(measures, tasks, gpus, window_s),
            burst: burst(measures),
            cost: cost(scenario, gpus, tasks, window_s),
            hit,
        }
    }
}

/// Names of a workload's tenants and models.
#[derive(Clone, Copy, Debug)]
pub struct Names<'a> {
    /// By number in the call plans.
    pub tenants: &'a [crate::trace::record::Name],
    /// By number in the call plans.
    pub models: &'a [crate::trace::record::Name],
}

fn units(measures: &Measures<'_>) -> Units {
    let outcome = |wanted| measures.calls().filter(|call| call.outcome == wanted).count() as u64;
    let cut_off = measures.run.records.cut_off;
    let (mut turns, mut tasks) = ([0, 0], [0, 0]);
    measures.turns().for_each(|turn| turns[usize::from(turn.failed)] += 1);
    measures.tasks().for_each(|task| tasks[usize::from(task.failed)] += 1);
    Units {
        calls: outcome(CallOutcome::Completed),
        turns: turns[0],
        tasks: tasks[0],
        calls_failed: outcome(CallOutcome::Rejected),
        turns_failed: turns[1],
        tasks_failed: tasks[1],
        calls_failed_as_recorded: outcome(CallOutcome::RecordedFailure),
        calls_compacted: measures.calls().filter(|call| call.compacted).count() as u64,
        calls_cut_off: cut_off.calls,
        turns_cut_off: cut_off.turns,
        tasks_cut_off: cut_off.tasks,
    }
}

fn latency(measures: &Measures<'_>) -> Latency {
    let of = |quantity| Percentiles::of(&measures.samples(quantity, None));
    let calls = |time: fn(&CallRecord) -> Span| {
        Percentiles::of_unsorted(measures.answered().map(|call| time(call).secs()).collect())
    };
    Latency {
        turn: of(Quantity::Turn),
        turn_llm: of(Quantity::TurnLlm),
        task: of(Quantity::Task),
        task_llm: of(Quantity::TaskLlm),
        session: of(Quantity::Session),
        stretch: of(Quantity::Stretch),
        ttft: of(Quantity::Ttft),
        engine_ttft: calls(|call| call.first_token - call.queued),
        queue: of(Quantity::Queue),
        itl: of(Quantity::Itl),
        e2e: calls(CallRecord::e2e),
    }
}

fn interactivity(measures: &Measures<'_>) -> Interactivity {
    let itl = measures.samples(Quantity::Itl, None);
    let e2e = measures.samples(Quantity::E2ePerToken, None);
    let rate = |sorted: &[f64], q| quantile(sorted, q).map(f64::recip);
    let tasks = Percentiles::of(&measures.samples(Quantity::Task, None));
    Interactivity {
        p50: rate(&itl, 0.5),
        p90: rate(&itl, 0.9),
        e2e_p50: rate(&e2e, 0.5),
        e2e_p90: rate(&e2e, 0.9),
        jobs_per_hour_per_user: tasks.map(|task| 3_600.0 / task.mean),
    }
}

fn ttft_bands(measures: &Measures<'_>) -> Vec<TtftBand> {
    let mut bands = Vec::new();
    for (prompt, from, below) in BANDS {
        for (cached, mostly_cached) in [("< 50 %", false), (">= 50 %", true)] {
            let calls = measures.answered().filter(|call| {
                (from..below).contains(&call.prompt.0)
                    && (call.cached.0 * 2 >= call.prompt.0) == mostly_cached
            });
            let ttft = Percentiles::of_unsorted(calls.map(|call| call.ttft().secs()).collect());
            if let Some(Percentiles { n, p50, p95, p99, .. }) = ttft {
                bands.push(TtftBand { prompt, cached, n, p50, p95, p99 });
            }
        }
    }
    bands
}

#[derive(Clone, Copy, Default)]
struct HitSum {
    calls: u64,
    prompt: u64,
    cached: u64,
    ceiling: u64,
}

impl HitSum {
    fn add(&mut self, call: &CallRecord) {
        self.calls += 1;
        self.prompt += call.prompt.0;
        self.cached += call.cached.0;
        self.ceiling += call.ceiling.0;
    }

    fn named(&self, name: &str) -> Option<NamedHit> {
        let share = |part: u64| part as f64 / self.prompt as f64;
        (self.prompt > 0).then(|| NamedHit {
            name: name.to_owned(),
            calls: self.calls,
            hit: share(self.cached),
            infinite_cache: share(self.ceiling),
        })
    }
}

fn hits(measures: &Measures<'_>, names: &Names<'_>) -> Hits {
    let mut all = HitSum::default();
    let (mut prefilled, mut recomputed) = (0u64, 0u64);
    let mut segments = [HitSum::default(); Place::ALL.len()];
    let mut tenants = vec![HitSum::default(); names.tenants.len()];
    let mut models = vec![HitSum::default(); names.models.len()];
    for call in measures.answered() {
        all.add(call);
        prefilled += call.prefilled.0;
        recomputed += call.recomputed().0;
        for (sum, (kind, _)) in segments.iter_mut().zip(Place::ALL) {
            if call.place.is(kind) {
                sum.add(call);
            }
        }
        let plan = measures.plan(call);
        tenants[plan.tenant as usize].add(call);
        models[plan.model as usize].add(call);
    }
    let named = |sums: &[HitSum], names: &[crate::trace::record::Name]| -> Vec<NamedHit> {
        let several = sums.iter().filter(|sum| sum.prompt > 0).count() > 1;
        let pairs = sums.iter().zip(names).filter(|_| several);
        pairs.filter_map(|(sum, name)| sum.named(name)).collect()
    };
    let total = all.named("all");
    let share = |part: u64, whole: u64| (whole > 0).then(|| part as f64 / whole as f64);
    Hits {
        engine_counter: total.as_ref().map(|total| total.hit),
        true_hit: share(prefilled, all.prompt).map(|missed| (1.0 - missed).max(0.0)),
        infinite_cache: total.map(|total| total.infinite_cache),
        recompute_share: share(recomputed, prefilled),
        segments: segments
            .iter()
            .zip(Place::ALL)
            .filter_map(|(sum, (_, name))| sum.named(name))
            .collect(),
        tenants: named(&tenants, names.tenants),
        models: named(&models, names.models),
    }
}

fn preemptions(measures: &Measures<'_>) -> Preemptions {
    let calls = measures.calls();
    Preemptions {
        count: calls.clone().map(|call| u64::from(call.preemptions)).sum(),
        max_of_one_call: calls.clone().map(|call| call.preemptions).max().unwrap_or(0),
        tokens_lost: calls.map(|call| call.lost.0).sum(),
    }
}

fn kv_use(run: &Run, scenario: &Scenario) -> KvUse {
    let blocks = scenario.serving.memory.usable_blocks().0;
    let mut all = TimeWeighted::new(blocks.max(1));
    run.replicas.iter().for_each(|replica| all.absorb(&replica.kv_blocks));
    let share = |level: Option<u64>| level.unwrap_or(0) as f64 / blocks as f64;
    let pool_tokens = blocks * scenario.serving.memory.block_size * run.replicas.len() as u64;
    KvUse {
        blocks,
        p50: share(all.quantile(0.5)),
        p95: share(all.quantile(0.95)),
        max: share(all.max()),
        above_95: all.share_above(950).unwrap_or(0.0),
        live_context_over_pool: run.live_context_mean / pool_tokens as f64,
        evicted_blocks: run.evicted_blocks,
    }
}

fn gpu_use(run: &Run, tp: u32, tasks: u64, recompute_share: f64) -> GpuUse {
    let busy: f64 = run.replicas.iter().map(|replica| replica.busy.secs()).sum();
    let decode: f64 = run.replicas.iter().map(|replica| replica.decode.secs()).sum();
    let steps: u64 = run.replicas.iter().map(|replica| replica.steps).sum();
    let decoded: u64 = run.replicas.iter().map(|replica| replica.decode_tokens).sum();
    let time = (run.window.until - run.window.from).secs() * run.replicas.len() as f64;
    let share = (busy > 0.0).then(|| decode / busy);
    let per_task = |secs: f64| (tasks > 0).then(|| secs * f64::from(tp) / tasks as f64);
    let prefill = busy - decode;
    GpuUse {
        idle: 1.0 - busy / time,
        decode_share: share,
        prefill_share: share.map(|decode| 1.0 - decode),
        mean_decode_batch: if steps > 0 { decoded as f64 / steps as f64 } else { 0.0 },
        decode_gpu_s_per_task: per_task(decode),
        prefill_gpu_s_per_task: per_task(prefill * (1.0 - recompute_share)),
        recompute_gpu_s_per_task: per_task(prefill * recompute_share),
    }
}

fn throughput(measures: &Measures<'_>, tasks: u64, gpus: u32, window_s: f64) -> Throughput {
    let (mut calls, mut prompt, mut output) = (0u64, 0u64, 0u64);
    for call in measures.answered() {
        calls += 1;
        prompt += call.prompt.0;
        output += call.output.0;
    }
    let per_hour = |count: u64| count as f64 * 3_600.0 / window_s;
    Throughput {
        calls_per_hour: per_hour(calls),
        tasks_per_hour: per_hour(tasks),
        tasks_per_hour_per_gpu: per_hour(tasks) / f64::from(gpus),
        prompt_tokens_per_s: prompt as f64 / window_s,
        output_tokens_per_s: output as f64 / window_s,
    }
}

/// The busiest minute among those that begin with a dispatch, and how the queue came out of it.
fn burst(measures: &Measures<'_>) -> Option<Burst> {
    let run = measures.run;
    let queued = run.records.calls.iter().filter(|call| call.outcome == CallOutcome::Completed);
    let mut calls: Vec<&CallRecord> =
        queued.clone().filter(|call| run.window.holds(call.dispatched)).collect();
    calls.sort_by_key(|call| (call.dispatched, call.play, call.call));
    let end_of = |first: usize| {
        let end = calls[first].dispatched + BURST;
        calls.partition_point(|call| call.dispatched < end)
    };
    // The first of equally busy minutes.
    let (first, last) = (0..calls.len())
        .map(|first| (first, end_of(first)))
        .reduce(|a, b| if b.1 - b.0 > a.1 - a.0 { b } else { a })?;
    let start = calls[first].dispatched;
    let waits = calls[first..last].iter().map(|call| call.queue().secs()).collect();
    let mut changes: Vec<(Time, i64)> =
        queued.flat_map(|call| [(call.queued, 1), (call.scheduled, -1)]).collect();
    changes.sort_unstable();
    Some(Burst {
        start_s: start.secs(),
        calls: (last - first) as u64,
        queue_p95_s: Percentiles::of_unsorted(waits)?.p95,
        drain_s: drain(&changes, start, start + BURST).map(Span::secs),
    })
}

/// From `end` until no more wait than did before `start`.
fn drain(changes: &[(Time, i64)], start: Time, end: Time) -> Option<Span> {
    let waiting_before = |at: Time| {
        let upto = changes.partition_point(|(time, _)| *time < at);
        (upto, changes[..upto].iter().map(|(_, change)| change).sum::<i64>())
    };
    let (_, before) = waiting_before(start);
    let (upto, mut waiting) = waiting_before(end);
    if waiting <= before {
        return Some(Span::ZERO);
    }
    changes[upto..].iter().find_map(|(at, change)| {
        waiting += change;
        (waiting <= before).then(|| *at - end)
    })
}

fn cost(scenario: &Scenario, gpus: u32, tasks: u64, window_s: f64) -> Option<Cost> {
    let (usd_per_gpu_hour, source) = scenario.price.clone()?;
    let usd_per_hour = usd_per_gpu_hour * f64::from(gpus);
    Some(Cost {
        usd_per_gpu_hour,
        source,
        usd_per_hour,
        usd_per_completed_task: (tasks > 0)
            .then(|| usd_per_hour * window_s / 3_600.0 / tasks as f64),
    })
}
