//! A load generator in front of one engine, as benchmark clients are: a fixed number of requests in
//! flight, or requests at given times.
//!
//! It is the fleet without sessions: a request waits for nothing but its turn, and every length is
//! known beforehand.

use crate::config::api_time::ApiTime;
use crate::engine::config::EngineConfig;
use crate::engine::fast::FastEngine;
use crate::engine::metrics::EngineMetrics;
use crate::engine::ranks::RankGroup;
use crate::engine::request::{Effect, Request};
use crate::engine::step_time::StepCost;
use crate::engine::{Due, Engine};
use crate::queue::EventQueue;
use crate::trace::lineage::Path;
use crate::trace::record::Finish;
use crate::units::{RequestId, SegmentId, Span, Time, Tokens};

/// One engine and its API server.
#[derive(Clone, Debug)]
pub struct Server {
    /// The engine.
    pub engine: EngineConfig,
    /// Its step time.
    pub cost: StepCost,
    /// Host time of a request outside the engine.
    pub api: ApiTime,
    /// Leading tokens that all prompts have in common, in the cache from the start.
    pub shared: Tokens,
}

/// One request of a benchmark client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ask {
    /// Tokens of the prompt, at least one.
    pub prompt: Tokens,
    /// Tokens of the answer, at least one; nothing ends it earlier.
    pub output: Tokens,
    /// Prompts of the same number are the same.
    pub content: u32,
}

/// When the client sends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pacing {
    /// So many requests in flight, all of them at once at the start.
    Closed(usize),
    /// Each request at its time, in ascending order.
    Open(Vec<Time>),
}

/// What became of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Served {
    /// The client sent it.
    pub sent: Time,
    /// The first token came out of the engine.
    pub first_token: Time,
    /// The client had the whole answer.
    pub ended: Time,
    /// The last token came out of the engine.
    pub last_token: Time,
    /// Tokens of the answer.
    pub output: Tokens,
}

impl Served {
    /// Time to the first token.
    #[must_use]
    pub fn ttft(&self) -> Span {
        self.first_token - self.sent
    }

    /// Time to the whole answer.
    #[must_use]
    pub fn e2e(&self) -> Span {
        self.ended - self.sent
    }

    /// Mean time between tokens in nanoseconds; none where there is one token only.
    #[must_use]
    pub fn itl(&self) -> Option<f64> {
        let gaps = self.output.0.checked_sub(1).filter(|gaps| *gaps > 0)?;
        Some((self.last_token - self.first_token).as_f64() / gaps as f64)
    }
}

/// A finished run.
#[derive(Clone, Debug)]
pub struct Driven {
    /// Every request, in the order of the asks.
    pub served: Vec<Served>,
    /// What the engine counted.
    pub metrics: EngineMetrics,
}

#[derive(Clone, Copy, Debug)]
enum Event {
    Send(u32),
    Queue(u32),
    Ended(u32),
}

/// Sends every request and waits for all answers.
///
/// # Errors
/// Why the engine can never answer one of them.
pub fn drive(server: &Server, asks: &[Ask], pacing: &Pacing) -> Result<Driven, String> {
    let (engine, cost) = (&server.engine, &server.cost);
    if cost.in_lock_step() {
        let group = RankGroup::new(engine, cost, FastEngine::new);
        return Driver::new(group, server, asks).run(pacing);
    }
    Driver::new(FastEngine::new(engine.clone(), cost.clone()), server, asks).run(pacing)
}

struct Driver<'a, E> {
    engine: E,
    server: &'a Server,
    asks: &'a [Ask],
    queue: EventQueue<Event>,
    served: Vec<Served>,
    /// In a closed loop: the next request to be sent.
    next: usize,
    left: usize,
    closed: bool,
}

impl<'a, E: Engine> Driver<'a, E> {
    fn new(mut engine: E, server: &'a Server, asks: &'a [Ask]) -> Self {
        if server.shared > Tokens::ZERO {
            engine.warm(&shared_path(server.shared), server.shared);
        }
        let served = vec![Served::default(); asks.len()];
        let (queue, left) = (EventQueue::default(), asks.len());
        Self { engine, server, asks, queue, served, next: 0, left, closed: false }
    }

    fn run(mut self, pacing: &Pacing) -> Result<Driven, String> {
        match pacing {
            Pacing::Closed(concurrency) => {
                self.closed = true;
                self.next = (*concurrency).clamp(1, self.asks.len().max(1));
                let burst = self.next.min(self.asks.len());
                (0..burst).for_each(|ask| self.queue.push(Time::ZERO, Event::Send(ask as u32)));
            }
            Pacing::Open(times) => {
                for (ask, at) in times.iter().enumerate().take(self.asks.len()) {
                    self.queue.push(*at, Event::Send(ask as u32));
                }
            }
        }
        let mut effects = Vec::new();
        while self.left > 0 {
            // At one instant steps end first, then clients act, then steps start.
            let client = self.queue.next_at();
            let due = self.engine.due().filter(|due| match *due {
                Due::StepEnds(at) => client.is_none_or(|client| at <= client),
                Due::StepStarts(at) => client.is_none_or(|client| at < client),
            });
            match due {
                Some(Due::StepEnds(at) | Due::StepStarts(at)) => self.step(at, &mut effects)?,
                None if !self.client_acts() => {
                    return Err("the engine came to rest before all were answered".to_owned());
                }
                None => {}
            }
        }
        Ok(Driven { metrics: self.engine.metrics(), served: self.served })
    }

    fn step(&mut self, now: Time, effects: &mut Vec<Effect>) -> Result<(), String> {
        self.engine.advance(now, effects);
        // Nobody watches single steps here.
        self.engine.take_runs(|_, _| {});
        if let Some(stuck) = self.engine.stuck() {
            let prompt = self.asks[stuck.head.index()].prompt;
            return Err(format!("a prompt of {prompt} tokens {stuck}"));
        }
        for effect in effects.drain(..) {
            match effect {
                Effect::FirstToken { request } => self.served[request.index()].first_token = now,
                Effect::Finished { request, output, .. } => {
                    let served = &mut self.served[request.index()];
                    (served.last_token, served.output) = (now, output);
                    let ended = now + self.server.api.after_last_token(output);
                    self.queue.push(ended, Event::Ended(request.0));
                }
                Effect::Admitted { .. } | Effect::Preempted { .. } | Effect::StepStarted(_) => {}
            }
        }
        Ok(())
    }

    /// The next thing that a client does; false if there is none.
    fn client_acts(&mut self) -> bool {
        let Some((now, event)) = self.queue.pop() else { return false };
        match event {
            Event::Send(ask) => {
                self.served[ask as usize].sent = now;
                let before = self.server.api.before_queue(self.asks[ask as usize].prompt);
                self.queue.push(now + before, Event::Queue(ask));
            }
            Event::Queue(ask) => self.engine.submit(now, self.request(ask)),
            Event::Ended(ask) => {
                self.served[ask as usize].ended = now;
                self.left -= 1;
                if self.closed && self.next < self.asks.len() {
                    self.queue.push(now, Event::Send(self.next as u32));
                    self.next += 1;
                }
            }
        }
        true
    }

    fn request(&self, ask: u32) -> Request {
        let Ask { prompt, output, content } = self.asks[ask as usize];
        // Segment 0 is what all share; odd ones are prompts, even ones answers.
        let shared = self.server.shared.min(prompt.saturating_sub(Tokens(1)));
        let mut path = shared_path(shared).continued(shared, SegmentId(2 * content + 1), prompt);
        path.extend(SegmentId(2 * ask + 2), prompt + output);
        Request { id: RequestId(ask), path, prompt, output, finish: Finish::Length, priority: 0 }
    }
}

fn shared_path(shared: Tokens) -> Path {
    Path::default().continued(Tokens::ZERO, SegmentId(0), shared)
}
