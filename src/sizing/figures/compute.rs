//! How the figures are made of what a run added up.

use super::{
    Admission, Burst, Cost, GatewayFigures, GpuUse, Hits, Interactivity, KvUse, Latency, Losses,
    NamedHit, Percentiles, Preemptions, Scaling, TaskTime, Throughput, TimePart, TokensOfCalls,
    TtftBand, Units,
};
use crate::config::scenario::Scenario;
use crate::fleet::Run;
use crate::fleet::workload::Names;
use crate::observe::records::Place;
use crate::sizing::tally::{BANDS, HitSum, Part, Tally};
use crate::stats::{Samples, TimeWeighted};
use crate::trace::record::Name;
use crate::units::Span;

/// Nanoseconds to seconds, and billionths of a ratio to the ratio.
pub(super) const NANO: f64 = 1e9;
/// Picoseconds to seconds.
const PICO: f64 = 1e12;

pub(super) fn units(run: &Run<Tally>) -> Units {
    let (tally, cut_off) = (&run.records, &run.cut_off);
    let calls = &tally.calls;
    Units {
        calls: calls.completed,
        turns: tally.turns[0],
        tasks: tally.tasks[0],
        calls_failed: calls.rejected + calls.refused,
        turns_failed: tally.turns[1],
        tasks_failed: tally.tasks[1],
        calls_failed_as_recorded: calls.recorded_failures,
        calls_compacted: calls.compacted,
        calls_cut_off: cut_off.calls,
        turns_cut_off: cut_off.turns,
        tasks_cut_off: cut_off.tasks,
    }
}

pub(super) fn admission(tally: &Tally) -> Admission {
    let calls = &tally.calls;
    let offered = calls.completed + calls.rejected + calls.refused;
    let amplification = match offered {
        0 => 1.0,
        _ => (offered + calls.retries) as f64 / offered as f64,
    };
    Admission {
        offered,
        rejected: calls.rejected,
        refused: calls.refused,
        http_503: calls.http_503,
        retries: calls.retries,
        amplification,
    }
}

/// What is known of samples that are `scale` to one of the unit.
pub(super) fn percentiles(samples: &Samples, scale: f64) -> Option<Percentiles> {
    let at = |p| samples.quantile(p).map(|value| value / scale);
    Some(Percentiles {
        n: samples.count(),
        mean: samples.mean()? / scale,
        p50: at(0.50)?,
        p90: at(0.90)?,
        p95: at(0.95)?,
        p99: at(0.99)?,
        max: samples.max()? as f64 / scale,
    })
}

pub(super) fn tokens(tally: &Tally) -> TokensOfCalls {
    TokensOfCalls {
        prompt: percentiles(&tally.prompt, 1.0),
        output: percentiles(&tally.output, 1.0),
    }
}

pub(super) fn latency(tally: &Tally) -> Latency {
    let latency = &tally.latency;
    Latency {
        turn: percentiles(&latency.turn, NANO),
        turn_llm: percentiles(&latency.turn_llm, NANO),
        task: percentiles(&latency.task, NANO),
        task_llm: percentiles(&latency.task_llm, NANO),
        session: percentiles(&latency.session, NANO),
        stretch: percentiles(&latency.stretch, NANO),
        ttft: percentiles(&latency.ttft, NANO),
        engine_ttft: percentiles(&latency.engine_ttft, NANO),
        queue: percentiles(&latency.queue, NANO),
        itl: percentiles(&latency.itl, PICO),
        e2e: percentiles(&latency.e2e, NANO),
    }
}

pub(super) fn interactivity(tally: &Tally) -> Interactivity {
    let latency = &tally.latency;
    let rate = |samples: &Samples, p| samples.quantile(p).map(|value| PICO / value);
    let task = latency.task.mean().map(|mean| mean / NANO);
    Interactivity {
        p50: rate(&latency.itl, 0.5),
        p90: rate(&latency.itl, 0.9),
        e2e_p50: rate(&latency.e2e_per_token, 0.5),
        e2e_p90: rate(&latency.e2e_per_token, 0.9),
        jobs_per_hour_per_user: task.map(|task| 3_600.0 / task).filter(|jobs| jobs.is_finite()),
    }
}

pub(super) fn ttft_bands(tally: &Tally) -> Vec<TtftBand> {
    let mut bands = Vec::new();
    for ((prompt, ..), by_cached) in BANDS.iter().zip(&tally.bands) {
        for (cached, samples) in ["< 50 %", ">= 50 %"].into_iter().zip(by_cached) {
            if let Some(Percentiles { n, p50, p95, p99, .. }) = percentiles(samples, NANO) {
                bands.push(TtftBand { prompt, cached, n, p50, p95, p99 });
            }
        }
    }
    bands
}

fn named_hit(sum: &HitSum, name: &str) -> Option<NamedHit> {
    let share = |part: u64| part as f64 / sum.prompt as f64;
    (sum.prompt > 0).then(|| NamedHit {
        name: name.to_owned(),
        calls: sum.calls,
        hit: share(sum.cached),
        infinite_cache: share(sum.ceiling),
    })
}

pub(super) fn hits(tally: &Tally, names: &Names) -> Hits {
    let named = |sums: &[HitSum], names: &[Name]| -> Vec<NamedHit> {
        let several = sums.iter().filter(|sum| sum.prompt > 0).count() > 1;
        let pairs = sums.iter().zip(names).filter(|_| several);
        pairs.filter_map(|(sum, name)| named_hit(sum, name)).collect()
    };
    let (calls, all) = (&tally.calls, &tally.hit);
    let total = named_hit(all, "all");
    let share = |part: u64, whole: u64| (whole > 0).then(|| part as f64 / whole as f64);
    let kinds = tally.segments.iter().zip(Place::ALL);
    Hits {
        engine_counter: total.as_ref().map(|total| total.hit),
        true_hit: share(calls.prefilled, all.prompt).map(|missed| (1.0 - missed).max(0.0)),
        infinite_cache: total.map(|total| total.infinite_cache),
        recompute_share: share(calls.recomputed, calls.prefilled),
        losses: losses(tally),
        segments: kinds.filter_map(|(sum, (_, name))| named_hit(sum, name)).collect(),
        tenants: named(&tally.tenants, &names.tenants),
        models: named(&tally.models, &names.models),
    }
}

fn losses(tally: &Tally) -> Losses {
    let [evicted, under_way, elsewhere, gone, uncached] = tally.missed;
    let HitSum { prompt, cached, ceiling, .. } = tally.hit;
    debug_assert_eq!(tally.missed.iter().sum::<u64>(), ceiling - cached);
    Losses {
        prompt_tokens: prompt,
        cached_tokens: cached,
        infinite_cache_tokens: ceiling,
        evicted,
        under_way,
        elsewhere,
        gone,
        uncached,
    }
}

pub(super) fn preemptions(tally: &Tally) -> Preemptions {
    let calls = &tally.calls;
    Preemptions {
        count: calls.preemptions,
        max_of_one_call: calls.preemptions_max,
        tokens_lost: calls.lost,
    }
}

pub(super) fn kv_use(run: &Run<Tally>, scenario: &Scenario, held: &Held) -> KvUse {
    let blocks = scenario.serving.usable_blocks().0;
    let mut all = TimeWeighted::new(blocks.max(1));
    run.replicas.iter().for_each(|replica| all.absorb(&replica.kv_blocks));
    let share = |level: Option<u64>| level.unwrap_or(0) as f64 / blocks as f64;
    let of_replica = (blocks * scenario.serving.memory.block_size) as f64;
    KvUse {
        blocks,
        p50: share(all.quantile(0.5)),
        p95: share(all.quantile(0.95)),
        max: share(all.max()),
        above_95: all.share_above(950).unwrap_or(0.0),
        live_context_over_pool: run.live_context_mean / (of_replica * held.replicas_mean),
        evicted_blocks: run.evicted_blocks(),
    }
}

pub(super) fn gpu_use(run: &Run<Tally>, held: &Held, tasks: u64, recompute_share: f64) -> GpuUse {
    let gpus = held.gpus_of_replica;
    let busy: f64 = run.replicas.iter().map(|replica| replica.busy.secs()).sum();
    let decode: f64 = run.replicas.iter().map(|replica| replica.decode.secs()).sum();
    let steps: u64 = run.replicas.iter().map(|replica| replica.steps).sum();
    let decoded: u64 = run.replicas.iter().map(|replica| replica.decode_tokens).sum();
    let time = (run.window.until - run.window.from).secs() * held.replicas_mean;
    let share = (busy > 0.0).then(|| decode / busy);
    let per_task = |secs: f64| (tasks > 0).then(|| secs * f64::from(gpus) / tasks as f64);
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

pub(super) fn task_time(tally: &Tally, has_gateway: bool) -> Option<TaskTime> {
    let means = Part::ALL.iter().map(|part| Some((*part, tally.path.mean_secs(*part)?)));
    let means = means.collect::<Option<Vec<_>>>()?;
    let sum = |of: fn(Part) -> bool| -> f64 {
        means.iter().filter(|(part, _)| of(*part)).map(|(_, mean)| mean).sum()
    };
    let (task_llm_s, session_s) = (sum(Part::is_llm), sum(|_| true));
    let share = |mean: f64, whole: f64| if whole > 0.0 { mean / whole } else { 0.0 };
    let is_there = |(part, _): &&(Part, f64)| has_gateway || *part != Part::Gateway;
    let part = |&(part, mean_s): &(Part, f64)| TimePart {
        name: part.name(),
        mean_s,
        of_task_llm: part.is_llm().then(|| share(mean_s, task_llm_s)),
        of_session: share(mean_s, session_s),
    };
    let parts = means.iter().filter(is_there).map(part).collect();
    Some(TaskTime { tasks: tally.path.tasks(), task_llm_s, session_s, parts })
}

pub(super) fn throughput(tally: &Tally, gpus: f64, window_s: f64) -> Throughput {
    let tasks = tally.tasks[0];
    let per_hour = |count: u64| count as f64 * 3_600.0 / window_s;
    Throughput {
        calls_per_hour: per_hour(tally.calls.completed),
        tasks_per_hour: per_hour(tasks),
        tasks_per_hour_per_gpu: per_hour(tasks) / gpus,
        prompt_tokens_per_s: tally.hit.prompt as f64 / window_s,
        output_tokens_per_s: tally.calls.output as f64 / window_s,
    }
}

/// The busiest minute among those that begin with a dispatch, and how the queue came out of it.
pub(super) fn burst(run: &Run<Tally>) -> Option<Burst> {
    let burst = run.burst.as_ref()?;
    let mut waits = Samples::default();
    burst.waits.iter().for_each(|wait| waits.add(wait.0));
    Some(Burst {
        start_s: burst.start.secs(),
        calls: burst.calls,
        queue_p95_s: waits.quantile(0.95)? / NANO,
        drain_s: burst.drain.map(Span::secs),
    })
}

/// What is paid for.
pub(super) struct Held {
    /// GPUs of one replica.
    pub(super) gpus_of_replica: u32,
    /// Replicas: most at once.
    pub(super) replicas_max: u32,
    /// In the mean over the window, from the decision to start one until it has ended.
    pub(super) replicas_mean: f64,
    /// What scales them did, if anything does.
    pub(super) scaling: Option<Scaling>,
    /// The gateway's pods.
    pub(super) gateway: Option<GatewayFigures>,
}

impl Held {
    /// What a run held. Without an autoscaler every replica is held all the time, also one that is
    /// lost or comes later.
    pub(super) fn of(run: &Run<Tally>, scenario: &Scenario) -> Self {
        let gpus_of_replica = scenario.serving.gpus();
        let scaling = super::gateway::replica_scaling(run, gpus_of_replica);
        let all = run.replicas.len() as u32;
        Self {
            gpus_of_replica,
            replicas_max: scaling.map_or(all, |scaling| scaling.held_max),
            replicas_mean: scaling.map_or(f64::from(all), |scaling| scaling.held_mean),
            scaling,
            gateway: super::gateway::gateway(run, scenario),
        }
    }

    /// GPUs in the mean.
    pub(super) fn gpus_mean(&self) -> f64 {
        self.replicas_mean * f64::from(self.gpus_of_replica)
    }
}

pub(super) fn cost(scenario: &Scenario, held: &Held, tasks: u64, window_s: f64) -> Option<Cost> {
    let (usd_per_gpu_hour, source) = scenario.price.clone()?;
    let pods = held.gateway.as_ref().map_or(0.0, |gateway| gateway.replicas_mean);
    let gateway = scenario.pod_price.map_or(0.0, |price| price * pods);
    let usd_per_hour = usd_per_gpu_hour * held.gpus_mean() + gateway;
    Some(Cost {
        usd_per_gpu_hour,
        source,
        usd_per_gateway_replica_hour: scenario.pod_price,
        usd_per_hour,
        usd_per_completed_task: (tasks > 0)
            .then(|| usd_per_hour * window_s / 3_600.0 / tasks as f64),
    })
}
