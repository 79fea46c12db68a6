//! The clients behind a gateway: what they send along, and how they ask again.

use std::collections::BTreeMap;

use crate::trace::record::Name;
use crate::units::{Span, Tokens};

/// What the clients of a gateway do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Clients {
    /// Whether they wait as long as `retry-after` says, up to a minute. How often they ask again,
    /// and their own waits, are those of the scenario's clients.
    pub honour_retry_after: bool,
    /// Times that an agent starts a request again that its SDK has given up, each time with all
    /// the retries of the SDK.
    pub agent_retries: u32,
    /// How long it waits before.
    pub agent_wait: Span,
    /// How long a client waits for a stream to begin before it hangs up and asks again, as after a
    /// refusal; `None` for ever. Answers that are not streamed are waited for.
    pub timeout: Option<Span>,
    /// Whether answers are streamed.
    pub streams: bool,
    /// Whether a budget or a check has prompts counted, where the gateway counts at all.
    pub is_counted: bool,
    /// Tools that each prompt comes with.
    pub tools: u32,
    /// Model groups by the name of a served model, where a group is not called as its model.
    pub groups: BTreeMap<Name, u32>,
    /// Limits of key and team, by the name of the tenant, which is a key.
    pub limits: BTreeMap<Name, [Option<u32>; 2]>,
    /// Limits of tenants that are not named there: each has all of them.
    pub other_limits: [Option<u32>; 2],
    /// What a token costs, for the rows that are lost.
    pub price: TokenPrice,
}

impl Default for Clients {
    /// SDKs that stream, wait for ever and honour `retry-after`, agents that give up with them, no
    /// budgets and no limits.
    fn default() -> Self {
        Self {
            honour_retry_after: true,
            agent_retries: 0,
            agent_wait: Span::ZERO,
            timeout: None,
            streams: true,
            is_counted: false,
            tools: 0,
            groups: BTreeMap::new(),
            limits: BTreeMap::new(),
            other_limits: [None, None],
            price: TokenPrice::default(),
        }
    }
}

/// What a token is billed with, in billionths of the currency.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TokenPrice {
    /// A token of the prompt.
    pub input: u64,
    /// A token of the answer.
    pub output: u64,
}

impl TokenPrice {
    /// Of so many USD for a token.
    #[must_use]
    pub fn of_usd(input: f64, output: f64) -> Self {
        let nanos = |usd: f64| (usd * 1e9).round() as u64;
        Self { input: nanos(input), output: nanos(output) }
    }

    /// What a call bills.
    #[must_use]
    pub fn of(&self, prompt: Tokens, output: Tokens) -> u64 {
        let prompt = self.input.saturating_mul(prompt.0);
        prompt.saturating_add(self.output.saturating_mul(output.0))
    }
}
