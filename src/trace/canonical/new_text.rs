//! A text file that takes its name only when it is whole, compressed as the name says.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::new_file::NewFile;
use super::write::{Compression, Encoder, Out};
use crate::diag::{Error, Result};

/// Written under a temporary name; dropping it leaves what bears the name as it was.
pub(crate) struct NewText {
    encoder: Encoder<'static>,
    path: PathBuf,
}

impl NewText {
    /// Starts a file that [`finish`](Self::finish) will put at `path`.
    pub(crate) fn create(path: &Path) -> Result<Self> {
        let out = Out::File(Box::new(NewFile::create(path)?));
        let encoder = Encoder::new(out, Compression::of_text(path));
        let encoder = encoder.map_err(|error| Error::io(path, "write", &error))?;
        Ok(Self { encoder, path: path.to_owned() })
    }

    /// Gives the file its name.
    pub(crate) fn finish(self) -> Result<()> {
        let failed = |error: &io::Error| Error::io(&self.path, "write", error);
        let mut out = self.encoder.finish().map_err(|error| failed(&error))?;
        out.flush().map_err(|error| failed(&error))?;
        match out {
            Out::File(file) => file.commit(),
            Out::Stream(_) => Ok(()),
        }
    }
}

impl Write for NewText {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.encoder.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.encoder.flush()
    }
}
