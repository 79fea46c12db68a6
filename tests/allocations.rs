//! Memory that the engine and whole runs ask for. In a binary of its own: an allocator that counts,
//! by thread, stands in for the usual one here.
#![allow(clippy::unwrap_used, reason = "a helper of a test may panic like the test itself")]

use std::collections::{BTreeMap, VecDeque};

use tonnage::config::defaults::VllmVersion;
use tonnage::config::precision::{KvDtype, WeightPrecision};
use tonnage::config::scenario::Scenario;
use tonnage::config::{gpus, models};
use tonnage::engine::config::{EngineConfig, Policy, Pool};
use tonnage::engine::fast::FastEngine;
use tonnage::engine::request::{Effect, Request};
use tonnage::engine::step_time::{StepCost, StepSetup};
use tonnage::engine::{Due, Engine};
use tonnage::fleet::Progress;
use tonnage::fleet::feed::Feed;
use tonnage::sizing::case::Case;
use tonnage::trace::lineage::Path;
use tonnage::trace::record::{
    After, AfterEvent, Base, Call, Cause, Finish, Item, Name, Session, SharedContext, Status, Trace,
};
use tonnage::units::{Blocks, RequestId, SegmentId, Span, Time, Tokens};

/// Agents at one engine. Each asks again a second after it has its answer, with all that was said
/// before, and starts afresh when that has become too long.
struct Agents {
    engine: FastEngine,
    contexts: Vec<Path>,
    segments: u32,
    /// Who asks next, and when: all pauses are alike.
    pauses: VecDeque<(Time, RequestId)>,
    effects: Vec<Effect>,
    calls: u64,
}

const AGENTS: u32 = 24;
const CONTEXT_MAX: u64 = 60_000;

impl Agents {
    fn new(blocks: u64, async_scheduling: bool) -> Self {
        let model = models::find("Llama-3.1-8B").unwrap();
        let cost = StepCost::new(&StepSetup {
            model: &model,
            gpu: gpus::find("h100-sxm").unwrap(),
            tp: 1,
            dp: 1,
            weights: WeightPrecision::Bits16,
            kv_dtype: KvDtype::Bf16,
        });
        let config = EngineConfig {
            block_size: 16,
            pool: Pool::Limited(Blocks(blocks)),
            window_blocks: Blocks::ZERO,
            max_num_seqs: 256,
            max_num_batched_tokens: Tokens(2_048),
            long_prefill_token_threshold: Tokens::ZERO,
            max_model_len: Tokens(131_072),
            enable_prefix_caching: true,
            policy: Policy::Fcfs,
            watermark: 0.0,
            async_scheduling,
            vllm: VllmVersion::scheduler("0.29").unwrap(),
            scheduler_reserve_full_isl: true,
        };
        Self {
            engine: FastEngine::new(config, cost.unwrap()),
            contexts: vec![Path::default(); AGENTS as usize],
            segments: 1,
            pauses: (0..AGENTS).map(|agent| (Time(u64::from(agent)), RequestId(agent))).collect(),
            effects: Vec::new(),
            calls: 0,
        }
    }

    /// Lets them make so many more calls.
    fn make(&mut self, calls: u64) {
        let upto = self.calls + calls;
        while self.calls < upto {
            let asks = self.pauses.front().map(|(at, _)| *at);
            match self.engine.due() {
                Some(Due::StepEnds(at)) if asks.is_none_or(|asks| at <= asks) => self.advance(at),
                Some(Due::StepStarts(at)) if asks.is_none_or(|asks| at < asks) => self.advance(at),
                _ => self.ask(),
            }
        }
    }

    fn advance(&mut self, now: Time) {
        self.engine.advance(now, &mut self.effects);
        self.engine.take_runs(|run, levels| assert!(run.steps > 0 && !levels.is_empty()));
        for effect in self.effects.drain(..) {
            if let Effect::Finished { request, .. } = effect {
                self.pauses.push_back((now + Span::from_secs(1), request));
            }
        }
    }

    fn ask(&mut self) {
        let (now, id) = self.pauses.pop_front().unwrap();
        let context = &mut self.contexts[id.index()];
        let new = 300 + self.calls * 7_919 % 900;
        let output = 20 + self.calls * 104_729 % 300;
        if context.len().0 + new + output > CONTEXT_MAX {
            // Tools and system prompt are the same for all.
            *context = Path::default();
            context.extend(SegmentId(0), Tokens(8_000));
            self.segments += 1;
        }
        let own = if context.is_empty() { 0 } else { self.segments };
        let last = context.runs().last().map_or(SegmentId(own), |run| run.segment);
        let trunk = if last == SegmentId(0) { SegmentId(self.segments) } else { last };
        let prompt = context.len() + Tokens(new);
        context.extend(trunk, prompt + Tokens(output));
        self.calls += 1;
        self.engine.submit(
            now,
            Request {
                id,
                path: context.clone(),
                prompt,
                output: Tokens(output),
                finish: Finish::Length,
                priority: 0,
            },
        );
    }
}

/// Once it has seen the load, an engine hardly asks for memory any more: what calls need is used
/// again. Lists and tables may grow by doubling now and then, and a build with assertions looks at
/// every block now and then; a call asks for nothing.
#[test]
fn no_memory_is_asked_for_by_call() {
    for (blocks, async_scheduling) in [(27_000, true), (27_000, false), (8_000, true)] {
        let mut agents = Agents::new(blocks, async_scheduling);
        agents.make(20_000);
        let asked = allocation_counter::measure(|| agents.make(20_000));
        assert!(
            asked.count_total <= if cfg!(debug_assertions) { 1_000 } else { 200 },
            "{blocks} blocks, async {async_scheduling}: memory was asked for {} times in 20,000 \
             calls, {} bytes in all",
            asked.count_total,
            asked.bytes_total
        );
    }
}

/// Sessions that start `apart` seconds apart, each of some calls that go on from one shared context
/// or from the call before.
fn sessions(number: u64, apart: u64) -> Trace {
    let shared = SharedContext {
        name: Name::from("tools"),
        base: None,
        kept_tokens: Tokens::ZERO,
        prompt_tokens: Tokens(8_000),
    };
    let sessions = (0..number).map(|session| {
        let mut calls: Vec<Call> = Vec::new();
        for call in 0..CALLS {
            let draw = (session * 31 + u64::from(call)) * 7_919;
            let before = calls.last();
            let kept = before.map_or(Tokens(8_000), |call| call.prompt_tokens + call.output_tokens);
            let at = Span::from_secs(session * apart + u64::from(call));
            let waits = before.map(|_| After { call: call - 1, event: AfterEvent::Finished });
            calls.push(Call {
                at,
                after: waits.into_iter().collect(),
                gap: if call > 0 { Span::from_secs(1) } else { Span::ZERO },
                base: if call > 0 { Base::Call(call - 1) } else { Base::Shared("tools".into()) },
                kept_tokens: kept,
                prompt_tokens: kept + Tokens(300 + draw % 900),
                output_tokens: Tokens(20 + draw % 301),
                turn: call / 4,
                ..a_call()
            });
        }
        Session { id: Name::from(format!("s{session}")), calls }
    });
    Trace { contexts: vec![shared], sessions: sessions.collect() }
}

const CALLS: u32 = 20;

fn a_call() -> Call {
    let nobody = Name::from("");
    Call {
        at: Span::ZERO,
        after: Vec::new(),
        gap: Span::ZERO,
        cause: Cause::Tool,
        turn: 0,
        lane: 0,
        model: Name::clone(&nobody),
        tenant: Name::clone(&nobody),
        user: Name::clone(&nobody),
        profile: nobody,
        base: Base::None,
        kept_tokens: Tokens::ZERO,
        prompt_tokens: Tokens(1),
        output_tokens: Tokens(1),
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

/// Times that a run of so many sessions asks for memory, reading apart.
fn asked_for(number: u64, apart: u64, router: &str, blocks: u64) -> u64 {
    let text = format!(
        "name = \"run\"\n[engine]\nmodel = \"Llama-3.1-8B\"\ngpu = \"h100-sxm\"\n\
         num_gpu_blocks_override = {blocks}\nmax_model_len = 49152\n[fleet]\nreplicas = 3\n\
         router = \"{router}\"\n[slo]\ntargets = [\"p95 ttft <= 10 s\"]\n"
    );
    let scenario = Scenario::parse(&text, "run", &["load.kind=trace".to_owned()]).unwrap();
    let case = Case::new(scenario, &sessions(number, apart), &[]).unwrap();
    let mut calls = 0;
    let asked = allocation_counter::measure(|| {
        let run = case.run(3, &Progress::default()).unwrap();
        calls = case.judge(&run).figures.units.calls;
    });
    assert_eq!(calls, number * u64::from(CALLS));
    asked.count_total
}

/// Nor does a whole run, once it has seen its load: twice as many sessions at the same rate ask for
/// hardly more, though sessions come and go, calls are routed and every figure is added up. Memory
/// follows open sessions, and here they end as fast as they start.
#[test]
fn no_memory_is_asked_for_by_call_of_a_whole_run() {
    let kinds = [
        ("session_affinity", 27_000, 4),
        ("least_loaded", 27_000, 4),
        ("least_loaded", 4_000, 15),
        ("prefix_aware", 8_000, 10),
    ];
    for (router, blocks, apart) in kinds {
        let [some, twice] = [500, 1_000].map(|number| asked_for(number, apart, router, blocks));
        let more = twice.saturating_sub(some);
        assert!(
            more <= 50,
            "{router}, {blocks} blocks: {some} times for 10,000 calls, {more} for 10,000 more"
        );
    }
}

/// Most of what is known of an open session is its plan. One of calls that go on one from another
/// takes hardly more than 16 bytes for each, beside what the session takes as a whole.
#[test]
fn a_planned_call_takes_few_bytes() {
    const SESSIONS: u64 = 400;
    let trace = sessions(SESSIONS, 1);
    let contexts = trace.contexts.iter().cloned().map(Item::Context);
    let items = contexts.chain(trace.sessions.iter().cloned().map(Item::Session)).map(Ok);
    let items: Vec<_> = items.collect();
    let mut plans = Vec::with_capacity(SESSIONS as usize);
    let feed = Feed::new(items.into_iter(), &BTreeMap::new()).in_closed_loop(true);
    plans.extend(feed.map(|arrival| arrival.unwrap().plan));
    assert_eq!(plans.len() as u64, SESSIONS);
    drop(trace);
    let held = allocation_counter::measure(|| drop(plans));
    let bytes = -held.bytes_current / (SESSIONS * u64::from(CALLS)) as i64;
    assert!(bytes <= 28, "{bytes} bytes a call");
}
