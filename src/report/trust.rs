//! How far an answer is to be trusted: calibrated or not, inside what was measured or beyond, and
//! the error to expect.

use serde_json::{Value, json};

use super::numbers::{grouped, percent, short};
use crate::config::calibration::Fit;
use crate::config::presets::Preset;
use crate::sizing::case::Case;
use crate::sizing::figures::Figures;

/// The largest batch and the longest context of one kind of measurement.
struct Reach {
    seqs: f64,
    context: u64,
}

/// Serving runs: the runs with known concurrency behind the presets.
const SERVING: Reach = Reach { seqs: 990.0, context: 10_000 };
/// Steps from kernel tables.
const KERNEL_TABLES: Reach = Reach { seqs: 128.0, context: 131_072 };
/// Steps composed of measured layers.
const COMPOSED: Reach = Reach { seqs: 256.0, context: 16_384 };

/// What is to be said of one simulated fleet.
pub(super) struct Trust<'a> {
    preset: &'a Preset,
    file: Option<(&'a str, &'a Fit)>,
    /// Sequences that decode in a step, on average.
    batch: f64,
    /// Prompt that 95 % of the calls do not exceed.
    context: u64,
    /// Least and most of what was measured.
    seqs: (f64, f64),
    contexts: (u64, u64),
    /// The error of the time between tokens to expect, as a share.
    expected: Option<f64>,
}

impl<'a> Trust<'a> {
    pub(super) fn of(case: &'a Case, figures: &Figures) -> Self {
        let preset = case.setup.cost.preset();
        let calibration = case.scenario.calibration.as_ref();
        let file = calibration.map(|found| (found.file.as_str(), &found.fit));
        let (seqs, contexts) = match file {
            Some((_, fit)) => (fit.seqs, fit.context),
            None => measured(preset),
        };
        let left_out = preset.loo_itl_mape_pct.or(preset.itl_mape_pct);
        Self {
            preset,
            file,
            batch: figures.gpu.mean_decode_batch,
            context: figures.tokens.prompt.map_or(0, |prompt| prompt.p95.round() as u64),
            seqs,
            contexts,
            expected: match file {
                Some((_, fit)) => Some(fit.expected_error()),
                None => left_out.map(|pct| pct / 100.0),
            },
        }
    }

    /// Whether the batch is within what was measured. Fewer sequences are always simpler.
    fn batch_inside(&self) -> bool {
        self.batch <= self.seqs.1
    }

    fn context_inside(&self) -> bool {
        self.context <= self.contexts.1
    }

    /// Calibrated or not, and the expected error.
    pub(super) fn basis(&self) -> String {
        match self.file {
            Some((file, fit)) => format!(
                "calibrated by {file} ({} points, {} multipliers): expect {} on the time between \
                 tokens; measured step times were {:+.1} to {:+.1} % of the simulated ones.",
                fit.points,
                fit.multipliers,
                percent(fit.expected_error()),
                fit.band_low * 100.0,
                fit.band_high * 100.0
            ),
            None => {
                format!("not calibrated on your own runs. Step times: {}.", self.preset)
            }
        }
    }

    /// Inside what was measured or beyond.
    pub(super) fn coverage(&self) -> String {
        let side = |inside: bool| if inside { "inside" } else { "BEYOND" };
        format!(
            "Mean decode batch {}: {} the {} that was measured; 95 % of prompts up to {} tokens: \
             {} the {}.",
            short(self.batch),
            side(self.batch_inside()),
            short(self.seqs.1),
            grouped(self.context as i64),
            side(self.context_inside()),
            grouped(self.contexts.1 as i64),
        )
    }

    pub(super) fn json(&self) -> Value {
        json!({
            "calibrated": self.file.is_some(),
            "expected_itl_error": self.expected,
            "mean_decode_batch": self.batch,
            "batch_measured_up_to": self.seqs.1,
            "batch_inside": self.batch_inside(),
            "prompt_p95": self.context,
            "context_measured_up_to": self.contexts.1,
            "context_inside": self.context_inside(),
        })
    }
}

/// What the measurements behind a preset reach.
fn measured(preset: &Preset) -> ((f64, f64), (u64, u64)) {
    let kinds = [
        (preset.n_serving, SERVING),
        (preset.n_kernel_steps, KERNEL_TABLES),
        (preset.n_composed_steps, COMPOSED),
    ];
    let used = kinds.iter().filter(|(count, _)| *count > 0).map(|(_, reach)| reach);
    let seqs = used.clone().map(|reach| reach.seqs).fold(0.0, f64::max);
    let context = used.map(|reach| reach.context).max().unwrap_or(0);
    ((1.0, seqs), (1, context))
}
