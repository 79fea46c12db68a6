//! A session stays where it is until its replica is saturated; then it moves for good.
//!
//! Saturated is a replica on which more uncached tokens wait than the threshold, or that has so
//! many calls in flight more than the least loaded one. New sessions go to the least loaded.

use super::Ask;
use super::least;
use super::loads::Loads;
use crate::config::router::Release;
use crate::rng::Stream;
use crate::units::ReplicaId;

pub(super) fn choose(
    members: &[ReplicaId],
    loads: &Loads,
    ask: &Ask<'_>,
    release: &Release,
    chance: &mut Stream,
) -> ReplicaId {
    let pin = ask.pin.filter(|pin| members.binary_search(pin).is_ok());
    let Some(pin) = pin else {
        return least(members, chance, |replica| loads.of(replica).calls);
    };
    let there = loads.of(pin);
    if release.uncached.is_some_and(|most| there.uncached > most.0) {
        return least(members, chance, |replica| {
            (loads.of(replica).uncached, loads.of(replica).calls)
        });
    }
    let fewest = members.iter().map(|&replica| loads.of(replica).calls).min().unwrap_or(0);
    if release.margin.is_some_and(|margin| there.calls >= fewest + margin) {
        return least(members, chance, |replica| loads.of(replica).calls);
    }
    pin
}
