//! Fields of a text table, one after the other: CSV, or the text format of PostgreSQL's COPY.
//!
//! A field is handed on in pieces as it stands in the window, so that one that nobody wants costs a
//! search for its end and one of any size costs no memory.

use std::io::{self, BufRead};

use memchr::memchr3;

use super::input::Input;
use super::near;

/// How a table is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dialect {
    /// Commas, and quotes where needed; a quote within quotes is doubled.
    Csv,
    /// Tabs and backslash escapes; `\N` is NULL.
    CopyText,
}

/// What stands after a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// Another field of the row.
    Field,
    /// A line break.
    Row,
    /// The end of the file.
    File,
}

/// Where in a field reading has stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Before its first byte.
    Start,
    /// Outside of quotes.
    Plain,
    /// Within quotes.
    Quoted,
    /// After a quote within quotes: the closing one, unless another follows.
    Quote,
    /// After a backslash.
    Escape,
}

/// A reader of fields.
pub(super) struct Table {
    source: Input,
    dialect: Dialect,
    state: State,
    /// Whether the file ended within quotes.
    unclosed: bool,
}

impl Table {
    /// Reads from `source`.
    pub(super) fn new(source: Input, dialect: Dialect) -> Self {
        Self { source, dialect, state: State::Start, unclosed: false }
    }

    /// How it is written.
    pub(super) fn dialect(&self) -> Dialect {
        self.dialect
    }

    /// Goes to the next row, past empty lines; `false` at the end of the file.
    pub(super) fn next_row(&mut self) -> io::Result<bool> {
        loop {
            let chunk = self.source.fill_buf()?;
            match chunk.first() {
                None => return Ok(false),
                Some(b'\n' | b'\r') => self.source.consume(1),
                // The mark that COPY puts after the last row of a stream.
                Some(b'\\') if self.dialect == Dialect::CopyText && chunk.get(1) == Some(&b'.') => {
                    return Ok(false);
                }
                Some(_) => return Ok(true),
            }
        }
    }

    /// The line, from 1, that is read next.
    pub(super) fn line(&mut self) -> u64 {
        self.source.line()
    }

    /// Whether the file ended within quotes.
    pub(super) fn is_unclosed(&self) -> bool {
        self.unclosed
    }

    /// Hands the rest of the field on until it ends, or until `take` says `false` to ask for a
    /// pause; then it gives nothing.
    #[inline]
    pub(super) fn pull(&mut self, mut take: impl FnMut(&[u8]) -> bool) -> io::Result<Option<End>> {
        loop {
            let chunk = self.source.fill_buf()?;
            let step = match (chunk, self.dialect) {
                ([], _) => {
                    self.unclosed = self.state == State::Quoted;
                    Step::end(0, End::File)
                }
                (chunk, Dialect::Csv) => csv_step(chunk, &mut self.state, &mut take),
                (chunk, Dialect::CopyText) => copy_step(chunk, &mut self.state, &mut take),
            };
            self.source.consume(step.passed);
            match step.then {
                Then::GoOn => {}
                Then::Pause => return Ok(None),
                Then::Ends(end) => {
                    self.state = State::Start;
                    return Ok(Some(end));
                }
            }
        }
    }

    /// Reads past the rest of the field.
    pub(super) fn skip(&mut self) -> io::Result<End> {
        self.whole(|_| ())
    }

    /// Hands the whole rest of the field on.
    pub(super) fn whole(&mut self, mut take: impl FnMut(&[u8])) -> io::Result<End> {
        loop {
            let end = self.pull(|piece| {
                take(piece);
                true
            })?;
            if let Some(end) = end {
                return Ok(end);
            }
        }
    }
}

/// How far a step went, and what follows.
struct Step {
    passed: usize,
    then: Then,
}

enum Then {
    GoOn,
    Pause,
    Ends(End),
}

impl Step {
    fn new(passed: usize, goes_on: bool) -> Self {
        Self { passed, then: if goes_on { Then::GoOn } else { Then::Pause } }
    }

    fn end(passed: usize, end: End) -> Self {
        Self { passed, then: Then::Ends(end) }
    }
}

#[inline]
fn csv_step(chunk: &[u8], state: &mut State, take: &mut impl FnMut(&[u8]) -> bool) -> Step {
    match (*state, chunk[0]) {
        (State::Start, b'"') => {
            *state = State::Quoted;
            Step::new(1, true)
        }
        (State::Quoted, _) => quoted(chunk, state, take),
        (State::Quote, b'"') => {
            *state = State::Quoted;
            Step::new(1, take(b"\""))
        }
        _ => {
            *state = State::Plain;
            let Some(at) = memchr3(b',', b'\n', b'\r', chunk) else {
                return Step::new(chunk.len(), take(chunk));
            };
            if at > 0 {
                take(&chunk[..at]);
            }
            Step::end(at + 1, if chunk[at] == b',' { End::Field } else { End::Row })
        }
    }
}

/// Within quotes: a doubled one is handed on as one.
#[inline]
fn quoted(chunk: &[u8], state: &mut State, take: &mut impl FnMut(&[u8]) -> bool) -> Step {
    let mut from = 0;
    loop {
        let Some(length) = near::quote(&chunk[from..]) else {
            return Step::new(chunk.len(), take(&chunk[from..]));
        };
        let quote = from + length;
        if chunk.get(quote + 1) == Some(&b'"') {
            let goes_on = take(&chunk[from..=quote]);
            from = quote + 2;
            if !goes_on || from == chunk.len() {
                return Step::new(from, goes_on);
            }
        } else {
            *state = State::Quote;
            return Step::new(quote + 1, take(&chunk[from..quote]));
        }
    }
}

#[inline]
fn copy_step(chunk: &[u8], state: &mut State, take: &mut impl FnMut(&[u8]) -> bool) -> Step {
    if *state == State::Escape {
        *state = State::Plain;
        let resolved: &[u8] = match chunk[0] {
            b'N' => b"",
            b'b' => b"\x08",
            b'f' => b"\x0c",
            b'n' => b"\n",
            b'r' => b"\r",
            b't' => b"\t",
            b'v' => b"\x0b",
            _ => &chunk[..1],
        };
        return Step::new(1, take(resolved));
    }
    *state = State::Plain;
    let Some(at) = memchr3(b'\t', b'\n', b'\\', chunk) else {
        return Step::new(chunk.len(), take(chunk));
    };
    let goes_on = at == 0 || take(&chunk[..at]);
    match chunk[at] {
        b'\t' => Step::end(at + 1, End::Field),
        b'\n' => Step::end(at + 1, End::Row),
        _ => {
            *state = State::Escape;
            Step::new(at + 1, goes_on)
        }
    }
}

/// How much of a field is made ready at a time.
const PART_BYTES: usize = 64 * 1024;

/// One field as a stream of its own, with quotes and escapes resolved.
pub(super) struct FieldSource<'a> {
    table: &'a mut Table,
    part: &'a mut Vec<u8>,
    at: usize,
    /// Bytes of the parts before.
    before: u64,
    end: Option<End>,
}

impl<'a> FieldSource<'a> {
    /// The field that `table` is at; `part` is a buffer to use.
    pub(super) fn new(table: &'a mut Table, part: &'a mut Vec<u8>) -> Self {
        part.clear();
        Self { table, part, at: 0, before: 0, end: None }
    }

    /// Bytes that were read.
    pub(super) fn passed(&self) -> u64 {
        self.before + self.at as u64
    }

    /// Reads past the rest of the field.
    pub(super) fn finish(self) -> io::Result<End> {
        match self.end {
            Some(end) => Ok(end),
            None => self.table.skip(),
        }
    }
}

impl io::Read for FieldSource<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let chunk = self.fill_buf()?;
        let count = chunk.len().min(buffer.len());
        buffer[..count].copy_from_slice(&chunk[..count]);
        self.consume(count);
        Ok(count)
    }
}

impl BufRead for FieldSource<'_> {
    #[inline]
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        while self.at == self.part.len() && self.end.is_none() {
            self.before += self.part.len() as u64;
            self.part.clear();
            self.at = 0;
            let part = &mut *self.part;
            self.end = self.table.pull(|piece| {
                part.extend_from_slice(piece);
                part.len() < PART_BYTES
            })?;
        }
        Ok(&self.part[self.at..])
    }

    #[inline]
    fn consume(&mut self, count: usize) {
        self.at = (self.at + count).min(self.part.len());
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Cursor, Read};

    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    /// Gives one or a few bytes at a time, so that every place is once the end of a chunk.
    struct Dribble(Cursor<Vec<u8>>, usize);

    impl Read for Dribble {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let count = self.1.min(buffer.len());
            self.0.read(&mut buffer[..count])
        }
    }

    fn rows(text: &[u8], dialect: Dialect, chunk: usize) -> Vec<Vec<Vec<u8>>> {
        let source = Input::new(Box::new(Dribble(Cursor::new(text.to_vec()), chunk)));
        let mut table = Table::new(source, dialect);
        let mut rows = Vec::new();
        while table.next_row().unwrap() {
            let mut row = Vec::new();
            loop {
                let mut field = Vec::new();
                let end = table.whole(|piece| field.extend_from_slice(piece)).unwrap();
                row.push(field);
                if end != End::Field {
                    break;
                }
            }
            rows.push(row);
        }
        rows
    }

    /// A value with bytes that COPY escapes.
    fn copied() -> impl Strategy<Value = Vec<u8>> {
        vec(prop::sample::select(&b"a\\\t\n\rN.\x08\x0b\x0c"[..]), 0..6)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]

        /// Whatever the text, the fields are those that the csv crate finds.
        #[test]
        fn csv_is_read_as_the_csv_crate_reads_it(
            text in vec(prop::sample::select(&b"a,\"\n\rb"[..]), 0..40), chunk in 1..9_usize
        ) {
            let mut reader = csv::ReaderBuilder::new();
            reader.has_headers(false).flexible(true);
            let reader = reader.from_reader(&text[..]);
            let expected: Vec<Vec<Vec<u8>>> = reader
                .into_byte_records()
                .map(|record| record.unwrap().iter().map(<[u8]>::to_vec).collect())
                .collect();
            prop_assert_eq!(rows(&text, Dialect::Csv, chunk), expected);
        }

        /// What COPY escapes comes back, however it is cut into chunks.
        #[test]
        fn what_copy_escapes_comes_back(
            values in vec(vec(copied(), 2..4), 0..5),
            chunk in 1..9_usize
        ) {
            let mut text = Vec::new();
            for row in &values {
                for (at, field) in row.iter().enumerate() {
                    if at > 0 {
                        text.push(b'\t');
                    }
                    for &byte in field {
                        match byte {
                            b'\\' => text.extend(b"\\\\"),
                            b'\t' => text.extend(b"\\t"),
                            b'\n' => text.extend(b"\\n"),
                            b'\r' => text.extend(b"\\r"),
                            8 => text.extend(b"\\b"),
                            11 => text.extend(b"\\v"),
                            12 => text.extend(b"\\f"),
                            _ => text.push(byte),
                        }
                    }
                }
                text.push(b'\n');
            }
            prop_assert_eq!(rows(&text, Dialect::CopyText, chunk), values);
        }
    }

    #[test]
    fn null_of_copy_is_nothing_and_its_end_mark_ends() {
        let read = rows(b"\\N\tx\\N\n\\.\nmore\n", Dialect::CopyText, 64);
        assert_eq!(read, [[b"".to_vec(), b"x".to_vec()]]);
    }

    #[test]
    fn a_field_streams_in_parts() {
        let long = "\"\"x".repeat(100_000);
        let text = format!("a,\"{long}\",b\n");
        let source = Input::new(Box::new(Cursor::new(text)));
        let mut table = Table::new(source, Dialect::Csv);
        assert!(table.next_row().unwrap());
        assert_eq!(table.skip().unwrap(), End::Field);
        let (mut part, mut read) = (Vec::new(), String::new());
        let mut field = FieldSource::new(&mut table, &mut part);
        field.read_to_string(&mut read).unwrap();
        assert_eq!(field.finish().unwrap(), End::Field);
        assert_eq!(read, "\"x".repeat(100_000));
        assert!(part.capacity() < 4 * PART_BYTES);
    }
}
