//! What the gateway has counted.

use super::spend::Batch;
use crate::stats::LogHistogram;
use crate::units::{Bytes, Span};

/// Counts over the whole run, of all workers.
#[derive(Clone, Debug, Default)]
pub struct GatewayMetrics {
    /// Requests that reached the gateway, those of clients that ask again included.
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
    /// From arrival to the first attempt, in nanoseconds.
    pub overhead: LogHistogram,
    /// The wait for a slot of those that got one after a wait, in nanoseconds.
    pub queue_wait: LogHistogram,
    /// Counts of tokens.
    pub counts: u64,
    /// From the start of a count to its end, in nanoseconds, added up: over slots and time it is
    /// the counter's utilisation.
    pub counter_busy: u128,
    /// Requests whose session's pin was found and healthy.
    pub pin_hits: u64,
    /// Requests of sessions without a pin that could be used.
    pub pin_misses: u64,
    /// Requests whose key was known.
    pub key_hits: u64,
    /// Requests whose key had to be looked up.
    pub key_queries: u64,
}

/// The state of the gateway at one instant, with totals of what its parts have counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GatewayStatus {
    /// Workers that take requests.
    pub workers: u32,
    /// Requests with a slot (`in_flight` of `/health/backlog`).
    pub in_flight: u64,
    /// Requests admitted so far (`admitted`).
    pub admitted: u64,
    /// Requests that wait for a slot (`queued`).
    pub queued: u64,
    /// Requests turned away so far (`rejected`).
    pub rejected: u64,
    /// Pins that the workers hold.
    pub pins: u64,
    /// Entries of their routing caches.
    pub cache_entries: u64,
    /// Pins that had to go before their time.
    pub evicted_pins: u64,
    /// Connections to the database or to PgBouncer.
    pub connections: u32,
    /// Most there ever were.
    pub connections_max: u32,
    /// Connections that the server refused.
    pub connections_refused: u64,
    /// Spend rows that wait.
    pub spend_rows: u64,
    /// Their bytes.
    pub spend_bytes: Bytes,
    /// Most bytes that ever waited in one worker.
    pub spend_bytes_max: Bytes,
    /// Rows written.
    pub spend_written: Batch,
    /// Rows lost.
    pub spend_lost: Batch,
    /// Redis operations that local state stood in for.
    pub redis_stood_in: u64,
    /// Times that a breaker opened.
    pub breakers_opened: u64,
    /// Core time used.
    pub cpu_used: Span,
    /// Core time that there was.
    pub cpu_available: Span,
}

impl GatewayMetrics {
    /// Requests that have come and not ended: each ends in one of the ways that are counted, those
    /// apart whose client hung up.
    #[must_use]
    pub fn open(&self) -> u64 {
        let turned_away = self.rejected + self.no_worker + self.rate_limited + self.database_errors;
        self.offered - turned_away - self.answered - self.failed - self.killed
    }

    /// Requests sent to replicas for one that was answered; `None` without answers.
    #[must_use]
    pub fn amplification(&self) -> Option<f64> {
        (self.answered > 0).then(|| self.attempts as f64 / self.answered as f64)
    }
}
