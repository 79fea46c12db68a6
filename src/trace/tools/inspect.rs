//! What a trace holds, and what in it is legal and yet doubtful.

use std::collections::{BTreeMap, BTreeSet};

use rustc_hash::FxHashSet;

use crate::trace::record::{AfterEvent, Base, Call, Name, Session, SharedContext, Status};
use crate::units::{Span, Tokens};

/// Doubtful things, in the order in which they are told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doubt {
    /// An answer of no tokens.
    NoOutput,
    /// A prompt of no tokens.
    NoPrompt,
    /// A failed call whose duration is unknown.
    FailureWithoutDuration,
    /// A prompt that shrinks and repeats nothing.
    ShrunkWithoutBase,
    /// A call that was dispatched while one that it waits for was still running, as recorded.
    OverlapsAwaited,
    /// A call that was dispatched earlier than the gap after what it waits for allows.
    EarlierThanGap,
    /// A gap of a day or more.
    LongGap,
    /// A session of a week or more.
    LongSession,
    /// More tokens seen in a cache than the prompt has.
    CachedBeyondPrompt,
    /// A first token seen after the end.
    FirstTokenAfterEnd,
    /// More output than the client allowed.
    OutputBeyondLimit,
    /// A session of several tenants or profiles.
    SeveralTenants,
    /// Nothing for an hour or more from the start of the trace.
    LateStart,
    /// A shared context that nothing uses.
    UnusedContext,
}

impl Doubt {
    /// Every one with what it says.
    pub const ALL: [(Self, &'static str); 14] = [
        (Self::NoOutput, "calls without output: sent for one token"),
        (Self::NoPrompt, "calls without a prompt: sent with one token"),
        (Self::FailureWithoutDuration, "failed calls of unknown duration: they take no time"),
        (
            Self::ShrunkWithoutBase,
            "prompts that are shorter than the one before and repeat nothing: is a base lost?",
        ),
        (
            Self::OverlapsAwaited,
            "calls dispatched, as recorded, before one that they wait for had ended",
        ),
        (Self::EarlierThanGap, "calls dispatched, as recorded, before their gap was over"),
        (Self::LongGap, "gaps of a day or more"),
        (Self::LongSession, "sessions of a week or more"),
        (Self::CachedBeyondPrompt, "calls with more tokens seen in the cache than in the prompt"),
        (Self::FirstTokenAfterEnd, "calls whose first token was seen after their end"),
        (Self::OutputBeyondLimit, "calls with more output than max_tokens"),
        (
            Self::SeveralTenants,
            "sessions of several tenants or profiles: targets go by the first call's",
        ),
        (Self::LateStart, "an hour or more from the start of the trace to its first session"),
        (Self::UnusedContext, "shared contexts that nothing uses"),
    ];

    /// What it says.
    #[must_use]
    pub fn says(self) -> &'static str {
        Self::ALL[self as usize].1
    }
}

/// Recorded times may be this inexact before they are doubted: many clocks tell seconds only.
const CLOCK: Span = Span::from_secs(1);
const HOUR: Span = Span::from_secs(3_600);
const DAY: Span = Span::from_secs(86_400);
const WEEK: Span = Span::from_secs(7 * 86_400);

/// How often a doubtful thing occurs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Occurrences {
    /// How often.
    pub count: u64,
    /// The first place.
    pub first: String,
}

/// What a trace holds.
#[derive(Clone, Debug, Default)]
pub struct Inspection {
    /// Sessions.
    pub sessions: u64,
    /// Calls.
    pub calls: u64,
    /// Calls of subagents.
    pub subagent_calls: u64,
    /// Prompt tokens of all calls.
    pub prompt_tokens: Tokens,
    /// Output tokens of all calls.
    pub output_tokens: Tokens,
    /// From the first dispatch to the last.
    pub span: Span,
    /// Tenants.
    pub tenants: BTreeSet<Name>,
    /// Users.
    pub users: BTreeSet<Name>,
    /// Model groups.
    pub models: BTreeSet<Name>,
    /// Profiles.
    pub profiles: BTreeSet<Name>,
    /// Shared contexts in order of declaration.
    contexts: Vec<Name>,
    used: FxHashSet<Name>,
    first_at: Option<Span>,
    /// In the order of [`Doubt::ALL`].
    doubts: [Occurrences; Doubt::ALL.len()],
}

impl Inspection {
    /// Takes a shared context in.
    pub fn context(&mut self, context: &SharedContext) {
        self.used.extend(context.base.clone());
        self.contexts.push(Name::clone(&context.name));
    }

    /// Takes a session in.
    pub fn session(&mut self, session: &Session) {
        let (Some(first), Some(last)) = (session.calls.first(), session.calls.last()) else {
            return;
        };
        self.sessions += 1;
        let start = *self.first_at.get_or_insert(first.at);
        self.span = self.span.max(last.at.saturating_sub(start));
        if start >= HOUR && self.sessions == 1 {
            self.doubt(Doubt::LateStart, session, 0);
        }
        if last.at.saturating_sub(first.at) >= WEEK {
            self.doubt(Doubt::LongSession, session, 0);
        }
        let other = |call: &Call| call.tenant != first.tenant || call.profile != first.profile;
        if let Some(number) = session.calls.iter().position(other) {
            self.doubt(Doubt::SeveralTenants, session, number);
        }
        let mut last_prompts = BTreeMap::new();
        for (number, call) in session.calls.iter().enumerate() {
            let before = last_prompts.insert(call.lane, call.prompt_tokens);
            self.call(session, number, before);
        }
    }

    /// `before` is the prompt of the same agent's last call.
    fn call(&mut self, session: &Session, number: usize, before: Option<Tokens>) {
        let call = &session.calls[number];
        if let Base::Shared(name) = &call.base
            && !self.used.contains(name)
        {
            self.used.insert(Name::clone(name));
        }
        self.calls += 1;
        self.subagent_calls += u64::from(call.lane > 0);
        self.prompt_tokens += call.prompt_tokens;
        self.output_tokens += call.output_tokens;
        for (names, name) in [
            (&mut self.tenants, &call.tenant),
            (&mut self.users, &call.user),
            (&mut self.models, &call.model),
            (&mut self.profiles, &call.profile),
        ] {
            if !name.is_empty() && !names.contains(name) {
                names.insert(Name::clone(name));
            }
        }
        let failed = call.status == Status::Failed;
        let shorter = before.is_some_and(|before| before > call.prompt_tokens);
        let duration = call.seen_duration;
        for (doubt, holds) in [
            (Doubt::NoOutput, !failed && call.output_tokens == Tokens::ZERO),
            (Doubt::NoPrompt, !failed && call.prompt_tokens == Tokens::ZERO),
            (Doubt::FailureWithoutDuration, failed && duration.is_none()),
            (Doubt::ShrunkWithoutBase, shorter && call.kept_tokens == Tokens::ZERO),
            (Doubt::OverlapsAwaited, overlaps_awaited(&session.calls, number)),
            (Doubt::EarlierThanGap, is_earlier_than_gap(&session.calls, number)),
            (Doubt::LongGap, call.gap >= DAY),
            (
                Doubt::CachedBeyondPrompt,
                call.seen_cached.is_some_and(|cached| cached > call.prompt_tokens),
            ),
            (
                Doubt::FirstTokenAfterEnd,
                call.seen_ttft.zip(duration).is_some_and(|(first, end)| first > end),
            ),
            (
                Doubt::OutputBeyondLimit,
                call.max_tokens.is_some_and(|limit| call.output_tokens > limit),
            ),
        ] {
            if holds {
                self.doubt(doubt, session, number);
            }
        }
    }

    fn doubt(&mut self, doubt: Doubt, session: &Session, call: usize) {
        let occurrences = &mut self.doubts[doubt as usize];
        occurrences.count += 1;
        if occurrences.count == 1 {
            occurrences.first = format!("session `{}`, call {call}", session.id);
        }
    }

    /// Shared contexts.
    #[must_use]
    pub fn contexts(&self) -> u64 {
        self.contexts.len() as u64
    }

    /// What is doubtful, each with how often it occurs.
    #[must_use]
    pub fn doubts(&self) -> Vec<(Doubt, Occurrences)> {
        let mut doubts = self.doubts.clone();
        let mut unused = self.contexts.iter().filter(|name| !self.used.contains(*name));
        if let Some(first) = unused.next() {
            let (count, first) = (1 + unused.count() as u64, format!("`@{first}`"));
            doubts[Doubt::UnusedContext as usize] = Occurrences { count, first };
        }
        let all = Doubt::ALL.into_iter().map(|(doubt, _)| doubt).zip(doubts);
        all.filter(|(_, occurrences)| occurrences.count > 0).collect()
    }
}

/// The end of a call as recorded, if it is known.
fn end(call: &Call) -> Option<Span> {
    call.seen_duration.map(|duration| Span(call.at.0.saturating_add(duration.0)))
}

/// What a call waits for, if it has an end, with its recorded end.
fn awaited_ends(calls: &[Call], number: usize) -> impl Iterator<Item = Option<Span>> {
    calls[number].after.iter().map(|after| match after.event {
        AfterEvent::Finished => end(&calls[after.call as usize]),
        AfterEvent::Dispatched => Some(calls[after.call as usize].at),
    })
}

fn overlaps_awaited(calls: &[Call], number: usize) -> bool {
    let at = calls[number].at;
    awaited_ends(calls, number).flatten().any(|end| end > Span(at.0.saturating_add(CLOCK.0)))
}

fn is_earlier_than_gap(calls: &[Call], number: usize) -> bool {
    if overlaps_awaited(calls, number) {
        return false;
    }
    let ends: Option<Vec<Span>> = awaited_ends(calls, number).collect();
    let last = ends.and_then(|ends| ends.into_iter().max());
    let Call { at, gap, .. } = calls[number];
    last.is_some_and(|last| last.0.saturating_add(gap.0) > at.0.saturating_add(CLOCK.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_doubt_is_at_its_place() {
        for (place, (doubt, _)) in Doubt::ALL.iter().enumerate() {
            assert_eq!(*doubt as usize, place);
        }
    }
}
