//! `tonnage import spendlogs`.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use clap::builder::TypedValueParser;

use crate::cli::Outcome;
use crate::diag::{Error, Result};
use crate::trace::canonical::Writer;
use crate::trace::import::spendlogs::{Import, Options, UtcOffset, import};
use crate::units::Span;

/// Arguments of `tonnage import spendlogs`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Rows in any form in which they leave LiteLLM, or folders of such files; plain, gzip or zstd
    ///
    /// psql's `\copy ... csv header` is best: complete, and one file. Also read are CSV and COPY's
    /// text format without a header, row_to_json lines, pages of GET /spend/logs/v2, arrays of
    /// GET /spend/logs?summarize=false, and the StandardLoggingPayload objects that loggers write.
    /// What a file is, its content says.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// The trace to write, compressed if it ends in .gz or .zst; its sidecar stands beside it
    #[arg(short, long, value_name = "OUT.csv[.gz|.zst]")]
    output: PathBuf,
    /// A pause of the main agent longer than this many seconds starts a new user turn
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = seconds())]
    turn_gap: Span,
    /// Calls without a session id of their own are put together over pauses up to this long
    #[arg(long, value_name = "SECONDS", default_value = "1800", value_parser = seconds())]
    regroup_gap: Span,
    /// Keep session ids, keys, users and teams instead of giving them short names
    #[arg(long)]
    keep_ids: bool,
    /// Leave out rows that cannot be read instead of stopping
    #[arg(long)]
    skip_bad: bool,
    /// The clock of timestamps without an offset (LiteLLM before 2025 wrote local time)
    #[arg(long, value_name = "+HH:MM", default_value = "+00:00", allow_hyphen_values = true)]
    utc_offset: UtcOffset,
    /// The columns of a table without a header, if they cannot be told by what they hold
    #[arg(long, value_name = "NAME,NAME,...", value_delimiter = ',')]
    columns: Vec<String>,
}

/// Runs the import.
pub fn run(args: &Args) -> Result<Outcome> {
    if args.files.contains(&args.output) {
        return Err(Error::new("the output is one of the inputs").in_file(args.output.display()));
    }
    let options = Options {
        turn_gap: args.turn_gap,
        regroup_gap: args.regroup_gap,
        keep_ids: args.keep_ids,
        skip_bad: args.skip_bad,
        utc_offset: args.utc_offset,
        columns: args.columns.clone(),
    };
    let mut done = import(&args.files, &options)?;
    done.meta.made_by = Some(made_by(&options));
    write(&done, &args.output)?;
    // The trace is written; who does not read the report loses nothing.
    let _ = write!(std::io::stderr(), "{}", done.report);
    Ok(Outcome::Met)
}

/// Writes trace and sidecar.
fn write(done: &Import, output: &Path) -> Result<()> {
    let mut writer = Writer::create(output)?;
    for session in &done.trace.sessions {
        writer.session(session)?;
    }
    // Both or neither: what can fail is done before the trace gets its name.
    let sidecar = done.meta.prepare_beside(output)?;
    writer.finish()?;
    sidecar.commit()
}

/// The command without the names of files, which may be private.
fn made_by(options: &Options) -> String {
    let mut command = format!(
        "tonnage {} import spendlogs --turn-gap {} --regroup-gap {} --utc-offset {}",
        env!("CARGO_PKG_VERSION"),
        options.turn_gap.secs_text(),
        options.regroup_gap.secs_text(),
        options.utc_offset,
    );
    for (set, flag) in [(options.keep_ids, " --keep-ids"), (options.skip_bad, " --skip-bad")] {
        if set {
            command.push_str(flag);
        }
    }
    command
}

/// Reads a number of seconds such as `60` or `1.5`.
fn seconds() -> impl TypedValueParser<Value = Span> {
    clap::builder::NonEmptyStringValueParser::new().try_map(|text| {
        Span::parse_secs(&text)
            .ok_or_else(|| Error::found(&text, "a number of seconds, 0 or more, such as `60`"))
    })
}
