//! What the gateway did inside the measured window.

use super::members::MemberUse;
use crate::stats::LogHistogram;
use crate::units::{Bytes, Span};

/// What the gateway did inside the window. Requests are those that the gateway sees: a client that
/// asks again is another request, and each try of the gateway is another attempt.
#[derive(Clone, Debug, PartialEq)]
pub struct GatewayUse {
    /// What was counted.
    pub counts: GatewayCounts,
    /// From a request's arrival to its first attempt, in nanoseconds.
    pub overhead: LogHistogram,
    /// The wait for a slot of those that got one after a wait, in nanoseconds.
    pub queue_wait: LogHistogram,
    /// Core time that all pods used.
    pub cpu_used: Span,
    /// Core time that there was.
    pub cpu_available: Span,
    /// Time in counts of tokens, added up.
    pub counter_busy: Span,
    /// Time of all slots in which counts can run; none if nothing is counted.
    pub counter_available: Option<Span>,
    /// Most connections to the database that were ever open, in the whole run.
    pub connections_max: u32,
    /// Most bytes of spend rows that ever waited in one worker, in the whole run.
    pub spend_bytes_max: Bytes,
    /// Spend rows that wait at the end.
    pub spend_rows_waiting: u64,
    /// Requests that are with the gateway at the end: in none of the counts of how one ended.
    pub open: u64,
    /// The pods.
    pub pods: MemberUse,
}

/// What the gateway counted inside the window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GatewayCounts {
    /// Requests that reached the gateway.
    pub offered: u64,
    /// Of these, admitted at once or after a wait.
    pub admitted: u64,
    /// Of these, after a wait.
    pub queued: u64,
    /// Turned away by admission.
    pub rejected: u64,
    /// Turned away because no pod took requests.
    pub no_worker: u64,
    /// Turned away by the limits of a key or team.
    pub rate_limited: u64,
    /// Turned away because the key could not be looked up.
    pub database_errors: u64,
    /// Answered.
    pub answered: u64,
    /// Failed after all attempts.
    pub failed: u64,
    /// Ended because their pod was killed.
    pub killed: u64,
    /// Requests sent to replicas.
    pub attempts: u64,
    /// Of these, tries after a failure in the same group.
    pub retries: u64,
    /// Other groups tried.
    pub fallbacks: u64,
    /// Attempts that ran into the request's timeout.
    pub timeouts: u64,
    /// Times that a deployment was sent into cooldown.
    pub cooldowns: u64,
    /// Counts of tokens.
    pub token_counts: u64,
    /// Requests whose session's pin was found and healthy.
    pub pin_hits: u64,
    /// Requests of sessions without a pin that could be used.
    pub pin_misses: u64,
    /// Pins that had to go before their time.
    pub evicted_pins: u64,
    /// First attempts that went to the replica of the session's call before.
    pub stayed: u64,
    /// First attempts that went to another one.
    pub moved: u64,
    /// Requests whose key was known.
    pub key_hits: u64,
    /// Requests whose key had to be looked up.
    pub key_queries: u64,
    /// Connections that the database refused.
    pub connections_refused: u64,
    /// Spend rows written.
    pub rows_written: u64,
    /// Spend rows lost.
    pub rows_lost: u64,
    /// What the lost rows would have billed, in billionths of the currency.
    pub nano_cost_lost: u64,
    /// Redis operations that local state stood in for.
    pub redis_stood_in: u64,
    /// Times that a breaker opened.
    pub breakers_opened: u64,
    /// Requests that clients sent after a refusal.
    pub asked_again: u64,
    /// Calls that clients gave up.
    pub given_up: u64,
}

impl GatewayUse {
    /// Requests sent to replicas for one that was answered; `None` without answers.
    #[must_use]
    pub fn amplification(&self) -> Option<f64> {
        share(self.counts.attempts, self.counts.answered)
    }

    /// Share of calls that went where their session's call before had gone; `None` without any.
    #[must_use]
    pub fn stay_share(&self) -> Option<f64> {
        share(self.counts.stayed, self.counts.stayed + self.counts.moved)
    }

    /// Share of the pods' core time that was used; `None` without any.
    #[must_use]
    pub fn cpu_share(&self) -> Option<f64> {
        share(self.cpu_used.0, self.cpu_available.0)
    }

    /// Share of the counter's slots that were busy; `None` if nothing is counted.
    #[must_use]
    pub fn counter_utilisation(&self) -> Option<f64> {
        share(self.counter_busy.0, self.counter_available?.0)
    }
}

fn share(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}
