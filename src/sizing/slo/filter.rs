//! Which part of the traffic a target is about.

use std::fmt;

use super::metric::Metric;
use crate::units::Tokens;

/// The part of the traffic between the brackets of a target.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Filter {
    /// `[64k-128k]`: calls whose prompt is at least the first and below the second number of
    /// tokens; `[128k+]` has no upper end.
    PromptBand {
        /// Shortest prompt inside.
        from: Tokens,
        /// Shortest prompt above the band; none if it has no upper end.
        below: Option<Tokens>,
    },
    /// `[profile=agentic]`
    Profile(String),
    /// `[tenant=research]`
    Tenant(String),
    /// `[model=large]`
    Model(String),
    /// `[segment=turn_boundary]`
    Segment(Segment),
    /// `[pool=agents]`: calls of this pool, whichever served them.
    Pool(String),
}

/// Where in its session a call stands, for hit rates that would hide each other in a mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Segment {
    /// First call of a turn that is not its session's first turn.
    TurnBoundary,
    /// First call of a turn.
    FirstCall,
    /// Second call of a turn.
    SecondCall,
    /// Third and later calls of a turn.
    LaterCalls,
    /// First call after another model served the session.
    ModelSwitch,
    /// First call of a subagent.
    Subagent,
}

impl Segment {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::TurnBoundary,
        Self::FirstCall,
        Self::SecondCall,
        Self::LaterCalls,
        Self::ModelSwitch,
        Self::Subagent,
    ];

    /// As it is written in a filter.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::TurnBoundary => "turn_boundary",
            Self::FirstCall => "first_call",
            Self::SecondCall => "second_call",
            Self::LaterCalls => "later_calls",
            Self::ModelSwitch => "model_switch",
            Self::Subagent => "subagent",
        }
    }

    /// The segment of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|segment| segment.name() == name)
    }
}

/// The keys that may stand before `=`.
pub(super) const KEYS: [&str; 5] = ["profile", "tenant", "model", "segment", "pool"];

impl Filter {
    /// Why this filter makes no sense with that metric, if it does not.
    pub(super) fn misfit(&self, metric: Metric) -> Option<String> {
        let (fits, kind, why) = match self {
            Self::Profile(_) | Self::Tenant(_) => (true, "", ""),
            Self::PromptBand { .. } => {
                (metric.is_of_calls(), "a prompt band", "it goes with metrics of single calls")
            }
            Self::Model(_) => {
                let why = "a session may use several; it goes with metrics of single calls";
                (metric.is_of_calls(), "a model", why)
            }
            Self::Segment(_) => {
                (metric.is_of_calls(), "a segment", "it goes with metrics of single calls")
            }
            Self::Pool(_) => {
                let why = "a session may use several; it goes with metrics of single calls";
                (metric.is_of_calls(), "a pool", why)
            }
        };
        (!fits).then(|| format!("{kind} does not narrow `{metric}`: {why}"))
    }
}

impl fmt::Display for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PromptBand { from, below: None } => {
                let [from] = tokens_texts([*from]);
                write!(f, "{from}+")
            }
            Self::PromptBand { from, below: Some(below) } => {
                let [from, below] = tokens_texts([*from, *below]);
                write!(f, "{from}-{below}")
            }
            Self::Profile(name) => write!(f, "profile={name}"),
            Self::Tenant(name) => write!(f, "tenant={name}"),
            Self::Model(name) => write!(f, "model={name}"),
            Self::Segment(segment) => write!(f, "segment={}", segment.name()),
            Self::Pool(name) => write!(f, "pool={name}"),
        }
    }
}

/// Numbers of tokens as short as they go, all written alike: `k` is 1,000 and `K` is 1,024, as in
/// the flags of vLLM.
fn tokens_texts<const N: usize>(tokens: [Tokens; N]) -> [String; N] {
    let units = [(1_000, "k"), (1_024, "K")];
    let fits = |&(factor, _): &(u64, &str)| tokens.iter().all(|tokens| tokens.0 % factor == 0);
    let (factor, suffix) = units.into_iter().find(fits).unwrap_or((1, ""));
    tokens.map(|Tokens(tokens)| match tokens {
        0 => "0".to_owned(),
        _ => format!("{}{suffix}", tokens / factor),
    })
}
