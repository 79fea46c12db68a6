//! The paged KV cache of one engine, block by block, as vLLM's block pool keeps it.
//!
//! Every block is on the free list or held by at least one request, or both its content is cached
//! and nobody holds it: then it is free *and* can be hit. The free list is consumed from the
//! front. Released blocks with cached content go to its end, so that what was released longest ago
//! is evicted first; blocks without content go to its front and are used up before anything cached
//! is lost. Equal content computed twice takes two blocks; a lookup finds the older one.

use rustc_hash::FxHashMap;

use super::cache::BlockCache;
use super::config::Pool;
use crate::trace::lineage::{BlockKey, Path};
use crate::units::Blocks;

/// One block of the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockId(u32);

/// End of a linked list.
const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct Block {
    /// Requests that hold it.
    holders: u32,
    /// Its cached content.
    key: Option<BlockKey>,
    /// Neighbours on the free list.
    previous: u32,
    next: u32,
    /// The block of equal content that was cached next after this one.
    next_equal: u32,
}

impl Block {
    const EMPTY: Self =
        Self { holders: 0, key: None, previous: NONE, next: NONE, next_equal: NONE };
}

/// The blocks of one engine.
#[derive(Debug)]
pub struct KvCache {
    block_size: u64,
    caching: bool,
    /// Blocks that there are, if they are limited.
    limit: Option<u64>,
    /// The blocks that were handed out before.
    blocks: Vec<Block>,
    /// First and last of the free list, and its length. Blocks that were never handed out are not
    /// on it; they are used up before anything cached is lost, like all blocks without content.
    front: u32,
    back: u32,
    free: u64,
    /// The oldest block of each cached content.
    cached: FxHashMap<BlockKey, u32>,
    evicted: u64,
    released: u64,
}

impl KvCache {
    /// An empty cache.
    #[must_use]
    pub fn new(pool: Pool, block_size: u64, caching: bool) -> Self {
        let limit = match pool {
            Pool::Limited(blocks) => Some(blocks.0.saturating_sub(1)),
            Pool::Unlimited => None,
        };
        Self {
            block_size,
            caching,
            limit,
            blocks: Vec::new(),
            front: NONE,
            back: NONE,
            free: 0,
            cached: FxHashMap::default(),
            evicted: 0,
            released: 0,
        }
    }

    /// Blocks that were never handed out; no memory is spent on them.
    fn untouched(&self) -> u64 {
        self.limit.map_or(u64::MAX >> 1, |limit| limit - self.blocks.len() as u64)
    }

    /// Blocks that can be handed out now; cached content that nobody holds counts as free.
    #[must_use]
    pub fn free_blocks(&self) -> Blocks {
        Blocks(self.free + self.untouched())
    }

    /// Blocks that there are, the null block apart.
    #[must_use]
    pub fn blocks(&self) -> Blocks {
        Blocks(self.limit.unwrap_or(self.blocks.len() as u64))
    }

    /// Blocks that requests hold.
    #[must_use]
    pub fn used_blocks(&self) -> Blocks {
        Blocks(self.blocks.len() as u64 - self.free)
    }

    /// Different block contents that can be hit now.
    #[must_use]
    pub fn cached_contents(&self) -> usize {
        self.cached.len()
    }

    /// Blocks that have lost their cached content so far.
    #[must_use]
    pub fn evicted_total(&self) -> u64 {
        self.evicted
    }

    /// Counts releases: while it stands still, free blocks only become fewer.
    #[must_use]
    pub fn released_total(&self) -> u64 {
        self.released
    }

    /// Whether this content can be hit.
    #[must_use]
    pub fn is_cached(&self, key: BlockKey) -> bool {
        self.cached.contains_key(&key)
    }

    /// Appends to `hits` the cached blocks that `path` begins with, at most `limit` of them; it
    /// stops at the first miss. Nothing is touched.
    pub fn lookup(&self, path: &Path, limit: u64, hits: &mut Vec<BlockId>) {
        if !self.caching {
            return;
        }
        let found = path.block_keys(self.block_size).take(limit as usize);
        hits.extend(found.map_while(|key| self.cached.get(&key).copied().map(BlockId)));
    }

    /// How many of these blocks nobody holds: taking them makes fewer blocks free.
    #[must_use]
    pub fn count_free(&self, blocks: &[BlockId]) -> Blocks {
        let free = blocks.iter().filter(|block| self.blocks[block.0 as usize].holders == 0);
        Blocks(free.count() as u64)
    }

    /// One more request holds each of these cached blocks.
    pub fn touch(&mut self, blocks: &[BlockId]) {
        for block in blocks {
            if self.blocks[block.0 as usize].holders == 0 {
                self.unlink(block.0);
            }
            self.blocks[block.0 as usize].holders += 1;
        }
    }

    /// Hands out `count` blocks from the front of the free list, appending them to `out`. What was
    /// cached in them is evicted.
    ///
    /// # Panics
    /// If fewer are free: the caller asks [`Self::free_blocks`] first.
    pub fn allocate(&mut self, count: Blocks, out: &mut Vec<BlockId>) {
        for _ in 0..count.0 {
            if self.untouched() > 0 && !self.front_is_empty() {
                self.blocks.push(Block::EMPTY);
                self.push_front(self.blocks.len() as u32 - 1);
            }
            let block = self.front;
            assert!(block != NONE, "more blocks are taken than are free");
            self.unlink(block);
            self.evict(block);
            self.blocks[block as usize].holders = 1;
            out.push(BlockId(block));
        }
    }

    /// Whether the next block can be handed out without an eviction.
    fn front_is_empty(&self) -> bool {
        self.front != NONE && self.blocks[self.front as usize].key.is_none()
    }

    /// Makes a held, full block's content available to later lookups.
    pub fn insert(&mut self, block: BlockId, key: BlockKey) {
        if !self.caching {
            return;
        }
        debug_assert!(self.blocks[block.0 as usize].holders > 0, "a free block is being filled");
        debug_assert!(self.blocks[block.0 as usize].key.is_none(), "a block is cached twice");
        self.blocks[block.0 as usize].key = Some(key);
        let mut at = *self.cached.entry(key).or_insert(block.0);
        if at == block.0 {
            return;
        }
        while self.blocks[at as usize].next_equal != NONE {
            at = self.blocks[at as usize].next_equal;
        }
        self.blocks[at as usize].next_equal = block.0;
    }

    /// A request lets go of its blocks, given in the order of its context. The last block is
    /// released first, so that the tail of a context is evicted before its head.
    pub fn release(&mut self, blocks: &mut Vec<BlockId>) {
        if blocks.is_empty() {
            return;
        }
        for block in blocks.drain(..).rev() {
            let state = &mut self.blocks[block.0 as usize];
            state.holders -= 1;
            if state.holders > 0 {
                continue;
            }
            match state.key {
                Some(_) => self.push_back(block.0),
                None => self.push_front(block.0),
            }
        }
        self.released += 1;
    }

    /// Takes the cached content out of a block that is being handed out again.
    fn evict(&mut self, block: u32) {
        let Some(key) = self.blocks[block as usize].key.take() else { return };
        self.evicted += 1;
        let next_equal = std::mem::replace(&mut self.blocks[block as usize].next_equal, NONE);
        let mut at = self.cached[&key];
        if at == block {
            match next_equal {
                NONE => self.cached.remove(&key),
                next => self.cached.insert(key, next),
            };
            return;
        }
        while self.blocks[at as usize].next_equal != block {
            at = self.blocks[at as usize].next_equal;
        }
        self.blocks[at as usize].next_equal = next_equal;
    }

    fn push_back(&mut self, block: u32) {
        self.link(block, self.back, NONE);
    }

    fn push_front(&mut self, block: u32) {
        self.link(block, NONE, self.front);
    }

    fn link(&mut self, block: u32, previous: u32, next: u32) {
        self.blocks[block as usize].previous = previous;
        self.blocks[block as usize].next = next;
        self.set_next(previous, block);
        self.set_previous(next, block);
        self.free += 1;
    }

    fn unlink(&mut self, block: u32) {
        let Block { previous, next, .. } = self.blocks[block as usize];
        self.set_next(previous, next);
        self.set_previous(next, previous);
        self.free -= 1;
    }

    fn set_next(&mut self, block: u32, next: u32) {
        match block {
            NONE => self.front = next,
            block => self.blocks[block as usize].next = next,
        }
    }

    fn set_previous(&mut self, block: u32, previous: u32) {
        match block {
            NONE => self.back = previous,
            block => self.blocks[block as usize].previous = previous,
        }
    }

    /// Checks that no block is lost: each is free or held, and `held` says how often all of them
    /// are held together.
    ///
    /// # Panics
    /// If the books do not balance.
    pub fn check(&self, held: u64) {
        let holders: u64 = self.blocks.iter().map(|block| u64::from(block.holders)).sum();
        assert_eq!(holders, held, "blocks held by requests and holders of blocks differ");
        let unheld = self.blocks.iter().filter(|block| block.holders == 0).count() as u64;
        assert_eq!(unheld, self.free, "a block is neither free nor held");
        let (mut at, mut listed, mut content_seen) = (self.front, 0, false);
        while at != NONE {
            let block = &self.blocks[at as usize];
            assert!(block.key.is_some() || !content_seen, "an empty block behind a cached one");
            content_seen = block.key.is_some();
            listed += 1;
            at = block.next;
        }
        assert_eq!(listed, self.free, "the free list and its length differ");
        let keyed = self.blocks.iter().filter_map(|block| block.key);
        assert!(keyed.clone().all(|key| self.cached.contains_key(&key)), "content cannot be hit");
    }
}

impl BlockCache for KvCache {
    type Held = Vec<BlockId>;
    type Hits = Vec<BlockId>;

    fn new(pool: Pool, block_size: u64, caching: bool) -> Self {
        Self::new(pool, block_size, caching)
    }

    fn free_blocks(&self) -> Blocks {
        self.free_blocks()
    }

    fn blocks(&self) -> Blocks {
        self.blocks()
    }

    fn used_blocks(&self) -> Blocks {
        self.used_blocks()
    }

    fn cached_contents(&self) -> usize {
        self.cached_contents()
    }

    fn evicted_total(&self) -> u64 {
        self.evicted_total()
    }

    fn released_total(&self) -> u64 {
        self.released_total()
    }

    fn lookup(&self, path: &Path, limit: u64, hits: &mut Vec<BlockId>) {
        hits.clear();
        self.lookup(path, limit, hits);
    }

    fn hit_blocks(hits: &Vec<BlockId>) -> Blocks {
        Blocks(hits.len() as u64)
    }

    fn count_free(&self, _: &Path, hits: &Vec<BlockId>) -> Blocks {
        self.count_free(hits)
    }

    fn touch(&mut self, _: &Path, hits: &Vec<BlockId>, held: &mut Vec<BlockId>) {
        self.touch(hits);
        held.extend_from_slice(hits);
    }

    fn allocate(&mut self, count: Blocks, held: &mut Vec<BlockId>) {
        self.allocate(count, held);
    }

    fn held_blocks(held: &Vec<BlockId>) -> Blocks {
        Blocks(held.len() as u64)
    }

    fn insert(&mut self, path: &Path, from: u64, to: u64, held: &mut Vec<BlockId>) {
        for block in from..to {
            let key = path.block_key(block, self.block_size);
            let key = key.expect("a request's path holds its prompt and its output");
            self.insert(held[block as usize], key);
        }
    }

    fn is_cached(&self, path: &Path, block: u64) -> bool {
        path.block_key(block, self.block_size).is_some_and(|key| self.is_cached(key))
    }

    fn release(&mut self, held: &mut Vec<BlockId>) {
        self.release(held);
    }

    fn free_order(&self) -> Vec<Option<BlockKey>> {
        let first = (self.front != NONE).then_some(self.front);
        let next = |&at: &u32| Some(self.blocks[at as usize].next).filter(|&next| next != NONE);
        std::iter::successors(first, next).map(|at| self.blocks[at as usize].key).collect()
    }

    fn check(&self, held: u64) {
        self.check(held);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::{SegmentId, Tokens};

    fn context(segment: u32, tokens: u64) -> Path {
        Path::default().continued(Tokens::ZERO, SegmentId(segment), Tokens(tokens))
    }

    fn fill(cache: &mut KvCache, path: &Path) -> Vec<BlockId> {
        let mut held = Vec::new();
        cache.allocate(path.len().blocks_ceil(4), &mut held);
        for (block, key) in held.iter().zip(path.block_keys(4)) {
            cache.insert(*block, key);
        }
        held
    }

    fn hits(cache: &KvCache, path: &Path) -> usize {
        let mut hits = Vec::new();
        cache.lookup(path, u64::MAX, &mut hits);
        hits.len()
    }

    #[test]
    fn the_null_block_is_never_handed_out() {
        let cache = KvCache::new(Pool::Limited(Blocks(8)), 4, true);
        assert_eq!(cache.free_blocks(), Blocks(7));
    }

    #[test]
    fn the_tail_of_the_oldest_release_is_evicted_first() {
        let mut cache = KvCache::new(Pool::Limited(Blocks(7)), 4, true);
        let (old, young) = (context(0, 12), context(1, 12));
        let mut held = [fill(&mut cache, &old), fill(&mut cache, &young)];
        held.iter_mut().for_each(|blocks| cache.release(blocks));
        let mut taken = Vec::new();
        cache.allocate(Blocks(1), &mut taken);
        assert_eq!((hits(&cache, &old), hits(&cache, &young)), (2, 3));
        cache.allocate(Blocks(2), &mut taken);
        assert_eq!((hits(&cache, &old), hits(&cache, &young)), (0, 3));
        assert_eq!(cache.evicted_total(), 3);
        cache.check(3);
    }

    #[test]
    fn the_partial_block_is_reused_before_anything_cached() {
        let mut cache = KvCache::new(Pool::Limited(Blocks(5)), 4, true);
        let path = context(0, 10);
        let mut held = fill(&mut cache, &path);
        cache.release(&mut held);
        cache.allocate(Blocks(2), &mut Vec::new());
        assert_eq!((hits(&cache, &path), cache.evicted_total()), (2, 0));
    }

    #[test]
    fn a_duplicate_takes_over_when_the_older_copy_is_evicted() {
        let mut cache = KvCache::new(Pool::Limited(Blocks(4)), 4, true);
        let path = context(0, 4);
        let (mut first, mut second) = (fill(&mut cache, &path), fill(&mut cache, &path));
        let mut found = Vec::new();
        cache.lookup(&path, 1, &mut found);
        assert_eq!(found, first, "the older copy is found");
        cache.release(&mut first);
        cache.allocate(Blocks(2), &mut Vec::new());
        found.clear();
        cache.lookup(&path, 1, &mut found);
        assert_eq!(found, second, "the younger copy is found once the older one is gone");
        assert_eq!(cache.cached_contents(), 1);
        cache.release(&mut second);
        cache.allocate(Blocks(1), &mut Vec::new());
        assert_eq!(hits(&cache, &path), 0);
    }

    #[test]
    fn an_unlimited_cache_evicts_nothing() {
        let mut cache = KvCache::new(Pool::Unlimited, 4, true);
        let (old, young) = (context(0, 12), context(1, 10));
        for path in [&old, &young, &context(2, 9)] {
            let mut held = fill(&mut cache, path);
            cache.release(&mut held);
        }
        assert_eq!((hits(&cache, &old), hits(&cache, &young)), (3, 2));
        // The third context took the second's block without content, and new ones for the rest.
        assert_eq!((cache.evicted_total(), cache.blocks()), (0, Blocks(8)));
        cache.check(0);
    }

    #[test]
    fn a_touched_block_is_not_free() {
        let mut cache = KvCache::new(Pool::Limited(Blocks(4)), 4, true);
        let path = context(0, 8);
        let mut held = fill(&mut cache, &path);
        cache.release(&mut held);
        let mut found = Vec::new();
        cache.lookup(&path, 2, &mut found);
        assert_eq!(cache.count_free(&found), Blocks(2));
        cache.touch(&found);
        assert_eq!((cache.free_blocks(), cache.count_free(&found)), (Blocks(1), Blocks(0)));
        cache.check(2);
    }
}
