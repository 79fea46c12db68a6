//! Replicas that are lost, drained, added and updated, in cases small enough to follow.

use tonnage::config::faults::{FleetEvent, Happens};
use tonnage::config::scenario::{RouterKind, Scenario};
use tonnage::fleet::Setup;
use tonnage::observe::members::Became;
use tonnage::observe::records::CallOutcome;
use tonnage::trace::record::{Call, Trace};
use tonnage::units::{ReplicaId, Span, Time, Tokens};

use super::given::{With, call, play, record, setup, trace};

fn at(seconds: u64, happens: Happens, start: u64) -> FleetEvent {
    FleetEvent { at: Span::from_secs(seconds), happens, start: Span::from_secs(start), pool: None }
}

fn fleet(replicas: u32, router: RouterKind, events: Vec<FleetEvent>) -> Setup {
    Setup { replicas, router, events, ..setup() }
}

/// A call of some 20 s, and one that continues it 100 s later.
fn two_calls() -> Vec<Call> {
    let first = call(8_000, 2_000);
    vec![first, call(11_000, 10).after("0").gap(100_000).keeping(0, 10_000)]
}

fn one_session() -> Trace {
    trace(vec![(0, two_calls())])
}

#[test]
fn calls_of_a_lost_replica_are_sent_again_and_its_cache_is_gone() {
    let lost = Happens::Lost { replica: 0, restart: Some(Span::ZERO) };
    let run = play(&fleet(1, RouterKind::SessionAffinity, vec![at(3, lost, 0)]), &one_session());
    let first = record(&run, 0, 0);
    assert_eq!((first.outcome, first.losses, first.refusals), (CallOutcome::Completed, 1, 0));
    assert!(first.scheduled > Time::ZERO + Span::from_secs(3));
    assert_eq!((first.cached, first.prefilled, first.output.0), (Tokens(0), Tokens(8_000), 2_000));
    // What the second process computed is there for the next call.
    assert_eq!(record(&run, 0, 1).cached, Tokens(9_984));
    // Both processes have counted: the prompt was prefilled twice.
    assert_eq!(run.engines.len(), 2);
    let prefilled: Tokens = run.replicas.iter().map(|replica| replica.prefill_tokens).sum();
    assert_eq!(prefilled, Tokens(8_000 + 8_000 + 11_000 - 9_984));
}

#[test]
fn a_cache_that_is_lost_between_two_calls_is_filled_again() {
    let lost = Happens::Lost { replica: 0, restart: Some(Span::ZERO) };
    let run = play(&fleet(1, RouterKind::SessionAffinity, vec![at(90, lost, 5)]), &one_session());
    let (first, second) = (record(&run, 0, 0), record(&run, 0, 1));
    assert_eq!((first.losses, second.losses, second.cached), (0, 0, Tokens(0)));
    // The ceiling is that of a cache that never loses anything.
    assert_eq!(second.ceiling, Tokens(9_984));
}

#[test]
fn where_no_replica_is_left_clients_give_up() {
    let lost = Happens::Lost { replica: 0, restart: None };
    let run = play(&fleet(1, RouterKind::LeastLoaded, vec![at(3, lost, 0)]), &one_session());
    let (first, second) = (record(&run, 0, 0), record(&run, 0, 1));
    assert_eq!((first.outcome, first.losses, first.refusals), (CallOutcome::Refused, 1, 2));
    assert_eq!((second.outcome, second.losses, second.refusals), (CallOutcome::Refused, 0, 3));
    assert!(run.records.tasks[0].failed);
}

#[test]
fn a_drained_replica_ends_its_calls_and_the_session_moves() {
    let drained = Happens::Drained { replica: 0, restart: None };
    let setup = fleet(2, RouterKind::LeastLoaded, vec![at(3, drained, 0)]);
    let run = play(&setup, &one_session());
    let (first, second) = (record(&run, 0, 0), record(&run, 0, 1));
    assert_eq!((first.replica, first.losses), (Some(ReplicaId(0)), 0));
    assert_eq!((second.replica, second.cached), (Some(ReplicaId(1)), Tokens(0)));
}

#[test]
fn an_added_replica_takes_calls_once_it_has_started() {
    let added = Happens::Added { replica: 0 };
    for (start, expected) in [(10, 0), (1_000, 1)] {
        let setup = fleet(2, RouterKind::LeastLoaded, vec![at(30, added, start)]);
        let run = play(&setup, &one_session());
        assert_eq!(record(&run, 0, 0).replica, Some(ReplicaId(1)));
        assert_eq!(record(&run, 0, 1).replica, Some(ReplicaId(expected)));
    }
}

#[test]
fn a_rolling_update_starts_every_replica_again_one_after_another() {
    let update = Happens::RollingUpdate { drain: None };
    let sessions = (0..40).map(|session| (session * 5_000, vec![call(1_000, 100)])).collect();
    let setup = fleet(3, RouterKind::RoundRobin, vec![at(50, update, 30)]);
    let run = play(&setup, &trace(sessions));
    assert_eq!(run.engines.len(), 6);
    let on = |replica: u32, from: u64, to: u64| {
        let (from, to) = (Time::ZERO + Span::from_secs(from), Time::ZERO + Span::from_secs(to));
        let calls =
            run.records.calls.iter().filter(|call| call.replica == Some(ReplicaId(replica)));
        calls.filter(|call| from < call.dispatched && call.dispatched < to).count()
    };
    assert!(run.records.calls.iter().all(|call| call.outcome == CallOutcome::Completed));
    assert!(run.records.calls.iter().all(|call| call.losses == 0));
    // Each is away for 30 s and the rest of its call; the others have its calls meanwhile.
    assert_eq!((on(0, 52, 78), on(1, 52, 78) > 1, on(2, 52, 78) > 1), (0, true, true));
    assert_eq!((on(0, 86, 108) > 1, on(1, 86, 108), on(2, 86, 108) > 1), (true, 0, true));
    assert_eq!((on(0, 118, 138) > 1, on(1, 118, 138) > 1, on(2, 118, 138)), (true, true, 0));
    assert!((0..3).all(|replica| on(replica, 150, 200) > 1));
}

#[test]
fn who_does_not_drain_in_time_is_cut_off() {
    let update = Happens::RollingUpdate { drain: Some(Span::from_secs(1)) };
    let setup = fleet(1, RouterKind::SessionAffinity, vec![at(3, update, 0)]);
    let run = play(&setup, &one_session());
    let first = record(&run, 0, 0);
    assert_eq!((first.outcome, first.losses), (CallOutcome::Completed, 1));
}

#[test]
fn a_replica_that_is_lost_while_it_drains_is_known_to_be_lost() {
    let drained = Happens::Drained { replica: 0, restart: Some(Span::ZERO) };
    let lost = Happens::Lost { replica: 0, restart: Some(Span::ZERO) };
    let setup = fleet(1, RouterKind::SessionAffinity, vec![at(3, drained, 0), at(5, lost, 0)]);
    let run = play(&setup, &one_session());
    assert_eq!(record(&run, 0, 0).losses, 1);
    let became: Vec<Became> = run.changes.iter().map(|change| change.became).collect();
    assert_eq!(became, [Became::Drained, Became::Lost, Became::Up]);
}

fn refusal(events: &str) -> String {
    let text = format!(
        "[engine]\nmodel = 'Llama-3.1-8B'\ngpu = 'h100-sxm'\n[fleet]\nreplicas = 3\n{events}"
    );
    Scenario::parse(&text, "s.toml", &[]).map(|_| ()).unwrap_err().to_string()
}

#[test]
fn events_that_cannot_happen_are_refused() {
    for (events, expected) in [
        ("[[events]]\nkind = 'lost'\nreplica = 0", "at_s: this key is needed"),
        ("[[events]]\nat_s = 1", "kind: this key is needed"),
        ("[[events]]\nat_s = 1\nkind = 'lots'", "unknown value `lots`"),
        ("[[events]]\nat_s = 1\nkind = 'lost'\nreplica = 3", "a replica from 0 to 2"),
        ("[[events]]\nat_s = 1\nkind = 'lost'\nreplicas = 1", "unknown key `replicas`"),
        (
            "[[events]]\nat_s = 1\nkind = 'lost'\nreplica = 1\nstart_s = 5",
            "without restart_s the replica is not started again",
        ),
        (
            "[[events]]\nat_s = 1\nkind = 'added'\nreplica = 1\ndrain_s = 5",
            "does not go with kind = \"added\"",
        ),
        (
            "[[events]]\nat_s = 1\nkind = 'lost'\nreplica = 1\n\
             [[events]]\nat_s = 5\nkind = 'drained'\nreplica = 1",
            "this replica is gone by then",
        ),
        ("[[events]]\nat_s = -1\nkind = 'rolling_update'", "a number from 0"),
    ] {
        let refusal = refusal(events);
        assert!(refusal.contains(expected) && refusal.contains("s.toml:"), "{refusal}");
    }
}

fn refused_router(router: &str) -> String {
    refusal(&format!("router = {router}"))
}

#[test]
fn keys_of_other_routers_are_refused() {
    for (router, expected) in [
        ("'random'\n[router]\npins = 5", "only goes with fleet.router = \"session_affinity\""),
        ("'sticky'\n[router]\nweights = [1]", "only goes with fleet.router = \"simple_shuffle\""),
        ("'simple_shuffle'\n[router]\nweights = [1, 1, 1, 1]", "4 weights for 3 replicas"),
        ("'simple_shuffle'\n[router]\nweights = [0, 0]", "every weight is 0"),
        ("'simple_shuffle'\n[router]\nweights = [-1]", "a list of whole numbers"),
        ("'session_affinity'\n[router]\nshared_pins = true", "nobody to share pins with"),
        ("'session_affinity'\n[router]\npin = 5", "did you mean `router.pins`?"),
    ] {
        let refusal = refused_router(router);
        assert!(refusal.contains(expected) && refusal.contains("s.toml:"), "{refusal}");
    }
}
