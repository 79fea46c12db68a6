//! Which replica gets a call.
//!
//! A router sees what its kind sees: nothing but chance, what it sent and what came back, or the
//! caches themselves. Ties and chances depend on the seed only.

use self::affinity::PinTables;
use self::latency::Latencies;
use self::loads::{Loads, Sent};
use self::memory::Believed;
use super::tournament::{OUT, Tournament};
use crate::config::router::{Latency, Release, RouterKind, Routing};
use crate::rng::{Purpose, Stream};
use crate::trace::lineage::Path;
use crate::units::{ReplicaId, Span, Time, Tokens};

mod affinity;
mod latency;
pub mod loads;
mod memory;
mod prefix;
mod shuffle;
mod sticky;

/// Streams of random numbers of one router: its own, and that of the workers before its pins.
const STREAMS: u64 = 2;

/// A call that asks where to go.
#[derive(Clone, Copy, Debug)]
pub struct Ask<'a> {
    /// When.
    pub now: Time,
    /// The session that was played, by its number.
    pub session: u32,
    /// Where the session's last call went.
    pub pin: Option<ReplicaId>,
    /// Its content.
    pub path: &'a Path,
    /// Tokens of its prompt.
    pub prompt: Tokens,
}

/// What replicas have cached of the prompt of a call.
pub trait Caches {
    /// No more than this: told at no cost.
    fn at_most(&self, replica: ReplicaId) -> Tokens;

    /// So much.
    fn cached(&mut self, replica: ReplicaId) -> Tokens;
}

impl<F: FnMut(ReplicaId) -> Tokens> Caches for F {
    fn at_most(&self, _: ReplicaId) -> Tokens {
        Tokens(u64::MAX)
    }

    fn cached(&mut self, replica: ReplicaId) -> Tokens {
        self(replica)
    }
}

/// What a router has learned from a call that completed.
#[derive(Clone, Copy, Debug)]
pub struct Answer {
    /// From when it was sent to its first token.
    pub ttft: Span,
    /// From when it was sent to its last.
    pub all: Span,
    /// Tokens that came out.
    pub output: Tokens,
}

/// Chooses replicas.
#[derive(Debug)]
pub struct Router {
    policy: Policy,
    chance: Stream,
    loads: Loads,
    /// The replicas that take calls, in order.
    members: Vec<ReplicaId>,
}

/// What each kind keeps.
#[derive(Debug)]
enum Policy {
    Affinity(Option<PinTables>),
    Random,
    RoundRobin(u32),
    /// Calls sent and not ended, by replica.
    LeastLoaded(Tournament),
    Prefix {
        weight: u64,
        /// By replica; none if the caches themselves are known.
        believed: Option<Vec<Believed>>,
    },
    Sticky(Release),
    Shuffle(Vec<u64>),
    Latency(Latency, Latencies),
}

impl Router {
    /// A router over `replicas` idle replicas.
    #[must_use]
    pub fn new(kind: RouterKind, routing: &Routing, replicas: u32, seed: u64) -> Self {
        Self::of_pool(kind, routing, replicas, seed, 0)
    }

    /// The same for the pool of this number, whose chances are its own.
    #[must_use]
    pub fn of_pool(
        kind: RouterKind,
        routing: &Routing,
        replicas: u32,
        seed: u64,
        pool: u64,
    ) -> Self {
        let weight = routing.prefill_weight;
        let policy = match kind {
            RouterKind::SessionAffinity => {
                let tables = |pins| PinTables::new(pins, seed, pool);
                Policy::Affinity(routing.pins.as_ref().map(tables))
            }
            RouterKind::Random => Policy::Random,
            RouterKind::RoundRobin => Policy::RoundRobin(0),
            RouterKind::LeastLoaded => Policy::LeastLoaded(Tournament::new(replicas, 0)),
            RouterKind::PrefixAware => Policy::Prefix { weight, believed: None },
            RouterKind::PrefixAwareApproximate => {
                let believed = (0..replicas).map(|_| Believed::new(&routing.memory)).collect();
                Policy::Prefix { weight, believed: Some(believed) }
            }
            RouterKind::Sticky => Policy::Sticky(routing.release),
            RouterKind::SimpleShuffle => Policy::Shuffle(routing.weights.clone()),
            RouterKind::LatencyBased => Policy::Latency(routing.latency, Latencies::new(replicas)),
        };
        Self {
            policy,
            chance: Stream::new(seed, Purpose::Router, STREAMS * pool),
            loads: Loads::new(replicas),
            members: (0..replicas).map(ReplicaId).collect(),
        }
    }

    /// The replica for a call, and what the call adds to its load. `caches` tells how much of the
    /// prompt replicas have cached; only kinds that can know it ask. `None` if no replica
    /// takes calls.
    pub fn choose(&mut self, ask: &Ask<'_>, mut caches: impl Caches) -> Option<(ReplicaId, Sent)> {
        if self.members.is_empty() {
            return None;
        }
        let mut uncached = Tokens::ZERO;
        let members = &*self.members;
        let chance = &mut self.chance;
        let chosen = match &mut self.policy {
            Policy::Affinity(None) => {
                let pin = ask.pin.filter(|pin| members.binary_search(pin).is_ok());
                pin.unwrap_or_else(|| any(members, chance))
            }
            Policy::Affinity(Some(tables)) => {
                let table = tables.reached();
                let pin = table.find(ask.now, ask.session);
                let pin = pin.filter(|pin| members.binary_search(pin).is_ok());
                let chosen = pin.unwrap_or_else(|| any(members, chance));
                table.pin(ask.now, ask.session, chosen);
                chosen
            }
            Policy::Random => any(members, chance),
            Policy::RoundRobin(next) => {
                let chosen = *next as usize % members.len();
                *next = (chosen as u32 + 1) % members.len() as u32;
                members[chosen]
            }
            Policy::LeastLoaded(calls) => ReplicaId(calls.first().0),
            Policy::Prefix { weight, believed: None } => {
                let chosen;
                (chosen, uncached) =
                    prefix::choose(members, &self.loads, ask, *weight, chance, caches);
                chosen
            }
            Policy::Prefix { weight, believed: Some(believed) } => {
                let known = |replica: ReplicaId| {
                    believed[replica.index()].known(ask.now, ask.path, ask.prompt)
                };
                let chosen;
                (chosen, uncached) =
                    prefix::choose(members, &self.loads, ask, *weight, chance, known);
                believed[chosen.index()].sent(ask.now, ask.path, ask.prompt);
                chosen
            }
            Policy::Sticky(release) => {
                let chosen = sticky::choose(members, &self.loads, ask, release, chance);
                if release.uncached.is_some() {
                    uncached = ask.prompt.saturating_sub(caches.cached(chosen));
                }
                chosen
            }
            Policy::Shuffle(weights) => shuffle::choose(members, weights, chance),
            Policy::Latency(_, late) => {
                let mean = |replica| late.mean(ask.now, replica);
                least(members, chance, mean)
            }
        };
        let sent = Sent { at: ask.now, uncached, prompt: ask.prompt };
        self.loads.sent(chosen, &sent);
        self.count(chosen);
        Some((chosen, sent))
    }

    /// One more replica, which does not take calls yet.
    pub fn grow(&mut self, routing: &Routing) {
        self.loads.grow();
        match &mut self.policy {
            Policy::LeastLoaded(calls) => calls.grow(self.loads.count()),
            Policy::Prefix { believed: Some(believed), .. } => {
                believed.push(Believed::new(&routing.memory));
            }
            Policy::Latency(_, late) => late.grow(),
            _ => {}
        }
    }

    /// Somebody else has chosen this replica for a call; what the call adds to its load.
    pub fn chosen(&mut self, now: Time, replica: ReplicaId, prompt: Tokens) -> Sent {
        let sent = Sent { at: now, uncached: Tokens::ZERO, prompt };
        self.loads.sent(replica, &sent);
        sent
    }

    /// A replica takes no more calls, and what was known of it is of no use any more.
    pub fn leaves(&mut self, replica: ReplicaId) {
        self.members.retain(|&member| member != replica);
        match &mut self.policy {
            Policy::LeastLoaded(calls) => calls.set(replica.0, OUT),
            Policy::Prefix { believed: Some(believed), .. } => {
                believed[replica.index()].forget_all();
            }
            Policy::Latency(_, late) => late.forget(replica),
            _ => {}
        }
    }

    /// A replica takes calls again.
    pub fn joins(&mut self, replica: ReplicaId) {
        if let Err(place) = self.members.binary_search(&replica) {
            self.members.insert(place, replica);
        }
        if let Policy::LeastLoaded(calls) = &mut self.policy {
            calls.set(replica.0, self.loads.of(replica).calls);
        }
    }

    /// The fewest calls in flight on a replica that takes calls; none if none does.
    #[must_use]
    pub fn fewest_calls(&self) -> Option<u64> {
        self.members.iter().map(|&replica| self.calls(replica)).min()
    }

    /// Whether it asks every replica's cache.
    #[must_use]
    pub const fn asks_caches(&self) -> bool {
        matches!(self.policy, Policy::Prefix { believed: None, .. })
    }

    /// Calls that were sent there and have not ended.
    #[must_use]
    pub fn calls(&self, replica: ReplicaId) -> u64 {
        self.loads.of(replica).calls
    }

    /// The first token of a call has come out: it is prefilled.
    pub fn prefilled(&mut self, replica: ReplicaId, sent: &mut Sent) {
        self.loads.prefilled(replica, sent);
    }

    /// A call sent to this replica is over; `answer` if it completed.
    pub fn ended(&mut self, now: Time, replica: ReplicaId, sent: &Sent, answer: Option<&Answer>) {
        self.loads.ended(replica, sent);
        self.count(replica);
        if let (Policy::Latency(latency, late), Some(answer)) = (&mut self.policy, answer) {
            let nanos = match latency {
                Latency::Ttft => answer.ttft.0,
                Latency::PerToken => answer.all.0 / answer.output.0.max(1),
            };
            late.took(now, replica, nanos);
        }
    }

    /// Only one of them asks.
    fn count(&mut self, replica: ReplicaId) {
        if let Policy::LeastLoaded(calls) = &mut self.policy
            && calls.key(replica.0) != OUT
        {
            calls.set(replica.0, self.loads.of(replica).calls);
        }
    }
}

/// Any of them.
fn any(members: &[ReplicaId], chance: &mut Stream) -> ReplicaId {
    members[chance.uniform_below(members.len() as u64) as usize]
}

/// The one with the least key; any of those that have it.
fn least<K: Ord>(
    members: &[ReplicaId],
    chance: &mut Stream,
    mut key: impl FnMut(ReplicaId) -> K,
) -> ReplicaId {
    let (mut chosen, mut ties) = (members[0], 1);
    let mut lowest = key(chosen);
    for &replica in &members[1..] {
        let other = key(replica);
        if other < lowest {
            (chosen, lowest, ties) = (replica, other, 1);
        } else if other == lowest {
            ties += 1;
            if chance.uniform_below(ties) == 0 {
                chosen = replica;
            }
        }
    }
    chosen
}

#[cfg(test)]
mod tests;
