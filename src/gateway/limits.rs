//! Limits of keys and teams: requests and tokens in a minute, requests at a time.
//!
//! Each key and each team has counters of its own, however many have the same limit.
//!
//! A minute begins with the first request that finds none running. Without Redis each worker has
//! counters of its own, so the limit of a key is multiplied by workers and pods; nobody is told.

use std::collections::BTreeMap;

use super::effect::Limited;
use crate::config::gateway::Limit;
use crate::units::{Span, Time, Tokens};

const MINUTE: Span = Span::from_secs(60);

#[derive(Clone, Copy, Debug, Default)]
struct Window {
    since: Option<Time>,
    requests: u64,
    tokens: u64,
    in_flight: u64,
}

/// The counters of every key and team, in one worker or in Redis.
#[derive(Clone, Debug, Default)]
pub struct LimitCounters {
    windows: BTreeMap<Limited, Window>,
}

impl LimitCounters {
    /// Counts a request for all that limit it, with the tokens it is expected to take.
    ///
    /// # Errors
    /// How long to wait, if one of them has nothing left; then nothing is counted.
    pub fn take(
        &mut self,
        now: Time,
        limits: &[Limit],
        of_call: &[Limited],
        tokens: Tokens,
    ) -> Result<(), Span> {
        for &id in of_call {
            let window = self.windows.entry(id).or_default();
            if window.since.is_none_or(|since| now.saturating_since(since) >= MINUTE) {
                *window = Window { since: Some(now), in_flight: window.in_flight, ..*window };
                (window.requests, window.tokens) = (0, 0);
            }
            let limit = limits[id.limit as usize];
            let is_over = |most: Option<u64>, with: u64| most.is_some_and(|most| with > most);
            if is_over(limit.rpm, window.requests + 1)
                || is_over(limit.tpm, window.tokens.saturating_add(tokens.0))
                || is_over(limit.max_parallel, window.in_flight + 1)
            {
                let since = window.since.unwrap_or(now);
                return Err((since + MINUTE).saturating_since(now));
            }
        }
        for &id in of_call {
            let window = self.windows.entry(id).or_default();
            window.requests += 1;
            window.tokens = window.tokens.saturating_add(tokens.0);
            window.in_flight += 1;
        }
        Ok(())
    }

    /// A request that was counted has ended with so many tokens.
    pub fn settle(&mut self, of_call: &[Limited], expected: Tokens, used: Tokens) {
        for &id in of_call {
            let window = self.windows.entry(id).or_default();
            window.tokens = window.tokens.saturating_add(used.0).saturating_sub(expected.0);
            window.in_flight = window.in_flight.saturating_sub(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE_KEY: [Limited; 1] = [Limited { limit: 0, holder: 7 }];

    fn allowed(counters: &mut LimitCounters, at: u64, limit: Limit, requests: u32) -> u32 {
        let at = Time(at * 1_000_000_000);
        let take = |_: &u32| counters.take(at, &[limit], &ONE_KEY, Tokens(10)).is_ok();
        (0..requests).filter(take).count() as u32
    }

    #[test]
    fn a_minute_begins_with_its_first_request() {
        let limit = Limit { rpm: Some(100), ..Limit::default() };
        let mut counters = LimitCounters::default();
        assert_eq!(allowed(&mut counters, 7, limit, 150), 100);
        assert_eq!(allowed(&mut counters, 66, limit, 150), 0);
        let wait = counters.take(Time(66_000_000_000), &[limit], &ONE_KEY, Tokens(1));
        assert_eq!(wait, Err(Span::from_secs(1)));
        assert_eq!(allowed(&mut counters, 67, limit, 150), 100);
    }

    #[test]
    fn each_key_has_the_whole_limit() {
        let limit = Limit { rpm: Some(100), ..Limit::default() };
        let mut counters = LimitCounters::default();
        for holder in 0..3 {
            let key = [Limited { limit: 0, holder }];
            let take = |_: &u32| counters.take(Time(0), &[limit], &key, Tokens(1)).is_ok();
            assert_eq!((0..150).filter(take).count(), 100, "{holder}");
        }
    }

    #[test]
    fn tokens_are_reserved_and_settled() {
        let limit = Limit { tpm: Some(100), ..Limit::default() };
        let mut counters = LimitCounters::default();
        assert_eq!(allowed(&mut counters, 0, limit, 50), 10);
        counters.settle(&ONE_KEY, Tokens(10), Tokens(4));
        assert_eq!(allowed(&mut counters, 1, limit, 50), 0, "94 and 10 are too many");
        counters.settle(&ONE_KEY, Tokens(10), Tokens(4));
        assert_eq!(allowed(&mut counters, 1, limit, 50), 1);
    }

    #[test]
    fn parallel_requests_count_until_they_end() {
        let limit = Limit { max_parallel: Some(2), ..Limit::default() };
        let mut counters = LimitCounters::default();
        assert_eq!(allowed(&mut counters, 0, limit, 5), 2);
        assert_eq!(allowed(&mut counters, 90, limit, 5), 0, "a new minute frees none");
        counters.settle(&ONE_KEY, Tokens(10), Tokens(10));
        assert_eq!(allowed(&mut counters, 91, limit, 5), 1);
    }
}
