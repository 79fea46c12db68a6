//! An engine without a KV cache, for one session: nothing is lacking and nothing is evicted, so
//! all that counts is who runs in which step.
//!
//! A request that nobody joins is told by one formula. From the moment on at which somebody does,
//! steps are decided one by one as the reference decides them, but that steps in which the same
//! requests decode are taken as one.

use super::prices::Prices;
use crate::engine::config::{EngineConfig, Policy};
use crate::engine::step_time::{Carry, Contexts, Series, StepCost, StepLoad, Ticks};
use crate::trace::record::Finish;
use crate::units::{Span, Time};

/// What arrives.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ask {
    pub(super) call: u32,
    pub(super) prompt: u64,
    pub(super) cached: u64,
    pub(super) output: u64,
    pub(super) finish: Finish,
    pub(super) priority: i32,
}

#[derive(Clone, Copy, Debug)]
struct Request {
    ask: Ask,
    outputs: u64,
    in_flight: u64,
    computed: u64,
    ended: bool,
}

/// A request's part of a step.
#[derive(Clone, Copy, Debug)]
struct Row {
    request: usize,
    tokens: u64,
    before: u64,
    emits: bool,
    decodes: bool,
}

/// What it does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Due {
    StepEnds(Time),
    StepStarts(Time),
}

/// One request that nobody has joined.
#[derive(Clone, Copy, Debug)]
struct Lone {
    ask: Ask,
    /// When its first step starts.
    begun: Time,
    ended: Time,
    /// What the steps before it have left.
    carry: Carry,
    /// Whether it came at the very instant at which a step for nothing began.
    in_between: bool,
}

/// The engine.
#[derive(Debug)]
pub(super) struct Few {
    prices: Prices,
    carry: Carry,
    lone: Option<Lone>,
    /// When the last step for nothing began and ends.
    ghost: (Time, Time),
    requests: Vec<Request>,
    running: Vec<usize>,
    waiting: Vec<usize>,
    batch: Vec<Row>,
    queued: Vec<Row>,
    due: Option<Due>,
    /// Calls that the last end of a step has ended.
    pub(super) finished: Vec<u32>,
}

impl Few {
    pub(super) fn new(config: &EngineConfig, cost: &StepCost) -> Self {
        Self {
            prices: Prices::new(config, cost),
            carry: Carry::default(),
            lone: None,
            ghost: (Time::ZERO, Time::ZERO),
            requests: Vec::new(),
            running: Vec::new(),
            waiting: Vec::new(),
            batch: Vec::new(),
            queued: Vec::new(),
            due: None,
            finished: Vec::new(),
        }
    }

    /// As if it had done nothing yet.
    pub(super) fn begin(&mut self) {
        (self.carry, self.lone, self.ghost) = (Carry::default(), None, (Time::ZERO, Time::ZERO));
        self.forget();
        self.due = None;
        self.finished.clear();
    }

    fn forget(&mut self) {
        self.requests.clear();
        self.running.clear();
        self.waiting.clear();
        self.batch.clear();
        self.queued.clear();
    }

    /// Whether a call has come to it and was not admitted yet.
    pub(super) fn waits(&self, now: Time, call: u32) -> bool {
        self.lone.is_some_and(|lone| lone.ask.call == call && lone.begun >= now)
            || self.waiting.iter().any(|request| self.requests[*request].ask.call == call)
    }

    /// Calls that wait to be admitted.
    pub(super) const fn waiting(&self) -> usize {
        self.waiting.len()
    }

    pub(super) fn due(&self) -> Option<Due> {
        match &self.lone {
            Some(lone) => Some(Due::StepEnds(lone.ended)),
            None => self.due,
        }
    }

    /// A request reaches the queue; false if that is beyond this engine.
    pub(super) fn submit(
        &mut self,
        config: &EngineConfig,
        cost: &StepCost,
        now: Time,
        ask: Ask,
    ) -> bool {
        if self.lone.is_none() && self.due.is_none() {
            let (begun, carry) = (now.max(self.ghost.1), self.carry);
            let in_between = now == self.ghost.0 && self.ghost.1 > now;
            let ended = begun + self.carry.step(self.prices.whole(cost, &ask));
            self.lone = Some(Lone { ask, begun, ended, carry, in_between });
            return true;
        }
        if let Some(lone) = self.lone.take() {
            if lone.in_between || self.prices.reach().is_some() {
                return false;
            }
            // It has company: its steps are taken again, one by one.
            self.carry = lone.carry;
            self.due = Some(Due::StepStarts(lone.begun));
            self.add(config, lone.ask);
            while let Some(Due::StepEnds(at) | Due::StepStarts(at)) = self.due {
                match self.due {
                    Some(Due::StepEnds(_)) if at <= now => self.end_step(config, at),
                    Some(Due::StepStarts(_)) if at < now => {
                        self.start_step(config, cost, at, Some(now));
                    }
                    _ => break,
                }
            }
        }
        self.add(config, ask);
        self.due.get_or_insert(Due::StepStarts(now));
        true
    }

    fn add(&mut self, config: &EngineConfig, ask: Ask) {
        let request = self.requests.len();
        self.requests.push(Request { ask, outputs: 0, in_flight: 0, computed: 0, ended: false });
        let at = match config.policy {
            Policy::Fcfs => self.waiting.len(),
            Policy::Priority => self
                .waiting
                .partition_point(|other| self.requests[*other].ask.priority <= ask.priority),
        };
        self.waiting.insert(at, request);
    }

    /// Does what is due; nobody comes before `until`.
    pub(super) fn advance(&mut self, config: &EngineConfig, cost: &StepCost, until: Option<Time>) {
        self.finished.clear();
        if let Some(lone) = self.lone.take() {
            self.finished.push(lone.ask.call);
            let ghost = self.prices.ghost(config, cost, &lone.ask);
            let span = ghost.map_or(Span::ZERO, |ghost| self.carry.step(ghost));
            self.ghost = (lone.ended, lone.ended + span);
            return;
        }
        match self.due {
            Some(Due::StepStarts(at)) => self.start_step(config, cost, at, until),
            Some(Due::StepEnds(at)) => self.end_step(config, at),
            None => {}
        }
    }

    fn start_step(
        &mut self,
        config: &EngineConfig,
        cost: &StepCost,
        now: Time,
        until: Option<Time>,
    ) {
        std::mem::swap(&mut self.batch, &mut self.queued);
        self.queued.clear();
        if self.batch.is_empty() {
            self.schedule(config);
            std::mem::swap(&mut self.batch, &mut self.queued);
        }
        if self.batch.is_empty() {
            self.due = None;
            self.forget();
            return;
        }
        let load = self.load(cost);
        let first = self.prices.ticks(cost, &load);
        if config.async_scheduling && self.has_requests() {
            self.schedule(config);
        }
        let (at, ticks) = self.skip(config, cost, now, until, first, load.decode_seqs());
        let span = self.carry.step(ticks);
        self.due = Some(Due::StepEnds(at + span));
    }

    /// Takes all steps but the last of those that do the same: when that one starts, and how long
    /// it takes.
    fn skip(
        &mut self,
        config: &EngineConfig,
        cost: &StepCost,
        now: Time,
        until: Option<Time>,
        first: Ticks,
        decodes: u64,
    ) -> (Time, Ticks) {
        let all = self.running.len();
        let same = |rows: &[Row]| rows.len() == all && rows.iter().all(|row| row.decodes);
        let repeats = self.waiting.is_empty()
            && same(&self.batch)
            && (!config.async_scheduling || same(&self.queued));
        let left = |request: &usize| {
            let request = &self.requests[*request];
            request.ask.output - request.outputs
        };
        let least = self.running.iter().map(left).min().unwrap_or(0);
        // Those that the running one is one of, and after each of which another like it comes.
        let steps = least.saturating_sub(1);
        if !repeats || steps < 2 || self.batch.iter().any(|row| self.requests[row.request].ended) {
            return (now, first);
        }
        let contexts =
            Contexts { decode: decodes, decode_windowed: decodes, ..Contexts::default() };
        let slope = cost.context_ticks(false, &contexts);
        let series = Series { rest: self.carry, first, slope };
        let begun = until.map_or(steps, |until| series.begun(until - now, steps));
        let skipped = begun.saturating_sub(1);
        if skipped == 0 {
            return (now, first);
        }
        for &request in &self.running {
            let request = &mut self.requests[request];
            request.outputs += skipped;
            request.computed += skipped;
        }
        for row in self.batch.iter_mut().chain(&mut self.queued) {
            row.before += skipped;
        }
        self.carry = series.rest_after(skipped);
        (now + series.sum(skipped), Ticks(first.0 + u128::from(skipped) * slope.0))
    }

    fn has_requests(&self) -> bool {
        !(self.running.is_empty() && self.waiting.is_empty())
    }

    fn load(&self, cost: &StepCost) -> StepLoad {
        let mut load = cost.empty_load();
        for row in &self.batch {
            match row.decodes {
                true => load.add_decode(row.before + 1),
                false => load.add_prefill(row.before, row.tokens, row.emits),
            }
        }
        load
    }

    /// Decides the next step, which stands in the queue then.
    fn schedule(&mut self, config: &EngineConfig) {
        let mut budget = config.max_num_batched_tokens.0;
        for &request in &self.running {
            if budget == 0 {
                break;
            }
            let of = &self.requests[request];
            let known = of.ask.prompt + of.outputs;
            let last = of.in_flight > 0
                && of.ask.finish == Finish::Length
                && of.outputs + of.in_flight >= of.ask.output;
            let wanted = if last { 0 } else { known + of.in_flight - of.computed };
            let tokens = self.capped(config, wanted, of.computed, budget);
            if tokens > 0 {
                self.queued.push(Row::new(request, tokens, of.computed));
                budget -= tokens;
            }
        }
        while budget > 0 && self.running.len() < config.max_num_seqs && !self.waiting.is_empty() {
            let request = self.waiting[0];
            let Ask { prompt, cached, .. } = self.requests[request].ask;
            let tokens = self.capped(config, prompt - cached, cached, budget);
            self.queued.push(Row::new(request, tokens, cached));
            self.requests[request].computed = cached;
            self.waiting.remove(0);
            self.running.push(request);
            budget -= tokens;
        }
        for row in &mut self.queued {
            let of = &mut self.requests[row.request];
            of.computed += row.tokens;
            row.emits = of.computed == of.ask.prompt + of.outputs + of.in_flight;
            of.in_flight += u64::from(row.emits);
            row.decodes = row.tokens == 1 && row.before >= of.ask.prompt;
        }
    }

    fn capped(&self, config: &EngineConfig, wanted: u64, computed: u64, budget: u64) -> u64 {
        let threshold = config.long_prefill_token_threshold.0;
        let alone = self.running.len() + self.waiting.len() == 1;
        let spared = alone && config.vllm.spares_a_lone_request_the_threshold();
        let capped = if threshold > 0 && !spared { wanted.min(threshold) } else { wanted };
        capped.min(budget).min((config.max_model_len.0 - 1).saturating_sub(computed))
    }

    fn end_step(&mut self, config: &EngineConfig, now: Time) {
        self.finished.clear();
        for row in self.batch.drain(..) {
            let of = &mut self.requests[row.request];
            if !row.emits || of.ended {
                continue;
            }
            of.in_flight -= 1;
            of.outputs += 1;
            let known = of.ask.prompt + of.outputs;
            if of.outputs >= of.ask.output || known >= config.max_model_len.0 {
                of.ended = true;
                self.finished.push(of.ask.call);
                self.running.retain(|running| *running != row.request);
            }
        }
        let has_work = self.has_requests() || !self.queued.is_empty();
        self.due = has_work.then_some(Due::StepStarts(now));
        if !has_work {
            self.forget();
            self.ghost = (now, now);
        }
    }
}

impl Row {
    fn new(request: usize, tokens: u64, before: u64) -> Self {
        Self { request, tokens, before, emits: false, decodes: false }
    }
}
