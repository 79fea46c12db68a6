//! Finds out which form of SpendLogs a file is, if any, and has it read.

use std::fs;
use std::path::{Path, PathBuf};

use super::input::{Input, read_error};
use super::report::FileReport;
use super::rows::Collector;
use super::table::Dialect;
use super::{Options, json_form, table_form};
use crate::diag::{Error, Result, Warning};

/// How much of a file is looked at to tell what it is.
const HEAD_BYTES: usize = 64 * 1024;

/// LiteLLM's API gives out this many rows of a query at most, and does not say so in every route.
const API_ROWS_MAX: u64 = 10_000;

/// Folders within folders are followed this deep.
const FOLDER_DEPTH_MAX: usize = 32;

/// Starts of files that people take for an export, and what they are.
const MAGICS: [(&[u8], &str); 6] = [
    (b"PGDMP", "a pg_dump archive"),
    (b"PAR1", "Parquet (a FOCUS export? That has daily charges, and no calls)"),
    (b"PK\x03\x04", "a zip archive or spreadsheet"),
    (b"SQLite format 3", "an SQLite database"),
    (b"\xff\xfe", "UTF-16 text"),
    (b"\xfe\xff", "UTF-16 text"),
];

/// Endings that files of rows have, packed or not. What is called otherwise and holds no rows is no
/// part of an export: a description, a checksum.
const ROW_ENDINGS: [&str; 7] = ["json", "jsonl", "ndjson", "csv", "tsv", "txt", "log"];

/// What stands in the head of every export: its first column, or the key of its first value.
const KEY_COLUMN: &[u8] = b"request_id";

/// How to get an export that can be read.
pub(super) const HOW_TO_EXPORT: &str =
    "export with psql: \\copy (select * from \"LiteLLM_SpendLogs\") to 'spendlogs.csv' csv header";

/// Reads the rows of one file, or of all files of a folder, into `collector`.
pub(super) fn read(path: &Path, options: &Options, collector: &mut Collector) -> Result<()> {
    if !path.is_dir() {
        let report = read_file(path, options, collector)?;
        collector.files.push(report);
        return Ok(());
    }
    let mut files = Vec::new();
    files_of(path, 0, &mut files)?;
    let mut report = FileReport { name: path.display().to_string(), form: "", rows: 0 };
    let mut left_out = 0;
    for file in &files {
        if let Some(error) = foreign(file)? {
            left_out += 1;
            collector.warnings.push(Warning(format!("left out, as it holds no rows: {error}")));
            continue;
        }
        let read = read_file(file, options, collector)?;
        report.rows += read.rows;
        report.form = match report.form {
            "" => read.form,
            form if form == read.form => form,
            _ => "several forms",
        };
    }
    if files.len() == left_out {
        return Err(no_files(path));
    }
    collector.files.push(report);
    Ok(())
}

/// The file of a folder that is read first, which tells what the others are.
///
/// # Errors
/// A folder that cannot be read or holds no files.
pub fn first_file(folder: &Path) -> Result<PathBuf> {
    let mut files = Vec::new();
    files_of(folder, 0, &mut files)?;
    for file in files {
        if foreign(&file)?.is_none() {
            return Ok(file);
        }
    }
    Err(no_files(folder))
}

/// Why a file is clearly no part of an export, if it is not: neither its name nor its content is
/// that of rows.
fn foreign(file: &Path) -> Result<Option<Error>> {
    let name = file.file_name().map(|name| name.to_string_lossy().to_lowercase());
    let name = name.unwrap_or_default();
    let name = name.trim_end_matches(".gz").trim_end_matches(".zst");
    let Some((_, ending)) = name.rsplit_once('.') else { return Ok(None) };
    if ROW_ENDINGS.contains(&ending) {
        return Ok(None);
    }
    let mut source = Input::open(file)?;
    let head = source.head().map_err(|error| read_error(file, &error))?;
    let head = &head[..head.len().min(HEAD_BYTES)];
    let has_rows = memchr::memmem::find(head, KEY_COLUMN).is_some();
    // The first line says what was found; how to export is told where there is nothing else.
    let why = match recognise(head) {
        Err(error) => error.message().to_owned(),
        Ok(_) if !has_rows => "neither its name nor its beginning is that of an export".to_owned(),
        Ok(_) => return Ok(None),
    };
    Ok(Some(Error::new(why).in_file(file.display())))
}

fn no_files(folder: &Path) -> Error {
    Error::new("the folder holds no files of rows").in_file(folder.display())
}

/// The files below a folder in the order of their names; hidden ones are left out.
fn files_of(folder: &Path, depth: usize, files: &mut Vec<PathBuf>) -> Result<()> {
    if depth > FOLDER_DEPTH_MAX {
        return Err(Error::new("folders are nested too deep").in_file(folder.display()));
    }
    let failed = |error: std::io::Error| Error::io(folder, "read", &error);
    let entries = fs::read_dir(folder).map_err(failed)?;
    let mut paths = entries
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<std::io::Result<Vec<PathBuf>>>()
        .map_err(failed)?;
    paths.sort();
    for path in paths {
        let is_hidden =
            path.file_name().is_some_and(|name| name.as_encoded_bytes().first() == Some(&b'.'));
        if is_hidden {
            continue;
        }
        if path.is_dir() {
            files_of(&path, depth + 1, files)?;
        } else {
            files.push(path);
        }
    }
    Ok(())
}

fn read_file(path: &Path, options: &Options, collector: &mut Collector) -> Result<FileReport> {
    let mut source = Input::open(path)?;
    let head = source.head().map_err(|error| read_error(path, &error))?;
    let has_mark = head.starts_with(BYTE_ORDER_MARK);
    let form = recognise(&head[..head.len().min(HEAD_BYTES)])
        .map_err(|error| error.in_file(path.display()))?;
    if has_mark {
        std::io::BufRead::consume(&mut source, BYTE_ORDER_MARK.len());
    }
    match form {
        Form::Table(dialect) => table_form::read(path, source, dialect, options, collector),
        Form::Json => json_form::read(path, source, options, collector),
    }
}

/// Warns of a file that holds as many rows as the API gives out at most.
pub(super) fn note_size(collector: &mut Collector, name: &str, rows: u64) {
    if rows == API_ROWS_MAX {
        collector.warnings.push(Warning(format!(
            "{name} holds exactly {API_ROWS_MAX} rows, the most that LiteLLM's API gives out: the \
             rest of the query may be missing"
        )));
    }
}

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

#[derive(Debug, PartialEq, Eq)]
enum Form {
    Table(Dialect),
    Json,
}

fn recognise(head: &[u8]) -> Result<Form> {
    let head = head.strip_prefix(BYTE_ORDER_MARK).unwrap_or(head);
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
        _ => recognise_table(&String::from_utf8_lossy(first_line)).map(Form::Table),
    }
}

/// Tells the tables apart, and names what is no table although it is text.
fn recognise_table(line: &str) -> Result<Dialect> {
    let has = |name: &str| line.contains(name);
    let refuse = |what: &str| Err(Error::new(what).help(HOW_TO_EXPORT));
    if line.starts_with("--") || line.starts_with("COPY ") || line.starts_with("INSERT ") {
        return refuse("this is SQL (a plain pg_dump?), not CSV");
    }
    if has("api_requests") && has("date") && !has("request_id") {
        return refuse("this is a table of daily activity, one row a day, and holds no calls");
    }
    if has("BilledCost") && has("ChargePeriodStart") {
        return refuse("this is a FOCUS export: daily charges without calls or times");
    }
    if line.trim_start().starts_with('<') {
        return refuse("this is HTML or XML, not CSV or JSON");
    }
    if has(" | ") && !has(",") {
        return refuse("this is psql's output for reading, not an export");
    }
    Ok(if line.contains('\t') && !line.starts_with('"') { Dialect::CopyText } else { Dialect::Csv })
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
            (b"id,user_id,date,api_key,api_requests\n", "one row a day"),
            (b"BilledCost,BillingPeriodStart,ChargePeriodStart\n", "FOCUS"),
            (b" request_id | call_type | api_key \n----+----\n", "for reading"),
            (b"<html>", "HTML"),
            (b"--\n-- PostgreSQL database dump\n", "SQL"),
        ] {
            assert!(refusal(head).contains(expected), "{expected}: {}", refusal(head));
        }
        assert_eq!(recognise(b"request_id,call_type\n"), Ok(Form::Table(Dialect::Csv)));
        assert_eq!(recognise(b"request_id\tcall_type\n"), Ok(Form::Table(Dialect::CopyText)));
        assert_eq!(recognise(b" {\"data\":[]}"), Ok(Form::Json));
    }
}
