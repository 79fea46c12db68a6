//! Where the last sample fell: the next one is often in the same place, and need not look for it.

/// A place with the least and the greatest sample that belong there.
#[derive(Clone, Copy, Debug)]
pub(super) struct Nearby {
    pub(super) place: usize,
    pub(super) least: u64,
    pub(super) most: u64,
}

impl Nearby {
    #[inline]
    pub(super) fn holds(&self, sample: u64) -> bool {
        self.least <= sample && sample <= self.most
    }
}

impl Default for Nearby {
    /// A place to which no sample belongs.
    fn default() -> Self {
        Self { place: 0, least: 1, most: 0 }
    }
}
