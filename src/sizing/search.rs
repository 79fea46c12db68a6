//! The search for the smallest fleet that meets every target.
//!
//! The bounds of the bisection are themselves simulated: sizes double until one passes, then the
//! gap to the largest failing one below it is closed. An answer is no accident: the next smaller
//! fleet fails and the next larger one passes, or the report says that they do not.

use rayon::prelude::*;

use crate::diag::Result;

/// A fleet that was simulated and judged.
pub trait Candidate: Send {
    /// Its replicas.
    fn replicas(&self) -> u32;
    /// Whether it meets every target.
    fn met(&self) -> bool;
}

/// What the search found.
#[derive(Clone, Debug)]
pub struct Search<J> {
    /// Every fleet that was simulated, smallest first.
    pub tried: Vec<J>,
    /// The smallest fleet that meets every target, if one up to the limit does.
    pub smallest: Option<u32>,
    /// Where the search would have given up.
    pub max_replicas: u32,
}

impl<J: Candidate> Search<J> {
    /// Looks for the smallest fleet of at most `max_replicas` replicas. `simulate` is called once
    /// for each size, several at a time; which sizes are tried does not depend on the machine.
    ///
    /// # Errors
    /// The first error of a simulation, by size.
    pub fn run(max_replicas: u32, simulate: impl Fn(u32) -> Result<J> + Sync) -> Result<Self> {
        let mut search = Self { tried: Vec::new(), smallest: None, max_replicas };
        let mut size = 1;
        while search.passing().is_none() && size <= max_replicas {
            search.simulate(&[size, (2 * size).min(max_replicas)], &simulate)?;
            size = if size == max_replicas { size + 1 } else { (4 * size).min(max_replicas) };
        }
        while let Some(pass) = search.passing() {
            let fail = search.failing_below(pass);
            if pass - fail <= 1 {
                break;
            }
            // Thirds: two simulations at once close the gap as fast as two cores can.
            let third = (pass - fail).div_ceil(3);
            search.simulate(&[fail + third, (fail + 2 * third).min(pass - 1)], &simulate)?;
        }
        search.smallest = search.passing();
        if let Some(smallest) = search.smallest.filter(|&smallest| smallest < max_replicas) {
            search.simulate(&[smallest + 1], &simulate)?;
        }
        Ok(search)
    }

    fn simulate(
        &mut self,
        sizes: &[u32],
        simulate: &(impl Fn(u32) -> Result<J> + Sync),
    ) -> Result<()> {
        let mut new: Vec<u32> =
            sizes.iter().copied().filter(|size| self.of_size(*size).is_none()).collect();
        new.dedup();
        let judged: Vec<Result<J>> = new.into_par_iter().map(simulate).collect();
        for judged in judged {
            self.tried.push(judged?);
        }
        self.tried.sort_by_key(|judged| judged.replicas());
        Ok(())
    }

    /// The smallest size that passed so far.
    fn passing(&self) -> Option<u32> {
        self.tried.iter().find(|judged| judged.met()).map(|judged| judged.replicas())
    }

    /// The largest size below `size` that failed; 0, which no fleet is, if none did.
    fn failing_below(&self, size: u32) -> u32 {
        let below =
            self.tried.iter().rev().find(|judged| judged.replicas() < size && !judged.met());
        below.map_or(0, |judged| judged.replicas())
    }

    /// The fleet of this size, if it was simulated.
    #[must_use]
    pub fn of_size(&self, replicas: u32) -> Option<&J> {
        self.tried.iter().find(|judged| judged.replicas() == replicas)
    }

    /// The smallest fleet that meets every target.
    #[must_use]
    pub fn answer(&self) -> Option<&J> {
        self.smallest.and_then(|smallest| self.of_size(smallest))
    }

    /// Larger fleets that fail although a smaller one passes: then a fleet's size does not decide
    /// alone, and the answer is not to be trusted without more seeds.
    #[must_use]
    pub fn failing_above_answer(&self) -> Vec<u32> {
        let Some(smallest) = self.smallest else { return Vec::new() };
        let above =
            self.tried.iter().filter(|judged| judged.replicas() > smallest && !judged.met());
        above.map(|judged| judged.replicas()).collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[derive(Debug)]
    struct Fake(u32, bool);

    impl Candidate for Fake {
        fn replicas(&self) -> u32 {
            self.0
        }
        fn met(&self) -> bool {
            self.1
        }
    }

    fn sizes(search: &Search<Fake>) -> Vec<u32> {
        search.tried.iter().map(Candidate::replicas).collect()
    }

    fn from(threshold: u32) -> impl Fn(u32) -> Result<Fake> + Sync {
        move |size| Ok(Fake(size, size >= threshold))
    }

    #[test]
    fn two_replicas_are_found_between_their_neighbours() {
        let search = Search::run(256, from(2)).unwrap();
        assert_eq!((search.smallest, sizes(&search)), (Some(2), vec![1, 2, 3]));
    }

    #[test]
    fn what_no_fleet_meets_is_given_up_at_the_limit() {
        let search = Search::run(10, from(11)).unwrap();
        assert_eq!(search.smallest, None);
        assert_eq!(sizes(&search).last(), Some(&10));
    }

    #[test]
    fn a_larger_fleet_that_fails_is_reported() {
        let search = Search::run(64, |size| Ok(Fake(size, size == 2))).unwrap();
        assert_eq!((search.smallest, search.failing_above_answer()), (Some(2), vec![3]));
    }

    proptest! {
        #[test]
        fn it_agrees_with_trying_every_size(threshold in 1u32..300, limit in 1u32..300) {
            let search = Search::run(limit, from(threshold)).unwrap();
            prop_assert_eq!(search.smallest, (threshold <= limit).then_some(threshold));
            if let Some(smallest) = search.smallest {
                prop_assert!(smallest == 1 || search.of_size(smallest - 1).is_some());
                prop_assert!(smallest == limit || search.of_size(smallest + 1).is_some());
                prop_assert!(search.tried.len() < 25);
            }
        }
    }
}
