//! The calls of a session as they are made, and put in the order of their dispatch.

use super::{Prompt, Who, seconds};
use crate::rng::Stream;
use crate::trace::record::{After, AfterEvent, Base, Call, Cause, Finish, Name, Status};
use crate::units::{Span, Tokens};
use crate::workload::dist::happens;
use crate::workload::profile::Key;

/// What the model's server takes of a call's time apart from generating.
const BEFORE_FIRST_TOKEN_S: f64 = 1.0;
/// Attempts that fail before one succeeds, at most.
const RETRIES_MAX: u32 = 10;

/// A call to be made, its prompt apart.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted {
    pub(super) cause: Cause,
    pub(super) turn: u32,
    pub(super) lane: u32,
    /// Which of the two models.
    pub(super) model: usize,
    pub(super) gap: Span,
}

/// Calls in the order in which they were made: whatever one names was made before it.
pub(super) struct Calls<'a> {
    who: &'a Who<'a>,
    tokens_per_s: f64,
    tools: Option<u32>,
    made: Vec<Made>,
    /// What calls wait for, call by call.
    waits: Vec<u32>,
}

/// What tells a call from others of its session.
struct Made {
    at: Span,
    end: Span,
    wanted: Wanted,
    prompt: Prompt,
    how: Attempt,
    /// The end of what it waits for among all that is waited for.
    waits_until: usize,
}

impl<'a> Calls<'a> {
    pub(super) fn new(who: &'a Who<'a>, tokens_per_s: f64) -> Self {
        let tools = who.profile.get(Key::Catalogue);
        let tools = tools.map(|_| who.profile.number(Key::Catalogue) as u32);
        Self { who, tokens_per_s, tools, made: Vec::new(), waits: Vec::new() }
    }

    /// Calls made so far.
    pub(super) fn len(&self) -> usize {
        self.made.len()
    }

    /// Time from the session's start to the last call made.
    pub(super) fn elapsed(&self) -> Span {
        self.made.last().map_or(Span::ZERO, |made| made.at - self.who.start)
    }

    /// Adds a call, and before it the attempts that failed; its number is given back.
    pub(super) fn add(
        &mut self,
        wanted: &Wanted,
        waits: &[usize],
        prompt: &Prompt,
        output: u64,
        failures: &mut Stream,
    ) -> usize {
        let profile = self.who.profile;
        let failing = profile.number(Key::FailedCalls);
        let (mut wanted, mut failed) = (*wanted, None);
        for _ in 0..RETRIES_MAX {
            if !happens(failures, failing) {
                break;
            }
            let mut draw = |key| profile.dist(key).map_or(0.0, |dist| dist.draw(failures));
            let (lasts, gap) = (seconds(draw(Key::FailedDuration)), seconds(draw(Key::RetryGap)));
            let before = failed.as_ref().map_or(waits, std::slice::from_ref);
            failed = Some(self.push(&wanted, before, prompt, Attempt::Failed(lasts)));
            wanted = Wanted { cause: Cause::Retry, gap, ..wanted };
        }
        let before = failed.as_ref().map_or(waits, std::slice::from_ref);
        self.push(&wanted, before, prompt, Attempt::Answered(output))
    }

    fn push(&mut self, wanted: &Wanted, waits: &[usize], prompt: &Prompt, how: Attempt) -> usize {
        let ready = waits.iter().map(|call| self.made[*call].end).max();
        let at = ready.unwrap_or(self.who.start) + wanted.gap;
        let lasts = match how {
            Attempt::Failed(lasts) => lasts,
            Attempt::Answered(output) => {
                Span::from_secs_f64(BEFORE_FIRST_TOKEN_S + output as f64 / self.tokens_per_s)
            }
        };
        self.waits.extend(waits.iter().map(|call| *call as u32));
        let (wanted, prompt) = (*wanted, prompt.clone());
        let waits_until = self.waits.len();
        self.made.push(Made { at, end: at + lasts, wanted, prompt, how, waits_until });
        self.made.len() - 1
    }

    /// The calls in the order of their dispatch; among equal times the one made first.
    pub(super) fn in_order(self) -> Vec<Call> {
        let mut order: Vec<u32> = (0..self.made.len() as u32).collect();
        order.sort_by_key(|made| self.made[*made as usize].at);
        let mut numbers = vec![0u32; order.len()];
        for (number, made) in (0..).zip(&order) {
            numbers[*made as usize] = number;
        }
        order.iter().map(|made| self.named(*made as usize, &numbers)).collect()
    }

    /// A call as it stands in the trace, those that it names by these numbers.
    fn named(&self, made: usize, numbers: &[u32]) -> Call {
        let from = made.checked_sub(1).map_or(0, |before| self.made[before].waits_until);
        let Made { at, wanted, prompt, how, waits_until, .. } = &self.made[made];
        let waited =
            |call: &u32| After { call: numbers[*call as usize], event: AfterEvent::Finished };
        let mut after: Vec<After> = self.waits[from..*waits_until].iter().map(waited).collect();
        after.sort_unstable();
        let (output, failed_after) = match how {
            Attempt::Failed(lasts) => (0, Some(*lasts)),
            Attempt::Answered(output) => (*output, None),
        };
        Call {
            at: *at,
            after,
            gap: wanted.gap,
            cause: wanted.cause,
            turn: wanted.turn,
            lane: wanted.lane,
            model: Name::clone(&self.who.models[wanted.model]),
            tenant: Name::clone(&self.who.tenant),
            user: Name::clone(&self.who.user),
            profile: Name::clone(&self.who.label),
            base: match &prompt.base {
                Base::Call(base) => Base::Call(numbers[*base as usize]),
                other => other.clone(),
            },
            kept_tokens: Tokens(prompt.kept),
            prompt_tokens: Tokens(prompt.tokens),
            output_tokens: Tokens(output),
            tools: self.tools,
            status: if failed_after.is_some() { Status::Failed } else { Status::Ok },
            finish: Finish::Stop,
            priority: 0,
            key: Some(Name::clone(&self.who.key)),
            stream: None,
            max_tokens: None,
            retries: 0,
            seen_cached: None,
            seen_ttft: None,
            seen_duration: failed_after,
        }
    }
}

/// How an attempt ends.
#[derive(Clone, Copy, Debug)]
enum Attempt {
    /// It lasts so long and gives nothing.
    Failed(Span),
    /// It gives so many tokens.
    Answered(u64),
}
