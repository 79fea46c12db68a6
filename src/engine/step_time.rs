//! How long one engine step takes, from what it computes.
//!
//! The time is a closed formula over the data sheet, with efficiencies fitted to measurements: all
//! weights that the step touches are read once, its tokens are multiplied with them, each decoding
//! sequence reads its KV cache, each prefill chunk attends to what came before. Reading and
//! multiplying overlap, so they add like the sides of a right angle; the rest adds plainly.
//! `docs/timing.md` gives the formula and how far to trust it.
//!
//! ```
//! use tonnage::config::precision::{KvDtype, WeightPrecision};
//! use tonnage::config::{gpus, models};
//! use tonnage::engine::step_time::{StepCost, StepSetup};
//!
//! let model = models::find("Llama-3.1-8B")?;
//! let cost = StepCost::new(&StepSetup {
//!     model: &model,
//!     gpu: gpus::find("H100")?,
//!     tp: 1,
//!     dp: 1,
//!     weights: WeightPrecision::Bits16,
//!     kv_dtype: KvDtype::Bf16,
//! })?;
//! let mut load = cost.empty_load();
//! load.add_decode(60_000);
//! let alone = cost.ticks(&load);
//! load.add_prefill(0, 2_048, false);
//! assert!(cost.ticks(&load) > alone);
//! # Ok::<(), tonnage::diag::Error>(())
//! ```

use std::ops::Deref;
use std::sync::Arc;

use crate::config::geometry::ModelGeometry;
use crate::config::gpus::GpuSpec;
use crate::config::precision::{self, KvDtype, WeightPrecision};
use crate::config::presets::{self, Preset};
use crate::diag::{Error, Result, Warning};

mod group;
mod load;
#[cfg(test)]
mod tests;
mod ticks;

pub use load::{Reach, StepLoad};
pub use ticks::{Carry, Series, Ticks, Walk};

/// Bytes a millisecond at 1 TB/s.
const TB_S: f64 = 1e9;
/// Operations a millisecond at 1 TFLOP/s.
const TFLOP_S: f64 = 1e9;
/// Bytes a millisecond at 1 GB/s.
const GB_S: f64 = 1e6;
/// Microseconds in a millisecond.
const US: f64 = 1e-3;
/// Bytes of an element of the hidden state, and of a weight of the output layer.
const HIDDEN_BYTES: f64 = 2.0;
/// Operations a weight and token: one multiplication, one addition.
const FLOPS_PER_WEIGHT: f64 = 2.0;
/// All-reduces a layer: after attention and after the feed-forward block.
const ALL_REDUCES: f64 = 2.0;
/// Heads up to this width attend more slowly.
const SMALL_HEAD_DIM: u64 = 64;

/// What runs on what.
#[derive(Clone, Copy, Debug)]
pub struct StepSetup<'a> {
    /// The model.
    pub model: &'a ModelGeometry,
    /// The GPU.
    pub gpu: &'a GpuSpec,
    /// GPUs of the tensor-parallel group.
    pub tp: u32,
    /// Ranks of attention data parallelism: each has `tp` GPUs and sequences of its own; the
    /// experts lie on the GPUs of all ranks. A model without experts has ranks that share nothing.
    pub dp: u32,
    /// How the weights are stored.
    pub weights: WeightPrecision,
    /// How keys and values are stored.
    pub kv_dtype: KvDtype,
}

/// Calibration: multipliers on three groups of terms, 1 unless fitted to a deployment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Factors {
    /// On host time and fixed times.
    pub host: f64,
    /// On weights, element-wise work and network.
    pub linear: f64,
    /// On attention, in decode and in prefill.
    pub attention: f64,
}

impl Default for Factors {
    fn default() -> Self {
        Self { host: 1.0, linear: 1.0, attention: 1.0 }
    }
}

/// One step's time, term by term in milliseconds, before calibration.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepTime {
    /// W: reading weights.
    pub weights_ms: f64,
    /// The part of W that routed experts take.
    pub expert_weights_ms: f64,
    /// F: multiplying them.
    pub gemm_ms: f64,
    /// K: reading the KV cache in decode.
    pub kv_ms: f64,
    /// A: attention of prefill chunks.
    pub attention_ms: f64,
    /// U: element-wise passes over the hidden state.
    pub elementwise_ms: f64,
    /// X: all-reduces, and between data-parallel ranks the way to the experts and back.
    pub network_ms: f64,
    /// Host time and fixed times.
    pub host_ms: f64,
    factors: Factors,
}

impl StepTime {
    /// The three groups that calibration scales: host, linear, attention; in milliseconds, before
    /// scaling. Their scaled sum is the step.
    #[must_use]
    pub fn groups_ms(&self) -> [f64; 3] {
        let Self { weights_ms, gemm_ms, .. } = *self;
        let overlapped = (weights_ms * weights_ms + gemm_ms * gemm_ms).sqrt();
        let linear = overlapped + self.network_ms + self.elementwise_ms;
        [self.host_ms, linear, self.kv_ms + self.attention_ms]
    }

    /// The step's time in milliseconds, calibration included.
    #[must_use]
    pub fn total_ms(&self) -> f64 {
        let [host, linear, attention] = self.groups_ms();
        let Factors { host: s1, linear: s2, attention: s3 } = self.factors;
        s1 * host + s2 * linear + s3 * attention
    }

    /// The part that no context changes, calibration included.
    fn fixed_ms(&self) -> f64 {
        let [host, linear, _] = self.groups_ms();
        self.factors.host * host + self.factors.linear * linear
    }
}

/// What one token of context, or half a pair of tokens, takes: whole numbers of ticks.
#[derive(Clone, Copy, Debug, Default)]
struct ContextTicks {
    kv_full: u64,
    kv_windowed: u64,
    kv_full_mixed: u64,
    kv_windowed_mixed: u64,
    attention_full: u64,
    attention_windowed: u64,
}

/// Sums over a step's contexts, or what they grow by from one step to the next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Contexts {
    /// As [`StepLoad::decode_context`].
    pub decode: u64,
    /// As [`StepLoad::decode_context_windowed`].
    pub decode_windowed: u64,
    /// As [`StepLoad::prefill_half_pairs`].
    pub half_pairs: u64,
    /// As [`StepLoad::prefill_half_pairs_windowed`].
    pub half_pairs_windowed: u64,
}

/// The step formula for one set-up, with everything that no step changes multiplied out. Engines
/// share it, so that it stays close at hand however many there are.
#[derive(Clone, Debug)]
pub struct StepCost(Arc<Terms>);

/// What the formula is made of.
#[derive(Clone, Debug)]
pub struct Terms {
    /// All times in ms.
    weights_fixed: f64,
    /// Of one expert in every layer that has experts.
    weights_expert: f64,
    experts: f64,
    /// Share of the experts that one token does not touch.
    miss: f64,
    gemm_token: f64,
    /// Of one token of any rank, its experts.
    gemm_routed: f64,
    gemm_row: f64,
    kv_full: f64,
    kv_windowed: f64,
    kv_mixed: f64,
    attention_full: f64,
    attention_windowed: f64,
    elementwise_token: f64,
    network_step: f64,
    network_token: f64,
    /// Of one token of any rank, its way to the experts and back.
    network_routed: f64,
    host_step: f64,
    host_sequence: f64,
    window: Option<Reach>,
    /// Ranks that step together.
    ranks: u32,
    factors: Factors,
    contexts: ContextTicks,
    floor: Floor,
    preset: &'static Preset,
    warnings: Vec<Warning>,
}

impl Deref for StepCost {
    type Target = Terms;

    #[inline]
    fn deref(&self) -> &Terms {
        &self.0
    }
}

/// The share of each term that the data sheet alone explains.
#[derive(Clone, Copy, Debug)]
struct Floor {
    weights: f64,
    experts: f64,
    gemm: f64,
    kv: f64,
    attention: f64,
}

impl Floor {
    fn linear(&self) -> f64 {
        self.weights.max(self.experts).max(self.gemm)
    }
}

impl StepCost {
    /// Multiplies out what no step changes.
    ///
    /// # Errors
    /// The group does not fit the model or the node, or the GPU cannot run the precision.
    pub fn new(setup: &StepSetup) -> Result<Self> {
        Self::with_preset(setup, presets::lookup(setup.gpu, setup.weights))
    }

    /// The same with constants of the caller's choice, for fitting them.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn with_preset(setup: &StepSetup, preset: &'static Preset) -> Result<Self> {
        let StepSetup { model, gpu, tp, weights, kv_dtype, .. } = *setup;
        group::check(setup)?;
        let peak = precision::gemm_peak(gpu, weights)?;
        let rates = Rates::new(setup, preset, peak.tflops);
        let gpus = f64::from(tp);
        let expert_gpus = f64::from(group::expert_gpus(setup));
        let layers = model.layers as f64;
        let moe_layers = model.moe_layers() as f64;
        let hidden = model.hidden as f64;
        let (experts, per_token) =
            model.moe.map_or((0.0, 0.0), |moe| (moe.experts as f64, moe.experts_per_token as f64));

        let common = model.common_params() as f64;
        let expert = moe_layers * model.expert_params() as f64;
        let head = model.vocab as f64 * hidden;
        let other_bytes = weights.other_bytes(model.moe.is_some());
        let kv_layer = (model.kv_elements_per_gpu(tp) * kv_dtype.bytes()) as f64 / rates.kv;
        // Two products (query by key, weight by value), and the pairs are counted in halves.
        let pair_layer = 4.0 * model.attention_width() / gpus / rates.attention / 2.0;
        let copies = preset.u1_passes * layers + preset.u2_passes * per_token * moe_layers;
        let all_reduces = if tp > 1 { ALL_REDUCES * layers } else { 0.0 };
        let moved = 2.0 * (gpus - 1.0) / gpus * hidden * HIDDEN_BYTES;
        let fixed_us = preset.layer_us * layers + preset.moe_layer_us * moe_layers;
        let terms = Terms {
            weights_fixed: (common * other_bytes + head * HIDDEN_BYTES) / gpus / rates.weights,
            weights_expert: expert * weights.bytes() / expert_gpus / rates.experts,
            experts,
            miss: if experts > 0.0 { 1.0 - per_token / experts } else { 1.0 },
            gemm_token: FLOPS_PER_WEIGHT / gpus * common / rates.gemm_other,
            gemm_routed: FLOPS_PER_WEIGHT / expert_gpus * per_token * expert / rates.gemm,
            gemm_row: FLOPS_PER_WEIGHT / gpus * head / rates.gemm_16,
            kv_full: model.full_layers() as f64 * kv_layer,
            kv_windowed: model.windowed_layers() as f64 * kv_layer,
            kv_mixed: 1.0 + preset.kx,
            attention_full: model.full_layers() as f64 * pair_layer,
            attention_windowed: model.windowed_layers() as f64 * pair_layer,
            elementwise_token: HIDDEN_BYTES * hidden * copies / (gpu.hbm_tb_s * TB_S),
            network_step: all_reduces * preset.all_reduce_us * US,
            network_token: all_reduces * moved / (preset.e_n * gpu.group_link_gb_s(tp) * GB_S),
            network_routed: group::to_experts_bytes(setup)
                / (preset.e_n * gpu.group_link_gb_s(group::expert_gpus(setup)) * GB_S),
            host_step: preset.t0_ms + fixed_us * US,
            host_sequence: preset.sequence_us * US,
            window: model.window.map(Reach::from),
            ranks: if group::in_lock_step(setup) { setup.dp } else { 1 },
            factors: Factors::default(),
            contexts: ContextTicks::default(),
            floor: rates.floor,
            preset,
            warnings: warnings(setup, peak.note),
        };
        Ok(Self(Arc::new(terms)).with_factors_set(Factors::default()))
    }

    fn with_factors_set(mut self, factors: Factors) -> Self {
        let terms = Arc::make_mut(&mut self.0);
        let ticks = |ms: f64| Ticks::from_ms(factors.attention * ms).0 as u64;
        terms.contexts = ContextTicks {
            kv_full: ticks(terms.kv_full),
            kv_windowed: ticks(terms.kv_windowed),
            kv_full_mixed: ticks(terms.kv_mixed * terms.kv_full),
            kv_windowed_mixed: ticks(terms.kv_mixed * terms.kv_windowed),
            attention_full: ticks(terms.attention_full),
            attention_windowed: ticks(terms.attention_windowed),
        };
        terms.factors = factors;
        self
    }

    /// The same with multipliers from a calibration.
    ///
    /// # Errors
    /// A multiplier that is no number above zero, or with which steps would beat the data sheet.
    pub fn with_factors(self, factors: Factors) -> Result<Self> {
        let bounds = [
            ("host", factors.host, 0.0),
            ("linear", factors.linear, self.floor.linear()),
            ("attention", factors.attention, self.floor.kv.max(self.floor.attention)),
        ];
        for (field, found, least) in bounds {
            if !(found.is_finite() && found > 0.0 && found >= least) {
                let allowed = format!("{least} or more: below it a step beats the data sheet");
                let allowed = if least == 0.0 { "a number above 0".to_owned() } else { allowed };
                return Err(Error::found(found, allowed).in_field(field));
            }
        }
        Ok(self.with_factors_set(factors))
    }

    /// The same with all steps `by` times as long, but no term below what the data sheet allows.
    #[must_use]
    pub fn scaled(self, by: f64) -> Self {
        let Factors { host, linear, attention } = self.factors;
        let factors = Factors {
            host: host * by,
            linear: (linear * by).max(self.floor.weights.max(self.floor.gemm).min(linear)),
            attention: (attention * by).max(self.floor.kv.max(self.floor.attention).min(attention)),
        };
        self.with_factors_set(factors)
    }

    /// A load to add to, which knows the model's attention window.
    #[must_use]
    pub fn empty_load(&self) -> StepLoad {
        StepLoad::new(self.window)
    }

    /// The preset behind the constants, and how far it was off.
    #[must_use]
    pub fn preset(&self) -> &'static Preset {
        self.preset
    }

    /// What to check before the times are trusted.
    #[must_use]
    pub fn warnings(&self) -> &[Warning] {
        &self.warnings
    }

    /// The time of a step with this load.
    #[must_use]
    pub fn cost(&self, load: &StepLoad) -> StepTime {
        debug_assert!(load.window() == self.window, "the load was made for another model");
        debug_assert!(load.tokens() > 0, "an empty step");
        let tokens = load.tokens() as f64;
        let of_all_ranks = load.tokens() + load.other_tokens();
        let touched = self.experts * (1.0 - power(self.miss, of_all_ranks));
        let expert_weights_ms = self.weights_expert * touched;
        let mixed = load.prefill_tokens() > 0 && load.decode_seqs() > 0;
        let kv = self.kv_full * load.decode_context() as f64
            + self.kv_windowed * load.decode_context_windowed() as f64;
        let time = StepTime {
            weights_ms: self.weights_fixed + expert_weights_ms,
            expert_weights_ms,
            gemm_ms: self.gemm_token * tokens
                + self.gemm_routed * of_all_ranks as f64
                + self.gemm_row * load.output_rows() as f64,
            kv_ms: if mixed { self.kv_mixed * kv } else { kv },
            attention_ms: self.attention_full * load.prefill_half_pairs() as f64
                + self.attention_windowed * load.prefill_half_pairs_windowed() as f64,
            elementwise_ms: self.elementwise_token * tokens,
            network_ms: self.network_step
                + self.network_token * tokens
                + self.network_routed * of_all_ranks as f64,
            host_ms: self.host_step + self.host_sequence * load.decode_seqs() as f64,
            factors: self.factors,
        };
        debug_assert!(
            time.total_ms() >= self.floor_ms(&time, mixed) * (1.0 - 1e-12),
            "a step beats the data sheet: {time:?}"
        );
        time
    }

    /// The time of a step with this load in whole ticks. It is linear in every context, with whole
    /// coefficients; see [`Self::context_ticks`].
    #[must_use]
    pub fn ticks(&self, load: &StepLoad) -> Ticks {
        let mixed = load.prefill_tokens() > 0 && load.decode_seqs() > 0;
        let fixed = Ticks::from_ms(self.cost(load).fixed_ms());
        Ticks(fixed.0 + self.context_ticks(mixed, &load.contexts()).0)
    }

    /// The part of a step's time that its contexts take; `mixed` if it both prefills and decodes.
    #[must_use]
    pub fn context_ticks(&self, mixed: bool, contexts: &Contexts) -> Ticks {
        let ContextTicks { attention_full, attention_windowed, .. } = self.contexts;
        let (full, windowed) = match mixed {
            true => (self.contexts.kv_full_mixed, self.contexts.kv_windowed_mixed),
            false => (self.contexts.kv_full, self.contexts.kv_windowed),
        };
        let product = |a: u64, b: u64| u128::from(a) * u128::from(b);
        Ticks(
            product(full, contexts.decode)
                + product(windowed, contexts.decode_windowed)
                + product(attention_full, contexts.half_pairs)
                + product(attention_windowed, contexts.half_pairs_windowed),
        )
    }

    /// The least time that the data sheet allows for a step of these terms: all bytes at full
    /// bandwidth, or all multiplications at full rate.
    fn floor_ms(&self, time: &StepTime, mixed: bool) -> f64 {
        let kv = time.kv_ms / if mixed { self.kv_mixed } else { 1.0 };
        let common = time.weights_ms - time.expert_weights_ms;
        let weights = common * self.floor.weights + time.expert_weights_ms * self.floor.experts;
        let bytes = weights + kv * self.floor.kv;
        let flops = time.gemm_ms * self.floor.gemm + time.attention_ms * self.floor.attention;
        bytes.max(flops)
    }

    /// The data-sheet floor of a step with this load, in milliseconds.
    #[must_use]
    pub fn data_sheet_ms(&self, load: &StepLoad) -> f64 {
        let mixed = load.prefill_tokens() > 0 && load.decode_seqs() > 0;
        self.floor_ms(&self.cost(load), mixed)
    }
}

fn warnings(setup: &StepSetup, peak_note: Option<String>) -> Vec<Warning> {
    let StepSetup { gpu, tp, .. } = *setup;
    let mut list: Vec<String> = peak_note.into_iter().chain(group::note(setup)).collect();
    if tp > gpu.link_world {
        list.push(format!(
            "{tp} x {}: the group reduces over PCIe at {} GB/s, which few measurements cover",
            gpu.name, gpu.pcie_gb_s
        ));
    }
    list.into_iter().map(Warning).collect()
}

/// Rates that are reached, in bytes or operations a millisecond.
struct Rates {
    weights: f64,
    experts: f64,
    gemm: f64,
    gemm_other: f64,
    gemm_16: f64,
    kv: f64,
    attention: f64,
    floor: Floor,
}

impl Rates {
    fn new(setup: &StepSetup, preset: &Preset, peak_tflops: f64) -> Self {
        let StepSetup { model, gpu, weights, kv_dtype, .. } = *setup;
        let other_is_16_bit = weights.other_bytes(model.moe.is_some()) == 2.0;
        let other_tflops = if other_is_16_bit { gpu.tflops_16 } else { peak_tflops };
        let kv_efficiency = if kv_dtype.bytes() == 1 { preset.e_kv8 } else { preset.e_kv16 };
        let small = model.plain_head_dim().is_some_and(|width| width <= SMALL_HEAD_DIM);
        let small_heads = if small { preset.a64 } else { 1.0 };
        Self {
            weights: preset.e_m * gpu.hbm_tb_s * TB_S,
            experts: preset.e_x * gpu.hbm_tb_s * TB_S,
            gemm: preset.e_c * peak_tflops * TFLOP_S,
            gemm_other: preset.e_c * other_tflops * TFLOP_S,
            gemm_16: preset.e_c * gpu.tflops_16 * TFLOP_S,
            kv: kv_efficiency * gpu.hbm_tb_s * TB_S,
            attention: preset.e_a * gpu.tflops_16 * TFLOP_S / small_heads,
            floor: Floor {
                weights: preset.e_m,
                experts: preset.e_x,
                gemm: preset.e_c,
                kv: kv_efficiency,
                attention: preset.e_a / small_heads,
            },
        }
    }
}

/// `base` to a whole power by squaring: only multiplications, so that every platform gets the same
/// bits, which the mathematics library does not promise.
fn power(base: f64, exponent: u64) -> f64 {
    let (mut result, mut square, mut left) = (1.0, base, exponent);
    while left > 0 {
        if left & 1 == 1 {
            result *= square;
        }
        square *= square;
        left >>= 1;
    }
    result
}
