//! Prefix caches of blocks: one that never evicts, and LRU at given sizes.
//!
//! A prompt hits with its leading blocks that are in the cache, up to the first that is not. The
//! look-up itself touches nothing; afterwards all blocks of the prompt are touched or put in.

use rayon::prelude::*;
use serde::Serialize;

use super::blocks::BlockRun;
use super::dist::ratio;

/// The prompts of a trace, in the order of the merged timeline.
#[derive(Clone, Debug)]
pub struct Prompts<'a> {
    /// Each prompt's blocks and its length in tokens.
    pub prompts: Vec<(&'a [BlockRun], u64)>,
    /// Block numbers are below this.
    pub blocks: u32,
    /// Tokens in a block.
    pub block_size: u64,
}

impl Prompts<'_> {
    /// Blocks over all prompts.
    #[must_use]
    pub fn total_blocks(&self) -> u64 {
        let runs = self.prompts.iter().flat_map(|(runs, _)| runs.iter());
        runs.map(|run| u64::from(run.count)).sum()
    }

    /// Tokens over all prompts.
    #[must_use]
    pub fn total_tokens(&self) -> u64 {
        self.prompts.iter().map(|(_, tokens)| tokens).sum()
    }

    /// Tokens of a prompt of `tokens` whose first `blocks` blocks are found.
    #[must_use]
    pub fn hit_tokens(&self, blocks: u64, tokens: u64) -> u64 {
        // A partial block counts as whole, but a prompt cannot hit with more than itself.
        tokens.min(blocks * self.block_size)
    }
}

/// In which order the blocks of a prompt are touched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Touch {
    /// From the last to the first: a prompt's tail is evicted before its head.
    TailFirst,
    /// From the first to the last.
    HeadFirst,
}

/// What an LRU cache of one size achieves.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LruFigures {
    /// Its size.
    pub capacity_blocks: u64,
    /// Blocks found.
    pub prefix_hit_blocks: u64,
    /// Blocks found, as a share of all.
    pub hit_rate_blocks: Option<f64>,
    /// Tokens found, as a share of all.
    pub hit_rate_tokens: Option<f64>,
    /// Blocks pushed out.
    pub evictions: u64,
}

/// The leading blocks of each prompt that earlier prompts brought, and the number of different
/// blocks.
#[must_use]
pub fn infinite(prompts: &Prompts<'_>) -> (Vec<u64>, u64) {
    let mut present = vec![false; prompts.blocks as usize];
    let mut unique = 0;
    let hits = prompts.prompts.iter().map(|(runs, _)| {
        let hits = leading(runs, |id| present[id as usize]);
        for id in runs.iter().flat_map(|run| run.ids()) {
            unique += u64::from(!std::mem::replace(&mut present[id as usize], true));
        }
        hits
    });
    (hits.collect(), unique)
}

/// An LRU cache of each of the sizes; they run side by side and do not know of each other.
#[must_use]
pub fn lru(prompts: &Prompts<'_>, touch: Touch, capacities: &[u64]) -> Vec<LruFigures> {
    capacities.par_iter().map(|capacity| replay(prompts, touch, *capacity)).collect()
}

fn replay(prompts: &Prompts<'_>, touch: Touch, capacity: u64) -> LruFigures {
    let mut cache = Lru::new(prompts.blocks, capacity);
    let (mut hit_blocks, mut hit_tokens) = (0, 0);
    for &(runs, tokens) in &prompts.prompts {
        let hits = leading(runs, |id| cache.holds(id));
        hit_blocks += hits;
        hit_tokens += prompts.hit_tokens(hits, tokens);
        match touch {
            Touch::TailFirst => {
                for run in runs.iter().rev() {
                    run.ids().rev().for_each(|id| cache.touch(id));
                }
            }
            Touch::HeadFirst => {
                for run in runs {
                    run.ids().for_each(|id| cache.touch(id));
                }
            }
        }
    }
    LruFigures {
        capacity_blocks: capacity,
        prefix_hit_blocks: hit_blocks,
        hit_rate_blocks: ratio(hit_blocks as f64, prompts.total_blocks() as f64, 6),
        hit_rate_tokens: ratio(hit_tokens as f64, prompts.total_tokens() as f64, 6),
        evictions: cache.evictions,
    }
}

/// How many blocks from the first on are held.
fn leading(runs: &[BlockRun], held: impl Fn(u32) -> bool) -> u64 {
    runs.iter().flat_map(|run| run.ids()).take_while(|id| held(*id)).count() as u64
}

/// Marks a block that is not in the cache.
const ABSENT: u32 = u32::MAX;

/// Blocks in the order of their last touch: a doubly linked list in two arrays.
struct Lru {
    /// Towards less recently touched blocks; one entry more than blocks, the list's two ends.
    older: Vec<u32>,
    /// Towards more recently touched blocks.
    newer: Vec<u32>,
    /// The index of that extra entry.
    ends: u32,
    size: u64,
    capacity: u64,
    evictions: u64,
}

impl Lru {
    fn new(blocks: u32, capacity: u64) -> Self {
        let ends = blocks;
        let mut older = vec![ABSENT; blocks as usize + 1];
        let mut newer = older.clone();
        older[ends as usize] = ends;
        newer[ends as usize] = ends;
        Self { older, newer, ends, size: 0, capacity, evictions: 0 }
    }

    fn holds(&self, id: u32) -> bool {
        self.older[id as usize] != ABSENT
    }

    fn touch(&mut self, id: u32) {
        if self.holds(id) {
            self.unlink(id);
        } else {
            self.size += 1;
        }
        let newest = self.older[self.ends as usize];
        self.older[id as usize] = newest;
        self.newer[id as usize] = self.ends;
        self.newer[newest as usize] = id;
        self.older[self.ends as usize] = id;
        if self.size > self.capacity {
            let oldest = self.newer[self.ends as usize];
            self.unlink(oldest);
            self.older[oldest as usize] = ABSENT;
            self.size -= 1;
            self.evictions += 1;
        }
    }

    fn unlink(&mut self, id: u32) {
        let (older, newer) = (self.older[id as usize], self.newer[id as usize]);
        self.newer[older as usize] = newer;
        self.older[newer as usize] = older;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn run(first: u32, count: u32) -> BlockRun {
        BlockRun { first, count }
    }

    fn prompts(all: &[Vec<BlockRun>], blocks: u32) -> Prompts<'_> {
        let prompts = all.iter().map(|runs| {
            let blocks: u32 = runs.iter().map(|run| run.count).sum();
            (&runs[..], u64::from(blocks) * 10 + 5)
        });
        Prompts { prompts: prompts.collect(), blocks, block_size: 10 }
    }

    /// The definition, word by word, over a plain list with the newest block last.
    fn by_hand(all: &[Vec<BlockRun>], touch: Touch, capacity: usize) -> (u64, u64) {
        let mut cache: Vec<u32> = Vec::new();
        let (mut hits, mut evictions) = (0, 0);
        for runs in all {
            let mut ids: Vec<u32> = runs.iter().flat_map(|run| run.ids()).collect();
            hits += ids.iter().take_while(|id| cache.contains(id)).count() as u64;
            if touch == Touch::TailFirst {
                ids.reverse();
            }
            for id in ids {
                cache.retain(|held| *held != id);
                cache.push(id);
                while cache.len() > capacity {
                    cache.remove(0);
                    evictions += 1;
                }
            }
        }
        (hits, evictions)
    }

    #[test]
    fn an_example_worked_out_on_paper() {
        // Blocks 0 1 2 3, then 0 1 4, then 0 1 2 3 again, in a cache of four.
        let all = [vec![run(0, 4)], vec![run(0, 2), run(4, 1)], vec![run(0, 4)]];
        let prompts = prompts(&all, 5);
        // Tail first: 4 pushes out 3, the oldest; the third prompt finds 0 1 2, then 3 pushes
        // out 2, and 2 pushes out 4.
        let tail = &lru(&prompts, Touch::TailFirst, &[4])[0];
        assert_eq!((tail.prefix_hit_blocks, tail.evictions), (5, 3));
        assert_eq!(tail.hit_rate_blocks, Some(0.454545)); // 5 of 11
        assert_eq!(tail.hit_rate_tokens, Some(0.4)); // 50 of 45 + 35 + 45
        // Head first: 4 pushes out 2, as 0 and 1 were touched; the third prompt finds only those,
        // then 2 pushes out 3, and 3 pushes out 4.
        let head = &lru(&prompts, Touch::HeadFirst, &[4])[0];
        assert_eq!((head.prefix_hit_blocks, head.evictions), (4, 3));
        assert_eq!(infinite(&prompts), (vec![0, 2, 4], 5));
    }

    #[test]
    fn a_prompt_longer_than_the_cache_leaves_its_head_or_its_tail() {
        let all = [vec![run(0, 5)], vec![run(0, 5)]];
        let prompts = prompts(&all, 5);
        let tail = &lru(&prompts, Touch::TailFirst, &[2])[0];
        assert_eq!((tail.prefix_hit_blocks, tail.evictions), (2, 8));
        let head = &lru(&prompts, Touch::HeadFirst, &[2])[0];
        assert_eq!((head.prefix_hit_blocks, head.evictions), (0, 8));
    }

    proptest! {
        #[test]
        fn equal_to_the_definition(
            all in prop::collection::vec(
                prop::collection::vec((0u32..12, 1u32..5), 1..4), 1..30),
            capacity in 1u64..20,
        ) {
            // Runs of one prompt are put apart: a prompt never holds a block twice.
            let all: Vec<Vec<BlockRun>> = all.iter().map(|runs| {
                let place = |(part, (first, count)): (usize, &(u32, u32))| {
                    run(part as u32 * 16 + first, *count)
                };
                runs.iter().enumerate().map(place).collect()
            }).collect();
            let prompts = prompts(&all, 48);
            for touch in [Touch::TailFirst, Touch::HeadFirst] {
                let found = &lru(&prompts, touch, &[capacity])[0];
                let expected = by_hand(&all, touch, capacity as usize);
                prop_assert_eq!((found.prefix_hit_blocks, found.evictions), expected);
            }
            let endless = by_hand(&all, Touch::TailFirst, usize::MAX).0;
            prop_assert_eq!(infinite(&prompts).0.iter().sum::<u64>(), endless);
        }
    }
}
