//! Pools of replicas: which calls go where, what pools share, and the sizes that are found.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use tonnage::config::faults::{FleetEvent, Happens};
use tonnage::config::pools::{Kind, Overflow, Pool, Rules, Takes};
use tonnage::config::router::{RouterKind, Routing};
use tonnage::config::scenario::Scenario;
use tonnage::engine::plain::PlainEngine;
use tonnage::fleet::workload::Workload;
use tonnage::fleet::{self, Progress, Run, Setup};
use tonnage::observe::members::Became;
use tonnage::observe::records::{CallOutcome, CallRecord};
use tonnage::trace::record::{Call, Trace};
use tonnage::units::{ReplicaId, Span};

use super::given::{With, call, play, record, setup, trace};
use super::property::{any_setup, any_trace};

mod command_line;

fn pool(name: &str, takes: Takes, replicas: u32) -> Pool {
    Pool {
        name: name.to_owned(),
        takes,
        replicas,
        router: RouterKind::SessionAffinity,
        routing: Routing::default(),
        overflow: None,
        lends: true,
    }
}

fn of_kind(kind: Kind) -> Takes {
    Takes::Calls(Rules { kind: Some(kind), ..Rules::default() })
}

fn of_model(model: &str) -> Takes {
    Takes::Calls(Rules { models: vec![model.to_owned()], ..Rules::default() })
}

/// A fleet of these pools that plays as recorded.
fn fleet_of(pools: Vec<Pool>) -> Setup {
    let replicas = pools.iter().map(|pool| pool.replicas).sum();
    Setup { replicas, pools, ..setup() }
}

fn played(setup: &Setup, trace: &Trace) -> Run {
    let workload = Workload::new(trace, &BTreeMap::new());
    let engine = || PlainEngine::new(setup.engine.clone(), setup.cost.clone());
    fleet::run(setup, &workload, engine, &Progress::default())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// One pool that takes everything is a fleet without pools, whatever routes.
    #[test]
    fn one_pool_is_none(trace in any_trace(), setup in any_setup()) {
        let one = Pool {
            router: setup.router,
            routing: setup.routing.clone(),
            ..pool("all", Takes::Rest, setup.replicas)
        };
        let apart = Setup { pools: vec![one], router: RouterKind::Random, ..setup.clone() };
        let (whole, apart) = (played(&setup, &trace), played(&apart, &trace));
        prop_assert_eq!(whole.records.calls, apart.records.calls);
        prop_assert_eq!(whole.records.turns, apart.records.turns);
        prop_assert_eq!(whole.records.tasks, apart.records.tasks);
        prop_assert_eq!(whole.engines, apart.engines);
        prop_assert_eq!(format!("{:?}", whole.replicas), format!("{:?}", apart.replicas));
    }

    /// Every call is of one pool, by the first rule that it meets. A pool that is apart uses its
    /// own replicas only, one that shares those of whoever lends, and every call ends once.
    #[test]
    fn every_call_is_of_one_pool(
        trace in any_trace(),
        setup in any_setup(),
        sizes in [1u32..4, 1u32..4, 1u32..4],
        limit in 1u64..3,
        lends in any::<bool>(),
    ) {
        let routed = |pool: Pool, router| Pool { router, routing: setup.routing.clone(), ..pool };
        let pools = vec![
            routed(pool("other", of_model("other"), sizes[0]), setup.router),
            routed(pool("subagents", of_kind(Kind::Subagent), sizes[1]), RouterKind::Random),
            routed(pool("rest", Takes::Rest, sizes[2]), setup.router),
        ];
        let mut pools = pools;
        pools[0].lends = lends;
        pools[1].overflow = Some(Overflow { to: None, calls: limit });
        let replicas = sizes.iter().sum();
        let setup = Setup { pools, replicas, ..setup };
        let run = played(&setup, &trace);
        let home = |record: &CallRecord| {
            let call = &trace.sessions[record.session as usize].calls[record.call as usize];
            match (&*call.model, call.lane) {
                ("other", _) => 0u16,
                (_, 1..) => 1,
                _ => 2,
            }
        };
        let pool_of = |replica: ReplicaId| match replica.0 {
            at if at < sizes[0] => 0u16,
            at if at < sizes[0] + sizes[1] => 1,
            _ => 2,
        };
        let mut seen = BTreeSet::new();
        for record in &run.records.calls {
            prop_assert!(seen.insert((record.play, record.call)));
            prop_assert_eq!(record.pool, home(record));
            if let Some(replica) = record.replica {
                prop_assert_eq!(record.served_by, pool_of(replica));
            }
            let stays = record.pool != 1 || (record.served_by == 0 && !lends);
            prop_assert!(!stays || record.served_by == record.pool, "{:?}", record);
        }
        let calls: usize = trace.sessions.iter().map(|session| session.calls.len()).sum();
        prop_assert_eq!(seen.len(), calls);
    }
}

/// A call of some 20 s.
fn long() -> Call {
    call(8_000, 2_000)
}

/// Three sessions of one long call, half a second apart.
fn three() -> Trace {
    trace(vec![(0, vec![long()]), (500, vec![long()]), (1_000, vec![long()])])
}

fn places(run: &Run) -> Vec<(u16, Option<u32>)> {
    let of = |session| record(run, session, 0);
    let at = |record: CallRecord| (record.served_by, record.replica.map(|replica| replica.0));
    (0..3).map(|session| at(of(session))).collect()
}

#[test]
fn a_full_pool_sends_calls_to_one_that_is_not_and_keeps_them_where_both_are() {
    let mut pools = vec![pool("m", of_model("m"), 1), pool("rest", Takes::Rest, 1)];
    let run = play(&fleet_of(pools.clone()), &three());
    assert_eq!(places(&run), [(0, Some(0)); 3], "strictly apart");
    pools[0].overflow = Some(Overflow { to: Some(1), calls: 1 });
    let run = play(&fleet_of(pools.clone()), &three());
    assert_eq!(places(&run), [(0, Some(0)), (1, Some(1)), (0, Some(0))]);
    pools[0].overflow = Some(Overflow { to: Some(1), calls: 2 });
    let run = play(&fleet_of(pools), &three());
    assert_eq!(places(&run), [(0, Some(0)), (0, Some(0)), (1, Some(1))]);
}

#[test]
fn any_is_the_pool_with_the_idlest_replica_of_those_that_lend() {
    let named = |name: &str| pool(name, of_model(name), 1);
    let mut pools = vec![named("m"), named("a"), named("b")];
    pools[0].overflow = Some(Overflow { to: None, calls: 1 });
    let mut busy = long();
    busy.model = "a".into();
    let other = call(10, 1);
    let mut first = trace(vec![(0, vec![long()]), (100, vec![long()]), (200, vec![other])]);
    first.sessions[0].calls[0].model = "a".into();
    first.sessions[2].calls[0].model = "b".into();
    let both = |pools: Vec<Pool>| {
        let mut calls = first.clone();
        calls.sessions.push(three().sessions[2].clone());
        calls.sessions[3].id = "last".into();
        play(&fleet_of(pools), &calls)
    };
    let of = |run: &Run| (record(run, 1, 0).served_by, record(run, 3, 0).served_by);
    // `a` works on a long call by then, `b` has nothing to do.
    assert_eq!(of(&both(pools.clone())), (0, 2));
    pools[2].lends = false;
    assert_eq!(of(&both(pools)), (0, 0));
}

/// A session that was away comes home, and finds its cache there.
#[test]
fn each_pool_remembers_a_session_by_itself() {
    let next = || call(11_000, 10).after("0").gap(100_000).keeping(0, 10_000);
    let calls = trace(vec![(0, vec![long(), next()]), (500, vec![long(), next()])]);
    let mut pools = vec![pool("m", of_model("m"), 1), pool("rest", Takes::Rest, 3)];
    pools[0].overflow = Some(Overflow { to: Some(1), calls: 1 });
    let run = play(&fleet_of(pools), &calls);
    let at = |session, call| record(&run, session, call);
    assert_eq!((at(0, 0).served_by, at(0, 1).served_by), (0, 0));
    assert_eq!(at(0, 1).cached.0, 9_984);
    // The second session begins in the other pool, and its next call finds room at home.
    assert_eq!((at(1, 0).served_by, at(1, 1).served_by), (1, 0));
    assert_eq!(at(1, 1).cached.0, 0);
}

#[test]
fn a_pool_that_is_lost_waits_if_it_is_apart_and_spills_if_it_shares() {
    let lost = FleetEvent {
        at: Span::from_secs(0),
        happens: Happens::Lost { replica: 0, restart: None },
        start: Span::ZERO,
        pool: None,
    };
    let late = trace(vec![(5_000, vec![call(100, 10)])]);
    let mut pools = vec![pool("m", of_model("m"), 1), pool("rest", Takes::Rest, 1)];
    let apart = Setup { events: vec![lost], ..fleet_of(pools.clone()) };
    let run = play(&apart, &late);
    assert_eq!(record(&run, 0, 0).outcome, CallOutcome::Refused);
    pools[0].overflow = Some(Overflow { to: None, calls: 1_000 });
    let run = play(&Setup { events: vec![lost], ..fleet_of(pools) }, &late);
    let served = record(&run, 0, 0);
    assert_eq!((served.outcome, served.served_by), (CallOutcome::Completed, 1));
}

const ENGINE: &str = "[engine]\nmodel = 'Llama-3.1-8B'\ngpu = 'h100-sxm'\nmax_model_len = 8192\n";

fn scenario(text: &str, set: &[&str]) -> Result<Scenario, String> {
    let set: Vec<String> = set.iter().map(|&set| set.to_owned()).collect();
    Scenario::parse(&format!("{ENGINE}{text}"), "s", &set).map_err(|error| error.to_string())
}

const TWO: &str = "[pools.web]\ntenants = ['web']\nreplicas = 2\n[pools.ops]\nrest = true\n\
                   replicas = 1\n";

#[test]
fn events_name_a_replica_of_a_pool() {
    let event = |rest: &str| format!("{TWO}[[events]]\nat_s = 9\n{rest}\n");
    let read = |rest: &str| scenario(&event(rest), &[]);
    let added = read("kind = 'added'\npool = 'ops'\nreplica = 0").unwrap();
    let setup = Setup::of(&added).unwrap();
    assert_eq!(setup.events[0].happens, Happens::Added { replica: 2 });
    let rolling = read("kind = 'rolling_update'\npool = 'web'").unwrap();
    assert_eq!(rolling.events[0].pool, Some(0));
    for (rest, said) in [
        ("kind = 'lost'\nreplica = 0", "one of web, ops"),
        ("kind = 'lost'\nreplica = 0\npool = 'weeb'", "did you mean `web`?"),
        ("kind = 'lost'\nreplica = 1\npool = 'ops'", "pools.ops.replicas is 1"),
        ("kind = 'lost'\nreplica = 1\npool = 3", "in quotes"),
    ] {
        let error = read(rest).unwrap_err();
        assert!(error.contains("s:11:1: events 1, ") && error.contains(said), "{error}");
    }
    let without = "[[events]]\nat_s = 1\nkind = 'lost'\nreplica = 0\npool = 'x'\n";
    assert!(scenario(without, &[]).unwrap_err().contains("only goes with [pools]"));
}

#[test]
fn a_rolling_update_of_one_pool_leaves_the_others_alone() {
    let update = FleetEvent {
        at: Span::from_secs(60),
        happens: Happens::RollingUpdate { drain: None },
        start: Span::ZERO,
        pool: Some(1),
    };
    let next = || call(11_000, 10).after("0").gap(200_000).keeping(0, 10_000);
    let mut calls = trace(vec![(0, vec![long(), next()]), (500, vec![long(), next()])]);
    calls.sessions[1].calls.iter_mut().for_each(|call| call.model = "other".into());
    let pools = vec![pool("m", of_model("m"), 1), pool("rest", Takes::Rest, 1)];
    let run = play(&Setup { events: vec![update], ..fleet_of(pools) }, &calls);
    assert_eq!([0, 1].map(|session| record(&run, session, 1).cached.0), [9_984, 0]);
}

#[test]
fn updates_of_two_pools_at_once_both_come_to_their_end() {
    let update = |at: u64, pool: u32| FleetEvent {
        at: Span::from_secs(at),
        happens: Happens::RollingUpdate { drain: None },
        start: Span::from_secs(30),
        pool: Some(pool),
    };
    let mut calls = trace((0..40).map(|number| (number * 5_000, vec![long()])).collect());
    calls.sessions[39].calls[0].model = "other".into();
    let pools = vec![pool("m", of_model("m"), 3), pool("rest", Takes::Rest, 3)];
    let run =
        play(&Setup { events: vec![update(10, 0), update(20, 1)], ..fleet_of(pools) }, &calls);
    let count = |replica: u32, became: Became| {
        let of_it = run.changes.iter().filter(|change| change.replica == ReplicaId(replica));
        of_it.filter(|change| change.became == became).count()
    };
    for replica in 0..6 {
        assert_eq!([Became::Updated, Became::Up].map(|became| count(replica, became)), [1, 1]);
    }
}

/// What is wrong, what is said of it, and where.
#[test]
fn what_is_no_pool_is_refused_with_its_place() {
    for (text, said) in [
        ("[pools]\nreplicas = 1", "s:6:1: pools.replicas: pools are tables"),
        ("[pools.a]\nrest = true", "s:6:1: pools.a: this pool needs the key `replicas`"),
        ("[pools.a]\nreplicas = 1", "pools.a: this pool takes no calls"),
        ("[pools.a]\nrest = true\nreplica = 1", "s:7:1: pools.a.replica: unknown key"),
        ("[pools.a]\nrest = true\nreplica = 1", "did you mean `replicas`?"),
        ("[pools.a]\nrest = true\nreplicas = 0", "s:7:1: pools.a.replicas: found `0`"),
        ("[pools.a]\nrest = true\nreplicas = 1\ngpu = 'h200'", "all pools have the same engine"),
        ("[pools.a]\nrest = true\nkind = 'main'\nreplicas = 1", "the rest is what no other pool"),
        ("[pools.a]\nmodels = []\nreplicas = 1", "the list is empty"),
        ("[pools.a]\nkind = 'sub'\nreplicas = 1", "allowed: main, subagent"),
        ("[pools.a]\nrest = true\nreplicas = 1\npins = 9", "only goes with pools.a.router"),
        (
            "[pools.a]\nrest = true\nreplicas = 1\nrouter = 'random'\npins = 9",
            "s:9:1: pools.a.pins: only goes with pools.a.router = \"session_affinity\"",
        ),
        ("[pools.'a.b']\nrest = true\nreplicas = 1", "as the name of a pool"),
        ("[pools.any]\nrest = true\nreplicas = 1", "as the name of a pool"),
        ("[pools.a]\nrest = true\nreplicas = 1\noverflow = 'any'", "needs `overflow_calls`"),
        (
            "[pools.a]\nrest = true\nreplicas = 1\noverflow = 'any'\noverflow_calls = 2",
            "no other pool that lends",
        ),
        ("[pools.a]\nrest = true\nreplicas = 1\noverflow_calls = 2", "only goes with pools.a.over"),
        ("[fleet]\nreplicas = 3\n[pools.a]\nrest = true\nreplicas = 1", "each pool has its own"),
        (
            "[fleet]\nrouter = 'random'\n[pools.a]\nrest = true\nreplicas = 1\nrouter = 'sticky'",
            "s:6:1: fleet.router: every pool has a router of its own",
        ),
        ("[gateway]\nreplicas = 1\n[pools.a]\nrest = true\nreplicas = 1", "behind a gateway"),
        (
            "[autoscale.engines]\nmax_replicas = 4\n[pools.a]\nrest = true\nreplicas = 1",
            "pools whose replicas are scaled are not modelled",
        ),
    ] {
        let error = scenario(text, &[]).unwrap_err();
        assert!(error.contains(said), "{text}\n{error}");
    }
    for (more, said) in [
        ("[pools.x]\nrest = true\nreplicas = 1", "pool ops takes the rest already"),
        ("[pools.x]\ntenants = ['web']\nreplicas = 1", "pool web takes the same calls"),
        ("overflow = 'weeb'\noverflow_calls = 1", "did you mean `web`?"),
        ("lend = false", "s:11:1: pools.ops.lend: only goes with overflow = \"any\" of another"),
        ("lend = false\noverflow = 'any'\noverflow_calls = 1", "only goes with overflow = \"any\""),
        (
            "[size]\nmax_replicas = 1",
            "s:12:1: size.max_replicas: found `1`, allowed: at least 2: each of 2 pools",
        ),
    ] {
        let error = scenario(&format!("{TWO}{more}"), &[]).unwrap_err();
        assert!(error.contains(said), "{more}\n{error}");
    }
    let error = scenario(TWO, &["pools.weeb.replicas=3"]).unwrap_err();
    assert!(
        error.contains("pools.weeb: ") && error.contains("did you mean the pool `web`?"),
        "{error}"
    );
}

#[test]
fn the_command_line_changes_a_pool_and_the_order_stays_that_of_the_file() {
    let read = scenario(
        &format!("{TWO}router = 'sticky'\nrelease_margin = 3\n"),
        &["pools.ops.router=random", "pools.ops.replicas=4"],
    );
    let read = read.unwrap();
    let named: Vec<(&str, u32)> =
        read.pools.iter().map(|pool| (pool.name.as_str(), pool.replicas)).collect();
    assert_eq!(named, [("web", 2), ("ops", 4)]);
    assert_eq!((read.replicas, read.pools[1].router), (6, RouterKind::Random));
}
