//! Reads the shape of a model from its `config.json`, as Hugging Face publishes it.
//!
//! What a simulation could only get wrong is refused by name: linear and sparse attention,
//! state-space layers, encoders, layers of unequal shape.

use std::fs;
use std::path::Path;

use serde_json::{Map, Value};

use super::geometry::{Attention, ModelGeometry, Moe, Window, WindowKind};
use super::precision::{TorchDtype, WeightPrecision};
use crate::diag::{Error, Result, Warning};
use fields::Fields;

mod fields;
mod quantization;

// Limits no model comes near, so that products of three fields stay exact in 64 bits.
const LAYERS_MAX: u64 = 1 << 12;
const HEADS_MAX: u64 = 1 << 12;
const HEAD_DIM_MAX: u64 = 1 << 12;
const WIDTH_MAX: u64 = 1 << 20;
const EXPERTS_MAX: u64 = 1 << 14;
const VOCAB_MAX: u64 = 1 << 24;
const CONTEXT_MAX: u64 = 1 << 32;

/// Layers of Llama-4 from one that sees the whole context to the next.
const LLAMA4_FULL_EVERY: u64 = 4;

/// Keys that only architectures have which are not modelled.
const REFUSED_KEYS: [(&str, &str); 19] = [
    ("linear_num_key_heads", "linear attention"),
    ("linear_num_value_heads", "linear attention"),
    ("linear_attn_config", "linear attention"),
    ("attn_type_list", "linear attention"),
    ("index_topk", "sparse attention"),
    ("index_n_heads", "sparse attention"),
    ("compress_ratios", "sparse attention"),
    ("mamba_d_state", "state-space (Mamba) layers"),
    ("mamba_d_conv", "state-space (Mamba) layers"),
    ("mamba_num_heads", "state-space (Mamba) layers"),
    ("ssm_state_size", "state-space (Mamba) layers"),
    ("hybrid_override_pattern", "state-space (Mamba) layers"),
    ("layers_block_type", "layers of several kinds"),
    ("attn_layer_period", "layers of several kinds"),
    ("block_configs", "layers of unequal shape"),
    ("num_kv_shared_layers", "KV caches shared between layers"),
    ("cross_attention_layers", "cross-attention"),
    ("encoder_layers", "an encoder"),
    ("state_size", "state-space (Mamba) layers"),
];

/// Keys of draft layers that come with a checkpoint and stay idle unless they are switched on.
const DRAFT_KEYS: [&str; 3] =
    ["num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_modules"];

/// Reads a `config.json`.
///
/// # Errors
/// The file cannot be read or is no JSON, a key is missing or of the wrong type, or the model is
/// of a kind that is not modelled.
pub fn read(path: &Path) -> Result<(ModelGeometry, Vec<Warning>)> {
    let text =
        fs::read_to_string(path).map_err(|e| Error::io(path, "read the model config", &e))?;
    parse(path, &text)
}

/// Reads the text of a `config.json`; `path` is only named.
///
/// # Errors
/// As [`read`].
pub fn parse(path: &Path, text: &str) -> Result<(ModelGeometry, Vec<Warning>)> {
    let root: Map<String, Value> = serde_json::from_str(text).map_err(|e| {
        Error::new(format!("not a JSON object: {e}"))
            .in_file(path.display())
            .at_line(e.line() as u64)
            .at_column(e.column() as u64)
    })?;
    let top = Fields::new(path, "", &root);
    // Models that also see pictures keep the shape of the language model one level down.
    let fields = match top.object("text_config")? {
        Some(object) => Fields::new(path, "text_config.", object),
        None => top,
    };
    refuse_unmodelled(&fields)?;
    let mut notes = Vec::new();
    note_drafts(&fields, &mut notes)?;

    let layers = fields.positive("num_hidden_layers", LAYERS_MAX)?;
    let hidden = fields.positive("hidden_size", WIDTH_MAX)?;
    let heads = fields.positive("num_attention_heads", HEADS_MAX)?;
    let max_context = fields.positive("max_position_embeddings", CONTEXT_MAX)?;
    let moe = read_moe(&fields, layers, hidden)?;
    let plain_layers = layers - moe.map_or(0, |moe| moe.layers);
    let tied = fields.boolean("tie_word_embeddings")?.or(top.boolean("tie_word_embeddings")?);
    let geometry = ModelGeometry {
        name: path.display().to_string(),
        layers,
        hidden,
        heads,
        attention: read_attention(&fields, hidden, heads)?,
        window: read_window(&fields, layers, max_context)?,
        ffn: if plain_layers == 0 { 0 } else { read_ffn(&fields)? },
        moe,
        vocab: fields.positive("vocab_size", VOCAB_MAX)?,
        tied_embeddings: tied.unwrap_or_else(|| ties_by_default(&fields)),
        dtype: read_dtype(&fields, &top, &mut notes)?,
        quantization: read_quantization(&fields, &top, path, &mut notes)?,
        max_context,
    };
    Ok((geometry, notes))
}

fn refuse_unmodelled(fields: &Fields) -> Result<()> {
    for (key, what) in REFUSED_KEYS {
        if fields.get(key).is_some_and(|value| value != &Value::from(0)) {
            return Err(fields.error(key, format!("{what}: not modelled")));
        }
    }
    let kinds = fields.texts("layer_types")?.unwrap_or_default();
    let known = ["full_attention", "sliding_attention", "chunked_attention"];
    if let Some(kind) = kinds.iter().find(|kind| !known.contains(kind)) {
        return Err(fields.error("layer_types", format!("`{kind}` layers: not modelled")));
    }
    if fields.boolean("is_encoder_decoder")? == Some(true) {
        return Err(fields.error("is_encoder_decoder", "an encoder: not modelled"));
    }
    Ok(())
}

fn note_drafts(fields: &Fields, notes: &mut Vec<Warning>) -> Result<()> {
    for key in DRAFT_KEYS {
        if fields.integer(key, LAYERS_MAX)?.is_some_and(|layers| layers > 0) {
            notes.push(Warning(format!(
                "`{key}`: the draft layers of the checkpoint are left out; speculative decoding \
                 is not modelled and is off in vLLM unless asked for"
            )));
            break;
        }
    }
    Ok(())
}

fn read_attention(fields: &Fields, hidden: u64, heads: u64) -> Result<Attention> {
    if fields.get("kv_lora_rank").is_some() {
        return Ok(Attention::Latent {
            q_lora_rank: fields.integer("q_lora_rank", WIDTH_MAX)?,
            kv_lora_rank: fields.positive("kv_lora_rank", WIDTH_MAX)?,
            qk_nope_head_dim: fields.positive("qk_nope_head_dim", HEAD_DIM_MAX)?,
            qk_rope_head_dim: fields.positive("qk_rope_head_dim", HEAD_DIM_MAX)?,
            v_head_dim: fields.positive("v_head_dim", HEAD_DIM_MAX)?,
        });
    }
    let kv_heads = match fields.get("num_key_value_heads") {
        Some(_) => fields.positive("num_key_value_heads", HEADS_MAX)?,
        None => heads,
    };
    if kv_heads > heads || !heads.is_multiple_of(kv_heads) {
        let allowed = format!("a divisor of the {heads} attention heads");
        return Err(
            fields.error("num_key_value_heads", format!("found `{kv_heads}`, allowed: {allowed}"))
        );
    }
    let head_dim = match fields.get("head_dim") {
        Some(_) => fields.positive("head_dim", HEAD_DIM_MAX)?,
        None if hidden.is_multiple_of(heads) => hidden / heads,
        None => {
            let why = format!("missing key, and {heads} heads do not divide {hidden}");
            return Err(fields.error("head_dim", why));
        }
    };
    Ok(Attention::Grouped { kv_heads, head_dim })
}

/// The layers that see less than the whole context: as `layer_types` lists them, or by the rule of
/// the model family.
fn read_window(fields: &Fields, layers: u64, max_context: u64) -> Result<Option<Window>> {
    if let Some(tokens) = fields.integer("attention_chunk_size", CONTEXT_MAX)?.filter(|&n| n > 0) {
        let chunked = match fields.texts("layer_types")? {
            Some(kinds) => count(&kinds, "chunked_attention"),
            None => llama4_chunked(fields, layers)?,
        };
        return windowed(fields, WindowKind::Chunked, tokens, chunked, layers, max_context);
    }
    let Some(tokens) = fields.integer("sliding_window", CONTEXT_MAX)?.filter(|&n| n > 0) else {
        return Ok(None);
    };
    if fields.boolean("use_sliding_window")? == Some(false) {
        return Ok(None);
    }
    let family = fields.text("model_type")?.unwrap_or_default();
    let pattern =
        fields.any_integer(&["sliding_window_pattern", "_sliding_window_pattern"], 1024)?;
    let sliding = if let Some(kinds) = fields.texts("layer_types")? {
        if kinds.len() as u64 != layers {
            let why = format!("lists {} layers, num_hidden_layers is {layers}", kinds.len());
            return Err(fields.error("layer_types", why));
        }
        count(&kinds, "sliding_attention")
    } else if let Some(every) = pattern.filter(|&n| n > 0) {
        layers - layers / every
    } else if family.starts_with("gemma2") {
        layers.div_ceil(2)
    } else if family.starts_with("gemma3") {
        layers - layers / 6
    } else if family.starts_with("qwen") {
        // In this family the layers from this one on slide.
        layers.saturating_sub(fields.integer("max_window_layers", LAYERS_MAX)?.unwrap_or(layers))
    } else {
        layers
    };
    windowed(fields, WindowKind::Sliding, tokens, sliding, layers, max_context)
}

fn count(kinds: &[&str], wanted: &str) -> u64 {
    kinds.iter().filter(|kind| **kind == wanted).count() as u64
}

/// In Llama-4 the layers without rotary position see the whole context: every fourth, unless they
/// are listed.
fn llama4_chunked(fields: &Fields, layers: u64) -> Result<u64> {
    let listed = fields.integers("no_rope_layers")?.unwrap_or_default();
    if listed.is_empty() {
        return Ok(layers - layers / LLAMA4_FULL_EVERY);
    }
    // Despite the key's name, 1 marks a layer that has rotary position.
    Ok(listed.iter().filter(|&&rotary| rotary != 0).count() as u64)
}

fn windowed(
    fields: &Fields,
    kind: WindowKind,
    tokens: u64,
    windowed_layers: u64,
    layers: u64,
    max_context: u64,
) -> Result<Option<Window>> {
    if windowed_layers == 0 || tokens >= max_context {
        return Ok(None);
    }
    if windowed_layers >= layers {
        let key = match kind {
            WindowKind::Sliding => "sliding_window",
            WindowKind::Chunked => "attention_chunk_size",
        };
        return Err(fields.error(key, "a window in every layer: not modelled"));
    }
    Ok(Some(Window { kind, tokens, layers: windowed_layers }))
}

fn read_ffn(fields: &Fields) -> Result<u64> {
    // Llama-4 gives its layers without experts a width of their own.
    fields.any_positive(
        &["intermediate_size_mlp", "intermediate_size", "n_inner", "ffn_hidden_size"],
        WIDTH_MAX,
    )
}

fn read_moe(fields: &Fields, layers: u64, hidden: u64) -> Result<Option<Moe>> {
    let keys = ["num_local_experts", "n_routed_experts", "num_experts"];
    let experts = fields.any_integer(&keys, EXPERTS_MAX)?.unwrap_or(0);
    if experts == 0 {
        return Ok(None);
    }
    let moe_layers = count_moe_layers(fields, layers)?;
    if moe_layers == 0 {
        return Ok(None);
    }
    let keys = ["num_experts_per_tok", "experts_per_token", "moe_topk"];
    let experts_per_token = fields.any_positive(&keys, EXPERTS_MAX)?;
    if experts_per_token > experts {
        let why = format!("found `{experts_per_token}`, allowed: at most the {experts} experts");
        return Err(fields.error(keys[0], why));
    }
    let keys = ["moe_intermediate_size", "intermediate_size"];
    let expert_width = fields.any_positive(&keys, WIDTH_MAX)?;
    let shared_params = 3 * hidden * shared_width(fields, expert_width)?;
    Ok(Some(Moe { layers: moe_layers, experts, experts_per_token, expert_width, shared_params }))
}

/// Inner width of a layer's shared experts together.
fn shared_width(fields: &Fields, expert_width: u64) -> Result<u64> {
    if let Some(count) = fields.any_integer(&["n_shared_experts", "num_shared_experts"], 64)? {
        return Ok(count * expert_width);
    }
    let keys = [
        "shared_expert_intermediate_size",
        "shared_experts_intermediate_size",
        "shared_intermediate_size",
    ];
    if let Some(width) = fields.any_integer(&keys, WIDTH_MAX)? {
        return Ok(width);
    }
    // Llama-4 has one shared expert beside the routed ones and no key that says so.
    let llama4 = fields.text("model_type")?.is_some_and(|family| family.starts_with("llama4"));
    Ok(if llama4 { expert_width } else { 0 })
}

/// Layers with experts. Families leave out the first ones, listed ones, or all but every n-th.
fn count_moe_layers(fields: &Fields, layers: u64) -> Result<u64> {
    let first = fields.integer("first_k_dense_replace", LAYERS_MAX)?.unwrap_or(0);
    let plain = fields.integers("mlp_only_layers")?.unwrap_or_default();
    // Counted from layer 0 (DeepSeek) or with the last layer of each stretch (Qwen, Llama-4).
    let step_from_first = fields.integer("moe_layer_freq", LAYERS_MAX)?.unwrap_or(1).max(1);
    let keys = ["decoder_sparse_step", "interleave_moe_layer_step"];
    let step_to_last = fields.any_integer(&keys, LAYERS_MAX)?.unwrap_or(1);
    if step_to_last == 0 {
        return Ok(0);
    }
    let has_experts = |layer: &u64| {
        *layer >= first
            && layer.is_multiple_of(step_from_first)
            && (layer + 1).is_multiple_of(step_to_last)
            && !plain.contains(layer)
    };
    Ok((0..layers).filter(has_experts).count() as u64)
}

/// What an absent `tie_word_embeddings` means.
fn ties_by_default(fields: &Fields) -> bool {
    let family = fields.text("model_type").ok().flatten().unwrap_or_default();
    family.starts_with("gemma") || family.starts_with("cohere")
}

fn read_dtype(fields: &Fields, top: &Fields, notes: &mut Vec<Warning>) -> Result<TorchDtype> {
    for place in [fields, top] {
        for key in ["torch_dtype", "dtype"] {
            let Some(text) = place.text(key)? else { continue };
            return match text.strip_prefix("torch.").unwrap_or(text) {
                "bfloat16" => Ok(TorchDtype::Bf16),
                "float16" | "half" => Ok(TorchDtype::Fp16),
                "float32" | "float" => {
                    notes
                        .push(Warning(format!("`{key}` is float32: run in 16 bits, as vLLM does")));
                    Ok(TorchDtype::Bf16)
                }
                _ => Err(place
                    .error(key, format!("found `{text}`, allowed: bfloat16, float16, float32"))),
            };
        }
    }
    notes.push(Warning("no `torch_dtype`: activations and KV cache taken as BF16".to_owned()));
    Ok(TorchDtype::Bf16)
}

fn read_quantization(
    fields: &Fields,
    top: &Fields,
    path: &Path,
    notes: &mut Vec<Warning>,
) -> Result<WeightPrecision> {
    if let Some(object) = fields.object("quantization_config")? {
        return quantization::read(&Fields::new(path, "quantization_config.", object), notes);
    }
    match top.object("quantization_config")? {
        Some(object) => {
            quantization::read(&Fields::new(path, "quantization_config.", object), notes)
        }
        None => Ok(WeightPrecision::Bits16),
    }
}
