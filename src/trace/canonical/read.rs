//! The reader: rows to sessions, one session at a time.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::row::{Layout, Names, Row};
use super::rows::Rows;
use super::{Column, SHARED_MARK, input};
use crate::diag::{Error, Result};
use crate::trace::check::{self, Checker};
use crate::trace::record::{Call, Item, Lend, Lent, Name, Session, SharedContext};

/// Whether this name, `-`, stands for standard input.
#[must_use]
pub fn is_standard_input(path: &Path) -> bool {
    path == Path::new("-")
}

/// What errors call a trace of this name.
#[must_use]
pub fn display_name(path: &Path) -> String {
    match is_standard_input(path) {
        true => "standard input".to_owned(),
        false => path.display().to_string(),
    }
}

/// Whether this trace can be read a second time: standard input and pipes cannot.
#[must_use]
pub fn can_be_read_again(path: &Path) -> bool {
    !is_standard_input(path) && fs::metadata(path).is_ok_and(|data| data.is_file())
}

/// Streams a canonical trace: an iterator over its shared contexts and sessions.
///
/// Every item is checked before it is handed out. After an error the iterator is at its end,
/// unless it is [lenient](Self::lenient).
pub struct Reader {
    rows: Rows,
    file: String,
    layout: Layout,
    names: Names,
    checker: Checker,
    /// There is a row at hand that no item has taken yet.
    row_waits: bool,
    any_session: bool,
    ended: bool,
    lenient: bool,
    /// The session whose rows are being read.
    open: Option<Name>,
    /// Further errors of the last session.
    more: VecDeque<Error>,
    /// The last session, the lines of its calls, and calls of earlier ones to write into.
    session: Session,
    lines: Vec<u64>,
    spare: Vec<Call>,
}

/// What the next item is.
enum Found {
    Context(SharedContext),
    /// The session that is kept.
    Session,
}

impl Reader {
    /// Opens a file, standard input if it is called `-`; `.gz` and `.zst` are known by their
    /// content, not by their name.
    ///
    /// # Errors
    /// If it cannot be opened, is no text, or its header is not that of a canonical trace.
    pub fn open(path: &Path) -> Result<Self> {
        Self::open_counting(path, &Arc::default())
    }

    /// The same, counting the bytes that were read of the file, before they are unpacked.
    ///
    /// # Errors
    /// As for [`open`](Self::open).
    pub fn open_counting(path: &Path, read: &Arc<AtomicU64>) -> Result<Self> {
        let file: Box<dyn Read + Send> = if is_standard_input(path) {
            Box::new(io::stdin())
        } else {
            Box::new(File::open(path).map_err(|error| Error::io(path, "open", &error))?)
        };
        Self::from_read(Counting { file, read: Arc::clone(read) }, display_name(path))
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
        let mut rows = Rows::new(source);
        let layout = rows.next().and_then(|_| Layout::new(&rows));
        let layout = layout.map_err(|error| error.in_file(&file).at_line(rows.line()))?;
        Ok(Self {
            rows,
            file,
            layout,
            names: Names::default(),
            checker: Checker::default(),
            row_waits: false,
            any_session: false,
            ended: false,
            lenient: false,
            open: None,
            more: VecDeque::new(),
            session: no_session(),
            lines: Vec::new(),
            spare: Vec::new(),
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
        let read = self.rows.next();
        self.row_waits = read.map_err(|error| {
            self.ended = true;
            error.at_line(self.rows.line_reached())
        })?;
        if self.row_waits && self.rows.len() != self.layout.width {
            self.row_waits = false;
            return Err(width_error(&self.rows, self.layout.width).at_line(self.rows.line()));
        }
        Ok(self.row_waits)
    }

    /// The next item; `None` at the end of the file.
    fn item(&mut self) -> Result<Option<Found>> {
        if !self.row()? {
            self.ended = true;
            if self.any_session {
                return Ok(None);
            }
            return Err(Error::new("the trace holds no session: there is no row of a call"));
        }
        let at_line = self.rows.line();
        let row = Row { rows: &self.rows, layout: &self.layout };
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
                Found::Context(context.map_err(|error| {
                    self.checker.assume(&name);
                    self.placed(error, at_line)
                })?)
            }
            None => {
                let id = Name::from(id);
                self.session(id)?;
                Found::Session
            }
        };
        Ok(Some(item))
    }

    /// All rows of the session whose first row waits.
    fn session(&mut self, id: Name) -> Result<()> {
        self.open = Some(Name::clone(&id));
        let mut session = std::mem::replace(&mut self.session, no_session());
        self.spare.append(&mut session.calls);
        session.id = id;
        self.lines.clear();
        if self.checker.knows(&session.id) {
            let error = check::came_back(&session.id);
            return Err(self.placed(error, self.rows.line()));
        }
        while self.row_after(&session)? {
            let at_line = self.rows.line();
            let row = Row { rows: &self.rows, layout: &self.layout };
            if row.bytes(Column::Session) != session.id.as_bytes() {
                break;
            }
            let mut call = self.spare.pop().unwrap_or_else(|| self.names.no_call());
            let read = row.call(session.calls.len(), &mut self.names, &mut call);
            read.map_err(|error| self.placed(error, at_line))?;
            session.calls.push(call);
            self.lines.push(at_line);
            self.row_waits = false;
        }
        let most = if self.lenient { usize::MAX } else { 1 };
        let faults = self.checker.faults(&session, most).into_iter();
        let mut errors: VecDeque<Error> =
            faults.map(|fault| self.placed(fault.error, self.lines[fault.call])).collect();
        if let Some(first) = errors.pop_front() {
            errors.append(&mut self.more);
            self.more = errors;
            return Err(first);
        }
        self.checker.remember(&session);
        self.session = session;
        self.open = None;
        self.any_session = true;
        Ok(())
    }

    /// Sees to it that a row waits while a session is read; false at the end of the file. A row
    /// that is wrong and another session's does not spoil this one.
    fn row_after(&mut self, session: &Session) -> Result<bool> {
        loop {
            let error = match self.row() {
                Err(error) if self.lenient && !self.ended => error,
                row => return row,
            };
            let row = Row { rows: &self.rows, layout: &self.layout };
            if row.bytes(Column::Session) == session.id.as_bytes() {
                return Err(error);
            }
            self.more.push_back(error);
        }
    }

    /// Leaves the session behind in which an error was found.
    fn skip_session(&mut self) {
        let Some(id) = self.open.take().filter(|_| !self.ended) else { return };
        self.any_session = true;
        self.checker.remember(&Session { id: Name::clone(&id), calls: Vec::new() });
        loop {
            match self.row() {
                Ok(true) => {
                    let row = Row { rows: &self.rows, layout: &self.layout };
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

impl Reader {
    fn found(&mut self) -> Option<Result<Found>> {
        if let Some(error) = self.more.pop_front() {
            return Some(Err(error.in_file(&self.file)));
        }
        if self.ended {
            return None;
        }
        let found = self.item().transpose();
        if let Some(Err(_)) = found {
            if self.lenient {
                self.skip_session();
            } else {
                self.more.clear();
                self.ended = true;
            }
        }
        found.map(|found| found.map_err(|error| error.in_file(&self.file)))
    }
}

impl Iterator for Reader {
    type Item = Result<Item>;

    fn next(&mut self) -> Option<Self::Item> {
        let found = self.found()?;
        Some(found.map(|found| match found {
            Found::Context(context) => Item::Context(context),
            Found::Session => Item::Session(std::mem::replace(&mut self.session, no_session())),
        }))
    }
}

/// Without memory of its own for every session and call.
impl Lend for Reader {
    fn lend(&mut self) -> Option<Result<Lent<'_>>> {
        let found = self.found()?;
        Some(found.map(|found| match found {
            Found::Context(context) => Lent::Context(context),
            Found::Session => Lent::Session(&self.session),
        }))
    }
}

fn no_session() -> Session {
    Session { id: Name::default(), calls: Vec::new() }
}

/// A file, and how much of it was read.
struct Counting {
    file: Box<dyn Read + Send>,
    read: Arc<AtomicU64>,
}

impl Read for Counting {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read(buffer)?;
        self.read.fetch_add(read as u64, Ordering::Relaxed);
        Ok(read)
    }
}

fn width_error(rows: &Rows, width: usize) -> Error {
    let found = rows.len();
    let kind = if found < width { "short" } else { "long" };
    let error =
        Error::new(format!("the row is too {kind}: {found} cells, the header has {width} columns"));
    if rows.cells().any(|cell| cell.contains(&b'\n')) {
        return error.help("a cell runs over several lines: is a quotation mark never closed?");
    }
    error
}
