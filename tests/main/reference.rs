//! The engine against an independent model of vLLM's scheduler, step by step.
//!
//! The model shares nothing with the engine but the form of a recording: plain lists, linear
//! search, and blocks that know all tokens before them. It must itself decide as recorded;
//! then random workloads are given to both. More of them: `TONNAGE_CASES=20000 cargo test
//! reference`; a failure prints its seed, and `TONNAGE_SEED` starts there.

use serde_json::{Map, Value};
use tonnage::config::defaults::VllmVersion;
use tonnage::engine::extents::ExtentCache;
use tonnage::validate::conform::{conform, conform_with};
use tonnage::validate::recording::{Expected, Recording};

use super::conformance::recordings;
use model::Version;

pub mod generate;
mod model;
mod play;
mod pool;

/// Random workloads in an ordinary run.
const CASES: u64 = 1_500;

/// Whose decisions engine and model take in a random workload: every other one is newer.
fn version(seed: u64) -> (Version, VllmVersion) {
    let name = ["0.29", "0.33"][(seed % 2) as usize];
    let ours = VllmVersion::scheduler(name).unwrap();
    (if seed.is_multiple_of(2) { Version::V0_29 } else { Version::V0_33 }, ours)
}

fn agrees(recorded: &Map<String, Value>, decided: &Map<String, Value>) -> bool {
    recorded.iter().all(|(field, value)| decided.get(field) == Some(value))
}

#[test]
fn the_model_decides_as_recorded() {
    for recording in recordings() {
        let decided = play::play(&recording, Version::V0_29);
        let Expected { steps, requests, stuck, totals } = &recording.expected;
        for (recorded, decided) in steps.iter().zip(&decided.steps) {
            assert!(agrees(recorded, decided), "{}: {recorded:?} {decided:?}", recording.name);
        }
        assert_eq!(steps.len(), decided.steps.len(), "{}", recording.name);
        for (recorded, decided) in requests.iter().zip(&decided.requests) {
            assert!(agrees(recorded, decided), "{}: {recorded:?} {decided:?}", recording.name);
        }
        assert_eq!(stuck, &decided.stuck, "{}", recording.name);
        assert!(agrees(totals, &decided.totals), "{}", recording.name);
    }
}

/// Only where a lone request is capped, or where one preempts itself under `priority`.
#[test]
fn newer_rules_change_few_recordings() {
    let differ = |recording: &Recording| {
        let [old, new] = [Version::V0_29, Version::V0_33].map(|version| {
            let Expected { steps, .. } = play::play(recording, version);
            steps
        });
        old != new
    };
    let names = recordings().into_iter().filter(differ).map(|recording| recording.name);
    let expected = [
        "agents-200-priority",
        "long-prefill-threshold-many",
        "long-prefill-threshold",
        "mix-080-priority-budget",
        "mix-100-priority",
    ];
    assert_eq!(names.collect::<Vec<_>>(), expected);
    // The engine takes the newer rules where the model does.
    for recording in recordings() {
        let (_, newer) = version(1);
        let decided = Recording { expected: play::play(&recording, Version::V0_33), ..recording };
        assert_eq!(conform(&decided, newer), None, "{}", decided.name);
    }
}

fn variable(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).map_or(otherwise, |text| text.parse().unwrap())
}

/// Where engine and model part, if they do.
fn parting(recording: &mut Recording, seed: u64) -> Option<String> {
    let (models, engines) = version(seed);
    recording.expected = play::play(recording, models);
    let plain = conform(recording, engines);
    let extents = || conform_with::<ExtentCache>(recording, engines);
    plain.or_else(extents).map(|difference| format!("{difference:?}"))
}

/// Leaves out requests for as long as engine and model still part.
fn shortest(mut recording: Recording, seed: u64) -> Recording {
    let mut at = 0;
    while at < recording.requests.len() {
        let mut shorter = recording.clone();
        shorter.requests.remove(at);
        for (id, request) in (0..).zip(&mut shorter.requests) {
            request.id = id;
        }
        match parting(&mut shorter, seed) {
            Some(_) => recording = shorter,
            None => at += 1,
        }
    }
    recording
}

#[test]
fn engine_and_model_decide_alike_on_random_workloads() {
    let first = variable("TONNAGE_SEED", 0);
    for seed in first..first + variable("TONNAGE_CASES", CASES) {
        let mut recording = generate::workload(seed);
        if parting(&mut recording, seed).is_some() {
            let mut shortest = shortest(recording, seed);
            let parting = parting(&mut shortest, seed).unwrap_or_default();
            let json = serde_json::to_string(&shortest).unwrap();
            panic!("TONNAGE_SEED={seed}: {parting}\nas a recording: {json}");
        }
    }
}

/// Otherwise their agreement would say nothing.
#[test]
fn random_workloads_reach_the_corners() {
    let mut sums = Map::new();
    let mut stuck = 0;
    for seed in 0..200 {
        let decided = play::play(&generate::workload(seed), version(seed).0);
        stuck += u64::from(!decided.stuck.is_empty());
        for (field, value) in decided.totals {
            let sum = sums.get(&field).and_then(Value::as_u64).unwrap_or(0);
            sums.insert(field, (sum + value.as_u64().unwrap()).into());
        }
    }
    assert!(stuck > 5, "{stuck}");
    for (field, least) in [
        ("hits", 5_000),
        ("preempted_hits", 5_000),
        ("evicted_blocks", 5_000),
        ("preemptions", 500),
    ] {
        assert!(sums[field].as_u64().unwrap() > least, "{sums:?}");
    }
}
