//! The writer: the same items, the same rules, and a file that is whole or not there.

use std::ffi::OsStr;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use flate2::write::GzEncoder;

use super::new_file::NewFile;
use super::{Column, SHARED_MARK, Words, mark};
use crate::diag::{Error, Result};
use crate::trace::check::Checker;
use crate::trace::record::{After, Base, Call, Session, SharedContext};
use crate::units::{Span, Tokens};

/// How the text is compressed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compression {
    /// Not at all.
    #[default]
    None,
    /// As `.gz`.
    Gzip,
    /// As `.zst`.
    Zstd,
}

/// What the name of a trace may end with.
const ENDINGS: [(&str, Compression); 3] =
    [(".csv", Compression::None), (".csv.gz", Compression::Gzip), (".csv.zst", Compression::Zstd)];

impl Compression {
    /// What the end of the name of any text asks for.
    pub(super) fn of_text(path: &Path) -> Self {
        match path.extension().and_then(OsStr::to_str) {
            Some("gz") => Self::Gzip,
            Some("zst") => Self::Zstd,
            _ => Self::None,
        }
    }

    /// What the end of a trace's name asks for.
    ///
    /// # Errors
    /// If it is none of `.csv`, `.csv.gz` and `.csv.zst`: the file would not be what it is called.
    pub fn of(path: &Path) -> Result<Self> {
        let name = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
        let fits = |(ending, _): &&(&str, Self)| {
            name.strip_suffix(ending).is_some_and(|stem| !stem.is_empty())
        };
        match ENDINGS.iter().find(fits) {
            Some((_, compression)) => Ok(*compression),
            None => Err(Error::new("a trace is written as .csv, .csv.gz or .csv.zst, by its name")
                .in_file(path.display())),
        }
    }
}

/// Writes a canonical trace, item by item.
///
/// A file appears only with [`finish`](Self::finish), and only if every item kept the rules.
pub struct Writer<'a> {
    rows: csv::Writer<Encoder<'a>>,
    file: String,
    checker: Checker,
    any_session: bool,
}

impl Writer<'static> {
    /// A trace at `path`, compressed as its name says.
    ///
    /// # Errors
    /// If its name does not end as that of a trace, or no file can be made beside `path`.
    pub fn create(path: &Path) -> Result<Self> {
        let compression = Compression::of(path)?;
        let out = Out::File(Box::new(NewFile::create(path)?));
        Self::new(out, compression, path.display().to_string())
    }
}

impl<'a> Writer<'a> {
    /// A trace to anything that takes bytes; `display_name` stands for it in errors.
    ///
    /// # Errors
    /// If the header cannot be written.
    pub fn from_write(
        sink: impl Write + 'a,
        compression: Compression,
        display_name: impl Into<String>,
    ) -> Result<Self> {
        Self::new(Out::Stream(Box::new(sink)), compression, display_name.into())
    }

    fn new(out: Out<'a>, compression: Compression, file: String) -> Result<Self> {
        let encoder =
            Encoder::new(out, compression).map_err(|error| unwritable(&error).in_file(&file))?;
        let rows = csv::Writer::from_writer(encoder);
        let mut writer = Self { rows, file, checker: Checker::default(), any_session: false };
        writer.row(Column::ALL.iter().map(|column| column.name()))?;
        Ok(writer)
    }

    /// Declares a shared context, before the first session that uses it.
    ///
    /// # Errors
    /// If it breaks a rule or cannot be written.
    pub fn context(&mut self, context: &SharedContext) -> Result<()> {
        self.checker.context(context).map_err(|error| {
            Error::new(format!("shared context `@{}`: {}", context.name, said(&error)))
                .in_file(&self.file)
        })?;
        let base = context.base.as_ref().map(|base| format!("{SHARED_MARK}{base}"));
        self.row(Column::ALL.iter().map(|column| match column {
            Column::Session => format!("{SHARED_MARK}{}", context.name),
            Column::Base => base.clone().unwrap_or_default(),
            Column::Kept => context.kept_tokens.to_string(),
            Column::Prompt => context.prompt_tokens.to_string(),
            _ => String::new(),
        }))
    }

    /// Adds a session; sessions come in the order of their start.
    ///
    /// # Errors
    /// If it breaks a rule or cannot be written.
    pub fn session(&mut self, session: &Session) -> Result<()> {
        self.checker.session(session).map_err(|fault| {
            let (id, call) = (&session.id, fault.call);
            Error::new(format!("session `{id}`, call {call}: {}", said(&fault.error)))
                .in_file(&self.file)
        })?;
        for (number, call) in session.calls.iter().enumerate() {
            self.row(Column::ALL.iter().map(|column| cell(session, number, call, *column)))?;
        }
        self.any_session = true;
        Ok(())
    }

    /// Ends the trace and puts the file in its place.
    ///
    /// # Errors
    /// If nothing but contexts was written, or the last bytes cannot be.
    pub fn finish(self) -> Result<()> {
        let Self { rows, file, any_session, .. } = self;
        if !any_session {
            return Err(Error::new("there is no session to write").in_file(&file));
        }
        let failed = |error: &io::Error| unwritable(error).in_file(&file);
        let encoder = rows.into_inner().map_err(|error| failed(error.error()))?;
        let mut out = encoder.finish().map_err(|error| failed(&error))?;
        out.flush().map_err(|error| failed(&error))?;
        match out {
            Out::File(new) => new.commit(),
            Out::Stream(_) => Ok(()),
        }
    }

    fn row<T: AsRef<[u8]>>(&mut self, cells: impl Iterator<Item = T>) -> Result<()> {
        self.rows.write_record(cells).map_err(|error| {
            let error = match error.into_kind() {
                csv::ErrorKind::Io(error) => unwritable(&error),
                kind => Error::new(format!("cannot write: {kind:?}")),
            };
            error.in_file(&self.file)
        })
    }
}

fn unwritable(error: &io::Error) -> Error {
    Error::new(format!("cannot write: {error}"))
}

/// Field and message of an error that the reader would have given a line.
fn said(error: &Error) -> String {
    match &error.place().field {
        Some(field) => format!("{field}: {}", error.message()),
        None => error.message().to_owned(),
    }
}

/// What stands in one cell of a call's row.
fn cell(session: &Session, number: usize, call: &Call, column: Column) -> String {
    match column {
        Column::Session => session.id.to_string(),
        Column::Call => number.to_string(),
        Column::At => call.at.secs_text(),
        Column::After => after(&call.after),
        Column::Gap => call.gap.secs_text(),
        Column::Cause => call.cause.word().to_owned(),
        Column::Turn => call.turn.to_string(),
        Column::Lane => call.lane.to_string(),
        Column::Model => call.model.to_string(),
        Column::Tenant => call.tenant.to_string(),
        Column::User => call.user.to_string(),
        Column::Profile => call.profile.to_string(),
        Column::Base => match &call.base {
            Base::None => String::new(),
            Base::Call(call) => call.to_string(),
            Base::Shared(name) => format!("{SHARED_MARK}{name}"),
        },
        Column::Kept => call.kept_tokens.to_string(),
        Column::Prompt => call.prompt_tokens.to_string(),
        Column::Output => call.output_tokens.to_string(),
        Column::Tools => known(call.tools, |tools| tools.to_string()),
        Column::Status => call.status.word().to_owned(),
        Column::Finish => call.finish.word().to_owned(),
        Column::Priority => call.priority.to_string(),
        Column::Key => known(call.key.as_ref(), |key| key.to_string()),
        Column::Stream => known(call.stream, |stream| stream.word().to_owned()),
        Column::MaxTokens => known(call.max_tokens, |tokens: Tokens| tokens.to_string()),
        Column::Retries => call.retries.to_string(),
        Column::SeenCached => known(call.seen_cached, |tokens: Tokens| tokens.to_string()),
        Column::SeenTtft => known(call.seen_ttft, Span::secs_text),
        Column::SeenDuration => known(call.seen_duration, Span::secs_text),
    }
}

fn known<T>(value: Option<T>, text: impl FnOnce(T) -> String) -> String {
    value.map(text).unwrap_or_default()
}

fn after(entries: &[After]) -> String {
    let entries = entries.iter().map(|entry| format!("{}{}", entry.call, mark(entry.event)));
    entries.collect::<Vec<_>>().join(";")
}

/// Where the bytes go.
pub(super) enum Out<'a> {
    File(Box<NewFile>),
    Stream(Box<dyn Write + 'a>),
}

impl Write for Out<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::File(file) => file.write(bytes),
            Self::Stream(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::File(file) => file.flush(),
            Self::Stream(stream) => stream.flush(),
        }
    }
}

/// How they get there.
pub(super) enum Encoder<'a> {
    Plain(BufWriter<Out<'a>>),
    Gzip(GzEncoder<BufWriter<Out<'a>>>),
    Zstd(zstd::Encoder<'static, BufWriter<Out<'a>>>),
}

impl<'a> Encoder<'a> {
    pub(super) fn new(out: Out<'a>, compression: Compression) -> io::Result<Self> {
        let out = BufWriter::with_capacity(1 << 16, out);
        Ok(match compression {
            Compression::None => Self::Plain(out),
            // No name and no time go into the header: equal traces give equal bytes.
            Compression::Gzip => Self::Gzip(GzEncoder::new(out, flate2::Compression::default())),
            Compression::Zstd => {
                Self::Zstd(zstd::Encoder::new(out, zstd::DEFAULT_COMPRESSION_LEVEL)?)
            }
        })
    }

    pub(super) fn finish(self) -> io::Result<Out<'a>> {
        let out = match self {
            Self::Plain(out) => out,
            Self::Gzip(encoder) => encoder.finish()?,
            Self::Zstd(encoder) => encoder.finish()?,
        };
        out.into_inner().map_err(io::IntoInnerError::into_error)
    }
}

impl Write for Encoder<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(out) => out.write(bytes),
            Self::Gzip(encoder) => encoder.write(bytes),
            Self::Zstd(encoder) => encoder.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(out) => out.flush(),
            Self::Gzip(encoder) => encoder.flush(),
            Self::Zstd(encoder) => encoder.flush(),
        }
    }
}
