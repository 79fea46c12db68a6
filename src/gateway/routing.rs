//! The choice of a deployment among the healthy ones of a group: one file a strategy.
//!
//! None of them looks at the prompt's content, at the engine's queue or at its KV cache. What they
//! go by is [`Memory`], which each worker has for itself, or all share through Redis.

mod cost;
mod latency;
mod least_busy;
mod shuffle;
mod usage;

use std::collections::VecDeque;

use super::cache::{EntryCache, Key};
use crate::config::gateway::{Deployment, Strategy};
use crate::rng::Stream;
use crate::units::{DeploymentId, Span, Time, Tokens};

/// How long counters of a minute live.
const MINUTE: Span = Span::from_secs(60);

/// What strategies, cooldowns and pins are remembered by.
#[derive(Clone, Debug)]
pub struct Memory {
    /// Pins, counters and cooldowns.
    pub cache: EntryCache,
    /// Calls in flight by deployment; valid while the cache has [`Key::InFlight`] of the group.
    in_flight: Vec<i64>,
    /// Samples by deployment; valid while the cache has [`Key::Latencies`] of the group.
    latencies: Vec<VecDeque<f64>>,
    /// The group of each deployment that has counts or samples.
    groups: Vec<Option<u32>>,
}

impl Memory {
    /// Nothing remembered yet, with room for so many entries (`None`: any number).
    #[must_use]
    pub fn new(entries: Option<u32>) -> Self {
        Self {
            cache: EntryCache::new(entries),
            in_flight: Vec::new(),
            latencies: Vec::new(),
            groups: Vec::new(),
        }
    }

    fn note_group(&mut self, deployment: DeploymentId, group: u32) {
        if self.groups.len() <= deployment.index() {
            self.groups.resize(deployment.index() + 1, None);
        }
        self.groups[deployment.index()] = Some(group);
    }

    fn forget_in_flight(&mut self, group: u32) {
        for (count, _) in
            self.in_flight.iter_mut().zip(&self.groups).filter(|(_, of)| **of == Some(group))
        {
            *count = 0;
        }
    }

    fn forget_latencies(&mut self, group: u32) {
        for (list, _) in
            self.latencies.iter_mut().zip(&self.groups).filter(|(_, of)| **of == Some(group))
        {
            list.clear();
        }
    }

    /// Whether a deployment is left alone.
    #[must_use]
    pub fn is_cooling(&self, now: Time, deployment: DeploymentId) -> bool {
        self.cache.get(now, Key::Cooldown(deployment)).is_some()
    }

    /// Counts the end of an attempt: an answer with its tokens, or a failure.
    pub fn count_end(&mut self, now: Time, deployment: DeploymentId, tokens: Option<Tokens>) {
        let Some(tokens) = tokens else {
            self.cache.add(now, Key::Fails(deployment), 1, MINUTE);
            return;
        };
        self.cache.add(now, Key::Tokens(deployment, minute(now)), as_count(tokens.0), MINUTE);
        self.cache.add(now, Key::Successes(deployment), 1, MINUTE);
    }
}

/// Which minute of the clock it is.
fn minute(now: Time) -> u64 {
    now.0 / MINUTE.0
}

fn as_count(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// What a strategy may look at.
#[derive(Debug)]
pub struct Choice<'a> {
    /// When.
    pub now: Time,
    /// All deployments.
    pub deployments: &'a [Deployment],
    /// The group that was asked for.
    pub group: u32,
    /// Those of the group that are left, in the order of the list.
    pub healthy: &'a [DeploymentId],
    /// The prompt's length, for strategies that count it.
    pub prompt: Tokens,
}

impl Choice<'_> {
    fn of(&self, id: DeploymentId) -> &Deployment {
        &self.deployments[id.index()]
    }
}

/// What became of an attempt, for the strategies that learn from it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Sample {
    /// Seconds for an output token, or to the first token of a stream.
    Seconds(f64),
    /// It ran into its timeout.
    Timeout,
    /// It failed otherwise, or nobody waited for it any more.
    None,
}

/// Chooses. `None` if every deployment is over its limits.
pub fn choose(
    strategy: Strategy,
    memory: &mut Memory,
    choice: &Choice<'_>,
    chance: &mut Stream,
) -> Option<DeploymentId> {
    match strategy {
        Strategy::SimpleShuffle => shuffle::choose(choice, chance),
        Strategy::LeastBusy => least_busy::choose(memory, choice),
        Strategy::Latency => latency::choose(memory, choice, chance),
        Strategy::Usage => usage::choose_first(memory, choice),
        Strategy::UsageV2 => usage::choose_any(memory, choice, chance),
        Strategy::Cost => cost::choose(choice),
    }
}

/// An attempt is sent.
pub fn started(
    strategy: Strategy,
    memory: &mut Memory,
    now: Time,
    group: u32,
    deployment: DeploymentId,
) {
    match strategy {
        Strategy::LeastBusy => least_busy::change(memory, now, group, deployment, 1),
        Strategy::Usage | Strategy::UsageV2 => usage::started(memory, now, deployment),
        Strategy::SimpleShuffle | Strategy::Latency | Strategy::Cost => {}
    }
}

/// An attempt has ended, with so many tokens in all.
pub fn ended(
    strategy: Strategy,
    memory: &mut Memory,
    now: Time,
    group: u32,
    deployment: DeploymentId,
    sample: Sample,
    tokens: Tokens,
) {
    match strategy {
        Strategy::LeastBusy => least_busy::change(memory, now, group, deployment, -1),
        Strategy::Latency => latency::learn(memory, now, group, deployment, sample),
        Strategy::Usage | Strategy::UsageV2 => usage::ended(memory, now, deployment, tokens),
        Strategy::SimpleShuffle | Strategy::Cost => {}
    }
}

/// One of several, each equally likely.
fn any_of(ids: &[DeploymentId], chance: &mut Stream) -> Option<DeploymentId> {
    match ids.len() {
        0 => None,
        1 => Some(ids[0]),
        many => Some(ids[chance.uniform_below(many as u64) as usize]),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::rng::Purpose;
    use crate::units::ReplicaId;

    /// So many deployments of one group.
    pub fn deployments(count: u32) -> Vec<Deployment> {
        (0..count).map(|replica| Deployment::new(0, ReplicaId(replica))).collect()
    }

    /// The choices of many calls at one instant, counted by deployment.
    pub fn spread(
        strategy: Strategy,
        memory: &mut Memory,
        deployments: &[Deployment],
        calls: u32,
    ) -> Vec<u32> {
        let mut chance = Stream::new(1, Purpose::RoutingStrategy, 0);
        let healthy: Vec<DeploymentId> =
            (0..deployments.len()).map(DeploymentId::from_index).collect();
        let mut counts = vec![0; deployments.len()];
        for _ in 0..calls {
            let now = Time(1);
            let choice =
                Choice { now, deployments, group: 0, healthy: &healthy, prompt: Tokens(100) };
            let Some(id) = choose(strategy, memory, &choice, &mut chance) else { continue };
            started(strategy, memory, now, 0, id);
            counts[id.index()] += 1;
        }
        counts
    }

    #[test]
    fn failures_and_answers_are_counted_apart() {
        let (mut memory, id) = (Memory::new(Some(200)), DeploymentId(0));
        memory.count_end(Time(0), id, None);
        memory.count_end(Time(1), id, Some(Tokens(5)));
        memory.count_end(Time(2), id, Some(Tokens(6)));
        let get = |key| memory.cache.get(Time(3), key);
        assert_eq!(get(Key::Fails(id)), Some(1));
        assert_eq!(get(Key::Successes(id)), Some(2));
        assert_eq!(get(Key::Tokens(id, 0)), Some(11));
    }
}
