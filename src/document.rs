//! A TOML document that remembers where everything stands, so that every complaint about a value
//! can point at it.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::path::Path;

use toml::Value;
use toml::de::{DeTable, DeValue};

use crate::diag::{Error, Place, Result, shown};
use crate::units::Span;

/// A hundred years: a longer time is a slip.
pub const MAX_SECONDS: f64 = 3.2e9;

/// Sections whose keys are the user's own names.
const OWN_NAMES: [&str; 6] =
    ["models.", "pools.", "prices.", "profile.", "gateway.environment.", "gateway.limits."];
/// Sections whose keys are never meant by their name alone: they have names of other sections.
const FULL_NAMES: [&str; 2] = ["gateway.", "autoscale."];

/// A document as a flat list: `section.key` to value.
#[derive(Clone, Debug, Default)]
pub struct Document {
    file: String,
    entries: BTreeMap<String, Entry>,
    own_options: &'static [(&'static str, &'static str)],
}

#[derive(Clone, Debug)]
struct Entry {
    value: Value,
    origin: Origin,
    /// Line and column of each element of a list in the document.
    elements: Vec<(u64, u64)>,
}

#[derive(Clone, Debug)]
enum Origin {
    /// Line and column in the document.
    File(u64, u64),
    /// An assignment on the command line.
    CommandLine,
    /// A part of another key's text.
    Derived { from: &'static str, part: String },
}

impl Origin {
    fn is_command_line(&self) -> bool {
        matches!(self, Self::CommandLine)
    }
}

impl Document {
    /// Reads a document.
    ///
    /// # Errors
    /// What is no TOML, with line and column.
    pub fn parse(text: &str, file: &str) -> Result<Self> {
        let broken = |error: &toml::de::Error| {
            let (line, column) = position(text, error.span().map_or(0, |span| span.start));
            Error::new(format!("not TOML: {}", error.message()))
                .in_file(file)
                .at_line(line)
                .at_column(column)
        };
        let spans = DeTable::parse(text).map_err(|error| broken(&error))?;
        let values: toml::Table = toml::from_str(text).map_err(|error| broken(&error))?;
        let mut document = Self { file: file.to_owned(), ..Self::default() };
        document.flatten("", spans.get_ref(), &values, text);
        Ok(document)
    }

    fn flatten(&mut self, prefix: &str, spans: &DeTable<'_>, values: &toml::Table, text: &str) {
        for (key, spanned) in spans {
            let name = key.get_ref();
            let Some(value) = values.get(name.as_ref()) else { continue };
            let full = format!("{prefix}{name}");
            // An empty table has no keys to be known by, so it is kept as it is.
            if let (DeValue::Table(inner), Value::Table(inner_values)) = (spanned.get_ref(), value)
                && !inner_values.is_empty()
            {
                self.flatten(&format!("{full}."), inner, inner_values, text);
                continue;
            }
            let (line, column) = position(text, key.span().start);
            let elements = match spanned.get_ref() {
                DeValue::Array(list) => {
                    list.iter().map(|element| position(text, element.span().start)).collect()
                }
                _ => Vec::new(),
            };
            let origin = Origin::File(line, column);
            let entry = Entry { value: value.clone(), origin, elements };
            self.entries.insert(full, entry);
        }
    }

    /// Keys with an option of their own on the command line, which complaints then name instead of
    /// `--set`.
    #[must_use]
    pub fn with_own_options(mut self, options: &'static [(&'static str, &'static str)]) -> Self {
        self.own_options = options;
        self
    }

    /// Applies one `key=value` of the command line. The section may be left out where only one of
    /// `known` has a key of that name; a value that is no TOML value is text.
    ///
    /// # Errors
    /// An assignment without `=`, or a key that does not exist or exists more than once.
    pub fn set(&mut self, assignment: &str, known: &[&str]) -> Result<()> {
        let (key, text) = assignment.split_once('=').ok_or_else(|| {
            Error::found(assignment, "key=value, such as fleet.replicas=3").in_field("--set")
        })?;
        let key = full_name(key.trim(), known)?;
        let text = text.trim();
        let value = toml::from_str::<toml::Table>(&format!("v = {text}"))
            .ok()
            .and_then(|mut table| table.remove("v"))
            .unwrap_or_else(|| Value::String(text.to_owned()));
        self.entries
            .insert(key, Entry { value, origin: Origin::CommandLine, elements: Vec::new() });
        Ok(())
    }

    /// Sets a key to what a part of the text of `from` says; complaints name the part.
    pub fn derive(&mut self, key: &str, value: Value, from: &'static str, part: &str) {
        let origin = Origin::Derived { from, part: part.to_owned() };
        self.entries.insert(key.to_owned(), Entry { value, origin, elements: Vec::new() });
    }

    /// Takes a key out.
    pub fn remove(&mut self, key: &str) {
        self.entries.remove(key);
    }

    /// Complains about the first key that is neither in `known` nor in one of the sections whose
    /// keys are free.
    ///
    /// # Errors
    /// That key, with the nearest known one.
    pub fn check_keys(&self, known: &[&str], free_sections: &[&str]) -> Result<()> {
        for (key, entry) in &self.entries {
            let is_free = |section: &&str| {
                key.strip_prefix(*section).is_some_and(|rest| rest.starts_with('.'))
            };
            let prefix = format!("{key}.");
            let is_section = known.iter().any(|known| known.starts_with(&prefix))
                || free_sections.contains(&key.as_str());
            if entry.value.is_table() && is_section {
                continue;
            }
            if known.contains(&key.as_str()) || free_sections.iter().any(is_free) {
                continue;
            }
            return Err(self.unknown(key, known));
        }
        Ok(())
    }

    /// All keys, in alphabetical order.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.entries.keys().map(String::as_str)
    }

    /// The complaint about a key that is none of `known`, with its place and the nearest of them.
    #[must_use]
    pub fn unknown(&self, key: &str, known: &[&str]) -> Error {
        self.at(key, unknown_key(key, known))
    }

    /// Adds the place of `key` to an error about it.
    #[must_use]
    pub fn at(&self, key: &str, error: Error) -> Error {
        match self.entries.get(key).map(|entry| &entry.origin) {
            Some(Origin::File(line, column)) => {
                error.in_file(&self.file).at_line(*line).at_column(*column).in_field(key)
            }
            Some(Origin::CommandLine) => {
                let own = self.own_options.iter().find(|(name, _)| *name == key);
                error.with_field(match own {
                    Some((_, option)) => (*option).to_owned(),
                    None => format!("--set {key}"),
                })
            }
            Some(Origin::Derived { from, part }) => self.at(from, error).with_field(part),
            None => error.in_file(&self.file).in_field(key),
        }
    }

    /// Leaves out what the file says of these keys.
    pub fn forget_from_file(&mut self, keys: &[&str]) {
        for key in keys {
            if self.is_from_file(key) {
                self.entries.remove(*key);
            }
        }
    }

    /// Whether the key is there.
    #[must_use]
    pub fn has(&self, key: &str) -> bool {
        self.entries.contains_key(key)
    }

    /// Whether the key stands in the file, itself or as part of another, not on the command line.
    #[must_use]
    pub fn is_from_file(&self, key: &str) -> bool {
        match self.entries.get(key).map(|entry| &entry.origin) {
            Some(Origin::File(..)) => true,
            Some(Origin::Derived { from, .. }) => self.is_from_file(from),
            Some(Origin::CommandLine) | None => false,
        }
    }

    /// A path that stands in the file is relative to the file, if there is something there; any
    /// other name is left as it is.
    #[must_use]
    pub fn path_beside(&self, name: String, key: &str) -> String {
        let folder = Path::new(&self.file).parent().unwrap_or(Path::new(""));
        let beside = folder.join(&name);
        if self.is_from_file(key) && beside.exists() {
            return beside.display().to_string();
        }
        name
    }

    /// The first key of the table `key`, if it is written as one.
    #[must_use]
    pub fn first_of_table(&self, key: &str) -> Option<&str> {
        let prefix = format!("{key}.");
        self.entries.keys().find(|name| name.starts_with(&prefix)).map(String::as_str)
    }

    /// The value of a key, whatever it is.
    #[must_use]
    pub fn value(&self, key: &str) -> Option<&Value> {
        self.entries.get(key).map(|entry| &entry.value)
    }

    /// The keys of one section with their values as text.
    ///
    /// # Errors
    /// A value that is no text.
    pub fn section(&self, section: &str) -> Result<Vec<(String, String)>> {
        let prefix = format!("{section}.");
        let keys = self.entries.keys().filter(|key| key.starts_with(&prefix));
        keys.map(|key| {
            let value = self.text(key)?.unwrap_or_default();
            Ok((key[prefix.len()..].to_owned(), value))
        })
        .collect()
    }

    /// A text.
    ///
    /// # Errors
    /// A value of another type.
    pub fn text(&self, key: &str) -> Result<Option<String>> {
        // On a command line nobody puts quotes around 0.33.
        let bare = self.entries.get(key).is_some_and(|entry| entry.origin.is_command_line());
        self.typed(key, "a text in quotes", |value| match value {
            Value::Integer(_) | Value::Float(_) if bare => Some(value.to_string()),
            _ => value.as_str().map(str::to_owned),
        })
    }

    /// `true` or `false`.
    ///
    /// # Errors
    /// A value of another type.
    pub fn flag(&self, key: &str) -> Result<Option<bool>> {
        self.typed(key, "true or false", Value::as_bool)
    }

    /// A whole number from `min` to `max`.
    ///
    /// # Errors
    /// A value of another type or out of range.
    pub fn whole(&self, key: &str, min: u64, max: u64) -> Result<Option<u64>> {
        self.typed(key, format!("a whole number from {min} to {max}"), |value| {
            let number = value.as_integer().and_then(|number| u64::try_from(number).ok());
            number.filter(|number| (min..=max).contains(number))
        })
    }

    /// A number from `min` to `max`.
    ///
    /// # Errors
    /// A value of another type or out of range.
    pub fn number(&self, key: &str, min: f64, max: f64) -> Result<Option<f64>> {
        self.typed(key, format!("a number from {min} to {max}"), |value| {
            let number = value.as_float().or(value.as_integer().map(|number| number as f64));
            number.filter(|number| (min..=max).contains(number))
        })
    }

    /// A time in seconds, from 0 to [`MAX_SECONDS`].
    ///
    /// # Errors
    /// A value of another type or out of range.
    pub fn seconds(&self, key: &str, default: f64) -> Result<Span> {
        let seconds = self.number(key, 0.0, MAX_SECONDS)?.unwrap_or(default);
        Ok(Span::from_secs_f64(seconds))
    }

    /// A list of texts.
    ///
    /// # Errors
    /// A value of another type.
    pub fn texts(&self, key: &str) -> Result<Option<Vec<String>>> {
        self.typed(key, "a list of texts", |value| {
            let items = value.as_array()?.iter();
            items.map(|item| item.as_str().map(str::to_owned)).collect()
        })
    }

    /// Where each element of a list stands; the place of the list for elements that are not in the
    /// document.
    #[must_use]
    pub fn element_places(&self, key: &str) -> Vec<Place> {
        let list = self.at(key, Error::new("")).place().clone();
        let Some(entry) = self.entries.get(key) else { return Vec::new() };
        let elements = entry.value.as_array().map_or(0, Vec::len);
        let place = |number: usize| match entry.elements.get(number) {
            Some(&(line, column)) => {
                Place { line: Some(line), column: Some(column), ..list.clone() }
            }
            None => list.clone(),
        };
        (0..elements).map(place).collect()
    }

    /// One of a few names.
    ///
    /// # Errors
    /// A value of another type, or a name that is not among them.
    pub fn choice<T: Copy>(&self, key: &str, choices: &[(&str, T)]) -> Result<Option<T>> {
        let Some(name) = self.text(key)? else { return Ok(None) };
        match choices.iter().find(|(known, _)| *known == name) {
            Some((_, choice)) => Ok(Some(*choice)),
            None => {
                let known: Vec<&str> = choices.iter().map(|(known, _)| *known).collect();
                Err(self.at(key, Error::unknown("value", &name, known)))
            }
        }
    }

    fn typed<T>(
        &self,
        key: &str,
        allowed: impl Display,
        read: impl FnOnce(&Value) -> Option<T>,
    ) -> Result<Option<T>> {
        let Some(entry) = self.entries.get(key) else { return Ok(None) };
        match read(&entry.value) {
            Some(value) => Ok(Some(value)),
            None => Err(self.at(key, Error::found(&entry.value, allowed))),
        }
    }
}

/// The full name of a key that may come without its section, where only one of `known` has it.
///
/// # Errors
/// A key that does not exist, with the nearest one, or that exists more than once.
pub fn full_name(key: &str, known: &[&str]) -> Result<String> {
    if known.contains(&key) || OWN_NAMES.iter().any(|section| key.starts_with(section)) {
        return Ok(key.to_owned());
    }
    let by_leaf = |name: &&str| {
        leaf(name) == key && !FULL_NAMES.iter().any(|section| name.starts_with(section))
    };
    let same_leaf: Vec<&str> = known.iter().copied().filter(by_leaf).collect();
    match same_leaf.as_slice() {
        [only] => Ok((*only).to_owned()),
        [] => Err(unknown_key(key, known).in_field("--set")),
        several => {
            let text = format!("`{key}` is in several sections: {}", several.join(", "));
            Err(Error::new(text).in_field("--set"))
        }
    }
}

fn unknown_key(key: &str, known: &[&str]) -> Error {
    let error = Error::new(format!("unknown key `{}`", shown(key.to_owned())));
    let by_leaf = known.iter().copied().find(|name| leaf(name) == leaf(key));
    match by_leaf.or_else(|| crate::diag::nearest(key, known.iter().copied())) {
        Some(near) => error.help(format!("did you mean `{near}`?")),
        None => error.help(format!("known keys: {}", known.join(", "))),
    }
}

fn leaf(key: &str) -> &str {
    key.rsplit_once('.').map_or(key, |(_, leaf)| leaf)
}

fn position(text: &str, offset: usize) -> (u64, u64) {
    let before = &text.as_bytes()[..offset.min(text.len())];
    let line = before.iter().filter(|&&byte| byte == b'\n').count() as u64 + 1;
    let column = before.iter().rev().take_while(|&&byte| byte != b'\n').count() as u64 + 1;
    (line, column)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: &[&str] = &["name", "fleet.replicas", "run.seed", "load.kind"];

    #[test]
    fn a_wrong_value_is_pointed_at() {
        let document = Document::parse("name = 'x'\n\n[fleet]\n replicas = -1\n", "s.toml");
        let error = document.unwrap().whole("fleet.replicas", 1, 9).unwrap_err();
        assert_eq!(
            error.to_string(),
            "s.toml:4:2: fleet.replicas: found `-1`, allowed: a whole number from 1 to 9"
        );
    }

    #[test]
    fn an_unknown_key_comes_with_the_nearest() {
        let document = Document::parse("[fleet]\nreplica = 1\n", "s.toml").unwrap();
        let error = document.check_keys(KNOWN, &[]).unwrap_err().to_string();
        assert!(error.starts_with("s.toml:2:1: fleet.replica: unknown key"), "{error}");
        assert!(error.contains("did you mean `fleet.replicas`?"), "{error}");
        let misplaced = Document::parse("[run]\nreplicas = 1\n", "s.toml").unwrap();
        let error = misplaced.check_keys(KNOWN, &[]).unwrap_err().to_string();
        assert!(error.contains("did you mean `fleet.replicas`?"), "{error}");
    }

    #[test]
    fn an_empty_section_is_known_by_its_name() {
        let sections = Document::parse("[fleet]\n[run]\n", "s.toml").unwrap();
        sections.check_keys(KNOWN, &[]).unwrap();
        let error = Document::parse("[flet]\n", "s.toml").unwrap().check_keys(KNOWN, &[]);
        assert!(error.unwrap_err().to_string().starts_with("s.toml:1:2: flet: unknown key"));
    }

    #[test]
    fn the_command_line_wins_and_may_leave_the_section_out() {
        let mut document = Document::parse("[fleet]\nreplicas = 1\n", "s.toml").unwrap();
        document.set("replicas=3", KNOWN).unwrap();
        document.set("load.kind=trace", KNOWN).unwrap();
        assert_eq!(document.whole("fleet.replicas", 1, 9).unwrap(), Some(3));
        assert_eq!(document.text("load.kind").unwrap().as_deref(), Some("trace"));
        assert!(document.set("replicsa=3", KNOWN).is_err());
        assert!(document.set("replicas", KNOWN).is_err());
    }

    #[test]
    fn broken_toml_has_a_line_and_a_column() {
        let error = Document::parse("a = 1\nb = = 2\n", "s.toml").unwrap_err();
        assert_eq!(error.place().line, Some(2));
    }
}
