//! Who has the least key, at hand while keys change.
//!
//! Keys stand in groups of eight, and so do the least keys of the groups, up to one group. A change
//! is looked at in its own groups only, up to where the least is what it was, and no outdated entry
//! is left behind.

/// The key of an entrant that is out of it.
pub(super) const OUT: u64 = u64::MAX;

/// Most entries of a group.
const GROUP: usize = 8;

/// The keys of a group; where there are fewer entries, the rest is out.
type Group = [u64; GROUP];

/// Entrants with keys.
#[derive(Debug)]
pub(super) struct Tournament {
    /// Keys by entrant, then the least keys of their groups, and so on; the last is one group.
    levels: Vec<Vec<Group>>,
    entrants: u32,
    /// Who has the least key, and that key; among equal keys the lower number.
    first: (u32, u64),
}

impl Tournament {
    /// So many entrants, all with this key.
    pub(super) fn new(entrants: u32, key: u64) -> Self {
        let mut levels = vec![grouped(&vec![key; entrants as usize])];
        while let Some(groups) = levels.last()
            && groups.len() > 1
        {
            let keys: Vec<u64> = groups.iter().map(|group| least(group).1).collect();
            levels.push(grouped(&keys));
        }
        Self { levels, entrants, first: (0, key) }
    }

    /// So many entrants, of whom the new ones have no key.
    pub(super) fn grow(&mut self, entrants: u32) {
        let mut grown = Self::new(entrants, OUT);
        for entrant in 0..entrants.min(self.entrants) {
            grown.set(entrant, self.key(entrant));
        }
        *self = grown;
    }

    /// An entrant has this key from now on.
    #[inline]
    pub(super) fn set(&mut self, entrant: u32, key: u64) {
        if let [groups] = &mut self.levels[..]
            && let [group] = &mut groups[..]
        {
            // Few entrants: nearly always.
            group[entrant as usize % GROUP] = key;
            let (first, lowest) = least(group);
            self.first = (first as u32, lowest);
            return;
        }
        self.set_in_levels(entrant, key);
    }

    fn set_in_levels(&mut self, entrant: u32, key: u64) {
        let (mut place, mut lower) = (entrant as usize, key);
        for groups in &mut self.levels {
            let group = &mut groups[place / GROUP];
            if group[place % GROUP] == lower {
                break;
            }
            group[place % GROUP] = lower;
            (place, lower) = (place / GROUP, least(group).1);
        }
        let (first, first_key) = self.first;
        if (key, entrant) < (first_key, first) {
            self.first = (entrant, key);
        } else if entrant == first {
            self.look_for_first();
        }
    }

    fn look_for_first(&mut self) {
        let mut place = 0;
        for groups in self.levels.iter().rev() {
            let (found, lowest) = least(&groups[place]);
            place = place * GROUP + found;
            self.first = (place as u32, lowest);
        }
    }

    /// The key of an entrant.
    pub(super) fn key(&self, entrant: u32) -> u64 {
        let place = entrant as usize;
        self.levels[0][place / GROUP][place % GROUP]
    }

    /// Who has the least key, and that key.
    #[inline]
    pub(super) fn first(&self) -> (u32, u64) {
        self.first
    }
}

fn grouped(keys: &[u64]) -> Vec<Group> {
    let group = |keys: &[u64]| {
        let mut group = [OUT; GROUP];
        group[..keys.len()].copy_from_slice(keys);
        group
    };
    keys.chunks(GROUP).map(group).collect()
}

/// The least key of a group with its place, the first of several.
#[inline]
fn least(group: &Group) -> (usize, u64) {
    let (mut found, mut lowest) = (0, group[0]);
    for (at, &key) in group.iter().enumerate().skip(1) {
        (found, lowest) = if key < lowest { (at, key) } else { (found, lowest) };
    }
    (found, lowest)
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
