//! Calls go to replicas and leave them: what the router asks, and what it is told.

use super::admission::retry_after;
use super::observer::Observer;
use super::router::{Answer, Ask};
use super::visits::Known;
use super::world::{Event, InFlight, Stage, World};
use crate::engine::Engine;
use crate::observe::records::CallOutcome;
use crate::trace::lineage::Path;
use crate::units::{ReplicaId, RequestId, Span, Time};

impl<E: Engine, O: Observer> World<'_, E, O> {
    /// A client sends a call to whatever replica the router chooses.
    pub(super) fn send(&mut self, now: Time, request: RequestId) {
        if self.gate.is_some() {
            self.arrive_at_gateway(now, request);
        } else if self.route(now, request) {
            self.in_flight[request.index()].record.note_attempt(now);
            self.enter_server(now, request);
        } else {
            self.in_flight[request.index()].record.refusals += 1;
            self.ask_again(now, request);
        }
    }

    /// It is tokenised and checked, then it is in the queue.
    pub(super) fn enter_server(&mut self, now: Time, request: RequestId) {
        let attempt = self.next_attempt();
        let in_flight = &mut self.in_flight[request.index()];
        let queued = now + self.setup.api.before_queue(in_flight.record.prompt);
        in_flight.record.queued = queued;
        (in_flight.stage, in_flight.attempt) = (Stage::Sent, attempt);
        self.push(queued, Event::Queue { request, attempt });
    }

    /// A number that tells one way into a queue from another.
    pub(super) fn next_attempt(&mut self) -> u32 {
        self.attempts = self.attempts.wrapping_add(1);
        self.attempts
    }

    /// No replica has answered a call: the client sends it again later, or gives up.
    pub(super) fn ask_again(&mut self, now: Time, request: RequestId) {
        if let Some(wait) = self.patience(request) {
            self.push(now + wait, Event::Send { request });
        } else {
            self.in_flight[request.index()].record.outcome = CallOutcome::Refused;
            self.push(now, Event::Ended { request });
        }
    }

    /// How long the client waits before it sends a call again; `None` if it gives up.
    pub(super) fn patience(&self, request: RequestId) -> Option<Span> {
        let record = &self.in_flight[request.index()].record;
        let call = u64::from(record.play) << 24 | u64::from(record.call);
        let failures = record.refusals + record.losses;
        retry_after(&self.setup.client, failures, self.setup.seed, call)
    }

    /// Chooses a replica for a call. False if none takes calls.
    pub(super) fn route(&mut self, now: Time, request: RequestId) -> bool {
        let InFlight { record, play, path, sent, .. } = &mut self.in_flight[request.index()];
        let place = *play;
        let play = &mut self.plays[place as usize];
        let pool = self.router.serving(record.pool);
        let pin = play.pin(pool);
        let ask = Ask { now, session: play.number, pin, path, prompt: record.prompt };
        let (replicas, agenda) = (&mut self.replicas, &mut self.agenda);
        let mut look_up = |replica: ReplicaId, path: &Path| {
            let engine = &mut replicas[replica.index()].engine;
            let due = engine.due();
            let cached = engine.cached(now, path, record.prompt);
            if engine.due() != due {
                agenda.set(replica, engine.due());
            }
            cached
        };
        let chosen = if self.router.asks_caches(pool) {
            let shared = play.own.shared(path);
            let others = path.prefix(shared);
            let visits = self.visits.of(place);
            let cached = |replica: ReplicaId, whole| {
                let cached = look_up(replica, if whole { path } else { &others });
                debug_assert_eq!(cached, look_up(replica, path), "known where nobody has been");
                cached
            };
            let chosen = self.router.choose(pool, &ask, Known { visits, shared, cached });
            chosen.inspect(|(replica, _)| self.visits.add(place, *replica))
        } else {
            self.router.choose(pool, &ask, |replica| look_up(replica, path))
        };
        let Some((replica, added)) = chosen else {
            record.replica = None;
            return false;
        };
        *sent = added;
        (record.replica, record.served_by) = (Some(replica), pool);
        play.pin_to(pool, replica);
        true
    }

    /// A call has nothing more to do with the replica that it was sent to.
    pub(super) fn leave_replica(&mut self, now: Time, request: RequestId) {
        let InFlight { record, sent, .. } = &self.in_flight[request.index()];
        let Some(replica) = record.replica else { return };
        let answer = Answer {
            ttft: record.first_token.saturating_since(sent.at),
            all: record.last_token.saturating_since(sent.at),
            output: record.output,
        };
        // One that is refused has no output.
        let answer = (record.output.0 > 0).then_some(&answer);
        self.router.ended(now, replica, sent, answer);
        self.may_be_drained(now, replica);
    }
}
