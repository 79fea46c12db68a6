//! When a deployment that failed is left alone.

use crate::config::gateway::Cooldown;

/// Why an attempt failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The upstream answered with this HTTP status.
    Status(u16),
    /// The prompt is longer than the model's context (a 400 of its own kind).
    ContextWindow,
    /// It gave no sign of life for the time allowed.
    Timeout,
    /// It could not be reached.
    Connection,
    /// No deployment of the group was healthy.
    NoDeployment,
}

impl Failure {
    /// The HTTP status that a client sees in the end.
    #[must_use]
    pub const fn status(self) -> u16 {
        match self {
            Self::Status(status) => status,
            Self::ContextWindow => 400,
            Self::Timeout => 408,
            Self::Connection => 500,
            Self::NoDeployment => 429,
        }
    }

    /// Whether trying again may help: 408, 409, 429 and server errors.
    #[must_use]
    pub const fn is_retryable(self) -> bool {
        let status = self.status();
        matches!(status, 408 | 409 | 429) || status >= 500
    }

    /// Whether it can count against a deployment at all: of the client's errors only some do, and
    /// a connection that fails never does.
    #[must_use]
    pub const fn counts(self) -> bool {
        match self {
            Self::Connection | Self::NoDeployment => false,
            _ => {
                let status = self.status();
                !(status >= 400 && status < 500) || matches!(status, 401 | 404 | 408 | 429)
            }
        }
    }
}

/// Answers and failures of a deployment in its running minute, the failure just seen included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Minute {
    /// Answers.
    pub successes: u64,
    /// Failures.
    pub fails: u64,
}

/// Requests from which on more than half of them failing counts.
const MIN_REQUESTS: u64 = 5;
/// Requests from which on all of them failing counts, also where there is no other deployment.
const MIN_REQUESTS_ALONE: u64 = 1_000;

/// Whether a failure sends the deployment away for a while. `is_alone` if its group has no other,
/// `recent_fails` counts failures within a cooldown's time, this one included.
#[must_use]
pub fn is_left_alone(
    rule: &Cooldown,
    failure: Failure,
    minute: Minute,
    recent_fails: u64,
    is_alone: bool,
) -> bool {
    if rule.time.0 == 0 || !failure.counts() {
        return false;
    }
    if let Some(allowed) = rule.allowed_fails {
        return recent_fails > u64::from(allowed);
    }
    let requests = minute.successes + minute.fails;
    if requests >= MIN_REQUESTS_ALONE && minute.successes == 0 {
        return true;
    }
    let most_fail = requests >= MIN_REQUESTS && minute.fails * 2 > requests;
    if !is_alone && (failure.status() == 429 || most_fail) {
        return true;
    }
    !failure.is_retryable()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Span;

    fn verdict(failure: Failure, successes: u64, fails: u64, is_alone: bool) -> bool {
        let minute = Minute { successes, fails };
        is_left_alone(&Cooldown::default(), failure, minute, fails, is_alone)
    }

    #[test]
    fn the_rule_of_shares() {
        let (busy, broken) = (Failure::Status(429), Failure::Status(503));
        assert!(verdict(busy, 100, 1, false), "one 429 is enough");
        assert!(!verdict(busy, 100, 1, true), "unless there is no other deployment");
        assert!(!verdict(broken, 0, 4, false), "four requests are too few");
        assert!(verdict(broken, 0, 5, false) && verdict(broken, 2, 3, false));
        assert!(!verdict(broken, 3, 3, false), "half is not more than half");
        assert!(!verdict(broken, 0, 999, true) && verdict(broken, 0, 1_000, true));
        assert!(!verdict(broken, 1, 1_000, true));
    }

    #[test]
    fn the_clients_own_errors() {
        assert!(verdict(Failure::Status(401), 9, 1, false), "not to be retried");
        assert!(verdict(Failure::Status(404), 9, 1, true));
        assert!(!verdict(Failure::Status(400), 0, 50, false));
        assert!(!verdict(Failure::ContextWindow, 0, 50, false));
        assert!(!verdict(Failure::Connection, 0, 5_000, false), "a dead replica stays in");
    }

    #[test]
    fn allowed_fails_is_a_rule_of_its_own() {
        let rule = Cooldown { allowed_fails: Some(3), ..Cooldown::default() };
        let minute = Minute { successes: 0, fails: 9 };
        let left = |fails| is_left_alone(&rule, Failure::Status(429), minute, fails, true);
        assert!(!left(3) && left(4));
        let off = Cooldown { time: Span::ZERO, ..rule };
        assert!(!is_left_alone(&off, Failure::Status(401), minute, 99, false));
    }
}
