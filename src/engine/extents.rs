//! The KV cache of one engine in extents: the same answers as block by block, with work that does
//! not grow with the context.
//!
//! A block's content is named by the segment that holds its last token and by its number. Blocks
//! of one segment that stand side by side and fare alike (as many holders, neighbours on the free
//! list) are one *extent*. An extent is cut where a hit, an eviction or a copy ends inside it, and
//! two are joined when they meet on the free list.
//!
//! Why this suffices: who holds a block of a context holds one of every block before it, and lets
//! go of the last one first. So what is cached of a context is always a leading part of it, and a
//! lookup needs only the highest cached block of the last segment that has any. Blocks without
//! content are all alike, and always handed out first: a number.
//!
//! Equal content that was computed twice is two extents over the same blocks, oldest first, of
//! which lookups take the oldest. A request finds its own by the *mark* of its admission.

use rustc_hash::FxHashMap;

use super::cache::BlockCache;
use super::config::Pool;
use crate::trace::lineage::{BlockKey, Path, key};
use crate::units::{Blocks, SegmentId, Tokens};

mod store;

use store::{Extent, NONE, Store};

/// The blocks of one engine. What every step needs comes first.
#[derive(Debug)]
#[repr(C)]
pub struct ExtentCache {
    /// Blocks that were handed out before.
    created: u64,
    /// Of these, free and without content.
    blank: u64,
    /// Blocks that there are, if they are limited.
    limit: Option<u64>,
    evicted: u64,
    store: Store,
    released: u64,
    block_size: u64,
    /// The binary digits of the block size, if it is a power of two: shifts divide faster.
    shift: Option<u32>,
    caching: bool,
    marks: u64,
}

/// The blocks that one request holds.
#[derive(Debug, Default)]
pub struct Held {
    /// With known content, in the order of the context.
    parts: Vec<Part>,
    /// Blocks in these.
    full: u64,
    /// Blocks behind them whose content nobody can hit.
    blank: u64,
    /// Tells what this request computed from other copies of the same content.
    mark: u64,
}

/// Blocks of one segment that one admission computed.
#[derive(Clone, Copy, Debug)]
struct Part {
    segment: SegmentId,
    from: u32,
    to: u32,
    mark: u64,
    /// The extent that ended at `to` when the part was made: nearly always it still does.
    last: u32,
}

/// How many blocks a path finds.
#[derive(Clone, Copy, Debug, Default)]
pub struct Hits {
    blocks: u32,
    /// The run that holds the last of them, and its segment's last extent.
    run: u32,
    top: u32,
}

impl Hits {
    /// The runs that may hold some of them, the last one first.
    #[inline]
    fn runs(&self) -> impl Iterator<Item = usize> + use<> {
        let runs = if self.blocks == 0 { 0 } else { self.run as usize + 1 };
        (0..runs).rev()
    }
}

impl ExtentCache {
    fn untouched(&self) -> u64 {
        self.limit.map_or(u64::MAX >> 1, |limit| limit - self.created)
    }

    /// The number of the block that the token behind `tokens` tokens is in.
    #[inline]
    fn whole(&self, tokens: Tokens) -> u32 {
        match self.shift {
            Some(shift) => (tokens.0 >> shift) as u32,
            None => tokens.blocks_floor(self.block_size).0 as u32,
        }
    }

    /// The blocks that belong to a run of a path: those whose last token it holds.
    #[inline]
    fn range(&self, path: &Path, run: usize) -> (u32, u32) {
        let runs = path.runs();
        let from = run.checked_sub(1).map_or(0, |before| self.whole(runs[before].end));
        (from, self.whole(runs[run].end))
    }

    /// How often an extent was looked at.
    #[cfg(test)]
    pub(super) fn looked_at(&self) -> u64 {
        self.store.looked_at()
    }

    /// Behind the last block of a segment that is cached.
    #[must_use]
    pub fn cached_upto(&self, segment: SegmentId) -> Option<u64> {
        self.store.top(segment).map(|top| u64::from(self.store[top].to))
    }

    /// Calls `visit` with the oldest extent of every hit, from the last block to the first, and
    /// with the part of it that is hit.
    fn for_each_hit(&self, path: &Path, hits: Hits, mut visit: impl FnMut(u32, u32, u32)) {
        for run in hits.runs() {
            let (from, end) = self.range(path, run);
            let to = end.min(hits.blocks);
            if from >= to {
                continue;
            }
            let mut at = self.last_hit(path, hits, run, to);
            loop {
                let Extent { from: start, to: end, below, .. } = self.store[at];
                visit(at, start.max(from), end.min(to));
                if start <= from {
                    break;
                }
                at = below;
            }
        }
    }

    /// The oldest extent of the last block that is hit in a run, before block `to`.
    #[inline]
    fn last_hit(&self, path: &Path, hits: Hits, run: usize, to: u32) -> u32 {
        if run == hits.run as usize {
            return self.store.oldest_below(hits.top, to - 1);
        }
        self.store.oldest_with(path.runs()[run].segment, to - 1)
    }

    /// Whether blocks that are taken may evict some of the hits. A hit's last block goes first, and
    /// only if nobody holds it.
    #[must_use]
    pub fn may_lose(&self, hits: Hits) -> bool {
        let Some(last) = hits.blocks.checked_sub(1) else { return false };
        let at = self.store.oldest_below(hits.top, last);
        self.store[at].holders == 0
    }

    /// Blocks that can be taken before one loses its cached content.
    #[must_use]
    pub fn free_without_content(&self) -> u64 {
        self.blank.saturating_add(self.untouched())
    }

    /// Takes blocks without a holder to keep an account of; [`Self::give_blank`] takes them over.
    #[inline]
    pub fn take(&mut self, count: u64) {
        match self.blank.checked_sub(count) {
            Some(left) => self.blank = left,
            None => self.take_more(count),
        }
    }

    fn take_more(&mut self, count: u64) {
        let more = count - std::mem::take(&mut self.blank);
        let new = more.min(self.untouched());
        self.created += new;
        if more > new {
            self.store.evict(more - new);
            self.evicted += more - new;
        }
    }

    /// A request holds blocks that were taken before, until it holds `blocks` in all.
    pub fn give_blank(held: &mut Held, blocks: u64) {
        held.blank = blocks - held.full;
    }

    fn insert_into(&mut self, segment: SegmentId, from: u32, to: u32, held: &mut Held) {
        let mark = held.mark;
        if let Some(part) = held.parts.last_mut()
            && (part.segment, part.to, part.mark) == (segment, from, mark)
            && self.store.grow(part.last, segment, from, to, mark)
        {
            part.to = to;
            return;
        }
        let top = self.store.top(segment);
        let upto = top.map_or(from, |top| self.store[top].to.max(from));
        let mut last = NONE;
        if upto > from {
            last = self.store.insert_copies(segment, from, to.min(upto), mark);
        }
        if to > upto {
            last = self.store.extend(segment, upto, to, mark);
        }
        match held.parts.last_mut() {
            Some(part) if part.segment == segment && part.mark == mark && part.to == from => {
                part.to = to;
                part.last = last;
            }
            _ => held.parts.push(Part { segment, from, to, mark, last }),
        }
    }

    fn release_part(&mut self, part: &Part) {
        let mut at = self.store.copy_ending(part.segment, part.to, part.mark, part.last);
        loop {
            let from = self.store[at].from;
            let below = self.store[at].below;
            let is_oldest = self.store[at].older == NONE;
            self.store.let_go(at);
            if from <= part.from {
                debug_assert!(from == part.from, "a part begins inside an extent");
                return;
            }
            let hint = if is_oldest { below } else { NONE };
            at = self.store.copy_ending(part.segment, from, part.mark, hint);
        }
    }
}

impl BlockCache for ExtentCache {
    type Held = Held;
    type Hits = Hits;

    fn new(pool: Pool, block_size: u64, caching: bool) -> Self {
        let limit = match pool {
            Pool::Limited(blocks) => Some(blocks.0.saturating_sub(1)),
            Pool::Unlimited => None,
        };
        Self {
            block_size,
            shift: block_size.is_power_of_two().then(|| block_size.trailing_zeros()),
            caching,
            limit,
            created: 0,
            blank: 0,
            store: Store::default(),
            evicted: 0,
            released: 0,
            marks: 0,
        }
    }

    #[inline]
    fn free_blocks(&self) -> Blocks {
        Blocks(self.blank + self.store.listed() + self.untouched())
    }

    fn blocks(&self) -> Blocks {
        Blocks(self.limit.unwrap_or(self.created))
    }

    #[inline]
    fn used_blocks(&self) -> Blocks {
        Blocks(self.created - self.blank - self.store.listed())
    }

    fn cached_contents(&self) -> usize {
        self.store.contents() as usize
    }

    fn evicted_total(&self) -> u64 {
        self.evicted
    }

    fn released_total(&self) -> u64 {
        self.released
    }

    fn lookup(&self, path: &Path, limit: u64, hits: &mut Hits) {
        hits.blocks = 0;
        if !self.caching {
            return;
        }
        let limit = u32::try_from(limit).unwrap_or(u32::MAX);
        let runs = path.runs();
        for run in (0..runs.len()).rev() {
            let (from, end) = self.range(path, run);
            let Some(top) = self.store.top(runs[run].segment) else { continue };
            let to = self.store[top].to.min(end).min(limit);
            if to > from {
                *hits = Hits { blocks: to, run: run as u32, top };
                return;
            }
        }
    }

    fn hit_blocks(hits: &Hits) -> Blocks {
        Blocks(hits.blocks.into())
    }

    fn count_free(&self, path: &Path, hits: &Hits) -> Blocks {
        let mut free = 0;
        self.for_each_hit(path, *hits, |at, from, to| {
            if self.store[at].holders == 0 {
                free += u64::from(to - from);
            }
        });
        Blocks(free)
    }

    fn touch(&mut self, path: &Path, hits: &Hits, held: &mut Held) {
        debug_assert!(held.parts.is_empty() && held.blank == 0, "hits come first");
        for run in hits.runs() {
            let (from, end) = self.range(path, run);
            let to = end.min(hits.blocks);
            if from >= to {
                continue;
            }
            let segment = path.runs()[run].segment;
            let mut at = self.last_hit(path, *hits, run, to);
            if self.store[at].to > to {
                self.store.cut(at, to);
            }
            loop {
                self.store.hold(at);
                let Extent { from: start, to: end, below, mark, .. } = self.store[at];
                match held.parts.last_mut() {
                    Some(part)
                        if part.segment == segment && part.mark == mark && part.from == end =>
                    {
                        part.from = start;
                    }
                    _ => held.parts.push(Part { segment, from: start, to: end, mark, last: at }),
                }
                if start <= from {
                    break;
                }
                at = below;
            }
        }
        held.parts.reverse();
        held.full = u64::from(hits.blocks);
    }

    fn allocate(&mut self, count: Blocks, held: &mut Held) {
        if count == Blocks::ZERO {
            return;
        }
        assert!(count <= self.free_blocks(), "more blocks are taken than are free");
        self.take(count.0);
        held.blank += count.0;
    }

    #[inline]
    fn held_blocks(held: &Held) -> Blocks {
        Blocks(held.full + held.blank)
    }

    fn insert(&mut self, path: &Path, from: u64, to: u64, held: &mut Held) {
        if !self.caching || from >= to {
            return;
        }
        debug_assert!(held.full == from, "blocks are filled in order");
        held.full = to;
        held.blank -= to - from;
        if held.mark == 0 {
            self.marks += 1;
            held.mark = self.marks;
        }
        let (from, to) = (from as u32, to as u32);
        let mut run = path.runs().len() - 1;
        if self.range(path, run).0 <= from {
            // Nearly always.
            return self.insert_into(path.runs()[run].segment, from, to, held);
        }
        while self.range(path, run).0 > from {
            run -= 1;
        }
        let mut at = from;
        while at < to {
            let end = self.range(path, run).1.min(to);
            if end > at {
                self.insert_into(path.runs()[run].segment, at, end, held);
                at = end;
            }
            run += 1;
        }
    }

    fn is_cached(&self, path: &Path, block: u64) -> bool {
        let last = Tokens((block + 1) * self.block_size - 1);
        let run = path.runs().partition_point(|run| run.end <= last);
        let Some(run) = path.runs().get(run) else { return false };
        self.cached_upto(run.segment).is_some_and(|upto| upto > block)
    }

    fn release(&mut self, held: &mut Held) {
        if held.full + held.blank == 0 {
            return;
        }
        self.blank += held.blank;
        while let Some(part) = held.parts.pop() {
            self.release_part(&part);
        }
        (held.full, held.blank, held.mark) = (0, 0, 0);
        self.released += 1;
    }

    fn free_order(&self) -> Vec<Option<BlockKey>> {
        let mut order = vec![None; self.blank as usize];
        for extent in self.store.free_list() {
            let blocks = (extent.from..extent.to).rev();
            order.extend(blocks.map(|block| Some(key(extent.segment, block.into()))));
        }
        order
    }

    fn check(&self, held: u64) {
        let mut copies: FxHashMap<(SegmentId, u32), u64> = FxHashMap::default();
        let (mut holders, mut blocks) = (0, 0);
        for extent in self.store.extents() {
            let length = u64::from(extent.to - extent.from);
            assert!(length > 0, "an extent of nothing");
            holders += length * u64::from(extent.holders);
            blocks += length;
            for block in extent.from..extent.to {
                *copies.entry((extent.segment, block)).or_default() += 1;
            }
        }
        let listed: u64 =
            self.store.free_list().map(|extent| u64::from(extent.to - extent.from)).sum();
        assert!(self.store.free_list().all(|extent| extent.holders == 0), "held and free");
        assert_eq!(listed, self.store.listed(), "the free list and its length differ");
        let unheld = self.store.extents().filter(|extent| extent.holders == 0);
        let unheld: u64 = unheld.map(|extent| u64::from(extent.to - extent.from)).sum();
        assert_eq!(unheld, listed, "an extent is neither free nor held");
        assert_eq!(copies.len() as u64, self.store.contents(), "contents are miscounted");
        // What is held without content, and by whom else the rest is held.
        let without = self.created - self.blank - blocks;
        assert_eq!(holders + without, held, "blocks held by requests and holders differ");
    }
}
