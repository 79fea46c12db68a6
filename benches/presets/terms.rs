//! A measured time as the formula's terms with the fitted constants taken out.
//!
//! The terms come from the formula of the library itself, with a preset whose efficiencies are 1
//! and whose fixed times are 0. Whatever the constants are, a predicted time is then a few products
//! and sums, which is what a fit needs. Attention keeps the constants of the preset in use: they
//! rest on kernel tables, not on serving runs.

use tonnage::config::geometry::ModelGeometry;
use tonnage::config::gpus::GpuSpec;
use tonnage::config::precision::{KvDtype, WeightPrecision};
use tonnage::config::presets::{self, Preset};
use tonnage::engine::step_time::{StepCost, StepLoad, StepSetup, StepTime};

/// How many constants are fitted.
pub const CONSTANTS: usize = 9;

/// e_m, e_x, e_c, e_n; t0 in ms; tL, tM, tS, t_ar in us.
#[derive(Clone, Copy, Debug)]
pub struct Constants(pub [f64; CONSTANTS]);

impl Constants {
    /// Those of a preset.
    pub fn of(preset: &Preset) -> Self {
        Self([
            preset.e_m,
            preset.e_x,
            preset.e_c,
            preset.e_n,
            preset.t0_ms,
            preset.layer_us,
            preset.moe_layer_us,
            preset.sequence_us,
            preset.all_reduce_us,
        ])
    }
}

/// Constants that are known from elsewhere.
#[derive(Clone, Copy, Debug, Default)]
pub struct Kept {
    pub e_c: Option<f64>,
    pub e_n: Option<f64>,
}

impl Constants {
    /// The same but for those that are known.
    pub fn with(mut self, kept: Kept) -> Self {
        self.0[2] = kept.e_c.unwrap_or(self.0[2]);
        self.0[3] = kept.e_n.unwrap_or(self.0[3]);
        self
    }
}

/// One kind of step, without constants: milliseconds at the data sheet's rates, and counts.
#[derive(Clone, Copy, Debug, Default)]
pub struct Terms {
    common_weights: f64,
    expert_weights: f64,
    /// Multiplying weights.
    pub gemm: f64,
    /// All attention, with its constants.
    pub attention: f64,
    elementwise: f64,
    network: f64,
    layers: f64,
    moe_layers: f64,
    sequences: f64,
    all_reduces: f64,
}

impl Terms {
    /// Milliseconds with these constants.
    pub fn time(&self, constants: &Constants) -> f64 {
        let [e_m, e_x, e_c, e_n, t0, layer, moe_layer, sequence, t_ar] = constants.0;
        let weights = self.common_weights / e_m + self.expert_weights / e_x;
        let linear = weights.hypot(self.gemm / e_c) + self.elementwise;
        let micros = layer * self.layers
            + moe_layer * self.moe_layers
            + sequence * self.sequences
            + t_ar * self.all_reduces;
        linear + self.network / e_n + self.attention + t0 + micros * 1e-3
    }
}

/// What a step computes: decoding sequences at a mean context, and one chunk of a prompt.
#[derive(Clone, Copy, Debug, Default)]
pub struct Work {
    pub decodes: u64,
    pub context: u64,
    pub chunk: u64,
    pub before: u64,
}

/// A preset that changes nothing. It lives as long as the program.
pub fn neutral() -> &'static Preset {
    let mut preset = presets::all()[0].clone();
    let (one, none) = (1.0, 0.0);
    (preset.e_m, preset.e_x, preset.e_c, preset.e_n) = (one, one, one, one);
    (preset.e_kv16, preset.e_kv8, preset.e_a, preset.a64) = (one, one, one, one);
    (preset.t0_ms, preset.layer_us, preset.moe_layer_us) = (none, none, none);
    (preset.sequence_us, preset.all_reduce_us, preset.kx) = (none, none, none);
    Box::leak(Box::new(preset))
}

/// A model on a group of GPUs, and how its cache is stored.
pub struct Deployment {
    pub model: ModelGeometry,
    pub gpu: &'static GpuSpec,
    pub tp: u32,
    pub weights: WeightPrecision,
    pub kv_dtype: KvDtype,
}

impl Deployment {
    /// The formula with these constants; `None` if the set-up is refused.
    pub fn cost(&self, preset: &'static Preset) -> Option<StepCost> {
        let setup = StepSetup {
            model: &self.model,
            gpu: self.gpu,
            tp: self.tp,
            dp: 1,
            weights: self.weights,
            kv_dtype: self.kv_dtype,
        };
        StepCost::with_preset(&setup, preset).ok()
    }

    /// The terms of one step: `bare` is the formula without constants, `used` the one in use.
    pub fn terms(&self, bare: &StepCost, used: &StepCost, work: &Work) -> Terms {
        let load = load(bare, work);
        let time: StepTime = bare.cost(&load);
        let in_use = used.cost(&load);
        let layers = self.model.layers as f64;
        Terms {
            common_weights: time.weights_ms - time.expert_weights_ms,
            expert_weights: time.expert_weights_ms,
            gemm: time.gemm_ms,
            attention: in_use.kv_ms + in_use.attention_ms,
            elementwise: time.elementwise_ms,
            network: time.network_ms,
            layers,
            moe_layers: self.model.moe_layers() as f64,
            sequences: work.decodes as f64,
            all_reduces: if self.tp > 1 { 2.0 * layers } else { 0.0 },
        }
    }
}

/// The load of a step.
pub fn load(cost: &StepCost, work: &Work) -> StepLoad {
    let mut load = cost.empty_load();
    (0..work.decodes).for_each(|_| load.add_decode(work.context));
    if work.chunk > 0 {
        load.add_prefill(work.before, work.chunk, true);
    }
    load
}
