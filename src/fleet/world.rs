//! The state of a run, its queue, and the one place where events are told apart.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::admission::ApiServer;
use super::agenda::Agenda;
use super::alone::AloneTimes;
use super::arrivals::{Arrivals, Failure, Next, Sessions};
use super::content::{Content, ProcessId};
use super::faults::Faults;
use super::gate::Gate;
use super::observer::{About, Observer};
use super::pools::{Homes, Routers};
use super::population::{Population, Start};
use super::router::loads::Sent;
use super::scaling::Scalers;
use super::session::Play;
use super::shards::log::Bursts;
use super::visits::Visits;
use super::workload::SessionPlan;
use super::{Progress, Run, Setup};
use crate::config::gateway::FrontEnd;
use crate::config::scenario::LoadKind;
use crate::engine::Engine;
use crate::engine::metrics::EngineMetrics;
use crate::engine::request::Effect;
use crate::observe::members::ScalingUse;
use crate::observe::records::{CallRecord, CutOff};
use crate::observe::replica::{ReplicaUse, Window};
use crate::queue::EventQueue;
use crate::trace::lineage::Path;
use crate::units::{Blocks, ReplicaId, RequestId, Time, Tokens};

/// What happens.
#[derive(Clone, Copy, Debug)]
pub(super) enum Event {
    /// A session starts.
    Start { session: u32, pass: u32, player: u32 },
    /// A client dispatches a call.
    Dispatch { play: u32, call: u32 },
    /// A client sends a call once more, to whatever replica.
    Send { request: RequestId },
    /// A call reaches its engine's queue, unless its replica was lost meanwhile.
    Queue { request: RequestId, attempt: u32 },
    /// A replica has given a whole answer to the gateway, unless that has hung up.
    Answered { request: RequestId, attempt: u32 },
    /// A client has the whole answer.
    Ended { request: RequestId },
    /// A client loses patience with a request that has shown no sign of life.
    HangUp { request: RequestId, ask: u32 },
    /// The gateway does something by itself.
    Gateway,
    /// The autoscaler of the gateway's pods looks at its metrics.
    ScalePods,
    /// The autoscaler of the replicas does.
    ScaleReplicas,
    /// A pod takes requests, unless it was given up.
    PodReady { member: u32 },
    /// A pod has had its time to drain.
    KillPod { pod: u32 },
    /// Something planned happens to the fleet.
    Happens { number: u32 },
    /// A store of the gateway that was out of order is as it was.
    StoreBack { number: u32 },
    /// A replica takes calls, unless something else has happened to it.
    Ready { replica: ReplicaId, change: u32 },
    /// A replica has had its time to drain.
    DrainEnds { replica: ReplicaId, change: u32 },
}

impl Event {
    /// Whether it alone leads to no call: a run does not wait for it.
    const fn is_standing(self) -> bool {
        matches!(
            self,
            Self::Gateway
                | Self::ScalePods
                | Self::ScaleReplicas
                | Self::PodReady { .. }
                | Self::KillPod { .. }
                | Self::HangUp { .. }
                | Self::Happens { .. }
                | Self::StoreBack { .. }
                | Self::Ready { .. }
                | Self::DrainEnds { .. }
        )
    }
}

/// Where a call is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// With its client: no replica has to do with it, or it has its answer.
    Client,
    /// On its way into a replica's queue.
    Sent,
    /// In the engine, and was not scheduled yet.
    Waiting,
    /// In the engine.
    Scheduled,
    /// In the engine, and its first token is out.
    Streaming,
}

impl Stage {
    /// Whether an engine has it.
    pub(super) const fn is_in_engine(self) -> bool {
        matches!(self, Self::Waiting | Self::Scheduled | Self::Streaming)
    }
}

/// A call between its dispatch and its end.
#[derive(Debug)]
pub(super) struct InFlight {
    pub(super) record: CallRecord,
    /// The place of its session among the plays.
    pub(super) play: u32,
    /// Its content as the engine knows it, until it is handed over.
    pub(super) path: Path,
    /// Leading tokens of it that continue another.
    pub(super) kept: Tokens,
    /// Its number for who looks for the busiest minute.
    pub(super) burst: u64,
    /// What it adds to its replica's load.
    pub(super) sent: Sent,
    pub(super) stage: Stage,
    /// Tells one way into a queue from another.
    pub(super) attempt: u32,
    /// The request of its client that has shown no sign of life yet; zero once it has, or is over.
    pub(super) ask: u32,
}

/// One replica: an engine behind its API server.
#[derive(Debug)]
pub(super) struct Replica<E> {
    pub(super) engine: E,
    pub(super) process: ProcessId,
    pub(super) server: ApiServer,
    pub(super) usage: ReplicaUse,
}

/// The state of a run.
pub(super) struct World<'a, E, O> {
    pub(super) setup: Arc<Setup>,
    pub(super) arrivals: Arrivals<'a>,
    held: &'a [Arc<SessionPlan>],
    /// The session that starts next as recorded, and when. At one instant sessions start before
    /// anything else that clients do.
    pub(super) next: Option<Next>,
    pub(super) arrives: Time,
    /// The number of its first replica in the whole fleet.
    pub(super) first_replica: u32,
    pub(super) is_alone: bool,
    pub(super) alone: Option<&'a AloneTimes>,
    pub(super) queue: EventQueue<Event>,
    pub(super) agenda: Agenda,
    pub(super) population: Population,
    pub(super) router: Routers,
    /// By place of every open session, and empty where nobody routes by what is cached.
    pub(super) visits: Visits,
    pub(super) homes: Homes,
    pub(super) faults: Faults,
    /// Makes the engine of a process that is started.
    pub(super) new_engine: Box<dyn Fn() -> E + Send + 'a>,
    pub(super) gate: Option<Box<Gate<'a>>>,
    pub(super) scalers: Option<Box<Scalers>>,
    /// Events in the queue that a run does not wait for.
    standing: usize,
    /// What engines counted whose process is gone.
    pub(super) gone: Vec<EngineMetrics>,
    /// Processes so far.
    processes: u32,
    pub(super) attempts: u32,
    pub(super) replicas: Vec<Replica<E>>,
    pub(super) content: Content,
    pub(super) plays: Vec<Play>,
    pub(super) free_plays: Vec<u32>,
    pub(super) played: u32,
    pub(super) nobody: Arc<SessionPlan>,
    pub(super) open_max: usize,
    pub(super) in_flight: Vec<InFlight>,
    pub(super) free_requests: Vec<RequestId>,
    pub(super) observer: O,
    pub(super) last_ended: Time,
    pub(super) live: LiveContext,
    pub(super) burst: Bursts,
    pub(super) effects: Vec<Effect>,
    pub(super) stuck: Option<String>,
    interrupted: Option<Time>,
}

/// Tokens in the contexts of open sessions, summed over time.
#[derive(Debug)]
pub(super) struct LiveContext {
    tokens: u64,
    since: Time,
    token_nanos: u128,
    pub(super) window: Window,
}

impl LiveContext {
    pub(super) fn change(&mut self, now: Time, gone: Tokens, come: Tokens) {
        let inside = self.window.overlap(self.since, now);
        self.token_nanos += u128::from(self.tokens) * u128::from(inside.0);
        self.since = now;
        self.tokens = self.tokens - gone.0 + come.0;
    }
}

/// What replicas did, and what they left undone.
#[derive(Default)]
pub(super) struct Done {
    pub(super) replicas: Vec<ReplicaUse>,
    pub(super) engines: Vec<EngineMetrics>,
    /// Tokens in the contexts of open sessions, times how long.
    pub(super) token_nanos: u128,
    pub(super) cut_off: CutOff,
}

impl Done {
    /// Adds what the replicas behind these did.
    pub(super) fn add(&mut self, more: Self) {
        let Self { replicas, engines, token_nanos, cut_off } = more;
        self.replicas.extend(replicas);
        self.engines.extend(engines);
        self.token_nanos += token_nanos;
        let CutOff { calls, turns, tasks } = cut_off;
        self.cut_off.calls += calls;
        self.cut_off.turns += turns;
        self.cut_off.tasks += tasks;
    }
}

impl<'a, E: Engine, O: Observer> World<'a, E, O> {
    /// `front` is the setup's gateway, if there is one.
    pub(super) fn new(
        setup: &Arc<Setup>,
        front: Option<&'a FrontEnd>,
        sessions: Sessions<'a>,
        engine: impl Fn() -> E + Send + 'a,
        observer: O,
        alone: Option<&'a AloneTimes>,
    ) -> Self {
        let (window, blocks) = (measured(setup), usable_blocks(setup));
        let over_time = observer.wants_use_over_time();
        let replica = |number| Replica {
            engine: engine(),
            process: ProcessId(number),
            server: ApiServer::default(),
            usage: ReplicaUse::new(window, blocks).kept_over_time(over_time),
        };
        let held: &[Arc<SessionPlan>] = match &sessions {
            Sessions::Held(workload) => &workload.sessions,
            Sessions::Stream(_) | Sessions::None => &[],
        };
        let (number, recorded) = (held.len() as u32, setup.load.kind == LoadKind::Trace);
        let faults = Faults::new(setup.replicas, &setup.events);
        let mut router = Routers::new(setup);
        faults.absent().for_each(|replica| router.leaves(replica));
        let new_gate = |front| Gate::new(front, setup, faults.absent(), window);
        let gate = front.map(new_gate);
        let pods = front.map(|front| front.gateway.pods);
        Self {
            setup: Arc::clone(setup),
            arrivals: Arrivals::new(sessions, recorded, setup.open_loop),
            held,
            is_alone: false,
            arrives: Time::MAX,
            next: None,
            first_replica: 0,
            alone,
            queue: EventQueue::default(),
            agenda: Agenda::new(setup.replicas),
            population: Population::new(&setup.load, number, setup.seed, setup.warmup),
            router,
            visits: Visits::default(),
            homes: Homes::new(&setup.pools),
            faults,
            gate: gate.map(Box::new),
            scalers: Scalers::new(&setup.scaling, pods, setup.replicas, window),
            standing: 0,
            gone: Vec::new(),
            processes: setup.replicas,
            attempts: 0,
            replicas: (0..setup.replicas).map(replica).collect(),
            new_engine: Box::new(engine),
            content: Content::default(),
            plays: Vec::new(),
            free_plays: Vec::new(),
            played: 0,
            nobody: Arc::default(),
            open_max: 0,
            in_flight: Vec::new(),
            free_requests: Vec::new(),
            observer,
            last_ended: Time::ZERO,
            live: LiveContext { tokens: 0, since: Time::ZERO, token_nanos: 0, window },
            burst: Bursts::watched(window),
            effects: Vec::new(),
            stuck: None,
            interrupted: None,
        }
    }

    pub(super) fn start_population(&mut self) {
        let setup = Arc::clone(&self.setup);
        for (number, event) in (0..).zip(&setup.events) {
            self.push(Time::ZERO + event.at, Event::Happens { number });
        }
        // What the gateway does by itself from the start on.
        self.tell_gateway(Time::ZERO, |_, _| {});
        self.start_scalers();
        if self.setup.load.kind == LoadKind::Trace {
            self.expect_arrival();
        } else {
            for start in self.population.first() {
                self.push_start(start);
            }
        }
    }

    /// Looks ahead to the session that comes next as recorded.
    pub(super) fn expect_arrival(&mut self) {
        if self.next.is_none() {
            self.next = self.arrivals.next();
            self.arrives = self.next.as_ref().map_or(Time::MAX, |next| next.at);
        }
    }

    pub(super) fn push_start(&mut self, start: Start) {
        let Start { at, session, pass, player, .. } = start;
        self.push(at, Event::Start { session, pass, player });
    }

    pub(super) fn push(&mut self, at: Time, event: Event) {
        self.standing += usize::from(event.is_standing());
        self.queue.push(at, event);
    }

    /// Lets happen what happens before `bound`.
    pub(super) fn play(&mut self, progress: &Progress, bound: Time) {
        let until = self.live.window.until.min(bound);
        let mut now = Time::ZERO;
        while self.stuck.is_none() && self.arrivals.failure.is_none() && !self.observer.is_full() {
            if progress.stop.load(Ordering::Relaxed) {
                self.interrupted = Some(now);
                break;
            }
            if self.only_stands() {
                break;
            }
            // At one instant steps end first, then clients act, then steps start.
            let client = self.client_next();
            if let Some((at, key, replica)) = self.agenda.first_before(client) {
                if at >= until {
                    break;
                }
                now = at;
                self.content.set_now(key);
                self.advance(at, replica);
            } else if let Some(at) = client.filter(|at| *at < until) {
                now = at;
                if at == self.arrives {
                    self.arrive(at);
                } else {
                    self.client_acts(progress);
                }
            } else {
                break;
            }
            progress.nanos.store(now.0, Ordering::Relaxed);
        }
        let is_cut = matches!(self.arrivals.failure, Some(Failure::Input(_)));
        if is_cut && progress.stop.load(Ordering::Relaxed) {
            self.interrupted = Some(now);
        }
    }

    /// When clients act next.
    fn client_next(&self) -> Option<Time> {
        let queued = self.queue.next_at().unwrap_or(Time::MAX);
        Some(queued.min(self.arrives)).filter(|at| *at < Time::MAX)
    }

    /// When something happens next, as far as that is known.
    pub(super) fn next_at(&self) -> Option<Time> {
        let engine = self.agenda.first_before(None).map(|(at, ..)| at);
        engine.into_iter().chain(self.client_next()).min()
    }

    /// Whether nothing will ever happen to a call any more in a run that ends by itself.
    fn only_stands(&self) -> bool {
        let goes_on = self.gate.is_some() || self.scalers.is_some();
        goes_on
            && self.next.is_none()
            && self.queue.len() == self.standing
            && self.live.window.until == Time::MAX
            && self.gate.as_ref().is_none_or(|gate| gate.open == 0)
            && self.agenda.is_empty()
    }

    fn client_acts(&mut self, progress: &Progress) {
        let Some((now, event)) = self.queue.pop() else { return };
        self.standing -= usize::from(event.is_standing());
        match event {
            Event::Start { session, pass, player } => {
                if let Some(next) = self.population.after_start() {
                    self.push_start(next);
                }
                let plan = Arc::clone(&self.held[session as usize]);
                let start = Start { at: now, session, pass, player, pin: None };
                self.start_session(&plan, start, now);
            }
            Event::Dispatch { play, call } => self.dispatch(now, play, call),
            Event::Send { request } => self.send(now, request),
            Event::Queue { request, attempt } => self.enter_queue(now, request, attempt),
            Event::Ended { request } => {
                self.call_ended(now, request);
                progress.calls.fetch_add(1, Ordering::Relaxed);
            }
            Event::Answered { request, attempt } => self.answered(now, request, attempt),
            Event::HangUp { request, ask } => self.client_hangs_up(now, request, ask),
            Event::Gateway => self.gateway_wakes(now),
            Event::ScalePods => self.scale_pods(now),
            Event::ScaleReplicas => self.scale_replicas(now),
            Event::PodReady { member } => self.pod_ready(now, member),
            Event::KillPod { pod } => self.kill_pod(now, pod),
            Event::Happens { number } => self.happens(now, number),
            Event::StoreBack { number } => self.store_back(now, number),
            Event::Ready { replica, change } => self.ready(now, replica, change),
            Event::DrainEnds { replica, change } => self.drain_ends(now, replica, change),
        }
    }

    fn arrive(&mut self, now: Time) {
        self.arrives = Time::MAX;
        let Some(Next { session, plan, number, pin, .. }) = self.next.take() else { return };
        let started = if self.is_alone { Time::ZERO } else { Time::ZERO + plan.at };
        self.expect_arrival();
        let start = Start { at: now, session, pass: 0, player: session, pin };
        self.played = number.unwrap_or(self.played);
        self.start_session(&plan, start, started);
    }

    pub(super) fn finish(mut self) -> Run<O> {
        let mut window = self.live.window;
        if let Some(at) = self.interrupted {
            window.until = window.until.min(at).max(Time(window.from.0 + 1));
        }
        window.until = self.end(window.until).max(Time(window.from.0 + 1));
        let done = self.done(window.until);
        let length = (window.until - window.from).as_f64();
        Run {
            engines: done.engines.into_iter().chain(self.gone).collect(),
            live_context_mean: done.token_nanos as f64 / length,
            counts: self.arrivals.counts,
            cut_off: done.cut_off,
            burst: self.burst.finish(window.until),
            replicas: done.replicas,
            replicas_at_start: self.setup.replicas,
            gateway: self.gate.map(|gate| gate.finish(window)),
            changes: self.faults.changes,
            scaling: self.scalers.map_or(ScalingUse::default(), |all| all.finish(window)),
            records: self.observer,
            names: self.arrivals.names.into_owned(),
            window,
            open_sessions_max: self.open_max as u64,
            interrupted: self.interrupted,
            stuck: self.stuck,
            failure: self.arrivals.failure,
        }
    }

    /// Nothing happens from `until` on: when the run ends, which is then if that is set. A run
    /// without a set end is measured up to its last event, which may be a step that nobody waits
    /// for any more.
    pub(super) fn end(&mut self, until: Time) -> Time {
        self.settle(until);
        if until < Time::MAX {
            return until;
        }
        let steps = self.replicas.iter().map(|replica| replica.usage.last_step_ended());
        Time(self.last_ended.0 + 1).max(steps.max().unwrap_or(Time::ZERO))
    }

    /// What was done up to the end of the run.
    pub(super) fn done(&mut self, until: Time) -> Done {
        self.live.change(until, Tokens::ZERO, Tokens::ZERO);
        let replicas = std::mem::take(&mut self.replicas).into_iter().map(|mut replica| {
            replica.usage.idle_until(until);
            (replica.usage, replica.engine.metrics())
        });
        let (replicas, engines) = replicas.unzip();
        let (token_nanos, cut_off) = (self.live.token_nanos, self.cut_off());
        Done { replicas, engines, token_nanos, cut_off }
    }

    /// One more replica, behind all others.
    pub(super) fn add_replica(&mut self, usage: ReplicaUse) {
        let (engine, server) = ((self.new_engine)(), ApiServer::default());
        let process = self.new_process();
        self.replicas.push(Replica { engine, process, server, usage });
    }

    /// A number that no process has had.
    pub(super) fn new_process(&mut self) -> ProcessId {
        self.processes += 1;
        ProcessId(self.processes - 1)
    }

    fn cut_off(&self) -> CutOff {
        let mut cut = CutOff::default();
        for play in self.plays.iter().filter(|play| play.is_open()) {
            cut = CutOff {
                calls: cut.calls + play.calls.under_way() as u64,
                turns: cut.turns + play.turns.iter().filter(|turn| turn.is_open()).count() as u64,
                tasks: cut.tasks + 1,
            };
        }
        cut
    }

    /// What a record of this session is about, and who is told.
    pub(super) fn tell(&mut self, play: u32, tell: impl FnOnce(&mut O, &About<'_>)) {
        let about = About {
            plan: &self.plays[play as usize].plan,
            names: &self.arrivals.names,
            window: self.live.window,
        };
        tell(&mut self.observer, &about);
    }

    pub(super) fn fail(&mut self, failure: Failure) {
        self.arrivals.failure.get_or_insert(failure);
    }
}

/// What of a run is measured: what comes after the warm-up, for as long as the window is.
pub(super) fn measured(setup: &Setup) -> Window {
    let from = Time::ZERO + setup.warmup;
    Window { from, until: setup.window.map_or(Time::MAX, |window| from + window) }
}

/// Blocks of every replica; without a limit, more than any run takes.
pub(super) fn usable_blocks(setup: &Setup) -> Blocks {
    let blocks = setup.engine.usable_blocks().unwrap_or(Blocks(u64::from(u32::MAX)));
    Blocks(blocks.0 * setup.cost.ranks() as u64)
}
