//! `tonnage size --plot`: the sizes around an answer.

use std::fs;
use std::path::Path;

use assert_cmd::Command;
use serde_json::Value;

fn size(more: &[&str]) -> Command {
    let mut run = Command::new(assert_cmd::cargo::cargo_bin!("tonnage"));
    run.current_dir(env!("CARGO_MANIFEST_DIR"));
    let short = ["--set", "run.warmup_s=300", "--set", "run.window_s=600"];
    run.args(["size", "scenarios/eighty-developers.toml", "--json"]).args(short).args(more);
    run
}

/// Panel, line, size, value and band of everything that is drawn.
type Drawn = (String, String, u32, Option<f64>, Option<(f64, f64)>);

fn drawn(path: &Path) -> Vec<Drawn> {
    let rows = csv::Reader::from_path(path).unwrap().into_records().map(Result::unwrap);
    let point = |row: csv::StringRecord| {
        let band = row[4].parse().ok().zip(row[5].parse().ok());
        let size = row[2].parse().unwrap();
        (row[0].to_owned(), row[1].to_owned(), size, row[3].parse().ok(), band)
    };
    rows.map(point).collect()
}

#[test]
fn what_is_drawn_is_what_the_search_says() {
    let folder = tempfile::tempdir().unwrap();
    let paths = ["csv", "svg"].map(|ending| folder.path().join(format!("sizes.{ending}")));
    let [csv, svg] = paths.each_ref().map(|path| path.to_str().unwrap());
    let plain = size(&["--seeds", "2"]).output().unwrap().stdout;
    let output = size(&["--seeds", "2", "--plot", csv, "--plot", svg]).output().unwrap();
    assert_eq!(plain, output.stdout, "{output:?}");
    let answer: Value = serde_json::from_slice(&plain).unwrap();
    let replicas = answer["replicas"].as_u64().unwrap() as u32;
    let points = drawn(&paths[0]);
    let line = |panel: &str, line: &str| {
        let chosen = points.iter().filter(|(p, l, ..)| p.starts_with(panel) && l.starts_with(line));
        chosen.map(|(_, _, size, value, band)| (*size, *value, *band)).collect::<Vec<_>>()
    };
    // Every size that was tried, as it came out, and the neighbours.
    let met = line("every target met", "each of 2 seeds");
    for tried in answer["tried"].as_array().unwrap() {
        let size = tried["figures"]["replicas"].as_u64().unwrap() as u32;
        let (_, holds, _) = met.iter().find(|(at, ..)| *at == size).unwrap();
        assert_eq!(holds.unwrap() == 1.0, tried["met"].as_bool().unwrap(), "{size} replicas");
        for target in tried["targets"].as_array().unwrap() {
            let text = target["target"].as_str().unwrap();
            let name = text.replace("<=", "≤").replace(">=", "≥");
            let shown = line("value as a share", &name);
            let (_, value, band) = *shown.iter().find(|(at, ..)| *at == size).unwrap();
            let (value, (least, most)) = (value.unwrap(), band.unwrap());
            assert!(least <= value && value <= most, "{text}: {least} {value} {most}");
            // The line is the worst seed: beyond the bound where the target is missed.
            assert_eq!(value <= 1.0, target["met"].as_bool().unwrap(), "{text}: {value}");
            let bound: f64 = text.split(' ').rev().find_map(|word| word.parse().ok()).unwrap();
            let bound = if text.ends_with('%') { bound / 100.0 } else { bound };
            let figure = target["value"].as_f64().unwrap();
            let expected = if text.contains("<=") { figure / bound } else { bound / figure };
            assert!((value - expected).abs() < 1e-9, "{text}: {value} is not {expected}");
        }
    }
    let wanted = replicas.saturating_sub(2).max(1)..=replicas + 2;
    assert!(wanted.into_iter().all(|size| met.iter().any(|(at, ..)| *at == size)), "{met:?}");
    // Its marks, and the rows of the bands: where the first disc is, the band begins or ends.
    let first = |name: &str| {
        let held = line("every target met", name);
        held.iter().find(|(_, holds, _)| *holds == Some(1.0)).map(|(size, ..)| u64::from(*size))
    };
    let bands = &answer["bands"];
    assert_eq!(first("one seed at least"), bands["seeds"]["low"].as_u64());
    assert_eq!(first("steps 10 % shorter"), bands["step_time"]["low"].as_u64());
    assert_eq!(line("marks", "answer").first().map(|(size, ..)| *size), Some(replicas));
    let page = fs::read_to_string(svg).unwrap();
    assert!(page.contains(&format!("answer: {replicas}")) && page.contains("N+1"));
}

#[test]
fn what_cannot_be_drawn_is_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("sizes.png");
    let path = path.to_str().unwrap();
    let wrong = folder.path().join("sizes.pngg");
    let no_share = ["--plot", path, "--set", "slo.targets=[\"failed <= 0 %\"]"];
    let one_size = ["--plot", path, "--set", "size.max_replicas=1"];
    for (more, said) in [
        (&["--plot", wrong.to_str().unwrap()][..], "did you mean .png?"),
        (&no_share, "failed <= 0 %"),
        (&one_size, "size.max_replicas"),
    ] {
        let output = size(more).output().unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), error.contains(said)), (Some(2), true), "{error}");
        assert!(output.stdout.is_empty());
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

fn twenty(more: &[&str]) -> Command {
    let mut run = Command::new(assert_cmd::cargo::cargo_bin!("tonnage"));
    run.current_dir(env!("CARGO_MANIFEST_DIR"));
    run.args(["size", "scenarios/twenty-developers.toml"]);
    for set in ["run.warmup_s=300", "run.window_s=600", "size.step_time_band=0"] {
        run.args(["--set", set]);
    }
    run.args(more);
    run
}

#[test]
fn a_title_says_that_larger_sizes_fail_and_the_note_which_of_them_the_report_does_not_know() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("sizes.svg");
    // A random router spreads sessions: the more replicas, the fewer hits.
    let odd = ["--set", "router=random", "--set", "slo.targets=[\"hit >= 94 %\"]", "--json"];
    let output = twenty(&odd).arg("--plot").arg(&path).output().unwrap();
    let told: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((told["replicas"].as_u64(), &told["failing_above_answer"][0]), (Some(1), &2.into()));
    let page = fs::read_to_string(path).unwrap();
    let lines = page.lines().filter(|line| !line.starts_with('<'));
    let text = lines.collect::<Vec<_>>().join(" ");
    let title = "though 2, 3 replicas miss it: size alone does not decide";
    let note = "That 3 fail above the answer is seen here, not in the report.";
    assert!(text.contains(title) && text.contains(note), "{text}");
}

#[test]
fn a_value_of_nothing_is_drawn_at_the_end_of_the_axis() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("sizes.csv");
    let none = ["--set", "engine.enable_prefix_caching=false", "--set", "size.max_replicas=2"];
    let target = ["--set", "slo.targets=[\"hit >= 60 %\"]", "--seeds", "2", "--plot"];
    twenty(&none).args(target).arg(&path).assert().code(1);
    let points = drawn(&path);
    let line = points.iter().filter(|(panel, ..)| panel.starts_with("value as a share"));
    let values: Vec<_> = line.map(|(_, _, _, value, band)| (*value, *band)).collect();
    assert_eq!(values, [(Some(10.0), Some((10.0, 10.0))); 2]);
}

#[test]
fn the_answer_of_a_scaled_fleet_is_its_size_at_the_start() {
    let mut more = Vec::new();
    let slo = "slo.targets=[\"hit >= 60 %\"]";
    let sets = ["autoscale.engines.max_replicas=4", "autoscale.engines.startup_s=60", slo];
    let load = ["load.developers=160", "run.warmup_s=0"];
    sets.iter().chain(&load).for_each(|set| more.extend(["--set", *set]));
    let json = twenty(&[&more[..], &["--json"]].concat()).output().unwrap().stdout;
    let told: Value = serde_json::from_slice(&json).unwrap();
    let text = String::from_utf8(twenty(&more).output().unwrap().stdout).unwrap();
    let (start, gpus, most) = (&told["replicas"], &told["gpus"], &told["replicas_held_max"]);
    let said = format!(
        "Answer: {start} replicas ({gpus} GPUs) at the start, at most {most} while scaled, meet"
    );
    assert!(text.contains(&said), "{said}\n{text}");
    let candidate = &told["candidates"][0];
    assert_eq!((&candidate["replicas"], &candidate["gpus"]), (start, gpus));
    // One less holds more in the end, and is named by its start all the same.
    let less = start.as_u64().unwrap() - 1;
    let held = &told["tried"][0]["figures"]["replica_scaling"]["held_max"];
    assert!(held.as_u64() > Some(less), "{held}");
    assert!(text.contains(&format!("{less} replica (2 GPUs) at the start, at most {held} while")));
}
