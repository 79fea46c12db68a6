//! From the arrival of a request to its first attempt.

use super::admission::Verdict;
use super::cache::Key;
use super::call::{CallRef, Phase, Step};
use super::cooldown::Failure;
use super::effect::{Effect, Limited, Reason};
use super::routing::{self, Choice};
use super::worker::LoopTask;
use super::{Gateway, Timer};
use crate::config::gateway::CountPlace;
use crate::units::{DeploymentId, Span, Time, Tokens, WorkerId};

/// What a rejection by admission asks the client to wait.
const RETRY_AFTER: Span = Span::from_secs(1);

impl Gateway {
    /// A request meets the admission of its worker.
    pub(super) fn admit(
        &mut self,
        now: Time,
        call: CallRef,
        id: WorkerId,
        effects: &mut Vec<Effect>,
    ) {
        match self.worker(id).slots.arrive(call.id) {
            Verdict::Admitted => self.admitted(now, call),
            Verdict::Queued => {
                let wait = self.config.admission.map_or(Span::ZERO, |limits| limits.timeout);
                self.set_timer(call, now + wait, Timer::QueueTimeout(call));
            }
            Verdict::Rejected => self.reject(call, Reason::QueueFull, effects),
        }
    }

    pub(super) fn queue_timeout(&mut self, _: Time, call: CallRef, effects: &mut Vec<Effect>) {
        let Some(worker) = self.call(call).map(|call| call.worker) else { return };
        self.worker(worker).slots.leave_queue(call.id);
        self.reject(call, Reason::QueueTimeout, effects);
    }

    /// A request that never had a slot is turned away.
    fn reject(&mut self, call: CallRef, reason: Reason, effects: &mut Vec<Effect>) {
        let Some(found) = self.calls[call.id.index()].take() else { return };
        self.metrics.counts.rejected += 1;
        let retry_after = Some(RETRY_AFTER);
        effects.push(Effect::Refused { call: call.id, status: 503, retry_after, reason });
        self.stop_if_drained(self.workers[found.worker.index()].pod, effects);
    }

    /// A request has a slot.
    pub(super) fn admitted(&mut self, now: Time, call: CallRef) {
        self.cancel_timer(call);
        let work = self.config.request_cpu;
        let Some(found) = self.call(call) else { return };
        found.phase = Phase::Working;
        let (waited, worker) = (now.saturating_since(found.arrived), found.worker);
        self.metrics.counts.admitted += 1;
        if waited.0 > 0 {
            self.metrics.counts.queued += 1;
            self.metrics.queue_wait.add(waited.0);
        }
        let task = LoopTask { call, work, then: Step::Auth, is_count: false };
        self.on_loop(now, worker, task);
    }

    /// A call goes on.
    pub(super) fn step(&mut self, now: Time, call: CallRef, step: Step, effects: &mut Vec<Effect>) {
        let Some(found) = self.call(call) else { return };
        if found.is_gone {
            self.forget(now, call, effects);
            return;
        }
        found.phase = Phase::Working;
        match step {
            Step::Auth => self.look_up_key(now, call, effects),
            Step::Count => self.count(now, call, effects),
            Step::Limit => self.ask_limits(now, call, effects),
            Step::Route => self.route(now, call, effects),
            Step::Pin => self.ask_pin(now, call, effects),
            Step::Choose(shared) => self.choose(now, call, shared, effects),
        }
    }

    fn look_up_key(&mut self, now: Time, call: CallRef, effects: &mut Vec<Effect>) {
        let has_database = self.database.is_some();
        let Some(found) = self.call(call) else { return };
        let (worker, key) = (found.worker, found.spec.key);
        if !has_database {
            self.step(now, call, Step::Count, effects);
        } else if self.worker(worker).keys.knows(now, key) {
            self.metrics.counts.key_hits += 1;
            self.step(now, call, Step::Count, effects);
        } else {
            self.metrics.counts.key_queries += 1;
            self.query_key(now, call, worker);
        }
    }

    fn count(&mut self, now: Time, call: CallRef, effects: &mut Vec<Effect>) {
        let counting = self.config.counting;
        let Some(found) = self.call(call) else { return };
        let (worker, spec) = (found.worker, found.spec);
        let in_thread = match counting.place {
            CountPlace::Off => None,
            _ if !spec.is_counted => None,
            CountPlace::EventLoop => Some(false),
            CountPlace::Threads { inline_below, .. } => Some(spec.prompt >= inline_below),
        };
        let work = counting.cost.of(spec.prompt, spec.tools);
        let Some(in_thread) = in_thread else {
            self.step(now, call, Step::Limit, effects);
            return;
        };
        self.metrics.counts.token_counts += 1;
        if in_thread {
            self.in_thread(now, worker, call, work);
        } else {
            let task = LoopTask { call, work, then: Step::Limit, is_count: true };
            self.on_loop(now, worker, task);
        }
    }

    /// Limits are asked for in Redis, one request of a worker after another, or checked here.
    fn ask_limits(&mut self, now: Time, call: CallRef, effects: &mut Vec<Effect>) {
        let Some(found) = self.call(call) else { return };
        let (worker, limits) = (found.worker, found.spec.limits);
        let of_call: Vec<Limited> = limits.into_iter().flatten().collect();
        if of_call.is_empty() {
            self.step(now, call, Step::Route, effects);
            return;
        }
        let Some(outcome) = self.ask_redis(now, worker) else {
            self.check_limits(now, call, false, effects);
            return;
        };
        // Reserving tokens is a second round trip.
        let reserves = of_call.iter().any(|id| self.config.limits[id.limit as usize].tpm.is_some());
        let trips = if reserves && outcome.answered { 2 } else { 1 };
        let lock = &mut self.worker(worker).redis_lock;
        *lock = (*lock).max(now) + Span(outcome.takes.0 * trips);
        let at = *lock;
        self.set_timer(call, at, Timer::Limits(call, outcome.answered));
    }

    pub(super) fn check_limits(
        &mut self,
        now: Time,
        call: CallRef,
        shared: bool,
        effects: &mut Vec<Effect>,
    ) {
        let Some(found) = self.call(call) else { return };
        let (worker, spec) = (found.worker, found.spec);
        let of_call: Vec<Limited> = spec.limits.into_iter().flatten().collect();
        let counters = match shared {
            true => &mut self.shared_limits,
            false => &mut self.workers[worker.index()].limits,
        };
        match counters.take(now, &self.config.limits, &of_call, spec.prompt) {
            Ok(()) => {
                if let Some(call) = self.call(call) {
                    call.charged = Some((spec.prompt, shared));
                }
                self.step(now, call, Step::Route, effects);
            }
            Err(wait) => {
                self.metrics.counts.rate_limited += 1;
                self.bill(now, worker, 0, effects);
                self.refuse(now, call, 429, Some(wait), Reason::RateLimit, effects);
            }
        }
    }

    fn route(&mut self, now: Time, call: CallRef, effects: &mut Vec<Effect>) {
        let Some(found) = self.call(call) else { return };
        let (worker, prompt) = (found.worker, found.spec.prompt);
        if self.config.routing.strategy.counts_inline() {
            self.metrics.counts.token_counts += 1;
            let work = self.config.counting.cost.of(prompt, 0);
            let task = LoopTask { call, work, then: Step::Pin, is_count: true };
            self.on_loop(now, worker, task);
        } else {
            self.step(now, call, Step::Pin, effects);
        }
    }

    /// A pin that the worker does not hold itself is asked for in Redis.
    fn ask_pin(&mut self, now: Time, call: CallRef, effects: &mut Vec<Effect>) {
        let Some(found) = self.call(call) else { return };
        let (worker, group, session) = (found.worker, found.group, found.spec.session);
        let key = session.map(|session| Key::Pin { group, session });
        let asks = self.config.routing.session_affinity
            && key.is_some_and(|key| self.worker(worker).memory.cache.get(now, key).is_none());
        let outcome = if asks { self.ask_redis(now, worker) } else { None };
        match outcome {
            Some(outcome) => {
                let step = Step::Choose(outcome.answered);
                self.set_timer(call, now + outcome.takes, Timer::Step(call, step));
            }
            None => {
                let shared = self.shares(worker, now);
                self.step(now, call, Step::Choose(shared), effects);
            }
        }
    }

    /// Deployments of a group that are not left alone, as a worker knows.
    pub(super) fn healthy(&self, now: Time, worker: WorkerId, group: u32) -> Vec<DeploymentId> {
        let shared = self.shares(worker, now);
        let memory = &self.workers[worker.index()].memory;
        let is_healthy = |id: &DeploymentId| {
            !(memory.is_cooling(now, *id) || shared && self.shared.is_cooling(now, *id))
        };
        self.listed[group as usize].iter().copied().filter(is_healthy).collect()
    }

    fn choose(&mut self, now: Time, call: CallRef, shared: bool, effects: &mut Vec<Effect>) {
        let Some(found) = self.call(call) else { return };
        let (worker, group, spec) = (found.worker, found.group, found.spec);
        let healthy = self.healthy(now, worker, group);
        let pinned = self.pin_of(now, worker, group, spec.session, shared);
        let pinned = pinned.filter(|pin| healthy.contains(pin));
        let chosen = pinned.or_else(|| {
            let choice = Choice {
                now,
                deployments: &self.config.deployments,
                group,
                healthy: &healthy,
                prompt: spec.prompt,
            };
            let worker = &mut self.workers[worker.index()];
            let memory = if shared { &mut self.shared } else { &mut worker.memory };
            routing::choose(self.config.routing.strategy, memory, &choice, &mut worker.chance)
        });
        let Some(chosen) = chosen else {
            self.attempt_failed(now, call, Failure::NoDeployment, None, effects);
            return;
        };
        if self.config.routing.session_affinity
            && let Some(session) = spec.session
        {
            self.pin(now, worker, Key::Pin { group, session }, chosen, shared);
            let count = match pinned {
                Some(_) => &mut self.metrics.counts.pin_hits,
                None => &mut self.metrics.counts.pin_misses,
            };
            *count += 1;
        }
        self.send(now, call, chosen, pinned.is_some(), effects);
    }

    fn pin_of(
        &self,
        now: Time,
        worker: WorkerId,
        group: u32,
        session: Option<u64>,
        shared: bool,
    ) -> Option<DeploymentId> {
        let session = session.filter(|_| self.config.routing.session_affinity)?;
        let key = Key::Pin { group, session };
        let own = self.workers[worker.index()].memory.cache.get(now, key);
        let found = own.or_else(|| self.shared.cache.get(now, key).filter(|_| shared))?;
        u32::try_from(found).ok().map(DeploymentId)
    }

    /// Remembers a pin, or that it was used.
    fn pin(
        &mut self,
        now: Time,
        worker: WorkerId,
        key: Key,
        deployment: DeploymentId,
        shared: bool,
    ) {
        let ttl = self.config.routing.affinity_ttl;
        let value = i64::from(deployment.0);
        self.worker(worker).memory.cache.renew(now, key, value, ttl);
        if shared {
            self.shared.cache.renew(now, key, value, ttl);
        }
    }

    fn send(
        &mut self,
        now: Time,
        call: CallRef,
        deployment: DeploymentId,
        pinned: bool,
        effects: &mut Vec<Effect>,
    ) {
        let Some(found) = self.call(call) else { return };
        found.phase = Phase::Sent(deployment);
        found.attempts += 1;
        (found.sent, found.first_token) = (now, None);
        let (attempt, worker, group) = (found.attempts, found.worker, found.group);
        if attempt == 1 {
            let overhead = found.overhead(now);
            self.metrics.overhead.add(overhead.0);
        }
        self.metrics.counts.attempts += 1;
        let strategy = self.config.routing.strategy;
        routing::started(strategy, self.memory(now, worker), now, group, deployment);
        let silence = now + self.config.request_timeout;
        self.set_timer(call, silence, Timer::Silence(call));
        let replica = self.config.deployments[deployment.index()].replica;
        effects.push(Effect::Send { call: call.id, attempt, deployment, replica, pinned });
    }

    /// Where a worker's strategy counts.
    pub(super) fn memory(&mut self, now: Time, worker: WorkerId) -> &mut routing::Memory {
        if self.shares(worker, now) {
            &mut self.shared
        } else {
            &mut self.workers[worker.index()].memory
        }
    }

    /// What the limits of a call were charged with is made good by what it took.
    pub(super) fn settle_limits(&mut self, call: CallRef, used: Tokens) {
        let Some(found) = self.call(call) else { return };
        let Some((expected, shared)) = found.charged.take() else { return };
        let (worker, limits) = (found.worker, found.spec.limits);
        let of_call: Vec<Limited> = limits.into_iter().flatten().collect();
        let counters = match shared {
            true => &mut self.shared_limits,
            false => &mut self.workers[worker.index()].limits,
        };
        counters.settle(&of_call, expected, used);
    }
}
