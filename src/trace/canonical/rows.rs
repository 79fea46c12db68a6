//! Rows and their cells. As long as nothing is quoted a row is a line and its cells stand between
//! commas; from the first row on that has a quotation mark or a carriage return, or is empty, the
//! csv crate reads.

use std::io::{self, Cursor, ErrorKind, Read};

use csv::ByteRecord;
use memchr::{memchr, memchr_iter, memchr2};

use super::input::{self, Source};
use crate::diag::{Error, Result};

/// Bytes that are read in one go.
const READ_BYTES: usize = 1 << 16;
/// What some programs put at the start of UTF-8 text.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// The rows of a file, one at a time.
pub(super) struct Rows(How);

enum How {
    Plain(Plain),
    Quoted {
        rows: csv::Reader<Source>,
        record: ByteRecord,
        /// Lines before the first that it has read.
        lines: u64,
    },
}

/// Lines whose cells stand between commas.
struct Plain {
    source: Source,
    buffer: Vec<u8>,
    /// Bytes of the buffer that were read.
    filled: usize,
    /// Where the row at hand begins, and the one behind it.
    row: usize,
    next: usize,
    /// Where its cells end.
    ends: Vec<usize>,
    /// The lines of both.
    row_line: u64,
    line: u64,
}

/// What comes next of plain lines.
enum Line {
    /// A row, which is split.
    Row,
    /// One that has to be read otherwise.
    Other,
    End,
}

impl Rows {
    pub(super) fn new(source: Source) -> Self {
        let (buffer, ends) = (vec![0; 2 * READ_BYTES], Vec::new());
        let (filled, row, next, row_line, line) = (0, 0, 0, 1, 1);
        Self(How::Plain(Plain { source, buffer, filled, row, next, ends, row_line, line }))
    }

    /// Goes on to the next row; false at the end of the file.
    pub(super) fn next(&mut self) -> Result<bool> {
        if let How::Plain(plain) = &mut self.0 {
            match plain.next().map_err(|error| input::unreadable(&error))? {
                Line::Row => return Ok(true),
                Line::End => return Ok(false),
                Line::Other => {}
            }
            let lines = plain.line - 1;
            let source = std::mem::replace(&mut plain.source, Box::new(io::empty()));
            let begun = Cursor::new(plain.buffer[plain.next..plain.filled].to_vec());
            // Widths are compared by who asks, which can then say what is wrong with the row.
            let rows = csv::ReaderBuilder::new()
                .has_headers(false)
                .flexible(true)
                .buffer_capacity(READ_BYTES)
                .from_reader(Box::new(begun.chain(source)) as Source);
            self.0 = How::Quoted { rows, record: ByteRecord::new(), lines };
        }
        match &mut self.0 {
            How::Plain(_) => Ok(false),
            How::Quoted { rows, record, .. } => rows.read_byte_record(record).map_err(csv_error),
        }
    }

    /// Cells of the row at hand.
    pub(super) fn len(&self) -> usize {
        match &self.0 {
            How::Plain(plain) => plain.ends.len(),
            How::Quoted { record, .. } => record.len(),
        }
    }

    /// One of them.
    #[inline]
    pub(super) fn cell(&self, place: usize) -> Option<&[u8]> {
        match &self.0 {
            How::Plain(plain) => {
                let end = *plain.ends.get(place)?;
                let start = if place == 0 { plain.row } else { plain.ends[place - 1] + 1 };
                Some(&plain.buffer[start..end])
            }
            How::Quoted { record, .. } => record.get(place),
        }
    }

    /// All of them.
    pub(super) fn cells(&self) -> impl Iterator<Item = &[u8]> {
        (0..self.len()).filter_map(|place| self.cell(place))
    }

    /// The line on which the row at hand begins.
    pub(super) fn line(&self) -> u64 {
        match &self.0 {
            How::Plain(plain) => plain.row_line,
            How::Quoted { record, lines, .. } => {
                lines + record.position().map_or(0, |at| at.line())
            }
        }
    }

    /// The line up to which was read.
    pub(super) fn line_reached(&self) -> u64 {
        match &self.0 {
            How::Plain(plain) => plain.line,
            How::Quoted { rows, lines, .. } => lines + rows.position().line(),
        }
    }
}

impl Plain {
    fn next(&mut self) -> io::Result<Line> {
        self.ends.clear();
        let mut looked = self.next;
        let (end, behind) = loop {
            if let Some(at) = memchr(b'\n', &self.buffer[looked..self.filled]) {
                break (looked + at, looked + at + 1);
            }
            looked = self.filled - self.next;
            if !self.read_on()? {
                if self.next == self.filled {
                    return Ok(Line::End);
                }
                break (self.filled, self.filled);
            }
        };
        let line = &self.buffer[self.next..end];
        if line.is_empty() || memchr2(b'"', b'\r', line).is_some() {
            return Ok(Line::Other);
        }
        self.ends.extend(memchr_iter(b',', line).map(|comma| self.next + comma));
        self.ends.push(end);
        (self.row, self.next, self.row_line) = (self.next, behind, self.line);
        self.line += u64::from(behind > end);
        Ok(Line::Row)
    }

    /// Reads more behind what was not used yet, which then stands at the start of the buffer; false
    /// at the end of the file.
    fn read_on(&mut self) -> io::Result<bool> {
        // A long line is moved once, not at every read.
        if self.next > 0 {
            self.buffer.copy_within(self.next..self.filled, 0);
            (self.filled, self.next) = (self.filled - self.next, 0);
        }
        if self.buffer.len() - self.filled < READ_BYTES {
            self.buffer.resize(2 * self.buffer.len(), 0);
        }
        let read = loop {
            match self.source.read(&mut self.buffer[self.filled..]) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                read => break read?,
            }
        };
        let is_first = self.filled == 0 && self.line == 1;
        self.filled += read;
        if is_first && self.buffer[..self.filled].starts_with(BYTE_ORDER_MARK) {
            self.next = BYTE_ORDER_MARK.len();
        }
        Ok(read > 0)
    }
}

fn csv_error(error: csv::Error) -> Error {
    match error.into_kind() {
        csv::ErrorKind::Io(error) => input::unreadable(&error),
        kind => Error::new(format!("cannot read on: {kind:?}")),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Gives a few bytes at a time.
    struct Slow(Vec<u8>, usize);

    impl Read for Slow {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let read = self.0.len().min(self.1).min(buffer.len());
            buffer[..read].copy_from_slice(&self.0[..read]);
            self.0.drain(..read);
            Ok(read)
        }
    }

    proptest! {
        #[test]
        fn rows_are_those_of_the_csv_crate(
            text in "(\u{feff})?([ab,é\n]{0,9}|[ab,\n\r\" ]{0,9}){1,9}", at_once in 3usize..9,
        ) {
            let mut rows = Rows::new(Box::new(Slow(text.clone().into_bytes(), at_once)));
            let mut builder = csv::ReaderBuilder::new();
            let mut expected =
                builder.has_headers(false).flexible(true).from_reader(text.as_bytes());
            let mut record = ByteRecord::new();
            while expected.read_byte_record(&mut record).unwrap() {
                prop_assert!(rows.next().unwrap());
                let line = record.position().map(csv::Position::line);
                prop_assert_eq!(Some(rows.line()), line, "{:?}", text);
                prop_assert!(rows.cells().eq(record.iter()), "{:?}: {:?}", text, record);
                prop_assert_eq!(rows.line_reached(), expected.position().line());
            }
            prop_assert!(!rows.next().unwrap(), "{:?}", text);
        }
    }

    #[test]
    fn a_line_may_be_longer_than_what_is_read_at_once() {
        let long = "x".repeat(3 * READ_BYTES);
        let text = format!("a,{long}\nb,c");
        let mut rows = Rows::new(Box::new(Cursor::new(text.into_bytes())));
        assert!(rows.next().unwrap() && rows.cell(1) == Some(long.as_bytes()));
        assert!(rows.next().unwrap() && rows.cell(1) == Some(b"c"));
        assert!(!rows.next().unwrap());
    }
}
