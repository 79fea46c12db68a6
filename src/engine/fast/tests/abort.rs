//! When an aborted request's blocks are free, and what of them can still be hit.

use super::*;

fn twenty_blocks_of_four() -> EngineConfig {
    EngineConfig {
        block_size: 4,
        pool: Pool::Limited(Blocks(21)),
        window_blocks: Blocks(0),
        max_num_seqs: 4,
        max_num_batched_tokens: Tokens(100),
        long_prefill_token_threshold: Tokens(0),
        max_model_len: Tokens(80),
        enable_prefix_caching: true,
        policy: Policy::Fcfs,
        watermark: 0.0,
        async_scheduling: false,
        ..config(&mut Dice(1))
    }
}

fn ten_blocks(id: u32) -> Request {
    let mut path = crate::trace::lineage::Path::default();
    path.extend(SegmentId(id), Tokens(50));
    Request {
        id: RequestId(id),
        path,
        prompt: Tokens(40),
        output: Tokens(10),
        finish: Finish::Length,
        priority: 0,
    }
}

fn in_its_first_step(engine: &mut impl Engine) {
    let mut effects = Vec::new();
    engine.submit(Time(5), ten_blocks(0));
    engine.submit(Time(5), ten_blocks(1));
    engine.submit(Time(5), ten_blocks(2));
    engine.advance(Time(5), &mut effects);
    let used = engine.gauges(Time(6));
    assert_eq!((used.num_requests_running, used.num_requests_waiting), (2, 1));
    assert_eq!(used.kv_cache_usage_perc, 1.0);
    engine.abort(Time(6), RequestId(0));
    engine.abort(Time(6), RequestId(2));
    let Some(Due::StepEnds(end)) = engine.due() else { panic!("{:?}", engine.due()) };
    assert_eq!(engine.gauges(Time(7)).kv_cache_usage_perc, 1.0, "the step still computes it");
    effects.clear();
    engine.advance(end, &mut effects);
    assert_eq!(effects, [Effect::FirstToken { request: RequestId(1) }]);
    let used = engine.gauges(end);
    assert_eq!((used.num_requests_running, used.num_requests_waiting), (1, 0));
    assert_eq!(used.kv_cache_usage_perc, 0.5, "its ten blocks are free");
    // All but the block of the last token, which is always computed.
    assert_eq!(engine.cached(end, &ten_blocks(0).path, Tokens(40)), Tokens(36));
    assert_eq!(engine.cached(end, &ten_blocks(2).path, Tokens(40)), Tokens(0));
    // Between two steps it is gone at once.
    engine.abort(end, RequestId(1));
    assert_eq!(engine.gauges(end).kv_cache_usage_perc, 0.0);
    effects.clear();
    engine.advance(end, &mut effects);
    assert_eq!((effects.len(), engine.due()), (0, None));
}

#[test]
fn blocks_of_an_aborted_request_are_free_at_the_end_of_the_step() {
    let cost = cost(&mut Dice(1), false);
    in_its_first_step(&mut PlainEngine::new(twenty_blocks_of_four(), cost.clone()));
    in_its_first_step(&mut FastEngine::new(twenty_blocks_of_four(), cost));
}
