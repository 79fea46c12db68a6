//! Short names instead of ids, keys, users and teams, in order of first appearance.

use std::sync::Arc;

use rustc_hash::FxHashSet;

use super::rows::{Collector, Symbol};
use crate::trace::record::Name;

/// The longest text that a trace carries as a name, in bytes.
pub(super) const NAME_BYTES_MAX: usize = 512;

/// The names that a trace carries.
#[derive(Debug)]
pub(super) struct Names {
    keys: Vec<Option<Name>>,
    users: Vec<Option<Name>>,
    tenants: Vec<Option<Name>>,
    empty: Name,
    keep_ids: bool,
    sessions: usize,
    used: FxHashSet<Name>,
}

impl Names {
    /// Names for what appears in the rows, in `order` of start.
    pub(super) fn new(collector: &Collector, order: &[usize], keep_ids: bool) -> Self {
        let table = |letter, of: &dyn Fn(usize) -> Symbol| {
            named(collector, order.iter().map(|&index| of(index)), letter, keep_ids)
        };
        Self {
            keys: table('k', &|row| collector.rows[row].key),
            users: table('u', &|row| collector.rows[row].user),
            tenants: table('t', &|row| collector.rows[row].tenant),
            empty: Arc::from(""),
            keep_ids,
            sessions: 0,
            used: FxHashSet::default(),
        }
    }

    /// The name of a key, if there is one.
    pub(super) fn key(&self, symbol: Symbol) -> Option<Name> {
        self.keys[symbol.index()].clone()
    }

    /// The name of a user; empty if unknown.
    pub(super) fn user(&self, symbol: Symbol) -> Name {
        self.users[symbol.index()].clone().unwrap_or_else(|| Arc::clone(&self.empty))
    }

    /// The name of a team; empty if unknown.
    pub(super) fn tenant(&self, symbol: Symbol) -> Name {
        self.tenants[symbol.index()].clone().unwrap_or_else(|| Arc::clone(&self.empty))
    }

    /// The name of the next session, whose first row carries `id`, or else `request`.
    pub(super) fn session(&mut self, id: &Name, request: &Name) -> Name {
        self.sessions += 1;
        let kept = if id.is_empty() { request } else { id };
        // In the trace's file form `@` begins the name of a shared context.
        if self.keep_ids && fits(kept) && !kept.starts_with('@') && self.used.insert(kept.clone()) {
            return Arc::clone(kept);
        }
        Arc::from(format!("s{:06}", self.sessions))
    }
}

/// Whether a text can stand in a trace as it is.
fn fits(text: &str) -> bool {
    text.len() <= NAME_BYTES_MAX && !text.chars().any(char::is_control)
}

/// A text as a trace can carry it: without control characters and not too long.
pub(super) fn fitting(text: &str) -> String {
    let mut fitting: String = text.chars().filter(|c| !c.is_control()).collect();
    while fitting.len() > NAME_BYTES_MAX {
        fitting.pop();
    }
    fitting
}

fn named(
    collector: &Collector,
    appearances: impl Iterator<Item = Symbol>,
    letter: char,
    keep_ids: bool,
) -> Vec<Option<Name>> {
    let mut names: Vec<Option<Name>> = vec![None; collector.symbols.len()];
    let mut next = 0;
    for symbol in appearances {
        if symbol.is_empty() || names[symbol.index()].is_some() {
            continue;
        }
        next += 1;
        let kept = collector.symbols.name(symbol);
        names[symbol.index()] = Some(if keep_ids && fits(kept) {
            Arc::clone(kept)
        } else {
            Arc::from(format!("{letter}{next:02}"))
        });
    }
    names
}
