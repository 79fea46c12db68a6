//! Rows straight from a live PostgreSQL database.
//!
//! One read-only transaction with one snapshot, and one statement whose rows are fetched a batch
//! at a time, so that the size of the table is no matter. Columns are looked up by name first:
//! which there are depends on the version of LiteLLM, and their order on the database's history.
//! Every value comes as text and takes the same way as a field of a CSV.

use std::fmt;

use super::rows::Collector;
use super::time::{Micros, UtcOffset, bound};
use crate::diag::{Error, Result};

#[cfg(feature = "postgres")]
mod connect;
#[cfg(feature = "postgres")]
mod cursor;
#[cfg(feature = "postgres")]
mod failure;
#[cfg(feature = "postgres")]
mod password;
#[cfg(feature = "postgres")]
mod table;
#[cfg(feature = "postgres")]
mod tls;
#[cfg(feature = "postgres")]
mod values;

/// The table's name if none is given, as LiteLLM spells it.
const DEFAULT_TABLE: &str = "LiteLLM_SpendLogs";

/// The address of a database. It may hold a password, so it never shows itself.
#[derive(Clone, PartialEq, Eq)]
pub struct DatabaseUrl(String);

impl DatabaseUrl {
    /// Takes anything that has the form of a URL, as opposed to the name of a file.
    ///
    /// # Errors
    /// A scheme other than `postgres` and `postgresql`.
    pub fn of(text: &str) -> Option<Result<Self>> {
        let (scheme, _) = text.split_once("://")?;
        Some(match scheme {
            "postgres" | "postgresql" => Ok(Self(text.to_owned())),
            _ => Err(Error::new("this is no address of a PostgreSQL database and no file")
                .help("a database is given as postgres://USER@HOST/DATABASE")),
        })
    }
}

impl fmt::Debug for DatabaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DatabaseUrl(..)")
    }
}

/// The name of a table, with or without its schema; letters count as they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableName {
    schema: Option<String>,
    name: String,
}

impl Default for TableName {
    fn default() -> Self {
        Self { schema: None, name: DEFAULT_TABLE.to_owned() }
    }
}

impl std::str::FromStr for TableName {
    type Err = Error;

    /// Reads `table`, `schema.table` and the same in double quotes.
    fn from_str(text: &str) -> Result<Self> {
        let wrong = || Error::found(text, "TABLE or SCHEMA.TABLE, each in double quotes or not");
        let mut parts = Vec::new();
        let mut rest = text;
        loop {
            let (part, after) = name_part(rest).ok_or_else(wrong)?;
            parts.push(part);
            match after.strip_prefix('.') {
                Some(after) => rest = after,
                None if after.is_empty() => break,
                None => return Err(wrong()),
            }
        }
        let name = parts.pop().ok_or_else(wrong)?;
        let schema = parts.pop();
        if parts.is_empty() { Ok(Self { schema, name }) } else { Err(wrong()) }
    }
}

/// The first part of a dotted name, and what follows it.
fn name_part(text: &str) -> Option<(String, &str)> {
    let Some(quoted) = text.strip_prefix('"') else {
        let end = text.find('.').unwrap_or(text.len());
        let (part, after) = text.split_at(end);
        return (!part.is_empty() && !part.contains('"')).then(|| (part.to_owned(), after));
    };
    let mut part = String::new();
    let mut rest = quoted;
    loop {
        let (before, after) = rest.split_once('"')?;
        part.push_str(before);
        match after.strip_prefix('"') {
            // A quote in a quoted name is doubled.
            Some(after) => (part.push('"'), rest = after).1,
            None => return (!part.is_empty()).then_some((part, after)),
        }
    }
}

impl fmt::Display for TableName {
    /// As SQL wants it, quoted.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = self.schema.iter().chain([&self.name]);
        let quoted: Vec<String> =
            parts.map(|part| format!("\"{}\"", part.replace('"', "\"\""))).collect();
        f.write_str(&quoted.join("."))
    }
}

/// An instant that bounds the rows that are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bound(Micros);

impl Bound {
    /// Reads a date (its midnight), a date with a time, or either with an offset. Without an
    /// offset it is on the clock of the table's timestamps.
    ///
    /// # Errors
    /// Anything else, with what is allowed.
    pub fn parse(text: &str, naive_at: UtcOffset) -> Result<Self> {
        bound(text, naive_at).map(Self).ok_or_else(|| {
            Error::found(
                text,
                "a date or a date with a time, such as `2026-11-01`, `2026-11-01 08:30:00` or \
                 `2026-11-01T08:30:00Z`",
            )
        })
    }
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&super::time::rfc3339(self.0))
    }
}

/// Which rows of which database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Query {
    /// Where the database is, and how to get in.
    pub url: DatabaseUrl,
    /// The table.
    pub table: TableName,
    /// Only calls that started then or later.
    pub since: Option<Bound>,
    /// Only calls that started before.
    pub until: Option<Bound>,
    /// A condition in SQL that rows must meet besides.
    pub condition: Option<String>,
}

/// Reads the rows of a database into `collector`.
#[cfg(feature = "postgres")]
pub(super) fn read(query: &Query, naive_at: UtcOffset, collector: &mut Collector) -> Result<()> {
    if let (Some(since), Some(until)) = (query.since, query.until)
        && since >= until
    {
        return Err(Error::found(until, format!("an instant after that of --since ({since})"))
            .in_field("--until"));
    }
    let (mut client, place) = connect::connect(&query.url)?;
    cursor::read(&mut client, &place, query, naive_at, collector)
        .map_err(|error| error.in_file(&place.name))
}

/// Says that this build cannot.
#[cfg(not(feature = "postgres"))]
pub(super) fn read(_query: &Query, _naive_at: UtcOffset, _collector: &mut Collector) -> Result<()> {
    Err(not_built_in())
}

/// What a build without the feature says. Tests of the other one hold it, too.
#[cfg(any(test, not(feature = "postgres")))]
fn not_built_in() -> Error {
    Error::new("this tonnage was built without the feature `postgres`, and reads no database")
        .help("build it with `cargo build --release --features postgres`, or export CSV with psql")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_told_from_a_file_and_never_shows_itself() {
        assert!(DatabaseUrl::of("rows.csv").is_none());
        let url = DatabaseUrl::of("postgres://ana:secret@db/litellm").unwrap().unwrap();
        assert!(!format!("{url:?}").contains("secret"));
        let error = DatabaseUrl::of("mysql://ana:secret@db/litellm").unwrap().unwrap_err();
        assert!(!error.to_string().contains("secret"), "{error}");
    }

    #[test]
    fn table_names_read_and_quote() {
        for (text, quoted) in [
            ("LiteLLM_SpendLogs", "\"LiteLLM_SpendLogs\""),
            ("proxy.LiteLLM_SpendLogs", "\"proxy\".\"LiteLLM_SpendLogs\""),
            ("\"a.b\".\"c\"\"d\"", "\"a.b\".\"c\"\"d\""),
        ] {
            assert_eq!(text.parse::<TableName>().unwrap().to_string(), quoted);
        }
        for text in ["", ".", "a.", ".a", "a.b.c", "\"a", "\"a\"b", "a\"b", "\"\""] {
            assert!(text.parse::<TableName>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_build_without_the_feature_names_it() {
        let error = not_built_in().to_string();
        assert!(error.contains("without the feature `postgres`"), "{error}");
        assert!(error.contains("--features postgres"), "{error}");
    }
}
