//! A file that takes its name only when it is whole.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

use crate::diag::{Error, Result};

/// Written under a temporary name beside its target; dropping it leaves the target as it was.
#[derive(Debug)]
pub(crate) struct NewFile {
    file: NamedTempFile,
    target: PathBuf,
    named: PathBuf,
}

impl NewFile {
    /// Starts a file that [`commit`](Self::commit) will put at `path`.
    pub(crate) fn create(path: &Path) -> Result<Self> {
        // A link stays a link: what it points to is replaced.
        let target = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        if target.exists() && !target.is_file() {
            return Err(Error::new("cannot write: it exists and is no regular file")
                .in_file(path.display()));
        }
        let folder = match target.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        };
        let mut builder = tempfile::Builder::new();
        builder.prefix(".tonnage-");
        #[cfg(unix)]
        let permissions = {
            use std::os::unix::fs::PermissionsExt;
            // As for any new file: readable by all, less the umask.
            fs::Permissions::from_mode(0o666)
        };
        #[cfg(unix)]
        builder.permissions(permissions);
        let file = builder
            .tempfile_in(folder)
            .map_err(|error| Error::io(path, "create the file", &error))?;
        Ok(Self { file, target, named: path.to_owned() })
    }

    /// Gives the file its name, replacing what bore it.
    pub(crate) fn commit(self) -> Result<()> {
        let put = self.file.persist(&self.target);
        put.map_err(|error| Error::io(&self.named, "put the file in place", &error.error))?;
        Ok(())
    }
}

impl Write for NewFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}
