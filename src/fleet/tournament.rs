//! Who has the least key, at hand while keys change.
//!
//! Every entrant is a leaf, and every node above holds the lesser of its two. A change costs a walk
//! towards the root, up to where nothing changes by it, and no outdated entry is left behind.

/// The key of an entrant that is out of it.
pub(super) const OUT: u64 = u64::MAX;

/// Entrants with keys.
#[derive(Debug)]
pub(super) struct Tournament {
    /// By node, from the root at 1: the least key below it and whose it is. The leaves fill the
    /// second half, up to a power of two.
    nodes: Vec<Entry>,
}

/// A key and behind it the entrant, as one number: it is compared without a branch, and among equal
/// keys the lower number comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Entry(u128);

impl Entry {
    fn new(key: u64, entrant: u32) -> Self {
        Self(u128::from(key) << 32 | u128::from(entrant))
    }

    fn key(self) -> u64 {
        (self.0 >> 32) as u64
    }

    fn entrant(self) -> u32 {
        self.0 as u32
    }
}

impl Tournament {
    /// So many entrants, all with this key.
    pub(super) fn new(entrants: u32, key: u64) -> Self {
        let leaves = entrants.next_power_of_two();
        let mut nodes = vec![Entry::new(OUT, 0); leaves as usize];
        let entry = |leaf| Entry::new(if leaf < entrants { key } else { OUT }, leaf);
        nodes.extend((0..leaves).map(entry));
        for node in (1..leaves as usize).rev() {
            nodes[node] = nodes[2 * node].min(nodes[2 * node + 1]);
        }
        Self { nodes }
    }

    fn leaf(&self, entrant: u32) -> usize {
        self.nodes.len() / 2 + entrant as usize
    }

    /// An entrant has this key from now on.
    pub(super) fn set(&mut self, entrant: u32, key: u64) {
        let mut node = self.leaf(entrant);
        let mut least = Entry::new(key, entrant);
        while self.nodes[node] != least {
            self.nodes[node] = least;
            if node == 1 {
                return;
            }
            least = least.min(self.nodes[node ^ 1]);
            node /= 2;
        }
    }

    /// The key of an entrant.
    pub(super) fn key(&self, entrant: u32) -> u64 {
        self.nodes[self.leaf(entrant)].key()
    }

    /// Who has the least key, and that key.
    pub(super) fn first(&self) -> (u32, u64) {
        let least = self.nodes[1];
        (least.entrant(), least.key())
    }
}
