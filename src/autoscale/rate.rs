//! A rate as an autoscaler sees it: a counter that is scraped now and then and averaged over a
//! window.
//!
//! Requests and tokens are counted when an answer is complete. A stream of minutes adds nothing
//! until its end, so a burst of long calls shows only when it is nearly over.

use std::collections::VecDeque;

use crate::units::{Span, Time};

/// A counter with its scrapes.
#[derive(Clone, Debug)]
pub struct ScrapedRate {
    scrape: Span,
    window: Span,
    total: u64,
    next: Time,
    samples: VecDeque<(Time, u64)>,
}

impl ScrapedRate {
    /// A counter at zero; `rate(...[1m])` of a counter scraped every 15 s is
    /// `new(15 s, 60 s)`.
    #[must_use]
    pub fn new(scrape: Span, window: Span) -> Self {
        let samples = VecDeque::from([(Time::ZERO, 0)]);
        Self { scrape, window, total: 0, next: Time::ZERO + scrape, samples }
    }

    /// Something was counted at `now`.
    pub fn add(&mut self, now: Time, more: u64) {
        self.catch_up(now);
        self.total = self.total.saturating_add(more);
    }

    /// Takes the scrapes up to `now`.
    fn catch_up(&mut self, now: Time) {
        if self.scrape.0 == 0 {
            return;
        }
        // Of scrapes that are all alike those before the window need not be kept.
        let floor = Time(now.0.saturating_sub(self.window.0 + 2 * self.scrape.0));
        if self.next < floor {
            let skipped = (floor.0 - self.next.0) / self.scrape.0;
            self.next = self.next + Span(skipped * self.scrape.0);
        }
        while self.next <= now {
            self.samples.push_back((self.next, self.total));
            self.next = self.next + self.scrape;
        }
        while self.samples.get(1).is_some_and(|(at, _)| *at <= floor) {
            self.samples.pop_front();
        }
    }

    /// The increase per second over the window, from scrapes alone.
    pub fn per_second(&mut self, now: Time) -> f64 {
        self.catch_up(now);
        let inside = |(at, _): &&(Time, u64)| now.saturating_since(*at) <= self.window;
        let mut samples = self.samples.iter().filter(inside);
        let Some((from, before)) = samples.next() else { return 0.0 };
        let Some((to, after)) = samples.next_back() else { return 0.0 };
        (after - before) as f64 / to.saturating_since(*from).secs()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(secs: u64) -> Time {
        Time::ZERO + Span::from_secs(secs)
    }

    fn rate() -> ScrapedRate {
        ScrapedRate::new(Span::from_secs(15), Span::from_secs(60))
    }

    #[test]
    fn a_steady_rate_is_seen_as_it_is() {
        let mut rate = rate();
        for second in 0..300 {
            rate.add(at(second), 7);
        }
        assert!((rate.per_second(at(300)) - 7.0).abs() < 0.2, "{}", rate.per_second(at(300)));
        assert_eq!(rate.per_second(at(900)), 0.0);
    }

    #[test]
    fn what_was_not_scraped_is_not_seen() {
        let mut rate = rate();
        rate.add(at(121), 600);
        assert_eq!(rate.per_second(at(134)), 0.0);
        assert_eq!(rate.per_second(at(135)), 600.0 / 60.0);
    }

    /// Twenty streams of 1,000 tokens a second that begin together at 100 s and last 200 s: while
    /// they run, the rate is nothing; afterwards it is far too much.
    #[test]
    fn tokens_of_streams_are_seen_when_they_are_over() {
        let mut rate = rate();
        for _ in 0..20 {
            rate.add(at(300), 200_000);
        }
        assert_eq!(rate.per_second(at(299)), 0.0);
        assert!(rate.per_second(at(315)) > 3.0 * 20_000.0);
        assert_eq!(rate.per_second(at(400)), 0.0);
    }
}
