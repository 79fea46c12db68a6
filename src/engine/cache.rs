//! What a scheduler asks of a KV cache.
//!
//! Two caches answer alike: [`KvCache`](super::kv::KvCache) keeps every block by itself and is the
//! reference; [`ExtentCache`](super::extents::ExtentCache) keeps runs of blocks, so that its work
//! does not grow with the context.

use std::fmt::Debug;

use super::config::Pool;
use crate::trace::lineage::{BlockKey, Path};
use crate::units::Blocks;

/// The KV cache of one engine.
pub trait BlockCache: Debug {
    /// The blocks that one request holds.
    type Held: Debug + Default;
    /// The cached blocks that a path begins with.
    type Hits: Debug + Default;

    /// An empty cache.
    fn new(pool: Pool, block_size: u64, caching: bool) -> Self;

    /// Blocks that can be handed out now; cached content that nobody holds counts as free.
    fn free_blocks(&self) -> Blocks;

    /// Blocks that there are, the null block apart; of an unlimited pool, those that were used.
    fn blocks(&self) -> Blocks;

    /// Blocks that requests hold.
    fn used_blocks(&self) -> Blocks;

    /// Different block contents that can be hit now.
    fn cached_contents(&self) -> usize;

    /// Blocks that have lost their cached content so far.
    fn evicted_total(&self) -> u64;

    /// Counts releases: while it stands still, free blocks only become fewer.
    fn released_total(&self) -> u64;

    /// The cached blocks that `path` begins with, at most `limit` of them. Nothing is touched.
    fn lookup(&self, path: &Path, limit: u64, hits: &mut Self::Hits);

    /// How many blocks were hit.
    fn hit_blocks(hits: &Self::Hits) -> Blocks;

    /// How many of the hits nobody holds: taking them makes fewer blocks free.
    fn count_free(&self, path: &Path, hits: &Self::Hits) -> Blocks;

    /// A request that holds nothing yet takes the hits of its path.
    fn touch(&mut self, path: &Path, hits: &Self::Hits, held: &mut Self::Held);

    /// A request takes `count` more blocks from the front of the free list. What was cached in
    /// them is evicted.
    fn allocate(&mut self, count: Blocks, held: &mut Self::Held);

    /// How many blocks a request holds.
    fn held_blocks(held: &Self::Held) -> Blocks;

    /// The blocks from number `from` up to `to` of a request are full: later lookups find them.
    fn insert(&mut self, path: &Path, from: u64, to: u64, held: &mut Self::Held);

    /// Whether block number `block` of a path can be hit, if those before it can.
    fn is_cached(&self, path: &Path, block: u64) -> bool;

    /// A request lets go of its blocks, the last one of its context first.
    fn release(&mut self, held: &mut Self::Held);

    /// The content of all free blocks, in the order in which they are handed out; blocks that were
    /// never handed out are left away.
    fn free_order(&self) -> Vec<Option<BlockKey>>;

    /// Checks that no block is lost; `held` are all blocks that requests say they hold, one that
    /// several hold counted several times.
    ///
    /// # Panics
    /// If the books do not balance.
    fn check(&self, held: u64);
}
