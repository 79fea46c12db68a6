//! The bytes of a file, unpacked, in a window that knows its line.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use crate::diag::{Error, Result};
use crate::trace::gunzip::Gunzip;

/// How much of a file is held at a time.
const WINDOW_BYTES: usize = 256 * 1024;

/// A buffered reader that counts lines when asked, so that whoever skips fast need not.
pub(super) struct Input {
    source: Box<dyn Read>,
    window: Box<[u8]>,
    at: usize,
    end: usize,
    /// Up to where line breaks have been counted.
    counted: usize,
    line_breaks: u64,
    /// Bytes since the last line break before the window.
    tail: u64,
}

impl Input {
    /// Opens a file; one that its first bytes call packed is unpacked, whatever its name.
    pub(super) fn open(path: &Path) -> Result<Self> {
        let file = File::open(path).map_err(|error| Error::io(path, "open", &error))?;
        let source = unpacked(file).map_err(|error| read_error(path, &error))?;
        Ok(Self::new(source))
    }

    /// A window on `source`.
    pub(super) fn new(source: Box<dyn Read>) -> Self {
        Self {
            source,
            window: vec![0; WINDOW_BYTES].into_boxed_slice(),
            at: 0,
            end: 0,
            counted: 0,
            line_breaks: 0,
            tail: 0,
        }
    }

    /// The beginning, before anything is consumed: a full window unless the file is shorter.
    pub(super) fn head(&mut self) -> io::Result<&[u8]> {
        while self.end < self.window.len() {
            match read(&mut self.source, &mut self.window[self.end..])? {
                0 => break,
                count => self.end += count,
            }
        }
        Ok(&self.window[self.at..self.end])
    }

    /// The line, from 1, that is read next.
    pub(super) fn line(&mut self) -> u64 {
        let passed = &self.window[self.counted..self.at];
        self.line_breaks += memchr::memchr_iter(b'\n', passed).count() as u64;
        self.counted = self.at;
        self.line_breaks + 1
    }

    /// The column in bytes, from 1, that is read next.
    pub(super) fn column(&self) -> u64 {
        self.since_break(self.at) + 1
    }

    fn since_break(&self, to: usize) -> u64 {
        match memchr::memrchr(b'\n', &self.window[..to]) {
            Some(last) => (to - last - 1) as u64,
            None => self.tail + to as u64,
        }
    }
}

impl Read for Input {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let chunk = self.fill_buf()?;
        let count = chunk.len().min(buffer.len());
        buffer[..count].copy_from_slice(&chunk[..count]);
        self.consume(count);
        Ok(count)
    }
}

impl BufRead for Input {
    #[inline]
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.at == self.end {
            self.line();
            self.tail = self.since_break(self.end);
            (self.at, self.end, self.counted) = (0, 0, 0);
            self.end = read(&mut self.source, &mut self.window)?;
        }
        Ok(&self.window[self.at..self.end])
    }

    #[inline]
    fn consume(&mut self, count: usize) {
        self.at = (self.at + count).min(self.end);
    }
}

/// Reads once, over again when interrupted.
fn read(source: &mut impl Read, into: &mut [u8]) -> io::Result<usize> {
    loop {
        match source.read(into) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

/// The content, unpacked if its first bytes say that it is packed; the name is no matter.
fn unpacked(file: File) -> io::Result<Box<dyn Read>> {
    let mut packed = BufReader::with_capacity(WINDOW_BYTES, file);
    let start = packed.fill_buf()?;
    if start.starts_with(&[0x1f, 0x8b]) {
        return Ok(Box::new(Gunzip::new(packed)));
    }
    if start.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]) {
        return Ok(Box::new(zstd::Decoder::with_buffer(packed)?));
    }
    Ok(Box::new(packed))
}

/// The error for a file that could not be read to its end.
pub(super) fn read_error(path: &Path, error: &io::Error) -> Error {
    if error.kind() == io::ErrorKind::UnexpectedEof {
        return Error::new("the packed file ends too early: it is cut off")
            .in_file(path.display())
            .help("copy or export it again; what is left cannot be trusted to be whole rows");
    }
    Error::io(path, "read", error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_and_columns_are_right_across_windows() {
        let text = format!("{}\n{}\nxy", "a".repeat(10), "b".repeat(WINDOW_BYTES));
        let mut input = Input::new(Box::new(io::Cursor::new(text.clone())));
        for (at, _) in text.bytes().enumerate() {
            let before = &text[..at];
            if !(14..WINDOW_BYTES - 1).contains(&at) {
                let line = before.bytes().filter(|byte| *byte == b'\n').count() as u64 + 1;
                let column = before.len() - before.rfind('\n').map_or(0, |last| last + 1) + 1;
                assert_eq!((input.line(), input.column()), (line, column as u64), "{at}");
            }
            assert!(!input.fill_buf().unwrap().is_empty());
            input.consume(1);
        }
        assert!(input.fill_buf().unwrap().is_empty());
    }
}
