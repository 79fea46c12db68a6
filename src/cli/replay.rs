//! `tonnage replay`: simulate one fleet and show everything that was measured.

use std::fs;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use super::Outcome;
use super::scenario::{FormatArgs, ScenarioArgs, help, show, with_progress};
use crate::diag::{Error, Result};
use crate::fleet::{Progress, Run};
use crate::report;
use crate::sizing::case::Case;
use crate::trace::canonical::new_file::NewFile;

/// Arguments of `tonnage replay`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = help())]
pub struct Args {
    #[command(flatten)]
    scenario: ScenarioArgs,
    #[command(flatten)]
    form: FormatArgs,
    /// Also write a row per call and per task: calls.csv and tasks.csv in this folder
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Also write what every engine's /metrics would show at the end of the run, in Prometheus'
    /// text form, under vLLM's names
    #[arg(long, value_name = "FILE")]
    metrics: Option<PathBuf>,
    /// Exit with 1 if a target is not met
    #[arg(long)]
    check: bool,
}

/// Runs the command.
pub fn run(args: &Args) -> Result<Outcome> {
    let case = args.scenario.load()?;
    let progress = Progress::default();
    let replicas = case.scenario.replicas;
    let label = format!("{replicas} replicas");
    let run = with_progress(&case, &label, &progress, || case.run(replicas, &progress))?;
    let judged = case.judge(&run);
    if let Some(folder) = &args.out {
        write_tables(folder, &case, &run)?;
    }
    if let Some(path) = &args.metrics {
        written(path, |out| Ok(report::prometheus::write(&case, &run, out)?))?.commit()?;
    }
    show(|out| args.form.format().replay(&case, &judged, out))?;
    Ok(if args.check && !judged.met() { Outcome::NotMet } else { Outcome::Met })
}

/// Both tables or neither: they get their names when both are complete.
fn write_tables(folder: &Path, case: &Case, run: &Run) -> Result<()> {
    fs::create_dir_all(folder).map_err(|error| Error::io(folder, "make the folder", &error))?;
    let ids: Vec<&str> = case.workload.sessions.iter().map(|session| &*session.id).collect();
    let stretches = case.stretches(run);
    let calls = written(&folder.join("calls.csv"), |out| {
        report::csv::calls(run, &case.workload, &ids, out)
    })?;
    let tasks =
        written(&folder.join("tasks.csv"), |out| report::csv::tasks(run, &stretches, &ids, out))?;
    calls.commit()?;
    tasks.commit()
}

/// A complete file that has not got its name yet.
fn written(
    path: &Path,
    write: impl FnOnce(&mut dyn Write) -> std::result::Result<(), csv::Error>,
) -> Result<NewFile> {
    let mut file = NewFile::create(path)?;
    let mut buffer = BufWriter::new(&mut file);
    let written = write(&mut buffer).map_err(std::io::Error::from);
    let written = written.and_then(|()| buffer.flush());
    written.map_err(|error| Error::io(path, "write", &error))?;
    drop(buffer);
    Ok(file)
}
