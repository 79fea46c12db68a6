//! Importer of LiteLLM_SpendLogs: one row a call, in any form in which rows leave LiteLLM.
//!
//! Rows carry no parent, no turn and (by default) no text. What a row says is taken as it stands;
//! the rest is inferred by rules that `docs/spendlogs.md` lists, and the [`Report`] counts what
//! rests on which of them.
//!
//! The work goes through stages, one file each: `open` finds out what a file is; `table_form` and
//! `json_form` read rows into the `rows::Collector`; `group` makes sessions of them; `calls`
//! finds, one session at a time, lanes (`lanes`), waits and turns (`flow`) and lineage (`lineage`).
//! Rows are held in a buffer and then in temporary files (`spool`), so memory does not grow with
//! them.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::diag::{Error, Result};
use crate::trace::canonical::Sink;
use crate::trace::meta::Meta;
use crate::trace::record::Trace;
use crate::units::Span;

mod calls;
mod clock;
mod columns;
mod cut;
mod element;
mod fingerprint;
mod flow;
mod group;
mod head;
mod input;
mod json;
mod json_form;
mod lanes;
mod layout;
mod lineage;
mod metadata;
mod names;
mod near;
mod offsets;
mod open;
mod parents;
mod plan;
mod postgres;
mod prompt;
mod regroup;
mod report;
mod request;
mod row;
mod rows;
mod settle;
mod shared;
mod spool;
mod symbols;
mod table;
mod table_form;
mod tally;
mod time;
mod warn;

pub use self::postgres::{Bound, DatabaseUrl, Query, TableName};
pub use open::first_file;
pub use report::{CachedHour, Evidence, FileReport, HumanHours, Regrouped, Report};
pub use time::UtcOffset;

/// How many bad rows are shown by name; all are counted.
const BAD_ROWS_SHOWN: usize = 5;

/// An id that more calls carry is a constant that a client puts in, and no session's.
const SESSION_CALLS_MAX: usize = 10_000;

/// What the user may decide about an import.
#[derive(Clone, Debug)]
pub struct Options {
    /// A longer client gap in the main lane starts a new user turn.
    pub turn_gap: Span,
    /// The longest pause over which calls without a session id of their own are put together.
    pub regroup_gap: Span,
    /// Keeps ids, keys, users and teams as they are instead of giving them short names.
    pub keep_ids: bool,
    /// Leaves out rows that cannot be read instead of stopping.
    pub skip_bad: bool,
    /// The clock of timestamps that carry no offset.
    pub utc_offset: UtcOffset,
    /// The columns of tables without a header, in their order; empty to find them by their content.
    pub columns: Vec<String>,
    /// Bytes of rows that each of the few stages holds before it uses temporary files.
    pub buffer_bytes: usize,
    /// The folder of temporary files; the system's, if none is named.
    pub temp_dir: Option<PathBuf>,
    /// How far the import has come, for whoever wants to show it.
    pub progress: Arc<Progress>,
}

/// How far an import has come. All rows are read before the first call is written.
#[derive(Debug, Default)]
pub struct Progress {
    /// Rows read.
    pub rows: AtomicU64,
    /// Calls written.
    pub calls: AtomicU64,
}

impl Options {
    /// Finds out at once whether temporary files can be made, not when there are many rows.
    ///
    /// # Errors
    /// If they cannot.
    pub fn probe_temp_dir(&self) -> Result<()> {
        let folder = self.room().folder;
        tempfile::tempfile_in(&folder)
            .map(drop)
            .map_err(|error| Error::io(&folder, "make temporary files in this folder", &error))
    }

    fn room(&self) -> spool::Room {
        let folder = self.temp_dir.clone().unwrap_or_else(std::env::temp_dir);
        spool::Room { folder, buffer_bytes: self.buffer_bytes }
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            turn_gap: Span::from_secs(60),
            regroup_gap: Span::from_secs(1_800),
            keep_ids: false,
            skip_bad: false,
            utc_offset: UtcOffset::default(),
            buffer_bytes: 24 << 20,
            temp_dir: None,
            progress: Arc::default(),
            columns: Vec::new(),
        }
    }
}

/// What an import gives.
#[derive(Clone, Debug)]
pub struct Import {
    /// The sessions, in order of their start, and the contexts that they share.
    pub trace: Trace,
    /// The sidecar. `made_by` is left to the caller, who knows the command.
    pub meta: Meta,
    /// What was read, kept, left out and assumed.
    pub report: Report,
}

/// Reads files of SpendLogs rows (several files are parts of one export) into one trace in memory.
///
/// # Errors
/// As for [`import_into`].
pub fn import(files: &[PathBuf], options: &Options) -> Result<Import> {
    let mut trace = Trace::default();
    let (meta, report) = import_into(files, options, &mut trace)?;
    Ok(Import { trace, meta, report })
}

/// Reads files of SpendLogs rows (several files are parts of one export) and writes one trace,
/// session by session. Memory does not grow with the rows.
///
/// # Errors
/// A file that cannot be read or is of another form; a bad row, unless they are to be skipped; no
/// call left to import; temporary files or an output that cannot be written.
pub fn import_into(
    files: &[PathBuf],
    options: &Options,
    sink: &mut impl Sink,
) -> Result<(Meta, Report)> {
    let mut collector = rows::Collector::new(options);
    for file in files {
        open::read(file, options, &mut collector)?;
    }
    finish(collector, options, sink)
}

/// Reads rows of a live database and writes one trace, session by session.
///
/// # Errors
/// A database that cannot be reached or does not have such rows, a connection that breaks; and as
/// for files.
pub fn import_query_into(
    query: &Query,
    options: &Options,
    sink: &mut impl Sink,
) -> Result<(Meta, Report)> {
    let mut collector = rows::Collector::new(options);
    postgres::read(query, options.utc_offset, &mut collector)?;
    finish(collector, options, sink)
}

/// Makes a trace of the rows that were read.
fn finish(
    mut collector: rows::Collector,
    options: &Options,
    sink: &mut impl Sink,
) -> Result<(Meta, Report)> {
    collector.check()?;
    if !options.skip_bad
        && let Some(error) = collector.bad_rows_error()
    {
        return Err(error);
    }
    let grouped = group::group(&mut collector, options)?;
    if grouped.counts.calls == 0 {
        return Err(no_calls(&collector, &grouped.counts));
    }
    let (written, calls) = write(grouped.calls, grouped.prefixes, &collector, options, sink)?;
    let report = assemble(&collector, &grouped.counts, written, calls, options)?;
    let meta = Meta {
        format_version: 1,
        source: Some("LiteLLM_SpendLogs".to_owned()),
        start: Some(report.start.clone()),
        notes: report.notes(),
        ..Meta::default()
    };
    Ok((meta, report))
}

/// What was found while the trace was written.
struct Written {
    found: calls::Found,
    shared_contexts: u64,
    start: String,
}

/// Writes the sessions, of which one at a time is in memory.
fn write(
    placed: spool::Sorted<group::Placed>,
    prefixes: shared::Prefixes,
    collector: &rows::Collector,
    options: &Options,
    sink: &mut impl Sink,
) -> Result<(Written, tally::Tally)> {
    let mut tally = tally::Tally::new(&options.room());
    let mut placed = spool::Ahead::new(placed)?;
    let mut builder = calls::Builder {
        symbols: &collector.symbols,
        names: names::Names::new(options.keep_ids),
        shared: prefixes.shared()?,
        // The first session's first call is the first of all.
        zero: placed.peek().map_or(0, |first| first.session.start),
        block: collector.block,
        turn_gap: options.turn_gap,
        found: calls::Found::default(),
    };
    let mut calls = 0;
    while let Some(session) = placed.peek().map(|next| next.session) {
        let mut parts: Vec<plan::Part> = Vec::new();
        while let Some(next) = placed.next_if(|next| next.session == session)? {
            tally.add(&next.row)?;
            calls += 1;
            // Parts come in order, none is empty.
            if parts.len() <= next.part as usize {
                let parent = next.parent.map(|parent| parent as usize);
                parts.push(plan::Part { rows: Vec::new(), parent });
            }
            if let Some(part) = parts.last_mut() {
                part.rows.push(next.row);
            }
        }
        let session = builder.session(&parts);
        builder.shared.take_fresh().into_iter().try_for_each(|context| sink.context(&context))?;
        sink.session(&session)?;
        options.progress.calls.store(calls, Ordering::Relaxed);
    }
    let shared_contexts = builder.shared.count();
    let start = time::rfc3339(builder.zero);
    Ok((Written { found: builder.found, shared_contexts, start }, tally))
}

/// Puts the report together.
fn assemble(
    collector: &rows::Collector,
    counts: &group::Counts,
    written: Written,
    tally: tally::Tally,
    options: &Options,
) -> Result<Report> {
    let found = written.found;
    Ok(Report {
        files: collector.files.clone(),
        rows_read: collector.read,
        rows_bad: collector.bad,
        bad_rows: collector.bad_rows.iter().map(ToString::to_string).collect(),
        duplicates: counts.settled.duplicates,
        attempts: counts.settled.attempts,
        cache_hits: counts.cache_hits,
        other_types: counts.other_types.clone(),
        calls_ok: tally.ok,
        calls_failed: tally.failed,
        calls_aborted: tally.aborted,
        start: written.start,
        end: tally.end.map(time::rfc3339).unwrap_or_default(),
        sessions: found.sessions,
        one_call_sessions: found.one_call,
        lanes: found.lanes,
        child_sessions: counts.children,
        agents: counts.agents,
        orphans: counts.orphans,
        regrouped: counts.regrouped.clone(),
        said_turns: found.said_turns,
        gap_turns: found.gap_turns,
        turn_gap: options.turn_gap.secs_text(),
        parallel_calls: found.parallel,
        retried: tally.retried,
        ttft_known: tally.ttft_known,
        cached_known: tally.cached_known,
        assumed_prompts: found.assumed_prompts,
        uncached_prompts: counts.uncached_prompts,
        uncounted: tally.uncounted,
        shared_contexts: written.shared_contexts,
        prompt_p50: tally.prompt_rank(50),
        prompt_p95: tally.prompt_rank(95),
        cached_by_hour: tally.cached_by_hour(),
        warnings: warn::warnings(collector, counts, &found),
        evidence: found.evidence,
        human_hours: tally.human_hours(&collector.symbols)?,
    })
}

/// The error for input that was read and holds nothing to simulate.
fn no_calls(collector: &rows::Collector, counts: &group::Counts) -> Error {
    let other: u64 = counts.other_types.values().sum();
    Error::new(format!(
        "no call to import: {} rows read, of which {} bad, {} duplicates, {} answered from the \
         response cache, {other} of other call types",
        collector.read, collector.bad, counts.settled.duplicates, counts.cache_hits,
    ))
    .help("a one-day query of the API returns nothing when start and end date are the same day")
}
