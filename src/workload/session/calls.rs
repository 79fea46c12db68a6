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
}

struct Made {
    call: Call,
    end: Span,
}

impl<'a> Calls<'a> {
    pub(super) fn new(who: &'a Who<'a>, tokens_per_s: f64) -> Self {
        let tools = who.profile.get(Key::Catalogue);
        let tools = tools.map(|_| who.profile.number(Key::Catalogue) as u32);
        Self { who, tokens_per_s, tools, made: Vec::new() }
    }

    /// Calls made so far.
    pub(super) fn len(&self) -> usize {
        self.made.len()
    }

    /// Time from the session's start to the last call made.
    pub(super) fn elapsed(&self) -> Span {
        self.made.last().map_or(Span::ZERO, |made| made.call.at - self.who.start)
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
        let (mut wanted, mut waits) = (*wanted, waits.to_vec());
        for _ in 0..RETRIES_MAX {
            if !happens(failures, failing) {
                break;
            }
            let mut draw = |key| profile.dist(key).map_or(0.0, |dist| dist.draw(failures));
            let (lasts, gap) = (seconds(draw(Key::FailedDuration)), seconds(draw(Key::RetryGap)));
            let failed = self.push(&wanted, &waits, prompt, Attempt::Failed(lasts));
            waits = vec![failed];
            wanted = Wanted { cause: Cause::Retry, gap, ..wanted };
        }
        self.push(&wanted, &waits, prompt, Attempt::Answered(output))
    }

    fn push(&mut self, wanted: &Wanted, waits: &[usize], prompt: &Prompt, how: Attempt) -> usize {
        let ready = waits.iter().map(|call| self.made[*call].end).max();
        let at = ready.unwrap_or(self.who.start) + wanted.gap;
        let (output, lasts, status) = match how {
            Attempt::Failed(lasts) => (0, lasts, Status::Failed),
            Attempt::Answered(output) => {
                let secs = BEFORE_FIRST_TOKEN_S + output as f64 / self.tokens_per_s;
                (output, Span::from_secs_f64(secs), Status::Ok)
            }
        };
        let waited = |call: &usize| After { call: *call as u32, event: AfterEvent::Finished };
        let call = Call {
            at,
            after: waits.iter().map(waited).collect(),
            gap: wanted.gap,
            cause: wanted.cause,
            turn: wanted.turn,
            lane: wanted.lane,
            model: Name::clone(&self.who.models[wanted.model]),
            tenant: Name::clone(&self.who.tenant),
            user: Name::clone(&self.who.user),
            profile: Name::clone(&self.who.label),
            base: prompt.base.clone(),
            kept_tokens: Tokens(prompt.kept),
            prompt_tokens: Tokens(prompt.tokens),
            output_tokens: Tokens(output),
            tools: self.tools,
            status,
            finish: Finish::Stop,
            priority: 0,
            key: Some(Name::clone(&self.who.key)),
            stream: None,
            max_tokens: None,
            retries: 0,
            seen_cached: None,
            seen_ttft: None,
            seen_duration: (status == Status::Failed).then_some(lasts),
        };
        self.made.push(Made { call, end: at + lasts });
        self.made.len() - 1
    }

    /// The calls in the order of their dispatch; among equal times the one made first.
    pub(super) fn in_order(self) -> Vec<Call> {
        let mut order: Vec<usize> = (0..self.made.len()).collect();
        order.sort_by_key(|made| self.made[*made].call.at);
        let mut numbers = vec![0u32; order.len()];
        for (number, made) in order.iter().enumerate() {
            numbers[*made] = number as u32;
        }
        let mut calls: Vec<(u32, Call)> =
            numbers.iter().copied().zip(self.made.into_iter().map(|made| made.call)).collect();
        calls.sort_by_key(|(number, _)| *number);
        let renamed = calls.into_iter().map(|(_, mut call)| {
            call.after.iter_mut().for_each(|after| after.call = numbers[after.call as usize]);
            call.after.sort_unstable();
            if let Base::Call(base) = &mut call.base {
                *base = numbers[*base as usize];
            }
            call
        });
        renamed.collect()
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
