//! `tonnage validate`: measured runs through the simulator, and how far it is from them.

use std::io::IsTerminal;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use rayon::prelude::*;

use super::Outcome;
use super::scenario::show;
use crate::config::calibration::Calibration;
use crate::diag::{Error, Result};
use crate::engine::step_time::Factors;
use crate::validate::accuracy::{Accuracy, DIMENSIONS};
use crate::validate::requests::{self, Log};
use crate::validate::rules::{Deployment, Times, as_measured};
use crate::validate::runs::Run;
use crate::validate::simulated::{Compared, Simulated, simulate};
use crate::validate::sweeps;
use crate::validate::table::{Form, Table};

mod json;
mod markdown;
mod text;

/// Arguments of `tonnage validate`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = help())]
pub struct Args {
    /// Table of measurements (CSV); its columns tell which of the three forms it has
    file: PathBuf,
    /// Take the step and host times of this calibration; rows of other deployments are left out
    #[arg(long, value_name = "FILE")]
    calibration: Option<PathBuf>,
    #[command(flatten)]
    pub(super) filter: Filter,
    /// Also show every row
    #[arg(long)]
    rows: bool,
    /// Seed of drawn lengths and arrivals; 1
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Print JSON: `overall`, `groups`, and what was left out
    #[arg(long, conflicts_with = "markdown")]
    json: bool,
    /// Print the tables of docs/accuracy.md
    #[arg(long)]
    markdown: bool,
}

/// Which rows are taken. Names are compared without case; several are separated by commas.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Filter {
    /// Only rows of these GPUs, as the file writes them
    #[arg(long = "only-gpu", value_name = "NAMES", value_delimiter = ',')]
    only_gpu: Vec<String>,
    /// Only rows of these models, as the file writes them
    #[arg(long = "only-model", value_name = "NAMES", value_delimiter = ',')]
    only_model: Vec<String>,
    /// Only rows of these precisions
    #[arg(long = "only-precision", value_name = "NAMES", value_delimiter = ',')]
    only_precision: Vec<String>,
    /// Only rows of these sources
    #[arg(long = "only-origin", value_name = "NAMES", value_delimiter = ',')]
    only_origin: Vec<String>,
    /// Only rows of these tensor-parallel sizes
    #[arg(long = "only-tp", value_name = "SIZES", value_delimiter = ',')]
    only_tp: Vec<u32>,
    /// Only rows (or runs of a log) of these names
    #[arg(long = "only-experiment", value_name = "NAMES", value_delimiter = ',')]
    only_experiment: Vec<String>,
}

impl Filter {
    /// Whether it leaves anything out.
    pub(super) fn is_given(&self) -> bool {
        let Self { only_gpu, only_model, only_precision, only_origin, .. } = self;
        let names = [only_gpu, only_model, only_precision, only_origin, &self.only_experiment];
        names.iter().any(|names| !names.is_empty()) || !self.only_tp.is_empty()
    }

    /// Whether a row is taken.
    pub(super) fn takes(&self, run: &Run) -> bool {
        let among = |wanted: &[String], found: &str| {
            wanted.is_empty() || wanted.iter().any(|name| name.eq_ignore_ascii_case(found))
        };
        among(&self.only_gpu, &run.gpu)
            && among(&self.only_model, &run.model)
            && among(&self.only_precision, &run.precision)
            && among(&self.only_origin, &run.origin)
            && among(&self.only_experiment, &run.experiment)
            && (self.only_tp.is_empty() || self.only_tp.contains(&run.tp))
    }
}

fn help() -> String {
    let mut text = String::from(
        "Every row is simulated as it was measured: a closed loop of `concurrency` clients that \
         all start at once, or an open loop at `rate_rps`, with its lengths, its cached prefix and \
         its settings. Errors are (simulated - measured) / measured.\n\nColumns (* = needed):\n",
    );
    for form in Form::ALL {
        text += &format!("\n{}:\n", form.name());
        for (columns, mark) in [(form.needed(), '*'), (form.optional(), ' ')] {
            for (name, what) in columns.iter().filter(|(_, what)| !what.starts_with("not used")) {
                text += &format!(" {mark}{name:24} {what}\n");
            }
        }
    }
    text
}

/// Runs the command.
pub fn run(args: &Args) -> Result<Outcome> {
    let table = Table::read(&args.file)?;
    if table.form == Form::Sweeps {
        return run_sweeps(args, &table);
    }
    if table.form == Form::Requests && args.seed.is_some() {
        let text = "every request of a log is known: nothing is drawn";
        return Err(Error::new(text).in_field("--seed"));
    }
    let subjects = subjects(&table, &args.filter)?;
    let calibration = args.calibration.as_deref().map(Calibration::read).transpose()?;
    let rows = compare(&subjects, calibration.as_ref(), args.seed.unwrap_or(1));
    let accuracy = Accuracy::of(&rows);
    let simulated = rows.iter().filter(|row| row.outcome.is_ok()).count();
    if simulated == 0 {
        let reasons: Vec<String> =
            accuracy.left_out.iter().map(|(why, count)| format!("{count} rows: {why}")).collect();
        return Err(Error::new(format!("no row can be simulated: {}", reasons.join("; ")))
            .in_file(table.file()));
    }
    let is_log = table.form == Form::Requests;
    show(|out| match (args.json, args.markdown) {
        (true, _) => json::write(&accuracy, &rows, args.rows, out),
        (_, true) => markdown::write(&accuracy, out),
        _ => text::write(&accuracy, &rows, args.rows || is_log, out),
    })?;
    Ok(Outcome::Met)
}

/// What is simulated: rows that are runs, or runs of a log.
enum Subject {
    Run(Run),
    Log(Log),
}

impl Subject {
    fn head(&self) -> &Run {
        match self {
            Self::Run(run) => run,
            Self::Log(log) => &log.head,
        }
    }
}

fn subjects(table: &Table, filter: &Filter) -> Result<Vec<Subject>> {
    let all: Vec<Subject> = match table.form {
        Form::Requests => requests::read(table)?.into_iter().map(Subject::Log).collect(),
        _ => {
            let read = |row| Ok(Subject::Run(as_measured(Run::read(&row)?)));
            table.rows().map(read).collect::<Result<_>>()?
        }
    };
    let taken: Vec<Subject> =
        all.into_iter().filter(|subject| filter.takes(subject.head())).collect();
    if taken.is_empty() {
        return Err(Error::new("no row passes the filters").in_file(table.file()));
    }
    Ok(taken)
}

fn compare(subjects: &[Subject], calibration: Option<&Calibration>, seed: u64) -> Vec<Compared> {
    let done = AtomicU64::new(0);
    let times = calibration.map_or(Times::default(), |calibration| Times {
        factors: Factors {
            host: calibration.host,
            linear: calibration.linear,
            attention: calibration.attention,
        },
        api: calibration.api.or_default(),
    });
    let one = |subject: &Subject| {
        let checked = |found: Simulated| {
            let Some(calibration) = calibration else { return Ok(found) };
            let Deployment { model, gpu, tp, dp, weights, kv_dtype, .. } = &found.deployment;
            calibration.check(model, gpu, [*tp, *dp], *weights, *kv_dtype).map(|()| found)
        };
        let simulated = match subject {
            Subject::Run(run) => simulate(run, times, seed),
            Subject::Log(log) => log.simulate(times.factors),
        };
        let outcome = simulated.and_then(checked).map_err(|error| reason(&error));
        done.fetch_add(1, Ordering::Relaxed);
        Compared { run: subject.head().clone(), outcome }
    };
    with_bar(subjects.len() as u64, &done, || subjects.par_iter().map(one).collect())
}

/// Why a row is left out, in few enough words that rows with one reason are counted together.
fn reason(error: &Error) -> String {
    let text = error.message();
    if text.contains(" was measured with ") {
        return "the calibration is of another deployment".to_owned();
    }
    match text.split_once(", allowed") {
        Some((start, _)) if text.starts_with("unknown") => start.to_owned(),
        _ => text.to_owned(),
    }
}

/// Runs some work while a bar on the terminal counts what is done.
pub(super) fn with_bar<T: Send>(
    length: u64,
    done: &AtomicU64,
    work: impl FnOnce() -> T + Send,
) -> T {
    if !std::io::stderr().is_terminal() {
        return work();
    }
    let bar = ProgressBar::new(length);
    let style = ProgressStyle::with_template("{wide_bar} {pos}/{len} rows ({eta} left)");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    let result = std::thread::scope(|scope| {
        let worker = scope.spawn(work);
        while !worker.is_finished() {
            bar.set_position(done.load(Ordering::Relaxed));
            std::thread::sleep(Duration::from_millis(50));
        }
        worker.join()
    });
    bar.finish_and_clear();
    result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Sweeps are measured on deployments of which too little is told to simulate them: their shape is
/// shown, to hold a sweep of one's own against.
fn run_sweeps(args: &Args, table: &Table) -> Result<Outcome> {
    let asked = args.calibration.is_some() || args.markdown || args.rows || args.seed.is_some();
    if asked || args.filter.is_given() {
        let text = "a sweep of concurrency is not simulated: its shape is shown, with no option \
                    but --json";
        return Err(Error::new(text).in_file(table.file()));
    }
    let sweeps = sweeps::read(table)?;
    show(|out| match args.json {
        true => json::sweeps(&sweeps, out),
        false => text::sweeps(&sweeps, out),
    })?;
    Ok(Outcome::Met)
}

/// The dimensions of groups, by their position.
fn dimension(position: usize) -> &'static str {
    DIMENSIONS.get(position).copied().unwrap_or_default()
}
