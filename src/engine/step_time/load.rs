//! What one step computes, as the few sums that its time depends on.

use super::Contexts;

/// Sums over the sequences of one step. Made by `StepCost::empty_load`, which tells it the model's
/// attention window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepLoad {
    /// Most tokens that windowed layers see; without such layers, no limit.
    window: Option<u64>,
    decode_seqs: u64,
    decode_context: u64,
    decode_context_windowed: u64,
    prefill_tokens: u64,
    prefill_half_pairs: u64,
    prefill_half_pairs_windowed: u64,
    prefill_rows: u64,
    other_tokens: u64,
}

impl StepLoad {
    pub(super) fn new(window: Option<u64>) -> Self {
        Self {
            window,
            decode_seqs: 0,
            decode_context: 0,
            decode_context_windowed: 0,
            prefill_tokens: 0,
            prefill_half_pairs: 0,
            prefill_half_pairs_windowed: 0,
            prefill_rows: 0,
            other_tokens: 0,
        }
    }

    /// Adds a sequence that computes one token and attends to `context` tokens, the new one
    /// included.
    pub fn add_decode(&mut self, context: u64) {
        self.decode_seqs += 1;
        self.decode_context += context;
        self.decode_context_windowed += self.bounded(context);
    }

    /// Adds sequences that compute one token each, given the sums of their contexts and of their
    /// contexts up to the window.
    pub fn add_decodes(&mut self, seqs: u64, context: u64, windowed: u64) {
        self.decode_seqs += seqs;
        self.decode_context += context;
        self.decode_context_windowed += windowed;
    }

    /// Takes back what [`StepLoad::add_decode`] added with the same `context`.
    pub fn remove_decode(&mut self, context: u64) {
        self.decode_seqs -= 1;
        self.decode_context -= context;
        self.decode_context_windowed -= self.bounded(context);
    }

    /// Adds a chunk of `tokens` prompt tokens after `before` tokens whose KV is in the cache;
    /// `emits` if it completes the prompt, so that the step samples a token from it.
    pub fn add_prefill(&mut self, before: u64, tokens: u64, emits: bool) {
        self.prefill_tokens += tokens;
        // tokens x (before + tokens / 2), twice, to stay whole.
        let reach = 2 * before + tokens;
        self.prefill_half_pairs += tokens * reach;
        let bounded = self.window.map_or(reach, |window| reach.min(2 * window));
        self.prefill_half_pairs_windowed += tokens * bounded;
        self.prefill_rows += u64::from(emits);
    }

    /// Sets how many tokens the other ranks of a data-parallel group compute in the same step:
    /// they go to the same experts.
    pub fn set_other_ranks(&mut self, tokens: u64) {
        self.other_tokens = tokens;
    }

    /// Empties it, for the next step.
    pub fn clear(&mut self) {
        *self = Self::new(self.window);
    }

    fn bounded(&self, context: u64) -> u64 {
        self.window.map_or(context, |window| context.min(window))
    }

    /// The sums over its contexts.
    #[must_use]
    pub fn contexts(&self) -> Contexts {
        Contexts {
            decode: self.decode_context,
            decode_windowed: self.decode_context_windowed,
            half_pairs: self.prefill_half_pairs,
            half_pairs_windowed: self.prefill_half_pairs_windowed,
        }
    }

    /// Most tokens that windowed layers see.
    #[must_use]
    pub fn window(&self) -> Option<u64> {
        self.window
    }

    /// Decoding sequences.
    #[must_use]
    pub fn decode_seqs(&self) -> u64 {
        self.decode_seqs
    }

    /// Sum of their contexts.
    #[must_use]
    pub fn decode_context(&self) -> u64 {
        self.decode_context
    }

    /// Sum of their contexts, each at most the window.
    #[must_use]
    pub fn decode_context_windowed(&self) -> u64 {
        self.decode_context_windowed
    }

    /// Prompt tokens of all chunks.
    #[must_use]
    pub fn prefill_tokens(&self) -> u64 {
        self.prefill_tokens
    }

    /// Twice the pairs of tokens that all chunks attend over: the sum of
    /// tokens x (2 x before + tokens).
    #[must_use]
    pub fn prefill_half_pairs(&self) -> u64 {
        self.prefill_half_pairs
    }

    /// The same with before + tokens / 2 at most the window.
    #[must_use]
    pub fn prefill_half_pairs_windowed(&self) -> u64 {
        self.prefill_half_pairs_windowed
    }

    /// Tokens that other ranks of the group compute in the same step.
    #[must_use]
    pub fn other_tokens(&self) -> u64 {
        self.other_tokens
    }

    /// Tokens that this rank computes in the step.
    #[must_use]
    pub fn tokens(&self) -> u64 {
        self.decode_seqs + self.prefill_tokens
    }

    /// Tokens that the step samples.
    #[must_use]
    pub fn output_rows(&self) -> u64 {
        self.decode_seqs + self.prefill_rows
    }
}
