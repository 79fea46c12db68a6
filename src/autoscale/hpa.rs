//! The horizontal pod autoscaler: every 15 s it wants as many members as bring the mean of a metric
//! to its target.
//!
//! desired = ceil(members x mean / target), unless that is within a tenth of the present number.
//! Members that are not ready count as idle for more and are left out for fewer, and neither can
//! turn the direction. More are started at once, at most doubling or four in 15 s; fewer only after
//! no higher number was wanted for five minutes. (Kubernetes, "Horizontal Pod Autoscaling".)

use std::collections::VecDeque;

use crate::config::autoscale::Hpa;
use crate::units::{Span, Time};

/// One member's metric.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Member {
    /// Its share, such as CPU used over CPU requested.
    pub share: f64,
    /// Whether it serves; those that are starting do not.
    pub is_ready: bool,
}

/// A running autoscaler.
#[derive(Clone, Debug)]
pub struct HpaState {
    settings: Hpa,
    /// What was wanted, and when, as far back as anything is held.
    wanted: VecDeque<(Time, u32)>,
    /// Members that were added, for the bound on growth.
    added: VecDeque<(Time, u32)>,
}

impl HpaState {
    /// One that has seen nothing yet.
    #[must_use]
    pub fn new(settings: Hpa) -> Self {
        Self { settings, wanted: VecDeque::new(), added: VecDeque::new() }
    }

    /// The settings.
    #[must_use]
    pub fn settings(&self) -> &Hpa {
        &self.settings
    }

    /// The number wanted for the metrics of all present members.
    pub fn by_share(&mut self, now: Time, members: &[Member]) -> u32 {
        let present = members.len() as u32;
        let raw = desired_by_share(&self.settings, members);
        self.settle(now, present, raw)
    }

    /// The number wanted for a metric that is shared out, such as requests per second of all:
    /// as many as bring each to `each`.
    pub fn by_total(&mut self, now: Time, present: u32, total: f64, each: f64) -> u32 {
        let ratio = total / (each * f64::from(present.max(1)));
        let raw = match (ratio - 1.0).abs() <= self.settings.tolerance {
            true => present,
            false => ceil(total / each),
        };
        self.settle(now, present, raw)
    }

    /// The highest number of several triggers, before it is held and bounded.
    pub fn by_highest(&mut self, now: Time, present: u32, raw: impl Iterator<Item = u32>) -> u32 {
        let highest = raw.max().unwrap_or(present);
        self.settle(now, present, highest)
    }

    /// Holds, bounds and remembers.
    fn settle(&mut self, now: Time, present: u32, raw: u32) -> u32 {
        let settings = self.settings;
        let longest = settings.down_stabilization.max(settings.up_stabilization);
        let held = |at: Time, span: Span| now.saturating_since(at) < span;
        if self.wanted.is_empty() {
            // What was there before the first look is held like a want.
            self.wanted.push_back((now, present));
        }
        self.wanted.push_back((now, raw));
        while self.wanted.front().is_some_and(|(at, _)| !held(*at, longest)) {
            self.wanted.pop_front();
        }
        let within = |span: Span| {
            self.wanted.iter().filter(move |(at, _)| held(*at, span)).map(|(_, wanted)| *wanted)
        };
        let lowest_up = within(settings.up_stabilization).fold(raw, u32::min);
        let highest_down = within(settings.down_stabilization).fold(raw, u32::max);
        let calm = present.max(lowest_up).min(highest_down);
        let bounded = calm.min(self.most(now, present)).clamp(settings.min, settings.max);
        self.added.push_back((now, bounded.saturating_sub(present)));
        while self.added.front().is_some_and(|(at, _)| !held(*at, settings.up_period)) {
            self.added.pop_front();
        }
        bounded
    }

    /// The most members that growth allows now.
    fn most(&self, now: Time, present: u32) -> u32 {
        let period = self.settings.up_period;
        let recent = self.added.iter().filter(|(at, _)| now.saturating_since(*at) < period);
        let added = recent.fold(0_u32, |sum, (_, added)| sum.saturating_add(*added));
        let base = present.saturating_sub(added);
        let share = u64::from(base) * u64::from(self.settings.up_percent);
        let by_percent = base.saturating_add(share.div_ceil(100) as u32);
        by_percent.max(base.saturating_add(self.settings.up_pods))
    }
}

fn desired_by_share(settings: &Hpa, members: &[Member]) -> u32 {
    let present = members.len() as u32;
    let ready = members.iter().filter(|member| member.is_ready);
    let (count, sum) = ready.fold((0_u32, 0.0), |(n, sum), member| (n + 1, sum + member.share));
    if count == 0 {
        return present;
    }
    let ratio = sum / f64::from(count) / settings.target;
    if (ratio - 1.0).abs() <= settings.tolerance {
        return present;
    }
    if ratio < 1.0 || count == present {
        return ceil(f64::from(count) * ratio);
    }
    // For more, those that are starting count as idle.
    let with_idle = sum / f64::from(present) / settings.target;
    if with_idle <= 1.0 + settings.tolerance {
        return present;
    }
    ceil(f64::from(present) * with_idle)
}

/// The next whole number, but not for what only rounding puts above one.
fn ceil(number: f64) -> u32 {
    // A cast saturates, and sends NaN to zero.
    (number - 1e-9).ceil().max(0.0) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(secs: u64) -> Time {
        Time::ZERO + Span::from_secs(secs)
    }

    fn members(ready: u32, share: f64, starting: u32) -> Vec<Member> {
        let member = |is_ready| move |_| Member { share, is_ready };
        (0..ready).map(member(true)).chain((0..starting).map(member(false))).collect()
    }

    fn once(ready: u32, share: f64, starting: u32) -> u32 {
        let (mut hpa, members) = (HpaState::new(Hpa::default()), members(ready, share, starting));
        hpa.by_share(at(0), &members);
        hpa.by_share(at(400), &members)
    }

    #[test]
    fn as_many_as_bring_the_mean_to_60_percent() {
        assert_eq!(once(2, 0.9, 0), 3);
        assert_eq!(once(10, 0.61, 0), 10, "within a tenth");
        assert_eq!(once(10, 0.67, 0), 12);
        assert_eq!(once(3, 0.3, 0), 2);
    }

    #[test]
    fn those_that_start_count_as_idle_and_do_not_turn_the_direction() {
        assert_eq!(once(2, 1.0, 2), 4, "half of them busy is no reason for more, nor for fewer");
        assert_eq!(once(2, 1.0, 1), 4);
        assert_eq!(once(4, 0.1, 4), 1, "left out for fewer");
    }

    #[test]
    fn growth_is_doubling_or_four_in_15_s() {
        let mut hpa = HpaState::new(Hpa::default());
        assert_eq!(hpa.by_total(at(0), 1, 5_000.0, 50.0), 5);
        assert_eq!(hpa.by_total(at(5), 5, 5_000.0, 50.0), 5, "four in 15 s");
        assert_eq!(hpa.by_total(at(15), 5, 5_000.0, 50.0), 10);
        assert_eq!(hpa.by_total(at(30), 10, 5_000.0, 50.0), 20);
        assert_eq!(hpa.by_total(at(90), 80, 500_000.0, 50.0), 100, "the most");
    }

    #[test]
    fn fewer_only_after_five_calm_minutes() {
        let mut hpa = HpaState::new(Hpa::default());
        assert_eq!(hpa.by_total(at(0), 8, 400.0, 50.0), 8);
        for secs in (15..300).step_by(15) {
            assert_eq!(hpa.by_total(at(secs), 8, 50.0, 50.0), 8, "{secs}");
        }
        assert_eq!(hpa.by_total(at(300), 8, 50.0, 50.0), 1);
    }
}
