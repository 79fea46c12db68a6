//! The memory arithmetic against figures that vLLM printed.

use super::*;
use crate::config::{gpus, models};

fn find(model: &str, gpu: &str, device_mib: u64) -> (ModelGeometry, GpuSpec) {
    let mut gpu = gpus::find(gpu).unwrap().clone();
    gpu.hbm_mib = Some(device_mib);
    (models::find(model).unwrap(), gpu)
}

/// RTX 4090, Llama-3.1-8B BF16 on vLLM 0.19: its log says 2,588 blocks of 16 tokens.
#[test]
fn rtx_4090_blocks_are_as_logged() {
    let (model, gpu) = find("Llama-3.1-8B", "RTX4090", 24_564);
    let mut request = MemoryRequest::new(&model, &gpu, 1);
    request.gpu_memory_utilization = 0.9;
    request.vllm = VllmVersion::parse("0.19").unwrap();
    assert_eq!((request.max_num_batched_tokens, request.max_num_seqs), (Tokens(2_048), 256));
    let plan = plan(&request).unwrap();
    // 131,072 B a token x 16 = 2 MiB a block; 0.9 x 24,052 MiB - 14.96 - 1.11 GiB = 5.07 GiB.
    assert_eq!(plan.num_gpu_blocks, Blocks(2_596));
    assert!((plan.num_gpu_blocks.as_f64() / 2_588.0 - 1.0).abs() < 0.05);
}

/// Start-up logs that the reserve was chosen on: model, precision, device MiB, TP, utilisation,
/// batched tokens, sequences, version, logged weights in GiB if any, and the formula's own pool.
#[test]
fn pools_agree_with_the_formula_worked_elsewhere() {
    let b16 = WeightPrecision::Bits16;
    let fp8 = WeightPrecision::Fp8;
    let mxfp4 = WeightPrecision::Mxfp4;
    let rows = [
        ("Llama-3.1-8B", b16, 24_564, 1, 0.9, 2_048, 256, "0.19", None, 5.07),
        ("Qwen3-8B", b16, 40_960, 1, 0.9, 2_048, 256, "0.9.2", Some(15.2683), 19.06),
        ("Llama-3.1-8B", b16, 40_960, 1, 0.9, 2_048, 256, "0.19", None, 19.48),
        ("Llama-3.1-8B", b16, 49_140, 1, 0.9, 2_048, 256, "0.19", None, 26.67),
        ("Llama-3.1-8B", b16, 95_830, 1, 0.9, 8_192, 1_024, "0.19", None, 65.87),
        ("Llama-3.1-8B", b16, 24_564, 1, 0.9, 8_192, 256, "0.19", Some(14.96), 4.65),
        ("gpt-oss-20b", mxfp4, 81_920, 1, 0.65, 2_048, 256, "0.19", Some(13.72), 36.50),
        ("Llama-3.1-70B", fp8, 143_771, 4, 0.9, 8_192, 1_024, "0.19", Some(16.9619), 105.50),
        ("DeepSeek-R1", fp8, 143_771, 8, 0.9, 8_192, 1_024, "0.19", Some(79.739), 42.71),
        ("Qwen3-235B-A22B", fp8, 81_559, 4, 0.9, 8_192, 1_024, "0.9", None, 12.31),
        ("gpt-oss-120b", mxfp4, 81_559, 1, 0.95, 1_024, 1_024, "0.11", Some(65.9651), 4.89),
        ("Llama-3.1-8B", b16, 23_028, 1, 0.9, 2_048, 256, "0.7", Some(14.99), 3.69),
        ("Llama-3.1-8B", b16, 81_559, 1, 0.9, 8_192, 256, "0.6.5", Some(14.96), 54.74),
    ];
    for (name, weights, mib, tp, share, tokens, seqs, vllm, logged, pool) in rows {
        let (model, gpu) = find(name, "H100", mib);
        let plan = plan(&MemoryRequest {
            weights,
            gpu_memory_utilization: share,
            max_num_batched_tokens: Tokens(tokens),
            max_num_seqs: seqs,
            vllm: VllmVersion::parse(vllm).unwrap(),
            weights_logged: logged.map(|gib: f64| Bytes((gib * GIB as f64) as u64)),
            ..MemoryRequest::new(&model, &gpu, tp)
        })
        .unwrap();
        let computed = plan.pool.unwrap().gib();
        assert!((computed - pool).abs() < 0.0101, "{name} {mib}: {computed} against {pool}");
    }
}

#[test]
fn kv_of_a_sequence() {
    let (coder, gpu) = find("Qwen3-Coder-30B-A3B", "H100", 81_559);
    let fp8 = MemoryRequest { kv_dtype: KvDtype::Fp8, ..MemoryRequest::new(&coder, &gpu, 1) };
    let small = plan(&fp8).unwrap();
    assert_eq!(small.kv_per_token, Bytes(49_152));
    assert_eq!(small.sequence_bytes(Tokens(131_072)), Bytes(6 * GIB));

    let (coder, gpu) = find("Qwen3-Coder-480B-A35B", "B300", 275_040);
    let large = plan(&MemoryRequest::new(&coder, &gpu, 8)).unwrap();
    assert_eq!(large.kv_per_token, Bytes(253_952));
    assert_eq!(large.sequence_bytes(Tokens(262_144)), Bytes(62 * GIB));
}

/// A log of DeepSeek-R1 on eight H200: 41.60 GiB a GPU hold 635,648 tokens.
#[test]
fn latent_attention_is_not_cut() {
    let (model, gpu) = find("DeepSeek-R1", "H200", 143_771);
    let plan = plan(&MemoryRequest::new(&model, &gpu, 8)).unwrap();
    assert_eq!(plan.kv_per_token, Bytes(70_272));
    assert_eq!(plan.kv_per_token_gpu, Bytes(70_272));
    let tokens = 41.60 * GIB as f64 / plan.kv_per_token_gpu.as_f64();
    assert!((tokens / 635_648.0 - 1.0).abs() < 1e-3, "{tokens}");
}

#[test]
fn kv_heads_are_held_more_than_once_in_large_groups() {
    let (model, gpu) = find("Qwen3-Coder-30B-A3B", "H100", 81_559);
    let plan = plan(&MemoryRequest::new(&model, &gpu, 8)).unwrap();
    assert_eq!(plan.kv_per_token_gpu.0, plan.kv_per_token.0 / 4);
    assert!(plan.warnings.iter().any(|warning| warning.0.contains("held 2 times")));
}

#[test]
fn sliding_layers_set_their_window_aside() {
    let (model, gpu) = find("gpt-oss-20b", "H100", 81_559);
    let plan = plan(&MemoryRequest::new(&model, &gpu, 1)).unwrap();
    // 12 of 24 layers: 8 blocks of window and one more, in blocks of 12 layers.
    assert_eq!(plan.window_blocks, Blocks(9));
    assert_eq!(plan.sequence_blocks(Tokens(1_000)), Blocks(63 + 9));
    // 2,048 B a token and layer: 12 full layers, 12 with at most 128 tokens.
    assert_eq!(plan.kv_per_token_gpu, Bytes(24_576));
    assert_eq!(plan.sequence_bytes(Tokens(1_000)), Bytes(2_048 * 12 * 1_128));
    assert_eq!(plan.sequence_bytes(Tokens(100)), Bytes(2_048 * 24 * 100));
    assert!(plan.warnings.iter().any(|warning| warning.0.contains("hybrid KV cache groups")));
}

#[test]
fn what_does_not_fit_is_refused_with_the_arithmetic() {
    let (model, gpu) = find("Llama-3.1-70B", "H100", 81_559);
    let text = plan(&MemoryRequest::new(&model, &gpu, 1)).unwrap_err().to_string();
    assert!(text.contains("weights take 131.41 GiB (141.10 GB)"), "{text}");
    assert!(text.contains("it fits with tp 2"), "{text}");

    let (model, gpu) = find("Llama-3.1-8B", "RTX4090", 24_564);
    let mut request = MemoryRequest::new(&model, &gpu, 1);
    request.num_gpu_blocks = Some(Blocks(2_588));
    let plan = plan(&request).unwrap();
    assert_eq!(plan.num_gpu_blocks, Blocks(2_588));
    assert_eq!(plan.max_model_len(), Tokens(2_587 * 16));
    assert!(plan.check_context(Tokens(2_587 * 16)).is_ok());
    let text = plan.check_context(Tokens(2_587 * 16 + 1)).unwrap_err().to_string();
    assert!(text.contains("the largest max_model_len that fits is 41392"), "{text}");
}

#[test]
fn settings_out_of_range_are_refused() {
    let (model, gpu) = find("Llama-3.1-8B", "H100", 81_559);
    let good = MemoryRequest::new(&model, &gpu, 1);
    let field = |request: MemoryRequest| plan(&request).unwrap_err().place().field.clone().unwrap();
    assert_eq!(
        field(MemoryRequest { gpu_memory_utilization: 1.2, ..good.clone() }),
        "gpu_memory_utilization"
    );
    assert_eq!(field(MemoryRequest { block_size: 0, ..good.clone() }), "block_size");
    assert_eq!(field(MemoryRequest { tp: 3, ..good.clone() }), "tp");
    assert_eq!(field(MemoryRequest { tp: 16, ..good.clone() }), "tp");
    assert_eq!(
        field(MemoryRequest { num_gpu_blocks: Some(Blocks(1)), ..good }),
        "num_gpu_blocks_override"
    );
}

/// KV bytes of one GPU that vLLM logged on the nine starts that the reserve was chosen on, beside
/// the error of the computed ones in percent; public start-up logs, in GiB. Where the pool is
/// smaller than three reserves, as in the others of the test above, the error is unbounded.
#[test]
fn pools_are_near_the_logged_ones() {
    let b16 = WeightPrecision::Bits16;
    let fp8 = WeightPrecision::Fp8;
    let rows = [
        ("Llama-3.1-8B", b16, 24_564, 1, 0.9, 2_048, 256, None, 5.05, 0.3),
        ("Qwen3-8B", b16, 40_960, 1, 0.9, 2_048, 256, Some(15.2683), 18.69, 2.0),
        ("Llama-3.1-8B", b16, 40_960, 1, 0.9, 2_048, 256, None, 19.92, -2.2),
        ("Llama-3.1-8B", b16, 49_140, 1, 0.9, 2_048, 256, None, 27.08, -1.5),
        ("Llama-3.1-8B", b16, 95_830, 1, 0.9, 8_192, 1_024, None, 66.58, -1.1),
        ("Llama-3.1-8B", b16, 24_564, 1, 0.9, 8_192, 256, Some(14.96), 5.29, -12.1),
        (
            "gpt-oss-20b",
            WeightPrecision::Mxfp4,
            81_920,
            1,
            0.65,
            2_048,
            256,
            Some(13.72),
            36.56,
            -0.2,
        ),
        ("Llama-3.1-70B", fp8, 143_771, 4, 0.9, 8_192, 1_024, Some(16.9619), 106.17, -0.6),
        ("DeepSeek-R1", fp8, 143_771, 8, 0.9, 8_192, 1_024, Some(79.739), 41.6, 2.7),
    ];
    let mut sum = 0.0;
    for (name, weights, mib, tp, share, tokens, seqs, logged, pool, expected) in rows {
        let (model, gpu) = find(name, "H100", mib);
        let plan = plan(&MemoryRequest {
            weights,
            gpu_memory_utilization: share,
            max_num_batched_tokens: Tokens(tokens),
            max_num_seqs: seqs,
            vllm: VllmVersion::parse("0.19").unwrap(),
            weights_logged: logged.map(|gib: f64| Bytes((gib * GIB as f64) as u64)),
            ..MemoryRequest::new(&model, &gpu, tp)
        })
        .unwrap();
        let error = 100.0 * (plan.pool.unwrap().gib() / pool - 1.0);
        assert!((error - expected).abs() < 0.15, "{name} {mib}: {error} %");
        sum += error.abs();
    }
    assert!((sum / rows.len() as f64 - 2.5).abs() < 0.05, "mean {}", sum / rows.len() as f64);
}
