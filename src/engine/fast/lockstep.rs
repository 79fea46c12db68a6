//! Requests that decode in lock step: each computes one token in every step, so one counter moves
//! them all.
//!
//! The counter is the *tick*, the number of the scheduling. A member has computed
//! `tick + offset` tokens before that tick's scheduling. What a step needs to know of all members
//! together are sums that change only when somebody joins or leaves, so a step costs the same
//! however many decode.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use rustc_hash::FxHashMap;

use crate::engine::batch::Slot;
use crate::engine::step_time::Reach;
use crate::units::SegmentId;

/// One member.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Member {
    /// Tokens computed before a tick, less the tick.
    pub(super) offset: i64,
    /// The tick whose outputs were its last before it joined.
    pub(super) since: u64,
    /// Its outputs with those.
    pub(super) outputs: u64,
    /// The tick whose outputs end it.
    pub(super) finish: u64,
    /// Whether the scheduler knows that end beforehand.
    pub(super) foreseen: bool,
    /// Whether its context is within the attention window, as it is always in chunks.
    within: bool,
    /// The offset of what windowed layers see of it, while it is.
    seen: i64,
    /// Whether it is a member now.
    active: bool,
}

/// What never comes.
pub(super) const NEVER: u64 = u64::MAX;

/// Who waits for which tick: the tick, the order of joining, who.
#[derive(Debug)]
struct Agenda {
    /// The first tick of them: it is asked for in every step.
    first: u64,
    waiting: BinaryHeap<Reverse<(u64, u64, Slot)>>,
}

impl Agenda {
    fn new() -> Self {
        Self { first: NEVER, waiting: BinaryHeap::new() }
    }

    fn push(&mut self, tick: u64, joined: u64, slot: Slot) {
        self.first = self.first.min(tick);
        self.waiting.push(Reverse((tick, joined, slot)));
    }

    /// The first of them, if it waits for this tick or for one before.
    fn pop(&mut self, tick: u64) -> Option<(u64, Slot)> {
        if self.first > tick {
            return None;
        }
        let Reverse((tick, _, slot)) = self.waiting.pop()?;
        self.look();
        Some((tick, slot))
    }

    fn remove(&mut self, slot: Slot) {
        self.waiting.retain(|Reverse((_, _, other))| *other != slot);
        self.look();
    }

    fn clear(&mut self) {
        self.waiting.clear();
        self.first = NEVER;
    }

    fn look(&mut self) {
        self.first = self.waiting.peek().map_or(NEVER, |Reverse((tick, _, _))| *tick);
    }
}

/// All members. What every step needs comes first.
#[derive(Debug)]
#[repr(C)]
pub(super) struct LockStep {
    /// The number of the last scheduling.
    pub(super) tick: u64,
    count: u64,
    offsets: i64,
    within: u64,
    within_offsets: i64,
    /// Members by the remainder of their offset: those of one remainder take a block together.
    phases: Box<[u32]>,
    /// What is left of a number after whole blocks, where blocks are a power of two.
    mask: Option<u64>,
    window: Option<Reach>,
    finishing: Agenda,
    /// When members outgrow the attention window, or begin another chunk.
    outgrowing: Agenda,
    members: Vec<Member>,
    /// The members that write segments, each of which later lookups may reach.
    pub(super) writers: FxHashMap<SegmentId, Slot>,
    joined: u64,
    block_size: u64,
}

impl LockStep {
    pub(super) fn new(block_size: u64, window: Option<Reach>) -> Self {
        Self {
            block_size,
            mask: block_size.is_power_of_two().then(|| block_size - 1),
            window,
            tick: 0,
            members: Vec::new(),
            count: 0,
            offsets: 0,
            phases: vec![0; block_size as usize].into_boxed_slice(),
            within: 0,
            within_offsets: 0,
            finishing: Agenda::new(),
            outgrowing: Agenda::new(),
            writers: FxHashMap::default(),
            joined: 0,
        }
    }

    /// Nobody is in lock step any more.
    pub(super) fn clear(&mut self) {
        self.members.clear();
        self.phases.fill(0);
        (self.count, self.offsets) = (0, 0);
        (self.within, self.within_offsets) = (0, 0);
        self.finishing.clear();
        self.outgrowing.clear();
        self.writers.clear();
    }

    #[inline]
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// How often anybody has joined.
    pub(super) fn joined(&self) -> u64 {
        self.joined
    }

    #[inline]
    pub(super) fn is_member(&self, slot: Slot) -> bool {
        self.members.get(slot as usize).is_some_and(|member| member.active)
    }

    /// What is known of a request that is or was a member.
    #[inline]
    pub(super) fn member(&self, slot: Slot) -> Member {
        self.members[slot as usize]
    }

    /// Moves on to later schedulings.
    #[inline]
    pub(super) fn advance(&mut self, ticks: u64) {
        self.tick += ticks;
        if self.outgrowing.first <= self.tick {
            self.outgrow();
        }
    }

    fn outgrow(&mut self) {
        while let Some((tick, slot)) = self.outgrowing.pop(self.tick) {
            match self.window {
                // Whoever is in the slot now may be somebody else.
                Some(Reach::Sliding(window))
                    if window as i64 - self.members[slot as usize].offset == tick as i64 =>
                {
                    self.leave_window(slot);
                }
                Some(Reach::Chunked(chunk)) => self.begin_chunk(slot, tick, chunk),
                Some(Reach::Sliding(_)) | None => {}
            }
        }
    }

    fn leave_window(&mut self, slot: Slot) {
        let member = &mut self.members[slot as usize];
        if member.active && member.within {
            member.within = false;
            self.within -= 1;
            self.within_offsets -= member.seen;
        }
    }

    /// A member may begin a chunk at this tick: what it sees starts anew.
    fn begin_chunk(&mut self, slot: Slot, tick: u64, chunk: u64) {
        let member = &mut self.members[slot as usize];
        let computed = tick as i64 + member.seen;
        // Whoever is in the slot now may be somebody else, or have begun it before.
        if member.active && computed == chunk as i64 {
            member.seen -= chunk as i64;
            self.within_offsets -= chunk as i64;
            self.joined += 1;
            self.outgrowing.push(tick + chunk, self.joined, slot);
        }
    }

    /// A request decodes from this tick on, with `computed` tokens before it and `outputs` after
    /// the tick before. Its `left` more outputs end it.
    pub(super) fn join(
        &mut self,
        slot: Slot,
        computed: u64,
        outputs: u64,
        left: u64,
        foreseen: bool,
    ) {
        if self.members.len() <= slot as usize {
            self.members.resize(slot as usize + 1, Member::default());
        }
        let offset = computed as i64 - self.tick as i64;
        let since = self.tick - 1;
        let finish = since + left;
        // What windowed layers see of it, and the tokens after which they see something else.
        let (seen, until) = match self.window {
            Some(Reach::Sliding(window)) => (computed, window),
            Some(Reach::Chunked(chunk)) => (computed % chunk, chunk),
            None => (computed, 0),
        };
        let within = seen < until;
        let first = seen as i64 - self.tick as i64;
        self.members[slot as usize] =
            Member { offset, since, outputs, finish, foreseen, within, seen: first, active: true };
        self.count += 1;
        self.offsets += offset;
        let phase = self.phase(offset);
        self.phases[phase] += 1;
        self.joined += 1;
        // One that ends with the outputs of the tick before ends by itself.
        if left > 0 {
            self.finishing.push(finish, self.joined, slot);
        }
        if within {
            self.within += 1;
            self.within_offsets += first;
            self.outgrowing.push(self.tick + until - seen, self.joined, slot);
        }
    }

    /// A request is no member any more.
    pub(super) fn remove(&mut self, slot: Slot) {
        self.leave_window(slot);
        let member = &mut self.members[slot as usize];
        debug_assert!(member.active, "nobody leaves twice");
        member.active = false;
        let offset = member.offset;
        self.count -= 1;
        self.offsets -= offset;
        let phase = self.phase(offset);
        self.phases[phase] -= 1;
    }

    /// Appends those that the outputs of `tick` end, in the order of the running list.
    #[inline]
    pub(super) fn ending(&mut self, tick: u64, ending: &mut Vec<Slot>) {
        while let Some((at, slot)) = self.finishing.pop(tick) {
            debug_assert!(at == tick, "somebody should have ended before");
            ending.push(slot);
        }
    }

    /// A request that is no member any more will not come to its end.
    pub(super) fn forget_end(&mut self, slot: Slot) {
        self.finishing.remove(slot);
    }

    /// The tick whose outputs end a member first, or [`NEVER`].
    #[inline]
    pub(super) fn next_end(&self) -> u64 {
        self.finishing.first
    }

    /// The tick at which a member outgrows the window first, or [`NEVER`].
    #[inline]
    pub(super) fn next_outgrown(&self) -> u64 {
        self.outgrowing.first
    }

    /// Tokens that a member has computed before this tick's scheduling.
    #[inline]
    pub(super) fn computed(&self, slot: Slot) -> u64 {
        (self.tick as i64 + self.members[slot as usize].offset) as u64
    }

    /// The remainder of the offsets of those that take a block at a tick.
    #[inline]
    fn remainder(&self, tick: u64) -> usize {
        self.phase(-(tick as i64))
    }

    /// The remainder of an offset: fast where the size of blocks is a power of two.
    #[inline]
    fn phase(&self, offset: i64) -> usize {
        match self.mask {
            Some(mask) => (offset as u64 & mask) as usize,
            None => offset.rem_euclid(self.block_size as i64) as usize,
        }
    }

    /// Blocks that members take in the last scheduling.
    #[inline]
    pub(super) fn blocks_now(&self) -> u64 {
        u64::from(self.phases[self.remainder(self.tick)])
    }

    /// Ticks after which each member takes a block again.
    pub(super) fn cycle(&self) -> u64 {
        self.block_size
    }

    /// Blocks that members take at each tick from `tick` on.
    pub(super) fn blocks_from(&self, tick: u64) -> impl Iterator<Item = u64> + '_ {
        let (phases, last) = (&*self.phases, self.phases.len() - 1);
        let mut remainder = self.remainder(tick);
        std::iter::repeat_with(move || {
            let taken = u64::from(phases[remainder]);
            remainder = if remainder == 0 { last } else { remainder - 1 };
            taken
        })
    }

    /// The blocks that members take at each of `ticks` ticks from `tick` on, where they take any:
    /// by how many ticks later, and how many. No more ticks than a cycle has.
    pub(super) fn each_taken(&self, tick: u64, ticks: u64, mut taken: impl FnMut(u64, u64)) {
        debug_assert!(ticks <= self.block_size, "a cycle, but {ticks} ticks");
        // From tick to tick the remainder falls by one.
        let (last, first) = self.phases.split_at(self.remainder(tick) + 1);
        let mut later = 0;
        for phases in [last, first] {
            for &phase in phases.iter().rev().take((ticks - later) as usize) {
                if phase > 0 {
                    taken(later, u64::from(phase));
                }
                later += 1;
            }
        }
    }

    /// The most blocks that members may take in the next `ticks` schedulings.
    pub(super) fn blocks_in_at_most(&self, ticks: u64) -> u64 {
        (ticks / self.block_size + 1).saturating_mul(self.count)
    }

    /// Blocks that members take in the next `ticks` schedulings.
    pub(super) fn blocks_in(&self, ticks: u64) -> u64 {
        let (cycles, rest) = (ticks / self.block_size, (ticks % self.block_size) as usize);
        let sum = |phases: &[u32]| u64::from(phases.iter().sum::<u32>());
        // From tick to tick the remainder falls by one.
        let behind = self.remainder(self.tick + 1) + 1;
        let some = match behind.checked_sub(rest) {
            Some(from) => sum(&self.phases[from..behind]),
            None => {
                let from = self.phases.len() - (rest - behind);
                sum(&self.phases[..behind]) + sum(&self.phases[from..])
            }
        };
        cycles * self.count + some
    }

    /// The sum of the members' contexts in this tick's step, and the same up to the window.
    #[inline]
    pub(super) fn contexts(&self) -> (u64, u64) {
        let next = self.tick as i64 + 1;
        let all = (self.count as i64 * next + self.offsets) as u64;
        let within = (self.within as i64 * next + self.within_offsets) as u64;
        match self.window {
            Some(Reach::Sliding(window)) => (all, within + (self.count - self.within) * window),
            Some(Reach::Chunked(_)) => (all, within),
            None => (all, all),
        }
    }

    /// By how much these sums grow from tick to tick.
    #[inline]
    pub(super) fn growth(&self) -> (u64, u64) {
        (self.count, if self.window.is_some() { self.within } else { self.count })
    }
}
