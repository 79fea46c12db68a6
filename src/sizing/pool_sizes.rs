//! The smallest sizes of several pools.
//!
//! All pools grow together until the targets are met, beyond the limit if need be, for one of them
//! may need nearly all that it leaves; then each in turn is brought down while the others stay,
//! until none can go down by itself. Two replicas of one pool are tried against one
//! more of another. All that is done from the first pool to the last and from the last to the
//! first, and the fewer replicas are the answer. So no pool of it can do with one less, and no such
//! exchange helps; that no other fleet has fewer replicas in all is not shown.
//!
//! If more replicas never harm, a fleet within the limit that meets the targets is none that is
//! missed for growing together: each of its pools has at most what one replica in every other one
//! leaves, and all pools with so many meet them as well.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use super::boundary::{Boundary, Question};
use super::replicates::{Fleet, Replicates};
use super::search::{GaveUp, gave_up};
use crate::diag::Result;
use crate::fleet::Progress;

/// Replicas of each pool.
pub type Sizes = Vec<u32>;

/// No fleet of more replicas is tried, however far the limit is.
const TRIED_MAX: u32 = 10_000;

/// Every fleet that was simulated, by its sizes.
type Known = BTreeMap<Sizes, Fleet>;

/// What was found.
#[derive(Clone, Debug)]
pub struct PoolSizes {
    /// Every fleet that was simulated, those with the fewest replicas first.
    pub tried: Vec<(Sizes, Fleet)>,
    /// The answer, if there is one.
    pub smallest: Option<Sizes>,
    /// Without an answer, what was found beyond the limit.
    pub beyond: Option<Sizes>,
    /// Why the search gave up before its limit, if it did.
    pub gave_up: Option<GaveUp>,
}

impl PoolSizes {
    /// Looks for the smallest sizes that `is_yes` is content with, of at most `most` replicas in
    /// all, and what one more in each pool would give.
    ///
    /// # Errors
    /// The first error of a simulation.
    pub fn find(
        replicates: &Replicates,
        most: u32,
        is_yes: &(dyn Fn(&Fleet) -> bool + Sync),
        progress: &Progress,
    ) -> Result<Self> {
        let search = Looking { replicates, progress, most, is_yes, known: Mutex::default() };
        let (start, gave_up) = search.together(true)?;
        let found = start.map(|start| search.smallest(&start)).transpose()?;
        let is_within = found.as_ref().is_some_and(|sizes| all(sizes) <= most);
        let (smallest, beyond) = if is_within { (found, None) } else { (None, found) };
        if let Some(smallest) = &smallest {
            for pool in 0..smallest.len() {
                let more = changed(smallest, pool, 1);
                if all(&more) <= most {
                    search.ask(&more)?;
                }
            }
        }
        let known = search.known.into_inner().unwrap_or_else(PoisonError::into_inner);
        let mut tried: Vec<(Sizes, Fleet)> = known.into_iter().collect();
        tried.sort_by_key(|(sizes, fleet)| (fleet.replicas, sizes.clone()));
        Ok(Self { tried, smallest, beyond, gave_up })
    }

    /// The fewest replicas, of at most `most`, with which `is_yes` is content under other
    /// conditions: around what was found, or where it was looked for. Under the same conditions
    /// (`is_known`) nothing is simulated twice.
    ///
    /// # Errors
    /// The first error of a simulation.
    pub fn fewest(
        &self,
        replicates: &Replicates,
        most: u32,
        is_known: bool,
        is_yes: &(dyn Fn(&Fleet) -> bool + Sync),
        progress: &Progress,
    ) -> Result<Option<u32>> {
        let known: Known = self.tried.iter().filter(|_| is_known).cloned().collect();
        let search = Looking { replicates, progress, most, is_yes, known: Mutex::new(known) };
        let start = match self.smallest.as_ref().or(self.beyond.as_ref()) {
            Some(near) => search.around(near)?,
            None => search.together(self.gave_up.is_none())?.0,
        };
        let found = start.map(|start| search.smallest(&start)).transpose()?;
        Ok(found.map(|sizes| all(&sizes)).filter(|replicas| *replicas <= most))
    }

    /// The fleet of these sizes, if it was simulated.
    #[must_use]
    pub fn of_sizes(&self, sizes: &[u32]) -> Option<&Fleet> {
        self.tried.iter().find(|(tried, _)| tried == sizes).map(|(_, fleet)| fleet)
    }

    /// The answer with one replica less, and with one more, in each pool: the pool, and the fleet
    /// if it was simulated. A pool of one has none with less.
    #[must_use]
    pub fn neighbours(&self, by: i32) -> Vec<(usize, Option<&Fleet>)> {
        let Some(smallest) = &self.smallest else { return Vec::new() };
        let neighbour = |pool: usize| {
            let sizes = (i64::from(smallest[pool]) + i64::from(by) > 0)
                .then(|| changed(smallest, pool, by));
            (pool, sizes.and_then(|sizes| self.of_sizes(&sizes)))
        };
        (0..smallest.len()).map(neighbour).collect()
    }

    /// Fleets that fail although each of their pools is as large as in the answer or larger.
    #[must_use]
    pub fn failing_above_answer(&self) -> Vec<&Sizes> {
        let Some(smallest) = &self.smallest else { return Vec::new() };
        let is_above =
            |sizes: &Sizes| sizes.iter().zip(smallest).all(|(size, least)| size >= least);
        let failing = self.tried.iter().filter(|(sizes, fleet)| is_above(sizes) && !fleet.met());
        failing.map(|(sizes, _)| sizes).collect()
    }
}

/// The same sizes with so many more in one pool.
fn changed(sizes: &[u32], pool: usize, by: i32) -> Sizes {
    let mut sizes = sizes.to_vec();
    sizes[pool] = sizes[pool].saturating_add_signed(by);
    sizes
}

/// Replicas of all pools.
fn all(sizes: &[u32]) -> u32 {
    sizes.iter().sum()
}

/// A search under way.
struct Looking<'a> {
    replicates: &'a Replicates,
    progress: &'a Progress,
    most: u32,
    is_yes: &'a (dyn Fn(&Fleet) -> bool + Sync),
    known: Mutex<Known>,
}

impl Looking<'_> {
    fn ask(&self, sizes: &[u32]) -> Result<Fleet> {
        let lock = || self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(fleet) = lock().get(sizes) {
            return Ok(fleet.clone());
        }
        let replicas = all(sizes);
        let replicates = self.replicates.changed(|case| case.with_pools(sizes))?;
        let fleet = replicates.judge(replicas, self.progress)?;
        lock().insert(sizes.to_vec(), fleet.clone());
        Ok(fleet)
    }

    fn pools(&self) -> usize {
        self.replicates.case().scenario.pools.len()
    }

    /// Replicas of each pool if all have the same.
    fn each(&self) -> u32 {
        (self.most / self.pools() as u32).max(1)
    }

    /// Replicas of a pool if every other one has one.
    fn largest(&self) -> u32 {
        let pools = self.pools() as u32;
        let alone = (self.most + 1).saturating_sub(pools);
        alone.min(TRIED_MAX / pools).max(self.each())
    }

    /// All pools alike: the smallest size, if there is one, and why no larger one was tried. Within
    /// the limit first; beyond it only if `is_wide`.
    fn together(&self, is_wide: bool) -> Result<(Option<Sizes>, Option<GaveUp>)> {
        let pools = self.pools();
        let targets = &self.replicates.case().targets;
        let mut sizes = Boundary::default();
        let beyond = is_wide.then(|| (self.each(), self.largest()));
        for (first, most) in [(1, self.each())].into_iter().chain(beyond) {
            let found = sizes.find(&Question {
                ask: &|each| self.ask(&vec![each; pools]),
                is_yes: &|fleet| (self.is_yes)(fleet),
                first,
                most,
                tolerance: &|_| 0,
                gives_up: &|asked| gave_up(targets, asked).is_some(),
            })?;
            if let Some(each) = found {
                return Ok((Some(vec![each; pools]), None));
            }
            if sizes.asked.keys().next_back().copied() < Some(most) {
                return Ok((None, gave_up(targets, &sizes.asked)));
            }
        }
        Ok((None, None))
    }

    /// From these sizes on: more in all pools until the answer is yes, and where the limit does not
    /// leave that, all pools with the most that one can have.
    fn around(&self, near: &[u32]) -> Result<Option<Sizes>> {
        let mut sizes = near.to_vec();
        let largest: Sizes = near.iter().map(|&size| size.max(self.largest())).collect();
        while !(self.is_yes)(&self.ask(&sizes)?) {
            if sizes == largest {
                return Ok(None);
            }
            sizes.iter_mut().for_each(|size| *size += (*size / 4).max(1));
            if all(&sizes) > self.most {
                sizes.clone_from(&largest);
            }
        }
        Ok(Some(sizes))
    }

    /// The smaller of what comes out of both orders; the first if both are alike.
    fn smallest(&self, start: &[u32]) -> Result<Sizes> {
        let order: Vec<usize> = (0..start.len()).collect();
        let opposite: Vec<usize> = order.iter().rev().copied().collect();
        let one = self.down(start.to_vec(), &order)?;
        let other = self.down(start.to_vec(), &opposite)?;
        Ok(if all(&other) < all(&one) { other } else { one })
    }

    /// One pool after the other is brought down, as long as one can be.
    fn down(&self, mut sizes: Sizes, order: &[usize]) -> Result<Sizes> {
        loop {
            let before = sizes.clone();
            for &pool in order {
                sizes[pool] = self.least(&sizes, pool)?;
            }
            if sizes == before {
                match self.exchanged(&sizes)? {
                    Some(fewer) => sizes = fewer,
                    None => return Ok(sizes),
                }
            }
        }
    }

    /// The smallest size of one pool, the others as they are; it is large enough.
    fn least(&self, sizes: &[u32], pool: usize) -> Result<u32> {
        let of = |size: u32| {
            let mut sizes = sizes.to_vec();
            sizes[pool] = size;
            sizes
        };
        let found = Boundary::default().find(&Question {
            ask: &|size| self.ask(&of(size)),
            is_yes: &|fleet| (self.is_yes)(fleet),
            first: sizes[pool],
            most: sizes[pool],
            tolerance: &|_| 0,
            gives_up: &|_| false,
        })?;
        Ok(found.unwrap_or(sizes[pool]))
    }

    /// Two less in one pool and one more in another, if that is enough as well.
    fn exchanged(&self, sizes: &[u32]) -> Result<Option<Sizes>> {
        for less in (0..sizes.len()).filter(|&pool| sizes[pool] > 2) {
            for more in (0..sizes.len()).filter(|&pool| pool != less) {
                let fewer = changed(&changed(sizes, less, -2), more, 1);
                if (self.is_yes)(&self.ask(&fewer)?) {
                    return Ok(Some(fewer));
                }
            }
        }
        Ok(None)
    }
}
