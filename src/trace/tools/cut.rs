//! A part of a trace, with sessions under way at its start as they are under way in a real fleet.
//!
//! A session that had begun before the window goes on with the calls that were running at its start
//! or came later. What was said before is no call any more, but its content is still there: the
//! calls that go on continue shared contexts of the same content, so that they have exactly as many
//! tokens in common with each other and with other sessions as before.

use std::collections::BTreeSet;

use rustc_hash::FxHashSet;

use super::Source;
use super::order::Sorter;
use crate::diag::{Error, Result};
use crate::trace::canonical::Sink;
use crate::trace::record::{Base, Item, Name, Session, SharedContext};
use crate::units::Span;

mod lineage;
mod under_way;

use lineage::Contexts;

/// Which part of a trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Window {
    /// From here on, counted from the start of the trace; becomes the start of the new one.
    pub from: Span,
    /// Up to here, this instant excluded; `None` to the end.
    pub to: Option<Span>,
    /// Only sessions that start in the window, and all of their calls.
    pub whole_sessions: bool,
}

/// What was kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cut {
    /// Sessions of the whole trace.
    pub sessions: u64,
    /// Kept sessions with all of their calls.
    pub whole: u64,
    /// Kept sessions that lack a beginning, an end or both.
    pub partial: u64,
    /// Of the kept sessions, those that were under way at the start of the window.
    pub under_way: u64,
    /// Kept calls.
    pub calls: u64,
    /// Of these, calls that were running at the start of the window.
    pub running: u64,
    /// Shared contexts that stand for what was said before the window.
    pub contexts_made: u64,
}

/// Hands on the part of a trace that lies in the window.
///
/// # Errors
/// The first error of the trace or of the sink, or a window without calls.
pub fn cut(source: &(impl Source + ?Sized), window: &Window, sink: &mut dyn Sink) -> Result<Cut> {
    if window.to.is_some_and(|to| to <= window.from) {
        let to = window.to.unwrap_or_default().secs_text();
        return Err(Error::found(to, "an end after the start of the part").in_field("to"));
    }
    let (contexts, used) = first_pass(source, window)?;
    let mut cut = Cut::default();
    let mut sorter = Sorter::default();
    for item in source.items()? {
        match item? {
            Item::Context(context) if used.contains(&context.name) => sink.context(&context)?,
            Item::Context(_) => {}
            Item::Session(session) => {
                cut.sessions += 1;
                let start = session.calls.first().map_or(Span::ZERO, |call| call.at);
                if start >= window.from {
                    sorter.hand_on(start.saturating_sub(window.from), sink)?;
                }
                let calls = session.calls.len();
                let Some(part) = window.part_of(session, &contexts) else { continue };
                part.contexts.iter().try_for_each(|context| sink.context(context))?;
                let is_whole = part.session.calls.len() == calls;
                cut.whole += u64::from(is_whole);
                cut.partial += u64::from(!is_whole);
                cut.under_way += u64::from(start < window.from);
                cut.calls += part.session.calls.len() as u64;
                cut.running += part.running;
                cut.contexts_made += part.contexts.len() as u64;
                sorter.take(part.session);
            }
        }
    }
    sorter.finish(sink)?;
    if cut.calls == 0 {
        return Err(Error::new("no call lies in this part of the trace"));
    }
    Ok(cut)
}

/// All shared contexts, and the names of those that what is kept uses.
fn first_pass(
    source: &(impl Source + ?Sized),
    window: &Window,
) -> Result<(Contexts, FxHashSet<Name>)> {
    let mut contexts = Contexts::default();
    let mut direct = BTreeSet::new();
    for item in source.items()? {
        match item? {
            Item::Context(context) => contexts.add(&context),
            Item::Session(session) => {
                if let Some(part) = window.part_of(session, &contexts) {
                    direct.extend(part.used_contexts());
                }
            }
        }
    }
    let used = contexts.with_bases(direct);
    Ok((contexts, used))
}

/// What is kept of a session.
struct Part {
    session: Session,
    /// Contexts that stand for earlier calls, to be declared before it.
    contexts: Vec<SharedContext>,
    /// Calls that were running at the start of the window.
    running: u64,
}

impl Part {
    /// Shared contexts that it uses and does not bring itself.
    fn used_contexts(&self) -> Vec<Name> {
        let own: Vec<&Name> = self.contexts.iter().map(|context| &context.name).collect();
        let of_calls = self.session.calls.iter().filter_map(|call| match &call.base {
            Base::Shared(name) => Some(name),
            _ => None,
        });
        let of_contexts = self.contexts.iter().filter_map(|context| context.base.as_ref());
        of_calls.chain(of_contexts).filter(|name| !own.contains(name)).map(Name::clone).collect()
    }
}

impl Window {
    /// What of a session lies in the window.
    fn part_of(&self, mut session: Session, contexts: &Contexts) -> Option<Part> {
        let start = session.calls.first()?.at;
        if self.to.is_some_and(|to| start >= to) {
            return None;
        }
        if self.whole_sessions && start < self.from {
            return None;
        }
        // Earlier calls wait for no later ones, so any beginning of a session is one.
        let to = self.to.filter(|_| !self.whole_sessions).unwrap_or(Span(u64::MAX));
        let limit = session.calls.partition_point(|call| call.at < to);
        if start < self.from {
            return under_way::part(&session, limit, self.from, contexts);
        }
        session.calls.truncate(limit);
        for call in &mut session.calls {
            call.at -= self.from;
        }
        Some(Part { session, contexts: Vec::new(), running: 0 })
    }
}
