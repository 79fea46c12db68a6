//! More or less of the same load: sessions cloned under fresh identities, or left out.

use rustc_hash::FxHashSet;

use super::Source;
use super::names::Renamer;
use super::order::Sorter;
use super::survey::Survey;
use crate::diag::{Error, Result};
use crate::rng::{Purpose, Stream};
use crate::trace::canonical::Sink;
use crate::trace::record::{Item, Name, Session, SharedContext};
use crate::units::Span;

/// The largest factor.
pub const FACTOR_MAX: f64 = 1_000.0;

/// How to scale a trace.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scale {
    /// Sessions of the new trace over those of the old one; above 0, up to [`FACTOR_MAX`].
    pub by: f64,
    /// A clone starts up to so much earlier or later than the original.
    pub jitter: Span,
    /// Seed of the choice and of the starts.
    pub seed: u64,
}

/// What was done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scaled {
    /// Sessions of the old trace.
    pub sessions: u64,
    /// Of these, those that are in the new trace as they were.
    pub kept: u64,
    /// Sessions of a new identity.
    pub clones: u64,
    /// Calls of the new trace.
    pub calls: u64,
    /// Shared contexts that clones have in common with the originals: tools and system prompts.
    pub common_contexts: u64,
    /// Shared contexts of a new identity.
    pub cloned_contexts: u64,
}

impl Scale {
    /// By session: in how many passes through the trace it occurs.
    pub(super) fn copies(&self, survey: &Survey) -> Result<Vec<u32>> {
        if !(self.by > 0.0 && self.by <= FACTOR_MAX) {
            return Err(Error::found(self.by, format!("a factor above 0, up to {FACTOR_MAX}")));
        }
        let sessions = survey.sessions.len() as u64;
        let total = ((self.by * sessions as f64).round() as u64).max(1);
        let each = total / sessions.max(1);
        let chosen = survey.choose(total - each * sessions, self.seed);
        Ok(chosen.into_iter().map(|chosen| each as u32 + u32::from(chosen)).collect())
    }

    /// Where a clone of the `session`th session starts in this pass. Beyond the first and the last
    /// start of the trace the way is turned back.
    pub(super) fn start(&self, start: Span, session: u64, pass: u64, last: Span) -> Span {
        let mut stream = Stream::new(self.seed, Purpose::CloneStart, session << 16 | pass);
        let width = 2 * i128::from(self.jitter.0);
        let moved = (stream.uniform_f64() * width as f64) as i128 - width / 2;
        let (last, at) = (i128::from(last.0), i128::from(start.0) + moved);
        let at = at.abs();
        let at = if at > last { 2 * last - at } else { at };
        Span(at.clamp(0, last) as u64)
    }
}

/// Hands on a trace with `scale.by` times as many sessions.
///
/// # Errors
/// The first error of the trace or of the sink, or a factor out of range.
pub fn scale(
    source: &(impl Source + ?Sized),
    scale: &Scale,
    sink: &mut dyn Sink,
) -> Result<Scaled> {
    scale_part(source, scale, &FxHashSet::default(), sink)
}

/// The same for a part of a trace. Contexts that are `common` in the whole stay so, even if too few
/// sessions of the part use them.
///
/// # Errors
/// As for [`scale`].
pub fn scale_part(
    source: &(impl Source + ?Sized),
    scale: &Scale,
    common: &FxHashSet<Name>,
    sink: &mut dyn Sink,
) -> Result<Scaled> {
    let survey = Survey::of(source)?;
    let copies = scale.copies(&survey)?;
    let passes = Passes::new(&survey, common, &copies);
    let mut cloner = Cloner::new(scale, &survey, passes.len());
    let mut scaled = Scaled { sessions: copies.len() as u64, ..Scaled::default() };
    let mut sorter = Sorter::default();
    let (mut context_number, mut session_number) = (0, 0);
    for item in source.items()? {
        match item? {
            Item::Context(context) => {
                passes.context(context_number, &context, &mut cloner, sink, &mut scaled)?;
                context_number += 1;
            }
            Item::Session(session) => {
                let Some(&copies) = copies.get(session_number) else { break };
                let Some(first) = session.calls.first() else { continue };
                sorter.hand_on(first.at.saturating_sub(scale.jitter), sink)?;
                scaled.kept += u64::from(copies.min(1));
                scaled.clones += u64::from(copies.saturating_sub(1));
                scaled.calls += u64::from(copies) * session.calls.len() as u64;
                let clone = |pass| cloner.session(&session, session_number, pass, &passes);
                let clones: Vec<Session> = (1..copies).map(clone).collect();
                if copies > 0 {
                    sorter.take(session);
                }
                clones.into_iter().for_each(|clone| sorter.take(clone));
                session_number += 1;
            }
        }
    }
    sorter.finish(sink)?;
    Ok(scaled)
}

/// Which contexts each pass through the trace uses.
pub(super) struct Passes {
    /// By context.
    common: Vec<bool>,
    /// By pass and context: the sessions that use it.
    used: Vec<Vec<u32>>,
}

impl Passes {
    pub(super) fn new(survey: &Survey, common_in_whole: &FxHashSet<Name>, copies: &[u32]) -> Self {
        let passes = copies.iter().copied().max().unwrap_or(0);
        let common = survey.common();
        let is_common = |name: &Name| common.contains(name) || common_in_whole.contains(name);
        Self {
            common: survey.contexts.iter().map(|context| is_common(&context.name)).collect(),
            used: (0..passes).map(|pass| survey.users(|session| copies[session] > pass)).collect(),
        }
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.used.len()
    }

    /// Whether a context has an identity of its own in each pass.
    pub(super) fn is_fresh(&self, survey: &Survey, context: &Name) -> bool {
        survey.number(context).is_some_and(|number| !self.common[number as usize])
    }

    /// Declares a context in every pass that uses it.
    pub(super) fn context(
        &self,
        number: usize,
        context: &SharedContext,
        cloner: &mut Cloner<'_>,
        sink: &mut dyn Sink,
        scaled: &mut Scaled,
    ) -> Result<()> {
        let uses = |pass: usize| self.used[pass].get(number).is_some_and(|users| *users > 0);
        if self.used.is_empty() || !uses(0) {
            return Ok(());
        }
        sink.context(context)?;
        let survey = cloner.survey;
        if !self.is_fresh(survey, &context.name) {
            scaled.common_contexts += u64::from(self.used.len() > 1 && uses(1));
            return Ok(());
        }
        for pass in (1..self.used.len()).filter(|&pass| uses(pass)) {
            let fresh = |name: &Name| self.is_fresh(survey, name);
            sink.context(&cloner.renamers[pass - 1].context(context, fresh))?;
            scaled.cloned_contexts += 1;
        }
        Ok(())
    }
}

/// Makes clones.
pub(super) struct Cloner<'a> {
    scale: &'a Scale,
    survey: &'a Survey,
    /// By pass, from the second on.
    renamers: Vec<Renamer>,
}

impl<'a> Cloner<'a> {
    pub(super) fn new(scale: &'a Scale, survey: &'a Survey, passes: usize) -> Self {
        let numbers = (survey.next_clone..).take(passes.saturating_sub(1));
        Self { scale, survey, renamers: numbers.map(Renamer::cloned).collect() }
    }

    pub(super) fn into_renamers(self) -> Vec<Renamer> {
        self.renamers
    }

    fn session(&mut self, session: &Session, number: usize, pass: u32, passes: &Passes) -> Session {
        let mut clone = session.clone();
        let survey = self.survey;
        let renamer = &mut self.renamers[pass as usize - 1];
        renamer.session(&mut clone, |name| passes.is_fresh(survey, name));
        let recorded = session.calls[0].at;
        let start = self.scale.start(recorded, number as u64, pass.into(), survey.last_start);
        for call in &mut clone.calls {
            call.at = call.at - recorded + start;
        }
        clone
    }
}
