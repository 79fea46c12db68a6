//! The clients' side: sessions start, calls are dispatched, answers come back.

use std::sync::Arc;

use super::arrivals::Failure;
use super::observer::Observer;
use super::overflow::{self, Fit, Verdict};
use super::pools::HomelessCall;
use super::population::Start;
use super::router::loads::Sent;
use super::session::Play;
use super::workload::{BasePlan, CallPlan, SessionPlan};
use super::world::{Event, InFlight, Stage, World};
use crate::engine::Engine;
use crate::observe::records::{CallOutcome, CallRecord, Missed, Place};
use crate::trace::lineage::Path;
use crate::units::{RequestId, Time, Tokens};

impl<E: Engine, O: Observer> World<'_, E, O> {
    /// A session starts; client time before its first calls counts from `started`.
    pub(super) fn start_session(&mut self, plan: &Arc<SessionPlan>, start: Start, started: Time) {
        let place = self.free_plays.pop().unwrap_or(self.plays.len() as u32);
        if place as usize == self.plays.len() {
            self.plays.push(Play::default());
        }
        let play = &mut self.plays[place as usize];
        if !self.content.open(&mut play.own, plan.segments) {
            self.fail(Failure::TooMuchContent);
            return;
        }
        self.visits.begin(place);
        let open_loop = self.setup.open_loop;
        play.begin(Arc::clone(plan), self.played, start, started, open_loop);
        self.played += 1;
        self.open_max = self.open_max.max(self.plays.len() - self.free_plays.len());
        for (call, wait) in plan.starts(self.setup.open_loop) {
            self.push(started + wait, Event::Dispatch { play: place, call });
        }
    }

    pub(super) fn dispatch(&mut self, now: Time, play: u32, call: u32) {
        self.plays[play as usize].dispatched(now, call);
        self.satisfy(now, play, call, true);
        let state = &self.plays[play as usize];
        let (plan, class) = (state.plan.call(call), state.plan.class(call));
        let (fit, path) = self.fit_and_continue(play, call, &plan);
        let Some(pool) = self.homes.of(&class, &self.arrivals.names) else {
            let session = &self.plays[play as usize].plan;
            let call = HomelessCall::new(session, call, &self.arrivals.names);
            self.fail(Failure::NoPool(call));
            return;
        };
        let request = self.new_request(now, (play, call), &fit, class.place, pool);
        let state = &mut self.plays[play as usize];
        if class.failed {
            let duration = state.plan.failed_after(call).unwrap_or_default();
            self.in_flight[request.index()].record.outcome = CallOutcome::RecordedFailure;
            self.push(now + duration, Event::Ended { request });
            return;
        }
        if fit.verdict == Verdict::Rejected {
            self.in_flight[request.index()].record.outcome = CallOutcome::Rejected;
            match self.gate {
                // It goes its way all the same; the replica that it comes to says so.
                Some(_) => self.send(now, request),
                None => self.push(now, Event::Ended { request }),
            }
            return;
        }
        if class.is_main {
            let context = fit.prompt + plan.output();
            let before = std::mem::replace(&mut state.context, context);
            self.live.change(now, before, context);
        }
        let in_flight = &mut self.in_flight[request.index()];
        in_flight.path = self.content.under_model(&mut state.own, path, class.model);
        in_flight.burst = self.burst.dispatched(now, request);
        self.send(now, request);
    }

    /// The call's prompt as it is sent, and its whole context.
    fn fit_and_continue(&mut self, play: u32, call: u32, plan: &CallPlan) -> (Fit, Path) {
        let state = &mut self.plays[play as usize];
        let (base_fit, base_path) = match plan.base() {
            BasePlan::None => (Fit::default(), Path::default()),
            BasePlan::Call(base) => state.take_base(base),
            BasePlan::Context(context) => (
                Fit::of_context(plan),
                self.content.context(&self.arrivals.contexts, context, state.pass),
            ),
        };
        let max_model_len = self.setup.engine.max_model_len;
        let rule = self.setup.on_overflow;
        let fit = overflow::fit_call(plan, &base_fit, rule, max_model_len);
        let end = fit.prompt + plan.output();
        let (path, last) = state.own.continued(&base_path, fit.kept, plan.goes_on(), end);
        let last = last.filter(|_| plan.nobody_goes_beyond);
        state.keep(call, &fit, &path, plan.continued_by, last);
        (fit, path)
    }

    fn new_request(
        &mut self,
        now: Time,
        (play, call): (u32, u32),
        fit: &Fit,
        place: Place,
        pool: u16,
    ) -> RequestId {
        let state = &self.plays[play as usize];
        let record = CallRecord {
            play: state.number,
            session: state.session,
            call,
            replica: None,
            pool,
            served_by: pool,
            dispatched: now,
            asked: now,
            sent: now,
            queued: now,
            scheduled: now,
            first_token: now,
            last_token: now,
            ended: now,
            prompt: fit.prompt,
            cached: Tokens::ZERO,
            ceiling: Tokens::ZERO,
            missed: Missed::default(),
            output: Tokens::ZERO,
            prefilled: Tokens::ZERO,
            preemptions: 0,
            lost: Tokens::ZERO,
            place,
            outcome: CallOutcome::Completed,
            compacted: fit.verdict == Verdict::Compacted,
            refusals: 0,
            attempts: 0,
            losses: 0,
        };
        let path = Path::default();
        let in_flight = InFlight {
            record,
            play,
            path,
            kept: fit.kept,
            burst: u64::MAX,
            sent: Sent::default(),
            stage: Stage::Client,
            attempt: 0,
            ask: 0,
        };
        if let Some(request) = self.free_requests.pop() {
            self.in_flight[request.index()] = in_flight;
            return request;
        }
        self.in_flight.push(in_flight);
        RequestId::from_index(self.in_flight.len() - 1)
    }

    pub(super) fn call_ended(&mut self, now: Time, request: RequestId) {
        self.in_flight[request.index()].record.ended = now;
        self.leave_replica(now, request);
        let InFlight { record, play, .. } = &self.in_flight[request.index()];
        let (record, play) = (*record, *play);
        self.free_requests.push(request);
        self.last_ended = now;
        if record.outcome == CallOutcome::Completed {
            self.count_answer(now, record.prompt + record.output);
        }
        self.tell(play, |observer, about| observer.call(&record, about));
        let state = &mut self.plays[play as usize];
        state.ended(now, record.call, record.outcome.is_failure());
        if let Some(turn) = state.turn_ended(record.call) {
            self.tell(play, |observer, about| observer.turn(&turn, about));
        }
        self.satisfy(now, play, record.call, false);
        if !self.plays[play as usize].is_open() {
            self.session_ended(now, play);
        }
    }

    /// Something has happened to a call: others may have waited for it.
    fn satisfy(&mut self, now: Time, play: u32, call: u32, on_dispatch: bool) {
        if self.setup.open_loop {
            return;
        }
        let Play { plan, calls, .. } = &mut self.plays[play as usize];
        for then in plan.then(call).iter().filter(|then| then.on_dispatch() == on_dispatch) {
            let then = then.call();
            if calls.stops_waiting(plan, then) {
                let at = now + plan.gap(then);
                self.queue.push(at, Event::Dispatch { play, call: then });
            }
        }
    }

    fn session_ended(&mut self, now: Time, play: u32) {
        let state = &self.plays[play as usize];
        let mut record = state.task_record(now);
        if self.live.window.holds(now)
            && self.observer.wants_alone()
            && let Some(times) = self.alone
        {
            record.alone =
                Some(times.task_llm(record.session, &state.plan, &self.arrivals.contexts));
        }
        let (context, player) = (state.context, state.player);
        self.live.change(now, context, Tokens::ZERO);
        self.tell(play, |observer, about| observer.task(&record, about));
        self.plays[play as usize].end(&self.nobody);
        self.free_plays.push(play);
        if let Some(next) = self.population.after_session(player, now) {
            self.push_start(next);
        }
    }
}
