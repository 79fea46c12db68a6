//! CSV with a header: columns by name, rows with their place, cells as what they should hold.

use std::path::Path;

use csv::{ByteRecord, ReaderBuilder};

use super::Job;
use super::lines::{Input, unreadable};
use crate::diag::{Error, Result, nearest};
use crate::trace::check::{NAME_BYTES_MAX, TIME_MAX, TOKENS_MAX};
use crate::units::{Span, Tokens};

/// Characters of a wrong value that a message repeats.
const SHOWN_CHARS_MAX: usize = 40;

/// A column that a format has.
#[derive(Clone, Copy, Debug)]
pub(super) struct Column {
    /// Its name in the header.
    pub(super) name: &'static str,
    /// Whether every file of the format has it.
    pub(super) required: bool,
}

impl Column {
    /// One that must be there.
    pub(super) const fn required(name: &'static str) -> Self {
        Self { name, required: true }
    }

    /// One that only some files have.
    pub(super) const fn optional(name: &'static str) -> Self {
        Self { name, required: false }
    }
}

/// A CSV file that is being read.
pub(super) struct Table {
    reader: csv::Reader<Input>,
    record: ByteRecord,
    columns: &'static [Column],
    /// Where each column stands, where there is one.
    places: Vec<Option<usize>>,
    /// Columns in the header.
    width: usize,
    file: std::path::PathBuf,
    /// Columns that the format does not have.
    pub(super) unknown: Vec<String>,
}

impl Table {
    /// Opens a file of these columns.
    pub(super) fn open(job: &Job, file: &Path, columns: &'static [Column]) -> Result<Self> {
        let mut reader = ReaderBuilder::new();
        let mut reader = reader.has_headers(false).flexible(true).from_reader(job.open(file)?);
        let mut record = ByteRecord::new();
        if !read_record(&mut reader, &mut record, file)? {
            return Err(Error::new("the file is empty").in_file(file.display()));
        }
        let names = header_names(&record);
        let places =
            places(&names, columns).map_err(|error| error.in_file(file.display()).at_line(1))?;
        let known = |name: &&String| !columns.iter().any(|column| column.name == **name);
        let unknown = names.iter().filter(known).cloned().collect();
        let (width, file) = (names.len(), file.to_owned());
        Ok(Self { reader, record, columns, places, width, file, unknown })
    }

    /// The next row, or `None` at the end.
    pub(super) fn next(&mut self) -> Result<Option<Row<'_>>> {
        let more = read_record(&mut self.reader, &mut self.record, &self.file)?;
        Ok(more.then_some(Row { table: self }))
    }
}

fn read_record(
    reader: &mut csv::Reader<Input>,
    record: &mut ByteRecord,
    file: &Path,
) -> Result<bool> {
    reader.read_byte_record(record).map_err(|error| match error.kind() {
        csv::ErrorKind::Io(error) => unreadable(file, error),
        _ => Error::new(error.to_string()).in_file(file.display()),
    })
}

/// The names in a header, without the mark that some programs put before a text.
pub(super) fn header_names(record: &ByteRecord) -> Vec<String> {
    let text = |name: &[u8]| String::from_utf8_lossy(name).trim().to_owned();
    let mut names: Vec<String> = record.iter().map(text).collect();
    if let Some(first) = names.first_mut() {
        *first = first.trim_start_matches('\u{feff}').trim_matches('"').to_owned();
    }
    names
}

fn places(names: &[String], columns: &[Column]) -> Result<Vec<Option<usize>>> {
    let mut places = Vec::with_capacity(columns.len());
    for column in columns {
        let mut at = names.iter().enumerate().filter(|(_, name)| *name == column.name);
        let place = at.next().map(|(place, _)| place);
        if let Some((again, _)) = at.next() {
            let error = Error::new("this column appears twice").in_field(column.name);
            return Err(error.at_column(again as u64 + 1));
        }
        places.push(place);
    }
    let absent = |(column, place): &(&Column, &Option<usize>)| column.required && place.is_none();
    let missing: Vec<&str> =
        columns.iter().zip(&places).filter(absent).map(|(column, _)| column.name).collect();
    if missing.is_empty() {
        return Ok(places);
    }
    let mut error = Error::new(format!("the header lacks {}", missing.join(", ")));
    for name in missing {
        if let Some(near) = nearest(name, names.iter().map(String::as_str)) {
            error = error.help(format!("`{}` is there; the format has `{name}`", shown(near)));
        }
    }
    Err(error.help("`tonnage import auto` tells what a file is"))
}

/// The start of a text, safe to print.
fn shown(text: &str) -> String {
    text.chars().take(SHOWN_CHARS_MAX).collect::<String>().escape_debug().to_string()
}

/// A row of a table. Its columns are named by their number in the format's list.
pub(super) struct Row<'a> {
    table: &'a Table,
}

impl Row<'_> {
    /// Whether it has as many cells as the header.
    pub(super) fn is_whole(&self) -> Result<()> {
        let (found, width) = (self.table.record.len(), self.table.width);
        if found == width {
            return Ok(());
        }
        Err(Error::new(format!(
            "found {found} fields, allowed: {width} as in the header (is the file cut off here?)"
        )))
    }

    /// The text of a cell; empty where the file has no such column.
    pub(super) fn text(&self, column: usize) -> Result<&str> {
        let Some(place) = self.table.places[column] else { return Ok("") };
        let bytes = self.table.record.get(place).unwrap_or_default();
        let text = str::from_utf8(bytes).map_err(|error| {
            let byte = error.valid_up_to() + 1;
            self.wrong(column, Error::new(format!("byte {byte} of the field is not UTF-8")))
        })?;
        Ok(text.trim())
    }

    /// A text that may stand in a trace as a name.
    pub(super) fn name(&self, column: usize) -> Result<&str> {
        let text = self.text(column)?;
        if text.len() <= NAME_BYTES_MAX && !text.chars().any(char::is_control) {
            return Ok(text);
        }
        let allowed = format!("up to {NAME_BYTES_MAX} bytes without control characters");
        Err(self.unfit(column, text, allowed))
    }

    /// A number of tokens.
    pub(super) fn tokens(&self, column: usize) -> Result<Tokens> {
        let text = self.text(column)?;
        let tokens = whole_number(text).map(Tokens).filter(|tokens| *tokens <= TOKENS_MAX);
        tokens.ok_or_else(|| {
            self.unfit(column, text, format!("a whole number from 0 to {TOKENS_MAX}"))
        })
    }

    /// A number that counts something.
    pub(super) fn number(&self, column: usize) -> Result<u64> {
        let text = self.text(column)?;
        whole_number(text).ok_or_else(|| self.unfit(column, text, "a whole number from 0"))
    }

    /// A time in seconds.
    pub(super) fn secs(&self, column: usize) -> Result<Span> {
        let text = self.text(column)?;
        let span = Span::parse_secs(text).filter(|span| *span <= TIME_MAX);
        span.ok_or_else(|| self.unfit(column, text, "a number of seconds from 0 to 100 years"))
    }

    /// The error for a cell that holds something else.
    pub(super) fn unfit(
        &self,
        column: usize,
        found: &str,
        allowed: impl std::fmt::Display,
    ) -> Error {
        self.wrong(column, Error::found(shown(found), allowed))
    }

    /// Names the column at fault.
    pub(super) fn wrong(&self, column: usize, error: Error) -> Error {
        let error = error.in_field(self.table.columns[column].name);
        match self.table.places[column] {
            Some(place) => error.at_column(place as u64 + 1),
            None => error,
        }
    }

    /// Names file and line.
    pub(super) fn placed(&self, error: Error) -> Error {
        let line = self.table.record.position().map_or(0, csv::Position::line);
        error.in_file(self.table.file.display()).at_line(line)
    }
}

/// A whole number as programs and data frames write it: `12`, `12.0`.
fn whole_number(text: &str) -> Option<u64> {
    let digits = match text.split_once('.') {
        Some((whole, fraction)) if fraction.bytes().all(|byte| byte == b'0') => whole,
        Some(_) => return None,
        None => text,
    };
    let well_formed = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    if well_formed { digits.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_numbers_are_read_as_data_frames_write_them() {
        for (text, number) in [("0", 0), ("12", 12), ("12.0", 12), ("7.", 7)] {
            assert_eq!(whole_number(text), Some(number), "{text}");
        }
        for text in ["", "-1", "+1", "1.5", "1e3", " 1", ".0", "99999999999999999999", "nan"] {
            assert_eq!(whole_number(text), None, "{text}");
        }
    }

    #[test]
    fn a_header_that_lacks_a_column_is_told_what_is_like_it() {
        let columns = [Column::required("Response tokens"), Column::optional("Session ID")];
        let names = ["response tokens".to_owned(), "x".to_owned()];
        let error = places(&names, &columns).unwrap_err().to_string();
        assert!(error.contains("lacks Response tokens") && error.contains("`response tokens` is"));
        let twice = ["Response tokens".to_owned(), "Response tokens".to_owned()];
        let error = places(&twice, &columns).unwrap_err().to_string();
        assert!(error.contains("Response tokens: this column appears twice"), "{error}");
        assert_eq!(places(&twice[..1], &columns), Ok(vec![Some(0), None]));
    }
}
