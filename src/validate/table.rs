//! Tables of measurements: CSV with named columns, in one of three forms that are told apart by
//! their columns.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use csv::StringRecord;

use crate::diag::{Error, Result};

/// What a table holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// One serving run a row, with its mean latencies.
    Runs,
    /// One request a row, of one or more runs.
    Requests,
    /// One level of concurrency a row, with the hit rate of the prefix cache.
    Sweeps,
}

/// A column: its name, and what it holds.
pub type Column = (&'static str, &'static str);

impl Form {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Runs, Self::Requests, Self::Sweeps];

    /// Columns that a table of this form must have.
    #[must_use]
    pub fn needed(self) -> &'static [Column] {
        match self {
            Self::Runs => super::runs::NEEDED,
            Self::Requests => super::requests::NEEDED,
            Self::Sweeps => super::sweeps::NEEDED,
        }
    }

    /// Columns that it may have.
    #[must_use]
    pub fn optional(self) -> &'static [Column] {
        match self {
            Self::Runs => super::runs::OPTIONAL,
            Self::Requests => super::requests::OPTIONAL,
            Self::Sweeps => super::sweeps::OPTIONAL,
        }
    }

    /// In words.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Runs => "serving runs",
            Self::Requests => "requests of serving runs",
            Self::Sweeps => "sweeps of concurrency",
        }
    }

    fn columns(self) -> impl Iterator<Item = &'static str> + Clone {
        self.needed().iter().chain(self.optional()).map(|(name, _)| *name)
    }
}

/// More rows than any study has: a longer file is something else.
const MAX_ROWS: usize = 1_000_000;
/// Bytes of the longest file that is read.
const MAX_BYTES: u64 = 1 << 30;

/// A table, read whole.
#[derive(Debug)]
pub struct Table {
    file: String,
    /// What it holds.
    pub form: Form,
    /// Position by column of the form.
    columns: Vec<(&'static str, usize)>,
    rows: Vec<StringRecord>,
}

/// One row, with its place.
#[derive(Clone, Copy, Debug)]
pub struct Row<'a> {
    table: &'a Table,
    record: &'a StringRecord,
}

impl Table {
    /// Reads a file.
    ///
    /// # Errors
    /// What is no such table, with the place.
    pub fn read(path: &Path) -> Result<Self> {
        let file = File::open(path).map_err(|error| Error::io(path, "open", &error))?;
        Self::read_from(file.take(MAX_BYTES), &path.display().to_string())
    }

    /// Reads a table from somewhere.
    ///
    /// # Errors
    /// What is no such table, with the place.
    pub fn read_from(input: impl Read, file: &str) -> Result<Self> {
        let broken = |error: csv::Error| {
            let line = error.position().map_or(1, csv::Position::line);
            let text = match error.kind() {
                csv::ErrorKind::Utf8 { .. } => "not UTF-8".to_owned(),
                csv::ErrorKind::UnequalLengths { expected_len, len, .. } => {
                    format!("found {len} fields, allowed: {expected_len}, as in the header")
                }
                _ => format!("not CSV: {error}"),
            };
            Error::new(text).in_file(file).at_line(line)
        };
        let mut reader = csv::ReaderBuilder::new().trim(csv::Trim::All).from_reader(input);
        let header = reader.headers().map_err(broken)?.clone();
        let form = form_of(&header).map_err(|error| error.in_file(file).at_line(1))?;
        let columns = columns_of(form, &header).map_err(|error| error.in_file(file).at_line(1))?;
        let mut rows = Vec::new();
        for record in reader.records() {
            rows.push(record.map_err(broken)?);
            if rows.len() > MAX_ROWS {
                return Err(Error::new(format!("more than {MAX_ROWS} rows")).in_file(file));
            }
        }
        if rows.is_empty() {
            return Err(Error::new("no row below the header").in_file(file));
        }
        Ok(Self { file: file.to_owned(), form, columns, rows })
    }

    /// Its rows, in order.
    pub fn rows(&self) -> impl Iterator<Item = Row<'_>> {
        self.rows.iter().map(|record| Row { table: self, record })
    }

    /// The file as the user named it.
    #[must_use]
    pub fn file(&self) -> &str {
        &self.file
    }
}

/// The form with which a header shares most of its columns, all needed ones counting twice.
fn form_of(header: &StringRecord) -> Result<Form> {
    let has = |name: &&str| header.iter().any(|found| found == *name);
    let score = |form: &Form| {
        let needed = form.needed().iter().filter(|(name, _)| has(name)).count();
        2 * needed + form.optional().iter().filter(|(name, _)| has(name)).count()
    };
    let best = Form::ALL.into_iter().max_by_key(|form| (score(form), form.needed().len()));
    let known = best.filter(|form| score(form) > form.needed().len());
    known.ok_or_else(|| {
        let forms = Form::ALL.map(|form| {
            let needed: Vec<&str> = form.needed().iter().map(|(name, _)| *name).collect();
            format!("{} ({})", form.name(), needed.join(", "))
        });
        Error::new(format!("these columns are of no known table, allowed: {}", forms.join("; ")))
    })
}

fn columns_of(form: Form, header: &StringRecord) -> Result<Vec<(&'static str, usize)>> {
    let mut columns: Vec<(&'static str, usize)> = Vec::new();
    for (position, found) in header.iter().enumerate() {
        let place = |error: Error| error.at_column(position as u64 + 1);
        let Some(name) = form.columns().find(|name| *name == found) else {
            let kind = format!("column of {}", form.name());
            return Err(place(Error::unknown(&kind, found, form.columns())));
        };
        if columns.iter().any(|(known, _)| *known == name) {
            return Err(place(Error::new(format!("the column `{name}` is there twice"))));
        }
        columns.push((name, position));
    }
    let has = |name: &str| columns.iter().any(|(known, _)| *known == name);
    match form.needed().iter().find(|(name, _)| !has(name)) {
        Some((name, what)) => {
            Err(Error::new(format!("the column `{name}` ({what}) is missing")).in_field(name))
        }
        None => Ok(columns),
    }
}

impl<'a> Row<'a> {
    /// Its line in the file.
    #[must_use]
    pub fn line(&self) -> u64 {
        self.record.position().map_or(0, csv::Position::line)
    }

    /// The text of a column; none where it is empty or not there.
    #[must_use]
    pub fn text(&self, name: &str) -> Option<&'a str> {
        let (_, position) = self.table.columns.iter().find(|(known, _)| *known == name)?;
        self.record.get(*position).filter(|text| !text.is_empty())
    }

    /// The text of a column that must not be empty.
    ///
    /// # Errors
    /// An empty field.
    pub fn needed(&self, name: &str) -> Result<&'a str> {
        self.text(name).ok_or_else(|| self.at(name, Error::new("this field must not be empty")))
    }

    /// A number from `min` to `max`.
    ///
    /// # Errors
    /// Anything else.
    pub fn number(&self, name: &str, min: f64, max: f64) -> Result<Option<f64>> {
        let Some(text) = self.text(name) else { return Ok(None) };
        let number = text.parse().ok().filter(|number: &f64| (min..=max).contains(number));
        let allowed = || format!("a number from {min} to {max}");
        number.map(Some).ok_or_else(|| self.at(name, Error::found(text, allowed())))
    }

    /// A whole number from `min` to `max`.
    ///
    /// # Errors
    /// Anything else.
    pub fn whole(&self, name: &str, min: u64, max: u64) -> Result<Option<u64>> {
        let Some(text) = self.text(name) else { return Ok(None) };
        let number = text.parse().ok().filter(|number: &u64| (min..=max).contains(number));
        let allowed = || format!("a whole number from {min} to {max}");
        number.map(Some).ok_or_else(|| self.at(name, Error::found(text, allowed())))
    }

    /// Gives an error its place.
    #[must_use]
    pub fn at(&self, name: &str, error: Error) -> Error {
        let column = self.table.columns.iter().find(|(known, _)| *known == name);
        let error = error.in_file(&self.table.file).at_line(self.line());
        match column {
            Some((_, position)) => error.at_column(*position as u64 + 1).with_field(name),
            None => error.with_field(name),
        }
    }
}
