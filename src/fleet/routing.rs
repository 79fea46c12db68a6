//! Calls go to replicas and leave them: what the router asks, and what it is told.

use super::observer::Observer;
use super::router::{Answer, Ask};
use super::world::{InFlight, World};
use crate::engine::Engine;
use crate::units::{RequestId, Time};

impl<E: Engine, O: Observer> World<'_, E, O> {
    /// Chooses a replica for a call.
    pub(super) fn route(&mut self, now: Time, request: RequestId) {
        let InFlight { record, play, path, sent, .. } = &mut self.in_flight[request.index()];
        let play = &mut self.plays[*play as usize];
        let ask = Ask { now, session: play.number, pin: play.pin, path, prompt: record.prompt };
        let (replicas, agenda) = (&mut self.replicas, &mut self.agenda);
        let chosen = self.router.choose(&ask, |replica| {
            let engine = &mut replicas[replica.index()].engine;
            let cached = engine.cached(now, path, record.prompt);
            agenda.set(replica, engine.due());
            cached
        });
        let (replica, added) = chosen.expect("replicas take calls");
        *sent = added;
        record.replica = Some(replica);
        play.pin = Some(replica);
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
    }
}
