//! From a file to text: compression by content, and refusal of what is no text.

use std::io::{self, BufReader, Cursor, Read};

use crate::diag::{Error, Result};
use crate::trace::gunzip::Gunzip;

/// Any source of bytes.
pub(super) type Source = Box<dyn Read + Send>;

const GZIP: &[u8] = &[0x1f, 0x8b];
const ZSTD: &[u8] = &[0x28, 0xb5, 0x2f, 0xfd];
const PARQUET: &[u8] = b"PAR1";
/// UTF-16 in either byte order, as some spreadsheets write it.
const UTF16: [&[u8]; 2] = [&[0xff, 0xfe], &[0xfe, 0xff]];

/// Bytes looked at to tell text from binary data.
const LOOK: usize = 4096;

/// Takes off the compression, whatever the file is called, and makes sure that text comes out.
pub(super) fn text(source: Source) -> Result<Source> {
    let (head, source) = peek(source, ZSTD.len())?;
    let plain: Source = if head.starts_with(GZIP) {
        Box::new(Gunzip::new(BufReader::new(source)))
    } else if head.starts_with(ZSTD) {
        Box::new(zstd::Decoder::new(source).map_err(|error| unreadable(&error))?)
    } else {
        source
    };
    let (head, plain) = peek(plain, LOOK)?;
    if head.is_empty() {
        return Err(Error::new("the file is empty"));
    }
    if head.starts_with(PARQUET) {
        return Err(Error::new("this is a Parquet file, a CSV file is needed")
            .help("the columns are the same: write it as CSV with DuckDB or pandas"));
    }
    if UTF16.iter().any(|mark| head.starts_with(mark)) {
        return Err(Error::new("the text is UTF-16, UTF-8 is needed"));
    }
    if head.contains(&0) {
        return Err(Error::new("this is a binary file, a CSV file is needed"));
    }
    Ok(plain)
}

/// A read that failed, in a user's words.
pub(super) fn unreadable(error: &io::Error) -> Error {
    if error.kind() == io::ErrorKind::UnexpectedEof {
        return Error::new("the compressed data ends in the middle: the file was cut off");
    }
    Error::new(format!("cannot read on: {error}"))
}

/// The first bytes, at most `len`, and a source that still yields them.
fn peek(mut source: Source, len: usize) -> Result<(Vec<u8>, Source)> {
    let mut head = Vec::with_capacity(len);
    let limit = len as u64;
    source.by_ref().take(limit).read_to_end(&mut head).map_err(|error| unreadable(&error))?;
    let again = Cursor::new(head.clone()).chain(source);
    Ok((head, Box::new(again)))
}
