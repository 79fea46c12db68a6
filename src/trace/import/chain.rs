//! Agents that send one call after the other: what waits for what, and what a prompt repeats of
//! the one before, where no block ids tell.

use std::collections::BTreeSet;

use super::Outputs;
use crate::trace::record::{After, AfterEvent, Base, Call};
use crate::units::{Span, Tokens};

/// An overlap shorter than this is noise of the recorded clock.
const NOISE: Span = Span::from_secs(2);

/// One call of a session. A session's calls stand in the order of their dispatch.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step {
    pub(super) at: Span,
    /// When it ended, as recorded or estimated.
    pub(super) end: Span,
    pub(super) prompt: Tokens,
    pub(super) output: Tokens,
    /// Leading part of the output that is known not to come back: reasoning that is dropped.
    pub(super) not_repeated: Tokens,
    /// Cached prompt tokens that the provider reported.
    pub(super) cached: Option<Tokens>,
    /// Whether it did no work.
    pub(super) failed: bool,
}

/// What a prompt that does not grow by the whole answer before it is taken to repeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Growth {
    /// The prompt before it: the format is known to append, so the answer was shortened.
    Prompt,
    /// Nothing: it may be another conversation's way to count.
    Whole,
}

/// What a call waits for and what it repeats.
#[derive(Clone, Debug)]
pub(super) struct Link {
    after: Vec<After>,
    gap: Span,
    base: Base,
    kept: Tokens,
}

impl Link {
    /// Puts it into the call.
    pub(super) fn fill(self, call: &mut Call) {
        call.after = self.after;
        call.gap = self.gap;
        call.base = self.base;
        call.kept_tokens = self.kept;
    }
}

/// On what the lineage of the calls rests, over all sessions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    /// Calls that repeat the prompt and the answer before them.
    pub(super) whole: u64,
    /// Calls that repeat the prompt before them but not the answer.
    pub(super) prompt_only: u64,
    /// Calls whose prompt is shorter than the one before, or that repeat only a part of it.
    pub(super) partial: u64,
    /// Calls that repeat nothing, a session's first among them.
    pub(super) fresh: u64,
    /// Calls that ran beside an earlier one.
    pub(super) parallel: u64,
    /// Calls that keep more than growth alone says, since the provider had it cached.
    pub(super) by_cache: u64,
    /// Prompt tokens, those that repeat something, and those reported as cached.
    pub(super) prompt: u64,
    pub(super) kept: u64,
    pub(super) cached: u64,
}

impl Tally {
    /// What the report says of it.
    pub(super) fn figures(&self) -> Vec<(&'static str, String)> {
        let lineage = format!(
            "{} calls repeat prompt and answer before them, {} the prompt only, {} a part of it, \
             {} nothing",
            self.whole, self.prompt_only, self.partial, self.fresh
        );
        let share = |part: u64| 100.0 * part as f64 / self.prompt.max(1) as f64;
        let mut tokens = format!("{:.2} % of prompt tokens repeat earlier ones", share(self.kept));
        if self.cached > 0 {
            tokens += &format!(", the provider had {:.2} % cached", share(self.cached));
        }
        let mut figures = vec![("lineage", lineage), ("", tokens)];
        if self.by_cache > 0 {
            let text =
                format!("{} calls repeat more than they grew by: it was cached", self.by_cache);
            figures.push(("", text));
        }
        figures.push(("parallel calls", self.parallel.to_string()));
        figures
    }
}

/// Links the calls of a session.
pub(super) fn link(
    steps: &[Step],
    outputs: Outputs,
    growth: Growth,
    tally: &mut Tally,
) -> Vec<Link> {
    let mut links: Vec<Link> = Vec::with_capacity(steps.len());
    // Calls that none waits for yet, with the last of their ends, and the ends of all.
    let (mut pending, mut pending_end) = (Vec::new(), Span::ZERO);
    let mut ends: BTreeSet<(Span, u32)> = BTreeSet::new();
    // For each call the last one up to it that did work.
    let mut alive: Vec<Option<u32>> = Vec::with_capacity(steps.len());
    let start = steps.first().map_or(Span::ZERO, |step| step.at);
    for (number, step) in steps.iter().enumerate() {
        let number = u32::try_from(number).unwrap_or(u32::MAX);
        let waits_for: Vec<u32> = if pending_end < step.at + NOISE {
            std::mem::take(&mut pending)
        } else {
            tally.parallel += 1;
            let before = ends.range(..=(step.at, u32::MAX)).next_back();
            before.map(|(_, call)| *call).into_iter().collect()
        };
        let last_end = waits_for.iter().map(|call| steps[*call as usize].end).max();
        let base = waits_for.iter().filter_map(|call| alive[*call as usize]).max();
        let kept = base
            .map_or(Tokens::ZERO, |base| kept(&steps[base as usize], step, outputs, growth, tally));
        tally.count(step, kept, base.map(|base| &steps[base as usize]));
        let finished = |call: u32| After { call, event: AfterEvent::Finished };
        links.push(Link {
            after: waits_for.into_iter().map(finished).collect(),
            gap: step.at.saturating_sub(last_end.unwrap_or(start)),
            base: base.filter(|_| kept > Tokens::ZERO).map_or(Base::None, Base::Call),
            kept,
        });
        alive.push(if step.failed { base } else { Some(number) });
        pending_end = if pending.is_empty() { step.end } else { pending_end.max(step.end) };
        pending.push(number);
        ends.insert((step.end, number));
    }
    links
}

/// How much of its base's context a prompt repeats.
fn kept(base: &Step, step: &Step, outputs: Outputs, growth: Growth, tally: &mut Tally) -> Tokens {
    let context = base.prompt + base.output;
    let grown_by_all = step.prompt >= context && base.not_repeated == Tokens::ZERO;
    let by_growth = match outputs {
        Outputs::Kept => context.min(step.prompt),
        Outputs::Auto if grown_by_all => context,
        Outputs::Auto if growth == Growth::Whole => Tokens::ZERO,
        Outputs::Auto | Outputs::Dropped if step.prompt >= base.prompt => base.prompt,
        // It shrank: what it has in common is not known but by what was cached.
        Outputs::Auto | Outputs::Dropped => Tokens::ZERO,
    };
    let most = match outputs {
        Outputs::Dropped => base.prompt,
        Outputs::Auto | Outputs::Kept => context,
    };
    // What came out of a cache was there before.
    let by_cache = step.cached.unwrap_or_default().min(most).min(step.prompt);
    tally.by_cache += u64::from(by_cache > by_growth);
    by_growth.max(by_cache)
}

impl Tally {
    fn count(&mut self, step: &Step, kept: Tokens, base: Option<&Step>) {
        self.prompt += step.prompt.0;
        self.kept += kept.0;
        self.cached += step.cached.unwrap_or_default().0;
        let kind = match base {
            Some(base) if kept > Tokens::ZERO => match kept.cmp(&base.prompt) {
                std::cmp::Ordering::Greater => &mut self.whole,
                std::cmp::Ordering::Equal => &mut self.prompt_only,
                std::cmp::Ordering::Less => &mut self.partial,
            },
            _ => &mut self.fresh,
        };
        *kind += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(at: u64, end: u64, prompt: u64, output: u64) -> Step {
        Step {
            at: Span::from_secs(at),
            end: Span::from_secs(end),
            prompt: Tokens(prompt),
            output: Tokens(output),
            not_repeated: Tokens::ZERO,
            cached: None,
            failed: false,
        }
    }

    fn linked(steps: &[Step]) -> Vec<(Vec<u32>, u64, u64)> {
        let links = link(steps, Outputs::Auto, Growth::Prompt, &mut Tally::default());
        let told = links.into_iter().map(|link| {
            let after = link.after.iter().map(|after| after.call).collect();
            (after, link.gap.0 / 1_000_000_000, link.kept.0)
        });
        told.collect()
    }

    #[test]
    fn calls_follow_one_another() {
        let steps = [step(10, 13, 100, 20), step(20, 24, 150, 30), step(23, 30, 160, 5)];
        // The third starts a second before the second ends: noise. It has not grown by the answer.
        assert_eq!(linked(&steps), [(vec![], 0, 0), (vec![0], 7, 120), (vec![1], 0, 150)]);
    }

    #[test]
    fn a_call_beside_another_waits_for_what_had_ended_and_the_next_for_both() {
        let steps = [
            step(0, 5, 100, 20),
            step(6, 30, 130, 10),
            step(8, 12, 140, 10),
            step(20, 22, 150, 1),
            step(40, 41, 170, 1),
        ];
        let found = linked(&steps);
        assert_eq!(found[2], (vec![0], 3, 120));
        assert_eq!(found[3], (vec![2], 8, 150));
        assert_eq!(found[4], (vec![1, 2, 3], 10, 151));
        let beside_first = [step(0, 9, 10, 1), step(3, 5, 10, 1)];
        assert_eq!(linked(&beside_first)[1], (vec![], 3, 0));
    }

    #[test]
    fn what_shrinks_keeps_what_was_cached() {
        let mut second = step(20, 24, 80, 30);
        assert_eq!(linked(&[step(0, 3, 100, 20), second])[1].2, 0);
        second.cached = Some(Tokens(64));
        assert_eq!(linked(&[step(0, 3, 100, 20), second])[1].2, 64);
        // Never more than there is to keep.
        second.cached = Some(Tokens(500));
        assert_eq!(linked(&[step(0, 3, 100, 20), second])[1].2, 80);
    }

    #[test]
    fn reasoning_that_is_dropped_ends_what_is_kept() {
        let mut first = step(0, 3, 100, 20);
        first.not_repeated = Tokens(5);
        let steps = [first, step(9, 10, 200, 3)];
        assert_eq!(linked(&steps)[1].2, 100);
        let kept = |outputs, growth| link(&steps, outputs, growth, &mut Tally::default())[1].kept.0;
        assert_eq!(kept(Outputs::Kept, Growth::Prompt), 120);
        assert_eq!(kept(Outputs::Dropped, Growth::Whole), 100);
        assert_eq!(kept(Outputs::Auto, Growth::Whole), 0);
    }

    #[test]
    fn a_failed_call_hands_on_what_was_before_it() {
        let mut failed = step(10, 12, 0, 0);
        failed.failed = true;
        let found = linked(&[step(0, 3, 100, 20), failed, step(20, 21, 130, 5)]);
        assert_eq!(found[1], (vec![0], 7, 0));
        assert_eq!(found[2], (vec![1], 8, 120));
    }
}
