//! `tonnage replay`: simulate one fleet and show everything that was measured.

use std::fs;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

use super::Outcome;
use super::scenario::{ScenarioArgs, help, show, with_progress};
use crate::diag::{Error, Result};
use crate::fleet::{Progress, Run};
use crate::report;
use crate::sizing::case::Case;
use crate::sizing::search::Candidate;
use crate::trace::record::Trace;

/// Arguments of `tonnage replay`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = help())]
pub struct Args {
    #[command(flatten)]
    scenario: ScenarioArgs,
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
    let (case, trace) = args.scenario.load()?;
    let progress = Progress::default();
    let replicas = case.scenario.replicas;
    let label = format!("{replicas} replicas");
    let run = with_progress(&case, &label, &progress, || case.run(replicas, &progress))?;
    let judged = case.judge(&run);
    if let Some(folder) = &args.out {
        write_tables(folder, &case, &trace, &run)?;
    }
    if let Some(path) = &args.metrics {
        write_whole(path, |out| Ok(report::prometheus::write(&case, &run, out)?))?;
    }
    show(|out| args.scenario.format().replay(&case, &judged, out))?;
    Ok(if args.check && !judged.met() { Outcome::NotMet } else { Outcome::Met })
}

fn write_tables(folder: &Path, case: &Case, trace: &Trace, run: &Run) -> Result<()> {
    fs::create_dir_all(folder).map_err(|error| Error::io(folder, "make the folder", &error))?;
    let ids: Vec<&str> = trace.sessions.iter().map(|session| &*session.id).collect();
    let stretches = case.stretches(run);
    write_whole(&folder.join("calls.csv"), |out| {
        report::csv::calls(run, &case.workload, &ids, out)
    })?;
    write_whole(&folder.join("tasks.csv"), |out| report::csv::tasks(run, &stretches, &ids, out))
}

/// Writes a file that appears under its name only when it is complete.
fn write_whole(
    path: &Path,
    write: impl FnOnce(&mut dyn Write) -> std::result::Result<(), csv::Error>,
) -> Result<()> {
    let failed = |error: &std::io::Error| Error::io(path, "write", error);
    let folder = path.parent().filter(|folder| *folder != Path::new(""));
    let folder = folder.unwrap_or(Path::new("."));
    let mut file = NamedTempFile::new_in(folder).map_err(|error| failed(&error))?;
    let mut buffer = BufWriter::new(&mut file);
    let written = write(&mut buffer).map_err(std::io::Error::from);
    written.and_then(|()| buffer.flush()).map_err(|error| failed(&error))?;
    drop(buffer);
    file.persist(path).map_err(|error| failed(&error.error))?;
    Ok(())
}
