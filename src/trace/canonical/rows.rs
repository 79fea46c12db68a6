//! Rows and their cells. A row without quotation marks is a line, and its cells stand between
//! commas; csv-core splits the others. Lines are counted here, so that an error names the right one
//! however they end: by a line feed, a carriage return, or both as Windows writes them.

use std::io::{self, ErrorKind, Read};
use std::mem;

use csv_core::{ReadRecordResult, Reader};
use memchr::{memchr, memchr_iter, memchr2, memchr2_iter};

use super::input::{self, Source};
use crate::diag::{Error, Result};

/// Bytes that are read in one go.
const READ_BYTES: usize = 1 << 16;
/// What some programs put at the start of UTF-8 text.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// The rows of a file, one at a time.
pub(super) struct Rows {
    source: Source,
    /// Whether nothing was used yet.
    is_start: bool,
    buffer: Vec<u8>,
    /// Bytes of the buffer that were read.
    filled: usize,
    /// Where the row at hand begins, and what is behind it.
    row: usize,
    next: usize,
    /// Whether a carriage return stands before what comes next: a line feed there ends no line.
    is_half: bool,
    /// Nothing between what comes next and here is a line feed.
    searched: usize,
    /// The lines of the row at hand and of the next.
    row_line: u64,
    next_line: u64,
    /// Where its cells end: in the buffer, or in `cells`.
    ends: Vec<usize>,
    /// The cells of a row with quotation marks, without those, one behind the other.
    cells: Vec<u8>,
    /// Whether they stand in the buffer.
    is_plain: bool,
    core: Reader,
}

impl Rows {
    pub(super) fn new(source: Source) -> Self {
        let mut core = Reader::new();
        // Only at the start of a file it would skip a byte order mark, which is seen to here.
        let _ = core.read_record(b"\n", &mut [0], &mut [0]);
        Self {
            source,
            is_start: true,
            buffer: vec![0; 2 * READ_BYTES],
            filled: 0,
            row: 0,
            next: 0,
            is_half: false,
            searched: 0,
            row_line: 1,
            next_line: 1,
            ends: Vec::new(),
            cells: Vec::new(),
            is_plain: true,
            core,
        }
    }

    /// Goes on to the next row, past empty lines; false at the end of the file.
    pub(super) fn next(&mut self) -> Result<bool> {
        let unreadable = |error| input::unreadable(&error);
        while let Some((end, behind)) = self.line_end().map_err(unreadable)? {
            let line = &self.buffer[self.next..end];
            if mem::take(&mut self.is_start) && line.starts_with(BYTE_ORDER_MARK) {
                self.next += BYTE_ORDER_MARK.len();
                continue;
            }
            let is_ended = behind > end;
            let line = if is_ended { line.strip_suffix(b"\r").unwrap_or(line) } else { line };
            if line.is_empty() {
                self.pass(behind - self.next);
            } else if line[0] == b'\r' {
                let returns = line.iter().take_while(|&&byte| byte == b'\r').count();
                self.pass(returns);
            } else if memchr2(b'"', b'\r', line).is_some() {
                return self.split();
            } else {
                let end = self.next + line.len();
                self.ends.clear();
                self.ends.extend(memchr_iter(b',', line).map(|comma| self.next + comma));
                self.ends.push(end);
                (self.row, self.row_line, self.is_plain) = (self.next, self.next_line, true);
                (self.next, self.is_half) = (behind, false);
                self.next_line += u64::from(is_ended);
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Where the line that comes next ends, and where the one behind it begins.
    fn line_end(&mut self) -> io::Result<Option<(usize, usize)>> {
        loop {
            let from = self.searched.max(self.next);
            if let Some(at) = memchr(b'\n', &self.buffer[from..self.filled]) {
                self.searched = from + at;
                return Ok(Some((self.searched, self.searched + 1)));
            }
            self.searched = self.filled;
            if !self.read_on()? {
                return Ok((self.next < self.filled).then_some((self.filled, self.filled)));
            }
        }
    }

    /// Reads a row with quotation marks, which may run over several lines.
    fn split(&mut self) -> Result<bool> {
        (self.row_line, self.is_plain) = (self.next_line, false);
        // Behind the end of the file: the line on which it ended.
        let (mut written, mut ended, mut over) = (0, 0, None);
        self.cells.resize(self.cells.capacity().max(256), 0);
        self.ends.resize(self.ends.capacity().max(32), 0);
        loop {
            let input = &self.buffer[self.next..self.filled];
            let (cells, ends) = (&mut self.cells[written..], &mut self.ends[ended..]);
            let (result, read, wrote, ends) = self.core.read_record(input, cells, ends);
            self.pass(read);
            (written, ended) = (written + wrote, ended + ends);
            match result {
                ReadRecordResult::Record => {
                    self.ends.truncate(ended);
                    self.next_line = over.unwrap_or(self.next_line);
                    return Ok(true);
                }
                ReadRecordResult::End => return Ok(false),
                ReadRecordResult::OutputFull => self.cells.resize(2 * self.cells.len(), 0),
                ReadRecordResult::OutputEndsFull => self.ends.resize(2 * self.ends.len(), 0),
                ReadRecordResult::InputEmpty if over.is_some() => {
                    let error = Error::new("a quotation mark is never closed");
                    return Err(error.at_line(self.row_line));
                }
                ReadRecordResult::InputEmpty => {
                    if !self.read_on().map_err(|error| input::unreadable(&error))? {
                        over = Some(self.next_line);
                        // The end of a line ends the last row, unless a quotation mark is open.
                        self.buffer[self.filled] = b'\n';
                        self.filled += 1;
                    }
                }
            }
        }
    }

    /// Leaves so many bytes behind, and counts the lines that end in them.
    fn pass(&mut self, count: usize) {
        let bytes = &self.buffer[self.next..self.next + count];
        for at in memchr2_iter(b'\r', b'\n', bytes) {
            let before = at.checked_sub(1).map_or(self.is_half, |before| bytes[before] == b'\r');
            self.next_line += u64::from(bytes[at] == b'\r' || !before);
        }
        self.is_half = bytes.last().map_or(self.is_half, |last| *last == b'\r');
        self.next += count;
    }

    /// Reads more behind what was not used yet; false at the end of the file.
    fn read_on(&mut self) -> io::Result<bool> {
        if self.buffer.len() - self.filled < READ_BYTES {
            // Never more is moved than was used, so that no row waits for the length of another.
            if self.next >= self.filled - self.next {
                self.buffer.copy_within(self.next..self.filled, 0);
                self.searched = self.searched.saturating_sub(self.next);
                (self.filled, self.next) = (self.filled - self.next, 0);
            }
            if self.buffer.len() - self.filled < READ_BYTES {
                self.buffer.resize(2 * self.buffer.len(), 0);
            }
        }
        let read = loop {
            match self.source.read(&mut self.buffer[self.filled..]) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                read => break read?,
            }
        };
        self.filled += read;
        Ok(read > 0)
    }

    /// Cells of the row at hand.
    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    /// One of them.
    #[inline]
    pub(super) fn cell(&self, place: usize) -> Option<&[u8]> {
        let end = *self.ends.get(place)?;
        let before = place.checked_sub(1).map(|before| self.ends[before]);
        Some(match self.is_plain {
            true => &self.buffer[before.map_or(self.row, |comma| comma + 1)..end],
            false => &self.cells[before.unwrap_or(0)..end],
        })
    }

    /// All of them.
    pub(super) fn cells(&self) -> impl Iterator<Item = &[u8]> {
        (0..self.len()).filter_map(|place| self.cell(place))
    }

    /// The line on which the row at hand begins.
    pub(super) fn line(&self) -> u64 {
        self.row_line
    }

    /// The line up to which was read.
    pub(super) fn line_reached(&self) -> u64 {
        self.next_line
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use csv::ByteRecord;
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

    /// The rows of a text by the csv crate, each with the line on which it begins.
    fn by_the_csv_crate(text: &str) -> Vec<(u64, ByteRecord)> {
        let mut builder = csv::ReaderBuilder::new();
        let reader = builder.has_headers(false).flexible(true).from_reader(text.as_bytes());
        let with_line = |record: ByteRecord| {
            let mark = text.find(|first| first != '\u{feff}').unwrap_or(0);
            let at = record.position().map_or(0, |at| at.byte() as usize).max(mark);
            // The crate counts empty lines, and the second half of a line's end, to what follows.
            let ends = text[at..].bytes().take_while(|byte| b"\r\n".contains(byte)).count();
            let before = &text[..at + ends];
            let lines = before.matches(['\r', '\n']).count() - before.matches("\r\n").count();
            (1 + lines as u64, record)
        };
        reader.into_byte_records().map(|record| with_line(record.unwrap())).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

        #[test]
        fn rows_are_those_of_the_csv_crate(
            text in "(\u{feff})?([ab,é\n]{0,9}|[ab,\n\r\" ]{0,9}|(a,\"b\r\n)?(a\r\n)?){1,9}",
            at_once in 1usize..9,
        ) {
            let mut rows = Rows::new(Box::new(Slow(text.clone().into_bytes(), at_once)));
            let expected = by_the_csv_crate(&text);
            // Inside quotation marks another line is no other row.
            let more = by_the_csv_crate(&format!("{text}x\nx\n"));
            let other = ByteRecord::from(vec!["x"]);
            let is_unclosed = more.last().is_some_and(|(_, last)| *last != other);
            let whole = expected.len() - usize::from(is_unclosed);
            for (line, record) in &expected[..whole] {
                prop_assert!(rows.next().unwrap(), "{text:?}");
                prop_assert_eq!(rows.line(), *line, "{:?}", text);
                prop_assert!(rows.cells().eq(record.iter()), "{text:?}: {record:?}");
            }
            match is_unclosed {
                true => prop_assert!(rows.next().is_err(), "{text:?}"),
                false => prop_assert!(!rows.next().unwrap(), "{text:?}"),
            }
        }
    }

    #[test]
    fn lines_are_counted_however_they_end_with_and_without_quotes() {
        for end in ["\n", "\r\n", "\r"] {
            let text = "a,b\n\n1,2\n\"3\n4\",5\n6,7".replace('\n', end);
            let mut rows = Rows::new(Box::new(Cursor::new(text)));
            let mut told = Vec::new();
            while rows.next().unwrap() {
                let cells: Vec<_> = rows.cells().map(String::from_utf8_lossy).collect();
                told.push((rows.line(), cells.join("|")));
            }
            let long = format!("3{end}4|5");
            let expected = [(1, "a|b"), (3, "1|2"), (4, &*long), (6, "6|7")];
            assert!(told.iter().map(|(line, cells)| (*line, &**cells)).eq(expected), "{told:?}");
        }
    }

    #[test]
    fn a_quotation_mark_that_is_not_closed_is_named_where_it_is() {
        let mut rows = Rows::new(Box::new(Cursor::new("a,b\n1,\"2\n3,4\n")));
        assert!(rows.next().unwrap());
        let error = rows.next().unwrap_err().in_file("t").to_string();
        assert!(error.starts_with("t:2: a quotation mark is never closed"), "{error}");
    }

    #[test]
    fn a_file_of_carriage_returns_is_searched_once() {
        // Searched anew at every row, this would take minutes.
        let text = "a,b\r".repeat(1 << 20) + &"\r".repeat(1 << 22);
        let mut rows = Rows::new(Box::new(Cursor::new(text)));
        let mut count = 0;
        while rows.next().unwrap() {
            count += 1;
        }
        assert_eq!((count, rows.line_reached()), (1 << 20, 1 + (1 << 20) + (1 << 22)));
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
