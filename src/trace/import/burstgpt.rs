//! Importer of BurstGPT: calls of a university's users to ChatGPT and GPT-4.
//!
//! The earlier releases tell calls only; the later ones also which conversation a call belongs to
//! and how long it took. A call without an answer failed.

use super::flat::{self, Flat, Form, Symbols};
use super::table::{Column, Row};
use super::{Count, Done, Job, Report};
use crate::diag::{Result, Warning};
use crate::trace::canonical::Sink;
use crate::trace::meta::Meta;
use crate::units::{Span, Tokens};

const TIMESTAMP: usize = 0;
const MODEL: usize = 1;
const REQUEST: usize = 2;
const RESPONSE: usize = 3;
const TOTAL: usize = 4;
const LOG_TYPE: usize = 5;
const SESSION: usize = 6;
const ELAPSED: usize = 7;

const COLUMNS: &[Column] = &[
    Column::required("Timestamp"),
    Column::required("Model"),
    Column::required("Request tokens"),
    Column::required("Response tokens"),
    Column::optional("Total tokens"),
    Column::required("Log Type"),
    Column::optional("Session ID"),
    Column::optional("Elapsed time"),
];

/// What data frames write for a cell that holds nothing.
const NOTHING: [&str; 5] = ["", "nan", "NaN", "None", "null"];

/// Reads the calls of all files into a sink.
///
/// # Errors
/// A file that cannot be read or is of another form, rows that cannot be used (unless they are
/// skipped), nothing to import, and those of the sink.
pub fn read(job: &Job, sink: &mut dyn Sink) -> Result<Done> {
    job.options.check_rate()?;
    let mut wrong_totals = WrongTotals::default();
    let mut parse = |row: &Row<'_>, symbols: &mut Symbols| {
        let (flat, total_fits) = parse(row, symbols)?;
        wrong_totals.count(total_fits);
        Ok(flat)
    };
    let form = &mut Form { columns: COLUMNS, parse: &mut parse };
    let (scan, written) = flat::read(job, form, sink)?;
    let alone = scan.kept - scan.in_sessions;
    let mut warnings = flat::unknown_columns(&scan.unknown);
    if wrong_totals.rows() > 0 {
        let rows = wrong_totals.rows();
        let text = format!("{rows} rows whose total is not the sum of request and response");
        warnings.push(Warning(text));
    }
    let mut figures = vec![
        ("calls", format!("{}, {} of them failed", scan.kept, scan.failed)),
        ("sessions", format!("{}, {alone} of them single calls", written.sessions)),
        ("durations", format!("recorded for {} calls", scan.timed)),
        ("order", flat::order_text(scan.disordered)),
    ];
    if scan.in_sessions > 0 {
        figures.extend(written.tally.figures());
    }
    let report = Report {
        unit: "rows",
        files: job.files.len() as u64,
        read: scan.read,
        kept: scan.kept,
        bad: scan.bad,
        figures,
        assumed: vec![
            Count::new(written.estimated, "calls of conversations had their duration estimated"),
            Count::new(scan.no_prompt, "calls that were answered have an empty prompt"),
        ],
        warnings,
        ..Report::default()
    };
    let meta = Meta {
        source: Some(format!("BurstGPT: {}", job.file_names())),
        licence: job.options.licence.clone(),
        notes: notes(&report, scan.first, scan.in_sessions > 0),
        ..Meta::default()
    };
    Ok(Done { meta, report })
}

fn notes(report: &Report, first: Option<i64>, conversations: bool) -> Vec<String> {
    let mut notes = report.notes();
    let first = Span(first.unwrap_or_default().unsigned_abs());
    notes.push(format!("the trace starts at second {} of the origin's clock", first.secs_text()));
    notes.push(match conversations {
        true => "what a prompt repeats of its conversation is inferred from its growth".to_owned(),
        false => "the origin tells no sessions and no sharing: each call stands alone".to_owned(),
    });
    notes
}

/// Rows whose total does not fit. Every row is read twice and found so twice.
#[derive(Default)]
struct WrongTotals(u64);

impl WrongTotals {
    fn count(&mut self, fits: bool) {
        self.0 += u64::from(!fits);
    }

    fn rows(&self) -> u64 {
        self.0 / 2
    }
}

/// The call of a row, and whether its total is what it says.
fn parse(row: &Row<'_>, symbols: &mut Symbols) -> Result<(Flat, bool)> {
    let prompt = row.tokens(REQUEST)?;
    let output = row.tokens(RESPONSE)?;
    let total = row.text(TOTAL)?;
    let total_fits = total.is_empty() || row.tokens(TOTAL)? == prompt + output;
    let session = row.name(SESSION)?;
    if session.starts_with('@') {
        return Err(row.unfit(SESSION, session, "an id without a leading `@`"));
    }
    let duration = match NOTHING.contains(&row.text(ELAPSED)?) {
        true => None,
        false => Some(row.secs(ELAPSED)?),
    };
    let at = row.secs(TIMESTAMP)?;
    let flat = Flat {
        at: i64::try_from(at.0).unwrap_or(i64::MAX),
        prompt,
        output,
        model: symbols.of(row.name(MODEL)?),
        profile: symbols.of(row.name(LOG_TYPE)?),
        session: symbols.of(if NOTHING.contains(&session) { "" } else { session }),
        failed: output == Tokens::ZERO,
        duration,
    };
    Ok((flat, total_fits))
}
