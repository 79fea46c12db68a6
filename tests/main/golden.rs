//! The answers to the scenarios that come with tonnage, byte for byte.
//!
//! `TONNAGE_BLESS=1 cargo test golden` writes the files of `tests/golden` afresh.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use assert_cmd::Command;
use tempfile::TempDir;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The names of all scenarios, without folder and ending.
fn scenarios() -> Vec<String> {
    let names = |entry: std::io::Result<fs::DirEntry>| {
        let name = entry.unwrap().file_name().into_string().unwrap();
        name.strip_suffix(".toml").map(str::to_owned)
    };
    let mut scenarios: Vec<String> =
        fs::read_dir(root().join("scenarios")).unwrap().filter_map(names).collect();
    scenarios.sort();
    assert!(!scenarios.is_empty());
    scenarios
}

fn golden(name: &str, command: &str) -> PathBuf {
    root().join("tests/golden").join(format!("{name}.{command}.json"))
}

fn tonnage(args: &[&str]) -> Command {
    let mut run = Command::new(assert_cmd::cargo::cargo_bin!("tonnage"));
    run.current_dir(root()).args(args);
    run
}

fn answer(name: &str, command: &str) -> String {
    let scenario = format!("scenarios/{name}.toml");
    let output = tonnage(&[command, &scenario, "--json"]).output().unwrap();
    assert!(matches!(output.status.code(), Some(0 | 1)), "{name} {command}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Where two texts part, for people.
fn first_difference(found: &str, expected: &str) -> Option<String> {
    if found == expected {
        return None;
    }
    let lines = found.lines().zip(expected.lines());
    let same = lines.take_while(|(found, expected)| found == expected).count();
    let line = |text: &str| text.lines().nth(same).unwrap_or("(nothing)").to_owned();
    Some(format!("line {}: `{}` was `{}`", same + 1, line(found), line(expected)))
}

fn hold(command: &str) {
    let bless = std::env::var_os("TONNAGE_BLESS").is_some_and(|value| value == "1");
    let mut changed = Vec::new();
    for name in scenarios() {
        let (found, file) = (answer(&name, command), golden(&name, command));
        if bless {
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(&file, &found).unwrap();
        }
        let expected = fs::read_to_string(&file).unwrap_or_default();
        if let Some(difference) = first_difference(&found, &expected) {
            changed.push(format!("{}: {difference}", file.display()));
        }
    }
    let advice = "if that is meant, run with TONNAGE_BLESS=1 and say so in CHANGELOG.md";
    assert!(changed.is_empty(), "figures changed; {advice}:\n{}\n", changed.join("\n"));
}

#[test]
fn every_scenario_has_the_size_that_it_had() {
    hold("size");
}

#[test]
fn every_replay_gives_the_figures_that_it_gave() {
    hold("replay");
}

#[test]
fn every_golden_file_belongs_to_a_scenario() {
    let expected: BTreeSet<PathBuf> = scenarios()
        .iter()
        .flat_map(|name| [golden(name, "size"), golden(name, "replay")])
        .collect();
    let entries = fs::read_dir(root().join("tests/golden")).unwrap();
    let found: BTreeSet<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    assert_eq!(found, expected);
}

/// A quarter of an hour of the twenty developers: JSON, calls.csv and tasks.csv.
fn short_run(threads: &str, every_step: bool) -> (Vec<u8>, Vec<u8>, [Vec<u8>; 2]) {
    let folder = TempDir::new().unwrap();
    let out = folder.path().to_str().unwrap();
    let with = |command: &str, more: &[&str]| {
        let short = ["--set", "run.warmup_s=300", "--set", "run.window_s=900"];
        let mut run = tonnage(&[command, "scenarios/twenty-developers.toml", "--json"]);
        run.env("RAYON_NUM_THREADS", threads).args(short).args(more);
        if every_step {
            run.arg("--every-step");
        }
        run.output().unwrap().stdout
    };
    // A target that takes several sizes to meet, so that several are simulated at once.
    let size = with("size", &["--slo", "p99 ttft <= 1 s", "--set", "size.max_replicas=12"]);
    let replay = with("replay", &["--out", out]);
    let table = |name: &str| fs::read(folder.path().join(name)).unwrap();
    (size, replay, ["calls.csv", "tasks.csv"].map(table))
}

#[test]
fn neither_threads_nor_every_step_change_a_byte() {
    let one = short_run("1", false);
    assert!(one.0.len() > 5_000 && one.1.len() > 2_000 && one.2[0].len() > 5_000);
    assert!(one == short_run("3", false), "three threads give another answer than one");
    assert!(one == short_run("2", true), "step by step gives another answer");
}
