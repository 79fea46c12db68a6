//! What one step computes, as the few sums that its time depends on.

use super::Contexts;
use crate::config::geometry::{Window, WindowKind};

/// How many tokens windowed layers see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// The last so many.
    Sliding(u64),
    /// Those since the last multiple of so many.
    Chunked(u64),
}

impl From<Window> for Reach {
    fn from(window: Window) -> Self {
        match window.kind {
            WindowKind::Sliding => Self::Sliding(window.tokens.max(1)),
            WindowKind::Chunked => Self::Chunked(window.tokens.max(1)),
        }
    }
}

impl Reach {
    /// Tokens that the last token of a context sees, itself included.
    #[must_use]
    pub fn seen(self, context: u64) -> u64 {
        match self {
            Self::Sliding(window) => context.min(window),
            Self::Chunked(chunk) => context.saturating_sub(1) % chunk + 1,
        }
    }

    /// The same in the mean over contexts of about this length.
    #[must_use]
    pub fn seen_in_the_mean(self, context: u64) -> u64 {
        match self {
            Self::Chunked(chunk) if context > chunk => chunk.div_ceil(2),
            Self::Sliding(_) | Self::Chunked(_) => self.seen(context),
        }
    }

    /// Twice the pairs of tokens that a chunk of a prompt attends over. With sliding windows each
    /// token is taken to see what one in the middle does.
    fn half_pairs(self, before: u64, tokens: u64) -> u64 {
        match self {
            Self::Sliding(window) => tokens * (2 * before + tokens).min(2 * window),
            Self::Chunked(chunk) => {
                // Whole chunks, and the part of one behind them.
                let upto = |end: u64| end / chunk * chunk * chunk + (end % chunk).pow(2);
                upto(before + tokens) - upto(before)
            }
        }
    }
}

/// Sums over the sequences of one step. Made by `StepCost::empty_load`, which tells it the model's
/// attention window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepLoad {
    /// What windowed layers see; without such layers, everything.
    window: Option<Reach>,
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
    pub(super) fn new(window: Option<Reach>) -> Self {
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
    /// contexts as far as windowed layers see them.
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
        self.prefill_half_pairs_windowed += match self.window {
            Some(window) => window.half_pairs(before, tokens),
            None => tokens * reach,
        };
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
        self.window.map_or(context, |window| window.seen(context))
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

    /// What windowed layers see.
    #[must_use]
    pub fn window(&self) -> Option<Reach> {
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

    /// Sum of what windowed layers see of their contexts.
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

    /// The same of windowed layers.
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

#[cfg(test)]
mod tests {
    use super::*;

    /// What each token of a prompt sees of its chunk, counted one by one.
    #[test]
    fn chunks_are_summed_token_by_token() {
        for chunk in [1, 3, 8] {
            let reach = Reach::Chunked(chunk);
            for before in 0..20 {
                for tokens in 1..20 {
                    // A token at place p sees those from the last multiple on: p % chunk before it,
                    // and half of itself.
                    let pairs: u64 = (before..before + tokens).map(|p| 2 * (p % chunk) + 1).sum();
                    assert_eq!(reach.half_pairs(before, tokens), pairs, "{before} + {tokens}");
                }
            }
            let seen: Vec<u64> = (1..=9).map(|context| reach.seen(context)).collect();
            let starts = (1..=9u64).map(|context| (context - 1) / chunk * chunk);
            let since: Vec<u64> = (1..=9).zip(starts).map(|(context, at)| context - at).collect();
            assert_eq!(seen, since, "chunks of {chunk}");
        }
    }

    #[test]
    fn without_a_second_chunk_everything_is_seen() {
        let (mut chunked, mut full) =
            (StepLoad::new(Some(Reach::Chunked(8_192))), StepLoad::new(None));
        for load in [&mut chunked, &mut full] {
            load.add_decode(8_192);
            load.add_prefill(1_000, 7_192, true);
        }
        assert_eq!(chunked.contexts(), full.contexts());
        chunked.add_decode(8_193);
        assert_eq!(chunked.decode_context_windowed(), 8_193);
    }
}
