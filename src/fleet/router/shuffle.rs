//! At random by weights, as LiteLLM's `simple-shuffle`.

use super::any;
use crate::rng::Stream;
use crate::units::ReplicaId;

/// Weights are those of the replicas from the first on, and then again; none if all are alike.
/// Where no replica that takes calls has a weight, all are alike.
pub(super) fn choose(members: &[ReplicaId], weights: &[u64], chance: &mut Stream) -> ReplicaId {
    let weight = |replica: ReplicaId| weights[replica.index() % weights.len()];
    let all: u64 = match weights {
        [] => 0,
        _ => members.iter().map(|&replica| weight(replica)).sum(),
    };
    if all == 0 {
        return any(members, chance);
    }
    let mut drawn = chance.uniform_below(all);
    for &replica in members {
        match drawn.checked_sub(weight(replica)) {
            Some(left) => drawn = left,
            None => return replica,
        }
    }
    members[0]
}
