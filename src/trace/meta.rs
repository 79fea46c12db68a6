//! The sidecar `NAME.meta.json`: where a trace comes from and how it was made.

use std::collections::BTreeMap;
use std::fs;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::canonical::new_file::NewFile;
use crate::diag::{Error, Result};
use crate::trace::canonical::is_standard_input;

/// The version of the canonical form that this program reads and writes.
pub const FORMAT_VERSION: u32 = 1;

/// What a sidecar says of its trace. Every field is optional for a reader; a field that is none
/// of these is an error, since a slip in a name would change figures without a word.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Meta {
    /// Version of the canonical form, now 1.
    #[serde(default = "current")]
    pub format_version: u32,
    /// What it was made of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// Licence of the data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub licence: Option<String>,
    /// Absolute start, RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start: Option<String>,
    /// IANA time zone of the people in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_zone: Option<String>,
    /// Tokens in a block of the origin's block ids.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin_block_size: Option<u64>,
    /// Whether the origin counts a prompt's last, partial block.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partial_block: Option<PartialBlock>,
    /// Calls whose last whole block has no id in the origin, which rounded the length of their
    /// prompts up: by session, call numbers. Statistics in blocks of the origin's size leave that
    /// block out.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub unnumbered_blocks: BTreeMap<String, Vec<u32>>,
    /// The command that made it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub made_by: Option<String>,
    /// What a reader should know: counts of estimated times, dropped rows, approximations.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

const fn current() -> u32 {
    FORMAT_VERSION
}

impl Default for Meta {
    fn default() -> Self {
        Self {
            format_version: FORMAT_VERSION,
            source: None,
            licence: None,
            start: None,
            time_zone: None,
            origin_block_size: None,
            partial_block: None,
            unnumbered_blocks: BTreeMap::new(),
            made_by: None,
            notes: Vec::new(),
        }
    }
}

impl Meta {
    /// Reads the sidecar of a trace; `None` where there is none, as of standard input.
    ///
    /// # Errors
    /// If there is one that cannot be read or says what no sidecar can say.
    pub fn read_beside(trace: &Path) -> Result<Option<Self>> {
        if is_standard_input(trace) {
            return Ok(None);
        }
        let path = sidecar_path(trace);
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(Error::io(&path, "read the sidecar", &error)),
        };
        Self::parse(&text).map(Some).map_err(|error| error.in_file(path.display()))
    }

    fn parse(text: &str) -> Result<Self> {
        let meta: Self = serde_json::from_str(text).map_err(|error| {
            // The place is given apart, so it is taken off the message.
            let place = format!(" at line {} column {}", error.line(), error.column());
            let message = error.to_string().replace(&place, "");
            Error::new(message).at_line(error.line() as u64).at_column(error.column() as u64)
        })?;
        if meta.format_version != FORMAT_VERSION {
            return Err(Error::found(meta.format_version, FORMAT_VERSION)
                .in_field("format_version")
                .help("a newer program may have written it"));
        }
        if meta.origin_block_size == Some(0) {
            return Err(Error::found(0, "a whole number from 1").in_field("origin_block_size"));
        }
        Ok(meta)
    }

    /// Writes the sidecar of a trace, replacing the one that is there.
    ///
    /// # Errors
    /// If it cannot be written; the old one is then still there.
    pub fn write_beside(&self, trace: &Path) -> Result<()> {
        self.prepare_beside(trace)?.commit()
    }

    /// The whole sidecar of a trace, to be put in place once the trace is.
    ///
    /// # Errors
    /// If it cannot be written.
    pub(crate) fn prepare_beside(&self, trace: &Path) -> Result<NewFile> {
        let path = sidecar_path(trace);
        let text = serde_json::to_string_pretty(self)
            .map_err(|error| Error::new(format!("cannot write the sidecar: {error}")))?;
        let mut file = NewFile::create(&path)?;
        let written = file.write_all(text.as_bytes()).and_then(|()| file.write_all(b"\n"));
        written.map_err(|error| Error::io(&path, "write the sidecar", &error))?;
        Ok(file)
    }
}

/// Where a trace's sidecar is: `x.csv`, `x.csv.gz` and `x.csv.zst` have `x.meta.json`.
#[must_use]
pub fn sidecar_path(trace: &Path) -> PathBuf {
    let name = trace.file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
    let stem: &str = &name;
    let stem = stem.strip_suffix(".gz").or(stem.strip_suffix(".zst")).unwrap_or(stem);
    let stem = stem.strip_suffix(".csv").unwrap_or(stem);
    trace.with_file_name(format!("{stem}.meta.json"))
}

/// What statistics do with a prompt's last, partial block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PartialBlock {
    /// It counts as a block.
    Count,
    /// It does not exist.
    Drop,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_three_forms_of_a_trace_have_one_sidecar() {
        for name in ["d/x.csv", "d/x.csv.gz", "d/x.csv.zst"] {
            assert_eq!(sidecar_path(Path::new(name)), Path::new("d/x.meta.json"));
        }
        assert_eq!(sidecar_path(Path::new("a.b.csv")), Path::new("a.b.meta.json"));
    }

    #[test]
    fn what_is_written_is_read_back() {
        let folder = tempfile::tempdir().unwrap();
        let trace = folder.path().join("x.csv.gz");
        assert_eq!(Meta::read_beside(&trace), Ok(None));
        let meta = Meta {
            source: Some("a log".to_owned()),
            origin_block_size: Some(512),
            partial_block: Some(PartialBlock::Count),
            notes: vec!["two rows dropped".to_owned()],
            ..Meta::default()
        };
        meta.write_beside(&trace).unwrap();
        assert_eq!(Meta::read_beside(&trace), Ok(Some(meta)));
    }

    #[test]
    fn a_broken_sidecar_is_refused_with_its_place() {
        let folder = tempfile::tempdir().unwrap();
        let trace = folder.path().join("x.csv");
        for (text, said) in [
            ("{\n \"source\": 1}", ":2:12: invalid type"),
            ("{\"origin_blocksize\": 64}", ":1:19: unknown field `origin_blocksize`"),
            ("{\"format_version\": 2}", "format_version: found `2`, allowed: 1"),
            ("{\"origin_block_size\": 0}", "origin_block_size: found `0`"),
            ("", ":1:0: EOF"),
        ] {
            fs::write(sidecar_path(&trace), text).unwrap();
            let error = Meta::read_beside(&trace).unwrap_err().to_string();
            assert!(error.contains("x.meta.json") && error.contains(said), "{error}");
        }
    }
}
