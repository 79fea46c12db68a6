//! The trace as a scenario plays it: a part of the time, a sample, a multiple, denser starts.

use std::borrow::Cow;

use rustc_hash::FxHashSet;

use crate::config::reshape::Reshape;
use crate::diag::{Error, Result};
use crate::trace::record::{Name, Trace};
use crate::trace::tools::cut::{Window, cut};
use crate::trace::tools::sample::{Size, sample};
use crate::trace::tools::scale::{Scale, scale_part};
use crate::trace::tools::survey::Survey;
use crate::units::Span;

/// A trace as it is played.
#[derive(Debug)]
pub struct Played<'a> {
    /// The trace.
    pub trace: Cow<'a, Trace>,
    /// What was changed, for the report.
    pub notes: Vec<String>,
    /// Shared contexts that are tools and system prompts in the whole trace; empty if nothing was
    /// changed.
    pub common: FxHashSet<Name>,
}

/// Reshapes a trace; whatever is chosen at random follows from `seed`.
///
/// # Errors
/// A part of the trace without calls.
pub fn played<'a>(trace: &'a Trace, reshape: &Reshape, seed: u64) -> Result<Played<'a>> {
    let mut played =
        Played { trace: Cow::Borrowed(trace), notes: Vec::new(), common: FxHashSet::default() };
    if !reshape.is_whole() {
        played.common = Survey::of(trace)?.common();
    }
    if reshape.from.is_some() || reshape.to.is_some() {
        let window = Window {
            from: reshape.from.unwrap_or_default(),
            to: reshape.to,
            whole_sessions: false,
        };
        played.change("workload.from_s", |trace, made| {
            let told = cut(trace, &window, made)?;
            Ok(format!(
                "played from {} s on: {} of {} sessions, {} of them under way there",
                window.from.secs_text(),
                told.whole + told.partial,
                told.sessions,
                told.under_way
            ))
        })?;
    }
    if let Some(share) = reshape.sample {
        played.change("workload.sample", |trace, made| {
            sample(trace, Size::Share(share), seed, made)?;
            Ok(format!("a sample of {} of {} sessions", made.sessions.len(), trace.sessions.len()))
        })?;
    }
    if let Some(by) = reshape.scale {
        let how = Scale { by, jitter: reshape.jitter, seed };
        let common = played.common.clone();
        played.change("workload.scale", |trace, made| {
            let told = scale_part(trace, &how, &common, made)?;
            Ok(format!(
                "scaled by {by}: {} of {} sessions as recorded, {} clones",
                told.kept, told.sessions, told.clones
            ))
        })?;
    }
    if let Some(factor) = reshape.time_compression {
        compress(played.trace.to_mut(), factor);
        played.notes.push(format!(
            "session starts {factor} times closer together; gaps inside sessions as recorded"
        ));
    }
    Ok(played)
}

impl Played<'_> {
    fn change(
        &mut self,
        key: &str,
        tool: impl FnOnce(&Trace, &mut Trace) -> Result<String>,
    ) -> Result<()> {
        let mut made = Trace::default();
        let note = tool(&self.trace, &mut made).map_err(|error: Error| error.in_field(key))?;
        self.trace = Cow::Owned(made);
        self.notes.push(note);
        Ok(())
    }
}

/// Moves whole sessions so that their starts are `factor` times closer together.
fn compress(trace: &mut Trace, factor: f64) {
    for session in &mut trace.sessions {
        let Some(first) = session.calls.first() else { continue };
        let start = first.at.saturating_sub(first.gap);
        let moved = Span::from_secs_f64(start.secs() / factor);
        for call in &mut session.calls {
            call.at = Span((call.at - start).0.saturating_add(moved.0));
        }
    }
    // First calls of different gaps may have changed places.
    trace.sessions.sort_by_key(|session| session.calls.first().map(|call| call.at));
}
