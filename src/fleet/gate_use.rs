//! What the gateway did inside the window, from what was counted before it and at its end.

use super::gate::Gate;
use crate::config::gateway::CountPlace;
use crate::gateway::metrics::{GatewayMetrics, GatewayStatus};
use crate::observe::gateway::{GatewayCounts, GatewayUse};
use crate::observe::replica::Window;
use crate::units::{Span, Time};

/// What the gateway does not see itself.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Seen {
    stayed: u64,
    moved: u64,
    pub(super) asked_again: u64,
    pub(super) given_up: u64,
}

impl Seen {
    /// A request's first attempt went to the replica of its session's call before, or not.
    pub(super) fn went(&mut self, stays: bool) {
        match stays {
            true => self.stayed += 1,
            false => self.moved += 1,
        }
    }
}

/// What was counted up to some instant.
#[derive(Clone, Debug, Default)]
pub(super) struct Counted {
    metrics: GatewayMetrics,
    status: GatewayStatus,
    seen: Seen,
}

impl Counted {
    pub(super) fn of(gate: &Gate<'_>, now: Time) -> Self {
        let gateway = &gate.gateway;
        Self { metrics: gateway.metrics().clone(), status: gateway.status(now), seen: gate.seen }
    }

    fn counts(&self) -> GatewayCounts {
        let Self { metrics, status, seen } = self;
        GatewayCounts {
            offered: metrics.offered,
            admitted: metrics.admitted,
            queued: metrics.queued,
            rejected: metrics.rejected,
            no_worker: metrics.no_worker,
            rate_limited: metrics.rate_limited,
            database_errors: metrics.database_errors,
            answered: metrics.answered,
            failed: metrics.failed,
            killed: metrics.killed,
            attempts: metrics.attempts,
            retries: metrics.retries,
            fallbacks: metrics.fallbacks,
            timeouts: metrics.timeouts,
            cooldowns: metrics.cooldowns,
            token_counts: metrics.counts,
            pin_hits: metrics.pin_hits,
            pin_misses: metrics.pin_misses,
            evicted_pins: status.evicted_pins,
            stayed: seen.stayed,
            moved: seen.moved,
            key_hits: metrics.key_hits,
            key_queries: metrics.key_queries,
            connections_refused: status.connections_refused,
            rows_written: status.spend_written.rows,
            rows_lost: status.spend_lost.rows,
            nano_cost_lost: status.spend_lost.nano_cost,
            redis_stood_in: status.redis_stood_in,
            breakers_opened: status.breakers_opened,
            asked_again: seen.asked_again,
            given_up: seen.given_up,
        }
    }
}

impl Gate<'_> {
    /// The run is over.
    pub(super) fn finish(mut self, window: Window) -> GatewayUse {
        let before = self.before.take().unwrap_or_else(|| Counted::of(&self, window.from));
        let after = Counted::of(&self, window.until);
        let config = self.gateway.config();
        let running = self.running.finish(window).held.0;
        let share_of = |parts: u64, whole: u64| {
            let span = u128::from(running) * u128::from(parts) / u128::from(whole);
            Span(u64::try_from(span).unwrap_or(u64::MAX))
        };
        let slots = match config.counting.place {
            CountPlace::Threads { slots, .. } => Some(u64::from(slots)),
            CountPlace::EventLoop => Some(1),
            CountPlace::Off => config.routing.strategy.counts_inline().then_some(1),
        };
        let workers = u64::from(config.workers);
        let busy = after.metrics.counter_busy - before.metrics.counter_busy;
        GatewayUse {
            counts: after.counts().since(&before.counts()),
            overhead: after.metrics.overhead.since(&before.metrics.overhead),
            queue_wait: after.metrics.queue_wait.since(&before.metrics.queue_wait),
            cpu_used: after.status.cpu_used - before.status.cpu_used,
            cpu_available: share_of(u64::from(config.pod_millicores), 1_000),
            counter_busy: Span(u64::try_from(busy).unwrap_or(u64::MAX)),
            counter_available: slots.map(|slots| share_of(workers.saturating_mul(slots), 1)),
            connections_max: after.status.connections_max,
            spend_bytes_max: after.status.spend_bytes_max,
            spend_rows_waiting: after.status.spend_rows,
            open_before: before.metrics.open(),
            open: after.metrics.open(),
            pods: self.pods.finish(window),
        }
    }
}
