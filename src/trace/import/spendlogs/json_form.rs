//! Rows as JSON: pages of `GET /spend/logs/v2`, arrays of `/spend/logs?summarize=false`,
//! `row_to_json` lines, and the StandardLoggingPayload objects that LiteLLM's loggers write.
//!
//! A file is one or more values; a value is a row, an array of rows, or a page with rows in `data`.
//! Rows are read one by one and never held together. What a row is, its keys say: the table's name
//! their id `request_id`, a logger's have `id` and `trace_id`. Other JSON that LiteLLM gives out
//! is recognised by its keys, too, and refused by name.

use std::collections::BTreeSet;
use std::path::Path;

use super::Options;
use super::columns::Fault;
use super::element::{Element, Key, What, key};
use super::input::{Input, read_error};
use super::json::{Fault as JsonFault, Kind, Read, Scanner};
use super::metadata::text;
use super::offsets::Offsets;
use super::open::note_size;
use super::report::FileReport;
use super::rows::Collector;
use crate::diag::{Error, Result, Warning};

/// Keys that are remembered to say what a file without rows is.
const KEYS_MAX: usize = 100;

/// Reads one file.
pub(super) fn read(
    path: &Path,
    source: Input,
    options: &Options,
    collector: &mut Collector,
) -> Result<FileReport> {
    let name = path.display().to_string();
    let mut scanner = Scanner::new(source);
    let mut reader = Reader {
        file: &name,
        collector,
        element: Element::default(),
        seen: Seen::default(),
        offsets: Offsets::default(),
        refusal: None,
    };
    loop {
        let value = match scanner.peek() {
            Ok(None) => break,
            Ok(Some(_)) => reader.value(&mut scanner),
            Err(fault) => Err(fault),
        };
        if let Some(refusal) = reader.refusal.take() {
            return Err(refusal.in_file(&name));
        }
        let Err(fault) = value else { continue };
        let broken = broken(path, &fault, scanner.source());
        let is_io = matches!(fault, JsonFault::Io(_));
        let is_lines = !reader.seen.is_array && !reader.seen.has_data && reader.seen.rows > 0;
        let can_be_left_out = is_lines || options.skip_bad && reader.seen.rows > 0;
        if is_io || !can_be_left_out {
            return Err(broken);
        }
        reader.collector.reject(broken);
        if !is_lines {
            break;
        }
        // One line is broken, the next one may be whole.
        scanner.next_line().map_err(|error| read_error(path, &error))?;
    }
    let Reader { seen, offsets, .. } = reader;
    // A page behind the last one has `data` without rows.
    if seen.rows == 0
        && !seen.has_data
        && let Some(what) = seen.refusal()
    {
        return Err(what.in_file(&name));
    }
    if seen.capped {
        collector.warnings.push(Warning(format!(
            "{name}: LiteLLM capped the total of its query (total_is_capped): there are more rows \
             than it says; ask for pages until `data` is empty"
        )));
    }
    collector.query_total = collector.query_total.max(seen.total);
    collector.warnings.extend(offsets.warning(&name, options.utc_offset));
    note_size(collector, &name, seen.rows);
    Ok(FileReport { form: seen.form(), rows: seen.rows, name })
}

fn broken(path: &Path, fault: &JsonFault, source: &mut Input) -> Error {
    let message = match fault {
        JsonFault::Io(error) => return read_error(path, error),
        JsonFault::Ended => "the JSON ends too early: the file is cut off".to_owned(),
        JsonFault::Syntax => "not valid JSON".to_owned(),
        JsonFault::TooLong(most) => format!("a text of more than {most} bytes"),
    };
    let place = Error::new(message).in_file(path.display());
    place.at_line(source.line()).at_column(source.column())
}

/// What was met in a file.
#[derive(Debug, Default)]
struct Seen {
    is_array: bool,
    has_data: bool,
    has_payloads: bool,
    /// Keys of the first object that is no row.
    keys: BTreeSet<String>,
    rows: u64,
    total: u64,
    capped: bool,
}

impl Seen {
    fn form(&self) -> &'static str {
        match (self.has_data, self.has_payloads, self.is_array) {
            (true, ..) => "v2 page",
            (_, true, _) => "logger payloads",
            (_, _, true) => "JSON array",
            _ => "JSON lines",
        }
    }

    /// Why this JSON holds no rows, if that is known.
    fn refusal(&self) -> Option<Error> {
        let has = |key: &str| self.keys.contains(key);
        let export = "ask for /spend/logs/v2?start_date=...&end_date=...&page_size=1000, page by \
                      page, or export CSV with psql";
        let refuse = |what: &str| Some(Error::new(what).help(export));
        if has("users") && has("models") {
            return refuse(
                "this is a sum per day, no rows: /spend/logs without summarize=false adds up",
            );
        }
        if has("results") && has("metadata") || has("api_requests") {
            return refuse("this is daily activity, one entry a day, and holds no calls");
        }
        if has("detail") || has("error") {
            return refuse("this is an error message of the API, not a page of rows");
        }
        if self.is_array && self.keys.is_empty() {
            return refuse("an empty array: no rows (a one-day query of /spend/logs gives none)");
        }
        refuse(
            "no rows of LiteLLM_SpendLogs: there is no `data`, no `request_id` and no logger's \
             `id` with `trace_id`",
        )
    }
}

/// Reads the values of a file.
struct Reader<'a> {
    file: &'a str,
    collector: &'a mut Collector,
    element: Element,
    seen: Seen,
    offsets: Offsets,
    /// Why the file cannot be read, once that is known.
    refusal: Option<Error>,
}

impl Reader<'_> {
    /// Reads a row, an array of rows, or a page.
    fn value(&mut self, scanner: &mut Scanner<Input>) -> Read<()> {
        match scanner.kind()? {
            Kind::Object => self.object(scanner),
            Kind::Array => {
                self.seen.is_array = true;
                self.elements(scanner, "")
            }
            Kind::String | Kind::Plain => Err(JsonFault::Syntax),
        }
    }

    /// Reads an object that is a row or a page.
    fn object(&mut self, scanner: &mut Scanner<Input>) -> Read<()> {
        let line = scanner.source().line();
        let mut is_page = false;
        self.element.clear();
        let mut keys = std::mem::take(&mut self.seen.keys);
        let notes_keys = self.seen.rows == 0;
        let read = scanner.object(
            |name| note_key(name, notes_keys, &mut keys),
            |scanner, key| match key {
                Key::Data => {
                    is_page = true;
                    self.seen.has_data = true;
                    self.elements(scanner, "data")
                }
                Key::Total => {
                    self.seen.total = self.seen.total.max(text(scanner)?.parse().unwrap_or(0));
                    Ok(())
                }
                Key::Capped => {
                    self.seen.capped |= text(scanner)? == "True";
                    Ok(())
                }
                key => self.element.value(scanner, key),
            },
        );
        self.seen.keys.append(&mut keys);
        read?;
        if !is_page {
            self.finish(|error| error.at_line(line));
        }
        Ok(())
    }

    /// Reads an array of rows.
    fn elements(&mut self, scanner: &mut Scanner<Input>, array: &str) -> Read<()> {
        let mut number = 0_u64;
        let is_array = scanner.array(|scanner| {
            let place = format!("{array}[{number}]");
            number += 1;
            if self.refusal.is_some() {
                // It is said instead of this.
                return Err(JsonFault::Ended);
            }
            if scanner.kind()? != Kind::Object {
                scanner.skip()?;
                self.seen.rows += 1;
                let error = Error::new("this is no object").in_field(place).in_file(self.file);
                self.collector.reject(error);
                return Ok(());
            }
            self.element.clear();
            let (seen, element) = (&mut self.seen, &mut self.element);
            let notes_keys = seen.rows == 0;
            scanner.object(
                |name| note_key(name, notes_keys, &mut seen.keys),
                |scanner, key| element.value(scanner, key),
            )?;
            self.finish(|error| {
                let field = error.place().field.clone().unwrap_or_default();
                error.with_field(format!("{place}.{field}").trim_end_matches('.'))
            });
            Ok(())
        })?;
        if !is_array {
            self.refusal = Some(
                Error::new("`data` is no array of rows")
                    .help("a page of /spend/logs/v2 has its rows in `data`"),
            );
        }
        Ok(())
    }

    /// Hands on what was read as a row, if it is one. `place` says where it stands.
    fn finish(&mut self, place: impl FnOnce(Error) -> Error) {
        let what = self.element.what();
        if what == What::Unknown && self.seen.rows == 0 {
            self.refusal = self.seen.refusal();
            return;
        }
        self.seen.rows += 1;
        self.seen.has_payloads |= what == What::Payload;
        if what == What::Row {
            self.offsets.note(self.element.start());
        }
        if let Err(Fault { column, message }) = self.element.take(what, self.collector) {
            let error = Error::new(message).in_field(column.name());
            self.collector.reject(place(error).in_file(self.file));
        }
        self.refusal = self.collector.check().err();
    }
}

/// What a key means; notes it if that may tell what the file is.
fn note_key(name: &[u8], notes: bool, keys: &mut BTreeSet<String>) -> Key {
    if notes && keys.len() < KEYS_MAX {
        keys.insert(String::from_utf8_lossy(name).into_owned());
    }
    key(name)
}
