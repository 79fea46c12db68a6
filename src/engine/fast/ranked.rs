//! Skipping steps as one rank of several, which decide together how far.

use crate::engine::step_time::Series;
use crate::units::{Blocks, Time};

use super::FastEngine;
use super::skip::Skip;

impl FastEngine {
    /// How many steps behind the running one only decode the same requests.
    pub(super) fn equal_decodes(&self) -> u64 {
        let Some(None) = self.repeated_rows() else { return 0 };
        self.equal_schedulings(None).map_or(0, |decided| self.with_blocks(decided, None))
    }

    /// Skips so many of these; `used` blocks were held when the running step began.
    pub(super) fn skip_decodes(&mut self, at: Time, steps: u64, series: Series, used: Blocks) {
        let (members, windowed) = self.lock.growth();
        self.skip = Some(Skip {
            at,
            steps,
            open: false,
            shows: false,
            series,
            decode: None,
            tick: self.running.tick + 1,
            members,
            windowed,
            chunk: None,
            used: used.0,
            told: 0,
        });
    }
}
