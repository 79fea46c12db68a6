//! The gateway in front of the fleet: what it is told, and what follows.
//!
//! A call goes to the gateway when its client sends it, under the number of its request, and the
//! gateway says to which replica, again and again if it must. Replicas are connections that it
//! holds: one that is lost or drained refuses them, and the gateway, which does not know, counts
//! that as a failed connection. A client that is refused asks again, by the rule of its SDK and of
//! the agent above it, as a new request of the gateway. One whose stream does not begin in time
//! hangs up and does the same, once the gateway has noticed.

use std::collections::BTreeSet;

use super::Setup;
use super::gate_use::Counted;
use super::observer::Observer;
use super::world::{Event, InFlight, Stage, World};
use crate::config::gateway::clients::Clients;
use crate::config::gateway::{Deployment, FrontEnd, Group};
use crate::engine::Engine;
use crate::gateway::Gateway;
use crate::gateway::client::SdkRetries;
use crate::gateway::cooldown::Failure;
use crate::gateway::effect::{CallSpec, Effect, Limited, Usage};
use crate::gateway::metrics::GatewayCounts;
use crate::observe::members::MemberWatch;
use crate::observe::records::CallOutcome;
use crate::observe::replica::Window;
use crate::trace::record::Name;
use crate::units::{CallId, ReplicaId, RequestId, Span, Time, Tokens};

/// What the gateway's world keeps of it.
pub(super) struct Gate<'a> {
    pub(super) gateway: Gateway,
    clients: &'a Clients,
    /// The next instant at which the queue lets it do something by itself.
    wakes: Option<Time>,
    /// Requests that are with it.
    pub(super) open: u64,
    /// Requests of clients so far, by which their patience tells one from another.
    asks: u32,
    /// Served models that no group is called as, by number.
    pub(super) without_group: BTreeSet<u32>,
    /// What it does not see itself.
    pub(super) seen: GatewayCounts,
    /// What had been counted when the window began.
    pub(super) before: Option<Counted>,
    pub(super) window: Window,
    /// Pods, those included that start and end.
    pub(super) pods: MemberWatch,
    /// Pods that have cores.
    pub(super) running: MemberWatch,
    /// Pods that start.
    pub(super) starting: u32,
    /// Room for what follows from one thing that it is told.
    effects: Vec<Effect>,
}

impl<'a> Gate<'a> {
    /// Every replica is in the model list: one without a deployment gets such as the first one has.
    /// Deployments of replicas that there are not, or not yet, are left out of it; so are `absent`
    /// ones.
    pub(super) fn new(
        front: &'a FrontEnd,
        setup: &Setup,
        absent: impl Iterator<Item = ReplicaId>,
        window: Window,
    ) -> Self {
        let pods = MemberWatch::new(window, front.gateway.pods);
        let mut config = front.gateway.clone();
        if config.groups.is_empty() {
            config.groups.push(Group::default());
        }
        if config.deployments.is_empty() {
            config.deployments.push(Deployment::new(0, ReplicaId(0)));
        }
        let named: Vec<ReplicaId> = config.deployments.iter().map(|one| one.replica).collect();
        let mut gateway = Gateway::new(config, setup.seed);
        named.into_iter().filter(|one| one.0 >= setup.replicas).for_each(|one| gateway.unlist(one));
        (0..setup.replicas).for_each(|replica| gateway.list(ReplicaId(replica)));
        absent.for_each(|replica| gateway.unlist(replica));
        Self {
            gateway,
            clients: &front.clients,
            wakes: None,
            open: 0,
            asks: 0,
            without_group: BTreeSet::new(),
            seen: GatewayCounts::default(),
            before: None,
            window,
            pods,
            running: pods,
            starting: 0,
            effects: Vec::new(),
        }
    }

    /// Remembers what was counted when the window began. Nothing has changed since the last time
    /// that it was told something.
    fn note_window(&mut self, now: Time) {
        if self.before.is_none() && now >= self.window.from {
            self.before = Some(Counted::of(self, self.window.from));
        }
    }

    /// The group that a call of this served model asks for: the first one if none is called so.
    fn group(&mut self, number: u32, model: Option<&Name>) -> u32 {
        let Some(model) = model else { return 0 };
        let said = self.clients.groups.get(model).copied();
        let named = || {
            let groups = &self.gateway.config().groups;
            groups.iter().position(|group| group.name == **model).map(|group| group as u32)
        };
        said.or_else(named).unwrap_or_else(|| {
            self.without_group.insert(number);
            0
        })
    }

    /// The limits of a tenant, which is a key: each has its own counters.
    fn limits(&self, number: u32, tenant: Option<&Name>) -> [Option<Limited>; 2] {
        let said = tenant.and_then(|tenant| self.clients.limits.get(tenant));
        let limits = said.copied().unwrap_or(self.clients.other_limits);
        limits.map(|limit| limit.map(|limit| Limited { limit, holder: u64::from(number) }))
    }

    /// The pods have become more or fewer.
    pub(super) fn count_pods(&mut self, now: Time) {
        let (up, draining) = self.gateway.pods();
        self.pods.set(now, up + draining + self.starting, up);
        self.running.set(now, up + draining, up);
    }
}

impl<E: Engine, O: Observer> World<'_, E, O> {
    /// Tells the gateway something, and does what follows.
    pub(super) fn tell_gateway(
        &mut self,
        now: Time,
        tell: impl FnOnce(&mut Gateway, &mut Vec<Effect>),
    ) {
        let Some(gate) = &mut self.gate else { return };
        gate.note_window(now);
        let mut effects = std::mem::take(&mut gate.effects);
        tell(&mut gate.gateway, &mut effects);
        for effect in effects.drain(..) {
            self.follow(now, effect);
        }
        let Some(gate) = &mut self.gate else { return };
        gate.effects = effects;
        if let Some(due) = gate.gateway.due().filter(|due| gate.wakes.is_none_or(|at| *due < at)) {
            gate.wakes = Some(due);
            self.push(due, Event::Gateway);
        }
    }

    /// The gateway may do something by itself, unless an earlier event has let it do that.
    pub(super) fn gateway_wakes(&mut self, now: Time) {
        if let Some(gate) = &mut self.gate
            && gate.wakes == Some(now)
        {
            gate.wakes = None;
            self.tell_gateway(now, |gateway, effects| gateway.advance(now, effects));
        }
    }

    /// A client sends a call to the gateway.
    pub(super) fn arrive_at_gateway(&mut self, now: Time, request: RequestId) {
        let InFlight { record, play, ask, .. } = &mut self.in_flight[request.index()];
        if record.attempts == 0 {
            record.asked = now;
        }
        let state = &self.plays[*play as usize];
        let plan = state.plan.class(record.call);
        let names = &self.arrivals.names;
        let Some(gate) = &mut self.gate else { return };
        let spec = CallSpec {
            session: Some(u64::from(state.number)),
            key: u64::from(plan.tenant),
            limits: gate.limits(plan.tenant, names.tenants.get(plan.tenant as usize)),
            group: gate.group(plan.model, names.models.get(plan.model as usize)),
            prompt: record.prompt,
            tools: gate.clients.tools,
            is_counted: gate.clients.is_counted,
            streams: gate.clients.streams,
        };
        gate.open += 1;
        let patience = gate.clients.timeout.filter(|_| spec.streams);
        if let Some(patience) = patience {
            gate.asks = gate.asks.checked_add(1).unwrap_or(1);
            *ask = gate.asks;
            let ask = gate.asks;
            self.push(now + patience, Event::HangUp { request, ask });
        }
        self.tell_gateway(now, |gateway, effects| {
            gateway.arrive(now, CallId(request.0), spec, effects);
        });
    }

    /// A client has waited long enough for a sign of life, if it has had none.
    pub(super) fn client_hangs_up(&mut self, now: Time, request: RequestId, ask: u32) {
        let in_flight = &mut self.in_flight[request.index()];
        if in_flight.ask != ask {
            return;
        }
        in_flight.ask = 0;
        if let Some(gate) = &mut self.gate {
            gate.note_window(now);
            gate.seen.hung_up += 1;
        }
        self.tell_gateway(now, |gateway, effects| {
            gateway.client_gone(now, CallId(request.0), effects);
        });
    }

    fn follow(&mut self, now: Time, effect: Effect) {
        match effect {
            Effect::Send { call, attempt, replica, .. } => {
                self.sent_by_gateway(now, RequestId(call.0), replica, attempt == 1);
            }
            Effect::Abandon { call, .. } => self.abandon(now, RequestId(call.0)),
            Effect::Answered { call } => {
                self.one_less_open();
                self.push(now, Event::Ended { request: RequestId(call.0) });
            }
            Effect::Refused { call, status, retry_after, .. } => {
                self.one_less_open();
                self.refused_by_gateway(now, RequestId(call.0), status, retry_after);
            }
            // Its client hung up, for want of an answer in time.
            Effect::Forgotten { call } => {
                self.one_less_open();
                let status = Failure::Timeout.status();
                self.refused_by_gateway(now, RequestId(call.0), status, None);
            }
            // They are among what the gateway counts.
            Effect::RowsLost { .. } => {}
            Effect::PodStopped { .. } => {
                if let Some(gate) = &mut self.gate {
                    gate.count_pods(now);
                }
            }
        }
    }

    fn one_less_open(&mut self) {
        if let Some(gate) = &mut self.gate {
            gate.open -= 1;
        }
    }

    fn sent_by_gateway(&mut self, now: Time, request: RequestId, replica: ReplicaId, first: bool) {
        let InFlight { record, play, .. } = &mut self.in_flight[request.index()];
        let state = &mut self.plays[*play as usize];
        if let (true, Some(gate), Some(before)) = (first, &mut self.gate, state.pin) {
            let stays = before == replica;
            gate.seen.stayed += u64::from(stays);
            gate.seen.moved += u64::from(!stays);
        }
        state.pin = Some(replica);
        record.note_attempt(now);
        if !self.faults.is_up(replica) {
            self.attempt_failed(now, request, Failure::Connection);
            return;
        }
        record.replica = Some(replica);
        let prompt = record.prompt;
        self.in_flight[request.index()].sent = self.router.chosen(now, replica, prompt);
        self.enter_server(now, request);
    }

    /// An attempt has failed: the gateway hears of it.
    pub(super) fn attempt_failed(&mut self, now: Time, request: RequestId, failure: Failure) {
        self.tell_gateway(now, |gateway, effects| {
            gateway.upstream_failed(now, CallId(request.0), failure, None, effects);
        });
    }

    /// The API server of a replica turns an attempt away.
    pub(super) fn refuse_attempt(&mut self, now: Time, request: RequestId, failure: Failure) {
        self.leave_replica(now, request);
        let in_flight = &mut self.in_flight[request.index()];
        in_flight.stage = Stage::Client;
        in_flight.record.replica = None;
        self.attempt_failed(now, request, failure);
    }

    /// A replica's API server has the whole answer out.
    pub(super) fn answered(&mut self, now: Time, request: RequestId, attempt: u32) {
        let in_flight = &self.in_flight[request.index()];
        if in_flight.attempt != attempt {
            return;
        }
        let (prompt, output) = (in_flight.record.prompt, in_flight.record.output);
        let Some(gate) = &self.gate else { return };
        let price = gate.gateway.price_of(CallId(request.0)).unwrap_or(gate.clients.price);
        let usage = Usage { prompt, output, nano_cost: price.of(prompt, output) };
        self.tell_gateway(now, |gateway, effects| {
            gateway.upstream_ended(now, CallId(request.0), usage, effects);
        });
    }

    /// The gateway hangs up on the replica of a call.
    fn abandon(&mut self, now: Time, request: RequestId) {
        let attempt = self.next_attempt();
        let in_flight = &mut self.in_flight[request.index()];
        let stage = std::mem::replace(&mut in_flight.stage, Stage::Client);
        // What is under way for the attempt that is over comes to nothing.
        in_flight.attempt = attempt;
        let InFlight { record, burst, .. } = in_flight;
        let Some(replica) = record.replica else { return };
        if stage.is_in_engine() {
            let state = &mut self.replicas[replica.index()];
            if stage != Stage::Streaming {
                state.server.first_token(record.prompt);
            }
            state.server.finished();
            if stage == Stage::Waiting {
                self.burst.scheduled(now, *burst, now - record.queued);
            }
            state.engine.abort(now, request);
            self.refresh(replica);
        }
        // It has no answer that a router could learn from.
        self.in_flight[request.index()].record.output = Tokens::ZERO;
        self.leave_replica(now, request);
        self.in_flight[request.index()].record.replica = None;
    }

    /// The client has an error: it asks again later, or gives up.
    fn refused_by_gateway(
        &mut self,
        now: Time,
        request: RequestId,
        status: u16,
        retry_after: Option<Span>,
    ) {
        let in_flight = &mut self.in_flight[request.index()];
        (in_flight.record.refusals, in_flight.ask) = (in_flight.record.refusals + 1, 0);
        let wait = self.wait_of_client(request, status, retry_after);
        let Some(gate) = &mut self.gate else { return };
        if let Some(wait) = wait {
            gate.seen.asked_again += 1;
            self.push(now + wait, Event::Send { request });
            return;
        }
        gate.seen.given_up += 1;
        let record = &mut self.in_flight[request.index()].record;
        // A prompt that is too long stays rejected for that.
        if !(record.outcome == CallOutcome::Rejected && status == 400) {
            record.outcome = CallOutcome::Refused;
        }
        self.push(now, Event::Ended { request });
    }

    /// How long a client waits until it asks again; `None` if its SDK gives up and the agent too.
    fn wait_of_client(
        &self,
        request: RequestId,
        status: u16,
        retry_after: Option<Span>,
    ) -> Option<Span> {
        let clients = self.gate.as_ref()?.clients;
        let record = &self.in_flight[request.index()].record;
        let client = &self.setup.client;
        let sdk = SdkRetries {
            max_retries: client.max_retries,
            base: client.retry_base,
            longest: client.retry_max,
            honours_retry_after: clients.honour_retry_after,
        };
        let of_sdk = client.max_retries.saturating_add(1);
        let (series, within) = ((record.refusals - 1) / of_sdk, (record.refusals - 1) % of_sdk);
        let call = u64::from(record.play) << 24 | u64::from(record.call);
        let call = call ^ u64::from(series).rotate_right(8);
        let again = sdk.wait(status, within + 1, retry_after, self.setup.seed, call);
        let is_worth_it = SdkRetries::covers(status) && series < clients.agent_retries;
        again.or_else(|| is_worth_it.then_some(clients.agent_wait))
    }
}
