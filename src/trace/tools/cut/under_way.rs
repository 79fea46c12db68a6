//! A session that had begun before the window.

use super::Part;
use super::lineage::{Contexts, Earlier};
use crate::trace::record::{After, AfterEvent, Base, Call, Session};
use crate::units::Span;

/// Of the first `limit` calls of a session those that were running at `from` or were dispatched
/// later; `None` if there is none.
pub fn part(session: &Session, limit: usize, from: Span, contexts: &Contexts) -> Option<Part> {
    let mut kept = kept(&session.calls, from);
    kept.iter_mut().skip(limit).for_each(|kept| *kept = false);
    // The calls' numbers in the new session.
    let mut numbers = vec![None; session.calls.len()];
    let (mut next, mut running) = (0u32, 0);
    for (number, call) in session.calls.iter().enumerate().filter(|(number, _)| kept[*number]) {
        numbers[number] = Some(next);
        running += u64::from(call.at < from);
        next += 1;
    }
    let first = kept.iter().position(|kept| *kept)?;
    let start = session.calls[first].at.max(from);
    let mut earlier = Earlier::new(session, contexts);
    let mut calls = Vec::with_capacity(next as usize);
    for (number, call) in session.calls.iter().enumerate().filter(|(number, _)| kept[*number]) {
        let mut call = call.clone();
        call.base = match call.base {
            Base::Call(base) => match numbers[base as usize] {
                Some(number) => Base::Call(number),
                None => earlier.context(base, call.kept_tokens),
            },
            other => other,
        };
        if call.base == Base::None {
            call.kept_tokens = Default::default();
        }
        call.gap = gap(&session.calls, number, &numbers, (from, start));
        let renumbered = |after: &After| {
            numbers[after.call as usize].map(|call| After { call, event: after.event })
        };
        call.after = call.after.iter().filter_map(renumbered).collect();
        as_seen_from(&mut call, from);
        calls.push(call);
    }
    let session = Session { id: session.id.clone(), calls };
    Some(Part { session, contexts: earlier.made, running })
}

/// Counts a call's times from `from` on. Of one that was running then only the rest is seen.
fn as_seen_from(call: &mut Call, from: Span) {
    let missed = from.saturating_sub(call.at);
    call.at = call.at.saturating_sub(from);
    call.seen_duration = call.seen_duration.map(|duration| duration.saturating_sub(missed));
    call.seen_ttft =
        call.seen_ttft.filter(|ttft| *ttft >= missed).map(|ttft| ttft.saturating_sub(missed));
}

/// Which calls go on: those dispatched from `from` on, those that had not ended by then, and all
/// that build on one of them, which the recorded times may place earlier.
fn kept(calls: &[Call], from: Span) -> Vec<bool> {
    let ends = ends(calls);
    let mut kept = vec![false; calls.len()];
    // Calls that cannot be dispatched before some kept call has ended.
    let mut held = vec![false; calls.len()];
    for (number, call) in calls.iter().enumerate() {
        held[number] = call.after.iter().any(|after| {
            let at = after.call as usize;
            held[at] || kept[at] && after.event == AfterEvent::Finished
        });
        let continues = matches!(call.base, Base::Call(base) if kept[base as usize]);
        let runs = call.at >= from || ends[number] > from;
        kept[number] = runs || held[number] || continues;
    }
    kept
}

/// When each call ended as recorded: by its measured duration, else when the client of the first
/// call that waited for it began to work, else at once.
fn ends(calls: &[Call]) -> Vec<Span> {
    let mut inferred: Vec<Option<Span>> = vec![None; calls.len()];
    for call in calls {
        let end = call.at.saturating_sub(call.gap);
        for after in call.after.iter().filter(|after| after.event == AfterEvent::Finished) {
            let known = &mut inferred[after.call as usize];
            *known = Some(known.map_or(end, |known| known.min(end)));
        }
    }
    let calls = calls.iter().zip(inferred);
    calls
        .map(|(call, inferred)| match call.seen_duration {
            Some(duration) => Span(call.at.0.saturating_add(duration.0)),
            None => inferred.unwrap_or(call.at).max(call.at),
        })
        .collect()
}

/// The client time before a call in the new session, which starts at `start`.
fn gap(
    calls: &[Call],
    number: usize,
    numbers: &[Option<u32>],
    (from, start): (Span, Span),
) -> Span {
    let call = &calls[number];
    let mut kept =
        call.after.iter().filter(|after| numbers[after.call as usize].is_some()).peekable();
    let at = call.at.max(from);
    if kept.peek().is_none() {
        // What it waited for has happened, if anything: it comes at its recorded time.
        return at.saturating_sub(start);
    }
    // A call that was running at the start is dispatched anew then, which is later than it was.
    let moved = |after: &After| {
        let dispatched = calls[after.call as usize].at;
        after.event == AfterEvent::Dispatched && dispatched < from
    };
    if kept.all(moved) { at.saturating_sub(from).min(call.gap) } else { call.gap }
}
