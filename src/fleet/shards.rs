//! One fleet in parts, on several threads or one after the other.
//!
//! Where a session stays where its first call went, and that was drawn, replicas do not influence
//! each other: what happens on one follows from its own sessions. So a fleet can be simulated in
//! *shards*, worlds of a few replicas each, with the results of one world:
//!
//! - [`pins`] finds out ahead where every session goes, by the draws of the router and in its
//!   order;
//! - shards simulate the same stretch of time, and log what they have to tell;
//! - [`teller`] tells observers of it in the order of time, and works out what depends on the whole
//!   fleet: the busiest minute, the most open sessions, what any replica had computed before.
//!
//! With several threads all three go on at once, the last one stretch behind, the first one ahead;
//! with one they take turns. A stretch ends where so many calls begin, or where a shard has logged
//! so much that it waits for others, so that memory does not follow the length of the run. One
//! thing is not bounded: sessions are handed over in their order, so that while one waits for its
//! first call to be routed (its calls had failed when recorded, or do not fit) all that start
//! meanwhile are held. Nothing depends on which thread does what.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use rayon::ThreadPool;

use super::alone::AloneTimes;
use super::arrivals::{Arrivals, Next, Sessions};
use super::observer::Observer;
use super::workload::Names;
use super::world::{Done, World, measured};
use super::{Progress, Run, Setup};
use crate::config::autoscale::Scaling;
use crate::config::router::RouterKind;
use crate::config::scenario::LoadKind;
use crate::engine::Engine;
use crate::observe::members::ScalingUse;
use crate::observe::replica::Window;
use crate::trace::record::Name;
use crate::units::{ReplicaId, Time};

pub(super) mod log;
mod pins;
mod teller;

use log::{Bursts, Log};
use pins::{Batch, Pins};
use teller::{Logged, Teller};

/// A shard of so many replicas gains nothing from being smaller.
const REPLICAS_IN_CACHE: usize = 4;
/// More shards gain little, and each of them has room of its own for what it tells.
const SHARDS_FOR_CACHE_MAX: usize = 64;
/// A shard is at hand for so many calls before it is the next one's turn, as far as memory allows.
const CALLS_AT_ONCE: usize = 1 << 11;

/// How a run is taken apart. Results do not depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// Shards, if there are as many replicas.
    pub shards: usize,
    /// Calls of the sessions that are handed over to shards in one go.
    pub batch_calls: usize,
    /// Records that all shards together may log in one go.
    pub room: usize,
}

impl Sizes {
    /// For so many threads and replicas. Several threads have a few shards each, so that one with
    /// less to do takes over from others. And what is known of a few replicas and of their
    /// sessions fits into a processor's cache, where that of many does not: a large fleet has more
    /// shards, on one thread as well.
    #[must_use]
    pub fn of(threads: usize, replicas: u32) -> Self {
        let for_threads = if threads > 1 { 4 * threads } else { 1 };
        let for_cache = (replicas as usize / REPLICAS_IN_CACHE).min(SHARDS_FOR_CACHE_MAX);
        let shards = for_threads.max(for_cache).max(1);
        let batch_calls = (shards * CALLS_AT_ONCE).clamp(1 << 16, 1 << 17);
        Self { shards, batch_calls, room: batch_calls / 2 }
    }
}

/// Why the replicas of a fleet cannot be simulated apart; `None` if they can.
#[must_use]
pub fn why_together(setup: &Setup) -> Option<&'static str> {
    // Every part is named, so that a new one has to be decided on, too.
    let Setup {
        replicas,
        gateway,
        scaling,
        pools,
        router,
        routing,
        events,
        load,
        // What each replica, its clients and sessions are like: that concerns one replica alone.
        engine: _,
        cost: _,
        api: _,
        limits: _,
        client: _,
        open_loop: _,
        on_overflow: _,
        every_step: _,
        // Draws are made ahead, and what is measured is put together from all shards.
        seed: _,
        warmup: _,
        window: _,
    } = setup;
    if *replicas < 2 {
        Some("there is one replica")
    } else if gateway.is_some() {
        Some("the gateway sees all replicas")
    } else if *scaling != Scaling::default() {
        Some("the autoscaler sees all replicas")
    } else if !pools.is_empty() {
        Some("calls of a session may go to several pools")
    } else if !events.is_empty() {
        Some("events move sessions from one replica to others")
    } else if load.kind != LoadKind::Trace {
        Some(
            "who starts when depends on sessions that have ended anywhere (load.kind is not trace)",
        )
    } else if *router != RouterKind::SessionAffinity {
        Some("the router chooses a replica for every call by what went before on all of them")
    } else if routing.pins.is_some() {
        Some("which sessions the router remembers depends on all of them (router.pins)")
    } else {
        None
    }
}

/// Some replicas with their sessions.
struct Shard<'a, E> {
    world: World<'a, E, Log>,
    /// Its first replica.
    first: u32,
    /// Of its own, so that it does not have others wait for it.
    progress: Progress,
    /// Everything before has happened.
    reached: Time,
    /// When it came to a standstill or failed, in half instants: it does not go on.
    halted: Option<u64>,
}

impl<E: Engine> Shard<'_, E> {
    /// Lets happen what happens before `bound`, or as much of it as there is room for.
    fn play(&mut self, bound: Time) {
        self.world.expect_arrival();
        self.world.play(&self.progress, bound);
        // No shard is known to fail: content is counted where sessions are settled, and there are
        // no pools. Were one to, it would wait for its next event for ever.
        let failed = self.world.arrivals.failure.as_ref().map(|_| 2 * self.last().0);
        let stuck = self.world.stuck.as_ref().map(|_| self.world.content.now());
        if let Some(halves) = stuck.or(failed) {
            self.halted.get_or_insert(halves);
            self.reached = bound;
            return;
        }
        self.reached = self.next_at().map_or(bound, |at| at.min(bound));
    }

    /// When something happens next that belongs to the run.
    fn next_at(&self) -> Option<Time> {
        let until = self.world.live.window.until;
        self.world.next_at().filter(|at| *at < until)
    }

    /// When something has last happened.
    fn last(&self) -> Time {
        Time(self.progress.nanos.load(Ordering::Relaxed))
    }

    /// What it has logged; more is logged in `spare`.
    fn take_log(&mut self, spare: Logged) -> Logged {
        Logged {
            records: std::mem::replace(&mut self.world.observer.records, spare.records),
            busy: self.world.burst.take(spare.busy),
            shared: self.world.content.take_shared(spare.shared),
        }
    }
}

/// A fleet whose replicas are simulated apart.
pub(super) struct Fleet<'a, E, O> {
    shards: Vec<Shard<'a, E>>,
    teller: Teller<O>,
    pins: Pins<'a>,
    /// The sessions that come next.
    batch: Option<Batch>,
    /// Up to where shards may go.
    bound: Time,
    /// Where the run was stopped from outside.
    stopped: Option<Time>,
    window: Window,
    room: usize,
}

/// The replicas in so many parts of nearly equal size: the first of each, and how many.
fn parts(replicas: u32, parts: usize) -> impl Iterator<Item = (u32, u32)> {
    let parts = replicas.min(parts as u32).max(1);
    let first = move |part: u32| (u64::from(replicas) * u64::from(part) / u64::from(parts)) as u32;
    (0..parts).map(move |part| (first(part), first(part + 1) - first(part)))
}

impl<'a, E: Engine + Send, O: Observer + Send> Fleet<'a, E, O> {
    /// A fleet that is [to be taken apart](why_together), and recorded starts for it.
    pub(super) fn new(
        sizes: &Sizes,
        setup: &Setup,
        sessions: Sessions<'a>,
        engine: &'a (impl Fn() -> E + Sync),
        observer: O,
        alone: Option<&'a AloneTimes>,
    ) -> Self {
        let parts = parts(setup.replicas, sizes.shards);
        let part = |(first, replicas)| (first, Arc::new(Setup { replicas, ..setup.clone() }));
        let parts: Vec<(u32, Arc<Setup>)> = parts.map(part).collect();
        let room = (sizes.room / parts.len()).max(1);
        let mut shards = Vec::with_capacity(parts.len());
        for (first, setup) in &parts {
            let log = Log::new(room, &observer);
            let mut world = World::new(setup, None, Sessions::None, engine, log, alone);
            world.arrivals = Arrivals::given();
            world.first_replica = *first;
            world.burst = Bursts::Logged(Vec::new());
            world.content.tell_shared();
            let (progress, reached) = (Progress::default(), Time::ZERO);
            shards.push(Shard { world, first: *first, progress, reached, halted: None });
        }
        let window = measured(setup);
        Self {
            teller: Teller::new(setup, window, observer, parts.iter().map(|part| part.0).collect()),
            shards,
            pins: Pins::new(setup, sessions, window.until, sizes.batch_calls),
            batch: None,
            bound: Time::ZERO,
            stopped: None,
            window,
            room,
        }
    }

    /// Plays all of it, on the threads of a pool if there is one.
    pub(super) fn play(mut self, pool: Option<&ThreadPool>, progress: &Progress) -> Run<O> {
        while self.goes_on(progress) {
            self.stretch(pool);
        }
        self.finish()
    }

    /// Everything before has happened everywhere.
    fn reached(&self) -> Time {
        self.shards.iter().map(|shard| shard.reached).min().unwrap_or(Time::MAX)
    }

    /// Says how far shards may go now; false if nothing is left to do.
    fn goes_on(&mut self, progress: &Progress) -> bool {
        let reached = self.reached();
        let ended = |shard: &Shard<'_, E>| shard.progress.calls.load(Ordering::Relaxed);
        progress.calls.store(self.shards.iter().map(ended).sum(), Ordering::Relaxed);
        if reached < Time::MAX {
            progress.nanos.store(reached.0, Ordering::Relaxed);
        }
        let halted = self.shards.iter().filter_map(|shard| shard.halted).min();
        if let Some(halves) = halted {
            // Another may do so before.
            self.bound = self.bound.min(Time(halves / 2 + 1));
            return reached < self.bound;
        }
        if progress.stop.load(Ordering::Relaxed) && self.stopped.is_none() {
            // All of them stop where the first of them is, which may have nothing left to do.
            let last = self.shards.iter().map(Shard::last).max().unwrap_or(Time::ZERO);
            self.stopped = Some(Time(last.0 + 1));
            self.bound = self.bound.min(Time(last.0 + 1));
        }
        if reached < self.bound {
            return true;
        }
        if self.stopped.is_some() {
            self.stopped = self.stopped.filter(|_| !self.is_complete());
            return false;
        }
        if self.bound == Time::MAX {
            return false;
        }
        match self.batch.take() {
            Some(batch) => self.hand_over(batch),
            None => return !self.pins.is_over(),
        }
        true
    }

    /// Whether all that shards were told of has happened, and nothing comes any more.
    fn is_complete(&self) -> bool {
        let is_over = self.batch.is_none() && self.pins.is_over();
        let is_whole = self.pins.arrivals.failure.is_none();
        is_over && is_whole && self.shards.iter().all(|shard| shard.next_at().is_none())
    }

    fn hand_over(&mut self, batch: Batch) {
        self.bound = batch.before;
        self.teller.names.extend(newer(&self.pins.arrivals.names, &self.teller.names));
        self.teller.expect(&batch.sessions);
        let mut sessions: Vec<Vec<Next>> = self.shards.iter().map(|_| Vec::new()).collect();
        for mut next in batch.sessions {
            let of = |shard: &Shard<'_, E>| next.pin.is_none_or(|pin| shard.first <= pin.0);
            // One that never comes to a replica goes to the first.
            let place = match next.pin {
                Some(_) => self.shards.partition_point(of) - 1,
                None => 0,
            };
            let first = self.shards[place].first;
            next.pin = next.pin.map(|pin| ReplicaId(pin.0 - first));
            sessions[place].push(next);
        }
        let contexts = &self.pins.arrivals.contexts;
        for (shard, sessions) in self.shards.iter_mut().zip(sessions) {
            shard.world.arrivals.give(sessions, contexts);
        }
    }

    /// Shards go on, what they have logged is told, and sessions are made ready.
    fn stretch(&mut self, pool: Option<&ThreadPool>) {
        let (reached, bound, room) = (self.reached(), self.bound, self.room);
        let Self { shards, teller, pins, batch, .. } = self;
        let goes_on: Vec<bool> = (0..)
            .zip(&*shards)
            .map(|(number, shard)| {
                // Who is far ahead waits for others, so that not too much waits to be told.
                let is_ahead = shard.reached > reached && teller.waiting(number) >= 2 * room;
                shard.reached < bound && !is_ahead
            })
            .collect();
        let wants_batch = batch.is_none() && !pins.is_over();
        let shards = shards.iter_mut().zip(goes_on).filter(|(_, goes_on)| *goes_on);
        let shards = shards.map(|(shard, _)| shard);
        match pool {
            Some(pool) => pool.scope(|scope| {
                scope.spawn(|_| teller.tell(reached));
                if wants_batch {
                    scope.spawn(|_| *batch = Some(pins.batch()));
                }
                shards.for_each(|shard| scope.spawn(move |_| shard.play(bound)));
            }),
            None => {
                teller.tell(reached);
                if wants_batch {
                    *batch = Some(pins.batch());
                }
                shards.for_each(|shard| shard.play(bound));
            }
        }
        for (number, shard) in self.shards.iter_mut().enumerate() {
            let logged = shard.take_log(self.teller.spare());
            self.teller.add(number, logged);
        }
    }

    fn finish(mut self) -> Run<O> {
        self.teller.tell(Time::MAX);
        let mut window = self.window;
        let least = Time(window.from.0 + 1);
        if let Some(at) = self.stopped {
            window.until = window.until.min(at).max(least);
        }
        let ends = self.shards.iter_mut().map(|shard| shard.world.end(window.until));
        window.until = ends.max().unwrap_or(window.until).max(least);
        self.teller.end(window.until);
        let mut all = Done::default();
        for shard in &mut self.shards {
            all.add(shard.world.done(window.until));
        }
        let first = self.shards.iter().filter_map(|shard| Some((shard.halted?, shard)));
        let first = first.min_by_key(|(at, shard)| (*at, shard.first)).map(|(_, shard)| shard);
        let length = (window.until - window.from).as_f64();
        let of_shard = first.and_then(|shard| shard.world.arrivals.failure.clone());
        Run {
            stuck: first.and_then(|shard| shard.world.stuck.clone()),
            engines: all.engines,
            live_context_mean: all.token_nanos as f64 / length,
            counts: self.pins.arrivals.counts,
            cut_off: all.cut_off,
            burst: self.teller.burst.finish(window.until),
            replicas_at_start: all.replicas.len() as u32,
            replicas: all.replicas,
            gateway: None,
            scaling: ScalingUse::default(),
            changes: Vec::new(),
            records: self.teller.observer,
            names: self.pins.arrivals.names.into_owned(),
            window,
            open_sessions_max: self.teller.open_max,
            interrupted: self.stopped,
            failure: self.pins.arrivals.failure.or(of_shard),
        }
    }
}

/// Names that are not among those known before.
fn newer(all: &Names, known: &Names) -> Names {
    let new = |all: &[Name], known: &[Name]| all[known.len()..].to_vec();
    Names {
        models: new(&all.models, &known.models),
        tenants: new(&all.tenants, &known.tenants),
        profiles: new(&all.profiles, &known.profiles),
        groups: new(&all.groups, &known.groups),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::config::scenario::Scenario;
    use crate::engine::plain::PlainEngine;
    use crate::fleet::arrivals::Failure;
    use crate::fleet::workload::Workload;
    use crate::observe::records::Records;
    use crate::trace::canonical;

    /// No input leads there, so that it is made to fail here.
    #[test]
    fn a_shard_that_fails_ends_the_run() {
        let keys = ["engine.model=Llama-3.1-8B", "engine.gpu=h100-sxm", "replicas=2"];
        let scenario = Scenario::parse("", "test", &keys.map(str::to_owned)).unwrap();
        let setup = Setup::of(&scenario).unwrap();
        let text = "\
session,call,at_s,after,gap_s,cause,turn,lane,model,tenant,user,profile,base,kept_tokens,\
prompt_tokens,output_tokens,tools,status
s1,0,0,,0,user,0,0,m,,,,,0,900,60,,ok
s2,0,1,,0,user,0,0,m,,,,,0,9,6,,ok
";
        let trace = canonical::read_from(text.as_bytes(), "test").unwrap();
        let workload = Workload::new(&trace, &BTreeMap::new());
        let engine = || PlainEngine::new(setup.engine.clone(), setup.cost.clone());
        let (sizes, progress) = (Sizes::of(2, 2), Progress::default());
        let held = Sessions::Held(&workload);
        let mut fleet = Fleet::new(&sizes, &setup, held, &engine, Records::default(), None);
        let pool = rayon::ThreadPoolBuilder::new().num_threads(2).build().unwrap();
        let mut stretches = 0;
        while fleet.goes_on(&progress) && stretches < 10 {
            fleet.stretch(Some(&pool));
            fleet.shards[1].world.fail(Failure::TooMuchContent);
            stretches += 1;
        }
        assert!(stretches < 10, "it goes on for ever");
        assert_eq!(fleet.finish().failure, Some(Failure::TooMuchContent));
    }

    #[test]
    fn parts_have_all_replicas_once() {
        for (replicas, asked) in [(2, 8), (8, 8), (9, 8), (500, 8), (3, 2), (7, 5)] {
            let parts: Vec<(u32, u32)> = parts(replicas, asked).collect();
            assert_eq!(parts.len(), asked.min(replicas as usize));
            let mut next = 0;
            for (first, count) in parts {
                assert_eq!((first, count > 0), (next, true));
                next += count;
            }
            assert_eq!(next, replicas);
        }
    }
}
