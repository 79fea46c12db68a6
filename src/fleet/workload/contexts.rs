//! Shared contexts by number.

use std::sync::Arc;

use super::ContextPlan;

/// So many contexts are held together.
const TOGETHER: usize = 128;

/// Shared contexts by number, more and more of them as a trace is read. Copies hold what they have
/// in common once: every part of a fleet has one, and there may be hundreds of thousands.
#[derive(Clone, Debug, Default)]
pub struct Contexts {
    /// All of them full but the last.
    lists: Vec<Arc<Vec<ContextPlan>>>,
    len: usize,
}

impl Contexts {
    /// How many there are.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether there is none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// One of those that there are.
    #[must_use]
    pub fn get(&self, number: u32) -> ContextPlan {
        let number = number as usize;
        self.lists[number / TOGETHER][number % TOGETHER]
    }

    /// One more.
    pub fn push(&mut self, context: ContextPlan) {
        match self.lists.last_mut().filter(|list| list.len() < TOGETHER) {
            Some(list) => Arc::make_mut(list).push(context),
            None => self.lists.push(Arc::new(vec![context])),
        }
        self.len += 1;
    }

    /// The same as another, of which this is an earlier copy.
    pub fn catch_up(&mut self, other: &Self) {
        if self.len < other.len {
            let same = self.len / TOGETHER;
            self.lists.truncate(same);
            self.lists.extend_from_slice(&other.lists[same..]);
            self.len = other.len;
        }
    }

    /// All of them, to be changed.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut ContextPlan> {
        self.lists.iter_mut().flat_map(|list| Arc::make_mut(list).iter_mut())
    }
}

impl Extend<ContextPlan> for Contexts {
    fn extend<I: IntoIterator<Item = ContextPlan>>(&mut self, more: I) {
        more.into_iter().for_each(|context| self.push(context));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Tokens;

    fn plan(number: u32) -> ContextPlan {
        let tokens = Tokens(number.into());
        ContextPlan { base: None, kept: Tokens::ZERO, tokens, common: false }
    }

    #[test]
    fn a_copy_has_what_was_there_and_catches_up() {
        let (mut all, mut copies) = (Contexts::default(), Vec::new());
        for number in 0..5 * TOGETHER as u32 / 2 {
            if number % 50 == 0 {
                copies.push(all.clone());
            }
            all.push(plan(number));
        }
        for (copy, place) in copies.iter_mut().zip(0..) {
            assert_eq!(copy.len(), 50 * place);
            copy.catch_up(&all);
            assert_eq!(copy.len(), all.len());
            assert!((0..copy.len() as u32).all(|number| copy.get(number) == plan(number)));
        }
        copies[0].iter_mut().for_each(|context| context.common = true);
        assert!(!all.get(0).common && copies[0].get(0).common, "a change is of one copy");
    }
}
