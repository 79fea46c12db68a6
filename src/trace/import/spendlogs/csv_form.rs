//! CSV with a header, as psql's `\copy ... csv header` writes it. The header's names decide.

use std::io::{self, Read};
use std::path::Path;

use csv::{ByteRecord, ReaderBuilder};

use super::columns::{COLUMNS, COUNT, Column, Fault, Fields};
use super::metadata::{Metadata, user_agent_of_text};
use super::page::note_size;
use super::report::FileReport;
use super::rows::Collector;
use super::time::{self, UtcOffset};
use crate::diag::{Error, Result, Warning, nearest};

/// Reads all rows of a file.
pub(super) fn read(path: &Path, source: impl Read, collector: &mut Collector) -> Result<()> {
    let mut reader = ReaderBuilder::new();
    reader.has_headers(false).flexible(true);
    let mut reader = reader.from_reader(LastByte { source, last: b'\n' });
    let mut record = ByteRecord::new();
    let name = path.display().to_string();
    let failure = |error: &csv::Error| read_error(path, error);
    reader.read_byte_record(&mut record).map_err(|error| failure(&error))?;
    let width = record.len();
    let columns = Header::read(&record).map_err(|error| error.in_file(&name).at_line(1))?;
    let mut rows = 0;
    while reader.read_byte_record(&mut record).map_err(|error| failure(&error))? {
        let line = record.position().map_or(0, csv::Position::line);
        rows += 1;
        if let Err(error) = take(&record, width, &columns, collector) {
            collector.reject(error.in_file(&name).at_line(line));
        }
    }
    if reader.get_ref().last != b'\n' {
        let text = format!("{name} does not end with a line break: is its last row complete?");
        collector.warnings.push(Warning(text));
    }
    note_size(collector, &name, rows);
    collector.files.push(FileReport { name, form: "CSV", rows });
    Ok(())
}

/// Remembers the last byte that went through.
struct LastByte<R> {
    source: R,
    last: u8,
}

impl<R: Read> Read for LastByte<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.source.read(buffer)?;
        if let Some(at) = count.checked_sub(1) {
            self.last = buffer[at];
        }
        Ok(count)
    }
}

fn take(
    record: &ByteRecord,
    width: usize,
    header: &Header,
    collector: &mut Collector,
) -> Result<()> {
    if record.len() != width {
        let found = record.len();
        return Err(Error::new(format!(
            "found {found} fields, allowed: {width} as in the header (is the file cut off here?)"
        )));
    }
    let mut fields = Fields::default();
    for (column, _) in COLUMNS {
        let Some(at) = header.at[column as usize] else { continue };
        let text = std::str::from_utf8(&record[at]).map_err(|error| {
            let byte = error.valid_up_to() + 1;
            header.place(column, Error::new(format!("byte {byte} of the field is not UTF-8")))
        })?;
        match column {
            Column::Metadata => fields.metadata = Metadata::parse(text),
            Column::RequestTags => fields.user_agent = user_agent_of_text(text),
            _ => fields.set(column, text),
        }
    }
    collector
        .take(&fields)
        .map_err(|Fault { column, message }| header.place(column, Error::new(message)))
}

/// Where each column stands.
struct Header {
    at: [Option<usize>; COUNT],
}

impl Header {
    fn read(record: &ByteRecord) -> Result<Self> {
        let names: Vec<String> =
            record.iter().map(|name| String::from_utf8_lossy(name).trim().to_owned()).collect();
        let mut at = [None; COUNT];
        for (index, name) in names.iter().enumerate() {
            let Some(column) = Column::named(name) else { continue };
            if at[column as usize].replace(index).is_some() {
                let error = Error::new("this column appears twice");
                return Err(error.at_column(index as u64 + 1).in_field(name));
            }
        }
        let required = COLUMNS.into_iter().filter(|(column, _)| column.is_required());
        let missing: Vec<&str> = required
            .filter(|(column, _)| at[*column as usize].is_none())
            .map(|(_, name)| name)
            .collect();
        if missing.is_empty() {
            return Ok(Self { at });
        }
        Err(wrong_header(&names, &missing, at.iter().all(Option::is_none)))
    }

    /// Adds where in the row a fault is.
    fn place(&self, column: Column, error: Error) -> Error {
        let error = error.in_field(column.name());
        match self.at[column as usize] {
            Some(index) => error.at_column(index as u64 + 1),
            None => error,
        }
    }
}

/// The error for a first line that does not name the needed columns.
fn wrong_header(names: &[String], missing: &[&str], nothing_known: bool) -> Error {
    let utc = UtcOffset::default();
    if nothing_known && names.iter().any(|name| time::parse(name, utc).is_some()) {
        return Error::new("the first line is a row, not a header")
            .help("export with `csv header`: columns are found by name, their order varies");
    }
    if nothing_known && names.len() == 1 && names[0].contains(';') {
        return Error::new("fields are separated by `;`, allowed: `,`");
    }
    if nothing_known {
        return Error::new(
            "no export of LiteLLM_SpendLogs: no column of that table is in the header",
        )
        .help(format!("needed: {}", missing.join(", ")));
    }
    let mut error = Error::new(format!("the header lacks {}", missing.join(", ")));
    for name in missing {
        let near = nearest(name, names.iter().map(String::as_str));
        if let Some(near) = near.filter(|near| Column::named(near).is_none()) {
            error = error.help(format!("`{near}` is there; the table calls it `{name}`"));
        }
    }
    error
}

fn read_error(path: &Path, error: &csv::Error) -> Error {
    match error.kind() {
        csv::ErrorKind::Io(error) => Error::io(path, "read", error),
        _ => Error::new(error.to_string()).in_file(path.display()),
    }
}
