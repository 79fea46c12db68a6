//! The catalogue of models, from `data/models.csv`, and the one way to name a model.

use std::path::Path;
use std::sync::LazyLock;

use serde::Deserialize;

use super::geometry::{Attention, ModelGeometry, Moe, Window, WindowKind};
use super::model_config;
use super::precision::{TorchDtype, WeightPrecision};
use crate::diag::{Error, Result, Warning};

/// One row of the table.
#[derive(Debug, Deserialize)]
struct Row {
    name: String,
    aliases: String,
    layers: u64,
    hidden: u64,
    heads: u64,
    kv_heads: Option<u64>,
    head_dim: Option<u64>,
    q_lora_rank: Option<u64>,
    kv_lora_rank: Option<u64>,
    qk_nope_head_dim: Option<u64>,
    qk_rope_head_dim: Option<u64>,
    v_head_dim: Option<u64>,
    window_kind: String,
    window_tokens: Option<u64>,
    window_layers: Option<u64>,
    ffn: u64,
    moe_layers: Option<u64>,
    experts: Option<u64>,
    experts_per_token: Option<u64>,
    expert_width: Option<u64>,
    shared_expert_params: Option<u64>,
    vocab: u64,
    tied_embeddings: bool,
    dtype: TorchDtype,
    quantization: WeightPrecision,
    max_context: u64,
}

/// A model under its names.
#[derive(Debug)]
struct Entry {
    names: Vec<String>,
    geometry: ModelGeometry,
}

impl Entry {
    /// `None` if a column that the others call for is empty.
    fn from_row(row: Row) -> Option<Self> {
        let attention = match row.kv_lora_rank {
            None => Attention::Grouped { kv_heads: row.kv_heads?, head_dim: row.head_dim? },
            Some(kv_lora_rank) => Attention::Latent {
                q_lora_rank: row.q_lora_rank,
                kv_lora_rank,
                qk_nope_head_dim: row.qk_nope_head_dim?,
                qk_rope_head_dim: row.qk_rope_head_dim?,
                v_head_dim: row.v_head_dim?,
            },
        };
        let kind = match row.window_kind.as_str() {
            "" => None,
            "sliding" => Some(WindowKind::Sliding),
            "chunked" => Some(WindowKind::Chunked),
            _ => return None,
        };
        let window = match kind {
            None => None,
            Some(kind) => {
                Some(Window { kind, tokens: row.window_tokens?, layers: row.window_layers? })
            }
        };
        let moe = match row.experts {
            None => None,
            Some(experts) => Some(Moe {
                layers: row.moe_layers?,
                experts,
                experts_per_token: row.experts_per_token?,
                expert_width: row.expert_width?,
                shared_params: row.shared_expert_params?,
            }),
        };
        let aliases = row.aliases.split(';').filter(|alias| !alias.is_empty());
        let names = std::iter::once(row.name.as_str()).chain(aliases).map(plain).collect();
        let geometry = ModelGeometry {
            name: row.name,
            layers: row.layers,
            hidden: row.hidden,
            heads: row.heads,
            attention,
            window,
            ffn: row.ffn,
            moe,
            vocab: row.vocab,
            tied_embeddings: row.tied_embeddings,
            dtype: row.dtype,
            quantization: row.quantization,
            max_context: row.max_context,
        };
        Some(Self { names, geometry })
    }
}

static MODELS: LazyLock<Vec<Entry>> = LazyLock::new(|| {
    csv::Reader::from_reader(include_str!("data/models.csv").as_bytes())
        .deserialize()
        .map(|row| row.ok().and_then(Entry::from_row))
        .collect::<Option<_>>()
        .expect("the model table compiled in is well formed")
});

/// Models that are known by name but whose attention is not modelled: the start of the name as
/// [`plain`] leaves it, and what they use.
const NOT_MODELLED: [(&str, &str); 7] = [
    ("deepseek-v3.2", "sparse attention"),
    ("deepseek-v4", "sparse attention"),
    ("glm-5", "sparse attention"),
    ("qwen3.5", "linear attention"),
    ("qwen3-next", "linear attention"),
    ("kimi-linear", "linear attention"),
    ("nemotron-h", "state-space (Mamba) layers"),
];

/// Endings that name a way of training; the shape is that of the base model.
const TUNINGS: [&str; 7] = ["-2507", "-instruct", "-chat", "-hf", "-base", "-it", "-dynamic"];

/// Endings that name the precision of a checkpoint; the shape is that of the base model.
const PRECISIONS: [(&str, WeightPrecision); 11] = [
    ("-bf16", WeightPrecision::Bits16),
    ("-fp16", WeightPrecision::Bits16),
    ("-fp8", WeightPrecision::Fp8),
    ("-nvfp4", WeightPrecision::Nvfp4),
    ("-mxfp4", WeightPrecision::Mxfp4),
    ("-fp4", WeightPrecision::Nvfp4),
    ("-gptq-int4", WeightPrecision::Int4),
    ("-int4", WeightPrecision::Int4),
    ("-awq", WeightPrecision::Int4),
    ("-gptq", WeightPrecision::Int4),
    ("-w4a16", WeightPrecision::Int4),
];

/// The shapes of all models of the catalogue.
pub fn all() -> impl Iterator<Item = &'static ModelGeometry> {
    MODELS.iter().map(|entry| &entry.geometry)
}

/// The model of this name: without case, without the publisher before a slash, and with endings
/// such as `-Instruct` or `-FP8`, of which those that name a precision set it.
///
/// # Errors
/// An unknown name, with the nearest known one, or a model that is not modelled, with the reason.
pub fn find(name: &str) -> Result<ModelGeometry> {
    let mut wanted = plain(name);
    let refused = NOT_MODELLED.iter().find(|(start, _)| wanted.starts_with(start));
    if let Some((_, what)) = refused {
        return Err(
            Error::new(format!("`{name}` uses {what}, which is not modelled")).in_field("model")
        );
    }
    let mut precision = None;
    loop {
        let known = MODELS.iter().find(|entry| entry.names.contains(&wanted));
        if let Some(entry) = known {
            let mut geometry = entry.geometry.clone();
            geometry.quantization = precision.unwrap_or(geometry.quantization);
            return Ok(geometry);
        }
        let tuned = TUNINGS.iter().find_map(|ending| wanted.strip_suffix(ending));
        let stored = PRECISIONS
            .iter()
            .find_map(|&(ending, bits)| wanted.strip_suffix(ending).map(|rest| (rest, bits)));
        if let Some((rest, bits)) = stored {
            // The last ending is the outermost and says how this checkpoint is stored.
            precision.get_or_insert(bits);
            wanted = rest.to_owned();
        } else if let Some(rest) = tuned {
            wanted = rest.to_owned();
        } else {
            let known = MODELS.iter().map(|entry| entry.geometry.name.as_str());
            return Err(Error::unknown("model", name, known)
                .help("any other model can be given as the path of its config.json")
                .in_field("model"));
        }
    }
}

/// A model by name, or by the path of its `config.json` or of the directory that holds it.
///
/// # Errors
/// As [`find`] and [`model_config::read`].
pub fn resolve(name_or_path: &str) -> Result<(ModelGeometry, Vec<Warning>)> {
    let path = Path::new(name_or_path);
    if path.is_dir() {
        return model_config::read(&path.join("config.json"));
    }
    if path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("json")) {
        return model_config::read(path);
    }
    find(name_or_path).map(|geometry| (geometry, Vec::new()))
}

/// The name in lower case, without the publisher.
fn plain(name: &str) -> String {
    name.rsplit('/').next().unwrap_or(name).to_lowercase().replace('_', "-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spellings_of_one_model_meet() {
        for name in [
            "Qwen3-Coder-30B-A3B",
            "qwen3-coder-30b-a3b",
            "Qwen/Qwen3-Coder-30B-A3B-Instruct",
            "Qwen/Qwen3-Coder-30B-A3B-Instruct-FP8",
        ] {
            assert_eq!(find(name).unwrap().name, "Qwen3-Coder-30B-A3B", "{name}");
        }
        let scout = find("Llama-4-Scout-17B-16E-Instruct-FP8-dynamic").unwrap();
        assert_eq!(
            (scout.name.as_str(), scout.quantization),
            ("Llama-4-Scout", WeightPrecision::Fp8)
        );
        assert_eq!(find("Llama-2-70b-hf").unwrap().name, "Llama-2-70b");
        assert_eq!(find("mistralai/Mixtral-8x7B-Instruct-v0.1").unwrap().name, "Mixtral-8x7B");
    }

    #[test]
    fn an_ending_sets_the_precision_and_its_absence_keeps_the_native_one() {
        assert_eq!(find("gpt-oss-120b").unwrap().quantization, WeightPrecision::Mxfp4);
        assert_eq!(find("gpt-oss-120b-bf16").unwrap().quantization, WeightPrecision::Bits16);
        assert_eq!(find("nvidia/DeepSeek-R1-FP4").unwrap().quantization, WeightPrecision::Nvfp4);
        assert_eq!(find("DeepSeek-R1").unwrap().quantization, WeightPrecision::Fp8);
    }

    #[test]
    fn names_are_unambiguous() {
        for entry in MODELS.iter() {
            for name in &entry.names {
                assert_eq!(find(name).unwrap().name, entry.geometry.name);
            }
        }
    }

    #[test]
    fn unknown_and_unmodelled_names_say_what_to_do() {
        let text = find("Qwen3-Coder-31B").unwrap_err().to_string();
        assert!(text.contains("did you mean `Qwen3-Coder-30B-A3B`?"), "{text}");
        assert!(text.contains("config.json"), "{text}");
        let text = find("zai-org/GLM-5").unwrap_err().to_string();
        assert!(text.contains("uses sparse attention, which is not modelled"), "{text}");
        assert!(find("Qwen3.5-397B-A17B").unwrap_err().message().contains("linear attention"));
    }

    /// Totals in units of 10^7 as the models' makers count them, without norms and biases.
    #[test]
    fn parameters_add_up() {
        for (name, total) in [
            ("Llama-3.1-8B", 803),
            ("Llama-3.1-405B", 40_585),
            ("Qwen3-Coder-480B-A35B", 48_015),
            ("gpt-oss-120b", 11_679),
            ("DeepSeek-V3", 67_103),
            ("Kimi-K2", 102_641),
            ("GLM-4.5", 35_280),
            ("Llama-4-Maverick", 40_071),
        ] {
            let params = find(name).unwrap().total_params() as f64 / 1e7;
            assert!((params - f64::from(total)).abs() < 1.0, "{name}: {params}");
        }
    }
}
