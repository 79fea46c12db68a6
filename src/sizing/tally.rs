//! What is added up while a run goes on, so that no record need be kept: sums, samples by
//! quantity, and how far each target is met.
//!
//! Only what ends in the measured window counts. Percentiles are known to within 0.1 %, whatever
//! the size of the run; whether a target is met is known exactly, because its bound is known
//! before.

use super::bootstrap::{Interval, Unavailable};
use super::slo::{Metric, Quantity, Slo, Verdict};
use crate::config::pools::Pool;
use crate::diag::Result;
use crate::fleet::observer::{About, Observer};
use crate::fleet::workload::{Class, Names};
use crate::observe::records::{CallOutcome, CallRecord, Missed, Place, TaskRecord, TurnRecord};
use crate::stats::Samples;
use crate::units::Span;

mod path;
mod pools;
mod target;

pub use path::{Part, PathTally};
pub(super) use pools::PoolSums;
use target::TargetTally;

/// Prompt bands of the time to first token: name, shortest prompt inside, shortest above.
pub(super) const BANDS: [(&str, u64, u64); 5] = [
    ("0-8k", 0, 8_000),
    ("8k-32k", 8_000, 32_000),
    ("32k-64k", 32_000, 64_000),
    ("64k-128k", 64_000, 128_000),
    ("128k+", 128_000, u64::MAX),
];

/// The interval of each target's figure, or why there is none.
pub type Intervals = Vec<std::result::Result<Interval, Unavailable>>;

/// Everything that is added up.
#[derive(Clone, Debug)]
pub struct Tally {
    pub(super) calls: CallSums,
    /// Turns without a failed call, and with one.
    pub(super) turns: [u64; 2],
    /// Tasks likewise.
    pub(super) tasks: [u64; 2],
    pub(super) prompt: Samples,
    pub(super) output: Samples,
    pub(super) latency: LatencySamples,
    /// By band, and by whether half of the prompt was cached; times to first token.
    pub(super) bands: [[Samples; 2]; BANDS.len()],
    pub(super) hit: HitSum,
    /// Tokens by the cause for which the cache did not hold them, in the order of
    /// [`Missed::NAMES`].
    pub(super) missed: [u64; Missed::NAMES.len()],
    /// By kind of place, in the order of [`Place::ALL`].
    pub(super) segments: [HitSum; Place::ALL.len()],
    /// By number.
    pub(super) tenants: Vec<HitSum>,
    /// By number.
    pub(super) models: Vec<HitSum>,
    /// By number; none where there are no pools.
    pub(super) pools: Vec<PoolSums>,
    /// Where the time of tasks goes.
    pub(super) path: PathTally,
    targets: Vec<TargetTally>,
    asks_for_stretch: bool,
}

/// Sums over calls.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CallSums {
    pub(super) completed: u64,
    pub(super) rejected: u64,
    pub(super) refused: u64,
    pub(super) recorded_failures: u64,
    pub(super) compacted: u64,
    pub(super) http_503: u64,
    pub(super) retries: u64,
    pub(super) output: u64,
    pub(super) prefilled: u64,
    pub(super) recomputed: u64,
    pub(super) preemptions: u64,
    pub(super) preemptions_max: u32,
    pub(super) lost: u64,
}

/// Samples by quantity: nanoseconds, billionths for the stretch, picoseconds for times per token.
#[derive(Clone, Debug, Default)]
pub(super) struct LatencySamples {
    pub(super) turn: Samples,
    pub(super) turn_llm: Samples,
    pub(super) task: Samples,
    pub(super) task_llm: Samples,
    pub(super) session: Samples,
    pub(super) stretch: Samples,
    pub(super) ttft: Samples,
    pub(super) engine_ttft: Samples,
    pub(super) queue: Samples,
    pub(super) itl: Samples,
    pub(super) e2e: Samples,
    pub(super) e2e_per_token: Samples,
}

/// Hits over some calls.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct HitSum {
    pub(super) calls: u64,
    pub(super) prompt: u64,
    pub(super) cached: u64,
    pub(super) ceiling: u64,
}

impl HitSum {
    fn add(&mut self, call: &CallRecord) {
        self.calls += 1;
        self.prompt += call.prompt.0;
        self.cached += call.cached.0;
        self.ceiling += call.ceiling.0;
    }
}

impl Tally {
    /// Nothing added up yet, for these targets.
    #[must_use]
    pub fn new(targets: &[Slo]) -> Self {
        Self {
            calls: CallSums::default(),
            turns: [0; 2],
            tasks: [0; 2],
            prompt: Samples::default(),
            output: Samples::default(),
            latency: LatencySamples::default(),
            bands: Default::default(),
            hit: HitSum::default(),
            missed: [0; Missed::NAMES.len()],
            segments: Default::default(),
            tenants: Vec::new(),
            models: Vec::new(),
            pools: Vec::new(),
            path: PathTally::default(),
            targets: targets.iter().map(TargetTally::new).collect(),
            asks_for_stretch: targets.iter().any(|target| target.metric == Metric::Stretch),
        }
    }

    /// The same for a fleet of these pools.
    #[must_use]
    pub fn with_pools(mut self, pools: &[Pool]) -> Self {
        self.pools = vec![PoolSums::default(); pools.len()];
        self.targets.iter_mut().for_each(|target| target.know_pools(pools));
        self
    }

    /// How each target came out.
    #[must_use]
    pub fn verdicts(&self) -> Vec<Verdict> {
        self.targets.iter().map(TargetTally::verdict).collect()
    }

    /// The same, keeping every sample of a target for its interval.
    #[must_use]
    pub fn keeping(mut self) -> Self {
        self.targets.iter_mut().for_each(TargetTally::keep);
        self
    }

    /// The interval of each target's figure; none if nothing was kept.
    #[must_use]
    pub fn intervals(&self, seed: u64) -> Option<Intervals> {
        self.targets.iter().map(|target| target.interval(seed)).collect()
    }

    fn answered(&mut self, call: &CallRecord, class: &Class) {
        let sums = &mut self.calls;
        sums.output += call.output.0;
        sums.prefilled += call.prefilled.0;
        sums.recomputed += call.recomputed().0;
        self.prompt.add(call.prompt.0);
        self.output.add(call.output.0);
        let latency = &mut self.latency;
        latency.ttft.add(call.ttft().0);
        latency.engine_ttft.add((call.first_token - call.queued).0);
        latency.queue.add(call.queue().0);
        latency.e2e.add(call.e2e().0);
        if let Some(gaps) = call.output.0.checked_sub(1).filter(|gaps| *gaps > 0) {
            latency.itl.add(pico_per(call.last_token - call.first_token, gaps));
        }
        latency.e2e_per_token.add(pico_per(call.e2e(), call.output.0));
        let band = BANDS.iter().position(|(.., below)| call.prompt.0 < *below);
        let mostly_cached = call.cached.0 * 2 >= call.prompt.0;
        self.bands[band.unwrap_or(BANDS.len() - 1)][usize::from(mostly_cached)].add(call.ttft().0);
        self.hit.add(call);
        for (sum, tokens) in self.missed.iter_mut().zip(call.missed.parts()) {
            *sum += u64::from(tokens);
        }
        for (sum, (kind, _)) in self.segments.iter_mut().zip(Place::ALL) {
            if call.place.is(kind) {
                sum.add(call);
            }
        }
        at(&mut self.tenants, class.tenant).add(call);
        at(&mut self.models, class.model).add(call);
    }
}

fn at(sums: &mut Vec<HitSum>, number: u32) -> &mut HitSum {
    let number = number as usize;
    if sums.len() <= number {
        sums.resize(number + 1, HitSum::default());
    }
    &mut sums[number]
}

/// Picoseconds for each of so many.
fn pico_per(span: Span, number: u64) -> u64 {
    match span.0.checked_mul(1_000) {
        Some(pico) => (pico + number / 2) / number.max(1),
        None => span.0 / number.max(1) * 1_000,
    }
}

impl Observer for Tally {
    fn call(&mut self, call: &CallRecord, about: &About<'_>) {
        self.path.call(call);
        if !about.window.holds(call.ended) {
            return;
        }
        let class = &about.plan.class(call.call);
        pools::call(&mut self.pools, call);
        let sums = &mut self.calls;
        sums.compacted += u64::from(call.compacted);
        sums.preemptions += u64::from(call.preemptions);
        sums.preemptions_max = sums.preemptions_max.max(call.preemptions);
        sums.lost += call.lost.0;
        sums.http_503 += u64::from(call.refusals);
        sums.retries += u64::from(call.refusals);
        match call.outcome {
            CallOutcome::Completed => {
                sums.completed += 1;
                self.answered(call, class);
            }
            CallOutcome::Rejected => sums.rejected += 1,
            CallOutcome::Refused => {
                sums.refused += 1;
                // After its last refusal the client does not ask again.
                sums.retries -= 1;
            }
            CallOutcome::RecordedFailure => sums.recorded_failures += 1,
        }
        self.targets.iter_mut().for_each(|target| target.call(call, class, about.names));
    }

    fn turn(&mut self, turn: &TurnRecord, about: &About<'_>) {
        self.path.turn(turn, about.plan);
        if !about.window.holds(turn.ended) {
            return;
        }
        self.turns[usize::from(turn.failed)] += 1;
        if turn.failed {
            return;
        }
        self.latency.turn.add(turn.turn().0);
        self.latency.turn_llm.add(turn.turn_llm().0);
        for target in &mut self.targets {
            let sample = match target.percentile_of() {
                Some(Quantity::Turn) => turn.turn(),
                Some(Quantity::TurnLlm) => turn.turn_llm(),
                _ => continue,
            };
            target.unit(turn.session, sample.secs(), about);
        }
    }

    fn task(&mut self, task: &TaskRecord, about: &About<'_>) {
        self.path.task(task, about.window.holds(task.ended) && !task.failed);
        if !about.window.holds(task.ended) {
            return;
        }
        self.tasks[usize::from(task.failed)] += 1;
        if task.failed {
            return;
        }
        self.latency.task.add(task.task.0);
        self.latency.task_llm.add(task.task_llm.0);
        self.latency.session.add(task.session_span().0);
        let stretch = task.stretch().filter(|_| self.asks_for_stretch);
        if let Some(stretch) = stretch {
            self.latency.stretch.add((stretch * 1e9).round() as u64);
        }
        for target in &mut self.targets {
            let sample = match target.percentile_of() {
                Some(Quantity::Task) => task.task.secs(),
                Some(Quantity::TaskLlm) => task.task_llm.secs(),
                Some(Quantity::Session) => task.session_span().secs(),
                Some(Quantity::Stretch) => match stretch {
                    Some(stretch) => stretch,
                    None => continue,
                },
                _ => continue,
            };
            target.unit(task.session, sample, about);
        }
    }

    fn wants_alone(&self) -> bool {
        self.asks_for_stretch
    }
}

/// Refuses a target about a tenant, model or profile that there is not.
///
/// # Errors
/// The name, with those that exist.
pub fn check_target(slo: &Slo, names: &Names) -> Result<()> {
    target::check(slo, names)
}
