//! A request as an engine sees it, and what an engine tells of it.

use crate::trace::lineage::Path;
use crate::trace::record::Finish;
use crate::units::{Blocks, RequestId, Span, Tokens};

/// What arrives at an engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Its name in everything that the engine tells.
    pub id: RequestId,
    /// Its content: `prompt` tokens, then at least `output` more.
    pub path: Path,
    /// Tokens of the prompt.
    pub prompt: Tokens,
    /// Tokens that it generates, at least one, unless the context's limit comes first.
    pub output: Tokens,
    /// Whether the engine knows `output` beforehand or a stop token ends it.
    pub finish: Finish,
    /// Lower is served first, where the policy asks for it.
    pub priority: i32,
}

/// What an engine tells of its requests and steps, in the order in which it happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// A request got blocks and its first tokens of a step.
    Admitted {
        /// Which.
        request: RequestId,
        /// Tokens that were found in the cache.
        cached: Tokens,
        /// Whether it had been preempted before.
        resumed: bool,
    },
    /// A request lost its blocks and waits again.
    Preempted {
        /// Which.
        request: RequestId,
        /// Tokens that had been computed and are computed again unless still cached.
        lost: Tokens,
    },
    /// The first token came out.
    FirstToken {
        /// Which.
        request: RequestId,
    },
    /// The last token came out and the blocks are free.
    Finished {
        /// Which.
        request: RequestId,
        /// Tokens generated.
        output: Tokens,
        /// Tokens prefilled for it, those computed again after a preemption included.
        prefilled: Tokens,
    },
    /// A step began.
    StepStarted(StepSummary),
}

/// One step of an engine, as observers see it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StepSummary {
    /// How long it takes.
    pub span: Span,
    /// The part of it that the same batch without its prefill would take.
    pub decode_span: Span,
    /// Sequences that decode in it.
    pub decode_seqs: u64,
    /// Prompt tokens (and re-computed ones) in it.
    pub prefill_tokens: Tokens,
    /// Blocks that requests hold while it runs.
    pub used_blocks: Blocks,
    /// Length of the running list.
    pub running: u64,
    /// Length of the waiting queue.
    pub waiting: u64,
}
