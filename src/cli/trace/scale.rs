//! `tonnage trace scale`.

use std::path::PathBuf;

use super::files::{Input, Output, made_by, tell};
use super::seconds;
use crate::cli::Outcome;
use crate::diag::Result;
use crate::trace::tools::scale::{Scale, scale};
use crate::units::Span;

const HELP: &str = "\
A clone is somebody else's session: its calls have the same shape and share no content with those
of the original, and its users and keys are new ones, the same for all clones of one pass through
the trace. Shared contexts that at least five sessions use (tools and system prompts) stay common;
all others get one identity a pass. Tenants, models and profiles are kept.

Below 1 whole sessions are left out, as `sample` does it.

Examples:
  tonnage trace scale week.csv.zst --by 1.5 -o more.csv.zst
  tonnage trace scale week.csv.zst --by 3 --jitter 600 --seed 7 -o three.csv";

/// Arguments of `tonnage trace scale`.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub struct Args {
    /// Canonical trace: CSV, plain, gzip or zstd
    trace: PathBuf,
    /// Sessions of the new trace over those of the old one, above 0 and up to 1000
    #[arg(long, value_name = "FACTOR")]
    by: f64,
    /// A clone starts up to so many seconds earlier or later than the original
    #[arg(long, value_name = "SECONDS", default_value = "300", value_parser = seconds)]
    jitter: Span,
    /// Seed of the choice and of the starts
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// The trace to write: X.csv, X.csv.gz or X.csv.zst; X.meta.json is put beside it
    #[arg(short, long, value_name = "OUT")]
    output: PathBuf,
}

/// Runs the tool.
pub fn run(args: &Args) -> Result<Outcome> {
    let input = Input::open(&args.trace)?;
    let mut meta = input.meta()?;
    let mut output = Output::create(&args.output, [&args.trace])?;
    let how = Scale { by: args.by, jitter: args.jitter, seed: args.seed };
    let scaled = scale(&input, &how, &mut output).map_err(|error| {
        if error.place().file.is_some() { error } else { error.in_field("--by") }
    })?;
    drop(input);
    let (by, jitter, seed) = (args.by, args.jitter.secs_text(), args.seed);
    let options = format!(" --by {by} --jitter {jitter} --seed {seed}");
    meta.made_by = Some(made_by(meta.made_by.as_deref(), "scale", &[&args.trace], &options));
    output.finish(&meta)?;
    tell(&format!(
        "{} sessions: {} kept, {} cloned; {} calls\nshared contexts: {} of clones are common to \
         all, {} are new\nwritten: {}\n",
        scaled.sessions,
        scaled.kept,
        scaled.clones,
        scaled.calls,
        scaled.common_contexts,
        scaled.cloned_contexts,
        args.output.display()
    ));
    Ok(Outcome::Met)
}
