//! Runs a recording through the engine's scheduler and compares every field of every step.

use std::collections::VecDeque;

use serde_json::{Map, Value, json};

use super::recording::Recording;
use crate::config::defaults::VllmVersion;
use crate::engine::batch::{Batch, Output, PrefixCounters, RowKind};
use crate::engine::cache::BlockCache;
use crate::engine::kv::KvCache;
use crate::engine::request::Request;
use crate::engine::scheduler::Scheduler;
use crate::units::Time;

/// Where an engine first decides otherwise than the recording.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    /// What differs: a step with its number, a request, the totals.
    pub place: String,
    /// The field.
    pub field: String,
    /// What was recorded.
    pub expected: Value,
    /// What the engine did.
    pub found: Value,
}

/// Runs a recording by the rules of this version; `None` if the engine decides all of it as
/// recorded.
#[must_use]
pub fn conform(recording: &Recording, vllm: VllmVersion) -> Option<Difference> {
    conform_with::<KvCache>(recording, vllm)
}

/// The same with a KV cache of this kind.
#[must_use]
pub fn conform_with<C: BlockCache>(recording: &Recording, vllm: VllmVersion) -> Option<Difference> {
    let played = Player::<C>::new(recording, vllm).play();
    let expected = &recording.expected;
    for (position, step) in expected.steps.iter().enumerate() {
        let place = format!("step {}", step.get("t").unwrap_or(&Value::Null));
        let none = Map::new();
        let found = played.steps.get(position).unwrap_or(&none);
        if let Some(difference) = first_difference(&place, step, found) {
            return Some(difference);
        }
    }
    if let Some(more) = played.steps.get(expected.steps.len()) {
        let place = format!("step {}", more.get("t").unwrap_or(&Value::Null));
        let found = Value::Object(more.clone());
        return Some(Difference { place, field: "step".into(), expected: Value::Null, found });
    }
    for (position, request) in expected.requests.iter().enumerate() {
        let place = format!("request {position}");
        if let Some(difference) = first_difference(&place, request, &played.requests[position]) {
            return Some(difference);
        }
    }
    let stuck = json!(played.stuck);
    if stuck != json!(expected.stuck) {
        let expected = json!(expected.stuck);
        return Some(Difference {
            place: "the end".into(),
            field: "stuck".into(),
            expected,
            found: stuck,
        });
    }
    first_difference("totals", &expected.totals, &played.totals)
}

fn first_difference(
    place: &str,
    expected: &Map<String, Value>,
    found: &Map<String, Value>,
) -> Option<Difference> {
    let differs = |(field, value): &(&String, &Value)| found.get(*field) != Some(*value);
    expected.iter().find(differs).map(|(field, value)| Difference {
        place: place.to_owned(),
        field: field.clone(),
        expected: value.clone(),
        found: found.get(field).cloned().unwrap_or(Value::Null),
    })
}

/// What the engine did, in the form of the recording.
struct Played {
    steps: Vec<Map<String, Value>>,
    requests: Vec<Map<String, Value>>,
    stuck: Vec<u32>,
    totals: Map<String, Value>,
}

#[derive(Clone, Debug, Default)]
struct Life {
    admissions: Vec<(u64, u64)>,
    first_token: Option<u64>,
    finish: Option<u64>,
    output_tokens: u64,
    preemptions: u64,
}

#[derive(Default)]
struct Totals {
    steps: u64,
    scheduled_tokens: u64,
    preemptions: u64,
    requests: u64,
    preempted_requests: u64,
    counters: PrefixCounters,
}

struct Player<'a, C: BlockCache> {
    recording: &'a Recording,
    scheduler: Scheduler<C>,
    workload: VecDeque<Request>,
    /// Batches scheduled and not taken in; more than one only under async scheduling.
    in_flight: VecDeque<Batch>,
    lives: Vec<Life>,
    totals: Totals,
    /// Counters not yet drained: that happens when outputs are taken in.
    pending: PrefixCounters,
    evicted: u64,
    steps: Vec<Map<String, Value>>,
}

impl<'a, C: BlockCache> Player<'a, C> {
    fn new(recording: &'a Recording, vllm: VllmVersion) -> Self {
        Self {
            recording,
            scheduler: Scheduler::with_cache(recording.engine(vllm)),
            workload: recording.workload().into(),
            in_flight: VecDeque::new(),
            lives: vec![Life::default(); recording.requests.len()],
            totals: Totals::default(),
            pending: PrefixCounters::default(),
            evicted: 0,
            steps: Vec::new(),
        }
    }

    fn play(mut self) -> Played {
        let mut step = 0;
        loop {
            if !self.scheduler.has_requests() {
                let Some(arrival) = self.next_arrival() else {
                    if self.in_flight.is_empty() {
                        break;
                    }
                    // Nobody is left, but a batch is still to be taken in.
                    self.step(step);
                    step += 1;
                    continue;
                };
                step = step.max(arrival);
            }
            if self.step(step) {
                step += 1;
                continue;
            }
            // Nothing can change before the next arrival.
            match self.next_arrival() {
                Some(arrival) => step = step.max(arrival),
                None => break,
            }
        }
        self.scheduler.check_blocks();
        self.finish()
    }

    fn next_arrival(&self) -> Option<u64> {
        let next = self.workload.front()?;
        Some(self.recording.requests[next.id.index()].arrival_step)
    }

    /// One step; false if nothing was scheduled, preempted or in flight.
    fn step(&mut self, step: u64) -> bool {
        let mut handed_over = false;
        while self.next_arrival().is_some_and(|arrival| arrival <= step) {
            self.scheduler.add(self.workload.pop_front().expect("there is a next arrival"));
            handed_over = true;
        }
        let mut record = Map::new();
        record.insert("t".into(), json!(step));
        // A batch without tokens brings nothing.
        let was_in_flight = self.in_flight.iter().any(|batch| !batch.rows.is_empty());
        let (mut scheduled, mut preempted) = (Vec::new(), Vec::new());
        if self.scheduler.has_requests() {
            let mut batch = Batch::default();
            self.scheduler.schedule(&mut batch);
            (scheduled, preempted) = self.count(step, &batch);
            self.in_flight.push_back(batch);
        }
        let free_mid = self.scheduler.kv().free_blocks().0;
        let finished = self.take_in(step, &mut record);
        let evicted = self.scheduler.kv().evicted_total();
        let acted = !scheduled.is_empty() || !preempted.is_empty();
        if acted || handed_over || !finished.is_empty() {
            record.insert("sched".into(), json!(scheduled));
            record.insert("pre".into(), json!(preempted));
            record.insert("fin".into(), json!(finished));
            record.insert("free_mid".into(), json!(free_mid));
            record.insert("free".into(), json!(self.scheduler.kv().free_blocks().0));
            record.insert("evict".into(), json!(evicted - self.evicted));
            record.insert("cached".into(), json!(self.scheduler.kv().cached_contents()));
            record.insert("run".into(), json!(self.scheduler.running()));
            record.insert("wait".into(), json!(self.scheduler.waiting()));
            self.steps.push(record);
        }
        self.evicted = evicted;
        acted || was_in_flight
    }

    /// Counts a batch, and gives its rows and its preemptions as they are recorded.
    fn count(&mut self, step: u64, batch: &Batch) -> (Vec<Value>, Vec<u32>) {
        // Without a prefix cache its counters stand still.
        let counted = u64::from(self.scheduler.config().enable_prefix_caching);
        for row in &batch.rows {
            self.totals.scheduled_tokens += row.tokens.0;
            let life = &mut self.lives[row.request.index()];
            match row.kind {
                RowKind::Running => continue,
                RowKind::New => self.totals.requests += counted,
                RowKind::Resumed => self.totals.preempted_requests += counted,
            }
            life.admissions.push((step, row.computed_before.0));
        }
        for (request, _) in &batch.preempted {
            self.lives[request.index()].preemptions += 1;
        }
        self.totals.steps += u64::from(!batch.rows.is_empty());
        self.totals.preemptions += batch.preempted.len() as u64;
        for counters in [&mut self.pending, &mut self.totals.counters] {
            counters.add(&batch.counters);
        }
        let rows = batch.rows.iter().map(|row| {
            let kind = match row.kind {
                RowKind::New => "n",
                RowKind::Resumed => "r",
                RowKind::Running => "c",
            };
            json!([row.request.0, row.tokens.0, row.computed_before.0, kind])
        });
        (rows.collect(), batch.preempted.iter().map(|(request, _)| request.0).collect())
    }

    /// Takes in the oldest batch if it is its turn; gives who finished.
    fn take_in(&mut self, step: u64, record: &mut Map<String, Value>) -> Vec<u32> {
        let depth = if self.scheduler.config().async_scheduling { 2 } else { 1 };
        let waits = self.scheduler.has_requests() && self.in_flight.len() < depth;
        let Some(batch) = (!waits).then(|| self.in_flight.pop_front()).flatten() else {
            record.insert("q".into(), json!([0, 0, 0, 0]));
            return Vec::new();
        };
        let mut outputs = Vec::new();
        self.scheduler.update(Time(step), &batch, &mut outputs);
        let mut finished = Vec::new();
        for output in outputs {
            match output {
                Output::First { request, .. } => {
                    self.lives[request.index()].first_token = Some(step);
                }
                Output::Next { .. } => {}
                Output::Last { request, output, .. } => {
                    let life = &mut self.lives[request.index()];
                    life.finish = Some(step);
                    life.output_tokens = output.0;
                    finished.push(request.0);
                }
            }
        }
        let drained = std::mem::take(&mut self.pending);
        record.insert(
            "q".into(),
            json!([
                drained.queries,
                drained.hits,
                drained.preempted_queries,
                drained.preempted_hits
            ]),
        );
        finished
    }

    fn finish(mut self) -> Played {
        for (request, output) in self.scheduler.unfinished() {
            self.lives[request.index()].output_tokens = output.0;
        }
        let requests = self.lives.iter().zip(&self.recording.requests);
        let requests = requests.enumerate().map(|(id, (life, request))| {
            let first = life.admissions.first();
            let value = json!({
                "id": id,
                "arrival": request.arrival_step,
                "admissions": life.admissions,
                "first_token": life.first_token,
                "finish": life.finish,
                "reason": life.finish.map(|_| request.reason(life.output_tokens)),
                "output_tokens": life.output_tokens,
                "preemptions": life.preemptions,
                "reported_cached": first.map(|(_, cached)| cached),
            });
            value.as_object().cloned().unwrap_or_default()
        });
        let stuck = self.lives.iter().zip(0u32..).filter(|(life, _)| life.finish.is_none());
        let totals = json!({
            "steps": self.totals.steps,
            "scheduled_tokens": self.totals.scheduled_tokens,
            "preemptions": self.totals.preemptions,
            "evicted_blocks": self.scheduler.kv().evicted_total(),
            "queries": self.totals.counters.queries,
            "hits": self.totals.counters.hits,
            "requests": self.totals.requests,
            "preempted_queries": self.totals.counters.preempted_queries,
            "preempted_hits": self.totals.counters.preempted_hits,
            "preempted_requests": self.totals.preempted_requests,
        });
        Played {
            requests: requests.collect(),
            stuck: stuck.map(|(_, id)| id).collect(),
            totals: totals.as_object().cloned().unwrap_or_default(),
            steps: self.steps,
        }
    }
}
