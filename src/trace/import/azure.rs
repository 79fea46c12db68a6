//! Importer of the Azure LLM inference traces: time, prompt and output of every call, no more.
//!
//! Nothing says which calls belong together or what they share, so each is a session of its own.

use super::flat::{self, Flat, Form, Symbol, Symbols};
use super::table::{Column, Row};
use super::{Count, Done, Job, Report, instant};
use crate::diag::{Result, Warning};
use crate::trace::canonical::Sink;
use crate::trace::meta::Meta;

const TIMESTAMP: usize = 0;
const CONTEXT: usize = 1;
const GENERATED: usize = 2;

const COLUMNS: &[Column] = &[
    Column::required("TIMESTAMP"),
    Column::required("ContextTokens"),
    Column::required("GeneratedTokens"),
];

/// Reads the calls of all files, in the order of their time, into a sink.
///
/// # Errors
/// A file that cannot be read or is of another form, rows that cannot be used (unless they are
/// skipped), nothing to import, and those of the sink.
pub fn read(job: &Job, sink: &mut dyn Sink) -> Result<Done> {
    let mut naive_rows = 0u64;
    let mut parse = |row: &Row<'_>, _: &mut Symbols| {
        let (flat, naive) = parse(row)?;
        naive_rows += u64::from(naive);
        Ok(flat)
    };
    let (scan, written) = flat::read(job, &mut Form { columns: COLUMNS, parse: &mut parse }, sink)?;
    let mut warnings = flat::unknown_columns(&scan.unknown);
    if naive_rows > 0 {
        warnings.push(Warning("the timestamps name no time zone: they are taken as UTC".into()));
    }
    let report = Report {
        unit: "rows",
        files: job.files.len() as u64,
        read: scan.read,
        kept: scan.kept,
        bad: scan.bad,
        figures: vec![
            ("calls", format!("{}, each a session of its own", written.sessions)),
            ("order", flat::order_text(scan.disordered)),
        ],
        assumed: vec![
            Count::new(scan.no_prompt, "calls have an empty prompt"),
            Count::new(scan.no_output, "calls have no output"),
        ],
        warnings,
        ..Report::default()
    };
    let mut notes = report.notes();
    notes.push("the origin tells no sessions and no sharing: each call stands alone".to_owned());
    let meta = Meta {
        source: Some(format!("Azure LLM inference trace: {}", job.file_names())),
        licence: job.options.licence.clone(),
        start: scan.first.map(instant::rfc3339),
        notes,
        ..Meta::default()
    };
    Ok(Done { meta, report })
}

/// The call of a row, and whether its time had no offset from UTC.
fn parse(row: &Row<'_>) -> Result<(Flat, bool)> {
    let text = row.text(TIMESTAMP)?;
    let Some((at, naive)) = instant::parse(text) else {
        let allowed = "a date and time such as `2023-11-16 18:17:03.9799600`";
        return Err(row.unfit(TIMESTAMP, text, allowed));
    };
    let flat = Flat {
        at,
        prompt: row.tokens(CONTEXT)?,
        output: row.tokens(GENERATED)?,
        model: Symbol::default(),
        profile: Symbol::default(),
        session: Symbol::default(),
        failed: false,
        duration: None,
    };
    Ok((flat, naive))
}
