//! Tries after a failed attempt: how many, after how long, and on which group.

use super::cooldown::Failure;
use crate::config::gateway::{Retries, RetryPolicy};
use crate::rng::Stream;
use crate::units::Span;

const FIRST_WAIT_S: f64 = 0.5;
const LONGEST_WAIT_S: f64 = 8.0;
const JITTER_S: f64 = 0.75;
/// A `retry-after` beyond this is not honoured.
const LONGEST_RETRY_AFTER: Span = Span::from_secs(60);

/// How often a failure of this kind is tried again within a group.
#[must_use]
pub fn tries(retries: &Retries, failure: Failure) -> u32 {
    let RetryPolicy { timeout, rate_limit, internal_server, service_unavailable, default } =
        retries.policy;
    let own = match failure.status() {
        408 => timeout,
        429 => rate_limit,
        503 => service_unavailable,
        500.. => internal_server,
        _ => None,
    };
    own.or(default).unwrap_or(retries.num_retries)
}

/// How long the router waits before the try after the `done`th: not at all if another deployment
/// is healthy, else what the upstream asks for, else longer each time, by chance up to 0.75 s more.
#[must_use]
pub fn wait(
    retries: &Retries,
    done: u32,
    another_is_healthy: bool,
    retry_after: Option<Span>,
    chance: &mut Stream,
) -> Span {
    if another_is_healthy {
        return Span::ZERO;
    }
    let asked = retry_after.filter(|span| span.0 > 0 && *span <= LONGEST_RETRY_AFTER);
    let wait = asked.unwrap_or_else(|| {
        let doubled = FIRST_WAIT_S * 2f64.powi(done.min(30) as i32);
        Span::from_secs_f64(doubled.min(LONGEST_WAIT_S) + JITTER_S * chance.uniform_f64())
    });
    wait.max(retries.min_wait)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Purpose;

    #[test]
    fn waits_double_up_to_eight_seconds_and_a_bit() {
        let mut chance = Stream::new(1, Purpose::RouterRetry, 0);
        let retries = Retries::default();
        for (done, least) in [(0, 0.5), (1, 1.0), (2, 2.0), (4, 8.0), (40, 8.0)] {
            let wait = wait(&retries, done, false, None, &mut chance).secs();
            assert!((least..least + 0.75).contains(&wait), "{done}: {wait}");
        }
    }

    #[test]
    fn another_deployment_is_tried_at_once_and_retry_after_is_honoured() {
        let mut chance = Stream::new(1, Purpose::RouterRetry, 0);
        let retries = Retries { min_wait: Span::from_secs(3), ..Retries::default() };
        let mut after = |healthy, secs| {
            wait(&retries, 0, healthy, Some(Span::from_secs(secs)), &mut chance).secs()
        };
        assert_eq!((after(true, 9), after(false, 60), after(false, 1)), (0.0, 60.0, 3.0));
        assert!(after(false, 61) < 4.0, "too long to be honoured");
    }

    #[test]
    fn kinds_of_failure_have_their_own_numbers() {
        let policy = RetryPolicy { timeout: Some(0), default: Some(7), ..RetryPolicy::default() };
        let retries = Retries { policy, ..Retries::default() };
        assert_eq!(tries(&retries, Failure::Timeout), 0);
        assert_eq!(tries(&retries, Failure::Status(503)), 7);
        assert_eq!(tries(&Retries::default(), Failure::Status(503)), 2);
    }
}
