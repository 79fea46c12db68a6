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
    /// Requests that were with the gateway when the window began: they are not among those that
    /// were offered in it.
    pub open_before: u64,
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

impl GatewayCounts {
    /// What was counted since an earlier count.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        Self {
            offered: self.offered - before.offered,
            admitted: self.admitted - before.admitted,
            queued: self.queued - before.queued,
            rejected: self.rejected - before.rejected,
            no_worker: self.no_worker - before.no_worker,
            rate_limited: self.rate_limited - before.rate_limited,
            database_errors: self.database_errors - before.database_errors,
            answered: self.answered - before.answered,
            failed: self.failed - before.failed,
            killed: self.killed - before.killed,
            attempts: self.attempts - before.attempts,
            retries: self.retries - before.retries,
            fallbacks: self.fallbacks - before.fallbacks,
            timeouts: self.timeouts - before.timeouts,
            cooldowns: self.cooldowns - before.cooldowns,
            token_counts: self.token_counts - before.token_counts,
            pin_hits: self.pin_hits - before.pin_hits,
            pin_misses: self.pin_misses - before.pin_misses,
            evicted_pins: self.evicted_pins - before.evicted_pins,
            stayed: self.stayed - before.stayed,
            moved: self.moved - before.moved,
            key_hits: self.key_hits - before.key_hits,
            key_queries: self.key_queries - before.key_queries,
            connections_refused: self.connections_refused - before.connections_refused,
            rows_written: self.rows_written - before.rows_written,
            rows_lost: self.rows_lost - before.rows_lost,
            nano_cost_lost: self.nano_cost_lost - before.nano_cost_lost,
            redis_stood_in: self.redis_stood_in - before.redis_stood_in,
            breakers_opened: self.breakers_opened - before.breakers_opened,
            asked_again: self.asked_again - before.asked_again,
            given_up: self.given_up - before.given_up,
        }
    }

    /// Requests that ended, however they did.
    #[must_use]
    pub fn ended(&self) -> u64 {
        let turned_away = self.rejected + self.no_worker + self.rate_limited + self.database_errors;
        turned_away + self.answered + self.failed + self.killed
    }
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
