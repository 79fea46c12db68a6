//! The content of calls that are no longer there.

use std::collections::BTreeSet;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::trace::lineage::Path;
use crate::trace::record::{Base, Name, Session, SharedContext};
use crate::units::{SegmentId, Tokens};

/// The shared contexts of the whole trace.
#[derive(Debug, Default)]
pub struct Contexts {
    all: Vec<SharedContext>,
    numbers: FxHashMap<Name, usize>,
}

impl Contexts {
    /// Takes one in.
    pub fn add(&mut self, context: &SharedContext) {
        self.numbers.insert(Name::clone(&context.name), self.all.len());
        self.all.push(context.clone());
    }

    /// These contexts and all that they continue.
    pub fn with_bases(&self, names: BTreeSet<Name>) -> FxHashSet<Name> {
        let mut found = FxHashSet::default();
        for name in names {
            let mut next = Some(name);
            while let Some(name) = next.filter(|name| !found.contains(name)) {
                next = self.get(&name).and_then(|context| context.base.clone());
                found.insert(name);
            }
        }
        found
    }

    fn get(&self, name: &Name) -> Option<&SharedContext> {
        self.numbers.get(name).map(|&number| &self.all[number])
    }

    /// The whole content of a context, each context being the segment of its number.
    fn path(&self, name: &Name) -> Path {
        let mut runs = Vec::new();
        self.runs(name, TOKENS_ALL, &mut runs);
        forwards(runs)
    }

    /// The runs of a context's first `len` tokens, the last run first.
    fn runs(&self, name: &Name, len: Tokens, runs: &mut Runs) {
        let (mut len, mut next) = (len, Some(name));
        while let Some(name) = next
            && let Some(&number) = self.numbers.get(name)
        {
            let context = &self.all[number];
            len = len.min(context.prompt_tokens);
            if len > context.kept_tokens {
                runs.push((SegmentId::from_index(number), len));
            }
            len = len.min(context.kept_tokens);
            next = context.base.as_ref();
        }
    }
}

/// Longer than any context.
const TOKENS_ALL: Tokens = Tokens(u64::MAX);

type Runs = Vec<(SegmentId, Tokens)>;

/// A path of runs that were found from its end to its start.
fn forwards(runs: Runs) -> Path {
    let mut path = Path::default();
    runs.into_iter().rev().for_each(|(segment, end)| path.extend(segment, end));
    path
}

/// What a session's earlier calls said.
pub struct Earlier<'a> {
    session: &'a Session,
    contexts: &'a Contexts,
    /// Contexts that stand for it.
    pub made: Vec<SharedContext>,
    paths: Vec<Path>,
}

impl<'a> Earlier<'a> {
    /// A session of which nothing is needed yet.
    pub fn new(session: &'a Session, contexts: &'a Contexts) -> Self {
        Self { session, contexts, made: Vec::new(), paths: Vec::new() }
    }

    /// A context that begins with the first `len` tokens of the context of call `call`: one that
    /// is there, or a new one that continues what it agrees with longest. So any two contexts
    /// agree exactly as far as their content did.
    pub fn context(&mut self, call: u32, len: Tokens) -> Base {
        if len == Tokens::ZERO {
            return Base::None;
        }
        let (path, root) = self.path(call, len);
        let with_root = root.iter().map(|name| (Name::clone(name), self.contexts.path(name)));
        let made = self.made.iter().map(|context| Name::clone(&context.name));
        let known = with_root.chain(made.zip(self.paths.iter().cloned()));
        let agreeing = known.map(|(name, known)| (path.common_prefix(&known), name));
        // The first of those that agree longest.
        let longest = agreeing.reduce(|best, next| if next.0 > best.0 { next } else { best });
        let longest = longest.filter(|(common, _)| *common > Tokens::ZERO);
        if let Some((common, name)) = &longest
            && *common == len
        {
            return Base::Shared(Name::clone(name));
        }
        let name = self.fresh_name();
        self.made.push(SharedContext {
            name: Name::clone(&name),
            base: longest.as_ref().map(|(_, base)| Name::clone(base)),
            kept_tokens: longest.map_or(Tokens::ZERO, |(common, _)| common),
            prompt_tokens: len,
        });
        self.paths.push(path);
        Base::Shared(name)
    }

    /// The first `len` tokens of a call's context, and the shared context that they begin with.
    fn path(&self, call: u32, len: Tokens) -> (Path, Option<Name>) {
        let (mut len, mut next) = (len, Some(call));
        let (mut runs, mut root) = (Vec::new(), None);
        while let Some(number) = next {
            let call = &self.session.calls[number as usize];
            if len > call.kept_tokens {
                let segment = self.contexts.all.len() + number as usize;
                runs.push((SegmentId::from_index(segment), len));
            }
            len = len.min(call.kept_tokens);
            next = None;
            match &call.base {
                Base::None => {}
                Base::Call(base) => next = Some(*base),
                Base::Shared(name) => {
                    self.contexts.runs(name, len, &mut runs);
                    root = Some(Name::clone(name));
                }
            }
        }
        (forwards(runs), root)
    }

    fn fresh_name(&self) -> Name {
        let mut number = self.made.len();
        loop {
            let name = Name::from(format!("{}:before{number}", self.session.id));
            let is_made = self.made.iter().any(|made| made.name == name);
            if !is_made && self.contexts.get(&name).is_none() {
                return name;
            }
            number += 1;
        }
    }
}
