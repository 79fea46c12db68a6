//! What each call's prompt continues, by the best evidence at hand: messages, hits, growth.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use super::lanes::Step;
use super::plan::Plan;
use super::prompt::{Alike, Role};
use super::report::Evidence;
use super::row::Row;
use super::shared::{Shared, chains, preamble, tokens_of};
use super::symbols::Symbol;
use crate::trace::record::{Base, Status};
use crate::units::Tokens;

/// What a call's prompt continues, and how long it is.
#[derive(Debug)]
pub(super) struct Lineage {
    /// What it continues.
    pub(super) base: Base,
    /// How much of it.
    pub(super) kept: Tokens,
    /// The whole prompt.
    pub(super) prompt: Tokens,
    /// The call whose answer it repeats, which must have ended before.
    pub(super) answer_of: Option<usize>,
}

/// Finds the lineage of a session's calls, in order.
pub(super) struct Finder<'a> {
    plan: &'a Plan<'a>,
    shared: &'a mut Shared,
    evidence: &'a mut Evidence,
    /// Calls whose prompt length was taken from the call before.
    pub(super) assumed_prompts: u64,
    /// Calls whose hit is longer than anything that their session had sent or got before.
    pub(super) gaps: u64,
    /// The longest context of the session so far, counted or not.
    longest: u64,
    /// Tokens in a block of the servers' caches; 0 if no hit is known.
    block: u64,
    /// What hits say of the calls that grew, by model: on how many, whether the answers before are
    /// repeated (up) or not (down).
    answers: BTreeMap<Symbol, i64>,
    /// The last call that begins with certain messages, and how many these are.
    by_chain: FxHashMap<u64, (usize, usize)>,
}

impl<'a> Finder<'a> {
    /// For the calls of one session.
    pub(super) fn new(
        plan: &'a Plan<'a>,
        shared: &'a mut Shared,
        evidence: &'a mut Evidence,
        block: u64,
    ) -> Self {
        let by_chain = FxHashMap::default();
        let mut finder = Self {
            plan,
            shared,
            evidence,
            assumed_prompts: 0,
            gaps: 0,
            longest: 0,
            block,
            answers: BTreeMap::new(),
            by_chain,
        };
        for (number, step) in plan.steps.iter().enumerate() {
            let Step::Grown(base) = *step else { continue };
            let Some(kept) = finder.answer_by_hit(number, base) else { continue };
            *finder.answers.entry(plan.rows[number].model).or_default() +=
                if kept { 1 } else { -1 };
        }
        finder
    }

    /// The lineage of the next call.
    pub(super) fn find(&mut self, number: usize) -> Lineage {
        let row = self.plan.rows[number];
        if matches!(self.plan.steps[number], Step::Grown(_)) {
            self.gaps += u64::from(row.cached.is_some_and(|cached| cached > self.longest));
        }
        self.longest = self.longest.max(row.prompt + row.output);
        if !row.is_counted() || row.messages.is_empty() {
            return self.by_step(number);
        }
        let found = self.by_messages(number);
        for (at, (chain, _)) in chains(&row.messages).enumerate() {
            self.by_chain.insert(chain, (number, at + 1));
        }
        found.unwrap_or_else(|| self.by_step(number))
    }

    /// The earlier call, or shared context, that begins with the most messages that the prompt
    /// begins with; `None` if messages say nothing.
    fn by_messages(&mut self, number: usize) -> Option<Lineage> {
        let row = self.plan.rows[number];
        let chain_of = |(chain, chars)| Some((*self.by_chain.get(&chain)?, chars));
        let longest = chains(&row.messages).map_while(chain_of).last();
        let longest = longest.map(|(found, chars)| (found, chars, self.next_alike(row, found)));
        let in_session = longest
            .filter(|((_, common), _, next)| *common > preamble(&row.messages) || next.chars > 0);
        if in_session.is_none()
            && let Some(start) = self.shared.by_messages(row)
        {
            self.evidence.shared_messages += 1;
            self.evidence.cut_messages += u64::from(row.cut);
            return Some(of(start.base, start.kept, row.prompt));
        }
        let Some(((base, common), chars, next)) = in_session.or(longest) else {
            // Some call of the session had to have messages for this to mean a new context.
            let step = self.plan.steps[number];
            let Step::Grown(before) = step else { return None };
            if self.plan.rows[before].messages.is_empty() {
                return None;
            }
            self.evidence.messages += 1;
            self.evidence.cut_messages += u64::from(row.cut);
            return Some(of(Base::None, 0, row.prompt));
        };
        let before = self.plan.rows[base];
        let evidence = &mut *self.evidence;
        evidence.cut_messages += u64::from(row.cut || before.cut);
        *if next.but_for_the_end { &mut evidence.changed_ends } else { &mut evidence.messages } +=
            1;
        if common < before.messages.len() {
            let kept = tokens_of(before, chars + next.chars).min(row.prompt);
            return Some(of(Base::Call(call_number(base)), kept, row.prompt));
        }
        let says_answer = row.messages.get(common).is_some_and(|next| next.role == Role::Assistant);
        let whole = before.prompt + before.output;
        if says_answer && row.prompt >= whole && before.end <= row.start {
            return Some(with_answer(base, whole, row.prompt));
        }
        Some(of(Base::Call(call_number(base)), before.prompt.min(row.prompt), row.prompt))
    }

    /// How the first message that differs from that of the earlier call `base` begins like it;
    /// `common` are equal.
    fn next_alike(&self, row: &Row, (base, common): (usize, usize)) -> Alike {
        let before = &self.plan.rows[base].messages;
        match (before.get(common), row.messages.get(common)) {
            (Some(own), Some(later)) => own.alike(later, common + 1 == before.len()),
            _ => Alike::default(),
        }
    }

    /// The lineage that lanes, hits and growth tell: a prompt that has room for the last answer
    /// repeats it unless hits end before it, one that grew by less repeats the last prompt, one
    /// that shrank starts over.
    fn by_step(&mut self, number: usize) -> Lineage {
        let row = self.plan.rows[number];
        match self.plan.steps[number] {
            Step::First => self.start(row, number == 0, |evidence| &mut evidence.first),
            Step::Compacted(_) => self.start(row, false, |evidence| &mut evidence.compacted),
            Step::Grown(base) => self.grown(number, base),
            Step::Parallel(twin) => {
                self.evidence.parallel += 1;
                if twin < number {
                    of(Base::Call(call_number(twin)), row.prompt, row.prompt)
                } else {
                    of(Base::None, 0, row.prompt)
                }
            }
            Step::Uncounted(last) => self.uncounted(row, last),
        }
    }

    /// A prompt that continues nothing of its session.
    fn start(
        &mut self,
        row: &Row,
        begins_session: bool,
        unknown: impl Fn(&mut Evidence) -> &mut u64,
    ) -> Lineage {
        let Some(start) = self.shared.by_hits(row, begins_session) else {
            *unknown(self.evidence) += 1;
            return of(Base::None, 0, row.prompt);
        };
        let evidence = &mut *self.evidence;
        let by =
            if start.measured { &mut evidence.shared_hits } else { &mut evidence.shared_assumed };
        *by += 1;
        of(start.base, start.kept, row.prompt)
    }

    fn grown(&mut self, number: usize, base: usize) -> Lineage {
        let (row, before) = (self.plan.rows[number], self.plan.rows[base]);
        let hit = self.answer_by_hit(number, base).or(self.answers_kept(row));
        let evidence = &mut *self.evidence;
        let room = has_room(row, before);
        let by = match (hit, room) {
            (Some(true), true) => &mut evidence.hit_with_output,
            (Some(false), true) => &mut evidence.hit_prompt_only,
            (None, true) => &mut evidence.with_output,
            (_, false) => &mut evidence.prompt_only,
        };
        *by += 1;
        if room && hit != Some(false) {
            return with_answer(base, before.prompt + before.output, row.prompt);
        }
        of(Base::Call(call_number(base)), before.prompt, row.prompt)
    }

    /// Whether a call's hit reaches into the answer to its base. `None` if it ends elsewhere, since
    /// the cache may have lost the rest, or if the answer is too short to tell.
    fn answer_by_hit(&self, number: usize, base: usize) -> Option<bool> {
        let (row, before) = (self.plan.rows[number], self.plan.rows[base]);
        let cached = row.cached.filter(|_| has_room(row, before))?;
        if cached > before.prompt {
            return Some(true);
        }
        let ends_with_prompt = cached + self.block > before.prompt;
        (ends_with_prompt && before.output >= 2 * self.block).then_some(false)
    }

    /// What most hits of the session say of answers to the same model, if they agree at all.
    fn answers_kept(&self, row: &Row) -> Option<bool> {
        let balance = self.answers.get(&row.model).copied().unwrap_or(0);
        (balance != 0).then_some(balance > 0)
    }

    fn uncounted(&mut self, row: &Row, last: Option<usize>) -> Lineage {
        self.evidence.uncounted += 1;
        let Some(last) = last else { return of(Base::None, 0, row.prompt) };
        let before = self.plan.rows[last];
        if row.status == Status::Aborted && row.prompt >= before.prompt {
            if has_room(row, before) && self.answers_kept(row) != Some(false) {
                return with_answer(last, before.prompt + before.output, row.prompt);
            }
            return of(Base::Call(call_number(last)), before.prompt, row.prompt);
        }
        self.assumed_prompts += 1;
        of(Base::Call(call_number(last)), before.prompt, before.prompt)
    }
}

/// Whether a prompt has grown enough to repeat the answer before, which had ended.
fn has_room(row: &Row, before: &Row) -> bool {
    row.prompt >= before.prompt + before.output && before.end <= row.start
}

fn of(base: Base, kept: u64, prompt: u64) -> Lineage {
    Lineage { base, kept: Tokens(kept), prompt: Tokens(prompt), answer_of: None }
}

fn with_answer(base: usize, whole: u64, prompt: u64) -> Lineage {
    Lineage { answer_of: Some(base), ..of(Base::Call(call_number(base)), whole, prompt) }
}

fn call_number(call: usize) -> u32 {
    u32::try_from(call).unwrap_or(u32::MAX)
}
