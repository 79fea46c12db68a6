//! Reads JSON lazily: the few values that are wanted, and past everything else as fast as memory.
//!
//! Nothing is held but what is asked for, so that a value of megabytes that nobody reads costs no
//! memory. What is skipped is checked for brackets and quotes only.

use std::io::{self, BufRead};

use super::near::end_of_string;

/// Deeper nesting is not followed into; it is still skipped.
const DEPTH_MAX: u32 = 128;

/// Why JSON could not be read on.
#[derive(Debug)]
pub(super) enum Fault {
    /// It ends in the middle of a value.
    Ended,
    /// Something stands where it may not.
    Syntax,
    /// What was to be read is longer than this many bytes.
    TooLong(usize),
    /// The source failed.
    Io(io::Error),
}

impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// What reading gives.
pub(super) type Read<T> = Result<T, Fault>;

/// What a value is, by its first byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// `{`
    Object,
    /// `[`
    Array,
    /// `"`
    String,
    /// A number, `true`, `false` or `null`.
    Plain,
}

/// A reader of one JSON value after the other.
pub(super) struct Scanner<R> {
    source: R,
    depth: u32,
}

impl<R: BufRead> Scanner<R> {
    /// Reads from `source`.
    pub(super) fn new(source: R) -> Self {
        Self { source, depth: 0 }
    }

    /// Where it reads from, for its position.
    pub(super) fn source(&mut self) -> &mut R {
        &mut self.source
    }

    /// Where it read from.
    pub(super) fn into_source(self) -> R {
        self.source
    }

    /// Goes on after the next line break, whatever was being read.
    pub(super) fn next_line(&mut self) -> io::Result<()> {
        self.depth = 0;
        self.source.skip_until(b'\n').map(|_| ())
    }

    /// The next byte that is no white space, which is not consumed; `None` at the end.
    #[inline]
    pub(super) fn peek(&mut self) -> Read<Option<u8>> {
        loop {
            let chunk = self.source.fill_buf()?;
            let Some(&first) = chunk.first() else { return Ok(None) };
            if !is_space(first) {
                return Ok(Some(first));
            }
            let spaces = chunk.iter().position(|byte| !is_space(*byte)).unwrap_or(chunk.len());
            self.source.consume(spaces);
        }
    }

    /// What the next value is.
    pub(super) fn kind(&mut self) -> Read<Kind> {
        match self.peek()? {
            None => Err(Fault::Ended),
            Some(b'{') => Ok(Kind::Object),
            Some(b'[') => Ok(Kind::Array),
            Some(b'"') => Ok(Kind::String),
            Some(b'-' | b'0'..=b'9' | b't' | b'f' | b'n') => Ok(Kind::Plain),
            Some(_) => Err(Fault::Syntax),
        }
    }

    /// Reads past the next value.
    pub(super) fn skip(&mut self) -> Read<()> {
        match self.kind()? {
            Kind::String => self.skip_string(),
            Kind::Plain => self.plain(&mut |_| ()),
            Kind::Object | Kind::Array => self.skip_nested(),
        }
    }

    /// Goes through an object. `name` makes of a key what `each` decides by; `each` reads the value
    /// or skips it. A value that is no object is skipped, and the result says so.
    pub(super) fn object<K>(
        &mut self,
        mut name: impl FnMut(&[u8]) -> K,
        mut each: impl FnMut(&mut Self, K) -> Read<()>,
    ) -> Read<bool> {
        if self.kind()? != Kind::Object || self.depth >= DEPTH_MAX {
            self.skip()?;
            return Ok(false);
        }
        self.source.consume(1);
        self.depth += 1;
        let mut first = true;
        while self.goes_on(b'}', &mut first)? {
            if self.peek()?.ok_or(Fault::Ended)? != b'"' {
                return Err(Fault::Syntax);
            }
            let key = self.key(&mut name)?;
            match self.peek()?.ok_or(Fault::Ended)? {
                b':' => self.source.consume(1),
                _ => return Err(Fault::Syntax),
            }
            each(self, key)?;
        }
        self.depth -= 1;
        Ok(true)
    }

    /// Goes through an array; `each` reads an element or skips it. A value that is no array is
    /// skipped, and the result says so.
    pub(super) fn array(&mut self, mut each: impl FnMut(&mut Self) -> Read<()>) -> Read<bool> {
        if self.kind()? != Kind::Array || self.depth >= DEPTH_MAX {
            self.skip()?;
            return Ok(false);
        }
        self.source.consume(1);
        self.depth += 1;
        let mut first = true;
        while self.goes_on(b']', &mut first)? {
            each(self)?;
        }
        self.depth -= 1;
        Ok(true)
    }

    /// Appends a string, or a number's or literal's text, to `text`, `limit` bytes at most. Nested
    /// values are skipped. `true` and `false` are spelt as Python does, `null` is nothing.
    pub(super) fn scalar(&mut self, text: &mut Vec<u8>, limit: usize) -> Read<Kind> {
        let kind = self.kind()?;
        let start = text.len();
        let mut too_long = false;
        let mut take = |piece: &[u8]| {
            if text.len() - start + piece.len() > limit {
                too_long = true;
            } else {
                text.extend_from_slice(piece);
            }
        };
        match kind {
            Kind::String => self.string(&mut take)?,
            Kind::Plain => self.plain(&mut take)?,
            Kind::Object | Kind::Array => self.skip()?,
        }
        if too_long {
            return Err(Fault::TooLong(limit));
        }
        if kind == Kind::Plain {
            let python: &[u8] = match &text[start..] {
                b"true" => b"True",
                b"false" => b"False",
                b"null" => b"",
                [b'a'..=b'z', ..] => return Err(Fault::Syntax),
                _ => return Ok(kind),
            };
            text.truncate(start);
            text.extend_from_slice(python);
        }
        Ok(kind)
    }

    /// Hands a string on, piece by piece, with its escapes resolved. A lone surrogate becomes
    /// U+FFFD.
    pub(super) fn string(&mut self, take: &mut impl FnMut(&[u8])) -> Read<()> {
        self.source.consume(1);
        // The first half of a pair of escapes.
        let mut half: Option<u32> = None;
        loop {
            let chunk = self.source.fill_buf()?;
            if chunk.is_empty() {
                return Err(Fault::Ended);
            }
            let stop = end_of_string(chunk);
            let text = &chunk[..stop.unwrap_or(chunk.len())];
            let stop = stop.map(|at| chunk[at]);
            if !text.is_empty() || stop == Some(b'"') {
                flush(&mut half, take);
            }
            take(text);
            let passed = text.len() + usize::from(matches!(stop, Some(b'"' | b'\\')));
            self.source.consume(passed);
            match stop {
                None => {}
                Some(b'"') => return Ok(()),
                Some(b'\\') => self.escape(&mut half, take)?,
                // No line break stands in a string: a line that was cut off ends here.
                Some(_) => return Err(Fault::Syntax),
            }
        }
    }

    fn escape(&mut self, half: &mut Option<u32>, take: &mut impl FnMut(&[u8])) -> Read<()> {
        let resolved = match self.byte()? {
            byte @ (b'"' | b'\\' | b'/') => byte,
            b'b' => 0x08,
            b'f' => 0x0c,
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'u' => return self.unicode(half, take),
            _ => return Err(Fault::Syntax),
        };
        flush(half, take);
        take(&[resolved]);
        Ok(())
    }

    fn unicode(&mut self, half: &mut Option<u32>, take: &mut impl FnMut(&[u8])) -> Read<()> {
        let mut unit = 0;
        for _ in 0..4 {
            let digit = char::from(self.byte()?).to_digit(16).ok_or(Fault::Syntax)?;
            unit = unit * 16 + digit;
        }
        let code = match (*half, unit) {
            (Some(high), 0xdc00..=0xdfff) => {
                *half = None;
                0x10000 + ((high - 0xd800) << 10) + (unit - 0xdc00)
            }
            (_, 0xd800..=0xdbff) => {
                flush(half, take);
                *half = Some(unit);
                return Ok(());
            }
            _ => {
                flush(half, take);
                unit
            }
        };
        let letter = char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER);
        take(letter.encode_utf8(&mut [0; 4]).as_bytes());
        Ok(())
    }

    fn byte(&mut self) -> Read<u8> {
        let byte = *self.source.fill_buf()?.first().ok_or(Fault::Ended)?;
        self.source.consume(1);
        Ok(byte)
    }

    /// Whether another entry follows: consumes the comma or the closing bracket.
    #[inline]
    fn goes_on(&mut self, close: u8, first: &mut bool) -> Read<bool> {
        let next = self.peek()?.ok_or(Fault::Ended)?;
        if next == close {
            self.source.consume(1);
            return Ok(false);
        }
        if std::mem::replace(first, false) {
            return Ok(true);
        }
        if next != b',' {
            return Err(Fault::Syntax);
        }
        self.source.consume(1);
        match self.peek()? {
            None => Err(Fault::Ended),
            Some(after) if after == close => Err(Fault::Syntax),
            Some(_) => Ok(true),
        }
    }

    #[inline]
    fn key<K>(&mut self, name: &mut impl FnMut(&[u8]) -> K) -> Read<K> {
        let chunk = self.source.fill_buf()?;
        if let Some(end) = end_of_string(&chunk[1..])
            && chunk[end + 1] == b'"'
        {
            let key = name(&chunk[1..=end]);
            self.source.consume(end + 2);
            return Ok(key);
        }
        // Over the end of the chunk, or with escapes. No wanted key is long.
        let mut whole = Vec::new();
        self.string(&mut |piece| {
            if whole.len() < 256 {
                whole.extend_from_slice(piece);
            }
        })?;
        Ok(name(&whole))
    }

    fn skip_string(&mut self) -> Read<()> {
        self.source.consume(1);
        loop {
            let chunk = self.source.fill_buf()?;
            if chunk.is_empty() {
                return Err(Fault::Ended);
            }
            match end_of_string(chunk) {
                None => {
                    let passed = chunk.len();
                    self.source.consume(passed);
                }
                Some(at) if chunk[at] == b'"' => {
                    self.source.consume(at + 1);
                    return Ok(());
                }
                Some(at) if chunk[at] == b'\\' => {
                    self.source.consume(at + 1);
                    self.byte()?;
                }
                Some(at) => {
                    self.source.consume(at);
                    return Err(Fault::Syntax);
                }
            }
        }
    }

    fn skip_nested(&mut self) -> Read<()> {
        let mut open = 0_u64;
        loop {
            let chunk = self.source.fill_buf()?;
            if chunk.is_empty() {
                return Err(Fault::Ended);
            }
            let passed = past_nested(chunk, &mut open);
            let string_begins = chunk.get(passed) == Some(&b'"');
            self.source.consume(passed);
            if open == 0 {
                return Ok(());
            }
            if string_begins {
                self.skip_string()?;
            }
        }
    }

    /// A number or literal, of which the characters are checked.
    fn plain(&mut self, take: &mut impl FnMut(&[u8])) -> Read<()> {
        loop {
            let chunk = self.source.fill_buf()?;
            let ends =
                |byte: &u8| !matches!(byte, b'0'..=b'9' | b'-' | b'+' | b'.' | b'a'..=b'z' | b'E');
            let end = chunk.iter().position(ends).unwrap_or(chunk.len());
            take(&chunk[..end]);
            let done = end < chunk.len() || chunk.is_empty();
            self.source.consume(end);
            if done {
                return Ok(());
            }
        }
    }
}

/// How much of `chunk` can be passed before a string begins that reaches over its end, or all
/// brackets are closed. Short strings are passed on the way.
#[inline]
fn past_nested(chunk: &[u8], open: &mut u64) -> usize {
    let mut at = 0;
    while let Some(&byte) = chunk.get(at) {
        match byte {
            b'"' => match end_of_string(&chunk[at + 1..]) {
                Some(end) if chunk[at + 1 + end] == b'"' => at += end + 1,
                _ => return at,
            },
            b'{' | b'[' => *open += 1,
            b'}' | b']' => {
                *open = open.saturating_sub(1);
                if *open == 0 {
                    return at + 1;
                }
            }
            _ => {}
        }
        at += 1;
    }
    chunk.len()
}

#[inline]
fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\n' | b'\r' | b'\t')
}

/// A first half of a pair that no second one followed.
fn flush(half: &mut Option<u32>, take: &mut impl FnMut(&[u8])) {
    if half.take().is_some() {
        take("\u{fffd}".as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufReader, Cursor};

    use proptest::collection::vec;
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;

    /// JSON of all kinds, with white space, escapes and keys that are wanted in the tests.
    fn json() -> impl Strategy<Value = Value> {
        let text = "[a-c\"\\\\/{}\\[\\]:, \n\t\u{1}é😀]{0,12}";
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            (-1e6..1e6).prop_map(Value::from),
            text.prop_map(Value::from),
        ];
        leaf.prop_recursive(5, 60, 6, move |inner| {
            let key = prop_oneof![Just("wanted".to_owned()), text];
            prop_oneof![
                vec(inner.clone(), 0..6).prop_map(Value::from),
                vec((key, inner), 0..6)
                    .prop_map(|entries| Value::Object(entries.into_iter().collect())),
            ]
        })
    }

    fn scanner(text: &str, chunk: usize) -> Scanner<BufReader<Cursor<Vec<u8>>>> {
        Scanner::new(BufReader::with_capacity(chunk, Cursor::new(text.as_bytes().to_vec())))
    }

    /// The text of a value in one of the ways in which it may be written.
    fn written(value: &Value, way: u8) -> String {
        match way {
            0 => value.to_string(),
            1 => serde_json::to_string_pretty(value).unwrap(),
            _ => {
                // All that is not ASCII, escaped, as Python writes it.
                let mut text = String::new();
                for letter in value.to_string().chars() {
                    if letter.is_ascii() {
                        text.push(letter);
                    } else {
                        for unit in letter.encode_utf16(&mut [0; 2]) {
                            text.push_str(&format!("\\u{unit:04X}"));
                        }
                    }
                }
                text
            }
        }
    }

    /// Rebuilds a value with the scanner.
    fn rebuilt<R: BufRead>(scanner: &mut Scanner<R>) -> Read<Value> {
        match scanner.kind()? {
            Kind::Object => {
                let mut entries = serde_json::Map::new();
                scanner.object(
                    |key| String::from_utf8(key.to_vec()).unwrap(),
                    |scanner, key| {
                        entries.insert(key, rebuilt(scanner)?);
                        Ok(())
                    },
                )?;
                Ok(Value::Object(entries))
            }
            Kind::Array => {
                let mut items = Vec::new();
                scanner.array(|scanner| {
                    items.push(rebuilt(scanner)?);
                    Ok(())
                })?;
                Ok(Value::Array(items))
            }
            Kind::String => {
                let mut text = Vec::new();
                scanner.scalar(&mut text, usize::MAX)?;
                Ok(Value::String(String::from_utf8(text).unwrap()))
            }
            Kind::Plain => {
                let mut text = Vec::new();
                scanner.plain(&mut |piece| text.extend_from_slice(piece))?;
                serde_json::from_slice(&text).map_err(|_| Fault::Syntax)
            }
        }
    }

    /// The value of `wanted` if the object has one, by reading past everything else.
    fn wanted<R: BufRead>(scanner: &mut Scanner<R>) -> Read<Option<Value>> {
        let mut found = None;
        scanner.object(
            |key| key == b"wanted",
            |scanner, is_wanted| {
                if is_wanted {
                    found = Some(rebuilt(scanner)?);
                    return Ok(());
                }
                scanner.skip()
            },
        )?;
        Ok(found)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1_000))]

        /// Whatever the JSON and wherever it is cut into chunks, it is read as serde_json reads it,
        /// and what is skipped ends where it ends.
        #[test]
        fn agrees_with_serde_json(value in json(), way in 0..3_u8, chunk in 1..40_usize) {
            let text = format!(" {}\n17", written(&value, way));
            let mut whole = scanner(&text, chunk);
            prop_assert_eq!(&rebuilt(&mut whole).unwrap(), &value);
            prop_assert_eq!(&rebuilt(&mut whole).unwrap(), &Value::from(17));
            prop_assert!(whole.peek().unwrap().is_none());
            let mut skipped = scanner(&text, chunk);
            skipped.skip().unwrap();
            prop_assert_eq!(&rebuilt(&mut skipped).unwrap(), &Value::from(17));
            let mut partly = scanner(&text, chunk);
            prop_assert_eq!(wanted(&mut partly).unwrap(), value.get("wanted").cloned());
            prop_assert_eq!(&rebuilt(&mut partly).unwrap(), &Value::from(17));
        }

        /// JSON that is cut off is never taken for whole.
        #[test]
        fn notices_that_json_is_cut_off(value in json(), cut in 0..1_000_usize) {
            let text = Value::Array(vec![value]).to_string();
            let cut: String = text.chars().take(cut % text.chars().count()).collect();
            let ended = matches!(scanner(&cut, 7).skip(), Err(Fault::Ended));
            prop_assert!(ended, "{}", cut);
            prop_assert!(rebuilt(&mut scanner(&cut, 7)).is_err());
        }

        /// Text of any kind is read or refused, and never runs over its end.
        #[test]
        fn ends_on_any_text(text in "[\\[\\]{}\",:0-9a-u\\\\ \n-]{0,40}") {
            let mut any = scanner(&text, 5);
            while any.peek().unwrap().is_some() && any.skip().is_ok() {}
            let mut any = scanner(&text, 5);
            let read = any.peek().unwrap().map(|_| rebuilt(&mut any));
            let mut all = serde_json::Deserializer::from_str(&text).into_iter::<Value>();
            if let Some(Ok(value)) = all.next() {
                prop_assert_eq!(read.unwrap().unwrap(), value);
            }
        }
    }

    #[test]
    fn escapes_come_out_and_lone_surrogates_are_replaced() {
        let text = r#""a\"\\\/\b\f\n\r\té😀\ud83dx\ud83d\ud83d\udE00\udc00\ud800""#;
        for chunk in [1, 3, 64] {
            let mut read = Vec::new();
            scanner(text, chunk).scalar(&mut read, 100).unwrap();
            let expected = "a\"\\/\u{8}\u{c}\n\r\té😀\u{fffd}x\u{fffd}😀\u{fffd}\u{fffd}";
            assert_eq!(String::from_utf8(read).unwrap(), expected);
        }
    }

    #[test]
    fn deep_nesting_is_skipped_and_long_texts_are_refused() {
        let deep = format!("{}{} 1", "[".repeat(100_000), "]".repeat(100_000));
        let mut deep = scanner(&deep, 1_000);
        rebuilt(&mut deep).unwrap();
        assert_eq!(rebuilt(&mut deep).unwrap(), Value::from(1));
        let mut long = scanner("\"abcdef\" 1", 4);
        assert!(matches!(long.scalar(&mut Vec::new(), 5), Err(Fault::TooLong(5))));
        assert_eq!(rebuilt(&mut long).unwrap(), Value::from(1), "what follows can still be read");
    }
}
