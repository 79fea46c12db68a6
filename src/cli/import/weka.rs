//! `tonnage import weka`.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use clap::ValueEnum;

use crate::cli::Outcome;
use crate::diag::{Error, Result};
use crate::trace::canonical::Writer;
use crate::trace::import::weka::{self, Import, Options, Outputs, Report};
use crate::units::{Span, Tokens};

/// Arguments of `tonnage import weka`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Run-length JSONL (plain, .gz, .zst), or the original JSON of single sessions
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// The trace to write: X.csv, X.csv.gz or X.csv.zst; X.meta.json is put beside it
    #[arg(short, long, value_name = "OUT")]
    output: PathBuf,
    /// Seconds between the starts of two sessions, which the files do not tell
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = seconds)]
    stagger: Span,
    /// Whether a prompt repeats the answer to the prompt that it continues
    #[arg(long, value_enum, default_value_t = KeepOutputs::Auto)]
    outputs: KeepOutputs,
    /// Output tokens per second of calls whose duration was not recorded
    #[arg(long, value_name = "RATE", default_value_t = 60.0)]
    assume_tps: f64,
    /// Keep the sessions' ids instead of numbering them
    #[arg(long)]
    keep_ids: bool,
    /// Leave lines out that cannot be used, instead of refusing the import
    #[arg(long)]
    skip_bad: bool,
    /// Import only these sessions, by their ids in the file
    #[arg(long, value_name = "ID", value_delimiter = ',')]
    only: Vec<String>,
    /// Leave out sessions with a call of more than N tokens, prompt and output together
    #[arg(long, value_name = "N")]
    max_context: Option<u64>,
    /// Leave out sessions that last longer, from their start to the end of their last call
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    max_span_s: Option<Span>,
    /// Licence of the data, for the sidecar
    #[arg(long, value_name = "TEXT")]
    licence: Option<String>,
}

/// Whether prompts repeat the answers before them.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum KeepOutputs {
    /// Where the prompt has grown by as much
    Auto,
    /// Always, as far as the prompt has grown
    Kept,
    /// Never: the answers are stripped
    Dropped,
}

/// Runs the import.
pub fn run(args: &Args) -> Result<Outcome> {
    if args.files.contains(&args.output) {
        let error = Error::new("the trace would replace a file that it is made of");
        return Err(error.in_file(args.output.display()));
    }
    let mut import = weka::import(&args.files, &args.options())?;
    import.meta.made_by = Some(args.made_by());
    write(&import, &args.output)?;
    print_warnings(&import.report);
    // The trace is written; a reader of the summary that has seen enough is no failure.
    let _ = std::io::stdout().write_all(summary(&import, &args.output).as_bytes());
    Ok(Outcome::Met)
}

/// Writes the trace, then its sidecar.
fn write(import: &Import, out: &Path) -> Result<()> {
    let mut writer = Writer::create(out)?;
    for context in &import.trace.contexts {
        writer.context(context)?;
    }
    for session in &import.trace.sessions {
        writer.session(session)?;
    }
    // Both or neither: what can fail is done before the trace gets its name.
    let sidecar = import.meta.prepare_beside(out)?;
    writer.finish()?;
    sidecar.commit()
}

impl Args {
    fn options(&self) -> Options {
        Options {
            stagger: self.stagger,
            outputs: match self.outputs {
                KeepOutputs::Auto => Outputs::Auto,
                KeepOutputs::Kept => Outputs::Kept,
                KeepOutputs::Dropped => Outputs::Dropped,
            },
            assume_tps: self.assume_tps,
            keep_ids: self.keep_ids,
            skip_bad: self.skip_bad,
            only: self.only.clone(),
            max_context: self.max_context.map(Tokens),
            max_span: self.max_span_s,
            licence: self.licence.clone(),
        }
    }

    /// The command for the sidecar: files by their names only, and no id that was taken away.
    fn made_by(&self) -> String {
        let mut command = format!("tonnage {} import weka", env!("CARGO_PKG_VERSION"));
        for file in self.files.iter().filter_map(|file| file.file_name()) {
            command += &format!(" {}", file.to_string_lossy());
        }
        let outputs = self.outputs.to_possible_value();
        let outputs = outputs.as_ref().map_or("", |value| value.get_name());
        command += &format!(
            " --stagger {} --outputs {outputs} --assume-tps {}",
            self.stagger.secs_text(),
            self.assume_tps
        );
        if self.keep_ids {
            command += " --keep-ids";
        }
        if self.skip_bad {
            command += " --skip-bad";
        }
        if !self.only.is_empty() {
            let ids = self.only.join(",");
            let hidden = format!("({} ids)", self.only.len());
            command += &format!(" --only {}", if self.keep_ids { ids } else { hidden });
        }
        if let Some(tokens) = self.max_context {
            command += &format!(" --max-context {tokens}");
        }
        if let Some(span) = self.max_span_s {
            command += &format!(" --max-span-s {}", span.secs_text());
        }
        command
    }
}

fn seconds(text: &str) -> std::result::Result<Span, String> {
    Span::parse_secs(text).ok_or_else(|| "allowed: a decimal number of seconds from 0".to_owned())
}

fn print_warnings(report: &Report) {
    for error in report.bad.shown() {
        eprintln!("warning: left out: {error}");
    }
    let hidden = report.bad.count() - report.bad.shown().len() as u64;
    if hidden > 0 {
        eprintln!("warning: left out: {hidden} more lines that cannot be used");
    }
    for (model, calls) in &report.unlisted_models {
        eprintln!("warning: {calls} calls of model `{model}`, which their session does not list");
    }
}

fn summary(import: &Import, out: &Path) -> String {
    let report = &import.report;
    let left_out = [
        (report.bad.count(), "cannot be used"),
        (report.not_asked, "not named by --only"),
        (report.too_long_context, "above --max-context"),
        (report.too_long_span, "above --max-span-s"),
    ];
    let dropped: u64 = left_out.iter().map(|(count, _)| count).sum();
    let mut rows = vec![
        ("files read", report.files.to_string()),
        ("sessions read", report.lines.to_string()),
        ("sessions kept", report.sessions.to_string()),
        ("sessions dropped", dropped.to_string()),
    ];
    for (count, why) in left_out.iter().filter(|(count, _)| *count > 0) {
        rows.push(("", format!("{count} {why}")));
    }
    rows.extend([
        ("calls", format!("{}, {} of main agents", report.calls, report.main_calls)),
        ("calls per turn", turns(report)),
        ("server time", format!("estimated for {} calls", report.estimated)),
        ("parallel calls", report.parallel.to_string()),
        ("subagents", subagents(report)),
        ("outputs", format!("{} calls repeat their base's output", report.outputs_kept)),
        ("without output", format!("{} calls", report.no_output)),
        ("shared contexts", report.contexts.to_string()),
        ("written", out.display().to_string()),
    ]);
    if report.reordered_lanes > 0 {
        let text = format!("calls of {} agents, sorted by time", report.reordered_lanes);
        rows.push(("out of order", text));
    }
    rows.into_iter().fold(String::new(), |mut text, (name, value)| {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{name:<17} {value}");
        text
    })
}

fn subagents(report: &Report) -> String {
    let counted = [
        (report.joined_lanes, "joined"),
        (report.async_lanes, "asynchronous"),
        (report.unused_lanes, "with no later call"),
        (report.empty_lanes, "without calls"),
        (report.early_lanes, "older than their session"),
    ];
    let always = 2;
    let shown = counted.iter().enumerate().filter(|(n, (count, _))| *n < always || *count > 0);
    shown.map(|(_, (count, what))| format!("{count} {what}")).collect::<Vec<_>>().join(", ")
}

/// Turns as the reference figures of the public traces count them.
fn turns(report: &Report) -> String {
    let Some(mean) = report.calls_per_turn_mean() else { return "no turns".to_owned() };
    let points = [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("max", 1.0)];
    let points = points.iter().filter_map(|(name, share)| {
        report.calls_per_turn_at(*share).map(|calls| format!("{name} {calls}"))
    });
    let points: Vec<String> = points.collect();
    format!("mean {mean:.3}, {} over {} turns", points.join(", "), report.calls_per_turn.len())
}
