//! What a generated trace is held against.

use super::profile::Mark;

/// A figure of a generated trace.
macro_rules! quantities {
    ($($quantity:ident = $name:literal, $unit:literal, $meaning:literal;)*) => {
        /// A figure of a generated trace.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Quantity {
            $(#[doc = $meaning] $quantity,)*
        }

        impl Quantity {
            /// Every quantity.
            pub const ALL: &[Self] = &[$(Self::$quantity,)*];

            /// Its name in the file.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$quantity => $name,)*
                }
            }

            /// Its unit.
            #[must_use]
            pub const fn unit(self) -> &'static str {
                match self {
                    $(Self::$quantity => $unit,)*
                }
            }

            /// What it means.
            #[must_use]
            pub const fn meaning(self) -> &'static str {
                match self {
                    $(Self::$quantity => $meaning,)*
                }
            }
        }
    };
}

quantities! {
    CallsPerSession = "calls_per_session", "calls", "calls of a session, all lanes";
    MainCallsPerSession = "main_calls_per_session", "calls", "calls of a session's main agent";
    TurnsPerSession = "turns_per_session", "turns", "user turns of a session";
    CallsPerTurn = "calls_per_turn", "calls", "calls of a turn, all lanes";
    MainCallsPerTurn = "main_calls_per_turn", "calls", "calls of the main agent in a turn";
    FirstPrompt = "first_prompt", "tokens", "prompt of a session's first call";
    LastPrompt = "last_prompt", "tokens", "prompt of the main agent's last call";
    Prompt = "prompt", "tokens", "prompt of a call";
    MainPrompt = "main_prompt", "tokens", "prompt of a call of the main agent";
    SubagentPrompt = "subagent_prompt", "tokens", "prompt of a call of a subagent";
    PromptAt30 = "prompt_at_call_30", "tokens", "prompt of the main agent's 30th call";
    Output = "output", "tokens", "answer of a call";
    GrowthTool = "growth_tool", "tokens",
        "by how much a prompt that continues another is longer than it, after a tool call";
    GrowthUser = "growth_user", "tokens", "the same for the first prompt of a turn";
    CallRatio = "prompt_per_output", "ratio", "prompt over output of a call";
    TotalRatio = "total_prompt_per_output", "ratio", "all prompt tokens over all output tokens";
    NewPerOutput = "new_per_output", "ratio",
        "prompt tokens that an endless cache does not have over output tokens, all calls";
    Hit = "hit", "share", "prompt tokens that an endless cache has, of all prompt tokens";
    AgentStarted = "agent_started", "share", "calls that no person started";
    TokensPerTurn = "tokens_per_turn", "tokens", "prompt tokens of all calls of a turn";
    ToolGap = "tool_gap", "seconds", "client time before a call that a tool's result started";
    UserGap = "user_gap", "seconds", "client time before a turn, the first of a session left out";
    Concurrency = "concurrency", "calls",
        "calls of a turn over those of its longest chain, subagents left out, turns of ten calls \
         or more";
    SubagentSessions = "subagent_sessions", "share", "sessions with subagents";
    Subagents = "subagents", "subagents", "subagents of a session that has any";
    SubagentCalls = "subagent_calls", "calls", "calls of a subagent";
    ModelSwitches = "model_switches", "share",
        "calls of the main agent that ask for another model than the one before";
    Compactions = "compactions", "share", "calls before which the conversation was compacted";
    FailedContext = "failed_context_ratio", "ratio",
        "mean prompt of the calls of failed sessions over that of the others";
    SessionMinutes = "session_minutes", "minutes",
        "time from a session's first dispatch to its last, main agent";
}

impl Quantity {
    /// Whether it is one number of the whole trace, without percentiles.
    #[must_use]
    pub const fn is_total(self) -> bool {
        matches!(
            self,
            Self::TotalRatio
                | Self::NewPerOutput
                | Self::Hit
                | Self::AgentStarted
                | Self::SubagentSessions
                | Self::ModelSwitches
                | Self::Compactions
                | Self::FailedContext
        )
    }
}

/// Which figure of a quantity.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum At {
    /// The one number that there is.
    Total,
    /// The mean.
    Mean,
    /// The value that this share does not exceed.
    Percentile(f64),
}

impl At {
    /// As it stands in a file: `total`, `mean`, `p50`.
    #[must_use]
    pub fn text(self) -> String {
        match self {
            Self::Total => "total".to_owned(),
            Self::Mean => "mean".to_owned(),
            Self::Percentile(share) => percent_key(share),
        }
    }
}

/// The name of a percentile: `p50`, `p99.9`.
#[must_use]
pub(super) fn percent_key(share: f64) -> String {
    // Printing to six digits undoes what 100 * 0.07 adds.
    let text = format!("{:.6}", 100.0 * share);
    format!("p{}", text.trim_end_matches('0').trim_end_matches('.'))
}

/// The share of a name such as `p50`; above 0 and below 1.
#[must_use]
pub(super) fn percent_share(name: &str) -> Option<f64> {
    let number = name.strip_prefix('p')?;
    let digits = number.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    let share = number.parse::<f64>().ok().filter(|_| digits)? / 100.0;
    (share > 0.0 && share < 1.0).then_some(share)
}

/// What is allowed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Wanted {
    /// A value, give or take so much.
    About {
        /// The published value.
        value: f64,
        /// How far off it may be, in its unit.
        within: f64,
    },
    /// Anything between two bounds.
    Between(f64, f64),
}

impl Wanted {
    /// The least and the largest value that are allowed.
    #[must_use]
    pub fn bounds(self) -> (f64, f64) {
        match self {
            Self::About { value, within } => (value - within, value + within),
            Self::Between(min, max) => (min, max),
        }
    }
}

/// A published figure that a generated trace is to have.
#[derive(Clone, Debug, PartialEq)]
pub struct Target {
    /// Its name in the file.
    pub name: String,
    /// The quantity.
    pub quantity: Quantity,
    /// Which figure of it.
    pub at: At,
    /// What is allowed.
    pub wanted: Wanted,
    /// What it rests on.
    pub mark: Mark,
    /// Where it is from, in words.
    pub source: String,
    /// Why it cannot be met, where it is known that it cannot.
    pub unmet: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_percentiles_come_back() {
        for share in [0.05, 0.07, 0.5, 0.99, 0.999] {
            let back = percent_share(&percent_key(share)).unwrap();
            assert!((back - share).abs() < 1e-12, "{share}");
        }
        assert_eq!(percent_key(0.07), "p7");
        for name in ["50", "p0", "p100", "p-5", "px", "p1e1"] {
            assert_eq!(percent_share(name), None, "{name}");
        }
    }
}
