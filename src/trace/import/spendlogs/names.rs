//! Short names instead of ids, keys, users and teams, in order of first appearance in the trace.

use std::borrow::Cow;
use std::sync::Arc;

use rustc_hash::FxHashSet;

use super::symbols::{Symbol, Symbols};
use crate::trace::record::Name;

/// The longest text that a trace carries as a name, in bytes.
pub(super) const NAME_BYTES_MAX: usize = 512;

/// The names that a trace carries.
#[derive(Debug)]
pub(super) struct Names {
    keys: Table,
    users: Table,
    tenants: Table,
    empty: Name,
    keep_ids: bool,
    sessions: u64,
    used: FxHashSet<Name>,
}

impl Names {
    /// None given yet.
    pub(super) fn new(keep_ids: bool) -> Self {
        let table = |letter| Table { letter, names: Vec::new(), count: 0, keep_ids };
        Self {
            keys: table('k'),
            users: table('u'),
            tenants: table('t'),
            empty: Arc::from(""),
            keep_ids,
            sessions: 0,
            used: FxHashSet::default(),
        }
    }

    /// The name of a key, if there is one.
    pub(super) fn key(&mut self, symbols: &Symbols, symbol: Symbol) -> Option<Name> {
        self.keys.name(symbols, symbol)
    }

    /// The name of a user; empty if unknown.
    pub(super) fn user(&mut self, symbols: &Symbols, symbol: Symbol) -> Name {
        self.users.name(symbols, symbol).unwrap_or_else(|| Arc::clone(&self.empty))
    }

    /// The name of a team; empty if unknown.
    pub(super) fn tenant(&mut self, symbols: &Symbols, symbol: Symbol) -> Name {
        self.tenants.name(symbols, symbol).unwrap_or_else(|| Arc::clone(&self.empty))
    }

    /// The name of the next session; `kept` if ids are kept and it can be one.
    pub(super) fn session(&mut self, kept: &str) -> Name {
        self.sessions += 1;
        // In the trace's file form `@` begins the name of a shared context.
        if self.keep_ids && !kept.is_empty() && fits(kept) && !kept.starts_with('@') {
            let name = Name::from(kept);
            if self.used.insert(Arc::clone(&name)) {
                return name;
            }
        }
        Arc::from(format!("s{:06}", self.sessions))
    }
}

/// Names of one kind.
#[derive(Debug)]
struct Table {
    letter: char,
    names: Vec<Option<Name>>,
    count: usize,
    keep_ids: bool,
}

impl Table {
    fn name(&mut self, symbols: &Symbols, symbol: Symbol) -> Option<Name> {
        if symbol.is_empty() {
            return None;
        }
        if self.names.len() <= symbol.index() {
            self.names.resize(symbols.len(), None);
        }
        let name = &mut self.names[symbol.index()];
        if name.is_none() {
            self.count += 1;
            let kept = symbols.name(symbol);
            *name = Some(if self.keep_ids && fits(kept) {
                Arc::clone(kept)
            } else {
                Arc::from(format!("{}{:02}", self.letter, self.count))
            });
        }
        name.clone()
    }
}

/// Whether a text can stand in a trace as it is.
fn fits(text: &str) -> bool {
    text.len() <= NAME_BYTES_MAX && !text.chars().any(char::is_control)
}

/// A text as a trace can carry it: without control characters and not too long.
pub(super) fn fitting(text: &str) -> Cow<'_, str> {
    if fits(text) {
        return Cow::Borrowed(text);
    }
    let mut fitting: String = text.chars().filter(|c| !c.is_control()).collect();
    while fitting.len() > NAME_BYTES_MAX {
        fitting.pop();
    }
    Cow::Owned(fitting)
}
