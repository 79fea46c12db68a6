//! Whether the timestamps of a file name their offset from UTC.

use super::time::UtcOffset;
use crate::diag::Warning;

/// How many rows of a file have a time with an offset, and how many one without.
#[derive(Debug, Default)]
pub(super) struct Offsets {
    with_offset: u64,
    naive: u64,
}

impl Offsets {
    /// Counts a row by its start.
    pub(super) fn note(&mut self, start: &[u8]) {
        // A date and time without an offset: 2026-11-29 16:41:29.788
        let time = start.get("2026-11-29T".len()..).unwrap_or_default();
        if time.iter().any(|byte| matches!(byte, b'Z' | b'z' | b'+' | b'-')) {
            self.with_offset += 1;
        } else {
            self.naive += 1;
        }
    }

    /// The warning for a file that has both.
    pub(super) fn warning(&self, file: &str, naive_at: UtcOffset) -> Option<Warning> {
        let Self { with_offset, naive } = self;
        (*with_offset > 0 && *naive > 0).then(|| {
            Warning(format!(
                "{file}: the times of {with_offset} rows name their offset from UTC and those of \
                 {naive} do not, which are taken to be at {naive_at} (--utc-offset)"
            ))
        })
    }
}
