//! `tonnage replay --plot`: a run over time.

use std::fs;
use std::path::Path;

use assert_cmd::Command;
use serde_json::Value;

const SHORT: [&str; 6] =
    ["--set", "replicas=2", "--set", "run.warmup_s=300", "--set", "run.window_s=900"];

fn replay(more: &[&str]) -> Command {
    let mut run = Command::new(assert_cmd::cargo::cargo_bin!("tonnage"));
    run.current_dir(env!("CARGO_MANIFEST_DIR"));
    run.args(["replay", "scenarios/twenty-developers.toml", "--json"]).args(SHORT).args(more);
    run
}

/// Series, value, and the band around it.
type Point = (String, f64, Option<(f64, f64)>);

/// A point that is drawn: panel, value, and the least and the most of the replicas.
fn points(path: &Path) -> Vec<Point> {
    let rows = csv::Reader::from_path(path).unwrap().into_records().map(Result::unwrap);
    let point = |row: csv::StringRecord| {
        let band = row[4].parse().ok().zip(row[5].parse().ok());
        (row[0].to_owned(), row[3].parse().unwrap_or(f64::NAN), band)
    };
    rows.map(point).collect()
}

#[test]
fn drawing_a_run_changes_no_figure_and_shows_what_they_say() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.csv");
    let plain = replay(&[]).output().unwrap().stdout;
    let drawn = replay(&["--plot", path.to_str().unwrap()]).output().unwrap().stdout;
    assert!(!plain.is_empty() && plain == drawn);
    let figures: Value = serde_json::from_slice(&plain).unwrap();
    let kv = &figures["fleet"]["figures"]["kv"];
    let points = points(&path);
    let of = |panel: &str| {
        let chosen = points.iter().filter(|(name, _, _)| name.starts_with(panel));
        chosen.map(|(_, value, band)| (*value, *band)).collect::<Vec<_>>()
    };
    // 1,200 s in stretches of 16 s, the first of which nobody may have called in.
    let (hit, kv_use) = (of("prefix-cache hit rate"), of("KV cache held"));
    assert!((60..=75).contains(&hit.len()) && kv_use.len() == 75, "{} {}", hit.len(), kv_use.len());
    assert!(hit.iter().all(|(hit, _)| hit.is_nan() || (0.0..=1.0).contains(hit)));
    for (mean, band) in kv_use.iter().chain(&of("calls running")) {
        let (least, most) = band.expect("there are two replicas");
        assert!(least <= *mean && *mean <= most, "{least} {mean} {most}");
    }
    let highest = kv_use.iter().filter_map(|(_, band)| band.map(|band| band.1)).fold(0.0, f64::max);
    assert!(highest > 0.0 && highest <= kv["max"].as_f64().unwrap() + 1e-9, "{highest} {kv}");
    let again = folder.path().join("again.csv");
    replay(&["--plot", again.to_str().unwrap(), "--every-step"]).assert().success();
    assert_eq!(fs::read(&path).unwrap(), fs::read(&again).unwrap(), "step by step");
}

#[test]
fn a_name_that_nothing_can_be_drawn_to_is_refused_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.jpg");
    let output = replay(&["--plot", path.to_str().unwrap()]).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(output.stdout.is_empty() && !path.exists());
}

/// The marks of a run, in order: seconds and label.
fn marks(path: &Path) -> Vec<(f64, String)> {
    let rows = csv::Reader::from_path(path).unwrap().into_records().map(Result::unwrap);
    let marks = rows.filter(|row| &row[0] == "marks");
    marks.map(|row| (row[2].parse().unwrap(), row[1].to_owned())).collect()
}

#[test]
fn what_becomes_of_replicas_is_marked_where_it_happens() {
    let folder = tempfile::tempdir().unwrap();
    let drawn = |scenario: &str| {
        let path = folder.path().join("run.csv");
        let mut run = Command::new(assert_cmd::cargo::cargo_bin!("tonnage"));
        run.current_dir(env!("CARGO_MANIFEST_DIR")).args(["replay", scenario, "--plot"]).arg(&path);
        run.args(["--set", "load.developers=12"]).assert().success();
        marks(&path)
    };
    let lost = drawn("scenarios/collapse/replica-lost.toml");
    let expected = [(1_800.0, "replica 0 lost"), (2_100.0, "replica 0 back")];
    assert_eq!(lost, expected.map(|(at, label)| (at, label.to_owned())));
    let updated = drawn("scenarios/collapse/rolling-update.toml");
    assert_eq!(updated[0], (1_500.0, "update begins: 0 drains".to_owned()));
    assert_eq!(updated.len(), 5, "{updated:?}");
    assert!(updated[4].1 == "3 back" && updated.is_sorted_by(|a, b| a.0 < b.0), "{updated:?}");
}

#[test]
fn a_fleet_that_is_scaled_shows_how_many_take_calls() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.csv");
    let scaled = ["replicas=1", "autoscale.engines.max_replicas=3", "load.developers=160"];
    let scaled = scaled.iter().flat_map(|set| ["--set", set]);
    let more = ["--set", "run.warmup_s=0", "--set", "autoscale.engines.startup_s=60", "--plot"];
    let mut run = replay(&[]);
    run.args(scaled).args(more).arg(&path).assert().success();
    let points = points(&path);
    let of = |panel: &str| points.iter().filter(|(name, ..)| name.starts_with(panel)).count();
    assert!(of("replicas that take calls") > 4 && marks(&path).is_empty());
    let counts = points.iter().filter(|(name, ..)| name.starts_with("replicas that take calls"));
    let most = counts.map(|(_, value, _)| *value).fold(0.0, f64::max);
    assert!((2.0..=3.0).contains(&most), "{most}");
}
