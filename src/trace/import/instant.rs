//! Timestamps of recorded traffic as nanoseconds since the Unix epoch.

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::Offset;

/// The years in which a call may have been made; anything else is a broken clock or column.
const YEARS: std::ops::RangeInclusive<i16> = 2000..=2099;

/// Reads a date with a time, with or without an offset from UTC; without one it is taken as UTC,
/// and `true` stands beside it. `None` for anything else.
pub(super) fn parse(text: &str) -> Option<(i64, bool)> {
    // A bare date would read as midnight.
    if text.len() <= "2026-11-29".len() || text.len() > 64 {
        return None;
    }
    let (instant, naive) = match text.parse::<Timestamp>() {
        Ok(instant) => (instant, false),
        Err(_) => {
            // Naive only: with an offset or a `Z` the first attempt had to succeed.
            let time = text.get(11..)?;
            if time.contains(['Z', 'z', '+', '-', '[']) {
                return None;
            }
            (Offset::UTC.to_timestamp(text.parse::<DateTime>().ok()?).ok()?, true)
        }
    };
    if !YEARS.contains(&Offset::UTC.to_datetime(instant).year()) {
        return None;
    }
    i64::try_from(instant.as_nanosecond()).ok().map(|nanos| (nanos, naive))
}

/// RFC 3339 in UTC, with as many digits of the fraction as it takes.
pub(super) fn rfc3339(nanos: i64) -> String {
    Timestamp::from_nanosecond(i128::from(nanos)).unwrap_or_default().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_of_the_azure_traces_read_to_the_last_digit() {
        let (naive, was_naive) = parse("2023-11-16 18:17:03.9799600").unwrap();
        assert!(was_naive);
        assert_eq!(rfc3339(naive), "2023-11-16T18:17:03.97996Z");
        let (offset, was_naive) = parse("2024-05-10 00:00:00.009930+00:00").unwrap();
        assert!(!was_naive);
        assert_eq!(rfc3339(offset), "2024-05-10T00:00:00.00993Z");
        assert_eq!(parse("2024-05-10T02:00:00.00993+02:00").unwrap().0, offset);
    }

    #[test]
    fn what_is_no_instant_is_refused() {
        for text in [
            "",
            "2023-11-16",
            "18:17:03",
            "1700158623",
            "2023-11-16 25:00:00",
            "x",
            "1969-01-01 00:00:00",
            "2023-11-16 18:17:03+99:00",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
