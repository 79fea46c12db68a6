//! The requests of one play as the calls of a session: when each was sent, by what it waits for.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use rustc_hash::FxHashMap;

use super::Request;
use crate::diag::Error;
use crate::trace::import::Options;
use crate::trace::import::blocks::PERSON_PAUSE;
use crate::trace::record::{After, AfterEvent, Call, Cause, Name};
use crate::units::Span;

/// No request takes longer.
const SERVED_MAX: Span = Span::from_secs(86_400);

/// The calls of a play, by number, each with its row.
#[derive(Debug, Default)]
pub(super) struct Play {
    pub(super) calls: Vec<(u32, Call)>,
    pub(super) unusable: Vec<Unusable>,
    /// Server times that were assumed.
    pub(super) assumed: u64,
    /// Calls whose gap is not the delay of all that they wait for.
    pub(super) uneven: u64,
}

/// A row that cannot be used, for what other rows say or do not say.
#[derive(Debug)]
pub(super) struct Unusable {
    pub(super) row: u32,
    pub(super) error: Error,
}

/// A request whose time is known.
#[derive(Clone, Copy, Debug)]
struct Timed {
    at: Span,
    end: Span,
    /// When the last of what it waits for had happened.
    ready: Option<Span>,
    /// Behind all that it waits for.
    place: usize,
}

/// A play of the rows given, in the order of the file.
pub(super) fn play(
    rows: &[u32],
    requests: &[Request],
    by_id: &FxHashMap<(u32, Name), u32>,
    blank: &Call,
    options: &Options,
) -> Play {
    let mut play = Play::default();
    let waits = waits(rows, requests, by_id, &mut play);
    let timed = times(rows, requests, &waits, options, &mut play);
    for row in rows.iter().filter(|row| !timed.contains_key(row)) {
        if waits[row].is_some() {
            let message = "the request waits for itself, or for a row that cannot be used";
            let error = Error::new(message).in_field("dependencies");
            play.unusable.push(Unusable { row: *row, error });
        }
    }
    play.unusable.sort_by_key(|unusable| unusable.row);
    number(requests, &waits, &timed, blank, &mut play);
    play
}

/// The rows that each row waits for, in the order in which it names them; `None` where one is
/// missing.
type Waits = BTreeMap<u32, Option<Vec<u32>>>;

fn waits(
    rows: &[u32],
    requests: &[Request],
    by_id: &FxHashMap<(u32, Name), u32>,
    play: &mut Play,
) -> Waits {
    let of_row = |row: &u32| {
        let request = &requests[*row as usize];
        let mut before = Vec::with_capacity(request.dependencies.len());
        for dependency in &request.dependencies {
            match by_id.get(&(request.play, dependency.request.clone())) {
                Some(&row) => before.push(row),
                None => {
                    let id = &dependency.request;
                    let error = Error::new(format!("the play has no request `{id}`"));
                    let error = error.in_field("dependencies");
                    play.unusable.push(Unusable { row: *row, error });
                    return (*row, None);
                }
            }
        }
        (*row, Some(before))
    };
    rows.iter().map(of_row).collect()
}

/// When each request was sent and had its answer. What waits for itself has no time.
fn times(
    rows: &[u32],
    requests: &[Request],
    waits: &Waits,
    options: &Options,
    play: &mut Play,
) -> BTreeMap<u32, Timed> {
    let mut missing: BTreeMap<u32, usize> = BTreeMap::new();
    let mut followers: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for (row, before) in waits {
        let Some(before) = before else { continue };
        missing.insert(*row, before.len());
        before.iter().for_each(|before| followers.entry(*before).or_default().push(*row));
    }
    let free = rows.iter().filter(|row| missing.get(row) == Some(&0));
    let mut ready: BinaryHeap<Reverse<u32>> = free.copied().map(Reverse).collect();
    let mut timed: BTreeMap<u32, Timed> = BTreeMap::new();
    while let Some(Reverse(row)) = ready.pop() {
        let request = &requests[row as usize];
        let mut at = request.not_before;
        let mut last = None;
        let before = waits[&row].iter().flatten();
        for (before, dependency) in before.zip(&request.dependencies) {
            let happened = match dependency.event {
                AfterEvent::Finished => timed[before].end,
                AfterEvent::Dispatched => timed[before].at,
            };
            at = at.max(Span(happened.0.saturating_add(dependency.delay.0)));
            last = last.max(Some(happened));
        }
        let served = request.api_time.unwrap_or_else(|| {
            play.assumed += 1;
            options.assumed_time(request.output, SERVED_MAX)
        });
        let (end, place) = (Span(at.0.saturating_add(served.0)), timed.len());
        timed.insert(row, Timed { at, end, ready: last, place });
        for follower in followers.get(&row).into_iter().flatten() {
            if let Some(missing) = missing.get_mut(follower) {
                *missing -= 1;
                if *missing == 0 {
                    ready.push(Reverse(*follower));
                }
            }
        }
    }
    timed
}

/// Numbers the requests by time and makes them calls.
fn number(
    requests: &[Request],
    waits: &Waits,
    timed: &BTreeMap<u32, Timed>,
    blank: &Call,
    play: &mut Play,
) {
    let mut order: Vec<u32> = timed.keys().copied().collect();
    order.sort_by_key(|row| (timed[row].at, timed[row].place));
    let numbers: BTreeMap<u32, u32> = order.iter().copied().zip(0..).collect();
    let start = order.first().map(|row| timed[row].at).unwrap_or_default();
    let mut lanes: BTreeMap<Name, u32> = BTreeMap::new();
    let mut turns: Vec<u32> = Vec::new();
    for row in order {
        let (request, time) = (&requests[row as usize], timed[&row]);
        let before = waits[&row].iter().flatten();
        let after = before
            .zip(&request.dependencies)
            .map(|(before, dependency)| After { call: numbers[before], event: dependency.event });
        let mut after: Vec<After> = after.collect();
        after.sort_unstable();
        after.dedup();
        let gap = time.at.saturating_sub(time.ready.unwrap_or(start));
        let uneven = request.dependencies.iter().any(|dependency| dependency.delay != gap);
        play.uneven += u64::from(uneven);
        let next = lanes.len() as u32;
        let lane = *lanes.entry(request.agent.clone()).or_insert(next);
        let begins = lane as usize == turns.len();
        let (cause, turn) = match turns.get(lane as usize).copied() {
            None if lane == 0 => (Cause::User, 0),
            None => {
                let spawner = after.last().map(|spawner| play.calls[spawner.call as usize].1.turn);
                (Cause::Subagent, spawner.unwrap_or_default())
            }
            Some(turn) if lane == 0 && gap >= PERSON_PAUSE => (Cause::User, turn + 1),
            Some(turn) => (Cause::Tool, turn),
        };
        match begins {
            true => turns.push(turn),
            false => turns[lane as usize] = turn,
        }
        let call = Call {
            at: time.at,
            after,
            gap,
            cause,
            turn,
            lane,
            model: request.model.clone(),
            prompt_tokens: request.prompt,
            output_tokens: request.output,
            seen_duration: request.api_time,
            ..blank.clone()
        };
        play.calls.push((row, call));
    }
}
