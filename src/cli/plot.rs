//! `tonnage plot`: draw a sweep.

use std::io::Write as _;
use std::path::PathBuf;

use super::Outcome;
use crate::diag::{Error, Result};
use crate::report::plot::Figure;
use crate::report::plot::sweep::{Wanted, panel_names};
use crate::report::plot::table::Table;
use crate::trace::canonical::new_file::NewFile;

/// Arguments of `tonnage plot`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = help())]
pub struct Args {
    /// A sweep's folder, or its results.csv
    sweep: PathBuf,
    /// Where to draw: a file that ends in .svg or .png; may be given again
    #[arg(short, long, value_name = "FILE", required = true)]
    out: Vec<PathBuf>,
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
         With several seeds a line is their mean and its band reaches from the least to the most.\n\n\
         Examples:\n  \
         tonnage sweep --vary replicas=1..16x2 --vary router=session_affinity,random -o cells\n  \
         tonnage plot cells -o collapse.svg -o collapse.png\n  \
         tonnage plot cells --where router=random --panel segments,recompute -o segments.svg",
        panel_names().join(", ")
    )
}

/// Runs the command.
pub fn run(args: &Args) -> Result<Outcome> {
    let mut table = Table::read(&args.sweep)?;
    for only in &args.only {
        let (key, value) = only
            .split_once('=')
            .ok_or_else(|| Error::found(only, "KEY=VALUE").in_field("--where"))?;
        table = table.only(key.trim(), value.trim())?;
    }
    let figure = Figure::of_sweep(
        &table,
        &Wanted {
            x: args.x.clone(),
            by: args.by.clone(),
            panels: args.panel.clone(),
            title: args.title.clone(),
            subtitle: args.subtitle.clone(),
        },
    )?;
    // Everything is drawn before anything is written.
    let drawn = args.out.iter().map(|path| Ok((path, figure.encoded(path)?)));
    let mut files = Vec::new();
    for (path, bytes) in drawn.collect::<Result<Vec<_>>>()? {
        let mut file = NewFile::create(path)?;
        file.write_all(&bytes).map_err(|error| Error::io(path, "write", &error))?;
        files.push(file);
    }
    files.into_iter().try_for_each(NewFile::commit)?;
    Ok(Outcome::Met)
}
