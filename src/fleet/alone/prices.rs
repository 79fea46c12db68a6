//! What the steps of a session alone cost: the engine's own prices, summed where they repeat.

use super::few::Ask;
use crate::engine::config::EngineConfig;
use crate::engine::step_time::{Contexts, Reach, StepCost, StepLoad, Ticks};
use crate::trace::record::Finish;

/// Prices of steps.
#[derive(Debug)]
pub(super) struct Prices {
    /// Most tokens of a lone request's prompt in one step.
    chunk: u64,
    /// The part of such a step's time that its context does not change, if it does not complete
    /// the prompt.
    whole_chunk: Ticks,
    /// The same of steps in which so many requests decode. None are those that were never asked
    /// for: no step takes no time.
    decodes: Vec<Ticks>,
    reach: Option<Reach>,
}

impl Prices {
    pub(super) fn new(config: &EngineConfig, cost: &StepCost) -> Self {
        let (budget, cap) =
            (config.max_num_batched_tokens.0, config.long_prefill_token_threshold.0);
        let spared = cap == 0 || config.vllm.spares_a_lone_request_the_threshold();
        let chunk = if spared { budget } else { budget.min(cap) };
        let mut load = cost.empty_load();
        load.add_prefill(0, chunk, false);
        let whole_chunk = fixed(cost, &load);
        Self { chunk, whole_chunk, decodes: Vec::new(), reach: cost.empty_load().window() }
    }

    /// What windowed layers see, if there are any.
    pub(super) fn reach(&self) -> Option<Reach> {
        self.reach
    }

    /// One step.
    pub(super) fn ticks(&mut self, cost: &StepCost, load: &StepLoad) -> Ticks {
        if load.prefill_tokens() > 0 {
            return cost.ticks(load);
        }
        let fixed = self.decode(cost, load.decode_seqs() as usize);
        Ticks(fixed.0 + cost.context_ticks(false, &load.contexts()).0)
    }

    /// All steps of a request that has the engine to itself.
    pub(super) fn whole(&mut self, cost: &StepCost, ask: &Ask) -> Ticks {
        let prefill = self.prefill(cost, ask.cached, ask.prompt);
        let decodes = self.lone_decodes(cost, ask.prompt, ask.prompt + ask.output - 1);
        Ticks(prefill.0 + decodes.0)
    }

    /// The step behind these that was decided before anybody knew that their last token is the
    /// last.
    pub(super) fn ghost(
        &mut self,
        config: &EngineConfig,
        cost: &StepCost,
        ask: &Ask,
    ) -> Option<Ticks> {
        let context = ask.prompt + ask.output;
        let known = ask.finish == Finish::Length || context >= config.max_model_len.0;
        let is_there = config.async_scheduling && !known;
        is_there.then(|| self.lone_decodes(cost, context - 1, context))
    }

    /// The steps that compute a prompt from `cached` tokens on.
    fn prefill(&self, cost: &StepCost, cached: u64, prompt: u64) -> Ticks {
        let whole = (prompt - cached - 1) / self.chunk;
        let mut load = cost.empty_load();
        let mut computed = cached;
        for _ in 0..whole {
            load.add_prefill(computed, self.chunk, false);
            computed += self.chunk;
        }
        let contexts = cost.context_ticks(false, &load.contexts());
        load.clear();
        load.add_prefill(computed, prompt - computed, true);
        Ticks(u128::from(whole) * self.whole_chunk.0 + contexts.0 + cost.ticks(&load).0)
    }

    /// The steps that decode with contexts longer than `from` tokens, up to `upto` tokens.
    fn lone_decodes(&mut self, cost: &StepCost, from: u64, upto: u64) -> Ticks {
        let between = |reach| seen(reach, upto) - seen(reach, from);
        let (decode, decode_windowed) = (between(None), between(self.reach));
        let contexts = Contexts { decode, decode_windowed, ..Contexts::default() };
        let fixed = u128::from(upto - from) * self.decode(cost, 1).0;
        Ticks(fixed + cost.context_ticks(false, &contexts).0)
    }

    /// What contexts do not change of a step in which so many requests decode.
    fn decode(&mut self, cost: &StepCost, requests: usize) -> Ticks {
        if self.decodes.len() <= requests {
            self.decodes.resize(requests + 1, Ticks::default());
        }
        if self.decodes[requests] == Ticks::default() {
            let mut load = cost.empty_load();
            load.add_decodes(requests as u64, 0, 0);
            self.decodes[requests] = fixed(cost, &load);
        }
        self.decodes[requests]
    }
}

fn fixed(cost: &StepCost, load: &StepLoad) -> Ticks {
    Ticks(cost.ticks(load).0 - cost.context_ticks(false, &load.contexts()).0)
}

/// What contexts of one token, of two, and so on up to this length see, all together.
fn seen(reach: Option<Reach>, upto: u64) -> u64 {
    let all = |upto: u64| upto * (upto + 1) / 2;
    match reach {
        None => all(upto),
        Some(Reach::Sliding(window)) => {
            all(upto.min(window)) + upto.saturating_sub(window) * window
        }
        Some(Reach::Chunked(chunk)) => upto / chunk * all(chunk) + all(upto % chunk),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_contexts_see_is_summed_one_by_one() {
        for reach in [None, Some(Reach::Sliding(5)), Some(Reach::Chunked(7))] {
            let mut sum = 0;
            for context in 1..=40 {
                sum += reach.map_or(context, |reach| reach.seen(context));
                assert_eq!(seen(reach, context), sum, "{reach:?}: {context}");
            }
        }
    }
}
