//! The scenarios in `scenarios/gateway`: their answers, and what docs/gateway.md says of them.
//!
//! `tests/data/gateway/answers` lists commands, and the folder holds what they print. Those that
//! take little time are run here; `.ci/run` runs all but the longest, in a release build, and names
//! the folder with their answers in `TONNAGE_ANSWERS`.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use assert_cmd::Command;
use flate2::read::GzDecoder;
use serde_json::Value;

const PAGE: &str = include_str!("../../docs/gateway.md");

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn folder() -> PathBuf {
    root().join("tests/data/gateway")
}

/// Names with the words of their commands.
fn answers() -> Vec<(String, Vec<String>)> {
    let text = fs::read_to_string(folder().join("answers")).unwrap();
    let line = |line: &str| {
        let mut words = line.split(' ').map(str::to_owned);
        (words.next().unwrap(), words.collect())
    };
    text.lines().map(line).collect()
}

/// The answer that is kept.
fn answer(name: &str) -> Value {
    let file = File::open(folder().join(format!("{name}.json.gz"))).unwrap();
    serde_json::from_reader(GzDecoder::new(file)).unwrap()
}

/// The figures of a replay, or of the answer of `size`.
fn figures(answer: &Value) -> &Value {
    match answer.get("fleet") {
        Some(fleet) => &fleet["figures"],
        None => {
            let fits = |tried: &&Value| tried["figures"]["replicas"] == answer["replicas"];
            &answer["tried"].as_array().unwrap().iter().find(fits).unwrap()["figures"]
        }
    }
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap()
}

#[test]
fn every_scenario_has_its_answers() {
    let commands = answers();
    let names: BTreeSet<String> =
        commands.iter().map(|(name, _)| format!("{name}.json.gz")).collect();
    let files = |folder: &Path, ending: &str| -> BTreeSet<String> {
        let entries = fs::read_dir(folder).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.filter(|name| name.ends_with(ending)).collect()
    };
    assert_eq!(files(&folder(), ".gz"), names);
    for scenario in files(&root().join("scenarios/gateway"), ".toml") {
        let path = format!("scenarios/gateway/{scenario}");
        assert!(commands.iter().any(|(_, words)| words.contains(&path)), "{path}");
        assert!(PAGE.contains(&path), "docs/gateway.md does not name {path}");
    }
}

/// What of an answer is held: all that the page is about.
fn held(answer: &Value) -> Vec<&Value> {
    let of_answer = ["gpus", "gateway_replicas", "binding"].map(|key| &answer[key]);
    let figures = figures(answer);
    let keys = ["replicas", "gpus", "window_s", "gateway", "replica_scaling", "latency", "cost"];
    of_answer
        .into_iter()
        .chain(keys.map(|key| &figures[key]))
        .chain([&answer["fleet"]["targets"], &figures["hit"]["engine_counter"]])
        .collect()
}

fn assert_held(name: &str, found: &[u8]) {
    let (found, kept) = (serde_json::from_slice::<Value>(found).unwrap(), answer(name));
    let advice = "if that is meant, `.ci/run` with TONNAGE_BLESS=1 keeps the new answers";
    assert_eq!(held(&found), held(&kept), "{name}: {advice}");
}

#[test]
fn the_answers_are_those_that_were_given() {
    let all = std::env::var_os("TONNAGE_ANSWERS").map(PathBuf::from);
    let mut held = 0;
    for (name, words) in answers() {
        if let Some(folder) = &all {
            let path = folder.join(format!("{name}.json"));
            let is_long = name.starts_with("pins-800") || name.starts_with("pins-1600");
            if !is_long || path.exists() {
                assert_held(&name, &fs::read(path).unwrap());
                held += 1;
            }
        } else if words[0] == "replay" && !name.starts_with("pins") {
            // Others take many times as long.
            let mut run = Command::new(assert_cmd::cargo::cargo_bin!("tonnage"));
            let output = run.current_dir(root()).args(&words).arg("--json").output().unwrap();
            assert_held(&name, &output.stdout);
            held += 1;
        }
    }
    assert!(held >= 7, "{held} answers were held");
}

/// A row of a table of the page.
fn assert_row(cells: &[String]) {
    let row = format!("| {} |", cells.join(" | "));
    assert!(PAGE.contains(&row), "docs/gateway.md has not the row\n{row}");
}

fn percent(value: &Value) -> String {
    format!("{:.1} %", 100.0 * number(value))
}

/// By how many people work: GPUs, hits and money, without Redis and with it.
#[test]
fn what_the_pin_cliff_costs() {
    let mut gpus = Vec::new();
    for developers in ["200", "400", "800"] {
        let (apart, shared) = (answer(&format!("pins-{developers}")), {
            answer(&format!("pins-{developers}-redis"))
        });
        let of = |answer: &Value| {
            let figures = figures(answer);
            [
                figures["gpus"].to_string(),
                percent(&figures["gateway"]["stayed"]),
                percent(&figures["hit"]["engine_counter"]),
                format!("{:.2}", number(&figures["cost"]["usd_per_hour"])),
            ]
        };
        gpus.push((number(&apart["gpus"]), number(&shared["gpus"])));
        let mut row = vec![developers.to_owned()];
        row.extend(of(&apart));
        row.extend(of(&shared));
        assert_row(&row);
    }
    // As long as nearly all open sessions have a pin nothing, beyond it half as many again.
    assert_eq!((gpus[0].0, gpus[1].0), (gpus[0].1, gpus[1].1), "{gpus:?}");
    assert!(gpus[2].0 > 1.4 * gpus[2].1, "{gpus:?}");
    let largest = answer("pins-800");
    let busy = percent(&figures(&largest)["gateway"]["cpu_utilisation"]);
    let said = format!("its cores are in use for {busy} of the time");
    assert!(PAGE.replace('\n', " ").contains(&said), "docs/gateway.md does not say: {said}");
    // Twice as many, on as many GPUs as they need with Redis.
    let (apart, shared) = (answer("pins-1600"), answer("pins-1600-redis"));
    let is_met = |answer: &Value| answer["fleet"]["met"].as_bool().unwrap();
    assert!(is_met(&shared) && !is_met(&apart));
    for answer in [apart, shared] {
        let (figures, targets) = (figures(&answer), &answer["fleet"]["targets"]);
        let is_shared = number(&figures["gateway"]["stayed"]) > 0.99;
        assert_row(&[
            if is_shared { "attached" } else { "none" }.to_owned(),
            percent(&figures["gateway"]["stayed"]),
            percent(&figures["hit"]["engine_counter"]),
            format!("{:.1} s", number(&targets[0]["value"])),
            format!("{:.1}", number(&targets[2]["value"])),
            format!("{:.3}", number(&figures["cost"]["usd_per_completed_task"])),
        ]);
    }
}

#[test]
fn what_an_autoscaler_loses_that_comes_five_minutes_late() {
    let mut stretch = Vec::new();
    for (name, what) in [
        ("burst-one", "one replica"),
        ("burst", "1 to 4 by the autoscaler, 300 s"),
        ("burst-warm", "the same, 30 s"),
        ("burst-three", "three replicas"),
    ] {
        let answer = answer(name);
        let targets = answer["fleet"]["targets"].as_array().unwrap();
        let value = |at: usize| number(&targets[at]["value"]);
        let figures = figures(&answer);
        let scaling = &figures["replica_scaling"];
        assert_row(&[
            what.to_owned(),
            format!("{:.1} s", value(0)),
            format!("{:.1} tok/s", value(1)),
            format!("{:.2}", value(2)),
            format!("{:.1}", number(&scaling["gpu_hours"])),
            format!("{:.2}", number(&figures["cost"]["usd_per_hour"])),
        ]);
        stretch.push(value(2));
    }
    let [one, late, soon, three] = stretch[..] else { panic!() };
    assert!(one > late && late > soon && soon > three, "{stretch:?}");
    assert!(late > 2.0 && three <= 2.0, "{stretch:?}");
}

/// One replica of one worker is enough for twenty developers: the second is a spare.
#[test]
fn the_gateway_of_the_article() {
    let size = answer("article-size");
    assert_eq!((&size["met"], &size["gateway_replicas"]), (&Value::Bool(true), &1.into()));
    let two = answer("article");
    let gateway = &figures(&two)["gateway"];
    assert!(number(&gateway["connections_max"]) < 20.0);
    assert!(number(&gateway["counter_utilisation"]) < 0.05);
    assert_row(&[
        "two".to_owned(),
        format!("{:.0} ms", 1e3 * number(&gateway["overhead"]["p50"])),
        format!("{:.0} ms", 1e3 * number(&gateway["overhead"]["p95"])),
        percent(&gateway["cpu_utilisation"]),
        percent(&gateway["counter_utilisation"]),
        gateway["connections_max"].to_string(),
    ]);
    let gateway = &figures(&size)["gateway"];
    assert_row(&[
        "one".to_owned(),
        format!("{:.0} ms", 1e3 * number(&gateway["overhead"]["p50"])),
        format!("{:.0} ms", 1e3 * number(&gateway["overhead"]["p95"])),
        percent(&gateway["cpu_utilisation"]),
        percent(&gateway["counter_utilisation"]),
        gateway["connections_max"].to_string(),
    ]);
}

#[test]
fn what_limits_that_nobody_shares_let_through() {
    let of = |name: &str| {
        let answer = answer(name);
        let figures = figures(&answer);
        let count = |key: &str| figures["gateway"][key].as_u64().unwrap();
        let a_minute = count("answered") as f64 / (number(&figures["window_s"]) / 60.0);
        let shown = if name == "limits" { "none" } else { "attached" };
        assert_row(&[
            shown.to_owned(),
            format!("{a_minute:.0}"),
            count("rate_limited").to_string(),
            count("given_up").to_string(),
        ]);
        a_minute
    };
    let (apart, shared) = (of("limits"), of("limits-redis"));
    assert!((99.0..=101.0).contains(&shared) && apart > 150.0, "{apart} {shared}");
}

/// The JSON on the page is what the command before it prints.
#[test]
fn the_json_on_the_page_is_what_is_printed() {
    let (_, after) = PAGE.split_once("```json\n").unwrap();
    let (text, _) = after.split_once("```").unwrap();
    let shown: Value = serde_json::from_str(text).unwrap();
    assert_eq!(shown, figures(&answer("article"))["gateway"]);
}
