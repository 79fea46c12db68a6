//! Who has the least key, at hand while keys change.
//!
//! Every entrant's key is a leaf, and every node above knows the lesser of its two. A change costs
//! a walk to the root, and no outdated entry is left behind.

/// The key of an entrant that is out of it.
pub(super) const OUT: u64 = u64::MAX;

/// Entrants with keys.
#[derive(Debug)]
pub(super) struct Tournament {
    /// By entrant, and filled up to a power of two.
    keys: Vec<u64>,
    /// By node, from the root at 1: the entrant that comes first below it.
    first: Vec<u32>,
}

impl Tournament {
    /// So many entrants, all with this key.
    pub(super) fn new(entrants: u32, key: u64) -> Self {
        let leaves = entrants.next_power_of_two();
        let mut first: Vec<u32> = vec![0; leaves as usize];
        first.extend(0..leaves);
        let keys = (0..leaves).map(|leaf| if leaf < entrants { key } else { OUT }).collect();
        let mut tournament = Self { keys, first };
        for node in (1..leaves as usize).rev() {
            tournament.first[node] = tournament.lesser_below(node);
        }
        tournament
    }

    /// So many entrants, of whom the new ones have no key.
    pub(super) fn grow(&mut self, entrants: u32) {
        let mut grown = Self::new(entrants, OUT);
        for (entrant, &key) in (0..entrants).zip(&self.keys) {
            grown.set(entrant, key);
        }
        *self = grown;
    }

    /// Among equal keys the lower number comes first.
    fn lesser_below(&self, node: usize) -> u32 {
        let (left, right) = (self.first[2 * node], self.first[2 * node + 1]);
        if self.keys[right as usize] < self.keys[left as usize] { right } else { left }
    }

    /// An entrant has this key from now on.
    pub(super) fn set(&mut self, entrant: u32, key: u64) {
        if self.keys[entrant as usize] == key {
            return;
        }
        self.keys[entrant as usize] = key;
        let mut node = (self.keys.len() + entrant as usize) / 2;
        while node > 0 {
            self.first[node] = self.lesser_below(node);
            node /= 2;
        }
    }

    /// The key of an entrant.
    pub(super) fn key(&self, entrant: u32) -> u64 {
        self.keys[entrant as usize]
    }

    /// Who has the least key, and that key.
    pub(super) fn first(&self) -> (u32, u64) {
        let entrant = if self.keys.len() == 1 { 0 } else { self.first[1] };
        (entrant, self.keys[entrant as usize])
    }
}
