//! What one replica did inside the measured window.

use super::timeline::UseOverTime;
use crate::stats::TimeWeighted;
use crate::units::{Blocks, Span, Time, Tokens};

/// The part of a run that figures are made of: from `from`, up to but not including `until`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// End of the warm-up.
    pub from: Time,
    /// End of the run.
    pub until: Time,
}

impl Window {
    /// Whether something that completed at `at` counts.
    #[must_use]
    pub fn holds(&self, at: Time) -> bool {
        self.from <= at && at < self.until
    }

    /// The part of the time from `start` to `end` that lies inside.
    #[must_use]
    pub fn overlap(&self, start: Time, end: Time) -> Span {
        end.min(self.until).saturating_since(start.max(self.from))
    }
}

/// One step of an engine, as far as its replica's use is concerned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StepUse {
    /// How long it takes.
    pub span: Span,
    /// The part of it that its decodes alone would take.
    pub decode_span: Span,
    /// Prompt tokens in it.
    pub prefill_tokens: Tokens,
    /// Sequences that decode in it.
    pub decode_seqs: u64,
    /// Blocks that requests hold while it runs.
    pub used_blocks: Blocks,
    /// Requests that run while it does.
    pub running: u64,
    /// Requests that wait while it runs.
    pub waiting: u64,
}

/// Sums over the steps of one replica.
#[derive(Clone, Debug)]
pub struct ReplicaUse {
    window: Window,
    /// Blocks held by requests, over time.
    pub kv_blocks: TimeWeighted,
    /// Time in steps.
    pub busy: Span,
    /// The part of it that decodes alone would have taken; the rest is prefill.
    pub decode: Span,
    /// Steps.
    pub steps: u64,
    /// Sequences that decoded, summed over steps.
    pub decode_tokens: u64,
    /// Tokens prefilled.
    pub prefill_tokens: Tokens,
    /// Longest waiting queue.
    pub waiting_max: u64,
    /// The whole run over time, warm-up included, where somebody wants it.
    pub over_time: Option<Box<UseOverTime>>,
    /// Since when the replica stands still, if it does.
    idle_since: Time,
    /// An autoscaler has not brought it yet, or taken it away: it does not even stand still.
    is_absent: bool,
}

impl ReplicaUse {
    /// A replica that has done nothing, with `usable_blocks` blocks.
    #[must_use]
    pub fn new(window: Window, usable_blocks: Blocks) -> Self {
        Self {
            window,
            kv_blocks: TimeWeighted::new(usable_blocks.0.max(1)),
            busy: Span::ZERO,
            decode: Span::ZERO,
            steps: 0,
            decode_tokens: 0,
            prefill_tokens: Tokens::ZERO,
            waiting_max: 0,
            over_time: None,
            idle_since: Time::ZERO,
            is_absent: false,
        }
    }

    /// The same, keeping what it does over time if that is wanted.
    #[must_use]
    pub fn kept_over_time(mut self, wanted: bool) -> Self {
        self.over_time = wanted.then(Box::default);
        self
    }

    /// It is not there up to now, or from now on.
    pub fn absent(&mut self, at: Time) {
        self.idle_until(at);
        self.is_absent = true;
    }

    /// It is there from now on.
    pub fn comes(&mut self, at: Time) {
        self.idle_until(at);
        self.is_absent = false;
    }

    /// A step began at `at`. Steps are told in order and do not overlap.
    pub fn step(&mut self, at: Time, step: &StepUse) {
        self.idle_until(at);
        if let Some(over_time) = &mut self.over_time {
            over_time.step(at, (at + step.span).min(self.window.until), step);
        }
        let end = at + step.span;
        self.idle_since = end;
        let inside = self.window.overlap(at, end);
        if inside == Span::ZERO {
            return;
        }
        self.kv_blocks.add(step.used_blocks.0, inside);
        self.busy += inside;
        self.decode += if inside == step.span {
            step.decode_span
        } else {
            let share = u128::from(step.decode_span.0) * u128::from(inside.0);
            Span((share / u128::from(step.span.0)) as u64)
        };
        self.steps += 1;
        self.decode_tokens += step.decode_seqs;
        self.prefill_tokens += step.prefill_tokens;
        self.waiting_max = self.waiting_max.max(step.waiting);
    }

    /// Steps that do the same began at `at`, one behind the other; `all` of them together hold
    /// `levels` blocks, one after the other, each for some time. `each` gives them one by one, for
    /// where the window begins or ends among them, and for who wants them over time.
    pub fn steps(
        &mut self,
        at: Time,
        all: &StepUse,
        steps: u64,
        levels: impl Iterator<Item = (Blocks, Span)>,
        each: impl Iterator<Item = (Time, StepUse)>,
    ) {
        let end = at + all.span;
        if self.window.overlap(at, end) != all.span || self.over_time.is_some() {
            each.for_each(|(at, step)| self.step(at, &step));
            return;
        }
        self.idle_until(at);
        self.idle_since = end;
        self.kv_blocks.add_each(levels.map(|(used_blocks, span)| (used_blocks.0, span)));
        self.busy += all.span;
        self.decode += all.decode_span;
        self.steps += steps;
        self.decode_tokens += all.decode_seqs;
        self.prefill_tokens += all.prefill_tokens;
        self.waiting_max = self.waiting_max.max(all.waiting);
    }

    /// When its last step ended.
    #[must_use]
    pub fn last_step_ended(&self) -> Time {
        self.idle_since
    }

    /// The replica did nothing from the end of its last step until `at`.
    pub fn idle_until(&mut self, at: Time) {
        if at > self.idle_since {
            if !self.is_absent {
                self.kv_blocks.add(0, self.window.overlap(self.idle_since, at));
            }
            self.idle_since = at;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_lies_in_the_window_counts() {
        let window = Window { from: Time(100), until: Time(200) };
        let mut replica = ReplicaUse::new(window, Blocks(10));
        let step = |span, decode, used| StepUse {
            span: Span(span),
            decode_span: Span(decode),
            used_blocks: Blocks(used),
            ..StepUse::default()
        };
        replica.step(Time(90), &step(20, 10, 5));
        replica.step(Time(150), &step(100, 100, 10));
        replica.idle_until(Time(400));
        assert_eq!((replica.busy, replica.decode), (Span(60), Span(55)));
        // 10 ns at 5 blocks, 40 ns idle, 50 ns at 10 blocks.
        assert_eq!(replica.kv_blocks.mean(), Some(5.5));
    }

    #[test]
    fn a_replica_that_is_not_there_is_not_idle() {
        let window = Window { from: Time(100), until: Time(200) };
        let mut replica = ReplicaUse::new(window, Blocks(10));
        replica.absent(Time::ZERO);
        replica.comes(Time(140));
        let used_blocks = Blocks(4);
        replica.step(Time(150), &StepUse { span: Span(30), used_blocks, ..StepUse::default() });
        replica.absent(Time(180));
        replica.idle_until(Time(200));
        assert_eq!(replica.kv_blocks.mean(), Some(3.0), "30 of 40 ns at 4 blocks");
    }
}
