//! Files of JSON objects, one a line.

use serde::de::DeserializeOwned;

use crate::diag::{Error, Result};
use crate::trace::import::{Job, Report};

/// A line that should hold an object.
#[derive(Clone, Copy, Debug)]
pub(in crate::trace::import) struct Object<'a> {
    bytes: &'a [u8],
    /// Its number in the file, from 1.
    pub(in crate::trace::import) line: u64,
    /// Whether it is the first of its file.
    pub(in crate::trace::import) first: bool,
}

impl Object<'_> {
    /// Its content; `what` names it in errors.
    pub(in crate::trace::import) fn parse<T: DeserializeOwned>(self, what: &str) -> Result<T> {
        object(self.bytes, self.line, what)
    }
}

/// Hands every line of the job's files to `take`; what it refuses is a bad row.
///
/// # Errors
/// A file that cannot be read or that has no line, or bad rows, unless they are skipped.
pub(in crate::trace::import) fn objects(
    job: &Job,
    report: &mut Report,
    mut take: impl FnMut(Object<'_>) -> Result<()>,
) -> Result<()> {
    for file in &job.files {
        let mut lines = job.lines(file)?;
        let mut first = true;
        report.files += 1;
        while let Some(bytes) = lines.next()? {
            if bytes.trim_ascii().is_empty() {
                continue;
            }
            let line = lines.line();
            if let Err(error) = take(Object { bytes: &bytes, line, first }) {
                report.bad.add(error.at_line(line).in_file(file.display()));
            }
            first = false;
        }
        if first {
            return Err(Error::new("the file holds no row").in_file(file.display()));
        }
    }
    report.bad.settle(job.options.skip_bad)
}

/// Reads an object from text that begins at `line` of its file; `what` names it in errors.
pub(in crate::trace::import) fn object<T: DeserializeOwned>(
    bytes: &[u8],
    line: u64,
    what: &str,
) -> Result<T> {
    let Ok(text) = str::from_utf8(bytes) else {
        return Err(Error::new("the line is not UTF-8 text, the file may be binary"));
    };
    if !text.trim_start().starts_with('{') {
        let start: String = text.trim().chars().take(20).collect();
        return Err(Error::found(start.escape_debug(), format!("a JSON object, {what}")));
    }
    serde_json::from_str(text).map_err(|error| {
        let full = error.to_string();
        let place = format!(" at line {} column {}", error.line(), error.column());
        Error::new(full.strip_suffix(&place).unwrap_or(&full))
            .at_line(line + (error.line() as u64).saturating_sub(1))
            .at_column(error.column() as u64)
    })
}
