//! `size` and `capacity`: their answers are those of trying everything.

use std::fmt::Write;
use std::io::Cursor;

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use serde_json::Value;
use tonnage::config::scenario::Scenario;
use tonnage::fleet::Progress;
use tonnage::rng::{Purpose, Stream};
use tonnage::sizing::case::Case;
use tonnage::sizing::replicates::Replicates;
use tonnage::sizing::search::Search;
use tonnage::trace::canonical;
use tonnage::trace::record::Trace;

use super::small::{folder, tonnage};

const MOST: u32 = 12;

/// A few sessions of random lengths.
fn sessions(seed: u64) -> Trace {
    let mut random = Stream::new(seed, Purpose::Pause, 0);
    let mut between =
        |from: u64, to: u64| from + (random.uniform_f64() * (to - from) as f64) as u64;
    let mut text = "session,call,at_s,after,gap_s,cause,turn,lane,model,tenant,user,profile,base,\
                    kept_tokens,prompt_tokens,output_tokens,tools,status\n"
        .to_owned();
    for session in 0..between(3, 9) {
        let (mut prompt, mut at, mut after, mut base, mut kept) =
            (between(100, 3_000), 10 * session, String::new(), String::new(), 0);
        for call in 0..between(1, 6) {
            let output = between(5, 200);
            let gap = if call == 0 { 0 } else { between(1, 10) };
            at += gap + 3;
            let cause = if call == 0 { "user" } else { "tool" };
            writeln!(
                text,
                "s{session},{call},{at},{after},{gap},{cause},0,0,m,,,,{base},{kept},{prompt},\
                 {output},,ok"
            )
            .unwrap();
            (after, base) = (call.to_string(), call.to_string());
            kept = prompt + output;
            prompt = kept + between(10, 800);
        }
    }
    canonical::read_from(Cursor::new(text), "random").unwrap()
}

#[derive(Clone, Debug)]
struct Small {
    trace: u64,
    seed: u64,
    seeds: u32,
    developers: u32,
    blocks: u32,
    router: &'static str,
    target: String,
}

fn any_small() -> impl Strategy<Value = Small> {
    let target = prop_oneof![
        (1u32..400).prop_map(|ms| format!("p95 ttft <= {ms} ms")),
        (20u32..150).prop_map(|rate| format!("p90 interactivity >= {rate} tok/s")),
        (10u32..40).prop_map(|tenths| format!("p90 stretch <= {}", f64::from(tenths) / 10.0)),
        (10u32..95).prop_map(|percent| format!("hit >= {percent} %")),
        (1u32..20).prop_map(|s| format!("p90 task_llm <= {s} s")),
    ];
    let router = prop_oneof![
        Just("session_affinity"),
        Just("random"),
        Just("round_robin"),
        Just("least_loaded"),
    ];
    (0u64..1_000, 0u64..50, 1u32..3, 2u32..120, 520u32..4_000, router, target).prop_map(
        |(trace, seed, seeds, developers, blocks, router, target)| Small {
            trace,
            seed,
            seeds,
            developers,
            blocks,
            router,
            target,
        },
    )
}

fn replicates(small: &Small) -> Replicates {
    let text = format!(
        "[engine]\nmodel = 'Llama-3.1-8B'\ngpu = 'h100-sxm'\nmax_model_len = 8192\n\
         num_gpu_blocks_override = {}\n[fleet]\nrouter = '{}'\n[load]\nkind = 'developers'\n\
         developers = {}\npause_median_s = 5\n[run]\nseed = {}\nwarmup_s = 30\nwindow_s = 150\n\
         [slo]\ntargets = ['{}']\n",
        small.blocks, small.router, small.developers, small.seed, small.target
    );
    let trace = sessions(small.trace);
    let case = Case::new(Scenario::parse(&text, "small", &[]).unwrap(), &trace, &[]).unwrap();
    let sibling = |case: &Case, scenario| case.sibling(scenario, &trace, &[]);
    Replicates::of(case, small.seeds, sibling).unwrap()
}

/// Brute force over all sizes. Where larger fleets fail although smaller ones pass there may be
/// several answers, and the search must give one of them: a size that passes above one that fails.
#[test]
fn size_agrees_with_trying_every_size() {
    let (mut found, mut none, mut gave_up, mut above_one) = (0, 0, 0, 0);
    let mut runner = TestRunner::deterministic();
    let strategy = any_small();
    for _ in 0..50 {
        let small = strategy.new_tree(&mut runner).unwrap().current();
        let replicates = replicates(&small);
        let progress = Progress::default();
        let passes: Vec<bool> =
            (1..=MOST).map(|size| replicates.judge(size, &progress).unwrap().met()).collect();
        let search = Search::run(&replicates, MOST, &progress).unwrap();
        let first = (1..=MOST).zip(&passes).find(|(_, passes)| **passes).map(|(size, _)| size);
        let is_monotone = passes.is_sorted();
        if is_monotone {
            assert_eq!(search.smallest, first, "{small:?}: {passes:?}");
        }
        match search.smallest {
            Some(size) => {
                let at = size as usize - 1;
                assert!(passes[at] && (at == 0 || !passes[at - 1]), "{small:?}: {passes:?}");
                found += 1;
                above_one += usize::from(at > 0);
            }
            None => {
                assert!(search.gave_up.is_none() || first.is_none(), "{small:?}: {passes:?}");
                none += 1;
                gave_up += usize::from(search.gave_up.is_some());
            }
        }
    }
    // Cases of which all have the same answer would show little.
    assert!(
        found >= 10 && none >= 5 && gave_up >= 1 && above_one >= 5,
        "{found} {none} {gave_up} {above_one}"
    );
}

fn json(args: &[&str], code: i32) -> Value {
    let folder = folder();
    let output = tonnage(folder.path(), args).assert().code(code).get_output().clone();
    serde_json::from_slice(&output.stdout).unwrap()
}

fn text(args: &[&str], code: i32) -> String {
    let folder = folder();
    let output = tonnage(folder.path(), args).assert().code(code).get_output().clone();
    String::from_utf8(output.stdout).unwrap()
}

/// Two replicas meet it, one does not, under the first seed.
const TTFT: [&str; 4] = ["size", "s.toml", "--slo", "p95 ttft <= 100 ms"];

#[test]
fn each_candidate_has_the_answer_that_it_has_alone() {
    let size = ["size", "s.toml", "--slo", "hit >= 45 %", "--seeds", "2", "--json"];
    let routers = ["--vary", "router=random,session_affinity"];
    let both = json(&[&size[..], &routers].concat(), 0);
    let candidates = both["candidates"].as_array().unwrap();
    assert_eq!(candidates.len(), 2);
    for candidate in candidates {
        let name = candidate["name"].as_str().unwrap();
        let code = if candidate["met"] == true { 0 } else { 1 };
        let alone = json(&[&size[..], &["--set", name]].concat(), code);
        assert_eq!(candidate["replicas"], alone["replicas"], "{name}");
        assert_eq!(alone["seeds"], serde_json::json!([1, 2]));
        assert_eq!(alone["tried"][0]["by_seed"].as_array().unwrap().len(), 2);
    }
    // With random routing more replicas lose hits.
    assert_eq!(candidates[0]["name"], "router=session_affinity");
    assert_eq!((&candidates[0]["met"], &candidates[1]["met"]), (&true.into(), &false.into()));
    let offers = both["offers"].as_array().unwrap();
    assert!(offers.iter().any(|offer| offer["pareto"] == true), "{offers:?}");
}

#[test]
fn candidates_that_cannot_run_are_told_and_slips_are_refused() {
    let pools =
        ["--vary", "max_model_len=8192,65536", "--vary", "num_gpu_blocks_override=600,6000"];
    let said = text(&[&TTFT[..], &pools].concat(), 0);
    let refused = "cannot run   max_model_len=65536 num_gpu_blocks_override=600: ";
    assert!(said.contains(refused), "{said}");
    for (more, said) in [
        (["--vary", "replicas=1..3"], "the number of replicas is what is looked for"),
        (["--vary", "gpu=h100,h1000"], "--vary engine.gpu: unknown GPU `h1000`"),
        (["--vary", "load.developers=1,2"], "compared under the same load"),
        (["--vary", "router=random,random"], "`random` is in the list twice"),
    ] {
        let folder = folder();
        let output = tonnage(folder.path(), &[&TTFT[..], &more].concat()).output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{more:?}");
        assert!(stderr.contains(said), "{more:?}: {stderr}");
    }
    let price = ["--vary", "gpu=h100,h200", "--set", "usd_per_gpu_hour=2"];
    let folder = folder();
    let output = tonnage(folder.path(), &[&TTFT[..], &price].concat()).output().unwrap();
    assert!(String::from_utf8(output.stderr).unwrap().contains("give each its own in [prices]"));
}

#[test]
fn prices_of_the_scenario_decide_who_is_best() {
    let best = |price: &str| {
        let args = ["--vary", "gpu=h100-sxm,h200-sxm", "--set", price, "--json"];
        json(&[&TTFT[..], &args].concat(), 0)["gpu"].clone()
    };
    assert_eq!(best("prices.h100-sxm=100"), "H200-SXM");
    assert_eq!(best("prices.h200-sxm=100"), "H100-SXM");
}

/// A lone sequence cannot decode faster than its weights are read, whatever the fleet.
#[test]
fn a_target_that_no_fleet_meets_is_given_up_early_with_the_reason() {
    let args = ["size", "s.toml", "--slo", "p90 interactivity >= 5000 tok/s"];
    let said = text(&args, 1);
    assert!(said.contains("the search gave up at 8 replicas"), "{said}");
    assert!(said.contains("binding      p90 interactivity >= 5000 tok/s: "), "{said}");
    assert!(said.contains("of its step is reading weights (bandwidth)"), "{said}");
    let found = json(&[&args[..], &["--json"]].concat(), 1);
    assert_eq!(found["gave_up"]["target"], "p90 interactivity >= 5000 tok/s");
    assert_eq!(found["tried"].as_array().unwrap().len(), 4);
}

#[test]
fn a_fleet_carries_what_capacity_says_and_no_step_more() {
    let targets = ["--slo", "p95 ttft <= 150 ms", "--slo", "p90 stretch <= 2"];
    let found = json(&[&["capacity", "s.toml", "--json"], &targets[..]].concat(), 0);
    let (carried, breaks) = (found["carried"].as_f64().unwrap(), found["breaks"].as_f64().unwrap());
    assert!(carried >= 1.0 && breaks > carried && breaks - carried <= 1.0 + carried / 50.0);
    for (load, code) in [(carried, 0), (breaks, 1)] {
        let folder = folder();
        let set = format!("load.developers={load}");
        let args = [&["replay", "s.toml", "--check", "--set", &set], &targets[..]].concat();
        tonnage(folder.path(), &args).assert().code(code);
    }
    let band = &found["bands"]["step_time"];
    assert!(band["low"].as_f64().unwrap() <= carried && band["high"].as_f64().unwrap() >= carried);
}

#[test]
fn capacity_of_other_loads_is_a_rate_or_a_factor() {
    let open = ["--set", "load.kind=sessions_per_hour", "--set", "load.sessions_per_hour=400"];
    let target = ["--slo", "p95 ttft <= 150 ms", "--json", "--set", "step_time_band=0"];
    let found = json(&[&["capacity", "s.toml"], &open[..], &target].concat(), 0);
    assert_eq!(found["unit"], "sessions an hour");
    let a_day = found["sessions_per_day"].as_f64().unwrap();
    assert!((a_day - 24.0 * found["carried"].as_f64().unwrap()).abs() < 1e-6);
    let recorded = ["--set", "load.kind=trace", "--set", "workload.jitter_s=5"];
    let scale = ["--set", "workload.scale=4"];
    let found = json(&[&["capacity", "s.toml"], &recorded[..], &scale, &target].concat(), 0);
    assert_eq!(found["unit"], "times the trace");
    // Not even one developer gets a first token in no time.
    let args = ["capacity", "s.toml", "--slo", "p50 ttft <= 1 ms"];
    assert!(text(&args, 1).contains("does not carry even 1 developers"));
}
