//! `tonnage sweep`: every combination of values of some keys, kept cell by cell.

use std::io::{BufWriter, IsTerminal, Write};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use clap::Subcommand;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::Value;

use super::Outcome;
use super::scenario::{ScenarioArgs, VaryArgs, Written, help, show};
use super::source::Source;
use crate::config::vary::Axis;
use crate::diag::{Error, Result};
use crate::report;
use crate::sizing::candidates;
use crate::sizing::sweep::plan::Plan;
use crate::sizing::sweep::store::{Found, Manifest, Store};
use crate::sizing::sweep::{Shard, Sweep, Told, identity, scenario_of};
use crate::trace::canonical::new_file::NewFile;
use crate::trace::record::Trace;

mod merge;

/// Arguments of `tonnage sweep`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = help(), args_conflicts_with_subcommands = true)]
#[command(subcommand_negates_reqs = true)]
pub struct Args {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    scenario: ScenarioArgs,
    #[command(flatten)]
    vary: VaryArgs,
    /// Run each combination under so many seeds, from run.seed on: size.seeds
    #[arg(long, value_name = "N")]
    seeds: Option<u32>,
    /// Folder for the cells and results.csv; cells that are there already are not simulated again
    #[arg(short, long, value_name = "DIR", required = true)]
    out: Option<PathBuf>,
    /// Simulate only this part of the cells, such as 1/4; `tonnage sweep merge` puts them together
    #[arg(long, value_name = "PART/PARTS")]
    shard: Option<String>,
    /// Cells that are simulated at once; as many as there are cores
    #[arg(long, value_name = "N")]
    threads: Option<NonZeroUsize>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Put the folders of a sweep's shards together, and write their results
    Merge(merge::Args),
}

/// Runs the command.
pub fn run(args: &Args) -> Result<Outcome> {
    if let Some(Command::Merge(args)) = &args.command {
        return merge::run(args);
    }
    let folder = args.out.as_deref().unwrap_or(Path::new("."));
    let shard = args.shard.as_deref().map_or(Ok(Shard::WHOLE), Shard::parse)?;
    let seeds = args.seeds.map(|seeds| format!("size.seeds={seeds}"));
    let written = args.scenario.written(seeds.as_slice())?;
    let axes = written.axes(&args.vary)?;
    let (plan, source, trace) = planned(&written, axes, args.scenario.targets())?;
    let Some(first) = plan.cells.iter().find(|cell| cell.hash.is_some()) else {
        return Err(Error::new("no cell can run"));
    };
    let read = |more: &[String]| written.scenario(more);
    // Targets are held against the trace, and the trace is made ready, before anything is written.
    let base = written.case(scenario_of(&plan, first, read)?, &source, &trace)?;
    let manifest = Manifest::of(&plan);
    let store = Store::create(folder)?;
    store.begin(&manifest)?;
    let done = AtomicUsize::new(0);
    let case =
        |cell: &_| base.sibling(scenario_of(&plan, cell, read)?, &trace, args.scenario.targets());
    let sweep = Sweep { plan: &plan, shard, store: &store, case: &case, done: &done };
    let threads = args.threads.map_or_else(rayon::current_num_threads, NonZeroUsize::get);
    let cells = plan.cells.len() / shard.parts;
    let told = with_bar(cells as u64, &done, || sweep.run(threads))?;
    if told.elsewhere == 0 {
        write_results(&store, &manifest)?;
    }
    show(|out| tell(&told, &store, out))?;
    Ok(Outcome::Met)
}

/// The cells, and the trace that all of them play with where it comes from.
fn planned(
    written: &Written<'_>,
    axes: Vec<Axis>,
    targets: &[String],
) -> Result<(Plan, Source, Trace)> {
    let assigned = candidates::combinations(&axes)?.into_iter();
    let mut read = assigned.map(|c| written.scenario(&candidates::assignments(&axes, &c)));
    let runnable = read.find_map(Result::ok);
    drop(read);
    let (source, trace) = match &runnable {
        Some(scenario) => {
            let source = written.source(scenario)?;
            let trace = source.read()?;
            (source, trace)
        }
        // No cell will ask for it.
        None => (Source::BuiltIn, Trace::default()),
    };
    let hash = runnable.map(|_| identity::of_trace(&trace)).unwrap_or_default();
    let plan = Plan::new(axes, |more| written.scenario(more), targets, &hash)?;
    Ok((plan, source, trace))
}

/// Writes `results.csv`: every cell is there.
fn write_results(store: &Store, manifest: &Manifest) -> Result<()> {
    let read = |cell: &str| match store.read(cell)? {
        Found::Whole(result) => Ok(result),
        Found::Nothing | Found::Damaged => {
            Err(Error::new(format!("the cell {cell} is gone")).in_file(store.folder().display()))
        }
    };
    write_table(&store.results(), manifest, read)
}

fn write_table(
    path: &Path,
    manifest: &Manifest,
    read: impl Fn(&str) -> Result<Value>,
) -> Result<()> {
    let mut file = NewFile::create(path)?;
    let mut buffer = BufWriter::new(&mut file);
    report::sweep::results(manifest, read, &mut buffer)
        .map_err(|error| error.in_file(path.display()))?;
    buffer.flush().map_err(|error| Error::io(path, "write", &error))?;
    drop(buffer);
    file.commit()
}

fn tell(told: &Told, store: &Store, out: &mut dyn Write) -> std::io::Result<()> {
    let Told { simulated, kept, damaged, refused, elsewhere } = told;
    writeln!(out, "{simulated} cells simulated, {kept} kept from before")?;
    if *damaged > 0 {
        writeln!(out, "  {damaged} were damaged and simulated again")?;
    }
    if *refused > 0 {
        writeln!(out, "  {refused} combinations cannot run; their rows say why")?;
    }
    match elsewhere {
        0 => writeln!(out, "results in {}", store.results().display()),
        elsewhere => writeln!(
            out,
            "  {elsewhere} belong to other shards: `tonnage sweep merge` puts all together"
        ),
    }
}

/// Runs some work while a bar on the terminal shows how many cells are done.
fn with_bar<T: Send>(cells: u64, done: &AtomicUsize, work: impl FnOnce() -> T + Send) -> T {
    if !std::io::stderr().is_terminal() {
        return work();
    }
    let bar = ProgressBar::new(cells);
    let style = ProgressStyle::with_template("{wide_bar} {pos}/{len} cells ({eta} left)");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    let result = std::thread::scope(|scope| {
        let worker = scope.spawn(work);
        while !worker.is_finished() {
            bar.set_position(done.load(Ordering::Relaxed) as u64);
            std::thread::sleep(Duration::from_millis(100));
        }
        worker.join()
    });
    bar.finish_and_clear();
    result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}
