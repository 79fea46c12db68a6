//! Adds up the calls of the trace, each seen once, in memory that does not grow with them.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use super::report::{CachedHour, HumanHours};
use super::row::Row;
use super::spool::{Record, Room, Sorter, take};
use super::symbols::{Symbol, Symbols};
use super::time::{self, MICROS_PER_HOUR, Micros};
use crate::diag::Result;
use crate::trace::record::Status;

/// Prompt lengths are counted in pages of so many.
const PAGE: u64 = 1_024;

/// What was added up.
#[derive(Debug)]
pub(super) struct Tally {
    /// Calls that were answered.
    pub(super) ok: u64,
    /// Calls that failed without an answer.
    pub(super) failed: u64,
    /// Calls cut off in the middle of the answer.
    pub(super) aborted: u64,
    /// End of the last call.
    pub(super) end: Option<Micros>,
    /// Calls with attempts before the recorded one.
    pub(super) retried: u64,
    /// Calls with a first token told apart from the end.
    pub(super) ttft_known: u64,
    /// Answered calls whose cached tokens are known.
    pub(super) cached_known: u64,
    /// Answered calls without token counts.
    pub(super) uncounted: u64,
    prompts: Lengths,
    by_hour: BTreeMap<i64, Hour>,
    calls_by_profile: BTreeMap<Symbol, u64>,
    /// The last hour in which a user worked with a profile.
    last_hour: FxHashMap<(Symbol, Symbol), i64>,
    worked: Sorter<Worked>,
}

impl Tally {
    /// Nothing yet.
    pub(super) fn new(room: &Room) -> Self {
        let room = Room { buffer_bytes: room.buffer_bytes / 8, ..room.clone() };
        Self {
            ok: 0,
            failed: 0,
            aborted: 0,
            end: None,
            retried: 0,
            ttft_known: 0,
            cached_known: 0,
            uncounted: 0,
            prompts: Lengths::default(),
            by_hour: BTreeMap::new(),
            calls_by_profile: BTreeMap::new(),
            last_hour: FxHashMap::default(),
            worked: Sorter::new(&room),
        }
    }

    /// Adds a call.
    pub(super) fn add(&mut self, row: &Row) -> Result<()> {
        let by_status = match row.status {
            Status::Ok => &mut self.ok,
            Status::Failed => &mut self.failed,
            Status::Aborted => &mut self.aborted,
        };
        *by_status += 1;
        self.end = self.end.max(Some(row.end));
        self.retried += u64::from(row.retries > 0);
        self.ttft_known += u64::from(row.first_token.is_some());
        self.cached_known += u64::from(row.cached.is_some());
        self.uncounted += u64::from(row.status == Status::Ok && row.prompt == 0);
        if row.is_counted() {
            self.prompts.add(row.prompt);
        }
        let hour = row.start.div_euclid(MICROS_PER_HOUR);
        if row.status == Status::Ok {
            self.by_hour.entry(hour).or_default().add(row);
        }
        *self.calls_by_profile.entry(row.profile).or_default() += 1;
        let Row { profile, user, .. } = *row;
        if self.last_hour.insert((profile, user), hour) == Some(hour) {
            return Ok(());
        }
        self.worked.push(Worked { profile, user, hour })
    }

    /// The prompt length that at least `percent` in a hundred do not exceed.
    pub(super) fn prompt_rank(&self, percent: u64) -> Option<u64> {
        self.prompts.nearest_rank(percent)
    }

    /// Cached tokens by hour.
    pub(super) fn cached_by_hour(&self) -> Vec<CachedHour> {
        let entry = |(&hour, sum): (&i64, &Hour)| CachedHour {
            hour: time::hour_text(hour),
            calls: sum.calls,
            known: sum.known,
            prompt_tokens: sum.prompt_tokens,
            cached_tokens: sum.cached_tokens,
        };
        self.by_hour.iter().map(entry).collect()
    }

    /// Calls and hours of work by profile, in the order of their names.
    pub(super) fn human_hours(self, symbols: &Symbols) -> Result<Vec<HumanHours>> {
        let mut hours: BTreeMap<Symbol, u64> = BTreeMap::new();
        let mut worked = self.worked.sorted()?;
        let mut last = None;
        while let Some(entry) = worked.next()? {
            if last != Some(entry) {
                *hours.entry(entry.profile).or_default() += 1;
                last = Some(entry);
            }
        }
        let entry = |(profile, calls)| HumanHours {
            profile: symbols.name(profile).to_string(),
            calls,
            hours: hours.get(&profile).copied().unwrap_or(0),
        };
        let mut entries: Vec<HumanHours> = self.calls_by_profile.into_iter().map(entry).collect();
        entries.sort_by(|a, b| a.profile.cmp(&b.profile));
        Ok(entries)
    }
}

/// Sums of one hour.
#[derive(Debug, Default)]
struct Hour {
    calls: u64,
    known: u64,
    prompt_tokens: u64,
    cached_tokens: u64,
}

impl Hour {
    fn add(&mut self, row: &Row) {
        self.calls += 1;
        if let Some(cached) = row.cached {
            self.known += 1;
            self.prompt_tokens += row.prompt;
            self.cached_tokens += cached;
        }
    }
}

/// A user's hour of work with a profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Worked {
    profile: Symbol,
    user: Symbol,
    hour: i64,
}

impl Record for Worked {
    fn order(&self, other: &Self) -> Ordering {
        self.cmp(other)
    }

    fn write(&self, bytes: &mut Vec<u8>) {
        bytes.extend(self.profile.0.to_le_bytes());
        bytes.extend(self.user.0.to_le_bytes());
        bytes.extend(self.hour.to_le_bytes());
    }

    fn read(bytes: &mut &[u8]) -> Option<Self> {
        let (profile, user) = (u32::from_le_bytes(take(bytes)?), u32::from_le_bytes(take(bytes)?));
        let hour = i64::from_le_bytes(take(bytes)?);
        Some(Self { profile: Symbol(profile), user: Symbol(user), hour })
    }
}

/// How many prompts have each length, exactly.
#[derive(Debug, Default)]
struct Lengths {
    pages: BTreeMap<u64, Box<[u64]>>,
    count: u64,
}

impl Lengths {
    fn add(&mut self, length: u64) {
        let page = self.pages.entry(length / PAGE);
        let page = page.or_insert_with(|| vec![0; PAGE as usize].into());
        page[(length % PAGE) as usize] += 1;
        self.count += 1;
    }

    fn nearest_rank(&self, percent: u64) -> Option<u64> {
        let rank = (self.count * percent).div_ceil(100).max(1);
        let lengths = self.pages.iter().flat_map(|(&page, counts)| {
            counts.iter().zip(page * PAGE..).map(|(&count, length)| (length, count))
        });
        let mut below = 0;
        let mut reached = lengths.filter(|&(_, count)| {
            below += count;
            count > 0 && below >= rank
        });
        reached.next().map(|(length, _)| length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rank_is_the_smallest_length_that_enough_do_not_exceed() {
        let mut lengths = Lengths::default();
        assert_eq!(lengths.nearest_rank(50), None);
        for length in [5_000, 7, 7, 1_023, 1_024, 40_000_000] {
            lengths.add(length);
        }
        let ranks = [0, 33, 34, 50, 51, 83, 84, 100].map(|percent| lengths.nearest_rank(percent));
        let expected = [7, 7, 1_023, 1_023, 1_024, 5_000, 40_000_000, 40_000_000].map(Some);
        assert_eq!(ranks, expected);
    }
}
