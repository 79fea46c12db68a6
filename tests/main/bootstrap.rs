//! `run.bootstrap`: intervals of the targets' figures by drawing sessions.

use assert_cmd::Command;
use serde_json::Value;

fn tonnage(command: &str, more: &[&str]) -> Command {
    let mut run = Command::new(assert_cmd::cargo::cargo_bin!("tonnage"));
    run.current_dir(env!("CARGO_MANIFEST_DIR"));
    let short = ["--set", "run.warmup_s=300", "--set", "run.window_s=900", "--json"];
    run.args([command, "scenarios/twenty-developers.toml"]).args(short).args(more);
    run
}

fn json(command: &str, more: &[&str]) -> Value {
    serde_json::from_slice(&tonnage(command, more).output().unwrap().stdout).unwrap()
}

#[test]
fn a_replay_that_keeps_samples_has_intervals_around_its_figures_and_no_other_figure() {
    let asked = ["--set", "run.bootstrap=true", "--slo", "p95 ttft[128k+] <= 1 s"];
    let mut told = json("replay", &asked);
    for threads in ["1", "4"] {
        assert_eq!(told, json("replay", &[&asked[..], &["--threads", threads]].concat()));
    }
    let intervals = told["intervals"].take();
    assert_eq!(
        (intervals["share"].as_f64(), intervals["resamples"].as_u64()),
        (Some(0.95), Some(400))
    );
    let targets = told["fleet"]["targets"].as_array().unwrap().clone();
    let found = intervals["targets"].as_array().unwrap();
    assert_eq!(found.len(), targets.len());
    let mut known = 0;
    for (target, interval) in targets.iter().zip(found) {
        assert_eq!(target["target"], interval["target"]);
        let Some(value) = target["value"].as_f64() else {
            assert_eq!(interval["unavailable"].as_str(), Some("no sample"));
            continue;
        };
        let (low, high) = (interval["low"].as_f64().unwrap(), interval["high"].as_f64().unwrap());
        // The figure itself is known to within 0.1 %.
        assert!(low * 0.999 <= value && value <= high * 1.001, "{low} {value} {high}");
        assert!(interval["sessions"].as_u64().unwrap() > 1);
        known += u32::from(low < high);
    }
    assert!(known >= 2, "{intervals}");
    assert_eq!(told, json("replay", &["--slo", "p95 ttft[128k+] <= 1 s"]), "not asked: null");
}

#[test]
fn size_has_them_for_its_answer_unless_told_otherwise() {
    let mut told = json("size", &["--seeds", "2"]);
    let answer = told["replicas"].clone();
    let tried = told["tried"].as_array().unwrap();
    let fleet = tried.iter().find(|fleet| fleet["figures"]["replicas"] == answer).unwrap();
    for (target, interval) in fleet["targets"]
        .as_array()
        .unwrap()
        .iter()
        .zip(told["bands"]["sessions"]["targets"].as_array().unwrap())
    {
        let (low, high) = (interval["low"].as_f64().unwrap(), interval["high"].as_f64().unwrap());
        let value = target["value"].as_f64().unwrap();
        assert!(low * 0.999 <= value && value <= high * 1.001, "{low} {value} {high}");
    }
    told["bands"]["sessions"] = Value::Null;
    assert_eq!(told, json("size", &["--seeds", "2", "--set", "run.bootstrap=false"]));
}

#[test]
fn commands_without_intervals_refuse_them_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let cells = folder.path().join("cells");
    let asked = ["--set", "run.bootstrap=true"];
    let varied = ["--vary", "run.bootstrap=true,false"];
    let to = ["-o", cells.to_str().unwrap()];
    for (command, more) in [
        ("capacity", asked.to_vec()),
        ("explain", asked.to_vec()),
        ("sweep", [asked, to].concat()),
        ("sweep", [varied, to].concat()),
    ] {
        let mut run = Command::new(assert_cmd::cargo::cargo_bin!("tonnage"));
        run.current_dir(env!("CARGO_MANIFEST_DIR"));
        let output = run.args([command, "scenarios/twenty-developers.toml"]).args(more).output();
        let output = output.unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{command}: {error}");
        assert!(error.contains("run.bootstrap: found `true`"), "{command}: {error}");
        assert!(output.stdout.is_empty() && !cells.exists(), "{command} wrote something");
    }
}
