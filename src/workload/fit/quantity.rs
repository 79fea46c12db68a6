//! What is read off a trace: quantities with a value for each session, turn or call, and shares.

/// Defines the quantities.
macro_rules! quantities {
    ($($quantity:ident = $name:literal, $unit:literal, $steps:literal, $use:ident;)*) => {
        /// A quantity that has many values in a trace.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Quantity {
            $(#[doc = $name] $quantity,)*
        }

        impl Quantity {
            /// Every quantity, in the order of reports.
            pub const ALL: &[Self] = &[$(Self::$quantity,)*];

            /// Its name in reports.
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

            /// Whole steps of a unit in which values are kept.
            #[must_use]
            pub const fn steps(self) -> f64 {
                match self {
                    $(Self::$quantity => $steps,)*
                }
            }

            /// Whether a profile draws it, or it comes of what is drawn.
            #[must_use]
            pub const fn is_drawn(self) -> bool {
                match self {
                    $(Self::$quantity => matches!(Use::$use, Use::Drawn),)*
                }
            }
        }
    };
}

/// What a quantity is there for.
enum Use {
    Drawn,
    Derived,
}

quantities! {
    Turns = "turns of a multi-turn session", "turns", 1.0, Drawn;
    CallsSingle = "calls, single turn", "calls", 1.0, Drawn;
    CallsFirst = "calls, first turn", "calls", 1.0, Drawn;
    CallsLater = "calls, later turn", "calls", 1.0, Drawn;
    Beside = "calls beside each of a turn", "calls", 1e6, Drawn;
    First = "first prompt", "tokens", 1.0, Drawn;
    GrowthTool = "growth, tool call", "tokens", 1.0, Drawn;
    GrowthUser = "growth, user turn", "tokens", 1.0, Drawn;
    ReplacedTokens = "replaced prompt", "tokens", 1.0, Drawn;
    VolatileAt = "volatile position", "tokens", 1.0, Drawn;
    Compacted = "prompt after a compaction", "tokens", 1.0, Drawn;
    Output = "output", "tokens", 1.0, Drawn;
    GapTool = "tool gap", "s", 1e6, Drawn;
    GapUser = "user gap", "s", 1e6, Drawn;
    Spawns = "subagents of a session", "subagents", 1.0, Drawn;
    SpawnsTogether = "subagents at once", "subagents", 1.0, Drawn;
    SubagentCalls = "calls of a subagent", "calls", 1.0, Drawn;
    SubagentFirst = "first prompt of a subagent", "tokens", 1.0, Drawn;
    SubagentKept = "prefix kept by a subagent", "tokens", 1.0, Drawn;
    SubagentGrowth = "growth of a subagent", "tokens", 1.0, Drawn;
    FailedDuration = "failed attempt", "s", 1e6, Drawn;
    RetryGap = "gap before a retry", "s", 1e6, Drawn;
    CallsPerSession = "calls of a session", "calls", 1.0, Derived;
    TurnsPerSession = "turns of a session", "turns", 1.0, Derived;
    CallsPerTurn = "calls of a turn", "calls", 1.0, Derived;
    Prompt = "prompt of a call", "tokens", 1.0, Derived;
    LastPrompt = "last prompt", "tokens", 1.0, Derived;
    TokensPerTurn = "prompt tokens of a turn", "tokens", 1.0, Derived;
    PromptPerOutput = "prompt over output of a call", "ratio", 1e3, Derived;
    SessionMinutes = "length of a session", "min", 6e7, Derived;
}

impl Quantity {
    /// Whether its values are whole numbers of things.
    #[must_use]
    pub fn is_count(self) -> bool {
        matches!(self.unit(), "calls" | "turns" | "subagents") && self.steps() == 1.0
    }
}

/// Defines the shares.
macro_rules! shares {
    ($($share:ident = $name:literal;)*) => {
        /// A figure that is one number of a trace: a part over its whole.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Share {
            $(#[doc = $name] $share,)*
        }

        impl Share {
            /// Every share, in the order of reports.
            pub const ALL: &[Self] = &[$(Self::$share,)*];

            /// Its name in reports.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$share => $name,)*
                }
            }
        }
    };
}

shares! {
    SingleTurn = "single-turn sessions";
    Stripped = "stripped sessions";
    Volatile = "volatile sessions";
    SubagentSessions = "sessions with subagents";
    Replaced = "replaced prompts of later calls";
    Compactions = "compactions of later calls";
    Switches = "model switches per later turn";
    FailedCalls = "failed attempts";
    Prefix = "shared prefix of a session, tokens";
    AgentStarted = "calls that no person started";
    TotalRatio = "all prompt over all output tokens";
    Hit = "hit of an endless cache";
    NewPerOutput = "new prompt tokens over output tokens";
    PeakStarts = "peak over mean of starts, 1 h";
}
