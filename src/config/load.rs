//! Who plays what: how sessions start, and when people work.

use super::reshape::OF_RECORDED_STARTS;
use crate::diag::{Error, Result};
use crate::document::Document;
use crate::units::{Span, Time};

/// Who plays what.
#[derive(Clone, Debug, PartialEq)]
pub struct Load {
    /// In which way sessions start.
    pub kind: LoadKind,
    /// Median of a developer's pause between sessions.
    pub pause_median: Span,
    /// Deviation of its logarithm.
    pub pause_sigma: f64,
    /// When developers begin sessions; none if at any time.
    pub office: Option<Office>,
}

/// In which way sessions start.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum LoadKind {
    /// At their recorded times.
    Trace,
    /// A closed population, each playing one session after another.
    Developers {
        /// How many.
        developers: u32,
    },
    /// At random times, whatever the fleet does.
    SessionsPerHour {
        /// Mean rate.
        rate: f64,
        /// Coefficient of variation of the time between starts.
        cv: f64,
    },
}

/// When people begin sessions. What has begun goes on: an agent works after its developer has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Office {
    /// From the beginning of a working day on; the first one begins with the run.
    pub hours: Span,
    /// Working days of a week, from its first.
    pub days: u32,
    /// In which people arrive.
    pub ramp: Span,
}

const DAY: Span = Span::from_secs(86_400);
const DAYS_OF_A_WEEK: u64 = 7;
/// Keys of developers.
const OF_DEVELOPERS: [&str; 6] = [
    "load.developers",
    "load.pause_median_s",
    "load.pause_sigma",
    "load.office_hours",
    "load.office_days",
    "load.office_ramp_s",
];
/// Keys of random starts.
const OF_RANDOM_STARTS: [&str; 2] = ["load.sessions_per_hour", "load.arrival_cv"];

/// Who changes the kind of load on the command line does not want what the file says of another.
pub(super) fn forget_other_kinds(document: &mut Document) {
    if !document.has("load.kind") || document.is_from_file("load.kind") {
        return;
    }
    let kind = document.value("load.kind").and_then(toml::Value::as_str).unwrap_or_default();
    let is_trace = kind == "trace";
    let (developers, per_hour) = (kind != "developers", kind != "sessions_per_hour");
    if developers {
        document.forget_from_file(&OF_DEVELOPERS);
    }
    if per_hour {
        document.forget_from_file(&OF_RANDOM_STARTS);
    }
    if is_trace {
        document.forget_from_file(&["run.warmup_s", "run.window_s"]);
    } else {
        document.forget_from_file(OF_RECORDED_STARTS);
    }
}

impl Load {
    /// Reads the load of a scenario.
    ///
    /// # Errors
    /// A value out of range, a key that this kind of load lacks or has no use for.
    pub(super) fn read(document: &Document) -> Result<Self> {
        let kind = document
            .choice("load.kind", &[("trace", 0), ("developers", 1), ("sessions_per_hour", 2)])?
            .unwrap_or(0);
        let only_for = |keys: &[&str], kind_name: &str| {
            let text = format!("only goes with load.kind = \"{kind_name}\"");
            match keys.iter().find(|key| document.has(key)) {
                Some(key) => Err(document.at(key, Error::new(text))),
                None => Ok(()),
            }
        };
        if kind != 1 {
            only_for(&OF_DEVELOPERS, "developers")?;
        }
        if kind != 2 {
            only_for(&OF_RANDOM_STARTS, "sessions_per_hour")?;
        }
        let missing = |key: &str| {
            document.at("load.kind", Error::new(format!("this kind of load needs `{key}`")))
        };
        let kind = match kind {
            1 => {
                let developers = document.whole("load.developers", 1, 1_000_000)?;
                let developers = developers.ok_or_else(|| missing("load.developers"))?;
                LoadKind::Developers { developers: developers as u32 }
            }
            2 => {
                let rate = document.number("load.sessions_per_hour", 1e-3, 1e6)?;
                let rate = rate.ok_or_else(|| missing("load.sessions_per_hour"))?;
                let cv = document.number("load.arrival_cv", 0.05, 20.0)?.unwrap_or(1.0);
                LoadKind::SessionsPerHour { rate, cv }
            }
            _ => LoadKind::Trace,
        };
        Ok(Self {
            kind,
            pause_median: document.seconds("load.pause_median_s", 600.0)?,
            pause_sigma: document.number("load.pause_sigma", 0.0, 4.0)?.unwrap_or(1.0),
            office: Office::read(document)?,
        })
    }
}

impl Office {
    fn read(document: &Document) -> Result<Option<Self>> {
        let hours = document.number("load.office_hours", 0.01, 24.0)?.unwrap_or(24.0);
        let days = document.whole("load.office_days", 1, DAYS_OF_A_WEEK)?.unwrap_or(DAYS_OF_A_WEEK);
        let office = Self {
            hours: Span::from_secs_f64(hours * 3_600.0),
            days: days as u32,
            ramp: document.seconds("load.office_ramp_s", 1_800.0)?,
        };
        let always = office.hours >= DAY && days == DAYS_OF_A_WEEK;
        let given = document.has("load.office_ramp_s");
        if always && given {
            let text = "nobody arrives where people work at any time: \
                        only goes with `load.office_hours` or `load.office_days`";
            return Err(document.at("load.office_ramp_s", Error::new(text)));
        }
        if given && office.ramp > office.hours {
            let text = "people arrive within the hours of a working day";
            return Err(document.at("load.office_ramp_s", Error::new(text)));
        }
        let ramp = office.ramp.min(office.hours);
        Ok((!always).then_some(Self { ramp, ..office }))
    }

    /// Whether people begin sessions then.
    #[must_use]
    pub fn is_open(self, at: Time) -> bool {
        let day = at.0 / DAY.0;
        day % DAYS_OF_A_WEEK < u64::from(self.days) && at.0 % DAY.0 < self.hours.0
    }

    /// The first working day that begins after a time: its number, and when it begins.
    #[must_use]
    pub fn next_day(self, after: Time) -> (u64, Time) {
        let tomorrow = after.0 / DAY.0 + 1;
        let of_week = tomorrow % DAYS_OF_A_WEEK;
        let day = match of_week < u64::from(self.days) {
            true => tomorrow,
            false => tomorrow + DAYS_OF_A_WEEK - of_week,
        };
        (day, Time(day * DAY.0))
    }

    /// The part of a window in which people begin sessions.
    #[must_use]
    pub fn share(self, from: Time, until: Time) -> f64 {
        let open_before = |time: Time| {
            let (day, into) = (time.0 / DAY.0, time.0 % DAY.0);
            let (week, of_week) = (day / DAYS_OF_A_WEEK, day % DAYS_OF_A_WEEK);
            let days = u64::from(self.days);
            let today = if of_week < days { into.min(self.hours.0) } else { 0 };
            (week * days + of_week.min(days)) * self.hours.0 + today
        };
        (open_before(until) - open_before(from)) as f64 / (until - from).as_f64()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NINE_TO_FIVE: Office =
        Office { hours: Span::from_secs(8 * 3_600), days: 5, ramp: Span::from_secs(1_800) };

    fn hour(hour: u64) -> Time {
        Time::ZERO + Span::from_secs(hour * 3_600)
    }

    #[test]
    fn a_week_has_so_many_working_days_of_so_many_hours() {
        let open = (0..14 * 24).filter(|&h| NINE_TO_FIVE.is_open(hour(h))).count();
        assert_eq!(open, 2 * 5 * 8);
        assert!(NINE_TO_FIVE.is_open(hour(7)) && !NINE_TO_FIVE.is_open(hour(8)));
        // The sixth and the seventh day are free.
        assert!(NINE_TO_FIVE.is_open(hour(4 * 24)) && !NINE_TO_FIVE.is_open(hour(5 * 24)));
        assert!(NINE_TO_FIVE.is_open(hour(7 * 24)));
    }

    #[test]
    fn who_comes_too_late_comes_back_on_the_next_working_day() {
        assert_eq!(NINE_TO_FIVE.next_day(hour(10)), (1, hour(24)));
        assert_eq!(NINE_TO_FIVE.next_day(hour(4 * 24 + 9)), (7, hour(7 * 24)));
        assert_eq!(NINE_TO_FIVE.next_day(hour(6 * 24)), (7, hour(7 * 24)));
    }

    #[test]
    fn the_share_of_a_window_counts_its_open_hours() {
        assert!((NINE_TO_FIVE.share(hour(0), hour(7 * 24)) - 40.0 / 168.0).abs() < 1e-12);
        assert!((NINE_TO_FIVE.share(hour(6), hour(10)) - 0.5).abs() < 1e-12);
        assert!((NINE_TO_FIVE.share(hour(5 * 24), hour(7 * 24))).abs() < 1e-12);
        assert!((NINE_TO_FIVE.share(hour(4 * 24), hour(7 * 24 + 8)) - 16.0 / 80.0).abs() < 1e-12);
    }
}
