//! The cells of a sweep, in the order of its results.

use super::identity::{self, Hash};
use crate::config::scenario::Scenario;
use crate::config::vary::Axis;
use crate::diag::{Error, Result};
use crate::sizing::candidates::{self, Combination};
use crate::sizing::case;

/// More cells than anybody reads; a larger number is a slip.
const CELLS_MAX: usize = 200_000;

/// One cell: values of the varied keys, and a seed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cell {
    /// The number of each key's value.
    pub combination: Combination,
    /// The seed.
    pub seed: u64,
    /// What it is known by; none if it cannot run.
    pub hash: Option<String>,
    /// Why it cannot run.
    pub refused: Option<String>,
}

/// The cells of a sweep.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The varied keys.
    pub axes: Vec<Axis>,
    /// The cells: the last key's values run fastest but for the seeds.
    pub cells: Vec<Cell>,
    /// What the plan is known by.
    pub hash: String,
}

impl Plan {
    /// The cells of these keys; `read` reads the scenario of some assignments, `targets` are those
    /// of the command line, and `trace` gives the hash of the content of a scenario's trace.
    ///
    /// # Errors
    /// A value with which no cell can run, or too many cells.
    pub fn new(
        axes: Vec<Axis>,
        read: impl Fn(&[String]) -> Result<Scenario>,
        targets: &[String],
        trace: impl Fn(&Scenario) -> Result<String>,
    ) -> Result<Self> {
        if let Some(axis) = axes.iter().find(|axis| axis.key == "trace") {
            let error = Error::new("a sweep has one trace: sweep each into a folder of its own");
            return Err(axis.at(error.in_field("--set trace")));
        }
        let seeds_vary = axes.iter().find(|axis| axis.key == "run.seed");
        let hashes = |combination: &Combination| {
            let scenario = read(&candidates::assignments(&axes, combination))?;
            if let Some(axis) = seeds_vary.filter(|_| scenario.seeds > 1) {
                let error =
                    Error::new("run.seed is in a list, and several seeds are asked for too");
                return Err(axis.at(error.in_field("--set run.seed")));
            }
            let values = values(&axes, combination);
            let checked = case::read_targets(&scenario, targets)?;
            let trace = trace(&scenario)?;
            let seeds = (0..u64::from(scenario.seeds)).map(|more| {
                let seed = scenario.seed.saturating_add(more);
                let scenario = Scenario { seed, ..scenario.clone() };
                Ok((seed, identity::of_cell(&scenario, &checked, &values, &trace)?))
            });
            seeds.collect::<Result<Vec<_>>>()
        };
        let mut cells = Vec::new();
        for (combination, cell) in candidates::each(&axes, hashes)? {
            match cell {
                Ok(seeds) => cells.extend(seeds.into_iter().map(|(seed, hash)| Cell {
                    combination: combination.clone(),
                    seed,
                    hash: Some(hash),
                    refused: None,
                })),
                Err(error) => cells.push(Cell {
                    combination,
                    seed: 0,
                    hash: None,
                    refused: Some(error.message().to_owned()),
                }),
            }
            if cells.len() > CELLS_MAX {
                return Err(Error::new(format!("a sweep has at most {CELLS_MAX} cells")));
            }
        }
        let mut plan = Self { axes, cells, hash: String::new() };
        plan.hash = plan.identity();
        Ok(plan)
    }

    fn identity(&self) -> String {
        let mut hash = Hash::default();
        hash.part(&identity::version());
        for cell in &self.cells {
            hash.part(&(self.values(cell), cell.seed, &cell.hash, &cell.refused));
        }
        hash.text()
    }

    /// The varied keys of a cell with their values.
    #[must_use]
    pub fn values(&self, cell: &Cell) -> Vec<(String, String)> {
        values(&self.axes, &cell.combination)
    }

    /// Says which cell an error is about.
    pub(super) fn named(&self, cell: &Cell, error: Error) -> Error {
        let name = candidates::name(&self.axes, &cell.combination);
        error.help(format!("in the cell {name} seed={}; cells that are done are kept", cell.seed))
    }
}

fn values(axes: &[Axis], combination: &Combination) -> Vec<(String, String)> {
    let pairs = axes.iter().zip(&combination.values);
    pairs.map(|(axis, value)| (axis.key.clone(), axis.texts()[*value].clone())).collect()
}
