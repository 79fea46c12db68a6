//! How one engine is set up, under the names of `vllm serve`'s flags.

use crate::config::defaults::VllmVersion;
use crate::units::{Blocks, Tokens};

/// The flags of one engine that its scheduler and its KV cache obey.
#[derive(Clone, Debug, PartialEq)]
pub struct EngineConfig {
    /// Tokens in a KV block.
    pub block_size: u64,
    /// The KV pool.
    pub pool: Pool,
    /// Blocks that every running request takes on top, for layers with a sliding window.
    pub window_blocks: Blocks,
    /// Most requests in the running list.
    pub max_num_seqs: usize,
    /// Token budget of one step, shared by decodes and prefill chunks.
    pub max_num_batched_tokens: Tokens,
    /// Most tokens of one request in one step; 0 means no such cap.
    pub long_prefill_token_threshold: Tokens,
    /// Prompt and output together never exceed it.
    pub max_model_len: Tokens,
    /// Whether computed blocks stay in the cache for later requests.
    pub enable_prefix_caching: bool,
    /// Order of the waiting queue and choice of who is preempted.
    pub policy: Policy,
    /// Fraction of the pool that stays free when a request is admitted while others run.
    pub watermark: f64,
    /// Schedule a step while the one before it runs, before its tokens are known.
    pub async_scheduling: bool,
    /// The version of vLLM whose decisions are taken.
    pub vllm: VllmVersion,
    /// Admit a request only if its whole present length fits, not just its first chunk.
    pub scheduler_reserve_full_isl: bool,
}

/// How many KV blocks there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pool {
    /// vLLM's `num_gpu_blocks`; one of them is the null block and is never handed out.
    Limited(Blocks),
    /// As many as it takes: nothing is ever evicted.
    Unlimited,
}

/// Who goes first, and who goes when a block is lacking.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// First come, first served; the last of the running list is preempted.
    #[default]
    Fcfs,
    /// Least (priority, arrival) first; the greatest of them is preempted.
    Priority,
}

impl EngineConfig {
    /// Blocks that can be handed out, if the pool is limited.
    #[must_use]
    pub fn usable_blocks(&self) -> Option<Blocks> {
        match self.pool {
            Pool::Limited(blocks) => Some(blocks.saturating_sub(Blocks(1))),
            Pool::Unlimited => None,
        }
    }

    /// Blocks that an admission leaves free while others run.
    #[must_use]
    pub fn watermark_blocks(&self) -> Blocks {
        match self.pool {
            Pool::Limited(blocks) => Blocks((self.watermark * blocks.as_f64()) as u64),
            Pool::Unlimited => Blocks::ZERO,
        }
    }
}
