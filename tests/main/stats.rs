//! `tonnage stats` on small traces whose figures were worked out on paper.

use std::fs;
use std::path::Path;

use assert_cmd::Command;
use serde_json::{Value, json};
use tempfile::TempDir;

const HEAD: &str = "session,call,at_s,after,gap_s,cause,turn,lane,model,tenant,user,profile,base,\
                    kept_tokens,prompt_tokens,output_tokens,tools,status,seen_duration_s\n";

/// In blocks of 10 tokens: A0-A3 at 0 s, C0 C1 D2 at 5 s, A0-A4 B5 B6 at 10 s, C0 C1 at 12 s.
const ROWS: &str = "\
@c,,,,,,,,,,,,,0,20,,,,
one,0,0,,0,user,0,0,m,,,,,0,40,10,,ok,4
one,1,10,0,6,tool,0,0,m,,,,0,50,70,5,,ok,2
two,0,5,,0,user,0,0,m,,,,@c,20,30,0,,ok,
two,1,12,0d,7,subagent,0,1,n,,,,@c,20,25,10,,failed,
";

/// A folder with the trace above as `t.csv`.
fn folder() -> TempDir {
    let folder = TempDir::new().expect("a temporary folder");
    fs::write(folder.path().join("t.csv"), format!("{HEAD}{ROWS}")).expect("a written file");
    folder
}

fn tonnage(folder: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("tonnage"));
    command.current_dir(folder).arg("stats").args(args);
    command
}

fn figures(folder: &Path, args: &[&str]) -> Value {
    let output = tonnage(folder, args).arg("--json").assert().success().get_output().clone();
    serde_json::from_slice(&output.stdout).expect("JSON on standard output")
}

#[test]
fn figures_worked_out_on_paper() {
    let folder = folder();
    let args = ["t.csv", "--block-size", "10", "--lru", "6,100", "--lru-forward", "6"];
    let found = figures(folder.path(), &args);
    for (key, expected) in [
        ("requests", json!(4)),
        ("tokens_in", json!(165)),
        ("tokens_out", json!(25)),
        ("in_out_ratio", json!(6.6)),
        ("new_to_out_ratio_total", json!(4.2)),
        ("sessions", json!(2)),
        ("subagent_threads", json!(1)),
        ("sessions_with_subagents", json!(1)),
        ("context_halvings", json!(0)),
        ("api_time_coverage", json!(0.5)),
        ("models", json!({"m": 3, "n": 1})),
        ("model_change_share_of_consecutive_calls", json!(0.0)),
        ("step_hit_tokens", json!({"0": 0.0, "1": 0.5714})),
        (
            "infinite",
            json!({"total_blocks": 16, "unique_blocks": 10, "prefix_hit_blocks": 6,
                   "hit_rate_blocks": 0.375, "hit_rate_tokens": 0.363636}),
        ),
        (
            "lru",
            json!([
                {"capacity_blocks": 6, "prefix_hit_blocks": 3, "hit_rate_blocks": 0.1875,
                 "hit_rate_tokens": 0.181818, "evictions": 10},
                {"capacity_blocks": 100, "prefix_hit_blocks": 6, "hit_rate_blocks": 0.375,
                 "hit_rate_tokens": 0.363636, "evictions": 0},
            ]),
        ),
    ] {
        assert_eq!(found[key], expected, "{key}");
    }
    // A0 is the oldest when the first prompt comes again, and the first to go.
    assert_eq!(found["lru_forward"][0]["prefix_hit_blocks"], json!(0));
    assert_eq!(found["new_tokens"]["sum"], json!(105));
    assert_eq!(found["session_duty_cycle"]["max"], json!(0.5)); // 6 s of 12
    assert_eq!(found["calls_per_session_main"]["sum"], json!(3));
    assert_eq!(found["arrival_on_merged_timeline"]["span_s"], json!(12.0));
    assert_eq!(found["columns"]["gap_s"]["tool"]["max"], json!(6.0));
    assert_eq!(found["columns"]["status"]["failed"], json!(1));
    for key in ["tool_gap_s", "stop_reasons", "calls_per_turn"] {
        assert!(found.get(key).is_none() && found["not_carried"][key].is_string(), "{key}");
    }
}

#[test]
fn a_partial_block_counts_where_asked_for() {
    let folder = folder();
    let args = ["t.csv", "--block-size", "10", "--partial-block", "count"];
    let found = figures(folder.path(), &args);
    assert_eq!(found["infinite"]["total_blocks"], json!(17));
    assert_eq!(found["infinite"]["unique_blocks"], json!(11));
    assert_eq!(found["lru"], json!([]));
}

#[test]
fn the_sidecar_knows_the_blocks_and_the_command_line_knows_better() {
    let folder = folder();
    assert_eq!(figures(folder.path(), &["t.csv"])["block_size"], json!(64));
    let meta = r#"{"format_version": 1, "origin_block_size": 10, "partial_block": "count"}"#;
    fs::write(folder.path().join("t.meta.json"), meta).expect("a written file");
    let found = figures(folder.path(), &["t.csv"]);
    assert_eq!(found["infinite"]["total_blocks"], json!(17));
    let args = ["t.csv", "--block-size", "20", "--partial-block", "drop"];
    assert_eq!(figures(folder.path(), &args)["infinite"]["total_blocks"], json!(7));
    fs::write(folder.path().join("t.meta.json"), "{").expect("a written file");
    let error = tonnage(folder.path(), &["t.csv"]).assert().code(2).get_output().clone();
    let said = String::from_utf8_lossy(&error.stderr).into_owned();
    assert!(said.contains("t.meta.json:1:1: EOF"), "{said}");
}

#[test]
fn the_tables_are_for_people() {
    let folder = folder();
    let args = ["t.csv", "--block-size", "10", "--lru", "6"];
    let output = tonnage(folder.path(), &args).assert().success().get_output().clone();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    for line in [
        "in blocks of 10 tokens; a partial block does not count",
        "tail evicted first       6    18.75 %    18.18 %           3         10",
        "status failed",
    ] {
        assert!(text.contains(line), "{line:?} is not in\n{text}");
    }
    assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
}

#[test]
fn threads_do_not_change_a_figure() {
    let folder = folder();
    let args = ["t.csv", "--block-size", "5", "--lru", "1,2,3,5,8,13", "--json"];
    let run = |threads: &str| {
        let mut command = tonnage(folder.path(), &args);
        command.env("RAYON_NUM_THREADS", threads).assert().success().get_output().stdout.clone()
    };
    assert_eq!(run("1"), run("4"));
}

#[test]
fn wrong_input_ends_with_2_and_says_where() {
    let folder = folder();
    let bad = ROWS.replace("one,1,10,0,6,tool", "one,1,10,0,6,tol");
    fs::write(folder.path().join("bad.csv"), format!("{HEAD}{bad}")).expect("a written file");
    for (args, said) in [
        (&["bad.csv"][..], "error: bad.csv:4:6: cause: unknown cause `tol`"),
        (&["none.csv"], "error: none.csv: cannot open"),
        (&["."], "error: .: cannot read on"),
        (&["t.csv", "--lru", "0"], "invalid value '0' for '--lru"),
        (&["t.csv", "--block-size", "0"], "invalid value '0' for '--block-size"),
        (&["t.csv", "--partial-block", "keep"], "possible values: count, drop"),
    ] {
        let output = tonnage(folder.path(), args).assert().code(2).get_output().clone();
        assert_eq!(output.stdout, b"", "{args:?}");
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(error.contains(said), "{args:?}: {error}");
    }
}
