//! `tonnage trace cut`.

use std::path::PathBuf;
use std::str::FromStr;

use jiff::Timestamp;

use super::files::{Input, Output, made_by, of_option, tell};
use super::seconds;
use crate::cli::Outcome;
use crate::diag::{Error, Result};
use crate::trace::check::TIME_MAX;
use crate::trace::meta::Meta;
use crate::trace::tools::cut::{Cut, Window, cut};
use crate::units::Span;

const HELP: &str = "\
Times are seconds from the start of the trace (3600), or clock times with an offset
(2026-03-02T09:00:00Z), if the trace's sidecar has its start. The new trace begins at --from.

Sessions that had begun before go on with the calls that were running at --from, dispatched anew at
time 0, and with all later ones. What was said before becomes shared contexts, so that prompts keep
their lengths and what they have in common. Calls from --to on are left out.

Examples:
  tonnage trace cut week.csv.zst --from 32400 --to 36000 -o hour.csv
  tonnage trace cut week.csv.zst --from 2026-03-02T09:00:00Z --whole-sessions -o rest.csv.gz";

/// Arguments of `tonnage trace cut`.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub struct Args {
    /// Canonical trace: CSV, plain, gzip or zstd
    trace: PathBuf,
    /// Where the part begins [default: with the trace]
    #[arg(long, value_name = "TIME")]
    from: Option<Moment>,
    /// Where it ends, this instant excluded [default: with the trace]
    #[arg(long, value_name = "TIME")]
    to: Option<Moment>,
    /// Keep the sessions that start in the part, with all of their calls, and no others
    #[arg(long)]
    whole_sessions: bool,
    /// The trace to write: X.csv, X.csv.gz or X.csv.zst; X.meta.json is put beside it
    #[arg(short, long, value_name = "OUT")]
    output: PathBuf,
}

/// A time as a user gives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Moment {
    /// From the start of the trace.
    Elapsed(Span),
    /// On the clock.
    Clock(Timestamp),
}

impl FromStr for Moment {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        if let Ok(span) = seconds(text) {
            return Ok(Self::Elapsed(span));
        }
        text.parse().map(Self::Clock).map_err(|_| {
            "allowed: seconds from the start of the trace, such as 3600, or a clock time with its \
             offset, such as 2026-03-02T09:00:00Z"
                .to_owned()
        })
    }
}

impl Moment {
    /// Time from the start of the trace.
    fn elapsed(self, meta: &Meta, option: &str) -> Result<Span> {
        let clock = match self {
            Self::Elapsed(span) => return Ok(span),
            Self::Clock(clock) => clock,
        };
        let Some(start) = start_of(meta)? else {
            return Err(Error::new("a clock time needs the start of the trace in its sidecar")
                .in_field(option)
                .help("give seconds from the start of the trace, or add `start` to the sidecar"));
        };
        let nanos = clock.as_nanosecond() - start.as_nanosecond();
        u64::try_from(nanos).ok().map(Span).filter(|span| *span <= TIME_MAX).ok_or_else(|| {
            Error::found(clock, format!("{start}, the start of the trace, or later"))
                .in_field(option)
        })
    }
}

/// The start of a trace on the clock, if it is known.
pub fn start_of(meta: &Meta) -> Result<Option<Timestamp>> {
    let Some(start) = &meta.start else { return Ok(None) };
    start.parse().map(Some).map_err(|_| {
        Error::found(start, "a time with its offset, such as 2026-03-02T09:00:00Z")
            .in_field("start")
            .help("this is the start in the trace's sidecar")
    })
}

/// The sidecar of a trace that begins so much later.
pub fn later(mut meta: Meta, by: Span) -> Result<Meta> {
    if by > Span::ZERO
        && let Some(start) = start_of(&meta)?
    {
        let moved = Timestamp::from_nanosecond(start.as_nanosecond() + i128::from(by.0));
        meta.start = moved.ok().map(|start| start.to_string());
    }
    Ok(meta)
}

/// Runs the tool.
pub fn run(args: &Args) -> Result<Outcome> {
    let input = Input::open(&args.trace)?;
    let meta = input.meta()?;
    let from = args.from.map(|from| from.elapsed(&meta, "--from")).transpose()?;
    let window = Window {
        from: from.unwrap_or_default(),
        to: args.to.map(|to| to.elapsed(&meta, "--to")).transpose()?,
        whole_sessions: args.whole_sessions,
    };
    let mut meta = later(meta, window.from)?;
    let mut output = Output::create(&args.output, [&args.trace])?;
    let done = cut(&input, &window, &mut output).map_err(|error| of_option(error, "to"))?;
    drop(input);
    let mut options = format!(" --from {}", window.from.secs_text());
    options.extend(window.to.map(|to| format!(" --to {}", to.secs_text())));
    if window.whole_sessions {
        options += " --whole-sessions";
    } else if done.under_way > 0 {
        meta.notes.push(format!(
            "{} sessions were under way at the start; {} shared contexts stand for what was said \
             in them before",
            done.under_way, done.contexts_made
        ));
    }
    // Calls of sessions that were under way have other numbers now.
    meta.unnumbered_blocks.clear();
    meta.made_by = Some(made_by(meta.made_by.as_deref(), "cut", &[&args.trace], &options));
    output.finish(&meta)?;
    tell(&told(&done, args));
    Ok(Outcome::Met)
}

fn told(done: &Cut, args: &Args) -> String {
    let Cut { sessions, whole, partial, under_way, calls, running, contexts_made } = done;
    format!(
        "{sessions} sessions: {whole} kept whole, {partial} in part, {} left out; {calls} calls\n\
         under way at the start: {under_way} sessions, {running} running calls; {contexts_made} \
         contexts of what was said before\nwritten: {}\n",
        sessions - whole - partial,
        args.output.display()
    )
}
