//! `[workload]`: what of a trace is played, and how its times are taken.

use crate::diag::{Error, Result};
use crate::document::Document;
use crate::units::Span;

/// Changes of the recorded load before it is played, in this order: a part of the time, a sample,
/// a multiple, denser starts.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Reshape {
    /// Where the part that is played begins; sessions may be under way there.
    pub from: Option<Span>,
    /// Where it ends.
    pub to: Option<Span>,
    /// Share of the sessions that is played.
    pub sample: Option<f64>,
    /// Sessions that are played over those of the trace.
    pub scale: Option<f64>,
    /// A clone starts up to so much earlier or later than the original.
    pub jitter: Span,
    /// Session starts are so many times closer together.
    pub time_compression: Option<f64>,
}

/// Keys that say when recorded sessions start, and how many there are: only recorded starts heed
/// them.
pub const OF_RECORDED_STARTS: &[&str] = &[
    "workload.from_s",
    "workload.to_s",
    "workload.scale",
    "workload.jitter_s",
    "workload.time_compression",
];

/// What to do where sessions do not start as recorded.
const ANEW: &str = "other kinds of load start sessions anew: --set load.kind=trace plays the \
                    trace as recorded";

/// A clone's distance from the original, unless the scenario says.
const JITTER_SECONDS: f64 = 300.0;
/// A hundred years: a longer time is a slip.
const MAX_SECONDS: f64 = 3.2e9;

impl Reshape {
    /// Whether the trace is played as it is.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        *self == Self { jitter: self.jitter, ..Self::default() }
    }

    /// Reads the section. `recorded_starts` says whether sessions start as recorded.
    ///
    /// # Errors
    /// A value out of range, or a key that would have no effect.
    pub fn read(document: &Document, recorded_starts: bool) -> Result<Self> {
        if !recorded_starts
            && let Some(key) = OF_RECORDED_STARTS.iter().find(|key| document.has(key))
        {
            let error = Error::new("only goes with load.kind = \"trace\"");
            return Err(document.at(key, error.help(ANEW)));
        }
        let seconds =
            |key: &str| Ok(document.number(key, 0.0, MAX_SECONDS)?.map(Span::from_secs_f64));
        let factor = |key: &str, min: f64, max: f64| document.number(key, min, max);
        let reshape = Self {
            from: seconds("workload.from_s")?,
            to: seconds("workload.to_s")?,
            sample: factor("workload.sample", 1e-6, 1.0)?,
            scale: factor("workload.scale", 1e-3, 1e3)?,
            jitter: seconds("workload.jitter_s")?.unwrap_or(Span::from_secs_f64(JITTER_SECONDS)),
            time_compression: factor("workload.time_compression", 1e-3, 1e6)?,
        };
        if let Some(to) = reshape.to
            && to <= reshape.from.unwrap_or_default()
        {
            let error = Error::found(to.secs_text(), "a time after workload.from_s");
            return Err(document.at("workload.to_s", error));
        }
        if document.has("workload.jitter_s") && reshape.scale.is_none_or(|scale| scale <= 1.0) {
            let error = Error::new("without workload.scale above 1 there are no clones to move");
            return Err(document.at("workload.jitter_s", error));
        }
        Ok(reshape)
    }
}
