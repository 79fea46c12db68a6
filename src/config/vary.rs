//! Lists of values for keys of a scenario: `fleet.replicas=1..16`, `router=random,round_robin`.
//!
//! A list is written on the command line (`--vary KEY=LIST`) or in the scenario's `[candidates]`.
//! It is a TOML array, or values with commas between them, of which each may be a range: `1..16`,
//! `1..16 step 2`, `1..16 x2`. Ranges hold both ends if they reach them.
//!
//! ```
//! use tonnage::config::vary::Axis;
//!
//! let axis = Axis::parse("fleet.replicas=1..4, 8..32 x2", &["fleet.replicas"])?;
//! assert_eq!(axis.texts(), ["1", "2", "3", "4", "8", "16", "32"]);
//! # Ok::<(), tonnage::diag::Error>(())
//! ```

use std::collections::BTreeSet;

use toml::Value;

use crate::diag::{Error, Place, Result};
use crate::document::{self, Document};

mod range;

/// More values of one key than anybody wants; a longer list is a slip.
const VALUES_MAX: usize = 10_000;
/// The section of a scenario that holds lists.
pub const SECTION: &str = "candidates";
/// The option of the command line.
const OPTION: &str = "--vary";

/// One key and the values that it takes in turn.
#[derive(Clone, Debug, PartialEq)]
pub struct Axis {
    /// The key with its section.
    pub key: String,
    /// The values, each once.
    pub values: Vec<Value>,
    /// Where the list stands.
    pub place: Place,
}

impl Axis {
    /// Reads `key=list` of the command line. The section may be left out where only one of `known`
    /// has a key of that name.
    ///
    /// # Errors
    /// An unknown key with the nearest one, or a list that is none.
    pub fn parse(text: &str, known: &[&str]) -> Result<Self> {
        let at = |error: Error| error.with_field(OPTION);
        let (key, list) = text.split_once('=').ok_or_else(|| {
            at(Error::found(text, "key=list, such as fleet.replicas=1..16 or router=random,…"))
        })?;
        let key = document::full_name(key.trim(), known).map_err(at)?;
        let place = Place { field: Some(format!("{OPTION} {key}")), ..Place::default() };
        let values = match list.trim().starts_with('[') {
            true => array(list).map_err(|error| in_place(error, &place))?,
            false => words(list).map_err(|error| in_place(error, &place))?,
        };
        Self::new(key, values, place)
    }

    /// The lists of the scenario's section, in alphabetical order of the keys.
    ///
    /// # Errors
    /// The first key that does not exist, or list that is none.
    pub fn of_document(document: &Document, known: &[&str]) -> Result<Vec<Self>> {
        let prefix = format!("{SECTION}.");
        let written = document.keys().filter_map(|name| Some((name, name.strip_prefix(&prefix)?)));
        let read = |(name, key): (&str, &str)| {
            let place = document.at(name, Error::new("")).place().clone();
            let key = document::full_name(key, known).map_err(|error| in_place(error, &place))?;
            let values = match document.value(name) {
                Some(Value::Array(values)) => Ok(values.clone()),
                Some(Value::String(list)) => words(list),
                Some(other) => Err(Error::found(
                    other,
                    "a list such as [1, 2, 4], or a range such as \"1..16\"",
                )),
                None => Ok(Vec::new()),
            };
            Self::new(key, values.map_err(|error| in_place(error, &place))?, place)
        };
        written.map(read).collect()
    }

    fn new(key: String, values: Vec<Value>, place: Place) -> Result<Self> {
        let axis = Self { key, values, place };
        let wrong = |message: String| Err(in_place(Error::new(message), &axis.place));
        if axis.values.is_empty() {
            return wrong("the list is empty".to_owned());
        }
        if axis.values.len() > VALUES_MAX {
            return wrong(format!("the list has more than {VALUES_MAX} values"));
        }
        let mut seen = BTreeSet::new();
        let texts = axis.texts();
        if let Some(twice) = texts.iter().find(|text| !seen.insert(text.as_str())) {
            return wrong(format!("`{twice}` is in the list twice"));
        }
        Ok(axis)
    }

    /// The values as people write them.
    #[must_use]
    pub fn texts(&self) -> Vec<String> {
        self.values.iter().map(text_of).collect()
    }

    /// The assignment that gives the key its value of this number.
    ///
    /// # Panics
    /// If there is no such value.
    #[must_use]
    pub fn assignment(&self, value: usize) -> String {
        format!("{}={}", self.key, self.values[value])
    }

    /// Gives an error about a value of this key the place of the list.
    #[must_use]
    pub fn at(&self, error: Error) -> Error {
        let assigned = format!("--set {}", self.key);
        match error.place().field.as_deref() == Some(&assigned) {
            true => in_place(error, &self.place),
            false => error,
        }
    }
}

/// A value without the quotes that TOML puts around texts.
#[must_use]
pub fn text_of(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn in_place(error: Error, place: &Place) -> Error {
    let error = error.at_place(place);
    match &place.field {
        Some(field) => error.with_field(field),
        None => error,
    }
}

fn array(list: &str) -> Result<Vec<Value>> {
    let table = toml::from_str::<toml::Table>(&format!("v = {list}"));
    let value = table.ok().and_then(|mut table| table.remove("v"));
    match value {
        Some(Value::Array(values)) => Ok(values),
        _ => Err(Error::found(list, "a TOML array, such as [\"a\", \"b\"]")),
    }
}

fn words(list: &str) -> Result<Vec<Value>> {
    let mut values = Vec::new();
    for word in list.split(',').map(str::trim) {
        if word.is_empty() {
            return Err(Error::found(list, "values with one comma between them"));
        }
        match range::values(word)? {
            Some(range) => values.extend(range),
            None => values.push(scalar(word)),
        }
        if values.len() > VALUES_MAX {
            break;
        }
    }
    Ok(values)
}

/// A word as TOML reads it, or a text.
fn scalar(word: &str) -> Value {
    let table = toml::from_str::<toml::Table>(&format!("v = {word}"));
    let value = table.ok().and_then(|mut table| table.remove("v"));
    value.unwrap_or_else(|| Value::String(word.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: &[&str] = &["fleet.replicas", "fleet.router", "engine.watermark", "slo.targets"];

    fn texts(option: &str) -> Vec<String> {
        Axis::parse(option, KNOWN).unwrap().texts()
    }

    fn refused(option: &str) -> String {
        Axis::parse(option, KNOWN).unwrap_err().to_string()
    }

    #[test]
    fn lists_and_ranges_are_read() {
        assert_eq!(texts("replicas=1..4"), ["1", "2", "3", "4"]);
        assert_eq!(texts("replicas=1..8 step 3, 20"), ["1", "4", "7", "20"]);
        assert_eq!(texts("fleet.replicas=3..30 x2"), ["3", "6", "12", "24"]);
        assert_eq!(texts("watermark=0..0.3 step 0.1"), ["0.0", "0.1", "0.2", "0.3"]);
        assert_eq!(texts("router=random, round_robin"), ["random", "round_robin"]);
        assert_eq!(texts("targets=[['p95 ttft <= 5 s'], []]").len(), 2);
    }

    #[test]
    fn what_is_no_list_is_refused_with_its_place() {
        let text = refused("fleet.replica=1");
        assert!(text.starts_with("--vary: unknown key `fleet.replica`"), "{text}");
        assert!(text.contains("did you mean `fleet.replicas`?"), "{text}");
        let text = refused("replicas=8..4");
        assert!(text.starts_with("--vary fleet.replicas: "), "{text}");
        for (option, said) in [
            ("replicas=", "one comma"),
            ("replicas=1,,2", "one comma"),
            ("replicas=1,1", "twice"),
            ("replicas=[]", "empty"),
            ("replicas=1..9 step 0", "above 0"),
            ("replicas=1..9 x1", "2 or more"),
            ("replicas=0..9 x2", "begin above 0"),
            ("replicas=1..9 by 2", "step"),
            ("replicas=1..99999999", "10000"),
            ("replicas", "key=list"),
        ] {
            let text = refused(option);
            assert!(text.contains(said), "{option}: {text}");
        }
    }

    #[test]
    fn a_value_is_assigned_as_it_was_written() {
        let axis = Axis::parse("router=random,1", KNOWN).unwrap();
        assert_eq!(axis.assignment(0), "fleet.router=\"random\"");
        assert_eq!(axis.assignment(1), "fleet.router=1");
    }
}
