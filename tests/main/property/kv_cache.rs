//! The KV cache against the plainest cache that does the same: vectors and linear search.

use proptest::prelude::*;
use proptest::sample::Index;
use tonnage::engine::config::Pool;
use tonnage::engine::kv::{BlockId, KvCache};
use tonnage::trace::lineage::{BlockKey, Path};
use tonnage::units::{Blocks, SegmentId, Tokens};

use super::config;

const BLOCK_SIZE: u64 = 4;

/// What is done to a cache.
#[derive(Clone, Debug)]
enum Operation {
    /// A request takes the blocks of this context, its hits first, if they are free.
    Take(Index),
    /// One of the requests ends.
    Release(Index),
    /// A request takes more blocks without content.
    Grow(Index, u64),
}

fn operation() -> impl Strategy<Value = Operation> {
    prop_oneof![
        4 => any::<Index>().prop_map(Operation::Take),
        3 => any::<Index>().prop_map(Operation::Release),
        1 => (any::<Index>(), 1u64..3).prop_map(|(index, count)| Operation::Grow(index, count)),
    ]
}

/// Blocks by position; no list is linked and nothing is indexed.
#[derive(Default)]
struct Naive {
    holders: Vec<u32>,
    /// Content, and how many contents were cached before it.
    content: Vec<Option<(BlockKey, u64)>>,
    /// From the front.
    free: Vec<usize>,
    inserted: u64,
    evicted: u64,
}

impl Naive {
    fn new(blocks: usize) -> Self {
        Self {
            holders: vec![0; blocks],
            content: vec![None; blocks],
            free: (0..blocks).collect(),
            ..Self::default()
        }
    }

    fn find(&self, key: BlockKey) -> Option<usize> {
        let age = |&block: &usize| self.content[block].map(|(_, age)| age);
        let holds = |&block: &usize| self.content[block].is_some_and(|(known, _)| known == key);
        (0..self.content.len()).filter(holds).min_by_key(age)
    }

    fn touch(&mut self, block: usize) {
        self.free.retain(|&free| free != block);
        self.holders[block] += 1;
    }

    fn allocate(&mut self) -> usize {
        let block = self.free.remove(0);
        self.evicted += u64::from(self.content[block].take().is_some());
        self.holders[block] = 1;
        block
    }

    fn insert(&mut self, block: usize, key: BlockKey) {
        self.content[block] = Some((key, self.inserted));
        self.inserted += 1;
    }

    fn release(&mut self, blocks: &[usize]) {
        for &block in blocks.iter().rev() {
            self.holders[block] -= 1;
            match (self.holders[block], self.content[block]) {
                (0, Some(_)) => self.free.push(block),
                (0, None) => self.free.insert(0, block),
                _ => {}
            }
        }
    }

    fn contents(&self) -> usize {
        let mut keys: Vec<BlockKey> = self.content.iter().flatten().map(|(key, _)| *key).collect();
        keys.sort_unstable();
        keys.dedup();
        keys.len()
    }
}

/// Both caches with the requests that hold their blocks.
struct Pair {
    cache: KvCache,
    naive: Naive,
    /// The cache's name of the naive one's blocks.
    names: Vec<BlockId>,
    requests: Vec<(Vec<BlockId>, Vec<usize>)>,
}

impl Pair {
    fn new(blocks: u64, caching: bool) -> Self {
        let mut cache = KvCache::new(Pool::Limited(Blocks(blocks + 1)), BLOCK_SIZE, caching);
        // All blocks once out and back in: they come in order, and go back to it.
        let mut names = Vec::new();
        cache.allocate(Blocks(blocks), &mut names);
        cache.release(&mut names.clone());
        Self { cache, naive: Naive::new(blocks as usize), names, requests: Vec::new() }
    }

    fn named(&self, blocks: &[usize]) -> Vec<BlockId> {
        blocks.iter().map(|&block| self.names[block]).collect()
    }

    fn take(&mut self, context: &Path, caching: bool) -> Result<(), TestCaseError> {
        let mut held = Vec::new();
        self.cache.lookup(context, u64::MAX, &mut held);
        let keys: Vec<BlockKey> = context.block_keys(BLOCK_SIZE).collect();
        let found = keys.iter().map_while(|&key| self.naive.find(key).filter(|_| caching));
        let mut blocks: Vec<usize> = found.collect();
        prop_assert_eq!(&held, &self.named(&blocks));
        let free_hits = blocks.iter().filter(|&&block| self.naive.holders[block] == 0).count();
        prop_assert_eq!(self.cache.count_free(&held), Blocks(free_hits as u64));
        let missing = context.len().blocks_ceil(BLOCK_SIZE).0 as usize - blocks.len();
        if missing + free_hits > self.naive.free.len() {
            return Ok(());
        }
        self.cache.touch(&held);
        blocks.iter().for_each(|&block| self.naive.touch(block));
        self.cache.allocate(Blocks(missing as u64), &mut held);
        let hits = blocks.len();
        blocks.extend((0..missing).map(|_| self.naive.allocate()));
        for (position, &key) in keys.iter().enumerate().skip(hits) {
            self.cache.insert(held[position], key);
            if caching {
                self.naive.insert(blocks[position], key);
            }
        }
        prop_assert_eq!(&held, &self.named(&blocks));
        self.requests.push((held, blocks));
        Ok(())
    }

    fn grow(&mut self, request: usize, count: u64) {
        if count as usize <= self.naive.free.len() {
            let (held, blocks) = &mut self.requests[request];
            self.cache.allocate(Blocks(count), held);
            blocks.extend((0..count).map(|_| self.naive.allocate()));
        }
    }

    fn compare(&self, contexts: &[Path]) -> Result<(), TestCaseError> {
        let free = self.naive.free.len() as u64;
        prop_assert_eq!(self.cache.free_blocks(), Blocks(free));
        prop_assert_eq!(self.cache.used_blocks(), Blocks(self.names.len() as u64 - free));
        prop_assert_eq!(self.cache.cached_contents(), self.naive.contents());
        prop_assert_eq!(self.cache.evicted_total(), self.naive.evicted);
        for key in contexts.iter().flat_map(|context| context.block_keys(BLOCK_SIZE)) {
            prop_assert_eq!(self.cache.is_cached(key), self.naive.find(key).is_some());
        }
        let held = self.requests.iter().map(|(held, _)| held.len() as u64).sum();
        self.cache.check(held);
        Ok(())
    }
}

/// A few contexts of which some continue others.
fn contexts() -> impl Strategy<Value = Vec<Path>> {
    let one = (any::<Index>(), 0u64..40, 1u64..24);
    prop::collection::vec(one, 1..7).prop_map(|seeds| {
        let mut paths: Vec<Path> = Vec::new();
        for (number, (base, kept, new)) in seeds.into_iter().enumerate() {
            let base = match base.index(number + 1) {
                own if own == number => Path::default(),
                base => paths[base].clone(),
            };
            let kept = Tokens(kept).min(base.len());
            paths.push(base.continued(kept, SegmentId(number as u32), kept + Tokens(new)));
        }
        paths
    })
}

proptest! {
    #![proptest_config(config(500))]

    #[test]
    fn the_cache_does_what_the_plainest_one_does(
        blocks in 1u64..30,
        caching in prop::bool::weighted(0.9),
        contexts in contexts(),
        operations in prop::collection::vec(operation(), 1..60),
    ) {
        let mut pair = Pair::new(blocks, caching);
        for operation in operations {
            let open = pair.requests.len();
            match operation {
                Operation::Take(which) => {
                    let context = &contexts[which.index(contexts.len())];
                    pair.take(context, caching)?;
                }
                Operation::Release(which) if open > 0 => {
                    let (mut held, blocks) = pair.requests.remove(which.index(open));
                    pair.cache.release(&mut held);
                    pair.naive.release(&blocks);
                }
                Operation::Grow(which, count) if open > 0 => pair.grow(which.index(open), count),
                _ => {}
            }
            pair.compare(&contexts)?;
        }
    }
}
