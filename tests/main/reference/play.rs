//! Hands a workload to the model and writes down what it decides, in the form of a recording.

use serde_json::{Map, Value, json};
use tonnage::validate::recording::{Expected, Recording};

use super::model::{Model, Step, Version};

/// Calls of the scheduler after which a run has gone wrong.
const STEPS_MAX: u64 = 100_000;

#[derive(Clone, Default)]
struct Life {
    admissions: Vec<(u64, usize)>,
    first_token: Option<u64>,
    finish: Option<u64>,
}

#[derive(Default)]
struct Sums {
    steps: u64,
    tokens: usize,
    preemptions: usize,
    counters: [u64; 4],
    admissions: [u64; 2],
}

struct Play<'a> {
    recording: &'a Recording,
    model: Model,
    handed_over: usize,
    queue: Vec<Step>,
    counters: [u64; 4],
    lives: Vec<Life>,
    sums: Sums,
    steps: Vec<Map<String, Value>>,
}

/// What the model decides for the recording's workload.
pub fn play(recording: &Recording, version: Version) -> Expected {
    let mut play = Play {
        recording,
        model: Model::new(recording, version),
        handed_over: 0,
        queue: Vec::new(),
        counters: [0; 4],
        lives: vec![Life::default(); recording.requests.len()],
        sums: Sums::default(),
        steps: Vec::new(),
    };
    let mut t = 0;
    loop {
        assert!(t < STEPS_MAX, "{} does not come to an end", recording.name);
        let next = recording.requests.get(play.handed_over).map(|next| next.arrival_step);
        if play.model.is_empty() {
            match next {
                Some(arrival) => t = t.max(arrival),
                None if play.queue.is_empty() => break,
                None => {}
            }
        }
        let in_flight = play.queue.iter().any(|step| !step.rows.is_empty());
        let acted = play.step(t);
        if acted || in_flight {
            t += 1;
            continue;
        }
        let next = recording.requests.get(play.handed_over).map(|next| next.arrival_step);
        match next {
            Some(arrival) => t = t.max(arrival),
            None if play.model.is_empty() => {}
            None => break,
        }
    }
    play.expected()
}

impl Play<'_> {
    /// One call of the scheduler; whether it scheduled or preempted anything.
    fn step(&mut self, t: u64) -> bool {
        let before = self.handed_over;
        while let Some(request) = self.recording.requests.get(self.handed_over)
            && request.arrival_step <= t
        {
            self.model.add(self.handed_over);
            self.handed_over += 1;
        }
        let evicted = self.model.pool.evicted;
        let (mut rows, mut preempted) = (Vec::new(), Vec::new());
        if !self.model.is_empty() {
            let step = self.model.schedule();
            rows.clone_from(&step.rows);
            preempted.clone_from(&step.preempted);
            self.count(t, &step);
            self.queue.push(step);
        }
        let free_mid = self.model.pool.free.len();
        let (mut ended, mut drained) = (Vec::new(), [0; 4]);
        let depth = if self.recording.config.async_scheduling { 2 } else { 1 };
        if self.queue.len() == depth || (self.model.is_empty() && !self.queue.is_empty()) {
            drained = std::mem::take(&mut self.counters);
            let step = self.queue.remove(0);
            let taken = self.model.take_in(&step);
            taken.first.iter().for_each(|&call| self.lives[call].first_token = Some(t));
            taken.ended.iter().for_each(|&call| self.lives[call].finish = Some(t));
            ended = taken.ended;
        }
        let acted = !rows.is_empty() || !preempted.is_empty();
        if acted || !ended.is_empty() || self.handed_over > before {
            let rows: Vec<Value> = rows
                .iter()
                .map(|row| json!([row.call, row.tokens, row.before, row.kind]))
                .collect();
            self.steps.push(object(json!({
                "t": t, "sched": rows, "pre": preempted, "fin": ended,
                "free_mid": free_mid, "free": self.model.pool.free.len(),
                "evict": self.model.pool.evicted - evicted,
                "cached": self.model.pool.distinct(), "q": drained,
                "run": self.model.running.len(), "wait": self.model.waiting.len(),
            })));
        }
        acted
    }

    fn count(&mut self, t: u64, step: &Step) {
        for row in &step.rows {
            self.sums.tokens += row.tokens;
            if row.kind == "c" {
                continue;
            }
            self.lives[row.call].admissions.push((t, row.before));
            if self.recording.config.enable_prefix_caching {
                self.sums.admissions[usize::from(row.kind == "r")] += 1;
            }
        }
        self.sums.steps += u64::from(!step.rows.is_empty());
        self.sums.preemptions += step.preempted.len();
        for (at, count) in step.counters.iter().enumerate() {
            self.counters[at] += count;
            self.sums.counters[at] += count;
        }
    }

    fn expected(self) -> Expected {
        let calls = self.lives.iter().zip(&self.model.calls).zip(&self.recording.requests);
        let requests = calls.map(|((life, call), request)| {
            let stops =
                json!(request.finish) == "stop" && call.outputs as u64 == request.output_len;
            let reason = life.finish.map(|_| if stops { "stop" } else { "length" });
            object(json!({
                "id": request.id, "arrival": request.arrival_step,
                "admissions": life.admissions,
                "first_token": life.first_token, "finish": life.finish, "reason": reason,
                "output_tokens": call.outputs, "preemptions": call.preemptions,
                "reported_cached": life.admissions.first().map(|(_, hit)| hit),
            }))
        });
        let left = self.lives.iter().zip(0..).filter(|(life, _)| life.finish.is_none());
        let [queries, hits, preempted_queries, preempted_hits] = self.sums.counters;
        Expected {
            requests: requests.collect(),
            stuck: left.map(|(_, id)| id).collect(),
            steps: self.steps,
            totals: object(json!({
                "steps": self.sums.steps, "scheduled_tokens": self.sums.tokens,
                "preemptions": self.sums.preemptions, "evicted_blocks": self.model.pool.evicted,
                "requests": self.sums.admissions[0], "queries": queries, "hits": hits,
                "preempted_requests": self.sums.admissions[1],
                "preempted_queries": preempted_queries, "preempted_hits": preempted_hits,
            })),
        }
    }
}

fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}
