//! PostgreSQL as the workers reach it: a pool of connections in each worker, PgBouncer in between
//! or not, and a bound on connections at the server.
//!
//! A query takes a connection of its worker's pool, waiting in line if all are busy, but no longer
//! than the pool's timeout. A pool opens connections as it needs them and keeps them. Without
//! PgBouncer each is one at the server, which refuses those beyond `max_connections`; with it a
//! query in addition waits for one of the few that PgBouncer has to the server.

use std::collections::VecDeque;

use super::call::CallRef;
use crate::config::gateway;
use crate::units::{Span, Time, WorkerId};

/// What a query is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// The key of a request.
    Key(CallRef),
    /// So many spend rows of the worker.
    Insert(u64),
}

/// One query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Query {
    /// Its number.
    pub id: u64,
    /// Whose pool it uses.
    pub worker: WorkerId,
    /// What it is for.
    pub purpose: Purpose,
}

/// What became of a query that was not waiting before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// It runs for so long.
    Runs(Query, Span),
    /// The server refused another connection.
    Refused(Query),
}

#[derive(Clone, Debug, Default)]
struct Pool {
    open: u32,
    busy: u32,
    waiting: VecDeque<Query>,
}

/// The database with all pools in front of it.
#[derive(Clone, Debug)]
pub struct Connections {
    config: gateway::Database,
    pools: Vec<Pool>,
    /// Connections that PgBouncer uses.
    server_busy: u32,
    server_queue: VecDeque<Query>,
    /// Times of queries are multiplied by this many thousandths.
    slowness: u64,
    /// Connections open now, over all pools.
    pub open: u32,
    /// Most that were ever open.
    pub open_max: u32,
    /// Connections that were refused.
    pub refused: u64,
}

impl Connections {
    /// No connections to a database as fast as configured.
    #[must_use]
    pub fn new(config: gateway::Database) -> Self {
        Self {
            config,
            pools: Vec::new(),
            server_busy: 0,
            server_queue: VecDeque::new(),
            slowness: 1_000,
            open: 0,
            open_max: 0,
            refused: 0,
        }
    }

    /// From now on queries take so many thousandths of their configured time.
    pub fn slow_down(&mut self, thousandths: u64) {
        self.slowness = thousandths;
    }

    /// A query comes. `None` while it waits.
    pub fn ask(&mut self, query: Query) -> Option<Progress> {
        let worker = query.worker.index();
        if self.pools.len() <= worker {
            self.pools.resize_with(worker + 1, Pool::default);
        }
        let pool = &mut self.pools[worker];
        if pool.busy == self.config.pool {
            pool.waiting.push_back(query);
            return None;
        }
        self.connect(query)
    }

    /// The query has a place in its pool.
    fn connect(&mut self, query: Query) -> Option<Progress> {
        let pool = &mut self.pools[query.worker.index()];
        if pool.busy == pool.open {
            let most = self
                .config
                .pgbouncer
                .map_or(self.config.max_connections, |bouncer| bouncer.client_connections);
            if self.open >= most {
                self.refused += 1;
                return Some(Progress::Refused(query));
            }
            pool.open += 1;
            self.open += 1;
            self.open_max = self.open_max.max(self.open);
        }
        pool.busy += 1;
        let Some(bouncer) = self.config.pgbouncer else { return Some(self.runs(query)) };
        if self.server_busy >= bouncer.server_connections.min(self.config.max_connections) {
            self.server_queue.push_back(query);
            return None;
        }
        self.server_busy += 1;
        Some(self.runs(query))
    }

    fn runs(&self, query: Query) -> Progress {
        let plain = match query.purpose {
            Purpose::Key(_) => self.config.key_query,
            Purpose::Insert(rows) => {
                Span(self.config.insert.0 + self.config.insert_row.0.saturating_mul(rows))
            }
        };
        let slowed = u128::from(plain.0) * u128::from(self.slowness) / 1_000;
        Progress::Runs(query, Span(u64::try_from(slowed).unwrap_or(u64::MAX >> 1)))
    }

    /// A query has run. Appends those that run or are refused now that it is out of the way.
    pub fn done(&mut self, query: Query, next: &mut Vec<Progress>) {
        if self.config.pgbouncer.is_some() {
            match self.server_queue.pop_front() {
                Some(waiting) => next.push(self.runs(waiting)),
                None => self.server_busy -= 1,
            }
        }
        let pool = &mut self.pools[query.worker.index()];
        pool.busy -= 1;
        while let Some(waiting) = self.pools[query.worker.index()].waiting.pop_front() {
            let progress = self.connect(waiting);
            next.extend(progress);
            if !matches!(progress, Some(Progress::Refused(_))) {
                break;
            }
        }
    }

    /// A query has waited too long in its pool. Whether it was still waiting there.
    pub fn give_up(&mut self, query: Query) -> bool {
        let waiting = &mut self.pools[query.worker.index()].waiting;
        let before = waiting.len();
        waiting.retain(|other| other.id != query.id);
        waiting.len() < before
    }

    /// A worker is gone, and with it its connections that are idle.
    pub fn close(&mut self, worker: WorkerId) {
        if let Some(pool) = self.pools.get_mut(worker.index()) {
            self.open -= pool.open - pool.busy;
            pool.open = pool.busy;
        }
    }

    /// When a query that comes now gives up waiting.
    #[must_use]
    pub fn gives_up_at(&self, now: Time) -> Time {
        now + self.config.pool_timeout
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::CallId;

    fn key(id: u64, worker: u32) -> Query {
        let call = CallRef { id: CallId(0), serial: id };
        Query { id, worker: WorkerId(worker), purpose: Purpose::Key(call) }
    }

    /// All workers busy at once: so many connections are open, so many queries were refused.
    fn all_busy(pods: u32, workers: u32, config: gateway::Database) -> (u32, u64) {
        let mut database = Connections::new(config);
        for worker in 0..pods * workers {
            for _ in 0..config.pool {
                let _ = database.ask(key(0, worker));
            }
        }
        (database.open_max, database.refused)
    }

    #[test]
    fn a_pod_of_four_workers_opens_40_connections_and_three_pods_120() {
        let roomy = gateway::Database { max_connections: 500, ..Default::default() };
        assert_eq!(all_busy(1, 4, roomy), (40, 0));
        assert_eq!(all_busy(3, 4, roomy), (120, 0));
        assert_eq!(all_busy(3, 4, gateway::Database::default()), (100, 20));
        let gateway = gateway::GatewayConfig {
            pods: 3,
            workers: 4,
            database: Some(roomy),
            ..Default::default()
        };
        assert_eq!(gateway.connections(), 120);
    }

    #[test]
    fn pgbouncer_lets_clients_wait_for_its_few_connections() {
        let pgbouncer = Some(gateway::PgBouncer::default());
        let mut database = Connections::new(gateway::Database { pgbouncer, ..Default::default() });
        let asked = (0..120).map(|id| database.ask(key(id, id as u32 / 10)));
        let running: Vec<Progress> = asked.flatten().collect();
        assert_eq!((running.len(), database.open, database.refused), (20, 120, 0));
        let mut next = Vec::new();
        database.done(key(0, 0), &mut next);
        assert_eq!(next, [Progress::Runs(key(20, 2), Span::from_millis(3))]);
    }

    #[test]
    fn a_full_pool_makes_queries_wait_and_they_give_up() {
        let mut database = Connections::new(gateway::Database { pool: 1, ..Default::default() });
        assert!(database.ask(key(1, 0)).is_some());
        assert!(database.ask(key(2, 0)).is_none() && database.ask(key(3, 0)).is_none());
        assert!(database.give_up(key(2, 0)) && !database.give_up(key(1, 0)));
        let mut next = Vec::new();
        database.slow_down(10_000);
        database.done(key(1, 0), &mut next);
        assert_eq!(next, [Progress::Runs(key(3, 0), Span::from_millis(30))]);
        database.close(WorkerId(0));
        assert_eq!(database.open, 1, "the one that is busy");
    }
}
