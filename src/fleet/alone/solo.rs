//! Sessions of which no two calls meet: each call has the engine to itself, so how long it takes
//! follows from the price of its steps without an engine that takes them.
//!
//! The rest of the session is as the world plays it: what waits for what, in which order.

use std::sync::Arc;

use crate::engine::config::EngineConfig;
use crate::engine::step_time::{Carry, Contexts, Reach, StepCost, Ticks};
use crate::fleet::Setup;
use crate::fleet::overflow::{Fit, Verdict, fit_call};
use crate::fleet::population::Start;
use crate::fleet::session::Play;
use crate::fleet::workload::{BasePlan, SessionPlan};
use crate::trace::record::Finish;
use crate::units::{Span, Time, Tokens};

/// Plays sessions one after the other, as long as their calls do not meet.
#[derive(Debug)]
pub(super) struct Solo {
    setup: Arc<Setup>,
    engine: Lone,
    play: Play,
    nobody: Arc<SessionPlan>,
    /// By call that was dispatched: how it was fitted into the model's context.
    fits: Vec<Option<Fit>>,
    /// What clients and the API server do, the next last.
    events: Vec<(Time, Event)>,
    /// The call that the engine has, and when its last token comes out.
    running: Option<(Time, u32)>,
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
            engine: Lone::new(&setup.engine, &setup.cost),
            setup: Arc::clone(setup),
            play: Play::default(),
            nobody: Arc::default(),
            fits: Vec::new(),
            events: Vec::new(),
            running: None,
        })
    }

    /// The session's turns, less tool time; `None` if a call comes while the engine has another.
    pub(super) fn play(&mut self, plan: &Arc<SessionPlan>) -> Option<Span> {
        self.engine.begin();
        self.fits.clear();
        self.fits.resize(plan.calls.len(), None);
        self.events.clear();
        self.running = None;
        let start = Start { at: Time::ZERO, session: 0, pass: 0, player: 0, pin: None };
        self.play.begin(Arc::clone(plan), 0, start, Time::ZERO);
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
            // At one instant steps end first.
            if let Some((at, call)) = self.running.filter(|(at, _)| client.is_none_or(|c| *at <= c))
            {
                self.running = None;
                let after = self.setup.api.after_last_token(plan.calls[call as usize].output());
                self.push(at + after, Event::Ended(call));
                continue;
            }
            // A session that comes to no end has no time.
            let Some((now, event)) = self.events.pop() else { return Some(Span::ZERO) };
            match event {
                Event::Dispatch(call) => self.dispatch(now, plan, call),
                Event::Queue(_) if self.running.is_some() => return None,
                Event::Queue(call) => self.serve(now, plan, call),
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
        let (of, class) = (&plan.calls[call as usize], plan.class(call));
        let base = match of.base() {
            BasePlan::None => Fit::default(),
            BasePlan::Call(base) => self.fits[base as usize].unwrap_or_default(),
            BasePlan::Context(_) => Fit::of_context(of),
        };
        let max_model_len = self.setup.engine.max_model_len;
        let fit = fit_call(of, &base, self.setup.on_overflow, max_model_len);
        self.fits[call as usize] = Some(fit);
        if class.failed {
            let duration = plan.failed_after(call).unwrap_or_default();
            self.push(now + duration, Event::Ended(call));
        } else if fit.verdict == Verdict::Rejected {
            self.push(now, Event::Ended(call));
        } else {
            self.push(now + self.setup.api.before_queue(fit.prompt), Event::Queue(call));
        }
    }

    fn serve(&mut self, now: Time, plan: &SessionPlan, call: u32) {
        let fit = self.fits[call as usize].unwrap_or_default();
        let output = plan.calls[call as usize].output();
        let finish = plan.class(call).finish;
        self.running = Some((self.engine.serve(&self.setup, now, &fit, output, finish), call));
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
            if Play::stops_waiting(&mut self.play.calls, plan, then) {
                self.push(now + plan.calls[then as usize].gap, Event::Dispatch(then));
            }
        }
    }
}

/// An engine that has one request at a time.
#[derive(Debug)]
struct Lone {
    /// Most tokens of a prompt in one step.
    chunk: u64,
    /// The parts of a step's time that its context does not change: of a decode, and of a whole
    /// chunk that does not complete its prompt.
    decode: Ticks,
    whole_chunk: Ticks,
    reach: Option<Reach>,
    carry: Carry,
    /// When it has nothing more to do.
    idle_from: Time,
}

impl Lone {
    fn new(config: &EngineConfig, cost: &StepCost) -> Self {
        let (budget, cap) =
            (config.max_num_batched_tokens.0, config.long_prefill_token_threshold.0);
        let spared = cap == 0 || config.vllm.spares_a_lone_request_the_threshold();
        let chunk = if spared { budget } else { budget.min(cap) };
        let fixed = |decodes: u64, prefill: u64| {
            let mut load = cost.empty_load();
            load.add_decodes(decodes, 0, 0);
            if prefill > 0 {
                load.add_prefill(0, prefill, false);
            }
            Ticks(cost.ticks(&load).0 - cost.context_ticks(false, &load.contexts()).0)
        };
        let (decode, whole_chunk) = (fixed(1, 0), fixed(0, chunk));
        let reach = cost.empty_load().window();
        let (carry, idle_from) = (Carry::default(), Time::ZERO);
        Self { chunk, decode, whole_chunk, reach, carry, idle_from }
    }

    /// As if it had done nothing yet.
    fn begin(&mut self) {
        (self.carry, self.idle_from) = (Carry::default(), Time::ZERO);
    }

    /// A request comes; its kept tokens are in the cache. When its last token comes out.
    fn serve(
        &mut self,
        setup: &Setup,
        now: Time,
        fit: &Fit,
        output: Tokens,
        finish: Finish,
    ) -> Time {
        let (config, cost) = (&setup.engine, &setup.cost);
        let (prompt, block_size) = (fit.prompt.0, config.block_size);
        // At least the last token is computed.
        let whole = fit.kept.0.min(prompt.saturating_sub(1)) / block_size * block_size;
        let cached = if config.enable_prefix_caching { whole } else { 0 };
        let prefill = self.prefill(cost, cached, prompt);
        let decodes = self.decodes(cost, prompt, prompt + output.0 - 1);
        let begun = now.max(self.idle_from);
        let ended = begun + self.carry.step(Ticks(prefill.0 + decodes.0));
        self.idle_from = ended;
        // A step more was decided before anybody knew that this token is the last.
        let known = finish == Finish::Length || fit.prompt + output >= config.max_model_len;
        if config.async_scheduling && !known {
            let context = prompt + output.0;
            let ghost = self.decodes(cost, context - 1, context);
            self.idle_from = ended + self.carry.step(ghost);
        }
        ended
    }

    /// The steps that compute a prompt from `cached` tokens on.
    fn prefill(&self, cost: &StepCost, cached: u64, prompt: u64) -> Ticks {
        let whole = (prompt - cached - 1) / self.chunk;
        let mut load = cost.empty_load();
        let mut computed = cached;
        for _ in 0..whole {
            load.add_prefill(computed, self.chunk, false);
            computed += self.chunk;
        }
        let contexts = cost.context_ticks(false, &load.contexts());
        load.clear();
        load.add_prefill(computed, prompt - computed, true);
        Ticks(u128::from(whole) * self.whole_chunk.0 + contexts.0 + cost.ticks(&load).0)
    }

    /// The steps that decode with contexts longer than `from` tokens, up to `upto` tokens.
    fn decodes(&self, cost: &StepCost, from: u64, upto: u64) -> Ticks {
        let between =
            |below: fn(Option<Reach>, u64) -> u64, reach| below(reach, upto) - below(reach, from);
        let (decode, decode_windowed) = (between(seen, None), between(seen, self.reach));
        let contexts = Contexts { decode, decode_windowed, ..Contexts::default() };
        let fixed = u128::from(upto - from) * self.decode.0;
        Ticks(fixed + cost.context_ticks(false, &contexts).0)
    }
}

/// What contexts of one token, of two, and so on up to this length see, all together.
fn seen(reach: Option<Reach>, upto: u64) -> u64 {
    let all = |upto: u64| upto * (upto + 1) / 2;
    match reach {
        None => all(upto),
        Some(Reach::Sliding(window)) => {
            all(upto.min(window)) + upto.saturating_sub(window) * window
        }
        Some(Reach::Chunked(chunk)) => upto / chunk * all(chunk) + all(upto % chunk),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_contexts_see_is_summed_one_by_one() {
        for reach in [None, Some(Reach::Sliding(5)), Some(Reach::Chunked(7))] {
            let mut sum = 0;
            for context in 1..=40 {
                sum += reach.map_or(context, |reach| reach.seen(context));
                assert_eq!(seen(reach, context), sum, "{reach:?}: {context}");
            }
        }
    }
}
