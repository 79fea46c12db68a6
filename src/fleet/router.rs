//! Which replica gets a call.

use super::tournament::Tournament;
use crate::config::scenario::RouterKind;
use crate::rng::{Purpose, Stream};
use crate::units::ReplicaId;

/// Chooses replicas. Ties and chances depend on the seed only.
#[derive(Debug)]
pub struct Router {
    kind: RouterKind,
    chance: Stream,
    next: u32,
    /// Calls sent and not ended, by replica.
    in_flight: Tournament,
    replicas: u32,
}

impl Router {
    /// A router over `replicas` idle replicas.
    #[must_use]
    pub fn new(kind: RouterKind, replicas: u32, seed: u64) -> Self {
        let chance = Stream::new(seed, Purpose::Router, 0);
        Self { kind, chance, next: 0, in_flight: Tournament::new(replicas, 0), replicas }
    }

    /// The replica for a call of a session that was sent to `pin` before.
    pub fn choose(&mut self, pin: Option<ReplicaId>) -> ReplicaId {
        let replicas = u64::from(self.replicas);
        let chosen = match self.kind {
            RouterKind::SessionAffinity => {
                pin.unwrap_or_else(|| ReplicaId(self.chance.uniform_below(replicas) as u32))
            }
            RouterKind::Random => ReplicaId(self.chance.uniform_below(replicas) as u32),
            RouterKind::RoundRobin => {
                let chosen = self.next;
                self.next = (self.next + 1) % self.replicas;
                ReplicaId(chosen)
            }
            RouterKind::LeastLoaded => ReplicaId(self.in_flight.first().0),
        };
        self.count(chosen, 1);
        chosen
    }

    /// A call sent to this replica has ended.
    pub fn ended(&mut self, replica: ReplicaId) {
        self.count(replica, -1);
    }

    /// Only one of them asks.
    fn count(&mut self, replica: ReplicaId, by: i64) {
        if self.kind == RouterKind::LeastLoaded {
            let sent = self.in_flight.key(replica.0);
            self.in_flight.set(replica.0, sent.saturating_add_signed(by));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_robin_takes_turns_from_the_first() {
        let mut router = Router::new(RouterKind::RoundRobin, 3, 1);
        let order: Vec<u32> = (0..5).map(|_| router.choose(None).0).collect();
        assert_eq!(order, [0, 1, 2, 0, 1]);
    }

    #[test]
    fn least_loaded_counts_calls_in_flight_and_prefers_the_first() {
        let mut router = Router::new(RouterKind::LeastLoaded, 2, 1);
        assert_eq!((router.choose(None).0, router.choose(None).0), (0, 1));
        router.ended(ReplicaId(1));
        assert_eq!(router.choose(None).0, 1);
    }

    #[test]
    fn affinity_stays_where_it_was_and_random_does_not() {
        let pin = Some(ReplicaId(5));
        let mut affinity = Router::new(RouterKind::SessionAffinity, 8, 1);
        assert!((0..100).all(|_| affinity.choose(pin) == ReplicaId(5)));
        let mut random = Router::new(RouterKind::Random, 8, 1);
        assert!((0..100).any(|_| random.choose(pin) != ReplicaId(5)));
    }
}
