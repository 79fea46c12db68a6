//! What a target can be about: the metrics, their units, and what each asks of a run.

use std::fmt;

/// A figure that a target bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Metric {
    /// One user turn, tools included.
    Turn,
    /// A session's turns together, tools included.
    Task,
    /// A session on the clock on the wall.
    Session,
    /// One user turn less its tools.
    TurnLlm,
    /// A session's turns together less their tools.
    TaskLlm,
    /// How much longer a task's model time is than on a replica of its own.
    Stretch,
    /// Time to the first token.
    Ttft,
    /// Time between tokens.
    Itl,
    /// Token rate after the first token.
    Interactivity,
    /// Token rate over the whole call.
    InteractivityE2e,
    /// Time in the queue.
    Queue,
    /// Time in the gateway.
    Gateway,
    /// Prefix-cache hit rate.
    Hit,
    /// Share of calls that failed.
    Failed,
}

/// A quantity that a run has one sample of for each turn, task, session or call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Quantity {
    /// Seconds of a turn.
    Turn,
    /// Seconds of a task.
    Task,
    /// Seconds of a session.
    Session,
    /// Seconds of a turn less its tools.
    TurnLlm,
    /// Seconds of a task less its tools.
    TaskLlm,
    /// Model time of a task over the same alone, a ratio.
    Stretch,
    /// Seconds to the first token of a call.
    Ttft,
    /// Seconds per output token of a call after the first.
    Itl,
    /// Seconds of a whole call per output token.
    E2ePerToken,
    /// Seconds of a call in the queue.
    Queue,
    /// Seconds of a call before it is first sent to a replica.
    Gateway,
}

/// A share that a run has one value of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Share {
    /// Cached prompt tokens of all prompt tokens.
    Hit,
    /// Failed calls of all calls.
    Failed,
}

/// What must be looked up to judge a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Asks {
    /// The percentile itself.
    Percentile(Quantity),
    /// One over the percentile: the slow tail of a rate.
    InversePercentile(Quantity),
    /// A share.
    Share(Share),
}

/// The two ways to bound a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    /// `<=`
    AtMost,
    /// `>=`
    AtLeast,
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::AtMost => "<=",
            Self::AtLeast => ">=",
        })
    }
}

/// The dimension of a metric, which says what units its bound may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Dimension {
    /// A time, in seconds.
    Time,
    /// A rate, in tokens per second.
    Rate,
    /// A ratio without a unit.
    Ratio,
    /// A share of a whole, 1 being all of it.
    Share,
}

/// A unit: its name, and what a number of it is multiplied with to get the base unit.
pub(super) struct Unit {
    pub(super) name: &'static str,
    /// A whole factor and a power of ten, so that decimal prefixes convert without rounding.
    pub(super) factor: f64,
    pub(super) power: i32,
}

const fn unit(name: &'static str, factor: f64, power: i32) -> Unit {
    Unit { name, factor, power }
}

const TIME_UNITS: [Unit; 4] =
    [unit("s", 1.0, 0), unit("ms", 1.0, -3), unit("min", 60.0, 0), unit("h", 3_600.0, 0)];
const RATE_UNITS: [Unit; 1] = [unit("tok/s", 1.0, 0)];
const SHARE_UNITS: [Unit; 1] = [unit("%", 1.0, -2)];

impl Dimension {
    /// The units that exist, the base unit first where it has a name.
    pub(super) const fn units(self) -> &'static [Unit] {
        match self {
            Self::Time => &TIME_UNITS,
            Self::Rate => &RATE_UNITS,
            Self::Ratio => &[],
            Self::Share => &SHARE_UNITS,
        }
    }

    /// Whether a number may stand without a unit.
    pub(super) const fn allows_bare(self) -> bool {
        matches!(self, Self::Ratio | Self::Share)
    }

    /// The unit that values are kept and reported in; empty for ratios and shares.
    #[must_use]
    pub const fn base_unit(self) -> &'static str {
        match self {
            Self::Time => "s",
            Self::Rate => "tok/s",
            Self::Ratio | Self::Share => "",
        }
    }
}

impl Metric {
    /// All of them, in the order of the documentation.
    pub const ALL: [Self; 14] = [
        Self::Turn,
        Self::Task,
        Self::Session,
        Self::TurnLlm,
        Self::TaskLlm,
        Self::Stretch,
        Self::Ttft,
        Self::Itl,
        Self::Interactivity,
        Self::InteractivityE2e,
        Self::Queue,
        Self::Gateway,
        Self::Hit,
        Self::Failed,
    ];

    /// The metric of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|metric| metric.name() == name)
    }

    /// As it is written in a target.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Turn => "turn",
            Self::Task => "task",
            Self::Session => "session",
            Self::TurnLlm => "turn_llm",
            Self::TaskLlm => "task_llm",
            Self::Stretch => "stretch",
            Self::Ttft => "ttft",
            Self::Itl => "itl",
            Self::Interactivity => "interactivity",
            Self::InteractivityE2e => "interactivity_e2e",
            Self::Queue => "queue",
            Self::Gateway => "gateway",
            Self::Hit => "hit",
            Self::Failed => "failed",
        }
    }

    /// What it is, in one line.
    #[must_use]
    pub const fn definition(self) -> &'static str {
        match self {
            Self::Turn => "a user turn from its first call sent to its last token, tools included",
            Self::Task => "sum of a session's turns: tools included, pauses of the human not",
            Self::Session => "a session from its first call sent to its last token, all included",
            Self::TurnLlm => "turn less its tools: gateway, queue, prefill, decode",
            Self::TaskLlm => "task less its tools: gateway, queue, prefill, decode",
            Self::Stretch => "task_llm over that of the same task alone on an idle replica",
            Self::Ttft => "a call's first token after its arrival at the gateway",
            Self::Itl => "time from a call's first token to its last / (output tokens - 1)",
            Self::Interactivity => "1 / percentile of itl: p90 is what 90 % of calls reach",
            Self::InteractivityE2e => "1 / percentile of (end to end / output tokens)",
            Self::Queue => "a call's first scheduled step after its arrival at the engine",
            Self::Gateway => "a request's arrival at the gateway to its first try at a replica",
            Self::Hit => "prompt tokens found in the prefix cache / prompt tokens",
            Self::Failed => {
                "calls rejected for their length, refused or failed for good / calls sent"
            }
        }
    }

    /// Its dimension.
    #[must_use]
    pub const fn dimension(self) -> Dimension {
        match self {
            Self::Stretch => Dimension::Ratio,
            Self::Interactivity | Self::InteractivityE2e => Dimension::Rate,
            Self::Hit | Self::Failed => Dimension::Share,
            Self::Turn | Self::Task | Self::Session | Self::TurnLlm | Self::TaskLlm => {
                Dimension::Time
            }
            Self::Ttft | Self::Itl | Self::Queue | Self::Gateway => Dimension::Time,
        }
    }

    /// Which way a target bounds it: a time from above, a rate from below.
    #[must_use]
    pub const fn op(self) -> Op {
        match self {
            Self::Interactivity | Self::InteractivityE2e | Self::Hit => Op::AtLeast,
            _ => Op::AtMost,
        }
    }

    /// What must be looked up to judge it.
    #[must_use]
    pub const fn asks(self) -> Asks {
        match self {
            Self::Turn => Asks::Percentile(Quantity::Turn),
            Self::Task => Asks::Percentile(Quantity::Task),
            Self::Session => Asks::Percentile(Quantity::Session),
            Self::TurnLlm => Asks::Percentile(Quantity::TurnLlm),
            Self::TaskLlm => Asks::Percentile(Quantity::TaskLlm),
            Self::Stretch => Asks::Percentile(Quantity::Stretch),
            Self::Ttft => Asks::Percentile(Quantity::Ttft),
            Self::Itl => Asks::Percentile(Quantity::Itl),
            Self::Interactivity => Asks::InversePercentile(Quantity::Itl),
            Self::InteractivityE2e => Asks::InversePercentile(Quantity::E2ePerToken),
            Self::Queue => Asks::Percentile(Quantity::Queue),
            Self::Gateway => Asks::Percentile(Quantity::Gateway),
            Self::Hit => Asks::Share(Share::Hit),
            Self::Failed => Asks::Share(Share::Failed),
        }
    }

    /// Whether it is a share, which takes no percentile.
    #[must_use]
    pub const fn is_share(self) -> bool {
        matches!(self.asks(), Asks::Share(_))
    }

    /// Whether each sample of it belongs to one call, and so to one model.
    #[must_use]
    pub const fn is_of_calls(self) -> bool {
        matches!(
            self,
            Self::Ttft
                | Self::Itl
                | Self::Interactivity
                | Self::InteractivityE2e
                | Self::Queue
                | Self::Gateway
                | Self::Hit
                | Self::Failed
        )
    }
}

impl fmt::Display for Metric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
