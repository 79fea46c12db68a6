//! The world: sessions, router and replicas in one simulated time.
//!
//! One queue, one [`Event`] type, one dispatch. Sessions are played in a closed loop: a call is
//! dispatched when what it waits for has come to an end *in the simulation*, plus the client time
//! that the trace recorded. Everything that happens is a function of the setup, the workload and
//! the seed.

pub mod alone;
pub mod content;
pub mod overflow;
pub mod population;
pub mod router;
pub mod session;
pub mod setup;
pub mod workload;

use std::sync::atomic::{AtomicU64, Ordering};

use crate::config::scenario::{Load, OnOverflow, RouterKind};
use crate::engine::config::EngineConfig;
use crate::engine::request::{Effect, Request, StepSummary};
use crate::engine::step_time::{ApiTime, StepCost};
use crate::engine::{Due, Engine};
use crate::observe::records::{CallOutcome, CallRecord, CutOff, Records, TaskRecord};
use crate::observe::replica::{ReplicaUse, StepUse, Window};
use crate::queue::{EventQueue, Phase};
use crate::trace::lineage::Path;
use crate::units::{Blocks, ReplicaId, RequestId, Span, Time, Tokens};

use content::Content;
use overflow::{Fit, Verdict};
use population::{Population, Start};
use router::Router;
use session::Play;
use workload::{BasePlan, SessionPlan, Workload};

/// Everything about a run but its workload.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Replicas behind the router.
    pub replicas: u32,
    /// How calls are routed.
    pub router: RouterKind,
    /// Every replica's engine.
    pub engine: EngineConfig,
    /// Every replica's step time.
    pub cost: StepCost,
    /// Host time of a request outside the engine.
    pub api: ApiTime,
    /// Who plays what.
    pub load: Load,
    /// What becomes of prompts beyond the context.
    pub on_overflow: OnOverflow,
    /// The seed of every random choice.
    pub seed: u64,
    /// Left out of every figure, from the start.
    pub warmup: Span,
    /// Length of what is measured after it; `None` until the last call has ended.
    pub window: Option<Span>,
    /// One session alone, from time 0, with every kept token in the cache: how fast the work can
    /// go at all. Overrides the load.
    pub alone: Option<u32>,
}

/// How far a run has come, for who watches it from another thread.
#[derive(Debug, Default)]
pub struct Progress {
    /// Calls that have ended.
    pub calls: AtomicU64,
    /// Simulated time, in nanoseconds.
    pub nanos: AtomicU64,
}

/// What a run gave.
#[derive(Clone, Debug)]
pub struct Run {
    /// Calls, turns, tasks.
    pub records: Records,
    /// What each replica did inside the window.
    pub replicas: Vec<ReplicaUse>,
    /// The measured window; a run that ends by itself ends it with its last event.
    pub window: Window,
    /// Calls sent for one token because none was recorded.
    pub empty_outputs: u64,
    /// Mean over the window of the tokens in the contexts of open sessions.
    pub live_context_mean: f64,
    /// Blocks that lost their cached content, over the whole run.
    pub evicted_blocks: u64,
    /// Why the run stopped before its end, if it did.
    pub stuck: Option<String>,
}

#[derive(Clone, Copy, Debug)]
enum Event {
    /// A session starts.
    Start(Start),
    /// A client dispatches a call.
    Dispatch { play: u32, call: u32 },
    /// A call reaches its engine's queue.
    Queue { request: RequestId },
    /// An engine does what is due, unless something else has become due since.
    Engine { replica: ReplicaId, number: u32 },
    /// A client has the whole answer.
    Ended { request: RequestId },
}

/// A call between its dispatch and its end.
#[derive(Debug)]
struct InFlight {
    record: CallRecord,
    /// Its content as the engine knows it, until it is handed over.
    path: Path,
}

#[derive(Debug)]
struct Replica<E> {
    engine: E,
    due: Option<Due>,
    /// Counts changes of `due`: an event of an earlier number is void.
    number: u32,
    usage: ReplicaUse,
}

struct World<'a, E> {
    setup: &'a Setup,
    workload: &'a Workload,
    queue: EventQueue<Event>,
    population: Population,
    router: Router,
    replicas: Vec<Replica<E>>,
    content: Content,
    plays: Vec<Option<Box<Play>>>,
    in_flight: Vec<InFlight>,
    free_requests: Vec<RequestId>,
    records: Records,
    live: LiveContext,
    effects: Vec<Effect>,
    stuck: Option<String>,
}

/// Tokens in the contexts of open sessions, summed over time.
#[derive(Debug)]
struct LiveContext {
    tokens: u64,
    since: Time,
    token_nanos: u128,
    window: Window,
}

impl LiveContext {
    fn change(&mut self, now: Time, gone: Tokens, come: Tokens) {
        let inside = self.window.overlap(self.since, now);
        self.token_nanos += u128::from(self.tokens) * u128::from(inside.0);
        self.since = now;
        self.tokens = self.tokens - gone.0 + come.0;
    }
}

/// Plays a workload on a fleet of engines made by `engine`.
pub fn run<E: Engine>(
    setup: &Setup,
    workload: &Workload,
    engine: impl Fn() -> E,
    progress: &Progress,
) -> Run {
    let mut world = World::new(setup, workload, engine);
    world.start_population();
    world.play(progress);
    world.finish()
}

impl<'a, E: Engine> World<'a, E> {
    fn new(setup: &'a Setup, workload: &'a Workload, engine: impl Fn() -> E) -> Self {
        let from = Time::ZERO + setup.warmup;
        let until = setup.window.map_or(Time::MAX, |window| from + window);
        let window = Window { from, until };
        let blocks = setup.engine.usable_blocks().unwrap_or(Blocks(u64::from(u32::MAX)));
        let replica = |_| Replica {
            engine: engine(),
            due: None,
            number: 0,
            usage: ReplicaUse::new(window, blocks),
        };
        Self {
            setup,
            workload,
            queue: EventQueue::default(),
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

    fn start_population(&mut self) {
        let starts = match self.setup.alone {
            Some(session) => vec![Start { at: Time::ZERO, session, pass: 0, player: 0 }],
            None => self.population.first(self.workload),
        };
        for start in starts {
            self.push(start.at, Event::Start(start));
        }
    }

    fn push(&mut self, at: Time, event: Event) {
        self.queue.push(at, Phase::Arrivals, event);
    }

    fn play(&mut self, progress: &Progress) {
        let until = self.live.window.until;
        while self.stuck.is_none() && self.queue.next_at().is_some_and(|at| at < until) {
            let Some((now, event)) = self.queue.pop() else { break };
            progress.nanos.store(now.0, Ordering::Relaxed);
            match event {
                Event::Start(start) => self.start_session(now, start),
                Event::Dispatch { play, call } => self.dispatch(now, play, call),
                Event::Queue { request } => self.enter_queue(now, request),
                Event::Engine { replica, number } => self.advance(now, replica, number),
                Event::Ended { request } => {
                    self.call_ended(now, request);
                    progress.calls.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
    }

    fn start_session(&mut self, now: Time, start: Start) {
        if self.setup.alone.is_none()
            && let Some(next) = self.population.after_start(self.workload)
        {
            // Recorded starts come in order; a session that starts at once does so now.
            self.push(next.at.max(now), Event::Start(next));
        }
        let plan = self.plan(start.session);
        let play = self.plays.len() as u32;
        let state = Play::new(plan, start.session, start.pass, start.player, now);
        self.plays.push(Some(Box::new(state)));
        for (call, call_plan) in (0u32..).zip(&plan.calls) {
            if call_plan.after.is_empty() {
                self.push(now + call_plan.gap, Event::Dispatch { play, call });
            }
        }
    }

    fn dispatch(&mut self, now: Time, play: u32, call: u32) {
        let state = self.plays[play as usize].as_deref_mut().expect("the session is open");
        let plan = &self.workload.sessions[state.session as usize];
        let call_plan = &plan.calls[call as usize];
        state.calls[call as usize].dispatched = Some(now);
        state.turns[call_plan.turn as usize].started.get_or_insert(now);
        for &next in &call_plan.then_dispatched {
            self.satisfied(now, play, next);
        }
        let (fit, path) = self.fit_and_continue(play, call);
        let request = self.new_request(now, play, call, &fit);
        if let Some(duration) = call_plan.failed_after {
            self.in_flight[request.index()].record.outcome = CallOutcome::RecordedFailure;
            self.push(now + duration, Event::Ended { request });
            return;
        }
        if fit.verdict == Verdict::Rejected {
            self.in_flight[request.index()].record.outcome = CallOutcome::Rejected;
            self.push(now, Event::Ended { request });
            return;
        }
        if call_plan.lane == 0 {
            let context = fit.prompt + call_plan.output;
            let state = self.open(play);
            let before = std::mem::replace(&mut state.context, context);
            self.live.change(now, before, context);
        }
        let pin = self.open(play).pin;
        let replica = self.router.choose(pin);
        self.open(play).pin.get_or_insert(replica);
        let in_flight = &mut self.in_flight[request.index()];
        in_flight.record.replica = Some(replica);
        in_flight.path = self.content.under_model(&path, call_plan.model);
        let queued = now + self.setup.api.before_queue(fit.prompt);
        in_flight.record.queued = queued;
        self.push(queued, Event::Queue { request });
    }

    /// The call's prompt as it is sent, and its whole context.
    fn fit_and_continue(&mut self, play: u32, call: u32) -> (Fit, Path) {
        let state = self.plays[play as usize].as_deref().expect("the session is open");
        let plan = &self.workload.sessions[state.session as usize].calls[call as usize];
        let (base_fit, base_path) = match plan.base {
            BasePlan::None => (Fit::default(), Path::default()),
            BasePlan::Call(base) => {
                let base = &state.calls[base as usize];
                (base.fit, base.path.clone())
            }
            BasePlan::Context(context) => {
                let fit = Fit { shared: plan.kept, ..Fit::default() };
                (fit, self.content.context(self.workload, context, state.pass))
            }
        };
        let max_model_len = self.setup.engine.max_model_len;
        let rule = self.setup.on_overflow;
        let fit =
            overflow::fit(plan.prompt, plan.kept, plan.output, &base_fit, rule, max_model_len);
        let segment = self.content.new_segment();
        let path = base_path.continued(fit.kept, segment, fit.prompt + plan.output);
        let call = &mut self.open(play).calls[call as usize];
        call.fit = fit;
        call.path.clone_from(&path);
        (fit, path)
    }

    fn new_request(&mut self, now: Time, play: u32, call: u32, fit: &Fit) -> RequestId {
        let session = self.open(play).session;
        let record = CallRecord {
            play,
            session,
            call,
            replica: None,
            dispatched: now,
            queued: now,
            scheduled: now,
            first_token: now,
            last_token: now,
            ended: now,
            prompt: fit.prompt,
            cached: Tokens::ZERO,
            ceiling: Tokens::ZERO,
            output: Tokens::ZERO,
            prefilled: Tokens::ZERO,
            preemptions: 0,
            lost: Tokens::ZERO,
            place: self.plan(session).calls[call as usize].place,
            outcome: CallOutcome::Completed,
            compacted: fit.verdict == Verdict::Compacted,
        };
        let in_flight = InFlight { record, path: Path::default() };
        if let Some(request) = self.free_requests.pop() {
            self.in_flight[request.index()] = in_flight;
            return request;
        }
        self.in_flight.push(in_flight);
        RequestId::from_index(self.in_flight.len() - 1)
    }

    fn enter_queue(&mut self, now: Time, request: RequestId) {
        let InFlight { record, path } = &self.in_flight[request.index()];
        let replica = record.replica.expect("only routed calls are queued");
        let plan = &self.plan(record.session).calls[record.call as usize];
        let handed_over = Request {
            id: request,
            path: path.clone(),
            prompt: record.prompt,
            output: plan.output,
            finish: plan.finish,
            priority: plan.priority,
        };
        if self.setup.alone.is_some() {
            let kept = self.kept_of(record);
            self.replicas[replica.index()].engine.warm(&handed_over.path, kept);
        }
        self.replicas[replica.index()].engine.submit(now, handed_over);
        self.refresh(replica);
    }

    fn kept_of(&self, record: &CallRecord) -> Tokens {
        let play = self.plays[record.play as usize].as_deref().expect("the session is open");
        play.calls[record.call as usize].fit.kept
    }

    /// Puts what an engine does next into the queue, if it has changed.
    fn refresh(&mut self, replica: ReplicaId) {
        let state = &mut self.replicas[replica.index()];
        let due = state.engine.due();
        if due == state.due {
            return;
        }
        state.due = due;
        state.number = state.number.wrapping_add(1);
        let event = Event::Engine { replica, number: state.number };
        match due {
            Some(Due::StepEnds(at)) => self.queue.push(at, Phase::StepEnds, event),
            Some(Due::StepStarts(at)) => self.queue.push(at, Phase::StepStarts, event),
            None => {}
        }
    }

    fn advance(&mut self, now: Time, replica: ReplicaId, number: u32) {
        let state = &mut self.replicas[replica.index()];
        if state.number != number {
            return;
        }
        let mut effects = std::mem::take(&mut self.effects);
        state.engine.advance(now, &mut effects);
        // What was due is done, even where the same thing is due again at the same instant.
        state.due = None;
        if let Some(stuck) = state.engine.stuck() {
            let record = &self.in_flight[stuck.head.index()].record;
            self.stuck = Some(format!(
                "call {} of session {} (a prompt of {} tokens) on replica {replica} {stuck}",
                record.call, record.session, record.prompt
            ));
        }
        for effect in effects.drain(..) {
            self.apply(now, replica, effect);
        }
        self.effects = effects;
        self.refresh(replica);
    }

    fn apply(&mut self, now: Time, replica: ReplicaId, effect: Effect) {
        match effect {
            Effect::Admitted { request, cached, resumed } => {
                if !resumed {
                    self.first_admission(now, request, cached);
                }
            }
            Effect::Preempted { request, lost } => {
                let record = &mut self.in_flight[request.index()].record;
                record.preemptions += 1;
                record.lost += lost;
            }
            Effect::FirstToken { request } => {
                self.in_flight[request.index()].record.first_token = now;
            }
            Effect::Finished { request, output, prefilled } => {
                let InFlight { record, path } = &mut self.in_flight[request.index()];
                record.last_token = now;
                record.output = output;
                record.prefilled = prefilled;
                // The last token's KV is never computed.
                let computed = record.prompt + output - Tokens(1);
                let path = std::mem::take(path);
                self.content.compute(&path, computed);
                self.push(now + self.setup.api.after_last_token(output), Event::Ended { request });
            }
            Effect::StepStarted(step) => self.step_started(now, replica, &step),
        }
    }

    fn first_admission(&mut self, now: Time, request: RequestId, cached: Tokens) {
        let InFlight { record, path } = &mut self.in_flight[request.index()];
        record.scheduled = now;
        record.cached = cached;
        let block_size = self.setup.engine.block_size;
        let known = self.content.computed(path).min(record.prompt - Tokens(1));
        record.ceiling = known.blocks_floor(block_size).tokens(block_size).max(cached);
        self.content.compute(path, record.prompt);
    }

    fn step_started(&mut self, now: Time, replica: ReplicaId, step: &StepSummary) {
        let step = StepUse {
            span: step.span,
            decode_span: step.decode_span,
            prefill_tokens: step.prefill_tokens,
            decode_seqs: step.decode_seqs,
            used_blocks: step.used_blocks,
            waiting: step.waiting,
        };
        self.replicas[replica.index()].usage.step(now, &step);
    }

    fn call_ended(&mut self, now: Time, request: RequestId) {
        let mut record = self.in_flight[request.index()].record;
        self.free_requests.push(request);
        record.ended = now;
        if let Some(replica) = record.replica {
            self.router.ended(replica);
        }
        self.records.calls.push(record);
        let CallRecord { play, call, .. } = record;
        let state = self.plays[play as usize].as_deref_mut().expect("the session is open");
        let plan = &self.workload.sessions[state.session as usize];
        let call_plan = &plan.calls[call as usize];
        state.calls[call as usize].ended = Some(now);
        state.calls_left -= 1;
        let calls_left = state.calls_left;
        let turn = &mut state.turns[call_plan.turn as usize];
        turn.calls_left -= 1;
        turn.failed |= record.outcome == CallOutcome::Rejected;
        if turn.calls_left == 0 {
            let record = state.turn_record(plan, play, call);
            state.turns_total += record.turn();
            state.turns_llm_total += record.turn_llm();
            self.records.turns.push(record);
        }
        for &next in &call_plan.then_finished {
            self.satisfied(now, play, next);
        }
        if calls_left == 0 {
            self.session_ended(now, play);
        }
    }

    /// One of the things that a call waits for has happened.
    fn satisfied(&mut self, now: Time, play: u32, call: u32) {
        let state = self.open(play);
        let waits = &mut state.calls[call as usize].waits;
        *waits -= 1;
        if *waits == 0 {
            let gap = self.plan(self.open_ref(play).session).calls[call as usize].gap;
            self.push(now + gap, Event::Dispatch { play, call });
        }
    }

    fn session_ended(&mut self, now: Time, play: u32) {
        let state = self.plays[play as usize].take().expect("a session ends once");
        self.live.change(now, state.context, Tokens::ZERO);
        let first = state.calls.iter().filter_map(|call| call.dispatched).min();
        self.records.tasks.push(TaskRecord {
            play,
            session: state.session,
            started: first.unwrap_or(state.started),
            ended: now,
            task: state.turns_total,
            task_llm: state.turns_llm_total,
            turns: state.turns.len() as u32,
            calls: state.calls.len() as u32,
            failed: state.turns.iter().any(|turn| turn.failed),
        });
        if self.setup.alone.is_none()
            && let Some(next) = self.population.after_session(state.player, now)
        {
            self.push(next.at, Event::Start(next));
        }
    }

    fn finish(mut self) -> Run {
        let mut window = self.live.window;
        let last = self.records.calls.last().map_or(Time::ZERO, |call| call.ended);
        if window.until == Time::MAX {
            // A run without a set end is measured up to and including its last event.
            window.until = Time((last.0 + 1).max(window.from.0 + 1));
        }
        self.live.change(window.until, Tokens::ZERO, Tokens::ZERO);
        for replica in &mut self.replicas {
            replica.usage.idle_until(window.until);
        }
        self.count_cut_off();
        let evicted = self.replicas.iter().map(|replica| replica.engine.gauges().evicted_total);
        let length = (window.until - window.from).as_f64();
        Run {
            evicted_blocks: evicted.sum(),
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

    fn plan(&self, session: u32) -> &'a SessionPlan {
        &self.workload.sessions[session as usize]
    }

    fn open(&mut self, play: u32) -> &mut Play {
        self.plays[play as usize].as_deref_mut().expect("the session is open")
    }

    fn open_ref(&self, play: u32) -> &Play {
        self.plays[play as usize].as_deref().expect("the session is open")
    }
}
