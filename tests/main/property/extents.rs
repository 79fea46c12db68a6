//! The cache in extents against the cache block by block: hits, evictions, copies, and the order of
//! the whole free list.

use proptest::prelude::*;
use proptest::sample::Index;
use tonnage::engine::cache::BlockCache;
use tonnage::engine::config::Pool;
use tonnage::engine::extents::ExtentCache;
use tonnage::engine::kv::KvCache;
use tonnage::trace::lineage::Path;
use tonnage::units::{Blocks, SegmentId, Tokens};

use super::{cases, config};

/// What is done to both caches.
#[derive(Clone, Debug)]
enum Operation {
    /// A request takes its hits and blocks for more of its context, and fills some.
    Take { context: Index, tokens: Index, spare: bool },
    /// One of the requests computes more of its context.
    Compute { request: Index, tokens: Index },
    /// What a request has computed can be hit, up to there.
    Fill { request: Index, share: Index },
    /// One of the requests ends, or is preempted.
    Release(Index),
}

fn operation() -> impl Strategy<Value = Operation> {
    let index = any::<Index>;
    prop_oneof![
        4 => (index(), index(), any::<bool>())
            .prop_map(|(context, tokens, spare)| Operation::Take { context, tokens, spare }),
        3 => (index(), index())
            .prop_map(|(request, tokens)| Operation::Compute { request, tokens }),
        2 => (index(), index()).prop_map(|(request, share)| Operation::Fill { request, share }),
        3 => index().prop_map(Operation::Release),
    ]
}

/// A request in one cache.
#[derive(Debug)]
struct Open<C: BlockCache> {
    held: C::Held,
}

/// A cache with the requests that hold its blocks.
struct Side<C: BlockCache> {
    cache: C,
    open: Vec<Open<C>>,
}

/// What of a request is the same in both caches.
#[derive(Clone, Debug)]
struct Request {
    context: usize,
    computed: u64,
    filled: u64,
}

impl<C: BlockCache> Side<C> {
    fn new(blocks: u64, block_size: u64, caching: bool) -> Self {
        Self {
            cache: C::new(Pool::Limited(Blocks(blocks + 1)), block_size, caching),
            open: Vec::new(),
        }
    }

    /// Gives the hits, or nothing if there is no room.
    fn take(&mut self, path: &Path, blocks: u64, limit: u64) -> (u64, u64, bool) {
        let mut hits = C::Hits::default();
        self.cache.lookup(path, limit, &mut hits);
        let found = C::hit_blocks(&hits);
        let free = self.cache.count_free(path, &hits);
        let missing = Blocks(blocks).saturating_sub(found);
        let fits = missing + free <= self.cache.free_blocks();
        if fits {
            let mut held = C::Held::default();
            self.cache.touch(path, &hits, &mut held);
            self.cache.allocate(missing, &mut held);
            self.open.push(Open { held });
        }
        (found.0, free.0, fits)
    }

    fn state(&self, paths: &[Path]) -> impl PartialEq + std::fmt::Debug {
        let cached = paths.iter().map(|path| {
            let mut hits = C::Hits::default();
            self.cache.lookup(path, u64::MAX, &mut hits);
            let found = C::hit_blocks(&hits);
            (found, self.cache.count_free(path, &hits), self.cache.is_cached(path, found.0))
        });
        (
            [self.cache.free_blocks(), self.cache.blocks(), self.cache.used_blocks()],
            (self.cache.cached_contents(), self.cache.evicted_total()),
            self.cache.released_total(),
            cached.collect::<Vec<_>>(),
            self.cache.free_order(),
        )
    }

    fn check(&self) {
        self.cache.check(self.open.iter().map(|open| C::held_blocks(&open.held).0).sum());
    }
}

struct Pair {
    plain: Side<KvCache>,
    extents: Side<ExtentCache>,
    requests: Vec<Request>,
    block_size: u64,
}

impl Pair {
    fn take(&mut self, paths: &[Path], context: usize, tokens: Index, spare: bool) {
        let path = &paths[context];
        let tokens = 1 + tokens.index(path.len().0 as usize) as u64;
        // As the scheduler limits it, or as nobody does.
        let limit = if spare { (tokens - 1) / self.block_size } else { tokens / self.block_size };
        let blocks = Tokens(tokens).blocks_ceil(self.block_size).0;
        let found = self.plain.take(path, blocks, limit);
        assert_eq!(found, self.extents.take(path, blocks, limit));
        if found.2 {
            self.requests.push(Request { context, computed: tokens, filled: found.0 });
        }
    }

    fn compute(&mut self, paths: &[Path], at: usize, tokens: Index) {
        let request = &mut self.requests[at];
        let left = paths[request.context].len().0 - request.computed;
        let tokens = request.computed + tokens.index(left as usize + 1) as u64;
        let needed = Tokens(tokens).blocks_ceil(self.block_size);
        let (plain, extents) = (&mut self.plain.open[at].held, &mut self.extents.open[at].held);
        let missing = needed - KvCache::held_blocks(plain);
        if missing <= self.plain.cache.free_blocks() {
            BlockCache::allocate(&mut self.plain.cache, missing, plain);
            self.extents.cache.allocate(missing, extents);
            request.computed = tokens;
        }
    }

    fn fill(&mut self, paths: &[Path], at: usize, share: Index) {
        let request = &mut self.requests[at];
        let full = request.computed / self.block_size - request.filled;
        let from = request.filled;
        request.filled += share.index(full as usize + 1) as u64;
        let path = &paths[request.context];
        let (plain, extents) = (&mut self.plain.open[at].held, &mut self.extents.open[at].held);
        BlockCache::insert(&mut self.plain.cache, path, from, request.filled, plain);
        self.extents.cache.insert(path, from, request.filled, extents);
    }

    fn release(&mut self, at: usize) {
        self.requests.remove(at);
        let mut plain = self.plain.open.remove(at).held;
        let mut extents = self.extents.open.remove(at).held;
        BlockCache::release(&mut self.plain.cache, &mut plain);
        self.extents.cache.release(&mut extents);
    }
}

/// A few contexts of which some continue others, so that blocks are shared and asked for again.
fn contexts() -> impl Strategy<Value = Vec<Path>> {
    let one = (any::<Index>(), 0u64..80, 0u64..50, any::<bool>());
    prop::collection::vec(one, 1..7).prop_map(|seeds| {
        let mut paths: Vec<Path> = Vec::new();
        for (number, (base, kept, new, whole)) in seeds.into_iter().enumerate() {
            let base = match base.index(number + 1) {
                own if own == number => Path::default(),
                base => paths[base].clone(),
            };
            let kept = if whole { base.len() } else { Tokens(kept).min(base.len()) };
            let end = (kept + Tokens(new)).max(Tokens(1));
            paths.push(base.continued(kept, SegmentId(number as u32), end));
        }
        paths
    })
}

proptest! {
    #![proptest_config(config(cases(1_500)))]

    #[test]
    fn extents_do_what_single_blocks_do(
        blocks in 1u64..60,
        block_size in 1u64..=16,
        caching in prop::bool::weighted(0.95),
        contexts in contexts(),
        operations in prop::collection::vec(operation(), 1..80),
    ) {
        let mut pair = Pair {
            plain: Side::new(blocks, block_size, caching),
            extents: Side::new(blocks, block_size, caching),
            requests: Vec::new(),
            block_size,
        };
        for operation in operations {
            let open = pair.requests.len();
            match operation {
                Operation::Take { context, tokens, spare } => {
                    pair.take(&contexts, context.index(contexts.len()), tokens, spare);
                }
                Operation::Compute { request, tokens } if open > 0 => {
                    pair.compute(&contexts, request.index(open), tokens);
                }
                Operation::Fill { request, share } if open > 0 && caching => {
                    pair.fill(&contexts, request.index(open), share);
                }
                Operation::Release(request) if open > 0 => pair.release(request.index(open)),
                _ => {}
            }
            pair.plain.check();
            pair.extents.check();
            let (plain, extents) = (pair.plain.state(&contexts), pair.extents.state(&contexts));
            prop_assert_eq!(format!("{plain:?}"), format!("{extents:?}"));
        }
    }
}
