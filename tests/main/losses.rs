//! Why hits are lost: every token below the ceiling has one cause.

use std::collections::BTreeMap;

use tonnage::config::faults::{FleetEvent, Happens};
use tonnage::config::scenario::RouterKind;
use tonnage::engine::config::{EngineConfig, Pool};
use tonnage::fleet::arrivals::Sessions;
use tonnage::fleet::workload::Workload;
use tonnage::fleet::{Progress, Run, Setup, simulate};
use tonnage::observe::records::{CallOutcome, CallRecord, Missed, Records};
use tonnage::trace::record::Trace;
use tonnage::units::{Blocks, Span, Tokens};

use super::given::{With, call, engine_config, play, setup, trace, trace_with};

/// So many sessions, a start every two seconds, each of three calls that continue each other.
fn sessions(count: u64) -> Trace {
    let calls = || {
        let second = call(5_000, 100).after("0").gap(3_000).keeping(0, 4_100);
        vec![call(4_000, 100), second, call(6_000, 50).after("1").gap(4_000).keeping(1, 5_100)]
    };
    trace((0..count).map(|session| (session * 2_000, calls())).collect())
}

fn fleet(replicas: u32, router: RouterKind, blocks: u64, events: Vec<FleetEvent>) -> Setup {
    let engine = EngineConfig { pool: Pool::Limited(Blocks(blocks)), ..engine_config() };
    Setup { replicas, router, events, engine, ..setup() }
}

/// The causes of all calls, after each was seen to add up.
fn causes(run: &Run) -> Missed {
    let mut all = Missed::default();
    let completed = |call: &&CallRecord| call.outcome == CallOutcome::Completed;
    for call in run.records.calls.iter().filter(completed) {
        let sum: u64 = call.missed.parts().iter().map(|part| u64::from(*part)).sum();
        assert_eq!(sum, (call.ceiling - call.cached).0, "{call:?}");
        let Missed { evicted, under_way, elsewhere, gone, uncached } = call.missed;
        all.evicted += evicted;
        all.under_way += under_way;
        all.elsewhere += elsewhere;
        all.gone += gone;
        all.uncached += uncached;
    }
    all
}

fn lost(at_s: u64) -> FleetEvent {
    let happens = Happens::Lost { replica: 0, restart: Some(Span::ZERO) };
    FleetEvent { at: Span::from_secs(at_s), happens, start: Span::ZERO, pool: None }
}

#[test]
fn every_cause_has_its_case() {
    let none = Missed::default();
    let one = |blocks, events| fleet(1, RouterKind::SessionAffinity, blocks, events);
    assert_eq!(causes(&play(&one(30_000, vec![]), &sessions(20))), none);
    // A pool of 600 blocks holds one context and a half.
    let tight = causes(&play(&one(600, vec![]), &sessions(20)));
    assert_eq!(tight, Missed { evicted: tight.evicted, ..none });
    assert!(tight.evicted > 10_000, "{tight:?}");
    // Every call goes to the other replica.
    let robin = fleet(2, RouterKind::RoundRobin, 30_000, vec![]);
    let away = causes(&play(&robin, &sessions(1)));
    assert_eq!(away, Missed { elsewhere: 4_096 + 992, ..none }, "{away:?}");
    // The process is gone between the first call and the second.
    let cold = causes(&play(&one(30_000, vec![lost(2)]), &sessions(1)));
    assert_eq!(cold, Missed { gone: 4_096, ..none });
    let mut off = one(30_000, vec![]);
    off.engine.enable_prefix_caching = false;
    assert_eq!(causes(&play(&off, &sessions(1))), Missed { uncached: 4_096 + 5_088, ..none });
}

#[test]
fn what_another_call_is_just_computing_is_not_evicted() {
    // With a cap on long prompts both are admitted at once, and the second finds what the first
    // one's first chunk is about to hold.
    let mut setup = fleet(1, RouterKind::SessionAffinity, 30_000, vec![]);
    setup.engine.long_prefill_token_threshold = Tokens(2_000);
    let beside = || vec![call(20_100, 10).sharing("tools", 20_000)];
    let played = trace_with(vec![("tools", 20_000)], vec![(0, beside()), (0, beside())]);
    let all = causes(&play(&setup, &played));
    assert_eq!(all, Missed { under_way: 18_000, ..Missed::default() });
}

#[test]
fn the_parts_add_up_whatever_happens() {
    let update = Happens::RollingUpdate { drain: Some(Span::from_secs(2)) };
    let (at, start) = (Span::from_secs(20), Span::from_secs(3));
    let update = FleetEvent { at, happens: update, start, pool: None };
    for (router, blocks) in [
        (RouterKind::Random, 600),
        (RouterKind::RoundRobin, 900),
        (RouterKind::SessionAffinity, 500),
        (RouterKind::LeastLoaded, 700),
    ] {
        for every_step in [false, true] {
            let events = vec![lost(9), update];
            let setup = Setup { every_step, ..fleet(3, router, blocks, events) };
            let workload = Workload::new(&sessions(60), &BTreeMap::new());
            let sessions = Sessions::Held(&workload);
            let progress = Progress::default();
            let run = simulate(&setup, sessions, Records::default(), None, &progress);
            let all = causes(&run);
            assert!(all.gone > 0 && all.evicted > 0, "{router:?}: {all:?}");
        }
    }
}
