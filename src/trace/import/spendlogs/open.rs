//! Opens a file, unpacks it, and finds out which form of SpendLogs it is, if any.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Cursor, Read};
use std::path::Path;

use flate2::read::MultiGzDecoder;

use super::rows::Collector;
use super::{csv_form, page};
use crate::diag::{Error, Result};

/// How much of a file is looked at to tell what it is.
const HEAD_BYTES: u64 = 64 * 1024;

/// Starts of files that people take for an export, and what they are.
const MAGICS: [(&[u8], &str); 6] = [
    (b"PGDMP", "a pg_dump archive"),
    (b"PAR1", "Parquet"),
    (b"PK\x03\x04", "a zip archive or spreadsheet"),
    (b"SQLite format 3", "an SQLite database"),
    (b"\xff\xfe", "UTF-16 text"),
    (b"\xfe\xff", "UTF-16 text"),
];

/// How to get an export that can be read.
const HOW_TO_EXPORT: &str = "export with psql: \\copy (select * from \"LiteLLM_SpendLogs\") to \
                             'spendlogs.csv' csv header";

/// Reads the rows of one file into `collector`.
pub(super) fn read(path: &Path, skip_bad: bool, collector: &mut Collector) -> Result<()> {
    let io_error = |error: io::Error| Error::io(path, "read", &error);
    let file = File::open(path).map_err(|error| Error::io(path, "open", &error))?;
    let mut source = unpacked(file).map_err(io_error)?;
    let mut head = Vec::new();
    source.by_ref().take(HEAD_BYTES).read_to_end(&mut head).map_err(io_error)?;
    let form = recognise(&head).map_err(|error| error.in_file(path.display()))?;
    let whole = BufReader::new(Cursor::new(head).chain(source));
    match form {
        Form::Csv => csv_form::read(path, whole, collector),
        Form::Json => page::read(path, whole, skip_bad, collector),
    }
}

/// The content, unpacked if its first bytes say that it is packed; the name is no matter.
fn unpacked(file: File) -> io::Result<Box<dyn Read>> {
    let mut packed = BufReader::new(file);
    let start = packed.fill_buf()?;
    if start.starts_with(&[0x1f, 0x8b]) {
        return Ok(Box::new(MultiGzDecoder::new(packed)));
    }
    if start.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]) {
        return Ok(Box::new(zstd::Decoder::with_buffer(packed)?));
    }
    Ok(Box::new(packed))
}

enum Form {
    Csv,
    Json,
}

fn recognise(head: &[u8]) -> Result<Form> {
    let head = head.strip_prefix(b"\xef\xbb\xbf").unwrap_or(head);
    let text = head.trim_ascii_start();
    if text.is_empty() {
        return Err(Error::new("the file is empty").help(HOW_TO_EXPORT));
    }
    let magic = MAGICS.iter().find(|(magic, _)| head.starts_with(magic));
    if let Some((_, what)) = magic {
        return Err(Error::new(format!("this is {what}, not CSV or JSON")).help(HOW_TO_EXPORT));
    }
    let first_line = head.split(|byte| *byte == b'\n').next().unwrap_or_default();
    if first_line.contains(&0) || text[0] < b' ' || text[0] == 0x7f {
        return Err(Error::new("binary content, not CSV or JSON").help(HOW_TO_EXPORT));
    }
    match text[0] {
        b'{' | b'[' => Ok(Form::Json),
        _ => recognise_header(&String::from_utf8_lossy(first_line)).map(|()| Form::Csv),
    }
}

/// Names what is no CSV of the table although it is text.
fn recognise_header(line: &str) -> Result<()> {
    let has = |name: &str| line.contains(name);
    if line.starts_with("--") || line.starts_with("COPY ") || line.starts_with("INSERT ") {
        return Err(Error::new("this is SQL (a plain pg_dump?), not CSV").help(HOW_TO_EXPORT));
    }
    if line.contains('\t') {
        return Err(Error::new(
            "tab-separated text, the text format of COPY, is not read; CSV with a header is",
        )
        .help(HOW_TO_EXPORT));
    }
    if has("api_requests") && has("date") && !has("request_id") {
        return Err(Error::new(
            "this is a table of daily activity, one row a day, and holds no calls",
        )
        .help(HOW_TO_EXPORT));
    }
    if has("BilledCost") && has("ChargePeriodStart") {
        return Err(Error::new("this is a FOCUS export: daily charges without calls or times")
            .help(HOW_TO_EXPORT));
    }
    if line.trim_start().starts_with('<') {
        return Err(Error::new("this is HTML or XML, not CSV or JSON").help(HOW_TO_EXPORT));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(head: &[u8]) -> String {
        recognise(head).err().map(|error| error.message().to_owned()).unwrap_or_default()
    }

    #[test]
    fn other_files_are_called_by_their_names() {
        for (head, expected) in [
            (&b""[..], "empty"),
            (b"\xef\xbb\xbf \n", "empty"),
            (b"PAR1\x15", "Parquet"),
            (b"PGDMP\x01", "pg_dump"),
            (b"\x7fELF\x02\x01", "binary"),
            (b"a\0b,c\n", "binary"),
            (b"request_id\tcall_type\n", "text format of COPY"),
            (b"id,user_id,date,api_key,api_requests\n", "one row a day"),
            (b"<html>", "HTML"),
            (b"--\n-- PostgreSQL database dump\n", "SQL"),
        ] {
            assert!(refusal(head).contains(expected), "{expected}: {}", refusal(head));
        }
        assert_eq!(refusal(b"request_id,call_type\n"), "");
        assert_eq!(refusal(b" {\"data\":[]}"), "");
    }
}
