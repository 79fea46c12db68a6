//! Tables of one call a row: azure and burstgpt.
//!
//! The files are read twice. The first time every row is checked, and how the rows stand in time is
//! found out; the second time they are written. Rows that are in order and stand alone pass
//! through one by one, so that a file of any length takes no more memory than a short one. Only
//! rows out of order, and those of sessions, are kept until all are there.

use std::path::Path;

use rustc_hash::FxHashMap;

use super::chain::{self, Growth, Step};
use super::table::{Column, Row, Table};
use super::{BadRows, Job, lines, plain_call};
use crate::diag::{Error, Result, Warning};
use crate::trace::canonical::Sink;
use crate::trace::check::numbered_id;
use crate::trace::record::{Call, Cause, Name, Session, Status};
use crate::units::{Span, Tokens};

/// One call as its row tells it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flat {
    /// When it was sent, in nanoseconds of the file's clock.
    pub(super) at: i64,
    pub(super) prompt: Tokens,
    pub(super) output: Tokens,
    /// Model asked for.
    pub(super) model: Symbol,
    /// Kind of work.
    pub(super) profile: Symbol,
    /// Session it belongs to; the empty text if to none.
    pub(super) session: Symbol,
    pub(super) failed: bool,
    /// How long it took, where recorded.
    pub(super) duration: Option<Span>,
}

/// A text that many rows share, by number; 0 is the empty text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Symbol(u32);

/// Texts by number.
#[derive(Debug)]
pub(super) struct Symbols {
    by_text: FxHashMap<Name, Symbol>,
    texts: Vec<Name>,
}

impl Default for Symbols {
    fn default() -> Self {
        let empty = Name::from("");
        let by_text = std::iter::once((Name::clone(&empty), Symbol(0))).collect();
        Self { by_text, texts: vec![empty] }
    }
}

impl Symbols {
    /// The number of a text.
    pub(super) fn of(&mut self, text: &str) -> Symbol {
        if let Some(&symbol) = self.by_text.get(text) {
            return symbol;
        }
        let number = u32::try_from(self.texts.len()).expect("fewer texts than u32::MAX rows");
        let name = Name::from(text);
        self.texts.push(Name::clone(&name));
        self.by_text.insert(name, Symbol(number));
        Symbol(number)
    }

    fn name(&self, symbol: Symbol) -> Name {
        Name::clone(&self.texts[symbol.0 as usize])
    }
}

/// What the first pass found.
#[derive(Debug, Default)]
pub(super) struct Scan {
    pub(super) read: u64,
    pub(super) kept: u64,
    pub(super) bad: BadRows,
    pub(super) failed: u64,
    /// Calls of sessions, and those whose duration was recorded.
    pub(super) in_sessions: u64,
    pub(super) timed: u64,
    pub(super) no_output: u64,
    pub(super) no_prompt: u64,
    /// Columns that the format does not have.
    pub(super) unknown: Vec<String>,
    /// Of all rows kept.
    pub(super) first: Option<i64>,
    last: Option<i64>,
    pub(super) disordered: bool,
}

/// A format of one call a row.
pub(super) struct Form<'a> {
    pub(super) columns: &'static [Column],
    /// Makes a call of a row; it is asked twice for each.
    pub(super) parse: &'a mut dyn FnMut(&Row<'_>, &mut Symbols) -> Result<Flat>,
}

/// What became of the calls that belong to sessions.
#[derive(Debug, Default)]
pub(super) struct Chained {
    pub(super) sessions: u64,
    pub(super) tally: chain::Tally,
    /// Calls whose duration was estimated.
    pub(super) estimated: u64,
}

/// Reads all files into the sink.
pub(super) fn read(job: &Job, form: &mut Form, sink: &mut dyn Sink) -> Result<(Scan, Chained)> {
    job.progress.expect_passes(2);
    let mut symbols = Symbols::default();
    let mut scan = Scan::default();
    for file in &job.files {
        lines::check_rereadable(file)?;
        each(job, file, form, &mut symbols, &mut scan, &mut |_, _| Ok(()))?;
    }
    scan.bad.settle(job.options.skip_bad)?;
    let Some(first) = scan.first else {
        return Err(Error::new(format!("no call to import: {} rows read", scan.read)));
    };
    let mut chained = Chained::default();
    if scan.disordered || scan.in_sessions > 0 {
        let mut rows = Vec::with_capacity(scan.kept as usize);
        for file in &job.files {
            let mut again = Scan::default();
            each(job, file, form, &mut symbols, &mut again, &mut |flat, _| {
                rows.push(flat);
                Ok(())
            })?;
        }
        write_sorted(job, rows, first, &symbols, sink, &mut chained)?;
        return Ok((scan, chained));
    }
    for file in &job.files {
        let mut again = Scan::default();
        let count = &mut chained.sessions;
        each(job, file, form, &mut symbols, &mut again, &mut |flat, symbols| {
            let session = alone(&flat, first, *count, symbols);
            *count += 1;
            sink.session(&session)
        })?;
    }
    Ok((scan, chained))
}

/// Hands on every good row of a file, and counts the others.
fn each(
    job: &Job,
    file: &Path,
    form: &mut Form,
    symbols: &mut Symbols,
    scan: &mut Scan,
    take: &mut dyn FnMut(Flat, &Symbols) -> Result<()>,
) -> Result<()> {
    let mut table = Table::open(job, file, form.columns)?;
    scan.unknown.append(&mut table.unknown);
    while let Some(row) = table.next()? {
        scan.read += 1;
        match row.is_whole().and_then(|()| (form.parse)(&row, symbols)) {
            Ok(flat) => {
                scan.count(&flat);
                take(flat, symbols)?;
            }
            Err(error) => scan.bad.add(row.placed(error)),
        }
    }
    Ok(())
}

impl Scan {
    fn count(&mut self, flat: &Flat) {
        self.kept += 1;
        self.failed += u64::from(flat.failed);
        self.in_sessions += u64::from(flat.session != Symbol::default());
        self.timed += u64::from(flat.duration.is_some());
        self.no_output += u64::from(!flat.failed && flat.output == Tokens::ZERO);
        self.no_prompt += u64::from(!flat.failed && flat.prompt == Tokens::ZERO);
        self.disordered |= self.last.is_some_and(|last| flat.at < last);
        self.last = Some(flat.at);
        self.first = Some(self.first.map_or(flat.at, |first| first.min(flat.at)));
    }
}

/// The time since the first row.
fn since(at: i64, first: i64) -> Span {
    Span(at.abs_diff(first))
}

/// The session of a call that stands alone.
fn alone(flat: &Flat, first: i64, number: u64, symbols: &Symbols) -> Session {
    Session { id: numbered_id(number), calls: vec![call(flat, first, symbols)] }
}

fn call(flat: &Flat, first: i64, symbols: &Symbols) -> Call {
    let mut call = plain_call(since(flat.at, first), flat.prompt, flat.output);
    call.model = symbols.name(flat.model);
    call.profile = symbols.name(flat.profile);
    call.seen_duration = flat.duration;
    if flat.failed {
        call.status = Status::Failed;
    }
    call
}

/// Writes rows that were kept until all were there: by time, those of a session together.
fn write_sorted(
    job: &Job,
    mut rows: Vec<Flat>,
    first: i64,
    symbols: &Symbols,
    sink: &mut dyn Sink,
    chained: &mut Chained,
) -> Result<()> {
    // Stable: rows of one instant stay in the order of the files.
    rows.sort_by_key(|row| row.at);
    let mut of_session: FxHashMap<u32, Vec<u32>> = FxHashMap::default();
    for (number, row) in rows.iter().enumerate() {
        if row.session != Symbol::default() {
            let number = u32::try_from(number)
                .map_err(|_| Error::new("more than u32::MAX rows are too many for sessions"))?;
            of_session.entry(row.session.0).or_default().push(number);
        }
    }
    for row in &rows {
        let session = if row.session == Symbol::default() {
            alone(row, first, chained.sessions, symbols)
        } else {
            // The first row of a session takes all of them, the others find nothing left.
            let Some(own) = of_session.remove(&row.session.0) else { continue };
            let own: Vec<Flat> = own.iter().map(|&number| rows[number as usize]).collect();
            let mut session = conversation(job, &own, first, symbols, chained);
            session.id = match job.options.keep_ids {
                true => symbols.name(row.session),
                false => numbered_id(chained.sessions),
            };
            session
        };
        chained.sessions += 1;
        sink.session(&session)?;
    }
    Ok(())
}

/// A conversation: a person's turn for each row.
fn conversation(
    job: &Job,
    rows: &[Flat],
    first: i64,
    symbols: &Symbols,
    chained: &mut Chained,
) -> Session {
    let mut steps = Vec::with_capacity(rows.len());
    for (number, row) in rows.iter().enumerate() {
        let at = since(row.at, first);
        let next = rows.get(number + 1).map(|next| since(next.at, first).saturating_sub(at));
        let lasted = row.duration.unwrap_or_else(|| {
            chained.estimated += 1;
            job.options.assumed_time(row.output, next.unwrap_or(Span(u64::MAX)))
        });
        steps.push(Step {
            at,
            end: at + lasted,
            prompt: row.prompt,
            output: row.output,
            not_repeated: Tokens::ZERO,
            cached: None,
            failed: row.failed,
        });
    }
    let links = chain::link(&steps, job.options.outputs, Growth::Whole, &mut chained.tally);
    let mut turn = 0;
    let mut calls = Vec::with_capacity(rows.len());
    for (number, (row, link)) in rows.iter().zip(links).enumerate() {
        let mut call = call(row, first, symbols);
        let before = number.checked_sub(1).map(|before| &rows[before]);
        if before.is_some_and(|before| before.failed) {
            call.cause = Cause::Retry;
        } else {
            // A person does not ask again what failed: a retry is of the same turn.
            turn += u32::from(before.is_some());
        }
        call.turn = turn;
        link.fill(&mut call);
        calls.push(call);
    }
    Session { id: Name::from(""), calls }
}

/// What the report says of the order of the rows.
pub(super) fn order_text(disordered: bool) -> String {
    match disordered {
        true => "sorted by time, which the files are not".to_owned(),
        false => "by time, as in the files".to_owned(),
    }
}

/// Warnings of columns that are not read.
pub(super) fn unknown_columns(unknown: &[String]) -> Vec<Warning> {
    let mut names = unknown.to_vec();
    names.sort_unstable();
    names.dedup();
    let warning =
        |name: String| Warning(format!("column {name:?} is none of the format and was not read"));
    names.into_iter().map(warning).collect()
}
