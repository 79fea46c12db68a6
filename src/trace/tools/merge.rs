//! Several traces as several tenants of one.

use super::names::Renamer;
use super::{Items, Source};
use crate::diag::{Error, Result};
use crate::trace::canonical::Sink;
use crate::trace::record::{Item, Name, Session};
use crate::units::Span;

/// One of the traces.
#[derive(Clone)]
pub struct Part<'a> {
    /// The trace.
    pub source: &'a dyn Source,
    /// Its tenant: stands before the names of sessions, contexts, users and keys, so that none is
    /// the same as one of another trace.
    pub tenant: Name,
    /// How long after the start of the new trace it begins.
    pub offset: Span,
}

/// What came of one of the traces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Merged {
    /// Its sessions.
    pub sessions: u64,
    /// Its calls.
    pub calls: u64,
    /// Its shared contexts.
    pub contexts: u64,
}

/// Hands on all of several traces, each session at its time, in the order of `parts` where several
/// start at once.
///
/// # Errors
/// The first error of a trace or of the sink, or tenants whose names cannot be told apart.
pub fn merge(parts: &[Part<'_>], sink: &mut dyn Sink) -> Result<Vec<Merged>> {
    check_tenants(parts)?;
    let mut merged = vec![Merged::default(); parts.len()];
    let mut open = Vec::with_capacity(parts.len());
    for part in parts {
        let names = Renamer::prefixed(&part.tenant);
        open.push(Open { part, items: part.source.items()?, names });
    }
    let mut next: Vec<Option<Session>> = Vec::with_capacity(open.len());
    for (part, merged) in open.iter_mut().zip(&mut merged) {
        next.push(part.session(sink, merged)?);
    }
    loop {
        let start = |session: &Session| session.calls.first().map(|call| call.at);
        let starts = next.iter().enumerate();
        let waiting = starts.filter_map(|(part, session)| Some((start(session.as_ref()?), part)));
        let Some((_, first)) = waiting.min() else { break };
        let following = open[first].session(sink, &mut merged[first])?;
        if let Some(session) = std::mem::replace(&mut next[first], following) {
            sink.session(&session)?;
        }
    }
    Ok(merged)
}

fn check_tenants(parts: &[Part<'_>]) -> Result<()> {
    for (number, part) in parts.iter().enumerate() {
        let tenant = &part.tenant;
        if tenant.is_empty() || tenant.contains('/') || tenant.starts_with('@') {
            let allowed = "a name without `/` and without a leading `@`";
            return Err(Error::found(tenant, allowed).in_field("tenant"));
        }
        if parts[..number].iter().any(|other| other.tenant == *tenant) {
            let error = Error::new(format!("two traces are called `{tenant}`")).in_field("tenant");
            return Err(error.help("give each trace a name of its own"));
        }
    }
    Ok(())
}

/// A trace that is being read.
struct Open<'a> {
    part: &'a Part<'a>,
    items: Items<'a>,
    names: Renamer,
}

impl Open<'_> {
    /// The next session under its new name; contexts that stand before it go to the sink.
    fn session(&mut self, sink: &mut dyn Sink, merged: &mut Merged) -> Result<Option<Session>> {
        let all = |_: &Name| true;
        for item in self.items.by_ref() {
            match item? {
                Item::Context(context) => {
                    merged.contexts += 1;
                    sink.context(&self.names.context(&context, all))?;
                }
                Item::Session(mut session) => {
                    merged.sessions += 1;
                    merged.calls += session.calls.len() as u64;
                    self.names.session(&mut session, all);
                    for call in &mut session.calls {
                        call.at = Span(call.at.0.saturating_add(self.part.offset.0));
                        call.tenant = match call.tenant.is_empty() {
                            true => Name::clone(&self.part.tenant),
                            false => self.names.name(&call.tenant),
                        };
                    }
                    return Ok(Some(session));
                }
            }
        }
        Ok(None)
    }
}
