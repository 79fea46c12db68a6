//! A trace played several times over, of which only the sessions as recorded are in memory: what
//! [`scale`](super::scale::scale) writes, made session by session for a run.
//!
//! Users and keys of clones keep their names here, as no run asks for them.

use std::vec::IntoIter;

use rustc_hash::FxHashSet;

use super::names::Renamer;
use super::scale::{Cloner, Passes, Scale, Scaled};
use super::survey::Survey;
use crate::diag::Result;
use crate::trace::record::{Base, Call, Lend, Lent, Name, Session, SharedContext, Trace};
use crate::units::Span;

/// The contexts and then the sessions, in the order of their starts.
#[derive(Debug)]
pub struct Clones {
    contexts: IntoIter<SharedContext>,
    /// As they were told last.
    sessions: Vec<Session>,
    /// Their ids as recorded.
    ids: Vec<Name>,
    /// By session: the calls that continue a context of which every clone has its own. Empty if
    /// there is no such context.
    fresh: Vec<Vec<(usize, Name)>>,
    /// By pass, from the second on.
    renamers: Vec<Renamer>,
    starts: IntoIter<Start>,
}

/// A session of one pass through the trace.
#[derive(Clone, Copy, Debug)]
struct Start {
    /// Its first call.
    at: Span,
    session: u32,
    pass: u32,
}

/// When a session's first call comes if starts are `factor` times closer together.
#[must_use]
pub fn closer(first: &Call, at: Span, factor: f64) -> Span {
    let start = at.saturating_sub(first.gap);
    let moved = Span::from_secs_f64(start.secs() / factor);
    Span((at - start).0.saturating_add(moved.0))
}

impl Clones {
    /// So many times as many sessions, by a factor of 1 or more; then starts `factor` times closer
    /// together.
    ///
    /// # Errors
    /// A factor out of range.
    pub fn new(
        mut trace: Trace,
        scale: Option<&Scale>,
        factor: Option<f64>,
    ) -> Result<(Self, Scaled)> {
        trace.sessions.retain(|session| !session.calls.is_empty());
        let ids = trace.sessions.iter().map(|session| Name::clone(&session.id)).collect();
        let starts = (0..).zip(&trace.sessions);
        let starts = starts.map(|(session, of)| Start { at: of.calls[0].at, session, pass: 0 });
        let mut clones = Self {
            contexts: IntoIter::default(),
            ids,
            fresh: Vec::new(),
            renamers: Vec::new(),
            starts: starts.collect::<Vec<_>>().into_iter(),
            sessions: Vec::new(),
        };
        let mut scaled = Scaled::default();
        match scale {
            Some(scale) => clones.scale(&mut trace, scale, &mut scaled)?,
            None => clones.contexts = std::mem::take(&mut trace.contexts).into_iter(),
        }
        clones.sessions = trace.sessions;
        if let Some(factor) = factor {
            let mut starts: Vec<Start> = clones.starts.collect();
            for start in &mut starts {
                let first = &clones.sessions[start.session as usize].calls[0];
                start.at = closer(first, start.at, factor);
            }
            // First calls of different gaps may have changed places.
            starts.sort_by_key(|start| start.at);
            clones.starts = starts.into_iter();
        }
        Ok((clones, scaled))
    }

    /// By session that is still to come: its number in the trace, those without calls left out.
    pub fn numbers(&self) -> impl Iterator<Item = u32> {
        self.starts.as_slice().iter().map(|start| start.session)
    }

    fn scale(&mut self, trace: &mut Trace, scale: &Scale, scaled: &mut Scaled) -> Result<()> {
        let survey = Survey::of(trace)?;
        let copies = scale.copies(&survey)?;
        let passes = Passes::new(&survey, &FxHashSet::default(), &copies);
        let mut cloner = Cloner::new(scale, &survey, passes.len());
        let mut contexts = Trace::default();
        for (number, context) in trace.contexts.iter().enumerate() {
            passes.context(number, context, &mut cloner, &mut contexts, scaled)?;
        }
        let mut starts = Vec::with_capacity(copies.iter().map(|copies| *copies as usize).sum());
        for ((number, session), &copies) in trace.sessions.iter().enumerate().zip(&copies) {
            scaled.sessions += 1;
            scaled.kept += u64::from(copies.min(1));
            scaled.clones += u64::from(copies.saturating_sub(1));
            scaled.calls += u64::from(copies) * session.calls.len() as u64;
            let recorded = session.calls[0].at;
            for pass in 0..copies {
                let at = match pass {
                    0 => recorded,
                    _ => scale.start(recorded, number as u64, pass.into(), survey.last_start),
                };
                starts.push(Start { at, session: number as u32, pass });
            }
        }
        starts.sort_by_key(|start| start.at);
        let is_fresh = |name: &Name| passes.is_fresh(&survey, name);
        if trace.contexts.iter().any(|context| is_fresh(&context.name)) {
            let shared = |(number, call): (usize, &Call)| match &call.base {
                Base::Shared(name) if is_fresh(name) => Some((number, Name::clone(name))),
                _ => None,
            };
            let calls = trace.sessions.iter().map(|session| session.calls.iter().enumerate());
            self.fresh = calls.map(|calls| calls.filter_map(shared).collect()).collect();
        }
        self.contexts = contexts.contexts.into_iter();
        self.renamers = cloner.into_renamers();
        self.starts = starts.into_iter();
        Ok(())
    }

    fn session(&mut self, start: Start) -> &Session {
        let Start { at, session: number, pass } = start;
        let session = &mut self.sessions[number as usize];
        let told = session.calls[0].at;
        for call in &mut session.calls {
            call.at = Span((call.at - told).0.saturating_add(at.0));
        }
        let renamer = (pass as usize).checked_sub(1).map(|clone| &mut self.renamers[clone]);
        let id = &self.ids[number as usize];
        match renamer {
            None => {
                session.id = Name::clone(id);
                for (call, name) in self.fresh.get(number as usize).into_iter().flatten() {
                    session.calls[*call].base = Base::Shared(Name::clone(name));
                }
            }
            Some(renamer) => {
                session.id = renamer.form(id);
                for (call, name) in self.fresh.get(number as usize).into_iter().flatten() {
                    session.calls[*call].base = Base::Shared(renamer.name(name));
                }
            }
        }
        session
    }
}

impl Lend for Clones {
    fn lend(&mut self) -> Option<Result<Lent<'_>>> {
        if let Some(context) = self.contexts.next() {
            return Some(Ok(Lent::Context(context)));
        }
        let start = self.starts.next()?;
        Some(Ok(Lent::Session(self.session(start))))
    }
}
