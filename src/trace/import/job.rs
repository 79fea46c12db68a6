//! What an importer is given, where it puts what it makes, and what it answers.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::lines::{self, Input, Lines};
use super::{Options, Report};
use crate::diag::Result;
use crate::trace::canonical::Sink;
use crate::trace::meta::Meta;

/// Reads the files of a job into a sink.
///
/// Where it fails, what it put into the sink is of no use.
pub type Read = fn(&Job, &mut dyn Sink) -> Result<Done>;

/// What to import.
#[derive(Clone, Debug, Default)]
pub struct Job {
    /// The files, parts of one trace.
    pub files: Vec<PathBuf>,
    /// How.
    pub options: Options,
    /// How far it has come, for whoever watches.
    pub progress: Arc<Progress>,
}

impl Job {
    /// A job nobody watches.
    #[must_use]
    pub fn new(files: &[PathBuf], options: &Options) -> Self {
        Self { files: files.to_vec(), options: options.clone(), progress: Arc::default() }
    }

    /// The unpacked content of one of the files.
    pub(super) fn open(&self, file: &Path) -> Result<Input> {
        lines::open(file, &self.progress)
    }

    /// The same, line by line.
    pub(super) fn lines(&self, file: &Path) -> Result<Lines> {
        Lines::open(file, &self.progress)
    }

    /// The names of the files without their folders, for the sidecar.
    #[must_use]
    pub fn file_names(&self) -> String {
        let names = self.files.iter().filter_map(|file| file.file_name());
        let names: Vec<_> = names.map(|name| name.to_string_lossy()).collect();
        names.join(", ")
    }
}

/// What an importer answers.
#[derive(Clone, Debug)]
pub struct Done {
    /// The sidecar. `made_by` is left to the caller, who knows the command.
    pub meta: Meta,
    /// What was read, kept, left out and assumed.
    pub report: Report,
}

/// How many bytes of the files were read.
#[derive(Debug)]
pub struct Progress {
    bytes: AtomicU64,
    passes: AtomicU64,
}

impl Default for Progress {
    fn default() -> Self {
        Self { bytes: AtomicU64::new(0), passes: AtomicU64::new(1) }
    }
}

impl Progress {
    /// Bytes read so far, in all passes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// How often every file will be read.
    #[must_use]
    pub fn passes(&self) -> u64 {
        self.passes.load(Ordering::Relaxed)
    }

    /// Says that every file will be read so often.
    pub(super) fn expect_passes(&self, passes: u64) {
        self.passes.store(passes, Ordering::Relaxed);
    }

    pub(super) fn add(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }
}
