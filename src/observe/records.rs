//! The records of one run: per call, per turn, per task.

use crate::units::{ReplicaId, Span, Time, Tokens};

/// One call as it went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallRecord {
    /// Which of the sessions that were played.
    pub play: u32,
    /// The session of the trace that was played.
    pub session: u32,
    /// The call's number in its session.
    pub call: u32,
    /// Where it ran; `None` if it reached no engine.
    pub replica: Option<ReplicaId>,
    /// The pool of replicas that it is of, by number; 0 where there are none.
    pub pool: u16,
    /// The pool that it was sent to last, which is another one if its own was full.
    pub served_by: u16,
    /// Dispatched by the client: it arrives at the gateway.
    pub dispatched: Time,
    /// The client asked for it, the last time before it was first sent to a replica.
    pub asked: Time,
    /// First sent to a replica. What lies before is the gateway's, and the waits of a client whom
    /// the gateway refused; without a gateway nothing does, as long as a replica takes calls.
    pub sent: Time,
    /// Arrived in the engine's queue.
    pub queued: Time,
    /// First scheduled.
    pub scheduled: Time,
    /// First token out of the engine.
    pub first_token: Time,
    /// Last token out of the engine.
    pub last_token: Time,
    /// The client has everything; for a failed call, it knows.
    pub ended: Time,
    /// Tokens of the prompt that was sent.
    pub prompt: Tokens,
    /// Of these, found in the cache at the first admission.
    pub cached: Tokens,
    /// Of these, what a cache that never evicts and serves the whole fleet would have held.
    pub ceiling: Tokens,
    /// Why the cache held less than that.
    pub missed: Missed,
    /// Tokens generated.
    pub output: Tokens,
    /// Tokens prefilled by the engine, those computed again after a preemption included.
    pub prefilled: Tokens,
    /// Times it lost its blocks.
    pub preemptions: u32,
    /// Computed tokens that it lost with them.
    pub lost: Tokens,
    /// What kind of place in its turn it has.
    pub place: Place,
    /// How it ended.
    pub outcome: CallOutcome,
    /// Whether its prompt was compacted to fit into the context.
    pub compacted: bool,
    /// Times that its client was refused, by a replica or by the gateway, before it was taken in,
    /// or for good.
    pub refusals: u32,
    /// Times that it was sent to a replica, those included that a gateway tried again by itself.
    pub attempts: u32,
    /// Times that the replica it was sent to was lost with it.
    pub losses: u32,
}

impl CallRecord {
    /// First token out minus arrival at the gateway.
    #[must_use]
    pub fn ttft(&self) -> Span {
        self.first_token - self.dispatched
    }

    /// It is sent to a replica, for the first time or again.
    pub fn note_attempt(&mut self, now: Time) {
        if self.attempts == 0 {
            self.sent = now;
        }
        self.attempts += 1;
    }

    /// First token out minus arrival in the engine's queue: what the engine itself measures.
    #[must_use]
    pub fn engine_ttft(&self) -> Span {
        self.first_token - self.queued
    }

    /// From the arrival at the gateway of the request that was first sent to a replica until it
    /// was: what clients wait for after a refusal is not the gateway's time.
    #[must_use]
    pub fn before_send(&self) -> Span {
        self.sent.saturating_since(self.asked)
    }

    /// Time in the engine's queue before it was first scheduled.
    #[must_use]
    pub fn queue(&self) -> Span {
        self.scheduled - self.queued
    }

    /// From arrival at the gateway until the client has the last token.
    #[must_use]
    pub fn e2e(&self) -> Span {
        self.ended - self.dispatched
    }

    /// Mean time between its tokens after the first, in seconds; `None` for a single token.
    #[must_use]
    pub fn itl_secs(&self) -> Option<f64> {
        let gaps = self.output.0.checked_sub(1).filter(|&gaps| gaps > 0)?;
        Some((self.last_token - self.first_token).secs() / gaps as f64)
    }

    /// Tokens that were computed although the fleet had computed them before.
    #[must_use]
    pub fn recomputed(&self) -> Tokens {
        let first_time = self.prompt - self.ceiling.max(self.cached);
        self.prefilled.saturating_sub(first_time)
    }
}

/// Tokens of a prompt that the fleet had computed before and the cache did not hold, by cause. They
/// add up to the ceiling less what was cached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Missed {
    /// Computed by this process, and evicted since (or cached by another of its ranks).
    pub evicted: u32,
    /// Begun by this process for a call that had not ended: under way, or given up.
    pub under_way: u32,
    /// Computed only by other replicas, and there still is such a process.
    pub elsewhere: u32,
    /// Computed only by processes that are gone, with their caches.
    pub gone: u32,
    /// All of it where prefix caching is off.
    pub uncached: u32,
}

impl Missed {
    /// Names of the causes, as columns and keys have them.
    pub const NAMES: [&str; 5] = ["evicted", "under_way", "elsewhere", "gone", "uncached"];

    /// By cause, in the order of the names.
    #[must_use]
    pub const fn parts(&self) -> [u32; 5] {
        [self.evicted, self.under_way, self.elsewhere, self.gone, self.uncached]
    }
}

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallOutcome {
    /// It gave its answer.
    Completed,
    /// Its prompt did not fit into the context, and the client was told so.
    Rejected,
    /// A replica or the gateway refused it, or its attempts failed, as often as the client was
    /// ready to ask.
    Refused,
    /// It had failed when it was recorded; it held up its client, and no GPU.
    RecordedFailure,
}

impl CallOutcome {
    /// Whether the simulated fleet failed it.
    #[must_use]
    pub fn is_failure(self) -> bool {
        matches!(self, Self::Rejected | Self::Refused)
    }
}

/// What kind of place a call has; several may hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place(u8);

impl Place {
    /// First call of a turn of the main agent.
    pub const FIRST_OF_TURN: Self = Self(1);
    /// Second call of a turn of the main agent.
    pub const SECOND_OF_TURN: Self = Self(2);
    /// Third or later call of a turn of the main agent.
    pub const LATER_IN_TURN: Self = Self(4);
    /// First call of a turn, but not of the session: a person's pause lies before it.
    pub const TURN_BOUNDARY: Self = Self(8);
    /// Continues a context that another model computed.
    pub const MODEL_SWITCH: Self = Self(16);
    /// First call of a subagent.
    pub const SUBAGENT_FIRST: Self = Self(32);
    /// Later call of a subagent.
    pub const SUBAGENT_LATER: Self = Self(64);

    /// Every kind with its name in reports and filters.
    pub const ALL: [(Self, &'static str); 7] = [
        (Self::FIRST_OF_TURN, "first_call"),
        (Self::SECOND_OF_TURN, "second_call"),
        (Self::LATER_IN_TURN, "later_calls"),
        (Self::TURN_BOUNDARY, "turn_boundary"),
        (Self::MODEL_SWITCH, "model_switch"),
        (Self::SUBAGENT_FIRST, "subagent"),
        (Self::SUBAGENT_LATER, "subagent_later"),
    ];

    /// Both kinds together.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether it is of this kind.
    #[must_use]
    pub const fn is(self, kind: Self) -> bool {
        self.0 & kind.0 != 0
    }
}

/// One completed user turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TurnRecord {
    /// Which of the sessions that were played.
    pub play: u32,
    /// The session of the trace that was played.
    pub session: u32,
    /// The turn's number.
    pub turn: u32,
    /// Dispatch of its first call.
    pub started: Time,
    /// Last token of its last call.
    pub ended: Time,
    /// Client time on its critical path: tools.
    pub tool: Span,
    /// Whether a call of it failed in the simulation.
    pub failed: bool,
}

impl TurnRecord {
    /// Its whole length, tools included.
    #[must_use]
    pub fn turn(&self) -> Span {
        self.ended - self.started
    }

    /// Its length less the tool time on its critical path.
    #[must_use]
    pub fn turn_llm(&self) -> Span {
        Span(self.turn().0.saturating_sub(self.tool.0))
    }
}

/// One completed session: the task of a person or a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskRecord {
    /// Which of the sessions that were played.
    pub play: u32,
    /// The session of the trace that was played.
    pub session: u32,
    /// Dispatch of its first call.
    pub started: Time,
    /// Last token of its last call.
    pub ended: Time,
    /// Sum of its turns.
    pub task: Span,
    /// Sum of its turns less tool time.
    pub task_llm: Span,
    /// Its turns.
    pub turns: u32,
    /// Its calls.
    pub calls: u32,
    /// Whether a call of it failed in the simulation.
    pub failed: bool,
    /// Its model time alone on an idle replica, if it ended in the window and somebody asked.
    pub alone: Option<Span>,
}

impl TaskRecord {
    /// How much longer its model time was than alone.
    #[must_use]
    pub fn stretch(&self) -> Option<f64> {
        let alone = self.alone.filter(|alone| *alone > Span::ZERO)?;
        Some(self.task_llm.as_f64() / alone.as_f64())
    }

    /// Wall time, people's pauses included.
    #[must_use]
    pub fn session_span(&self) -> Span {
        self.ended - self.started
    }
}

/// Every call, turn and task of one run, for whom that is little enough to keep.
#[derive(Clone, Debug, Default)]
pub struct Records {
    /// Calls, in the order in which they ended.
    pub calls: Vec<CallRecord>,
    /// Turns, in the order in which they ended.
    pub turns: Vec<TurnRecord>,
    /// Tasks, in the order in which they ended.
    pub tasks: Vec<TaskRecord>,
}

/// Units that were under way when the run ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CutOff {
    /// Calls that were dispatched and had not ended.
    pub calls: u64,
    /// Turns that had begun and not ended.
    pub turns: u64,
    /// Sessions that had begun and not ended.
    pub tasks: u64,
}
