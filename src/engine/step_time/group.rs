//! Attention data parallelism: ranks that hold the attention weights and sequences of their own,
//! share the experts, and wait for each other in every step.

use super::{HIDDEN_BYTES, StepCost, StepLoad, StepSetup, Ticks};
use crate::diag::{Error, Result};

/// Exchanges a layer with experts: every rank gets the tokens of all, and their results are added
/// up and given back. vLLM's default backend does it so (all-gather and reduce-scatter).
const EXCHANGES: f64 = 2.0;
/// Tokens that a rank without work computes.
const DUMMY_TOKENS: u64 = 1;
/// Most ranks of a model without experts, beyond which a number is a slip.
const RANKS_MAX: u32 = 1 << 10;

/// Whether the ranks share experts and therefore step together.
pub(super) fn in_lock_step(setup: &StepSetup) -> bool {
    setup.dp > 1 && setup.model.moe.is_some()
}

/// GPUs that the experts lie on.
pub(super) fn expert_gpus(setup: &StepSetup) -> u32 {
    if in_lock_step(setup) { setup.tp * setup.dp } else { setup.tp }
}

/// Refuses what does not cut the model or fit in a node.
pub(super) fn check(setup: &StepSetup) -> Result<()> {
    let StepSetup { model, gpu, tp, dp, .. } = *setup;
    gpu.check_group(tp)?;
    model.check_tp(tp)?;
    if !(1..=RANKS_MAX).contains(&dp) {
        return Err(Error::found(dp, format!("1 to {RANKS_MAX} ranks")).in_field("dp"));
    }
    if model.moe.is_some() { gpu.check_ranks(tp, dp) } else { Ok(()) }
}

/// Bytes that each GPU's link carries for one token of any rank, in all layers, on its way to the
/// experts and back.
pub(super) fn to_experts_bytes(setup: &StepSetup) -> f64 {
    let Some(moe) = setup.model.moe.filter(|_| in_lock_step(setup)) else { return 0.0 };
    let ranks = f64::from(setup.dp);
    let hidden = (moe.layers * setup.model.hidden) as f64;
    EXCHANGES * hidden * HIDDEN_BYTES * (ranks - 1.0) / ranks
}

/// What to know of a group before its times are trusted.
pub(super) fn note(setup: &StepSetup) -> Option<String> {
    let StepSetup { model, tp, dp, .. } = *setup;
    if dp == 1 {
        return None;
    }
    Some(match model.moe {
        Some(_) => format!(
            "dp {dp} x tp {tp}: the term for the way to the experts rests on no measured step; \
             routing is taken as uniform"
        ),
        None => format!(
            "{} has no experts: its {dp} ranks share nothing and do not wait for each other",
            model.name
        ),
    })
}

impl StepCost {
    /// Whether the ranks of the group step together, so that a step lasts as long as its slowest
    /// rank.
    #[must_use]
    pub fn in_lock_step(&self) -> bool {
        self.ranks > 1
    }

    /// Ranks of the group that step together; 1 if they do not.
    #[must_use]
    pub fn ranks(&self) -> usize {
        self.ranks as usize
    }

    /// The slowest rank of a step, given each rank's own load, and the time that it and therefore
    /// the step takes. Of equals the first; `None` if no rank computes anything. What the others
    /// compute is filled in here: a rank without work computes one token for nothing, since the
    /// experts wait for every rank.
    #[must_use]
    pub fn slowest(&self, ranks: &mut [StepLoad]) -> Option<(usize, Ticks)> {
        let all: u64 = ranks.iter().map(|load| load.tokens().max(DUMMY_TOKENS)).sum();
        let mut slowest: Option<(usize, Ticks)> = None;
        for (rank, load) in ranks.iter_mut().enumerate() {
            if load.tokens() == 0 {
                continue;
            }
            load.set_other_ranks(if self.in_lock_step() { all - load.tokens() } else { 0 });
            let ticks = self.ticks(load);
            if slowest.is_none_or(|(_, most)| ticks > most) {
                slowest = Some((rank, ticks));
            }
        }
        slowest
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::precision::{KvDtype, WeightPrecision};
    use crate::config::{gpus, models};

    fn group(model: &str, gpu: &str, tp: u32, dp: u32) -> Result<StepCost> {
        let model = models::find(model).unwrap();
        StepCost::new(&StepSetup {
            model: &model,
            gpu: gpus::find(gpu).unwrap(),
            tp,
            dp,
            weights: WeightPrecision::Fp8,
            kv_dtype: KvDtype::Bf16,
        })
    }

    fn decodes(cost: &StepCost, seqs: u64, context: u64) -> StepLoad {
        let mut load = cost.empty_load();
        (0..seqs).for_each(|_| load.add_decode(context));
        load
    }

    /// DeepSeek-V3 on eight H200, TP 1 x DP 8; this rank decodes two sequences, the others 14.
    /// Experts: 256 * (1 - (248/256)^16) = 101.963 a layer touched by all 16 tokens, of which an
    /// eighth lies on this GPU; each of the 16 tokens is gathered from its rank and its result
    /// scattered in 58 layers: 2 * 58 * 7168 * 2 B * 7/8 = 1,455,104 B.
    #[test]
    fn ranks_share_the_experts_and_nothing_else() {
        let alone = group("DeepSeek-V3", "H200", 1, 1).unwrap();
        let shared = group("DeepSeek-V3", "H200", 1, 8).unwrap();
        let mut load = decodes(&shared, 2, 10_000);
        load.set_other_ranks(14);
        let (time, single) = (shared.cost(&load), alone.cost(&decodes(&alone, 2, 10_000)));
        let sixteen = alone.cost(&decodes(&alone, 16, 10_000));
        let close = |a: f64, b: f64| assert!((a / b - 1.0).abs() < 1e-12, "{a} against {b}");
        close(time.expert_weights_ms, sixteen.expert_weights_ms / 8.0);
        let common = |time: &super::super::StepTime| time.weights_ms - time.expert_weights_ms;
        assert!((common(&time) - common(&single)).abs() < 1e-9);
        close(time.kv_ms, single.kv_ms);
        let e_n = shared.preset().e_n;
        close(time.network_ms, 16.0 * 1_455_104.0 / (e_n * 450.0 * 1e6));
        assert_eq!(single.network_ms, 0.0);
    }

    #[test]
    fn a_step_lasts_as_long_as_its_slowest_rank() {
        let cost = group("DeepSeek-V3", "H200", 1, 4).unwrap();
        assert!(cost.in_lock_step());
        let mut ranks = [
            decodes(&cost, 4, 9_000),
            cost.empty_load(),
            decodes(&cost, 4, 9_000),
            cost.empty_load(),
        ];
        ranks[3].add_prefill(0, 2_048, true);
        let (rank, ticks) = cost.slowest(&mut ranks).unwrap();
        assert_eq!(rank, 3, "the prompt takes longest");
        assert_eq!(ranks[0].other_tokens(), 4 + 2_048 + 1, "the idle rank has its dummy");
        assert!(
            ranks.iter().filter(|load| load.tokens() > 0).all(|load| cost.ticks(load) <= ticks)
        );
        assert_eq!(cost.slowest(&mut [cost.empty_load()]), None);
    }

    #[test]
    fn ranks_without_experts_do_not_wait() {
        let (one, four) =
            (group("Llama-3.1-8B", "H100", 1, 1), group("Llama-3.1-8B", "H100", 1, 4));
        let (one, four) = (one.unwrap(), four.unwrap());
        assert!(!four.in_lock_step() && four.warnings()[0].0.contains("share nothing"));
        let mut load = decodes(&four, 4, 5_000);
        load.set_other_ranks(2_048);
        assert_eq!(four.ticks(&load), one.ticks(&decodes(&one, 4, 5_000)));
    }

    #[test]
    fn groups_stay_within_a_node() {
        let text = group("DeepSeek-V3", "H200", 8, 2).unwrap_err().to_string();
        assert!(text.contains("dp: found `2`, allowed: at most 1 with tp 8"), "{text}");
        assert!(group("DeepSeek-V3", "GB200", 8, 8).is_ok());
        assert!(group("Llama-3.1-8B", "H100", 1, 0).is_err());
    }
}
