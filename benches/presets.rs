//! Fits the step-time constants of `src/config/data/presets.csv` to measured serving runs, and
//! reports the errors of what was left out: whole models, GPUs and layouts.
//!
//! `cargo bench --bench presets -- FOLDER [OUTPUT]` reads `serving_runs.csv`,
//! `kernel_model_steps.csv` and `steps_composed.csv` of the folder; the measurements themselves are
//! not part of this repository. With an output folder it writes `presets.csv` and `measured.csv`
//! there.

use std::error::Error;
use std::path::Path;

use self::fit::Fit;
use self::rows::Row;
use self::table::Output;
use self::terms::Constants;
use tonnage::config::presets;

#[path = "presets/fit.rs"]
mod fit;
#[path = "presets/report.rs"]
mod report;
#[path = "presets/rows.rs"]
mod rows;
#[path = "presets/table.rs"]
mod table;
#[path = "presets/terms.rs"]
mod terms;

/// Beyond this share of the arithmetic peak, averaged over all steps, a run is doubtful: no GEMM
/// kernel in the tables comes near it at such batches.
const PEAK_SHARE_MAX: f64 = 0.25;

/// Takes out what is doubtful: what does not state its ranks, what needs too much of the peak, and
/// of runs that contradict each other the ones with the most contradictions.
fn doubtful(rows: Vec<Row>) -> (Vec<Row>, Vec<Row>) {
    let sound = |row: &Row| row.states_ranks && row.peak_share() <= PEAK_SHARE_MAX;
    let (mut kept, mut out): (Vec<Row>, Vec<Row>) = rows.into_iter().partition(sound);
    loop {
        let conflicts = |row: &Row| kept.iter().filter(|other| row.contradicts(other)).count();
        let most = (0..kept.len()).max_by_key(|&place| conflicts(&kept[place]));
        match most.filter(|&place| conflicts(&kept[place]) > 0) {
            Some(place) => out.push(kept.remove(place)),
            None => return (kept, out),
        }
    }
}

/// The error of each row under a fit to the rows that differ from it in `key`.
fn left_out<'a, K: Ord>(rows: &'a [Row], key: impl Fn(&'a Row) -> K) -> Vec<(&'a Row, f64)> {
    let mut keys: Vec<K> = rows.iter().map(&key).collect();
    keys.sort_unstable();
    keys.dedup();
    let mut errors = Vec::new();
    for out in &keys {
        let rest: Vec<&Row> = rows.iter().filter(|row| key(row) != *out).collect();
        let fit = Fit::to(&rest);
        let left = rows.iter().filter(|row| key(row) == *out);
        errors.extend(left.map(|row| (row, fit.predict(row) / row.measured - 1.0)));
    }
    errors
}

fn run(folder: &Path, output: Option<&Path>) -> Result<(), Box<dyn Error>> {
    let neutral = terms::neutral();
    let (rows, doubted) = doubtful(rows::serving(folder, neutral)?);
    let tables = rows::tables(folder, neutral)?;
    let all: Vec<&Row> = rows.iter().collect();
    let fit = Fit::to(&all);
    let error = |row| -> f64 { fit.predict(row) / row.measured - 1.0 };
    let in_sample: Vec<(&Row, f64)> = rows.iter().map(|row| (row, error(row))).collect();
    let models = left_out(&rows, |row| &row.model);
    println!("{} serving runs, {} doubtful ones apart\n", rows.len(), doubted.len());
    report::print("in sample", &in_sample);
    report::print("whole models left out", &models);
    report::print("whole GPUs left out", &left_out(&rows, |row| &row.gpu.name));
    report::print("layouts left out", &left_out(&rows, |row| &row.layout));
    report::print(
        "doubtful ones, under the fit to the others",
        &doubted.iter().map(|row| (row, error(row))).collect::<Vec<_>>(),
    );
    let in_use = |row: &Row| {
        let constants = Constants::of(presets::lookup(row.gpu, row.weights));
        row.predicted(&constants) / row.measured - 1.0
    };
    let used: Vec<(&Row, f64)> = rows.iter().map(|row| (row, in_use(row))).collect();
    report::print("the presets in use", &used);
    report::print_attention(&tables);
    report::print_steps("presets in use", &tables, |step| {
        Constants::of(presets::lookup(step.gpu, step.weights))
    });
    report::print_steps("the fit", &tables, |step| {
        fit.constants(step.gpu.arch.name(), step.weights.name())
    });
    if let Some(folder) = output {
        let (fit, tables) = (&fit, &tables);
        let (in_sample, models) = (&in_sample, &models);
        table::write(folder, &Output { rows: &rows, tables, fit, in_sample, models })?;
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    // Cargo adds an option of its own.
    let paths: Vec<String> =
        std::env::args().skip(1).filter(|arg| !arg.starts_with("--")).collect();
    match paths.split_first() {
        Some((folder, rest)) => run(Path::new(folder), rest.first().map(Path::new)),
        None => {
            println!("give the folder of the measurements: -- FOLDER [OUTPUT]");
            Ok(())
        }
    }
}
