//! Makes sessions of rows: by id, children with their parents, and by likeness where ids say
//! nothing.

use rustc_hash::{FxHashMap, FxHashSet};

use super::rows::{Collector, Row, Symbol, is_uuid};
use super::time::{Micros, span};
use crate::units::Span;

/// With at least this many session ids, and none of them on two rows, the ids are no evidence.
const ALL_SINGLE_MIN: usize = 10;

/// The rows of one session id, or of calls put together.
#[derive(Clone, Debug)]
pub(super) struct Part {
    /// Rows, as indices into the collector's, in order of start.
    pub(super) rows: Vec<usize>,
    /// The part of the same session that it works for, by position in the session.
    pub(super) parent: Option<usize>,
}

/// How the rows fall into sessions.
#[derive(Debug, Default)]
pub(super) struct Grouped {
    /// Parts of each session, the root first, sessions in order of start.
    pub(super) sessions: Vec<Vec<Part>>,
    /// What was put together without an id.
    pub(super) regrouped: super::Regrouped,
    /// Sessions made lanes of the one they name as their parent.
    pub(super) children: u64,
    /// Sessions whose parent is not among the rows.
    pub(super) orphans: u64,
}

/// Rows of one id before parents are looked up.
struct Unit {
    rows: Vec<usize>,
    parent: Symbol,
}

/// The last calls put together for one key, end user and user.
#[derive(Debug)]
struct Open {
    unit: usize,
    prompt: u64,
    end: Micros,
    last_end: Micros,
}

/// Groups the rows, given in `order` of start.
pub(super) fn group(collector: &Collector, order: &[usize], regroup_gap: Span) -> Grouped {
    let mut grouped = Grouped::default();
    let mut units: Vec<Unit> = Vec::new();
    let mut unit_of_id: FxHashMap<Symbol, usize> = FxHashMap::default();
    let mut unit_of_orphan: FxHashMap<Symbol, usize> = FxHashMap::default();
    let mut open: FxHashMap<(Symbol, Symbol, Symbol), Vec<Open>> = FxHashMap::default();
    let ids = Ids::new(collector);
    grouped.regrouped.every_id_once = ids.all_single;
    for &index in order {
        let row = &collector.rows[index];
        let names_parent = !row.parent.is_empty() && row.parent != row.session;
        let unit = if names_parent && row.session.is_empty() {
            *unit_of_orphan.entry(row.parent).or_insert_with(|| new_unit(&mut units))
        } else if !names_parent && ids.says_nothing(collector, row.session) {
            grouped.regrouped.count(row.session.is_empty());
            let rivals = open.entry((row.key, row.end_user, row.key_user)).or_default();
            regroup(row, rivals, regroup_gap, || {
                grouped.regrouped.sessions += 1;
                new_unit(&mut units)
            })
        } else {
            *unit_of_id.entry(row.session).or_insert_with(|| new_unit(&mut units))
        };
        units[unit].rows.push(index);
        if names_parent && units[unit].parent.is_empty() {
            units[unit].parent = row.parent;
        }
    }
    join_parents(units, &unit_of_id, &mut grouped);
    // A child may have started before its root.
    let first = |session: &Vec<Part>| {
        let rows = session.iter().map(|part| &collector.rows[part.rows[0]]);
        rows.map(|row| (row.start, row.request.clone())).min()
    };
    grouped.sessions.sort_by_cached_key(first);
    grouped
}

fn new_unit(units: &mut Vec<Unit>) -> usize {
    units.push(Unit { rows: Vec::new(), parent: Symbol::EMPTY });
    units.len() - 1
}

/// What the session ids of the export are worth.
struct Ids {
    all_single: bool,
    parents: FxHashSet<Symbol>,
}

impl Ids {
    fn new(collector: &Collector) -> Self {
        // Symbol 0 counts the rows without an id.
        let counts = collector.rows_of_session.iter().skip(1).filter(|&&count| count > 0);
        let ids = counts.clone().count();
        let all_single = ids >= ALL_SINGLE_MIN && counts.max() == Some(&1);
        let parents = collector.rows.iter().map(|row| row.parent).collect();
        Self { all_single, parents }
    }

    /// Whether the id, or its absence, tells nothing about which calls belong together.
    fn says_nothing(&self, collector: &Collector, id: Symbol) -> bool {
        if id.is_empty() {
            return true;
        }
        let random = self.all_single || is_uuid(collector.symbols.name(id));
        collector.rows_of_session[id.index()] == 1 && random && !self.parents.contains(&id)
    }
}

/// The unit of a call without an id of its own: the one of the same caller with the longest prompt
/// below its own that has ended, not too long ago. A call without counted tokens goes to the unit
/// used last.
fn regroup(
    row: &Row,
    rivals: &mut Vec<Open>,
    gap: Span,
    new_unit: impl FnOnce() -> usize,
) -> usize {
    rivals.retain(|open| span(open.last_end, row.start) <= gap);
    let found = if row.is_counted() {
        let fits = |open: &&mut Open| open.prompt < row.prompt && open.end <= row.start;
        rivals.iter_mut().filter(fits).max_by_key(|open| (open.prompt, open.end))
    } else {
        rivals.iter_mut().max_by_key(|open| open.last_end)
    };
    if let Some(open) = found {
        open.last_end = open.last_end.max(row.end);
        if row.is_counted() {
            (open.prompt, open.end) = (row.prompt, row.end);
        }
        return open.unit;
    }
    let unit = new_unit();
    let (prompt, end) = if row.is_counted() { (row.prompt, row.end) } else { (0, row.start) };
    rivals.push(Open { unit, prompt, end, last_end: row.end });
    unit
}

/// Puts units with a known parent into the session of their root; sessions in order of start.
fn join_parents(mut units: Vec<Unit>, by_id: &FxHashMap<Symbol, usize>, grouped: &mut Grouped) {
    let parents: Vec<Option<usize>> =
        units.iter().map(|unit| by_id.get(&unit.parent).copied()).collect();
    let named = units.iter().zip(&parents).filter(|(unit, _)| !unit.parent.is_empty());
    grouped.orphans = named.filter(|(_, parent)| parent.is_none()).count() as u64;
    let mut session_of_root: FxHashMap<usize, usize> = FxHashMap::default();
    let mut place: Vec<(usize, usize)> = vec![(0, 0); units.len()];
    // Roots first, so that each session's first part is its root.
    for unit in 0..units.len() {
        if root(&parents, unit) == unit {
            session_of_root.insert(unit, grouped.sessions.len());
            place[unit] = (grouped.sessions.len(), 0);
            let rows = std::mem::take(&mut units[unit].rows);
            grouped.sessions.push(vec![Part { rows, parent: None }]);
        }
    }
    for unit in 0..units.len() {
        let root = root(&parents, unit);
        if root != unit {
            let session = session_of_root[&root];
            place[unit] = (session, grouped.sessions[session].len());
            let rows = std::mem::take(&mut units[unit].rows);
            grouped.sessions[session].push(Part { rows, parent: None });
            grouped.children += 1;
        }
    }
    for unit in 0..units.len() {
        let (session, part) = place[unit];
        if part > 0 {
            grouped.sessions[session][part].parent = parents[unit].map(|parent| place[parent].1);
        }
    }
}

/// The unit at the end of the chain of parents. In a ring, which only forged ids make, the unit
/// that was seen first is its own root.
fn root(parents: &[Option<usize>], unit: usize) -> usize {
    let mut at = unit;
    for _ in 0..parents.len() {
        match parents[at] {
            Some(parent) if parent != at => at = parent,
            _ => return at,
        }
    }
    let mut least = at;
    let mut next = parents[at].unwrap_or(at);
    while next != at {
        least = least.min(next);
        next = parents[next].unwrap_or(at);
    }
    least
}
