//! What the same batches cost again and again, told once.
//!
//! The part of a step's time that its contexts do not change depends on a few counts only, and
//! nearly all steps either decode and do nothing else, or fill the budget with a prompt that they
//! do not complete. These two are kept by the number of sequences that decode.

use crate::engine::step_time::{Contexts, StepCost, StepLoad, Ticks};

/// Batches of more sequences are told anew each time.
const SEQS_MAX: u64 = 1 << 12;

/// The fixed part of the time of steps.
#[derive(Debug)]
pub(super) struct Prices {
    /// Tokens of a full step.
    budget: u64,
    /// Of steps that decode and do nothing else.
    decodes: Known,
    /// Of full steps that also prefill, and complete no prompt.
    chunks: Known,
}

/// Ticks by the number of sequences that decode. None are those that were never asked for: no
/// step takes no time.
#[derive(Debug, Default)]
struct Known(Vec<Ticks>);

impl Prices {
    pub(super) fn new(budget: u64) -> Self {
        Self { budget, decodes: Known::default(), chunks: Known::default() }
    }

    /// The time of a step with this load, as [`StepCost::ticks`] tells it.
    pub(super) fn ticks(&mut self, cost: &StepCost, load: &StepLoad) -> Ticks {
        let seqs = load.decode_seqs();
        if load.prefill_tokens() == 0 {
            return self.decode_ticks(cost, load);
        }
        if load.output_rows() > seqs || load.tokens() != self.budget {
            return cost.ticks(load);
        }
        let contexts = cost.context_ticks(seqs > 0, &load.contexts());
        let fixed = self.chunks.get(seqs, || Ticks(cost.ticks(load).0 - contexts.0));
        Ticks(fixed.0 + contexts.0)
    }

    /// The time that the same step would take without its prefill.
    pub(super) fn decode_ticks(&mut self, cost: &StepCost, load: &StepLoad) -> Ticks {
        let contexts = (load.decode_context(), load.decode_context_windowed());
        self.of_decodes(cost, load.decode_seqs(), contexts)
    }

    /// The time of a step in which so many decode, given the sums of their contexts and of what
    /// windowed layers see of them.
    #[inline]
    pub(super) fn of_decodes(
        &mut self,
        cost: &StepCost,
        seqs: u64,
        (decode, decode_windowed): (u64, u64),
    ) -> Ticks {
        let contexts = Contexts { decode, decode_windowed, ..Contexts::default() };
        let contexts = cost.context_ticks(false, &contexts);
        let fixed = self.decodes.get(seqs, || {
            let mut load = cost.empty_load();
            load.add_decodes(seqs, 0, 0);
            cost.ticks(&load)
        });
        Ticks(fixed.0 + contexts.0)
    }
}

impl Known {
    #[inline]
    fn get(&mut self, seqs: u64, tell: impl FnOnce() -> Ticks) -> Ticks {
        match self.0.get(seqs as usize) {
            Some(&ticks) if ticks != Ticks::default() => ticks,
            _ => self.note(seqs, tell()),
        }
    }

    #[cold]
    fn note(&mut self, seqs: u64, ticks: Ticks) -> Ticks {
        if seqs < SEQS_MAX {
            let at = seqs as usize;
            if self.0.len() <= at {
                self.0.resize(at + 1, Ticks::default());
            }
            self.0[at] = ticks;
        }
        ticks
    }
}
