//! YAML that remembers where everything stands.

use std::fmt;

use serde::de::{self, Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::{Options, Spanned};

use super::Environment;
use crate::diag::{Error, Place, Result};

/// Larger files are no configuration.
const MOST_BYTES: usize = 4 << 20;

/// A value.
#[derive(Clone, Debug, PartialEq)]
pub enum Node {
    /// Nothing.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A whole number.
    Int(i64),
    /// Another number.
    Float(f64),
    /// Text.
    Text(String),
    /// A list.
    List(Vec<Value>),
    /// Keys and values, in the order of the file.
    Map(Vec<(String, Value)>),
}

/// A value and its place.
#[derive(Clone, Debug, PartialEq)]
pub struct Value {
    /// What it is.
    pub node: Node,
    /// Line and column, from 1; 0 if unknown.
    pub at: (u64, u64),
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.node {
            Node::Null => f.write_str("null"),
            Node::Bool(value) => write!(f, "{value}"),
            Node::Int(value) => write!(f, "{value}"),
            Node::Float(value) => write!(f, "{value}"),
            Node::Text(value) => f.write_str(value),
            Node::List(_) => f.write_str("a list"),
            Node::Map(_) => f.write_str("a mapping"),
        }
    }
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        deserializer.deserialize_any(NodeVisitor)
    }
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        let spanned = Spanned::<Node>::deserialize(deserializer)?;
        let at = (spanned.referenced.line(), spanned.referenced.column());
        Ok(Self { node: spanned.value, at })
    }
}

struct NodeVisitor;

impl<'de> Visitor<'de> for NodeVisitor {
    type Value = Node;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E: de::Error>(self) -> std::result::Result<Node, E> {
        Ok(Node::Null)
    }

    fn visit_none<E: de::Error>(self) -> std::result::Result<Node, E> {
        Ok(Node::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, inner: D) -> std::result::Result<Node, D::Error> {
        Node::deserialize(inner)
    }

    fn visit_bool<E: de::Error>(self, value: bool) -> std::result::Result<Node, E> {
        Ok(Node::Bool(value))
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> std::result::Result<Node, E> {
        Ok(Node::Int(value))
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> std::result::Result<Node, E> {
        Ok(i64::try_from(value).map_or(Node::Float(value as f64), Node::Int))
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> std::result::Result<Node, E> {
        Ok(Node::Float(value))
    }

    fn visit_str<E: de::Error>(self, value: &str) -> std::result::Result<Node, E> {
        Ok(Node::Text(value.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> std::result::Result<Node, A::Error> {
        let mut values = Vec::new();
        while let Some(value) = list.next_element()? {
            values.push(value);
        }
        Ok(Node::List(values))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> std::result::Result<Node, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = map.next_entry()? {
            entries.push(entry);
        }
        Ok(Node::Map(entries))
    }
}

/// Reads one document.
///
/// # Errors
/// What is no YAML, with line and column.
pub fn parse(text: &str, file: &str) -> Result<Value> {
    if text.len() > MOST_BYTES {
        let found = format!("{} bytes", text.len());
        return Err(Error::found(found, format!("at most {MOST_BYTES}")).in_file(file));
    }
    let mut options = Options::default();
    options.with_snippet = false;
    serde_saphyr::from_str_with_options(text, options).map_err(|error| {
        // The place is told apart from the message.
        let message = error.without_snippet().to_string();
        let message = message.lines().next().unwrap_or_default();
        let message = message.split(" at line ").next().unwrap_or(message);
        let message = message.trim_start_matches("error: ");
        let broken = Error::new(format!("not YAML: {message}")).in_file(file);
        match error.location() {
            Some(at) if at.line() > 0 => broken.at_line(at.line()).at_column(at.column()),
            _ => broken,
        }
    })
}

/// A mapping of the file, with its name.
#[derive(Clone, Debug)]
pub struct Section<'a> {
    file: &'a str,
    /// Its path.
    pub name: String,
    entries: &'a [(String, Value)],
    at: (u64, u64),
}

impl<'a> Section<'a> {
    /// The section that a value is; empty if there is none.
    ///
    /// # Errors
    /// A value that is no mapping.
    pub fn of(file: &'a str, name: &str, value: Option<&'a Value>) -> Result<Self> {
        let section = |entries, at| Self { file, name: name.to_owned(), entries, at };
        match value.map(|value| (&value.node, value.at)) {
            None | Some((Node::Null, _)) => Ok(section(&[], (0, 0))),
            Some((Node::Map(entries), at)) => Ok(section(entries, at)),
            Some((_, at)) => {
                let found = value.map(ToString::to_string).unwrap_or_default();
                let error = Error::found(found, "a mapping of settings").in_file(file);
                let error = at_position(error, at);
                Err(if name.is_empty() { error } else { error.in_field(name) })
            }
        }
    }

    /// Its keys and values.
    pub fn entries(&self) -> impl Iterator<Item = (&'a str, &'a Value)> + use<'a> {
        self.entries.iter().map(|(key, value)| (key.as_str(), value))
    }

    /// A value.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&'a Value> {
        let found = self.entries().find(|(name, _)| *name == key)?;
        (found.1.node != Node::Null).then_some(found.1)
    }

    /// The full name of a key.
    #[must_use]
    pub fn path(&self, key: &str) -> String {
        match self.name.is_empty() {
            true => key.to_owned(),
            false => format!("{}.{key}", self.name),
        }
    }

    /// Where it stands.
    #[must_use]
    pub fn place(&self) -> Place {
        Place { file: Some(self.file.to_owned()), ..Place::default() }
    }

    /// An error about a value.
    #[must_use]
    pub fn error(&self, value: &Value, key: &str, text: impl Into<String>) -> Error {
        at_position(Error::new(text).in_file(self.file), value.at).in_field(self.path(key))
    }

    /// An error about the section itself.
    #[must_use]
    pub fn error_here(&self, text: impl Into<String>) -> Error {
        let error = at_position(Error::new(text).in_file(self.file), self.at);
        if self.name.is_empty() { error } else { error.in_field(&self.name) }
    }

    /// A value that is not what is allowed.
    #[must_use]
    pub fn wrong(&self, value: &Value, key: &str, allowed: &str) -> Error {
        self.error(value, key, format!("found `{value}`, allowed: {allowed}"))
    }

    /// A value with what it refers to in place of a reference.
    fn resolved(&self, key: &str, environment: &Environment) -> Result<Option<Value>> {
        let Some(value) = self.get(key) else { return Ok(None) };
        let Node::Text(text) = &value.node else { return Ok(Some(value.clone())) };
        let Some(name) = text.strip_prefix("os.environ/") else { return Ok(Some(value.clone())) };
        let Some(found) = environment.get(name) else {
            let text = format!("refers to the environment variable {name}, which has no value");
            return Err(self.error(value, key, text).help(format!("give it: {name}=...")));
        };
        let node = parse(found, name).map_or(Node::Text(found.to_owned()), |value| value.node);
        Ok(Some(Value { node, at: value.at }))
    }

    /// A text; numbers count as one.
    ///
    /// # Errors
    /// Something else, or a reference without a value.
    pub fn text(&self, key: &str, environment: &Environment) -> Result<Option<String>> {
        let Some(value) = self.resolved(key, environment)? else { return Ok(None) };
        match &value.node {
            Node::List(_) | Node::Map(_) | Node::Null => Err(self.wrong(&value, key, "a text")),
            _ => Ok(Some(value.to_string())),
        }
    }

    /// A switch.
    ///
    /// # Errors
    /// Something else, or a reference without a value.
    pub fn switch(&self, key: &str, environment: &Environment) -> Result<Option<bool>> {
        let Some(value) = self.resolved(key, environment)? else { return Ok(None) };
        match &value.node {
            Node::Bool(value) => Ok(Some(*value)),
            Node::Text(text) if text.eq_ignore_ascii_case("true") => Ok(Some(true)),
            Node::Text(text) if text.eq_ignore_ascii_case("false") => Ok(Some(false)),
            _ => Err(self.wrong(&value, key, "true or false")),
        }
    }

    /// A whole number from `least`, which fits 32 bits.
    ///
    /// # Errors
    /// Something else, or a reference without a value.
    pub fn whole(&self, key: &str, least: u32, environment: &Environment) -> Result<Option<u32>> {
        let Some(value) = self.resolved(key, environment)? else { return Ok(None) };
        let number = match &value.node {
            Node::Int(number) => u32::try_from(*number).ok(),
            Node::Text(text) => text.trim().parse().ok(),
            _ => None,
        };
        let allowed = format!("a whole number from {least}");
        let number = number.filter(|number| *number >= least);
        number.map(Some).ok_or_else(|| self.wrong(&value, key, &allowed))
    }

    /// A number from 0 that is finite.
    ///
    /// # Errors
    /// Something else, or a reference without a value.
    pub fn number(&self, key: &str, environment: &Environment) -> Result<Option<f64>> {
        let Some(value) = self.resolved(key, environment)? else { return Ok(None) };
        let number = match &value.node {
            Node::Int(number) => Some(*number as f64),
            Node::Float(number) => Some(*number),
            Node::Text(text) => text.trim().parse().ok(),
            _ => None,
        };
        let number = number.filter(|number: &f64| number.is_finite() && *number >= 0.0);
        number.map(Some).ok_or_else(|| self.wrong(&value, key, "a number from 0"))
    }

    /// Seconds, up to a hundred years.
    ///
    /// # Errors
    /// Something else, or a reference without a value.
    pub fn seconds(
        &self,
        key: &str,
        environment: &Environment,
    ) -> Result<Option<crate::units::Span>> {
        const MOST: f64 = 3.2e9;
        let Some(number) = self.number(key, environment)? else { return Ok(None) };
        match (self.get(key), number <= MOST) {
            (Some(value), false) => Err(self.wrong(value, key, "seconds, up to a hundred years")),
            _ => Ok(Some(crate::units::Span::from_secs_f64(number))),
        }
    }

    /// A list of texts.
    ///
    /// # Errors
    /// Something else.
    pub fn texts(&self, key: &str) -> Result<Vec<(String, &'a Value)>> {
        let Some(value) = self.get(key) else { return Ok(Vec::new()) };
        let Node::List(list) = &value.node else {
            return Err(self.wrong(value, key, "a list of names"));
        };
        list.iter()
            .map(|item| match &item.node {
                Node::Text(text) => Ok((text.clone(), item)),
                _ => Err(self.wrong(item, key, "a name")),
            })
            .collect()
    }
}

fn at_position(error: Error, (line, column): (u64, u64)) -> Error {
    if line == 0 { error } else { error.at_line(line).at_column(column) }
}
