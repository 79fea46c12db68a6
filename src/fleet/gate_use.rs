//! What the gateway did inside the window, from what was counted before it and at its end.

use super::gate::Gate;
use crate::config::gateway::CountPlace;
use crate::gateway::metrics::{GatewayCounts, GatewayMetrics, share};
use crate::observe::members::MemberUse;
use crate::observe::replica::Window;
use crate::stats::LogHistogram;
use crate::units::{Bytes, Span, Time};

/// What the gateway did inside the window.
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
    /// Served models that no model group is called as, by number: their calls asked for the first.
    pub without_group: Vec<u32>,
}

impl GatewayUse {
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

/// What was counted up to some instant.
#[derive(Clone, Debug, Default)]
pub(super) struct Counted {
    metrics: GatewayMetrics,
    cpu_used: Span,
}

impl Counted {
    pub(super) fn of(gate: &Gate<'_>, now: Time) -> Self {
        let mut metrics = gate.gateway.metrics().clone();
        metrics.counts = gate.gateway.counts().plus(&gate.seen);
        Self { metrics, cpu_used: gate.gateway.status(now).cpu_used }
    }
}

impl Gate<'_> {
    /// The run is over.
    pub(super) fn finish(mut self, window: Window) -> GatewayUse {
        let before = self.before.take().unwrap_or_else(|| Counted::of(&self, window.from));
        let after = Counted::of(&self, window.until);
        let (config, status) = (self.gateway.config(), self.gateway.status(window.until));
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
            counts: after.metrics.counts.since(&before.metrics.counts),
            overhead: after.metrics.overhead.since(&before.metrics.overhead),
            queue_wait: after.metrics.queue_wait.since(&before.metrics.queue_wait),
            cpu_used: after.cpu_used - before.cpu_used,
            cpu_available: share_of(u64::from(config.pod_millicores), 1_000),
            counter_busy: Span(u64::try_from(busy).unwrap_or(u64::MAX)),
            counter_available: slots.map(|slots| share_of(workers.saturating_mul(slots), 1)),
            connections_max: status.connections_max,
            spend_bytes_max: status.spend_bytes_max,
            spend_rows_waiting: status.spend_rows,
            open_before: before.metrics.counts.open(),
            open: after.metrics.counts.open(),
            pods: self.pods.finish(window),
            without_group: self.without_group.into_iter().collect(),
        }
    }
}
