//! How a checkpoint stores its weights, from `quantization_config`.

use serde_json::Value;

use super::fields::Fields;
use crate::config::precision::WeightPrecision;
use crate::diag::{Error, Result, Warning};

/// Reads the object under `quantization_config`.
pub(super) fn read(fields: &Fields, notes: &mut Vec<Warning>) -> Result<WeightPrecision> {
    if fields.get("kv_cache_scheme").is_some() || fields.get("kv_cache_quant_algo").is_some() {
        notes.push(Warning(
            "the checkpoint carries scales for a quantised KV cache; the KV cache is taken as \
             16-bit unless kv_cache_dtype says fp8"
                .to_owned(),
        ));
    }
    let method = fields.text("quant_method")?.unwrap_or_default();
    match method {
        "fp8" | "fbgemm_fp8" => Ok(WeightPrecision::Fp8),
        "mxfp4" => Ok(WeightPrecision::Mxfp4),
        "awq" | "gptq" | "awq_marlin" | "gptq_marlin" => {
            match fields.any_integer(&["bits", "w_bit"], 32)? {
                Some(4) | None => Ok(WeightPrecision::Int4),
                Some(bits) => Err(unmodelled(fields, "bits", &format!("{bits}-bit {method}"))),
            }
        }
        "compressed-tensors" => compressed_tensors(fields),
        _ if method.starts_with("modelopt") || fields.get("quant_algo").is_some() => {
            let algorithm = fields.text("quant_algo")?.unwrap_or(match method {
                "modelopt_fp4" => "NVFP4",
                _ => "FP8",
            });
            match algorithm.to_ascii_uppercase().as_str() {
                "FP8" => Ok(WeightPrecision::Fp8),
                "NVFP4" => Ok(WeightPrecision::Nvfp4),
                _ => Err(unmodelled(fields, "quant_algo", algorithm)),
            }
        }
        "" => Err(fields.error("quant_method", "missing key")),
        _ => Err(unmodelled(fields, "quant_method", method)),
    }
}

fn unmodelled(fields: &Fields, key: &str, found: &str) -> Error {
    fields
        .error(key, format!("quantisation `{found}` is not modelled"))
        .help("modelled: fp8, nvfp4, mxfp4, int4 (awq, gptq, compressed-tensors)")
}

/// Bits and number format of the weights of the first group; groups differ in the layers that they
/// are for, and all known checkpoints have one.
fn compressed_tensors(fields: &Fields) -> Result<WeightPrecision> {
    let groups = fields.object("config_groups")?;
    let weights = groups
        .and_then(|groups| groups.values().next())
        .and_then(|group| group.get("weights"))
        .ok_or_else(|| fields.error("config_groups", "missing key, or a group without weights"))?;
    let bits = weights.get("num_bits").and_then(Value::as_u64);
    let number = weights.get("type").and_then(Value::as_str).unwrap_or("int");
    let group_size = weights.get("group_size").and_then(Value::as_u64);
    match (bits, number) {
        (Some(8), "float") => Ok(WeightPrecision::Fp8),
        (Some(4), "int") => Ok(WeightPrecision::Int4),
        (Some(4), "float") if group_size == Some(32) => Ok(WeightPrecision::Mxfp4),
        (Some(4), "float") => Ok(WeightPrecision::Nvfp4),
        (Some(bits), _) => {
            Err(unmodelled(fields, "config_groups", &format!("{bits}-bit {number} weights")))
        }
        (None, _) => Err(fields.error("config_groups", "the weights have no `num_bits`")),
    }
}
