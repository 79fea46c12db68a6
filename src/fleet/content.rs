//! The content of a running fleet: which segment is whose, and what has been computed of it.
//!
//! What only one session knows is forgotten with it; only shared contexts stay.

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use super::workload::{ContextPlan, Contexts};
use crate::trace::lineage::{Path, Run};
use crate::units::{SegmentId, Tokens};

mod reaches;

use reaches::Reaches;

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
    reaches: Reaches,
    /// Segments that sessions have for themselves.
    own: u32,
    /// What other parts of the fleet must know, where only a part of it is simulated here.
    told: Option<Box<Told>>,
}

/// Most segments that sessions may have for themselves; the others are left to shared contexts.
pub const OWN_SEGMENTS_MAX: u32 = u32::MAX - (1 << 24);

/// A shared context's segment under a model, by their numbers: the same in all parts of a fleet in
/// which every session is played once.
pub type SharedSegment = (u32, u32);

/// What a part of a fleet tells of shared contexts.
#[derive(Debug, Default)]
struct Told {
    /// What each shared segment is.
    names: FxHashMap<SegmentId, SharedSegment>,
    news: Vec<SharedNews>,
    /// The instant at hand, as who puts parts together counts them.
    now: u64,
}

/// One thing that is told of shared contexts.
#[derive(Clone, Debug)]
pub struct SharedNews {
    /// When.
    pub at: u64,
    /// What.
    pub what: SharedUse,
}

/// What happens to shared contexts.
#[derive(Clone, Debug)]
pub enum SharedUse {
    /// A replica computes one up to this position, farther than any other of its part.
    Computed(SharedSegment, Tokens),
    /// A call is admitted of whose shared content this part has not computed all: it depends on the
    /// others how much of it has been computed before.
    Asked {
        /// Its session among all that are played.
        play: u32,
        /// Its number in the session.
        call: u32,
        /// The shared segments of its context and where they end, in order.
        shared: Vec<(SharedSegment, Tokens)>,
        /// Leading tokens that are computed if all of these are.
        beyond: Tokens,
    },
}

impl Told {
    fn computed(&mut self, segment: SegmentId, upto: Tokens) {
        if let Some(name) = self.names.get(&segment) {
            self.news.push(SharedNews { at: self.now, what: SharedUse::Computed(*name, upto) });
        }
    }
}

/// A process of a replica: one that was restarted is another, with an empty cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ProcessId(pub u32);

impl ProcessId {
    /// No process: there are never so many.
    const NOBODY: Self = Self(u32::MAX);
}

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
    /// Segments numbered so far.
    numbered: u32,
    /// Those of them that may be asked for, in order.
    segments: Vec<Segment>,
    /// What few sessions need.
    others: Option<Box<Others>>,
    /// The head of its contexts that others share, which was computed that far.
    computed: Option<Head>,
    /// The same, and the process that has done so.
    done: Option<(Head, ProcessId)>,
}

/// What a context has in common with other sessions: the last of its shared segments, and where in
/// the context that ends. What lies before follows from it, since a segment has one parent only.
type Head = (SegmentId, Tokens);

/// What a session has of other models and processes than the first.
#[derive(Debug, Default)]
struct Others {
    /// By segment and model, as in [`Content`].
    of_model: FxHashMap<(SegmentId, u32), SegmentId>,
    /// How far processes have computed a segment, but for the first one that did.
    by_process: FxHashMap<(SegmentId, ProcessId), Reach>,
}

impl Others {
    fn has_much_room(&self) -> bool {
        self.of_model.capacity().max(self.by_process.capacity()) > 4 * ROOM_KEPT
    }
}

/// Room for so many segments stays with a session's place when another takes it over.
const ROOM_KEPT: usize = 8;

/// A segment of one session.
#[derive(Clone, Copy, Debug)]
struct Segment {
    id: SegmentId,
    /// The position up to which its content is told. Whoever goes on from there first writes the
    /// same segment further. [`NO_TRUNK`] where nobody does.
    told: u32,
    /// The position up to which some replica has computed it.
    computed: u32,
    /// The first process to compute it, [`ProcessId::NOBODY`] before. Mostly it stays the only one.
    process: ProcessId,
    /// How far that one has.
    reach: Reach,
}

/// Beyond every context.
const NO_TRUNK: u32 = u32::MAX;

impl OwnContent {
    /// Whether a segment is of this session.
    fn has(&self, segment: SegmentId) -> bool {
        segment.0.wrapping_sub(self.first) < self.numbered
    }

    /// The first runs of a context, which others share.
    fn shared_runs<'a>(&self, path: &'a Path) -> &'a [Run] {
        let own = path.runs().iter().position(|run| self.has(run.segment));
        &path.runs()[..own.unwrap_or(path.runs().len())]
    }

    /// How far a process has computed a segment that another one has begun.
    fn of_other(&self, segment: SegmentId, process: ProcessId) -> Reach {
        let others = self.others.as_ref();
        let reach = others.and_then(|others| others.by_process.get(&(segment, process)));
        reach.copied().unwrap_or_default()
    }

    /// The place of a segment, if it is of this session.
    fn of(&self, segment: SegmentId) -> Option<usize> {
        if !self.has(segment) {
            return None;
        }
        let place = self.segments.partition_point(|other| other.id.0 < segment.0);
        let is_there = self.segments.get(place).is_some_and(|other| other.id == segment);
        debug_assert!(is_there, "somebody asks for {segment:?}, which was forgotten");
        is_there.then_some(place)
    }

    /// Leading tokens of a context that are not the session's own.
    #[must_use]
    pub fn shared(&self, path: &Path) -> Tokens {
        self.shared_runs(path).last().map_or(Tokens::ZERO, |run| run.end)
    }

    /// A segment that nobody has written yet.
    fn new_segment(&mut self) -> SegmentId {
        let (process, reach) = (ProcessId::NOBODY, Reach::default());
        let id = SegmentId(self.first + self.numbered);
        self.numbered += 1;
        if self.segments.len() == self.segments.capacity() {
            self.segments.reserve_exact((self.segments.len() / 2).max(2));
        }
        self.segments.push(Segment { id, told: NO_TRUNK, computed: 0, process, reach });
        id
    }

    /// The first `kept` tokens of a context and new content up to `end`. The rest of the session
    /// goes on from its first `goes_on` tokens, so that far its content is in one segment with what
    /// is to come: a long session's paths stay short. Comes with the segment, if there is one, that
    /// only who keeps more than `goes_on` will know.
    pub fn continued(
        &mut self,
        base: &Path,
        kept: Tokens,
        goes_on: Tokens,
        end: Tokens,
    ) -> (Path, Option<SegmentId>) {
        let before = self.first + self.numbered;
        let mut path = base.prefix(kept);
        let start = path.len();
        let (mut last, mut last_from) = (None, start);
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
                (last, last_from) = (Some(segment), path.len());
                path.extend(segment, upto);
                if let Some(own) = self.of(segment) {
                    self.segments[own].told = small(upto);
                }
            }
        }
        let last = last.filter(|last| last.0 >= before && last_from >= goes_on);
        (path, last)
    }

    /// What a segment is under a model that had none.
    fn new_segment_of_model(&mut self, key: (SegmentId, u32)) -> SegmentId {
        let segment = self.new_segment();
        self.others.get_or_insert_default().of_model.insert(key, segment);
        segment
    }

    /// No context holds this segment any more. `model` tells for which model it was computed.
    pub fn forget(&mut self, segment: SegmentId, model: impl FnOnce() -> u32) {
        let Some(place) = self.of(segment) else { return };
        self.segments.remove(place);
        let others = self.others.as_mut().filter(|others| !others.of_model.is_empty());
        let under = others.and_then(|others| others.of_model.remove(&(segment, model())));
        if let Some(place) = under.and_then(|under| self.of(under)) {
            self.segments.remove(place);
        }
    }

    /// The session is over.
    pub fn end(&mut self) {
        (self.numbered, self.computed, self.done) = (0, None, None);
        if let Some(others) = &mut self.others {
            others.of_model.clear();
            others.by_process.clear();
        }
        if self.others.as_ref().is_some_and(|others| others.has_much_room()) {
            self.others = None;
        }
        self.segments.clear();
        if self.segments.capacity() > ROOM_KEPT {
            self.segments = Vec::new();
        }
    }
}

/// How far these runs of a context, from its start, go.
fn head(shared: &[Run]) -> Option<Head> {
    shared.last().map(|run| (run.segment, run.end))
}

/// A context that is kept, in half the room.
#[derive(Clone, Debug, Default)]
pub struct CompactPath(SmallVec<[(SegmentId, u32); 4]>);

impl CompactPath {
    /// This context.
    #[must_use]
    pub fn of(path: &Path) -> Self {
        Self(path.runs().iter().map(|run| (run.segment, small(run.end))).collect())
    }

    /// The context as it was.
    #[must_use]
    pub fn whole(&self) -> Path {
        let mut path = Path::default();
        for (segment, end) in &self.0 {
            path.extend(*segment, Tokens((*end).into()));
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
        let all = self.own.checked_add(segments).filter(|all| *all <= OWN_SEGMENTS_MAX);
        self.own = all.unwrap_or(self.own);
        self.segments = self.segments.saturating_add(segments);
        all.is_some()
    }

    /// Nothing has been told or computed; who has to know more than this part is told no more.
    pub fn clear(&mut self) {
        (self.segments, self.own, self.told) = (0, 0, None);
        self.contexts.clear();
        self.of_model.clear();
        self.computed.clear();
        self.reaches.clear();
    }

    /// Keeps what other parts of the fleet must know.
    pub fn tell_shared(&mut self) {
        self.told = Some(Box::default());
    }

    /// The instant at hand is this one, as who asked to be told counts them.
    pub fn set_now(&mut self, now: u64) {
        if let Some(told) = &mut self.told {
            told.now = now;
        }
    }

    /// The instant at hand.
    #[must_use]
    pub fn now(&self) -> u64 {
        self.told.as_ref().map_or(0, |told| told.now)
    }

    /// What there was to tell since this was last asked, in order; more is told in `spare`.
    pub fn take_shared(&mut self, spare: Vec<SharedNews>) -> Vec<SharedNews> {
        let told = self.told.as_mut();
        told.map(|told| std::mem::replace(&mut told.news, spare)).unwrap_or_default()
    }

    fn new_segment(&mut self) -> SegmentId {
        self.segments = self.segments.saturating_add(1);
        SegmentId(self.segments - 1)
    }

    /// A shared context as it is in this pass through the trace. Tools and system prompts are the
    /// same in every pass, conversations are new in each.
    pub fn context(&mut self, contexts: &Contexts, number: u32, pass: u32) -> Path {
        let ContextPlan { base, kept, tokens, common } = contexts.get(number);
        let pass = if common { EVERY_PASS } else { pass };
        if let Some(path) = self.contexts.get(&(number, pass)) {
            return path.clone();
        }
        let base = base.map(|base| self.context(contexts, base, pass)).unwrap_or_default();
        let segment = self.new_segment();
        self.reaches.add(segment, small(tokens));
        if let Some(told) = &mut self.told {
            told.names.insert(segment, (number, 0));
        }
        let path = base.continued(kept, segment, tokens);
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
                Some(_) => {
                    let of_model = &mut own.others.get_or_insert_default().of_model;
                    let known = of_model.get(&key).copied();
                    known.unwrap_or_else(|| own.new_segment_of_model(key))
                }
                None => self.of_model.get(&key).copied().unwrap_or_else(|| {
                    let segment = self.new_segment();
                    self.of_model.insert(key, segment);
                    self.reaches.add(segment, self.reaches.end_of(run.segment));
                    if let Some(told) = &mut self.told
                        && let Some((number, _)) = told.names.get(&run.segment).copied()
                    {
                        told.names.insert(segment, (number, model));
                    }
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
        let shared = own.shared_runs(path);
        let (skipped, mut start) = match head(shared) {
            Some(head) if own.computed == Some(head) => (shared.len(), head.1),
            _ => (0, Tokens::ZERO),
        };
        for run in &path.runs()[skipped..] {
            let upto = self.computed_of(own, run.segment);
            if upto < run.end {
                return upto.max(start);
            }
            start = run.end;
        }
        start
    }

    /// A call is admitted, with so much of its context computed before as far as this part of the
    /// fleet knows: tells the others if it depends on them.
    pub fn asked(
        &mut self,
        own: &OwnContent,
        path: &Path,
        known: Tokens,
        (play, call): (u32, u32),
    ) {
        let Some(told) = &self.told else { return };
        let shared = path.runs().iter().take_while(|run| own.of(run.segment).is_none());
        let Some(end) = shared.clone().last().map(|run| run.end).filter(|end| known < *end) else {
            return;
        };
        let name = |run: &Run| Some((*told.names.get(&run.segment)?, run.end));
        let shared: Vec<_> = shared.filter_map(name).collect();
        let mut beyond = end;
        for run in &path.runs()[shared.len()..] {
            let upto = self.computed_of(own, run.segment);
            beyond = upto.min(run.end).max(beyond);
            if upto < run.end {
                break;
            }
        }
        if let Some(told) = &mut self.told {
            let what = SharedUse::Asked { play, call, shared, beyond };
            told.news.push(SharedNews { at: told.now, what });
        }
    }

    /// Some replica computes the first `upto` tokens of a context.
    pub fn compute(&mut self, own: &mut OwnContent, path: &Path, upto: Tokens) {
        let shared = own.shared_runs(path);
        // That was told before, and other calls of the session only add to it.
        let skipped = match head(shared).filter(|(_, end)| *end <= upto) {
            Some(head) if own.computed == Some(head) => shared.len(),
            Some(head) => {
                own.computed = Some(head);
                0
            }
            None => 0,
        };
        for run in &path.runs()[skipped..] {
            let end = run.end.min(upto);
            match own.of(run.segment) {
                Some(place) => {
                    let computed = &mut own.segments[place].computed;
                    *computed = (*computed).max(small(end));
                }
                None => {
                    let computed = self.computed.entry(run.segment).or_default();
                    if *computed < end {
                        *computed = end;
                        if let Some(told) = &mut self.told {
                            told.computed(run.segment, end);
                        }
                    }
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
        let shared = own.shared_runs(path);
        let skipped = match head(shared).filter(|(_, end)| *end <= upto) {
            Some(head) if own.done == Some((head, process)) => shared.len(),
            Some(head) if is_done => {
                own.done = Some((head, process));
                0
            }
            _ => 0,
        };
        for run in &path.runs()[skipped..] {
            let end = small(run.end.min(upto));
            match own.of(run.segment) {
                Some(place) => {
                    let segment = &mut own.segments[place];
                    if segment.process == ProcessId::NOBODY {
                        segment.process = process;
                    }
                    let reach = match segment.process == process {
                        true => &mut segment.reach,
                        false => {
                            let others = own.others.get_or_insert_default();
                            others.by_process.entry((run.segment, process)).or_default()
                        }
                    };
                    reach.begun = reach.begun.max(end);
                    if is_done {
                        reach.done = reach.done.max(end);
                    }
                }
                None => self.reaches.reach(run.segment, process, end, is_done),
            }
            if run.end >= upto {
                break;
            }
        }
    }

    /// Leading tokens of a context that a process has begun to compute, and that it has computed.
    #[must_use]
    pub fn reached(&self, own: &OwnContent, path: &Path, process: ProcessId) -> Reach {
        let (mut start, mut done) = (0, None);
        for run in path.runs() {
            let end = small(run.end);
            let reach = match own.of(run.segment).map(|place| &own.segments[place]) {
                Some(segment) if segment.process == process => segment.reach,
                Some(_) => own.of_other(run.segment, process),
                None => self.reaches.of(run.segment, process),
            };
            if done.is_none() && reach.done < end {
                done = Some(reach.done.max(start));
            }
            // What is computed was begun.
            if reach.begun < end {
                let begun = reach.begun.max(start);
                return Reach { begun, done: done.unwrap_or(begun) };
            }
            start = end;
        }
        Reach { begun: start, done: done.unwrap_or(start) }
    }
}
