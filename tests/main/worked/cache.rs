//! Hits, evictions and preemptions, block by block.

use tonnage::engine::config::{EngineConfig, Policy, Pool};
use tonnage::fleet::Setup;
use tonnage::trace::record::Call;
use tonnage::units::{Blocks, Span, Time, Tokens};

use super::super::given::{
    With, call, engine_config, play, play_watched, record, setup, trace, trace_with,
};
use super::{assert_near, decoding, on_paper};

/// A replica with so many usable blocks of 16 tokens (one more is the null block).
fn with_blocks(usable: u64, policy: Policy) -> Setup {
    let pool = Pool::Limited(Blocks(usable + 1));
    let max_model_len = Tokens(usable * 16);
    Setup { engine: EngineConfig { pool, policy, max_model_len, ..engine_config() }, ..setup() }
}

#[test]
fn another_session_evicts_the_tail_of_a_context_first() {
    // Six blocks. The first call leaves 4 of them full (64 tokens; its one output token has no
    // KV), the other session takes the 2 that are empty and then the first context's tail, and
    // the second call of 6 blocks hits what is left of it.
    for (other, hit, evicted) in [
        (16, 64, 1),
        (32, 64, 2),
        (48, 48, 1 + 3),
        (64, 32, 2 + 4),
        (80, 16, 3 + 5),
        (95, 0, 4 + 5),
    ] {
        let first = call(64, 1);
        let second = call(95, 1).after("0").gap(2_000).keeping(0, 65);
        let calls = trace(vec![(0, vec![first, second]), (1_000, vec![call(other, 1)])]);
        let run = play(&with_blocks(6, Policy::Fcfs), &calls);
        let second = record(&run, 0, 1);
        assert_eq!(second.cached, Tokens(hit), "other session of {other} tokens");
        assert_eq!(second.prefilled, Tokens(95 - hit));
        assert_eq!(second.ceiling, Tokens(64), "the last token's KV is never computed");
        assert_eq!(second.recomputed(), Tokens(64 - hit));
        assert_eq!(run.evicted_blocks(), evicted, "other session of {other} tokens");
        let step = on_paper(&[], &[(hit, 95 - hit, true)]);
        assert_near(second.ttft(), step);
    }
}

#[test]
fn a_full_hit_computes_the_last_block_again() {
    // 64 tokens are in the cache; a prompt of the same 64 may take 3 blocks, one of 65 all 4.
    for (prompt, hit) in [(64, 48), (65, 64), (63, 48), (48, 32)] {
        let second = call(prompt, 1).after("0").keeping(0, prompt.min(64));
        let calls = trace(vec![(0, vec![call(64, 1), second])]);
        let run = play(&setup(), &calls);
        assert_eq!(record(&run, 0, 1).cached, Tokens(hit), "prompt of {prompt}");
    }
}

#[test]
fn a_shared_context_is_hit_within_one_step() {
    // Both prompts begin with the same 320 tokens, and the second call is admitted in the step
    // that computes them for the first.
    let call = || call(400, 2).sharing("tools", 320);
    let calls = trace_with(vec![("tools", 320)], vec![(0, vec![call()]), (0, vec![call()])]);
    let (run, steps) = play_watched(&setup(), &calls);
    let cached = [0, 1].map(|session| record(&run, session, 0).cached);
    assert_eq!(cached, [Tokens(0), Tokens(320)]);
    assert_eq!(steps[0].prefill_tokens, Tokens(400 + 80));
    assert_near(steps[0].span, on_paper(&[], &[(0, 400, true), (320, 80, true)]));
    // 25 blocks of the first, 5 of its own for the second; then a block each for the new token.
    assert_eq!([steps[0].used_blocks, steps[1].used_blocks], [Blocks(30), Blocks(32)]);
}

#[test]
fn models_share_no_blocks() {
    let other = Call { model: "n".into(), ..call(400, 1).after("0").keeping(0, 400) };
    let back = call(400, 1).after("1").keeping(0, 400);
    let run = play(&setup(), &trace(vec![(0, vec![call(400, 1), other, back])]));
    let cached = [0, 1, 2].map(|call| record(&run, 0, call).cached.0);
    assert_eq!(cached, [0, 0, 384]);
}

fn two_calls() -> Vec<(u64, Vec<Call>)> {
    vec![(0, vec![call(32, 20)]), (0, vec![call(32, 20)])]
}

#[test]
fn the_younger_of_two_is_preempted_and_computed_again() {
    let (run, steps) = play_watched(&with_blocks(5, Policy::Fcfs), &trace(two_calls()));
    let (first, second) = (record(&run, 0, 0), record(&run, 1, 0));
    // Step 1 takes 2 blocks each. In step 2 the first call takes the fifth for its 33rd token, the
    // second finds none and is the last of the running list itself: it loses its 32 tokens.
    // It needs 3 blocks to come back, and 2 are free until the first ends with step 20. By then
    // the first's 49th token has evicted its second block, so it hits 16 of its 33 tokens.
    assert_eq!((first.preemptions, first.lost, first.prefilled.0), (0, Tokens(0), 32));
    assert_eq!((second.preemptions, second.lost, second.prefilled.0), (1, Tokens(32), 32 + 17));
    assert_eq!((second.cached, second.ceiling), (Tokens(0), Tokens(0)));
    assert_eq!(second.recomputed(), Tokens(17));
    assert_eq!(steps.len(), 39);
    assert_eq!(steps[20].prefill_tokens, Tokens(17));
    assert_eq!(steps[1].used_blocks, Blocks(3));

    let prefill = on_paper(&[], &[(0, 32, true), (0, 32, true)]);
    let alone = prefill + decoding(&[33], 19);
    let again = on_paper(&[], &[(16, 17, true)]);
    assert_near(vec![first.first_token, second.first_token], vec![Time::ZERO + prefill; 2]);
    assert_near(first.last_token, Time::ZERO + alone);
    // Its second token comes out of the step that computes it again, 18 more follow.
    assert_near(second.last_token, Time::ZERO + alone + again + decoding(&[34], 18));
    assert_eq!(second.queue(), Span::ZERO, "the wait after a preemption is not queue time");
}

#[test]
fn by_priority_the_less_urgent_goes_even_if_scheduled_before() {
    // The less urgent call runs already; the urgent one comes during its first step and takes the
    // last 2 of 5 blocks in step 2. In step 3 the first is scheduled, then the second lacks a
    // block: the first leaves the step again, with the 33 tokens that it had computed.
    let mut calls = two_calls();
    calls[0].1[0].priority = 5;
    calls[1].0 = 1;
    let (run, steps) = play_watched(&with_blocks(5, Policy::Priority), &trace(calls));
    let (first, second) = (record(&run, 0, 0), record(&run, 1, 0));
    assert_eq!((first.preemptions, first.lost), (1, Tokens(33)));
    assert_eq!((second.preemptions, second.prefilled), (0, Tokens(32)));
    // It comes back after step 21 with 34 tokens known and its first block still cached.
    assert_eq!(first.prefilled, Tokens(32 + 18));
    let found: Vec<_> = steps.iter().map(|s| (s.decode_seqs, s.prefill_tokens.0)).collect();
    assert_eq!(found[..3], [(0, 32), (1, 32), (1, 0)]);
    assert_eq!((found[21], found.len()), ((0, 18), 39));
    // The preempted row is not paid for.
    assert_near(steps[2].span, on_paper(&[33], &[]));
    let shared = on_paper(&[], &[(0, 32, true)]) + on_paper(&[33], &[(0, 32, true)]);
    let urgent = shared + decoding(&[33], 19);
    assert_near(second.last_token, Time::ZERO + urgent);
    let again = on_paper(&[], &[(16, 18, true)]);
    assert_near(first.last_token, Time::ZERO + urgent + again + decoding(&[35], 17));
}

#[test]
fn nobody_is_admitted_in_a_step_that_preempted() {
    // As above, but at most 32 tokens of a call in a step and only those need to fit: the preempted
    // call could have 2 blocks back at once, and gets them in the next step.
    let setup = with_blocks(5, Policy::Fcfs);
    let engine = EngineConfig {
        long_prefill_token_threshold: Tokens(32),
        scheduler_reserve_full_isl: false,
        enable_prefix_caching: false,
        ..setup.engine
    };
    let (run, steps) = play_watched(&Setup { engine, ..setup }, &trace(two_calls()));
    let found: Vec<_> = steps.iter().map(|s| (s.decode_seqs, s.prefill_tokens.0)).collect();
    assert_eq!(found[..3], [(0, 64), (1, 0), (1, 32)]);
    // Two blocks are never enough for its 33rd token: it is preempted again in every other step
    // until the first call ends with step 20, or has taken one of the two.
    assert!(record(&run, 1, 0).preemptions > 5);
    assert_eq!(record(&run, 0, 0).preemptions, 0);
}

#[test]
fn the_watermark_and_the_slots_hold_calls_back() {
    // 10 usable blocks of 11; a third of them must stay free while others run: 3. The first call
    // takes 4, the second would leave 2.
    let engine = |watermark, max_num_seqs| {
        let setup = with_blocks(10, Policy::Fcfs);
        let engine = EngineConfig { watermark, max_num_seqs, ..setup.engine };
        Setup { engine, ..setup }
    };
    let calls = trace(vec![(0, vec![call(64, 3)]), (0, vec![call(64, 3)])]);
    for (setup, together) in [
        (engine(0.0, 2), true),
        (engine(0.1, 2), true),
        (engine(0.3, 2), false),
        (engine(0.0, 1), false),
    ] {
        let run = play(&setup, &calls);
        let (first, second) = (record(&run, 0, 0), record(&run, 1, 0));
        let scheduled = if together { Time::ZERO } else { first.last_token };
        assert_eq!(second.scheduled, scheduled);
    }
}
