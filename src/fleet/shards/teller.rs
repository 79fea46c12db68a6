//! Puts together what shards tell: observers, the busiest minute and the rest of a run are told of
//! everything in the order of time, as by one world.

use std::collections::VecDeque;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::log::{Busy, Logs, Record, Retold};
use crate::fleet::Setup;
use crate::fleet::arrivals::Next;
use crate::fleet::content::{SharedNews, SharedSegment, SharedUse};
use crate::fleet::observer::{About, Observer};
use crate::fleet::replicas::ceiling;
use crate::fleet::workload::{Names, SessionPlan};
use crate::observe::burst::BurstWatch;
use crate::observe::records::CallRecord;
use crate::observe::replica::Window;
use crate::units::{ReplicaId, Time, Tokens};

/// Tells what shards have logged.
pub(super) struct Teller<O> {
    pub(super) observer: O,
    pub(super) names: Names,
    pub(super) burst: BurstWatch,
    /// Most sessions that were open at once.
    pub(super) open_max: u64,
    /// Calls told.
    pub(super) calls: u64,
    window: Window,
    block_size: u64,
    has_cache: bool,
    /// The first replica of each shard.
    firsts: Vec<u32>,
    records: Logs<Record>,
    busy: Logs<Busy>,
    shared: Logs<SharedNews>,
    retold: Vec<Retold>,
    /// Plans of open sessions, by number.
    plans: FxHashMap<u32, Arc<SessionPlan>>,
    /// Starts of sessions that are not counted yet.
    starts: VecDeque<Time>,
    open: u64,
    /// How far shared contexts were computed anywhere.
    computed: FxHashMap<SharedSegment, Tokens>,
    /// Of calls under way that depend on it: leading tokens computed when they were admitted.
    known: FxHashMap<(u32, u32), Tokens>,
}

/// What a shard has logged.
#[derive(Default)]
pub(super) struct Logged {
    pub(super) records: Vec<Record>,
    pub(super) busy: Vec<Busy>,
    pub(super) shared: Vec<SharedNews>,
}

impl<O: Observer> Teller<O> {
    pub(super) fn new(setup: &Setup, window: Window, observer: O, firsts: Vec<u32>) -> Self {
        let shards = firsts.len();
        Self {
            observer,
            names: Names::default(),
            burst: BurstWatch::new(window),
            open_max: 0,
            calls: 0,
            window,
            block_size: setup.engine.block_size,
            has_cache: setup.engine.enable_prefix_caching,
            firsts,
            records: Logs::new(shards),
            busy: Logs::new(shards),
            shared: Logs::new(shards),
            retold: (0..shards).map(|_| Retold::default()).collect(),
            plans: FxHashMap::default(),
            starts: VecDeque::new(),
            open: 0,
            computed: FxHashMap::default(),
            known: FxHashMap::default(),
        }
    }

    /// Sessions are handed over to shards.
    pub(super) fn expect(&mut self, sessions: &[Next]) {
        for next in sessions {
            if let Some(number) = next.number {
                self.plans.insert(number, Arc::clone(&next.plan));
                self.starts.push_back(next.at);
            }
        }
    }

    /// A shard has logged this.
    pub(super) fn add(&mut self, shard: usize, logged: Logged) {
        self.records.add(shard, logged.records);
        self.busy.add(shard, logged.busy);
        self.shared.add(shard, logged.shared);
    }

    /// Lists that are empty, with room.
    pub(super) fn spare(&mut self) -> Logged {
        let (records, busy) = (self.records.spare(), self.busy.spare());
        Logged { records, busy, shared: self.shared.spare() }
    }

    /// Records of a shard that were not told yet.
    pub(super) fn waiting(&self, shard: usize) -> usize {
        self.records.waiting(shard)
    }

    /// Tells what has happened before an instant.
    pub(super) fn tell(&mut self, before: Time) {
        // In half instants, as the agenda counts: steps end, then steps start.
        let halves = before.0.saturating_mul(2);
        let (known, computed) = (&mut self.known, &mut self.computed);
        self.shared.each(halves, |news| news.at, |_, news| learn(known, computed, &news.what));
        let (retold, burst) = (&mut self.retold, &mut self.burst);
        self.busy.each(before.0, |busy| busy.at.0, |shard, busy| retold[shard].tell(busy, burst));
        let mut records = std::mem::replace(&mut self.records, Logs::new(0));
        records.each(before.0, |record| record.at().0, |shard, record| self.record(shard, record));
        self.records = records;
    }

    /// The run ends: sessions that started since the last one ended were open, too.
    pub(super) fn end(&mut self, until: Time) {
        self.count_starts(|at| at < until);
    }

    fn record(&mut self, shard: usize, record: &Record) {
        let number = match record {
            Record::Call(call) => call.play,
            Record::Turn(turn) => turn.play,
            Record::Task(task) => task.play,
        };
        // The record of its task is the last one of a session, and only that makes its plan go.
        let plan = self.plans.get(&number).expect("a session is known until it has ended");
        let about = About { plan, names: &self.names, window: self.window };
        match record {
            Record::Call(call) => {
                self.calls += 1;
                let mut call = *call;
                let first = self.firsts[shard];
                call.replica = call.replica.map(|replica| ReplicaId(first + replica.0));
                settle(&mut self.known, &mut call, self.block_size, self.has_cache);
                self.observer.call(&call, &about);
            }
            Record::Turn(turn) => self.observer.turn(turn, &about),
            Record::Task(task) => {
                self.observer.task(task, &about);
                self.plans.remove(&number);
                self.count_starts(|at| at <= task.ended);
                self.open -= 1;
            }
        }
    }

    /// At one instant sessions start before others end.
    fn count_starts(&mut self, counts: impl Fn(Time) -> bool) {
        while self.starts.front().is_some_and(|at| counts(*at)) {
            self.starts.pop_front();
            self.open += 1;
        }
        self.open_max = self.open_max.max(self.open);
    }
}

/// Something is told of shared contexts.
fn learn(
    known: &mut FxHashMap<(u32, u32), Tokens>,
    computed: &mut FxHashMap<SharedSegment, Tokens>,
    what: &SharedUse,
) {
    match what {
        SharedUse::Computed(segment, upto) => {
            let most = computed.entry(*segment).or_default();
            *most = (*most).max(*upto);
        }
        SharedUse::Asked { play, call, shared, beyond } => {
            let (mut start, mut found) = (Tokens::ZERO, *beyond);
            for &(segment, end) in shared {
                let upto = computed.get(&segment).copied().unwrap_or_default();
                if upto < end {
                    found = upto.max(start);
                    break;
                }
                start = end;
            }
            known.insert((*play, *call), found);
        }
    }
}

/// A call whose shard did not know how much of its context had been computed before. What others
/// alone had computed is missed for want of them.
fn settle(
    known: &mut FxHashMap<(u32, u32), Tokens>,
    call: &mut CallRecord,
    block_size: u64,
    has_cache: bool,
) {
    if known.is_empty() {
        return;
    }
    if let Some(computed) = known.remove(&(call.play, call.call)) {
        let before = call.ceiling;
        call.ceiling = ceiling(call, computed, block_size);
        let more = (call.ceiling - before).0 as u32;
        match has_cache {
            true => call.missed.elsewhere += more,
            false => call.missed.uncached += more,
        }
    }
}
