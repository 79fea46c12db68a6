//! `tonnage import spendlogs`.

use std::io::{IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clap::builder::TypedValueParser;
use indicatif::ProgressBar;

use crate::cli::Outcome;
use crate::diag::{Error, Result};
use crate::trace::canonical::{Sink, Writer};
use crate::trace::import::spendlogs::{
    Options, Progress, Query, UtcOffset, import_into, import_query_into,
};
use crate::trace::meta::sidecar_path;
use crate::trace::record::{Session, SharedContext};
use crate::units::Span;

mod database;

/// Arguments of `tonnage import spendlogs`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Rows in any form in which they leave LiteLLM, folders of such files, or the live database
    ///
    /// The database itself, as postgres://USER@HOST/DATABASE, is best: complete, and only read. The
    /// password may stand in PGPASSWORD or ~/.pgpass.
    ///
    /// Of files, what psql's `\copy ... csv header` writes is best. Also read are CSV and COPY's
    /// text format without a header, row_to_json lines, pages of GET /spend/logs/v2, arrays of
    /// GET /spend/logs?summarize=false, and the StandardLoggingPayload objects that loggers write,
    /// plain or packed. What a file is, its content says.
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
    /// Where rows are sorted that do not fit in memory; by default beside the trace to be written
    #[arg(long, value_name = "FOLDER")]
    temp_dir: Option<PathBuf>,
    /// The columns of a table without a header, if they cannot be told by what they hold
    #[arg(long, value_name = "NAME,NAME,...", value_delimiter = ',')]
    columns: Vec<String>,
    #[command(flatten)]
    database: database::DatabaseArgs,
}

/// Runs the import.
pub fn run(args: &Args) -> Result<Outcome> {
    keep_inputs(&args.files, &args.output)?;
    // The trace will have room there, so the rows have it too, more or less.
    let beside = args.output.parent().filter(|folder| !folder.as_os_str().is_empty());
    let beside = beside.map_or_else(|| PathBuf::from("."), PathBuf::from);
    let options = Options {
        turn_gap: args.turn_gap,
        regroup_gap: args.regroup_gap,
        keep_ids: args.keep_ids,
        skip_bad: args.skip_bad,
        utc_offset: args.utc_offset,
        columns: args.columns.clone(),
        temp_dir: Some(args.temp_dir.clone().unwrap_or(beside)),
        ..Options::default()
    };
    let query = args.database.query(&args.files, args.utc_offset)?;
    if query.is_some() && !args.columns.is_empty() {
        let error = Error::new("a database tells its columns itself");
        return Err(error.in_field("--columns"));
    }
    let mut output = Output { path: &args.output, writer: None };
    output.probe()?;
    options.probe_temp_dir()?;
    let work = || match &query {
        Some(query) => import_query_into(query, &options, &mut output),
        None => import_into(&args.files, &options, &mut output),
    };
    let (mut meta, report) = with_progress(&options.progress, work)?;
    meta.made_by = Some(made_by(&options, query.as_ref()));
    // Both or neither: what can fail is done before the trace gets its name.
    let sidecar = meta.prepare_beside(&args.output)?;
    output.finish()?;
    sidecar.commit()?;
    // The trace is written; who does not read the report loses nothing.
    let _ = write!(std::io::stderr(), "{report}");
    Ok(Outcome::Met)
}

/// Neither the trace nor its sidecar may take the place of what it is made of, by whatever name.
fn keep_inputs(files: &[PathBuf], output: &Path) -> Result<()> {
    let real = |path: &Path| std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let written = [real(output), real(&sidecar_path(output))];
    match files.iter().find(|file| written.contains(&real(file))) {
        Some(file) => {
            let error = Error::new("the trace or its sidecar would replace an input");
            Err(error.in_file(file.display()))
        }
        None => Ok(()),
    }
}

/// Runs the import while a line on the terminal shows how far it has come.
fn with_progress<T>(progress: &Progress, work: impl FnOnce() -> T) -> T {
    if !std::io::stderr().is_terminal() {
        return work();
    }
    let bar = ProgressBar::new_spinner();
    let done = AtomicBool::new(false);
    let result = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                bar.set_message(match progress.calls.load(Ordering::Relaxed) {
                    0 => format!("{} rows read", progress.rows.load(Ordering::Relaxed)),
                    calls => format!("{calls} calls written"),
                });
                bar.tick();
                std::thread::sleep(Duration::from_millis(100));
            }
        });
        let _done = SetAtEnd(&done);
        work()
    });
    bar.finish_and_clear();
    result
}

/// Says that the work has ended, also if it has panicked.
struct SetAtEnd<'a>(&'a AtomicBool);

impl Drop for SetAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The trace to be written, begun when there is something to write: reading takes long, and if it
/// is interrupted no file with a name should be left.
struct Output<'a> {
    path: &'a Path,
    writer: Option<Writer<'static>>,
}

impl Output<'_> {
    /// Finds out at once what would else be found out at the end.
    fn probe(&self) -> Result<()> {
        Writer::create(self.path).map(drop)
    }

    fn writer(&mut self) -> Result<&mut Writer<'static>> {
        match &mut self.writer {
            Some(writer) => Ok(writer),
            none => Ok(none.insert(Writer::create(self.path)?)),
        }
    }

    fn finish(self) -> Result<()> {
        self.writer.map_or(Ok(()), Writer::finish)
    }
}

impl Sink for Output<'_> {
    fn context(&mut self, context: &SharedContext) -> Result<()> {
        self.writer()?.context(context)
    }

    fn session(&mut self, session: &Session) -> Result<()> {
        self.writer()?.session(session)
    }
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
    command + &query.map(database::made_by).unwrap_or_default()
}

/// Reads a number of seconds such as `60` or `1.5`.
fn seconds() -> impl TypedValueParser<Value = Span> {
    clap::builder::NonEmptyStringValueParser::new().try_map(|text| {
        Span::parse_secs(&text)
            .ok_or_else(|| Error::found(&text, "a number of seconds, 0 or more, such as `60`"))
    })
}
