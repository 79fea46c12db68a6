//! Reading the shape of a model from its `config.json`.

use std::path::{Path, PathBuf};

use tonnage::config::geometry::{Attention, ModelGeometry, Moe, Window, WindowKind};
use tonnage::config::model_config;
use tonnage::config::precision::{TorchDtype, WeightPrecision};

fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/models").join(name)
}

fn read(name: &str) -> (ModelGeometry, String) {
    let (geometry, notes) = model_config::read(&path(name)).unwrap();
    (geometry, notes.iter().map(|note| format!("{note}\n")).collect())
}

fn error(name: &str) -> String {
    model_config::read(&path(name)).unwrap_err().to_string()
}

/// The dense config with one line replaced.
fn changed(from: &str, to: &str) -> Result<ModelGeometry, String> {
    let text = std::fs::read_to_string(path("dense.json")).unwrap();
    assert!(text.contains(from), "{from}");
    model_config::parse(Path::new("c.json"), &text.replace(from, to))
        .map(|(geometry, _)| geometry)
        .map_err(|e| e.to_string())
}

#[test]
fn a_dense_model() {
    let (model, notes) = read("dense.json");
    assert_eq!((model.layers, model.hidden, model.heads, model.ffn), (4, 256, 8, 640));
    assert_eq!(model.attention, Attention::Grouped { kv_heads: 2, head_dim: 32 });
    assert_eq!((model.window, model.moe), (None, None));
    assert_eq!((model.vocab, model.tied_embeddings, model.max_context), (1_000, true, 8_192));
    assert_eq!(model.dtype, TorchDtype::Fp16);
    assert_eq!(model.quantization, WeightPrecision::Bits16);
    assert_eq!(notes, "");
    // 256*32*(8 + 4) + 8*32*256 of attention and 3*256*640 of feed-forward in each of 4 layers,
    // and one matrix for embedding and output.
    assert_eq!(model.total_params(), 4 * (98_304 + 65_536 + 491_520) + 256_000);
}

#[test]
fn experts_in_some_layers() {
    let (model, _) = read("moe.json");
    // Of the layers 1, 3 and 5 the last is listed as plain.
    let moe = Moe {
        layers: 2,
        experts: 16,
        experts_per_token: 4,
        expert_width: 96,
        shared_params: 3 * 256 * 128,
    };
    assert_eq!(model.moe, Some(moe));
    assert_eq!((model.dense_layers(), model.ffn), (4, 640));
    assert!(!model.tied_embeddings);
}

#[test]
fn latent_attention_and_idle_draft_layers() {
    let (model, notes) = read("latent.json");
    assert_eq!((model.kv_elements(), model.kv_elements_per_gpu(8)), (80, 80));
    let moe = model.moe.unwrap();
    assert_eq!((moe.layers, moe.shared_params), (4, 3 * 256 * 2 * 96));
    assert_eq!(model.quantization, WeightPrecision::Fp8);
    assert!(notes.contains("num_nextn_predict_layers"), "{notes}");
    // 256*96 + 96*8*48 + 256*80 + 64*8*64 + 8*32*256
    assert_eq!(model.attention_params(), 180_224);
}

#[test]
fn sliding_layers_and_four_bit_experts() {
    let (model, notes) = read("sliding.json");
    let window = Window { kind: WindowKind::Sliding, tokens: 128, layers: 3 };
    assert_eq!(model.window, Some(window));
    assert_eq!(model.moe.unwrap().expert_width, 192);
    assert_eq!((model.dense_layers(), model.ffn), (0, 0));
    assert_eq!(model.quantization, WeightPrecision::Mxfp4);
    assert!(notes.contains("taken as BF16"), "{notes}");
}

#[test]
fn a_nested_config_with_chunked_attention() {
    let (model, _) = read("chunked.json");
    let window = Window { kind: WindowKind::Chunked, tokens: 512, layers: 6 };
    assert_eq!(model.window, Some(window));
    let moe = model.moe.unwrap();
    assert_eq!((moe.layers, moe.expert_width, moe.shared_params), (4, 192, 3 * 256 * 192));
    assert_eq!((model.dense_layers(), model.ffn), (4, 384));
    assert_eq!(model.quantization, WeightPrecision::Int4);
}

#[test]
fn what_is_not_modelled_is_refused_by_name() {
    let text = error("linear.json");
    assert!(text.ends_with("text_config.linear_num_key_heads: linear attention: not modelled"));
    assert!(error("sparse.json").ends_with("index_topk: sparse attention: not modelled"));
    let refused =
        |to: &str| changed("\"vocab_size\": 1000", &format!("\"vocab_size\": 1000, {to}"));
    let text = refused(r#""layer_types": ["full_attention", "mamba"]"#).unwrap_err();
    assert_eq!(text, "c.json: layer_types: `mamba` layers: not modelled");
    let text = refused(r#""ssm_state_size": 128"#).unwrap_err();
    assert_eq!(text, "c.json: ssm_state_size: state-space (Mamba) layers: not modelled");
    let text =
        refused(r#""quantization_config": {"quant_method": "gptq", "bits": 8}"#).unwrap_err();
    assert!(text.starts_with("c.json: quantization_config.bits: quantisation `8-bit gptq`"));
    let text = changed("\"use_sliding_window\": false,", "").unwrap_err();
    assert_eq!(text, "c.json: sliding_window: a window in every layer: not modelled");
}

#[test]
fn quantisations() {
    let of = |object: &str| {
        let to = format!("\"vocab_size\": 1000, \"quantization_config\": {object}");
        changed("\"vocab_size\": 1000", &to).map(|model| model.quantization)
    };
    let groups = |weights: &str| {
        let groups = format!(r#"{{"g": {{"weights": {weights}}}}}"#);
        of(&format!(r#"{{"quant_method": "compressed-tensors", "config_groups": {groups}}}"#))
    };
    assert_eq!(of(r#"{"quant_method": "awq", "bits": 4}"#), Ok(WeightPrecision::Int4));
    assert_eq!(
        of(r#"{"quant_method": "modelopt", "quant_algo": "NVFP4"}"#),
        Ok(WeightPrecision::Nvfp4)
    );
    assert_eq!(groups(r#"{"num_bits": 8, "type": "float"}"#), Ok(WeightPrecision::Fp8));
    assert_eq!(
        groups(r#"{"num_bits": 4, "type": "float", "group_size": 16}"#),
        Ok(WeightPrecision::Nvfp4)
    );
    assert!(groups(r#"{"num_bits": 8, "type": "int"}"#).unwrap_err().contains("8-bit int weights"));
    assert!(of("{}").unwrap_err().contains("quantization_config.quant_method: missing key"));
}

#[test]
fn errors_name_file_place_and_what_is_allowed() {
    let text = error("broken.json");
    assert!(text.contains("broken.json:4:3: not a JSON object"), "{text}");
    let text = changed("\"hidden_size\": 256,", "").unwrap_err();
    assert_eq!(text, "c.json: hidden_size: missing key");
    let text = changed("\"hidden_size\": 256", "\"hidden_size\": \"256\"").unwrap_err();
    assert_eq!(text, "c.json: hidden_size: found `\"256\"`, allowed: an integer from 0 to 1048576");
    let text = changed("\"num_key_value_heads\": 2", "\"num_key_value_heads\": 3").unwrap_err();
    assert!(text.contains("allowed: a divisor of the 8 attention heads"), "{text}");
    let text = changed("float16", "float8").unwrap_err();
    assert!(text.contains("torch_dtype: found `float8`, allowed: bfloat16"), "{text}");
    assert!(error("none.json").contains("cannot read the model config"));
}
