//! The files of a table each, written beside the run by a thread of their own, or in between.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};

use super::Table;
use crate::diag::{Error, Result};
use crate::trace::canonical::new_file::NewFile;

/// Full buffers that may wait for the disk.
const WAITING_MAX: usize = 8;

/// Both tables, complete or not there at all: they get their names when both are written.
pub struct Files {
    how: How,
    /// Goes last.
    _made: MadeFolder,
}

/// A folder that was made for the files, and goes again if they do not come.
struct MadeFolder(Option<PathBuf>);

impl Drop for MadeFolder {
    fn drop(&mut self) {
        // It stays if there is something in it.
        let _ = self.0.as_ref().map(fs::remove_dir);
    }
}

enum How {
    /// Each buffer is written when it comes.
    Between(Box<Pair>),
    /// Another thread writes; buffers come back from it empty.
    Beside {
        full: SyncSender<(Table, Vec<u8>)>,
        empty: Receiver<Vec<u8>>,
        writer: JoinHandle<Result<Pair>>,
    },
}

/// The two files.
struct Pair {
    calls: (NewFile, PathBuf),
    tasks: (NewFile, PathBuf),
    /// The first thing that went wrong; nothing is written after it.
    failed: Option<Error>,
}

impl Pair {
    fn create(folder: &Path) -> Result<Self> {
        let file = |name| -> Result<_> {
            let path = folder.join(name);
            Ok((NewFile::create(&path)?, path))
        };
        let [calls, tasks] = Files::NAMES;
        Ok(Self { calls: file(calls)?, tasks: file(tasks)?, failed: None })
    }

    fn write(&mut self, table: Table, rows: &[u8]) {
        if self.failed.is_some() {
            return;
        }
        let (file, path) = match table {
            Table::Calls => &mut self.calls,
            Table::Tasks => &mut self.tasks,
        };
        let written = file.write_all(rows);
        self.failed = written.err().map(|error| Error::io(path, "write", &error));
    }

    fn commit(self) -> Result<()> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        let (mut calls, path) = self.calls;
        calls.flush().map_err(|error| Error::io(&path, "write", &error))?;
        calls.commit()?;
        self.tasks.0.commit()
    }
}

impl Files {
    /// The names of both tables, calls first.
    pub const NAMES: [&str; 2] = ["calls.csv", "tasks.csv"];

    /// `calls.csv` and `tasks.csv` in a folder, which is made if need be. `beside` has a thread of
    /// its own write them.
    ///
    /// # Errors
    /// If folder or files cannot be made.
    pub fn create(folder: &Path, beside: bool) -> Result<Self> {
        let is_new = !folder.exists();
        fs::create_dir_all(folder).map_err(|error| Error::io(folder, "make the folder", &error))?;
        let made = MadeFolder(is_new.then(|| folder.to_owned()));
        let mut pair = Pair::create(folder)?;
        if !beside {
            return Ok(Self { how: How::Between(Box::new(pair)), _made: made });
        }
        let (full, to_write) = sync_channel::<(Table, Vec<u8>)>(WAITING_MAX);
        let (written, empty) = sync_channel(WAITING_MAX + 2);
        let writer = thread::spawn(move || {
            for (table, mut rows) in to_write {
                pair.write(table, &rows);
                rows.clear();
                // Whoever does not want it back has ended.
                let _ = written.try_send(rows);
                if pair.failed.is_some() {
                    break;
                }
            }
            Ok(pair)
        });
        Ok(Self { how: How::Beside { full, empty, writer }, _made: made })
    }

    /// Writes rows; gives back an empty buffer, and whether writing goes on. If not, the error
    /// comes with [`Files::commit`].
    pub fn write(&mut self, table: Table, mut rows: Vec<u8>) -> (Vec<u8>, bool) {
        match &mut self.how {
            How::Between(pair) => {
                pair.write(table, &rows);
                rows.clear();
                (rows, pair.failed.is_none())
            }
            How::Beside { full, empty, .. } => {
                let goes_on = full.send((table, rows)).is_ok();
                (empty.try_recv().unwrap_or_default(), goes_on)
            }
        }
    }

    /// Gives both files their names.
    ///
    /// # Errors
    /// If anything could not be written; the files then have no names.
    pub fn commit(self) -> Result<()> {
        match self.how {
            How::Between(pair) => pair.commit(),
            How::Beside { full, writer, .. } => {
                drop(full);
                let pair = writer.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
                pair?.commit()
            }
        }
    }
}
