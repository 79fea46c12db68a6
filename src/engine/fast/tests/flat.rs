//! Work by call that does not grow with the context, counted rather than timed.

use crate::config::defaults::VllmVersion;
use crate::config::precision::{KvDtype, WeightPrecision};
use crate::config::{gpus, models};
use crate::engine::config::{EngineConfig, Policy, Pool};
use crate::engine::fast::FastEngine;
use crate::engine::request::{Effect, Request};
use crate::engine::step_time::{StepCost, StepSetup};
use crate::engine::{Due, Engine};
use crate::trace::lineage::Path;
use crate::trace::record::Finish;
use crate::units::{Blocks, RequestId, SegmentId, Time, Tokens};

const SESSIONS: u32 = 8;
const TURNS: u64 = 40;

/// What an engine has done for its calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Work {
    /// Times that it was asked to go on.
    events: u64,
    /// Extents of the KV cache that it looked at.
    extents: u64,
    /// Changes of the blocks held that it told.
    levels: u64,
}

fn engine(blocks: u64) -> FastEngine {
    let model = models::find("Llama-3.1-8B").unwrap();
    let cost = StepCost::new(&StepSetup {
        model: &model,
        gpu: gpus::find("h100-sxm").unwrap(),
        tp: 1,
        dp: 1,
        weights: WeightPrecision::Bits16,
        kv_dtype: KvDtype::Bf16,
    });
    let config = EngineConfig {
        block_size: 16,
        pool: Pool::Limited(Blocks(blocks)),
        window_blocks: Blocks::ZERO,
        max_num_seqs: 256,
        max_num_batched_tokens: Tokens(2_048),
        long_prefill_token_threshold: Tokens::ZERO,
        max_model_len: Tokens(1 << 20),
        enable_prefix_caching: true,
        policy: Policy::Fcfs,
        watermark: 0.0,
        async_scheduling: true,
        vllm: VllmVersion::scheduler("0.29").unwrap(),
        scheduler_reserve_full_isl: true,
    };
    FastEngine::new(config, cost.unwrap())
}

/// Sessions whose first prompts have `first` tokens each ask again as soon as they are answered,
/// with 320 tokens more. What the turns behind the first take.
fn play(first: u64) -> Work {
    // So few blocks that content of others is evicted, and so many that nobody is preempted.
    let mut engine = engine(u64::from(SESSIONS) * (first + TURNS * 512) / 16 + 2);
    let mut now = Time::ZERO;
    let mut paths = vec![Path::default(); SESSIONS as usize];
    let mut ask = |engine: &mut FastEngine, now, session: u32, new: u64, output: u64| {
        let path: &mut Path = &mut paths[session as usize];
        let prompt = path.len() + Tokens(new);
        path.extend(SegmentId(session), prompt + Tokens(output));
        engine.submit(
            now,
            Request {
                id: RequestId(session),
                path: path.clone(),
                prompt,
                output: Tokens(output),
                finish: Finish::Length,
                priority: 0,
            },
        );
    };
    for session in 0..SESSIONS {
        ask(&mut engine, now, session, first, 1);
    }
    let mut turns = [0; SESSIONS as usize];
    let (mut events, mut levels, mut started) = (0, 0, None);
    let mut effects = Vec::new();
    while let Some(Due::StepEnds(at) | Due::StepStarts(at)) = engine.due() {
        now = at;
        engine.advance(now, &mut effects);
        events += 1;
        engine.take_runs(|_, told| levels += told.len() as u64);
        for effect in effects.drain(..) {
            let Effect::Finished { request, .. } = effect else { continue };
            let turn = &mut turns[request.index()];
            *turn += 1;
            if *turn <= TURNS {
                let output = 150 + 10 * u64::from(request.0);
                ask(&mut engine, now, request.0, 320, output);
            }
        }
        if started.is_none() && turns.iter().all(|&turn| turn > 0) {
            started = Some((events, levels, engine.scheduler.kv().looked_at()));
        }
    }
    assert_eq!(turns, [TURNS + 1; SESSIONS as usize], "every turn ends");
    assert_eq!(engine.metrics().num_preemptions, 0, "nobody is preempted");
    let (events_before, levels_before, extents_before) = started.unwrap();
    Work {
        events: events - events_before,
        extents: engine.scheduler.kv().looked_at() - extents_before,
        levels: levels - levels_before,
    }
}

/// As the context doubles three times, the same calls take as much work.
#[test]
fn work_by_call_is_flat_in_the_context() {
    let short = play(12_000);
    let calls = TURNS * u64::from(SESSIONS);
    assert!(short.extents > calls && short.events > calls && short.levels > calls, "{short:?}");
    for doublings in 1..=3 {
        let long = play(12_000 << doublings);
        for (what, short, long) in [
            ("events", short.events, long.events),
            ("extents", short.extents, long.extents),
            ("levels", short.levels, long.levels),
        ] {
            assert!(
                long * 100 <= short * 102,
                "{doublings} doublings: {what} rise from {short} to {long} in {calls} calls"
            );
        }
    }
}
