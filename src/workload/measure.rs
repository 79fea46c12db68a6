//! What a generated trace is like, taken in session by session in bounded memory.
//!
//! Percentiles come from histograms with buckets of 0.4 %, means and shares are exact. Sessions are
//! dealt to sixteen batches, and the spread of the batches' figures gives the sampling error: calls
//! of one session are no independent draws. What an endless cache hits is counted by
//! [`crate::trace::summary`] on the first sessions only, as it keeps every call in memory.

use super::generate::Made;
use super::target::{At, Quantity};
use crate::diag::Result;
use crate::trace::meta::PartialBlock;
use crate::trace::record::{Base, Cause, Item, Session, SharedContext};
use crate::trace::summary::{self, Options};

mod figure;
mod shape;

pub use figure::{BATCHES, Figure};
use shape::Shape;

/// Calls of the sample that the hit rate is counted on; the session that reaches it is the last.
const SAMPLE_CALLS: usize = 60_000;
/// Tokens in a block of that count.
const BLOCK_SIZE: u64 = 64;

/// The figures of one profile's sessions.
#[derive(Debug)]
pub struct Measure {
    figures: Vec<Figure>,
    sample: Vec<Item>,
    sample_calls: usize,
    sample_sessions: u64,
    sessions: u64,
    calls: u64,
    /// Tokens per turn by class.
    classes: Vec<Figure>,
}

/// A value of a quantity with its sampling error.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// The value.
    pub value: f64,
    /// Half the width of a 95 % interval, if there is enough to tell.
    pub error: Option<f64>,
}

impl Measure {
    /// No session yet, of a profile with so many classes.
    #[must_use]
    pub fn new(classes: usize) -> Self {
        Self {
            figures: Quantity::ALL.iter().map(|quantity| Figure::of(*quantity)).collect(),
            sample: Vec::new(),
            sample_calls: 0,
            sample_sessions: 0,
            sessions: 0,
            calls: 0,
            classes: (0..classes).map(|_| Figure::of(Quantity::TokensPerTurn)).collect(),
        }
    }

    /// Takes in a shared context.
    pub fn context(&mut self, context: &SharedContext) {
        if self.sample_calls < SAMPLE_CALLS {
            self.sample.push(Item::Context(context.clone()));
        }
    }

    /// Takes in a session. One whose class changes amounts counts for its class only.
    pub fn session(&mut self, made: &Made, is_as_published: bool) {
        let batch = (self.sessions % BATCHES as u64) as usize;
        self.sessions += 1;
        self.calls += made.session.calls.len() as u64;
        let shape = Shape::of(&made.session, &made.facts);
        if let Some(class) = made.class {
            shape.turn_tokens.iter().for_each(|tokens| self.classes[class].add(batch, *tokens));
        }
        if !is_as_published {
            return;
        }
        if self.sample_calls < SAMPLE_CALLS {
            self.sample_calls += made.session.calls.len();
            self.sample_sessions += 1;
            self.sample.push(Item::Session(made.session.clone()));
        }
        self.of_session(made, &shape, batch);
        self.of_calls(&made.session, &made.facts.beside, batch);
    }

    /// Sessions taken in.
    #[must_use]
    pub fn sessions(&self) -> u64 {
        self.sessions
    }

    /// Their calls.
    #[must_use]
    pub fn calls(&self) -> u64 {
        self.calls
    }

    /// Sessions of the sample that the hit rate is counted on.
    #[must_use]
    pub fn sample_sessions(&self) -> u64 {
        self.sample_sessions
    }

    /// Mean prompt tokens of a turn of a class.
    #[must_use]
    pub fn class_tokens_per_turn(&self, class: usize) -> Option<Estimate> {
        self.classes[class].estimate(At::Mean)
    }

    /// Counts the sample's hits; figures of them are there from then on.
    ///
    /// # Errors
    /// If the sample has too many blocks.
    pub fn count_hits(&mut self) -> Result<()> {
        let options = Options {
            block_size: BLOCK_SIZE,
            partial_block: PartialBlock::Drop,
            lru: Vec::new(),
            lru_forward: Vec::new(),
        };
        if self.sample_sessions == 0 {
            return Ok(());
        }
        let sample = std::mem::take(&mut self.sample);
        let summary = summary::summarise(sample.into_iter().map(Ok), &options)?;
        let traffic = &summary.traffic;
        let new = traffic.new_tokens.as_ref().map_or(0, |new| new.sum) as f64;
        let (prompts, outputs) = (traffic.tokens_in as f64, traffic.tokens_out as f64);
        self.figure(Quantity::Hit).add_ratio(0, prompts - new, prompts);
        self.figure(Quantity::NewPerOutput).add_ratio(0, new, outputs);
        Ok(())
    }

    /// The value of a figure; `None` where nothing was seen that has it.
    #[must_use]
    pub fn estimate(&self, quantity: Quantity, at: At) -> Option<Estimate> {
        self.figures[quantity as usize].estimate(at)
    }

    fn figure(&mut self, quantity: Quantity) -> &mut Figure {
        &mut self.figures[quantity as usize]
    }

    fn of_session(&mut self, made: &Made, shape: &Shape, batch: usize) {
        let session = &made.session;
        let mut add = |quantity: Quantity, value: f64| {
            self.figures[quantity as usize].add(batch, value);
        };
        add(Quantity::CallsPerSession, session.calls.len() as f64);
        add(Quantity::MainCallsPerSession, shape.main_calls as f64);
        add(Quantity::TurnsPerSession, shape.turn_calls.len() as f64);
        add(Quantity::FirstPrompt, session.calls[0].prompt_tokens.0 as f64);
        add(Quantity::LastPrompt, shape.last_prompt);
        add(Quantity::SessionMinutes, shape.minutes);
        shape.turn_calls.iter().for_each(|calls| add(Quantity::CallsPerTurn, *calls));
        shape.turn_main.iter().for_each(|calls| add(Quantity::MainCallsPerTurn, *calls));
        shape.turn_tokens.iter().for_each(|tokens| add(Quantity::TokensPerTurn, *tokens));
        shape.concurrency.iter().for_each(|calls| add(Quantity::Concurrency, *calls));
        shape.subagent_calls.iter().for_each(|calls| add(Quantity::SubagentCalls, *calls));
        if let Some(prompt) = shape.prompt_at_30 {
            add(Quantity::PromptAt30, prompt);
        }
        if !shape.subagent_calls.is_empty() {
            add(Quantity::Subagents, shape.subagent_calls.len() as f64);
        }
        let calls = session.calls.len() as f64;
        let mut ratio = |quantity: Quantity, part: f64, whole: f64| {
            self.figures[quantity as usize].add_ratio(batch, part, whole);
        };
        ratio(Quantity::TotalRatio, shape.prompt_tokens, shape.output_tokens);
        ratio(Quantity::AgentStarted, shape.agent_started, calls);
        ratio(Quantity::ModelSwitches, shape.switches, shape.main_calls as f64 - 1.0);
        ratio(Quantity::Compactions, made.facts.compactions as f64, calls);
        let has_subagents = f64::from(u8::from(!shape.subagent_calls.is_empty()));
        ratio(Quantity::SubagentSessions, has_subagents, 1.0);
        let stuck = made.facts.is_stuck;
        self.figure(Quantity::FailedContext).add_contrast(batch, stuck, shape.prompt_tokens, calls);
    }

    fn of_calls(&mut self, session: &Session, beside: &[u32], batch: usize) {
        let mut last: Option<f64> = None;
        for (number, call) in session.calls.iter().enumerate() {
            let prompt = call.prompt_tokens.0 as f64;
            let mut add = |quantity: Quantity, value: f64| {
                self.figures[quantity as usize].add(batch, value);
            };
            add(Quantity::Prompt, prompt);
            if call.output_tokens.0 > 0 {
                add(Quantity::Output, call.output_tokens.0 as f64);
                add(Quantity::CallRatio, prompt / call.output_tokens.0 as f64);
            }
            if call.lane > 0 {
                if beside.binary_search(&call.lane).is_err() {
                    add(Quantity::SubagentPrompt, prompt);
                }
                continue;
            }
            add(Quantity::MainPrompt, prompt);
            let continues = matches!(call.base, Base::Call(_));
            let growth = last.replace(prompt).map(|last| prompt - last).filter(|_| continues);
            let (growths, gaps) = match call.cause {
                Cause::User => (Quantity::GrowthUser, Quantity::UserGap),
                Cause::Tool => (Quantity::GrowthTool, Quantity::ToolGap),
                Cause::Subagent | Cause::Retry => continue,
            };
            if number > 0 {
                add(gaps, call.gap.secs());
            }
            if let Some(growth) = growth {
                add(growths, growth);
            }
        }
    }
}
