//! Who has the least key, at hand while keys change.
//!
//! Keys stand in groups of eight, and so do the least keys of the groups, up to one group. A change
//! is looked at in its own groups only, up to where the least is what it was, and no outdated entry
//! is left behind.

/// The key of an entrant that is out of it.
pub(super) const OUT: u64 = u64::MAX;

/// Most entries of a group.
const GROUP: usize = 8;

/// Entrants with keys.
#[derive(Debug)]
pub(super) struct Tournament {
    /// Keys by entrant, then the least keys of their groups, and so on; the last is one group.
    levels: Vec<Vec<u64>>,
    /// Who has the least key, and that key; among equal keys the lower number.
    first: (u32, u64),
}

impl Tournament {
    /// So many entrants, all with this key.
    pub(super) fn new(entrants: u32, key: u64) -> Self {
        let mut levels = vec![vec![key; entrants as usize]];
        while let Some(keys) = levels.last()
            && keys.len() > GROUP
        {
            levels.push(keys.chunks(GROUP).map(least).collect());
        }
        Self { levels, first: (0, key) }
    }

    /// So many entrants, of whom the new ones have no key.
    pub(super) fn grow(&mut self, entrants: u32) {
        let mut grown = Self::new(entrants, OUT);
        for (entrant, &key) in (0..entrants).zip(&self.levels[0]) {
            grown.set(entrant, key);
        }
        *self = grown;
    }

    /// An entrant has this key from now on.
    pub(super) fn set(&mut self, entrant: u32, key: u64) {
        if self.key(entrant) == key {
            return;
        }
        let (mut place, mut lower) = (entrant as usize, key);
        for at in 0..self.levels.len() {
            let keys = &mut self.levels[at];
            if keys[place] == lower {
                break;
            }
            keys[place] = lower;
            if at + 1 < self.levels.len() {
                place /= GROUP;
                lower = least(group(&self.levels[at], place));
            }
        }
        let (first, first_key) = self.first;
        if key < first_key || (key == first_key && entrant < first) {
            self.first = (entrant, key);
        } else if entrant == first {
            self.look_for_first();
        }
    }

    fn look_for_first(&mut self) {
        let mut place = 0;
        for keys in self.levels.iter().rev() {
            let group = group(keys, place);
            let (mut lowest, mut found) = (group[0], 0);
            for (at, &key) in group.iter().enumerate().skip(1) {
                if key < lowest {
                    (lowest, found) = (key, at);
                }
            }
            place = place * GROUP + found;
            self.first = (place as u32, lowest);
        }
    }

    /// The key of an entrant.
    pub(super) fn key(&self, entrant: u32) -> u64 {
        self.levels[0][entrant as usize]
    }

    /// Who has the least key, and that key.
    #[inline]
    pub(super) fn first(&self) -> (u32, u64) {
        self.first
    }
}

/// A group by its number.
fn group(keys: &[u64], number: usize) -> &[u64] {
    let from = number * GROUP;
    &keys[from..keys.len().min(from + GROUP)]
}

fn least(keys: &[u64]) -> u64 {
    keys.iter().fold(OUT, |least, &key| least.min(key))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_is_found_whatever_changes() {
        for entrants in [1u32, 2, 7, 8, 9, 64, 65, 513] {
            let mut tournament = Tournament::new(entrants, 5);
            let mut plain = vec![5; entrants as usize];
            assert_eq!(tournament.first(), (0, 5));
            for step in 0..3_000u64 {
                let mixed = step.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 30;
                let entrant = (mixed % u64::from(entrants)) as u32;
                let key = if mixed.is_multiple_of(11) { OUT } else { mixed / 1_024 % 40 };
                // Now and then it is the first that changes.
                let entrant = if step % 3 == 0 { tournament.first().0 } else { entrant };
                tournament.set(entrant, key);
                plain[entrant as usize] = key;
                let first = (0..).zip(&plain).min_by_key(|(number, key)| (**key, *number));
                assert_eq!(tournament.first(), first.map(|(number, key)| (number, *key)).unwrap());
                assert_eq!(tournament.key(entrant), key);
            }
        }
    }
}
