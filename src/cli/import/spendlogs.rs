//! `tonnage import spendlogs`.

use std::io::{IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::builder::TypedValueParser;
use indicatif::{ProgressBar, ProgressStyle};

use crate::cli::Outcome;
use crate::diag::{Error, Result};
use crate::trace::canonical::Writer;
use crate::trace::import::spendlogs::{
    Bound, DatabaseUrl, Import, Options, Query, TableName, UtcOffset, import, import_query,
};
use crate::units::Span;

/// Arguments of `tonnage import spendlogs`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// CSV of psql's `\copy ... csv header`, or pages of GET /spend/logs/v2; plain, gzip or zstd.
    /// Or the database itself, as postgres://USER@HOST/DATABASE: it is only read. The password may
    /// stand in PGPASSWORD or ~/.pgpass
    #[arg(required = true, value_name = "FILE|URL")]
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
    #[command(flatten)]
    database: DatabaseArgs,
}

/// What may be said of a database, and of no file.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Of a database")]
struct DatabaseArgs {
    /// Only calls that started then or later: a date, or a date with a time
    #[arg(long, value_name = "WHEN")]
    since: Option<String>,
    /// Only calls that started before
    #[arg(long, value_name = "WHEN")]
    until: Option<String>,
    /// Only rows that meet this condition, in SQL, such as "team_id = 'search'"
    #[arg(long = "where", value_name = "SQL")]
    condition: Option<String>,
    /// The table, with its schema if it takes one [default: LiteLLM_SpendLogs]
    #[arg(long, value_name = "[SCHEMA.]TABLE")]
    table: Option<TableName>,
}

impl DatabaseArgs {
    /// The query for a database.
    fn query(&self, url: DatabaseUrl, utc_offset: UtcOffset) -> Result<Query> {
        let bound = |text: &Option<String>, option: &str| {
            let bound = text.as_ref().map(|text| Bound::parse(text, utc_offset));
            bound.transpose().map_err(|error| error.in_field(option))
        };
        Ok(Query {
            url,
            table: self.table.clone().unwrap_or_default(),
            since: bound(&self.since, "--since")?,
            until: bound(&self.until, "--until")?,
            condition: self.condition.clone(),
        })
    }

    /// Refuses what only a database can be asked.
    fn of_files(&self) -> Result<()> {
        let given = [
            (self.since.is_some(), "--since"),
            (self.until.is_some(), "--until"),
            (self.condition.is_some(), "--where"),
            (self.table.is_some(), "--table"),
        ];
        match given.iter().find(|(given, _)| *given) {
            Some((_, option)) => Err(Error::new("this is for databases only, and here is a file")
                .help("the rows of a file are chosen when it is exported")
                .in_field(option)),
            None => Ok(()),
        }
    }
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
    let query = query(args)?;
    let mut done = match &query {
        Some(query) => import_query(query, &options, &mut progress())?,
        None => import(&args.files, &options)?,
    };
    done.meta.made_by = Some(made_by(&options, query.as_ref()));
    write(&done, &args.output)?;
    // The trace is written; who does not read the report loses nothing.
    let _ = write!(std::io::stderr(), "{}", done.report);
    Ok(Outcome::Met)
}

/// The query, if the input is a database.
fn query(args: &Args) -> Result<Option<Query>> {
    let urls = args.files.iter().filter_map(|file| DatabaseUrl::of(file.to_str()?));
    match urls.collect::<Result<Vec<_>>>()?.pop() {
        None => args.database.of_files().map(|()| None),
        Some(url) if args.files.len() == 1 => args.database.query(url, args.utc_offset).map(Some),
        Some(_) => Err(Error::new("a database is an input of its own, without others beside it")),
    }
}

/// Shows on a terminal how many rows were read.
fn progress() -> impl FnMut(u64) {
    let bar = std::io::stderr().is_terminal().then(|| {
        let style = ProgressStyle::with_template("{spinner} {human_pos} rows, {per_sec}");
        let style = style.unwrap_or_else(|_| ProgressStyle::default_spinner());
        let bar = ProgressBar::new_spinner().with_style(style);
        bar.enable_steady_tick(Duration::from_millis(100));
        bar
    });
    move |rows| {
        if let Some(bar) = &bar {
            bar.set_position(rows);
        }
    }
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

/// The command without what may be private: names of files, the database, the condition.
fn made_by(options: &Options, query: Option<&Query>) -> String {
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
    let Some(query) = query else { return command };
    for (bound, option) in [(query.since, " --since "), (query.until, " --until ")] {
        if let Some(bound) = bound {
            command.push_str(&format!("{option}{bound}"));
        }
    }
    if query.condition.is_some() {
        command.push_str(" --where ...");
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
