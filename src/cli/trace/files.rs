//! What the tools have in common: an input that is read twice, an output that is whole or not
//! there, and sidecars.

use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use indicatif::ProgressBar;

use crate::cli::replaced::refuse_own_trace;
use crate::diag::{Error, Result};
use crate::trace::canonical::{self, Reader, Sink, Writer};
use crate::trace::meta::Meta;
use crate::trace::record::{Session, SharedContext};
use crate::trace::tools::{Items, Source};

/// A trace on disk, with a counter on a terminal while it is read.
pub struct Input<'a> {
    path: &'a Path,
    bar: ProgressBar,
}

impl<'a> Input<'a> {
    /// A trace that can be read more than once.
    pub fn open(path: &'a Path) -> Result<Self> {
        if !canonical::is_standard_input(path) {
            std::fs::metadata(path).map_err(|error| Error::io(path, "open", &error))?;
        }
        if !canonical::can_be_read_again(path) {
            let error = Error::new("a trace tool reads its input twice: a regular file is needed");
            return Err(error.in_file(canonical::display_name(path)));
        }
        let bar = match std::io::stderr().is_terminal() {
            true => ProgressBar::new_spinner().with_message("sessions and contexts read"),
            false => ProgressBar::hidden(),
        };
        bar.enable_steady_tick(Duration::from_millis(100));
        Ok(Self { path, bar })
    }

    /// Its sidecar, an empty one if there is none.
    pub fn meta(&self) -> Result<Meta> {
        Ok(Meta::read_beside(self.path)?.unwrap_or_default())
    }
}

impl Source for Input<'_> {
    fn items(&self) -> Result<Items<'_>> {
        let reader = Reader::open(self.path)?;
        Ok(Box::new(reader.inspect(|_| self.bar.inc(1))))
    }
}

impl Drop for Input<'_> {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// A trace that is being made.
pub struct Output<'a> {
    path: &'a Path,
    writer: Writer<'static>,
}

impl<'a> Output<'a> {
    /// A trace that takes the place of none of `inputs`, nor its sidecar that of one of theirs.
    pub fn create<'i>(
        path: &'a Path,
        inputs: impl IntoIterator<Item = &'i PathBuf>,
    ) -> Result<Self> {
        let inputs: Vec<&Path> = inputs.into_iter().map(PathBuf::as_path).collect();
        refuse_own_trace(path, inputs)?;
        Ok(Self { path, writer: Writer::create(path)? })
    }

    /// Puts trace and sidecar in place: both or neither.
    pub fn finish(self, meta: &Meta) -> Result<()> {
        let sidecar = meta.prepare_beside(self.path)?;
        self.writer.finish()?;
        sidecar.commit()
    }
}

impl Sink for Output<'_> {
    fn context(&mut self, context: &SharedContext) -> Result<()> {
        self.writer.context(context)
    }

    fn session(&mut self, session: &Session) -> Result<()> {
        self.writer.session(session)
    }
}

/// How a trace was made: as its origin was, and then by this command. Files are named without
/// their folders, which are nobody else's business.
pub fn made_by(before: Option<&str>, tool: &str, inputs: &[&Path], options: &str) -> String {
    let mut command = before.map(|before| format!("{before}; then ")).unwrap_or_default();
    command += &format!("tonnage {} trace {tool}", env!("CARGO_PKG_VERSION"));
    for name in inputs.iter().filter_map(|path| path.file_name()) {
        command += &format!(" {}", name.to_string_lossy());
    }
    command + options
}

/// The complaint of a tool about its setting `name`, as one about the option of that name.
pub fn of_option(error: Error, name: &str) -> Error {
    let place = error.place();
    match place.file.is_none() && place.field.as_deref() == Some(name) {
        true => error.with_field(format!("--{name}")),
        false => error,
    }
}

/// Says what was done. The trace is written by then, so nothing is lost if nobody reads it.
pub fn tell(text: &str) {
    let _ = std::io::stdout().write_all(text.as_bytes());
}

/// A name for people, who could not see an empty one.
pub fn shown(name: &str) -> &str {
    if name.is_empty() { "(none)" } else { name }
}
