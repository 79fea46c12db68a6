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
    /// By call: where it is.
    ways: Vec<Way>,
}

/// Where a call is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// With its client, before its dispatch.
    Before,
    /// On its way to the engine's queue.
    Sent,
    /// It has come to the engine.
    Come,
    /// It had failed when recorded, or does not fit: no engine sees it.
    Never,
}

/// What happens outside the engine.
#[derive(Clone, Copy, Debug)]
enum Event {
    Dispatch(u32),
    Queue(u32),
    Ended(u32),
}

/// Events, or calls that wait, beyond which lists in order take too long.
const AT_ONCE_MAX: usize = 500;

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
            ways: Vec::new(),
        })
    }

    /// The session's turns, less tool time; `None` where that depends on what the cache holds, or
    /// where too much happens at once for lists.
    pub(super) fn play(&mut self, plan: &Arc<SessionPlan>) -> Option<Span> {
        if plan.starts(false).count() > AT_ONCE_MAX {
            return None;
        }
        self.engine.begin();
        self.fits.clear();
        self.fits.resize(plan.len(), None);
        self.ways.clear();
        self.ways.resize(plan.len(), Way::Before);
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
            if self.events.len().max(self.engine.waiting()) > AT_ONCE_MAX {
                return None;
            }
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
        self.ways[call as usize] = Way::Never;
        if class.failed {
            let duration = plan.failed_after(call).unwrap_or_default();
            self.push(now + duration, Event::Ended(call));
        } else if fit.verdict == Verdict::Rejected {
            self.push(now, Event::Ended(call));
        } else {
            self.ways[call as usize] = Way::Sent;
            self.push(now + self.setup.api.before_queue(fit.prompt), Event::Queue(call));
        }
    }

    fn queue(&mut self, now: Time, plan: &SessionPlan, call: u32) -> Option<()> {
        self.ways[call as usize] = Way::Come;
        if self.repeats_what_waits(now, plan, call) {
            return None;
        }
        let (of, class) = (plan.call(call), plan.class(call));
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

    /// What a call repeats is in the cache from here on. Whether one that wrote it has not been
    /// admitted yet, and will find its own content there.
    fn repeats_what_waits(&self, now: Time, plan: &SessionPlan, mut call: u32) -> bool {
        while let BasePlan::Call(base) = plan.call(call).base() {
            match self.ways[base as usize] {
                Way::Before => return false,
                Way::Sent => return true,
                // Those before it were looked at when it came.
                Way::Come => return self.engine.waits(now, base),
                Way::Never => call = base,
            }
        }
        false
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
