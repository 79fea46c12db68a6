//! The clients behind a gateway: what they send along, and how they ask again.

use std::collections::BTreeMap;

use crate::diag::{Error, Result};
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

/// What a token is billed with, in 10^-12 of the currency: single tokens cost as little as some
/// 10^-8 of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TokenPrice {
    /// A token of the prompt.
    pub input: u64,
    /// A token of the answer.
    pub output: u64,
}

impl TokenPrice {
    /// So many USD as it is kept here.
    ///
    /// # Errors
    /// A price that is not zero and would be kept as zero.
    pub fn kept(usd: f64) -> Result<u64> {
        match (usd * 1e12).round() as u64 {
            0 if usd > 0.0 => Err(Error::found(usd, "0, or at least 1e-12 USD for a token")),
            kept => Ok(kept),
        }
    }

    /// What a call bills, to the nearest billionth of the currency.
    #[must_use]
    pub fn of(&self, prompt: Tokens, output: Tokens) -> u64 {
        let bills = |price: u64, tokens: Tokens| u128::from(price) * u128::from(tokens.0);
        let all = bills(self.input, prompt).saturating_add(bills(self.output, output));
        u64::try_from(all.saturating_add(500) / 1_000).unwrap_or(u64::MAX)
    }
}
