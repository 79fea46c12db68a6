//! When people work: the weight of every hour of a week, and working time turned into clock time.

use super::profile::Hours;
use crate::units::Span;

/// Seconds of an hour.
const HOUR_S: f64 = 3_600.0;
/// Hours of a week, from Monday 0:00.
const WEEK: u64 = 168;

/// Weight of an hour at work.
const AT_WORK: f64 = 1.0;
/// The hour before work, the lunch hour, and the two hours after work.
const SHOULDER: f64 = 0.4;
/// Other hours.
const NIGHT: f64 = 0.05;
/// Factor on the hours of Saturday and Sunday.
const WEEKEND: f64 = 0.15;

/// Requests of each hour of a day over the day's mean: a general model of Alibaba's, two weeks
/// (ServeGen, arXiv 2505.09999, m-small). It is used around the clock.
const GLOBAL: [f64; 24] = [
    0.84, 0.71, 0.73, 0.68, 0.71, 0.66, 0.68, 0.85, 1.02, 1.05, 1.13, 1.09, 1.06, 1.07, 1.06, 1.05,
    1.09, 1.08, 1.01, 1.23, 1.46, 1.40, 1.27, 1.06,
];

/// The weight of an hour of the week: 1 is an hour of full work.
#[must_use]
pub fn weight(hours: Hours, hour_of_week: u64) -> f64 {
    let (day, hour) = (hour_of_week % WEEK / 24, hour_of_week % 24);
    match hours {
        Hours::Even => 1.0,
        Hours::Global => GLOBAL[hour as usize],
        Hours::Office => {
            let weekday = match hour {
                9..13 | 14..18 => AT_WORK,
                8 | 13 | 18 | 19 => SHOULDER,
                _ => NIGHT,
            };
            if day < 5 { weekday } else { weekday * WEEKEND }
        }
    }
}

/// The clock of a population.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    /// When its people work.
    pub hours: Hours,
    /// Hour of the week, from Monday 0:00, at which the trace begins.
    pub start_hour: u64,
}

impl Clock {
    /// When `work` hours of full work have passed since `from`; `None` where that is after `end`.
    #[must_use]
    pub fn after(&self, from: Span, work: f64, end: Span) -> Option<Span> {
        let mut left_s = work * HOUR_S;
        let mut at_s = from.secs();
        while at_s <= end.secs() {
            let hour = (at_s / HOUR_S).floor();
            // The cast is exact: no trace has 2^53 hours.
            let weight = weight(self.hours, self.start_hour + hour as u64);
            let rest_s = (hour + 1.0) * HOUR_S - at_s;
            if left_s <= rest_s * weight {
                let at = Span::from_secs_f64(at_s + left_s / weight);
                return (at <= end).then_some(at);
            }
            left_s -= rest_s * weight;
            at_s = (hour + 1.0) * HOUR_S;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_office_week_has_fifty_four_hours_of_work() {
        let week: f64 = (0..WEEK).map(|hour| weight(Hours::Office, hour)).sum();
        // 8 hours at work, 4 shoulders, 12 other hours; five days and two at 0.15.
        assert!((week - (8.0 + 1.6 + 0.6) * 5.3).abs() < 1e-9, "{week}");
        let day: f64 = (0..24).map(|hour| weight(Hours::Global, hour)).sum();
        assert!((day / 24.0 - 1.0).abs() < 0.01, "{day}");
    }

    #[test]
    fn working_time_runs_slower_outside_office_hours() {
        let clock = Clock { hours: Hours::Office, start_hour: 0 };
        let end = Span::from_secs(14 * 86_400);
        // Monday to 8:00 holds 0.4 hours, the shoulder 0.4: one hour is full at 9:12.
        let at = clock.after(Span::ZERO, 1.0, end).unwrap();
        assert!((at.secs() - 9.2 * HOUR_S).abs() < 1e-3, "{}", at.secs());
        // Friday 18:00 and two hours on: 0.8 to 20:00, 0.2 to Saturday; the rest on Saturday.
        let friday = Span::from_secs((4 * 24 + 18) * 3_600);
        let at = clock.after(friday, 2.0, end).unwrap();
        assert!(at > Span::from_secs(5 * 86_400) && at < Span::from_secs(6 * 86_400));
        assert_eq!(clock.after(Span::ZERO, 1e6, end), None);
        let even = Clock { hours: Hours::Even, ..clock };
        assert_eq!(even.after(Span::from_secs(5), 0.5, end), Some(Span::from_secs(1_805)));
    }
}
