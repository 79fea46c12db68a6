//! The clients' side: sessions start, calls are dispatched, answers come back.

use super::overflow::{self, Fit, Verdict};
use super::population::Start;
use super::session::Play;
use super::workload::BasePlan;
use super::world::{Event, InFlight, World};
use crate::engine::Engine;
use crate::observe::records::{CallOutcome, CallRecord, TaskRecord};
use crate::trace::lineage::Path;
use crate::units::{RequestId, Time, Tokens};

impl<E: Engine> World<'_, E> {
    pub(super) fn start_session(&mut self, now: Time, start: Start) {
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
        let open = self.setup.open_loop;
        for (call, call_plan) in (0u32..).zip(&plan.calls) {
            if open || call_plan.after.is_empty() {
                let wait = if open { call_plan.offset } else { call_plan.gap };
                self.push(now + wait, Event::Dispatch { play, call });
            }
        }
    }

    pub(super) fn dispatch(&mut self, now: Time, play: u32, call: u32) {
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
        in_flight.path = self.content.under_model(path, call_plan.model);
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
        let end = fit.prompt + plan.output;
        let path = self.content.continued(&base_path, fit.kept, plan.goes_on, end);
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
            refusals: 0,
        };
        let in_flight = InFlight { record, path: Path::default() };
        if let Some(request) = self.free_requests.pop() {
            self.in_flight[request.index()] = in_flight;
            return request;
        }
        self.in_flight.push(in_flight);
        RequestId::from_index(self.in_flight.len() - 1)
    }

    pub(super) fn call_ended(&mut self, now: Time, request: RequestId) {
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
        turn.failed |= record.outcome.is_failure();
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
        if self.setup.open_loop {
            return;
        }
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
}
