//! The least of what is to be prefilled and of load, as the KV router of NVIDIA Dynamo reckons.
//!
//! A replica's cost is its tokens that wait to be prefilled, with the call's own uncached ones,
//! times a weight, plus the tokens of the prompts that it is busy with. The lowest cost wins.

use super::loads::Loads;
use super::{Ask, Caches, least};
use crate::rng::Stream;
use crate::units::{ReplicaId, Tokens};

/// The replica, and the tokens of the call that it has to prefill. `weight` is in thousandths.
pub(super) fn choose(
    members: &[ReplicaId],
    loads: &Loads,
    ask: &Ask<'_>,
    weight: u64,
    chance: &mut Stream,
    mut caches: impl Caches,
) -> (ReplicaId, Tokens) {
    // The key holds the uncached tokens too: of equal costs the one with less to prefill.
    let mut uncached_there = Tokens::ZERO;
    let mut lowest = (u128::MAX, u64::MAX);
    let chosen = least(members, chance, |replica| {
        let load = loads.of(replica);
        let key = |cached: Tokens| {
            let uncached = ask.prompt.saturating_sub(cached);
            let prefill = u128::from(load.uncached + uncached.0) * u128::from(weight);
            (prefill + u128::from(load.prompts) * 1_000, uncached.0)
        };
        if key(caches.at_most(replica)) > lowest {
            // Too busy, whatever it has.
            return (u128::MAX, u64::MAX);
        }
        let key = key(caches.cached(replica));
        if key < lowest {
            (lowest, uncached_there) = (key, Tokens(key.1));
        }
        key
    });
    (chosen, uncached_there)
}
