//! How far an answer is to be trusted: calibrated or not, inside what was measured or beyond, and
//! the error to expect.

use serde_json::{Value, json};

use super::numbers::{grouped, percent, short};
use crate::config::calibration::Fit;
use crate::config::presets::{Measured, Preset};
use crate::sizing::case::Case;
use crate::sizing::figures::Figures;

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
            // Of one rank, as that of an engine without ranks.
            batch: figures.gpu.mean_decode_batch / case.setup.cost.ranks() as f64,
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

/// Between which batches and contexts lie the measurements behind a preset, of both kinds.
fn measured(preset: &Preset) -> ((f64, f64), (u64, u64)) {
    let kinds = ["serving", "tables"].map(|source| preset.measured(source));
    let known = kinds.iter().flatten();
    let least = |of: fn(&Measured) -> u64| known.clone().map(|range| of(range)).min().unwrap_or(0);
    let most = |of: fn(&Measured) -> u64| known.clone().map(|range| of(range)).max().unwrap_or(0);
    let seqs = (least(|range| range.decode_seqs_min), most(|range| range.decode_seqs_max));
    let contexts = (least(|range| range.context_min), most(|range| range.context_max));
    ((seqs.0 as f64, seqs.1 as f64), contexts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::presets;

    #[test]
    fn every_preset_says_what_was_measured() {
        for preset in presets::all() {
            let (seqs, contexts) = measured(preset);
            let rows = preset.n_serving + preset.n_kernel_steps + preset.n_composed_steps;
            if rows == 0 {
                // All of it is borrowed: everything is beyond.
                assert_eq!((seqs, contexts), ((0.0, 0.0), (0, 0)), "{}", preset.id);
                continue;
            }
            assert!(seqs.0 >= 1.0 && seqs.0 < seqs.1, "{}", preset.id);
            assert!(contexts.0 >= 1 && contexts.0 <= contexts.1, "{}", preset.id);
        }
        let h100 = presets::all().iter().find(|preset| preset.id == "H100/16").unwrap();
        // Kernel tables: longer contexts and larger batches than any serving run had.
        assert_eq!(measured(h100), ((1.0, 128.0), (128, 131_072)));
    }
}
