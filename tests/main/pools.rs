//! Pools of replicas: which calls go where, what pools share, and the sizes that are found.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use proptest::prelude::*;
use serde_json::Value;
use tonnage::config::faults::{FleetEvent, Happens};
use tonnage::config::pools::{Kind, Overflow, Pool, Rules, Takes};
use tonnage::config::router::{RouterKind, Routing};
use tonnage::config::scenario::Scenario;
use tonnage::engine::plain::PlainEngine;
use tonnage::fleet::workload::Workload;
use tonnage::fleet::{self, Progress, Run, Setup};
use tonnage::observe::records::{CallOutcome, CallRecord};
use tonnage::sizing::case::Case;
use tonnage::sizing::pool_sizes::PoolSizes;
use tonnage::sizing::replicates::{Fleet, Replicates};
use tonnage::trace::record::{Call, Trace};
use tonnage::units::{ReplicaId, Span};

use super::given::{With, call, play, record, setup, trace};
use super::property::{any_setup, any_trace};
use super::small::{SCENARIO, folder, tonnage};

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

const POOLS: &str = "\n[pools.web]\ntenants = ['web']\nreplicas = 1\n\n[pools.ops]\nrest = true\n\
                     replicas = 1\nrouter = 'least_loaded'\n";

fn with_pools(more: &str) -> tempfile::TempDir {
    let folder = folder();
    fs::write(folder.path().join("s.toml"), format!("{SCENARIO}{POOLS}{more}")).unwrap();
    folder
}

fn answer(folder: &Path, args: &[&str]) -> Value {
    let output = tonnage(folder, args).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(matches!(output.status.code(), Some(0 | 1)), "{args:?}: {said}");
    serde_json::from_slice(&output.stdout).unwrap()
}

fn refusal(folder: &Path, args: &[&str]) -> String {
    let output = tonnage(folder, args).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{args:?}");
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn names_that_the_trace_does_not_have_and_calls_of_no_pool_are_errors() {
    let folder = folder();
    for (pools, said) in [
        (
            "[pools.a]\ntenants = ['weeb']\nreplicas = 1\n[pools.b]\nrest = true\nreplicas = 1",
            "`web`",
        ),
        ("[pools.a]\nmodels = ['n']\nreplicas = 1\n[pools.b]\nrest = true\nreplicas = 1", "`n`"),
        (
            "[pools.a]\ntenants = ['web']\nreplicas = 1",
            "call 0 of session two (model m, tenant ops",
        ),
    ] {
        fs::write(folder.path().join("s.toml"), format!("{SCENARIO}{pools}\n")).unwrap();
        // Held, and while it is read.
        for more in [&[][..], &["--set", "load.kind=trace"]] {
            let error = refusal(folder.path(), &[&["replay", "s.toml"], more].concat());
            assert!(error.contains("s.toml:19:1: pools") && error.contains(said), "{error}");
        }
    }
}

#[test]
fn a_replay_tells_of_each_pool() {
    let folder = with_pools("");
    let replay = ["replay", "s.toml", "--json", "--out", "o"];
    let value = answer(folder.path(), &replay);
    let figures = &value["fleet"]["figures"];
    let pools = figures["by_pool"].as_array().unwrap();
    let calls: u64 = pools.iter().map(|pool| pool["calls"].as_u64().unwrap()).sum();
    assert_eq!(calls, figures["units"]["calls"].as_u64().unwrap());
    assert_eq!(value["router"], "session_affinity in web, least_loaded in ops");
    let table = fs::read_to_string(folder.path().join("o/calls.csv")).unwrap();
    let mut lines = table.lines();
    assert!(lines.next().unwrap().ends_with("_tokens,pool,served_by"));
    for line in lines {
        let cells: Vec<&str> = line.split(',').collect();
        let (pool, served_by) = (cells[cells.len() - 2], cells[cells.len() - 1]);
        let home = if cells[1] == "two" { "ops" } else { "web" };
        assert_eq!((pool, served_by), (home, home));
        assert_eq!(cells[5], if home == "web" { "0" } else { "1" });
    }
    let text = tonnage(folder.path(), &["replay", "s.toml"]).output().unwrap().stdout;
    let text = String::from_utf8(text).unwrap();
    assert!(text.contains("pool      web: calls of tenant web\n"), "{text}");
}

#[test]
fn pools_are_swept_sized_and_loaded() {
    let folder = with_pools("[slo]\ntargets = ['p95 ttft <= 1 s']\n");
    let sweep = ["sweep", "s.toml", "--vary", "pools.web.replicas=1..3", "-o", "cells"];
    tonnage(folder.path(), &sweep).assert().success();
    let results = fs::read_to_string(folder.path().join("cells/results.csv")).unwrap();
    let header = results.lines().next().unwrap();
    assert!(header.starts_with("pools.web.replicas,") && header.contains(",by_pool.ops.calls,"));
    assert_eq!(results.lines().count(), 4);
    let size = answer(folder.path(), &["size", "s.toml", "--json"]);
    let sizes: u64 =
        size["pools"].as_array().unwrap().iter().map(|p| p["replicas"].as_u64().unwrap()).sum();
    assert_eq!(size["replicas"].as_u64(), Some(sizes));
    let error = refusal(folder.path(), &["size", "s.toml", "--vary", "pools.web.replicas=1..2"]);
    assert!(error.contains("is what is looked for"), "{error}");
    let capacity = answer(folder.path(), &["capacity", "s.toml", "--json"]);
    assert_eq!(capacity["replicas"], 2);
    let explained = answer(folder.path(), &["explain", "s.toml", "--json"]);
    let levers: Vec<&str> =
        explained["levers"].as_array().unwrap().iter().filter_map(|l| l["set"].as_str()).collect();
    assert_eq!(levers[..2], ["pools.web.replicas=2", "pools.ops.replicas=2"]);
    let vary = ["--vary", "pools.web.replicas=2", "--vary", "pools.ops.replicas=2"];
    let varied = answer(folder.path(), &[&["explain", "s.toml", "--json"], &vary[..]].concat());
    let levers = varied["levers"].as_array().unwrap();
    let names: Vec<&str> = levers.iter().filter_map(|lever| lever["name"].as_str()).collect();
    for name in ["pools.web.replicas 2", "pools.ops.replicas 2"] {
        assert!(names.contains(&name), "{names:?}");
    }
}

#[test]
fn a_target_may_be_about_one_pool() {
    let targets = "[slo]\ntargets = ['p50 ttft[pool=web] <= 9 s', 'hit[pool=ops] >= 1 %']\n";
    let folder = with_pools(targets);
    let fleet = &answer(folder.path(), &["replay", "s.toml", "--json"])["fleet"];
    let figures = fleet["figures"]["by_pool"].as_array().unwrap();
    assert_eq!(fleet["targets"][0]["value"], figures[0]["ttft"]["p50"]);
    assert_eq!(fleet["targets"][1]["value"], figures[1]["hit"]);
    for (target, said) in [
        ("p95 ttft[pool=wweb] <= 1 s", "did you mean `web`?"),
        ("p90 task[pool=web] <= 1 s", "a pool does not narrow `task`"),
    ] {
        let error = refusal(folder.path(), &["replay", "s.toml", "--slo", target]);
        assert!(error.contains(said), "{error}");
    }
}

/// Every pair of sizes is tried: the answer passes, no pool of it can do with one less, and fleets
/// that are smaller in every pool fail.
#[test]
fn the_sizes_agree_with_trying_every_pair() {
    const MOST: u32 = 5;
    let mut unlike = 0;
    let trace = tonnage::trace::canonical::read_all(&folder().path().join("t.csv")).unwrap();
    for (ttft, overflow) in [(300, ""), (700, ""), (700, "overflow='ops'\noverflow_calls=2\n")] {
        let text = format!(
            "{SCENARIO}[slo]\ntargets = ['p95 ttft <= {ttft} ms']\n\
             [pools.web]\ntenants = ['web']\nreplicas = 1\n{overflow}\
             [pools.ops]\nrest = true\nreplicas = 1\n"
        );
        let set = ["load.developers=120".to_owned(), "run.window_s=300".to_owned()];
        let scenario = Scenario::parse(&text, "small", &set).unwrap();
        let case = Case::new(scenario, &trace, &[]).unwrap();
        let replicates = Replicates::of(case, 1, |case, s| case.sibling(s, &trace, &[])).unwrap();
        let progress = Progress::default();
        let met = |sizes: [u32; 2]| {
            let sized = replicates.changed(|case| case.with_pools(&sizes)).unwrap();
            sized.judge(sizes.iter().sum(), &progress).unwrap().met()
        };
        let found = PoolSizes::find(&replicates, 2 * MOST, &Fleet::met, &progress).unwrap();
        let Some(answer) = found.smallest.clone() else {
            assert!((1..=MOST).all(|each| !met([each, each])));
            continue;
        };
        let (web, ops) = (answer[0], answer[1]);
        assert!(met([web, ops]));
        assert!(web == 1 || !met([web - 1, ops]), "{ttft} {answer:?}");
        assert!(ops == 1 || !met([web, ops - 1]), "{ttft} {answer:?}");
        assert!(web < 3 || !met([web - 2, ops + 1]), "{ttft} {answer:?}");
        assert!(ops < 3 || !met([web + 1, ops - 2]), "{ttft} {answer:?}");
        assert!(web + ops > 2, "{ttft}: nothing was looked for");
        for (pool, fleet) in found.neighbours(-1) {
            assert_eq!(fleet.is_some(), answer[pool] > 1);
        }
        // Here no pair of sizes has fewer replicas, either.
        let pairs = (1..=MOST).flat_map(|web| (1..=MOST).map(move |ops| [web, ops]));
        let fewest = pairs.filter(|sizes| met(*sizes)).map(|sizes| sizes.iter().sum::<u32>());
        assert_eq!(fewest.min(), Some(web + ops), "{ttft} {answer:?}");
        unlike += u32::from(web.abs_diff(ops) > 1);
        at_the_limit(&replicates, &found);
    }
    assert!(unlike > 0, "all pools need the same");
}

/// What was found is found as well where it is all that the limit leaves, although equal pools
/// within it are too small, and from smaller sizes on; with one less it is told as beyond it.
fn at_the_limit(replicates: &Replicates, found: &PoolSizes) {
    let (answer, progress) = (found.smallest.clone().unwrap(), Progress::default());
    let most = answer.iter().sum::<u32>();
    let find = |most| PoolSizes::find(replicates, most, &Fleet::met, &progress).unwrap();
    let within = find(most);
    assert_eq!((&within.smallest, &within.beyond), (&Some(answer.clone()), &None));
    let short = find(most - 1);
    // Where one pool needs all of it, equal pools that are tried may have one too few as well.
    let is_seen = answer.iter().all(|&size| size < most - 1);
    assert_eq!(short.smallest, None);
    assert!(!is_seen || short.beyond.is_some(), "{answer:?}");
    assert!(short.beyond.as_ref().is_none_or(|beyond| *beyond == answer), "{short:?}");
    let fewest = |found: &PoolSizes, replicates: &Replicates, most, is_known| {
        found.fewest(replicates, most, is_known, &Fleet::met, &progress).unwrap()
    };
    assert_eq!(fewest(&short, replicates, most, false), Some(most));
    for pool in (0..2).filter(|&pool| answer[pool] > 1) {
        let mut less = answer.clone();
        less[pool] -= 1;
        let from = PoolSizes { smallest: Some(less), ..found.clone() };
        assert_eq!(fewest(&from, replicates, most, false), Some(most), "{answer:?}");
    }
    // Nothing that is known is simulated again: steps that are longer do not show.
    let slow = replicates.with_step_time(100.0);
    assert_eq!(fewest(found, &slow, most, true), Some(most));
    assert_eq!(fewest(found, &slow, most, false), None);
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// A row of the table in `docs/pools.md`: what the scenario gives with these keys.
fn row(name: &str, scenario: &str, set: &[&str]) -> String {
    const TARGETS: [&str; 5] = [
        "p95 ttft[profile=chat] <= 0.2 s",
        "p90 interactivity[profile=chat] >= 1 tok/s",
        "p95 ttft[profile=copilot] <= 5 s",
        "p90 interactivity[profile=copilot] >= 1 tok/s",
        "hit[profile=copilot] >= 1 %",
    ];
    let mut args = vec!["replay", scenario, "--json"];
    TARGETS.iter().for_each(|target| args.extend(["--slo", target]));
    set.iter().for_each(|set| args.extend(["--set", set]));
    let fleet = &answer(root(), &args)["fleet"];
    let values: BTreeMap<&str, f64> = fleet["targets"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| (one["target"].as_str().unwrap(), one["value"].as_f64().unwrap()))
        .collect();
    let [chat, rate, code, code_rate, hit] = TARGETS.map(|target| values[target]);
    let idle = fleet["figures"]["gpu"]["idle"].as_f64().unwrap();
    format!(
        "| {name} | {chat:.2} s | {rate:.0} | {code:.1} s | {code_rate:.0} | {:.1} % | {:.0} % |",
        100.0 * hit,
        100.0 * idle
    )
}

/// The figures of the page are those of the scenarios that it names.
#[test]
fn the_page_tells_what_pools_give() {
    const TOGETHER: &str = "scenarios/pools/shared.toml";
    const APART: &str = "scenarios/pools/human-and-agents.toml";
    let lent = |calls| format!("pools.agents.overflow_calls={calls}");
    let spills =
        |name: &str, calls| row(name, APART, &["pools.agents.overflow=human", &lent(calls)]);
    let rows = [
        row("together, `session_affinity`", TOGETHER, &["router=session_affinity"]),
        row("together, `sticky`", TOGETHER, &[]),
        row("apart, 1 and 3", APART, &[]),
        row("apart, 2 and 2", APART, &["pools.human.replicas=2", "pools.agents.replicas=2"]),
        spills("agents spill from 12 calls on", 12),
        spills("agents spill from 8 calls on", 8),
        spills("agents spill from 4 calls on", 4),
    ];
    let page = fs::read_to_string(root().join("docs/pools.md")).unwrap();
    let missing: Vec<&String> = rows.iter().filter(|row| !page.contains(*row)).collect();
    assert!(missing.is_empty(), "docs/pools.md lacks\n{}", rows.join("\n"));
    for (scenario, said) in [
        (TOGETHER, "Answer: 5 replicas (5 GPUs) meet every target."),
        (APART, "Answer: 4 replicas (4 GPUs), 1 in human, 3 in agents, meet every target."),
    ] {
        let args = ["size", scenario, "--set", "size.step_time_band=0"];
        let output = tonnage(root(), &args).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(text.lines().any(|line| line == said), "{text}");
        assert!(page.contains(said), "docs/pools.md lacks {said}");
    }
}
