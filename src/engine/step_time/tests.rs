//! Steps worked by hand from the formula, and what must hold for every step.

use proptest::prelude::*;

use super::*;
use crate::config::geometry::{Window, WindowKind};
use crate::config::{gpus, models};
use crate::units::Span;
use WeightPrecision::{Bits16, Fp8, Int4, Mxfp4, Nvfp4};

fn cost(model: &str, gpu: &str, tp: u32, weights: WeightPrecision, kv_dtype: KvDtype) -> StepCost {
    let model = models::find(model).unwrap();
    let gpu = gpus::find(gpu).unwrap();
    StepCost::new(&StepSetup { model: &model, gpu, tp, dp: 1, weights, kv_dtype }).unwrap()
}

/// Terms in the order W, F, K, A, U, X, host, total, to 1e-9 of each.
fn assert_terms(time: &StepTime, expected: [f64; 8]) {
    let terms = [
        time.weights_ms,
        time.gemm_ms,
        time.kv_ms,
        time.attention_ms,
        time.elementwise_ms,
        time.network_ms,
        time.host_ms,
        time.total_ms(),
    ];
    for (name, (term, expected)) in
        ["W", "F", "K", "A", "U", "X", "host", "total"].iter().zip(terms.iter().zip(expected))
    {
        assert!((term - expected).abs() <= 1e-9 * expected.max(1e-9), "{name}: {term}, {expected}");
    }
}

/// Llama-3.1-8B BF16 on one H100, eight decodes at 1,000 to 8,000 tokens.
///
/// Attention 4096*128*(32+2*8) + 32*128*4096 = 41,943,040 weights, feed-forward 3*4096*14336 =
/// 176,160,768; 32 layers: 6,979,321,856. Output layer 128256*4096 = 525,336,576.
/// W = (6,979,321,856 + 525,336,576)*2 B / (0.939*3.35e12 B/s) = 4.771451644016 ms
/// F = (2*8*6,979,321,856 + 2*8*525,336,576) / (0.85*989e12/s) = 0.142835347543 ms
/// K = 36,000*32*(2*8*128)*2 B / (0.93*3.35e12 B/s) = 1.514553683197 ms
/// U = 2*8*4096*7*32 B / 3.35e12 B/s = 0.004382108656716 ms; one GPU, no prefill: A = X = 0
/// host = 0.125 + 32*0.0578 + 8*0.0199 = 2.1338 ms
/// total = 2.1338 + sqrt(W^2 + F^2) + U + K = 8.426324874263 ms
#[test]
fn decode_of_a_dense_model_by_hand() {
    let cost = cost("Llama-3.1-8B", "H100", 1, Bits16, KvDtype::Bf16);
    let mut load = cost.empty_load();
    (1..=8).for_each(|thousands| load.add_decode(thousands * 1_000));
    let time = cost.cost(&load);
    assert_terms(
        &time,
        [
            4.77145164401634,
            0.142835347543,
            1.514553683197,
            0.0,
            0.004382108656716,
            0.0,
            2.1338,
            8.426324874262587,
        ],
    );
    assert_eq!(cost.ticks(&load).whole(), Span(8_426_324));
}

/// Llama-3.1-70B FP8 on four H100 with FP8 KV: four decodes at 20,000 tokens and a last chunk of
/// 2,048 after 4,096. n = 2,052, five rows emit; weights of the layers 68,451,041,280, output layer
/// 128256*8192 = 1,050,673,152.
/// W = (68,451,041,280*1 + 1,050,673,152*2)/4 B / (0.946*3.35e12) = 5.565648574043 ms
/// F = (2*2052*68,451,041,280/4/1979e12 + 2*5*1,050,673,152/4/989e12)/0.607 = 58.468968964 ms
/// K = (1 + 0.0553)*80,000*80*(2*8*128)*1/4 B / (0.819*3.35e12) = 1.260367408379 ms
/// A = 2048*(4096 + 1024)*4*64*128*80/4 / (0.642*989e12) = 10.82302157628 ms
/// U = 2*2052*8192*7*80 / 3.35e12 = 5.620054352239 ms
/// X = 160*(2*3/4*2052*8192*2/(0.471*450e9) + 2.35e-6 s) = 38.44531974522 ms
/// host = 0.148 + 80*0.0677 + 4*0.0256 = 5.6664 ms
#[test]
fn a_mixed_step_on_four_gpus_by_hand() {
    let cost = cost("Llama-3.1-70B", "H100", 4, Fp8, KvDtype::Fp8);
    let mut load = cost.empty_load();
    (0..4).for_each(|_| load.add_decode(20_000));
    load.add_prefill(4_096, 2_048, true);
    assert_terms(
        &cost.cost(&load),
        [
            5.565648574043,
            58.46896896402,
            1.260367408379,
            10.82302157628,
            5.620054352239,
            38.44531974522293,
            5.6664,
            120.54843113154475,
        ],
    );
}

/// gpt-oss-120b MXFP4 on two H100: decodes at 100 and 50,000 tokens, a last chunk of 50 after 100
/// and one of 1,024 after 8,192. Half of the 36 layers see 128 tokens, heads are 64 wide.
/// Weights outside the experts: 36*(2880*64*80 + 64*64*2880 + 2880*128) = 968,785,920 at 2 B; an
/// expert 3*2880*2880 = 24,883,200 at 0.56 B; n = 1,076, all 128 experts touched to 13 digits.
/// K: contexts 18*(100 + 50,000) + 18*(100 + 128) = 905,904 token-layers of 2*8*64*2/2 B, times
/// 1.0708, / (0.931*3.35e12) = 0.3184901522282 ms
/// A: pairs 18*(50*125 + 1024*8704) + 18*(50*125 + 1024*128), times 4*64*64/2*1.25 /
/// (0.642*989e12) = 2.629056981564 ms
#[test]
fn windows_and_experts_by_hand() {
    let cost = cost("gpt-oss-120b", "H100", 2, Mxfp4, KvDtype::Bf16);
    let mut load = cost.empty_load();
    load.add_decode(100);
    load.add_decode(50_000);
    load.add_prefill(100, 50, true);
    load.add_prefill(8_192, 1_024, false);
    assert_terms(
        &cost.cost(&load),
        [
            10.57446011877,
            10.29968655426,
            0.3184901522282,
            2.629056981564,
            2.730714555224,
            4.702496385542,
            2.39772,
            27.54000746414,
        ],
    );
}

/// DeepSeek-V3 FP8 on eight H200: ten decodes at 60,000 tokens and a whole prompt of 500. Latent
/// attention reads 61*576*2 B a token on every GPU; prefill multiplies 128*(192+128)/2 a layer.
/// n = 510: 256*(1 - (248/256)^510) = 255.99997621983 experts a layer.
#[test]
fn latent_attention_by_hand() {
    let cost = cost("DeepSeek-V3", "H200", 8, Fp8, KvDtype::Bf16);
    let mut load = cost.empty_load();
    (0..10).for_each(|_| load.add_decode(60_000));
    load.add_prefill(0, 500, true);
    assert_terms(
        &cost.cost(&load),
        [
            20.04460658772,
            3.298664523566,
            10.05744259459,
            0.1231644816854,
            6.6579072,
            7.320546666667,
            7.14,
            51.61327864621,
        ],
    );
}

#[test]
fn taking_a_decode_back_leaves_no_trace() {
    let cost = cost("gpt-oss-20b", "H100", 1, Mxfp4, KvDtype::Bf16);
    let mut load = cost.empty_load();
    load.add_decode(77);
    let before = load;
    load.add_decode(5_000);
    load.remove_decode(5_000);
    assert_eq!(load, before);
    load.clear();
    assert_eq!(load, cost.empty_load());
}

#[test]
fn unequal_contexts_cost_what_their_mean_costs() {
    let cost = cost("Qwen3-32B", "H100", 2, Bits16, KvDtype::Bf16);
    let (mut equal, mut unequal) = (cost.empty_load(), cost.empty_load());
    for context in [1_000, 1_000, 1_000, 61_000] {
        unequal.add_decode(context);
        equal.add_decode(16_000);
    }
    assert_eq!(cost.cost(&equal), cost.cost(&unequal));
}

#[test]
fn factors_scale_their_groups_and_cannot_beat_the_data_sheet() {
    let cost = cost("Llama-3.1-8B", "H100", 1, Bits16, KvDtype::Bf16);
    let mut load = cost.empty_load();
    load.add_decode(10_000);
    let [host, linear, attention] = cost.cost(&load).groups_ms();
    let factors = Factors { host: 2.0, linear: 1.5, attention: 0.95 };
    let scaled = cost.clone().with_factors(factors).unwrap().cost(&load).total_ms();
    assert!((scaled - (2.0 * host + 1.5 * linear + 0.95 * attention)).abs() < 1e-12);
    let error = cost.with_factors(Factors { attention: 0.9, ..Factors::default() }).unwrap_err();
    assert!(error.to_string().contains("attention: found `0.9`, allowed: 0.93 or more"), "{error}");
}

#[test]
fn what_is_not_modelled_is_refused_or_noted() {
    let model = models::find("Llama-3.1-8B").unwrap();
    let setup = StepSetup {
        model: &model,
        gpu: gpus::find("A100").unwrap(),
        tp: 1,
        dp: 1,
        weights: Fp8,
        kv_dtype: KvDtype::Bf16,
    };
    let error = StepCost::new(&StepSetup { tp: 16, ..setup }).unwrap_err();
    assert!(error.to_string().contains("tensor parallelism across nodes is not modelled"));
    let cost = StepCost::new(&setup).unwrap();
    assert_eq!(cost.preset().id, "joint/8");
    assert!(cost.warnings()[0].0.contains("multiplied at the 16-bit peak"));
}

#[test]
fn power_multiplies() {
    assert_eq!(power(0.5, 0), 1.0);
    assert_eq!(power(0.5, 11), 0.5f64.powi(11));
    assert_eq!(power(0.0, 3), 0.0);
    assert_eq!(power(1.0, 16_384), 1.0);
}

const CASES: [(&str, &str, u32, WeightPrecision, KvDtype); 7] = [
    ("Llama-3.1-8B", "H100", 1, Bits16, KvDtype::Bf16),
    ("Llama-3.1-70B", "B200", 2, Nvfp4, KvDtype::Fp8),
    ("gpt-oss-120b", "B300", 1, Mxfp4, KvDtype::Fp8),
    ("DeepSeek-V3", "H200", 8, Fp8, KvDtype::Bf16),
    ("Kimi-K2.5", "MI355X", 8, Int4, KvDtype::Bf16),
    ("Llama-4-Scout", "A100", 8, Fp8, KvDtype::Bf16),
    ("Llama-3.1-8B", "RTX4090", 2, Bits16, KvDtype::Fp8),
];

/// The least that the data sheet allows, worked out afresh: every byte once at full bandwidth, or
/// every multiplication once at the full rate.
fn data_sheet_ms(setup: &StepSetup, decodes: &[u64], tokens: u64) -> f64 {
    let StepSetup { model, gpu, tp, weights, kv_dtype, .. } = *setup;
    let seen = |context: u64| match model.window {
        None => context,
        Some(Window { kind: WindowKind::Sliding, tokens, .. }) => context.min(tokens),
        Some(Window { kind: WindowKind::Chunked, tokens, .. }) => (context - 1) % tokens + 1,
    };
    let read: u64 =
        decodes.iter().map(|&c| c * model.full_layers() + seen(c) * model.windowed_layers()).sum();
    let common = model.common_params() as f64;
    let output_layer = (model.vocab * model.hidden) as f64;
    // Even a single token passes through k experts a layer.
    let routed =
        model.moe.map_or(0, |moe| moe.layers * moe.experts_per_token * model.expert_params())
            as f64;
    let bytes = (common * weights.other_bytes(model.moe.is_some())
        + routed * weights.bytes()
        + output_layer * 2.0)
        / f64::from(tp)
        + (read * model.kv_elements_per_gpu(tp) * kv_dtype.bytes()) as f64;
    let flops = 2.0 * tokens as f64 * (common + routed) / f64::from(tp);
    let peaks = [Some(gpu.tflops_16), gpu.tflops_8, gpu.tflops_4];
    let fastest = peaks.into_iter().flatten().fold(0.0, f64::max);
    (bytes / gpu.hbm_tb_s).max(flops / fastest) / 1e9
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    /// On every GPU, in every precision, with every model.
    #[test]
    fn no_step_beats_the_data_sheet(
        tp in prop::sample::select(vec![1u32, 2, 4, 8]),
        kv_dtype in prop::sample::select(vec![KvDtype::Bf16, KvDtype::Fp8]),
        decodes in prop::collection::vec(1u64..300_000, 0..40),
        chunks in prop::collection::vec((0u64..200_000, 1u64..8_192, any::<bool>()), 0..4),
    ) {
        prop_assume!(!decodes.is_empty() || !chunks.is_empty());
        let mut run = 0;
        let all = gpus::all().iter().flat_map(|gpu| models::all().map(move |model| (gpu, model)));
        for (gpu, model) in all {
            for weights in [Bits16, Fp8, Nvfp4, Mxfp4, Int4] {
                let setup = StepSetup { model, gpu, tp, dp: 1, weights, kv_dtype };
                let Ok(cost) = StepCost::new(&setup) else { continue };
                let mut load = cost.empty_load();
                decodes.iter().for_each(|&context| load.add_decode(context));
                for &(before, tokens, emits) in &chunks {
                    load.add_prefill(before, tokens, emits);
                }
                let floor_ms = data_sheet_ms(&setup, &decodes, load.tokens());
                let total_ms = cost.cost(&load).total_ms();
                let what = format!("{} {} {weights:?}", gpu.name, model.name);
                prop_assert!(total_ms > floor_ms, "{what}: {total_ms} < {floor_ms}");
                prop_assert!(total_ms > cost.data_sheet_ms(&load), "{what}");
                prop_assert!(cost.data_sheet_ms(&load) > floor_ms * (1.0 - 1e-9), "{what}");
                run += 1;
            }
        }
        prop_assert!(run > 1_000, "{run} set-ups");
    }
}

proptest! {
    /// More work never takes less time.
    #[test]
    fn time_grows_with_the_load(
        case in 0..CASES.len(),
        context in 1u64..100_000,
        before in 0u64..100_000,
        tokens in 1u64..4_096,
    ) {
        let (name, gpu, tp, weights, kv_dtype) = CASES[case];
        let cost = cost(name, gpu, tp, weights, kv_dtype);
        let mut load = cost.empty_load();
        load.add_decode(context);
        let one = cost.ticks(&load);
        load.add_decode(context);
        let two = cost.ticks(&load);
        prop_assert!(two > one);
        load.add_prefill(before, tokens, false);
        prop_assert!(cost.ticks(&load) > two);
    }
}
