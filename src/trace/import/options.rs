//! What a user may decide about an import.

use std::ops::RangeInclusive;

use crate::diag::{Error, Result};
use crate::units::{Span, Tokens};

/// Output tokens per second that a call may be assumed to have had.
const ASSUMED_RATES: RangeInclusive<f64> = 1.0..=1e6;

/// How to import. What a format has no use for is not offered for it: see [`Setting`].
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// Time between the starts of two sessions.
    pub stagger: Span,
    /// Whether prompts repeat the answers before them.
    pub outputs: Outputs,
    /// Output tokens per second of calls without a recorded server time.
    pub assume_tps: f64,
    /// Whether sessions keep their ids.
    pub keep_ids: bool,
    /// Whether rows that cannot be used are left out instead of refused.
    pub skip_bad: bool,
    /// The sessions to keep, by their ids in the file; all, if empty.
    pub only: Vec<String>,
    /// Keep only sessions whose calls all have at most this much prompt and output.
    pub max_context: Option<Tokens>,
    /// Keep only sessions that last at most this long.
    pub max_span: Option<Span>,
    /// Tokens in a block, where the files do not tell; if not given, what is usual for the format.
    pub block_size: Option<u64>,
    /// Whether prompts of different sessions share nothing, whatever the files say.
    pub no_sharing: bool,
    /// Licence of the data.
    pub licence: Option<String>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            stagger: Span::from_secs(30),
            outputs: Outputs::Auto,
            assume_tps: 60.0,
            keep_ids: false,
            skip_bad: false,
            only: Vec::new(),
            max_context: None,
            max_span: None,
            block_size: None,
            no_sharing: false,
            licence: None,
        }
    }
}

impl Options {
    /// Whether the rate that calls are assumed to have is one.
    ///
    /// # Errors
    /// If it is out of range.
    pub(super) fn check_rate(&self) -> Result<()> {
        if ASSUMED_RATES.contains(&self.assume_tps) {
            return Ok(());
        }
        let (least, most) = (ASSUMED_RATES.start(), ASSUMED_RATES.end());
        let allowed = format!("a number from {least} to {most}");
        Err(Error::found(self.assume_tps, allowed).in_field("--assume-tps"))
    }

    /// The server time of a call that none was recorded for: a second to the first token, then
    /// the output at the assumed rate, at most `limit`.
    pub(super) fn assumed_time(&self, output: Tokens, limit: Span) -> Span {
        Span::from_secs_f64(1.0 + output.as_f64() / self.assume_tps).min(limit)
    }
}

/// Whether a prompt that repeats its base's whole prompt also repeats the answer to it, where the
/// format does not say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Outputs {
    /// It does if it has grown by at least that much.
    #[default]
    Auto,
    /// It does, as far as it has grown.
    Kept,
    /// It does not.
    Dropped,
}

impl Outputs {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Auto, Self::Kept, Self::Dropped];

    /// Its word on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Kept => "kept",
            Self::Dropped => "dropped",
        }
    }
}

/// An option that only some formats heed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Setting {
    /// [`Options::stagger`].
    Stagger,
    /// [`Options::outputs`].
    Outputs,
    /// [`Options::assume_tps`].
    AssumeTps,
    /// [`Options::keep_ids`].
    KeepIds,
    /// [`Options::only`].
    Only,
    /// [`Options::max_context`].
    MaxContext,
    /// [`Options::max_span`].
    MaxSpan,
    /// [`Options::block_size`].
    BlockSize,
    /// [`Options::no_sharing`].
    NoSharing,
}

impl Setting {
    /// All of them, in the order in which they are shown.
    pub const ALL: [Self; 9] = [
        Self::Stagger,
        Self::Outputs,
        Self::AssumeTps,
        Self::KeepIds,
        Self::Only,
        Self::MaxContext,
        Self::MaxSpan,
        Self::BlockSize,
        Self::NoSharing,
    ];

    /// Its name on the command line, without the dashes.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Stagger => "stagger",
            Self::Outputs => "outputs",
            Self::AssumeTps => "assume-tps",
            Self::KeepIds => "keep-ids",
            Self::Only => "only",
            Self::MaxContext => "max-context",
            Self::MaxSpan => "max-span-s",
            Self::BlockSize => "block-size",
            Self::NoSharing => "no-sharing",
        }
    }
}
