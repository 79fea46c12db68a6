//! Pages of `GET /spend/logs/v2`: an object whose `data` holds the rows, newest first.
//!
//! Other JSON that LiteLLM gives out is recognised by its keys and refused by name.

use std::collections::BTreeSet;
use std::fmt;
use std::io::Read;
use std::path::Path;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::columns::{Column, Fault, Fields};
use super::metadata::{AnyMetadata, AnyTags, Object, Scalar};
use super::report::FileReport;
use super::rows::Collector;
use crate::diag::{Error, Result, Warning};

/// LiteLLM's API gives out this many rows of a query at most, and does not say so in every route.
const API_ROWS_MAX: u64 = 10_000;

/// Reads one file of one page, or of several one after the other.
pub(super) fn read(
    path: &Path,
    source: impl Read,
    skip_bad: bool,
    collector: &mut Collector,
) -> Result<()> {
    let name = path.display().to_string();
    let mut json = serde_json::Deserializer::from_reader(source);
    let mut rows = 0;
    loop {
        let mut seen = Seen::default();
        let parsed = Top { file: &name, seen: &mut seen, collector }.deserialize(&mut json);
        rows += seen.rows;
        if let Some(what) = seen.refusal() {
            return Err(what.in_file(&name));
        }
        if let Err(error) = parsed {
            let broken = syntax_error(path, &error);
            if error.is_io() || !skip_bad || rows == 0 {
                return Err(broken);
            }
            collector.reject(broken);
            break;
        }
        note_page(collector, &name, &seen);
        if json.end().is_ok() {
            break;
        }
    }
    note_size(collector, &name, rows);
    collector.files.push(FileReport { name, form: "v2 page", rows });
    Ok(())
}

/// Warns of a file that holds as many rows as the API gives out at most.
pub(super) fn note_size(collector: &mut Collector, name: &str, rows: u64) {
    if rows == API_ROWS_MAX {
        collector.warnings.push(Warning(format!(
            "{name} holds exactly {API_ROWS_MAX} rows, the most that LiteLLM's API gives out: the \
             rest of the query may be missing"
        )));
    }
}

fn note_page(collector: &mut Collector, name: &str, seen: &Seen) {
    if seen.capped {
        collector.warnings.push(Warning(format!(
            "{name}: LiteLLM capped the total of its query (total_is_capped): there are more rows \
             than it says; ask for pages until `data` is empty"
        )));
    }
    collector.query_total = collector.query_total.max(seen.total);
}

fn syntax_error(path: &Path, error: &serde_json::Error) -> Error {
    if let Some(kind) = error.io_error_kind() {
        return Error::io(path, "read", &kind.into());
    }
    let message = match error.classify() {
        serde_json::error::Category::Eof => "the JSON ends too early: the file is cut off",
        serde_json::error::Category::Data => "unexpected value (is `data` an array of rows?)",
        _ => "not valid JSON",
    };
    let place = Error::new(message).in_file(path.display());
    place.at_line(error.line() as u64).at_column(error.column() as u64)
}

/// What was met at the top of a file.
#[derive(Debug, Default)]
struct Seen {
    is_array: bool,
    has_data: bool,
    keys: BTreeSet<String>,
    rows: u64,
    total: u64,
    capped: bool,
}

impl Seen {
    /// Why this JSON is no page, if it is none.
    fn refusal(&self) -> Option<Error> {
        let has = |key: &str| self.keys.contains(key);
        let export = "ask for /spend/logs/v2?start_date=...&end_date=...&page_size=1000, page by \
                      page, or export CSV with psql";
        let refuse = |what: &str| Some(Error::new(what).help(export));
        if self.has_data {
            return None;
        }
        if has("request_id") && self.is_array {
            return refuse(
                "this is an array of rows (/spend/logs?summarize=false), a form that is not read",
            );
        }
        if has("request_id") {
            return refuse("this is a row a line (row_to_json), a form that is not read");
        }
        if has("trace_id") && has("id") || has("litellm_call_id") {
            return refuse("this is a StandardLoggingPayload of a logger, a form that is not read");
        }
        if has("users") && has("models") {
            return refuse(
                "this is a sum per day, no rows: /spend/logs without summarize=false adds up",
            );
        }
        if has("detail") || has("error") {
            return refuse("this is an error message of the API, not a page of rows");
        }
        if self.is_array && self.keys.is_empty() {
            return refuse("an empty array: no rows (a one-day query of /spend/logs gives none)");
        }
        if self.keys.is_empty() {
            return None;
        }
        refuse("no page of /spend/logs/v2: there is no `data`")
    }
}

/// The top of a file.
struct Top<'a> {
    file: &'a str,
    seen: &'a mut Seen,
    collector: &'a mut Collector,
}

impl<'de> DeserializeSeed<'de> for Top<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> std::result::Result<(), D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Top<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with `data`")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> std::result::Result<(), A::Error> {
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "data" => {
                    self.seen.has_data = true;
                    map.next_value_seed(Data {
                        file: self.file,
                        rows: &mut self.seen.rows,
                        collector: &mut *self.collector,
                    })?;
                }
                "total" => {
                    let total: Scalar = map.next_value()?;
                    self.seen.total = total.text().parse().unwrap_or(0);
                }
                "total_is_capped" => {
                    let capped: Scalar = map.next_value()?;
                    self.seen.capped = capped.text() == "True";
                }
                _ => {
                    map.next_value::<IgnoredAny>()?;
                    self.seen.keys.insert(key);
                }
            }
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> std::result::Result<(), A::Error> {
        self.seen.is_array = true;
        // The first element says what the others are.
        if let Some(Object(Some(Keys(keys)))) = items.next_element()? {
            self.seen.keys = keys;
        }
        while items.next_element::<IgnoredAny>()?.is_some() {}
        Ok(())
    }
}

/// The keys of an object.
struct Keys(BTreeSet<String>);

impl<'de> serde::Deserialize<'de> for Keys {
    fn deserialize<D: Deserializer<'de>>(from: D) -> std::result::Result<Self, D::Error> {
        let entries = std::collections::BTreeMap::<String, IgnoredAny>::deserialize(from)?;
        Ok(Self(entries.into_keys().collect()))
    }
}

/// The rows of a page.
struct Data<'a> {
    file: &'a str,
    rows: &'a mut u64,
    collector: &'a mut Collector,
}

impl<'de> DeserializeSeed<'de> for Data<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> std::result::Result<(), D::Error> {
        from.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Data<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array of rows")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> std::result::Result<(), A::Error> {
        while let Some(row) = items.next_element::<Object<RowFields>>()? {
            let number = *self.rows;
            *self.rows += 1;
            let place = format!("data[{number}]");
            let taken = match row.0 {
                Some(RowFields(fields)) => self.collector.take(&fields).map_err(|fault| {
                    let Fault { column, message } = fault;
                    Error::new(message).in_field(format!("{place}.{}", column.name()))
                }),
                None => Err(Error::new("this is no object").in_field(place)),
            };
            if let Err(error) = taken {
                self.collector.reject(error.in_file(self.file));
            }
        }
        Ok(())
    }
}

/// One row of a page.
struct RowFields(Fields<'static>);

impl<'de> serde::Deserialize<'de> for RowFields {
    fn deserialize<D: Deserializer<'de>>(from: D) -> std::result::Result<Self, D::Error> {
        from.deserialize_map(RowVisitor)
    }
}

struct RowVisitor;

impl<'de> Visitor<'de> for RowVisitor {
    type Value = RowFields;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a row")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> std::result::Result<RowFields, A::Error> {
        let mut fields = Fields::default();
        while let Some(key) = map.next_key::<String>()? {
            match Column::named(&key) {
                Some(Column::Metadata) => fields.metadata = map.next_value::<AnyMetadata>()?.0,
                Some(Column::RequestTags) => fields.user_agent = map.next_value::<AnyTags>()?.0,
                Some(column) => fields.set(column, map.next_value::<Scalar>()?.into_text()),
                None => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(RowFields(fields))
    }
}
