//! The collapse of a prefix cache as a shape: past the knee, one doubling of the agents at work
//! takes more than half of the hits and makes the first token wait ten times as long. Published
//! sweeps of real deployments show it (hit 71 -> 20 %, first token 1.1 -> 71 s from 256 to 512
//! agents; 86 -> 29 %, 0.9 -> 71 s from 128 to 256 on four replicas).

use std::collections::BTreeMap;
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

/// The mean hit rates that are drawn of a scenario, by line and place on the axis. `.ci/run` holds
/// the points to the scenario.
fn hits(scenario: &str) -> BTreeMap<(String, u32), f64> {
    let path = root().join("tests/data/collapse").join(scenario).with_extension("csv");
    let points = csv::Reader::from_path(path).unwrap().into_records().map(Result::unwrap);
    let hits = points.filter(|point| point[0].starts_with("prefix-cache hit rate"));
    hits.map(|point| ((point[1].to_owned(), point[2].parse().unwrap()), point[3].parse().unwrap()))
        .collect()
}

fn at(hits: &BTreeMap<(String, u32), f64>, line: &str, x: u32) -> f64 {
    hits[&(line.to_owned(), x)]
}

#[test]
fn a_replica_full_of_sessions_loses_most_of_its_hits_within_a_doubling() {
    let hits = hits("live-sessions");
    let [few, knee, past] = [40, 60, 120].map(|x| at(&hits, "all calls", x));
    assert!(knee > 0.95 * few && past < 0.5 * knee, "{few} {knee} {past}");
}

#[test]
fn affinity_keeps_its_hits_as_replicas_are_added_and_random_does_not() {
    let hits = hits("affinity");
    for replicas in [4, 8, 16] {
        assert!(at(&hits, "session_affinity", replicas) > 0.95);
        assert!(at(&hits, "random", replicas) < 0.7 * at(&hits, "session_affinity", replicas));
    }
    // Once every replica has room for what it is sent, each further one is a further miss.
    assert!(at(&hits, "random", 16) < at(&hits, "random", 8));
    assert!(at(&hits, "random", 8) < at(&hits, "random", 4));
}

#[test]
fn pins_that_are_not_shared_lose_hits_as_workers_grow() {
    let hits = hits("unshared-pins");
    let workers = [2, 4, 8, 16, 32];
    let (shared, apart) = ("shared_pins = true", "shared_pins = false");
    assert!(workers.iter().all(|&n| at(&hits, shared, n) == at(&hits, shared, 2)));
    assert!(workers.windows(2).all(|two| at(&hits, apart, two[1]) < at(&hits, apart, two[0])));
    assert!(at(&hits, apart, 32) < 0.75 * at(&hits, shared, 32));
}

#[test]
fn letting_go_of_busy_replicas_keeps_the_gain_of_affinity_at_high_load() {
    for scenario in ["replica-lost", "rolling-update"] {
        let hits = hits(scenario);
        for replicas in [2, 3, 4, 6, 8] {
            let (sticky, pinned) =
                (at(&hits, "sticky", replicas), at(&hits, "session_affinity", replicas));
            assert!(sticky > pinned - 0.005, "{scenario} {replicas}: {sticky} {pinned}");
        }
    }
    let hits = hits("replica-lost");
    assert!(at(&hits, "sticky", 2) > at(&hits, "session_affinity", 2) + 0.05);
}

#[test]
fn subagents_at_once_take_the_pool_from_each_other() {
    let hits = hits("fan-out");
    assert!(at(&hits, "all calls", 8) > 0.98 * at(&hits, "all calls", 1));
    assert!(at(&hits, "all calls", 32) < 0.7 * at(&hits, "all calls", 1));
}
