//! The blocks: a free list, holders, and which content lies where.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};

/// Token number `1` of segment `0`.
pub type Token = (u64, u64);

/// What a block holds: a digest of every token from the start of the context to the block's end.
pub type Content = u64;

/// The contents of the whole blocks that these tokens fill.
pub fn contents(tokens: &[Token], block_size: usize) -> Vec<Content> {
    let mut digest = DefaultHasher::new();
    let mut contents = Vec::new();
    for (position, token) in tokens.iter().enumerate() {
        token.hash(&mut digest);
        if (position + 1) % block_size == 0 {
            contents.push(digest.finish());
        }
    }
    contents
}

pub struct Pool {
    /// Next to be handed out first.
    pub free: Vec<usize>,
    holders: Vec<usize>,
    content: Vec<Option<Content>>,
    /// Cached contents with their blocks, oldest first.
    index: Vec<(Content, usize)>,
    caching: bool,
    pub evicted: u64,
}

impl Pool {
    pub fn new(num_gpu_blocks: usize, caching: bool) -> Self {
        Self {
            // Block 0 is the null block.
            free: (1..num_gpu_blocks).collect(),
            holders: vec![0; num_gpu_blocks],
            content: vec![None; num_gpu_blocks],
            index: Vec::new(),
            caching,
            evicted: 0,
        }
    }

    /// The blocks that hold the first of these contents, up to the first that none holds.
    pub fn hits(&self, wanted: &[Content]) -> Vec<usize> {
        let mut hits = Vec::new();
        for content in wanted {
            match self.index.iter().find(|(cached, _)| cached == content) {
                Some((_, block)) => hits.push(*block),
                None => break,
            }
        }
        hits
    }

    /// Those of these blocks that nobody holds.
    pub fn unheld(&self, blocks: &[usize]) -> usize {
        blocks.iter().filter(|block| self.holders[**block] == 0).count()
    }

    pub fn hold(&mut self, blocks: &[usize]) {
        for block in blocks {
            self.free.retain(|free| free != block);
            self.holders[*block] += 1;
        }
    }

    pub fn take(&mut self) -> usize {
        let block = self.free.remove(0);
        if self.content[block].take().is_some() {
            self.index.retain(|(_, other)| *other != block);
            self.evicted += 1;
        }
        self.holders[block] = 1;
        block
    }

    pub fn cache(&mut self, block: usize, content: Content) {
        if self.caching {
            self.content[block] = Some(content);
            self.index.push((content, block));
        }
    }

    /// Lets go of a context's blocks, the last one first.
    pub fn release(&mut self, blocks: &[usize]) {
        for block in blocks.iter().rev() {
            self.holders[*block] -= 1;
            if self.holders[*block] == 0 {
                match self.content[*block] {
                    Some(_) => self.free.push(*block),
                    None => self.free.insert(0, *block),
                }
            }
        }
    }

    /// Different contents that can be hit.
    pub fn distinct(&self) -> usize {
        let mut contents: Vec<Content> = self.index.iter().map(|(content, _)| *content).collect();
        contents.sort_unstable();
        contents.dedup();
        contents.len()
    }
}
