//! The trace as a scenario plays it: a part of the time, a sample, a multiple, denser starts.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use rustc_hash::FxHashSet;

use super::workload::Workload;
use crate::config::reshape::Reshape;
use crate::diag::{Error, Result};
use crate::trace::record::{Name, Trace};
use crate::trace::tools::clones::{Clones, closer};
use crate::trace::tools::cut::{Window, cut};
use crate::trace::tools::sample::{Size, sample};
use crate::trace::tools::scale::{Scale, Scaled, scale_part};
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
            Ok(scaled_note(by, &told))
        })?;
    }
    if let Some(factor) = reshape.time_compression {
        compress(played.trace.to_mut(), factor);
        played.notes.push(compressed_note(factor));
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

/// A trace that is played several times over, or with denser starts, and otherwise as recorded:
/// made one by one, so that only what was recorded is held.
#[derive(Debug)]
pub struct Repeated {
    /// Its contexts and sessions.
    pub items: Clones,
    /// What was changed, for the report.
    pub notes: Vec<String>,
    /// Calls in all of it.
    pub calls: u64,
    /// What was recorded, ready to be played.
    pub workload: Arc<Workload>,
    /// By session that is played: its number there.
    pub numbers: Arc<[u32]>,
}

impl Repeated {
    /// Whether that is all that is asked for.
    #[must_use]
    pub fn is_all_of(reshape: &Reshape) -> bool {
        let Reshape { from, to, sample, scale, .. } = reshape;
        from.is_none() && to.is_none() && sample.is_none() && scale.is_none_or(|by| by >= 1.0)
    }

    /// Reshapes a trace, with what [`played`] gives. `models` maps model groups to served models.
    ///
    /// # Errors
    /// A factor out of range.
    pub fn new(
        mut trace: Trace,
        reshape: &Reshape,
        seed: u64,
        models: &BTreeMap<Name, Name>,
    ) -> Result<Self> {
        trace.sessions.retain(|session| !session.calls.is_empty());
        let workload = Arc::new(Workload::new(&trace, models));
        let recorded = trace.sessions.iter().map(|session| session.calls.len() as u64).sum();
        let scale = reshape.scale.map(|by| Scale { by, jitter: reshape.jitter, seed });
        let factor = reshape.time_compression;
        let (items, told) = Clones::new(trace, scale.as_ref(), factor)
            .map_err(|error| error.in_field("workload.scale"))?;
        let scaled = reshape.scale.map(|by| scaled_note(by, &told));
        let notes = scaled.into_iter().chain(factor.map(compressed_note)).collect();
        let calls = if scale.is_some() { told.calls } else { recorded };
        let numbers = items.numbers().collect();
        Ok(Self { items, notes, calls, workload, numbers })
    }
}

fn scaled_note(by: f64, told: &Scaled) -> String {
    format!(
        "scaled by {by}: {} of {} sessions as recorded, {} clones",
        told.kept, told.sessions, told.clones
    )
}

fn compressed_note(factor: f64) -> String {
    format!("session starts {factor} times closer together; gaps inside sessions as recorded")
}

/// Moves whole sessions so that their starts are `factor` times closer together.
fn compress(trace: &mut Trace, factor: f64) {
    for session in &mut trace.sessions {
        let Some(first) = session.calls.first() else { continue };
        let (recorded, moved) = (first.at, closer(first, first.at, factor));
        for call in &mut session.calls {
            call.at = Span((call.at - recorded).0.saturating_add(moved.0));
        }
    }
    // First calls of different gaps may have changed places.
    trace.sessions.sort_by_key(|session| session.calls.first().map(|call| call.at));
}
