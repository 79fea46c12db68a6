//! A trace whose names say nothing: numbered in the order in which they appear.

use rustc_hash::FxHashMap;

use super::Source;
use crate::diag::{Error, Result};
use crate::trace::canonical::Sink;
use crate::trace::record::{Base, Item, Name, Session, SharedContext};
use crate::units::Span;

/// Kinds of names in a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Ids of sessions.
    Sessions,
    /// Shared contexts.
    Contexts,
    /// Tenants.
    Tenants,
    /// Users.
    Users,
    /// API keys.
    Keys,
    /// Model groups.
    Models,
    /// Profiles.
    Profiles,
}

impl Kind {
    /// All of them with their names.
    pub const ALL: [(&'static str, Self); 7] = [
        ("sessions", Self::Sessions),
        ("contexts", Self::Contexts),
        ("tenants", Self::Tenants),
        ("users", Self::Users),
        ("keys", Self::Keys),
        ("models", Self::Models),
        ("profiles", Self::Profiles),
    ];

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        Self::ALL[self as usize].0
    }

    /// The name number `number` of this kind, from 1.
    fn made(self, number: u64) -> String {
        match self {
            Self::Sessions => format!("s{number:06}"),
            Self::Contexts => format!("c{number:04}"),
            Self::Tenants => format!("t{number:02}"),
            Self::Users => format!("u{number:04}"),
            Self::Keys => format!("k{number:04}"),
            Self::Models => format!("m{number}"),
            Self::Profiles => format!("p{number}"),
        }
    }
}

/// What is left as it is, and how exact times are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Kinds of names that are kept.
    pub keep: Vec<Kind>,
    /// Sessions start at multiples of this; times inside a session are kept.
    pub round_start: Option<Span>,
}

/// A name and what it became, in the order of appearance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Renamed {
    /// What it is the name of.
    pub kind: Kind,
    /// As it was.
    pub old: Name,
    /// As it is.
    pub new: Name,
}

/// Hands on a trace under new names, and tells what became of each.
///
/// # Errors
/// The first error of the trace or of the sink, or rounding to no time.
pub fn anonymise(
    source: &(impl Source + ?Sized),
    options: &Options,
    sink: &mut dyn Sink,
) -> Result<Vec<Renamed>> {
    if options.round_start == Some(Span::ZERO) {
        return Err(Error::found("0", "more than 0 seconds"));
    }
    let mut names = Names { options, known: Default::default(), told: Vec::new() };
    for item in source.items()? {
        match item? {
            Item::Context(context) => sink.context(&names.context(&context))?,
            Item::Session(mut session) => {
                names.session(&mut session);
                if let Some(unit) = options.round_start {
                    round_start(&mut session, unit);
                }
                sink.session(&session)?;
            }
        }
    }
    Ok(names.told)
}

/// Moves a session back to the last multiple of `unit`, all of its calls alike. Sessions in order
/// stay in order.
fn round_start(session: &mut Session, unit: Span) {
    let back = session.calls.first().map_or(0, |call| call.at.0 % unit.0);
    session.calls.iter_mut().for_each(|call| call.at -= Span(back));
}

struct Names<'a> {
    options: &'a Options,
    /// By kind, in the order of [`Kind::ALL`].
    known: [FxHashMap<Name, Name>; Kind::ALL.len()],
    told: Vec<Renamed>,
}

impl Names<'_> {
    fn name(&mut self, kind: Kind, old: &Name) -> Name {
        if old.is_empty() || self.options.keep.contains(&kind) {
            return Name::clone(old);
        }
        let known = &mut self.known[kind as usize];
        if let Some(new) = known.get(old) {
            return Name::clone(new);
        }
        let new = Name::from(kind.made(known.len() as u64 + 1));
        known.insert(Name::clone(old), Name::clone(&new));
        self.told.push(Renamed { kind, old: Name::clone(old), new: Name::clone(&new) });
        new
    }

    fn context(&mut self, context: &SharedContext) -> SharedContext {
        let base = context.base.as_ref().map(|base| self.name(Kind::Contexts, base));
        let name = self.name(Kind::Contexts, &context.name);
        SharedContext { name, base, ..context.clone() }
    }

    fn session(&mut self, session: &mut Session) {
        session.id = self.name(Kind::Sessions, &session.id);
        for call in &mut session.calls {
            call.tenant = self.name(Kind::Tenants, &call.tenant);
            call.user = self.name(Kind::Users, &call.user);
            call.key = call.key.as_ref().map(|key| self.name(Kind::Keys, key));
            call.model = self.name(Kind::Models, &call.model);
            call.profile = self.name(Kind::Profiles, &call.profile);
            if let Base::Shared(name) = &call.base {
                call.base = Base::Shared(self.name(Kind::Contexts, name));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_is_at_its_place() {
        for (place, (_, kind)) in Kind::ALL.iter().enumerate() {
            assert_eq!(*kind as usize, place);
        }
    }
}
