//! How the figures are made of a run's records.

use super::{
    Admission, Burst, Cost, GpuUse, Hits, Interactivity, KvUse, Latency, NamedHit, Names,
    Percentiles, Preemptions, Throughput, TtftBand, Units,
};
use crate::config::scenario::Scenario;
use crate::fleet::Run;
use crate::observe::records::{CallOutcome, CallRecord, Place};
use crate::sizing::measures::Measures;
use crate::sizing::slo::Quantity;
use crate::stats::{TimeWeighted, quantile};
use crate::trace::record::Name;
use crate::units::{Span, Time};

/// Prompt bands of the time to first token.
const BANDS: [(&str, u64, u64); 5] = [
    ("0-8k", 0, 8_000),
    ("8k-32k", 8_000, 32_000),
    ("32k-64k", 32_000, 64_000),
    ("64k-128k", 64_000, 128_000),
    ("128k+", 128_000, u64::MAX),
];

const BURST: Span = Span::from_secs(60);

pub(super) fn units(measures: &Measures<'_>) -> Units {
    let outcome = |wanted| measures.calls().filter(|call| call.outcome == wanted).count() as u64;
    let cut_off = measures.run.records.cut_off;
    let (mut turns, mut tasks) = ([0, 0], [0, 0]);
    measures.turns().for_each(|turn| turns[usize::from(turn.failed)] += 1);
    measures.tasks().for_each(|task| tasks[usize::from(task.failed)] += 1);
    Units {
        calls: outcome(CallOutcome::Completed),
        turns: turns[0],
        tasks: tasks[0],
        calls_failed: measures.calls().filter(|call| call.outcome.is_failure()).count() as u64,
        turns_failed: turns[1],
        tasks_failed: tasks[1],
        calls_failed_as_recorded: outcome(CallOutcome::RecordedFailure),
        calls_compacted: measures.calls().filter(|call| call.compacted).count() as u64,
        calls_cut_off: cut_off.calls,
        turns_cut_off: cut_off.turns,
        tasks_cut_off: cut_off.tasks,
    }
}

pub(super) fn admission(measures: &Measures<'_>) -> Admission {
    let mut sums = Admission {
        offered: 0,
        rejected: 0,
        refused: 0,
        http_503: 0,
        retries: 0,
        amplification: 1.0,
    };
    let made = measures.calls().filter(|call| call.outcome != CallOutcome::RecordedFailure);
    for call in made {
        let refused = call.outcome == CallOutcome::Refused;
        sums.offered += 1;
        sums.rejected += u64::from(call.outcome == CallOutcome::Rejected);
        sums.refused += u64::from(refused);
        sums.http_503 += u64::from(call.refusals);
        // After its last refusal the client does not ask again.
        sums.retries += u64::from(call.refusals) - u64::from(refused);
    }
    if sums.offered > 0 {
        sums.amplification = (sums.offered + sums.retries) as f64 / sums.offered as f64;
    }
    sums
}

pub(super) fn latency(measures: &Measures<'_>) -> Latency {
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

pub(super) fn interactivity(measures: &Measures<'_>) -> Interactivity {
    let itl = measures.samples(Quantity::Itl, None);
    let e2e = measures.samples(Quantity::E2ePerToken, None);
    let rate = |sorted: &[f64], q| quantile(sorted, q).map(f64::recip);
    let tasks = Percentiles::of(&measures.samples(Quantity::Task, None));
    Interactivity {
        p50: rate(&itl, 0.5),
        p90: rate(&itl, 0.9),
        e2e_p50: rate(&e2e, 0.5),
        e2e_p90: rate(&e2e, 0.9),
        jobs_per_hour_per_user: tasks
            .map(|task| 3_600.0 / task.mean)
            .filter(|jobs| jobs.is_finite()),
    }
}

pub(super) fn ttft_bands(measures: &Measures<'_>) -> Vec<TtftBand> {
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

pub(super) fn hits(measures: &Measures<'_>, names: &Names<'_>) -> Hits {
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
    let named = |sums: &[HitSum], names: &[Name]| -> Vec<NamedHit> {
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

pub(super) fn preemptions(measures: &Measures<'_>) -> Preemptions {
    let calls = measures.calls();
    Preemptions {
        count: calls.clone().map(|call| u64::from(call.preemptions)).sum(),
        max_of_one_call: calls.clone().map(|call| call.preemptions).max().unwrap_or(0),
        tokens_lost: calls.map(|call| call.lost.0).sum(),
    }
}

pub(super) fn kv_use(run: &Run, scenario: &Scenario) -> KvUse {
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
        evicted_blocks: run.evicted_blocks(),
    }
}

pub(super) fn gpu_use(run: &Run, tp: u32, tasks: u64, recompute_share: f64) -> GpuUse {
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

pub(super) fn throughput(
    measures: &Measures<'_>,
    tasks: u64,
    gpus: u32,
    window_s: f64,
) -> Throughput {
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
pub(super) fn burst(measures: &Measures<'_>) -> Option<Burst> {
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

pub(super) fn cost(scenario: &Scenario, gpus: u32, tasks: u64, window_s: f64) -> Option<Cost> {
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
