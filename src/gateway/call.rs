//! A request on its way through the gateway.

use super::cooldown::Failure;
use super::effect::CallSpec;
use super::timers::TimerId;
use crate::units::{CallId, DeploymentId, Span, Time, Tokens, WorkerId};

/// A call that may be over by the time it is looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CallRef {
    pub(super) id: CallId,
    pub(super) serial: u64,
}

/// What comes next for a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Its key is looked up.
    Auth,
    /// It is counted.
    Count,
    /// The limits of its key and team are held against it.
    Limit,
    /// The router gets it, again or for the first time.
    Route,
    /// The router has counted it, if it does.
    Pin,
    /// A deployment is chosen; `true` with what Redis knows.
    Choose(bool),
}

/// Where a call is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// It waits for a slot.
    Queued,
    /// The gateway works on it, or waits for a store.
    Working,
    /// It waits before another attempt.
    Pausing,
    /// A replica works on it.
    Sent(DeploymentId),
}

#[derive(Clone, Debug)]
pub(super) struct Call {
    pub(super) serial: u64,
    pub(super) spec: CallSpec,
    pub(super) worker: WorkerId,
    pub(super) phase: Phase,
    pub(super) arrived: Time,
    /// The one timer that concerns it.
    pub(super) timer: Option<TimerId>,
    /// The client is gone.
    pub(super) is_gone: bool,
    /// Tokens that its limits were charged with, and whether in Redis.
    pub(super) charged: Option<(Tokens, bool)>,
    /// The group that is tried.
    pub(super) group: u32,
    /// Attempts in this group that failed.
    pub(super) failed_tries: u32,
    /// Groups tried after the first.
    pub(super) fallbacks: u32,
    /// The kind of failure that chose the list of fallbacks, and the place in it.
    pub(super) fallback_at: Option<(Failure, usize)>,
    pub(super) attempts: u32,
    pub(super) sent: Time,
    pub(super) first_token: Option<Time>,
}

impl Call {
    pub(super) fn new(serial: u64, spec: CallSpec, worker: WorkerId, now: Time) -> Self {
        Self {
            serial,
            spec,
            worker,
            phase: Phase::Queued,
            arrived: now,
            timer: None,
            is_gone: false,
            charged: None,
            group: spec.group,
            failed_tries: 0,
            fallbacks: 0,
            fallback_at: None,
            attempts: 0,
            sent: now,
            first_token: None,
        }
    }

    /// How long it was with the gateway before its first attempt.
    pub(super) fn overhead(&self, now: Time) -> Span {
        now.saturating_since(self.arrived)
    }
}
