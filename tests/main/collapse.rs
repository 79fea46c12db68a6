//! The collapse of a prefix cache as a shape: past the knee, one doubling of the agents at work
//! takes more than half of the hits and makes the first token wait ten times as long. Published
//! sweeps of real deployments show it (hit 71 -> 20 %, first token 1.1 -> 71 s from 256 to 512
//! agents; 86 -> 29 %, 0.9 -> 71 s from 128 to 256 on four replicas).

use std::path::Path;

use tonnage::config::scenario::Scenario;
use tonnage::fleet::Progress;
use tonnage::sizing::case::Case;
use tonnage::trace::canonical;
use tonnage::trace::record::Trace;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The sessions of `tests/data/weka`, through the importer.
fn trace() -> Trace {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("mini.csv");
    let mut import = assert_cmd::Command::new(assert_cmd::cargo::cargo_bin!("tonnage"));
    let source = root().join("tests/data/weka/mini.jsonl.gz");
    import.args(["import", "weka"]).arg(source).arg("-o").arg(&out).assert().success();
    canonical::read_all(&out).unwrap()
}

/// Hit rate, and mean and median time to the first token, with so many agents at work.
fn level(trace: &Trace, agents: u32) -> (f64, f64, f64) {
    let text = std::fs::read_to_string(root().join("benches/cc-weka-collapse.toml")).unwrap();
    let agents = format!("load.developers={agents}");
    let scenario = Scenario::parse(&text, "collapse", &[agents]).unwrap();
    let case = Case::new(scenario, trace, &[]).unwrap();
    let judged = case.judge(&case.run(1, &Progress::default()).unwrap());
    let ttft = judged.figures.latency.ttft.unwrap();
    (judged.figures.hit.engine_counter.unwrap(), ttft.mean, ttft.p50)
}

#[test]
fn past_the_knee_a_doubling_takes_half_of_the_hits() {
    let trace = trace();
    let [few, knee, past] = [5, 11, 22].map(|agents| level(&trace, agents));
    // Before the knee a doubling costs little.
    assert!(knee.0 > 0.75 * few.0, "{few:?} {knee:?}");
    // Behind it the cache is gone.
    assert!(past.0 < 0.5 * knee.0, "{knee:?} {past:?}");
    assert!(past.1 > 10.0 * knee.1 && past.2 > 10.0 * knee.2, "{knee:?} {past:?}");
}
