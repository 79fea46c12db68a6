//! Sessions alone without a world around them: what waits for what and in which order is as the
//! world has it, and [an engine without a KV cache](Few) says how long calls take.

use std::sync::Arc;

use super::few::{Ask, Due, Few};
use crate::fleet::Setup;
use crate::fleet::overflow::{Fit, Verdict, fit_call};
use crate::fleet::population::Start;
use crate::fleet::session::Play;
use crate::fleet::workload::{BasePlan, SessionPlan};
use crate::units::{Span, Time, Tokens};

/// Plays sessions one after the other.
#[derive(Debug)]
pub(super) struct Solo {
    setup: Arc<Setup>,
    engine: Few,
    play: Play,
    nobody: Arc<SessionPlan>,
    /// By call that was dispatched: how it was fitted into the model's context.
    fits: Vec<Option<Fit>>,
    /// What clients and the API server do, the next last.
    events: Vec<(Time, Event)>,
    /// By call: whether it is on its way to the engine's queue.
    on_its_way: Vec<bool>,
}

/// What happens outside the engine.
#[derive(Clone, Copy, Debug)]
enum Event {
    Dispatch(u32),
    Queue(u32),
    Ended(u32),
}

impl Solo {
    /// `None` for replicas whose times are not told by one formula, and for the reference, which
    /// takes every step.
    pub(super) fn new(setup: &Arc<Setup>) -> Option<Self> {
        let plain = !(setup.every_step || setup.open_loop || setup.cost.in_lock_step());
        plain.then(|| Self {
            engine: Few::new(&setup.engine, &setup.cost),
            setup: Arc::clone(setup),
            play: Play::default(),
            nobody: Arc::default(),
            fits: Vec::new(),
            events: Vec::new(),
            on_its_way: Vec::new(),
        })
    }

    /// The session's turns, less tool time; `None` where that depends on what the cache holds.
    pub(super) fn play(&mut self, plan: &Arc<SessionPlan>) -> Option<Span> {
        self.engine.begin();
        self.fits.clear();
        self.fits.resize(plan.len(), None);
        self.on_its_way.clear();
        self.on_its_way.resize(plan.len(), false);
        self.events.clear();
        let start = Start { at: Time::ZERO, session: 0, pass: 0, player: 0, pin: None };
        self.play.begin(Arc::clone(plan), 0, start, Time::ZERO, false);
        for (call, wait) in plan.starts(false) {
            self.push(Time::ZERO + wait, Event::Dispatch(call));
        }
        let task_llm = self.goes_on(plan);
        self.play.end(&self.nobody);
        task_llm
    }

    fn goes_on(&mut self, plan: &SessionPlan) -> Option<Span> {
        loop {
            let client = self.events.last().map(|(at, _)| *at);
            // At one instant steps end first, then clients act, then steps start.
            let (at, is_first) = match self.engine.due() {
                Some(Due::StepEnds(at)) => (at, client.is_none_or(|client| at <= client)),
                Some(Due::StepStarts(at)) => (at, client.is_none_or(|client| at < client)),
                None => (Time::MAX, false),
            };
            if is_first {
                self.engine.advance(&self.setup.engine, &self.setup.cost, client);
                for place in 0..self.engine.finished.len() {
                    let call = self.engine.finished[place];
                    let output = plan.output(call);
                    self.push(at + self.setup.api.after_last_token(output), Event::Ended(call));
                }
                continue;
            }
            // A session that comes to no end has no time.
            let Some((now, event)) = self.events.pop() else { return Some(Span::ZERO) };
            match event {
                Event::Dispatch(call) => self.dispatch(now, plan, call),
                Event::Queue(call) => self.queue(now, plan, call)?,
                Event::Ended(call) => {
                    self.ended(now, plan, call);
                    if !self.play.is_open() {
                        return Some(self.play.task_record(now).task_llm);
                    }
                }
            }
        }
    }

    /// Behind all that happen no later.
    fn push(&mut self, at: Time, event: Event) {
        let later = self.events.iter().rposition(|(other, _)| *other > at);
        self.events.insert(later.map_or(0, |later| later + 1), (at, event));
    }

    fn dispatch(&mut self, now: Time, plan: &SessionPlan, call: u32) {
        self.play.dispatched(now, call);
        self.satisfy(now, plan, call, true);
        let (of, class) = (plan.call(call), plan.class(call));
        let base = match of.base() {
            BasePlan::None => Fit::default(),
            BasePlan::Call(base) => self.fits[base as usize].unwrap_or_default(),
            BasePlan::Context(_) => Fit::of_context(&of),
        };
        let max_model_len = self.setup.engine.max_model_len;
        let fit = fit_call(&of, &base, self.setup.on_overflow, max_model_len);
        self.fits[call as usize] = Some(fit);
        if class.failed {
            let duration = plan.failed_after(call).unwrap_or_default();
            self.push(now + duration, Event::Ended(call));
        } else if fit.verdict == Verdict::Rejected {
            self.push(now, Event::Ended(call));
        } else {
            self.on_its_way[call as usize] = true;
            self.push(now + self.setup.api.before_queue(fit.prompt), Event::Queue(call));
        }
    }

    fn queue(&mut self, now: Time, plan: &SessionPlan, call: u32) -> Option<()> {
        self.on_its_way[call as usize] = false;
        let (of, class) = (plan.call(call), plan.class(call));
        // What a call repeats is in the cache from here on. Had the one that wrote it not been
        // admitted, it would find its own content there.
        if let BasePlan::Call(base) = of.base()
            && (self.on_its_way[base as usize] || self.engine.waits(now, base))
        {
            return None;
        }
        let (fit, config) = (self.fits[call as usize].unwrap_or_default(), &self.setup.engine);
        // At least the last token is computed.
        let found = fit.kept.min(fit.prompt - Tokens(1)).blocks_floor(config.block_size);
        let cached =
            if config.enable_prefix_caching { found.tokens(config.block_size).0 } else { 0 };
        let ask = Ask {
            call,
            prompt: fit.prompt.0,
            cached,
            output: of.output().0,
            finish: class.finish,
            priority: class.priority,
        };
        self.engine.submit(config, &self.setup.cost, now, ask).then_some(())
    }

    fn ended(&mut self, now: Time, plan: &SessionPlan, call: u32) {
        // What fails makes its turn fail, which changes no time.
        self.play.ended(now, call, false);
        self.play.turn_ended(call);
        self.satisfy(now, plan, call, false);
    }

    fn satisfy(&mut self, now: Time, plan: &SessionPlan, call: u32, on_dispatch: bool) {
        for then in plan.then(call).iter().filter(|then| then.on_dispatch() == on_dispatch) {
            let then = then.call();
            if self.play.calls.stops_waiting(plan, then) {
                self.push(now + plan.gap(then), Event::Dispatch(then));
            }
        }
    }
}
