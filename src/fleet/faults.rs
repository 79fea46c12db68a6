//! Replicas that are lost, drained, added or updated while the fleet runs, and stores of the
//! gateway that are out of order.
//!
//! A replica that is gone takes its cache with it. Its calls fail, and the client asks again, by
//! its own rule, wherever the router sends it then. A replica that is drained gets no new calls;
//! it goes when its last call has ended.

use super::admission::ApiServer;
use super::observer::Observer;
use super::world::{Event, InFlight, Stage, World};
use crate::config::faults::{FleetEvent, Happens};
use crate::config::pools::firsts;
use crate::engine::Engine;
use crate::gateway::breaker::Health;
use crate::gateway::cooldown::Failure;
use crate::observe::members::{Became, ReplicaChange};
use crate::units::{ReplicaId, RequestId, Span, Time};

/// What is going on with replicas.
#[derive(Debug)]
pub(super) struct Faults {
    states: Vec<State>,
    /// Updates under way, no two of which are at the same replica.
    rolling: Vec<Rolling>,
    /// The event that each store is out of order by, by its number: Redis and the database.
    out_of_order: [Option<u32>; 2],
    /// What became of replicas, in order.
    pub(super) changes: Vec<ReplicaChange>,
}

/// One replica.
#[derive(Clone, Copy, Debug)]
struct State {
    phase: Phase,
    /// Changes of phase so far: what was meant for an earlier one is void.
    changes: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// It takes calls.
    Up,
    /// It takes no new ones; once it has none, its process is started again so long after.
    Draining(Option<Span>),
    /// It has no process, or one that is starting.
    Down,
}

/// A rolling update under way.
#[derive(Clone, Copy, Debug)]
struct Rolling {
    /// The replica that is being updated.
    current: Option<ReplicaId>,
    /// The one that comes next.
    next: u32,
    /// The one behind the last.
    until: u32,
    start: Span,
    drain: Option<Span>,
}

/// What became of a replica that is to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Gone {
    /// It has calls to end; the change by which its time to do so can be told from another.
    At(u32),
    /// It is gone.
    Already,
}

impl Faults {
    pub(super) fn new(replicas: u32, events: &[FleetEvent]) -> Self {
        let mut states = vec![State { phase: Phase::Up, changes: 0 }; replicas as usize];
        for event in events {
            if let Happens::Added { replica } = event.happens
                && let Some(state) = states.get_mut(replica as usize)
            {
                state.phase = Phase::Down;
            }
        }
        Self { states, rolling: Vec::new(), out_of_order: [None; 2], changes: Vec::new() }
    }

    /// Replicas that are not there from the start.
    pub(super) fn absent(&self) -> impl Iterator<Item = ReplicaId> + '_ {
        let numbered = (0..).zip(&self.states);
        numbered.filter(|(_, state)| state.phase == Phase::Down).map(|(at, _)| ReplicaId(at))
    }

    /// One more replica, which has no process yet.
    pub(super) fn grow(&mut self) {
        self.states.push(State { phase: Phase::Down, changes: 0 });
    }

    /// Replicas that take calls.
    pub(super) fn count_up(&self) -> u32 {
        self.states.iter().filter(|state| state.phase == Phase::Up).count() as u32
    }

    fn change(&mut self, replica: ReplicaId, phase: Phase) -> u32 {
        let state = &mut self.states[replica.index()];
        state.phase = phase;
        state.changes += 1;
        state.changes
    }

    /// Keeps for whoever draws the run what became of a replica.
    fn note(&mut self, at: Time, replica: ReplicaId, became: Became) {
        self.changes.push(ReplicaChange { at, replica, became });
    }

    /// Whether a replica takes calls.
    pub(super) fn is_up(&self, replica: ReplicaId) -> bool {
        self.states.get(replica.index()).is_some_and(|state| state.phase == Phase::Up)
    }

    fn phase(&self, replica: ReplicaId) -> Phase {
        self.states[replica.index()].phase
    }
}

impl<E: Engine, O: Observer> World<'_, E, O> {
    /// Something that was planned happens.
    pub(super) fn happens(&mut self, now: Time, number: u32) {
        let FleetEvent { happens, start, pool, .. } = self.setup.events[number as usize];
        match happens {
            Happens::Lost { replica, restart } => {
                self.lose(now, ReplicaId(replica), restart.map(|restart| restart + start));
            }
            Happens::Drained { replica, restart } => {
                let ready = restart.map(|restart| restart + start);
                self.drain(now, ReplicaId(replica), ready, Became::Drained);
            }
            Happens::Added { replica } => {
                let replica = ReplicaId(replica);
                if self.faults.phase(replica) == Phase::Down {
                    self.start_replica(now + start, replica);
                }
            }
            Happens::RollingUpdate { drain } => {
                let (next, until) = match pool {
                    Some(pool) => self.replicas_of(pool as usize),
                    None => (0, u32::MAX),
                };
                self.roll_on(now, Rolling { current: None, next, until, start, drain });
            }
            Happens::RedisOutage { lasts, silent } => {
                let health = if silent { Health::Silent } else { Health::Refuses };
                self.tell_gateway(now, |gateway, _| gateway.set_redis(health));
                self.comes_back(now, number, lasts);
            }
            Happens::DatabaseSlow { lasts, thousandths } => {
                self.tell_gateway(now, |gateway, _| gateway.slow_database(thousandths));
                self.comes_back(now, number, lasts);
            }
        }
    }

    fn comes_back(&mut self, now: Time, number: u32, lasts: Option<Span>) {
        let store = self.store_of(number);
        self.faults.out_of_order[store] = Some(number);
        if let Some(lasts) = lasts {
            self.push(now + lasts, Event::StoreBack { number });
        }
    }

    /// A store of the gateway is as it was before the event of this number, unless another one has
    /// begun at this instant.
    pub(super) fn store_back(&mut self, now: Time, number: u32) {
        let store = self.store_of(number);
        if self.faults.out_of_order[store] != Some(number) {
            return;
        }
        self.faults.out_of_order[store] = None;
        self.tell_gateway(now, |gateway, _| match store {
            0 => gateway.set_redis(Health::Up),
            _ => gateway.slow_database(1_000),
        });
    }

    /// The place of the store that an event is about.
    fn store_of(&self, number: u32) -> usize {
        let what = self.setup.events[number as usize].happens;
        usize::from(matches!(what, Happens::DatabaseSlow { .. }))
    }

    /// The first replica of a pool, and the one behind its last.
    fn replicas_of(&self, pool: usize) -> (u32, u32) {
        let pools = &self.setup.pools;
        let first = firsts(pools).nth(pool).unwrap_or(0);
        (first, first + pools.get(pool).map_or(0, |pool| pool.replicas))
    }

    /// A process takes calls from then on.
    pub(super) fn start_replica(&mut self, ready: Time, replica: ReplicaId) {
        let change = self.faults.change(replica, Phase::Down);
        self.push(ready, Event::Ready { replica, change });
    }

    pub(super) fn ready(&mut self, now: Time, replica: ReplicaId, change: u32) {
        if self.faults.states[replica.index()].changes != change {
            return;
        }
        self.faults.change(replica, Phase::Up);
        self.faults.note(now, replica, Became::Up);
        self.router.joins(replica);
        self.replicas[replica.index()].usage.comes(now);
        if let Some(gate) = &mut self.gate {
            gate.gateway.list(replica);
        }
        self.count_replicas(now);
        self.roll_on_after(now, replica);
    }

    /// A replica is gone, now. It takes calls again after `ready`, if it does.
    fn lose(&mut self, now: Time, replica: ReplicaId, ready: Option<Span>) {
        match self.faults.phase(replica) {
            Phase::Up | Phase::Draining(_) => self.faults.note(now, replica, Became::Lost),
            Phase::Down => return,
        }
        self.cut_off_calls(now, replica, ready);
    }

    /// A replica's process ends with the calls that it has. It takes calls again after `ready`, if
    /// it does.
    fn cut_off_calls(&mut self, now: Time, replica: ReplicaId, ready: Option<Span>) {
        self.faults.change(replica, Phase::Down);
        self.router.leaves(replica);
        self.replace(now, replica);
        for place in 0..self.in_flight.len() {
            let InFlight { record, stage, .. } = &self.in_flight[place];
            if *stage != Stage::Client && record.replica == Some(replica) {
                self.lose_call(now, RequestId::from_index(place));
            }
        }
        match ready {
            Some(ready) => self.start_replica(now + ready, replica),
            None => {
                self.replica_gone(now, replica);
                self.roll_on_after(now, replica);
            }
        }
        self.count_replicas(now);
    }

    /// Its process is gone: another would begin with an empty cache.
    fn replace(&mut self, now: Time, replica: ReplicaId) {
        let (engine, process) = ((self.new_engine)(), self.new_process());
        let state = &mut self.replicas[replica.index()];
        state.settle(now);
        let before = std::mem::replace(&mut state.engine, engine);
        (state.server, state.process) = (ApiServer::default(), process);
        self.gone.push(before.metrics());
        self.agenda.set(replica, None);
    }

    fn lose_call(&mut self, now: Time, request: RequestId) {
        self.leave_replica(now, request);
        let InFlight { record, stage, burst, .. } = &mut self.in_flight[request.index()];
        if std::mem::replace(stage, Stage::Client) == Stage::Waiting {
            self.burst.scheduled(now, *burst, now - record.queued);
        }
        record.replica = None;
        record.losses += 1;
        if self.gate.is_some() {
            self.attempt_failed(now, request, Failure::Connection);
        } else {
            self.ask_again(now, request);
        }
    }

    /// A replica gets no new calls.
    fn drain(&mut self, now: Time, replica: ReplicaId, ready: Option<Span>, became: Became) -> u32 {
        if self.faults.phase(replica) != Phase::Up {
            return 0;
        }
        self.faults.note(now, replica, became);
        let change = self.faults.change(replica, Phase::Draining(ready));
        self.router.leaves(replica);
        self.count_replicas(now);
        self.may_be_drained(now, replica);
        change
    }

    /// A replica gets no new calls and is not started again, whatever it was to do.
    pub(super) fn drain_for_good(&mut self, now: Time, replica: ReplicaId) -> Gone {
        match self.faults.phase(replica) {
            Phase::Up => drop(self.drain(now, replica, None, Became::ScaledIn)),
            Phase::Draining(_) => {
                self.faults.states[replica.index()].phase = Phase::Draining(None);
            }
            Phase::Down => {
                self.faults.change(replica, Phase::Down);
                self.roll_on_after(now, replica);
            }
        }
        match self.faults.states[replica.index()] {
            State { phase: Phase::Draining(_), changes } => Gone::At(changes),
            _ => Gone::Already,
        }
    }

    /// A call has left a replica, perhaps the last one.
    pub(super) fn may_be_drained(&mut self, now: Time, replica: ReplicaId) {
        let Phase::Draining(ready) = self.faults.phase(replica) else { return };
        if self.router.calls(replica) > 0 {
            return;
        }
        self.replace(now, replica);
        match ready {
            Some(ready) => self.start_replica(now + ready, replica),
            None => {
                self.faults.change(replica, Phase::Down);
                self.replica_gone(now, replica);
                self.roll_on_after(now, replica);
            }
        }
    }

    /// A replica has had its time to drain.
    pub(super) fn drain_ends(&mut self, now: Time, replica: ReplicaId, change: u32) {
        let State { phase: Phase::Draining(ready), changes } = self.faults.states[replica.index()]
        else {
            return;
        };
        if changes == change {
            self.cut_off_calls(now, replica, ready);
        }
    }

    fn roll_on_after(&mut self, now: Time, replica: ReplicaId) {
        let at_it = |rolling: &Rolling| rolling.current == Some(replica);
        if let Some(place) = self.faults.rolling.iter().position(at_it) {
            let rolling = self.faults.rolling.remove(place);
            self.roll_on(now, rolling);
        }
    }

    /// The next replica that takes calls is updated; the update is over if there is none.
    fn roll_on(&mut self, now: Time, mut rolling: Rolling) {
        let all = rolling.until.min(self.faults.states.len() as u32);
        let next = (rolling.next..all).find(|&at| self.faults.phase(ReplicaId(at)) == Phase::Up);
        let Some(next) = next else { return };
        let replica = ReplicaId(next);
        (rolling.current, rolling.next) = (Some(replica), next + 1);
        self.faults.rolling.push(rolling);
        let change = self.drain(now, replica, Some(rolling.start), Became::Updated);
        if let Some(most) = rolling.drain {
            self.push(now + most, Event::DrainEnds { replica, change });
        }
    }
}
