//! In what precision weights and the KV cache are stored, and at what rate weights are multiplied.

use serde::Deserialize;

use super::gpus::{Arch, GpuSpec};
use crate::diag::{Error, Result};

/// How the weights of the linear layers are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub enum WeightPrecision {
    /// BF16 or FP16.
    #[serde(rename = "bf16")]
    Bits16,
    /// FP8, weights and activations.
    #[serde(rename = "fp8")]
    Fp8,
    /// NVIDIA's 4-bit float, one 8-bit scale per 16 weights.
    #[serde(rename = "nvfp4")]
    Nvfp4,
    /// The OCP 4-bit float, one 8-bit scale per 32 weights.
    #[serde(rename = "mxfp4")]
    Mxfp4,
    /// 4-bit integers with group scales (AWQ, GPTQ, compressed-tensors).
    #[serde(rename = "int4")]
    Int4,
}

/// What `--quantization` accepts: each spelling with what it means.
const WEIGHT_NAMES: [(&str, WeightPrecision); 15] = [
    ("bf16", WeightPrecision::Bits16),
    ("bfloat16", WeightPrecision::Bits16),
    ("fp16", WeightPrecision::Bits16),
    ("float16", WeightPrecision::Bits16),
    ("fp8", WeightPrecision::Fp8),
    ("fbgemm_fp8", WeightPrecision::Fp8),
    ("nvfp4", WeightPrecision::Nvfp4),
    ("modelopt_fp4", WeightPrecision::Nvfp4),
    ("mxfp4", WeightPrecision::Mxfp4),
    ("int4", WeightPrecision::Int4),
    ("w4a16", WeightPrecision::Int4),
    ("awq", WeightPrecision::Int4),
    ("awq_marlin", WeightPrecision::Int4),
    ("gptq", WeightPrecision::Int4),
    ("gptq_marlin", WeightPrecision::Int4),
];

impl WeightPrecision {
    /// Reads a name as `--quantization` and model names spell it.
    ///
    /// # Errors
    /// An unknown name; 8-bit integers are refused by name.
    pub fn parse(text: &str) -> Result<Self> {
        let lower = text.to_ascii_lowercase();
        if matches!(lower.as_str(), "int8" | "w8a8" | "bitsandbytes" | "gguf") {
            return Err(Error::new(format!("weights in `{lower}` are not modelled"))
                .help("modelled: bf16, fp8, nvfp4, mxfp4, int4 (awq, gptq)"));
        }
        WEIGHT_NAMES
            .iter()
            .find(|(name, _)| *name == lower)
            .map(|&(_, precision)| precision)
            .ok_or_else(|| {
                Error::unknown("weight precision", text, WEIGHT_NAMES.iter().map(|&(name, _)| name))
            })
    }

    /// Its short name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Bits16 => "bf16",
            Self::Fp8 => "fp8",
            Self::Nvfp4 => "nvfp4",
            Self::Mxfp4 => "mxfp4",
            Self::Int4 => "int4",
        }
    }

    /// Nominal bits a weight: 16, 8 or 4, which choose the preset.
    #[must_use]
    pub const fn bits(self) -> u32 {
        match self {
            Self::Bits16 => 16,
            Self::Fp8 => 8,
            Self::Nvfp4 | Self::Mxfp4 | Self::Int4 => 4,
        }
    }

    /// Bytes a quantised weight takes, its share of the scales included.
    #[must_use]
    pub const fn bytes(self) -> f64 {
        match self {
            Self::Bits16 => 2.0,
            Self::Fp8 => 1.0,
            Self::Nvfp4 | Self::Mxfp4 => 0.56,
            Self::Int4 => 0.53,
        }
    }

    /// Bytes a weight outside the routed experts takes. 4-bit checkpoints of mixture-of-experts
    /// models quantise the experts and leave attention, shared experts and router at 16 bits.
    #[must_use]
    pub const fn other_bytes(self, has_experts: bool) -> f64 {
        if has_experts && self.bits() == 4 { 2.0 } else { self.bytes() }
    }
}

/// At what rate weights of one precision are multiplied on one GPU.
#[derive(Clone, Debug, PartialEq)]
pub struct GemmPeak {
    /// Dense peak in TFLOP/s.
    pub tflops: f64,
    /// Said when the GPU has no tensor cores for the precision.
    pub note: Option<String>,
}

/// The data-sheet peak at which `gpu` multiplies weights stored in `precision`.
///
/// A GPU without arithmetic in the precision reads the small weights and multiplies at 16 bits, as
/// vLLM's weight-only kernels do; the note says so. MXFP4 on Blackwell multiplies at the 8-bit
/// peak, because its activations have 8 bits.
///
/// # Errors
/// NVFP4 on an AMD GPU, for which there are no kernels.
pub fn gemm_peak(gpu: &GpuSpec, precision: WeightPrecision) -> Result<GemmPeak> {
    if precision == WeightPrecision::Nvfp4 && gpu.arch.is_amd() {
        return Err(Error::new(format!("{} has no kernels for NVFP4 weights", gpu.name))
            .help("allowed on this GPU: bf16, fp8, mxfp4, int4"));
    }
    let native = match precision {
        WeightPrecision::Bits16 | WeightPrecision::Int4 => Some(gpu.tflops_16),
        WeightPrecision::Fp8 => gpu.tflops_8,
        WeightPrecision::Nvfp4 => gpu.tflops_4,
        WeightPrecision::Mxfp4 => match gpu.arch {
            Arch::Blackwell | Arch::BlackwellWs => gpu.tflops_8,
            _ => None,
        },
    };
    let note = native.is_none().then(|| {
        format!(
            "{} weights on {}: read at {} bytes a weight, multiplied at the 16-bit peak of {} \
             TFLOP/s",
            precision.name(),
            gpu.name,
            precision.bytes(),
            gpu.tflops_16
        )
    });
    Ok(GemmPeak { tflops: native.unwrap_or(gpu.tflops_16), note })
}

/// The 16-bit format of activations, and of the KV cache unless another is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub enum TorchDtype {
    /// bfloat16.
    #[serde(rename = "bf16")]
    Bf16,
    /// float16.
    #[serde(rename = "fp16")]
    Fp16,
}

/// How keys and values are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KvDtype {
    /// BF16, 2 bytes.
    Bf16,
    /// FP16, 2 bytes.
    Fp16,
    /// FP8, 1 byte.
    Fp8,
}

/// What `--kv-cache-dtype` accepts besides `auto`.
const KV_NAMES: [(&str, KvDtype); 8] = [
    ("bf16", KvDtype::Bf16),
    ("bfloat16", KvDtype::Bf16),
    ("fp16", KvDtype::Fp16),
    ("float16", KvDtype::Fp16),
    ("half", KvDtype::Fp16),
    ("fp8", KvDtype::Fp8),
    ("fp8_e4m3", KvDtype::Fp8),
    ("fp8_e5m2", KvDtype::Fp8),
];

impl KvDtype {
    /// Reads a name as `--kv-cache-dtype` spells it; `auto` is the model's own 16-bit format,
    /// whatever the weights are quantised to.
    ///
    /// # Errors
    /// An unknown name.
    pub fn parse(text: &str, model: TorchDtype) -> Result<Self> {
        let lower = text.to_ascii_lowercase();
        if lower == "auto" {
            return Ok(Self::of(model));
        }
        KV_NAMES.iter().find(|(name, _)| *name == lower).map(|&(_, dtype)| dtype).ok_or_else(|| {
            let known = std::iter::once("auto").chain(KV_NAMES.iter().map(|&(name, _)| name));
            Error::unknown("KV-cache dtype", text, known)
        })
    }

    /// The model's own format.
    #[must_use]
    pub const fn of(model: TorchDtype) -> Self {
        match model {
            TorchDtype::Bf16 => Self::Bf16,
            TorchDtype::Fp16 => Self::Fp16,
        }
    }

    /// Its short name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Bf16 => "bf16",
            Self::Fp16 => "fp16",
            Self::Fp8 => "fp8",
        }
    }

    /// Bytes an element takes.
    #[must_use]
    pub const fn bytes(self) -> u64 {
        match self {
            Self::Bf16 | Self::Fp16 => 2,
            Self::Fp8 => 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::gpus;

    #[test]
    fn only_experts_are_quantised_to_four_bits() {
        assert_eq!(WeightPrecision::Nvfp4.other_bytes(true), 2.0);
        assert_eq!(WeightPrecision::Nvfp4.other_bytes(false), 0.56);
        assert_eq!(WeightPrecision::Fp8.other_bytes(true), 1.0);
    }

    #[test]
    fn peaks_fall_back_to_16_bits_and_say_so() {
        let peak = |gpu: &str, precision| gemm_peak(gpus::find(gpu).unwrap(), precision).unwrap();
        assert_eq!(peak("H100", WeightPrecision::Fp8).tflops, 1979.0);
        assert_eq!(peak("B200", WeightPrecision::Nvfp4).tflops, 9000.0);
        assert_eq!(peak("B200", WeightPrecision::Mxfp4).tflops, 4500.0);
        assert_eq!(peak("H100", WeightPrecision::Mxfp4).tflops, 989.0);
        let a100 = peak("A100", WeightPrecision::Fp8);
        assert_eq!(a100.tflops, 312.0);
        assert!(a100.note.unwrap().contains("16-bit peak of 312 TFLOP/s"));
        assert_eq!(peak("A100", WeightPrecision::Int4).note, None);
        assert!(gemm_peak(gpus::find("MI355X").unwrap(), WeightPrecision::Nvfp4).is_err());
    }

    #[test]
    fn unknown_precisions_are_refused_with_the_nearest() {
        let text = WeightPrecision::parse("nvfp5").unwrap_err().to_string();
        assert!(text.contains("did you mean `nvfp4`?"), "{text}");
        assert!(WeightPrecision::parse("int8").unwrap_err().message().contains("not modelled"));
        assert_eq!(KvDtype::parse("AUTO", TorchDtype::Fp16), Ok(KvDtype::Fp16));
        assert!(KvDtype::parse("fp8_e4m4", TorchDtype::Bf16).is_err());
    }
}
