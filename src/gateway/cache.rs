//! The routing cache of a worker: a few entries with a time to live, shared by everything that
//! the router remembers.
//!
//! When it is full the entry that expires first goes. Counters and cooldowns live a minute or less
//! and pins an hour, so counters go first, and of the pins the one that was used longest ago. A
//! counter keeps the end it was given when it was made; only pins are renewed by use.

use std::collections::{BTreeMap, BTreeSet};

use crate::units::{DeploymentId, Span, Time};

/// What an entry is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key {
    /// The deployment that a session of a model group is sent to.
    Pin {
        /// The group, by position.
        group: u32,
        /// The session.
        session: u64,
    },
    /// Answers of a deployment in the minute that began with the first.
    Successes(DeploymentId),
    /// Its failures, likewise.
    Fails(DeploymentId),
    /// It is left alone until the entry expires.
    Cooldown(DeploymentId),
    /// Its tokens in this minute of the clock.
    Tokens(DeploymentId, u64),
    /// The same as usage-based routing counts them.
    UsageTokens(DeploymentId, u64),
    /// Its requests, likewise.
    UsageRequests(DeploymentId, u64),
    /// The calls in flight of a group are known.
    InFlight(u32),
    /// The latencies of a group are known.
    Latencies(u32),
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    value: i64,
    expires: Time,
}

/// The cache.
#[derive(Clone, Debug)]
pub struct EntryCache {
    capacity: Option<usize>,
    entries: BTreeMap<Key, Entry>,
    by_expiry: BTreeSet<(Time, Key)>,
    evicted_pins: u64,
}

impl EntryCache {
    /// An empty cache of so many entries; `None` for no bound, as in Redis.
    #[must_use]
    pub fn new(capacity: Option<u32>) -> Self {
        Self {
            capacity: capacity.map(|entries| entries as usize),
            entries: BTreeMap::new(),
            by_expiry: BTreeSet::new(),
            evicted_pins: 0,
        }
    }

    /// The value, if it has not expired.
    #[must_use]
    pub fn get(&self, now: Time, key: Key) -> Option<i64> {
        self.entries.get(&key).filter(|entry| entry.expires > now).map(|entry| entry.value)
    }

    /// Sets a value that lives for `ttl` from now.
    pub fn renew(&mut self, now: Time, key: Key, value: i64, ttl: Span) {
        self.remove(key);
        self.insert(now, key, value, ttl);
    }

    /// Adds to a counter and returns its value; a new one lives for `ttl`, an old one as long as
    /// before.
    pub fn add(&mut self, now: Time, key: Key, more: i64, ttl: Span) -> i64 {
        match self.entries.get_mut(&key) {
            Some(entry) if entry.expires > now => {
                entry.value = entry.value.saturating_add(more);
                entry.value
            }
            _ => {
                self.renew(now, key, more, ttl);
                more
            }
        }
    }

    fn insert(&mut self, now: Time, key: Key, value: i64, ttl: Span) {
        if self.capacity == Some(0) {
            return;
        }
        self.drop_expired(now);
        while self.capacity.is_some_and(|most| self.entries.len() >= most) {
            let Some((_, first)) = self.by_expiry.pop_first() else { break };
            self.entries.remove(&first);
            self.evicted_pins += u64::from(matches!(first, Key::Pin { .. }));
        }
        let expires = now + ttl;
        self.entries.insert(key, Entry { value, expires });
        self.by_expiry.insert((expires, key));
    }

    fn drop_expired(&mut self, now: Time) {
        while let Some(&(expires, key)) = self.by_expiry.first().filter(|(at, _)| *at <= now) {
            self.by_expiry.remove(&(expires, key));
            self.entries.remove(&key);
        }
    }

    /// Takes an entry out.
    pub fn remove(&mut self, key: Key) {
        if let Some(entry) = self.entries.remove(&key) {
            self.by_expiry.remove(&(entry.expires, key));
        }
    }

    /// Entries, expired ones included until the next one comes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether it holds nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Pins among the entries.
    #[must_use]
    pub fn pins(&self) -> usize {
        let first = Key::Pin { group: 0, session: 0 };
        let last = Key::Pin { group: u32::MAX, session: u64::MAX };
        self.entries.range(first..=last).count()
    }

    /// Pins that had to go before they expired.
    #[must_use]
    pub fn evicted_pins(&self) -> u64 {
        self.evicted_pins
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Span = Span::from_secs(3_600);
    const MINUTE: Span = Span::from_secs(60);

    fn pin(session: u64) -> Key {
        Key::Pin { group: 0, session }
    }

    #[test]
    fn the_entry_that_expires_first_goes() {
        let mut cache = EntryCache::new(Some(3));
        cache.renew(Time(1), pin(1), 1, HOUR);
        cache.renew(Time(2), pin(2), 2, HOUR);
        cache.add(Time(3), Key::Successes(DeploymentId(0)), 1, MINUTE);
        cache.renew(Time(4), pin(3), 3, HOUR);
        assert_eq!(cache.get(Time(4), Key::Successes(DeploymentId(0))), None, "counters first");
        cache.renew(Time(5), pin(1), 1, HOUR);
        cache.renew(Time(6), pin(4), 4, HOUR);
        assert_eq!(cache.get(Time(6), pin(2)), None, "then the pin used longest ago");
        assert_eq!(cache.get(Time(6), pin(1)), Some(1));
        assert_eq!((cache.len(), cache.evicted_pins()), (3, 1));
    }

    #[test]
    fn counters_are_not_renewed_and_expire() {
        let mut cache = EntryCache::new(Some(200));
        let key = Key::Fails(DeploymentId(7));
        let second = Time::ZERO + Span::from_secs(59);
        assert_eq!(cache.add(Time::ZERO, key, 1, MINUTE), 1);
        assert_eq!(cache.add(second, key, 1, MINUTE), 2);
        assert_eq!(cache.get(Time::ZERO + MINUTE, key), None);
        assert_eq!(cache.add(Time::ZERO + MINUTE, key, 1, MINUTE), 1, "a new minute");
    }

    #[test]
    fn no_room_remembers_nothing() {
        let mut cache = EntryCache::new(Some(0));
        cache.renew(Time(1), pin(1), 1, HOUR);
        assert!(cache.is_empty());
        assert_eq!(EntryCache::new(None).pins(), 0);
    }
}
