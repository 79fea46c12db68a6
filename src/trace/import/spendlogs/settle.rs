//! One row a call: repeated rows and earlier attempts of the same call go.

use std::cmp::Ordering;

use super::row::{Kind, Row};
use super::symbols::Symbols;
use super::time::Micros;
use crate::trace::record::Status;

/// A failure is an earlier attempt of a call if the next one starts at most so long after it.
const RETRY_MICROS: Micros = 600_000_000;

/// What was taken out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Settled {
    /// Rows whose request was there already.
    pub(super) duplicates: u64,
    /// Failures that a later attempt of the same call follows.
    pub(super) attempts: u64,
}

/// Leaves one row of each request, and of each call, among rows of one session that share
/// LiteLLM's id of the call.
///
/// Of a request the row that says most is kept. Callback logs hold a row for each attempt of a
/// call: a failure is left out if the next attempt follows soon, which then counts it among its
/// retries. Two answers are never one call: some clients send the same call id all the time.
pub(super) fn settle(rows: &mut Vec<Row>, symbols: &Symbols) -> Settled {
    let mut settled = Settled::default();
    if rows.len() < 2 {
        return settled;
    }
    let before = rows.len();
    rows.sort_by(|a, b| a.request.cmp(&b.request).then_with(|| fullness(b, a, symbols)));
    rows.dedup_by(|a, b| a.request == b.request);
    settled.duplicates = (before - rows.len()) as u64;
    rows.sort_by_key(Row::standing);
    let mut kept: Vec<Row> = Vec::with_capacity(rows.len());
    for mut row in rows.drain(..) {
        while let Some(failed) = kept.pop_if(|earlier| is_attempt(earlier, &row)) {
            settled.attempts += 1;
            row.retries = row.retries.max(failed.retries + 1);
        }
        kept.push(row);
    }
    *rows = kept;
    settled
}

/// Whether a row is a failed attempt of the call that `later` completes or tries again.
fn is_attempt(earlier: &Row, later: &Row) -> bool {
    let calls = earlier.kind == Kind::Call && later.kind == Kind::Call;
    calls && earlier.status == Status::Failed && later.start - earlier.end <= RETRY_MICROS
}

/// Which of two rows of the same request says more. Only rows that are alike in all are equal.
fn fullness(a: &Row, b: &Row, symbols: &Symbols) -> Ordering {
    let rank = |row: &Row| match row.status {
        Status::Ok => 2,
        Status::Aborted => 1,
        Status::Failed => 0,
    };
    let numbers = |row: &Row| {
        let known = (row.cached, row.first_token, row.stream, row.messages.len());
        let times = (rank(row), row.end, row.start, row.prompt, row.output, row.retries);
        (times, known, (row.parent, row.caller, row.loose))
    };
    let texts = |row: &Row| {
        let symbols = [row.model, row.key, row.tenant, row.user, row.profile]
            .map(|symbol| symbols.name(symbol));
        let kind = match row.kind {
            Kind::Call => (0, None),
            Kind::CacheHit => (1, None),
            Kind::Other(call_type) => (2, Some(call_type)),
        };
        (symbols.map(|name| name.to_string()), kind.0)
    };
    let hashes = |row: &Row| row.messages.iter().map(|message| message.hash).collect::<Vec<_>>();
    numbers(a)
        .cmp(&numbers(b))
        .then_with(|| texts(a).cmp(&texts(b)))
        .then_with(|| hashes(a).cmp(&hashes(b)))
}
