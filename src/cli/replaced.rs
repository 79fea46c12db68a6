//! Whether a command would write over what it reads.

use std::path::{Path, PathBuf};

use crate::diag::{Error, Result};
use crate::trace::meta::sidecar_path;

/// A path under its one real name, also where the file is not there yet.
fn real(path: &Path) -> PathBuf {
    if let Ok(real) = std::fs::canonicalize(path) {
        return real;
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = std::fs::canonicalize(folder.unwrap_or(Path::new("."))).ok();
    match (folder, path.file_name()) {
        (Some(folder), Some(name)) => folder.join(name),
        _ => path.to_owned(),
    }
}

/// Whether two paths are one file, under whatever name.
pub fn same(one: &Path, other: &Path) -> bool {
    real(one) == real(other)
}

/// Refuses an output, or its sidecar, that is one of the files that it is made of.
///
/// # Errors
/// What would be replaced, at the output's path.
pub fn refuse_own<'i>(output: &Path, inputs: impl IntoIterator<Item = &'i Path>) -> Result<()> {
    let sidecar = sidecar_path(output);
    for input in inputs {
        let text = match input {
            input if same(input, output) => "the output would replace a file that it is made of",
            input if same(input, &sidecar) => {
                "the output's sidecar would replace a file that it is made of"
            }
            _ => continue,
        };
        return Err(Error::new(text).in_file(output.display()));
    }
    Ok(())
}

/// Refuses outputs of which one is a file that they are made of, or two are one file.
///
/// # Errors
/// What would be replaced, at the output's path.
pub fn refuse_own_outputs(outputs: &[PathBuf], inputs: &[PathBuf]) -> Result<()> {
    for (place, output) in outputs.iter().enumerate() {
        let text = match output {
            output if inputs.iter().any(|input| same(input, output)) => {
                "the output would replace a file that it is made of"
            }
            output if outputs[..place].iter().any(|other| same(other, output)) => {
                "two outputs are one file"
            }
            _ => continue,
        };
        return Err(Error::new(text).in_file(output.display()));
    }
    Ok(())
}

/// Refuses what [`refuse_own`] does, and what would take the place of the sidecar of one of the
/// traces that the output is made of.
///
/// # Errors
/// What would be replaced, at the output's path.
pub fn refuse_own_trace<'i>(
    output: &Path,
    inputs: impl IntoIterator<Item = &'i Path> + Clone,
) -> Result<()> {
    refuse_own(output, inputs.clone())?;
    for theirs in inputs.into_iter().map(sidecar_path) {
        let text = match &theirs {
            theirs if same(theirs, output) => "the output would replace the sidecar of an input",
            theirs if same(theirs, &sidecar_path(output)) => {
                "the sidecar would replace that of an input"
            }
            _ => continue,
        };
        let error = Error::new(text).in_file(output.display());
        return Err(error.help("X.csv, X.csv.gz and X.csv.zst have one sidecar, X.meta.json"));
    }
    Ok(())
}
