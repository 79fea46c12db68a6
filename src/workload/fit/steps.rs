//! A session as its agents went through it: attempts joined to calls, calls sorted into lanes.

use std::collections::BTreeMap;

use crate::trace::record::{Base, Call, Cause, Session, Status};

/// A conversation shorter than this that starts anew was replaced, not compacted.
pub const COMPACTED_FROM: u64 = 32_000;

/// A call with the attempts that failed before it.
#[derive(Clone, Copy, Debug)]
pub struct Step<'a> {
    /// What came of it.
    pub call: &'a Call,
    /// Its first attempt: what it waited for, and why it was made.
    pub first: &'a Call,
}

/// How a prompt follows from the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Follows {
    /// It is the same and so many tokens more.
    Grown(u64),
    /// It keeps most, and is not longer.
    Shrunk,
    /// The conversation was long and starts again much shorter.
    Compacted,
    /// Most of it is new.
    Replaced,
}

/// The steps of a session.
#[derive(Debug)]
pub struct Steps<'a> {
    /// Every call, by number.
    calls: &'a [Call],
    /// The main agent's, in order.
    pub main: Vec<Step<'a>>,
    /// Calls beside one of the main agent's.
    pub beside: Vec<Step<'a>>,
    /// Those of each subagent, in order.
    pub subagents: Vec<Vec<Step<'a>>>,
    /// Attempts that were repeated, each with the gap before the next.
    pub failed: Vec<(&'a Call, &'a Call)>,
    /// Where the session's prompts change in every call, if they do.
    pub volatile_at: Option<u64>,
}

impl<'a> Steps<'a> {
    /// Sorts the calls of a session.
    #[must_use]
    pub fn of(session: &'a Session) -> Self {
        let mut lanes: BTreeMap<u32, Vec<Step<'a>>> = BTreeMap::new();
        let mut failed = Vec::new();
        for call in &session.calls {
            let lane = lanes.entry(call.lane).or_default();
            let repeats = lane.last().is_some_and(|last| {
                last.call.status == Status::Failed && call.cause == Cause::Retry
            });
            match lane.last_mut() {
                Some(last) if repeats => {
                    failed.push((last.call, call));
                    last.call = call;
                }
                _ => lane.push(Step { call, first: call }),
            }
        }
        let main = lanes.remove(&0).unwrap_or_default();
        let is_beside = |lane: &Vec<Step<'_>>| {
            lane.len() == 1 && main.iter().any(|step| are_beside(step, &lane[0]))
        };
        let (beside, subagents): (Vec<_>, Vec<_>) = lanes.into_values().partition(is_beside);
        let beside = beside.into_iter().flatten().collect();
        let volatile_at = None;
        let mut steps =
            Self { calls: &session.calls, main, beside, subagents, failed, volatile_at };
        steps.volatile_at = steps.volatile();
        steps
    }

    /// The call that the prompt of `lane[at]` continues, or the one before it.
    #[must_use]
    pub fn before(&self, lane: &[Step<'a>], at: usize) -> Option<&'a Call> {
        let call = lane[at].call;
        if let Base::Call(base) = call.base
            && let Some(base) = self.calls.get(base as usize)
            && base.lane == call.lane
        {
            return Some(base);
        }
        at.checked_sub(1).map(|before| lane[before].call)
    }

    /// How a prompt follows from `before`.
    #[must_use]
    pub fn follows(&self, call: &Call, before: &Call) -> Follows {
        let (prompt, last) = (call.prompt_tokens.0, before.prompt_tokens.0);
        let is_kept = match self.volatile_at {
            Some(_) => prompt.saturating_mul(10) > last.saturating_mul(7),
            // A prefix that is all a short prompt and the next have in common is no conversation.
            None => match call.base {
                Base::Call(_) => call.kept_tokens.0.saturating_mul(2) >= last,
                Base::Shared(_) => call.kept_tokens.0 >= last,
                Base::None => false,
            },
        };
        let is_compact =
            last > COMPACTED_FROM && prompt.saturating_mul(10) <= last.saturating_mul(7);
        match (is_compact, is_kept) {
            (true, _) => Follows::Compacted,
            (false, true) if prompt > last => Follows::Grown(prompt - last),
            (false, true) => Follows::Shrunk,
            (false, false) => Follows::Replaced,
        }
    }

    /// The place at which the prompts of the main agent part from those before them, if it is the
    /// same in almost all of them while they grow.
    fn volatile(&self) -> Option<u64> {
        let (mut kept, mut grown, mut from_call) = (Vec::new(), 0, 0);
        for at in 1..self.main.len() {
            let call = self.main[at].call;
            let Some(before) = self.before(&self.main, at) else { continue };
            kept.push((call.kept_tokens.0, call.kept_tokens < before.prompt_tokens));
            grown += usize::from(call.prompt_tokens > before.prompt_tokens);
            from_call += usize::from(matches!(call.base, Base::Call(_)));
        }
        kept.sort_unstable();
        let runs = kept.chunk_by(|a, b| a == b).max_by_key(|run| run.len())?;
        let enough = |part: usize| part * 5 >= kept.len() * 4;
        // A few prompts that happen to grow say little where each begins afresh.
        let least = if enough(from_call) { 2 } else { 6 };
        let is_volatile = runs[0].1 && kept.len() >= least && enough(runs.len()) && enough(grown);
        is_volatile.then_some(runs[0].0)
    }
}

/// Whether a single call of another lane has the same history as one of the main agent's.
fn are_beside(main: &Step<'_>, other: &Step<'_>) -> bool {
    let (a, b) = (main.first, other.first);
    a.turn == b.turn && a.after == b.after && a.base == b.base && a.kept_tokens == b.kept_tokens
}
