//! What the world tells the gateway of a request, and what comes back.

use super::cooldown::Failure;
use super::spend::Batch;
use crate::units::{CallId, DeploymentId, ReplicaId, Span, Tokens, WorkerId};

/// A request as it reaches the gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallSpec {
    /// The session id that the client sends along, if it does.
    pub session: Option<u64>,
    /// The virtual key.
    pub key: u64,
    /// Limits of its key and its team.
    pub limits: [Option<Limited>; 2],
    /// The model group asked for, by position.
    pub group: u32,
    /// Tokens of the messages.
    pub prompt: Tokens,
    /// Tools of its catalogue.
    pub tools: u32,
    /// Whether a budget or a check has it counted, where the settings count at all.
    pub is_counted: bool,
    /// Whether the answer is streamed.
    pub streams: bool,
}

/// A limit, and who has it: each holder has all of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Limited {
    /// The limit, by position in the settings.
    pub limit: u32,
    /// The key, or the team.
    pub holder: u64,
}

/// What an answered request took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Tokens of the prompt, as the engine counts them.
    pub prompt: Tokens,
    /// Tokens of the answer.
    pub output: Tokens,
    /// What it bills, in billionths of the currency.
    pub nano_cost: u64,
}

/// Why a request got no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// No pod takes requests.
    NoWorker,
    /// Admission: all places to wait were taken.
    QueueFull,
    /// Admission: no slot came free in time.
    QueueTimeout,
    /// The key could not be looked up.
    Database,
    /// A key or team has nothing left in this minute.
    RateLimit,
    /// Every attempt failed, the last one so.
    Upstream(Failure),
    /// Its worker was killed.
    WorkerKilled,
}

/// What follows from what happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// A request goes to a replica now. Later the world reports how that ended, once.
    Send {
        /// Which.
        call: CallId,
        /// Attempts of it so far, this one included.
        attempt: u32,
        /// The entry of the model list.
        deployment: DeploymentId,
        /// The replica behind it.
        replica: ReplicaId,
        /// Whether the session's pin decided.
        pinned: bool,
    },
    /// The gateway hangs up on a replica: the attempt is over and nothing more of it is reported.
    Abandon {
        /// Which.
        call: CallId,
        /// The replica that worked on it.
        replica: ReplicaId,
    },
    /// The client has its whole answer. The call's number is free again.
    Answered {
        /// Which.
        call: CallId,
    },
    /// The client gets an error. The call's number is free again.
    Refused {
        /// Which.
        call: CallId,
        /// HTTP status.
        status: u16,
        /// The header `retry-after`.
        retry_after: Option<Span>,
        /// Why.
        reason: Reason,
    },
    /// Nothing is left of a request whose client went away. The call's number is free again.
    Forgotten {
        /// Which.
        call: CallId,
    },
    /// Spend rows were dropped.
    RowsLost {
        /// Whose queue.
        worker: WorkerId,
        /// How many, and what they would have billed.
        lost: Batch,
    },
    /// A pod that was drained has ended.
    PodStopped {
        /// Which.
        pod: u32,
    },
}
