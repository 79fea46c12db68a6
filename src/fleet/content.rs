//! The content of a running fleet: which segment is whose, and what has been computed of it.

use rustc_hash::FxHashMap;

use super::workload::{ContextPlan, Workload};
use crate::trace::lineage::Path;
use crate::units::{SegmentId, Tokens};

/// The pass through the trace in which a common context is told: the same in all of them.
const EVERY_PASS: u32 = u32::MAX;

/// Segments and contexts of a running fleet.
#[derive(Debug, Default)]
pub struct Content {
    segments: u32,
    /// Shared contexts by number and pass.
    contexts: FxHashMap<(u32, u32), Path>,
    /// The KV of one segment under another model than the first: a segment of its own.
    of_model: FxHashMap<(SegmentId, u32), SegmentId>,
    /// By segment: the position up to which its content is told. Whoever goes on from there first
    /// writes the same segment further.
    told: Vec<Tokens>,
    /// By segment: the position up to which some replica has computed it.
    computed: Vec<Tokens>,
}

impl Content {
    /// A segment that nobody has written yet, and that nobody else will go on with.
    fn new_segment(&mut self) -> SegmentId {
        self.segments += 1;
        self.told.push(Tokens(u64::MAX));
        SegmentId(self.segments - 1)
    }

    /// The first `kept` tokens of a context and new content up to `end`. The rest of the session
    /// goes on from its first `goes_on` tokens, so that far its content is in one segment with what
    /// is to come: a long session's paths stay short.
    pub fn continued(&mut self, base: &Path, kept: Tokens, goes_on: Tokens, end: Tokens) -> Path {
        let mut path = base.prefix(kept);
        let start = path.len();
        let parts = if start < goes_on && goes_on < end { goes_on } else { end };
        let trunk = path.runs().last().map(|run| run.segment);
        let trunk = trunk.filter(|trunk| self.told[trunk.index()] == start);
        let trunk = trunk.unwrap_or_else(|| self.new_segment());
        for (segment, upto) in [(Some(trunk), parts), (None, end)] {
            if path.len() < upto {
                let segment = segment.unwrap_or_else(|| self.new_segment());
                path.extend(segment, upto);
                self.told[segment.index()] = upto;
            }
        }
        path
    }

    /// A shared context as it is in this pass through the trace. Tools and system prompts are the
    /// same in every pass, conversations are new in each.
    pub fn context(&mut self, workload: &Workload, number: u32, pass: u32) -> Path {
        let ContextPlan { base, kept, tokens, common } = workload.contexts[number as usize];
        let pass = if common { EVERY_PASS } else { pass };
        if let Some(path) = self.contexts.get(&(number, pass)) {
            return path.clone();
        }
        let base = base.map(|base| self.context(workload, base, pass)).unwrap_or_default();
        let path = base.continued(kept, self.new_segment(), tokens);
        self.contexts.insert((number, pass), path.clone());
        path
    }

    /// The path under which a model's KV of this content is known. Models share none.
    pub fn under_model(&mut self, path: Path, model: u32) -> Path {
        if model == 0 {
            return path;
        }
        let mut own = Path::default();
        for run in path.runs() {
            let known = self.of_model.get(&(run.segment, model)).copied();
            let segment = known.unwrap_or_else(|| {
                let segment = self.new_segment();
                self.of_model.insert((run.segment, model), segment);
                segment
            });
            own.extend(segment, run.end);
        }
        own
    }

    /// Leading tokens of a context that some replica has computed before.
    #[must_use]
    pub fn computed(&self, path: &Path) -> Tokens {
        let mut start = Tokens::ZERO;
        for run in path.runs() {
            let upto = self.computed.get(run.segment.index()).copied().unwrap_or_default();
            if upto < run.end {
                return upto.max(start);
            }
            start = run.end;
        }
        start
    }

    /// Some replica computes the first `upto` tokens of a context.
    pub fn compute(&mut self, path: &Path, upto: Tokens) {
        self.computed.resize(self.segments as usize, Tokens::ZERO);
        for run in path.runs() {
            let computed = &mut self.computed[run.segment.index()];
            *computed = (*computed).max(run.end.min(upto));
            if run.end >= upto {
                break;
            }
        }
    }
}
