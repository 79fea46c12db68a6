//! One worker process and the pod that it runs in.

use std::collections::{BTreeMap, VecDeque};

use super::admission::Slots;
use super::breaker::Breaker;
use super::call::{CallRef, Step};
use super::cores::Cores;
use super::limits::LimitCounters;
use super::routing::Memory;
use super::spend::SpendQueue;
use super::timers::TimerId;
use crate::config::gateway::GatewayConfig;
use crate::rng::{Purpose, Stream};
use crate::units::{Span, Time, WorkerId};

/// Work on an event loop.
#[derive(Clone, Copy, Debug)]
pub(super) struct LoopTask {
    pub(super) call: CallRef,
    pub(super) work: Span,
    pub(super) then: Step,
    pub(super) is_count: bool,
}

/// A worker process.
#[derive(Clone, Debug)]
pub(super) struct Worker {
    pub(super) pod: usize,
    pub(super) slots: Slots,
    /// Pins, counters and cooldowns of this worker.
    pub(super) memory: Memory,
    /// Known keys, by when they were used last and until when.
    pub(super) keys: KeyCache,
    pub(super) limits: LimitCounters,
    pub(super) breaker: Breaker,
    /// Checks of limits in Redis go one after another; the last one ends then.
    pub(super) redis_lock: Time,
    pub(super) spend: SpendQueue,
    pub(super) chance: Stream,
    pub(super) retry_chance: Stream,
    pub(super) jitter: Stream,
    /// Failures of deployments within a cooldown's time, and until when they count.
    pub(super) recent_fails: Vec<(u64, Time)>,
    /// The task on the event loop, and those behind it.
    pub(super) loop_runs: bool,
    pub(super) loop_queue: VecDeque<LoopTask>,
    /// Counts in threads, and those that wait for one.
    pub(super) counting: u32,
    pub(super) count_queue: VecDeque<(CallRef, Span)>,
}

impl Worker {
    pub(super) fn new(config: &GatewayConfig, id: WorkerId, pod: usize, seed: u64) -> Self {
        let stream = |purpose| Stream::new(seed, purpose, u64::from(id.0));
        Self {
            pod,
            slots: Slots::new(config.admission),
            memory: Memory::new(Some(config.routing.cache_entries)),
            keys: KeyCache::new(config.auth.capacity as usize),
            limits: LimitCounters::default(),
            breaker: Breaker::default(),
            redis_lock: Time::ZERO,
            spend: SpendQueue::new(config.spend),
            chance: stream(Purpose::RoutingStrategy),
            retry_chance: stream(Purpose::RouterRetry),
            jitter: stream(Purpose::WorkerJitter),
            recent_fails: vec![(0, Time::ZERO); config.deployments.len()],
            loop_runs: false,
            loop_queue: VecDeque::new(),
            counting: 0,
            count_queue: VecDeque::new(),
        }
    }

    /// Whether nothing of a request or a row is left with it.
    pub(super) fn is_idle(&self) -> bool {
        self.slots.in_flight() == 0 && self.slots.queued() == 0
    }
}

/// The keys that a worker knows, each until its time is up; when full the one whose time is up
/// first goes.
#[derive(Clone, Debug)]
pub(super) struct KeyCache {
    capacity: usize,
    until: BTreeMap<u64, Time>,
    order: VecDeque<(Time, u64)>,
}

impl KeyCache {
    fn new(capacity: usize) -> Self {
        Self { capacity, until: BTreeMap::new(), order: VecDeque::new() }
    }

    pub(super) fn knows(&self, now: Time, key: u64) -> bool {
        self.until.get(&key).is_some_and(|until| now < *until)
    }

    pub(super) fn learn(&mut self, now: Time, key: u64, ttl: Span) {
        // All live equally long, so they expire in the order in which they came.
        let until = now + ttl;
        self.until.insert(key, until);
        self.order.push_back((until, key));
        while let Some(&(expires, key)) = self.order.front() {
            let is_stale = self.until.get(&key) != Some(&expires);
            if !is_stale && self.until.len() <= self.capacity && now < expires {
                break;
            }
            if !is_stale {
                self.until.remove(&key);
            }
            self.order.pop_front();
        }
    }
}

/// What runs on a core.
#[derive(Clone, Copy, Debug)]
pub(super) enum Job {
    /// The task on a worker's event loop.
    Loop(WorkerId, LoopTask),
    /// A count in a thread.
    Count(WorkerId, CallRef),
}

/// Whether a pod takes requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PodState {
    Up,
    Draining,
    Stopped,
}

/// A pod: workers that share cores.
#[derive(Clone, Debug)]
pub(super) struct Pod {
    pub(super) state: PodState,
    pub(super) workers: Vec<WorkerId>,
    pub(super) cores: Cores,
    pub(super) jobs: BTreeMap<u64, (Job, Time)>,
    pub(super) timer: Option<TimerId>,
    pub(super) started: Time,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_known_for_their_time_and_no_more_than_fit() {
        let ttl = Span::from_secs(60);
        let mut keys = KeyCache::new(2);
        keys.learn(Time(0), 1, ttl);
        keys.learn(Time(1), 2, ttl);
        assert!(keys.knows(Time(5), 1));
        keys.learn(Time(2), 1, ttl);
        keys.learn(Time(3), 3, ttl);
        assert!(!keys.knows(Time(5), 2) && keys.knows(Time(5), 1) && keys.knows(Time(5), 3));
        assert!(!keys.knows(Time(2) + ttl, 1));
    }
}
