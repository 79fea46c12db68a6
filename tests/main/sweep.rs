//! `tonnage sweep` from outside: interrupted, sharded, changed, on any number of threads, the
//! folder comes out the same.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use assert_cmd::Command;
use serde_json::Value;
use tempfile::TempDir;

use super::small::{SCENARIO, folder, tonnage};

const SWEEP: [&str; 8] = [
    "sweep",
    "s.toml",
    "--vary",
    "replicas=1..3",
    "--vary",
    "router=random,session_affinity",
    "--seeds",
    "2",
];

/// Every file below a folder with its content, by path.
fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        if path.is_dir() {
            let inner = files(&path).into_iter();
            found.extend(inner.map(|(inner, content)| (format!("{name}/{inner}"), content)));
        } else {
            found.insert(name, fs::read(&path).unwrap());
        }
    }
    found
}

fn sweep(folder: &Path, out: &str, more: &[&str]) -> Command {
    tonnage(folder, &[&SWEEP, more, &["-o", out]].concat())
}

/// Runs it, and gives what it says and what it leaves.
fn swept(folder: &Path, out: &str, more: &[&str]) -> (String, BTreeMap<String, Vec<u8>>) {
    let output = sweep(folder, out, more).assert().code(0).get_output().clone();
    (String::from_utf8(output.stdout).unwrap(), files(&folder.join(out)))
}

/// Exit code 2 and these words.
fn refused(mut command: Command, said: &[&str]) {
    let output = command.assert().code(2).get_output().clone();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.stdout, b"");
    for said in said {
        assert!(stderr.contains(said), "does not say `{said}`:\n{stderr}");
    }
}

/// The rows of results.csv by column.
fn rows(files: &BTreeMap<String, Vec<u8>>) -> Vec<BTreeMap<String, String>> {
    let mut table = csv::Reader::from_reader(&files["results.csv"][..]);
    let names = table.headers().unwrap().clone();
    let row = |row: csv::Result<csv::StringRecord>| {
        let row = row.unwrap();
        names
            .iter()
            .zip(row.iter())
            .map(|(name, cell)| (name.to_owned(), cell.to_owned()))
            .collect()
    };
    table.records().map(row).collect()
}

#[test]
fn every_cell_has_the_figures_of_its_own_replay() {
    let folder = folder();
    let (said, files) = swept(folder.path(), "out", &[]);
    assert!(said.starts_with("12 cells simulated, 0 kept from before\n"), "{said}");
    let rows = rows(&files);
    let order = rows.iter().map(|row| {
        let column = |name: &str| row[name].clone();
        format!("{} {} {}", column("fleet.replicas"), column("fleet.router"), column("run.seed"))
    });
    let order: Vec<String> = order.collect();
    assert_eq!(order[..3], ["1 random 1", "1 random 2", "1 session_affinity 1"]);
    assert_eq!(order.len(), 12);
    for row in &rows {
        let set = [
            "replay",
            "s.toml",
            "--json",
            "--seed",
            &row["run.seed"],
            "--set",
            &format!("replicas={}", row["fleet.replicas"]),
            "--set",
            &format!("router={}", row["fleet.router"]),
        ];
        let replay = tonnage(folder.path(), &set).output().unwrap().stdout;
        let replay: Value = serde_json::from_slice(&replay).unwrap();
        let figures = &replay["fleet"]["figures"];
        assert_eq!(row["met"], replay["fleet"]["met"].to_string());
        assert_eq!(row["latency.ttft.p95"], figures["latency"]["ttft"]["p95"].to_string());
        assert_eq!(row["latency.stretch.p90"], figures["latency"]["stretch"]["p90"].to_string());
        assert_eq!(row["p95 ttft <= 10 s"], row["latency.ttft.p95"]);
        assert_eq!(row["hit.engine_counter"], figures["hit"]["engine_counter"].to_string());
        let first = &figures["hit"]["segments"][0];
        let name = format!("hit.segments.{}.hit", first["name"].as_str().unwrap());
        assert_eq!(row[&name], first["hit"].to_string());
    }
}

#[test]
fn threads_change_no_byte_and_cells_that_are_there_are_kept() {
    let folder = folder();
    let (_, one) = swept(folder.path(), "one", &["--threads", "1"]);
    let (_, three) = swept(folder.path(), "three", &["--threads", "3"]);
    assert_eq!(one.len(), 14);
    assert!(one == three);
    let (said, again) = swept(folder.path(), "one", &[]);
    assert!(said.starts_with("0 cells simulated, 12 kept"), "{said}");
    assert!(one == again);
}

#[test]
fn a_sweep_that_was_killed_goes_on_to_the_same_result() {
    let folder = folder();
    let many = ["--vary", "engine.max_num_seqs=1..40", "--set", "run.window_s=7200"];
    let (_, whole) = swept(folder.path(), "whole", &many);
    let cells = folder.path().join("killed/cells");
    let args = [&SWEEP[..], &many, &["-o", "killed"]].concat();
    let mut child = std::process::Command::new(assert_cmd::cargo::cargo_bin!("tonnage"))
        .current_dir(folder.path())
        .args(args)
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let count = || fs::read_dir(&cells).map_or(0, Iterator::count);
    for _ in 0..10_000 {
        if count() >= 3 || child.try_wait().unwrap().is_some() {
            break;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let left = files(&folder.path().join("killed"));
    assert!(left.len() < whole.len(), "it was done before it could be killed");
    assert!(!left.contains_key("results.csv"));
    // Whatever is there is whole.
    for (name, content) in left.iter().filter(|(name, _)| name.ends_with(".json")) {
        assert!(whole[name] == *content, "{name} is half written");
    }
    let (said, rerun) = swept(folder.path(), "killed", &many);
    assert!(!said.contains(" 0 kept"), "{said}");
    let ours = |files: BTreeMap<String, Vec<u8>>| -> BTreeMap<String, Vec<u8>> {
        files.into_iter().filter(|(name, _)| !name.contains(".tonnage-")).collect()
    };
    assert!(ours(rerun) == whole);
}

#[test]
fn damaged_cells_are_simulated_again() {
    let folder = folder();
    let (_, whole) = swept(folder.path(), "out", &[]);
    let cells: Vec<&String> = whole.keys().filter(|name| name.starts_with("cells/")).collect();
    let path = |number: usize| folder.path().join("out").join(cells[number]);
    let text = fs::read_to_string(path(0)).unwrap();
    fs::write(path(0), &text[..text.len() / 2]).unwrap();
    fs::write(path(1), fs::read_to_string(path(1)).unwrap().replacen("0.", "1.", 1)).unwrap();
    fs::remove_file(path(2)).unwrap();
    let (said, again) = swept(folder.path(), "out", &[]);
    assert!(said.starts_with("3 cells simulated, 9 kept"), "{said}");
    assert!(said.contains("2 were damaged"), "{said}");
    assert!(again == whole);
}

#[test]
fn a_changed_scenario_or_trace_is_never_mixed_with_cells_of_before() {
    let folder = folder();
    swept(folder.path(), "out", &[]);
    let scenario = folder.path().join("s.toml");
    // A comment changes nothing.
    fs::write(&scenario, format!("# office\n{SCENARIO}")).unwrap();
    assert!(swept(folder.path(), "out", &[]).0.starts_with("0 cells simulated, 12 kept"));
    fs::write(&scenario, format!("{SCENARIO}\n[api]\nrequest_ms = 100\n")).unwrap();
    let (said, changed) = swept(folder.path(), "out", &[]);
    assert!(said.starts_with("12 cells simulated, 0 kept"), "{said}");
    let (_, fresh) = swept(folder.path(), "fresh", &[]);
    assert!(changed["results.csv"] == fresh["results.csv"]);
    let trace = folder.path().join("t.csv");
    let text = fs::read_to_string(&trace).unwrap();
    fs::write(&trace, text.replacen(",1000,20,", ",1001,20,", 1)).unwrap();
    assert!(swept(folder.path(), "out", &[]).0.starts_with("12 cells simulated, 0 kept"));
    // A longer list keeps what it had.
    let (said, _) =
        swept(folder.path(), "out", &["--set", "api.output_token_us=46", "--seed", "1"]);
    assert!(said.starts_with("0 cells simulated, 12 kept"), "{said}");
    let mut longer = SWEEP;
    longer[3] = "replicas=1..4";
    let args = [&longer[..], &["-o", "out"]].concat();
    let output = tonnage(folder.path(), &args).assert().code(0).get_output().clone();
    assert!(output.stdout.starts_with(b"4 cells simulated, 12 kept"));
}

#[test]
fn shards_put_together_are_the_whole() {
    let folder = folder();
    let (_, whole) = swept(folder.path(), "whole", &[]);
    for part in ["1/2", "2/2"] {
        let out = format!("part{}", &part[..1]);
        let (said, files) = swept(folder.path(), &out, &["--shard", part]);
        assert!(said.contains("6 belong to other shards"), "{said}");
        assert!(!files.contains_key("results.csv"));
    }
    let merge = |args: &[&str]| tonnage(folder.path(), &[&["sweep", "merge"], args].concat());
    merge(&["part1", "part2", "-o", "merged"]).assert().code(0);
    assert!(files(&folder.path().join("merged")) == whole);
    refused(merge(&["part1", "-o", "no"]), &["6 of 12 cells are in none of these folders"]);
    refused(merge(&["part1", "s.toml", "-o", "no"]), &["cannot read the sweep"]);
    swept(folder.path(), "other", &["--shard", "2/2", "--set", "max_num_seqs=3"]);
    refused(merge(&["part1", "other", "-o", "no"]), &["other: not a shard of the sweep in part1"]);
    assert!(!folder.path().join("no").exists());
    // Into one of its own shards.
    merge(&["part1", "part2", "-o", "part2"]).assert().code(0);
    assert!(files(&folder.path().join("part2")) == whole);
}

#[test]
fn a_combination_that_cannot_run_is_a_row_that_says_why() {
    let folder = folder();
    let memory =
        ["--vary", "num_gpu_blocks_override=100,1000", "--vary", "max_model_len=1000,8192"];
    let (said, files) = swept(folder.path(), "out", &memory);
    assert!(said.contains("6 combinations cannot run"), "{said}");
    let rows = rows(&files);
    let empty: Vec<_> = rows.iter().filter(|row| row["cell"].is_empty()).collect();
    assert_eq!((rows.len(), empty.len()), (36 + 6, 6));
    assert!(empty.iter().all(|row| row["engine.max_model_len"] == "8192"));
    assert!(empty.iter().all(|row| !row["refused"].is_empty() && row["met"].is_empty()));
}

#[test]
fn bad_input_is_refused_before_anything_is_written() {
    let folder = folder();
    let refuse = |more: &[&str], said: &[&str]| {
        refused(sweep(folder.path(), "no", more), said);
        assert!(!folder.path().join("no").exists(), "{more:?}");
    };
    let vary = |list: &'static str| ["--vary", list];
    refuse(&vary("enigne.gpu=h100"), &["--vary: unknown key `enigne.gpu`", "`engine.gpu`"]);
    refuse(&vary("gpu=h100,h1000"), &["--vary engine.gpu: unknown GPU `h1000`"]);
    refuse(&vary("engine.watermark=0.1..2 step 0.1"), &["--vary engine.watermark: found `0.6`"]);
    refuse(&vary("replicas=4..5"), &["--vary fleet.replicas: this key is varied twice"]);
    refuse(&vary("trace=t.csv"), &["--vary trace: a sweep has one trace"]);
    refuse(&vary("run.seed=1..3"), &["--vary run.seed: run.seed is in a list"]);
    refuse(&["--set", "router=random"], &["--vary fleet.router: `fleet.router` has one value"]);
    refuse(&["--shard", "3/2"], &["--shard: found `3/2`, allowed: PART/PARTS"]);
    refuse(&["--threads", "0"], &["invalid value '0' for '--threads"]);
    refuse(&vary("load.kind=tarce"), &["--vary load.kind: unknown value `tarce`"]);
    refuse(&vary("slo.targets=[['p95 tfft <= 1 s']]"), &["unknown metric `tfft`"]);
    refuse(&["--slo", "p95 ttft[tenant=x] <= 1 s"], &["unknown tenant `x`"]);
    let listed = format!("{SCENARIO}\n[candidates]\nfleet.replicas = \"4..1\"\n");
    fs::write(folder.path().join("s.toml"), listed).unwrap();
    let args = ["sweep", "s.toml", "-o", "no"];
    refused(tonnage(folder.path(), &args), &["s.toml:", "candidates.fleet.replicas: found `4..1`"]);
    refused(tonnage(folder.path(), &["sweep", "s.toml"]), &["--out <DIR>"]);
}

/// A file that may not grow stands for a disk that is full.
#[cfg(unix)]
#[test]
fn a_cell_that_cannot_be_written_leaves_nothing_of_itself() {
    let folder = folder();
    let program = assert_cmd::cargo::cargo_bin!("tonnage");
    let script = format!(
        "trap '' XFSZ; ulimit -f 2; exec {} sweep s.toml --vary replicas=1 -o out",
        program.display()
    );
    let mut run = Command::new("sh");
    run.current_dir(folder.path()).args(["-c", &script]);
    refused(run, &["cannot write: ", "in the cell replicas=1 seed=1"]);
    let left = files(&folder.path().join("out"));
    assert_eq!(left.keys().collect::<Vec<_>>(), ["sweep.json"]);
}

/// A folder of its own, with the small scenario and its trace.
#[test]
fn lists_of_the_scenario_are_swept_too() {
    let folder: TempDir = folder();
    let listed =
        format!("{SCENARIO}\n[candidates]\nfleet.replicas = [1, 2]\nfleet.router = 'random'\n");
    fs::write(folder.path().join("s.toml"), listed).unwrap();
    let args = ["sweep", "s.toml", "--vary", "router=random,round_robin", "-o", "out"];
    tonnage(folder.path(), &args).assert().code(0);
    assert_eq!(rows(&files(&folder.path().join("out"))).len(), 4);
}
