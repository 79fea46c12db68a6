//! `tonnage trace sample`.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use super::files::{Input, Output, made_by, shown, tell};
use crate::cli::Outcome;
use crate::diag::Result;
use crate::trace::tools::sample::{Sampled, Size, sample};
use crate::trace::tools::survey::Stratum;

const HELP: &str = "\
Sessions are kept whole, at their recorded times: the sample is as much less load. What counts as a
stratum is a tenant with a profile, going by a session's first call; each gets its share of the
sessions, to the nearest whole number by the largest remainder. Shared contexts that are no longer
used are left out.

Examples:
  tonnage trace sample week.csv.zst --share 0.1 -o tenth.csv.zst
  tonnage trace sample week.csv.zst --sessions 200 --seed 7 -o small.csv";

/// Arguments of `tonnage trace sample`.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
#[command(group = clap::ArgGroup::new("size").required(true))]
pub struct Args {
    /// Canonical trace: CSV, plain, gzip or zstd
    trace: PathBuf,
    /// Share of the sessions that is kept, above 0 and up to 1
    #[arg(long, value_name = "SHARE", group = "size")]
    share: Option<f64>,
    /// Number of sessions that is kept
    #[arg(long, value_name = "N", group = "size")]
    sessions: Option<u64>,
    /// Seed of the choice
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// The trace to write: X.csv, X.csv.gz or X.csv.zst; X.meta.json is put beside it
    #[arg(short, long, value_name = "OUT")]
    output: PathBuf,
}

/// Runs the tool.
pub fn run(args: &Args) -> Result<Outcome> {
    let (size, option) = match (args.sessions, args.share) {
        (Some(sessions), _) => (Size::Sessions(sessions), format!("--sessions {sessions}")),
        (None, share) => {
            let share = share.unwrap_or(1.0);
            (Size::Share(share), format!("--share {share}"))
        }
    };
    let input = Input::open(&args.trace)?;
    let mut meta = input.meta()?;
    let mut output = Output::create(&args.output, [&args.trace])?;
    let field = if args.sessions.is_some() { "--sessions" } else { "--share" };
    let sampled = sample(&input, size, args.seed, &mut output).map_err(|error| {
        if error.place().file.is_some() { error } else { error.in_field(field) }
    })?;
    drop(input);
    let options = format!(" {option} --seed {}", args.seed);
    meta.made_by = Some(made_by(meta.made_by.as_deref(), "sample", &[&args.trace], &options));
    output.finish(&meta)?;
    tell(&told(&sampled, &args.output));
    Ok(Outcome::Met)
}

fn told(sampled: &Sampled, output: &Path) -> String {
    let mut text = format!(
        "{:16} {:16} {:>9} {:>9} {:>9} {:>9}\n",
        "tenant", "profile", "sessions", "kept", "calls", "kept"
    );
    let mut row = |tenant: &str, profile: &str, numbers: [u64; 4]| {
        let [sessions, kept, calls, calls_kept] = numbers;
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "{tenant:16} {profile:16} {sessions:9} {kept:9} {calls:9} {calls_kept:9}"
        );
    };
    let mut sums = [0; 4];
    for (whole, kept) in sampled.whole.iter().zip(&sampled.kept) {
        let numbers = [whole.sessions, kept.sessions, whole.calls, kept.calls];
        sums.iter_mut().zip(numbers).for_each(|(sum, number)| *sum += number);
        row(shown(&whole.tenant), shown(&whole.profile), numbers);
    }
    if sampled.whole.len() > 1 {
        row("all", "", sums);
    }
    let lost: Vec<&Stratum> = sampled.kept.iter().filter(|kept| kept.sessions == 0).collect();
    let _ =
        writeln!(text, "shared contexts: {} of {} kept", sampled.contexts_kept, sampled.contexts);
    if !lost.is_empty() {
        let _ = writeln!(text, "{} strata are too small for the sample to hold any", lost.len());
    }
    if sampled.contexts_less_common > 0 {
        let _ = writeln!(
            text,
            "{} shared contexts have five users or more in the whole and fewer in the sample: a \
             population that\nplays the sample more than once takes them for conversations, not \
             for system prompts",
            sampled.contexts_less_common
        );
    }
    let _ = writeln!(text, "written: {}", output.display());
    text
}
