//! What is added up of each pool of a fleet.

use super::HitSum;
use crate::observe::records::{CallOutcome, CallRecord};
use crate::stats::Samples;

/// Sums over the calls of one pool.
#[derive(Clone, Debug, Default)]
pub(in crate::sizing) struct PoolSums {
    /// Hits of its calls that were answered.
    pub(in crate::sizing) hit: HitSum,
    /// Their times to first token.
    pub(in crate::sizing) ttft: Samples,
    /// Its calls that failed.
    pub(in crate::sizing) failed: u64,
    /// Its calls that another pool served.
    pub(in crate::sizing) spilled: u64,
    /// Calls of others that it served.
    pub(in crate::sizing) taken_in: u64,
}

/// A call has ended in the window.
pub(super) fn call(pools: &mut [PoolSums], call: &CallRecord) {
    let Some(own) = pools.get_mut(usize::from(call.pool)) else { return };
    own.failed += u64::from(call.outcome.is_failure());
    if call.outcome == CallOutcome::Completed {
        own.hit.add(call);
        own.ttft.add(call.ttft().0);
    }
    if call.served_by != call.pool {
        own.spilled += 1;
        if let Some(other) = pools.get_mut(usize::from(call.served_by)) {
            other.taken_in += 1;
        }
    }
}
