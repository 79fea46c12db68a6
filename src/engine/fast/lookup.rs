//! What is in the cache at any time, for who asks from outside.
//!
//! The cache lags behind the plain engine's in two ways: steps that were skipped have taken no
//! blocks yet, and those that decode in lock step have not labelled what they wrote. An answer that
//! this cannot change is given at once; for the others the engine first catches up.

use crate::engine::cache::BlockCache;
use crate::engine::extents::{ExtentCache, Hits};
use crate::trace::lineage::Path;
use crate::units::{Time, Tokens};

use super::FastEngine;

impl FastEngine {
    pub(super) fn look_up(&mut self, now: Time, path: &Path, prompt: Tokens) -> Tokens {
        let block_size = self.scheduler.config().block_size;
        let limit = self.scheduler.hits_at_most(prompt);
        let mut hits = Hits::default();
        self.scheduler.kv().lookup(path, limit, &mut hits);
        let found = ExtentCache::hit_blocks;
        if self.may_have_lost(now, hits) || self.may_have_gained(path, found(&hits).0) {
            self.catch_up(now);
            self.label_what_is_in(path);
            self.scheduler.kv().lookup(path, limit, &mut hits);
        }
        found(&hits).tokens(block_size)
    }

    /// Whether skipped steps have taken blocks that were hit.
    fn may_have_lost(&self, now: Time, hits: Hits) -> bool {
        let Some(skip) = &self.skip else { return false };
        self.scheduler.kv().may_lose(hits)
            && self.blocks_at_most(skip.begun(now), skip.chunk.as_ref())
                > self.scheduler.kv().free_without_content()
    }

    /// Whether somebody writes what comes behind the hits.
    fn may_have_gained(&self, path: &Path, hit_blocks: u64) -> bool {
        let hit = hit_blocks * self.scheduler.config().block_size;
        let mut behind = path.runs().iter().filter(|run| run.end.0 > hit);
        let chunk = self.skip.and_then(|skip| skip.chunk);
        let prefilled = chunk.map(|chunk| self.scheduler.state(chunk.slot).request.path.runs());
        behind.any(|run| {
            self.lock.writers.contains_key(&run.segment)
                || prefilled.is_some_and(|runs| runs.iter().any(|r| r.segment == run.segment))
        })
    }

    /// Brings everything to where it is at this instant.
    pub(super) fn catch_up(&mut self, now: Time) {
        let Some(skip) = &self.skip else { return };
        let begun = skip.begun(now);
        if skip.open && begun == skip.steps {
            // What follows was decided in the last of them.
            self.take_steps(begun);
        } else {
            self.end_skip(now, begun);
        }
    }

    fn label_what_is_in(&mut self, path: &Path) {
        for run in path.runs() {
            if let Some(&writer) = self.lock.writers.get(&run.segment) {
                self.label(writer);
            }
        }
    }
}
