//! Random workloads: sessions with turns, forks, questions asked again, twins in one step, on
//! engines that are mostly too small for them.

use tonnage::validate::recording::{
    Expected, RecordedConfig, RecordedFinish, RecordedRequest, Recording,
};

/// A stream of numbers that a seed fixes (splitmix64).
pub struct Dice(pub u64);

impl Dice {
    fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// From `low` to `high`, both of them possible.
    fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.roll() % (high.max(low) - low + 1)
    }

    fn percent(&mut self, chance: u64) -> bool {
        self.roll() % 100 < chance
    }
}

/// The workload of a seed; nothing is expected of it yet.
pub fn workload(seed: u64) -> Recording {
    let mut dice = Dice(seed);
    let config = config(&mut dice);
    let count = if dice.percent(20) { dice.between(1, 4) } else { dice.between(5, 30) };
    let priorities = dice.between(1, 4);
    let pause = [0, 1, 3, 12, 60][dice.between(0, 4) as usize];
    let stops = [0, 50, 100][dice.between(0, 2) as usize];
    let mut workload = Workload { config: &config, next_segment: 1, requests: Vec::new() };
    for _ in 0..count {
        workload.push(&mut dice, pause);
        let last = workload.requests.last_mut().unwrap();
        last.priority = dice.between(0, priorities - 1) as i32;
        if dice.percent(stops) {
            last.finish = RecordedFinish::Stop;
        }
    }
    let requests = workload.requests;
    Recording { name: format!("seed {seed}"), config, requests, expected: Expected::default() }
}

fn config(dice: &mut Dice) -> RecordedConfig {
    let block_size = if dice.percent(25) { 1 } else { dice.between(2, 16) };
    let blocks = if dice.percent(70) { dice.between(2, 16) } else { dice.between(17, 80) };
    let reserve = dice.percent(60);
    // Without the full gate a request that outgrows the pool is admitted for ever.
    let outgrows = reserve && dice.percent(15);
    let pool = blocks * block_size;
    let max_model_len = if outgrows { pool * 3 / 2 } else { dice.between(pool * 2 / 3, pool) };
    let seqs = dice.between(1, 10);
    // Often the decodes alone use the budget up.
    let budget = if dice.percent(30) { seqs / 2 + 1 } else { seqs + 6 * block_size };
    let capped = dice.percent(40);
    RecordedConfig {
        block_size,
        num_gpu_blocks: blocks + 1,
        max_num_seqs: seqs,
        max_num_batched_tokens: dice.between(budget.min(seqs), budget),
        long_prefill_token_threshold: if capped { dice.between(1, 3 * block_size) } else { 0 },
        enable_prefix_caching: dice.percent(88),
        policy: if dice.percent(45) { "priority" } else { "fcfs" }.to_owned(),
        max_model_len: max_model_len.max(2),
        watermark: if dice.percent(25) { dice.between(1, 40) as f64 / 100.0 } else { 0.0 },
        scheduler_reserve_full_isl: reserve,
        async_scheduling: dice.percent(50),
    }
}

struct Workload<'a> {
    config: &'a RecordedConfig,
    next_segment: u64,
    requests: Vec<RecordedRequest>,
}

impl Workload<'_> {
    fn push(&mut self, dice: &mut Dice, pause: u64) {
        let block = self.config.block_size;
        let mut arrival_step = self.requests.last().map_or(0, |last| last.arrival_step);
        let mut out_seg = self.segment();
        let earlier = match self.requests.len() as u64 {
            0 => None,
            count => Some(self.requests[dice.between(0, count - 1) as usize].clone()),
        };
        let mut prompt = match (earlier, dice.between(0, 99)) {
            // The next turn: the prompt, the output or the start of it, something new.
            (Some(earlier), 0..30) => {
                let mut prompt = earlier.prompt;
                let quoted = if dice.percent(80) { earlier.output_len } else { 1 };
                prompt.push((earlier.out_seg, quoted));
                prompt.push((self.segment(), dice.between(1, 2 * block)));
                prompt
            }
            // A branch from somewhere inside.
            (Some(earlier), 30..50) => {
                let tokens: u64 = earlier.prompt.iter().map(|(_, n)| n).sum();
                let mut prompt = cut(&earlier.prompt, dice.between(0, tokens));
                prompt.push((self.segment(), dice.between(1, 2 * block)));
                prompt
            }
            // The same again, at some time, with another answer.
            (Some(earlier), 50..62) => earlier.prompt,
            // A twin in the same step that may even get the same answer.
            (Some(_), 62..72) => {
                let last = self.requests[self.requests.len() - 1].clone();
                if dice.percent(60) {
                    out_seg = last.out_seg;
                }
                let output_len = if dice.percent(50) { last.output_len } else { 3 };
                self.requests.push(RecordedRequest { out_seg, output_len, ..last });
                return self.number_last();
            }
            // Something new behind a system prompt that others have too.
            (_, percent) => {
                let own = (self.segment(), dice.between(1, 5 * block));
                let system = (1_000_000, dice.between(1, 2) * block + 1);
                if percent < 85 { vec![system, own] } else { vec![own] }
            }
        };
        // The front end lets through what leaves room for one token.
        prompt = cut(&prompt, self.config.max_model_len - 1);
        if dice.percent(60) {
            arrival_step += dice.between(0, pause);
        }
        self.requests.push(RecordedRequest {
            id: 0,
            arrival_step,
            prompt,
            out_seg,
            output_len: if dice.percent(70) { dice.between(1, 12) } else { dice.between(1, 60) },
            finish: RecordedFinish::Length,
            priority: 0,
        });
        self.number_last();
    }

    fn number_last(&mut self) {
        let id = self.requests.len() - 1;
        self.requests[id].id = id as u32;
    }

    fn segment(&mut self) -> u64 {
        self.next_segment += 1;
        self.next_segment
    }
}

/// The first tokens of a prompt.
fn cut(prompt: &[(u64, u64)], mut tokens: u64) -> Vec<(u64, u64)> {
    let mut parts = Vec::new();
    for &(segment, n) in prompt {
        parts.push((segment, n.min(tokens)));
        tokens -= n.min(tokens);
    }
    parts.retain(|(_, n)| *n > 0);
    parts
}
