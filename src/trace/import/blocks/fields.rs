//! Values of JSON fields, checked so that a message can name the field.

use std::fmt;

use serde_json::Value;

use crate::diag::{Error, Result};
use crate::units::{NANOS_PER_SEC, Span, Tokens};

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

/// The lengths of a prompt and its output, in the fields of Mooncake's rows and those like them.
pub(in crate::trace::import) fn lengths(
    input: Option<&Value>,
    output: Option<&Value>,
) -> Result<(Tokens, Tokens)> {
    let input = required(count(input, "input_length", 1)?, "input_length")?;
    let output = required(count(output, "output_length", 0)?, "output_length")?;
    Ok((Tokens(input), Tokens(output)))
}

/// Nanoseconds in the units of time in which a field may be.
pub(in crate::trace::import) const SECOND: u64 = NANOS_PER_SEC;
pub(in crate::trace::import) const MILLISECOND: u64 = NANOS_PER_SEC / 1_000;

/// A length of time of at most `most` seconds, given in units of so many nanoseconds.
pub(in crate::trace::import) fn time(
    value: Option<&Value>,
    field: &str,
    unit: u64,
    most: f64,
) -> Result<Option<Span>> {
    let Some(value) = value else { return Ok(None) };
    let most = most * (NANOS_PER_SEC / unit) as f64;
    match value.as_f64() {
        Some(number) if (0.0..=most).contains(&number) => {
            // The whole part apart, so that dates in milliseconds keep theirs.
            let part = (number.fract() * unit as f64).round() as u64;
            Ok(Some(Span(number.trunc() as u64 * unit + part)))
        }
        _ => Err(wrong(value, format!("a number from 0 to {most}"), field)),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_exact_to_the_nanosecond() {
        let of = |text: &str, unit| {
            let value = serde_json::from_str(text).unwrap();
            time(Some(&value), "t", unit, 4e9).map(|span| span.map(|span| span.0))
        };
        assert_eq!(of("61.114", SECOND), Ok(Some(61_114_000_000)));
        assert_eq!(of("3000.000001", MILLISECOND), Ok(Some(3_000_000_001)));
        assert_eq!(of("1700000001001", MILLISECOND), Ok(Some(1_700_000_001_001_000_000)));
        assert_eq!(of("1e3", SECOND), Ok(Some(1_000_000_000_000)));
        for bad in ["-1", "4000000001", "\"1\"", "null"] {
            assert!(of(bad, SECOND).is_err(), "{bad}");
        }
        assert_eq!(time(None, "t", SECOND, 4e9), Ok(None));
    }
}
