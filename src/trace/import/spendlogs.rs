//! Importer of LiteLLM_SpendLogs: one row a call, from psql's CSV or from `/spend/logs/v2` pages.
//!
//! Rows carry no parent, no turn and (by default) no text. What a row says is taken as it stands;
//! the rest is inferred by rules that `docs/spendlogs.md` lists, and the [`Report`] counts what
//! rests on which of them.
//!
//! The work goes through four stages, one file each: [`open`] finds out what a file is, `csv_form`
//! and `page` read rows into the [`rows::Collector`], `group` makes sessions of them, and `calls`
//! finds lanes (`lanes`), waits, turns and lineage.

use std::path::PathBuf;

use crate::diag::{Error, Result};
use crate::trace::meta::Meta;
use crate::trace::record::Trace;
use crate::units::Span;

mod calls;
mod columns;
mod element;
mod group;
mod input;
mod json;
mod json_form;
mod lanes;
mod layout;
mod metadata;
mod names;
mod offsets;
mod open;
mod postgres;
mod prompt;
mod report;
mod request;
mod rows;
mod table;
mod table_form;
mod time;

pub use self::postgres::{Bound, DatabaseUrl, Query, TableName};
pub use report::{CachedHour, Evidence, FileReport, HumanHours, Regrouped, Report};
pub use time::UtcOffset;

/// How many bad rows are shown by name; all are counted.
const BAD_ROWS_SHOWN: usize = 5;

/// What the user may decide about an import.
#[derive(Clone, Debug, PartialEq, Eq)]
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
}

impl Default for Options {
    fn default() -> Self {
        Self {
            turn_gap: Span::from_secs(60),
            regroup_gap: Span::from_secs(1_800),
            keep_ids: false,
            skip_bad: false,
            utc_offset: UtcOffset::default(),
            columns: Vec::new(),
        }
    }
}

/// What an import gives.
#[derive(Clone, Debug)]
pub struct Import {
    /// The sessions, in order of their start; there are no shared contexts.
    pub trace: Trace,
    /// The sidecar. `made_by` is left to the caller, who knows the command.
    pub meta: Meta,
    /// What was read, kept, left out and assumed.
    pub report: Report,
}

/// Reads files of SpendLogs rows (several files are parts of one export) into one trace.
///
/// # Errors
/// A file that cannot be read or is of another form; a bad row, unless they are to be skipped; no
/// call left to import.
pub fn import(files: &[PathBuf], options: &Options) -> Result<Import> {
    let mut collector = rows::Collector::new(options.utc_offset);
    for file in files {
        open::read(file, options, &mut collector)?;
    }
    build(&collector, options)
}

/// Reads rows of a live database into one trace; `progress` hears how many were read so far.
///
/// # Errors
/// A database that cannot be reached or does not have such rows, a connection that breaks; and as
/// for files.
pub fn import_query(
    query: &Query,
    options: &Options,
    progress: &mut dyn FnMut(u64),
) -> Result<Import> {
    let mut collector = rows::Collector::new(options.utc_offset);
    postgres::read(query, options.utc_offset, &mut collector, progress)?;
    build(&collector, options)
}

/// Makes a trace of the rows.
fn build(collector: &rows::Collector, options: &Options) -> Result<Import> {
    if !options.skip_bad
        && let Some(error) = collector.bad_rows_error()
    {
        return Err(error);
    }
    if collector.rows.is_empty() {
        return Err(no_calls(collector));
    }
    let order = collector.in_order();
    let grouped = group::group(collector, &order, options.regroup_gap);
    let mut names = names::Names::new(collector, &order, options.keep_ids);
    let built = calls::build(collector, &order, &grouped, options.turn_gap, &mut names);
    let report = report::report(collector, &order, &grouped, &built, options);
    let meta = Meta {
        format_version: 1,
        source: Some("LiteLLM_SpendLogs".to_owned()),
        start: Some(time::rfc3339(collector.rows[order[0]].start)),
        notes: report.notes(),
        ..Meta::default()
    };
    let trace = Trace { contexts: Vec::new(), sessions: built.sessions };
    Ok(Import { trace, meta, report })
}

/// The error for input that was read and holds nothing to simulate.
fn no_calls(collector: &rows::Collector) -> Error {
    let counts = &collector.counts;
    let other: u64 = counts.other_types.values().sum();
    Error::new(format!(
        "no call to import: {} rows read, of which {} bad, {} duplicates, {} answered from the \
         response cache, {other} of other call types",
        counts.read, counts.bad, counts.duplicates, counts.cache_hits,
    ))
    .help("a one-day query of the API returns nothing when start and end date are the same day")
}
