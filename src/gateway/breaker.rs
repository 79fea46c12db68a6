//! A worker's way to Redis, and how it is given up: after so many failures in a row no operation
//! is tried for a while, and local state stands in without anybody being told.

use crate::config::gateway::Redis;
use crate::units::{Span, Time};

/// Whether Redis answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Health {
    /// It does.
    #[default]
    Up,
    /// The connection is refused at once.
    Refuses,
    /// Operations run into their timeout.
    Silent,
}

/// What an operation comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// How long it takes.
    pub takes: Span,
    /// Whether Redis answered; if not, local state stands in.
    pub answered: bool,
}

/// The breaker of one worker.
#[derive(Clone, Copy, Debug, Default)]
pub struct Breaker {
    failures: u32,
    /// The first of a row of time-outs alone.
    timeouts_since: Option<Time>,
    open_until: Option<Time>,
    /// Operations that local state stood in for.
    pub stood_in: u64,
    /// Times that it opened.
    pub opened: u64,
}

impl Breaker {
    /// An operation at `now`.
    pub fn call(&mut self, now: Time, redis: &Redis, health: Health) -> Outcome {
        if self.is_open(now) {
            self.stood_in += 1;
            return Outcome { takes: Span::ZERO, answered: false };
        }
        let fails_after = match health {
            Health::Up => {
                *self = Self { stood_in: self.stood_in, opened: self.opened, ..Self::default() };
                return Outcome { takes: redis.round_trip, answered: true };
            }
            Health::Refuses => Span::ZERO,
            Health::Silent => redis.timeout,
        };
        self.fail(now, redis, health, fails_after);
        Outcome { takes: fails_after, answered: false }
    }

    /// Whether no operation is tried at `now`.
    #[must_use]
    pub fn is_open(&self, now: Time) -> bool {
        self.open_until.is_some_and(|until| now < until)
    }

    fn fail(&mut self, now: Time, redis: &Redis, health: Health, after: Span) {
        self.stood_in += 1;
        // After its rest one operation tries again, and one failure opens it anew.
        let was_open = self.open_until.take().is_some();
        self.timeouts_since = match health {
            Health::Silent if self.failures == 0 => Some(now),
            Health::Silent => self.timeouts_since,
            Health::Up | Health::Refuses => None,
        };
        self.failures += 1;
        let at = now + after;
        let spans = |since| at.saturating_since(since) >= redis.breaker_timeout_span;
        let enough =
            self.failures >= redis.breaker_failures && self.timeouts_since.is_none_or(spans);
        if was_open || enough {
            self.open_until = Some(at + redis.breaker_recovery);
            self.opened += 1;
            (self.failures, self.timeouts_since) = (0, None);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(secs: u64) -> Time {
        Time::ZERO + Span::from_secs(secs)
    }

    #[test]
    fn five_failures_open_it_for_a_minute() {
        let (redis, mut breaker) = (Redis::default(), Breaker::default());
        for _ in 0..5 {
            assert!(!breaker.call(at(1), &redis, Health::Refuses).answered);
        }
        assert_eq!(breaker.opened, 1);
        // It does not notice that Redis is back.
        assert!(!breaker.call(at(60), &redis, Health::Up).answered);
        assert!(breaker.call(at(61), &redis, Health::Up).answered);
        assert_eq!(breaker.stood_in, 6);
    }

    #[test]
    fn one_failure_after_the_rest_opens_it_again() {
        let (redis, mut breaker) = (Redis::default(), Breaker::default());
        for _ in 0..5 {
            let _ = breaker.call(at(0), &redis, Health::Refuses);
        }
        breaker.call(at(60), &redis, Health::Refuses);
        assert_eq!(breaker.opened, 2);
    }

    #[test]
    fn timeouts_must_span_five_seconds() {
        let redis = Redis { timeout: Span::from_secs(1), ..Redis::default() };
        let mut breaker = Breaker::default();
        for _ in 0..5 {
            let _ = breaker.call(at(0), &redis, Health::Silent);
        }
        assert_eq!(breaker.opened, 0, "all within a second");
        breaker.call(at(4), &redis, Health::Silent);
        assert_eq!(breaker.opened, 1);
    }
}
