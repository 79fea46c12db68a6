//! The reader: rows to sessions, one session at a time.

use std::collections::VecDeque;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use csv::ByteRecord;
use rustc_hash::FxHashSet;

use super::input::{self, Source};
use super::{Column, SHARED_MARK, Words};
use crate::diag::{Error, Result};
use crate::trace::check::{self, Checker};
use crate::trace::record::{After, AfterEvent, Base, Call, Item, Name, Session, SharedContext};
use crate::units::{Span, Tokens};

/// Streams a canonical trace: an iterator over its shared contexts and sessions.
///
/// Every item is checked before it is handed out. After an error the iterator is at its end,
/// unless it is [lenient](Self::lenient).
pub struct Reader {
    rows: csv::Reader<Source>,
    file: String,
    layout: Layout,
    names: Names,
    checker: Checker,
    record: ByteRecord,
    /// `record` holds a row that no item has taken yet.
    row_waits: bool,
    any_session: bool,
    ended: bool,
    lenient: bool,
    /// The session whose rows are being read.
    open: Option<Name>,
    /// Further errors of the last session.
    more: VecDeque<Error>,
}

impl Reader {
    /// Opens a file; `.gz` and `.zst` are known by their content, not by their name.
    ///
    /// # Errors
    /// If it cannot be opened, is no text, or its header is not that of a canonical trace.
    pub fn open(path: &Path) -> Result<Self> {
        let file = File::open(path).map_err(|error| Error::io(path, "open", &error))?;
        Self::from_read(file, path.display().to_string())
    }

    /// The same, counting the bytes that were read of the file, before they are unpacked.
    ///
    /// # Errors
    /// As for [`open`](Self::open).
    pub fn open_counting(path: &Path, read: &Arc<AtomicU64>) -> Result<Self> {
        let file = File::open(path).map_err(|error| Error::io(path, "open", &error))?;
        let counting = Counting { file, read: Arc::clone(read) };
        Self::from_read(counting, path.display().to_string())
    }

    /// Reads from anywhere; `display_name` stands for the file in errors.
    ///
    /// # Errors
    /// As for [`open`](Self::open).
    pub fn from_read(
        reader: impl Read + Send + 'static,
        display_name: impl Into<String>,
    ) -> Result<Self> {
        let file = display_name.into();
        let source = input::text(Box::new(reader)).map_err(|error| error.in_file(&file))?;
        // Widths are compared here, so that the error can say what is wrong with the row.
        let mut rows = csv::ReaderBuilder::new()
            .has_headers(false)
            .flexible(true)
            .buffer_capacity(1 << 16)
            .from_reader(source);
        let mut record = ByteRecord::new();
        let layout = match rows.read_byte_record(&mut record) {
            Ok(_) => Layout::new(&record),
            Err(error) => Err(csv_error(error)),
        };
        let layout = layout.map_err(|error| error.in_file(&file).at_line(1))?;
        Ok(Self {
            rows,
            file,
            layout,
            names: Names::default(),
            checker: Checker::default(),
            record,
            row_waits: false,
            any_session: false,
            ended: false,
            lenient: false,
            open: None,
            more: VecDeque::new(),
        })
    }

    /// Goes on after an error with the next session, so as to find what else is wrong. Of a session
    /// with a row that cannot be read only the first such row is told. What comes after an error
    /// must not be used as a trace.
    #[must_use]
    pub fn lenient(mut self) -> Self {
        self.lenient = true;
        self
    }

    /// Sees to it that a row waits; false at the end of the file.
    fn row(&mut self) -> Result<bool> {
        if self.row_waits {
            return Ok(true);
        }
        let read = self.rows.read_byte_record(&mut self.record).map_err(csv_error);
        self.row_waits = read.map_err(|error| {
            self.ended = true;
            error.at_line(self.rows.position().line())
        })?;
        if self.row_waits && self.record.len() != self.layout.width {
            self.row_waits = false;
            return Err(width_error(&self.record, self.layout.width).at_line(line(&self.record)));
        }
        Ok(self.row_waits)
    }

    /// The next item; `None` at the end of the file.
    fn item(&mut self) -> Result<Option<Item>> {
        if !self.row()? {
            self.ended = true;
            if self.any_session {
                return Ok(None);
            }
            return Err(Error::new("the trace holds no session: there is no row of a call"));
        }
        let at_line = line(&self.record);
        let row = Row { record: &self.record, layout: &self.layout };
        let id = row.text(Column::Session).map_err(|error| {
            self.row_waits = false;
            error.at_line(at_line)
        })?;
        let item = match id.strip_prefix(SHARED_MARK) {
            Some(name) => {
                let name = self.names.get(name);
                let context = row.context(Name::clone(&name), &mut self.names);
                let context = context.and_then(|context| {
                    self.checker.context(&context)?;
                    Ok(context)
                });
                self.row_waits = false;
                Item::Context(context.map_err(|error| {
                    self.checker.assume(&name);
                    self.placed(error, at_line)
                })?)
            }
            None => {
                let id = Name::from(id);
                Item::Session(self.session(id)?)
            }
        };
        Ok(Some(item))
    }

    /// All rows of the session whose first row waits.
    fn session(&mut self, id: Name) -> Result<Session> {
        self.open = Some(Name::clone(&id));
        let mut session = Session { id, calls: Vec::new() };
        let mut lines = Vec::new();
        if self.checker.knows(&session.id) {
            let error = check::came_back(&session.id);
            return Err(self.placed(error, line(&self.record)));
        }
        while self.row_after(&session)? {
            let at_line = line(&self.record);
            let row = Row { record: &self.record, layout: &self.layout };
            if row.bytes(Column::Session) != session.id.as_bytes() {
                break;
            }
            let call = row.call(session.calls.len(), &mut self.names);
            session.calls.push(call.map_err(|error| self.placed(error, at_line))?);
            lines.push(at_line);
            self.row_waits = false;
        }
        let most = if self.lenient { usize::MAX } else { 1 };
        let faults = self.checker.faults(&session, most).into_iter();
        let mut errors: VecDeque<Error> =
            faults.map(|fault| self.placed(fault.error, lines[fault.call])).collect();
        if let Some(first) = errors.pop_front() {
            errors.append(&mut self.more);
            self.more = errors;
            return Err(first);
        }
        self.checker.remember(&session);
        self.open = None;
        self.any_session = true;
        Ok(session)
    }

    /// Sees to it that a row waits while a session is read; false at the end of the file. A row
    /// that is wrong and another session's does not spoil this one.
    fn row_after(&mut self, session: &Session) -> Result<bool> {
        loop {
            let error = match self.row() {
                Err(error) if self.lenient && !self.ended => error,
                row => return row,
            };
            let row = Row { record: &self.record, layout: &self.layout };
            if row.bytes(Column::Session) == session.id.as_bytes() {
                return Err(error);
            }
            self.more.push_back(error);
        }
    }

    /// Leaves the session behind in which an error was found.
    fn skip_session(&mut self) {
        let Some(id) = self.open.take() else { return };
        self.any_session = true;
        self.checker.remember(&Session { id: Name::clone(&id), calls: Vec::new() });
        loop {
            match self.row() {
                Ok(true) => {
                    let row = Row { record: &self.record, layout: &self.layout };
                    if row.bytes(Column::Session) != id.as_bytes() {
                        return;
                    }
                    self.row_waits = false;
                }
                Ok(false) => return,
                Err(error) => self.more.push_back(error),
            }
            if self.ended {
                return;
            }
        }
    }

    /// Adds line and column to an error that names its field.
    fn placed(&self, error: Error, line: u64) -> Error {
        let field = error.place().field.as_deref();
        let column = field.and_then(|field| self.layout.column_number(field));
        let error = error.at_line(line);
        match column {
            Some(column) => error.at_column(column),
            None => error,
        }
    }
}

impl Iterator for Reader {
    type Item = Result<Item>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(error) = self.more.pop_front() {
            return Some(Err(error.in_file(&self.file)));
        }
        if self.ended {
            return None;
        }
        let item = self.item().transpose();
        if let Some(Err(_)) = item {
            if self.lenient {
                self.skip_session();
            } else {
                self.more.clear();
                self.ended = true;
            }
        }
        item.map(|item| item.map_err(|error| error.in_file(&self.file)))
    }
}

/// A file, and how much of it was read.
struct Counting {
    file: File,
    read: Arc<AtomicU64>,
}

impl Read for Counting {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let read = self.file.read(buffer)?;
        self.read.fetch_add(read as u64, Ordering::Relaxed);
        Ok(read)
    }
}

/// Where each column stands in this file.
#[derive(Debug)]
struct Layout {
    /// Indexed by `Column as usize`.
    places: Vec<Option<usize>>,
    width: usize,
}

impl Layout {
    fn new(header: &ByteRecord) -> Result<Self> {
        let mut places = vec![None; Column::ALL.len()];
        for (place, name) in header.iter().enumerate() {
            let number = place as u64 + 1;
            let name = std::str::from_utf8(name)
                .map_err(|_| Error::new("the header is not UTF-8").at_column(number))?;
            let Some(column) = Column::ALL.iter().find(|column| column.name() == name) else {
                let known = Column::ALL.iter().map(|column| column.name());
                return Err(Error::unknown("column", name, known)
                    .at_column(number)
                    .help("the first line must name the columns of a canonical trace"));
            };
            if let Some(first) = places[*column as usize].replace(place) {
                let first = first + 1;
                return Err(Error::new(format!(
                    "column `{name}` stands twice in the header, first as column {first}"
                ))
                .at_column(number));
            }
        }
        let missing = Column::ALL
            .iter()
            .filter(|column| !column.optional() && places[**column as usize].is_none());
        let missing: Vec<&str> = missing.map(|column| column.name()).collect();
        if !missing.is_empty() {
            return Err(Error::new(format!("the header lacks {}", missing.join(", "))));
        }
        Ok(Self { places, width: header.len() })
    }

    fn column_number(&self, name: &str) -> Option<u64> {
        let column = Column::ALL.iter().find(|column| column.name() == name)?;
        self.places[*column as usize].map(|place| place as u64 + 1)
    }
}

/// Names that many calls share are kept once.
#[derive(Debug, Default)]
struct Names(FxHashSet<Name>);

impl Names {
    fn get(&mut self, text: &str) -> Name {
        if let Some(name) = self.0.get(text) {
            return Name::clone(name);
        }
        let name = Name::from(text);
        self.0.insert(Name::clone(&name));
        name
    }
}

/// One row, its cells found by column. Every error names its column.
struct Row<'a> {
    record: &'a ByteRecord,
    layout: &'a Layout,
}

impl Row<'_> {
    /// The cell as it stands; empty where the file has no such column.
    fn bytes(&self, column: Column) -> &[u8] {
        let place = self.layout.places[column as usize];
        place.and_then(|place| self.record.get(place)).unwrap_or_default()
    }

    fn text(&self, column: Column) -> Result<&str> {
        std::str::from_utf8(self.bytes(column))
            .map_err(|_| Error::new("the text is not UTF-8").in_field(column.name()))
    }

    /// A whole number up to `max`.
    fn integer(&self, column: Column, max: u64) -> Result<u64> {
        let text = self.text(column)?;
        whole(text).filter(|number| *number <= max).ok_or_else(|| {
            Error::found(text, format!("a whole number from 0 to {max}")).in_field(column.name())
        })
    }

    fn number(&self, column: Column) -> Result<u32> {
        let number = self.integer(column, u64::from(check::NUMBER_MAX))?;
        Ok(u32::try_from(number).unwrap_or(check::NUMBER_MAX))
    }

    fn tokens(&self, column: Column) -> Result<Tokens> {
        self.integer(column, check::TOKENS_MAX.0).map(Tokens)
    }

    fn span(&self, column: Column) -> Result<Span> {
        let text = self.text(column)?;
        seconds(text).filter(|span| *span <= check::TIME_MAX).ok_or_else(|| {
            let max = check::TIME_MAX.secs_text();
            Error::found(text, format!("seconds from 0 to {max}")).in_field(column.name())
        })
    }

    fn name(&self, column: Column, names: &mut Names) -> Result<Name> {
        self.text(column).map(|text| names.get(text))
    }

    fn word<T: Words>(&self, column: Column) -> Result<T> {
        let text = self.text(column)?;
        let value = T::WORDS.iter().find(|(word, _)| *word == text);
        value.map(|(_, value)| *value).ok_or_else(|| {
            let words = T::WORDS.iter().map(|(word, _)| *word);
            Error::unknown(column.name(), text, words).in_field(column.name())
        })
    }

    /// `True` and `False` are what Python writes.
    fn yes_or_no(&self, column: Column) -> Result<bool> {
        match self.bytes(column) {
            b"True" => Ok(true),
            b"False" => Ok(false),
            _ => self.word(column),
        }
    }

    /// An empty cell, or a column that the file does not have, is `None`.
    fn known<T>(
        &self,
        column: Column,
        read: impl FnOnce(&Self, Column) -> Result<T>,
    ) -> Result<Option<T>> {
        if self.bytes(column).is_empty() { Ok(None) } else { read(self, column).map(Some) }
    }

    fn after(&self) -> Result<Vec<After>> {
        let text = self.text(Column::After)?;
        if text.is_empty() {
            return Ok(Vec::new());
        }
        let entries = text.split(';').map(|entry| {
            let (number, event) = match entry.strip_suffix('d') {
                Some(number) => (number, AfterEvent::Dispatched),
                None => (entry, AfterEvent::Finished),
            };
            let call = call_number(number)?;
            Some(After { call, event })
        });
        entries.collect::<Option<Vec<_>>>().ok_or_else(|| {
            Error::found(text, "call numbers with `;` between them, as in `3;5d`")
                .in_field(Column::After.name())
        })
    }

    fn base(&self, names: &mut Names) -> Result<Base> {
        let text = self.text(Column::Base)?;
        if text.is_empty() {
            return Ok(Base::None);
        }
        if let Some(name) = text.strip_prefix(SHARED_MARK) {
            return Ok(Base::Shared(names.get(name)));
        }
        call_number(text).map(Base::Call).ok_or_else(|| {
            Error::found(text, "an earlier call's number, `@name` of a shared context, or nothing")
                .in_field(Column::Base.name())
        })
    }

    fn context(&self, name: Name, names: &mut Names) -> Result<SharedContext> {
        let base = match self.base(names)? {
            Base::None => None,
            Base::Shared(name) => Some(name),
            Base::Call(call) => {
                return Err(Error::found(call, "`@name` of a shared context, or nothing")
                    .in_field(Column::Base.name()));
            }
        };
        let own = [Column::Session, Column::Base, Column::Kept, Column::Prompt];
        for column in Column::ALL.iter().filter(|column| !own.contains(column)) {
            if !self.bytes(*column).is_empty() {
                let text = String::from_utf8_lossy(self.bytes(*column)).into_owned();
                return Err(Error::found(text, "nothing in the row of a shared context")
                    .in_field(column.name()));
            }
        }
        Ok(SharedContext {
            name,
            base,
            kept_tokens: self.tokens(Column::Kept)?,
            prompt_tokens: self.tokens(Column::Prompt)?,
        })
    }

    /// The call of this row, which must bear the number `expected`.
    fn call(&self, expected: usize, names: &mut Names) -> Result<Call> {
        let number = self.integer(Column::Call, u64::from(u32::MAX))?;
        if number != expected as u64 {
            return Err(Error::found(number, format!("{expected}, the next call of the session"))
                .in_field(Column::Call.name()));
        }
        Ok(Call {
            at: self.span(Column::At)?,
            after: self.after()?,
            gap: self.span(Column::Gap)?,
            cause: self.word(Column::Cause)?,
            turn: self.number(Column::Turn)?,
            lane: self.number(Column::Lane)?,
            model: self.name(Column::Model, names)?,
            tenant: self.name(Column::Tenant, names)?,
            user: self.name(Column::User, names)?,
            profile: self.name(Column::Profile, names)?,
            base: self.base(names)?,
            kept_tokens: self.tokens(Column::Kept)?,
            prompt_tokens: self.tokens(Column::Prompt)?,
            output_tokens: self.tokens(Column::Output)?,
            tools: self.known(Column::Tools, Self::number)?,
            status: self.word(Column::Status)?,
            finish: self.known(Column::Finish, Self::word)?.unwrap_or_default(),
            priority: self.known(Column::Priority, Self::priority)?.unwrap_or_default(),
            key: self.known(Column::Key, |row, column| row.name(column, names))?,
            stream: self.known(Column::Stream, Self::yes_or_no)?,
            max_tokens: self.known(Column::MaxTokens, Self::tokens)?,
            retries: self.known(Column::Retries, Self::number)?.unwrap_or_default(),
            seen_cached: self.known(Column::SeenCached, Self::tokens)?,
            seen_ttft: self.known(Column::SeenTtft, Self::span)?,
            seen_duration: self.known(Column::SeenDuration, Self::span)?,
        })
    }

    fn priority(&self, column: Column) -> Result<i32> {
        let text = self.text(column)?;
        text.strip_suffix(".0").unwrap_or(text).parse().map_err(|_| {
            let allowed = format!("a whole number from {} to {}", i32::MIN, i32::MAX);
            Error::found(text, allowed).in_field(column.name())
        })
    }
}

/// Digits only: a sign, a space or an exponent is no whole number here. `12.0` is 12, as data
/// frames write whole numbers in a column with gaps.
fn whole(text: &str) -> Option<u64> {
    let digits = text.strip_suffix(".0").unwrap_or(text);
    digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())?
}

fn call_number(text: &str) -> Option<u32> {
    whole(text).and_then(|number| u32::try_from(number).ok())
}

/// Decimal seconds, exactly; an exponent, as data frames write small numbers, through a float.
fn seconds(text: &str) -> Option<Span> {
    if !text.contains(['e', 'E']) {
        return Span::parse_secs(text);
    }
    let secs: f64 = text.parse().ok()?;
    (secs.is_finite() && secs >= 0.0).then(|| Span::from_secs_f64(secs))
}

fn line(record: &ByteRecord) -> u64 {
    record.position().map_or(0, csv::Position::line)
}

fn csv_error(error: csv::Error) -> Error {
    match error.into_kind() {
        csv::ErrorKind::Io(error) => input::unreadable(&error),
        kind => Error::new(format!("cannot read on: {kind:?}")),
    }
}

fn width_error(record: &ByteRecord, width: usize) -> Error {
    let found = record.len();
    let kind = if found < width { "short" } else { "long" };
    let error =
        Error::new(format!("the row is too {kind}: {found} cells, the header has {width} columns"));
    if record.iter().any(|cell| cell.contains(&b'\n')) {
        return error.help("a cell runs over several lines: is a quotation mark never closed?");
    }
    error
}
