//! Step-time constants, fitted to measured runs and kernel tables, from `data/presets.csv`.
//!
//! A preset holds for one number of bits a weight, or one format of that many, and, from most to
//! least exact, for one GPU, for an architecture, or for all GPUs of the fit. `benches/presets.rs`
//! fits them.

use std::fmt;
use std::sync::LazyLock;

use serde::{Deserialize, Serialize};

use super::gpus::GpuSpec;
use super::precision::WeightPrecision;

/// For what a preset was fitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// This GPU.
    Gpu,
    /// GPUs of the same architecture.
    Arch,
    /// All GPUs of the fit.
    Joint,
}

/// One row of the table. Efficiencies are fractions of the data sheet.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Preset {
    /// Its name, for example `H100/8`.
    #[serde(rename = "preset")]
    pub id: String,
    /// For what it was fitted.
    pub level: Level,
    /// GPU or architecture.
    pub name: String,
    /// Bits a weight.
    pub weight_bits: u32,
    /// The weight format that it holds for; empty for every one of its bits.
    pub format: String,
    /// Of memory bandwidth, reading weights.
    pub e_m: f64,
    /// Of memory bandwidth, reading the weights of routed experts.
    pub e_x: f64,
    /// Of the arithmetic peak, multiplying weights.
    pub e_c: f64,
    /// Of memory bandwidth, reading a 16-bit KV cache.
    pub e_kv16: f64,
    /// Of memory bandwidth, reading an 8-bit KV cache.
    pub e_kv8: f64,
    /// Of the 16-bit peak, in prefill attention.
    pub e_a: f64,
    /// Factor on prefill attention for heads of at most 64.
    pub a64: f64,
    /// Of the link, in all-reduces.
    pub e_n: f64,
    /// Host time of a step in ms.
    pub t0_ms: f64,
    /// Fixed time of a layer in us.
    #[serde(rename = "tL_us_per_layer")]
    pub layer_us: f64,
    /// Fixed time of a layer with experts, on top, in us.
    #[serde(rename = "tM_us_per_moe_layer")]
    pub moe_layer_us: f64,
    /// Time of a decoding sequence in us.
    #[serde(rename = "tS_us_per_seq")]
    pub sequence_us: f64,
    /// Fixed time of an all-reduce in us.
    #[serde(rename = "t_ar_us_per_allreduce")]
    pub all_reduce_us: f64,
    /// Extra share of KV reading in steps that also carry prefill.
    pub kx: f64,
    /// Passes over the hidden state a layer.
    pub u1_passes: f64,
    /// Passes over the hidden state a layer and routed copy.
    pub u2_passes: f64,
    /// Exponent with which reading weights and multiplying them combine.
    pub q: f64,
    /// Serving runs it rests on.
    pub n_serving: u32,
    /// Models in them.
    pub n_serving_models: u32,
    /// Steps from kernel tables it rests on.
    pub n_kernel_steps: u32,
    /// Steps composed from measured layers it rests on.
    pub n_composed_steps: u32,
    /// Mean absolute error in percent of the inter-token latency of those runs.
    pub itl_mape_pct: Option<f64>,
    /// Median of the same.
    pub itl_median_pct: Option<f64>,
    /// 90th percentile of the same.
    pub itl_p90_pct: Option<f64>,
    /// Mean absolute error with every row of the predicted model left out of the fit.
    pub loo_itl_mape_pct: Option<f64>,
    /// Median of the same.
    pub loo_itl_median_pct: Option<f64>,
    /// 90th percentile of the same.
    pub loo_itl_p90_pct: Option<f64>,
    /// Mean absolute error of decode attention at 32 Ki tokens and more against kernel tables.
    pub long_attn_mape_pct: Option<f64>,
    /// Mean absolute error of whole prefill and mixed steps against kernel tables.
    pub prefill_mixed_step_mape_pct: Option<f64>,
    /// What the row rests on, in words.
    pub basis: String,
}

/// Between which sizes lie the measurements that a preset rests on.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Measured {
    /// The preset.
    pub preset: String,
    /// `serving`: whole steps of serving runs; `tables`: kernels one by one.
    pub source: String,
    /// How many measurements.
    pub rows: u32,
    /// Fewest decoding sequences of a step that decodes.
    pub decode_seqs_min: u64,
    /// Most decoding sequences.
    pub decode_seqs_max: u64,
    /// Shortest mean context, in tokens.
    pub context_min: u64,
    /// Longest mean context.
    pub context_max: u64,
    /// Fewest prompt tokens of a step that has some.
    pub prefill_tokens_min: u64,
    /// Most prompt tokens.
    pub prefill_tokens_max: u64,
}

static MEASURED: LazyLock<Vec<Measured>> = LazyLock::new(|| {
    csv::Reader::from_reader(include_str!("data/measured.csv").as_bytes())
        .deserialize()
        .collect::<Result<_, _>>()
        .expect("the table of measured ranges compiled in is well formed")
});

impl Preset {
    /// Between which sizes lie the measurements that it rests on, from one source: `serving` or
    /// `tables`.
    #[must_use]
    pub fn measured(&self, source: &str) -> Option<&'static Measured> {
        MEASURED.iter().find(|range| range.preset == self.id && range.source == source)
    }
}

static PRESETS: LazyLock<Vec<Preset>> = LazyLock::new(|| {
    csv::Reader::from_reader(include_str!("data/presets.csv").as_bytes())
        .deserialize()
        .collect::<Result<_, _>>()
        .expect("the preset table compiled in is well formed")
});

/// All presets.
#[must_use]
pub fn all() -> &'static [Preset] {
    &PRESETS
}

/// The most exact preset for weights of this precision on `gpu`.
#[must_use]
pub fn lookup(gpu: &GpuSpec, weights: WeightPrecision) -> &'static Preset {
    let find = |level: Level, name: &str| {
        let of_format = |format: &str| {
            PRESETS.iter().find(|preset| {
                preset.weight_bits == weights.bits()
                    && preset.format == format
                    && preset.level == level
                    && preset.name == name
            })
        };
        of_format(weights.name()).or_else(|| of_format(""))
    };
    find(Level::Gpu, &gpu.preset)
        .or_else(|| find(Level::Arch, gpu.arch.name()))
        .or_else(|| find(Level::Joint, "joint"))
        .expect("the table has a joint row for every number of bits; a test reads it")
}

impl fmt::Display for Preset {
    /// The preset, what it rests on and how far it was off, for the line that says how much to
    /// trust an answer.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let level = match self.level {
            Level::Gpu => "this GPU",
            Level::Arch => "its architecture",
            Level::Joint => "all GPUs of the fit, not this one",
        };
        write!(f, "preset {} ({level}): ", self.id)?;
        let counts = [
            (self.n_serving, "serving runs"),
            (self.n_kernel_steps, "kernel-table steps"),
            (self.n_composed_steps, "composed steps"),
        ];
        let counts: Vec<String> = counts
            .iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, what)| format!("{count} {what}"))
            .collect();
        f.write_str(&counts.join(", "))?;
        if let (Some(fit), Some(out)) = (self.itl_mape_pct, self.loo_itl_mape_pct) {
            write!(f, "; mean ITL error {fit} % on them, {out} % on models left out")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::gpus;
    use WeightPrecision::{Bits16, Fp8, Int4, Mxfp4, Nvfp4};

    #[test]
    fn the_most_exact_preset_wins() {
        let id = |gpu, weights| lookup(gpus::find(gpu).unwrap(), weights).id.as_str();
        assert_eq!(id("H100", Fp8), "H100/8");
        assert_eq!(id("B300", Fp8), "blackwell/8");
        assert_eq!(id("B300", Nvfp4), "B300/nvfp4");
        assert_eq!(id("B300", Int4), "B300/4");
        assert_eq!(id("GB200", Mxfp4), "blackwell/mxfp4");
        assert_eq!(id("A6000", Bits16), "ampere/16");
        assert_eq!(id("A100", Fp8), "joint/8");
        assert_eq!(id("MI300X", Bits16), "joint/16");
        assert_eq!(id("MI355X", Mxfp4), "joint/4");
    }

    #[test]
    fn every_gpu_has_a_preset_in_every_precision() {
        for gpu in gpus::all() {
            for weights in [Bits16, Fp8, Nvfp4, Mxfp4, Int4] {
                assert_eq!(lookup(gpu, weights).weight_bits, weights.bits());
            }
        }
    }

    #[test]
    fn every_range_belongs_to_a_preset_and_has_its_order() {
        for range in MEASURED.iter() {
            assert!(all().iter().any(|preset| preset.id == range.preset), "{}", range.preset);
            assert!(range.rows > 0 && range.decode_seqs_min <= range.decode_seqs_max);
            assert!(range.context_min <= range.context_max);
            assert!(range.prefill_tokens_min <= range.prefill_tokens_max);
        }
        let preset = lookup(gpus::find("h100").unwrap(), Fp8);
        assert_eq!(preset.measured("serving").unwrap().rows, preset.n_serving);
        assert!(preset.measured("tables").unwrap().context_max >= 131_072);
    }

    #[test]
    fn constants_are_in_range() {
        for preset in all() {
            let efficiencies = [
                preset.e_m,
                preset.e_x,
                preset.e_c,
                preset.e_kv16,
                preset.e_kv8,
                preset.e_a,
                preset.e_n,
            ];
            // Above 1 a step could beat the data sheet.
            assert!(efficiencies.iter().all(|e| (0.1..=1.0).contains(e)), "{}", preset.id);
            assert!(preset.a64 >= 1.0 && preset.kx >= 0.0, "{}", preset.id);
            // The step formula takes the root of a sum of squares.
            assert_eq!(preset.q, 2.0, "{}", preset.id);
        }
    }

    #[test]
    fn the_trust_line_names_level_basis_and_error() {
        let text = lookup(gpus::find("h100").unwrap(), Fp8).to_string();
        assert_eq!(
            text,
            "preset H100/8 (this GPU): 51 serving runs, 832 kernel-table steps; mean ITL error \
             4.1 % on them, 6.3 % on models left out"
        );
        let text = lookup(gpus::find("mi300x").unwrap(), Bits16).to_string();
        assert!(text.contains("all GPUs of the fit, not this one"), "{text}");
    }
}
