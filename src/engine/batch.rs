//! What a step does and what comes out of it.

use crate::units::{Blocks, RequestId, Span, Tokens};

/// Position of a request in the scheduler's table.
pub(super) type Slot = u32;

/// What one step does.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    /// The scheduled requests, in the order in which they were scheduled.
    pub rows: Vec<Row>,
    /// Who was preempted, in order, with the computed tokens that each lost.
    pub preempted: Vec<(RequestId, Tokens)>,
    /// Prefix-cache counters of the step.
    pub counters: PrefixCounters,
    /// Who preempted itself for want of more blocks than there are, and how many it needs.
    pub outgrown: Option<(RequestId, Blocks)>,
}

impl Batch {
    /// Nothing is decided yet.
    pub(super) fn clear(&mut self) {
        self.rows.clear();
        self.preempted.clear();
        self.counters = PrefixCounters::default();
        self.outgrown = None;
    }

    /// Whether there is nothing to count or to tell: no row, and nobody is preempted.
    pub(super) fn is_quiet(&self) -> bool {
        self.rows.is_empty() && self.preempted.is_empty()
    }
}

/// One request's part of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    pub(super) slot: Slot,
    /// Tells the request from a later one in the same slot.
    pub(super) arrival: u64,
    /// Which request.
    pub request: RequestId,
    /// Tokens computed in this step.
    pub tokens: Tokens,
    /// Tokens whose KV was there before; for an admission the prefix hit.
    pub computed_before: Tokens,
    /// How it came into the step.
    pub kind: RowKind,
    /// Whether a token comes out of it.
    pub emits: bool,
    /// Whether it computes the KV of a generated token and nothing else.
    pub decodes: bool,
}

/// How a request came into a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowKind {
    /// First admission.
    New,
    /// Admission after a preemption.
    Resumed,
    /// It was running already.
    Running,
}

/// Prefix-cache counters as vLLM keeps them, in tokens; counted at admission only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PrefixCounters {
    /// Known tokens of first admissions.
    pub queries: u64,
    /// Of these, found in the cache.
    pub hits: u64,
    /// Known tokens of re-admissions; no exported metric shows them.
    pub preempted_queries: u64,
    /// Of these, found in the cache.
    pub preempted_hits: u64,
}

impl PrefixCounters {
    /// Adds another step's counters.
    pub fn add(&mut self, other: &Self) {
        self.queries += other.queries;
        self.hits += other.hits;
        self.preempted_queries += other.preempted_queries;
        self.preempted_hits += other.preempted_hits;
    }
}

/// What came out of a step for one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// The first token.
    First {
        /// Which request.
        request: RequestId,
        /// Tokens of its prompt that were computed rather than found in the cache.
        computed: Tokens,
    },
    /// A later token, the last included.
    Next {
        /// Time since the one before.
        gap: Span,
    },
    /// The last token; the request is gone.
    Last {
        /// Which request.
        request: RequestId,
        /// Tokens that came out of it.
        output: Tokens,
        /// Tokens prefilled for it.
        prefilled: Tokens,
    },
}
