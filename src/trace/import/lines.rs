//! Text files line by line, plain or compressed; what they are is read from their first bytes.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::Progress;
use crate::diag::{Error, Result};
use crate::trace::gunzip::Gunzip;

/// Longer than any row or session; what exceeds it is no text of lines.
const LINE_BYTES_MAX: u64 = 1 << 28;

const GZIP_MAGIC: &[u8] = &[0x1f, 0x8b];
const ZSTD_MAGIC: &[u8] = &[0x28, 0xb5, 0x2f, 0xfd];

/// The lines of one file.
pub(super) struct Lines {
    reader: Input,
    path: PathBuf,
    line: u64,
}

impl Lines {
    /// Opens a file; gzip and zstd are unpacked on the way, whatever the file's name.
    pub(super) fn open(path: &Path, progress: &Arc<Progress>) -> Result<Self> {
        let reader = open(path, progress)?;
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
        let fail = |error: &io::Error| unreadable(&self.path, error).at_line(self.line);
        if read.map_err(|error| fail(&error))? == 0 {
            return Ok(None);
        }
        if bytes.len() as u64 > LINE_BYTES_MAX {
            let message = format!("a line of more than {LINE_BYTES_MAX} bytes is no row");
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

/// The unpacked content of a file.
pub(super) type Input = Box<dyn BufRead + Send>;

/// Opens a file and unpacks it, if its first bytes say that it is packed; what is read of it is
/// added to `progress`.
pub(super) fn open(path: &Path, progress: &Arc<Progress>) -> Result<Input> {
    let fail = |error| Error::io(path, "open the file", &error);
    let file = File::open(path).map_err(fail)?;
    let file = BufReader::new(Counted { file, progress: Arc::clone(progress) });
    unpack(file).map_err(|error| unreadable(path, &error))
}

/// Refuses a file that cannot be read twice, such as a pipe.
pub(super) fn check_rereadable(path: &Path) -> Result<()> {
    match std::fs::metadata(path) {
        Ok(data) if data.is_file() => Ok(()),
        Ok(_) => Err(Error::new("this is no regular file, and it must be read twice")
            .in_file(path.display())
            .help("write the data to a file first, which may be compressed")),
        Err(error) => Err(Error::io(path, "open the file", &error)),
    }
}

/// A read that failed, in a user's words.
pub(super) fn unreadable(path: &Path, error: &io::Error) -> Error {
    Error::io(path, "read the file", error).help("the file may be cut short or damaged")
}

fn unpack<R: Read + Send + 'static>(mut file: BufReader<R>) -> io::Result<Input> {
    // A regular file fills the buffer at once; a pipe may need several reads for four bytes.
    let mut magic = Vec::new();
    file.by_ref().take(ZSTD_MAGIC.len() as u64).read_to_end(&mut magic)?;
    let (gzip, zstd) = (magic.starts_with(GZIP_MAGIC), magic.starts_with(ZSTD_MAGIC));
    let file = io::Cursor::new(magic).chain(file);
    Ok(if gzip {
        Box::new(BufReader::new(Gunzip::new(file)))
    } else if zstd {
        Box::new(BufReader::new(zstd::Decoder::with_buffer(file)?))
    } else {
        Box::new(file)
    })
}

/// A file that tells how far it was read.
struct Counted {
    file: File,
    progress: Arc<Progress>,
}

impl Read for Counted {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read(buffer)?;
        self.progress.add(count as u64);
        Ok(count)
    }
}
