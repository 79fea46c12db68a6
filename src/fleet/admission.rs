//! The limits of a replica's API server: what it turns away before its engine sees it, and what
//! the client does then.
//!
//! vLLM has two such limits, both off by default. A refused request gets HTTP 503 without a
//! `Retry-After`, so the client waits by its own rule and asks again.

use crate::config::scenario::Client;
use crate::rng::{Purpose, Stream};
use crate::units::{Span, Tokens};

/// The limits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// `max_num_queued_reqs`: most unfinished requests, running ones included.
    pub max_num_queued_reqs: Option<u64>,
    /// `max_num_queued_tokens`: most prompt tokens of requests without a first token.
    pub max_num_queued_tokens: Option<Tokens>,
}

/// What one API server knows of its engine's requests.
#[derive(Clone, Copy, Debug, Default)]
pub struct ApiServer {
    unfinished: u64,
    /// Whole prompts of requests that have no first token yet, whatever is cached or computed.
    backlog: Tokens,
}

impl ApiServer {
    /// Takes a request in, or refuses it. The tokens of the new prompt itself do not count.
    pub fn admit(&mut self, limits: &Limits, prompt: Tokens) -> bool {
        let full = limits.max_num_queued_reqs.is_some_and(|most| self.unfinished + 1 > most)
            || limits.max_num_queued_tokens.is_some_and(|most| self.backlog >= most);
        if !full {
            self.unfinished += 1;
            self.backlog += prompt;
        }
        !full
    }

    /// A request got its first token.
    pub fn first_token(&mut self, prompt: Tokens) {
        self.backlog -= prompt;
    }

    /// A request has ended.
    pub fn finished(&mut self) {
        self.unfinished -= 1;
    }
}

/// How long the client waits before it asks again after its `refusals`th refusal; `None` if it
/// gives up. The wait doubles up to a limit, and up to a quarter of it is taken off by chance.
#[must_use]
pub fn retry_after(client: &Client, refusals: u32, seed: u64, call: u64) -> Option<Span> {
    if refusals > client.max_retries {
        return None;
    }
    let doubled = client.retry_base.secs() * 2f64.powi(refusals as i32 - 1);
    let mut chance = Stream::new(seed, Purpose::Retry, call << 8 | u64::from(refusals));
    let jitter = 1.0 - 0.25 * chance.uniform_f64();
    Some(Span::from_secs_f64(doubled.min(client.retry_max.secs()) * jitter))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_on_requests_counts_running_ones() {
        let limits = Limits { max_num_queued_reqs: Some(2), ..Limits::default() };
        let mut server = ApiServer::default();
        assert!(server.admit(&limits, Tokens(10)) && server.admit(&limits, Tokens(10)));
        server.first_token(Tokens(10));
        assert!(!server.admit(&limits, Tokens(10)), "two are unfinished");
        server.finished();
        assert!(server.admit(&limits, Tokens(10)));
    }

    #[test]
    fn the_limit_on_tokens_does_not_count_the_new_prompt() {
        let limits = Limits { max_num_queued_tokens: Some(Tokens(100)), ..Limits::default() };
        let mut server = ApiServer::default();
        assert!(server.admit(&limits, Tokens(99)));
        assert!(server.admit(&limits, Tokens(5_000)), "99 wait, which is below 100");
        assert!(!server.admit(&limits, Tokens(1)));
        server.first_token(Tokens(5_000));
        assert!(server.admit(&limits, Tokens(1)));
    }

    #[test]
    fn waits_double_to_a_limit_and_end() {
        let client = Client {
            max_retries: 6,
            retry_base: Span::from_millis(500),
            retry_max: Span::from_secs(8),
        };
        for (refusals, most) in [(1, 0.5), (2, 1.0), (5, 8.0), (6, 8.0)] {
            let wait = retry_after(&client, refusals, 1, 7).unwrap().secs();
            assert!((0.75 * most..=most).contains(&wait), "{refusals}: {wait}");
        }
        assert_eq!(retry_after(&client, 7, 1, 7), None);
    }
}
