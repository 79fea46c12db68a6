//! Whole runs whose every time and count was worked out on paper.

mod admission;
mod cache;
mod load;
mod reshape;
mod sessions;

use tonnage::config::api_time::ApiTime;
use tonnage::engine::config::EngineConfig;
use tonnage::fleet::Setup;
use tonnage::units::{Span, Time, Tokens};

use super::given::{call, engine_config, play, play_watched, record, setup, trace};

/// A chunk of a prompt on paper: tokens before it, its own, whether it completes the prompt.
type Chunk = (u64, u64, bool);

/// One step of Llama-3.1-8B in 16 bits on an H100-SXM: `decodes` are contexts with the new token.
///
/// Preset H100/16: e_m .939, e_c .85, e_kv16 .93, e_a .642, t0 .125 ms, tL 57.8 us, tS 19.9 us,
/// kx .0643, u1 7. The chip: 3.35 TB/s, 989 TFLOP/s. The model: 32 layers of width 4,096 with 32
/// heads of 128 and 8 KV heads, feed-forward 14,336, vocabulary 128,256.
fn on_paper(decodes: &[u64], chunks: &[Chunk]) -> Span {
    // A layer: 4096 x 4096 twice, 4096 x 1024 twice, 4096 x 14336 three times = 218,103,808.
    let layers = 6_979_321_856.0; // 32 of them
    let head = 525_336_576.0; // 128256 x 4096
    let batch = decodes.len() as f64;
    let prompt: u64 = chunks.iter().map(|(_, tokens, _)| tokens).sum();
    let tokens = batch + prompt as f64;
    let rows = batch + chunks.iter().filter(|(_, _, emits)| *emits).count() as f64;
    let weights = 2.0 * (layers + head) / (0.939 * 3.35e9);
    let gemm = 2.0 * (tokens * layers + rows * head) / (0.85 * 989e9);
    // 2 x 32 layers x 8 heads x 128 x 2 bytes = 131,072 bytes a token.
    let kv = decodes.iter().sum::<u64>() as f64 * 131_072.0 / (0.93 * 3.35e9);
    let kv = if decodes.is_empty() || chunks.is_empty() { kv } else { 1.0643 * kv };
    let pairs =
        |&(before, tokens, _): &Chunk| tokens as f64 * (before as f64 + tokens as f64 / 2.0);
    let attention = chunks.iter().map(pairs).sum::<f64>() * 4.0 * 4_096.0 * 32.0 / (0.642 * 989e9);
    let elementwise = tokens * 2.0 * 4_096.0 * 7.0 * 32.0 / 3.35e9;
    let host = 0.125 + 0.0578 * 32.0 + 0.0199 * batch;
    let step = host + weights.hypot(gemm) + elementwise + kv + attention;
    Span((step * 1e6).round() as u64)
}

/// Decode steps of sequences whose contexts all grow by one a step, `count` of them.
fn decoding(contexts: &[u64], count: u64) -> Span {
    let step = |n: u64| on_paper(&contexts.iter().map(|c| c + n).collect::<Vec<_>>(), &[]);
    (0..count).map(step).sum()
}

/// Times that agree but for rounding: the engine carries what fills no nanosecond from step to
/// step, on paper every step is rounded by itself.
trait Near: std::fmt::Debug {
    fn nanos(&self) -> Vec<u64>;
}

impl Near for Span {
    fn nanos(&self) -> Vec<u64> {
        vec![self.0]
    }
}

impl Near for Time {
    fn nanos(&self) -> Vec<u64> {
        vec![self.0]
    }
}

impl<T: Near> Near for Vec<T> {
    fn nanos(&self) -> Vec<u64> {
        self.iter().flat_map(Near::nanos).collect()
    }
}

impl<T: Near, U: Near> Near for (T, U) {
    fn nanos(&self) -> Vec<u64> {
        [self.0.nanos(), self.1.nanos()].concat()
    }
}

#[allow(clippy::needless_pass_by_value, reason = "as short to write as assert_eq")]
fn assert_near<T: Near>(found: T, expected: T) {
    let (a, b) = (found.nanos(), expected.nanos());
    let near = a.len() == b.len() && a.iter().zip(&b).all(|(a, b)| a.abs_diff(*b) <= 20);
    assert!(near, "{found:?} is not {expected:?}");
}

/// A time to the nanosecond, in milliseconds.
fn assert_millis(span: Span, expected: f64) {
    assert!((span.millis() - expected).abs() < 6e-7, "{} is not {expected} ms", span.millis());
}

#[test]
fn one_call_alone_takes_the_steps_of_the_formula() {
    // W = 15,009,316,864 B / (.939 x 3.35e9 B/ms)                 =  4.771452 ms
    // F = (2 x 1000 x 6,979,321,856 + 2 x 525,336,576) / 840.65e9 = 16.605834 ms, root 17.277745
    // A = 1000 x 500 x 524,288 / 634.938e9                        =   .412866 ms
    // U = 1000 x 1,835,008 / 3.35e9                               =   .547764 ms
    // host = .125 + 32 x .0578                                    =  1.9746   ms
    assert_millis(on_paper(&[], &[(0, 1_000, true)]), 20.212_974);
    // A decode at 1,001 tokens: F .017854, root 4.771485; K = 1001 x 131,072 / 3.1155e9 = .042113;
    // U .000548; host 1.9746 + .0199.
    assert_millis(on_paper(&[1_001], &[]), 6.808_646);

    let setup = Setup { api: ApiTime::default(), ..setup() };
    let run = play(&setup, &trace(vec![(0, vec![call(1_000, 5)])]));
    let alone = record(&run, 0, 0);
    // The host takes 8 ms and 1000 x 2 us before the queue, 5 x 46 us after the last token.
    assert_eq!(alone.queued, Time(10_000_000));
    assert_eq!(alone.queue(), Span::ZERO);
    assert_near(alone.ttft(), Span(10_000_000) + on_paper(&[], &[(0, 1_000, true)]));
    let decodes = decoding(&[1_001], 4);
    assert_near(alone.last_token - alone.first_token, decodes);
    assert_eq!(alone.itl_secs(), Some((alone.last_token - alone.first_token).secs() / 4.0));
    assert_eq!(alone.ended - alone.last_token, Span(230_000));
    assert_eq!(
        (alone.output, alone.prefilled, alone.cached),
        (Tokens(5), Tokens(1_000), Tokens(0))
    );
}

#[test]
fn two_calls_at_one_instant_share_every_step() {
    // Two sequences at 1,001 tokens: host + .0199, F x 2, K x 2, U x 2.
    assert_millis(on_paper(&[1_001, 1_001], &[]), 6.871_307);
    let run = play(&setup(), &trace(vec![(0, vec![call(1_000, 9)]), (0, vec![call(1_000, 9)])]));
    let both = [record(&run, 0, 0), record(&run, 1, 0)];
    let prefill = on_paper(&[], &[(0, 1_000, true), (0, 1_000, true)]);
    for call in both {
        assert_near(call.ttft(), prefill);
        assert_near(call.last_token - call.first_token, decoding(&[1_001, 1_001], 8));
        let gaps = (call.last_token - call.first_token).secs();
        assert_eq!(call.itl_secs(), Some(gaps / 8.0));
    }
    assert_eq!(run.replicas[0].steps, 9);
    assert_near(run.replicas[0].busy, prefill + decoding(&[1_001, 1_001], 8));
}

/// A decode of 100 tokens and more beside a prompt of 1,200: what each step computes, and when the
/// tokens come out. `budget` and `threshold` are the engine's flags.
fn beside_a_long_prompt(budget: u64, threshold: u64, chunks: &[u64]) {
    let engine = EngineConfig {
        max_num_batched_tokens: Tokens(budget),
        long_prefill_token_threshold: Tokens(threshold),
        ..engine_config()
    };
    let setup = Setup { engine, ..setup() };
    let calls = trace(vec![(0, vec![call(100, 8)]), (0, vec![call(1_200, 3)])]);
    let (run, steps) = play_watched(&setup, &calls);

    // The first step holds the short prompt and the first chunk, the others one decode and a chunk.
    let mut expected = vec![(0, 100 + chunks[0])];
    let mut spans = vec![on_paper(&[], &[(0, 100, true), (0, chunks[0], false)])];
    let mut before = chunks[0];
    for (context, &chunk) in (101..).zip(&chunks[1..]) {
        expected.push((1, chunk));
        spans.push(on_paper(&[context], &[(before, chunk, before + chunk == 1_200)]));
        before += chunk;
    }
    assert_eq!(before, 1_200);
    let mixed = chunks.len() as u64;
    // Then both decode until the long call's three tokens are out, and the short one goes on.
    expected.extend([(2, 0), (2, 0)]);
    spans.push(on_paper(&[100 + mixed, 1_201], &[]));
    spans.push(on_paper(&[101 + mixed, 1_202], &[]));
    for step in mixed + 2..8 {
        expected.push((1, 0));
        spans.push(on_paper(&[100 + step], &[]));
    }
    let found: Vec<_> = steps.iter().map(|s| (s.decode_seqs, s.prefill_tokens.0)).collect();
    assert_eq!(found, expected);
    assert_near(steps.iter().map(|step| step.span).collect::<Vec<_>>(), spans.clone());

    let (short, long) = (record(&run, 0, 0), record(&run, 1, 0));
    let upto = |steps: usize| Time::ZERO + spans[..steps].iter().copied().sum();
    assert_near((short.first_token, long.first_token), (upto(1), upto(chunks.len())));
    assert_near((short.last_token, long.last_token), (upto(8), upto(chunks.len() + 2)));
    let gaps = (short.last_token - short.first_token).secs();
    assert_eq!(short.itl_secs(), Some(gaps / 7.0));
}

#[test]
fn the_budget_cuts_a_prompt_into_chunks_beside_a_decode() {
    // 512 = 100 + 412, then 1 + 511, then what is left.
    beside_a_long_prompt(512, 0, &[412, 511, 277]);
}

#[test]
fn the_threshold_cuts_it_smaller_and_the_decode_waits_less() {
    beside_a_long_prompt(512, 256, &[256, 256, 256, 256, 176]);
    // A step beside the first decode: 511 tokens of the prompt, and 256 of it.
    assert_millis(on_paper(&[101], &[(412, 511, false)]), 12.311_221);
    assert_millis(on_paper(&[101], &[(256, 256, false)]), 8.623_152);
}

#[test]
fn a_request_that_arrives_in_a_step_enters_the_next() {
    let run = play(&setup(), &trace(vec![(0, vec![call(1_000, 3)]), (5, vec![call(500, 1)])]));
    let (first, second) = (record(&run, 0, 0), record(&run, 1, 0));
    assert_eq!(second.scheduled, first.first_token);
    assert_near(second.queue(), on_paper(&[], &[(0, 1_000, true)]) - Span::from_millis(5));
    assert_near(second.first_token - second.scheduled, on_paper(&[1_001], &[(0, 500, true)]));
    assert_near(first.last_token - second.first_token, on_paper(&[1_002], &[]));
}
