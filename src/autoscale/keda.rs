//! KEDA: triggers on metrics of Prometheus, each with a value that one member should have.
//!
//! Between `min` and `max` it is the horizontal pod autoscaler that decides, every 15 s, from what
//! KEDA hands it: for each trigger ceil(sum of the metric / threshold), and the highest of them.
//! KEDA's own polling and cooldown matter between none and one member: up as soon as a poll sees a
//! trigger above its activation, down once none was for the cooldown.

use super::hpa::HpaState;
use crate::config::autoscale::{Keda, Metric, Trigger};
use crate::units::{Span, Time};

/// What the metrics are, summed over all members that serve.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Readings {
    /// See [`Metric::RequestsPerSecond`].
    pub requests_per_second: f64,
    /// See [`Metric::TokensPerSecond`].
    pub tokens_per_second: f64,
    /// See [`Metric::RequestsWaiting`].
    pub requests_waiting: f64,
    /// See [`Metric::KvCacheUsage`].
    pub kv_cache_usage: f64,
}

impl Readings {
    fn of(&self, metric: Metric) -> f64 {
        match metric {
            Metric::RequestsPerSecond => self.requests_per_second,
            Metric::TokensPerSecond => self.tokens_per_second,
            Metric::RequestsWaiting => self.requests_waiting,
            Metric::KvCacheUsage => self.kv_cache_usage,
        }
    }
}

/// A running scaled object.
#[derive(Clone, Debug)]
pub struct KedaState {
    settings: Keda,
    hpa: HpaState,
    last_active: Time,
}

impl KedaState {
    /// One that has seen nothing yet.
    #[must_use]
    pub fn new(settings: Keda) -> Self {
        let hpa = HpaState::new(settings.hpa);
        Self { settings, hpa, last_active: Time::ZERO }
    }

    /// How long until it looks again, with so many members present.
    #[must_use]
    pub fn period(&self, present: u32) -> Span {
        match present {
            0 => self.settings.polling_interval,
            _ => self.settings.hpa.sync.min(self.settings.polling_interval),
        }
    }

    /// The number wanted. `present` counts members that start.
    pub fn look(&mut self, now: Time, present: u32, readings: &Readings) -> u32 {
        let is_active = |trigger: &Trigger| readings.of(trigger.metric) > trigger.activation;
        if self.settings.triggers.iter().any(is_active) {
            self.last_active = now;
        }
        let quiet = now.saturating_since(self.last_active);
        if present == 0 {
            return u32::from(quiet.0 == 0).max(self.settings.min);
        }
        if self.settings.min == 0 && quiet >= self.settings.cooldown_period {
            return 0;
        }
        let tolerance = self.settings.hpa.tolerance;
        let raw = self.settings.triggers.iter().map(|trigger| {
            let each = readings.of(trigger.metric) / trigger.threshold;
            let ratio = each / f64::from(present);
            match (ratio - 1.0).abs() <= tolerance {
                true => present,
                false => (each - 1e-9).ceil().max(0.0) as u32,
            }
        });
        self.hpa.by_highest(now, present, raw)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(secs: u64) -> Time {
        Time::ZERO + Span::from_secs(secs)
    }

    fn waiting(requests_waiting: f64) -> Readings {
        Readings { requests_waiting, ..Readings::default() }
    }

    #[test]
    fn five_waiting_requests_for_each_member() {
        let mut keda = KedaState::new(Keda::engines(1, 8));
        assert_eq!(keda.look(at(0), 1, &waiting(5.0)), 1);
        assert_eq!(keda.look(at(15), 1, &waiting(6.0)), 2);
        assert_eq!(keda.look(at(30), 2, &waiting(200.0)), 6, "four more in 15 s");
        assert_eq!(keda.look(at(45), 6, &waiting(200.0)), 8, "the most");
        assert_eq!(keda.look(at(60), 8, &waiting(0.0)), 8);
        assert_eq!(keda.look(at(346), 8, &waiting(0.0)), 1, "five minutes after the last want");
    }

    #[test]
    fn a_full_cache_asks_before_anything_waits() {
        let mut keda = KedaState::new(Keda::engines(1, 8).with_kv_cache(0.7));
        let full = Readings { kv_cache_usage: 2.0 * 0.95, ..Readings::default() };
        assert_eq!(keda.look(at(0), 2, &full), 3);
        assert_eq!(KedaState::new(Keda::engines(1, 8)).look(at(0), 2, &full), 2);
    }

    #[test]
    fn none_to_one_and_back_is_polling_and_cooldown() {
        let mut keda = KedaState::new(Keda::engines(0, 8));
        assert_eq!(keda.look(at(400), 0, &waiting(0.0)), 0);
        assert_eq!(keda.period(0), Span::from_secs(15));
        assert_eq!(keda.look(at(415), 0, &waiting(1.0)), 1);
        assert_eq!(keda.look(at(774), 1, &waiting(0.0)), 1);
        assert_eq!(keda.look(at(775), 1, &waiting(0.0)), 0, "six minutes");
    }

    #[test]
    fn the_highest_trigger_counts() {
        let triggers = vec![
            Trigger { metric: Metric::RequestsPerSecond, threshold: 50.0, activation: 0.0 },
            Trigger { metric: Metric::TokensPerSecond, threshold: 100_000.0, activation: 0.0 },
        ];
        let mut keda = KedaState::new(Keda::gateway(2, 10, triggers));
        let readings = Readings {
            requests_per_second: 60.0,
            tokens_per_second: 450_000.0,
            ..Readings::default()
        };
        assert_eq!(keda.look(at(0), 2, &readings), 5);
    }
}
