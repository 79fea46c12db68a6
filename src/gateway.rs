//! The gateway: LiteLLM workers in front of the replicas, with what they share.
//!
//! A [`Gateway`] is told what happens and answers with [`Effect`]s. It does no input or output and
//! never sees the event queue. It keeps its own time-outs, polls and CPU: the world asks when it
//! next does something by itself ([`Gateway::due`]) and lets it then ([`Gateway::advance`]).
//!
//! # The way of a request
//!
//! 1. [`Gateway::arrive`]: the balancer picks a worker. Admission gives a slot, a place in the
//!    queue (for a second), or `503` with `retry-after: 1`. The slot is held until the end.
//! 2. The event loop of the worker spends `request_cpu` on it. All loops and counting threads of a
//!    pod share its cores.
//! 3. The key is known, or one query to the database tells it, through the worker's pool and
//!    PgBouncer.
//! 4. Where prompts are counted: on the loop, or in one of a few threads.
//! 5. Limits of key and team, from the worker's own counters or Redis: `429` with the time to the
//!    end of the minute.
//! 6. The router: strategies that go by tokens count the messages on the loop; then the session's
//!    pin, if it is healthy, else the strategy among deployments that are not in cooldown.
//!    [`Effect::Send`].
//! 7. The world reports [`Gateway::first_token`] of streams, and the end of the attempt:
//!    [`Gateway::upstream_ended`] or [`Gateway::upstream_failed`]. A failure may be tried again at
//!    once, after a wait, or in another group; each try is another `Send`. An attempt that gives
//!    no sign of life for `request_timeout` is given up: [`Effect::Abandon`].
//! 8. At last exactly one of [`Effect::Answered`], [`Effect::Refused`], [`Effect::Forgotten`]
//!    (after [`Gateway::client_gone`]); then the call's number may be used again.
//!
//! # How the world joins it
//!
//! One event of the world's queue, "the gateway is due", is enough: after each call of a method
//! here the world handles the effects and puts that event to [`Gateway::due`] if it is earlier
//! than the one it has. Effects are given at the instant of the call that returned them. A client
//! that asks again after `Refused` (see [`client`]) arrives as a new call. Pods come and go by
//! [`Gateway::add_pod`], [`Gateway::drain_pod`] and [`Gateway::kill_pod`]; replicas come into the
//! model list and go out of it by [`Gateway::list`] and [`Gateway::unlist`]; faults of the stores
//! by [`Gateway::set_redis`] and [`Gateway::slow_database`].
//!
//! ```
//! use tonnage::config::gateway::{Deployment, GatewayConfig, Group};
//! use tonnage::gateway::effect::{CallSpec, Effect, Usage};
//! use tonnage::gateway::Gateway;
//! use tonnage::units::{CallId, ReplicaId, Time, Tokens};
//!
//! let config = GatewayConfig {
//!     groups: vec![Group { name: "coder".to_owned(), ..Group::default() }],
//!     deployments: vec![Deployment::new(0, ReplicaId(0))],
//!     ..GatewayConfig::default()
//! };
//! let (mut gateway, mut effects) = (Gateway::new(config, 1), Vec::new());
//! let call = CallSpec {
//!     session: Some(1), key: 0, limits: [None, None], group: 0, prompt: Tokens(50_000), tools: 20,
//!     is_counted: false, streams: true,
//! };
//! gateway.arrive(Time::ZERO, CallId(0), call, &mut effects);
//! let sent = gateway.due().unwrap();
//! gateway.advance(sent, &mut effects);
//! assert_eq!(sent, Time(15_000_000), "15 ms of the event loop");
//! assert!(matches!(effects.pop(), Some(Effect::Send { replica: ReplicaId(0), .. })));
//! gateway.upstream_ended(Time(9_000_000_000), CallId(0), Usage::default(), &mut effects);
//! assert_eq!(effects, [Effect::Answered { call: CallId(0) }]);
//! ```

mod admission;
mod answer;
pub mod breaker;
pub mod cache;
mod call;
pub mod client;
pub mod cooldown;
pub mod cores;
mod database;
mod deployments;
pub mod effect;
mod flow;
mod limits;
pub mod metrics;
mod pods;
mod retry;
mod routing;
pub mod spend;
mod stores;
mod timers;
mod work;
mod worker;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use breaker::Health;
use call::{Call, CallRef, Phase, Step};
use cooldown::Failure;
use database::{Connections, Query};
use effect::{CallSpec, Effect};
use limits::LimitCounters;
use metrics::GatewayMetrics;
use routing::Memory;
use timers::{TimerId, Timers};
use worker::{Pod, Worker};

use crate::config::gateway::GatewayConfig;
use crate::rng::{Purpose, Stream};
use crate::units::{CallId, DeploymentId, Span, Time, WorkerId};

/// What the gateway does by itself.
#[derive(Clone, Copy, Debug)]
enum Timer {
    /// A request has waited long enough for a slot.
    QueueTimeout(CallRef),
    /// Something may be done on the cores of a pod.
    Cpu(usize),
    /// Redis, or another try, lets a call go on.
    Step(CallRef, Step),
    /// The limits of a call are known, from Redis or not.
    Limits(CallRef, bool),
    /// An attempt has given no sign of life for too long.
    Silence(CallRef),
    /// A query is through.
    QueryDone(u64),
    /// A query has waited long enough for a connection of its pool.
    PoolTimeout(u64),
    /// The server refused a query's connection.
    ConnectionRefused(u64),
    /// The monitor of a spend queue comes by.
    SpendPoll(WorkerId),
    /// The job that writes spend rows comes by.
    SpendJob(WorkerId),
}

/// All workers of the gateway and what they share.
#[derive(Clone, Debug)]
pub struct Gateway {
    config: GatewayConfig,
    seed: u64,
    pods: Vec<Pod>,
    workers: Vec<Worker>,
    calls: Vec<Option<Call>>,
    serials: u64,
    timers: Timers<Timer>,
    /// Deployments of each group that are in the list.
    listed: Vec<Vec<DeploymentId>>,
    /// What Redis holds.
    shared: Memory,
    shared_limits: LimitCounters,
    redis: Health,
    database: Option<Connections>,
    queries: BTreeMap<u64, (Query, Option<TimerId>)>,
    balance: Stream,
    next_worker: usize,
    metrics: GatewayMetrics,
}

impl Gateway {
    /// An idle gateway with all its pods up, at the start of time.
    ///
    /// # Panics
    /// If the settings name no core for a pod, or a group or replica that does not exist: whoever
    /// read them has checked that.
    #[must_use]
    pub fn new(config: GatewayConfig, seed: u64) -> Self {
        let mut listed = vec![Vec::new(); config.groups.len()];
        for (index, deployment) in config.deployments.iter().enumerate() {
            listed[deployment.group as usize].push(DeploymentId::from_index(index));
        }
        let mut gateway = Self {
            seed,
            pods: Vec::new(),
            workers: Vec::new(),
            calls: Vec::new(),
            serials: 0,
            timers: Timers::default(),
            listed,
            shared: Memory::new(None),
            shared_limits: LimitCounters::default(),
            redis: Health::Up,
            database: config.database.map(Connections::new),
            queries: BTreeMap::new(),
            balance: Stream::new(seed, Purpose::LoadBalancer, 0),
            next_worker: 0,
            metrics: GatewayMetrics::default(),
            config,
        };
        for _ in 0..gateway.config.pods {
            gateway.add_pod(Time::ZERO);
        }
        gateway
    }

    /// The settings.
    #[must_use]
    pub fn config(&self) -> &GatewayConfig {
        &self.config
    }

    /// What it has counted so far.
    #[must_use]
    pub fn metrics(&self) -> &GatewayMetrics {
        &self.metrics
    }

    /// When it next does something by itself; `None` if nothing until it is told something.
    #[must_use]
    pub fn due(&self) -> Option<Time> {
        self.timers.next()
    }

    /// Does what is due by `now`, appending what follows to `effects`.
    pub fn advance(&mut self, now: Time, effects: &mut Vec<Effect>) {
        while let Some(timer) = self.timers.pop(now) {
            self.run(now, timer, effects);
        }
    }

    fn run(&mut self, now: Time, timer: Timer, effects: &mut Vec<Effect>) {
        match timer {
            Timer::QueueTimeout(call) => self.queue_timeout(now, call, effects),
            Timer::Cpu(pod) => self.run_cores(now, pod, effects),
            Timer::Step(call, step) => {
                self.timer_done(call);
                self.step(now, call, step, effects);
            }
            Timer::Limits(call, answered) => {
                self.timer_done(call);
                self.check_limits(now, call, answered, effects);
            }
            Timer::Silence(call) => {
                self.timer_done(call);
                self.silence(now, call, effects);
            }
            Timer::QueryDone(id) => self.query_done(now, id, effects),
            Timer::PoolTimeout(id) => self.pool_timeout(now, id, effects),
            Timer::ConnectionRefused(id) => self.no_connection(now, id, effects),
            Timer::SpendPoll(worker) => self.spend_poll(now, worker, effects),
            Timer::SpendJob(worker) => self.spend_job(now, worker, effects),
        }
    }

    /// The call, if it is not over yet.
    fn call(&mut self, call: CallRef) -> Option<&mut Call> {
        let slot = self.calls.get_mut(call.id.index())?.as_mut();
        slot.filter(|found| found.serial == call.serial)
    }

    /// The call that has this number now.
    fn numbered(&self, id: CallId) -> Option<CallRef> {
        let call = self.calls.get(id.index())?.as_ref()?;
        Some(CallRef { id, serial: call.serial })
    }

    fn worker(&mut self, id: WorkerId) -> &mut Worker {
        &mut self.workers[id.index()]
    }

    /// Forgets the timer of a call that has gone off.
    fn timer_done(&mut self, call: CallRef) {
        if let Some(call) = self.call(call) {
            call.timer = None;
        }
    }

    /// Sets the one timer of a call.
    fn set_timer(&mut self, call: CallRef, at: Time, timer: Timer) {
        let id = self.timers.set(at, timer);
        let old = self.call(call).and_then(|call| call.timer.replace(id));
        if let Some(old) = old {
            self.timers.cancel(old);
        }
    }

    fn cancel_timer(&mut self, call: CallRef) {
        let timer = self.call(call).and_then(|call| call.timer.take());
        if let Some(timer) = timer {
            self.timers.cancel(timer);
        }
    }

    /// Whether Redis answers this worker, as far as it can tell without asking.
    fn shares(&self, worker: WorkerId, now: Time) -> bool {
        self.config.redis.is_some()
            && self.redis == Health::Up
            && !self.workers[worker.index()].breaker.is_open(now)
    }

    /// A request arrives at the gateway under a number that no other call has now.
    ///
    /// # Panics
    /// If another call has the number.
    pub fn arrive(&mut self, now: Time, id: CallId, spec: CallSpec, effects: &mut Vec<Effect>) {
        self.metrics.counts.offered += 1;
        let Some(worker) = self.pick_worker(spec.session) else {
            self.metrics.counts.no_worker += 1;
            let reason = effect::Reason::NoWorker;
            effects.push(Effect::Refused { call: id, status: 503, retry_after: None, reason });
            return;
        };
        self.serials += 1;
        let call = CallRef { id, serial: self.serials };
        if self.calls.len() <= id.index() {
            self.calls.resize_with(id.index() + 1, || None);
        }
        let slot = &mut self.calls[id.index()];
        assert!(slot.is_none(), "{id:?} is still with the gateway");
        *slot = Some(Call::new(call.serial, spec, worker, now));
        self.admit(now, call, worker, effects);
    }

    /// A replica's attempt has failed. Its number must be one that was sent and not ended since.
    pub fn upstream_failed(
        &mut self,
        now: Time,
        id: CallId,
        failure: Failure,
        retry_after: Option<Span>,
        effects: &mut Vec<Effect>,
    ) {
        if let Some(call) = self.numbered(id) {
            self.attempt_failed(now, call, failure, retry_after, effects);
        }
    }

    /// The client of a call has hung up. Nothing is answered to it any more.
    ///
    /// A stream's replica is hung up on at once. Other answers are waited for, as LiteLLM does
    /// unless told otherwise, and hold their slot meanwhile.
    pub fn client_gone(&mut self, now: Time, id: CallId, effects: &mut Vec<Effect>) {
        let Some(reference) = self.numbered(id) else { return };
        let Some(call) = self.call(reference) else { return };
        call.is_gone = true;
        match call.phase {
            Phase::Queued | Phase::Pausing => self.forget(now, reference, effects),
            Phase::Sent(deployment) if call.spec.streams => {
                self.hang_up(now, reference, deployment, routing::Sample::None, effects);
                self.forget(now, reference, effects);
            }
            Phase::Sent(_) | Phase::Working => {}
        }
    }
}
