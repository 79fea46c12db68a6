//! Finds out whether timestamps without an offset come from a clock that was set forward or back.
//!
//! LiteLLM before 2025 wrote the server's local time. Where daylight saving ends, an hour comes
//! twice; where it begins, one never comes. Neither leaves a mark in a row, but in many rows.

use std::collections::BTreeMap;

use super::time::{self, MICROS_PER_HOUR, Micros};
use crate::diag::Warning;

/// A step back of this much is a clock's, if the order of the rows is that of their starts.
const SET_BACK: std::ops::RangeInclusive<Micros> = MICROS_PER_HOUR * 5 / 6..=MICROS_PER_HOUR;
/// Rows are written when calls end, so an order of writing has steps back up to this.
const DISORDER_MICROS: Micros = MICROS_PER_HOUR / 3;
/// So many calls in the hours before and after, and none between, is no chance.
const BUSY_CALLS: u64 = 30;
/// Clocks are set forward in the small hours of a Sunday.
const SMALL_HOURS: std::ops::RangeInclusive<i64> = 0..=3;
/// The clock hour 0 of the epoch was a Thursday's.
const SUNDAY: i64 = 3;

/// What was seen of timestamps without an offset, in the order of the files.
#[derive(Debug, Default)]
pub(super) struct Clock {
    last: Option<Micros>,
    /// Steps back of about an hour.
    steps_back: u64,
    /// Other steps back that are too long for an order of writing.
    disorder: u64,
    /// Steps forward.
    forward: u64,
    /// Steps back that are none of these.
    back: u64,
    /// Calls that end up to an hour before they start.
    ends_before_start: u64,
    calls_by_hour: BTreeMap<i64, u64>,
}

impl Clock {
    /// Whether a step, in microseconds, is as if the clock was set back in between.
    pub(super) fn is_set_back(step: Micros) -> bool {
        (-*SET_BACK.end()..0).contains(&step)
    }

    /// Sees a call's start and end as the clock showed them.
    pub(super) fn saw(&mut self, start: Micros, end: Micros) {
        if let Some(last) = self.last.replace(start) {
            let back = last - start;
            self.steps_back += u64::from(SET_BACK.contains(&back));
            self.disorder += u64::from(back > DISORDER_MICROS && !SET_BACK.contains(&back));
            self.forward += u64::from(back < 0);
            self.back += u64::from((1..=DISORDER_MICROS).contains(&back));
        }
        self.ends_before_start += u64::from(Self::is_set_back(end - start));
        *self.calls_by_hour.entry(start.div_euclid(MICROS_PER_HOUR)).or_default() += 1;
    }

    /// What is to be checked before the times are trusted.
    pub(super) fn warnings(&self) -> Vec<Warning> {
        let advice = "one --utc-offset holds for the whole import: import the parts before and \
                      after that night apart";
        let mut warnings = Vec::new();
        if self.ends_before_start > 0 {
            let calls = self.ends_before_start;
            warnings.push(Warning(format!(
                "{calls} calls end up to an hour before they start: a local clock was set back \
                 (end of daylight saving); {advice}"
            )));
        } else if self.steps_back > 0 && self.disorder == 0 && self.back < self.forward {
            let steps = self.steps_back;
            warnings.push(Warning(format!(
                "the start times step back by an hour {steps} times and are in order otherwise: a \
                 local clock was set back (end of daylight saving)?; {advice}"
            )));
        }
        for hour in self.missing_hours() {
            warnings.push(Warning(format!(
                "no call starts in the hour {} (as recorded), and many before and after: a local \
                 clock was set forward (start of daylight saving)?; {advice}",
                time::hour_text(hour)
            )));
        }
        warnings
    }

    /// Hours of a Sunday night that are empty between busy ones.
    fn missing_hours(&self) -> impl Iterator<Item = i64> + '_ {
        let calls = |hour: i64| self.calls_by_hour.get(&hour).copied().unwrap_or(0);
        let missing = move |&hour: &i64| {
            let sunday = hour.div_euclid(24).rem_euclid(7) == SUNDAY;
            sunday
                && SMALL_HOURS.contains(&hour.rem_euclid(24))
                && calls(hour) == 0
                && calls(hour - 1) >= BUSY_CALLS
                && calls(hour + 1) >= BUSY_CALLS
        };
        self.calls_by_hour.keys().map(|hour| hour + 1).filter(missing)
    }
}

#[cfg(test)]
mod tests {
    use super::super::time::{UtcOffset, parse};
    use super::*;

    /// A clock that saw calls of a second every minute from each start, for so many minutes.
    fn saw(stretches: &[(&str, i64)]) -> Vec<String> {
        let mut clock = Clock::default();
        for &(start, minutes) in stretches {
            let start = parse(start, UtcOffset::default()).unwrap();
            for minute in 0..minutes {
                let at = start + minute * 60_000_000;
                clock.saw(at, at + 1_000_000);
            }
        }
        clock.warnings().into_iter().map(|warning| warning.0).collect()
    }

    #[test]
    fn an_hour_that_comes_twice_is_noticed() {
        let twice = saw(&[("2024-11-03 00:00:00", 120), ("2024-11-03 01:00:00", 120)]);
        assert!(twice[0].contains("set back") && twice.len() == 1, "{twice:?}");
        for other in [
            ["2024-11-04 05:00:00", "2024-11-04 02:00:00", "2024-11-04 01:05:00"],
            ["2024-11-04 05:10:00", "2024-11-04 05:00:00", "2024-11-04 04:05:00"],
        ] {
            assert_eq!(saw(&other.map(|start| (start, 1))), [""; 0], "newest first, or no order");
        }
    }

    #[test]
    fn an_hour_that_never_comes_is_noticed_on_a_sunday_night_only() {
        let forward = |day: &str| {
            let (before, after) =
                (format!("2024-03-{day} 01:00:00"), format!("2024-03-{day} 03:00:00"));
            saw(&[(&before, 60), (&after, 60)])
        };
        let sunday = forward("10");
        assert!(sunday[0].contains("2024-03-10T02") && sunday.len() == 1, "{sunday:?}");
        assert!(forward("11").is_empty());
        assert!(saw(&[("2024-03-10 00:00:00", 300)]).is_empty());
    }

    #[test]
    fn a_call_that_ends_before_it_starts_is_noticed() {
        let mut clock = Clock::default();
        clock.saw(MICROS_PER_HOUR, 60_000_000);
        assert!(clock.warnings()[0].0.contains("1 calls end up to an hour before"));
    }
}
