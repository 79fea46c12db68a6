//! Session affinity: a session stays where its first call went.
//!
//! Without a table that never fails. With one it is as in LiteLLM (`session_affinity`): a worker
//! keeps so many pins, each for so long after its last use; where there is no room the one that
//! expires first goes. Workers that share no store pin each by itself, and calls reach workers at
//! random.

use std::collections::BTreeSet;

use rustc_hash::FxHashMap;

use super::STREAMS;
use crate::config::router::Pins;
use crate::rng::{Purpose, Stream};
use crate::units::{ReplicaId, Span, Time};

/// The draws of the load balancer before the workers are a stream of their own.
const WORKERS: u64 = 1;

/// The workers' tables.
#[derive(Debug)]
pub(super) struct PinTables {
    tables: Vec<PinTable>,
    worker: Stream,
}

impl PinTables {
    pub(super) fn new(pins: &Pins, seed: u64, pool: u64) -> Self {
        let tables = if pins.shared { 1 } else { pins.workers };
        let table = |_| PinTable { size: pins.size, ttl: pins.ttl, ..PinTable::default() };
        Self {
            tables: (0..tables).map(table).collect(),
            worker: Stream::new(seed, Purpose::Router, STREAMS * pool + WORKERS),
        }
    }

    /// The table of the worker that the next call reaches.
    pub(super) fn reached(&mut self) -> &mut PinTable {
        let worker = match self.tables.len() as u64 {
            1 => 0,
            tables => self.worker.uniform_below(tables),
        };
        &mut self.tables[worker as usize]
    }
}

/// Which session is where, as long as that is remembered.
#[derive(Debug, Default)]
pub(super) struct PinTable {
    size: u64,
    ttl: Span,
    pins: FxHashMap<u32, Pin>,
    /// Pins by expiry, those of one instant by their last use.
    by_expiry: BTreeSet<(Time, u64, u32)>,
    uses: u64,
}

#[derive(Clone, Copy, Debug)]
struct Pin {
    replica: ReplicaId,
    expires: Time,
    used: u64,
}

impl PinTable {
    /// Where a session is.
    pub(super) fn find(&mut self, now: Time, session: u32) -> Option<ReplicaId> {
        while let Some(&(expires, used, other)) = self.by_expiry.first() {
            if expires > now {
                break;
            }
            self.by_expiry.remove(&(expires, used, other));
            self.pins.remove(&other);
        }
        self.pins.get(&session).map(|pin| pin.replica)
    }

    /// A session is there, and was used now.
    pub(super) fn pin(&mut self, now: Time, session: u32, replica: ReplicaId) {
        if let Some(pin) = self.pins.remove(&session) {
            self.by_expiry.remove(&(pin.expires, pin.used, session));
        } else if self.pins.len() as u64 >= self.size
            && let Some((_, _, first)) = self.by_expiry.pop_first()
        {
            self.pins.remove(&first);
        }
        self.uses += 1;
        let expires = Time(now.0.saturating_add(self.ttl.0));
        self.pins.insert(session, Pin { replica, expires, used: self.uses });
        self.by_expiry.insert((expires, self.uses, session));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pins(size: u64, workers: u64, shared: bool) -> PinTables {
        let ttl = Span::from_secs(3_600);
        PinTables::new(&Pins { size, ttl, workers, shared }, 1, 0)
    }

    /// The share of calls of sessions that find their pin, in random order.
    fn found(tables: &mut PinTables, sessions: u64) -> f64 {
        let mut order = Stream::new(7, Purpose::SessionOrder, 0);
        let (mut found, calls) = (0, 40_000);
        for call in 0..2 * calls {
            let (now, session) = (Time(call), order.uniform_below(sessions) as u32);
            let table = tables.reached();
            let hit = table.find(now, session).is_some();
            found += u64::from(hit && call >= calls);
            table.pin(now, session, ReplicaId(0));
        }
        found as f64 / calls as f64
    }

    #[test]
    fn in_random_order_a_pin_is_found_as_often_as_there_is_room_for_it() {
        // P(stay) = c + (1 - c) / R; the real Router has 92, 85, 76, 63 and 42 % at R = 4.
        for (sessions, measured) in
            [(220, 0.92), (250, 0.85), (300, 0.76), (400, 0.63), (800, 0.42)]
        {
            let c = found(&mut pins(200, 1, false), sessions);
            let expected = 200.0 / sessions as f64;
            assert!((c - expected).abs() < 0.02, "{c} of {expected} with {sessions}");
            let stay = c + (1.0 - c) / 4.0;
            assert!((stay - measured).abs() < 0.03, "{stay}, measured {measured}");
        }
    }

    #[test]
    fn taking_turns_over_more_sessions_than_pins_finds_none() {
        let mut tables = pins(200, 1, false);
        for call in 0..2_000u64 {
            let (now, session) = (Time(call), (call % 201) as u32);
            assert_eq!(tables.reached().find(now, session), None);
            tables.reached().pin(now, session, ReplicaId(1));
        }
    }

    #[test]
    fn a_use_renews_a_pin_and_time_ends_it() {
        let mut tables = pins(10, 1, false);
        let table = tables.reached();
        let at = |seconds: u64| Time::ZERO + Span::from_secs(seconds);
        table.pin(at(0), 1, ReplicaId(1));
        table.pin(at(0), 2, ReplicaId(2));
        table.pin(at(3_000), 1, ReplicaId(1));
        assert_eq!(table.find(at(3_600), 2), None);
        assert_eq!(table.find(at(6_599), 1), Some(ReplicaId(1)));
        assert_eq!(table.find(at(6_600), 1), None);
    }

    #[test]
    fn workers_without_a_shared_store_know_only_what_went_through_them() {
        let first_calls_only = |workers, shared| {
            let mut tables = pins(1_000_000, workers, shared);
            // Every session calls twice: its second call finds a pin if it meets the same worker.
            let mut found = 0;
            for session in 0..10_000 {
                tables.reached().pin(Time::ZERO, session, ReplicaId(0));
                found += u32::from(tables.reached().find(Time::ZERO, session).is_some());
            }
            f64::from(found) / 1e4
        };
        for workers in [1, 2, 4, 8] {
            let share = first_calls_only(workers, false);
            assert!((share - 1.0 / workers as f64).abs() < 0.02, "{share} with {workers}");
            assert!(first_calls_only(workers, true) == 1.0);
        }
    }
}
