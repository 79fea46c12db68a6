//! A session that is being played.

use super::overflow::Fit;
use super::workload::{CallPlan, SessionPlan};
use crate::observe::records::TurnRecord;
use crate::trace::lineage::Path;
use crate::trace::record::AfterEvent;
use crate::units::{ReplicaId, Span, Time, Tokens};

/// A session that is being played.
#[derive(Debug)]
pub struct Play {
    /// Which session of the trace.
    pub session: u32,
    /// The pass through the trace.
    pub pass: u32,
    /// Who plays it.
    pub player: u32,
    /// When it started.
    pub started: Time,
    /// Where its calls go, once one has gone somewhere.
    pub pin: Option<ReplicaId>,
    /// Its calls by number.
    pub calls: Vec<CallState>,
    /// Its turns by position.
    pub turns: Vec<TurnState>,
    /// Calls that have not ended.
    pub calls_left: u32,
    /// Prompt and output of the main agent's latest call.
    pub context: Tokens,
    /// Sums over its completed turns.
    pub turns_total: Span,
    /// The same less tool time.
    pub turns_llm_total: Span,
}

/// A call of a session that is being played.
#[derive(Clone, Debug, Default)]
pub struct CallState {
    /// Calls that it still waits for.
    pub waits: u32,
    /// When it was dispatched.
    pub dispatched: Option<Time>,
    /// When the client had its answer.
    pub ended: Option<Time>,
    /// Its context: prompt and recorded output.
    pub path: Path,
    /// How it was fitted into the model's context.
    pub fit: Fit,
}

/// A turn of a session that is being played.
#[derive(Clone, Copy, Debug, Default)]
pub struct TurnState {
    /// Calls that have not ended.
    pub calls_left: u32,
    /// When its first call was dispatched.
    pub started: Option<Time>,
    /// Whether a call of it failed.
    pub failed: bool,
}

impl TurnState {
    /// Whether it has begun and not ended.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.started.is_some() && self.calls_left > 0
    }
}

impl Play {
    /// A session of which nothing has been dispatched.
    #[must_use]
    pub fn new(plan: &SessionPlan, session: u32, pass: u32, player: u32, started: Time) -> Self {
        let call =
            |call: &CallPlan| CallState { waits: call.after.len() as u32, ..CallState::default() };
        let turn = |&calls_left: &u32| TurnState { calls_left, ..TurnState::default() };
        Self {
            session,
            pass,
            player,
            started,
            pin: None,
            calls: plan.calls.iter().map(call).collect(),
            turns: plan.turn_calls.iter().map(turn).collect(),
            calls_left: plan.calls.len() as u32,
            context: Tokens::ZERO,
            turns_total: Span::ZERO,
            turns_llm_total: Span::ZERO,
        }
    }

    /// The record of a turn whose calls have all ended, the last of them being `last`.
    #[must_use]
    pub fn turn_record(&self, plan: &SessionPlan, play: u32, last: u32) -> TurnRecord {
        let position = plan.calls[last as usize].turn;
        let turn = &self.turns[position as usize];
        let started = turn.started.unwrap_or(self.started);
        TurnRecord {
            play,
            session: self.session,
            turn: position,
            started,
            ended: self.calls[last as usize].ended.unwrap_or(started),
            tool: self.tool_time(plan, last, started),
            failed: turn.failed,
        }
    }

    /// Client time on the critical path of the turn that `last` ended: back from it, always to
    /// what a call waited for longest, to the start of the turn.
    fn tool_time(&self, plan: &SessionPlan, last: u32, turn_started: Time) -> Span {
        let turn = plan.calls[last as usize].turn;
        let mut tool = Span::ZERO;
        let mut call = last;
        while let Some(dispatched) = self.calls[call as usize].dispatched {
            let reached = plan.calls[call as usize].after.iter().filter_map(|after| {
                let waited_for = &self.calls[after.call as usize];
                let at = match after.event {
                    AfterEvent::Finished => waited_for.ended,
                    AfterEvent::Dispatched => waited_for.dispatched,
                };
                at.map(|at| (at, after.call))
            });
            let Some((at, before)) = reached.max() else {
                // It waits for the session's start only.
                tool += dispatched.saturating_since(turn_started);
                break;
            };
            tool += dispatched.saturating_since(at.max(turn_started));
            if plan.calls[before as usize].turn != turn {
                break;
            }
            call = before;
        }
        tool
    }
}
