//! Many equal steps at once.
//!
//! While a batch does not change, every step takes the same number of ticks longer than the one
//! before, so the engine names the end of the last one and is idle until then. What comes in
//! between is settled as far as steps have begun.

use crate::engine::batch::Slot;
use crate::engine::request::{DecodeShare, Level};
use crate::engine::step_time::{Series, Ticks};
use crate::units::{Blocks, Time, Tokens};

use super::lockstep::LockStep;

/// Steps that follow the running one and do the same.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct Skip {
    /// When the first of them starts.
    pub(super) at: Time,
    /// How many of them there are.
    pub(super) steps: u64,
    pub(super) series: Series,
    /// The tick of the first of them.
    pub(super) tick: u64,
    pub(super) members: u64,
    /// By how much the members' contexts grow a step, up to the window.
    pub(super) windowed: u64,
    /// Blocks held in the step before those that were told.
    pub(super) used: u64,
    /// How many were told.
    pub(super) told: u64,
    /// Whether the last of them decides otherwise than the others.
    pub(super) open: bool,
    /// Whether what the last of them decides is told, so that it is taken when it starts.
    pub(super) shows: bool,
    pub(super) chunk: Option<Chunk>,
    /// The decodes' part, if the steps also prefill.
    pub(super) decode: Option<Series>,
}

/// A prompt of which each step prefills as much.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chunk {
    pub(super) slot: Slot,
    pub(super) tokens: u64,
    /// Tokens computed before the first of the steps.
    pub(super) before: u64,
}

impl Chunk {
    /// Blocks that it takes in `steps` steps behind the first `from`.
    pub(super) fn blocks(&self, from: u64, steps: u64, block_size: u64) -> u64 {
        let upto = |step: u64| Tokens(self.before + step * self.tokens).blocks_ceil(block_size).0;
        upto(from + steps) - upto(from)
    }

    /// Blocks that it takes in each step from number `from` on.
    fn blocks_from(&self, from: u64, block_size: u64) -> impl Iterator<Item = u64> + use<> {
        let computed = self.before + from * self.tokens;
        // Tokens that the last block has room for.
        let mut room = Tokens(computed).blocks_ceil(block_size).0 * block_size - computed;
        let (whole, rest) = (self.tokens / block_size, self.tokens % block_size);
        std::iter::repeat_with(move || {
            if rest > room {
                room += block_size - rest;
                whole + 1
            } else {
                room -= rest;
                whole
            }
        })
    }
}

impl Skip {
    /// When step number `step` of them starts.
    pub(super) fn start(&self, step: u64) -> Time {
        if step == 0 {
            return self.at;
        }
        self.at + self.series.sum(step)
    }

    /// The ticks of step number `step`.
    pub(super) fn ticks(&self, step: u64) -> Ticks {
        Ticks(self.series.first.0 + u128::from(step) * self.series.slope.0)
    }

    /// How many of them start before `now`.
    pub(super) fn begun(&self, now: Time) -> u64 {
        self.series.begun(now.saturating_since(self.at), self.steps)
    }

    /// The decodes' part of the steps from number `first` on.
    pub(super) fn decode_share(&self, first: u64) -> DecodeShare {
        match (&self.chunk, &self.decode) {
            (None, _) => DecodeShare::All,
            (Some(_), None) => DecodeShare::None,
            (Some(_), Some(decode)) => DecodeShare::Part(decode.skip(first)),
        }
    }

    /// All steps before number `upto` are told: appends how many blocks they hold.
    pub(super) fn tell(
        &mut self,
        upto: u64,
        lock: &LockStep,
        block_size: u64,
        cycle: &mut Vec<(u64, u64)>,
        levels: &mut Vec<Level>,
    ) {
        let first = self.told;
        match self.chunk {
            Some(chunk) => {
                let members = lock.blocks_from(self.tick + first);
                let taken = chunk.blocks_from(first, block_size).zip(members);
                let mut used = self.used;
                levels.extend(taken.take((upto - first) as usize).map(|(chunk, members)| {
                    used += chunk + members;
                    Level { steps: 1, used_blocks: Blocks(used) }
                }));
                self.used = used;
            }
            None => self.tell_decodes(upto - first, lock, cycle, levels),
        }
        self.told = upto;
    }

    /// Appends the blocks held in the next `steps` steps, in which only decodes take any. `cycle`
    /// is room to work in.
    fn tell_decodes(
        &mut self,
        steps: u64,
        lock: &LockStep,
        cycle: &mut Vec<(u64, u64)>,
        levels: &mut Vec<Level>,
    ) {
        let (mut told, mut used) = (0, self.used);
        let mut take = |step: u64, taken: u64| {
            if step > told {
                levels.push(Level { steps: step - told, used_blocks: Blocks(used) });
                told = step;
            }
            used += taken;
        };
        // Each member takes a block again as many steps later as a block has tokens.
        let length = lock.cycle();
        let tick = self.tick + self.told;
        if steps <= length {
            lock.each_taken(tick, steps, take);
        } else {
            cycle.clear();
            lock.each_taken(tick, length, |step, taken| cycle.push((step, taken)));
            for first in (0..steps).step_by(length as usize) {
                let cycle = cycle.iter().take_while(|(offset, _)| first + offset < steps);
                cycle.for_each(|(offset, taken)| take(first + offset, *taken));
            }
        }
        self.used = used;
        levels.push(Level { steps: steps - told, used_blocks: Blocks(self.used) });
    }
}
