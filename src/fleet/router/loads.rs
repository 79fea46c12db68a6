//! What a router knows of its replicas' load: it counts what it sends and what comes back.

use crate::units::{ReplicaId, Time, Tokens};

/// What a call adds to a replica's load.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// When it was sent.
    pub at: Time,
    /// Tokens of it to prefill, as far as the router knows; none once its first token came out.
    pub uncached: Tokens,
    /// Tokens of its prompt.
    pub prompt: Tokens,
}

/// The load of every replica.
#[derive(Debug)]
pub(super) struct Loads(Vec<Load>);

/// Of one replica.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Load {
    /// Calls sent and not ended.
    pub(super) calls: u64,
    /// Of these, tokens that wait to be prefilled.
    pub(super) uncached: u64,
    /// Tokens of all their prompts.
    pub(super) prompts: u64,
}

impl Loads {
    pub(super) fn new(replicas: u32) -> Self {
        Self(vec![Load::default(); replicas as usize])
    }

    /// One more replica.
    pub(super) fn grow(&mut self) {
        self.0.push(Load::default());
    }

    /// Replicas.
    pub(super) fn count(&self) -> u32 {
        self.0.len() as u32
    }

    pub(super) fn of(&self, replica: ReplicaId) -> &Load {
        &self.0[replica.index()]
    }

    pub(super) fn sent(&mut self, replica: ReplicaId, sent: &Sent) {
        let load = &mut self.0[replica.index()];
        load.calls += 1;
        load.uncached += sent.uncached.0;
        load.prompts += sent.prompt.0;
    }

    pub(super) fn prefilled(&mut self, replica: ReplicaId, sent: &mut Sent) {
        self.0[replica.index()].uncached -= std::mem::take(&mut sent.uncached).0;
    }

    pub(super) fn ended(&mut self, replica: ReplicaId, sent: &Sent) {
        let load = &mut self.0[replica.index()];
        load.calls -= 1;
        load.uncached -= sent.uncached.0;
        load.prompts -= sent.prompt.0;
    }
}
