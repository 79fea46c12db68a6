//! `tonnage conform`: does the engine decide as a recorded scheduler did?

use std::path::{Path, PathBuf};

use super::Outcome;
use super::scenario::show;
use crate::config::defaults::VllmVersion;
use crate::diag::{Error, Result};
use crate::validate::conform::conform;
use crate::validate::recording::Recording;

/// Arguments of `tonnage conform`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Recordings (.json or .json.gz), or folders of them
    #[arg(required = true, value_name = "CASE")]
    cases: Vec<PathBuf>,
    /// The version of vLLM whose rules the engine takes: 0.29 or 0.33
    #[arg(long, default_value = "0.29", value_name = "VERSION")]
    vllm_version: String,
}

/// Runs the command.
pub fn run(args: &Args) -> Result<Outcome> {
    let vllm = VllmVersion::scheduler(&args.vllm_version)
        .map_err(|error| error.in_field("--vllm-version"))?;
    let mut files = Vec::new();
    for case in &args.cases {
        collect(case, &mut files)?;
    }
    if files.is_empty() {
        return Err(
            Error::new("no recording in what was given").help("they end in .json or .json.gz")
        );
    }
    let recordings = files.iter().map(|file| Recording::read(file)).collect::<Result<Vec<_>>>()?;
    let mut failed = 0;
    show(|out| {
        for recording in &recordings {
            match conform(recording, vllm) {
                None => writeln!(out, "{}: equal", recording.name)?,
                Some(difference) => {
                    failed += 1;
                    writeln!(
                        out,
                        "{}: {}: {}: recorded {}, engine {}",
                        recording.name,
                        difference.place,
                        difference.field,
                        difference.expected,
                        difference.found
                    )?;
                }
            }
        }
        writeln!(out, "{} passed, {failed} failed", recordings.len() - failed)
    })?;
    Ok(if failed == 0 { Outcome::Met } else { Outcome::NotMet })
}

/// A file as it is; of a folder its recordings, by name.
fn collect(path: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    if !path.is_dir() {
        files.push(path.to_owned());
        return Ok(());
    }
    let io = |error: std::io::Error| Error::io(path, "list the folder", &error);
    let mut found = Vec::new();
    for entry in path.read_dir().map_err(io)? {
        let file = entry.map_err(io)?.path();
        let name = file.to_string_lossy();
        if name.ends_with(".json") || name.ends_with(".json.gz") {
            found.push(file);
        }
    }
    found.sort();
    files.extend(found);
    Ok(())
}
