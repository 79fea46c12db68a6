//! How the calls of a session are kept: 16 bytes for each, and what does not go into them behind.
//!
//! Most calls go on from the one before, wait for it alone and are waited for by the next one, so a
//! *row* says where such things are by how far away they are. What a row has no room for, or cannot
//! say, is *explicit*: words of its own among the words of the session.

use super::plan::{BasePlan, CallPlan, Class, Link, Links};
use crate::observe::records::Place;
use crate::trace::record::Finish;
use crate::units::Span;

#[cfg(test)]
mod tests;

/// One call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Row {
    low: u64,
    high: u64,
}

/// Some bits of one half of a row.
#[derive(Clone, Copy)]
struct Field {
    from: u32,
    bits: u32,
}

impl Field {
    const fn new(from: u32, bits: u32) -> Self {
        Self { from, bits }
    }

    const fn of(self, half: u64) -> u64 {
        half >> self.from & ((1 << self.bits) - 1)
    }

    const fn has_room(self, value: u64) -> bool {
        value < 1 << self.bits
    }

    const fn with(self, value: u64) -> u64 {
        debug_assert!(self.has_room(value));
        value << self.from
    }
}

// The low half: the gap in nanoseconds, or where the explicit words are and which.
const GAP: Field = Field::new(0, 45);
const WORDS_AT: Field = Field::new(0, 32);
const EXPLICIT: Field = Field::new(32, 13);
const OUTPUT: Field = Field::new(45, 16);
const HAS_WORDS: Field = Field::new(61, 1);
const GOES_BEYOND: Field = Field::new(62, 1);
// The high half.
const PROMPT: Field = Field::new(0, 26);
/// Nothing, a call so far before, or a [context](BASE_CONTEXT).
const BASE: Field = Field::new(26, 5);
/// Of a call's context; of a shared one, its place among those of the session.
const KEPT: Field = Field::new(31, 2);
const GOES_ON: Field = Field::new(33, 2);
const CONTINUED_BY: Field = Field::new(35, 3);
/// It waits for calls in a row, of which the first is so far before.
const AFTER_FROM: Field = Field::new(38, 5);
const AFTER_LEN: Field = Field::new(43, 3);
/// Calls in a row wait for it, of which the first is so far behind.
const THEN_FROM: Field = Field::new(46, 5);
const THEN_LEN: Field = Field::new(51, 3);
const PLACE: Field = Field::new(54, 4);
const IS_LENGTH: Field = Field::new(58, 1);
const FAILED: Field = Field::new(59, 1);
/// Whose it is.
const WHO: Field = Field::new(60, 4);

/// What is explicit, in the order of its words, behind two words of the gap; the lists of the last
/// two, whose words are their lengths, come behind all words.
mod explicit {
    pub(super) const OUTPUT: u64 = 1;
    pub(super) const PROMPT: u64 = 2;
    pub(super) const BASE: u64 = 4;
    pub(super) const KEPT: u64 = 8;
    pub(super) const GOES_ON: u64 = 16;
    pub(super) const CONTINUED_BY: u64 = 32;
    pub(super) const WHO: u64 = 64;
    pub(super) const AFTER: u64 = 128;
    pub(super) const THEN: u64 = 256;
}

const GAP_WORDS: usize = 2;

/// Instead of how far before the base is: it is a shared context.
const BASE_CONTEXT: u64 = 31;

// How much of a call's context is kept, or where it goes on.
const NONE_OF_IT: u64 = 0;
const ITS_PROMPT: u64 = 1;
const ALL_OF_IT: u64 = 2;

/// Words of a [`Who`].
const WHO_WORDS: usize = 4;

/// Who pays and what answers: calls of a session hardly differ in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Who {
    tenant: u32,
    profile: u32,
    model: u32,
    priority: i32,
}

/// Every kind of place that a call can have.
const PLACES: [Place; 12] = {
    const KINDS: [Place; 6] = [
        Place::FIRST_OF_TURN,
        Place::FIRST_OF_TURN.and(Place::TURN_BOUNDARY),
        Place::SECOND_OF_TURN,
        Place::LATER_IN_TURN,
        Place::SUBAGENT_FIRST,
        Place::SUBAGENT_LATER,
    ];
    let mut all = [Place::FIRST_OF_TURN; 12];
    let mut kind = 0;
    while kind < KINDS.len() {
        all[kind] = KINDS[kind];
        all[kind + KINDS.len()] = KINDS[kind].and(Place::MODEL_SWITCH);
        kind += 1;
    }
    all
};

/// A call that is to be packed; its links are in lists.
#[derive(Clone, Copy, Debug)]
pub(super) struct Draft {
    pub(super) plan: CallPlan,
    pub(super) class: Class,
    /// The end of its links in each list; they begin where those of the call before end.
    pub(super) after_until: u32,
    pub(super) then_until: u32,
}

/// Calls of a session.
#[derive(Clone, Debug, Default)]
pub(super) struct Packed {
    rows: Box<[Row]>,
    words: Box<[u32]>,
    /// Whose the first of them is, which is number 0; the words begin with the others.
    who: Who,
    /// The shared contexts that calls continue, the first few of them: behind who there is.
    contexts_at: u32,
}

/// Shared contexts that rows can name.
const CONTEXTS_MAX: usize = 4;
const CONTEXT_WORDS: usize = 2;

impl Packed {
    pub(super) const fn len(&self) -> usize {
        self.rows.len()
    }

    pub(super) fn gap(&self, call: u32) -> Span {
        let row = self.rows[call as usize];
        match HAS_WORDS.of(row.low) {
            0 => Span(GAP.of(row.low)),
            _ => {
                let at = WORDS_AT.of(row.low) as usize;
                Span(u64::from(self.words[at]) | u64::from(self.words[at + 1]) << 32)
            }
        }
    }

    pub(super) fn output(&self, call: u32) -> u32 {
        self.tokens(self.rows[call as usize]).1
    }

    pub(super) fn plan(&self, call: u32) -> CallPlan {
        let row = self.rows[call as usize];
        let (prompt, output) = self.tokens(row);
        let word = |what| self.explicit(row, what);
        let base = word(explicit::BASE).map_or_else(
            || match BASE.of(row.high) {
                0 => BasePlan::None,
                BASE_CONTEXT => BasePlan::Context(self.context(KEPT.of(row.high))[0]),
                before => BasePlan::Call(call - before as u32),
            },
            BasePlan::unpacked,
        );
        let kept = word(explicit::KEPT).unwrap_or_else(|| match base {
            BasePlan::None => 0,
            BasePlan::Call(base) => part(KEPT.of(row.high), self.tokens(self.rows[base as usize])),
            BasePlan::Context(_) => self.context(KEPT.of(row.high))[1],
        });
        let goes_on = word(explicit::GOES_ON);
        let goes_on = goes_on.unwrap_or_else(|| part(GOES_ON.of(row.high), (prompt, output)));
        let continued_by = word(explicit::CONTINUED_BY);
        let continued_by = continued_by.unwrap_or(CONTINUED_BY.of(row.high) as u32);
        CallPlan {
            gap: self.gap(call),
            kept,
            goes_on,
            prompt,
            output,
            base,
            continued_by,
            nobody_goes_beyond: GOES_BEYOND.of(row.low) == 0,
        }
    }

    pub(super) fn after(&self, call: u32) -> Links<'_> {
        let row = self.rows[call as usize];
        match self.list(row, explicit::AFTER) {
            Some(list) => Links::listed(list),
            None => {
                let first = call - AFTER_FROM.of(row.high) as u32;
                Links::in_a_row(first, AFTER_LEN.of(row.high) as u32)
            }
        }
    }

    pub(super) fn then(&self, call: u32) -> Links<'_> {
        let row = self.rows[call as usize];
        match self.list(row, explicit::THEN) {
            Some(list) => Links::listed(list),
            None => {
                let first = call + THEN_FROM.of(row.high) as u32;
                Links::in_a_row(first, THEN_LEN.of(row.high) as u32)
            }
        }
    }

    pub(super) fn class(&self, call: u32) -> Class {
        let row = self.rows[call as usize];
        let who = self.explicit(row, explicit::WHO).unwrap_or(WHO.of(row.high) as u32);
        let Who { tenant, profile, model, priority } = self.who(who as usize);
        let place = PLACES[PLACE.of(row.high) as usize];
        Class {
            tenant,
            profile,
            model,
            priority,
            is_main: !place.is(Place::SUBAGENT_FIRST) && !place.is(Place::SUBAGENT_LATER),
            place,
            finish: if IS_LENGTH.of(row.high) == 1 { Finish::Length } else { Finish::Stop },
            failed: FAILED.of(row.high) == 1,
        }
    }

    fn who(&self, number: usize) -> Who {
        let Some(other) = number.checked_sub(1) else { return self.who };
        let words = &self.words[other * WHO_WORDS..][..WHO_WORDS];
        let priority = words[3].cast_signed();
        Who { tenant: words[0], profile: words[1], model: words[2], priority }
    }

    /// Its prompt and output.
    fn tokens(&self, row: Row) -> (u32, u32) {
        if HAS_WORDS.of(row.low) == 0 {
            return (PROMPT.of(row.high) as u32, OUTPUT.of(row.low) as u32);
        }
        let (prompt, output) = (explicit::PROMPT, explicit::OUTPUT);
        (
            self.explicit(row, prompt).unwrap_or(PROMPT.of(row.high) as u32),
            self.explicit(row, output).unwrap_or(OUTPUT.of(row.low) as u32),
        )
    }

    fn context(&self, place: u64) -> [u32; CONTEXT_WORDS] {
        let at = self.contexts_at as usize + place as usize * CONTEXT_WORDS;
        [self.words[at], self.words[at + 1]]
    }

    /// The word of what is explicit in this row.
    fn explicit(&self, row: Row, what: u64) -> Option<u32> {
        if HAS_WORDS.of(row.low) == 0 || EXPLICIT.of(row.low) & what == 0 {
            return None;
        }
        let before = (EXPLICIT.of(row.low) & (what - 1)).count_ones() as usize;
        Some(self.words[WORDS_AT.of(row.low) as usize + GAP_WORDS + before])
    }

    fn list(&self, row: Row, what: u64) -> Option<&[u32]> {
        let len = self.explicit(row, what)? as usize;
        let words = GAP_WORDS + EXPLICIT.of(row.low).count_ones() as usize;
        let before = match what {
            explicit::THEN => self.explicit(row, explicit::AFTER).unwrap_or(0) as usize,
            _ => 0,
        };
        let at = WORDS_AT.of(row.low) as usize + words + before;
        Some(&self.words[at..at + len])
    }
}

/// Leading tokens of a context with this prompt and output.
const fn part(which: u64, (prompt, output): (u32, u32)) -> u32 {
    match which {
        NONE_OF_IT => 0,
        ITS_PROMPT => prompt,
        _ => prompt + output,
    }
}

/// Which part of such a context has so many tokens.
fn which_part(tokens: u32, of: (u32, u32)) -> Option<u64> {
    [NONE_OF_IT, ITS_PROMPT, ALL_OF_IT].into_iter().find(|which| match of.0.checked_add(of.1) {
        Some(_) => part(*which, of) == tokens,
        None => false,
    })
}

/// Packs sessions. What it needs for that is kept from one to the next.
#[derive(Debug, Default)]
pub(super) struct Packer {
    whos: Vec<Who>,
    /// By call: whose it is.
    who_of: Vec<u32>,
    contexts: Vec<[u32; CONTEXT_WORDS]>,
    words: Vec<u32>,
    row: Making,
}

/// A row that is being made.
#[derive(Debug, Default)]
struct Making {
    row: Row,
    explicit: u64,
    words: Vec<u32>,
    lists: Vec<u32>,
}

impl Packer {
    pub(super) fn pack(&mut self, drafts: &[Draft], after: &[Link], then: &[Link]) -> Packed {
        self.words.clear();
        self.whos.clear();
        self.who_of.clear();
        self.contexts.clear();
        for draft in drafts {
            self.know(draft);
        }
        for who in self.whos.iter().skip(1) {
            let Who { tenant, profile, model, priority } = *who;
            self.words.extend([tenant, profile, model, priority.cast_unsigned()]);
        }
        let contexts_at = self.words.len() as u32;
        self.words.extend(self.contexts.as_flattened());
        let (mut after_from, mut then_from) = (0, 0);
        let rows = (0u32..).zip(drafts).map(|(call, draft)| {
            let links = (
                &after[after_from..draft.after_until as usize],
                &then[then_from..draft.then_until as usize],
            );
            after_from = draft.after_until as usize;
            then_from = draft.then_until as usize;
            self.row(call, drafts, links)
        });
        let rows = rows.collect();
        let who = self.whos.first().copied().unwrap_or_default();
        Packed { rows, words: self.words.as_slice().into(), who, contexts_at }
    }

    /// Takes in who and what shared context a call has to do with.
    fn know(&mut self, draft: &Draft) {
        /// So many of those before are looked through.
        const LAST: usize = 8;
        let Class { tenant, profile, model, priority, .. } = draft.class;
        let who = Who { tenant, profile, model, priority };
        let from = self.whos.len().saturating_sub(LAST);
        let found = self.whos[from..].iter().position(|other| *other == who);
        let place = found.map_or(self.whos.len(), |place| from + place);
        if place == self.whos.len() {
            self.whos.push(who);
        }
        self.who_of.push(place as u32);
        if let BasePlan::Context(context) = draft.plan.base {
            let of = [context, draft.plan.kept];
            if self.contexts.len() < CONTEXTS_MAX && !self.contexts.contains(&of) {
                self.contexts.push(of);
            }
        }
    }

    fn row(&mut self, call: u32, all: &[Draft], (after, then): (&[Link], &[Link])) -> Row {
        let Draft { plan, class, .. } = &all[call as usize];
        let row = &mut self.row;
        row.begin();
        // In the order of their words.
        let (prompt, output) = (plan.prompt, plan.output);
        row.low(OUTPUT, Some(output.into()), (explicit::OUTPUT, output));
        row.high(PROMPT, Some(prompt.into()), (explicit::PROMPT, prompt));
        let (base, kept) = match plan.base {
            BasePlan::None => (Some(0), Some(NONE_OF_IT).filter(|_| plan.kept == 0)),
            BasePlan::Context(context) => {
                let place = self.contexts.iter().position(|of| *of == [context, plan.kept]);
                (place.map(|_| BASE_CONTEXT), place.map(|place| place as u64))
            }
            BasePlan::Call(base) => {
                let of = &all[base as usize].plan;
                let before = Some(u64::from(call - base)).filter(|far| *far < BASE_CONTEXT);
                (before, which_part(plan.kept, (of.prompt, of.output)))
            }
        };
        row.high(BASE, base, (explicit::BASE, plan.base.packed()));
        row.high(KEPT, kept, (explicit::KEPT, plan.kept));
        let goes_on = which_part(plan.goes_on, (prompt, output));
        row.high(GOES_ON, goes_on, (explicit::GOES_ON, plan.goes_on));
        let by = plan.continued_by;
        row.high(CONTINUED_BY, Some(by.into()), (explicit::CONTINUED_BY, by));
        let who = self.who_of[call as usize];
        row.high(WHO, Some(who.into()), (explicit::WHO, who));
        let first = in_a_row(after).filter(|first| *first < call);
        let far = first.map(|first| u64::from(call - first));
        row.links(after, far, (AFTER_FROM, AFTER_LEN), explicit::AFTER);
        let first = in_a_row(then).filter(|first| *first > call);
        let far = first.map(|first| u64::from(first - call));
        row.links(then, far, (THEN_FROM, THEN_LEN), explicit::THEN);
        let place = PLACES.iter().position(|place| *place == class.place);
        row.row.low |= GOES_BEYOND.with((!plan.nobody_goes_beyond).into());
        row.row.high |= PLACE.with(place.expect("a place is one of these") as u64)
            | IS_LENGTH.with((class.finish == Finish::Length).into())
            | FAILED.with(class.failed.into());
        row.end(plan.gap, &mut self.words)
    }
}

impl Making {
    fn begin(&mut self) {
        self.row = Row::default();
        self.explicit = 0;
        self.words.clear();
        self.lists.clear();
    }

    /// Puts a value there if there is one for which there is room; otherwise a word.
    fn low(&mut self, field: Field, value: Option<u64>, (what, word): (u64, u32)) {
        match value.filter(|value| field.has_room(*value)) {
            Some(value) => self.row.low |= field.with(value),
            None => self.word(what, word),
        }
    }

    fn high(&mut self, field: Field, value: Option<u64>, (what, word): (u64, u32)) {
        match value.filter(|value| field.has_room(*value)) {
            Some(value) => self.row.high |= field.with(value),
            None => self.word(what, word),
        }
    }

    fn word(&mut self, what: u64, word: u32) {
        self.explicit |= what;
        self.words.push(word);
    }

    /// Links to calls in a row, whose first one is so far away, or others.
    fn links(&mut self, links: &[Link], far: Option<u64>, (from, len): (Field, Field), what: u64) {
        let count = links.len() as u64;
        match far.filter(|far| from.has_room(*far) && len.has_room(count)) {
            Some(far) => self.row.high |= from.with(far) | len.with(count),
            None if links.is_empty() => {}
            None => {
                self.word(what, links.len() as u32);
                self.lists.extend(links.iter().map(|link| link.packed()));
            }
        }
    }

    fn end(&mut self, gap: Span, words: &mut Vec<u32>) -> Row {
        let has_words = self.explicit != 0 || !GAP.has_room(gap.0);
        self.row.low |= match has_words {
            false => GAP.with(gap.0),
            true => {
                let at = words.len() as u64;
                words.extend([gap.0 as u32, (gap.0 >> u32::BITS) as u32]);
                words.extend(&self.words);
                words.extend(&self.lists);
                HAS_WORDS.with(1) | EXPLICIT.with(self.explicit) | WORDS_AT.with(at)
            }
        };
        self.row
    }
}

/// The first of calls in a row, whose ends are waited for or that wait for an end.
fn in_a_row(links: &[Link]) -> Option<u32> {
    let first = links.first()?.call();
    let is_next = |(at, link): (u32, &Link)| *link == Link::new(at, false);
    (first..).zip(links).all(is_next).then_some(first)
}
