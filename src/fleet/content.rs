//! The content of a running fleet: which segment is whose, and what has been computed of it.
//!
//! What only one session knows is forgotten with it; only shared contexts stay.

use rustc_hash::FxHashMap;

use super::workload::ContextPlan;
use crate::trace::lineage::Path;
use crate::units::{SegmentId, Tokens};

/// The pass through the trace in which a common context is told: the same in all of them.
const EVERY_PASS: u32 = u32::MAX;

/// What sessions share.
#[derive(Debug, Default)]
pub struct Content {
    /// Segments numbered so far. Numbers are never given again: engines may still hold what bears
    /// them.
    segments: u32,
    /// Shared contexts by number and pass.
    contexts: FxHashMap<(u32, u32), Path>,
    /// The KV of a shared segment under another model than the first: a segment of its own.
    of_model: FxHashMap<(SegmentId, u32), SegmentId>,
    /// The position up to which some replica has computed a shared segment.
    computed: FxHashMap<SegmentId, Tokens>,
    /// How far each process has.
    by_process: FxHashMap<(SegmentId, ProcessId), Reach>,
}

/// A process of a replica: one that was restarted is another, with an empty cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ProcessId(pub u32);

/// How far a process has computed a segment, or a context.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reach {
    /// By calls that were admitted.
    pub begun: u32,
    /// By calls that have ended.
    pub done: u32,
}

/// What one session has for itself: segments with numbers in a row.
#[derive(Debug, Default)]
pub struct OwnContent {
    first: u32,
    segments: Vec<Segment>,
    /// By segment and model, as in [`Content`].
    of_model: FxHashMap<(SegmentId, u32), SegmentId>,
    /// By segment and process, as in [`Content`].
    by_process: FxHashMap<(SegmentId, ProcessId), Reach>,
}

/// A segment of one session.
#[derive(Clone, Copy, Debug)]
struct Segment {
    /// The position up to which its content is told. Whoever goes on from there first writes the
    /// same segment further. [`NO_TRUNK`] where nobody does.
    told: u32,
    /// The position up to which some replica has computed it.
    computed: u32,
}

/// Beyond every context.
const NO_TRUNK: u32 = u32::MAX;

impl OwnContent {
    fn of(&self, segment: SegmentId) -> Option<usize> {
        let place = segment.0.wrapping_sub(self.first) as usize;
        (place < self.segments.len()).then_some(place)
    }

    /// A segment that nobody has written yet.
    fn new_segment(&mut self) -> SegmentId {
        self.segments.push(Segment { told: NO_TRUNK, computed: 0 });
        SegmentId(self.first + self.segments.len() as u32 - 1)
    }

    /// The first `kept` tokens of a context and new content up to `end`. The rest of the session
    /// goes on from its first `goes_on` tokens, so that far its content is in one segment with what
    /// is to come: a long session's paths stay short.
    pub fn continued(&mut self, base: &Path, kept: Tokens, goes_on: Tokens, end: Tokens) -> Path {
        let mut path = base.prefix(kept);
        let start = path.len();
        let parts = if start < goes_on && goes_on < end { goes_on } else { end };
        let trunk = path.runs().last().map(|run| run.segment);
        let trunk = trunk.filter(|trunk| {
            let own = self.of(*trunk);
            own.is_some_and(|own| Tokens(self.segments[own].told.into()) == start)
        });
        let trunk = trunk.unwrap_or_else(|| self.new_segment());
        for (segment, upto) in [(Some(trunk), parts), (None, end)] {
            if path.len() < upto {
                let segment = segment.unwrap_or_else(|| self.new_segment());
                path.extend(segment, upto);
                if let Some(own) = self.of(segment) {
                    self.segments[own].told = small(upto);
                }
            }
        }
        path
    }
}

/// Contexts are shorter than 2^32 tokens: prompt and output are at most
/// [`crate::trace::check::TOKENS_MAX`] each.
fn small(tokens: Tokens) -> u32 {
    u32::try_from(tokens.0).unwrap_or(NO_TRUNK - 1)
}

impl Content {
    /// Gives a session numbers for so many segments; false if there are not so many left.
    pub fn open(&mut self, own: &mut OwnContent, segments: u32) -> bool {
        own.first = self.segments;
        own.segments.clear();
        own.of_model.clear();
        own.by_process.clear();
        let numbered = self.segments.checked_add(segments);
        self.segments = numbered.unwrap_or(self.segments);
        numbered.is_some()
    }

    fn new_segment(&mut self) -> SegmentId {
        self.segments = self.segments.saturating_add(1);
        SegmentId(self.segments - 1)
    }

    /// A shared context as it is in this pass through the trace. Tools and system prompts are the
    /// same in every pass, conversations are new in each.
    pub fn context(&mut self, contexts: &[ContextPlan], number: u32, pass: u32) -> Path {
        let ContextPlan { base, kept, tokens, common } = contexts[number as usize];
        let pass = if common { EVERY_PASS } else { pass };
        if let Some(path) = self.contexts.get(&(number, pass)) {
            return path.clone();
        }
        let base = base.map(|base| self.context(contexts, base, pass)).unwrap_or_default();
        let path = base.continued(kept, self.new_segment(), tokens);
        self.contexts.insert((number, pass), path.clone());
        path
    }

    /// The path under which a model's KV of this content is known. Models share none.
    pub fn under_model(&mut self, own: &mut OwnContent, path: Path, model: u32) -> Path {
        if model == 0 {
            return path;
        }
        let mut under = Path::default();
        for run in path.runs() {
            let key = (run.segment, model);
            let segment = match own.of(run.segment) {
                Some(_) => own.of_model.get(&key).copied().unwrap_or_else(|| {
                    let segment = own.new_segment();
                    own.of_model.insert(key, segment);
                    segment
                }),
                None => self.of_model.get(&key).copied().unwrap_or_else(|| {
                    let segment = self.new_segment();
                    self.of_model.insert(key, segment);
                    segment
                }),
            };
            under.extend(segment, run.end);
        }
        under
    }

    fn computed_of(&self, own: &OwnContent, segment: SegmentId) -> Tokens {
        match own.of(segment) {
            Some(place) => Tokens(own.segments[place].computed.into()),
            None => self.computed.get(&segment).copied().unwrap_or_default(),
        }
    }

    /// Leading tokens of a context that some replica has computed before.
    #[must_use]
    pub fn computed(&self, own: &OwnContent, path: &Path) -> Tokens {
        let mut start = Tokens::ZERO;
        for run in path.runs() {
            let upto = self.computed_of(own, run.segment);
            if upto < run.end {
                return upto.max(start);
            }
            start = run.end;
        }
        start
    }

    /// Some replica computes the first `upto` tokens of a context.
    pub fn compute(&mut self, own: &mut OwnContent, path: &Path, upto: Tokens) {
        for run in path.runs() {
            let end = run.end.min(upto);
            match own.of(run.segment) {
                Some(place) => {
                    let computed = &mut own.segments[place].computed;
                    *computed = (*computed).max(small(end));
                }
                None => {
                    let computed = self.computed.entry(run.segment).or_default();
                    *computed = (*computed).max(end);
                }
            }
            if run.end >= upto {
                break;
            }
        }
    }

    /// A process begins to compute the first `upto` tokens of a context, or has done so.
    pub fn reach(
        &mut self,
        own: &mut OwnContent,
        path: &Path,
        upto: Tokens,
        process: ProcessId,
        is_done: bool,
    ) {
        for run in path.runs() {
            let key = (run.segment, process);
            let reach = match own.of(run.segment) {
                Some(_) => own.by_process.entry(key).or_default(),
                None => self.by_process.entry(key).or_default(),
            };
            let end = small(run.end.min(upto));
            reach.begun = reach.begun.max(end);
            if is_done {
                reach.done = reach.done.max(end);
            }
            if run.end >= upto {
                break;
            }
        }
    }

    /// Leading tokens of a context that a process has begun to compute, and that it has computed.
    #[must_use]
    pub fn reached(&self, own: &OwnContent, path: &Path, process: ProcessId) -> Reach {
        let upto = |part: fn(&Reach) -> u32| {
            let mut start = 0;
            for run in path.runs() {
                let key = (run.segment, process);
                let reach = match own.of(run.segment) {
                    Some(_) => own.by_process.get(&key),
                    None => self.by_process.get(&key),
                };
                let upto = reach.map_or(0, part);
                if upto < small(run.end) {
                    return upto.max(start);
                }
                start = small(run.end);
            }
            start
        };
        Reach { begun: upto(|reach| reach.begun), done: upto(|reach| reach.done) }
    }
}
