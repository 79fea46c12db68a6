//! The scheduler: a waiting queue, a running list, and one step after another.

use tonnage::validate::recording::{RecordedConfig, RecordedFinish, RecordedRequest, Recording};

use super::pool::{Content, Pool, Token, contents};

/// Whose decisions: they differ in two places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    V0_29,
    /// The cap on a request's tokens is off while it is the only one, and under `priority` the
    /// step goes on after the asker has preempted itself.
    V0_33,
}

/// One request, known by its position in the workload.
pub struct Call {
    contents: Vec<Content>,
    prompt: usize,
    limit: usize,
    foreseen: bool,
    priority: i32,
    pub outputs: usize,
    /// Outputs that are scheduled and not yet seen.
    unseen: usize,
    computed: usize,
    blocks: Vec<usize>,
    /// Leading blocks that have been put into the cache.
    cached: usize,
    pub preemptions: u64,
}

impl Call {
    fn new(recorded: &RecordedRequest, block_size: usize) -> Self {
        let output = (recorded.out_seg, recorded.output_len);
        let parts = recorded.prompt.iter().chain([&output]);
        let tokens: Vec<Token> =
            parts.flat_map(|&(segment, n)| (0..n).map(move |k| (segment, k))).collect();
        Self {
            contents: contents(&tokens, block_size),
            prompt: tokens.len() - recorded.output_len as usize,
            limit: recorded.output_len as usize,
            foreseen: recorded.finish == RecordedFinish::Length,
            priority: recorded.priority,
            outputs: 0,
            unseen: 0,
            computed: 0,
            blocks: Vec::new(),
            cached: 0,
            preemptions: 0,
        }
    }

    fn known(&self) -> usize {
        self.prompt + self.outputs
    }
}

/// One request's part of a step.
#[derive(Clone, Copy)]
pub struct Row {
    pub call: usize,
    pub tokens: usize,
    pub before: usize,
    pub kind: &'static str,
    emits: bool,
}

#[derive(Default)]
pub struct Step {
    pub rows: Vec<Row>,
    pub preempted: Vec<usize>,
    /// Queries and hits of first admissions, then those of re-admissions.
    pub counters: [u64; 4],
}

/// What outputs taken in brought: who got its first, and who ended.
#[derive(Default)]
pub struct TakenIn {
    pub first: Vec<usize>,
    pub ended: Vec<usize>,
}

pub struct Model {
    config: RecordedConfig,
    block_size: usize,
    version: Version,
    pub calls: Vec<Call>,
    pub pool: Pool,
    pub waiting: Vec<usize>,
    pub running: Vec<usize>,
    ended: Vec<usize>,
}

impl Model {
    pub fn new(recording: &Recording, version: Version) -> Self {
        let config = recording.config.clone();
        let block_size = config.block_size as usize;
        let calls = recording.requests.iter().map(|request| Call::new(request, block_size));
        Self {
            calls: calls.collect(),
            pool: Pool::new(config.num_gpu_blocks as usize, config.enable_prefix_caching),
            block_size,
            config,
            version,
            waiting: Vec::new(),
            running: Vec::new(),
            ended: Vec::new(),
        }
    }

    pub fn add(&mut self, call: usize) {
        self.waiting.push(call);
        self.sort_waiting();
    }

    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.running.is_empty()
    }

    fn by_priority(&self) -> bool {
        self.config.policy == "priority"
    }

    fn sort_waiting(&mut self) {
        if self.by_priority() {
            let calls = &self.calls;
            self.waiting.sort_by_key(|&call| (calls[call].priority, call));
        }
    }

    pub fn schedule(&mut self) -> Step {
        let mut step = Step::default();
        let mut budget = self.config.max_num_batched_tokens as usize;
        let mut cap = self.config.long_prefill_token_threshold as usize;
        let alone = self.running.len() + self.waiting.len() == 1;
        if cap == 0 || (alone && self.version == Version::V0_33) {
            cap = usize::MAX;
        }
        self.serve_running(&mut step, &mut budget, cap);
        if step.preempted.is_empty() {
            self.admit(&mut step, &mut budget, cap);
        }
        for row in &mut step.rows {
            let call = &mut self.calls[row.call];
            call.computed += row.tokens;
            row.emits = call.computed == call.known() + call.unseen;
            call.unseen += usize::from(row.emits);
        }
        step
    }

    /// Those that run, in the order of the list. `done` of the list have been looked at.
    fn serve_running(&mut self, step: &mut Step, budget: &mut usize, cap: usize) {
        let mut done = 0;
        while done < self.running.len() && *budget > 0 {
            let asker = self.running[done];
            let call = &self.calls[asker];
            let last_is_under_way =
                call.foreseen && call.unseen > 0 && call.outputs + call.unseen >= call.limit;
            let behind = call.known() + call.unseen - call.computed;
            let context = self.config.max_model_len as usize - 1 - call.computed;
            let tokens = behind.min(cap).min(*budget).min(context);
            if tokens == 0 || last_is_under_way {
                done += 1;
                continue;
            }
            let blocks = (call.computed + tokens).div_ceil(self.block_size) - call.blocks.len();
            while blocks > self.pool.free.len() && self.running.contains(&asker) {
                let victim = self.victim();
                if let Some(at) = step.rows.iter().position(|row| row.call == victim) {
                    *budget += step.rows.remove(at).tokens;
                    done -= 1;
                }
                self.running.retain(|&call| call != victim);
                self.preempt(victim);
                step.preempted.push(victim);
            }
            if self.running.contains(&asker) {
                let row = self.give(asker, tokens, "c");
                step.rows.push(row);
                *budget -= tokens;
                done += 1;
            } else if !(self.by_priority() && self.version == Version::V0_33) {
                break;
            }
        }
    }

    fn victim(&self) -> usize {
        let mut running = self.running.clone();
        if self.by_priority() {
            running.sort_by_key(|&call| (self.calls[call].priority, call));
        }
        running[running.len() - 1]
    }

    fn preempt(&mut self, victim: usize) {
        let call = &mut self.calls[victim];
        self.pool.release(&std::mem::take(&mut call.blocks));
        call.computed = 0;
        call.cached = 0;
        call.preemptions += 1;
        self.waiting.insert(0, victim);
        self.sort_waiting();
    }

    fn admit(&mut self, step: &mut Step, budget: &mut usize, cap: usize) {
        let size = self.block_size;
        while *budget > 0 && self.running.len() < self.config.max_num_seqs as usize {
            let Some(&head) = self.waiting.first() else { break };
            let call = &self.calls[head];
            let known = call.known();
            let hits = self.pool.hits(&call.contents[..(known - 1) / size]);
            let hit = hits.len() * size;
            let tokens = (known - hit).min(cap).min(*budget);
            let mut gate = hit + tokens;
            if self.config.scheduler_reserve_full_isl {
                gate = known;
            }
            let mut needed = gate.div_ceil(size) - hits.len() + self.pool.unheld(&hits);
            if !self.running.is_empty() {
                let blocks = self.config.num_gpu_blocks as f64;
                needed += (self.config.watermark * blocks).floor() as usize;
            }
            if needed > self.pool.free.len() {
                break;
            }
            self.waiting.remove(0);
            self.running.push(head);
            self.pool.hold(&hits);
            let call = &mut self.calls[head];
            call.computed = hit;
            call.cached = hits.len();
            call.blocks = hits;
            let again = call.preemptions > 0;
            if self.config.enable_prefix_caching {
                let at = if again { 2 } else { 0 };
                step.counters[at] += known as u64;
                step.counters[at + 1] += hit as u64;
            }
            let row = self.give(head, tokens, if again { "r" } else { "n" });
            step.rows.push(row);
            *budget -= tokens;
        }
    }

    /// Blocks for `tokens` more; those that are full by then can be hit at once.
    fn give(&mut self, who: usize, tokens: usize, kind: &'static str) -> Row {
        let call = &mut self.calls[who];
        let upto = call.computed + tokens;
        while call.blocks.len() * self.block_size < upto {
            call.blocks.push(self.pool.take());
        }
        let seen = upto.min(call.known());
        self.cache_upto(who, seen);
        Row { call: who, tokens, before: self.calls[who].computed, kind, emits: false }
    }

    fn cache_upto(&mut self, who: usize, tokens: usize) {
        let call = &mut self.calls[who];
        for block in call.cached..tokens / self.block_size {
            self.pool.cache(call.blocks[block], call.contents[block]);
            call.cached = block + 1;
        }
    }

    /// Takes in the outputs of a step that was scheduled before.
    pub fn take_in(&mut self, step: &Step) -> TakenIn {
        let mut taken = TakenIn::default();
        for row in &step.rows {
            if !row.emits || self.ended.contains(&row.call) {
                continue;
            }
            let call = &mut self.calls[row.call];
            call.unseen -= 1;
            call.outputs += 1;
            if call.outputs == 1 {
                taken.first.push(row.call);
            }
            let ends =
                call.outputs == call.limit || call.known() >= self.config.max_model_len as usize;
            if self.config.async_scheduling && self.running.contains(&row.call) {
                let seen = call.computed - call.unseen;
                self.cache_upto(row.call, seen);
            }
            if ends {
                let blocks = std::mem::take(&mut self.calls[row.call].blocks);
                self.pool.release(&blocks);
                self.running.retain(|&call| call != row.call);
                self.waiting.retain(|&call| call != row.call);
                self.ended.push(row.call);
                taken.ended.push(row.call);
            }
        }
        taken
    }
}
