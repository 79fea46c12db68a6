//! What a router that sees no caches believes of them: what it sent somewhere lately is there.
//!
//! As in Dynamo without KV events and in the approximate producer of llm-d: entries are forgotten
//! some time after they were last sent, and the oldest first where the room is used up. Answers are
//! not seen, so what a replica generated counts from when it is sent back as a prompt.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use crate::config::router::Memory;
use crate::trace::lineage::Path;
use crate::units::{SegmentId, Span, Time, Tokens};

/// What is believed to be in one replica's cache.
#[derive(Debug)]
pub(super) struct Believed {
    room: u64,
    ttl: Span,
    /// By segment.
    parts: FxHashMap<SegmentId, Part>,
    /// Segments in the order in which they were last sent.
    by_use: BTreeMap<u64, SegmentId>,
    uses: u64,
    tokens: u64,
}

/// A segment as far as it was sent.
#[derive(Clone, Copy, Debug)]
struct Part {
    from: u64,
    upto: u64,
    sent: Time,
    used: u64,
}

impl Believed {
    pub(super) fn new(memory: &Memory) -> Self {
        Self {
            room: memory.tokens.0,
            ttl: memory.ttl,
            parts: FxHashMap::default(),
            by_use: BTreeMap::new(),
            uses: 0,
            tokens: 0,
        }
    }

    /// Leading tokens of a prompt that are believed to be there.
    pub(super) fn known(&self, now: Time, path: &Path, prompt: Tokens) -> Tokens {
        let runs = path.runs();
        for run in (0..runs.len()).rev() {
            let start = run.checked_sub(1).map_or(0, |before| runs[before].end.0);
            let Some(part) = self.parts.get(&runs[run].segment) else { continue };
            let upto = part.upto.min(runs[run].end.0).min(prompt.0);
            if upto > start && now.saturating_since(part.sent) < self.ttl {
                return Tokens(upto);
            }
        }
        Tokens::ZERO
    }

    /// A prompt was sent there.
    pub(super) fn sent(&mut self, now: Time, path: &Path, prompt: Tokens) {
        let runs = path.runs();
        // From the last one back: of what was sent together the end is forgotten first.
        for run in (0..runs.len()).rev() {
            let start = run.checked_sub(1).map_or(0, |before| runs[before].end.0);
            let upto = runs[run].end.0.min(prompt.0);
            if upto <= start {
                continue;
            }
            let before = self.forget(runs[run].segment);
            let (from, upto) =
                before.map_or((start, upto), |part| (part.from.min(start), part.upto.max(upto)));
            self.uses += 1;
            self.tokens += upto - from;
            self.by_use.insert(self.uses, runs[run].segment);
            let part = Part { from, upto, sent: now, used: self.uses };
            self.parts.insert(runs[run].segment, part);
        }
        self.forget_old(now);
    }

    /// Its cache is gone.
    pub(super) fn forget_all(&mut self) {
        self.parts.clear();
        self.by_use.clear();
        self.tokens = 0;
    }

    fn forget(&mut self, segment: SegmentId) -> Option<Part> {
        let part = self.parts.remove(&segment)?;
        self.by_use.remove(&part.used);
        self.tokens -= part.upto - part.from;
        Some(part)
    }

    fn forget_old(&mut self, now: Time) {
        while let Some((_, &segment)) = self.by_use.first_key_value() {
            let old = self.parts.get(&segment).is_none_or(|part| {
                self.tokens > self.room || now.saturating_since(part.sent) >= self.ttl
            });
            if !old {
                break;
            }
            self.forget(segment);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn believed(tokens: u64) -> Believed {
        Believed::new(&Memory { tokens: Tokens(tokens), ttl: Span::from_secs(120) })
    }

    fn path(segments: &[(u32, u64)]) -> Path {
        let mut path = Path::default();
        for &(segment, end) in segments {
            path.extend(SegmentId(segment), Tokens(end));
        }
        path
    }

    #[test]
    fn what_was_sent_is_known_as_far_as_it_was_sent() {
        let mut there = believed(10_000);
        there.sent(Time(0), &path(&[(1, 100), (2, 300)]), Tokens(250));
        let known = |path: &Path| there.known(Time(5), path, Tokens(1_000)).0;
        assert_eq!(known(&path(&[(1, 100), (2, 300)])), 250);
        assert_eq!(known(&path(&[(1, 80), (3, 300)])), 80);
        assert_eq!(known(&path(&[(4, 80)])), 0);
        assert_eq!(there.known(Time(5), &path(&[(1, 100), (2, 300)]), Tokens(40)).0, 40);
    }

    #[test]
    fn it_is_forgotten_with_time_unless_it_is_sent_again() {
        let mut there = believed(10_000);
        let at = |seconds: u64| Time::ZERO + Span::from_secs(seconds);
        let (shared, own) = (path(&[(1, 100), (2, 300)]), path(&[(1, 100), (3, 200)]));
        there.sent(at(0), &shared, Tokens(300));
        there.sent(at(60), &own, Tokens(200));
        assert_eq!(there.known(at(119), &shared, Tokens(300)).0, 300);
        assert_eq!(there.known(at(120), &shared, Tokens(300)).0, 100);
        there.sent(at(150), &path(&[(9, 10)]), Tokens(10));
        assert!(!there.parts.contains_key(&SegmentId(2)) && there.tokens == 210);
    }

    #[test]
    fn where_room_is_short_the_oldest_goes_and_of_one_prompt_its_end() {
        let mut there = believed(350);
        there.sent(Time(0), &path(&[(1, 100), (2, 300)]), Tokens(300));
        there.sent(Time(1), &path(&[(5, 100)]), Tokens(100));
        assert_eq!(there.known(Time(2), &path(&[(1, 100), (2, 300)]), Tokens(300)).0, 100);
        assert_eq!(there.known(Time(2), &path(&[(5, 100)]), Tokens(100)).0, 100);
    }
}
