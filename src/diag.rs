//! What went wrong, where, and what would have been right.
//!
//! An [`Error`] names the place (file, line, column, field), says what was found and what is
//! allowed, and ends the command with exit code 2. A [`Warning`] means: check this before you
//! trust the result.

use std::fmt;
use std::path::Path;

/// The result of anything that reads what a user gave.
pub type Result<T> = std::result::Result<T, Error>;

/// Where in the input something is. Unknown parts are left out of the message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// File as the user named it.
    pub file: Option<String>,
    /// Line, from 1.
    pub line: Option<u64>,
    /// Column, from 1: of the line for text, of the row for CSV.
    pub column: Option<u64>,
    /// Column name, key or option.
    pub field: Option<String>,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        if let Some(file) = &self.file {
            let numbers = [self.line, self.column];
            let numbers = numbers.iter().map_while(|n| n.map(|n| format!(":{n}")));
            parts.push(format!("{file}{}", numbers.collect::<String>()));
        } else if let Some(line) = self.line {
            parts.push(format!("line {line}"));
        }
        parts.extend(self.field.clone());
        f.write_str(&parts.join(": "))
    }
}

/// Why a command could not do what was asked. Nothing was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    place: Box<Place>,
    message: String,
    help: Vec<String>,
}

impl Error {
    /// An error with its message; the place is added by the `in_…` and `at_…` methods.
    pub fn new(message: impl Into<String>) -> Self {
        Self { place: Box::default(), message: message.into(), help: Vec::new() }
    }

    /// "found X, allowed: Y" in the field's own words.
    pub fn found(found: impl fmt::Display, allowed: impl fmt::Display) -> Self {
        Self::new(format!("found `{}`, allowed: {allowed}", shown(found.to_string())))
    }

    /// A name that does not exist, with all that do and the nearest of them.
    pub fn unknown<'a>(
        kind: &str,
        name: &str,
        known: impl IntoIterator<Item = &'a str> + Clone,
    ) -> Self {
        let list: Vec<&str> = known.clone().into_iter().filter(|name| !name.is_empty()).collect();
        let allowed = match list.is_empty() {
            true => "there is none".to_owned(),
            false => format!("allowed: {}", list.join(", ")),
        };
        let short = shown(name.to_owned());
        let error = Self::new(format!("unknown {kind} `{short}`, {allowed}"));
        match nearest(name, known) {
            Some(near) => error.help(format!("did you mean `{near}`?")),
            None => error,
        }
    }

    /// A file that could not be opened, read or written.
    pub fn io(path: &Path, action: &str, error: &std::io::Error) -> Self {
        Self::new(format!("cannot {action}: {error}")).in_file(path.display())
    }

    /// Names the file, unless a more exact place is known already.
    #[must_use]
    pub fn in_file(mut self, file: impl fmt::Display) -> Self {
        self.place.file.get_or_insert_with(|| without_secrets(file.to_string()));
        self
    }

    /// Names the line, from 1, unless it is known already.
    #[must_use]
    pub fn at_line(mut self, line: u64) -> Self {
        self.place.line.get_or_insert(line);
        self
    }

    /// Names the column, from 1, unless it is known already.
    #[must_use]
    pub fn at_column(mut self, column: u64) -> Self {
        self.place.column.get_or_insert(column);
        self
    }

    /// Names the field, key or option, unless it is known already.
    #[must_use]
    pub fn in_field(mut self, field: impl fmt::Display) -> Self {
        self.place.field.get_or_insert_with(|| shown(field.to_string()));
        self
    }

    /// Forgets where it is, for who knows better.
    #[must_use]
    pub fn without_place(mut self) -> Self {
        *self.place = Place::default();
        self
    }

    /// Takes over what `place` says and this error does not, the field apart.
    #[must_use]
    pub fn at_place(mut self, place: &Place) -> Self {
        self.place.file = self.place.file.or_else(|| place.file.clone());
        self.place.line = self.place.line.or(place.line);
        self.place.column = self.place.column.or(place.column);
        self
    }

    /// Names another field than the one that was named first.
    #[must_use]
    pub fn with_field(mut self, field: impl fmt::Display) -> Self {
        self.place.field = Some(shown(field.to_string()));
        self
    }

    /// Adds a line that says how to mend it.
    #[must_use]
    pub fn help(mut self, line: impl Into<String>) -> Self {
        self.help.push(line.into());
        self
    }

    /// The place, as far as it is known.
    #[must_use]
    pub fn place(&self) -> &Place {
        &self.place
    }

    /// The message without place and help.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = self.place.to_string();
        if !place.is_empty() {
            write!(f, "{place}: ")?;
        }
        f.write_str(&self.message)?;
        for line in &self.help {
            write!(f, "\n  help: {line}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Error {}

/// Something that does not stop the run but must be known before its result is trusted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning(pub String);

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The known name most like `name`, if any is alike enough to be a slip of the pen.
pub fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // What is too long to be shown is no slip of the pen, and takes long to compare.
    if name.len() > SHOWN_MAX {
        return None;
    }
    let lower = name.to_lowercase();
    known
        .into_iter()
        .map(|candidate| (strsim::jaro_winkler(&lower, &candidate.to_lowercase()), candidate))
        .filter(|(likeness, _)| *likeness >= 0.8)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, candidate)| candidate)
}

/// The name of a file as it may be shown: whoever gives a database's address where a file belongs
/// must not find its password in a log.
fn without_secrets(name: String) -> String {
    let lower = name.to_ascii_lowercase();
    // What stands before the `@` is a name, and a password behind a colon.
    let before = lower.split_once(":/").and_then(|(_, rest)| Some(rest.split_once('@')?.0));
    let has_secret = before.is_some_and(|login| login.contains(':')) || lower.contains("password=");
    if has_secret { "(the address of a database)".to_owned() } else { name }
}

/// Most characters of a found text that an error repeats.
const SHOWN_MAX: usize = 200;

/// A found text as errors show it: cut where it is so long that it would hide the rest, and with
/// control characters spelled, which a terminal would obey.
pub fn shown(mut text: String) -> String {
    let all = text.chars().count();
    if let Some((end, _)) = text.char_indices().nth(SHOWN_MAX) {
        text.truncate(end);
        text.push_str(&format!("... ({all} characters)"));
    }
    if text.contains(char::is_control) {
        let spelled = |letter: char| match letter.is_control() {
            true => letter.escape_default().to_string(),
            false => letter.to_string(),
        };
        text = text.chars().map(spelled).collect();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_found_text_is_cut_where_it_is_long() {
        let cell = "é".repeat(3_000);
        let short = format!("`{}... (3000 characters)`", "é".repeat(SHOWN_MAX));
        assert_eq!(Error::found(&cell, "1").to_string(), format!("found {short}, allowed: 1"));
        let unknown = Error::unknown("column", &cell, ["call"]).to_string();
        assert_eq!(unknown, format!("unknown column {short}, allowed: call"));
        let error = Error::found("\u{1b}[31mé\n", "1").to_string();
        assert_eq!(error, "found `\\u{1b}[31mé\\n`, allowed: 1");
        let just = "x".repeat(SHOWN_MAX);
        assert!(Error::found(&just, "1").to_string().contains(&format!("`{just}`")));
    }

    #[test]
    fn the_place_reads_like_a_compilers() {
        let error = Error::found("-5", "an integer from 0")
            .in_file("t.csv")
            .at_line(12)
            .at_column(13)
            .in_field("kept_tokens");
        assert_eq!(
            error.to_string(),
            "t.csv:12:13: kept_tokens: found `-5`, allowed: an integer from 0"
        );
    }

    #[test]
    fn the_first_place_named_is_kept() {
        let error = Error::new("no").at_line(3).at_line(9).in_file("a").in_file("b");
        assert_eq!(error.to_string(), "a:3: no");
    }

    #[test]
    fn unknown_names_come_with_the_nearest() {
        let text = Error::unknown("router", "round_robbin", ["round_robin", "random"]).to_string();
        assert!(text.contains("did you mean `round_robin`?"), "{text}");
        assert_eq!(nearest("zzz", ["round_robin", "random"]), None);
    }
}
