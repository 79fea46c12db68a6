//! Values of JSON fields, checked so that a message can name the field.

use std::fmt;

use serde_json::Value;

use crate::diag::{Error, Result};
use crate::units::Span;

/// More tokens than any prompt or answer has; beyond it a number is a mistake.
pub(in crate::trace::import) const TOKENS_MAX: u64 = 100_000_000;
/// Ten years: no session lasts longer.
pub(in crate::trace::import) const SECS_MAX: f64 = 10.0 * 366.0 * 86_400.0;
/// Characters of a wrong value that a message repeats.
const SHOWN_CHARS_MAX: usize = 40;

/// The value, or an error that says it is missing.
pub(in crate::trace::import) fn required<T>(value: Option<T>, field: &str) -> Result<T> {
    value.ok_or_else(|| Error::new("the value is missing").in_field(field))
}

/// What was found against what is allowed.
pub(in crate::trace::import) fn wrong(
    found: &Value,
    allowed: impl fmt::Display,
    field: &str,
) -> Error {
    let shown: String = found.to_string().chars().take(SHOWN_CHARS_MAX).collect();
    Error::found(shown, allowed).in_field(field)
}

/// A whole number of at least `least`.
pub(in crate::trace::import) fn count(
    value: Option<&Value>,
    field: &str,
    least: u64,
) -> Result<Option<u64>> {
    let Some(value) = value else { return Ok(None) };
    match value.as_u64() {
        Some(number) if (least..=TOKENS_MAX).contains(&number) => Ok(Some(number)),
        _ => Err(wrong(value, format!("an integer from {least} to {TOKENS_MAX}"), field)),
    }
}

/// A length of time of at most `most` seconds, given in `unit` seconds.
pub(in crate::trace::import) fn secs(
    value: Option<&Value>,
    field: &str,
    unit: f64,
    most: f64,
) -> Result<Option<Span>> {
    let Some(value) = value else { return Ok(None) };
    match value.as_f64() {
        Some(number) if (0.0..=most / unit).contains(&number) => {
            Ok(Some(Span::from_secs_f64(number * unit)))
        }
        _ => Err(wrong(value, format!("a number from 0 to {}", most / unit), field)),
    }
}

/// A text.
pub(in crate::trace::import) fn text<'a>(
    value: Option<&'a Value>,
    field: &str,
) -> Result<Option<&'a str>> {
    let Some(value) = value else { return Ok(None) };
    value.as_str().map(Some).ok_or_else(|| wrong(value, "a text", field))
}

/// A list of texts; none, if it is missing.
pub(in crate::trace::import) fn names(value: Option<&Value>, field: &str) -> Result<Vec<String>> {
    let Some(value) = value else { return Ok(Vec::new()) };
    let list = value.as_array().and_then(|list| {
        list.iter().map(|name| name.as_str().map(str::to_owned)).collect::<Option<Vec<_>>>()
    });
    list.ok_or_else(|| wrong(value, "an array of texts", field))
}
