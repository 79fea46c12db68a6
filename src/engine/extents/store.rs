//! Extents by number: those of a segment in the order of its blocks, copies of the same blocks by
//! age, and the free list.

use std::ops::{Index, IndexMut};

use rustc_hash::FxHashMap;

use crate::units::SegmentId;

/// End of a linked list.
pub(super) const NONE: u32 = u32::MAX;

/// Blocks `from` up to `to` of a segment, in one copy.
#[derive(Clone, Copy, Debug)]
pub(super) struct Extent {
    pub(super) segment: SegmentId,
    pub(super) from: u32,
    pub(super) to: u32,
    /// Requests that hold it. Without one it is on the free list.
    pub(super) holders: u32,
    /// Who computed it; 0 once it is gone.
    pub(super) mark: u64,
    /// Neighbours on the free list.
    previous: u32,
    next: u32,
    /// Copies of the same blocks.
    pub(super) older: u32,
    younger: u32,
    /// Of the oldest copy: the youngest one.
    youngest: u32,
    /// Of the oldest copy: the oldest ones of the blocks before and behind these.
    pub(super) below: u32,
    above: u32,
}

/// All extents of a cache.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Store {
    /// The free list; an extent on it is handed out from its end to its start.
    front: u32,
    back: u32,
    /// Blocks on it.
    listed: u64,
    /// Different blocks in all extents.
    contents: u64,
    extents: Vec<Extent>,
    unused: Vec<u32>,
    /// The oldest copy of the last cached blocks, by segment.
    tops: FxHashMap<SegmentId, u32>,
    /// How often an extent was looked at.
    #[cfg(test)]
    looked_at: std::cell::Cell<u64>,
}

impl Default for Store {
    fn default() -> Self {
        Self {
            extents: Vec::new(),
            unused: Vec::new(),
            tops: FxHashMap::default(),
            front: NONE,
            back: NONE,
            listed: 0,
            contents: 0,
            #[cfg(test)]
            looked_at: std::cell::Cell::default(),
        }
    }
}

impl Index<u32> for Store {
    type Output = Extent;
    fn index(&self, at: u32) -> &Extent {
        #[cfg(test)]
        self.looked_at.set(self.looked_at.get() + 1);
        &self.extents[at as usize]
    }
}

impl IndexMut<u32> for Store {
    fn index_mut(&mut self, at: u32) -> &mut Extent {
        #[cfg(test)]
        self.looked_at.set(self.looked_at.get() + 1);
        &mut self.extents[at as usize]
    }
}

impl Extent {
    fn blocks(&self) -> u64 {
        u64::from(self.to - self.from)
    }

    fn is_only_copy(&self) -> bool {
        self.older == NONE && self.younger == NONE
    }
}

impl Store {
    pub(super) fn listed(&self) -> u64 {
        self.listed
    }

    pub(super) fn contents(&self) -> u64 {
        self.contents
    }

    #[cfg(test)]
    pub(super) fn looked_at(&self) -> u64 {
        self.looked_at.get()
    }

    /// The oldest copy of the last cached blocks of a segment.
    pub(super) fn top(&self, segment: SegmentId) -> Option<u32> {
        self.tops.get(&segment).copied()
    }

    /// The oldest copy of a cached block.
    pub(super) fn oldest_with(&self, segment: SegmentId, block: u32) -> u32 {
        self.oldest_below(self.tops[&segment], block)
    }

    /// The same, with the top of the segment at hand.
    #[inline]
    pub(super) fn oldest_below(&self, top: u32, block: u32) -> u32 {
        let mut at = top;
        while self[at].from > block {
            at = self[at].below;
        }
        at
    }

    /// The copy of this mark that ends before block `to`; `hint` is looked at first.
    pub(super) fn copy_ending(&self, segment: SegmentId, to: u32, mark: u64, hint: u32) -> u32 {
        let fits = |at: u32| {
            let extent = self[at];
            extent.mark == mark && extent.to == to && extent.segment == segment
        };
        if hint != NONE && fits(hint) {
            return hint;
        }
        let mut at = self.oldest_with(segment, to - 1);
        while !fits(at) {
            at = self[at].younger;
        }
        at
    }

    fn add(&mut self, extent: Extent) -> u32 {
        if let Some(at) = self.unused.pop() {
            self[at] = extent;
            return at;
        }
        self.extents.push(extent);
        self.extents.len() as u32 - 1
    }

    /// An extent of its own that one request holds.
    fn held(segment: SegmentId, from: u32, to: u32, mark: u64) -> Extent {
        Extent {
            segment,
            from,
            to,
            holders: 1,
            mark,
            previous: NONE,
            next: NONE,
            older: NONE,
            younger: NONE,
            youngest: NONE,
            below: NONE,
            above: NONE,
        }
    }

    /// Cuts all copies of these blocks before block `block`. The oldest keeps the lower part; the
    /// upper part's oldest is above it.
    pub(super) fn cut(&mut self, oldest: u32, block: u32) -> u32 {
        let mut lower = oldest;
        let (mut first, mut before) = (NONE, NONE);
        while lower != NONE {
            let upper = self.add(Extent {
                from: block,
                older: before,
                younger: NONE,
                below: NONE,
                above: NONE,
                ..self[lower]
            });
            self[lower].to = block;
            if before == NONE {
                first = upper;
            } else {
                self[before].younger = upper;
            }
            if self[lower].holders == 0 {
                // What ends later is handed out earlier.
                let previous = self[lower].previous;
                self[upper].next = lower;
                self.set_next(previous, upper);
                self[lower].previous = upper;
            }
            before = upper;
            lower = self[lower].younger;
        }
        self[first].youngest = before;
        let above = self[oldest].above;
        self[first].above = above;
        self[first].below = oldest;
        self[oldest].above = first;
        if above == NONE {
            self.tops.insert(self[first].segment, first);
        } else {
            self[above].below = first;
        }
        first
    }

    /// Adds a held copy of cached blocks; gives the one that ends at `to`.
    pub(super) fn insert_copies(
        &mut self,
        segment: SegmentId,
        from: u32,
        to: u32,
        mark: u64,
    ) -> u32 {
        let mut oldest = self.oldest_with(segment, to - 1);
        if self[oldest].to > to {
            self.cut(oldest, to);
        }
        let mut last = NONE;
        loop {
            if self[oldest].from < from {
                oldest = self.cut(oldest, from);
            }
            let Extent { from: start, to: end, youngest, below, .. } = self[oldest];
            let older = if youngest == NONE { oldest } else { youngest };
            let copy = Self::held(segment, start, end, mark);
            let copy = self.add(Extent { older, ..copy });
            self[older].younger = copy;
            self[oldest].youngest = copy;
            if last == NONE {
                last = copy;
            }
            if start <= from {
                return last;
            }
            oldest = below;
        }
    }

    /// Adds blocks to an extent of this mark, if nothing else of the segment lies behind it or
    /// beside it. False, with nothing done, if something does.
    pub(super) fn grow(
        &mut self,
        at: u32,
        segment: SegmentId,
        from: u32,
        to: u32,
        mark: u64,
    ) -> bool {
        let extent = &mut self[at];
        let is_its_own = (extent.segment, extent.to, extent.mark) == (segment, from, mark);
        if !(is_its_own && extent.holders == 1 && extent.above == NONE && extent.is_only_copy()) {
            return false;
        }
        extent.to = to;
        self.contents += u64::from(to - from);
        true
    }

    /// Adds held blocks behind the last cached ones of a segment; gives their extent.
    pub(super) fn extend(&mut self, segment: SegmentId, from: u32, to: u32, mark: u64) -> u32 {
        self.contents += u64::from(to - from);
        let top = self.top(segment);
        if let Some(top) = top {
            debug_assert!(self[top].to == from, "a gap in what is cached of a segment");
            let own = self[top].mark == mark && self[top].holders == 1;
            if own && self[top].is_only_copy() {
                self[top].to = to;
                return top;
            }
        }
        let below = top.unwrap_or(NONE);
        let new = self.add(Extent { below, ..Self::held(segment, from, to, mark) });
        if below != NONE {
            self[below].above = new;
        }
        self.tops.insert(segment, new);
        new
    }

    /// One more request holds an extent.
    pub(super) fn hold(&mut self, at: u32) {
        if self[at].holders == 0 {
            self.unlink(at);
        }
        self[at].holders += 1;
    }

    /// One request less holds an extent; without any it goes to the end of the free list.
    pub(super) fn let_go(&mut self, at: u32) {
        self[at].holders -= 1;
        if self[at].holders > 0 {
            return;
        }
        let Extent { segment, from, to, below, .. } = self[at];
        let back = self.back;
        self.listed += u64::from(to - from);
        // The blocks that follow these in their segment were freed just before: both become one.
        if back != NONE
            && self[back].segment == segment
            && self[back].from == to
            && self[back].is_only_copy()
            && self[at].is_only_copy()
        {
            self[back].from = from;
            self[back].below = below;
            if below != NONE {
                self[below].above = back;
            }
            self.forget(at);
            return;
        }
        self[at].previous = back;
        self[at].next = NONE;
        self.set_next(back, at);
        self.back = at;
    }

    /// Takes blocks from the front of the free list; their content is gone.
    pub(super) fn evict(&mut self, mut count: u64) {
        while count > 0 {
            let front = self.front;
            assert!(front != NONE, "more blocks are taken than are free");
            let blocks = self[front].blocks();
            if blocks <= count {
                self.unlink(front);
                self.remove(front);
                count -= blocks;
                continue;
            }
            let end = self[front].to - count as u32;
            if self[front].is_only_copy() {
                self[front].to = end;
                self.listed -= count;
                self.contents -= count;
                return;
            }
            let mut oldest = front;
            while self[oldest].older != NONE {
                oldest = self[oldest].older;
            }
            self.cut(oldest, end);
        }
    }

    /// Removes one copy from its segment.
    fn remove(&mut self, at: u32) {
        let Extent { segment, from, older, younger, youngest, below, above, .. } = self[at];
        if older != NONE {
            self[older].younger = younger;
            if younger == NONE {
                let oldest = self.oldest_with(segment, from);
                self[oldest].youngest = if older == oldest { NONE } else { older };
            } else {
                self[younger].older = older;
            }
        } else {
            let heir = if younger == NONE { below } else { younger };
            if younger == NONE {
                self.contents -= self[at].blocks();
                if below != NONE {
                    self[below].above = above;
                }
            } else {
                self[younger].older = NONE;
                self[younger].youngest = if youngest == younger { NONE } else { youngest };
                self[younger].below = below;
                self[younger].above = above;
                if below != NONE {
                    self[below].above = younger;
                }
            }
            if above != NONE {
                self[above].below = heir;
            } else if heir == NONE {
                self.tops.remove(&segment);
            } else {
                self.tops.insert(segment, heir);
            }
        }
        self.forget(at);
    }

    fn forget(&mut self, at: u32) {
        self[at].mark = 0;
        self.unused.push(at);
    }

    fn unlink(&mut self, at: u32) {
        let Extent { previous, next, .. } = self[at];
        self.listed -= self[at].blocks();
        self.set_next(previous, next);
        match next {
            NONE => self.back = previous,
            next => self[next].previous = previous,
        }
    }

    fn set_next(&mut self, at: u32, next: u32) {
        match at {
            NONE => self.front = next,
            at => self[at].next = next,
        }
    }

    /// The free list from its front.
    pub(super) fn free_list(&self) -> impl Iterator<Item = &Extent> {
        let first = (self.front != NONE).then_some(self.front);
        let next = |&at: &u32| Some(self[at].next).filter(|&next| next != NONE);
        std::iter::successors(first, next).map(|at| &self[at])
    }

    /// All extents.
    pub(super) fn extents(&self) -> impl Iterator<Item = &Extent> {
        self.extents.iter().filter(|extent| extent.mark > 0)
    }
}
