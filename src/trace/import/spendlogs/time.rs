//! Timestamps: naive or with an offset, with or without a fraction.

use std::fmt;
use std::str::FromStr;

use jiff::Timestamp;
use jiff::civil::{Date, DateTime};
use jiff::tz::Offset;

use crate::diag::Error;
use crate::units::Span;

/// Microseconds since the Unix epoch.
pub(super) type Micros = i64;

/// Microseconds in an hour, the step of the report's time series.
pub(super) const MICROS_PER_HOUR: Micros = 3_600_000_000;

/// The years in which a call may have been made; anything else is a broken clock or column.
const YEARS: std::ops::RangeInclusive<i16> = 2000..=2100;

/// How far a clock is ahead of UTC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UtcOffset {
    seconds: i32,
}

impl UtcOffset {
    /// It in microseconds.
    pub(super) fn micros(self) -> Micros {
        i64::from(self.seconds) * 1_000_000
    }
}

impl FromStr for UtcOffset {
    type Err = Error;

    /// Reads `+02:00`, `-5`, `0530` with a sign before it, or `Z`.
    fn from_str(text: &str) -> Result<Self, Error> {
        let wrong = || Error::found(text, "an offset from UTC such as `-05:00`, `+1` or `Z`");
        if text.eq_ignore_ascii_case("z") {
            return Ok(Self::default());
        }
        let sign = match text.as_bytes().first() {
            Some(b'+') => 1,
            Some(b'-') => -1,
            _ => return Err(wrong()),
        };
        let digits = &text[1..];
        let (hours, minutes) = match digits.split_once(':') {
            Some(parts) => parts,
            None if digits.len() == 4 && digits.is_ascii() => digits.split_at(2),
            None => (digits, "00"),
        };
        let number = |part: &str, most: i32| {
            let well_formed =
                matches!(part.len(), 1..=2) && part.bytes().all(|b| b.is_ascii_digit());
            let value: i32 = if well_formed { part.parse().ok()? } else { return None };
            (value <= most).then_some(value)
        };
        let (Some(hours), Some(minutes)) = (number(hours, 14), number(minutes, 59)) else {
            return Err(wrong());
        };
        Ok(Self { seconds: sign * (hours * 3_600 + minutes * 60) })
    }
}

impl fmt::Display for UtcOffset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.seconds < 0 { '-' } else { '+' };
        let minutes = self.seconds.abs() / 60;
        write!(f, "{sign}{:02}:{:02}", minutes / 60, minutes % 60)
    }
}

/// Reads a timestamp; one without an offset of its own is taken to be `naive_at`. `None` for
/// anything that is no date with a time in a plausible year.
pub(super) fn parse(text: &str, naive_at: UtcOffset) -> Option<Micros> {
    // A bare date would read as midnight.
    if text.len() <= "2026-11-29".len() || text.len() > 64 {
        return None;
    }
    let instant = if is_naive(text) {
        let naive: DateTime = text.parse().ok()?;
        Offset::from_seconds(naive_at.seconds).ok()?.to_timestamp(naive).ok()?
    } else {
        text.parse::<Timestamp>().ok()?
    };
    YEARS.contains(&utc(instant).year()).then(|| instant.as_microsecond())
}

/// Whether the text of a timestamp says nothing about its offset.
pub(super) fn is_naive(text: &str) -> bool {
    let time = text.as_bytes().get(11..).unwrap_or_default();
    !time.iter().any(|byte| matches!(byte, b'Z' | b'z' | b'+' | b'-' | b'['))
}

/// Reads a bound: a date, which is its midnight, or what [`parse`] reads.
pub(super) fn bound(text: &str, naive_at: UtcOffset) -> Option<Micros> {
    match text.parse::<Date>() {
        Ok(date) if text.len() == "2026-11-29".len() => {
            parse(&format!("{date} 00:00:00"), naive_at)
        }
        _ => parse(text, naive_at),
    }
}

/// Date and time without an offset, as a clock at that offset shows it.
#[cfg(feature = "postgres")]
pub(super) fn on_clock(at: Micros, clock: UtcOffset) -> String {
    let offset = Offset::from_seconds(clock.seconds).unwrap_or(Offset::UTC);
    let at = offset.to_datetime(Timestamp::from_microsecond(at).unwrap_or_default());
    format!("{} {}", at.date(), at.time())
}

/// RFC 3339 in UTC, with as many digits of the fraction as it takes.
pub(super) fn rfc3339(at: Micros) -> String {
    Timestamp::from_microsecond(at).unwrap_or_default().to_string()
}

/// The clock hour in UTC, as `2026-11-29T16`.
pub(super) fn hour_text(hour: i64) -> String {
    let at = utc(Timestamp::from_microsecond(hour * MICROS_PER_HOUR).unwrap_or_default());
    format!("{:04}-{:02}-{:02}T{:02}", at.year(), at.month(), at.day(), at.hour())
}

/// The span between two instants, zero if they are in the wrong order.
pub(super) fn span(from: Micros, to: Micros) -> Span {
    Span::from_micros(u64::try_from(to - from).unwrap_or(0))
}

fn utc(instant: Timestamp) -> DateTime {
    Offset::UTC.to_datetime(instant)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn utc_parse(text: &str) -> Option<Micros> {
        parse(text, UtcOffset::default())
    }

    #[test]
    fn every_form_that_litellm_writes_gives_the_same_instant() {
        let expected = utc_parse("2026-11-29 16:41:29.5");
        assert!(expected.is_some());
        for text in [
            "2026-11-29T16:41:29.500",
            "2026-11-29T16:41:29.500Z",
            "2026-11-29T16:41:29.500000Z",
            "2026-11-29T16:41:29.5+00:00",
            "2026-11-29 16:41:29.5+00",
            "2026-11-29T17:41:29.5+01:00",
        ] {
            assert_eq!(utc_parse(text), expected, "{text}");
        }
        assert_eq!(
            utc_parse("2026-11-29 16:41:29"),
            expected.map(|at| at - 500_000),
            "the fraction may be absent"
        );
    }

    #[test]
    fn an_offset_moves_naive_timestamps_only() {
        let new_york: UtcOffset = "-05:00".parse().unwrap();
        let naive = parse("2026-01-29 11:00:00", new_york);
        assert_eq!(naive, utc_parse("2026-01-29T16:00:00Z"));
        assert_eq!(parse("2026-01-29T16:00:00Z", new_york), naive);
    }

    #[test]
    fn a_bound_may_be_a_date_and_keeps_its_clock() {
        let new_york: UtcOffset = "-05:00".parse().unwrap();
        assert_eq!(bound("2026-11-29", new_york), utc_parse("2026-11-29T05:00:00Z"));
        assert_eq!(bound("2026-11-29 00:00:00", new_york), utc_parse("2026-11-29T05:00:00Z"));
        assert_eq!(bound("2026-11-29T00:00:00Z", new_york), utc_parse("2026-11-29T00:00:00Z"));
        for text in ["", "yesterday", "2026-11-31", "20261129", "2026-11", "1826-11-29"] {
            assert_eq!(bound(text, new_york), None, "{text}");
        }
    }

    #[cfg(feature = "postgres")]
    #[test]
    fn a_clock_shows_an_instant_as_it_was_read() {
        let new_york: UtcOffset = "-05:00".parse().unwrap();
        for text in ["2026-11-29 00:00:00", "2026-11-29 16:41:29.788"] {
            assert_eq!(
                parse(text, new_york).map(|at| on_clock(at, new_york)).as_deref(),
                Some(text)
            );
        }
    }

    #[test]
    fn what_is_no_instant_is_refused() {
        for text in [
            "",
            "2026-11-29",
            "16:41:29",
            "2026-13-29 16:41:29",
            "2026-11-29 16:41:99",
            "1764434489.788",
            "infinity",
            "1826-11-29 16:41:29",
            "2026-11-29 16:41:29+99:00",
        ] {
            assert_eq!(utc_parse(text), None, "{text}");
        }
    }

    #[test]
    fn offsets_read_and_print() {
        for (text, printed) in
            [("Z", "+00:00"), ("+2", "+02:00"), ("-0530", "-05:30"), ("+14:00", "+14:00")]
        {
            assert_eq!(text.parse::<UtcOffset>().unwrap().to_string(), printed);
        }
        for text in ["", "2", "+15", "+1:75", "UTC", "+1:", "-"] {
            assert!(text.parse::<UtcOffset>().is_err(), "{text}");
        }
    }
}
