//! Formats with block ids: imports against figures that an independent program counted from the
//! same files, each rule on a small example, and exports that are read back.

mod formats;
mod reference;
mod round_trip;
mod sharing;

use std::fs;
use std::path::{Path, PathBuf};

use assert_cmd::Command;
use serde_json::Value;
use tempfile::TempDir;
use tonnage::diag::Result;
use tonnage::trace::import::{Done, Format, Job, Options};
use tonnage::trace::record::{Call, Trace};

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
}

fn tonnage(folder: &Path) -> Command {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("tonnage"));
    command.current_dir(folder);
    command
}

fn folder() -> TempDir {
    tempfile::tempdir().unwrap()
}

/// Rows that are written over several lines, each begun by `{"`.
fn joined(text: &str) -> String {
    let lines = text.lines().map(str::trim);
    lines
        .map(|line| if line.starts_with("{\"") { format!("\n{line}") } else { line.into() })
        .collect()
}

/// Imports text as one file of a format.
fn try_import(format: &str, text: &str, options: &Options) -> Result<(Trace, Done)> {
    let folder = folder();
    let file = folder.path().join("rows.jsonl");
    fs::write(&file, text).unwrap();
    let mut trace = Trace::default();
    let read = Format::named(format).unwrap().reader();
    let done = read(&Job::new(&[file], options), &mut trace)?;
    Ok((trace, done))
}

fn import(format: &str, text: &str) -> (Trace, Done) {
    try_import(format, text, &Options::default()).unwrap()
}

/// The message of a failed import, the folder's name cut off.
fn error_of(format: &str, text: &str) -> String {
    let error = try_import(format, text, &Options::default()).unwrap_err().to_string();
    error.split_once("rows.jsonl").map_or(error.clone(), |(_, said)| said.to_owned())
}

/// What `stats` says of a trace, as JSON.
fn stats(folder: &Path, args: &[&str]) -> Value {
    let run = tonnage(folder).arg("stats").args(args).arg("--json").assert().success();
    serde_json::from_slice(&run.get_output().stdout).unwrap()
}

fn after(call: &Call) -> Vec<u32> {
    call.after.iter().map(|after| after.call).collect()
}
