//! `tonnage plot`: draw a sweep.

use std::io::Write as _;
use std::path::PathBuf;

use super::replaced::refuse_own_outputs;
use super::scenario::{ScenarioArgs, VaryArgs};
use super::{Outcome, sweep};
use crate::config::drawing::Drawing;
use crate::diag::{Error, Result};
use crate::report::plot::Figure;
use crate::report::plot::sweep::{Wanted, panel_names};
use crate::report::plot::table::Table;
use crate::sizing::candidates;
use crate::sizing::sweep::Shard;
use crate::sizing::sweep::store::RESULTS;
use crate::trace::canonical::new_file::NewFile;

/// Arguments of `tonnage plot`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = help())]
pub struct Args {
    /// A sweep's folder or its results.csv; or a scenario with [candidates], which is swept first
    sweep: PathBuf,
    /// Where to draw: a file that ends in .svg or .png, or in .csv for the points that are drawn;
    /// may be given again
    #[arg(short, long, value_name = "FILE", required = true)]
    out: Vec<PathBuf>,
    /// Keep the cells of the scenario's sweep in this folder; those that are there are not
    /// simulated again
    #[arg(long, value_name = "DIR")]
    cells: Option<PathBuf>,
    /// The varied key on the axis [default: the one with the most values]
    #[arg(long, value_name = "KEY")]
    x: Option<String>,
    /// The varied key whose values are lines [default: the other one]
    #[arg(long, value_name = "KEY")]
    by: Option<String>,
    /// Only cells in which a varied key has this value; may be given again
    #[arg(long = "where", value_name = "KEY=VALUE")]
    only: Vec<String>,
    /// What to draw, from top to bottom: panels by name, or columns of the table
    /// [default: hit,throughput,task]
    #[arg(long, value_name = "PANEL", value_delimiter = ',')]
    panel: Vec<String>,
    /// The title [default: what the first panel shows, in words]
    #[arg(long)]
    title: Option<String>,
    /// What stands below the title, such as the fleet and the trace
    #[arg(long)]
    subtitle: Option<String>,
}

fn help() -> String {
    format!(
        "Panels by name: {}. Any column of the table that holds numbers can be a panel too.\n\n\
         With several seeds a line is their mean, its band reaches from the least to the most.\n\n\
         Examples:\n  \
         tonnage sweep --vary replicas=1..16x2 --vary router=session_affinity,random -o cells\n  \
         tonnage plot cells -o collapse.svg -o collapse.png\n  \
         tonnage plot cells --where router=random --panel segments,recompute -o segments.svg",
        panel_names().join(", ")
    )
}

/// Runs the command.
pub fn run(args: &Args) -> Result<Outcome> {
    // Names that cannot be drawn to are refused before anything is simulated.
    check(&args.out)?;
    let inputs = [args.sweep.clone(), args.sweep.join(RESULTS)];
    refuse_own_outputs(&args.out, &inputs)?;
    let is_scenario = args.sweep.extension().is_some_and(|ending| ending == "toml");
    let (mut table, drawing) = match is_scenario {
        true => swept(args)?,
        false => match &args.cells {
            Some(_) => {
                return Err(Error::new("only goes with a scenario").in_field("--cells"));
            }
            None => (Table::read(&args.sweep)?, Drawing::default()),
        },
    };
    for only in &args.only {
        let (key, value) = only
            .split_once('=')
            .ok_or_else(|| Error::found(only, "KEY=VALUE").in_field("--where"))?;
        table = table.only(key.trim(), value.trim())?;
    }
    let figure = Figure::of_sweep(
        &table,
        &Wanted {
            x: args.x.clone().or(drawing.x),
            by: args.by.clone().or(drawing.by),
            panels: if args.panel.is_empty() { drawing.panels } else { args.panel.clone() },
            title: args.title.clone().or(drawing.title),
            subtitle: args.subtitle.clone().or(drawing.subtitle),
        },
    )?;
    write(&figure, &args.out)?;
    Ok(Outcome::Met)
}

/// Refuses files that cannot be drawn to or written.
pub(super) fn check(paths: &[PathBuf]) -> Result<()> {
    paths.iter().try_for_each(|path| {
        Figure::check_name(path)?;
        NewFile::check(path)
    })
}

/// Draws a figure to all of these files, or to none.
pub(super) fn write(figure: &Figure, paths: &[PathBuf]) -> Result<()> {
    // Everything is drawn before anything is written.
    let drawn = paths.iter().map(|path| Ok((path, figure.encoded(path)?)));
    let mut files = Vec::new();
    for (path, bytes) in drawn.collect::<Result<Vec<_>>>()? {
        let mut file = NewFile::create(path)?;
        file.write_all(&bytes).map_err(|error| Error::io(path, "write", &error))?;
        files.push(file);
    }
    files.into_iter().try_for_each(NewFile::commit)
}

/// Sweeps a scenario over its `[candidates]`, and says how that is to be drawn.
fn swept(args: &Args) -> Result<(Table, Drawing)> {
    let scenario = ScenarioArgs::of(&args.sweep);
    let written = scenario.written(&[])?;
    let axes = written.axes(&VaryArgs::default())?;
    if axes.is_empty() {
        let error = Error::new("there is nothing to draw over: the scenario has no [candidates]");
        return Err(error.in_file(args.sweep.display()));
    }
    let drawing = candidates::combinations(&axes)?
        .into_iter()
        .find_map(|c| written.scenario(&candidates::assignments(&axes, &c)).ok())
        .map(|scenario| scenario.drawing);
    let folder = tempfile::tempdir()
        .map_err(|error| Error::io(&std::env::temp_dir(), "make a folder for the cells", &error))?;
    let cells = args.cells.as_deref().unwrap_or(folder.path());
    let (store, _) = sweep::sweep(&written, axes, cells, Shard::WHOLE, None, &args.out)?;
    Ok((Table::read(store.folder())?, drawing.unwrap_or_default()))
}
