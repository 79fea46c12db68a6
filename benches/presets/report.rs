//! Tables of errors.

use std::collections::BTreeMap;

use super::rows::{Row, TableStep};
use super::terms::Constants;

/// Absolute errors of some rows, in percent.
#[derive(Clone, Copy, Debug)]
pub struct Errors {
    pub count: usize,
    pub mean: f64,
    pub median: f64,
    pub p90: f64,
    /// The mean with its sign.
    pub bias: f64,
}

impl Errors {
    /// Of relative errors; `None` of none.
    pub fn of(errors: &[f64]) -> Option<Self> {
        let mut sizes: Vec<f64> = errors.iter().map(|error| 100.0 * error.abs()).collect();
        sizes.sort_unstable_by(f64::total_cmp);
        let last = sizes.len().checked_sub(1)?;
        let count = sizes.len();
        // Linear between ranks.
        let quantile = |share: f64| {
            let place = share * last as f64;
            let (below, above) = (place.floor() as usize, place.ceil() as usize);
            sizes[below] + (place - place.floor()) * (sizes[above] - sizes[below])
        };
        Some(Self {
            count,
            mean: sizes.iter().sum::<f64>() / count as f64,
            median: quantile(0.5),
            p90: quantile(0.9),
            bias: 100.0 * errors.iter().sum::<f64>() / count as f64,
        })
    }
}

fn line(name: &str, errors: &[f64]) {
    if let Some(Errors { count, mean, median, p90, bias }) = Errors::of(errors) {
        println!("  {name:<34}{count:>5}{mean:>8.1}{median:>8.1}{p90:>8.1}{bias:>+8.1}");
    }
}

/// Prints a title, the errors of the two classes, and those of each GPU, format and model.
pub fn print(title: &str, errors: &[(&Row, f64)]) {
    println!("{title}: absolute error of the inter-token latency in %");
    println!("  {:<34}{:>5}{:>8}{:>8}{:>8}{:>8}", "", "runs", "mean", "median", "p90", "bias");
    let of = |keep: &dyn Fn(&Row) -> bool| -> Vec<f64> {
        errors.iter().filter(|(row, _)| keep(row)).map(|(_, error)| *error).collect()
    };
    let dense_16 = |row: &Row| !row.moe && row.weights.bits() == 16;
    line("all", &of(&|_| true));
    line("dense, 16 bits", &of(&dense_16));
    line("8 and 4 bits, or experts", &of(&|row| !dense_16(row)));
    let mut groups: BTreeMap<(String, &str), Vec<f64>> = BTreeMap::new();
    for (row, error) in errors {
        let (gpu, format) = row.cell();
        groups.entry((format!("{gpu} {format}"), &row.model)).or_default().push(*error);
    }
    for ((cell, model), errors) in &groups {
        line(&format!("{cell} {model}"), errors);
    }
    println!();
}

/// Prints how far decode attention at 32 Ki tokens and more is off against the kernel tables.
pub fn print_attention(steps: &[TableStep]) {
    println!("decode attention at 32 Ki tokens and more, presets in use: absolute error in %");
    let mut groups: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for step in steps.iter().filter(|step| step.work.context >= 32_768) {
        if let Some(ratio) = step.attention {
            let gpu = &step.gpu.preset;
            let cell = format!("{gpu} {} {}", step.weights.name(), step.model);
            groups.entry(gpu.clone()).or_default().push(ratio - 1.0);
            groups.entry(cell).or_default().push(ratio - 1.0);
        }
    }
    groups.iter().for_each(|(name, errors)| line(name, errors));
    println!();
}

/// Prompt tokens from which a step of the tables counts as one that prefills.
const PREFILLS: u64 = 384;
/// What the host adds to the kernels of a step, in ms.
const HOST_MS: f64 = 1.0;

/// Prints how far whole steps are off against the kernel tables: those that prefill, and those that
/// only decode.
pub fn print_steps(title: &str, steps: &[TableStep], constants: impl Fn(&TableStep) -> Constants) {
    println!("whole steps of the kernel tables, {title}: absolute error in %");
    let mut groups: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for step in steps {
        let Some((kernels_ms, terms)) = &step.whole else { continue };
        let kind = match step.work.chunk {
            0 => "decode",
            PREFILLS.. => "prefill",
            _ => continue,
        };
        let used = constants(step).with(step.kept);
        let error = terms.time(&used) / (kernels_ms + HOST_MS) - 1.0;
        let (gpu, format) = (&step.gpu.preset, step.weights.name());
        groups.entry(format!("{kind} {gpu} {format} {}", step.model)).or_default().push(error);
    }
    groups.iter().for_each(|(name, errors)| line(name, errors));
    println!();
}
