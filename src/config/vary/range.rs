//! Ranges: `1..16`, `1..16 step 2`, `1..16 x2`.

use toml::Value;

use super::VALUES_MAX;
use crate::diag::{Error, Result};

const SHAPE: &str = "a range such as 1..16, 1..16 step 2, or 1..16 x2";

/// A decimal number as a whole number of its last place, so that steps add up exactly.
#[derive(Clone, Copy)]
struct Decimal {
    digits: i64,
    places: u32,
}

impl Decimal {
    fn parse(text: &str) -> Option<Self> {
        let (whole, part) = text.split_once('.').unwrap_or((text, ""));
        let plain = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        let number = !whole.is_empty() && plain(whole) && plain(part);
        if !number || part.len() > 6 || text.ends_with('.') {
            return None;
        }
        let digits = format!("{whole}{part}").parse().ok()?;
        Some(Self { digits, places: part.len() as u32 })
    }

    fn at_places(self, places: u32) -> Option<i64> {
        self.digits.checked_mul(10_i64.checked_pow(places - self.places)?)
    }
}

/// The values of a range; none if the word is no range.
pub(super) fn values(word: &str) -> Result<Option<Vec<Value>>> {
    let Some((first, rest)) = word.split_once("..") else { return Ok(None) };
    let mut parts = rest.split_whitespace();
    let ends = (Decimal::parse(first.trim()), parts.next().and_then(Decimal::parse));
    let (Some(first), Some(last)) = ends else { return Err(Error::found(word, SHAPE)) };
    let stride = parts.collect::<Vec<_>>();
    let one = Decimal { digits: 1, places: 0 };
    let (step, factor) = match stride.as_slice() {
        [] => (one, None),
        ["step", step] => (Decimal::parse(step).ok_or_else(|| Error::found(word, SHAPE))?, None),
        [by] if by.starts_with('x') => {
            let factor = by[1..].parse::<i64>().ok().filter(|factor| *factor >= 2);
            let allowed = "a whole factor of 2 or more behind the x";
            (one, Some(factor.ok_or_else(|| Error::found(word, allowed))?))
        }
        _ => return Err(Error::found(word, SHAPE)),
    };
    let places = first.places.max(last.places).max(step.places);
    let at_places = |number: Decimal| number.at_places(places);
    let numbers = (at_places(first), at_places(last), at_places(step));
    let (Some(first), Some(last), Some(step)) = numbers else {
        return Err(Error::found(word, "smaller numbers"));
    };
    if first > last {
        return Err(Error::found(word, "a range that ends at or above its beginning"));
    }
    if factor.is_none() && step == 0 {
        return Err(Error::found(word, "a step above 0"));
    }
    if factor.is_some() && first == 0 {
        return Err(Error::found(word, "a range with a factor must begin above 0"));
    }
    let next = |number: &i64| match factor {
        Some(factor) => number.checked_mul(factor),
        None => number.checked_add(step),
    };
    let numbers = std::iter::successors(Some(first), next).take_while(|number| *number <= last);
    let value = |number: i64| match places {
        0 => Value::Integer(number),
        // Through the text, so that it is the double nearest to the decimal number.
        _ => Value::Float(format!("{number}e-{places}").parse().unwrap_or(f64::NAN)),
    };
    Ok(Some(numbers.take(VALUES_MAX + 1).map(value).collect()))
}
