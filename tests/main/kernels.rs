//! Attention of the step formula against measured kernels.

use std::path::Path;

use serde::Deserialize;

use tonnage::config::precision::{KvDtype, TorchDtype, WeightPrecision};
use tonnage::config::{gpus, models};
use tonnage::engine::step_time::{StepCost, StepSetup};
use tonnage::validate::kernels::KERNEL_START_MS;

#[derive(Debug, Deserialize)]
struct Kernel {
    model: String,
    precision: String,
    gpu: String,
    kv_cache_dtype: String,
    tp: u32,
    batch: u64,
    context: u64,
    attn_ms: f64,
}

impl Kernel {
    /// The formula's time of the context, and the number of layers.
    fn term(&self) -> (f64, f64) {
        let model = models::find(&self.model).unwrap();
        let cost = StepCost::new(&StepSetup {
            model: &model,
            gpu: gpus::find(&self.gpu).unwrap(),
            tp: self.tp,
            dp: 1,
            weights: WeightPrecision::parse(&self.precision).unwrap(),
            kv_dtype: KvDtype::parse(&self.kv_cache_dtype, TorchDtype::Bf16).unwrap(),
        })
        .unwrap();
        let mut load = cost.empty_load();
        (0..self.batch).for_each(|_| load.add_decode(self.context));
        (cost.cost(&load).kv_ms, model.layers as f64)
    }

    /// The formula's time, with that of a kernel's start, over the measured one, less 1.
    fn error(&self, start_ms: f64) -> f64 {
        let (kv_ms, layers) = self.term();
        (kv_ms + start_ms * layers) / self.attn_ms - 1.0
    }
}

/// Kernels at contexts of 32 Ki to 128 Ki tokens, and those of one sequence at 1 Ki.
fn kernels() -> (Vec<Kernel>, Vec<Kernel>) {
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/kernels/decode_attention.csv");
    let mut reader = csv::Reader::from_path(path).unwrap();
    let kernels: Vec<Kernel> = reader.deserialize().collect::<Result<_, _>>().unwrap();
    let (long, short): (Vec<_>, Vec<_>) = kernels.into_iter().partition(|k| k.context >= 32_768);
    assert_eq!((long.len(), short.len()), (768, 32));
    (long, short)
}

/// Mean, median and 90th percentile of the absolute errors, in percent to one digit.
fn figures(kernels: &[Kernel], gpu: &str, start_ms: f64) -> [f64; 3] {
    let own = kernels.iter().filter(|kernel| kernel.gpu == gpu);
    let mut errors: Vec<f64> = own.map(|kernel| kernel.error(start_ms).abs()).collect();
    errors.sort_by(f64::total_cmp);
    let mean = errors.iter().sum::<f64>() / errors.len() as f64;
    let (median, p90) = (errors[errors.len() / 2], errors[errors.len() * 9 / 10]);
    [mean, median, p90].map(|share| (share * 1e3).round() / 10.0)
}

/// With the cache format of the kernel: the figures that docs/accuracy.md and docs/timing.md print,
/// and what they would be without the start of a kernel. The furthest are one or two sequences on
/// many GPUs, whose kernels do not fill them.
#[test]
fn decode_attention_at_long_contexts_is_that_of_the_kernels() {
    let (long, _) = kernels();
    let found = [KERNEL_START_MS, 0.0134, 0.0]
        .map(|start| ["H100", "H200"].map(|gpu| figures(&long, gpu, start)));
    let printed = [
        [[4.8, 1.9, 12.5], [5.9, 2.1, 17.1]],
        [[5.2, 2.0, 14.0], [6.5, 2.4, 18.6]],
        [[18.6, 7.3, 57.5], [22.6, 10.7, 65.2]],
    ];
    let all = found;
    for (found, printed) in found.as_flattened().iter().zip(printed.as_flattened()) {
        let near = |(a, b): (&f64, &f64)| (a - b).abs() < 0.11;
        assert!(found.iter().zip(printed).all(near), "{all:?}");
    }
    let page = include_str!("../../docs/accuracy.md");
    let [[h100, h200], _, [h100_bare, h200_bare]] = all;
    for (this, that) in h100.iter().zip(h200).chain([(&h100_bare[0], h200_bare[0])]) {
        let text = format!("{this:.1} and {that:.1}");
        assert!(page.contains(&text), "docs/accuracy.md does not say {text}");
    }
}

/// The start of a kernel is told by rows that are not compared: one sequence at 1,024 tokens.
#[test]
fn short_kernels_tell_their_start() {
    let (_, short) = kernels();
    let start_us = |kernel: &Kernel| {
        let (kv_ms, layers) = kernel.term();
        (kernel.attn_ms - kv_ms) / layers * 1e3
    };
    let starts: Vec<f64> = short.iter().map(start_us).collect();
    let mean = starts.iter().sum::<f64>() / starts.len() as f64;
    assert!((mean - 13.4).abs() < 0.1, "{mean}");
    assert!(starts.iter().all(|start| (12.2..16.5).contains(start)), "{starts:?}");
    assert!((mean - KERNEL_START_MS * 1e3).abs() < 0.7, "{mean}");
}
