//! Typed look-ups in a `config.json`, with errors that name file and key.

use std::path::Path;

use serde_json::{Map, Value};

use crate::diag::{Error, Result};

/// One object of the file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fields<'a> {
    file: &'a Path,
    /// Where the object is, with a final dot; empty at the top.
    prefix: &'a str,
    object: &'a Map<String, Value>,
}

impl<'a> Fields<'a> {
    pub(super) fn new(file: &'a Path, prefix: &'a str, object: &'a Map<String, Value>) -> Self {
        Self { file, prefix, object }
    }

    /// An error at `key`.
    pub(super) fn error(&self, key: &str, message: impl Into<String>) -> Error {
        Error::new(message).in_file(self.file.display()).in_field(format!("{}{key}", self.prefix))
    }

    /// The value, where it is given and not null.
    pub(super) fn get(&self, key: &str) -> Option<&'a Value> {
        self.object.get(key).filter(|value| !value.is_null())
    }

    fn wrong(&self, key: &str, found: &Value, allowed: &str) -> Error {
        let mut found = found.to_string();
        if found.chars().count() > 60 {
            found = found.chars().take(60).chain("...".chars()).collect();
        }
        self.error(key, format!("found `{found}`, allowed: {allowed}"))
    }

    /// An integer of at most `most`, if given.
    pub(super) fn integer(&self, key: &str, most: u64) -> Result<Option<u64>> {
        let Some(value) = self.get(key) else { return Ok(None) };
        match value.as_u64() {
            Some(number) if number <= most => Ok(Some(number)),
            _ => Err(self.wrong(key, value, &format!("an integer from 0 to {most}"))),
        }
    }

    /// An integer from 1 to `most` that must be given.
    pub(super) fn positive(&self, key: &str, most: u64) -> Result<u64> {
        match self.integer(key, most)? {
            Some(0) => {
                Err(self.error(key, format!("found `0`, allowed: an integer from 1 to {most}")))
            }
            Some(number) => Ok(number),
            None => Err(self.error(key, "missing key")),
        }
    }

    /// The first of several spellings that is given, or none.
    pub(super) fn any_integer(&self, keys: &[&str], most: u64) -> Result<Option<u64>> {
        for key in keys {
            if let Some(number) = self.integer(key, most)? {
                return Ok(Some(number));
            }
        }
        Ok(None)
    }

    /// The first of several spellings that is given and not zero; one must be.
    pub(super) fn any_positive(&self, keys: &[&str], most: u64) -> Result<u64> {
        match self.any_integer(keys, most)? {
            Some(number) if number > 0 => Ok(number),
            _ => {
                Err(self
                    .error(keys[0], format!("missing key, or 0; looked for {}", keys.join(", "))))
            }
        }
    }

    /// A truth value, if given.
    pub(super) fn boolean(&self, key: &str) -> Result<Option<bool>> {
        let Some(value) = self.get(key) else { return Ok(None) };
        value.as_bool().map(Some).ok_or_else(|| self.wrong(key, value, "true or false"))
    }

    /// A text, if given.
    pub(super) fn text(&self, key: &str) -> Result<Option<&'a str>> {
        let Some(value) = self.get(key) else { return Ok(None) };
        value.as_str().map(Some).ok_or_else(|| self.wrong(key, value, "a text"))
    }

    /// An object, if given.
    pub(super) fn object(&self, key: &str) -> Result<Option<&'a Map<String, Value>>> {
        let Some(value) = self.get(key) else { return Ok(None) };
        value.as_object().map(Some).ok_or_else(|| self.wrong(key, value, "an object"))
    }

    /// A list of texts, if given.
    pub(super) fn texts(&self, key: &str) -> Result<Option<Vec<&'a str>>> {
        let Some(value) = self.get(key) else { return Ok(None) };
        let list = value.as_array().and_then(|list| list.iter().map(Value::as_str).collect());
        list.map(Some).ok_or_else(|| self.wrong(key, value, "a list of texts"))
    }

    /// A list of integers, if given.
    pub(super) fn integers(&self, key: &str) -> Result<Option<Vec<u64>>> {
        let Some(value) = self.get(key) else { return Ok(None) };
        let list = value.as_array().and_then(|list| list.iter().map(Value::as_u64).collect());
        list.map(Some).ok_or_else(|| self.wrong(key, value, "a list of integers from 0"))
    }
}
