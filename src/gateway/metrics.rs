//! What the gateway has counted.

use serde::Serialize;

use crate::stats::LogHistogram;
use crate::units::{Bytes, Span};

/// Declares the counts once: their fields, what was counted between two instants, and sums.
macro_rules! counts {
    ($($(#[$about:meta])* $name:ident,)*) => {
        /// What is counted of the gateway and of its clients. The names are those of the JSON.
        ///
        /// Requests are those that the gateway sees: a client that asks again is another request,
        /// and each try of the gateway is another attempt.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
        pub struct GatewayCounts {
            $($(#[$about])* pub $name: u64,)*
        }

        impl GatewayCounts {
            /// What was counted since an earlier count.
            #[must_use]
            pub fn since(&self, before: &Self) -> Self {
                Self { $($name: self.$name - before.$name,)* }
            }

            /// Both together.
            #[must_use]
            pub fn plus(&self, other: &Self) -> Self {
                Self { $($name: self.$name.saturating_add(other.$name),)* }
            }
        }
    };
}

counts! {
    /// Requests that reached the gateway.
    offered,
    /// Of these, given a slot at once or after a wait.
    admitted,
    /// Of these, after a wait.
    queued,
    /// Turned away by admission (503).
    rejected,
    /// Turned away because no pod took requests.
    no_worker,
    /// Turned away by the limits of a key or team (429).
    rate_limited,
    /// Turned away because the key could not be looked up.
    database_errors,
    /// Answered.
    answered,
    /// Failed after all attempts.
    failed,
    /// Ended because their pod was killed.
    killed,
    /// Ended because their client had hung up.
    forgotten,
    /// Requests sent to replicas.
    attempts,
    /// Of these, tries after a failure in the same group.
    retried,
    /// Other groups tried.
    fallbacks,
    /// Attempts that ran into the request's timeout.
    timeouts,
    /// Times that a deployment was left alone.
    cooldowns,
    /// Requests whose client hung up because no answer began in time.
    hung_up,
    /// Requests that clients sent after a refusal, or after they hung up.
    asked_again,
    /// Calls that clients gave up.
    given_up,
    /// Counts of tokens.
    token_counts,
    /// First attempts that went to the replica of the session's call before.
    #[serde(skip)]
    stayed,
    /// First attempts that went to another one.
    #[serde(skip)]
    moved,
    /// Requests whose session's pin was found and healthy.
    pin_hits,
    /// Requests of sessions without such a pin.
    pin_misses,
    /// Pins that had to go before their time.
    evicted_pins,
    /// Requests whose key was known.
    key_hits,
    /// Requests whose key had to be looked up.
    key_queries,
    /// Connections that the database refused.
    connections_refused,
    /// Spend rows written.
    spend_rows_written,
    /// Spend rows lost.
    spend_rows_lost,
    /// What the written rows bill, in billionths of the currency.
    #[serde(skip)]
    spend_nanos_written,
    /// What the lost rows would have billed, likewise.
    #[serde(skip)]
    spend_nanos_lost,
    /// Redis operations that local state stood in for.
    redis_stood_in,
    /// Times that a breaker opened.
    breakers_opened,
}

/// What all workers together have measured over the whole run.
#[derive(Clone, Debug, Default)]
pub struct GatewayMetrics {
    /// What was counted; of what the gateway's parts count themselves, and of its clients, nothing:
    /// see [`super::Gateway::counts`].
    pub counts: GatewayCounts,
    /// From arrival to the first attempt, in nanoseconds.
    pub overhead: LogHistogram,
    /// The wait for a slot of those that got one after a wait, in nanoseconds.
    pub queue_wait: LogHistogram,
    /// From the start of a count to its end, in nanoseconds, added up: over slots and time it is
    /// the counter's utilisation.
    pub counter_busy: u128,
}

/// The state of the gateway at one instant. With [`GatewayCounts`] it is what `/health/backlog`
/// shows: `in_flight` and `queued` now, `admitted` and `rejected` so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GatewayStatus {
    /// Workers that take requests.
    pub workers: u32,
    /// Requests with a slot.
    pub in_flight: u64,
    /// Requests that wait for a slot.
    pub queued: u64,
    /// Pins that the workers hold.
    pub pins: u64,
    /// Entries of their routing caches.
    pub cache_entries: u64,
    /// Connections to the database or to PgBouncer.
    pub connections: u32,
    /// Most there ever were.
    pub connections_max: u32,
    /// Spend rows that wait.
    pub spend_rows: u64,
    /// Their bytes.
    pub spend_bytes: Bytes,
    /// Most bytes that ever waited in one worker.
    pub spend_bytes_max: Bytes,
    /// Core time used.
    pub cpu_used: Span,
    /// Core time that there was.
    pub cpu_available: Span,
}

impl GatewayCounts {
    /// Requests that ended, however they did.
    #[must_use]
    pub fn ended(&self) -> u64 {
        let turned_away = self.rejected + self.no_worker + self.rate_limited + self.database_errors;
        turned_away + self.answered + self.failed + self.killed + self.forgotten
    }

    /// Requests that have come and not ended, of counts from the start on.
    #[must_use]
    pub fn open(&self) -> u64 {
        self.offered - self.ended()
    }

    /// Requests sent to replicas for one that was answered; `None` without answers.
    #[must_use]
    pub fn amplification(&self) -> Option<f64> {
        share(self.attempts, self.answered)
    }

    /// Share of calls that went where their session's call before had gone; `None` without any.
    #[must_use]
    pub fn stay_share(&self) -> Option<f64> {
        share(self.stayed, self.stayed + self.moved)
    }
}

/// A part of a whole; `None` of nothing.
#[must_use]
pub fn share(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}
