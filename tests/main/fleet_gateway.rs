//! The gateway in front of a fleet, from the clients to the engines and back.

use std::collections::BTreeMap;

use proptest::prelude::*;
use tonnage::config::faults::{FleetEvent, Happens};
use tonnage::config::gateway::clients::{Clients, TokenPrice};
use tonnage::config::gateway::{Admission, CountCost, CountPlace, Counting, Database};
use tonnage::config::gateway::{FrontEnd, GatewayConfig, Redis};
use tonnage::config::scenario::{Client, RouterKind};
use tonnage::engine::config::EngineConfig;
use tonnage::fleet::admission::Limits;
use tonnage::fleet::arrivals::Sessions;
use tonnage::fleet::workload::Workload;
use tonnage::fleet::{GatewayUse, Progress, Run, Setup, simulate};
use tonnage::gateway::client::worst_case_attempts;
use tonnage::observe::records::{CallOutcome, Records};
use tonnage::rng::{Purpose, Stream};
use tonnage::trace::record::{Call, Trace};
use tonnage::units::{Span, Time};

use super::given::{With, call, lasting, record, setup, trace};

/// A proxy that takes no time itself and pins sessions.
pub fn quick() -> FrontEnd {
    let mut gateway = GatewayConfig { request_cpu: Span::ZERO, ..GatewayConfig::default() };
    gateway.routing.session_affinity = true;
    FrontEnd { gateway, clients: Clients::default() }
}

pub fn behind(front: FrontEnd, replicas: u32) -> Setup {
    Setup { gateway: Some(front), replicas, every_step: false, ..setup() }
}

pub fn played(setup: &Setup, trace: &Trace) -> Run {
    let workload = Workload::new(trace, &BTreeMap::new());
    let sessions = Sessions::Held(&workload);
    let run = simulate(setup, sessions, Records::default(), None, &Progress::default());
    assert_eq!(run.stuck, None);
    run
}

/// The run, and that it is the same with every step taken by itself, and the same again.
pub fn played_alike(setup: &Setup, trace: &Trace) -> Run {
    let run = played(setup, trace);
    let told = |run: &Run| {
        let uses = (&run.gateway, &run.scaling, &run.replicas, &run.engines, &run.cut_off);
        format!("{:?} {uses:?} {:?} {:?}", run.records, run.window, run.burst)
    };
    let every_step = Setup { every_step: true, ..setup.clone() };
    assert_eq!(told(&run), told(&played(&every_step, trace)), "every step");
    assert_eq!(told(&run), told(&played(setup, trace)), "the same again");
    run
}

pub fn use_of(run: &Run) -> &GatewayUse {
    run.gateway.as_ref().unwrap()
}

/// Every request that came to the gateway ended once, and every call has one end.
pub fn assert_nothing_is_lost(run: &Run, calls: usize) {
    for call in run.records.calls.iter().filter(|c| c.outcome == CallOutcome::Completed) {
        let missed: u64 = call.missed.parts().iter().map(|part| u64::from(*part)).sum();
        assert_eq!(missed, (call.ceiling - call.cached).0, "{call:?}");
    }
    let counts = &use_of(run).counts;
    let records = &run.records.calls;
    assert_eq!(records.len(), calls);
    assert_eq!((use_of(run).open, counts.offered), (0, counts.ended()));
    let sum = |of: fn(&tonnage::observe::records::CallRecord) -> u32| -> u64 {
        records.iter().map(|record| u64::from(of(record))).sum()
    };
    let completed = |outcome| records.iter().filter(|r| r.outcome == outcome).count() as u64;
    let answered = completed(CallOutcome::Completed);
    assert_eq!(counts.answered, answered);
    assert_eq!(counts.offered, answered + sum(|record| record.refusals));
    assert_eq!(counts.attempts, sum(|record| record.attempts));
    let given_up = completed(CallOutcome::Refused) + completed(CallOutcome::Rejected);
    assert_eq!(counts.given_up, given_up);
    assert_eq!(
        counts.asked_again + calls as u64,
        counts.offered + completed(CallOutcome::RecordedFailure)
    );
    // Behind those of the replicas are engines that were lost with what they had.
    for engine in &run.engines[..run.replicas.len()] {
        let left = (engine.num_requests_running, engine.num_requests_waiting);
        assert_eq!((left, engine.kv_cache_usage_perc), ((0, 0), 0.0));
    }
}

/// Sessions of some calls each that go on after pauses by chance.
fn sessions(count: u64, calls: u32, gap_ms: u64) -> Trace {
    let session = |number| {
        let mut chance = Stream::new(5, Purpose::SessionGaps, number);
        let mut gap = || (-chance.uniform_f64().max(1e-9).ln() * gap_ms as f64) as u64;
        let calls: Vec<Call> = (0..calls)
            .map(|at| match at {
                0 => call(20, 1).gap(gap()),
                _ => call(20, 1).after(&(at - 1).to_string()).gap(gap()),
            })
            .collect();
        (0, calls)
    };
    let mut all: Vec<(u64, Vec<Call>)> = (0..count).map(session).collect();
    all.sort_by_key(|(_, calls)| calls[0].gap);
    trace(all)
}

/// Calls of some 20 s that all come at once.
fn burst(calls: u64) -> Trace {
    trace((0..calls).map(|at| (at, vec![call(8_000, 2_000)])).collect())
}

fn at(seconds: u64, happens: Happens) -> FleetEvent {
    FleetEvent { at: Span::from_secs(seconds), happens, start: Span::ZERO, pool: None }
}

/// On one replica the choice is none, so everything is the same: to the nanosecond.
#[test]
fn a_gateway_that_takes_no_time_changes_nothing() {
    let trace = sessions(12, 9, 700);
    let with = played_alike(&behind(quick(), 1), &trace);
    let without = played(&Setup { every_step: false, ..setup() }, &trace);
    assert_eq!(with.records.calls, without.records.calls);
    assert_eq!(with.records.tasks, without.records.tasks);
    assert_eq!(format!("{:?}", with.replicas), format!("{:?}", without.replicas));
    assert_nothing_is_lost(&with, 12 * 9);
}

/// On several the first choice of each session is by another chance; then it stays.
#[test]
fn sessions_stay_where_their_first_call_went() {
    let trace = sessions(40, 12, 700);
    let with = played_alike(&behind(quick(), 4), &trace);
    let router = Setup { replicas: 4, router: RouterKind::SessionAffinity, ..setup() };
    for run in [&with, &played(&router, &trace)] {
        for session in 0..40 {
            let first = record(run, session, 0).replica;
            assert!((1..12).all(|call| record(run, session, call).replica == first));
        }
    }
    assert_eq!(use_of(&with).counts.stay_share(), Some(1.0));
}

/// The measured cliff, through the whole fleet: with 200 entries and n live sessions in random
/// order, c + (1 - c) / R of the calls stay, where c is 200 / n.
#[test]
fn beyond_200_sessions_a_worker_pins_are_lost() {
    for (live, measured) in [(180, 1.0), (300, 0.76), (400, 0.63), (800, 0.42)] {
        let trace = sessions(live, 36, 20_000);
        let setup = Setup {
            warmup: Span::from_secs(100),
            window: Some(Span::from_secs(420)),
            ..behind(quick(), 4)
        };
        let run = played(&setup, &trace);
        let stay = use_of(&run).counts.stay_share().unwrap();
        let c = (200.0 / live as f64).min(1.0);
        let rule = c + (1.0 - c) / 4.0;
        assert!((stay - rule).abs() < 0.02, "{live}: {stay:.3}, by the rule {rule:.3}");
        assert!((stay - measured).abs() < 0.04, "{live}: {stay:.3}, measured {measured}");
        let counts = &use_of(&run).counts;
        assert_eq!(counts.evicted_pins > 0, live > 200);
    }
}

#[test]
fn what_admission_has_no_room_for_is_asked_for_again_until_the_client_gives_up() {
    let mut front = quick();
    let timeout = Span::from_secs(1);
    front.gateway.admission = Some(Admission { max_in_flight: 2, max_queued: 1, timeout });
    let run = played_alike(&behind(front.clone(), 2), &burst(8));
    assert_nothing_is_lost(&run, 8);
    let counts = use_of(&run).counts;
    let outcome = |call| record(&run, call, 0).outcome;
    assert_eq!([outcome(0), outcome(1)], [CallOutcome::Completed; 2]);
    assert!((2..8).all(|call| outcome(call) == CallOutcome::Refused));
    // Each of six asks three times, by the second, and two slots stay taken for 20 s.
    assert_eq!((counts.rejected, counts.attempts, counts.given_up), (18, 2, 6));
    // Those who ask for long enough all get through.
    let patient = Client { max_retries: 200, ..setup().client };
    let run = played_alike(&Setup { client: patient, ..behind(front, 2) }, &burst(8));
    assert_nothing_is_lost(&run, 8);
    assert_eq!(use_of(&run).counts.given_up, 0);
    let last = record(&run, 7, 0);
    assert!(last.ttft() > Span::from_secs(20) && last.attempts == 1, "{last:?}");
    assert!(last.engine_ttft() < Span::from_secs(2));
    // What its client waited between its requests is not the gateway's time.
    assert!(last.before_send() <= Span::from_secs(1), "{last:?}");
}

/// Clients that ignore `retry-after` come back after half a second at first, those that honour it
/// after one.
#[test]
fn clients_that_ignore_retry_after_offer_more() {
    let offered = |honour| {
        let mut front = quick();
        let timeout = Span::ZERO;
        front.gateway.admission = Some(Admission { max_in_flight: 1, max_queued: 0, timeout });
        front.clients.honour_retry_after = honour;
        let retry_base = Span::from_millis(100);
        let client = Client { max_retries: 500, retry_base, retry_max: retry_base };
        let setup = Setup { client, ..behind(front, 1) };
        let run = played_alike(&setup, &burst(4));
        assert_nothing_is_lost(&run, 4);
        use_of(&run).counts.offered
    };
    let (honouring, ignoring) = (offered(true), offered(false));
    // From 10 to 13.3 times as often, and each waits for the end of others.
    assert!(ignoring > 9 * honouring && ignoring < 14 * honouring, "{honouring}, {ignoring}");
}

/// Router and SDK with two retries each below an agent that starts five times: 45 attempts.
#[test]
fn layers_of_retries_multiply() {
    let mut front = quick();
    front.clients.agent_retries = 4;
    front.clients.agent_wait = Span::from_secs(1);
    let events = vec![at(0, Happens::Lost { replica: 0, restart: None })];
    let run =
        played_alike(&Setup { events, ..behind(front, 1) }, &trace(vec![(5, vec![call(9, 1)])]));
    assert_nothing_is_lost(&run, 1);
    let call = record(&run, 0, 0);
    assert_eq!(u64::from(call.attempts), worst_case_attempts(&[2, 2, 4]));
    assert_eq!((call.refusals, call.outcome, call.replica), (15, CallOutcome::Refused, None));
    // A connection that fails never sends a deployment away.
    assert_eq!(use_of(&run).counts.cooldowns, 0);
}

/// A lost replica stays in the list. Its session is pinned there and fails until it is back, others
/// are tried elsewhere.
#[test]
fn the_gateway_does_not_know_that_a_replica_is_lost() {
    let calls = || vec![call(800, 20), call(1_000, 20).after("0").gap(10_000)];
    let two = trace((0..30).map(|start| (start, calls())).collect());
    let events = vec![at(5, Happens::Lost { replica: 1, restart: Some(Span::from_secs(60)) })];
    let mut front = quick();
    let pinned = played_alike(&Setup { events: events.clone(), ..behind(front.clone(), 3) }, &two);
    assert_nothing_is_lost(&pinned, 60);
    for session in 0..30 {
        let there = record(&pinned, session, 0).replica.unwrap().0 == 1;
        let second = record(&pinned, session, 1);
        assert_eq!(second.outcome == CallOutcome::Refused, there, "{second:?}");
        assert!(!there || second.attempts == 9, "{second:?}");
    }
    front.gateway.routing.session_affinity = false;
    let free = played_alike(&Setup { events, ..behind(front, 3) }, &two);
    assert_nothing_is_lost(&free, 60);
    let refused = |run: &Run| use_of(run).counts.given_up;
    assert!(refused(&free) < refused(&pinned), "{} {}", refused(&free), refused(&pinned));
    assert!(use_of(&free).counts.retried > 0);
}

/// Calls that are under way when their replica is lost fail there; a stream that had begun is not
/// tried again by the gateway, but by its client.
#[test]
fn calls_under_way_on_a_lost_replica() {
    let events = vec![at(5, Happens::Lost { replica: 0, restart: Some(Span::ZERO) })];
    for (streams, refusals) in [(true, 1), (false, 0)] {
        let mut front = quick();
        front.clients.streams = streams;
        let run = played_alike(&Setup { events: events.clone(), ..behind(front, 1) }, &burst(1));
        assert_nothing_is_lost(&run, 1);
        let call = record(&run, 0, 0);
        assert_eq!((call.losses, call.refusals, call.attempts), (1, refusals, 2));
        assert_eq!((call.outcome, call.output.0), (CallOutcome::Completed, 2_000));
    }
}

/// An answer that takes longer than the gateway's patience is hung up on, again and again: the
/// engine does the work for nothing and forgets it.
#[test]
fn what_the_gateway_hangs_up_on_is_taken_back_from_the_engine() {
    let mut front = quick();
    front.clients.streams = false;
    front.gateway.request_timeout = Span::from_secs(5);
    let run = played_alike(&behind(front.clone(), 1), &burst(3));
    assert_nothing_is_lost(&run, 3);
    let counts = use_of(&run).counts;
    assert_eq!((counts.timeouts, counts.attempts, counts.answered), (27, 27, 0));
    // Nine attempts of 5 s after one another, more or less beside those of the others.
    let busy = run.replicas[0].busy.secs();
    assert!((44.9..60.0).contains(&busy), "{busy} s");
    // A stream gives a sign of life with its first token.
    front.clients.streams = true;
    let run = played_alike(&behind(front, 1), &burst(3));
    assert_eq!(use_of(&run).counts.answered, 3);
}

/// Clients that wait six seconds for an answer to begin, in front of an engine that serves one call
/// of 20 s after the other: who comes later hangs up, and asks again as after a refusal.
#[test]
fn clients_hang_up_when_no_answer_begins_in_time() {
    let mut front = quick();
    front.clients.timeout = Some(Span::from_secs(6));
    let engine = EngineConfig { max_num_seqs: 1, ..setup().engine };
    let one = Setup { engine, ..behind(front.clone(), 1) };
    let run = played_alike(&one, &burst(4));
    assert_nothing_is_lost(&run, 4);
    let outcome = |call| record(&run, call, 0).outcome;
    assert_eq!(outcome(0), CallOutcome::Completed);
    let counts = use_of(&run).counts;
    // Three requests of 6 s each, with short waits between: one of the three gets its turn at 20 s.
    assert_eq!(counts.hung_up, counts.forgotten);
    assert_eq!(counts.answered + counts.forgotten, counts.offered);
    let completed = (0..4).filter(|call| outcome(*call) == CallOutcome::Completed).count();
    assert!((1..=2).contains(&completed), "{counts:?}");
    let refused = (1..4).map(|call| record(&run, call, 0)).find(|call| call.refusals == 3);
    assert_eq!(refused.unwrap().outcome, CallOutcome::Refused);
    // One that is the first thing in the window counts in it: the second call has waited for 6 s.
    let late = Setup {
        warmup: Span::from_millis(6_001),
        window: Some(Span::from_secs(300)),
        ..one.clone()
    };
    let counts = use_of(&played_alike(&late, &burst(4))).counts;
    assert_eq!(counts.hung_up, counts.forgotten);
    // Patient ones all get through, and a stream that has begun is not hung up on.
    front.clients.timeout = Some(Span::from_secs(90));
    let one = Setup { gateway: Some(front), ..one };
    let run = played_alike(&one, &burst(4));
    assert_eq!((use_of(&run).counts.hung_up, use_of(&run).counts.answered), (0, 4));
}

#[test]
fn a_prompt_that_is_too_long_is_refused_by_the_replica() {
    let run = played_alike(&behind(quick(), 2), &trace(vec![(0, vec![call(10_000_000, 1)])]));
    assert_nothing_is_lost(&run, 1);
    let call = record(&run, 0, 0);
    assert_eq!((call.outcome, call.attempts, call.refusals), (CallOutcome::Rejected, 1, 1));
}

#[test]
fn the_gateways_time_comes_before_the_engines() {
    let mut front = quick();
    front.gateway.request_cpu = Span::from_millis(15);
    front.gateway.counting =
        Counting { place: CountPlace::EventLoop, cost: CountCost::PESSIMISTIC };
    front.clients.is_counted = true;
    let run = played_alike(&behind(front, 1), &burst(2));
    // Both take 15 ms on the loop before the first one's count of 8.016 ms is done there. The
    // second came 1 ms later.
    let sent = [0, 1].map(|session| record(&run, session, 0).before_send());
    assert_eq!(sent[0].0, 30_000_000 + 8_016_000, "{sent:?}");
    assert_eq!(sent[1].0, 29_000_000 + 2 * 8_016_000, "{sent:?}");
    let gateway = use_of(&run);
    assert_eq!(gateway.cpu_used.0, 2 * (15_000_000 + 8_016_000));
    assert_eq!((gateway.counts.token_counts, gateway.counter_busy.0), (2, 16_032_000));
    assert_eq!((gateway.pods.mean, gateway.pods.max), (1.0, 1));
}

#[test]
fn rows_of_a_queue_without_room_are_lost_with_their_money() {
    let mut front = quick();
    front.gateway.database = Some(Database { insert: Span::from_secs(50), ..Database::default() });
    front.gateway.spend.max_bytes = front.gateway.spend.row_bytes;
    front.clients.price = TokenPrice { input: 1_000_000, output: 5_000_000 };
    let run = played_alike(&behind(front, 1), &sessions(50, 2, 900));
    assert_nothing_is_lost(&run, 100);
    let GatewayUse { counts, spend_rows_waiting, .. } = use_of(&run);
    assert!(counts.spend_rows_lost > 50, "{counts:?}");
    assert_eq!(counts.spend_nanos_lost, counts.spend_rows_lost * (20 * 1_000 + 5_000));
    assert!(counts.spend_rows_written + counts.spend_rows_lost + spend_rows_waiting <= 100);
}

pub fn any_front() -> impl Strategy<Value = FrontEnd> {
    let admission = prop::option::of((1u32..4, 0u32..3, 0u64..3_000));
    let switches = (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>());
    let times = (0u64..40, 1u64..60, prop::option::of(1u64..90));
    (admission, switches, 1u32..3, times).prop_map(
        |(admission, (pins, streams, honour, database, redis), workers, times)| {
            let (cpu_ms, timeout_s, patience_s) = times;
            let mut front = quick();
            let gateway = &mut front.gateway;
            gateway.admission = admission.map(|(max_in_flight, max_queued, ms)| Admission {
                max_in_flight,
                max_queued,
                timeout: Span::from_millis(ms),
            });
            gateway.routing.session_affinity = pins;
            gateway.workers = workers;
            gateway.request_cpu = Span::from_millis(cpu_ms);
            gateway.request_timeout = Span::from_secs(timeout_s);
            gateway.database = database.then(Database::default);
            gateway.redis = redis.then(Redis::default);
            front.clients.timeout = patience_s.map(Span::from_secs);
            front.clients.streams = streams;
            front.clients.honour_retry_after = honour;
            front
        },
    )
}

pub fn any_happens() -> impl Strategy<Value = Vec<FleetEvent>> {
    let lost = (0u32..3, prop::option::of(0u64..20))
        .prop_map(|(replica, s)| Happens::Lost { replica, restart: s.map(Span::from_secs) });
    let drained = (0u32..3, prop::option::of(0u64..20))
        .prop_map(|(replica, s)| Happens::Drained { replica, restart: s.map(Span::from_secs) });
    let rolling = prop::option::of(0u64..9)
        .prop_map(|s| Happens::RollingUpdate { drain: s.map(Span::from_secs) });
    let lasting = || prop::option::of(1u64..20).prop_map(|s| s.map(Span::from_secs));
    let outage = (lasting(), any::<bool>())
        .prop_map(|(lasts, silent)| Happens::RedisOutage { lasts, silent });
    let slow = (lasting(), 1_000u64..5_000_000)
        .prop_map(|(lasts, thousandths)| Happens::DatabaseSlow { lasts, thousandths });
    let one = (0u64..60, prop_oneof![lost, drained, rolling, outage, slow]);
    prop::collection::vec(one, 0..4).prop_map(|list| {
        let mut events: Vec<_> = list.into_iter().map(|(s, happens)| at(s, happens)).collect();
        events.sort_by_key(|event| event.at);
        events
    })
}

pub fn any_trace() -> impl Strategy<Value = Trace> {
    let call = (1u64..3_000, 1u64..400, 0u64..9_000, any::<bool>());
    let session = prop::collection::vec(call, 1..5);
    prop::collection::vec((0u64..30_000, session), 1..12).prop_map(|mut list| {
        list.sort_by_key(|(start, calls)| start + calls[0].2);
        let made = |(start, calls): (u64, Vec<(u64, u64, u64, bool)>)| {
            let calls = (0u32..).zip(calls).map(|(at, (prompt, output, gap, fails))| {
                let made =
                    if fails && prompt % 7 == 0 { lasting(2) } else { call_of(prompt, output) };
                if at == 0 { made.gap(gap) } else { made.after(&(at - 1).to_string()).gap(gap) }
            });
            (start, calls.collect())
        };
        trace(list.into_iter().map(made).collect())
    })
}

fn call_of(prompt: u64, output: u64) -> Call {
    call(prompt, output)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Whatever happens to the fleet, every call ends once, the engines are empty behind it, and
    /// both engines and every run give the same.
    #[test]
    fn nothing_is_lost(
        front in any_front(),
        events in any_happens(),
        trace in any_trace(),
        queued in prop::option::of(1u64..4),
        seed in 0u64..1_000,
    ) {
        let limits = Limits { max_num_queued_reqs: queued, ..Limits::default() };
        let setup = Setup { events, limits, seed, ..behind(front, 3) };
        let run = played_alike(&setup, &trace);
        let calls = trace.sessions.iter().map(|session| session.calls.len()).sum();
        assert_nothing_is_lost(&run, calls);
    }
}

/// In a run that is cut off, what is under way is in no count of an end.
#[test]
fn a_run_that_is_cut_off_says_what_is_open() {
    let setup = Setup { window: Some(Span::from_secs(10)), ..behind(quick(), 1) };
    let run = played_alike(&setup, &burst(3));
    let GatewayUse { open_before, open, counts, .. } = use_of(&run);
    assert_eq!((*open_before, *open, counts.offered, counts.ended()), (0, 3, 3, 0));
    let warm = Setup { warmup: Span::from_secs(5), ..setup };
    let run = played_alike(&warm, &burst(3));
    let GatewayUse { open_before, open, counts, .. } = use_of(&run);
    assert_eq!((*open_before, *open, counts.offered), (3, 3, 0));
    assert_eq!(run.window.until, Time::ZERO + Span::from_secs(15));
}
