//! `tonnage sweep`: every combination of values of some keys, kept cell by cell.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::io::{BufWriter, IsTerminal, Write};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use clap::Subcommand;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::Value;

use super::Outcome;
use super::replaced::refuse_own_outputs;
use super::scenario::{ScenarioArgs, VaryArgs, Written, help, show};
use super::source::Source;
use crate::config::scenario::Scenario;
use crate::config::vary::Axis;
use crate::diag::{Error, Result};
use crate::report;
use crate::sizing::case::Case;
use crate::sizing::sweep::plan::{Cell, Plan};
use crate::sizing::sweep::store::{Found, Manifest, RESULTS, Store};
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
    let outputs = [folder.join(RESULTS)];
    let (store, told) = sweep(&written, axes, folder, shard, args.threads, &outputs)?;
    show(|out| tell(&told, &store, out))?;
    Ok(Outcome::Met)
}

/// Sweeps a scenario into a folder. `outputs` are files that are written once it is over.
pub(super) fn sweep(
    written: &Written<'_>,
    axes: Vec<Axis>,
    folder: &Path,
    shard: Shard,
    threads: Option<NonZeroUsize>,
    outputs: &[PathBuf],
) -> Result<(Store, Told)> {
    let mut traces = Traces::default();
    let plan = traces.plan(written, axes)?;
    // Targets are held against the traces, and those are made ready, before anything is written.
    let bases = traces.ready(written, &plan)?;
    for held in traces.0.values() {
        refuse_own_outputs(outputs, &written.inputs(&held.source))?;
    }
    let manifest = Manifest::of(&plan);
    let store = Store::create(folder)?;
    store.begin(&manifest)?;
    let done = AtomicUsize::new(0);
    let case = |cell: &Cell| {
        let scenario = scenario_of(&plan, cell, |more| written.scenario(more))?;
        let (base, held) = &bases[&kind(&scenario)];
        base.sibling(scenario, &held.trace, written.targets())
    };
    let sweep = Sweep { plan: &plan, shard, store: &store, case: &case, done: &done };
    let threads = threads.map_or_else(rayon::current_num_threads, NonZeroUsize::get);
    let cells = plan.cells.len() / shard.parts;
    let told = with_bar(cells as u64, &done, || sweep.run(threads))?;
    if told.elsewhere == 0 {
        write_results(&store, &manifest)?;
    }
    Ok((store, told))
}

/// The traces that cells play, by what makes them: one, or one for each kind of sessions that is
/// generated.
#[derive(Default)]
struct Traces(BTreeMap<String, Held>);

/// A trace, with where it comes from and the hash of its content.
struct Held {
    source: Source,
    trace: Trace,
    hash: String,
}

/// What tells traces apart.
fn kind(scenario: &Scenario) -> String {
    format!("{:?}", scenario.generated)
}

impl Traces {
    /// The cells, with every trace that one of them plays.
    fn plan(&mut self, written: &Written<'_>, axes: Vec<Axis>) -> Result<Plan> {
        let held = RefCell::new(&mut self.0);
        let hash = |scenario: &Scenario| {
            let (mut held, kind) = (held.borrow_mut(), kind(scenario));
            if let Some(held) = held.get(&kind) {
                return Ok(held.hash.clone());
            }
            let source = written.source(scenario)?;
            let trace = source.read()?;
            let hash = identity::of_trace(&trace);
            held.insert(kind, Held { source, trace, hash: hash.clone() });
            Ok(hash)
        };
        Plan::new(axes, |more| written.scenario(more), written.targets(), hash)
    }

    /// For each trace a case over it, from which those of its cells are made.
    fn ready<'a>(
        &'a self,
        written: &Written<'_>,
        plan: &Plan,
    ) -> Result<BTreeMap<String, (Case, &'a Held)>> {
        let mut bases = BTreeMap::new();
        for cell in plan.cells.iter().filter(|cell| cell.hash.is_some()) {
            let scenario = scenario_of(plan, cell, |more| written.scenario(more))?;
            written.without_intervals(&scenario)?;
            let kind = kind(&scenario);
            let held = &self.0[&kind];
            if let Entry::Vacant(place) = bases.entry(kind) {
                place.insert((written.case(scenario, &held.source, &held.trace)?, held));
            }
        }
        if bases.is_empty() {
            return Err(Error::new("no cell can run"));
        }
        Ok(bases)
    }
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
