//! The folder of a sweep: `sweep.json` with its plan, `cells/` with a file a cell, and
//! `results.csv` once every cell is there.
//!
//! Files take their names only when they are whole, so a sweep may be killed at any moment.

use std::fs;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use xxhash_rust::xxh3::xxh3_64;

use super::identity;
use super::plan::Plan;
use crate::diag::{Error, Result};
use crate::trace::canonical::new_file::NewFile;

/// The version of the folder's form.
const FORMAT: u32 = 1;
const MANIFEST: &str = "sweep.json";
const CELLS: &str = "cells";
/// The table of all cells, in their folder.
pub const RESULTS: &str = "results.csv";

/// The folder of a sweep.
#[derive(Clone, Debug)]
pub struct Store {
    folder: PathBuf,
}

/// What is found of a cell.
#[derive(Clone, Debug, PartialEq)]
pub enum Found {
    /// Nothing.
    Nothing,
    /// A file that is not what was written: it counts for nothing.
    Damaged,
    /// Its result.
    Whole(Value),
}

/// The plan of a sweep as it is kept in its folder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// Version of the folder's form.
    pub format: u32,
    /// Version of the program's model.
    pub model_version: String,
    /// What the plan is known by.
    pub plan: String,
    /// The varied keys.
    pub keys: Vec<String>,
    /// The cells, in the order of the results.
    pub cells: Vec<Row>,
}

/// A cell as it is kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Row {
    /// Values of the varied keys.
    pub values: Vec<String>,
    /// The seed; none if the cell cannot run.
    pub seed: Option<u64>,
    /// What it is known by; none if it cannot run.
    pub cell: Option<String>,
    /// Why it cannot run.
    pub refused: Option<String>,
}

impl Manifest {
    /// That of a plan.
    #[must_use]
    pub fn of(plan: &Plan) -> Self {
        let rows = plan.cells.iter().map(|cell| Row {
            values: plan.values(cell).into_iter().map(|(_, value)| value).collect(),
            seed: cell.hash.is_some().then_some(cell.seed),
            cell: cell.hash.clone(),
            refused: cell.refused.clone(),
        });
        Self {
            format: FORMAT,
            model_version: identity::version(),
            plan: plan.hash.clone(),
            keys: plan.axes.iter().map(|axis| axis.key.clone()).collect(),
            cells: rows.collect(),
        }
    }
}

impl Store {
    /// The folder, which is made if it is not there.
    ///
    /// # Errors
    /// If it cannot be made.
    pub fn create(folder: &Path) -> Result<Self> {
        let cells = folder.join(CELLS);
        fs::create_dir_all(&cells).map_err(|error| Error::io(&cells, "make the folder", &error))?;
        Ok(Self { folder: folder.to_owned() })
    }

    /// A folder that is there, with its plan.
    ///
    /// # Errors
    /// If it holds no sweep, or one of another version of the program.
    pub fn open(folder: &Path) -> Result<(Self, Manifest)> {
        let path = folder.join(MANIFEST);
        let text = fs::read_to_string(&path).map_err(|error| {
            Error::io(&path, "read the sweep", &error).help("a sweep's folder holds sweep.json")
        })?;
        let broken = |error: serde_json::Error| {
            Error::new(format!("no plan of a sweep: {error}")).in_file(path.display())
        };
        let manifest: Manifest = serde_json::from_str(&text).map_err(broken)?;
        if manifest.format != FORMAT {
            let error = Error::found(manifest.format, FORMAT).in_field("format");
            return Err(error.in_file(path.display()));
        }
        Ok((Self { folder: folder.to_owned() }, manifest))
    }

    /// The folder's name, for messages.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Where the results are.
    #[must_use]
    pub fn results(&self) -> PathBuf {
        self.folder.join(RESULTS)
    }

    /// Makes the folder one of this plan: results of another one are taken away, its cells stay
    /// and count for nothing unless this plan has them too.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn begin(&self, manifest: &Manifest) -> Result<()> {
        let results = self.results();
        match fs::remove_file(&results) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(Error::io(&results, "take away the results of before", &error));
            }
            _ => {}
        }
        let text = serde_json::to_string_pretty(manifest);
        let text = text.map_err(|error| Error::new(format!("cannot write the plan: {error}")))?;
        put(&self.folder.join(MANIFEST), format!("{text}\n").as_bytes())
    }

    /// What is there of a cell.
    ///
    /// # Errors
    /// A file that cannot be read.
    pub fn read(&self, hash: &str) -> Result<Found> {
        let path = self.path(hash);
        let text = match fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Found::Nothing),
            Err(error) => return Err(Error::io(&path, "read the cell", &error)),
        };
        let Ok(mut value) = serde_json::from_slice::<Value>(&text) else {
            return Ok(Found::Damaged);
        };
        let result = value.get_mut("result").map(Value::take).unwrap_or(Value::Null);
        let is_whole = value["cell"] == json!(hash) && value["checksum"] == checksum(&result);
        Ok(if is_whole { Found::Whole(result) } else { Found::Damaged })
    }

    /// Keeps the result of a cell.
    ///
    /// # Errors
    /// If it cannot be written; nothing is left of it then.
    pub fn write(&self, hash: &str, result: &Value) -> Result<()> {
        let value = json!({ "cell": hash, "checksum": checksum(result), "result": result });
        put(&self.path(hash), format!("{value}\n").as_bytes())
    }

    fn path(&self, hash: &str) -> PathBuf {
        self.folder.join(CELLS).join(format!("{hash}.json"))
    }
}

fn checksum(result: &Value) -> Value {
    json!(format!("{:016x}", xxh3_64(result.to_string().as_bytes())))
}

fn put(path: &Path, bytes: &[u8]) -> Result<()> {
    let mut file = NewFile::create(path)?;
    let written = file.write_all(bytes).and_then(|()| file.flush());
    written.map_err(|error| Error::io(path, "write", &error))?;
    file.commit()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_that_was_changed_or_cut_off_counts_for_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::create(folder.path()).unwrap();
        assert_eq!(store.read("ab").unwrap(), Found::Nothing);
        let result = json!({ "met": true, "figures": { "x": 0.1, "y": null } });
        store.write("ab", &result).unwrap();
        assert_eq!(store.read("ab").unwrap(), Found::Whole(result));
        let path = store.path("ab");
        let text = fs::read_to_string(&path).unwrap();
        for other in [text.replace("0.1", "0.2"), text[..text.len() - 5].to_owned(), String::new()]
        {
            fs::write(&path, other).unwrap();
            assert_eq!(store.read("ab").unwrap(), Found::Damaged);
        }
        fs::write(store.path("cd"), text).unwrap();
        assert_eq!(store.read("cd").unwrap(), Found::Damaged);
    }
}
