//! Redis and the database: who waits for them, and what the spend queues hand over.

use super::breaker::{Health, Outcome};
use super::database::{Progress, Purpose, Query};
use super::effect::{Effect, Reason};
use super::spend::{Batch, Row};
use super::worker::PodState;
use super::{CallRef, Gateway, Step, Timer};
use crate::units::{Span, Time, WorkerId};

impl Gateway {
    /// Redis answers from now on, or does not.
    pub fn set_redis(&mut self, health: Health) {
        self.redis = health;
    }

    /// Queries take so many thousandths of their configured time from now on.
    pub fn slow_database(&mut self, thousandths: u64) {
        if let Some(database) = &mut self.database {
            database.slow_down(thousandths);
        }
    }

    /// An operation of a worker on Redis; `None` without Redis.
    pub(super) fn ask_redis(&mut self, now: Time, worker: WorkerId) -> Option<Outcome> {
        let redis = self.config.redis?;
        let health = self.redis;
        Some(self.worker(worker).breaker.call(now, &redis, health))
    }

    /// Looks up the key of a call.
    pub(super) fn query_key(&mut self, now: Time, call: CallRef, worker: WorkerId) {
        self.query(now, worker, Purpose::Key(call));
    }

    fn query(&mut self, now: Time, worker: WorkerId, purpose: Purpose) {
        self.serials += 1;
        let query = Query { id: self.serials, worker, purpose };
        let Some(database) = &mut self.database else { return };
        let gives_up = database.gives_up_at(now);
        match database.ask(query) {
            Some(progress) => self.progress(now, progress),
            None => {
                let timer = self.timers.set(gives_up, Timer::PoolTimeout(query.id));
                self.queries.insert(query.id, (query, Some(timer)));
            }
        }
    }

    /// A query runs or was refused: sets when that is known.
    fn progress(&mut self, now: Time, progress: Progress) {
        let (query, at, event) = match progress {
            Progress::Runs(query, span) => (query, now + span, Timer::QueryDone(query.id)),
            Progress::Refused(query) => (query, now, Timer::ConnectionRefused(query.id)),
        };
        let old = self.queries.insert(query.id, (query, None)).and_then(|(_, timer)| timer);
        if let Some(old) = old {
            self.timers.cancel(old);
        }
        self.timers.set(at, event);
    }

    pub(super) fn query_done(&mut self, now: Time, id: u64, effects: &mut Vec<Effect>) {
        let Some((query, _)) = self.queries.remove(&id) else { return };
        let mut next = Vec::new();
        if let Some(database) = &mut self.database {
            database.done(query, &mut next);
        }
        for progress in next {
            self.progress(now, progress);
        }
        match query.purpose {
            Purpose::Key(call) => {
                let ttl = self.config.auth.ttl;
                if let Some(key) = self.call(call).map(|call| call.spec.key) {
                    self.worker(query.worker).keys.learn(now, key, ttl);
                }
                self.step(now, call, Step::Count, effects);
            }
            Purpose::Insert(_) => {
                let more = self.worker(query.worker).spend.statement_done();
                self.insert(now, query.worker, more);
                self.after_spend(now, query.worker, effects);
            }
        }
        self.close_if_stopped(query.worker);
    }

    /// A pod that was killed meanwhile keeps no connection.
    fn close_if_stopped(&mut self, worker: WorkerId) {
        if self.pod_state(worker) == PodState::Stopped
            && let Some(database) = &mut self.database
        {
            database.close(worker);
        }
    }

    /// A query has waited as long as it may for a connection of its pool, if it still does.
    pub(super) fn pool_timeout(&mut self, now: Time, id: u64, effects: &mut Vec<Effect>) {
        let Some((query, timer)) = self.queries.get_mut(&id) else { return };
        *timer = None;
        let query = *query;
        if self.database.as_mut().is_some_and(|database| database.give_up(query)) {
            self.no_connection(now, id, effects);
        }
    }

    /// A query fails for want of a connection.
    pub(super) fn no_connection(&mut self, now: Time, id: u64, effects: &mut Vec<Effect>) {
        let Some((query, _)) = self.queries.remove(&id) else { return };
        match query.purpose {
            Purpose::Key(call) => {
                if self.call(call).is_some() {
                    self.metrics.counts.database_errors += 1;
                    self.refuse(now, call, 500, None, Reason::Database, effects);
                }
            }
            Purpose::Insert(_) => {
                let lost = self.worker(query.worker).spend.statement_failed();
                self.lose(query.worker, lost, effects);
            }
        }
    }

    /// A row of a call goes to its worker's queue.
    pub(super) fn bill(
        &mut self,
        now: Time,
        worker: WorkerId,
        nano_cost: u64,
        effects: &mut Vec<Effect>,
    ) {
        if self.database.is_none() || !self.config.spend.enabled {
            return;
        }
        let row = Row { bytes: self.config.spend.row_bytes, nano_cost };
        let lost = self.worker(worker).spend.push(row);
        self.lose(worker, lost, effects);
        self.after_spend(now, worker, effects);
    }

    fn lose(&mut self, worker: WorkerId, lost: Batch, effects: &mut Vec<Effect>) {
        if lost.rows > 0 {
            effects.push(Effect::RowsLost { worker, lost });
        }
    }

    /// Writes at once what is urgent, and everything of a pod that ends.
    fn after_spend(&mut self, now: Time, worker: WorkerId, effects: &mut Vec<Effect>) {
        let ends = self.pod_state(worker) == PodState::Draining;
        if ends || self.worker(worker).spend.is_urgent() {
            self.flush_spend(now, worker, effects);
        }
    }

    pub(super) fn flush_spend(&mut self, now: Time, worker: WorkerId, effects: &mut Vec<Effect>) {
        let rows = self.worker(worker).spend.flush();
        self.insert(now, worker, rows);
        self.stop_if_drained(self.workers[worker.index()].pod, effects);
    }

    fn insert(&mut self, now: Time, worker: WorkerId, rows: Option<u64>) {
        if let Some(rows) = rows {
            self.query(now, worker, Purpose::Insert(rows));
        }
    }

    pub(super) fn spend_poll(&mut self, now: Time, worker: WorkerId, effects: &mut Vec<Effect>) {
        if self.pod_state(worker) == PodState::Stopped {
            return;
        }
        let sleep = self.worker(worker).spend.next_poll();
        self.timers.set(now + sleep, Timer::SpendPoll(worker));
        self.flush_spend(now, worker, effects);
    }

    pub(super) fn spend_job(&mut self, now: Time, worker: WorkerId, effects: &mut Vec<Effect>) {
        if self.pod_state(worker) == PodState::Stopped {
            return;
        }
        let late = Span::from_secs_f64(5.0 * self.worker(worker).jitter.uniform_f64());
        let interval = self.config.spend.write_interval;
        self.timers.set(now + interval + late, Timer::SpendJob(worker));
        self.flush_spend(now, worker, effects);
    }
}
