//! Text files line by line, plain or compressed; what they are is read from their first bytes.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek};
use std::path::{Path, PathBuf};

use flate2::bufread::MultiGzDecoder;

use crate::diag::{Error, Result};

/// Longer than any session; what exceeds it is no JSONL.
const LINE_BYTES_MAX: u64 = 1 << 28;

const GZIP_MAGIC: &[u8] = &[0x1f, 0x8b];
const ZSTD_MAGIC: &[u8] = &[0x28, 0xb5, 0x2f, 0xfd];

/// The lines of one file.
pub(super) struct Lines {
    reader: Box<dyn BufRead>,
    path: PathBuf,
    line: u64,
}

impl Lines {
    /// Opens a file; gzip and zstd are unpacked on the way, whatever the file's name.
    pub(super) fn open(path: &Path) -> Result<Self> {
        let fail = |error| Error::io(path, "open the file", &error);
        let reader = open_unpacked(path).map_err(fail)?;
        Ok(Self { reader, path: path.to_owned(), line: 0 })
    }

    /// Number of the line read last, from 1.
    pub(super) fn line(&self) -> u64 {
        self.line
    }

    /// The next line with its end, or `None` at the end of the file.
    pub(super) fn next(&mut self) -> Result<Option<Vec<u8>>> {
        let mut bytes = Vec::new();
        let mut limited = self.reader.by_ref().take(LINE_BYTES_MAX + 1);
        let read = limited.read_until(b'\n', &mut bytes);
        self.line += 1;
        let fail = |error: &io::Error| {
            Error::io(&self.path, "read the file", error)
                .at_line(self.line)
                .help("the file may be cut short or damaged")
        };
        if read.map_err(|error| fail(&error))? == 0 {
            return Ok(None);
        }
        if bytes.len() as u64 > LINE_BYTES_MAX {
            let message = format!("a line of more than {LINE_BYTES_MAX} bytes is no session");
            let error = Error::new(message).in_file(self.path.display());
            return Err(error.at_line(self.line));
        }
        Ok(Some(bytes))
    }

    /// All that follows.
    pub(super) fn rest(&mut self) -> Result<Vec<u8>> {
        let mut rest = Vec::new();
        while let Some(mut line) = self.next()? {
            rest.append(&mut line);
        }
        Ok(rest)
    }
}

fn open_unpacked(path: &Path) -> io::Result<Box<dyn BufRead>> {
    let mut file = File::open(path)?;
    let mut magic = Vec::new();
    file.by_ref().take(ZSTD_MAGIC.len() as u64).read_to_end(&mut magic)?;
    file.rewind()?;
    let file = BufReader::new(file);
    Ok(if magic.starts_with(GZIP_MAGIC) {
        Box::new(BufReader::new(MultiGzDecoder::new(file)))
    } else if magic.starts_with(ZSTD_MAGIC) {
        Box::new(BufReader::new(zstd::Decoder::with_buffer(file)?))
    } else {
        Box::new(file)
    })
}
