//! What keeps the head of the waiting queue out.

use super::batch::Slot;

/// Why the head of the waiting queue was not admitted, so that it need not be asked again while
/// nothing has changed for it: blocks have only been taken since, no block that would make its hit
/// longer has been cached, and a step would compute no fewer tokens of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Blocked {
    pub(super) slot: Slot,
    pub(super) released: u64,
    /// The block that would make its hit longer, if it may be longer.
    pub(super) next: Option<u64>,
    /// With a smaller budget its first tokens may fit; zero if its whole length does not.
    pub(super) budget: u64,
}
