//! Rows of a text table: CSV as psql's `\copy ... csv header` writes it, or COPY's text format.
//!
//! The header's names decide. Where there is none, [`super::layout`] finds the columns by what
//! they hold, or the user names them.

use std::io::{self, Cursor};
use std::path::Path;

use super::columns::{COLUMNS, COUNT, Column, Fault, TEXT_BYTES_MAX, Texts};
use super::input::{Input, read_error};
use super::json::{Fault as JsonFault, Scanner};
use super::metadata::{Metadata, broken, user_agent};
use super::offsets::Offsets;
use super::open::note_size;
use super::report::FileReport;
use super::request::Request;
use super::rows::Collector;
use super::table::{Dialect, End, FieldSource, Table};
use super::time::{self, UtcOffset};
use super::{Options, layout};
use crate::diag::{Error, Result, Warning, nearest};

/// Reads all rows of a file.
pub(super) fn read(
    path: &Path,
    mut source: Input,
    dialect: Dialect,
    options: &Options,
    collector: &mut Collector,
) -> Result<FileReport> {
    let name = path.display().to_string();
    let failed = |error: io::Error| read_error(path, &error);
    let sample = sample(source.head().map_err(failed)?, dialect);
    let (names, has_header) =
        names(&sample, options).map_err(|error| error.in_file(&name).at_line(1))?;
    let mut reader = Reader::new(&names).map_err(|error| error.in_file(&name).at_line(1))?;
    let mut table = Table::new(source, dialect);
    if has_header {
        table.next_row().map_err(failed)?;
        while table.skip().map_err(failed)? == End::Field {}
    }
    let mut rows = 0;
    let mut offsets = Offsets::default();
    while table.next_row().map_err(failed)? {
        let line = table.line();
        rows += 1;
        let fault = reader.row(&mut table).map_err(failed)?;
        offsets.note(reader.texts.bytes(Column::StartTime));
        let taken = fault.map_or(Ok(()), Err).and_then(|()| reader.take(collector));
        if let Err(error) = taken {
            collector.reject(error.in_file(&name).at_line(line));
        }
        collector.check()?;
    }
    if reader.last_end == End::File {
        let text = format!("{name} does not end with a line break: is its last row complete?");
        collector.warnings.push(Warning(text));
    }
    collector.warnings.extend(offsets.warning(&name, options.utc_offset));
    note_size(collector, &name, rows);
    let form = match (dialect, has_header) {
        (Dialect::Csv, true) => "CSV",
        (Dialect::Csv, false) => "CSV without header",
        (Dialect::CopyText, true) => "COPY text",
        (Dialect::CopyText, false) => "COPY text without header",
    };
    Ok(FileReport { name, form, rows })
}

/// The rows that are whole in the beginning of a file.
fn sample(head: &[u8], dialect: Dialect) -> Vec<Vec<Vec<u8>>> {
    let mut table = Table::new(Input::new(Box::new(Cursor::new(head.to_vec()))), dialect);
    let mut rows = Vec::new();
    while table.next_row().is_ok_and(|is_there| is_there) {
        let mut row: Vec<Vec<u8>> = Vec::new();
        let last = loop {
            let mut field = Vec::new();
            let Ok(end) = table.whole(|piece| field.extend_from_slice(piece)) else { break None };
            row.push(field);
            if end != End::Field {
                break Some(end);
            }
        };
        // The last row may go on outside of the sample, unless there is no other.
        if last == Some(End::Row) || rows.is_empty() {
            rows.push(row);
        }
    }
    rows
}

/// The names of the columns in their order, and whether the first row gave them.
fn names(sample: &[Vec<Vec<u8>>], options: &Options) -> Result<(Vec<String>, bool)> {
    let first = sample.first().map(Vec::as_slice).unwrap_or_default();
    let names: Vec<String> =
        first.iter().map(|name| String::from_utf8_lossy(name).trim().to_owned()).collect();
    let is_header = names.iter().any(|name| name == "request_id");
    let given = &options.columns;
    if !given.is_empty() && is_header {
        return Err(Error::new("the first line is a header, so --columns has no use")
            .help("leave --columns out: the header's names decide"));
    }
    if !given.is_empty() {
        return Ok((given.clone(), false));
    }
    let utc = UtcOffset::default();
    let nothing_known = names.iter().all(|name| Slot::named(name).is_none());
    if nothing_known && names.iter().any(|name| time::parse(name, utc).is_some()) {
        return Ok((layout::find(sample)?, false));
    }
    Ok((names, true))
}

/// What becomes of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Slot {
    Text(Column),
    Metadata,
    Tags,
    Messages,
    Request,
    Skipped,
}

impl Slot {
    /// What becomes of the column of that name, if it is one that is read.
    pub(super) fn named(name: &str) -> Option<Self> {
        match name {
            "messages" => Some(Self::Messages),
            "proxy_server_request" => Some(Self::Request),
            _ => Column::named(name).map(|column| match column {
                Column::Metadata => Self::Metadata,
                Column::RequestTags => Self::Tags,
                column => Self::Text(column),
            }),
        }
    }
}

/// Reads rows; holds what is known of the present one.
struct Reader {
    slots: Vec<Slot>,
    /// Where each column stands.
    at: [Option<usize>; COUNT],
    texts: Texts,
    metadata: Metadata,
    user_agent: Option<String>,
    request: Request,
    part: Vec<u8>,
    last_end: End,
}

impl Reader {
    fn new(names: &[String]) -> Result<Self> {
        let mut slots = Vec::new();
        let mut at = [None; COUNT];
        for (index, name) in names.iter().enumerate() {
            let slot = Slot::named(name).unwrap_or(Slot::Skipped);
            if slot != Slot::Skipped && slots.contains(&slot) {
                let error = Error::new("this column appears twice");
                return Err(error.at_column(index as u64 + 1).in_field(name));
            }
            slots.push(slot);
            if let Some(column) = Column::named(name) {
                at[column as usize] = Some(index);
            }
        }
        let required = COLUMNS.into_iter().filter(|(column, _)| column.is_required());
        let missing: Vec<&str> = required
            .filter(|(column, _)| at[*column as usize].is_none())
            .map(|(_, name)| name)
            .collect();
        if !missing.is_empty() {
            return Err(wrong_header(names, &missing, at.iter().all(Option::is_none)));
        }
        Ok(Self {
            slots,
            at,
            texts: Texts::default(),
            metadata: Metadata::default(),
            user_agent: None,
            request: Request::stored(),
            part: Vec::new(),
            last_end: End::Row,
        })
    }

    /// Reads a row; gives what is wrong with it.
    fn row(&mut self, table: &mut Table) -> io::Result<Option<Error>> {
        self.texts.clear();
        self.request.clear();
        self.metadata = Metadata::default();
        self.user_agent = None;
        let mut fault = None;
        let mut index = 0;
        let last = loop {
            let slot = self.slots.get(index).copied().unwrap_or(Slot::Skipped);
            let (end, message) = self.field(slot, table)?;
            if let Some(message) = message {
                fault.get_or_insert((index, message));
            }
            index += 1;
            if end != End::Field {
                break end;
            }
        };
        self.last_end = last;
        if table.is_unclosed() {
            return Ok(Some(Error::new(
                "the file ends within quotes: it is cut off, or a quote is missing here",
            )));
        }
        let width = self.slots.len();
        if index != width {
            return Ok(Some(Error::new(format!(
                "found {index} fields, allowed: {width} as in the header (is the file cut off \
                 here?)"
            ))));
        }
        Ok(fault.map(|(index, message)| {
            let name = match self.slots[index] {
                Slot::Text(column) => column.name(),
                Slot::Metadata => Column::Metadata.name(),
                Slot::Messages => "messages",
                Slot::Request => "proxy_server_request",
                Slot::Tags | Slot::Skipped => "",
            };
            Error::new(message).in_field(name).at_column(index as u64 + 1)
        }))
    }

    /// Reads a field as its column needs; gives what stands after it and what is wrong with it.
    #[inline]
    fn field(&mut self, slot: Slot, table: &mut Table) -> io::Result<(End, Option<String>)> {
        let column = match slot {
            Slot::Skipped => return Ok((table.skip()?, None)),
            Slot::Text(column) => column,
            _ => return self.json_field(slot, table),
        };
        let mut too_long = false;
        let end = self.texts.append(column, |bytes| {
            let start = bytes.len();
            let end = table.whole(|piece| {
                too_long |= bytes.len() - start + piece.len() > TEXT_BYTES_MAX;
                if !too_long {
                    bytes.extend_from_slice(piece);
                }
            })?;
            // COPY escapes those within a value, so this one belongs to a line break of Windows.
            if table.dialect() == Dialect::CopyText && end == End::Row && bytes.ends_with(b"\r") {
                bytes.pop();
            }
            Ok::<End, io::Error>(end)
        })?;
        Ok((end, too_long.then(|| format!("longer than {TEXT_BYTES_MAX} bytes"))))
    }

    fn json_field(&mut self, slot: Slot, table: &mut Table) -> io::Result<(End, Option<String>)> {
        let mut scanner = Scanner::new(FieldSource::new(table, &mut self.part));
        let read = match slot {
            Slot::Metadata => Metadata::read(&mut scanner, None).map(|read| self.metadata = read),
            Slot::Request => self.request.read(&mut scanner),
            // Nearly always `{}`.
            Slot::Messages => match scanner.peek() {
                Ok(Some(b'[')) => self.request.messages(&mut scanner),
                other => other.map(|_| ()),
            },
            // Tags are of no more use than their program, so those that are none count as absent.
            _ => match user_agent(&mut scanner) {
                Ok(found) => {
                    self.user_agent = found;
                    Ok(())
                }
                Err(JsonFault::Io(error)) => Err(JsonFault::Io(error)),
                Err(_) => Ok(()),
            },
        };
        let field = scanner.into_source();
        let passed = field.passed();
        let end = field.finish()?;
        match read {
            Ok(()) => Ok((end, None)),
            Err(JsonFault::Io(error)) => Err(error),
            Err(fault) => Ok((end, Some(broken(&fault, passed)))),
        }
    }

    /// Hands the row on.
    fn take(&mut self, collector: &mut Collector) -> Result<()> {
        let mut fields = self.texts.fields().map_err(|fault| place(&self.at, fault))?;
        let session = fields.get(Column::SessionId);
        let agent = self.request.headers.agent(session).to_owned();
        self.metadata.or_parent_session(self.request.headers.parent(session));
        fields.agent = agent.into();
        fields.metadata = Ok(std::mem::take(&mut self.metadata));
        fields.user_agent = self.user_agent.take();
        fields.prompt = self.request.prompt();
        fields.stream = self.request.stream;
        collector.take(&fields).map_err(|fault| place(&self.at, fault))
    }
}

/// Says where in the row a fault is.
fn place(at: &[Option<usize>; COUNT], Fault { column, message }: Fault) -> Error {
    let error = Error::new(message).in_field(column.name());
    match at[column as usize] {
        Some(index) => error.at_column(index as u64 + 1),
        None => error,
    }
}

/// The error for a first line that does not name the needed columns.
fn wrong_header(names: &[String], missing: &[&str], nothing_known: bool) -> Error {
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
