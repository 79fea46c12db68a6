//! What one engine counts over its whole life, as vLLM counts it.
//!
//! These are the figures of a scrape of `/metrics` at the end of the run, warm-up included. Where
//! vLLM's counters leave something out, they leave it out here too; what they leave out is beside
//! them.

use std::sync::LazyLock;

use super::batch::{Batch, PrefixCounters};
use crate::stats::Buckets;
use crate::units::Span;

/// Bounds of the time between two tokens, in milliseconds.
const ITL_MS: [u64; 19] = [
    10, 25, 50, 75, 100, 150, 200, 300, 400, 500, 750, 1_000, 2_500, 5_000, 7_500, 10_000, 20_000,
    40_000, 80_000,
];

/// Bounds of the tokens of an iteration.
const ITERATION_TOKENS: [u64; 13] =
    [1, 8, 16, 32, 64, 128, 256, 512, 1_024, 2_048, 4_096, 8_192, 16_384];

/// What one engine has counted.
#[derive(Clone, Debug, PartialEq)]
pub struct EngineMetrics {
    /// Prefix-cache counters; first admissions are exported by vLLM, re-admissions are not.
    pub prefix: PrefixCounters,
    /// Preemptions.
    pub num_preemptions: u64,
    /// Steps that computed anything.
    pub steps: u64,
    /// Time between the outputs of one request, in nanoseconds.
    pub inter_token_latency: Buckets,
    /// By step: prompt tokens computed for requests that got their first token in it, and tokens
    /// generated. With chunked prefill this is not the batch size.
    pub iteration_tokens: Buckets,
    /// Requests running at the end.
    pub num_requests_running: u64,
    /// Requests waiting at the end.
    pub num_requests_waiting: u64,
    /// Blocks held by requests at the end, over usable blocks.
    pub kv_cache_usage_perc: f64,
    /// Blocks that lost their cached content.
    pub evicted_blocks: u64,
}

impl Default for EngineMetrics {
    fn default() -> Self {
        /// Engines share the bounds.
        static NOTHING: LazyLock<EngineMetrics> = LazyLock::new(|| EngineMetrics {
            prefix: PrefixCounters::default(),
            num_preemptions: 0,
            steps: 0,
            inter_token_latency: Buckets::new(ITL_MS.map(|ms| Span::from_millis(ms).0)),
            iteration_tokens: Buckets::new(ITERATION_TOKENS),
            num_requests_running: 0,
            num_requests_waiting: 0,
            kv_cache_usage_perc: 0.0,
            evicted_blocks: 0,
        });
        NOTHING.clone()
    }
}

impl EngineMetrics {
    /// Adds what another rank of the same replica has counted; steps and the share of the KV cache
    /// are left to who knows all ranks.
    pub fn add_rank(&mut self, rank: &Self) {
        self.prefix.add(&rank.prefix);
        self.num_preemptions += rank.num_preemptions;
        self.inter_token_latency.add_from(&rank.inter_token_latency);
        self.iteration_tokens.add_from(&rank.iteration_tokens);
        self.num_requests_running += rank.num_requests_running;
        self.num_requests_waiting += rank.num_requests_waiting;
        self.evicted_blocks += rank.evicted_blocks;
    }

    /// Counts what was decided for a batch.
    pub fn count(&mut self, batch: &Batch) {
        self.prefix.add(&batch.counters);
        self.num_preemptions += batch.preempted.len() as u64;
    }
}
