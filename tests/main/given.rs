//! What tests of whole runs start from: calls, sessions and fleets built in code.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use tonnage::config::api_time::ApiTime;
use tonnage::config::autoscale::Scaling;
use tonnage::config::defaults::VllmVersion;
use tonnage::config::precision::{KvDtype, WeightPrecision};
use tonnage::config::router::Routing;
use tonnage::config::scenario::{Client, Load, LoadKind, OnOverflow, RouterKind};
use tonnage::config::{gpus, models};
use tonnage::engine::config::{EngineConfig, Policy, Pool};
use tonnage::engine::metrics::EngineMetrics;
use tonnage::engine::plain::PlainEngine;
use tonnage::engine::request::{Effect, Request, StepSummary};
use tonnage::engine::step_time::{StepCost, StepSetup};
use tonnage::engine::{Due, Engine, Gauges, Stuck};
use tonnage::fleet::admission::Limits;
use tonnage::fleet::observer::{About, Observer};
use tonnage::fleet::workload::Workload;
use tonnage::fleet::{Progress, Run, Setup, run};
use tonnage::observe::records::{CallRecord, Records, TaskRecord, TurnRecord};
use tonnage::sizing::case::Case;
use tonnage::trace::check::Checker;
use tonnage::trace::lineage::Path;
use tonnage::trace::record::{
    After, AfterEvent, Base, Call, Cause, Finish, Name, Session, SharedContext, Status, Trace,
};
use tonnage::units::{Blocks, RequestId, Span, Time, Tokens};

/// Llama-3.1-8B in 16 bits on one H100-SXM.
pub fn step_cost() -> StepCost {
    let model = models::find("Llama-3.1-8B").unwrap();
    let setup = StepSetup {
        model: &model,
        gpu: gpus::find("H100-SXM").unwrap(),
        tp: 1,
        dp: 1,
        weights: WeightPrecision::Bits16,
        kv_dtype: KvDtype::Bf16,
    };
    StepCost::new(&setup).unwrap()
}

/// An engine with vLLM's defaults for an H100, in a pool that holds whatever a test sends.
pub fn engine_config() -> EngineConfig {
    EngineConfig {
        block_size: 16,
        pool: Pool::Limited(Blocks(30_000)),
        window_blocks: Blocks::ZERO,
        max_num_seqs: 1_024,
        max_num_batched_tokens: Tokens(8_192),
        long_prefill_token_threshold: Tokens::ZERO,
        max_model_len: Tokens(131_072),
        enable_prefix_caching: true,
        policy: Policy::Fcfs,
        watermark: 0.0,
        async_scheduling: false,
        vllm: VllmVersion::default(),
        scheduler_reserve_full_isl: true,
    }
}

/// No host time outside the engine, so that calls arrive when they are dispatched.
pub const NO_HOST_TIME: ApiTime =
    ApiTime { request: Span::ZERO, prompt_token: Span::ZERO, output_token: Span::ZERO };

/// What vLLM's clients do by default.
const PATIENT: Client =
    Client { max_retries: 2, retry_base: Span::from_millis(500), retry_max: Span::from_secs(8) };

/// One replica that plays the trace as recorded.
pub fn setup() -> Setup {
    Setup {
        replicas: 1,
        gateway: None,
        scaling: Scaling::default(),
        router: RouterKind::SessionAffinity,
        routing: Routing::default(),
        events: Vec::new(),
        pools: Vec::new(),
        engine: engine_config(),
        cost: step_cost(),
        api: NO_HOST_TIME,
        limits: Limits::default(),
        client: PATIENT,
        load: load(LoadKind::Trace),
        open_loop: false,
        on_overflow: OnOverflow::Reject,
        seed: 1,
        warmup: Span::ZERO,
        window: None,
        every_step: true,
    }
}

/// A load of this kind; developers pause for exactly 50 s.
pub fn load(kind: LoadKind) -> Load {
    Load { kind, pause_median: Span::from_secs(50), pause_sigma: 0.0, office: None }
}

/// A call of the main agent's first turn that continues nothing and waits for nothing.
pub fn call(prompt: u64, output: u64) -> Call {
    Call {
        at: Span::ZERO,
        after: Vec::new(),
        gap: Span::ZERO,
        cause: Cause::User,
        turn: 0,
        lane: 0,
        model: Name::from("m"),
        tenant: Name::from(""),
        user: Name::from(""),
        profile: Name::from(""),
        base: Base::None,
        kept_tokens: Tokens::ZERO,
        prompt_tokens: Tokens(prompt),
        output_tokens: Tokens(output),
        tools: None,
        status: Status::Ok,
        finish: Finish::Stop,
        priority: 0,
        key: None,
        stream: None,
        max_tokens: None,
        retries: 0,
        seen_cached: None,
        seen_ttft: None,
        seen_duration: None,
    }
}

/// A call that had failed after so many seconds when it was recorded: it takes exactly that time.
pub fn lasting(seconds: u64) -> Call {
    let seen_duration = Some(Span::from_secs(seconds));
    Call { status: Status::Failed, seen_duration, ..call(10, 0) }
}

/// What distinguishes a call, in the order of the trace's columns.
pub trait With: Sized {
    /// Waits for these, written as in a trace: `0;2d`.
    fn after(self, calls: &str) -> Self;
    /// Client time before the dispatch.
    fn gap(self, millis: u64) -> Self;
    /// Belongs to this turn.
    fn turn(self, turn: u32) -> Self;
    /// Belongs to this subagent.
    fn lane(self, lane: u32) -> Self;
    /// Keeps so many leading tokens of that call's context.
    fn keeping(self, call: u32, tokens: u64) -> Self;
    /// Keeps so many leading tokens of that shared context.
    fn sharing(self, context: &str, tokens: u64) -> Self;
}

impl With for Call {
    fn after(mut self, calls: &str) -> Self {
        let entry = |text: &str| match text.strip_suffix('d') {
            Some(call) => After { call: call.parse().unwrap(), event: AfterEvent::Dispatched },
            None => After { call: text.parse().unwrap(), event: AfterEvent::Finished },
        };
        self.after = calls.split(';').map(entry).collect();
        self
    }

    fn gap(mut self, millis: u64) -> Self {
        self.gap = Span::from_millis(millis);
        self
    }

    fn turn(mut self, turn: u32) -> Self {
        self.turn = turn;
        self
    }

    fn lane(mut self, lane: u32) -> Self {
        self.lane = lane;
        self
    }

    fn keeping(mut self, call: u32, tokens: u64) -> Self {
        self.base = Base::Call(call);
        self.kept_tokens = Tokens(tokens);
        self
    }

    fn sharing(mut self, context: &str, tokens: u64) -> Self {
        self.base = Base::Shared(Name::from(context));
        self.kept_tokens = Tokens(tokens);
        self
    }
}

/// Sessions with their starts in milliseconds, as a trace that keeps every rule of traces.
pub fn trace(sessions: Vec<(u64, Vec<Call>)>) -> Trace {
    trace_with(Vec::new(), sessions)
}

/// The same with shared contexts of these names and lengths.
pub fn trace_with(contexts: Vec<(&str, u64)>, sessions: Vec<(u64, Vec<Call>)>) -> Trace {
    let context = |(name, tokens)| SharedContext {
        name: Name::from(name),
        base: None,
        kept_tokens: Tokens::ZERO,
        prompt_tokens: Tokens(tokens),
    };
    let session = |(number, (start, mut calls)): (usize, (u64, Vec<Call>))| {
        let at = Span::from_millis(start) + calls[0].gap;
        calls.iter_mut().for_each(|call| call.at = at);
        Session { id: Name::from(format!("s{number}")), calls }
    };
    let trace = Trace {
        contexts: contexts.into_iter().map(context).collect(),
        sessions: sessions.into_iter().enumerate().map(session).collect(),
    };
    let mut checker = Checker::default();
    trace.contexts.iter().for_each(|context| checker.context(context).unwrap());
    trace.sessions.iter().for_each(|session| checker.session(session).unwrap());
    trace
}

/// Plays a trace to its end.
pub fn play(setup: &Setup, trace: &Trace) -> Run {
    let workload = Workload::new(trace, &BTreeMap::new());
    let engine = || PlainEngine::new(setup.engine.clone(), setup.cost.clone());
    let run = run(setup, &workload, engine, &Progress::default());
    assert_eq!(run.stuck, None);
    run
}

/// Plays a trace on one replica and tells every step of its engine.
pub fn play_watched(setup: &Setup, trace: &Trace) -> (Run, Vec<StepSummary>) {
    let workload = Workload::new(trace, &BTreeMap::new());
    let steps = Arc::default();
    let engine = || Watched {
        engine: PlainEngine::new(setup.engine.clone(), setup.cost.clone()),
        steps: Arc::clone(&steps),
    };
    let run = run(setup, &workload, engine, &Progress::default());
    assert_eq!(run.stuck, None);
    let steps = steps.lock().unwrap().clone();
    (run, steps)
}

/// Keeps everything, and asks for the time that tasks take alone.
#[derive(Debug, Default)]
pub struct Keeper(pub Records);

impl Observer for Keeper {
    fn call(&mut self, call: &CallRecord, about: &About<'_>) {
        self.0.call(call, about);
    }

    fn turn(&mut self, turn: &TurnRecord, about: &About<'_>) {
        self.0.turn(turn, about);
    }

    fn task(&mut self, task: &TaskRecord, about: &About<'_>) {
        self.0.task(task, about);
    }

    fn wants_alone(&self) -> bool {
        true
    }
}

/// Plays a case and keeps everything.
pub fn kept(case: &Case, replicas: u32) -> Run {
    case.run_with(replicas, Records::default(), &Progress::default()).unwrap()
}

/// How much longer each task took than alone.
pub fn stretches(case: &Case, replicas: u32) -> Vec<Option<f64>> {
    let run = case.run_with(replicas, Keeper::default(), &Progress::default()).unwrap();
    run.records.0.tasks.iter().map(TaskRecord::stretch).collect()
}

/// The record of one call of a trace that was played once.
pub fn record(run: &Run, session: u32, call: u32) -> CallRecord {
    let found = run.records.calls.iter().find(|r| (r.session, r.call) == (session, call));
    *found.unwrap()
}

/// An engine that remembers its steps.
struct Watched {
    engine: PlainEngine,
    steps: Arc<Mutex<Vec<StepSummary>>>,
}

impl Engine for Watched {
    fn submit(&mut self, now: Time, request: Request) {
        self.engine.submit(now, request);
    }

    fn abort(&mut self, now: Time, request: RequestId) {
        self.engine.abort(now, request);
    }

    fn gauges(&mut self, now: Time) -> Gauges {
        self.engine.gauges(now)
    }

    fn warm(&mut self, path: &Path, tokens: Tokens) {
        self.engine.warm(path, tokens);
    }

    fn cached(&mut self, now: Time, path: &Path, prompt: Tokens) -> Tokens {
        self.engine.cached(now, path, prompt)
    }

    fn due(&self) -> Option<Due> {
        self.engine.due()
    }

    fn advance(&mut self, now: Time, effects: &mut Vec<Effect>) {
        let before = effects.len();
        self.engine.advance(now, effects);
        let steps = effects[before..].iter().filter_map(|effect| match effect {
            Effect::StepStarted(step) => Some(*step),
            _ => None,
        });
        self.steps.lock().unwrap().extend(steps);
    }

    fn stuck(&self) -> Option<Stuck> {
        self.engine.stuck()
    }

    fn metrics(&self) -> EngineMetrics {
        self.engine.metrics()
    }
}
