//! Where a question's answer turns from no to yes as a whole number grows: replicas of a fleet, or
//! its load.
//!
//! The bounds of the bisection are asked themselves: the number doubles until the answer is yes,
//! halves while it is, then the gap is closed. It is assumed that the answer turns once; answers
//! that say otherwise stay in [`Boundary::asked`] for whoever reports them.

use std::collections::BTreeMap;

use rayon::prelude::*;

use crate::diag::Result;

/// What was asked so far, and what follows from it.
#[derive(Clone, Debug)]
pub struct Boundary<J> {
    /// Every number that was asked, with what came out.
    pub asked: BTreeMap<u32, J>,
}

impl<J> Default for Boundary<J> {
    fn default() -> Self {
        Self { asked: BTreeMap::new() }
    }
}

/// How to look for a boundary.
pub struct Question<'a, J> {
    /// What comes out for one number.
    pub ask: &'a (dyn Fn(u32) -> Result<J> + Sync),
    /// Whether that is a yes.
    pub is_yes: &'a dyn Fn(&J) -> bool,
    /// The first number to ask.
    pub first: u32,
    /// The largest.
    pub most: u32,
    /// Numbers that the boundary may be off by, at this number; 0 is exact.
    pub tolerance: &'a dyn Fn(u32) -> u32,
    /// Whether larger numbers are given up, after what was asked so far.
    pub gives_up: &'a dyn Fn(&BTreeMap<u32, J>) -> bool,
}

impl<J: Send> Boundary<J> {
    /// Looks for the smallest number with a yes: `None` if there is none up to the largest. What
    /// is asked does not depend on the machine.
    ///
    /// # Errors
    /// The first error of a question, by number.
    pub fn find(&mut self, question: &Question<'_, J>) -> Result<Option<u32>> {
        self.expand(question)?;
        while let Some(yes) = self.yes(question) {
            let no = self.no_below(yes, question);
            let gap = yes - no - 1;
            if gap <= (question.tolerance)(no) {
                break;
            }
            // Thirds: two simulations at once close the gap as fast as two cores can.
            let third = (gap + 1).div_ceil(3);
            self.ask(&[no + third, (no + 2 * third).min(yes - 1)], question)?;
        }
        Ok(self.yes(question))
    }

    /// Doubles until there is a yes, and halves until there is a no below it.
    fn expand(&mut self, question: &Question<'_, J>) -> Result<()> {
        let most = question.most;
        let mut size = question.first.clamp(1, most);
        while self.yes(question).is_none() {
            let next = size.saturating_mul(2).min(most);
            self.ask(&[size, next], question)?;
            if next == most || (question.gives_up)(&self.asked) {
                break;
            }
            size = next.saturating_mul(2).min(most);
        }
        while let Some(yes) = self.yes(question).filter(|yes| *yes > 1) {
            if self.no_below(yes, question) > 0 {
                break;
            }
            self.ask(&[(yes / 4).max(1), yes / 2], question)?;
        }
        Ok(())
    }

    /// Asks these numbers, several at a time, those that were asked before excepted.
    ///
    /// # Errors
    /// The first error, by number.
    pub fn ask(&mut self, numbers: &[u32], question: &Question<'_, J>) -> Result<()> {
        let mut new: Vec<u32> =
            numbers.iter().copied().filter(|number| !self.asked.contains_key(number)).collect();
        new.sort_unstable();
        new.dedup();
        let answers: Vec<Result<J>> =
            new.par_iter().map(|number| (question.ask)(*number)).collect();
        for (number, answer) in new.into_iter().zip(answers) {
            self.asked.insert(number, answer?);
        }
        Ok(())
    }

    /// The smallest number with a yes so far.
    fn yes(&self, question: &Question<'_, J>) -> Option<u32> {
        self.asked.iter().find(|(_, answer)| (question.is_yes)(answer)).map(|(number, _)| *number)
    }

    /// The largest number below `yes` with a no; 0 if there is none.
    fn no_below(&self, yes: u32, question: &Question<'_, J>) -> u32 {
        let below = self.asked.range(..yes).rev();
        let no = below.into_iter().find(|(_, answer)| !(question.is_yes)(answer));
        no.map_or(0, |(number, _)| *number)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn find(threshold: u32, first: u32, most: u32, tolerance: u32) -> (Option<u32>, usize) {
        let mut boundary = Boundary::default();
        let question = Question {
            ask: &|number| Ok(number >= threshold),
            is_yes: &|yes| *yes,
            first,
            most,
            tolerance: &|_| tolerance,
            gives_up: &|_| false,
        };
        let found = boundary.find(&question).unwrap();
        (found, boundary.asked.len())
    }

    proptest! {
        #[test]
        fn it_agrees_with_asking_every_number(
            threshold in 1u32..400,
            first in 1u32..400,
            most in 1u32..400,
        ) {
            let (found, asked) = find(threshold, first, most, 0);
            prop_assert_eq!(found, (threshold <= most).then_some(threshold));
            prop_assert!(asked < 30);
        }

        #[test]
        fn a_tolerance_leaves_at_most_so_much(threshold in 1u32..400, tolerance in 0u32..20) {
            let (found, _) = find(threshold, 1, 1_000, tolerance);
            let found = found.unwrap();
            prop_assert!(found >= threshold && found - threshold <= tolerance);
        }
    }

    #[test]
    fn what_is_given_up_is_not_asked() {
        let mut boundary = Boundary::default();
        let question = Question {
            ask: &|_| Ok(false),
            is_yes: &|yes| *yes,
            first: 1,
            most: 1_000,
            tolerance: &|_| 0,
            gives_up: &|asked| asked.len() >= 4,
        };
        assert_eq!(boundary.find(&question).unwrap(), None);
        assert_eq!(boundary.asked.keys().copied().collect::<Vec<_>>(), [1, 2, 4, 8]);
    }

    #[test]
    fn the_first_error_by_number_is_the_one() {
        let mut boundary = Boundary::<bool>::default();
        let question = Question {
            ask: &|number| Err(crate::diag::Error::new(format!("at {number}"))),
            is_yes: &|yes| *yes,
            first: 3,
            most: 100,
            tolerance: &|_| 0,
            gives_up: &|_| false,
        };
        assert_eq!(boundary.find(&question).unwrap_err().message(), "at 3");
    }
}
