//! The ids of the sessions so far.

use std::collections::BTreeMap;

use rustc_hash::FxHashSet;

use crate::trace::record::Name;

/// So many kinds of ids may count up; random ones that end in a digit are no kind.
const PREFIXES_MAX: usize = 64;

/// Ids of sessions. Those that count up, as importers make them (`s000001`, `s000002`, ...), take
/// no memory each.
#[derive(Debug, Default)]
pub(super) struct Ids {
    /// By what stands before the digits: the first and the last number of those that were met
    /// without a hole, by how many digits these are.
    counted: BTreeMap<Name, Vec<Counted>>,
    /// How many there are of these.
    kinds: usize,
    others: FxHashSet<Name>,
}

/// Ids that count up, of so many digits behind what they begin with.
#[derive(Debug)]
struct Counted {
    digits: usize,
    first: u64,
    last: u64,
}

impl Counted {
    fn holds(&self, number: u64) -> bool {
        (self.first..=self.last).contains(&number)
    }
}

impl Ids {
    pub(super) fn knows(&self, id: &str) -> bool {
        let counted = parts(id).is_some_and(|(prefix, digits, number)| {
            let kinds = self.counted.get(prefix).map_or(&[][..], Vec::as_slice);
            kinds.iter().any(|kind| kind.digits == digits && kind.holds(number))
        });
        counted || !self.others.is_empty() && self.others.contains(id)
    }

    pub(super) fn add(&mut self, id: &Name) {
        if let Some((prefix, digits, number)) = parts(id)
            && let Some(counted) = self.kind(prefix, digits, number)
        {
            if counted.last + 1 == number {
                counted.last = number;
            }
            if counted.holds(number) {
                return;
            }
        }
        self.others.insert(Name::clone(id));
    }

    /// Ids like this one, which may be the first of them unless there are too many kinds.
    fn kind(&mut self, prefix: &str, digits: usize, number: u64) -> Option<&mut Counted> {
        let goes_on = self.kinds < PREFIXES_MAX;
        if goes_on && !self.counted.contains_key(prefix) {
            self.counted.insert(Name::from(prefix), Vec::new());
        }
        let kinds = self.counted.get_mut(prefix)?;
        let place = kinds.iter().position(|kind| kind.digits == digits);
        if place.is_none() && goes_on {
            self.kinds += 1;
            kinds.push(Counted { digits, first: number, last: number });
        }
        let place = place.or(kinds.len().checked_sub(1).filter(|_| place.is_none() && goes_on))?;
        kinds.get_mut(place)
    }
}

/// An id that ends in a number: what stands before, how many digits it has, and the number.
fn parts(id: &str) -> Option<(&str, usize, u64)> {
    let behind = id.bytes().rev().take_while(u8::is_ascii_digit).count();
    let (prefix, digits) = id.split_at(id.len() - behind);
    // At most 18 digits, which no number overflows.
    let number = if digits.len() > 18 { None } else { digits.parse().ok() };
    number.map(|number| (prefix, digits.len(), number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_known_whether_they_count_up_or_not() {
        let mut ids = Ids::default();
        let added = ["s008", "s009", "s010", "s012", "s011", "s1", "x", "s99999999999999999999"];
        for id in added {
            assert!(!ids.knows(id), "{id}");
            ids.add(&id.into());
            assert!(ids.knows(id), "{id}");
        }
        assert!(added.iter().all(|id| ids.knows(id)));
        assert!(["s007", "s013", "s0010", "s10", "s", "8"].iter().all(|id| !ids.knows(id)));
        assert_eq!(ids.others.len(), 3, "{ids:?}");
    }
}
