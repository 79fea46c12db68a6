//! Prompts as runs of block numbers.
//!
//! A block's key names the segment that holds its last token, and a segment's blocks follow one
//! another. So every segment gets a range of consecutive numbers, from its first block to its
//! last, and a prompt becomes a few ranges: no block is hashed, and one that continues its
//! predecessor whole is a single range.

use std::ops::Range;

use rustc_hash::FxHashMap;

use crate::diag::{Error, Result};
use crate::trace::lineage::Path;
use crate::trace::meta::PartialBlock;
use crate::units::{SegmentId, Tokens};

/// Numbers of blocks that follow one another in a prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockRun {
    /// The number of the first.
    pub first: u32,
    /// How many.
    pub count: u32,
}

impl BlockRun {
    /// The numbers, in the order of the prompt.
    #[must_use]
    pub fn ids(self) -> Range<u32> {
        self.first..self.first + self.count
    }
}

/// Hands out block numbers, from 0 without gaps.
#[derive(Debug)]
pub struct Numbering {
    block_size: u64,
    partial: PartialBlock,
    /// Indexed by segment.
    segments: Vec<SegmentBlocks>,
    /// The partial blocks that end a prompt, by the segment and the position of their end.
    partials: FxHashMap<(SegmentId, Tokens), u32>,
    next: u32,
}

#[derive(Clone, Copy, Debug)]
struct SegmentBlocks {
    first_block: u64,
    first_id: u32,
}

impl Numbering {
    /// No block yet.
    #[must_use]
    pub fn new(block_size: u64, partial: PartialBlock) -> Self {
        Self { block_size, partial, segments: Vec::new(), partials: FxHashMap::default(), next: 0 }
    }

    /// How many numbers were handed out.
    #[must_use]
    pub fn blocks(&self) -> u32 {
        self.next
    }

    /// A new segment that holds the positions from `start` to `end` of its context.
    ///
    /// # Errors
    /// If the blocks do not fit into 32 bits.
    pub fn segment(&mut self, start: Tokens, end: Tokens) -> Result<SegmentId> {
        let id = SegmentId::from_index(self.segments.len());
        let first_block = start.blocks_floor(self.block_size).0;
        let count = end.blocks_floor(self.block_size).0 - first_block;
        self.segments.push(SegmentBlocks { first_block, first_id: self.next });
        self.take(count)?;
        Ok(id)
    }

    /// Adds the block numbers of a prompt to `runs`.
    ///
    /// # Errors
    /// If the blocks do not fit into 32 bits.
    pub fn prompt(&mut self, prompt: &Path, runs: &mut Vec<BlockRun>) -> Result<()> {
        let from = runs.len();
        let mut next = 0;
        for run in prompt.runs() {
            let end = run.end.blocks_floor(self.block_size).0;
            let segment = self.segments[run.segment.index()];
            let skipped = next - segment.first_block;
            // Both fit: the segment's numbers were handed out for this range.
            let first = segment.first_id + skipped as u32;
            push(runs, from, BlockRun { first, count: (end - next) as u32 });
            next = end;
        }
        let whole = Tokens(next * self.block_size);
        if self.partial == PartialBlock::Count
            && let Some(last) = prompt.runs().last().filter(|last| last.end > whole)
        {
            let end = (last.segment, last.end);
            let first = match self.partials.get(&end) {
                Some(id) => *id,
                None => {
                    let id = self.take(1)?;
                    self.partials.insert(end, id);
                    id
                }
            };
            push(runs, from, BlockRun { first, count: 1 });
        }
        Ok(())
    }

    fn take(&mut self, count: u64) -> Result<u32> {
        let first = self.next;
        let next = u64::from(first) + count;
        // Two numbers stay free: caches use them as marks.
        if next > u64::from(u32::MAX - 2) {
            return Err(Error::new("the trace has more blocks than fit into 32 bits")
                .help("take a larger block size"));
        }
        self.next = next as u32;
        Ok(first)
    }
}

/// Adds a run, as part of the one before it where the numbers go on.
fn push(runs: &mut Vec<BlockRun>, from: usize, run: BlockRun) {
    if run.count == 0 {
        return;
    }
    match runs[from..].last_mut() {
        Some(last) if last.first + last.count == run.first => last.count += run.count,
        _ => runs.push(run),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn ids(runs: &[BlockRun]) -> Vec<u32> {
        runs.iter().flat_map(|run| run.ids()).collect()
    }

    #[test]
    fn numbers_are_equal_exactly_where_keys_are() {
        let mut numbering = Numbering::new(16, PartialBlock::Drop);
        let mut contexts = vec![Path::default()];
        let mut by_key = BTreeMap::new();
        let mut by_id = BTreeMap::new();
        // (base, kept, length): a tree with cuts inside blocks, at their edges, and nothing new.
        for (base, kept, len) in
            [(0, 0, 100), (1, 100, 260), (1, 64, 96), (1, 70, 70), (2, 99, 300), (5, 300, 301)]
        {
            let start = Tokens(kept);
            let segment = numbering.segment(start, Tokens(len)).unwrap();
            let path = contexts[base].continued(start, segment, Tokens(len));
            let mut runs = Vec::new();
            numbering.prompt(&path, &mut runs).unwrap();
            let keys: Vec<_> = path.block_keys(16).collect();
            assert_eq!(keys.len(), ids(&runs).len());
            for (key, id) in keys.into_iter().zip(ids(&runs)) {
                assert_eq!(*by_key.entry(key).or_insert(id), id);
                assert_eq!(*by_id.entry(id).or_insert(key), key);
            }
            contexts.push(path);
        }
    }

    #[test]
    fn append_only_growth_is_one_run() {
        let mut numbering = Numbering::new(16, PartialBlock::Drop);
        let mut path = Path::default();
        let mut runs = Vec::new();
        for end in [100u64, 250, 333, 700] {
            let segment = numbering.segment(path.len(), Tokens(end)).unwrap();
            path.extend(segment, Tokens(end));
            runs.clear();
            numbering.prompt(&path, &mut runs).unwrap();
        }
        assert_eq!(runs, [BlockRun { first: 0, count: 43 }]);
    }

    #[test]
    fn a_partial_block_is_the_same_only_for_the_same_whole_prompt() {
        let mut numbering = Numbering::new(16, PartialBlock::Count);
        let number = |path: &Path, numbering: &mut Numbering| {
            let mut runs = Vec::new();
            numbering.prompt(path, &mut runs).unwrap();
            ids(&runs)
        };
        let first = numbering.segment(Tokens(0), Tokens(60)).unwrap();
        let whole = Path::default().continued(Tokens(0), first, Tokens(40));
        let a = number(&whole, &mut numbering);
        assert_eq!(a.len(), 3);
        assert_eq!(number(&whole, &mut numbering), a);
        let longer = Path::default().continued(Tokens(0), first, Tokens(41));
        let b = number(&longer, &mut numbering);
        assert_eq!(a[..2], b[..2]);
        assert_ne!(a[2], b[2]);
    }

    #[test]
    fn too_many_blocks_are_refused() {
        let mut numbering = Numbering::new(1, PartialBlock::Drop);
        for _ in 0..4 {
            numbering.segment(Tokens(0), Tokens(1_000_000_000)).unwrap();
        }
        let error = numbering.segment(Tokens(0), Tokens(1_000_000_000)).unwrap_err();
        assert!(error.to_string().contains("larger block size"), "{error}");
    }
}
