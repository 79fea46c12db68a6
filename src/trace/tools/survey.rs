//! A first pass over a trace: who its sessions are and which shared contexts they use.

use rustc_hash::{FxHashMap, FxHashSet};

use super::Source;
use super::names::clone_number;
use crate::diag::Result;
use crate::rng::{Purpose, Stream};
use crate::trace::record::{Base, Item, Name, Session, SharedContext};
use crate::units::Span;

/// Sessions that use a shared context from which on it is taken for tools and system prompt.
pub const COMMON_FROM_SESSIONS: u32 = 5;

/// What a first pass found.
#[derive(Debug, Default)]
pub struct Survey {
    /// Shared contexts in order of declaration.
    pub contexts: Vec<Declared>,
    /// Sessions in order.
    pub sessions: Vec<Surveyed>,
    /// Sessions by tenant and profile, in order of first appearance.
    pub strata: Vec<Stratum>,
    /// The last start of a session.
    pub last_start: Span,
    /// A number that no clone has yet, nor any above it.
    pub next_clone: u64,
    numbers: FxHashMap<Name, u32>,
    stratum_numbers: FxHashMap<(Name, Name), u32>,
}

/// A shared context.
#[derive(Clone, Debug)]
pub struct Declared {
    /// Its name.
    pub name: Name,
    /// The number of the context that it continues.
    pub base: Option<u32>,
}

/// A session.
#[derive(Clone, Debug)]
pub struct Surveyed {
    /// Its calls.
    pub calls: u64,
    /// The number of its stratum.
    pub stratum: u32,
    /// Numbers of the shared contexts that its calls continue, each once.
    pub contexts: Vec<u32>,
}

/// Sessions of one tenant and one profile, going by their first calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stratum {
    /// The tenant; may be empty.
    pub tenant: Name,
    /// The profile; may be empty.
    pub profile: Name,
    /// Its sessions.
    pub sessions: u64,
    /// Their calls.
    pub calls: u64,
}

impl Survey {
    /// Reads a trace once.
    ///
    /// # Errors
    /// The first error of the trace.
    pub fn of(source: &(impl Source + ?Sized)) -> Result<Self> {
        let mut survey = Self { next_clone: 1, ..Self::default() };
        for item in source.items()? {
            match item? {
                Item::Context(context) => survey.context(&context),
                Item::Session(session) => survey.session(&session),
            }
        }
        Ok(survey)
    }

    fn context(&mut self, context: &SharedContext) {
        self.see_name(&context.name);
        let base = context.base.as_ref().and_then(|base| self.number(base));
        self.numbers.insert(Name::clone(&context.name), self.contexts.len() as u32);
        self.contexts.push(Declared { name: Name::clone(&context.name), base });
    }

    fn session(&mut self, session: &Session) {
        let Some(first) = session.calls.first() else { return };
        self.last_start = self.last_start.max(first.at);
        self.see_name(&session.id);
        let mut contexts = Vec::new();
        for call in &session.calls {
            self.see_name(&call.user);
            call.key.iter().for_each(|key| self.see_name(key));
            if let Base::Shared(name) = &call.base {
                contexts.extend(self.number(name));
            }
        }
        contexts.sort_unstable();
        contexts.dedup();
        let calls = session.calls.len() as u64;
        let key = (Name::clone(&first.tenant), Name::clone(&first.profile));
        let stratum = *self.stratum_numbers.entry(key).or_insert_with_key(|(tenant, profile)| {
            let (tenant, profile) = (Name::clone(tenant), Name::clone(profile));
            self.strata.push(Stratum { tenant, profile, sessions: 0, calls: 0 });
            self.strata.len() as u32 - 1
        });
        self.strata[stratum as usize].sessions += 1;
        self.strata[stratum as usize].calls += calls;
        self.sessions.push(Surveyed { calls, stratum, contexts });
    }

    fn see_name(&mut self, name: &str) {
        if let Some(number) = clone_number(name) {
            self.next_clone = self.next_clone.max(number + 1);
        }
    }

    /// The number of a shared context.
    #[must_use]
    pub fn number(&self, context: &Name) -> Option<u32> {
        self.numbers.get(context).copied()
    }

    /// By shared context: how many of the chosen sessions use it, themselves or through a context
    /// that continues it.
    #[must_use]
    pub fn users(&self, chosen: impl Fn(usize) -> bool) -> Vec<u32> {
        let mut users = vec![0; self.contexts.len()];
        let mut last_user = vec![usize::MAX; self.contexts.len()];
        for (index, session) in self.sessions.iter().enumerate().filter(|(at, _)| chosen(*at)) {
            for &context in &session.contexts {
                let mut next = Some(context);
                // A base seen in this session before was counted with all of its own bases.
                while let Some(at) = next.filter(|&at| last_user[at as usize] != index) {
                    last_user[at as usize] = index;
                    users[at as usize] += 1;
                    next = self.contexts[at as usize].base;
                }
            }
        }
        users
    }

    /// Names of the shared contexts that so many sessions use that they are tools and system
    /// prompts: the same for everybody. Others are somebody's conversation.
    #[must_use]
    pub fn common(&self) -> FxHashSet<Name> {
        let users = self.contexts.iter().zip(self.users(|_| true));
        let common = users.filter(|(_, users)| *users >= COMMON_FROM_SESSIONS);
        common.map(|(context, _)| Name::clone(&context.name)).collect()
    }

    /// Chooses `total` sessions at random so that every stratum keeps its share of them.
    #[must_use]
    pub fn choose(&self, total: u64, seed: u64) -> Vec<bool> {
        let sizes: Vec<u64> = self.strata.iter().map(|stratum| stratum.sessions).collect();
        let mut draws: Vec<Draw> = allot(&sizes, total)
            .into_iter()
            .zip(&sizes)
            .zip(0u64..)
            .map(|((wanted, &left), stratum)| {
                let stream = Stream::new(seed, Purpose::SessionChoice, stratum);
                Draw { left, wanted, stream }
            })
            .collect();
        self.sessions.iter().map(|session| draws[session.stratum as usize].next()).collect()
    }
}

/// A choice of some things out of many, told one by one.
struct Draw {
    left: u64,
    wanted: u64,
    stream: Stream,
}

impl Draw {
    /// Whether the next thing is chosen: every set of the wanted size is equally likely.
    fn next(&mut self) -> bool {
        let chosen = self.stream.uniform_below(self.left.max(1)) < self.wanted;
        self.left = self.left.saturating_sub(1);
        self.wanted -= u64::from(chosen);
        chosen
    }
}

/// Divides `total` among parts of these sizes in proportion, by the largest remainder: each gets
/// the whole part of its due, and those with the largest fractions one more.
#[must_use]
pub fn allot(sizes: &[u64], total: u64) -> Vec<u64> {
    let all: u128 = sizes.iter().map(|&size| u128::from(size)).sum();
    let due = |size: u64| u128::from(size) * u128::from(total);
    let mut allotted: Vec<u64> =
        sizes.iter().map(|&size| (due(size) / all.max(1)) as u64).collect();
    let given: u64 = allotted.iter().sum();
    let mut by_remainder: Vec<usize> = (0..sizes.len()).collect();
    by_remainder.sort_by_key(|&part| std::cmp::Reverse(due(sizes[part]) % all.max(1)));
    for part in by_remainder.into_iter().take(total.saturating_sub(given) as usize) {
        allotted[part] += 1;
    }
    allotted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_get_their_due_and_the_largest_fractions_one_more() {
        // Dues 4.5, 3.3, 2.2: two are left after 4, 3, 2, wait for the halves first.
        assert_eq!(allot(&[45, 33, 22], 10), [5, 3, 2]);
        assert_eq!(allot(&[1, 1, 1], 2), [1, 1, 0]);
        assert_eq!(allot(&[7, 0, 3], 10), [7, 0, 3]);
        assert_eq!(allot(&[5, 5], 0), [0, 0]);
        assert_eq!(allot(&[], 0), Vec::<u64>::new());
    }

    #[test]
    fn a_draw_takes_as_many_as_are_wanted_and_all_equally_often() {
        let mut taken = [0; 5];
        for seed in 0..3_000 {
            let stream = Stream::new(seed, Purpose::SessionChoice, 0);
            let mut draw = Draw { left: 5, wanted: 2, stream };
            let chosen: Vec<bool> = (0..5).map(|_| draw.next()).collect();
            assert_eq!(chosen.iter().filter(|chosen| **chosen).count(), 2);
            taken.iter_mut().zip(chosen).for_each(|(n, chosen)| *n += u32::from(chosen));
        }
        assert!(taken.iter().all(|n: &u32| n.abs_diff(1_200) < 120), "{taken:?}");
    }
}
