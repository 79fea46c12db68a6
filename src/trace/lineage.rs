//! Who shares which tokens with whom.
//!
//! Contexts form a tree. Every call writes one [segment](SegmentId) of content that nobody else
//! wrote: the new part of its prompt and, after it, its output. What lies before is its base's,
//! up to the kept tokens. A [`Path`] lists the segments of a context from the start; two contexts
//! agree exactly as far as their paths do, and no token is ever looked at.
//!
//! Since a segment has one parent only, the segment that holds a block's last token, together with
//! the block's number, names the whole chain of content up to there: that pair is the
//! [block key](Path::block_key), equal where an engine's chained block hash would be equal.
//!
//! ```
//! use tonnage::trace::lineage::Path;
//! use tonnage::units::{SegmentId, Tokens};
//!
//! let first = Path::default().continued(Tokens(0), SegmentId(0), Tokens(100));
//! let second = first.continued(Tokens(64), SegmentId(1), Tokens(200));
//! assert_eq!(first.block_key(3, 16), second.block_key(3, 16)); // tokens 48..64 are shared
//! assert_ne!(first.block_key(4, 16), second.block_key(4, 16)); // tokens 64..80 are not
//! ```

use smallvec::SmallVec;

use crate::units::{SegmentId, Tokens};

/// Runs that a path holds without memory of its own: few contexts have more.
const INLINE_RUNS: usize = 4;

/// A stretch of a context: the tokens from the end of the previous run up to `end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// Who wrote it.
    pub segment: SegmentId,
    /// Position in the context just behind its last token.
    pub end: Tokens,
}

/// Names a block's content and all content before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockKey(pub u64);

/// The content of a context, from its start: runs in order, each of at least one token.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Path {
    runs: SmallVec<[Run; INLINE_RUNS]>,
}

impl Clone for Path {
    /// All runs at once: the list's own way is one by one.
    #[inline]
    fn clone(&self) -> Self {
        Self { runs: SmallVec::from_slice(&self.runs) }
    }
}

impl Path {
    /// This context's first `kept` tokens, then `segment` up to position `end`.
    ///
    /// `kept` beyond this context's end counts as its end: those tokens belong to the new segment.
    #[must_use]
    pub fn continued(&self, kept: Tokens, segment: SegmentId, end: Tokens) -> Self {
        let mut path = self.prefix(kept);
        path.extend(segment, end);
        path
    }

    /// The first `len` tokens of this context.
    #[must_use]
    pub fn prefix(&self, len: Tokens) -> Self {
        let whole = self.runs.partition_point(|run| run.end <= len);
        let mut runs: SmallVec<[Run; INLINE_RUNS]> = SmallVec::from_slice(&self.runs[..whole]);
        let start = runs.last().map_or(Tokens::ZERO, |run| run.end);
        if let Some(cut) = self.runs.get(whole)
            && len > start
        {
            runs.push(Run { segment: cut.segment, end: len });
        }
        Self { runs }
    }

    /// Adds tokens of `segment` up to position `end`; nothing where the context is that long.
    pub fn extend(&mut self, segment: SegmentId, end: Tokens) {
        if end <= self.len() {
            return;
        }
        match self.runs.last_mut() {
            Some(last) if last.segment == segment => last.end = end,
            _ => self.runs.push(Run { segment, end }),
        }
    }

    /// Its runs, in order.
    #[must_use]
    pub fn runs(&self) -> &[Run] {
        &self.runs
    }

    /// Tokens in it.
    #[must_use]
    pub fn len(&self) -> Tokens {
        self.runs.last().map_or(Tokens::ZERO, |run| run.end)
    }

    /// Whether it holds no token.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Leading tokens that both contexts have in common.
    #[must_use]
    pub fn common_prefix(&self, other: &Self) -> Tokens {
        let mut common = Tokens::ZERO;
        for (mine, theirs) in self.runs.iter().zip(&other.runs) {
            if mine.segment != theirs.segment {
                break;
            }
            common = mine.end.min(theirs.end);
            if mine.end != theirs.end {
                break;
            }
        }
        common
    }

    /// The key of block number `block` (from 0) at `block_size` tokens a block; `None` where the
    /// context does not fill that block.
    #[must_use]
    pub fn block_key(&self, block: u64, block_size: u64) -> Option<BlockKey> {
        let last_token = Tokens((block + 1) * block_size - 1);
        let run = self.runs.partition_point(|run| run.end <= last_token);
        self.runs.get(run).map(|run| key(run.segment, block))
    }

    /// The keys of the first `blocks` whole blocks, or of as many as it fills.
    pub fn block_keys(&self, block_size: u64) -> impl Iterator<Item = BlockKey> + '_ {
        let mut next = 0u64;
        self.runs.iter().flat_map(move |run| {
            let from = next;
            next = run.end.0 / block_size;
            (from..next).map(move |block| key(run.segment, block))
        })
    }
}

/// The key of a block whose last token is in `segment`.
#[must_use]
pub(crate) fn key(segment: SegmentId, block: u64) -> BlockKey {
    debug_assert!(block < 1 << 32, "a context of more than 2^32 blocks");
    BlockKey(u64::from(segment.0) << 32 | block)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(runs: &[(u32, u64)]) -> Path {
        let runs = runs.iter().map(|&(s, end)| Run { segment: SegmentId(s), end: Tokens(end) });
        Path { runs: runs.collect() }
    }

    #[test]
    fn a_prefix_cuts_inside_a_run_and_at_its_edge() {
        let whole = path(&[(0, 10), (1, 25)]);
        assert_eq!(whole.prefix(Tokens(0)), path(&[]));
        assert_eq!(whole.prefix(Tokens(10)), path(&[(0, 10)]));
        assert_eq!(whole.prefix(Tokens(12)), path(&[(0, 10), (1, 12)]));
        assert_eq!(whole.prefix(Tokens(99)), whole);
    }

    #[test]
    fn continuing_beyond_the_base_gives_the_missing_tokens_to_the_new_segment() {
        let base = path(&[(0, 10)]);
        assert_eq!(base.continued(Tokens(15), SegmentId(1), Tokens(20)), path(&[(0, 10), (1, 20)]));
    }

    #[test]
    fn a_block_belongs_to_the_run_that_holds_its_last_token() {
        let context = path(&[(0, 10), (1, 33)]);
        let keys: Vec<_> = context.block_keys(8).collect();
        assert_eq!(
            keys,
            [
                key(SegmentId(0), 0),
                key(SegmentId(1), 1),
                key(SegmentId(1), 2),
                key(SegmentId(1), 3)
            ]
        );
        for (block, expected) in keys.iter().enumerate() {
            assert_eq!(context.block_key(block as u64, 8), Some(*expected));
        }
        assert_eq!(context.block_key(4, 8), None);
    }

    #[test]
    fn common_prefix_stops_where_the_segments_part() {
        let a = path(&[(0, 10), (1, 30)]);
        assert_eq!(a.common_prefix(&path(&[(0, 10), (1, 20), (2, 40)])), Tokens(20));
        assert_eq!(a.common_prefix(&path(&[(0, 5), (3, 40)])), Tokens(5));
        assert_eq!(a.common_prefix(&path(&[(7, 5)])), Tokens(0));
        assert_eq!(a.common_prefix(&a), Tokens(30));
    }
}
