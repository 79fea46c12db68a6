//! Replicas and gateway pods that come and go by the load.

use proptest::prelude::*;
use tonnage::config::autoscale::{Hpa, Keda, Lifecycle, Metric, PodRule, PodScaling};
use tonnage::config::autoscale::{ReplicaScaling, Scaling, Trigger};
use tonnage::config::gateway::FrontEnd;
use tonnage::config::scenario::RouterKind;
use tonnage::engine::config::EngineConfig;
use tonnage::fleet::{Run, Setup};
use tonnage::observe::members::Scaled;
use tonnage::trace::record::Trace;
use tonnage::units::{ReplicaId, Span, Time};

use super::fleet_gateway::{any_front, any_happens, any_trace};
use super::fleet_gateway::{assert_nothing_is_lost, behind, played_alike, quick, use_of};
use super::given::{call, setup, trace};

/// One replica of four seats, up to four of them; each loads for 60 s.
fn scaled(base: Setup) -> Setup {
    let lifecycle =
        Lifecycle { grace: Span::from_secs(30), ..Lifecycle::engine(Span::from_secs(60)) };
    let mut keda = Keda::engines(1, 4);
    keda.triggers[0].threshold = 2.0;
    let replicas = Some(ReplicaScaling { keda, lifecycle });
    let scaling = Scaling { replicas, ..Scaling::default() };
    let engine = EngineConfig { max_num_seqs: 4, ..base.engine };
    Setup { scaling, engine, router: RouterKind::LeastLoaded, ..base }
}

/// For five minutes a call of some 20 s comes every second, then one every minute for an hour.
fn morning() -> Trace {
    let early = (0..300).map(|second| second * 1_000);
    let late = (0..60).map(|minute| 300_000 + minute * 60_000);
    trace(early.chain(late).map(|start| (start, vec![call(8_000, 2_000)])).collect())
}

fn at(secs: u64) -> Time {
    Time::ZERO + Span::from_secs(secs)
}

/// When the first call was sent to a replica.
fn first_sent(run: &Run, replica: u32) -> Option<Time> {
    let there = |replica| move |record: &&_| is_on(record, replica);
    run.records.calls.iter().filter(there(ReplicaId(replica))).map(|record| record.queued).min()
}

fn is_on(record: &tonnage::observe::records::CallRecord, replica: ReplicaId) -> bool {
    record.replica == Some(replica)
}

fn check_replicas(run: &Run) {
    let used = run.scaling.replicas.unwrap();
    let events = &run.scaling.events;
    // The first look that sees three waiting calls wants more; they come a minute later.
    let first = events[0];
    assert_eq!((first.at, first.what, first.from), (at(15), Scaled::Replicas, 1), "{events:?}");
    assert!(first.to > 1);
    for replica in 1..4 {
        let sent = first_sent(run, replica).unwrap();
        assert!(sent >= at(75) && sent < at(110), "{replica}: {sent:?}");
    }
    assert_eq!((used.max, events.iter().map(|event| event.to).max()), (4, Some(4)));
    // Five minutes after the last want they go, and the last of the day is alone.
    let last = events.last().unwrap();
    assert_eq!(last.to, 1, "{events:?}");
    assert!(run.records.calls.last().unwrap().replica == Some(ReplicaId(0)));
    assert!(used.mean > 1.0 && used.mean < 2.5, "{used:?}");
    assert!(used.held > used.serving);
    // A replica that is gone, or loads, is not idle.
    let whole = run.window.until - run.window.from;
    let spans = run.replicas.iter().map(|replica| replica.kv_blocks.total());
    let spans: Vec<Span> = spans.collect();
    assert_eq!(spans[0], whole);
    let serving: Span = spans.into_iter().sum();
    assert!(serving >= used.serving && serving < used.held, "{serving:?} {used:?}");
}

#[test]
fn replicas_come_and_go_without_a_gateway() {
    let run = played_alike(&scaled(Setup { every_step: false, ..setup() }), &morning());
    assert_eq!(run.records.calls.len(), 360);
    check_replicas(&run);
}

#[test]
fn replicas_come_and_go_behind_a_gateway() {
    let mut front = quick();
    front.gateway.routing.strategy = tonnage::config::gateway::Strategy::LeastBusy;
    let run = played_alike(&scaled(behind(front, 1)), &morning());
    assert_nothing_is_lost(&run, 360);
    check_replicas(&run);
    // None was sent to a replica that does not take calls.
    assert_eq!((use_of(&run).counts.retried, use_of(&run).counts.failed), (0, 0));
}

/// 40 requests a second at 15 ms of one core are 60 % of it: with twice that there are two pods.
#[test]
fn pods_follow_their_cpu() {
    let mut front = quick();
    front.gateway.request_cpu = Span::from_millis(15);
    let calls = (0..9_600).map(|number| (number * 25 / 2, vec![call(10, 1)])).collect();
    let rule = PodRule::Cpu(Hpa::default());
    let pods = Some(PodScaling { rule, lifecycle: Lifecycle::GATEWAY });
    let scaling = Scaling { pods, ..Scaling::default() };
    // At 80 a second the only core is overrun, and the queue grows until others come.
    let setup = Setup { scaling, ..behind(front, 2) };
    let run = played_alike(&setup, &trace(calls));
    assert_nothing_is_lost(&run, 9_600);
    let gateway = use_of(&run);
    let events = &run.scaling.events;
    assert_eq!((events[0].at, events[0].what, events[0].from), (at(15), Scaled::Pods, 1));
    assert!(gateway.pods.max >= 2 && gateway.pods.mean > 1.5, "{:?} {events:?}", gateway.pods);
    assert!(gateway.pods.held > gateway.pods.serving);
    let share = gateway.cpu_share().unwrap();
    assert!((0.4..0.95).contains(&share), "{share}");
}

/// KEDA sees requests when they are answered. When there is nothing to do for five minutes, the
/// pods that came drain and stop.
#[test]
fn pods_follow_requests_and_stop_when_there_are_none() {
    let calls =
        |from: u64, to: u64, step| (from..to).step_by(step).map(|ms| (ms, vec![call(10, 1)]));
    let all = calls(0, 120_000, 25).chain(calls(120_000, 1_200_000, 20_000)).collect();
    let trigger = Trigger { metric: Metric::RequestsPerSecond, threshold: 10.0, activation: 0.0 };
    let rule = PodRule::Keda(Keda::gateway(1, 8, vec![trigger]));
    let scaling = Scaling {
        pods: Some(PodScaling { rule, lifecycle: Lifecycle::GATEWAY }),
        ..Scaling::default()
    };
    let run = played_alike(&Setup { scaling, ..behind(quick(), 1) }, &trace(all));
    assert_nothing_is_lost(&run, 4_800 + 54);
    let events = &run.scaling.events;
    assert!((4..=5).contains(&use_of(&run).pods.max), "{events:?}");
    assert_eq!(events.last().unwrap().to, 1, "{events:?}");
    assert!(use_of(&run).pods.mean < 3.0);
}

/// One waiting call for each replica; all comes and goes within seconds.
fn hasty(front: Option<FrontEnd>, load_s: u64, grace_s: u64) -> Setup {
    let lifecycle = Lifecycle {
        startup: Span::from_secs(load_s),
        probe_period: Span::from_secs(1),
        grace: Span::from_secs(grace_s),
        ..Lifecycle::GATEWAY
    };
    let hpa = Hpa {
        sync: Span::from_secs(2),
        down_stabilization: Span::from_secs(4),
        up_period: Span::from_secs(2),
        max: 5,
        ..Hpa::default()
    };
    let mut keda = Keda { hpa, polling_interval: Span::from_secs(2), ..Keda::engines(1, 5) };
    keda.triggers[0].threshold = 1.0;
    let pods = PodScaling { rule: PodRule::Cpu(Hpa { target: 0.01, ..hpa }), lifecycle };
    let scaling = Scaling {
        pods: front.is_some().then_some(pods),
        replicas: Some(ReplicaScaling { keda, lifecycle }),
        ..Scaling::default()
    };
    let engine = EngineConfig { max_num_seqs: 1, ..setup().engine };
    Setup { gateway: front, scaling, engine, replicas: 3, every_step: false, ..setup() }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// Whatever comes and goes, and fails besides, every call ends once.
    #[test]
    fn nothing_is_lost(
        front in prop::option::of(any_front()),
        events in any_happens(),
        trace in any_trace(),
        times in (0u64..9, 0u64..9),
        seed in 0u64..1_000,
    ) {
        let setup = Setup { events, seed, ..hasty(front, times.0, times.1) };
        let run = played_alike(&setup, &trace);
        let calls = trace.sessions.iter().map(|session| session.calls.len()).sum();
        assert_eq!(run.records.calls.len(), calls);
        if setup.gateway.is_some() {
            assert_nothing_is_lost(&run, calls);
        }
        let used = run.scaling.replicas.unwrap();
        assert!(used.held >= used.serving && used.max >= 1, "{used:?}");
    }
}
