//! Who starts sessions, how often, and at which hours.

use std::collections::BTreeMap;

use crate::trace::record::{Name, Session};
use crate::units::Span;
use crate::workload::hours;
use crate::workload::profile::Hours;

/// So many starts are kept one by one, for the pauses between them.
const STARTS_MAX: usize = 1 << 20;
/// Nanoseconds of an hour.
const HOUR: u64 = 3_600_000_000_000;
/// With fewer starts the hours and the bursts are not told.
const FEW: usize = 20;

/// The starts of a trace's sessions.
#[derive(Clone, Debug, Default)]
pub struct Starts {
    users: BTreeMap<Name, u32>,
    tenants: BTreeMap<Name, u64>,
    /// In the order of time, by user.
    starts: Vec<(u32, Span)>,
    /// Sessions by hour from the start of the trace.
    by_hour: Vec<u64>,
    anonymous: u64,
    first: Option<Span>,
    last: Span,
}

/// What is learnt of them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Habits {
    /// When people work.
    pub hours: Hours,
    /// Whether there was enough to tell.
    pub hours_are_told: bool,
    /// Sessions that a person starts in an hour of work, if persons are named.
    pub per_hour: Option<f64>,
    /// Deviation over mean of the work between two starts, with the number of pauses.
    pub burst_cv: Option<(f64, u64)>,
}

impl Starts {
    /// Adds a session.
    pub fn session(&mut self, session: &Session) {
        let Some(call) = session.calls.first() else { return };
        let key = call.key.clone().unwrap_or_default();
        let user = if call.user.is_empty() { key } else { Name::clone(&call.user) };
        if !call.tenant.is_empty() {
            *self.tenants.entry(Name::clone(&call.tenant)).or_default() += 1;
        }
        self.first.get_or_insert(call.at);
        self.last = self.last.max(call.at);
        let hour = (call.at.0 / HOUR) as usize;
        if hour >= self.by_hour.len() {
            self.by_hour.resize(hour + 1, 0);
        }
        self.by_hour[hour] += 1;
        if user.is_empty() {
            self.anonymous += 1;
        } else if self.starts.len() < STARTS_MAX {
            let next = self.users.len() as u32;
            let user = *self.users.entry(user).or_insert(next);
            self.starts.push((user, call.at));
        }
    }

    /// People who are named.
    #[must_use]
    pub fn users(&self) -> u64 {
        self.users.len() as u64
    }

    /// Teams that are named.
    #[must_use]
    pub fn tenants(&self) -> u64 {
        self.tenants.len() as u64
    }

    /// Sessions whose person is not named.
    #[must_use]
    pub fn anonymous(&self) -> u64 {
        self.anonymous
    }

    /// Time from the first start to the last.
    #[must_use]
    pub fn length(&self) -> Span {
        self.first.map_or(Span::ZERO, |first| self.last - first)
    }

    /// Most starts of an hour over the mean of the hours from the first start to the last, and how
    /// many they are.
    #[must_use]
    pub fn peak_to_mean(&self) -> Option<(f64, u64)> {
        peak_to_mean(&self.by_hour)
    }

    /// What is learnt, for a trace that begins at this hour of the week.
    #[must_use]
    pub fn habits(&self, start_hour: u64) -> Habits {
        let sessions: u64 = self.by_hour.iter().sum();
        let is_long = self.length() >= Span::from_secs(86_400);
        let hours_are_told = is_long && sessions >= FEW as u64;
        let hours = if hours_are_told { self.likeliest(start_hour) } else { Hours::Even };
        let work = Work::new(hours, start_hour, self.by_hour.len());
        let from = work.until(self.first.unwrap_or(Span::ZERO));
        let worked = work.until(self.last) - from;
        let named = self.starts.len() as f64;
        let per_hour = named / (self.users.len() as f64 * worked);
        let is_told = self.starts.len() >= 2 && self.starts.len() < STARTS_MAX;
        let per_hour = Some(per_hour).filter(|rate| is_told && rate.is_finite() && *rate > 0.0);
        Habits { hours, hours_are_told, per_hour, burst_cv: self.burst_cv(&work) }
    }

    /// The hours under which the starts are least surprising; of equals the evenest.
    fn likeliest(&self, start_hour: u64) -> Hours {
        let surprise = |hours: Hours| {
            let weight = |hour: usize| hours::weight(hours, start_hour + hour as u64);
            let whole: f64 = (0..self.by_hour.len()).map(weight).sum();
            let starts = self.by_hour.iter().enumerate();
            -starts.map(|(hour, n)| *n as f64 * (weight(hour) / whole).ln()).sum::<f64>()
        };
        let kinds = [Hours::Even, Hours::Global, Hours::Office];
        let best = kinds.into_iter().min_by(|a, b| surprise(*a).total_cmp(&surprise(*b)));
        best.unwrap_or(Hours::Even)
    }

    fn burst_cv(&self, work: &Work) -> Option<(f64, u64)> {
        let mut last: Vec<Option<Span>> = vec![None; self.users.len()];
        let mut pauses: Vec<f64> = Vec::new();
        for (user, at) in &self.starts {
            let before = last[*user as usize].replace(*at);
            pauses.extend(before.map(|before| work.until(*at) - work.until(before)));
        }
        let n = pauses.len() as f64;
        let mean = pauses.iter().sum::<f64>() / n;
        let variance = pauses.iter().map(|p| (p - mean) * (p - mean)).sum::<f64>() / (n - 1.0);
        let is_enough = pauses.len() >= FEW && mean > 0.0;
        is_enough.then(|| (variance.sqrt() / mean, pauses.len() as u64))
    }
}

/// The same of starts by hour.
#[must_use]
pub fn peak_to_mean(by_hour: &[u64]) -> Option<(f64, u64)> {
    let first = by_hour.iter().position(|starts| *starts > 0)?;
    let hours = &by_hour[first..];
    let (peak, sum) = (*hours.iter().max()?, hours.iter().sum::<u64>());
    (hours.len() >= 2).then(|| (peak as f64 * hours.len() as f64 / sum as f64, peak))
}

/// Hours of full work since the start of a trace.
struct Work {
    hours: Hours,
    start_hour: u64,
    /// By whole hour.
    until: Vec<f64>,
}

impl Work {
    fn new(hours: Hours, start_hour: u64, length: usize) -> Self {
        let mut until = vec![0.0];
        for hour in 0..length {
            until.push(until[hour] + hours::weight(hours, start_hour + hour as u64));
        }
        Self { hours, start_hour, until }
    }

    fn until(&self, at: Span) -> f64 {
        let hour = at.0 / HOUR;
        let weight = hours::weight(self.hours, self.start_hour + hour);
        let before = self.until.get(hour as usize).copied().unwrap_or_default();
        before + weight * (at.0 % HOUR) as f64 / HOUR as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_peak_is_that_of_the_hours_since_the_first_start() {
        assert_eq!(peak_to_mean(&[0, 0, 4, 0, 2]), Some((2.0, 4)));
        assert_eq!((peak_to_mean(&[0, 4]), peak_to_mean(&[])), (None, None));
    }

    #[test]
    fn work_is_counted_by_the_weight_of_its_hours() {
        // From Monday 7:00: an hour of the night, one of the shoulder, then full work.
        let work = Work::new(Hours::Office, 7, 4);
        let until = work.until(Span::from_secs(9_000));
        assert!((until - (0.05 + 0.4 + 0.5)).abs() < 1e-12, "{until}");
    }
}
