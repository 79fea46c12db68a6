//! The parts together: a small world plays clients and replicas.

mod capacity;
mod failures;
mod pins;
mod property;
mod stores;

use std::collections::BTreeMap;

use super::cooldown::Failure;
use super::effect::{CallSpec, Effect, Reason, Usage};
use super::*;
use crate::config::gateway::{Deployment, Group};
use crate::units::{ReplicaId, Tokens};

/// So many replicas in one group, on a proxy that takes no CPU time itself.
pub(super) fn config(replicas: u32) -> GatewayConfig {
    GatewayConfig {
        request_cpu: Span::ZERO,
        groups: vec![Group { name: "coder".to_owned(), ..Group::default() }],
        deployments: (0..replicas).map(|id| Deployment::new(0, ReplicaId(id))).collect(),
        ..GatewayConfig::default()
    }
}

pub(super) fn call(session: u64) -> CallSpec {
    CallSpec {
        session: Some(session),
        key: 0,
        limits: [None, None],
        group: 0,
        prompt: Tokens(100_000),
        tools: 0,
        is_counted: true,
        streams: false,
    }
}

pub(super) fn secs(secs: f64) -> Time {
    Time::ZERO + Span::from_secs_f64(secs)
}

/// What a replica does with an attempt.
#[derive(Clone, Copy, Debug)]
pub(super) enum Answer {
    /// Answers after so long.
    In(Span),
    /// Fails after so long.
    Fails(Span, Failure),
    /// Is never heard of again.
    Hangs,
}

#[derive(Clone, Copy, Debug)]
enum Event {
    Arrive(CallSpec),
    Upstream(CallId, u64, Answer),
}

/// The world.
pub(super) struct Rig {
    pub(super) gateway: Gateway,
    /// How a replica answers an attempt, by its number among all attempts.
    answer: Box<dyn FnMut(ReplicaId, u64) -> Answer>,
    events: BTreeMap<(Time, u64), Event>,
    count: u64,
    calls: u32,
    /// The running attempt of each call.
    running: BTreeMap<CallId, u64>,
    sessions: BTreeMap<CallId, u64>,
    /// Every effect, when it came.
    pub(super) log: Vec<(Time, Effect)>,
    /// The session and replica of every attempt.
    pub(super) sent: Vec<(u64, ReplicaId)>,
}

impl Rig {
    pub(super) fn new(
        config: GatewayConfig,
        answer: impl FnMut(ReplicaId, u64) -> Answer + 'static,
    ) -> Self {
        Self {
            gateway: Gateway::new(config, 1),
            answer: Box::new(answer),
            events: BTreeMap::new(),
            count: 0,
            calls: 0,
            running: BTreeMap::new(),
            sessions: BTreeMap::new(),
            log: Vec::new(),
            sent: Vec::new(),
        }
    }

    fn push(&mut self, at: Time, event: Event) {
        self.count += 1;
        self.events.insert((at, self.count), event);
    }

    pub(super) fn arrive(&mut self, at: Time, spec: CallSpec) {
        self.push(at, Event::Arrive(spec));
    }

    /// Plays on up to `until`.
    pub(super) fn play(&mut self, until: Time) {
        loop {
            let own = self.events.keys().next().map(|(at, _)| *at);
            let due = self.gateway.due();
            let Some(now) = own.into_iter().chain(due).min().filter(|at| *at <= until) else {
                return;
            };
            let mut effects = Vec::new();
            if due == Some(now) {
                self.gateway.advance(now, &mut effects);
            } else if let Some((_, event)) = self.events.pop_first() {
                self.handle(now, event, &mut effects);
            }
            self.follow(now, effects);
        }
    }

    fn handle(&mut self, now: Time, event: Event, effects: &mut Vec<Effect>) {
        match event {
            Event::Arrive(spec) => {
                let id = CallId(self.calls);
                self.calls += 1;
                self.sessions.insert(id, spec.session.unwrap_or(0));
                self.gateway.arrive(now, id, spec, effects);
            }
            Event::Upstream(id, attempt, answer) if self.running.get(&id) == Some(&attempt) => {
                self.running.remove(&id);
                match answer {
                    Answer::In(_) => {
                        let usage =
                            Usage { prompt: Tokens(9), output: Tokens(1), nano_cost: 1_000_000 };
                        self.gateway.upstream_ended(now, id, usage, effects);
                    }
                    Answer::Fails(_, failure) => {
                        self.gateway.upstream_failed(now, id, failure, None, effects);
                    }
                    Answer::Hangs => {}
                }
            }
            Event::Upstream(..) => {}
        }
    }

    /// Handles what came of something that was done to the gateway by hand.
    pub(super) fn follow(&mut self, now: Time, effects: Vec<Effect>) {
        for effect in effects {
            self.log.push((now, effect));
            match effect {
                Effect::Send { call, replica, .. } => {
                    let attempt = self.sent.len() as u64;
                    self.sent.push((self.sessions[&call], replica));
                    self.running.insert(call, attempt);
                    let answer = (self.answer)(replica, attempt);
                    if let Answer::In(after) | Answer::Fails(after, _) = answer {
                        self.push(now + after, Event::Upstream(call, attempt, answer));
                    }
                }
                Effect::Abandon { call, .. } => {
                    assert!(self.running.remove(&call).is_some(), "{call:?} was not running");
                }
                _ => {}
            }
        }
    }

    /// Requests refused for this reason.
    pub(super) fn refused(&self, why: Reason) -> usize {
        let is_so =
            |effect: &Effect| matches!(effect, Effect::Refused { reason, .. } if *reason == why);
        self.log.iter().filter(|(_, effect)| is_so(effect)).count()
    }

    pub(super) fn answered(&self) -> usize {
        let is_so = |(_, effect): &&(Time, Effect)| matches!(effect, Effect::Answered { .. });
        self.log.iter().filter(is_so).count()
    }
}

/// Answers every attempt after so many seconds.
pub(super) fn after(secs: f64) -> impl FnMut(ReplicaId, u64) -> Answer {
    move |_, _| Answer::In(Span::from_secs_f64(secs))
}
