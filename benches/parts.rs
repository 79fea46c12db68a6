//! Wall time of the parts of a simulation: the event queue, the KV cache's lookup and eviction, and
//! an engine's steps, taken one by one and many at once.
#![allow(missing_docs, reason = "criterion's macros make undocumented items")]

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use tonnage::config::scenario::Scenario;
use tonnage::engine::cache::BlockCache;
use tonnage::engine::config::Pool;
use tonnage::engine::extents::ExtentCache;
use tonnage::engine::fast::FastEngine;
use tonnage::engine::plain::PlainEngine;
use tonnage::engine::request::{Effect, Request};
use tonnage::engine::{Due, Engine};
use tonnage::fleet::Setup;
use tonnage::queue::EventQueue;
use tonnage::trace::lineage::Path;
use tonnage::trace::record::Finish;
use tonnage::units::{Blocks, RequestId, SegmentId, Span, Time, Tokens};

const BLOCK_SIZE: u64 = 16;
const BLOCKS: u64 = 28_541;

/// An event comes out and another one goes in, as many standing in the queue as calls are open.
fn queue(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("queue");
    for open in [100, 10_000, 1_000_000] {
        let mut queue = EventQueue::default();
        let mut number: u64 = 0;
        // Some hundred milliseconds ahead, in an order that repeats late.
        let mut ahead = move || {
            number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            Span::from_micros(1 + (number >> 44))
        };
        for event in 0..open {
            queue.push(Time::ZERO + ahead(), event);
        }
        group.bench_function(BenchmarkId::new("pop and push", open), |bencher| {
            bencher.iter(|| {
                let (now, event) = queue.pop().expect("it is never empty");
                queue.push(now + ahead(), black_box(event));
            });
        });
    }
    group.finish();
}

fn blocks(tokens: u64) -> Blocks {
    Tokens(tokens).blocks_floor(BLOCK_SIZE)
}

/// Computes a context from its block `from` on, and lets go of it.
fn fill(cache: &mut ExtentCache, path: &Path, from: u64) {
    let mut held = Default::default();
    let whole = blocks(path.len().0);
    let mut hits = Default::default();
    cache.lookup(path, from, &mut hits);
    cache.touch(path, &hits, &mut held);
    cache.allocate(Blocks(whole.0 - from), &mut held);
    cache.insert(path, from, whole.0, &mut held);
    cache.release(&mut held);
}

/// The hits of a prompt whose context was written by many calls, all of it cached.
fn lookup(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("lookup");
    for tokens in [16_000, 64_000, 256_000] {
        let mut cache = ExtentCache::new(Pool::Limited(Blocks(BLOCKS)), BLOCK_SIZE, true);
        let shared = Path::default().continued(Tokens::ZERO, SegmentId(0), Tokens(12_000));
        let path = shared.continued(Tokens(12_000), SegmentId(1), Tokens(tokens));
        fill(&mut cache, &path, 0);
        let limit = blocks(tokens).0;
        let mut hits = Default::default();
        group.bench_function(BenchmarkId::new("tokens", tokens), |bencher| {
            bencher.iter(|| {
                hits = Default::default();
                cache.lookup(black_box(&path), limit, &mut hits);
                cache.count_free(&path, &hits)
            });
        });
        assert_eq!(ExtentCache::hit_blocks(&hits), Blocks(limit));
    }
    group.finish();
}

/// New contexts in a cache that is full: each takes its blocks from those that are oldest.
fn eviction(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("eviction");
    for tokens in [1_600, 16_000, 160_000] {
        let mut cache = ExtentCache::new(Pool::Limited(Blocks(BLOCKS)), BLOCK_SIZE, true);
        let mut segment = 0;
        let mut next = || {
            segment += 1;
            Path::default().continued(Tokens::ZERO, SegmentId(segment), Tokens(tokens))
        };
        for _ in 0..=BLOCKS / blocks(tokens).0 {
            fill(&mut cache, &next(), 0);
        }
        let before = cache.evicted_total();
        group.bench_function(BenchmarkId::new("tokens", tokens), |bencher| {
            bencher.iter(|| fill(&mut cache, &next(), 0));
        });
        assert!(cache.evicted_total() > before);
    }
    group.finish();
}

/// A replica as `benches/w1.toml` has it.
fn replica() -> Setup {
    let text = std::fs::read_to_string("benches/w1.toml").expect("the scenario is there");
    let scenario = Scenario::parse(&text, "benches/w1.toml", &[]).expect("it reads");
    Setup::of(&scenario).expect("it has step times")
}

/// So many requests at once.
fn submit(engine: &mut impl Engine, count: u32, prompt: u64, output: u64) {
    for number in 0..count {
        let end = Tokens(prompt + output);
        engine.submit(
            Time::ZERO,
            Request {
                id: RequestId(number),
                path: Path::default().continued(Tokens::ZERO, SegmentId(number), end),
                prompt: Tokens(prompt),
                output: Tokens(output),
                finish: Finish::Stop,
                priority: 0,
            },
        );
    }
}

/// Lets the engine work until nothing is left to do; what came of it.
fn drain(engine: &mut impl Engine, effects: &mut Vec<Effect>) -> usize {
    let mut told = 0;
    while let Some(due) = engine.due() {
        let (Due::StepEnds(now) | Due::StepStarts(now)) = due;
        effects.clear();
        engine.advance(now, effects);
        engine.take_runs(|run, _| {
            black_box(run);
        });
        told += effects.len();
    }
    told
}

/// Steps that all differ (prompts in chunks), and steps that are all alike (long outputs).
fn steps(criterion: &mut Criterion) {
    let Setup { engine: config, cost, .. } = replica();
    let mut effects = Vec::new();
    for (name, count, prompt, output) in [("step", 64, 6_000, 32), ("skip", 64, 64, 4_000)] {
        let mut group = criterion.benchmark_group(name);
        group.sample_size(10);
        group.throughput(Throughput::Elements(u64::from(count)));
        group.bench_function("fast engine", |bencher| {
            bencher.iter(|| {
                let mut engine = FastEngine::new(config.clone(), cost.clone());
                submit(&mut engine, count, prompt, output);
                drain(&mut engine, &mut effects)
            });
        });
        group.bench_function("plain engine", |bencher| {
            bencher.iter(|| {
                let mut engine = PlainEngine::new(config.clone(), cost.clone());
                submit(&mut engine, count, prompt, output);
                drain(&mut engine, &mut effects)
            });
        });
        group.finish();
    }
}

criterion_group!(benches, queue, lookup, eviction, steps);
criterion_main!(benches);
