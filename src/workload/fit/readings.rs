//! Everything that is read off a trace, session by session, in bounded memory.

use std::collections::{BTreeMap, BTreeSet};

use super::coupling::Couplings;
use super::limit::Limits;
use super::prefix::Prefixes;
use super::quantity::{Quantity, Share};
use super::sample::Sample;
use super::starts::Starts;
use super::steps::{COMPACTED_FROM, Follows, Step, Steps};
use crate::diag::Result;
use crate::trace::meta::PartialBlock;
use crate::trace::record::{Base, Call, Cause, Item, Name, Session, SharedContext};
use crate::trace::summary::{self, Options};

/// Calls of the sample that the hit rate is counted on; the session that reaches it is the last.
const SAMPLE_CALLS: usize = 60_000;
/// Tokens in a block of that count.
const BLOCK_SIZE: u64 = 64;
/// In turns of so many calls the number of those beside the main agent's is well known.
const LONG_TURN: usize = 10;

/// What a profile cannot hold, counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeftOut {
    /// Sessions without a call of a main agent.
    pub sessions: u64,
    /// Prompts that keep most of the one before and are not longer.
    pub shrunk: u64,
    /// Prompts that keep part of the one before, but not its end.
    pub edited: u64,
    /// Calls that failed and were not repeated.
    pub gave_up: u64,
    /// Subagents that continue their parent's conversation.
    pub forks: u64,
}

/// What was read off a trace.
#[derive(Debug, Default)]
pub struct Readings {
    samples: BTreeMap<Quantity, Sample>,
    shares: BTreeMap<Share, (f64, f64)>,
    pub(super) sessions: u64,
    pub(super) calls: u64,
    pub(super) models: BTreeMap<Name, u64>,
    pub(super) tools: BTreeMap<u32, u64>,
    pub(super) limits: Limits,
    /// Long prompts that another follows, and those of them that a compaction follows.
    pub(super) long: Sample,
    pub(super) compacted_at: Sample,
    pub(super) prefixes: Prefixes,
    pub(super) starts: Starts,
    pub(super) couplings: Couplings,
    pub(super) left_out: LeftOut,
    sampled: Vec<Item>,
    sampled_calls: usize,
}

impl Readings {
    /// Takes in a shared context.
    pub fn context(&mut self, context: &SharedContext) {
        self.prefixes.context(context);
        if self.sampled_calls < SAMPLE_CALLS {
            self.sampled.push(Item::Context(context.clone()));
        }
    }

    /// Takes in a session.
    pub fn session(&mut self, session: &Session) {
        let steps = Steps::of(session);
        if steps.main.is_empty() {
            self.left_out.sessions += 1;
            return;
        }
        self.sessions += 1;
        self.calls += session.calls.len() as u64;
        if self.sampled_calls < SAMPLE_CALLS {
            self.sampled_calls += session.calls.len();
            self.sampled.push(Item::Session(session.clone()));
        }
        self.starts.session(session);
        self.prefixes.session(session);
        self.turns(&steps);
        self.main(&steps);
        self.kept(&steps);
        self.subagents(&steps);
        self.attempts(session, &steps);
        self.whole(session, &steps);
    }

    /// Counts what an endless cache hits, on the first sessions.
    ///
    /// # Errors
    /// If they have too many blocks.
    pub fn finish(&mut self) -> Result<()> {
        let common = self.prefixes.common();
        self.share(Share::Prefix, common.whole, self.sessions as f64);
        self.set_peak(self.starts.peak_to_mean());
        let sample = std::mem::take(&mut self.sampled);
        if self.sessions == 0 {
            return Ok(());
        }
        let options = Options {
            block_size: BLOCK_SIZE,
            partial_block: PartialBlock::Drop,
            lru: Vec::new(),
            lru_forward: Vec::new(),
            unnumbered_blocks: BTreeMap::new(),
        };
        let summary = summary::summarise(sample.into_iter().map(Ok), &options)?;
        let traffic = &summary.traffic;
        let new = traffic.new_tokens.as_ref().map_or(0, |new| new.sum) as f64;
        let (prompts, outputs) = (traffic.tokens_in as f64, traffic.tokens_out as f64);
        self.share(Share::Hit, prompts - new, prompts);
        self.share(Share::NewPerOutput, new, outputs);
        Ok(())
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

    /// The values of a quantity, if there is any.
    #[must_use]
    pub fn sample(&self, quantity: Quantity) -> Option<&Sample> {
        self.samples.get(&quantity)
    }

    /// A share with the size of its whole; `None` where the whole is nothing.
    #[must_use]
    pub fn value(&self, share: Share) -> Option<(f64, f64)> {
        let (part, whole) = *self.shares.get(&share)?;
        (whole > 0.0).then(|| (part / whole, whole))
    }

    /// The peak of the starts over their mean, and how many starts are in the peak.
    pub(super) fn set_peak(&mut self, peak: Option<(f64, u64)>) {
        self.shares.remove(&Share::PeakStarts);
        if let Some((ratio, starts)) = peak {
            self.share(Share::PeakStarts, ratio * starts as f64, starts as f64);
        }
    }

    fn add(&mut self, quantity: Quantity, value: f64) {
        // A float-to-int cast saturates; values below 0 do not occur.
        let steps = (value * quantity.steps()).round() as u64;
        self.samples.entry(quantity).or_default().add(steps);
    }

    fn share(&mut self, share: Share, part: f64, whole: f64) {
        let sums = self.shares.entry(share).or_default();
        sums.0 += part;
        sums.1 += whole;
    }

    fn count(&mut self, share: Share, is_part: bool) {
        self.share(share, f64::from(u8::from(is_part)), 1.0);
    }

    /// Turns of the main agent and their calls.
    fn turns(&mut self, steps: &Steps<'_>) {
        let turns: Vec<&[Step<'_>]> =
            steps.main.chunk_by(|a, b| a.call.turn == b.call.turn).collect();
        let is_single = turns.len() == 1;
        self.count(Share::SingleTurn, is_single);
        if !is_single {
            self.add(Quantity::Turns, turns.len() as f64);
        }
        for (number, turn) in turns.iter().enumerate() {
            let id = turn[0].call.turn;
            let beside = steps.beside.iter().filter(|step| step.call.turn == id).count();
            let calls = turn.len() + beside;
            let quantity = match (is_single, number) {
                (true, _) => Quantity::CallsSingle,
                (false, 0) => Quantity::CallsFirst,
                (false, _) => Quantity::CallsLater,
            };
            self.add(quantity, calls as f64);
            if calls >= LONG_TURN {
                self.add(Quantity::Beside, beside as f64 / turn.len() as f64);
            }
        }
    }

    /// Prompts, growth, gaps and models along the main agent's calls.
    fn main(&mut self, steps: &Steps<'_>) {
        let first = steps.main[0].call.prompt_tokens.0;
        self.add(Quantity::First, first as f64);
        let (mut longest, mut reached) = (first, None);
        for at in 0..steps.main.len() {
            let Step { call, first: attempt } = steps.main[at];
            *self.models.entry(Name::clone(&call.model)).or_default() += 1;
            let Some(last) = at.checked_sub(1).map(|last| steps.main[last].call) else { continue };
            let is_new_turn = call.turn != last.turn;
            let (gap, growth) = match is_new_turn {
                true => (Quantity::GapUser, Quantity::GrowthUser),
                false => (Quantity::GapTool, Quantity::GrowthTool),
            };
            if is_new_turn {
                self.share(Share::Switches, 0.0, 1.0);
            }
            if call.model != last.model {
                self.share(Share::Switches, 1.0, 0.0);
            }
            // The gap of a call that waits for nothing counts from the session's start.
            if !attempt.after.is_empty() {
                self.add(gap, attempt.gap.secs());
            }
            let Some(before) = steps.before(&steps.main, at) else { continue };
            let follows = steps.follows(call, before);
            if before.prompt_tokens.0 > COMPACTED_FROM {
                self.long.add(before.prompt_tokens.0);
            }
            self.count(Share::Compactions, follows == Follows::Compacted);
            self.count(Share::Replaced, follows == Follows::Replaced);
            let tokens = call.prompt_tokens.0;
            match follows {
                Follows::Grown(by) => {
                    self.add(growth, by as f64);
                    self.couplings.growth(before.output_tokens.0, by, is_new_turn);
                }
                Follows::Shrunk => self.left_out.shrunk += 1,
                Follows::Compacted => {
                    self.add(Quantity::Compacted, tokens as f64);
                    self.compacted_at.add(before.prompt_tokens.0);
                    reached = reached.or(Some(before.prompt_tokens.0));
                }
                Follows::Replaced => self.add(Quantity::ReplacedTokens, tokens as f64),
            }
            if reached.is_none() {
                longest = longest.max(tokens);
            }
        }
        self.limits.add(first, reached.unwrap_or(longest), reached.is_some());
    }

    /// What clients send back: the answer as it was, or without its reasoning, or all anew.
    fn kept(&mut self, steps: &Steps<'_>) {
        if steps.main.len() > 2 {
            self.count(Share::Volatile, steps.volatile_at.is_some());
        }
        if let Some(at) = steps.volatile_at {
            self.add(Quantity::VolatileAt, at as f64);
            return;
        }
        let (mut whole, mut stripped) = (0u64, 0u64);
        for at in 1..steps.main.len() {
            let call = steps.main[at].call;
            let Some(before) = steps.before(&steps.main, at) else { continue };
            let Follows::Grown(by) = steps.follows(call, before) else { continue };
            let kept = call.kept_tokens;
            self.left_out.edited += u64::from(kept < before.prompt_tokens);
            // An answer that is longer than the growth cannot be in it as it was generated.
            if before.output_tokens.0 > 0 && by > before.output_tokens.0 {
                whole += u64::from(kept > before.prompt_tokens);
                stripped += u64::from(kept == before.prompt_tokens);
            }
        }
        if whole + stripped > 0 {
            self.count(Share::Stripped, stripped > whole);
        }
    }

    fn subagents(&mut self, steps: &Steps<'_>) {
        self.count(Share::SubagentSessions, !steps.subagents.is_empty());
        if steps.subagents.is_empty() {
            return;
        }
        self.add(Quantity::Spawns, steps.subagents.len() as f64);
        let mut spawners: BTreeMap<_, u64> = BTreeMap::new();
        for lane in &steps.subagents {
            let first = lane[0].call;
            *spawners.entry((first.turn, &lane[0].first.after)).or_default() += 1;
            self.add(Quantity::SubagentCalls, lane.len() as f64);
            self.add(Quantity::SubagentFirst, first.prompt_tokens.0 as f64);
            match &first.base {
                Base::Call(_) => self.left_out.forks += 1,
                Base::Shared(_) => {
                    self.add(Quantity::SubagentKept, first.kept_tokens.0 as f64);
                }
                Base::None => self.add(Quantity::SubagentKept, 0.0),
            }
            for at in 1..lane.len() {
                let Step { call, first } = lane[at];
                if !first.after.is_empty() {
                    self.add(Quantity::GapTool, first.gap.secs());
                }
                let before = steps.before(lane, at);
                if let Some(Follows::Grown(by)) = before.map(|before| steps.follows(call, before)) {
                    self.add(Quantity::SubagentGrowth, by as f64);
                }
            }
        }
        spawners.into_values().for_each(|n| self.add(Quantity::SpawnsTogether, n as f64));
    }

    fn attempts(&mut self, session: &Session, steps: &Steps<'_>) {
        for call in &session.calls {
            if call.output_tokens.0 > 0 {
                self.add(Quantity::Output, call.output_tokens.0 as f64);
            }
            if let Some(tools) = call.tools {
                *self.tools.entry(tools).or_default() += 1;
            }
        }
        let lanes = steps.subagents.iter().flatten().chain(&steps.main).chain(&steps.beside);
        let gave_up = lanes.filter(|step| is_failed(step.call)).count();
        self.left_out.gave_up += gave_up as u64;
        self.share(Share::FailedCalls, steps.failed.len() as f64, session.calls.len() as f64);
        for (failed, next) in &steps.failed {
            if let Some(lasted) = failed.seen_duration {
                self.add(Quantity::FailedDuration, lasted.secs());
            }
            self.add(Quantity::RetryGap, next.gap.secs());
        }
    }

    /// What comes of all that, over every row of the session.
    fn whole(&mut self, session: &Session, steps: &Steps<'_>) {
        let mut turns: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
        let (mut prompts, mut outputs, mut by_agents) = (0u64, 0u64, 0u64);
        for call in &session.calls {
            let prompt = call.prompt_tokens.0;
            let turn = turns.entry(call.turn).or_default();
            *turn = (turn.0 + 1, turn.1.saturating_add(prompt));
            prompts = prompts.saturating_add(prompt);
            outputs = outputs.saturating_add(call.output_tokens.0);
            by_agents += u64::from(call.cause != Cause::User);
            self.add(Quantity::Prompt, prompt as f64);
            if call.output_tokens.0 > 0 {
                self.add(Quantity::PromptPerOutput, prompt as f64 / call.output_tokens.0 as f64);
            }
        }
        let calls = session.calls.len() as f64;
        self.add(Quantity::CallsPerSession, calls);
        self.add(Quantity::TurnsPerSession, turns.len() as f64);
        for (calls, tokens) in turns.values() {
            self.add(Quantity::CallsPerTurn, *calls as f64);
            self.add(Quantity::TokensPerTurn, *tokens as f64);
        }
        self.share(Share::AgentStarted, by_agents as f64, calls);
        self.share(Share::TotalRatio, prompts as f64, outputs as f64);
        let (first, last) = (steps.main[0].call, steps.main[steps.main.len() - 1].call);
        self.add(Quantity::LastPrompt, last.prompt_tokens.0 as f64);
        self.add(Quantity::SessionMinutes, (last.at - session.calls[0].at).secs() / 60.0);
        let main_turns: BTreeSet<u32> = steps.main.iter().map(|step| step.call.turn).collect();
        self.couplings.session(
            first.prompt_tokens.0 as f64,
            steps.main.len() as f64,
            main_turns.len() as f64,
            last.prompt_tokens.0 as f64,
        );
    }
}

fn is_failed(call: &Call) -> bool {
    call.status == crate::trace::record::Status::Failed
}
