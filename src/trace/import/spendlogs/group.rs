//! Makes sessions of rows: by id, children with their parents, and by likeness where ids say
//! nothing.
//!
//! Rows pass through in sorted order and none stays: first by session and call, where repeated rows
//! go and the worth of an id shows; then those whose id is worth nothing by caller and start.
//! All end up sorted by session, sessions by start.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use super::parents::{self, Link, Seat};
use super::regroup::Callers;
use super::report::Regrouped;
use super::row::{Kind, Loose, Row, Standing};
use super::rows::Collector;
use super::settle::{Settled, settle};
use super::shared::Prefixes;
use super::spool::{Ahead, Record, Sorted, Sorter, take};
use super::symbols::{Id, Symbols};
use super::{Options, SESSION_CALLS_MAX};
use crate::diag::Result;

/// With at least this many session ids, and none of them on two rows, the ids are no evidence.
const ALL_SINGLE_MIN: u64 = 10;

/// What became of the rows, and how they fall into sessions.
#[derive(Debug, Default)]
pub(super) struct Counts {
    /// Rows that came twice, and earlier attempts.
    pub(super) settled: Settled,
    /// Calls.
    pub(super) calls: u64,
    /// Answers from the response cache.
    pub(super) cache_hits: u64,
    /// Rows of call types that generate no text.
    pub(super) other_types: BTreeMap<String, u64>,
    /// Prompts that were counted without their cached part.
    pub(super) uncached_prompts: u64,
    /// Request ids that look numbered, not random.
    pub(super) guessable_ids: u64,
    /// What was put together without an id.
    pub(super) regrouped: Regrouped,
    /// Sessions made lanes of the one they name as their parent.
    pub(super) children: u64,
    /// Agents made lanes of their session.
    pub(super) agents: u64,
    /// Sessions whose parent is not among the rows.
    pub(super) orphans: u64,
    /// Sessions whose parent has no room for them.
    pub(super) crowded: u64,
}

/// A call and the session it belongs to.
#[derive(Debug)]
pub(super) struct Placed {
    /// The session, by its first call.
    pub(super) session: Standing,
    /// Which part of it: the calls of one id, or of one session put together. 0 is the root.
    pub(super) part: u32,
    /// The part that it works for.
    pub(super) parent: Option<u32>,
    /// The call.
    pub(super) row: Row,
}

impl Record for Placed {
    fn order(&self, other: &Self) -> Ordering {
        let key = |placed: &Self| (placed.session, placed.part, placed.row.standing());
        key(self).cmp(&key(other))
    }

    fn heap_bytes(&self) -> usize {
        self.row.heap_bytes()
    }

    fn write(&self, bytes: &mut Vec<u8>) {
        self.session.write(bytes);
        bytes.extend(self.part.to_le_bytes());
        bytes.extend(self.parent.unwrap_or(u32::MAX).to_le_bytes());
        self.row.write(bytes);
    }

    fn read(bytes: &mut &[u8]) -> Option<Self> {
        let session = Standing::read(bytes)?;
        let part = u32::from_le_bytes(take(bytes)?);
        let parent = Some(u32::from_le_bytes(take(bytes)?)).filter(|&part| part != u32::MAX);
        Some(Self { session, part, parent, row: Row::read(bytes)? })
    }
}

/// A row in the order of callers.
struct ByCaller(Row);

impl Record for ByCaller {
    fn order(&self, other: &Self) -> Ordering {
        let key = |row: &Row| (row.caller, row.standing());
        key(&self.0).cmp(&key(&other.0))
    }

    fn heap_bytes(&self) -> usize {
        self.0.heap_bytes()
    }

    fn write(&self, bytes: &mut Vec<u8>) {
        self.0.write(bytes);
    }

    fn read(bytes: &mut &[u8]) -> Option<Self> {
        Row::read(bytes).map(Self)
    }
}

/// The sessions, and what was found while they were made.
#[derive(Debug)]
pub(super) struct Grouped {
    /// Calls by session, sessions by start.
    pub(super) calls: Sorted<Placed>,
    /// What became of the rows.
    pub(super) counts: Counts,
    /// What prompts have in common.
    pub(super) prefixes: Prefixes,
}

/// Groups the rows of a collector, which is left without them.
pub(super) fn group(collector: &mut Collector, options: &Options) -> Result<Grouped> {
    let room = options.room();
    let rows = std::mem::replace(&mut collector.rows, Sorter::new(&room)).sorted()?;
    let parents = std::mem::replace(&mut collector.parents, Sorter::new(&room)).sorted()?;
    let mut units = Units {
        symbols: &collector.symbols,
        ids: 0,
        most_rows: 0,
        loose: Sorter::new(&room),
        linked: Sorter::new(&room),
        links: Vec::new(),
        out: Out {
            placed: Sorter::new(&room),
            counts: Counts::default(),
            prefixes: Prefixes::new(&room),
        },
    };
    units.read(Ahead::new(rows)?, Ahead::new(parents)?)?;
    let all_single = units.ids >= ALL_SINGLE_MIN && units.most_rows == 1;
    let Units { loose, linked, mut links, mut out, .. } = units;
    // Those of agents came with their session's.
    links.sort_unstable_by_key(|link| link.unit);
    out.place_linked(linked, &links)?;
    out.counts.regrouped.every_id_once = all_single;
    out.place_loose(loose, options)?;
    Ok(Grouped { calls: out.placed.sorted()?, counts: out.counts, prefixes: out.prefixes })
}

/// The rows by session id, while they are read.
struct Units<'a> {
    symbols: &'a Symbols,
    /// How many different ids there are.
    ids: u64,
    /// The most rows that one of them is on.
    most_rows: u64,
    /// Calls whose id may say nothing.
    loose: Sorter<ByCaller>,
    /// Calls of sessions that have parents or are parents.
    linked: Sorter<Row>,
    links: Vec<Link>,
    out: Out,
}

impl Units<'_> {
    fn read(&mut self, mut rows: Ahead<Row>, mut parents: Ahead<Id>) -> Result<()> {
        while let Some(unit) = rows.peek().map(|row| row.unit) {
            while parents.next_if(|&parent| parent < unit)?.is_some() {}
            let named = parents.peek() == Some(&unit);
            self.unit(unit, named, &mut rows)?;
        }
        Ok(())
    }

    /// Reads the rows of one id.
    fn unit(&mut self, unit: Id, named: bool, rows: &mut Ahead<Row>) -> Result<()> {
        let mut calls: Vec<Row> = Vec::new();
        let mut seen = 0;
        let mut overfull = false;
        let has_id = rows.peek().is_some_and(|row| row.loose != Loose::NoId);
        let mut alike = Vec::new();
        while let Some(call) = rows.peek().filter(|row| row.unit == unit).map(|row| row.call) {
            let same = |row: &Row| row.unit == unit && row.call == call;
            while alike.len() < SESSION_CALLS_MAX
                && let Some(row) = rows.next_if(same)?
            {
                alike.push(row);
            }
            self.out.counts.settled.add(settle(&mut alike, self.symbols));
            seen += alike.len() as u64;
            for row in alike.drain(..) {
                if self.out.counts.counts_as_call(&row, self.symbols) {
                    calls.push(row);
                }
            }
            overfull |= !unit.is_none() && calls.len() > SESSION_CALLS_MAX;
            if overfull || unit.is_none() {
                self.loosen(&mut calls, overfull)?;
            }
        }
        if has_id {
            self.ids += 1;
            self.most_rows = self.most_rows.max(seen);
        }
        self.out.counts.regrouped.overfull_ids += u64::from(overfull);
        if unit.is_none() || overfull {
            return Ok(());
        }
        self.place(unit, calls, seen, named)
    }

    /// Hands on calls whose id says nothing.
    fn loosen(&mut self, calls: &mut Vec<Row>, overfull: bool) -> Result<()> {
        calls.drain(..).try_for_each(|row| {
            let loose = if overfull { Loose::Overfull } else { Loose::NoId };
            self.loose.push(ByCaller(Row { loose, ..row }))
        })
    }

    /// Hands on the calls of one id, which is on `seen` rows.
    fn place(&mut self, unit: Id, mut calls: Vec<Row>, seen: u64, named: bool) -> Result<()> {
        calls.sort_unstable_by_key(Row::standing);
        let Some(first) = calls.first().map(Row::standing) else { return Ok(()) };
        let parents = calls.iter().map(|row| row.parent);
        let parent = parents.into_iter().find(|parent| !parent.is_none()).unwrap_or(Id::NONE);
        if seen == 1 && !named && parent.is_none() {
            return calls.into_iter().try_for_each(|row| self.loose.push(ByCaller(row)));
        }
        self.out.prefixes.session(unit, &calls, !parent.is_none())?;
        let agents = agents(unit, &mut calls);
        if named || !parent.is_none() || !agents.is_empty() {
            let of_agents: u64 = agents.iter().map(|agent| agent.calls).sum();
            let own = calls.len() as u64 - of_agents;
            self.links.push(Link { unit, parent, first, calls: own, is_agent: false });
            self.links.extend(agents);
            return calls.into_iter().try_for_each(|row| self.linked.push(row));
        }
        calls.into_iter().try_for_each(|row| self.out.push(first, row))
    }
}

/// Gives the calls of each agent of a session, in order of start, an id of their own, and links it
/// to the session. Calls without an agent stay as they are; where every call has one, those of the
/// first agent do. Ids of which none is on two calls tell no agents.
fn agents(unit: Id, calls: &mut [Row]) -> Vec<Link> {
    let named: BTreeSet<Id> = calls.iter().map(|row| row.agent).collect();
    let main = match calls.first() {
        Some(first) if !named.contains(&Id::NONE) => first.agent,
        _ => Id::NONE,
    };
    if main != Id::NONE && named.len() == calls.len() {
        return Vec::new();
    }
    let mut links: BTreeMap<Id, Link> = BTreeMap::new();
    for row in calls.iter_mut().filter(|row| row.agent != main) {
        row.unit = unit.with(row.agent);
        let first = row.standing();
        let link = Link { unit: row.unit, parent: unit, first, calls: 0, is_agent: true };
        links.entry(row.unit).or_insert(link).calls += 1;
    }
    links.into_values().collect()
}

/// Where calls go once their session is known.
struct Out {
    placed: Sorter<Placed>,
    counts: Counts,
    prefixes: Prefixes,
}

impl Out {
    fn push(&mut self, session: Standing, row: Row) -> Result<()> {
        self.placed.push(Placed { session, part: 0, parent: None, row })
    }

    /// Puts sessions with a known parent into the session of their root.
    fn place_linked(&mut self, linked: Sorter<Row>, links: &[Link]) -> Result<()> {
        let family = parents::seat(links, SESSION_CALLS_MAX as u64);
        self.counts.children = family.children;
        self.counts.agents = family.agents;
        self.counts.orphans = family.orphans;
        self.counts.crowded = family.crowded;
        let mut rows = Ahead::new(linked.sorted()?)?;
        for &Seat { unit, session, part, parent } in &family.seats {
            while let Some(row) = rows.next_if(|row| row.unit == unit)? {
                self.placed.push(Placed { session, part, parent, row })?;
            }
        }
        Ok(())
    }

    /// Puts calls together whose ids say nothing.
    fn place_loose(&mut self, loose: Sorter<ByCaller>, options: &Options) -> Result<()> {
        let mut rows = loose.sorted()?;
        let mut callers = Callers::new(options.regroup_gap, SESSION_CALLS_MAX as u64);
        while let Some(ByCaller(row)) = rows.next()? {
            let own = row.standing();
            let session = if row.loose == Loose::Single && !self.counts.regrouped.every_id_once {
                own
            } else {
                self.counts.regrouped.count(row.loose);
                let session = callers.session(&row);
                self.counts.regrouped.sessions += u64::from(session == own);
                session
            };
            let unit = session.id();
            let in_session = session != own;
            self.prefixes.session(unit, std::slice::from_ref(&row), in_session)?;
            self.push(session, row)?;
        }
        Ok(())
    }
}

impl Counts {
    /// Counts a row; true if it is a call.
    fn counts_as_call(&mut self, row: &Row, symbols: &Symbols) -> bool {
        match row.kind {
            Kind::CacheHit => self.cache_hits += 1,
            Kind::Other(call_type) => {
                *self.other_types.entry(symbols.name(call_type).to_string()).or_default() += 1;
            }
            Kind::Call => {
                self.calls += 1;
                self.guessable_ids += u64::from(row.guessable);
                self.uncached_prompts += u64::from(row.uncached_prompt);
                return true;
            }
        }
        false
    }
}

impl Settled {
    fn add(&mut self, other: Self) {
        self.duplicates += other.duplicates;
        self.attempts += other.attempts;
    }
}

/// Parents are sorted to be met together with the sessions of their id.
impl Record for Id {
    fn order(&self, other: &Self) -> Ordering {
        self.cmp(other)
    }

    fn write(&self, bytes: &mut Vec<u8>) {
        bytes.extend(self.0.to_le_bytes());
    }

    fn read(bytes: &mut &[u8]) -> Option<Self> {
        take(bytes).map(u128::from_le_bytes).map(Self)
    }
}
