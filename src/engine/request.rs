//! A request as an engine sees it, and what an engine tells of it.

use crate::engine::step_time::Series;
use crate::trace::lineage::Path;
use crate::trace::record::Finish;
use crate::units::{Blocks, RequestId, Span, Time, Tokens};

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

/// Steps of an engine that do the same, one behind the other, each a little longer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StepRun {
    /// When the first of them began.
    pub at: Time,
    /// How many there are.
    pub steps: u64,
    /// How long they take.
    pub series: Series,
    /// The part of it that the same steps without their prefill would take.
    pub decode: DecodeShare,
    /// Sequences that decode in each of them.
    pub decode_seqs: u64,
    /// Prompt tokens (and re-computed ones) in each of them.
    pub prefill_tokens: Tokens,
    /// Length of the running list.
    pub running: u64,
    /// Length of the waiting queue.
    pub waiting: u64,
}

/// So many steps of a run, one behind the other, in which so many blocks are held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Level {
    /// How many steps.
    pub steps: u64,
    /// Blocks that requests hold while they run.
    pub used_blocks: Blocks,
}

/// How much of a run of steps is decode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DecodeShare {
    /// Nothing decodes.
    #[default]
    None,
    /// Nothing else is done.
    All,
    /// So much of it.
    Part(Series),
}

impl StepRun {
    /// How long all of its steps take.
    #[must_use]
    pub fn span(&self) -> Span {
        self.series.sum(self.steps)
    }

    /// The part of its `span` that decode takes.
    #[must_use]
    pub fn decode_span(&self, span: Span) -> Span {
        match self.decode {
            DecodeShare::None => Span::ZERO,
            DecodeShare::All => span,
            DecodeShare::Part(series) => series.sum(self.steps),
        }
    }

    /// Its steps one by one, each with the time at which it began.
    pub fn each<'a>(
        &'a self,
        levels: &'a [Level],
    ) -> impl Iterator<Item = (Time, StepSummary)> + 'a {
        let used = levels.iter().flat_map(|level| (0..level.steps).map(|_| level.used_blocks));
        (0..self.steps).zip(used).map(|(number, used_blocks)| {
            let span = self.series.skip(number).sum(1);
            let decode_span = match self.decode {
                DecodeShare::None => Span::ZERO,
                DecodeShare::All => span,
                DecodeShare::Part(series) => series.skip(number).sum(1),
            };
            let summary = StepSummary {
                span,
                decode_span,
                decode_seqs: self.decode_seqs,
                prefill_tokens: self.prefill_tokens,
                used_blocks,
                running: self.running,
                waiting: self.waiting,
            };
            (self.at + self.series.sum(number), summary)
        })
    }
}
