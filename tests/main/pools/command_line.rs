//! Pools on the command line: what is refused, reported, swept and sized.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde_json::Value;
use tonnage::config::scenario::Scenario;
use tonnage::fleet::Progress;
use tonnage::sizing::case::Case;
use tonnage::sizing::pool_sizes::PoolSizes;
use tonnage::sizing::replicates::{Fleet, Replicates};

use super::super::small::{SCENARIO, folder, tonnage};

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
    assert!(lines.next().unwrap().ends_with(",uncached_tokens,pool,served_by"));
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
