//! `tonnage trace check`.

use std::fmt::Write;
use std::io::IsTerminal;
use std::path::PathBuf;
use std::time::Duration;

use indicatif::ProgressBar;

use super::files::tell;
use crate::cli::Outcome;
use crate::diag::{Error, Result};
use crate::trace::canonical::{self, Reader};
use crate::trace::meta::Meta;
use crate::trace::record::Item;
use crate::trace::tools::inspect::Inspection;

const HELP: &str = "\
Every violation of a rule is shown with file, line and column, up to --limit; of a session with a
row that cannot be read, the first. What is legal and yet doubtful is a warning. The sidecar is
checked too.

Exit codes: 0 the trace keeps every rule, 2 it does not.

Example:
  tonnage trace check week.csv.zst";

/// Arguments of `tonnage trace check`.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub struct Args {
    /// Canonical trace: CSV, plain, gzip or zstd; - is standard input
    trace: PathBuf,
    /// Show at most so many violations
    #[arg(long, value_name = "N", default_value_t = 20)]
    limit: usize,
}

/// Runs the tool.
pub fn run(args: &Args) -> Result<Outcome> {
    let reader = Reader::open(&args.trace)?.lenient();
    let bar = match std::io::stderr().is_terminal() {
        true => ProgressBar::new_spinner().with_message("sessions and contexts read"),
        false => ProgressBar::hidden(),
    };
    bar.enable_steady_tick(Duration::from_millis(100));
    let mut inspection = Inspection::default();
    let (mut count, mut shown) = (0u64, Vec::new());
    let sidecar = Meta::read_beside(&args.trace).err().map(Err);
    for item in sidecar.into_iter().chain(reader.inspect(|_| bar.inc(1))) {
        match item {
            Ok(Item::Context(context)) => inspection.context(&context),
            Ok(Item::Session(session)) => inspection.session(&session),
            Err(error) => {
                count += 1;
                if shown.len() < args.limit {
                    shown.push(error);
                }
            }
        }
    }
    bar.finish_and_clear();
    if count == 0 {
        tell(&told(&inspection));
        return Ok(Outcome::Met);
    }
    for error in &shown {
        eprintln!("error: {error}");
    }
    let hidden = count - shown.len() as u64;
    let more = if hidden > 0 { format!(", {hidden} not shown (--limit)") } else { String::new() };
    let broken = match count {
        1 => format!("a rule of a trace is broken{more}"),
        _ => format!("rules of a trace are broken {count} times{more}"),
    };
    Err(Error::new(broken).in_file(canonical::display_name(&args.trace)))
}

fn told(found: &Inspection) -> String {
    let names = [
        ("tenants", found.tenants.len()),
        ("users", found.users.len()),
        ("models", found.models.len()),
        ("profiles", found.profiles.len()),
    ];
    let names: Vec<String> = names.iter().map(|(what, count)| format!("{count} {what}")).collect();
    let mut text = format!(
        "sessions         {}\ncalls            {}, {} of subagents\nshared contexts  {}\n\
         prompt tokens    {}\noutput tokens    {}\nspan             {} s\nnames            {}\n\
         every rule is kept\n",
        found.sessions,
        found.calls,
        found.subagent_calls,
        found.contexts(),
        found.prompt_tokens,
        found.output_tokens,
        found.span.secs_text(),
        names.join(", "),
    );
    for (doubt, occurrences) in found.doubts() {
        let says = doubt.says();
        // Writing to a string cannot fail.
        let _ =
            writeln!(text, "warning: {} {says} (first: {})", occurrences.count, occurrences.first);
    }
    text
}
