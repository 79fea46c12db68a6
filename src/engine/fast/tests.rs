//! The fast engine against the plain one, event by event: every effect with its time, every step,
//! all counters, and the whole free list after every event.
//!
//! More of them: `TONNAGE_CASES=20000 cargo test --release --lib fast::tests`; a failure prints its
//! seed, and `TONNAGE_SEED` starts there.

use super::FastEngine;
use crate::config::defaults::VllmVersion;
use crate::config::geometry::WindowKind;
use crate::config::precision::{KvDtype, WeightPrecision};
use crate::config::{gpus, models};
use crate::engine::cache::BlockCache;
use crate::engine::config::{EngineConfig, Policy, Pool};
use crate::engine::plain::PlainEngine;
use crate::engine::request::{Effect, Request, StepSummary};
use crate::engine::step_time::{StepCost, StepSetup};
use crate::engine::{Due, Engine};
use crate::trace::record::Finish;
use crate::units::{Blocks, RequestId, SegmentId, Span, Time, Tokens};

mod abort;
mod flat;

/// Random workloads in an ordinary run.
const CASES: u64 = 600;

/// Seeds that have found faults, each of another kind: twins that end and write on, chunks of one
/// token behind the prompt, copies of what a member writes, a skip that leaves a chunk too few
/// blocks. They are played in every run.
const FOUND: [u64; 12] =
    [279, 1_232, 10_221, 12_067, 29_601, 31_980, 42_182, 45_589, 47_470, 48_943, 62_285, 325_967];

/// A stream of numbers that a seed fixes (splitmix64).
pub(in crate::engine) struct Dice(pub u64);

impl Dice {
    fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// From `low` to `high`, both of them possible.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.roll() % (high.max(low) - low + 1)
    }

    pub fn percent(&mut self, chance: u64) -> bool {
        self.roll() % 100 < chance
    }
}

fn cost(dice: &mut Dice, chunked: bool) -> StepCost {
    // The second has layers with a window of 128 tokens, sliding or in chunks.
    let name = ["Llama-3.1-8B", "gpt-oss-20b"][dice.between(0, 1) as usize];
    let mut model = models::find(name).unwrap();
    if let Some(window) = model.window.as_mut().filter(|_| chunked) {
        window.kind = WindowKind::Chunked;
    }
    let weights = if name == "gpt-oss-20b" { WeightPrecision::Mxfp4 } else { WeightPrecision::Fp8 };
    StepCost::new(&StepSetup {
        model: &model,
        gpu: gpus::find("h100-sxm").unwrap(),
        tp: 1,
        dp: 1,
        weights,
        kv_dtype: KvDtype::Bf16,
    })
    .unwrap()
}

pub(in crate::engine) fn config(dice: &mut Dice) -> EngineConfig {
    let block_size = if dice.percent(25) { 1 } else { dice.between(2, 16) };
    let tight = dice.percent(50);
    let blocks = if tight { dice.between(2, 24) } else { dice.between(25, 200) };
    let pool = blocks * block_size;
    let seqs = dice.between(1, 12);
    let budget = if dice.percent(20) { seqs / 2 + 1 } else { seqs + dice.between(1, 60) };
    let outgrows = dice.percent(10);
    let longest = if outgrows { pool * 3 / 2 } else { pool };
    EngineConfig {
        block_size,
        pool: Pool::Limited(Blocks(blocks + 1)),
        window_blocks: Blocks(if dice.percent(20) && blocks > 4 { 1 } else { 0 }),
        max_num_seqs: seqs as usize,
        max_num_batched_tokens: Tokens(budget),
        long_prefill_token_threshold: Tokens(if dice.percent(15) {
            dice.between(1, 40)
        } else {
            0
        }),
        max_model_len: Tokens(longest.max(4)),
        enable_prefix_caching: dice.percent(90),
        policy: if dice.percent(30) { Policy::Priority } else { Policy::Fcfs },
        watermark: if dice.percent(20) { dice.between(1, 40) as f64 / 100.0 } else { 0.0 },
        async_scheduling: dice.percent(60),
        vllm: VllmVersion::scheduler(["0.29", "0.33"][dice.between(0, 1) as usize]).unwrap(),
        scheduler_reserve_full_isl: dice.percent(75),
    }
}

/// What is asked so far.
pub(in crate::engine) struct Asked {
    pub requests: Vec<Request>,
    pub segments: u32,
    pub stops: u64,
}

impl Asked {
    pub fn next(&mut self, dice: &mut Dice, config: &EngineConfig) -> Request {
        let longest = config.max_model_len.0;
        let id = RequestId::from_index(self.requests.len());
        let finish = if dice.percent(self.stops) { Finish::Stop } else { Finish::Length };
        let priority = dice.between(0, 2) as i32;
        let earlier = (!self.requests.is_empty()).then(|| {
            self.requests[dice.between(0, self.requests.len() as u64 - 1) as usize].clone()
        });
        if let Some(twin) = &earlier
            && dice.percent(12)
        {
            // The same again, perhaps with more or less of the same answer.
            let output = dice.between(1, (twin.path.len() - twin.prompt).0.max(1));
            let request = Request { id, finish, priority, output: Tokens(output), ..twin.clone() };
            self.requests.push(request.clone());
            return request;
        }
        let base = earlier.filter(|_| dice.percent(75)).map(|earlier| earlier.path);
        let base = base.unwrap_or_default();
        let kept = match dice.between(0, 3) {
            0 => dice.between(0, base.len().0),
            1 => base.len().0 / config.block_size * config.block_size,
            _ => base.len().0,
        };
        let new = if dice.percent(15) { 0 } else { dice.between(1, 60) };
        let prompt = (kept + new).clamp(1, longest - 1);
        let output = if dice.percent(60) { dice.between(1, 12) } else { dice.between(1, 150) };
        let kept = Tokens(kept.min(prompt));
        let own = SegmentId(self.segments);
        let mut path = base.continued(kept, own, Tokens(prompt));
        let more = if dice.percent(10) { dice.between(1, 20) } else { 0 };
        if dice.percent(50) {
            self.segments += 1;
        }
        path.extend(SegmentId(self.segments), Tokens(prompt + output + more));
        self.segments += 1;
        let request =
            Request { id, path, prompt: Tokens(prompt), output: Tokens(output), finish, priority };
        self.requests.push(request.clone());
        request
    }
}

/// What an engine has told.
#[derive(Debug, Default, PartialEq)]
pub(in crate::engine) struct Told {
    pub effects: Vec<(Time, Effect)>,
    pub steps: Vec<(Time, StepSummary)>,
}

impl Told {
    pub fn add(&mut self, now: Time, engine: &mut impl Engine, effects: &mut Vec<Effect>) {
        engine.take_runs(|run, levels| self.steps.extend(run.each(levels)));
        for effect in effects.drain(..) {
            match effect {
                Effect::StepStarted(step) => self.steps.push((now, step)),
                other => self.effects.push((now, other)),
            }
        }
    }

    /// Where two accounts part.
    pub fn parting(&self, other: &Self) -> Option<String> {
        fn first<T: PartialEq + std::fmt::Debug>(what: &str, a: &[T], b: &[T]) -> Option<String> {
            let at = a.iter().zip(b).take_while(|(a, b)| a == b).count();
            let same = a.len() == b.len() && at == a.len();
            (!same).then(|| format!("{what} {at}: plain {:?}\nfast {:?}", a.get(at), b.get(at)))
        }
        first("effect", &self.effects, &other.effects)
            .or_else(|| first("step", &self.steps, &other.steps))
    }
}

struct Pair {
    plain: PlainEngine,
    fast: FastEngine,
    told: [Told; 2],
    effects: Vec<Effect>,
    skipped: u64,
    locked: u64,
    found: u64,
    aborted: u64,
}

pub(in crate::engine) fn key(due: Due) -> (Time, u8) {
    match due {
        Due::StepEnds(at) => (at, 0),
        Due::StepStarts(at) => (at, 2),
    }
}

impl Pair {
    fn counts(&self) -> [u64; 4] {
        [self.skipped, self.locked, self.found, self.aborted]
    }

    /// Lets both engines do everything that comes before this instant and phase.
    fn run_until(&mut self, until: (Time, u8)) -> Result<(), String> {
        while let Some(due) = self.fast.due().filter(|due| key(*due) < until) {
            let at = key(due);
            self.run_plain((at.0, at.1 + 1));
            self.fast.advance(at.0, &mut self.effects);
            self.told[1].add(at.0, &mut self.fast, &mut self.effects);
            self.skipped += u64::from(self.fast.skip.is_some());
            self.locked += u64::from(self.fast.locked);
            self.compare()?;
            if self.plain.stuck().is_some() {
                return Ok(());
            }
        }
        self.run_plain(until);
        Ok(())
    }

    fn run_plain(&mut self, until: (Time, u8)) {
        while let Some(due) = self.plain.due().filter(|due| key(*due) < until) {
            let at = key(due).0;
            self.plain.advance(at, &mut self.effects);
            self.told[0].add(at, &mut self.plain, &mut self.effects);
            if self.plain.stuck().is_some() {
                return;
            }
        }
    }

    fn compare(&self) -> Result<(), String> {
        let same = |what: &str, plain: String, fast: String| match plain == fast {
            true => Ok(()),
            false => Err(format!("{what}: plain {plain}\nfast {fast}")),
        };
        let (plain, fast) = (self.plain.kv(), self.fast.scheduler.kv());
        same("stuck", format!("{:?}", self.plain.stuck()), format!("{:?}", self.fast.stuck()))?;
        same("free list", format!("{:?}", plain.free_order()), format!("{:?}", fast.free_order()))?;
        same("used", plain.used_blocks().to_string(), fast.used_blocks().to_string())?;
        same("evicted", plain.evicted_total().to_string(), fast.evicted_total().to_string())?;
        let released = BlockCache::released_total(plain);
        same("released", released.to_string(), fast.released_total().to_string())
    }

    /// Asks both what they would find.
    fn look_up(&mut self, now: Time, request: &Request) -> Result<(), String> {
        let (path, prompt) = (&request.path, request.prompt);
        let (plain, fast) =
            (self.plain.cached(now, path, prompt), self.fast.cached(now, path, prompt));
        self.found += u64::from(plain > Tokens::ZERO);
        match plain == fast {
            true => Ok(()),
            false => Err(format!("cached: plain {plain}, fast {fast}")),
        }
    }

    /// Takes a request back, one that has ended perhaps, and asks both for their gauges.
    fn abort(&mut self, now: Time, request: RequestId) -> Result<(), String> {
        self.aborted += u64::from(self.plain.unfinished().any(|(id, _)| id == request));
        self.plain.abort(now, request);
        self.fast.abort(now, request);
        self.compare()?;
        let (plain, fast) = (self.plain.gauges(now), self.fast.gauges(now));
        match plain == fast {
            true => Ok(()),
            false => Err(format!("gauges: plain {plain:?}, fast {fast:?}")),
        }
    }

    fn compare_all(&mut self, until: Time) -> Result<(), String> {
        self.fast.settle(until);
        self.told[1].add(until, &mut self.fast, &mut self.effects);
        self.compare()?;
        if let Some(parting) = self.told[0].parting(&self.told[1]) {
            return Err(parting);
        }
        let (plain, fast) = (self.plain.metrics(), self.fast.metrics());
        if plain != fast {
            return Err(format!("metrics: plain {plain:?}\nfast {fast:?}"));
        }
        Ok(())
    }
}

/// What is done besides handing over requests.
#[derive(Clone, Copy, PartialEq)]
enum Beside {
    Nothing,
    LookUps,
    Aborts,
    /// Nothing either, and attention in chunks.
    Chunks,
}

/// Gives a random workload to both engines; how much of it went in lock step and was skipped.
fn play(seed: u64, beside: Beside) -> Result<[u64; 4], String> {
    let mut dice = Dice(seed);
    let config = config(&mut dice);
    let cost = cost(&mut dice, beside == Beside::Chunks);
    let mut pair = Pair {
        plain: PlainEngine::new(config.clone(), cost.clone()),
        fast: FastEngine::new(config.clone(), cost),
        told: Default::default(),
        effects: Vec::new(),
        skipped: 0,
        locked: 0,
        found: 0,
        aborted: 0,
    };
    let stops = [0, 50, 100][dice.between(0, 2) as usize];
    let mut asked = Asked { requests: Vec::new(), segments: 0, stops };
    let pause_us = [0, 3_000, 60_000, 900_000][dice.between(0, 3) as usize];
    let mut now = Time::ZERO;
    for _ in 0..dice.between(1, 30) {
        // At the very instant of a step's end, or at any time.
        now = match pair.plain.due() {
            Some(due) if dice.percent(25) => now.max(key(due).0),
            _ if dice.percent(40) => now,
            _ => now + Span(dice.between(0, 1_000 * pause_us)),
        };
        pair.run_until((now, 1)).map_err(|parting| format!("at {now:?}: {parting}"))?;
        if pair.plain.stuck().is_some() {
            return Ok(pair.counts());
        }
        if beside == Beside::Aborts {
            // Several at once, twice the same, or one and nothing else.
            while dice.percent(50) && !asked.requests.is_empty() {
                let last = asked.requests.len() as u64 - 1;
                let first = if dice.percent(70) { last.saturating_sub(5) } else { 0 };
                let request = RequestId::from_index(dice.between(first, last) as usize);
                pair.abort(now, request).map_err(|parting| format!("at {now:?}: {parting}"))?;
            }
            if dice.percent(30) {
                continue;
            }
        }
        let request = asked.next(&mut dice, &config);
        if beside == Beside::LookUps {
            pair.look_up(now, &request).map_err(|parting| format!("at {now:?}: {parting}"))?;
            if dice.percent(30) {
                continue;
            }
        }
        pair.plain.submit(now, request.clone());
        pair.fast.submit(now, request);
    }
    // Sometimes the run is cut off.
    let until = match dice.between(0, 3) {
        0 => now + Span(dice.between(1, 400_000_000)),
        _ => Time::MAX,
    };
    pair.run_until((until, 0)).map_err(|parting| format!("at the end: {parting}"))?;
    if pair.plain.stuck().is_none() {
        pair.compare_all(until).map_err(|parting| format!("after the end: {parting}"))?;
    }
    Ok(pair.counts())
}

pub(in crate::engine) fn variable(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).map_or(otherwise, |text| text.parse().unwrap())
}

/// Skips, events in lock step, lookups that found something and requests taken back, over all
/// random workloads.
fn play_all(beside: Beside) -> [u64; 4] {
    let first = variable("TONNAGE_SEED", 0);
    let (mut sums, mut failed) = ([0; 4], 0);
    for seed in FOUND.into_iter().chain(first..first + variable("TONNAGE_CASES", CASES)) {
        match play(seed, beside) {
            Ok(counts) => {
                for (sum, count) in sums.iter_mut().zip(counts) {
                    *sum += count;
                }
            }
            Err(parting) => {
                eprintln!("TONNAGE_SEED={seed}: {parting}");
                failed += 1;
            }
        }
    }
    assert_eq!(failed, 0, "seeds on which the engines part");
    sums
}

#[test]
fn the_fast_engine_does_what_the_plain_one_does() {
    let [skipped, locked, ..] = play_all(Beside::Nothing);
    assert!(skipped > 300 && locked > 3_000, "{skipped} skips, {locked} events in lock step");
}

/// Layers that see the tokens since the last multiple of 128, of contexts across many of them.
#[test]
fn the_fast_engine_prices_chunked_attention_as_the_plain_one_does() {
    let [skipped, locked, ..] = play_all(Beside::Chunks);
    assert!(skipped > 300 && locked > 3_000, "{skipped} skips, {locked} events in lock step");
}

/// Asked for what is cached at any time, both answer alike, and do what they do alike.
#[test]
fn the_fast_engine_finds_what_the_plain_one_finds() {
    let [skipped, _, found, _] = play_all(Beside::LookUps);
    assert!(skipped > 100 && found > 1_000, "{skipped} skips, {found} lookups with a hit");
}

/// Requests are taken back at any time, and both engines go on alike.
#[test]
fn the_fast_engine_takes_back_what_the_plain_one_takes_back() {
    let [skipped, locked, _, aborted] = play_all(Beside::Aborts);
    assert!(skipped > 100 && locked > 1_000, "{skipped} skips, {locked} events in lock step");
    assert!(aborted > 1_000, "{aborted} requests taken back");
}
