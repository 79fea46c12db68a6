//! A table of a sweep's results: a row a cell, a column a key or figure.

use std::path::{Path, PathBuf};

use crate::diag::{Error, Result};
use crate::sizing::sweep::store::RESULTS;

/// Column that follows those of the varied keys.
const SEED: &str = "run.seed";
/// Columns of a table that a sweep wrote, of which a foreign table lacks some.
const OWN: [&str; 3] = [SEED, "cell", "refused"];

/// A sweep's results.
#[derive(Clone, Debug)]
pub struct Table {
    path: PathBuf,
    columns: Vec<String>,
    keys: usize,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// Reads a sweep's folder or its table.
    ///
    /// # Errors
    /// A file that cannot be read or is not a sweep's table.
    pub fn read(path: &Path) -> Result<Self> {
        let path = if path.is_dir() { path.join(RESULTS) } else { path.to_owned() };
        let mut reader = csv::Reader::from_path(&path).map_err(|error| broken(&path, &error))?;
        let header = reader.headers().map_err(|error| broken(&path, &error))?;
        let columns: Vec<String> = header.iter().map(str::to_owned).collect();
        for name in OWN {
            if !columns.iter().any(|column| column == name) {
                let found = "a table without it";
                let error = Error::found(found, "the results.csv of a sweep");
                return Err(error.in_file(path.display()).at_line(1).in_field(name));
            }
        }
        // What stands before the hash are the varied keys, and the seed.
        let keys = columns.iter().position(|column| column == "cell").unwrap_or(0);
        let rows = reader.records().map(|row| {
            let row = row.map_err(|error| broken(&path, &error))?;
            Ok(row.iter().map(str::to_owned).collect::<Vec<_>>())
        });
        let rows = rows.collect::<Result<Vec<_>>>()?;
        let refused = columns.iter().position(|column| column == "refused").unwrap_or(0);
        let rows: Vec<_> = rows.into_iter().filter(|row| row[refused].is_empty()).collect();
        if rows.is_empty() {
            let error = Error::found("no cell that could run", "one or more");
            return Err(error.in_file(path.display()));
        }
        Ok(Self { path, columns, keys, rows })
    }

    /// The varied keys but the seed, in the order of the table.
    #[must_use]
    pub fn keys(&self) -> Vec<&str> {
        let keys = self.columns[..self.keys].iter().map(String::as_str);
        keys.filter(|key| *key != SEED).collect()
    }

    /// The values that a key has, in the order of the table.
    #[must_use]
    pub fn values(&self, key: usize) -> Vec<&str> {
        let mut values: Vec<&str> = Vec::new();
        for row in &self.rows {
            if !values.contains(&&*row[key]) {
                values.push(&row[key]);
            }
        }
        values
    }

    /// Number of a key's column, by its name or the last part of it where that is enough.
    ///
    /// # Errors
    /// No such key, or several.
    pub fn key(&self, name: &str) -> Result<usize> {
        let keys = self.keys();
        let ends = |key: &&str| key.strip_suffix(name).is_some_and(|head| head.ends_with('.'));
        let found = match keys.iter().find(|key| **key == name) {
            Some(key) => vec![*key],
            None => keys.iter().copied().filter(ends).collect(),
        };
        match found[..] {
            [key] => Ok(self.column(key).expect("a key is a column")),
            [] => {
                // The last parts are known as well.
                let parts = keys.iter().filter_map(|key| key.rsplit('.').next());
                let known: Vec<&str> = parts.chain(keys.iter().copied()).collect();
                let known = known.iter().copied();
                Err(Error::unknown("varied key", name, known).in_file(self.path.display()))
            }
            _ => Err(Error::found(name, format!("one of {}", found.join(", ")))),
        }
    }

    /// Number of a column.
    #[must_use]
    pub fn column(&self, name: &str) -> Option<usize> {
        self.columns.iter().position(|column| column == name)
    }

    /// All figures that can be drawn.
    pub fn figures(&self) -> impl Iterator<Item = &str> {
        self.columns[self.keys..].iter().map(String::as_str).filter(|name| !OWN.contains(name))
    }

    /// A number in a row; none where the cell has no such figure.
    ///
    /// # Errors
    /// What is not a number.
    pub fn number(&self, row: &[String], column: usize) -> Result<Option<f64>> {
        let text = &row[column];
        if text.is_empty() {
            return Ok(None);
        }
        text.parse().map(Some).map_err(|_| {
            let error = Error::found(text, "a figure that is a number");
            error.in_file(self.path.display()).in_field(&self.columns[column])
        })
    }

    /// The cells that could run.
    #[must_use]
    pub fn rows(&self) -> &[Vec<String>] {
        &self.rows
    }

    /// Keeps the rows in which a key has a value.
    ///
    /// # Errors
    /// A value that the key never has.
    pub fn only(mut self, key: &str, value: &str) -> Result<Self> {
        let column = self.key(key)?;
        if !self.values(column).contains(&value) {
            let error = Error::unknown("value", value, self.values(column));
            return Err(error.in_file(self.path.display()).in_field(key));
        }
        self.rows.retain(|row| row[column] == value);
        Ok(self)
    }
}

fn broken(path: &Path, error: &csv::Error) -> Error {
    let made = Error::new(error.to_string()).in_file(path.display());
    match error.position() {
        Some(position) => made.at_line(position.line()),
        None => made,
    }
}
