//! The public traces: every reference figure that a trace can answer comes out equal, the exact
//! hits and evictions of every cache size among them.

use std::fs;

use serde_json::{Value, json};

use super::{data, folder, stats, tonnage};

/// Reference figures that a trace does not carry; `stats` says why of each but the first two.
const NOT_CARRIED: [&str; 14] = [
    "definitions",
    "inferred_chains",
    "name",
    "stagger_s",
    "tool_plus_system_tokens",
    "tool_gap_s",
    "user_gap_s",
    "gap_spanning_subagent_s",
    "other_gap_s",
    "stop_reasons",
    "calls_per_turn",
    "turn_step_hit_tokens",
    "per_call_hit_within_turn",
    "per_call_hit_first_of_turn",
];

/// Imports a file and compares the figures; gives those that were compared.
fn compare(format: &str, name: &str) -> Vec<String> {
    let folder = folder();
    let mut run = tonnage(folder.path());
    run.args(["import", format]).arg(data(name)).args(["-o", "t.csv"]).assert().success();
    let reference = data(name.split_once(".jsonl").unwrap().0).with_extension("stats.json");
    let expected: Value = serde_json::from_str(&fs::read_to_string(reference).unwrap()).unwrap();
    let sizes = |key: &str| {
        let rows = expected[key].as_array().unwrap().iter();
        let sizes: Vec<String> = rows.map(|row| row["capacity_blocks"].to_string()).collect();
        sizes.join(",")
    };
    let (lru, forward) = (sizes("lru"), sizes("lru_forward"));
    let found = stats(folder.path(), &["t.csv", "--lru", &lru, "--lru-forward", &forward]);
    let mut compared = Vec::new();
    for (key, value) in expected.as_object().unwrap() {
        if NOT_CARRIED.contains(&&**key) {
            continue;
        }
        let own = if key == "arrival" { "arrival_on_merged_timeline" } else { key };
        assert_eq!(&found[own], value, "{name}: {key}");
        compared.push(key.clone());
    }
    compared
}

fn assert_has(compared: &[String], keys: &[&str]) {
    for key in keys {
        assert!(compared.iter().any(|compared| compared == key), "{key} was not compared");
    }
}

/// What every one of the references has.
const CORE: [&str; 10] = [
    "requests",
    "tokens_in",
    "tokens_out",
    "in_out_ratio",
    "prompt_tokens",
    "output_tokens",
    "infinite",
    "new_tokens",
    "lru",
    "lru_forward",
];

#[test]
fn mooncake_comes_out_as_counted() {
    let compared = compare("mooncake", "mooncake/conversation_trace.jsonl.gz");
    assert_has(&compared, &CORE);
    assert_has(&compared, &["arrival"]);
}

#[test]
fn lmcache_comes_out_as_counted() {
    let compared = compare("lmcache", "lmcache/sessions.jsonl.gz");
    assert_has(&compared, &CORE);
    assert_has(&compared, &["calls_per_session_all", "first_prompt_tokens"]);
}

#[test]
fn sessions_with_global_ids_come_out_as_counted() {
    let compared = compare("weka", "weka-global/sessions.jsonl.gz");
    assert_has(&compared, &CORE);
    assert_has(&compared, &["calls_per_session_all", "first_prompt_tokens", "step_hit_tokens"]);
}

#[test]
fn the_small_set_of_local_ids_comes_out_as_counted() {
    assert_has(&compare("weka", "weka/mini.jsonl.gz"), &CORE);
}

#[test]
fn what_the_origin_calls_a_block_is_remembered_and_can_be_overruled() {
    let folder = folder();
    let mut run = tonnage(folder.path());
    run.args(["import", "mooncake"]).arg(data("mooncake/conversation_trace.jsonl.gz"));
    run.args(["-o", "m.csv.zst"]).assert().success();
    let blocks = |args: &[&str]| {
        let args: Vec<&str> = ["m.csv.zst"].iter().chain(args).copied().collect();
        stats(folder.path(), &args)["infinite"]["total_blocks"].clone()
    };
    assert_eq!(blocks(&[]), json!(288_500));
    // All but 22 of the 12,031 prompts end in a partial block.
    assert_eq!(blocks(&["--partial-block", "drop"]), json!(288_500 - 12_009));
    let mut run = tonnage(folder.path());
    run.args(["import", "lmcache"]).arg(data("lmcache/sessions.jsonl.gz"));
    run.args(["-o", "l.csv"]).assert().success();
    let blocks = |args: &[&str]| {
        let args: Vec<&str> = ["l.csv"].iter().chain(args).copied().collect();
        stats(folder.path(), &args)["infinite"]["total_blocks"].clone()
    };
    assert_eq!(blocks(&[]), json!(61_278));
    // Without the list in the sidecar, the whole blocks that the origin did not number count.
    let sidecar = folder.path().join("l.meta.json");
    let mut meta: Value = serde_json::from_str(&fs::read_to_string(&sidecar).unwrap()).unwrap();
    let unnumbered = meta.as_object_mut().unwrap().remove("unnumbered_blocks").unwrap();
    assert_eq!(unnumbered["s000037"], json!([1, 2, 3, 4, 5, 6]));
    fs::write(&sidecar, meta.to_string()).unwrap();
    assert_eq!(blocks(&[]), json!(61_278 + 18));
}

#[test]
fn the_original_files_read_as_their_run_length_form() {
    let folder = folder();
    let name = |id: &str| data(&format!("weka/original/trace_{id}.json.gz"));
    let mut run = tonnage(folder.path());
    run.args(["import", "weka"]).args(["0026", "0057", "0291"].map(name)).args(["-o", "o.csv"]);
    run.assert().success();
    let mut run = tonnage(folder.path());
    run.args(["import", "weka"]).arg(data("weka/original/run-length.jsonl.gz"));
    run.args(["-o", "r.csv"]).assert().success();
    let read = |name: &str| fs::read_to_string(folder.path().join(name)).unwrap();
    assert_eq!(read("o.csv"), read("r.csv"));
    // The sums of `totals` in the three files.
    let found = stats(folder.path(), &["o.csv"]);
    assert_eq!(found["tokens_in"], json!(52_760 + 114_011 + 2_254_119));
    assert_eq!(found["tokens_out"], json!(5_294 + 1_821 + 19_504));
    assert_eq!((&found["sessions"], &found["subagent_threads"]), (&json!(3), &json!(2)));
}
