//! The tables that are compiled in, written afresh.

use std::collections::BTreeSet;
use std::error::Error;
use std::path::Path;

use tonnage::config::gpus;
use tonnage::config::precision::WeightPrecision;
use tonnage::config::presets::{self, Level, Measured, Preset};

use super::fit::Fit;
use super::report::Errors;
use super::rows::{Row, TableStep, kept};
use super::terms::{Constants, Work};

const FORMATS: [WeightPrecision; 5] = [
    WeightPrecision::Bits16,
    WeightPrecision::Fp8,
    WeightPrecision::Nvfp4,
    WeightPrecision::Mxfp4,
    WeightPrecision::Int4,
];

/// By how many percent the error must be smaller for a preset to be replaced: figures of all who
/// use it change.
const WORTHWHILE: f64 = 1.0;
/// Fewer runs of its own tell nothing of a preset.
const RUNS_MIN: usize = 10;

/// The GPUs and formats that a preset stands for.
struct Scope<'a> {
    preset: &'a Preset,
}

impl Scope<'_> {
    fn arch(&self) -> Option<&'static str> {
        gpus::all()
            .iter()
            .find(|gpu| match self.preset.level {
                Level::Gpu => gpu.preset == self.preset.name,
                Level::Arch => gpu.arch.name() == self.preset.name,
                Level::Joint => false,
            })
            .map(|gpu| gpu.arch.name())
    }

    fn covers(&self, gpu: &gpus::GpuSpec, weights: WeightPrecision) -> bool {
        let name = &self.preset.name;
        let place = match self.preset.level {
            Level::Gpu => gpu.preset == *name,
            Level::Arch => gpu.arch.name() == name,
            Level::Joint => true,
        };
        let format = &self.preset.format;
        place
            && self.preset.weight_bits == weights.bits()
            && (format.is_empty() || format == weights.name())
    }

    fn errors(&self, errors: &[(&Row, f64)]) -> Option<Errors> {
        let own: Vec<f64> = errors
            .iter()
            .filter(|(row, _)| self.covers(row.gpu, row.weights))
            .map(|(_, error)| *error)
            .collect();
        Errors::of(&own)
    }
}

fn digits(value: f64) -> f64 {
    format!("{value:.2e}").parse().expect("a number that was just written")
}

fn tenths(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}

/// A fit, and how far it is off.
pub struct Output<'a> {
    pub rows: &'a [Row],
    pub tables: &'a [TableStep],
    pub fit: &'a Fit,
    pub in_sample: &'a [(&'a Row, f64)],
    /// Errors of rows whose model was left out.
    pub models: &'a [(&'a Row, f64)],
}

impl Output<'_> {
    /// Whether the fit takes the place of a preset: if it tells models that it has not seen better
    /// than the preset did, by the preset's own runs, or where it has none by those of its
    /// architecture. A preset on composed steps rests on what this fit does not see, and stays.
    fn is_better(&self, preset: &Preset) -> bool {
        if preset.n_composed_steps > 0 || preset.level == Level::Joint {
            return false;
        }
        let beats = |preset: &Preset| {
            let left = Scope { preset }.errors(self.models)?;
            let told = preset.loo_itl_mape_pct?;
            Some(left.count >= RUNS_MIN && left.mean + WORTHWHILE < told)
        };
        let of_arch = || {
            let arch = Scope { preset }.arch()?;
            beats(presets::all().iter().find(|other| {
                other.name == arch
                    && other.weight_bits == preset.weight_bits
                    && other.format == preset.format
            })?)
        };
        beats(preset).or_else(of_arch).unwrap_or(false)
    }

    /// The preset with the constants of the fit for one format.
    fn fitted(&self, old: &Preset, weights: WeightPrecision) -> Option<Preset> {
        let arch = Scope { preset: old }.arch()?;
        let known = |row: &&Row| row.gpu.arch.name() == arch && row.weights == weights;
        self.rows.iter().find(known)?;
        let mut preset = old.clone();
        if weights.bits() == 4 {
            preset.format = weights.name().to_owned();
            preset.id = format!("{}/{}", preset.name, weights.name());
        }
        let Constants(constants) = self.fit.constants(arch, weights.name());
        let [e_m, e_x, e_c, e_n, t0, layer, moe_layer, sequence, t_ar] = constants.map(digits);
        (preset.e_m, preset.e_x) = (e_m, e_x);
        let kept = kept(old);
        preset.e_c = kept.e_c.unwrap_or(e_c);
        preset.e_n = kept.e_n.unwrap_or(e_n);
        (preset.t0_ms, preset.layer_us, preset.moe_layer_us) = (t0, layer, moe_layer);
        (preset.sequence_us, preset.all_reduce_us) = (sequence, t_ar);
        let scope = Scope { preset: &preset };
        let (fit, left) = (scope.errors(self.in_sample), scope.errors(self.models));
        let own = self.rows.iter().filter(|row| scope.covers(row.gpu, row.weights));
        let models: BTreeSet<&str> = own.clone().map(|row| row.model.as_str()).collect();
        let (runs, seen) = (own.count() as u32, models.len() as u32);
        (preset.n_serving, preset.n_serving_models) = (runs, seen);
        preset.itl_mape_pct = fit.map(|errors| tenths(errors.mean));
        preset.itl_median_pct = fit.map(|errors| tenths(errors.median));
        preset.itl_p90_pct = fit.map(|errors| tenths(errors.p90));
        preset.loo_itl_mape_pct = left.map(|errors| tenths(errors.mean));
        preset.loo_itl_median_pct = left.map(|errors| tenths(errors.median));
        preset.loo_itl_p90_pct = left.map(|errors| tenths(errors.p90));
        preset.basis = format!(
            "serving runs on {arch} and runs with {} weights elsewhere; attention from kernel \
             tables",
            weights.name()
        );
        Some(preset)
    }

    fn presets(&self) -> Vec<Preset> {
        let mut list = Vec::new();
        for old in presets::all() {
            let formats = FORMATS.iter().filter(|format| format.bits() == old.weight_bits);
            let formats: Vec<WeightPrecision> = formats
                .copied()
                .filter(|format| match old.format.as_str() {
                    // A row of 4 bits stands for formats that have none of their own.
                    "" => old.weight_bits != 4 || !has_row(old, *format),
                    own => own == format.name(),
                })
                .collect();
            let better = self.is_better(old);
            let new: Vec<Preset> = formats
                .into_iter()
                .filter(|_| better)
                .filter_map(|format| self.fitted(old, format))
                .collect();
            if new.is_empty() || (old.weight_bits == 4 && old.format.is_empty()) {
                list.push(old.clone());
            }
            list.extend(new);
        }
        list
    }
}

/// Whether a preset has one beside it for this format alone.
fn has_row(preset: &Preset, format: WeightPrecision) -> bool {
    let alike = |other: &&Preset| (&other.name, other.level) == (&preset.name, preset.level);
    presets::all().iter().filter(alike).any(|other| other.format == format.name())
}

fn measured(id: &str, source: &str, works: &[Work]) -> Option<Measured> {
    let range = |of: fn(&Work) -> u64| {
        let values = works.iter().map(of).filter(|value| *value > 0);
        (values.clone().min().unwrap_or(0), values.max().unwrap_or(0))
    };
    let (seqs, context, chunk) =
        (range(|work| work.decodes), range(|work| work.context), range(|work| work.chunk));
    (!works.is_empty()).then(|| Measured {
        preset: id.to_owned(),
        source: source.to_owned(),
        rows: works.len() as u32,
        decode_seqs_min: seqs.0,
        decode_seqs_max: seqs.1,
        context_min: context.0,
        context_max: context.1,
        prefill_tokens_min: chunk.0,
        prefill_tokens_max: chunk.1,
    })
}

/// Writes both tables into a folder.
pub fn write(folder: &Path, output: &Output) -> Result<(), Box<dyn Error>> {
    let list = output.presets();
    let mut out = csv::Writer::from_path(folder.join("presets.csv"))?;
    let mut ranges = csv::Writer::from_path(folder.join("measured.csv"))?;
    for preset in &list {
        out.serialize(preset)?;
        let scope = Scope { preset };
        let served = output.rows.iter().filter(|row| scope.covers(row.gpu, row.weights));
        let served: Vec<Work> = served.map(|row| row.work).collect();
        let tabled = output.tables.iter().filter(|step| scope.covers(step.gpu, step.weights));
        let tabled: Vec<Work> = tabled.map(|step| step.work).collect();
        for range in
            [measured(&preset.id, "serving", &served), measured(&preset.id, "tables", &tabled)]
        {
            range.map(|range| ranges.serialize(range)).transpose()?;
        }
    }
    out.flush()?;
    ranges.flush()?;
    Ok(())
}
