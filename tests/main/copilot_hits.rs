//! The published hit rates of the copilot profile come out of a replay, by eviction and idle time.

use assert_cmd::Command;
use serde_json::Value;

fn tonnage() -> Command {
    Command::cargo_bin("tonnage").expect("it is built with the tests")
}

/// Hits by segment of 600 sessions on two replicas whose pools hold `blocks`.
fn hits(folder: &std::path::Path, blocks: &str) -> Value {
    let done = tonnage()
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .args(["replay", "scenarios/twenty-developers.toml", "--json", "--trace"])
        .arg(folder.join("copilot.csv"))
        .args(["--set", "load.kind=trace", "--set", "fleet.replicas=2"])
        .args(["--set", "engine.max_model_len=262144"])
        .args(["--set", &format!("engine.num_gpu_blocks_override={blocks}")])
        .args(["--set", "run.warmup_s=3600", "--set", "run.window_s=10800"])
        .assert();
    let answer: Value = serde_json::from_slice(&done.get_output().stdout).expect("it is JSON");
    answer["fleet"]["figures"]["hit"]["segments"].clone()
}

fn hit(segments: &Value, name: &str) -> f64 {
    let segments = segments.as_array().expect("a list");
    let segment = segments.iter().find(|segment| segment["name"] == name);
    segment.expect("it has calls")["hit"].as_f64().expect("a share")
}

/// Source of the figures: the Copilot study, hits by the position of a call in its turn, at the
/// boundary between turns, and after a switch of the model. `docs/generate.md` has the table.
#[test]
fn published_hits_come_out_where_blocks_last_as_long_as_people_pause() {
    let folder = tempfile::tempdir().expect("a folder");
    tonnage()
        .args(["generate", "copilot", "--sessions", "600", "--per-hour", "133", "-o"])
        .arg(folder.path().join("copilot.csv"))
        .assert()
        .success();
    let tight = hits(folder.path(), "48000");
    for (name, published) in [
        ("first_call", 0.45),
        ("second_call", 0.86),
        ("later_calls", 0.93),
        ("turn_boundary", 0.55),
        ("model_switch", 0.08),
    ] {
        let hit = hit(&tight, name);
        assert!((hit - published).abs() <= 0.10, "{name}: {hit}, published {published}");
    }
    // With room for everything people's pauses cost nothing, so it is the pool that makes them.
    let roomy = hits(folder.path(), "145844");
    assert!(hit(&roomy, "turn_boundary") > hit(&tight, "turn_boundary") + 0.15);
}
