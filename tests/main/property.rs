//! What holds in every run, whatever is sent at whatever fleet: random workloads in tight pools.

mod extents;
mod kv_cache;

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use proptest::sample::Index;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use tonnage::config::faults::{FleetEvent, Happens};
use tonnage::config::router::{Latency, Memory, Pins, Release, RouterKind, Routing};
use tonnage::engine::config::{EngineConfig, Policy, Pool};
use tonnage::engine::fast::FastEngine;
use tonnage::engine::plain::PlainEngine;
use tonnage::fleet::workload::Workload;
use tonnage::fleet::{self, Progress, Run, Setup};
use tonnage::observe::records::{CallOutcome, CallRecord};
use tonnage::trace::record::{Base, Call, Cause, Finish, Status, Trace};
use tonnage::units::{Blocks, Span, Tokens};

use super::given::{With, call, engine_config, setup, trace_with};

/// Random numbers that become one call.
#[derive(Clone, Debug)]
struct CallSeed {
    /// What it continues: an earlier call, a shared context or nothing.
    base: Index,
    /// How much of that it keeps, in 64ths.
    kept: u64,
    new: u64,
    output: u64,
    /// Which earlier calls it waits for, bit by bit, and whether only for their dispatch.
    after: u8,
    dispatched_only: bool,
    gap_us: u64,
    lane: u32,
    new_turn: bool,
    failed: bool,
    by_length: bool,
    priority: i32,
    other_model: bool,
}

fn call_seed() -> impl Strategy<Value = CallSeed> {
    let new = prop_oneof![9 => 1u64..40, 1 => 100u64..200];
    let content = (any::<Index>(), 0u64..=64, new, 0u64..24);
    let waits = (any::<u8>(), prop::bool::weighted(0.15), 0u64..40_000, 0u32..3);
    let flags = (prop::bool::weighted(0.2), prop::bool::weighted(0.05), any::<bool>());
    (content, waits, flags, 0i32..3, prop::bool::weighted(0.1)).prop_map(
        |(
            (base, kept, new, output),
            (after, dispatched_only, gap_us, lane),
            flags,
            rank,
            model,
        )| {
            let (new_turn, failed, by_length) = flags;
            CallSeed {
                base,
                kept,
                new,
                output,
                after,
                dispatched_only,
                gap_us,
                lane,
                new_turn,
                failed,
                by_length,
                priority: rank,
                other_model: model,
            }
        },
    )
}

const CONTEXTS: [(&str, u64); 2] = [("tools", 37), ("talk", 64)];

/// The longest prompt and output together: the rest is cut off the prompt.
const LONGEST: u64 = 200;

/// A call after these, legal as traces go.
fn grow(seed: &CallSeed, number: usize, earlier: &[Call]) -> Call {
    let lane = if number == 0 { 0 } else { seed.lane };
    let main_turn = earlier.iter().rev().find(|call| call.lane == 0).map_or(0, |call| call.turn);
    let turn = main_turn + u32::from(seed.new_turn && lane == 0 && number > 0);
    let waits: Vec<usize> = (0..number).filter(|call| seed.after >> (call % 8) & 1 == 1).collect();
    let mut grown = call(0, seed.output).turn(turn).lane(lane);
    grown.cause = if lane > 0 { Cause::Subagent } else { Cause::Tool };
    grown.gap = Span::from_micros(seed.gap_us);
    if !waits.is_empty() {
        let mark = if seed.dispatched_only { "d" } else { "" };
        let entries: Vec<String> = waits.iter().map(|call| format!("{call}{mark}")).collect();
        grown = grown.after(&entries.join(";"));
    }
    let choice = seed.base.index(number + CONTEXTS.len() + 1);
    let length = if choice < number {
        let base = &earlier[choice];
        // An output is quoted only by a call that has waited for its end.
        let quotes = waits.contains(&choice) && !seed.dispatched_only;
        let output = if quotes { base.output_tokens.0 } else { 0 };
        grown.base = Base::Call(choice as u32);
        base.prompt_tokens.0 + output
    } else if let Some((name, tokens)) = CONTEXTS.get(choice - number) {
        grown.base = Base::Shared((*name).into());
        *tokens
    } else {
        0
    };
    let room = LONGEST - seed.output.max(1);
    let kept = (length * seed.kept / 64).min(room);
    grown.kept_tokens = Tokens(kept);
    grown.prompt_tokens = Tokens((kept + seed.new).min(room));
    grown.priority = seed.priority;
    grown.finish = if seed.by_length { Finish::Length } else { Finish::Stop };
    if seed.failed {
        grown.status = Status::Failed;
        grown.seen_duration = Some(Span::from_micros(seed.gap_us));
    }
    if seed.other_model {
        grown.model = "other".into();
    }
    grown
}

/// Any small trace that keeps the rules, whatever its calls are.
pub fn any_trace() -> impl Strategy<Value = Trace> {
    let session = (0u64..30, prop::collection::vec(call_seed(), 1..7));
    prop::collection::vec(session, 1..12).prop_map(|seeds| {
        let mut sessions: Vec<(u64, Vec<Call>)> = Vec::new();
        for (start, calls) in seeds {
            let mut grown = Vec::new();
            for (number, seed) in calls.iter().enumerate() {
                grown.push(grow(seed, number, &grown));
            }
            // The first call waits for the session's start only.
            grown[0].gap = Span::ZERO;
            sessions.push((start, grown));
        }
        sessions.sort_by_key(|(start, _)| *start);
        trace_with(CONTEXTS.to_vec(), sessions)
    })
}

fn any_engine() -> impl Strategy<Value = EngineConfig> {
    let sizes = (1u64..=16, 0u64..16, 0u64..3);
    let limits = (1usize..12, 1u64..160, prop_oneof![Just(0u64), 1u64..40]);
    let shares = prop_oneof![Just(0.0), 0.0..0.5f64];
    (sizes, limits, any::<(bool, bool, bool, bool)>(), shares, 0u64..40).prop_map(
        |((block_size, spare, window), (seqs, budget, threshold), flags, watermark, shorter)| {
            let (caching, by_priority, whole, ahead) = flags;
            // Some of the longest calls do not fit in the context and are rejected.
            let max_model_len = LONGEST - shorter;
            let needed = Tokens(max_model_len).blocks_ceil(block_size).0 + window;
            let mut engine = engine_config();
            engine.block_size = block_size;
            engine.pool = Pool::Limited(Blocks(1 + needed + spare));
            engine.window_blocks = Blocks(window);
            engine.max_num_seqs = seqs;
            engine.max_num_batched_tokens = Tokens(budget);
            engine.long_prefill_token_threshold = Tokens(threshold);
            engine.max_model_len = Tokens(max_model_len);
            engine.enable_prefix_caching = caching;
            engine.policy = if by_priority { Policy::Priority } else { Policy::Fcfs };
            engine.watermark = watermark;
            engine.scheduler_reserve_full_isl = whole;
            engine.async_scheduling = ahead;
            engine
        },
    )
}

/// Tables, memories and thresholds small enough to matter.
fn any_routing() -> impl Strategy<Value = Routing> {
    let pins = (1u64..6, 1u64..5_000, 1u64..4, any::<bool>()).prop_map(
        |(size, millis, workers, shared)| Pins {
            size,
            ttl: Span::from_millis(millis),
            workers,
            shared,
        },
    );
    let memory = (1u64..1_000, 1u64..5_000)
        .prop_map(|(tokens, ms)| Memory { tokens: Tokens(tokens), ttl: Span::from_millis(ms) });
    let release = (prop::option::of(0u64..200), prop::option::of(1u64..4))
        .prop_map(|(uncached, margin)| Release { uncached: uncached.map(Tokens), margin });
    let weights = prop::collection::vec(1u64..5, 0..4);
    let latency = prop::sample::select(vec![Latency::Ttft, Latency::PerToken]);
    (prop::option::of(pins), 0u64..3_000, memory, release, weights, latency).prop_map(
        |(pins, prefill_weight, memory, release, weights, latency)| Routing {
            pins,
            prefill_weight,
            memory,
            release,
            weights,
            latency,
        },
    )
}

fn any_event() -> impl Strategy<Value = FleetEvent> {
    let short = || (0u64..3_000).prop_map(Span::from_millis);
    let happens =
        (0u32..4, prop::option::of(short()), 0..4).prop_map(|(replica, after, kind)| match kind {
            0 => Happens::Lost { replica, restart: after },
            1 => Happens::Drained { replica, restart: after },
            2 => Happens::Added { replica },
            _ => Happens::RollingUpdate { drain: after },
        });
    (short(), happens, short()).prop_map(|(at, happens, start)| FleetEvent {
        at,
        happens,
        start,
        pool: None,
    })
}

fn on_one_of(mut event: FleetEvent, replicas: u32) -> FleetEvent {
    match &mut event.happens {
        Happens::Lost { replica, .. }
        | Happens::Drained { replica, .. }
        | Happens::Added { replica } => *replica %= replicas,
        Happens::RollingUpdate { .. }
        | Happens::RedisOutage { .. }
        | Happens::DatabaseSlow { .. } => {}
    }
    event
}

pub fn any_setup() -> impl Strategy<Value = Setup> {
    let router = prop::sample::select(RouterKind::ALL.map(|(_, kind)| kind).to_vec());
    (any_engine(), router, any_routing(), 1u32..=4, 0u64..1_000).prop_map(
        |(engine, router, routing, replicas, seed)| Setup {
            engine,
            router,
            routing,
            replicas,
            seed,
            ..setup()
        },
    )
}

fn played(setup: &Setup, workload: &Workload) -> Run {
    let engine = || PlainEngine::new(setup.engine.clone(), setup.cost.clone());
    fleet::run(setup, workload, engine, &Progress::default())
}

/// A token by name: the model, the session and call that wrote it, its position.
type Token = (usize, usize, usize, u64);

/// Every token of every call's context, by session and call.
fn contents(trace: &Trace) -> Vec<Vec<Vec<Token>>> {
    const SHARED: usize = usize::MAX;
    let mut all = Vec::new();
    for (session, calls) in trace.sessions.iter().enumerate() {
        let mut texts: Vec<Vec<Token>> = Vec::new();
        for (number, call) in calls.calls.iter().enumerate() {
            let model = usize::from(&*call.model == "other");
            let base = match &call.base {
                Base::None => Vec::new(),
                Base::Call(base) => texts[*base as usize].clone(),
                Base::Shared(name) => {
                    let context = CONTEXTS.iter().position(|(known, _)| **known == **name).unwrap();
                    (0..CONTEXTS[context].1).map(|at| (0, SHARED, context, at)).collect()
                }
            };
            let kept = base.into_iter().take(call.kept_tokens.0 as usize);
            let mut text: Vec<_> = kept.map(|(_, a, b, at)| (model, a, b, at)).collect();
            let length = call.prompt_tokens.0 + call.output_tokens.0.max(1);
            text.extend((text.len() as u64..length).map(|at| (model, session, number, at)));
            texts.push(text);
        }
        all.push(texts);
    }
    all
}

fn agree<T: Eq>(a: &[T], b: &[T]) -> u64 {
    a.iter().zip(b).take_while(|(a, b)| a == b).count() as u64
}

/// Each call ended once, in order, with its tokens accounted for.
fn check_calls(trace: &Trace, setup: &Setup, run: &Run) -> Result<(), TestCaseError> {
    let block_size = setup.engine.block_size;
    let mut seen = BTreeSet::new();
    for record in &run.records.calls {
        prop_assert!(seen.insert((record.play, record.call)), "a call ended twice");
        let call = &trace.sessions[record.session as usize].calls[record.call as usize];
        let times = [
            record.dispatched,
            record.queued,
            record.scheduled,
            record.first_token,
            record.last_token,
            record.ended,
        ];
        let fits = call.prompt_tokens + call.output_tokens.max_1() <= setup.engine.max_model_len;
        let expected = match call.status {
            Status::Failed => CallOutcome::RecordedFailure,
            _ if fits => CallOutcome::Completed,
            _ => CallOutcome::Rejected,
        };
        prop_assert_eq!(record.outcome, expected);
        if record.outcome != CallOutcome::Completed {
            prop_assert_eq!((record.prefilled, record.output), (Tokens(0), Tokens(0)));
            prop_assert_eq!(record.replica, None);
            continue;
        }
        prop_assert!(times.is_sorted(), "{times:?}");
        prop_assert!(record.scheduled < record.first_token);
        prop_assert_eq!(record.prompt, call.prompt_tokens);
        prop_assert_eq!(record.output, call.output_tokens.max_1());
        prop_assert!(record.cached < record.prompt);
        prop_assert_eq!(record.cached.0 % block_size, 0);
        prop_assert!(record.cached <= record.ceiling);
        prop_assert!(setup.engine.enable_prefix_caching || record.cached == Tokens(0));
        if record.preemptions == 0 {
            prop_assert_eq!(record.prefilled + record.cached, record.prompt);
            prop_assert_eq!(record.lost, Tokens(0));
        }
        // Whatever was lost was prefilled, decoded or found in the cache before.
        prop_assert!(record.lost.0 <= u64::from(record.preemptions) * LONGEST);
    }
    let calls: usize = trace.sessions.iter().map(|session| session.calls.len()).sum();
    prop_assert_eq!(seen.len(), calls);
    let cut_off = run.cut_off;
    prop_assert_eq!([cut_off.calls, cut_off.turns, cut_off.tasks], [0; 3]);
    Ok(())
}

trait AtLeastOne {
    fn max_1(self) -> Self;
}

impl AtLeastOne for Tokens {
    /// An empty output is sent as one token.
    fn max_1(self) -> Self {
        self.max(Self(1))
    }
}

/// No hit, and no ceiling of hits, is longer than what an earlier call had in common with it.
fn check_hits(trace: &Trace, setup: &Setup, run: &Run) -> Result<(), TestCaseError> {
    let texts = contents(trace);
    let text = |call: &CallRecord| &texts[call.session as usize][call.call as usize];
    let completed = || run.records.calls.iter().filter(|c| c.outcome == CallOutcome::Completed);
    for record in completed() {
        let earlier = completed().filter(|other| {
            let itself = (other.play, other.call) == (record.play, record.call);
            !itself && other.scheduled <= record.scheduled
        });
        let computed = |other: &CallRecord| (other.prompt.0 + other.output.0 - 1) as usize;
        let longest = |other: &CallRecord| {
            agree(&text(other)[..computed(other)], &text(record)[..record.prompt.0 as usize])
        };
        let most = earlier.clone().map(longest).max().unwrap_or(0).min(record.prompt.0 - 1);
        let whole = |tokens: u64| Tokens(tokens).blocks_floor(setup.engine.block_size);
        let most = whole(most).tokens(setup.engine.block_size);
        prop_assert!(record.ceiling <= most, "{} of at most {most}", record.ceiling);
        // On its own replica, for the hit itself.
        let there = earlier.filter(|other| other.replica == record.replica);
        let hit = whole(there.map(longest).max().unwrap_or(0)).tokens(setup.engine.block_size);
        prop_assert!(record.cached <= hit, "{} of at most {hit}", record.cached);
    }
    Ok(())
}

/// Tasks are their turns, and no replica works longer than there is time.
fn check_sums(trace: &Trace, setup: &Setup, run: &Run) -> Result<(), TestCaseError> {
    prop_assert_eq!(run.records.tasks.len(), trace.sessions.len());
    for task in &run.records.tasks {
        let turns = || run.records.turns.iter().filter(|turn| turn.play == task.play);
        prop_assert_eq!(task.task, turns().map(|turn| turn.turn()).sum());
        prop_assert_eq!(task.task_llm, turns().map(|turn| turn.turn_llm()).sum());
        prop_assert!(task.task_llm <= task.task);
        prop_assert_eq!(task.turns as usize, turns().count());
        // Tool time lies inside its turn: nothing had to be clipped.
        prop_assert!(turns().all(|turn| turn.tool <= turn.turn()));
        prop_assert_eq!(task.failed, turns().any(|turn| turn.failed));
    }
    let length = run.window.until - run.window.from;
    let usable = setup.engine.usable_blocks().unwrap().0;
    for replica in &run.replicas {
        prop_assert!(replica.busy <= length && replica.decode <= replica.busy);
        prop_assert!(replica.kv_blocks.max().unwrap_or(0) <= usable);
    }
    let prefilled: Tokens = run.records.calls.iter().map(|call| call.prefilled).sum();
    prop_assert_eq!(run.replicas.iter().map(|r| r.prefill_tokens).sum::<Tokens>(), prefilled);
    Ok(())
}

/// Workloads in which nothing happens would keep every rule.
#[test]
fn the_workloads_are_eventful() {
    let mut runner = TestRunner::deterministic();
    let (mut hits, mut preemptions, mut evictions, mut rejections) = (0, 0, 0, 0);
    for _ in 0..200 {
        let trace = any_trace().new_tree(&mut runner).unwrap().current();
        let setup = any_setup().new_tree(&mut runner).unwrap().current();
        let run = played(&setup, &Workload::new(&trace, &BTreeMap::new()));
        let calls = &run.records.calls;
        hits += u32::from(calls.iter().any(|call| call.cached > Tokens(0)));
        preemptions += u32::from(calls.iter().any(|call| call.preemptions > 0));
        evictions += u32::from(run.evicted_blocks() > 0);
        rejections += u32::from(calls.iter().any(|call| call.outcome == CallOutcome::Rejected));
    }
    let counts = [hits, preemptions, evictions, rejections];
    assert!(counts.iter().all(|count| *count >= 20), "{counts:?}");
}

/// So many cases in an ordinary run; `TONNAGE_CASES` asks for another number.
pub fn cases(usual: u32) -> u32 {
    let asked = std::env::var("TONNAGE_CASES").ok();
    asked.and_then(|cases| cases.parse().ok()).unwrap_or(usual)
}

/// So many cases, new ones every time; a failure prints its input, and no file is written.
pub fn config(cases: u32) -> ProptestConfig {
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(config(300))]

    #[test]
    fn every_run_keeps_its_books(trace in any_trace(), setup in any_setup()) {
        let workload = Workload::new(&trace, &BTreeMap::new());
        let run = played(&setup, &workload);
        prop_assert_eq!(&run.stuck, &None);
        check_calls(&trace, &setup, &run)?;
        check_hits(&trace, &setup, &run)?;
        check_sums(&trace, &setup, &run)?;
    }

    #[test]
    fn the_same_seed_gives_the_same_records(trace in any_trace(), setup in any_setup()) {
        let workload = Workload::new(&trace, &BTreeMap::new());
        let (once, again) = (played(&setup, &workload), played(&setup, &workload));
        prop_assert_eq!(once.records.calls, again.records.calls);
        prop_assert_eq!(once.records.turns, again.records.turns);
        prop_assert_eq!(once.records.tasks, again.records.tasks);
        prop_assert_eq!(once.engines, again.engines);
    }

    /// Whatever the router sees of the engines, it sees the same of both.
    #[test]
    fn the_fast_engine_gives_the_same_fleet(trace in any_trace(), setup in any_setup()) {
        let workload = Workload::new(&trace, &BTreeMap::new());
        let plain = played(&setup, &workload);
        let engine = || FastEngine::new(setup.engine.clone(), setup.cost.clone());
        let fast = fleet::run(&setup, &workload, engine, &Progress::default());
        prop_assert_eq!(plain.records.calls, fast.records.calls);
        prop_assert_eq!(plain.records.tasks, fast.records.tasks);
        prop_assert_eq!(plain.engines, fast.engines);
        prop_assert_eq!(format!("{:?}", plain.replicas), format!("{:?}", fast.replicas));
    }

    /// Whatever happens to replicas, every call ends once, and both engines tell the same.
    #[test]
    fn replicas_come_and_go(
        trace in any_trace(),
        setup in any_setup(),
        events in prop::collection::vec(any_event(), 1..5),
    ) {
        let mut events: Vec<FleetEvent> =
            events.into_iter().map(|event| on_one_of(event, setup.replicas)).collect();
        events.sort_by_key(|event| event.at);
        let setup = Setup { events, ..setup };
        let workload = Workload::new(&trace, &BTreeMap::new());
        let plain = played(&setup, &workload);
        let calls: usize = trace.sessions.iter().map(|session| session.calls.len()).sum();
        let ended = plain.records.calls.iter().map(|call| (call.play, call.call));
        prop_assert_eq!(ended.collect::<BTreeSet<_>>().len(), calls);
        prop_assert_eq!(plain.records.calls.len(), calls);
        prop_assert_eq!(plain.records.tasks.len(), trace.sessions.len());
        for call in &plain.records.calls {
            if call.outcome == CallOutcome::Completed && call.preemptions == 0 {
                prop_assert_eq!(call.prefilled + call.cached, call.prompt);
            }
        }
        let engine = || FastEngine::new(setup.engine.clone(), setup.cost.clone());
        let fast = fleet::run(&setup, &workload, engine, &Progress::default());
        prop_assert_eq!(plain.records.calls, fast.records.calls);
        prop_assert_eq!(plain.records.tasks, fast.records.tasks);
        prop_assert_eq!(plain.engines, fast.engines);
        prop_assert_eq!(format!("{:?}", plain.replicas), format!("{:?}", fast.replicas));
    }

    /// A cache that never evicts, on one replica, is the ceiling, where calls do not overlap.
    #[test]
    fn an_unlimited_cache_reaches_the_ceiling(trace in any_trace(), engine in any_engine()) {
        let mut calls = trace;
        for session in &mut calls.sessions {
            session.calls.truncate(1);
        }
        calls.sessions.sort_by_key(|session| session.calls[0].at);
        for (minute, session) in (0u64..).zip(&mut calls.sessions) {
            session.calls[0].at = Span::from_secs(60 * minute);
        }
        let engine = EngineConfig { pool: Pool::Unlimited, enable_prefix_caching: true, ..engine };
        let setup = Setup { engine, ..setup() };
        let run = played(&setup, &Workload::new(&calls, &BTreeMap::new()));
        for call in &run.records.calls {
            prop_assert_eq!(call.cached, call.ceiling);
            prop_assert_eq!(call.recomputed(), Tokens(0));
        }
    }
}
