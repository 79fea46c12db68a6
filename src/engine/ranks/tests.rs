//! Groups of ranks: either kind of rank does the same, ranks with the same work do what one engine
//! does, and nothing gets lost between them.

use std::collections::BTreeMap;

use super::RankGroup;
use crate::config::precision::{KvDtype, WeightPrecision};
use crate::config::{gpus, models};
use crate::engine::config::EngineConfig;
use crate::engine::fast::FastEngine;
use crate::engine::fast::tests::{Asked, Dice, Told, config, key, variable};
use crate::engine::plain::PlainEngine;
use crate::engine::request::{Effect, Request};
use crate::engine::step_time::{StepCost, StepSetup};
use crate::engine::{Due, Engine};
use crate::trace::lineage::Path;
use crate::trace::record::Finish;
use crate::units::{RequestId, SegmentId, Span, Time, Tokens};

const CASES: u64 = 150;

fn cost(model: &str, dp: u32) -> StepCost {
    let model = models::find(model).unwrap();
    StepCost::new(&StepSetup {
        model: &model,
        gpu: gpus::find("h100-sxm").unwrap(),
        tp: 1,
        dp,
        weights: WeightPrecision::Bits16,
        kv_dtype: KvDtype::Bf16,
    })
    .unwrap()
}

/// An engine and what it has told.
struct Watched<E> {
    engine: E,
    told: Told,
    effects: Vec<Effect>,
    /// How often it was asked to go on.
    advances: u64,
}

impl<E: Engine> Watched<E> {
    fn new(engine: E) -> Self {
        Self { engine, told: Told::default(), effects: Vec::new(), advances: 0 }
    }

    /// Lets it do everything before this instant and phase. False once it is stuck.
    fn run_until(&mut self, until: (Time, u8)) -> bool {
        while let Some(at) = self.engine.due().map(key).filter(|at| *at < until) {
            self.engine.advance(at.0, &mut self.effects);
            self.advances += 1;
            self.told.add(at.0, &mut self.engine, &mut self.effects);
            if self.engine.stuck().is_some() {
                return false;
            }
        }
        true
    }
}

/// When requests come: at random, and often at one instant.
fn arrivals(dice: &mut Dice, config: &EngineConfig) -> Vec<(Time, Request)> {
    let mut asked = Asked { requests: Vec::new(), segments: 0, stops: 50 };
    let pause_us = [0, 3_000, 60_000, 900_000][dice.between(0, 3) as usize];
    let mut now = Time::ZERO;
    (0..dice.between(1, 40))
        .map(|_| {
            if dice.percent(60) {
                now = now + Span(dice.between(0, 1_000 * pause_us));
            }
            (now, asked.next(dice, config))
        })
        .collect()
}

/// Plays requests on an engine to the end; what it told, unless it got stuck.
fn play<E: Engine>(engine: E, arrivals: &[(Time, Request)]) -> Option<Watched<E>> {
    let mut watched = Watched::new(engine);
    for (now, request) in arrivals {
        if !watched.run_until((*now, 1)) {
            return None;
        }
        watched.engine.submit(*now, request.clone());
    }
    watched.run_until((Time::MAX, 0)).then_some(watched)
}

#[test]
fn both_kinds_of_rank_do_the_same() {
    let (two, eight) = (cost("Qwen3-30B-A3B", 2), cost("Qwen3-30B-A3B", 8));
    let (mut played, mut preempted, mut advances) = (0, 0, (0, 0));
    for seed in 0..variable("TONNAGE_CASES", CASES) {
        let mut dice = Dice(seed);
        let config = config(&mut dice);
        let cost = if dice.percent(50) { &two } else { &eight };
        let arrivals = arrivals(&mut dice, &config);
        let plain = play(RankGroup::new(&config, cost, PlainEngine::new), &arrivals);
        let fast = play(RankGroup::new(&config, cost, FastEngine::new), &arrivals);
        assert_eq!(plain.is_some(), fast.is_some(), "seed {seed}: one of them is stuck");
        let Some((plain, fast)) = plain.zip(fast) else { continue };
        assert_eq!(plain.told.parting(&fast.told), None, "seed {seed}");
        assert_eq!(plain.engine.metrics(), fast.engine.metrics(), "seed {seed}");
        conserves(&plain, &arrivals);
        played += 1;
        preempted += plain.engine.metrics().num_preemptions;
        advances = (advances.0 + plain.advances, advances.1 + fast.advances);
    }
    assert!(played > CASES / 2 && preempted > 100, "{played} played, {preempted} preempted");
    assert!(10 * advances.1 < 7 * advances.0, "{advances:?}: steps are skipped");
}

/// Requests are taken back at any time: while they wait, run, are in a step, at the very instant at
/// which they come, or when they have ended.
#[test]
fn both_kinds_of_rank_take_back_the_same() {
    let (two, eight) = (cost("Qwen3-30B-A3B", 2), cost("Qwen3-30B-A3B", 8));
    let mut sums = TakenBack::default();
    for seed in 0..2 * variable("TONNAGE_CASES", CASES) {
        let mut dice = Dice(seed);
        let config = config(&mut dice);
        let cost = if dice.percent(50) { &two } else { &eight };
        let mut plain = Watched::new(RankGroup::new(&config, cost, PlainEngine::new));
        let mut fast = Watched::new(RankGroup::new(&config, cost, FastEngine::new));
        let stuck = play_with_aborts(&mut dice, &config, &mut plain, &mut fast, &mut sums);
        assert_eq!(plain.engine.stuck(), fast.engine.stuck(), "seed {seed}");
        if stuck {
            continue;
        }
        assert_eq!(plain.told.parting(&fast.told), None, "seed {seed}");
        assert_eq!(plain.engine.metrics(), fast.engine.metrics(), "seed {seed}");
        let metrics = plain.engine.metrics();
        assert_eq!((metrics.num_requests_running, metrics.num_requests_waiting), (0, 0));
        assert_eq!(metrics.kv_cache_usage_perc, 0.0, "seed {seed}: blocks are lost");
        sums.played += 1;
    }
    let TakenBack { played, in_step, between, waiting, at_once } = sums;
    let places = [in_step, between, waiting, at_once];
    assert!(played > CASES && places.iter().all(|count| *count > 100), "{sums:?}");
}

/// How many requests were taken back, and where they were then.
#[derive(Debug, Default)]
struct TakenBack {
    played: u64,
    in_step: u64,
    /// In the running list, while no step runs.
    between: u64,
    waiting: u64,
    /// At the instant at which they came.
    at_once: u64,
}

/// Gives both groups the same requests, and takes back the same. True if they got stuck.
fn play_with_aborts(
    dice: &mut Dice,
    config: &EngineConfig,
    plain: &mut Watched<RankGroup<PlainEngine>>,
    fast: &mut Watched<RankGroup<FastEngine>>,
    sums: &mut TakenBack,
) -> bool {
    let mut asked = Asked { requests: Vec::new(), segments: 0, stops: 50 };
    let pause_us = [0, 3_000, 60_000, 900_000][dice.between(0, 3) as usize];
    let (mut now, mut came, mut gone) = (Time::ZERO, Vec::new(), Vec::new());
    for _ in 0..dice.between(1, 60) {
        // At the very instant of a step's end, or at any time.
        now = match plain.engine.due() {
            Some(due) if dice.percent(25) => now.max(key(due).0),
            _ if dice.percent(40) => now,
            _ => now + Span(dice.between(0, 1_000 * pause_us)),
        };
        if [plain.run_until((now, 1)), fast.run_until((now, 1))].contains(&false) {
            return true;
        }
        if dice.percent(60) || came.is_empty() {
            let request = asked.next(dice, config);
            came.push(now);
            plain.engine.submit(now, request.clone());
            fast.engine.submit(now, request);
        }
        while dice.percent(50) {
            let last = came.len() as u64 - 1;
            let first = if dice.percent(80) { last.saturating_sub(4) } else { 0 };
            let index = dice.between(first, last) as usize;
            let request = RequestId::from_index(index);
            let mut ranks = plain.engine.ranks.iter();
            let there = ranks.any(|rank| rank.unfinished().any(|(id, _)| id == request));
            let before = plain.engine.occupancy();
            plain.engine.abort(now, request);
            fast.engine.abort(now, request);
            gone.push((request, plain.told.effects.len()));
            let after = plain.engine.occupancy();
            assert_eq!(after, fast.engine.occupancy(), "what is left of {index}");
            sums.in_step += u64::from(there && after == before);
            sums.between += u64::from(after.running < before.running);
            sums.waiting += u64::from(after.waiting < before.waiting);
            sums.at_once += u64::from(there && came[index] == now);
        }
    }
    let stuck = [plain.run_until((Time::MAX, 0)), fast.run_until((Time::MAX, 0))].contains(&false);
    for (request, told) in gone {
        let later = &plain.told.effects[told..];
        assert!(!later.iter().any(|(_, effect)| names(effect, request)), "{request:?} lives on");
    }
    stuck
}

fn names(effect: &Effect, wanted: RequestId) -> bool {
    match *effect {
        Effect::Admitted { request, .. }
        | Effect::Preempted { request, .. }
        | Effect::FirstToken { request }
        | Effect::Finished { request, .. } => request == wanted,
        Effect::StepStarted(_) => false,
    }
}

/// Every request is admitted once, gives its first token and its whole answer, and leaves nothing.
fn conserves<E: Engine>(watched: &Watched<E>, arrivals: &[(Time, Request)]) {
    let mut fates: BTreeMap<RequestId, [u64; 3]> = BTreeMap::new();
    for (_, effect) in &watched.told.effects {
        match *effect {
            Effect::Admitted { request, resumed: false, .. } => {
                fates.entry(request).or_default()[0] += 1;
            }
            Effect::FirstToken { request } => fates.entry(request).or_default()[1] += 1,
            Effect::Finished { request, output, .. } => {
                fates.entry(request).or_default()[2] += 1;
                let asked = &arrivals[request.index()].1;
                assert!(output <= asked.output, "{request:?} gives more than was asked for");
            }
            _ => {}
        }
    }
    assert_eq!(fates.len(), arrivals.len(), "a request is lost");
    assert!(fates.values().all(|fate| *fate == [1, 1, 1]), "{fates:?}");
    let metrics = watched.engine.metrics();
    assert_eq!((metrics.num_requests_running, metrics.num_requests_waiting), (0, 0));
    assert_eq!(metrics.kv_cache_usage_perc, 0.0);
    assert_eq!(metrics.steps, watched.told.steps.len() as u64);
}

/// With a step time of a model whose ranks share nothing, three ranks with the same work take the
/// steps of one engine.
#[test]
fn ranks_with_the_same_work_do_what_one_engine_does() {
    const RANKS: usize = 3;
    let cost = cost("Llama-3.1-8B", 1);
    let mut played = 0;
    for seed in 0..CASES {
        let mut dice = Dice(seed);
        let config = config(&mut dice);
        let one = arrivals(&mut dice, &config);
        let copy = |(at, request): &(Time, Request), rank: usize| {
            let id = RequestId::from_index(request.id.index() * RANKS + rank);
            (*at, Request { id, ..request.clone() })
        };
        let all: Vec<_> =
            one.iter().flat_map(|asked| (0..RANKS).map(move |rank| copy(asked, rank))).collect();
        let single = play(PlainEngine::new(config.clone(), cost.clone()), &one);
        let group = RankGroup::of(RANKS, &config, &cost, PlainEngine::new);
        let Some((single, group)) = single.zip(play(group, &all)) else { continue };
        for rank in 0..RANKS {
            let of_rank: Vec<(Time, Effect)> = group
                .told
                .effects
                .iter()
                .filter_map(|(at, effect)| Some((*at, original(*effect, rank, RANKS)?)))
                .collect();
            assert_eq!(of_rank, single.told.effects, "seed {seed}, rank {rank}");
        }
        let steps = single.told.steps.iter().zip(&group.told.steps);
        assert_eq!(single.told.steps.len(), group.told.steps.len(), "seed {seed}");
        for ((at, alone), (group_at, together)) in steps {
            assert_eq!((at, alone.span), (group_at, together.span), "seed {seed}");
            assert_eq!(alone.decode_span, together.decode_span, "seed {seed}");
            assert_eq!(3 * alone.decode_seqs, together.decode_seqs, "seed {seed}");
            assert_eq!(3 * alone.used_blocks.0, together.used_blocks.0, "seed {seed}");
            assert_eq!(3 * alone.waiting, together.waiting, "seed {seed}");
        }
        let (alone, together) = (single.engine.metrics(), group.engine.metrics());
        assert_eq!(3 * alone.prefix.hits, together.prefix.hits, "seed {seed}");
        assert_eq!(alone.steps, together.steps, "seed {seed}");
        played += 1;
    }
    assert!(played > CASES / 2, "{played} played");
}

/// The effect under the number of the request that was copied, if it is of this rank.
fn original(effect: Effect, rank: usize, ranks: usize) -> Option<Effect> {
    let own = |request: RequestId| {
        let number = request.index();
        (number % ranks == rank).then(|| RequestId::from_index(number / ranks))
    };
    Some(match effect {
        Effect::Admitted { request, cached, resumed } => {
            Effect::Admitted { request: own(request)?, cached, resumed }
        }
        Effect::Preempted { request, lost } => Effect::Preempted { request: own(request)?, lost },
        Effect::FirstToken { request } => Effect::FirstToken { request: own(request)? },
        Effect::Finished { request, output, prefilled } => {
            Effect::Finished { request: own(request)?, output, prefilled }
        }
        Effect::StepStarted(_) => return None,
    })
}

fn request(id: u32, prompt: u64, output: u64) -> Request {
    let path = Path::default().continued(Tokens::ZERO, SegmentId(id), Tokens(prompt + output));
    let (prompt, output) = (Tokens(prompt), Tokens(output));
    Request { id: RequestId(id), path, prompt, output, finish: Finish::Length, priority: 0 }
}

fn roomy() -> EngineConfig {
    use crate::config::defaults::VllmVersion;
    use crate::engine::config::{Policy, Pool};
    use crate::units::Blocks;
    EngineConfig {
        block_size: 16,
        pool: Pool::Limited(Blocks(4_000)),
        window_blocks: Blocks::ZERO,
        max_num_seqs: 8,
        max_num_batched_tokens: Tokens(2_048),
        long_prefill_token_threshold: Tokens::ZERO,
        max_model_len: Tokens(32_768),
        enable_prefix_caching: true,
        policy: Policy::Fcfs,
        watermark: 0.0,
        async_scheduling: false,
        vllm: VllmVersion::default(),
        scheduler_reserve_full_isl: true,
    }
}

/// Four ranks: one decodes at 100 tokens, one prefills 2,048, two have nothing and compute a token
/// each. The step is that of the prompt, and the other tokens pass the same experts.
#[test]
fn a_long_prompt_makes_all_ranks_wait() {
    let cost = cost("Qwen3-30B-A3B", 4);
    let mut group = RankGroup::new(&roomy(), &cost, FastEngine::new);
    let mut effects = Vec::new();
    group.submit(Time::ZERO, request(0, 99, 50));
    group.advance(Time::ZERO, &mut effects);
    let Some(Due::StepEnds(first)) = group.due() else { panic!("a step runs") };
    let mut alone = cost.empty_load();
    alone.add_prefill(0, 99, true);
    alone.set_other_ranks(3);
    assert!(first.0.abs_diff(cost.ticks(&alone).whole().0) <= 1, "rounded, not cut off");

    group.submit(first, request(1, 4_096, 2));
    effects.clear();
    group.advance(first, &mut effects);
    group.advance(first, &mut effects);
    let mut slow = cost.empty_load();
    slow.add_prefill(0, 2_048, false);
    slow.set_other_ranks(1 + 1 + 1);
    let Some(Effect::StepStarted(step)) = effects.last() else { panic!("a step starts") };
    assert!(step.span.0.abs_diff(cost.ticks(&slow).whole().0) <= 1, "rounded with what is carried");
    let mut fast = cost.empty_load();
    fast.add_decode(100);
    fast.set_other_ranks(2_048 + 1 + 1);
    assert!(step.span > cost.ticks(&fast).whole());
    assert_eq!((step.decode_seqs, step.prefill_tokens), (1, Tokens(2_048)));
    // Without the prompt three ranks would have had nothing.
    fast.set_other_ranks(3);
    assert!(step.decode_span.0.abs_diff(cost.ticks(&fast).whole().0) <= 1);
}

/// What one rank has computed is found there only; the best of the ranks answers for all.
#[test]
fn caches_are_apart() {
    let cost = cost("Qwen3-30B-A3B", 2);
    let mut group = RankGroup::new(&roomy(), &cost, PlainEngine::new);
    let first = request(0, 1_000, 1);
    group.submit(Time::ZERO, first.clone());
    let mut effects = Vec::new();
    while let Some(due) = group.due() {
        group.advance(key(due).0, &mut effects);
    }
    assert_eq!(group.cached(Time::ZERO, &first.path, Tokens(1_000)), Tokens(992));
    // Equal ranks take turns, so the same prompt goes to the other one and finds nothing.
    group.submit(Time(1 << 40), Request { id: RequestId(1), ..first });
    while let Some(due) = group.due() {
        group.advance(key(due).0, &mut effects);
    }
    assert_eq!(group.metrics().prefix.hits, 0);
    assert_eq!(group.metrics().prefix.queries, 2_000);
}
