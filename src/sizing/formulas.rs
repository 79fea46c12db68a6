//! What can be worked out on paper, beside what was simulated.
//!
//! The formulas take the means of the trace and a fleet that never makes anybody wait. Where the
//! simulation is off by more than a fifth one of their assumptions does not hold, and the report
//! says which.

use super::case::Case;
use super::figures::Figures;
use crate::config::scenario::LoadKind;
use crate::engine::step_time::{StepCost, StepLoad};
use crate::fleet::workload::{BasePlan, CallPlan, Class};
use crate::units::{Span, Time, Tokens};

/// A figure by formula and as it was simulated.
#[derive(Clone, Debug, PartialEq)]
pub struct Check {
    /// What it is.
    pub name: &'static str,
    /// The formula.
    pub formula: &'static str,
    /// The unit of both values.
    pub unit: &'static str,
    /// By the formula.
    pub closed: f64,
    /// As simulated; none without a sample.
    pub simulated: Option<f64>,
    /// The assumption that does not hold, if the two are too far apart.
    pub broken: Option<String>,
}

/// A formula that is off by more than this does not hold.
const OFF_MAX: f64 = 0.2;
/// Share of the prefilled tokens that may be computed twice before the cache is to blame.
const RECOMPUTE_MIN: f64 = 0.1;
const SECONDS_PER_HOUR: f64 = 3_600.0;

impl Check {
    /// How many times the formula's value was simulated.
    #[must_use]
    pub fn ratio(&self) -> Option<f64> {
        self.simulated.filter(|_| self.closed > 0.0).map(|simulated| simulated / self.closed)
    }

    fn judged(mut self, broken: impl FnOnce() -> String) -> Self {
        let off = self.ratio().is_some_and(|ratio| (ratio - 1.0).abs() > OFF_MAX);
        self.broken = off.then(broken);
        self
    }
}

/// Sums over the trace's calls, each as if it had a replica to itself and what it repeats were in
/// the cache.
#[derive(Clone, Copy, Debug, Default)]
struct Work {
    sessions: f64,
    calls: f64,
    /// Prompt and output tokens.
    context: f64,
    /// Seconds of calls; of the main agents' calls.
    alone_s: f64,
    main_s: f64,
    /// Client time before the main agents' calls.
    gaps_s: f64,
}

/// The formulas for one fleet.
#[must_use]
pub fn checks(case: &Case, figures: &Figures) -> Vec<Check> {
    let work = Work::of(case);
    if work.sessions == 0.0 || work.calls == 0.0 {
        return Vec::new();
    }
    let load = Steady::of(case, figures, &work);
    let told = Told::of(figures);
    let batch = load.in_flight / f64::from(figures.replicas);
    vec![
        kv_per_sequence(case, &work, &told),
        requests(&work, &load, &told),
        in_flight(&work, &load, &told),
        gpu_seconds(case, figures, &work, batch),
    ]
}

/// What the simulation says of the same things.
struct Told<'a> {
    figures: &'a Figures,
    calls_per_s: f64,
    call_s: Option<f64>,
}

impl<'a> Told<'a> {
    fn of(figures: &'a Figures) -> Self {
        let calls_per_s = figures.throughput.calls_per_hour / SECONDS_PER_HOUR;
        Self { figures, calls_per_s, call_s: figures.latency.e2e.map(|e2e| e2e.mean) }
    }

    /// Why calls come at another rate, or there are more of them at once.
    fn why(&self, work: &Work) -> String {
        let alone = work.alone_s / work.calls;
        let longer = self.call_s.map_or(1.0, |call| call / alone);
        if (longer - 1.0).abs() > OFF_MAX {
            return format!(
                "calls take as long as alone: they took {longer:.2} times as long (queue, batch, \
                 prefill beside decode)"
            );
        }
        self.mix()
    }

    fn mix(&self) -> String {
        let units = &self.figures.units;
        format!(
            "the window holds the trace's mean session: {} tasks completed in it, {} were cut off",
            units.tasks, units.tasks_cut_off
        )
    }
}

/// Rates of a load that has settled.
struct Steady {
    sessions_per_s: f64,
    in_flight: f64,
}

impl Steady {
    fn of(case: &Case, figures: &Figures, work: &Work) -> Self {
        let session_s = (work.main_s + work.gaps_s) / work.sessions;
        let load = &case.scenario.load;
        let sessions_per_s = match load.kind {
            LoadKind::Developers { developers } => {
                // The mean of a lognormal with this median.
                let spread = (load.pause_sigma * load.pause_sigma / 2.0).exp();
                let from = Time::ZERO + case.scenario.warmup;
                let until = from + Span::from_secs_f64(figures.window_s);
                let at_work = load.office.map_or(1.0, |office| office.share(from, until));
                at_work * f64::from(developers) / (session_s + load.pause_median.secs() * spread)
            }
            LoadKind::SessionsPerHour { rate, .. } => rate / SECONDS_PER_HOUR,
            LoadKind::Trace => work.sessions / (figures.window_s + case.scenario.warmup.secs()),
        };
        Self { sessions_per_s, in_flight: sessions_per_s * work.alone_s / work.sessions }
    }
}

fn kv_per_sequence(case: &Case, work: &Work, told: &Told<'_>) -> Check {
    let memory = &case.scenario.serving.memory;
    let gib = |tokens: f64| memory.sequence_bytes(Tokens(tokens.round() as u64)).gib();
    let throughput = &told.figures.throughput;
    let tokens_per_s = throughput.prompt_tokens_per_s + throughput.output_tokens_per_s;
    let simulated = (told.calls_per_s > 0.0).then(|| gib(tokens_per_s / told.calls_per_s));
    let check = Check {
        name: "KV per sequence",
        formula: "KV bytes of a token x mean context of the trace's calls",
        unit: "GiB",
        closed: gib(work.context / work.calls),
        simulated,
        broken: None,
    };
    check.judged(|| told.mix())
}

fn requests(work: &Work, load: &Steady, told: &Told<'_>) -> Check {
    let check = Check {
        name: "requests per second",
        formula: "session starts per second x calls per session",
        unit: "1/s",
        closed: load.sessions_per_s * work.calls / work.sessions,
        simulated: Some(told.calls_per_s),
        broken: None,
    };
    check.judged(|| told.why(work))
}

/// C = D x rho x A: with D sessions open, each of which works a share rho of its time, on A calls
/// at once, that is the rate of sessions x the time that the calls of one take.
fn in_flight(work: &Work, load: &Steady, told: &Told<'_>) -> Check {
    let check = Check {
        name: "calls in flight",
        formula: "C = D x rho x A: people, share of time at work, calls at once",
        unit: "",
        closed: load.in_flight,
        simulated: told.call_s.map(|call| told.calls_per_s * call),
        broken: None,
    };
    check.judged(|| told.why(work))
}

fn gpu_seconds(case: &Case, figures: &Figures, work: &Work, batch: f64) -> Check {
    let steps = Steps::of(case, work, batch);
    let busy_s: f64 = taken(case).map(|(call, _)| steps.seconds(&call)).sum();
    let gpu = &figures.gpu;
    let parts =
        [gpu.decode_gpu_s_per_task, gpu.prefill_gpu_s_per_task, gpu.recompute_gpu_s_per_task];
    let gpus = f64::from(case.scenario.serving.gpus());
    let check = Check {
        name: "GPU-seconds per task",
        formula: "GPUs x (new tokens + output tokens x step / batch), batch = C / replicas",
        unit: "s",
        closed: gpus * busy_s / work.sessions,
        simulated: parts.into_iter().sum(),
        broken: None,
    };
    check.judged(|| {
        let recomputed = figures.hit.recompute_share.unwrap_or(0.0);
        let times = gpu.mean_decode_batch / steps.batch;
        if recomputed > RECOMPUTE_MIN {
            format!(
                "what was computed stays in the cache: {:.0} % of the prefilled tokens had been \
                 computed before",
                recomputed * 100.0
            )
        } else if (times - 1.0).abs() > OFF_MAX {
            format!(
                "a step decodes C / replicas = {:.2} sequences: it decoded {:.2}, idle steps left \
                 out",
                steps.batch, gpu.mean_decode_batch
            )
        } else {
            Told::of(figures).mix()
        }
    })
}

/// Calls that reach an engine.
fn taken(case: &Case) -> impl Iterator<Item = (CallPlan, Class)> {
    let longest = case.scenario.serving.max_model_len;
    calls(case)
        .filter(move |(call, class)| !class.failed && call.prompt() + call.output() <= longest)
}

fn calls(case: &Case) -> impl Iterator<Item = (CallPlan, Class)> {
    case.sessions().flat_map(|session| session.calls().zip(session.classes()))
}

impl Work {
    fn of(case: &Case) -> Self {
        let mut work = Self { sessions: case.sessions().count() as f64, ..Self::default() };
        for (call, class) in calls(case) {
            if class.is_main {
                work.gaps_s += call.gap.secs();
            }
        }
        let alone = Steps::of(case, &work, 1.0);
        let api = &case.setup.api;
        for (call, class) in taken(case) {
            let host = api.before_queue(call.prompt()) + api.after_last_token(call.output());
            let seconds = host.secs() + alone.alone_seconds(&call);
            work.calls += 1.0;
            work.context += (call.prompt() + call.output()).as_f64();
            work.alone_s += seconds;
            if class.is_main {
                work.main_s += seconds;
            }
        }
        work
    }
}

/// Steps as the formulas take them: so many sequences decode at once, prompts are prefilled in
/// whole budgets.
struct Steps<'a> {
    cost: &'a StepCost,
    budget: u64,
    batch: f64,
    /// A step of decodes: what it computes, for how many sequences, and its time.
    decodes: StepLoad,
    sequences: f64,
    step_ms: f64,
}

impl<'a> Steps<'a> {
    fn of(case: &'a Case, work: &Work, batch: f64) -> Self {
        let cost = &case.setup.cost;
        let batch = batch.max(1.0);
        // Spread evenly over the ranks of a replica.
        let ranks = cost.ranks() as u64;
        let number = ((batch.round() as u64) / ranks).max(1);
        let context = ((work.context / work.calls.max(1.0)).round() as u64).max(1);
        let mut decodes = cost.empty_load();
        let windowed = decodes.window().map_or(context, |window| window.seen_in_the_mean(context));
        decodes.add_decodes(number, number * context, number * windowed);
        decodes.set_other_ranks((ranks - 1) * number);
        Self {
            cost,
            budget: case.setup.engine.max_num_batched_tokens.0.max(1),
            batch,
            decodes,
            sequences: (number * ranks) as f64,
            step_ms: cost.cost(&decodes).total_ms(),
        }
    }

    /// Engine time of a call alone.
    fn alone_seconds(&self, call: &CallPlan) -> f64 {
        let mut load = self.alone();
        load.add_decode(call.prompt().0 + call.output().0 / 2);
        let steps = call.output().0.saturating_sub(1) as f64;
        (self.prefill_ms(call, None) + steps * self.cost.cost(&load).total_ms()) / 1e3
    }

    /// A step in which the other ranks have no work, and compute a token each for nothing.
    fn alone(&self) -> StepLoad {
        let mut load = self.cost.empty_load();
        load.set_other_ranks(self.cost.ranks() as u64 - 1);
        load
    }

    /// A call's part of the engine's time among others.
    fn seconds(&self, call: &CallPlan) -> f64 {
        // Prompts are prefilled beside decodes, if there are any most of the time.
        let beside = (self.batch > 1.0).then_some(&self.decodes);
        let decode = call.output().as_f64() * self.step_ms / self.sequences;
        (self.prefill_ms(call, beside) + decode) / 1e3
    }

    /// What the prefill of a call's new tokens takes, or adds to steps of these decodes.
    fn prefill_ms(&self, call: &CallPlan, beside: Option<&StepLoad>) -> f64 {
        let kept =
            if call.base() == BasePlan::None { 0 } else { call.kept().0.min(call.prompt().0) };
        // The last token of a prompt is always computed.
        let mut before = kept.min(call.prompt().0.saturating_sub(1));
        let without = if beside.is_some() { self.step_ms } else { 0.0 };
        let mut sum = 0.0;
        while before < call.prompt().0 {
            let chunk = self.budget.min(call.prompt().0 - before);
            let mut load = beside.copied().unwrap_or_else(|| self.alone());
            load.add_prefill(before, chunk, before + chunk == call.prompt().0);
            sum += self.cost.cost(&load).total_ms() - without;
            before += chunk;
        }
        sum
    }
}
