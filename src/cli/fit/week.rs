//! Where in a week a trace begins.

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::Offset;

/// The hour from Monday 0:00 of a time with its offset, by the clock of that offset.
pub(super) fn hour_of(start: &str) -> Option<u64> {
    let utc = || Some(Offset::UTC.to_datetime(start.parse::<Timestamp>().ok()?));
    let local = start.parse::<DateTime>().ok().or_else(utc)?;
    let day = u64::try_from(local.weekday().to_monday_zero_offset()).ok()?;
    Some(24 * day + u64::try_from(local.hour()).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_is_that_of_the_offset() {
        assert_eq!(hour_of("2026-06-01T00:00:00Z"), Some(0));
        assert_eq!(hour_of("2026-06-02T14:30:00+02:00"), Some(38));
        assert_eq!(hour_of("in June"), None);
    }
}
