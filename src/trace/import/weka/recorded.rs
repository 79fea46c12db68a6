//! A session as it was recorded, checked, with all times counted from the session's start.

use crate::trace::import::blocks::IdRun;
use crate::units::{Span, Tokens};

/// One recorded session.
#[derive(Debug)]
pub(super) struct Recorded {
    pub(super) id: String,
    /// The scaffold that made it, where the file says so, else empty.
    pub(super) profile: String,
    pub(super) block_size: u64,
    pub(super) scope: Scope,
    /// The main agent, then its subagents, each behind the one that spawned it.
    pub(super) lanes: Vec<Lane>,
    /// All calls in the order of the file.
    pub(super) calls: Vec<RecordedCall>,
    /// Subagent entries without a call.
    pub(super) empty_lanes: u64,
    /// Subagents that lasted longer than the session had when they ended.
    pub(super) early_lanes: u64,
    /// Models of calls that the list of models does not name.
    pub(super) unlisted: Vec<String>,
}

/// What a block id means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scope {
    /// A prefix, within its session.
    Local,
    /// The content of one block, in all sessions.
    Global,
}

/// The calls of one agent.
#[derive(Debug, Default)]
pub(super) struct Lane {
    /// The lane that spawned it; the main lane is its own.
    pub(super) parent: usize,
    /// When it was spawned.
    pub(super) spawn: Span,
    /// When its result came back, if anyone waited for it.
    pub(super) joined_at: Option<Span>,
    /// Its calls by time, as positions in [`Recorded::calls`].
    pub(super) calls: Vec<usize>,
    /// Whether the file had them in another order.
    pub(super) out_of_order: bool,
}

/// One recorded call.
#[derive(Debug)]
pub(super) struct RecordedCall {
    pub(super) lane: usize,
    pub(super) at: Span,
    pub(super) model: String,
    pub(super) prompt: Tokens,
    pub(super) output: Tokens,
    pub(super) ids: Vec<IdRun>,
    /// Whether its last whole block has no id.
    pub(super) short: bool,
    pub(super) input: InputTypes,
    pub(super) stop: Stop,
    pub(super) api_time: Option<Span>,
    pub(super) ttft: Option<Span>,
}

/// What a call's prompt brought, as far as the turn rule asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum InputTypes {
    /// Not recorded.
    Unknown,
    /// A tool's result among other things.
    WithToolResult,
    /// No tool's result.
    Other,
}

/// Why a call ended, as far as the turn rule asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// To call a tool.
    ToolUse,
    /// To hand over to the person.
    EndTurn,
    /// Not recorded, or for another reason.
    Unknown,
}

impl Recorded {
    /// Time from the session's start to the end of its last call, subagents included; a call
    /// whose server time is not known ends at its start here.
    pub(super) fn span(&self) -> Span {
        let ends = self.calls.iter().map(|call| call.at + call.api_time.unwrap_or_default());
        ends.max().unwrap_or_default()
    }

    /// The longest prompt and output of a call.
    pub(super) fn context_max(&self) -> Tokens {
        self.calls.iter().map(|call| call.prompt + call.output).max().unwrap_or_default()
    }
}
