//! Many cells: every combination of values of a scenario's keys, under every seed.
//!
//! A cell is known by a hash of everything that its figures depend on. It is simulated once and
//! kept in a file of its own, so that a sweep that was interrupted goes on where it was, cells of a
//! changed scenario are never taken for those of this one, and machines can share the work.

use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use serde_json::{Value, json};

use super::case::{Case, Judged};
use crate::config::scenario::Scenario;
use crate::diag::{Error, Result};
use crate::fleet::Progress;

pub mod identity;
pub mod plan;
pub mod store;

use plan::{Cell, Plan};
use store::Store;

/// A part of the cells of a sweep: every so-manieth, for so many machines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard {
    /// Which part, from 1.
    pub part: usize,
    /// Of how many.
    pub parts: usize,
}

impl Shard {
    /// All cells.
    pub const WHOLE: Self = Self { part: 1, parts: 1 };

    /// Reads `2/8`.
    ///
    /// # Errors
    /// What is no part of a whole.
    pub fn parse(text: &str) -> Result<Self> {
        let numbers = text.split_once('/').and_then(|(part, parts)| {
            Some((part.trim().parse::<usize>().ok()?, parts.trim().parse::<usize>().ok()?))
        });
        match numbers {
            Some((part, parts)) if part >= 1 && part <= parts => Ok(Self { part, parts }),
            _ => Err(Error::found(text, "PART/PARTS, such as 1/4 to 4/4").in_field("--shard")),
        }
    }

    fn has(self, position: usize) -> bool {
        position % self.parts == self.part - 1
    }
}

/// How the cells of a sweep are simulated.
pub struct Sweep<'a> {
    /// Its cells.
    pub plan: &'a Plan,
    /// Which of them are simulated here.
    pub shard: Shard,
    /// Where they are kept.
    pub store: &'a Store,
    /// The case of a cell.
    pub case: &'a (dyn Fn(&Cell) -> Result<Case> + Sync),
    /// Cells that are done, for who watches from another thread.
    pub done: &'a AtomicUsize,
}

/// What became of the cells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Told {
    /// Simulated now.
    pub simulated: usize,
    /// Kept from before.
    pub kept: usize,
    /// Kept from before and damaged, so simulated again; they are in `simulated` too.
    pub damaged: usize,
    /// Cells that cannot run.
    pub refused: usize,
    /// Cells of other shards.
    pub elsewhere: usize,
}

impl Sweep<'_> {
    /// Simulates the cells of this shard that are not there yet, on this many threads. Every cell
    /// is kept as soon as it is done.
    ///
    /// # Errors
    /// A cell that comes to a standstill or cannot be written; those that are done stay.
    pub fn run(&self, threads: usize) -> Result<Told> {
        let mut told = Told::default();
        let mut open: Vec<(usize, &Cell, &str)> = Vec::new();
        for (position, cell) in self.plan.cells.iter().enumerate() {
            let Some(hash) = cell.hash.as_deref() else {
                told.refused += 1;
                continue;
            };
            if !self.shard.has(position) {
                told.elsewhere += 1;
                continue;
            }
            match self.store.read(hash)? {
                store::Found::Whole(_) => told.kept += 1,
                store::Found::Nothing => open.push((position, cell, hash)),
                store::Found::Damaged => {
                    told.damaged += 1;
                    open.push((position, cell, hash));
                }
            }
        }
        self.done.store(told.kept, Ordering::Relaxed);
        self.simulate(&open, threads)?;
        told.simulated = open.len();
        Ok(told)
    }

    fn simulate(&self, open: &[(usize, &Cell, &str)], threads: usize) -> Result<()> {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
        let pool = pool.map_err(|error| Error::new(format!("cannot start threads: {error}")))?;
        let (next, stop) = (AtomicUsize::new(0), AtomicBool::new(false));
        let first_error: Mutex<Option<(usize, Error)>> = Mutex::new(None);
        // Each thread takes the next cell when it has done one, so that never more runs are in
        // memory than there are threads.
        pool.broadcast(|_| {
            while !stop.load(Ordering::Relaxed) {
                let at = next.fetch_add(1, Ordering::Relaxed);
                let Some((position, cell, hash)) = open.get(at) else { break };
                if let Err(error) = self.cell(cell, hash) {
                    stop.store(true, Ordering::Relaxed);
                    let mut first = first_error.lock().unwrap_or_else(PoisonError::into_inner);
                    if first.as_ref().is_none_or(|(other, _)| position < other) {
                        *first = Some((*position, self.plan.named(cell, error)));
                    }
                }
                self.done.fetch_add(1, Ordering::Relaxed);
            }
        });
        match first_error.into_inner().unwrap_or_else(PoisonError::into_inner) {
            Some((_, error)) => Err(error),
            None => Ok(()),
        }
    }

    fn cell(&self, cell: &Cell, hash: &str) -> Result<()> {
        let case = (self.case)(cell)?;
        let run = case.run(case.scenario.replicas, &Progress::default())?;
        self.store.write(hash, &result(&case, &case.judge(&run)))
    }
}

/// What is kept of a cell.
fn result(case: &Case, judged: &Judged) -> Value {
    let pairs = case.targets.iter().zip(&judged.verdicts);
    let targets = pairs.map(|(target, verdict)| {
        json!({
            "target": target.to_string(),
            "value": verdict.value,
            "met": verdict.met,
            "margin": verdict.margin,
        })
    });
    json!({
        "met": judged.met(),
        "targets": targets.collect::<Vec<_>>(),
        "figures": serde_json::to_value(&judged.figures).unwrap_or(Value::Null),
    })
}

/// The scenario of a cell; `read` reads that of its values.
///
/// # Errors
/// What `read` refuses.
pub fn scenario_of(
    plan: &Plan,
    cell: &Cell,
    read: impl Fn(&[String]) -> Result<Scenario>,
) -> Result<Scenario> {
    let scenario = read(&super::candidates::assignments(&plan.axes, &cell.combination))?;
    Ok(Scenario { seed: cell.seed, ..scenario })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_share_the_cells_without_rest() {
        let shards = [1, 2, 3].map(|part| Shard { part, parts: 3 });
        for position in 0..20 {
            assert_eq!(shards.iter().filter(|shard| shard.has(position)).count(), 1);
        }
        assert_eq!(Shard::parse("2/8").unwrap(), Shard { part: 2, parts: 8 });
        for text in ["0/2", "3/2", "1", "1/0", "a/b", "-1/2"] {
            assert!(Shard::parse(text).is_err(), "{text}");
        }
    }
}
