//! What to check before a trace is trusted.

use super::SESSION_CALLS_MAX;
use super::calls::Found;
use super::group::Counts;
use super::rows::Collector;
use crate::diag::Warning;

/// A warning if there is anything to count.
type Counted = (u64, String);

/// All warnings of an import.
pub(super) fn warnings(collector: &Collector, counts: &Counts, found: &Found) -> Vec<Warning> {
    let own = rows(collector, counts).into_iter().chain(sessions(counts, found));
    let own = own.filter(|&(count, _)| count > 0).map(|(_, text)| Warning(text));
    collector.warnings.iter().cloned().chain(collector.clock.warnings()).chain(own).collect()
}

/// Of rows and their ids.
fn rows(collector: &Collector, counts: &Counts) -> [Counted; 4] {
    let (total, read) = (collector.query_total, collector.read);
    let regrouped = &counts.regrouped;
    let pages = collector.files.iter().any(|file| file.form == "v2 page");
    let pages = if pages { " (or were the pages asked for with group_by_session?)" } else { "" };
    [
        (
            total.saturating_sub(read),
            format!("the query has {total} rows and the pages hold {read}"),
        ),
        (
            counts.guessable_ids,
            format!(
                "{} request ids look numbered rather than random: where a server repeats its ids, \
                 LiteLLM drops the later rows, so calls may be missing",
                counts.guessable_ids
            ),
        ),
        (
            u64::from(regrouped.every_id_once),
            format!(
                "no session id is on two rows, so none says which calls belong together{pages}: \
                 calls were put together by caller, time and growth"
            ),
        ),
        (
            regrouped.overfull_ids,
            format!(
                "{} session ids are on more than {SESSION_CALLS_MAX} calls each, so they are no \
                 session's: their {} calls were put together by caller, time and growth",
                regrouped.overfull_ids, regrouped.overfull_calls
            ),
        ),
    ]
}

/// Of sessions and their calls.
fn sessions(counts: &Counts, found: &Found) -> [Counted; 4] {
    [
        (
            counts.orphans,
            format!(
                "{} sessions name a parent that is not in the input; they stand alone",
                counts.orphans
            ),
        ),
        (
            counts.crowded,
            format!(
                "{} sessions stand alone, since with them their parent would have more than \
                 {SESSION_CALLS_MAX} calls",
                counts.crowded
            ),
        ),
        (
            found.gaps,
            format!(
                "{} prompts hit more cached tokens than all calls of their session before them had \
                 sent or got: calls in between may be missing, or another session sent the same",
                found.gaps
            ),
        ),
        (
            found.outliers,
            format!(
                "{} prompts are ten times as long as the ones before and after them in their lane: \
                 miscounted?",
                found.outliers
            ),
        ),
    ]
}
