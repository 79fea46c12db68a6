//! The one list of a profile's parameters.

/// What a parameter may be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    /// Any distribution.
    Draw,
    /// A number between two bounds.
    Number(f64, f64),
}

/// One row of the list.
#[derive(Clone, Copy, Debug)]
pub struct Spec {
    /// The parameter.
    pub key: Key,
    /// Its key in the file.
    pub name: &'static str,
    /// Its unit.
    pub unit: &'static str,
    /// What it may be.
    pub kind: Kind,
    /// Whether a profile must have it.
    pub required: bool,
    /// The number that it is where the profile does not say; `None`: what it is about is left out.
    pub default: Option<f64>,
    /// What it means.
    pub meaning: &'static str,
}

/// Defines the parameters, in the order in which they are written.
macro_rules! keys {
    ($($key:ident = $name:literal, $unit:literal, $kind:expr, $need:expr, $meaning:literal;)*) => {
        /// A parameter of a profile.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Key {
            $(#[doc = $meaning] $key,)*
        }

        /// Every parameter, in the order in which they are written.
        pub const KEYS: &[Spec] = &[
            $(Spec {
                key: Key::$key,
                name: $name,
                unit: $unit,
                kind: $kind,
                required: matches!($need, Need::Required),
                default: $need.default(),
                meaning: $meaning,
            },)*
        ];
    };
}

impl Key {
    /// Its row of the list.
    #[must_use]
    pub fn spec(self) -> &'static Spec {
        // The list holds every key, in the order of the enumeration.
        &KEYS[self as usize]
    }
}

/// Whether a profile must say.
enum Need {
    Required,
    /// What it is about does not occur otherwise.
    Optional,
    /// It is this number otherwise.
    Default(f64),
}

impl Need {
    const fn default(&self) -> Option<f64> {
        match self {
            Self::Default(value) => Some(*value),
            Self::Required | Self::Optional => None,
        }
    }
}

use Kind::{Draw, Number};
use Need::{Default, Optional, Required};

const SHARE: Kind = Number(0.0, 1.0);
const NONE: Need = Default(0.0);

keys! {
    SingleTurn = "sessions.single_turn", "share", SHARE, Required,
        "sessions of one user turn, as a share; the others are multi-turn sessions";
    Turns = "sessions.turns", "turns", Draw, Optional,
        "user turns of a multi-turn session";
    FailedSessions = "sessions.failed", "share", SHARE, NONE,
        "sessions whose agent gets stuck, as a share";
    FailedSessionFactor = "sessions.failed_factor", "factor", Number(1.0, 100.0), Default(1.0),
        "factor on the calls of every turn of such a session";
    CallsSingle = "calls.single_turn", "calls", Draw, Optional,
        "model calls of the turn of a single-turn session, those of subagents left out";
    CallsFirst = "calls.first_turn", "calls", Draw, Optional,
        "the same for the first turn of a multi-turn session";
    CallsLater = "calls.later_turn", "calls", Draw, Optional,
        "the same for its later turns";
    FailedTurns = "calls.failed_turn", "share", SHARE, NONE,
        "turns in which a tool fails and the agent works around it, as a share";
    FailedTurnFactor = "calls.failed_turn_factor", "factor", Number(1.0, 100.0), Default(1.0),
        "factor on the calls of such a turn";
    Beside = "calls.beside", "calls", Draw, Optional,
        "calls in flight beside each call of the main agent, drawn once a turn; they count among \
         the turn's calls";
    Tools = "prompt.tools", "tokens", Draw, Optional,
        "tool catalogue at the head of every prompt, drawn for each version of the scaffold; \
         shared by all who use that version";
    System = "prompt.system", "tokens", Draw, Optional,
        "system prompt behind it, drawn for each version and tenant; shared inside the tenant";
    Versions = "prompt.versions", "versions", Number(1.0, 1000.0), Default(1.0),
        "versions of the scaffold in use at a time; a session takes one of them";
    Catalogue = "prompt.catalogue", "tools", Number(0.0, 1e6), Optional,
        "number of tools in the catalogue, for the trace's `tools` column";
    First = "prompt.first", "tokens", Draw, Required,
        "whole first prompt of a session, shared prefix included";
    Resumed = "prompt.resumed", "share", SHARE, NONE,
        "sessions that resume an older conversation, as a share";
    ResumedFirst = "prompt.resumed_first", "tokens", Draw, Optional,
        "whole first prompt of such a session";
    GrowthTool = "prompt.growth_tool", "tokens", Draw, Optional,
        "by how much the prompt after a tool call is longer than the one before, the answer in \
         between included";
    GrowthUser = "prompt.growth_user", "tokens", Draw, Optional,
        "the same for the first prompt of a turn";
    GrowthFollows = "prompt.growth_follows_output", "correlation", Number(0.0, 0.99), NONE,
        "correlation of the normal scores of a growth and of the answer in it";
    Replaced = "prompt.replaced", "share", SHARE, NONE,
        "calls whose whole context behind the shared prefix is retrieved anew, as a share";
    ReplacedTokens = "prompt.replaced_tokens", "tokens", Draw, Optional,
        "whole prompt of such a call";
    Stripped = "prompt.stripped", "share", SHARE, NONE,
        "sessions whose client never sends an answer back as it was generated (reasoning is \
         stripped), as a share";
    Volatile = "prompt.volatile", "share", SHARE, NONE,
        "sessions with a token at the head of the prompt that is another in every call, such as \
         the time, as a share";
    VolatileAt = "prompt.volatile_at", "tokens", Draw, Optional,
        "where that token is, drawn for each session";
    Limit = "prompt.limit", "tokens", Draw, Optional,
        "longest prompt, drawn for each session; `at_limit` says what happens beyond it";
    Compacted = "prompt.compacted", "tokens", Draw, Optional,
        "whole prompt after a compaction";
    Output = "output.tokens", "tokens", Draw, Required,
        "answer of a call, whatever its prompt";
    GapTool = "gap.tool", "seconds", Draw, Optional,
        "time of one tool, from the answer to the next call";
    GapBatch = "gap.batch", "tools", Draw, Optional,
        "tools that an answer calls at once; the slowest decides";
    GapUser = "gap.user", "seconds", Draw, Optional,
        "time between the last answer of a turn and the next turn";
    SubagentSessions = "subagents.sessions", "share", SHARE, NONE,
        "sessions that spawn subagents, as a share";
    Spawns = "subagents.spawns", "subagents", Draw, Optional,
        "subagents of such a session";
    SpawnsTogether = "subagents.together", "subagents", Draw, Optional,
        "subagents that one call spawns at once; the next call of the main agent waits for all";
    SubagentCalls = "subagents.calls", "calls", Draw, Optional,
        "calls of a subagent, one after the other";
    SubagentFirst = "subagents.first", "tokens", Draw, Optional,
        "whole first prompt of a subagent";
    SubagentKept = "subagents.kept", "tokens", Draw, Optional,
        "how much of the shared prefix it begins with; all of it where this is left out";
    SubagentGrowth = "subagents.growth", "tokens", Draw, Optional,
        "growth of a subagent's prompt; as that of a tool call where this is left out";
    FailedCalls = "failures.calls", "share", Number(0.0, 0.9), NONE,
        "attempts of a call that fail and are repeated, as a share";
    FailedDuration = "failures.duration", "seconds", Draw, Optional,
        "how long a failed attempt lasts";
    RetryGap = "failures.retry_gap", "seconds", Draw, Optional,
        "time until it is repeated";
    Switch = "models.switch", "share", SHARE, NONE,
        "turns that begin with a switch to the other model, as a share";
    StartsPerHour = "people.starts_per_hour", "sessions", Number(1e-3, 1000.0), Default(1.0),
        "sessions that a person starts in an hour of work";
    BurstCv = "people.burst_cv", "ratio", Number(0.1, 20.0), Default(1.0),
        "deviation over mean of the working time between two starts: 1 is Poisson, more is bursty";
    Team = "people.team", "people", Number(1.0, 1e6), Default(10.0),
        "people of a tenant";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_finds_its_row() {
        for (index, spec) in KEYS.iter().enumerate() {
            assert_eq!((spec.key as usize, spec.key.spec().name), (index, spec.name));
        }
    }
}
