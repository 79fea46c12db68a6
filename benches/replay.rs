//! Wall time of whole simulations, on the data in the repository.
#![allow(missing_docs, reason = "criterion's macros make undocumented items")]

use std::hint::black_box;
use std::path::Path;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use tonnage::config::scenario::Scenario;
use tonnage::fleet::Progress;
use tonnage::sizing::case::Case;
use tonnage::trace::canonical;
use tonnage::trace::import::weka;
use tonnage::trace::record::Trace;

fn case(scenario: &str, trace: &Trace) -> Case {
    let text = std::fs::read_to_string(scenario).expect("the scenario is in the repository");
    let scenario = Scenario::parse(&text, scenario, &[]).expect("it reads");
    Case::new(scenario, trace, &[]).expect("it fits the trace")
}

fn mini() -> Trace {
    let files = [Path::new("tests/data/weka/mini.jsonl.gz").to_owned()];
    weka::import(&files, &weka::Options::default()).expect("it imports").trace
}

fn replays(criterion: &mut Criterion) {
    let bundled = canonical::read_all(Path::new("traces/bundled.csv.zst")).expect("it reads");
    let cases = [
        ("eighty developers, 2 replicas", case("scenarios/eighty-developers.toml", &bundled), 2),
        ("cc-weka mini, 4 replicas", case("benches/cc-weka-mini.toml", &mini()), 4),
    ];
    let mut group = criterion.benchmark_group("replay");
    group.sample_size(10);
    for (name, case, replicas) in &cases {
        let run = || case.run(*replicas, &Progress::default()).expect("it runs");
        group.throughput(Throughput::Elements(run().counts.calls));
        group.bench_function(*name, |bencher| bencher.iter(|| black_box(run())));
    }
    group.finish();
}

criterion_group!(benches, replays);
criterion_main!(benches);
