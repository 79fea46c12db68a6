//! Prompts: what each continues, how much of it, and how long it is.

use super::{Prefix, shared_base, whole};
use crate::trace::check::TOKENS_MAX;
use crate::trace::record::Base;

/// A prompt to be sent. Calls are named by the order in which they are made.
#[derive(Clone, Debug)]
pub(super) struct Prompt {
    pub(super) base: Base,
    pub(super) kept: u64,
    pub(super) tokens: u64,
}

impl Prompt {
    /// A prompt of about `tokens`, at least one of them new.
    pub(super) fn new(base: Base, kept: u64, tokens: f64) -> Self {
        let kept = kept.min(TOKENS_MAX.0 - 1);
        let tokens = whole(tokens).max(kept + 1);
        Self { base, kept, tokens }
    }

    /// A prompt that keeps so much of the shared prefix and is new behind it.
    pub(super) fn shared(prefix: Option<&Prefix>, kept: u64, tokens: f64) -> Self {
        Self::new(shared_base(prefix), kept, tokens)
    }
}

/// What the next prompt of a lane needs to know of the last.
#[derive(Clone, Copy, Debug)]
pub(super) struct Last {
    pub(super) number: usize,
    pub(super) tokens: u64,
    pub(super) output: u64,
    /// The uniform number that the output was drawn with.
    pub(super) output_share: f64,
}

impl Last {
    /// The prompt that continues it. An answer that is longer than the growth cannot be in it as
    /// it was generated, so the prompt before it is all that is kept.
    pub(super) fn grown(&self, growth: f64, is_stripped: bool) -> Prompt {
        let growth = whole(growth);
        let kept = match is_stripped || self.output >= growth {
            true => self.tokens,
            false => self.tokens + self.output,
        };
        let base = Base::Call(self.number as u32);
        Prompt::new(base, kept, (self.tokens + growth) as f64)
    }
}
