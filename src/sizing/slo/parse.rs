//! Reads one line into a target; every error points at the word that is wrong.

use super::filter::{Filter, KEYS, Segment};
use super::metric::{Dimension, Metric, Op};
use super::{Slo, Statistic};
use crate::diag::{Error, Result, nearest};
use crate::units::Tokens;

/// The shape of a target, shown where one breaks off.
const SHAPE: &str = "a target reads `p90 turn_llm <= 90 s` or `hit >= 0.85`";

/// A piece of the line and the byte at which it starts.
#[derive(Clone, Copy)]
struct Word<'a> {
    text: &'a str,
    start: usize,
}

impl<'a> Word<'a> {
    /// A part of this word from byte `from` to byte `to`, without the blanks around it.
    fn part(self, from: usize, to: usize) -> Word<'a> {
        let part = &self.text[from..to];
        let blank = part.len() - part.trim_start().len();
        Word { text: part.trim(), start: self.start + from + blank }
    }
}

struct Parser<'a> {
    line: &'a str,
    at: usize,
    /// Column of the line's first character in whatever it was read from.
    first_column: u64,
}

pub(super) fn parse(line: &str, first_column: u64) -> Result<Slo> {
    let mut parser = Parser { line, at: 0, first_column };
    let (statistic, word) = parser.statistic()?;
    let metric = parser.metric(statistic, word)?;
    let filter = parser.filter(metric)?;
    let op = parser.op(metric)?;
    let bound = parser.bound(metric)?;
    parser.end()?;
    let statistic = statistic.unwrap_or(Statistic::Share);
    Ok(Slo { statistic, metric, filter, op, bound, text: line.trim().to_owned() })
}

/// The steps, in the order of the line.
impl<'a> Parser<'a> {
    /// The percentile, if there is one, and the word after it, which names the metric.
    fn statistic(&mut self) -> Result<(Option<Statistic>, Word<'a>)> {
        let word = self.word(|c| c.is_alphanumeric() || "_.".contains(c));
        let digits = word
            .text
            .strip_prefix('p')
            .filter(|rest| rest.starts_with(|c: char| c.is_ascii_digit() || c == '.'));
        let Some(digits) = digits else {
            return Ok((None, word));
        };
        let one_decimal = digits.split_once('.').is_none_or(|(_, decimals)| decimals.len() == 1);
        let percent = decimal(digits).filter(|p| one_decimal && (1.0..=99.9).contains(p));
        let Some(percent) = percent else {
            return Err(self.found(word, "p1 to p99.9, with at most one decimal"));
        };
        let metric = self.word(|c| c.is_alphanumeric() || c == '_');
        Ok((Some(Statistic::Percentile(percent)), metric))
    }

    fn metric(&self, statistic: Option<Statistic>, word: Word<'a>) -> Result<Metric> {
        let Some(metric) = Metric::named(word.text) else {
            let names = Metric::ALL.map(Metric::name);
            return Err(self.unknown("metric", word, &names));
        };
        match (metric.is_share(), statistic) {
            (true, Some(_)) => {
                let message = format!("`{metric}` is one share of all and has no percentile");
                Err(self.error(word, message).help(format!("write `{metric} {} …`", metric.op())))
            }
            (false, None) => {
                let message = format!("`{metric}` needs a percentile in front, such as p90");
                Err(self.error(word, message))
            }
            _ => Ok(metric),
        }
    }

    fn filter(&mut self, metric: Metric) -> Result<Option<Filter>> {
        self.skip_blanks();
        if !self.rest().starts_with('[') {
            return Ok(None);
        }
        let open = Word { text: &self.rest()[..1], start: self.at };
        self.at += 1;
        let Some(length) = self.rest().find(']') else {
            return Err(self.error(open, "this `[` has no `]`"));
        };
        let inside = Word { text: &self.rest()[..length], start: self.at };
        self.at += length + 1;
        let inside = if inside.text.trim().is_empty() {
            Word { text: &self.line[open.start..self.at], start: open.start }
        } else {
            inside.part(0, length)
        };
        let filter = match inside.text.find('=') {
            Some(equals) => self.key_value(inside, equals)?,
            None => self.band(inside)?,
        };
        match filter.misfit(metric) {
            Some(message) => Err(self.error(inside, message)),
            None => Ok(Some(filter)),
        }
    }

    fn key_value(&self, inside: Word<'a>, equals: usize) -> Result<Filter> {
        let key = inside.part(0, equals);
        let value = inside.part(equals + 1, inside.text.len());
        if !KEYS.contains(&key.text) {
            return Err(self.unknown("filter", key, &KEYS));
        }
        if value.text.is_empty() {
            return Err(self.error(key, format!("no {} after `=`", key.text)));
        }
        if let Some(at) = value.text.find([',', '[', '=']) {
            let at = Word { text: &value.text[at..=at], start: value.start + at };
            return Err(self.error(at, "a target has one filter, and its value no `,`, `[` or `=`"));
        }
        let name = value.text.to_owned();
        Ok(match key.text {
            "profile" => Filter::Profile(name),
            "tenant" => Filter::Tenant(name),
            "model" => Filter::Model(name),
            "pool" => Filter::Pool(name),
            _ => match Segment::named(&name) {
                Some(segment) => Filter::Segment(segment),
                None => {
                    let names = Segment::ALL.map(Segment::name);
                    return Err(self.unknown("segment", value, &names));
                }
            },
        })
    }

    fn band(&self, inside: Word<'a>) -> Result<Filter> {
        if let Some(from) = inside.text.strip_suffix('+') {
            let from = self.tokens(inside.part(0, from.len()))?;
            return Ok(Filter::PromptBand { from, below: None });
        }
        let Some(dash) = inside.text.find('-') else {
            let allowed = "a prompt band such as `64k-128k` or `128k+`, or one of profile=, \
                           tenant=, model=, segment=, pool=";
            return Err(self.found(inside, allowed));
        };
        let (low, high) = (inside.part(0, dash), inside.part(dash + 1, inside.text.len()));
        let (from, below) = (self.tokens(low)?, self.tokens(high)?);
        let suffix = |word: Word<'_>| word.text.chars().last().filter(|c| !c.is_ascii_digit());
        if from != Tokens::ZERO && suffix(low) != suffix(high) {
            let message = "both ends of a prompt band are written alike: `8k-32k` or `8000-32000`";
            return Err(self.error(inside, message));
        }
        if from >= below {
            return Err(self.error(inside, "a prompt band ends above its beginning"));
        }
        Ok(Filter::PromptBand { from, below: Some(below) })
    }

    fn tokens(&self, word: Word<'a>) -> Result<Tokens> {
        let (digits, factor) = match word.text.char_indices().last() {
            Some((last, 'k')) => (&word.text[..last], 1_000),
            Some((last, 'K')) => (&word.text[..last], 1_024),
            _ => (word.text, 1),
        };
        let number = Some(digits).filter(|digits| digits.bytes().all(|b| b.is_ascii_digit()));
        let number = number.and_then(|digits| digits.parse::<u64>().ok());
        number.and_then(|number| number.checked_mul(factor)).map(Tokens).ok_or_else(|| {
            self.found(word, "a number of tokens such as 8000, 8k (8,000) or 8K (8,192)")
        })
    }

    fn op(&mut self, metric: Metric) -> Result<Op> {
        let word = self.word(|c| "<>=!≤≥~".contains(c));
        let op = match word.text {
            "<=" => Op::AtMost,
            ">=" => Op::AtLeast,
            _ => return Err(self.found(word, "<=, >=")),
        };
        if op != metric.op() {
            let found = format!("`{metric}` is bounded by `{}`, not by `{op}`", metric.op());
            let better = if metric.op() == Op::AtMost { "less" } else { "more" };
            return Err(self.error(word, found).help(format!("{better} of it is better")));
        }
        Ok(op)
    }

    fn bound(&mut self, metric: Metric) -> Result<f64> {
        let number = self.word(|c| c.is_ascii_digit() || "+-.".contains(c));
        let Some(value) = decimal(number.text) else {
            return Err(self.found(number, "a number from 0, such as 90 or 0.5"));
        };
        let word = self.word(|c| c.is_alphanumeric() || "/%_µ".contains(c));
        let dimension = metric.dimension();
        let bound = if word.text.is_empty() {
            if !dimension.allows_bare() {
                let example = format!("{} {}", number.text, dimension.base_unit());
                let message = format!("`{metric}` needs a unit: {}", unit_names(dimension));
                return Err(self.error(number, message).help(format!("such as `{example}`")));
            }
            Some(value)
        } else {
            let Some(unit) = dimension.units().iter().find(|unit| unit.name == word.text) else {
                return Err(self.unknown_unit(metric, word));
            };
            decimal_with_power(number.text, unit.power).map(|value| value * unit.factor)
        };
        let Some(bound) = bound.filter(|bound| bound.is_finite()) else {
            return Err(self.error(number, "this number is too large"));
        };
        if dimension == Dimension::Share && bound > 1.0 {
            let error = self.error(number, "a share is at most 1, or 100 %");
            let percent = word.text.is_empty() && bound <= 100.0;
            return Err(if percent {
                error.help(format!("did you mean `{} %`?", number.text))
            } else {
                error
            });
        }
        Ok(bound)
    }

    fn end(&mut self) -> Result<()> {
        self.skip_blanks();
        let rest = self.rest().trim_end();
        if rest.is_empty() {
            return Ok(());
        }
        let word = Word { text: rest, start: self.at };
        Err(self.found(word, "the end of the target").help("one target a line"))
    }
}

/// Reading.
impl<'a> Parser<'a> {
    fn rest(&self) -> &'a str {
        &self.line[self.at..]
    }

    fn skip_blanks(&mut self) {
        self.at = self.line.len() - self.rest().trim_start().len();
    }

    /// The longest run of characters that belong to it; empty if the next one does not.
    fn word(&mut self, belongs: impl Fn(char) -> bool) -> Word<'a> {
        self.skip_blanks();
        let length = self.rest().find(|c| !belongs(c)).unwrap_or(self.rest().len());
        let word = Word { text: &self.rest()[..length], start: self.at };
        self.at += length;
        word
    }
}

/// Errors.
impl<'a> Parser<'a> {
    /// What stands at `word`: the word itself, or, where nothing of the kind was there, the next
    /// run of anything but blanks.
    fn seen(&self, word: Word<'a>) -> Word<'a> {
        if !word.text.is_empty() {
            return word;
        }
        let rest = &self.line[word.start..];
        Word { text: rest.split_whitespace().next().unwrap_or(""), start: word.start }
    }

    /// An error that points at the word.
    fn error(&self, word: Word<'a>, message: impl Into<String>) -> Error {
        let word = self.seen(word);
        let before = self.line[..word.start].chars().count();
        let width = word.text.chars().count().max(1);
        let column = self.first_column + before as u64;
        // Tabs would put the carets elsewhere than the word.
        let line = self.line.replace(char::is_whitespace, " ");
        // The second line of a help starts at the margin, where the first follows "  help: ".
        let carets = format!("        {}{}", " ".repeat(before), "^".repeat(width));
        Error::new(message).at_column(column).help(format!("{}\n{carets}", line.trim_end()))
    }

    fn found(&self, word: Word<'a>, allowed: &str) -> Error {
        let seen = self.seen(word);
        if seen.text.is_empty() {
            let message = format!("the target ends too early, allowed here: {allowed}");
            return self.error(word, message).help(SHAPE);
        }
        self.error(word, format!("found `{}`, allowed: {allowed}", seen.text))
    }

    fn unknown(&self, kind: &str, word: Word<'a>, names: &[&str]) -> Error {
        let seen = self.seen(word);
        if seen.text.is_empty() {
            return self.found(word, &format!("a {kind}: {}", names.join(", ")));
        }
        let message = format!("unknown {kind} `{}`, allowed: {}", seen.text, names.join(", "));
        let error = self.error(word, message);
        match nearest(seen.text, names.iter().copied()) {
            Some(near) => error.help(format!("did you mean `{near}`?")),
            None => error,
        }
    }

    fn unknown_unit(&self, metric: Metric, word: Word<'a>) -> Error {
        let dimension = metric.dimension();
        if dimension.units().is_empty() {
            let message = format!("`{metric}` has no unit, found `{}`", word.text);
            return self.error(word, message);
        }
        let message = format!(
            "unit `{}` does not fit `{metric}`, allowed: {}",
            word.text,
            unit_names(dimension)
        );
        let error = self.error(word, message);
        match nearest(word.text, dimension.units().iter().map(|unit| unit.name)) {
            Some(near) => error.help(format!("did you mean `{near}`?")),
            None => error,
        }
    }
}

fn unit_names(dimension: Dimension) -> String {
    let names: Vec<&str> = dimension.units().iter().map(|unit| unit.name).collect();
    let bare = if dimension.allows_bare() { " or none" } else { "" };
    format!("{}{bare}", names.join(", "))
}

/// A number written as digits with at most one point among them: no sign, no exponent.
fn decimal(text: &str) -> Option<f64> {
    decimal_with_power(text, 0)
}

/// The double nearest to a decimal number times a power of ten, so that `0.1 %` and `0.001` are
/// the same bound.
fn decimal_with_power(text: &str, power: i32) -> Option<f64> {
    let plain = text.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    let number = text.bytes().any(|b| b.is_ascii_digit()) && plain;
    number.then(|| format!("{text}e{power}").parse().ok()).flatten()
}
