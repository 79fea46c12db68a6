//! The names in the first row of a table or in the first value of a JSON file.

use std::collections::BTreeSet;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use crate::diag::{Error, Result};
use crate::trace::import::instant;
use crate::trace::import::table::header_names;

/// Starts of files that are no text of rows, and what they are.
const MAGICS: [(&[u8], &str); 6] = [
    (b"PGDMP", "a pg_dump archive"),
    (b"PAR1", "Parquet"),
    (b"PK\x03\x04", "a zip archive or spreadsheet"),
    (b"SQLite format 3", "an SQLite database"),
    (b"\xff\xfe", "UTF-16 text"),
    (b"\xfe\xff", "UTF-16 text"),
];

/// Arrays and objects within one another whose names are told.
const DEPTH_MAX: usize = 3;
/// Different names that are kept, and the longest text of a field.
const NAMES_MAX: usize = 4_096;
const TEXT_CHARS_MAX: usize = 40;

/// How a file is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// Fields between commas.
    Csv,
    /// Fields between tabs.
    Tabs,
    /// One JSON value, or one a line.
    Json,
}

impl Form {
    /// Its name before "of" and the names of fields.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Csv => "CSV",
            Self::Tabs => "tab-separated text",
            Self::Json => "JSON",
        }
    }
}

/// How a file is written, and the names that are in it.
#[derive(Debug)]
pub(super) struct Shape {
    pub(super) form: Form,
    names: BTreeSet<String>,
}

impl Shape {
    /// Looks at the start of a file.
    pub(super) fn of(head: &[u8]) -> Result<Self> {
        if let Some((_, what)) = MAGICS.iter().find(|(magic, _)| head.starts_with(magic)) {
            return Err(Error::new(format!("this is {what}, not CSV or JSON")));
        }
        let head = head.strip_prefix(b"\xef\xbb\xbf").unwrap_or(head);
        let text = head.trim_ascii_start();
        let Some(first) = text.first() else { return Err(Error::new("the file is empty")) };
        if matches!(first, b'{' | b'[') {
            return Ok(Self { form: Form::Json, names: json_names(text) });
        }
        let line = text.split(|byte| *byte == b'\n').next().unwrap_or_default();
        if line.contains(&0) || *first < b' ' || *first == 0x7f {
            return Err(Error::new("binary content, not CSV or JSON"));
        }
        let form = if line.contains(&b'\t') { Form::Tabs } else { Form::Csv };
        Ok(Self { form, names: table_names(text, form) })
    }

    /// Whether a name is there.
    pub(super) fn has(&self, name: &str) -> bool {
        self.names.contains(name)
    }

    /// All names, sorted.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.names.iter().map(String::as_str)
    }

    /// The form's name.
    pub(super) fn form_name(&self) -> &'static str {
        self.form.name()
    }
}

/// The cells of the first row, and what they look like where they are no names.
fn table_names(text: &[u8], form: Form) -> BTreeSet<String> {
    let mut reader = csv::ReaderBuilder::new();
    reader.has_headers(false).flexible(true);
    if form == Form::Tabs {
        reader.delimiter(b'\t').quoting(false);
    }
    let mut record = csv::ByteRecord::new();
    if !reader.from_reader(text).read_byte_record(&mut record).unwrap_or(false) {
        return BTreeSet::new();
    }
    let cells = header_names(&record);
    let mut names: BTreeSet<String> = cells.iter().map(|cell| shortened(cell)).collect();
    let times = cells.iter().filter(|cell| instant::parse(cell).is_some()).count();
    let calls = ["completion", "messages", "responses", "generate_content", "embedding"];
    let marks = [
        ("(two times)", times >= 2),
        ("(call type)", cells.iter().any(|cell| calls.iter().any(|call| cell.ends_with(call)))),
        ("(metadata)", cells.iter().any(|cell| cell.starts_with('{') && cell.contains("status"))),
    ];
    names.extend(marks.iter().filter(|(_, is)| *is).map(|(name, _)| (*name).to_owned()));
    names
}

/// The names in the first value, as far as it is there.
fn json_names(text: &[u8]) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let mut value = serde_json::Deserializer::from_slice(text);
    // What was seen before the text ends or breaks off is enough to tell.
    let _ = Names { path: String::new(), depth: 0, names: &mut names }.deserialize(&mut value);
    names
}

fn shortened(text: &str) -> String {
    text.chars().take(TEXT_CHARS_MAX).collect()
}

/// Collects the names in a value.
struct Names<'a> {
    /// What stands before them.
    path: String,
    depth: usize,
    names: &'a mut BTreeSet<String>,
}

impl Names<'_> {
    fn add(&mut self, name: String) {
        if self.names.len() < NAMES_MAX {
            self.names.insert(name);
        }
    }

    fn inner(&mut self, path: String) -> Names<'_> {
        Names { path, depth: self.depth + 1, names: self.names }
    }
}

impl<'de> DeserializeSeed<'de> for Names<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> std::result::Result<(), D::Error> {
        if self.depth > DEPTH_MAX {
            return from.deserialize_ignored_any(IgnoredAny).map(|_| ());
        }
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Names<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> std::result::Result<(), A::Error> {
        let dot = if self.path.is_empty() { "" } else { "." };
        while let Some(key) = map.next_key::<String>()? {
            let path = format!("{}{dot}{}", self.path, shortened(&key));
            self.add(path.clone());
            map.next_value_seed(self.inner(path))?;
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut items: A) -> std::result::Result<(), A::Error> {
        let path = format!("{}[]", self.path);
        while items.next_element_seed(self.inner(path.clone()))?.is_some() {}
        Ok(())
    }

    fn visit_str<E>(mut self, text: &str) -> std::result::Result<(), E> {
        // Texts of fields at the top only: there they say which schema or scope it is.
        if self.depth == 1 && !self.path.is_empty() {
            let named = format!("{} = {}", self.path, shortened(text));
            self.add(named);
        }
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> std::result::Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> std::result::Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> std::result::Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> std::result::Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> std::result::Result<(), E> {
        Ok(())
    }
}
