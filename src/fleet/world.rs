//! The state of a run, its queue, and the one place where events are told apart.

use std::sync::atomic::Ordering;

use super::admission::ApiServer;
use super::agenda::Agenda;
use super::content::Content;
use super::population::{Population, Start};
use super::router::Router;
use super::session::Play;
use super::workload::{SessionPlan, Workload};
use super::{Progress, Run, Setup};
use crate::engine::request::Effect;
use crate::engine::{Due, Engine};
use crate::observe::records::{CallRecord, CutOff, Records};
use crate::observe::replica::{ReplicaUse, Window};
use crate::queue::EventQueue;
use crate::trace::lineage::Path;
use crate::units::{Blocks, RequestId, Time, Tokens};

/// What happens.
#[derive(Clone, Copy, Debug)]
pub(super) enum Event {
    /// A session starts.
    Start(Start),
    /// A client dispatches a call.
    Dispatch { play: u32, call: u32 },
    /// A call reaches its engine's queue.
    Queue { request: RequestId },
    /// A client has the whole answer.
    Ended { request: RequestId },
}

/// A call between its dispatch and its end.
#[derive(Debug)]
pub(super) struct InFlight {
    pub(super) record: CallRecord,
    /// Its content as the engine knows it, until it is handed over.
    pub(super) path: Path,
}

/// One replica: an engine behind its API server.
#[derive(Debug)]
pub(super) struct Replica<E> {
    pub(super) engine: E,
    pub(super) server: ApiServer,
    pub(super) usage: ReplicaUse,
}

/// The state of a run.
pub(super) struct World<'a, E> {
    pub(super) setup: &'a Setup,
    pub(super) workload: &'a Workload,
    pub(super) queue: EventQueue<Event>,
    pub(super) agenda: Agenda,
    pub(super) population: Population,
    pub(super) router: Router,
    pub(super) replicas: Vec<Replica<E>>,
    pub(super) content: Content,
    pub(super) plays: Vec<Option<Box<Play>>>,
    pub(super) in_flight: Vec<InFlight>,
    pub(super) free_requests: Vec<RequestId>,
    pub(super) records: Records,
    pub(super) live: LiveContext,
    pub(super) effects: Vec<Effect>,
    pub(super) stuck: Option<String>,
}

/// Tokens in the contexts of open sessions, summed over time.
#[derive(Debug)]
pub(super) struct LiveContext {
    tokens: u64,
    since: Time,
    token_nanos: u128,
    window: Window,
}

impl LiveContext {
    pub(super) fn change(&mut self, now: Time, gone: Tokens, come: Tokens) {
        let inside = self.window.overlap(self.since, now);
        self.token_nanos += u128::from(self.tokens) * u128::from(inside.0);
        self.since = now;
        self.tokens = self.tokens - gone.0 + come.0;
    }
}

impl<'a, E: Engine> World<'a, E> {
    pub(super) fn new(setup: &'a Setup, workload: &'a Workload, engine: impl Fn() -> E) -> Self {
        let from = Time::ZERO + setup.warmup;
        let until = setup.window.map_or(Time::MAX, |window| from + window);
        let window = Window { from, until };
        let blocks = setup.engine.usable_blocks().unwrap_or(Blocks(u64::from(u32::MAX)));
        let replica = |_| Replica {
            engine: engine(),
            server: ApiServer::default(),
            usage: ReplicaUse::new(window, blocks),
        };
        Self {
            setup,
            workload,
            queue: EventQueue::default(),
            agenda: Agenda::new(setup.replicas),
            population: Population::new(&setup.load, workload, setup.seed, setup.warmup),
            router: Router::new(setup.router, setup.replicas, setup.seed),
            replicas: (0..setup.replicas).map(replica).collect(),
            content: Content::default(),
            plays: Vec::new(),
            in_flight: Vec::new(),
            free_requests: Vec::new(),
            records: Records::default(),
            live: LiveContext { tokens: 0, since: Time::ZERO, token_nanos: 0, window },
            effects: Vec::new(),
            stuck: None,
        }
    }

    pub(super) fn start_population(&mut self) {
        let starts = match self.setup.alone {
            Some(session) => vec![Start { at: Time::ZERO, session, pass: 0, player: 0 }],
            None => self.population.first(self.workload),
        };
        for start in starts {
            self.push(start.at, Event::Start(start));
        }
    }

    pub(super) fn push(&mut self, at: Time, event: Event) {
        self.queue.push(at, event);
    }

    pub(super) fn play(&mut self, progress: &Progress) {
        let until = self.live.window.until;
        while self.stuck.is_none() {
            // At one instant steps end first, then clients act, then steps start.
            let client = self.queue.next_at();
            let engine = self.agenda.first().filter(|(due, _)| match *due {
                Due::StepEnds(at) => client.is_none_or(|client| at <= client),
                Due::StepStarts(at) => client.is_none_or(|client| at < client),
            });
            if let Some((Due::StepEnds(at) | Due::StepStarts(at), replica)) = engine {
                if at >= until {
                    break;
                }
                progress.nanos.store(at.0, Ordering::Relaxed);
                self.advance(at, replica);
            } else if client.is_some_and(|at| at < until) {
                self.client_acts(progress);
            } else {
                break;
            }
        }
    }

    fn client_acts(&mut self, progress: &Progress) {
        let Some((now, event)) = self.queue.pop() else { return };
        progress.nanos.store(now.0, Ordering::Relaxed);
        match event {
            Event::Start(start) => self.start_session(now, start),
            Event::Dispatch { play, call } => self.dispatch(now, play, call),
            Event::Queue { request } => self.enter_queue(now, request),
            Event::Ended { request } => {
                self.call_ended(now, request);
                progress.calls.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    pub(super) fn finish(mut self) -> Run {
        let mut window = self.live.window;
        self.settle(window.until);
        let last = self.records.calls.last().map_or(Time::ZERO, |call| call.ended);
        if window.until == Time::MAX {
            // A run without a set end is measured up to its last event, which may be a step that
            // nobody waits for any more.
            let steps = self.replicas.iter().map(|replica| replica.usage.last_step_ended());
            let last_step = steps.max().unwrap_or(Time::ZERO);
            window.until = Time((last.0 + 1).max(last_step.0).max(window.from.0 + 1));
        }
        self.live.change(window.until, Tokens::ZERO, Tokens::ZERO);
        for replica in &mut self.replicas {
            replica.usage.idle_until(window.until);
        }
        self.count_cut_off();
        let length = (window.until - window.from).as_f64();
        Run {
            engines: self.replicas.iter().map(|replica| replica.engine.metrics()).collect(),
            live_context_mean: self.live.token_nanos as f64 / length,
            empty_outputs: self.workload.empty_outputs,
            replicas: self.replicas.into_iter().map(|replica| replica.usage).collect(),
            records: self.records,
            window,
            stuck: self.stuck,
        }
    }

    fn count_cut_off(&mut self) {
        let cut = &mut self.records.cut_off;
        for play in self.plays.iter().flatten() {
            let running = play.calls.iter().filter(|c| c.dispatched.is_some() && c.ended.is_none());
            *cut = CutOff {
                calls: cut.calls + running.count() as u64,
                turns: cut.turns + play.turns.iter().filter(|turn| turn.is_open()).count() as u64,
                tasks: cut.tasks + 1,
            };
        }
    }

    pub(super) fn plan(&self, session: u32) -> &'a SessionPlan {
        &self.workload.sessions[session as usize]
    }

    pub(super) fn open(&mut self, play: u32) -> &mut Play {
        self.plays[play as usize].as_deref_mut().expect("the session is open")
    }

    pub(super) fn open_ref(&self, play: u32) -> &Play {
        self.plays[play as usize].as_deref().expect("the session is open")
    }
}
