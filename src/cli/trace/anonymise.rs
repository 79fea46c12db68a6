//! `tonnage trace anonymise`.

use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use clap::builder::PossibleValue;

use super::files::{Input, Output, made_by, tell};
use super::seconds;
use crate::cli::Outcome;
use crate::cli::replaced::same;
use crate::diag::{Error, Result};
use crate::trace::canonical::new_file::NewFile;
use crate::trace::meta::{Meta, sidecar_path};
use crate::trace::tools::anonymise::{Kind, Options, Renamed, anonymise};
use crate::units::Span;

const HELP: &str = "\
Names become short ones, numbered in the order in which they appear: sessions s000001, shared
contexts c0001, tenants t01, users u0001, keys k0001, models m1, profiles p1. Lengths, times and
what is shared stay as they are, so that every figure does.

The sidecar loses source, start, time zone, notes and how the trace was made before; licence and
block size stay. Notes are shown, so that those that give nothing away can be put back.

Lengths and times are a fingerprint: who has the original can find its sessions again.

Examples:
  tonnage trace anonymise week.csv.zst --keep models,profiles -o public.csv.zst
  tonnage trace anonymise week.csv.zst --round-start 60 --map names.csv -o public.csv";

/// Arguments of `tonnage trace anonymise`.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub struct Args {
    /// Canonical trace: CSV, plain, gzip or zstd
    trace: PathBuf,
    /// Kinds of names that stay as they are
    #[arg(long, value_name = "KIND,…", value_delimiter = ',', value_enum)]
    keep: Vec<Kind>,
    /// Move every session back to a multiple of so many seconds
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    round_start: Option<Span>,
    /// Also write what became of each name: a CSV file to keep to yourself
    #[arg(long, value_name = "FILE")]
    map: Option<PathBuf>,
    /// The trace to write: X.csv, X.csv.gz or X.csv.zst; X.meta.json is put beside it
    #[arg(short, long, value_name = "OUT")]
    output: PathBuf,
}

impl ValueEnum for Kind {
    fn value_variants<'a>() -> &'a [Self] {
        &[
            Self::Sessions,
            Self::Contexts,
            Self::Tenants,
            Self::Users,
            Self::Keys,
            Self::Models,
            Self::Profiles,
        ]
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        Some(PossibleValue::new(self.name()))
    }
}

/// Runs the tool.
pub fn run(args: &Args) -> Result<Outcome> {
    args.refuse_map()?;
    let input = Input::open(&args.trace)?;
    let before = input.meta()?;
    let mut output = Output::create(&args.output, [&args.trace])?;
    let options = Options { keep: args.keep.clone(), round_start: args.round_start };
    let told = anonymise(&input, &options, &mut output).map_err(|error| {
        if error.place().file.is_some() { error } else { error.in_field("--round-start") }
    })?;
    drop(input);
    let meta = Meta {
        licence: before.licence,
        origin_block_size: before.origin_block_size,
        partial_block: before.partial_block,
        made_by: Some(made_by(None, "anonymise", &[], &args.options())),
        ..Meta::default()
    };
    let map = args.map.as_deref().map(|path| map_file(path, &told)).transpose()?;
    output.finish(&meta)?;
    map.map(NewFile::commit).transpose()?;
    tell(&report(&told, &before.notes, &args.output));
    Ok(Outcome::Met)
}

impl Args {
    /// The names must take the place neither of the traces nor of their sidecars.
    fn refuse_map(&self) -> Result<()> {
        let Some(map) = &self.map else { return Ok(()) };
        for trace in [&self.trace, &self.output] {
            if same(map, trace) {
                return Err(Error::new("the names would replace a trace").in_field("--map"));
            }
            if same(map, &sidecar_path(trace)) {
                let error = Error::new("the names would replace the sidecar of a trace");
                return Err(error.in_field("--map"));
            }
        }
        Ok(())
    }

    fn options(&self) -> String {
        let mut options = String::new();
        if !self.keep.is_empty() {
            let names: Vec<&str> = self.keep.iter().map(|kind| kind.name()).collect();
            options += &format!(" --keep {}", names.join(","));
        }
        options.extend(self.round_start.map(|unit| format!(" --round-start {}", unit.secs_text())));
        options
    }
}

/// The names before and after, whole but without its own name yet.
fn map_file(path: &Path, told: &[Renamed]) -> Result<NewFile> {
    let mut file = NewFile::create(path)?;
    let mut rows = csv::Writer::from_writer(BufWriter::new(&mut file));
    let mut write = || {
        rows.write_record(["kind", "old", "new"])?;
        for Renamed { kind, old, new } in told {
            rows.write_record([kind.name(), old, new])?;
        }
        rows.flush()?;
        Ok::<(), csv::Error>(())
    };
    write().map_err(|error| Error::io(path, "write", &error.into()))?;
    drop(rows);
    file.flush().map_err(|error| Error::io(path, "write", &error))?;
    Ok(file)
}

fn report(told: &[Renamed], notes: &[String], output: &Path) -> String {
    let mut text = String::new();
    for (name, kind) in Kind::ALL {
        let count = told.iter().filter(|renamed| renamed.kind == kind).count();
        if count > 0 {
            text += &format!("{name:10} {count} renamed\n");
        }
    }
    for note in notes {
        text += &format!("left out of the sidecar: {note}\n");
    }
    text + &format!("written: {}\n", output.display())
}
