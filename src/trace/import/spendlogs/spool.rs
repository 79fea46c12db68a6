//! Sorting more than fits in memory: sorted runs in temporary files, merged when read.
//!
//! What fits the buffer never touches a disk. The files have no name, so that the system removes
//! them with the process, however it ends.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, ErrorKind, Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::vec;

use crate::diag::{Error, Result};

/// So many runs of one size are merged into one, which bounds the open files.
const RUNS_MAX: usize = 64;
/// The buffer of each run while it is written or read.
const RUN_BUFFER_BYTES: usize = 32 * 1024;
/// No record is longer; a length beyond it is damage.
const RECORD_BYTES_MAX: usize = 1 << 30;

/// Something that can be sorted and put into a file.
pub(super) trait Record: Sized {
    /// The order. Records that are equal in it may come out in any order.
    fn order(&self, other: &Self) -> Ordering;
    /// Appends the record to `bytes`.
    fn write(&self, bytes: &mut Vec<u8>);
    /// Takes the record off the front of `bytes`; `None` if it is not whole.
    fn read(bytes: &mut &[u8]) -> Option<Self>;
    /// Bytes that it takes in memory beyond its own size.
    fn heap_bytes(&self) -> usize {
        0
    }
}

/// Where records go that do not fit, and how much fits.
#[derive(Clone, Debug)]
pub(super) struct Room {
    /// The folder of temporary files.
    pub(super) folder: PathBuf,
    /// Bytes of records that a sorter holds.
    pub(super) buffer_bytes: usize,
}

/// Takes records in any order and gives them back sorted.
#[derive(Debug)]
pub(super) struct Sorter<T> {
    room: Room,
    held: Vec<T>,
    held_bytes: usize,
    /// Runs by how often they were merged.
    runs: Vec<Vec<File>>,
}

impl<T: Record> Sorter<T> {
    /// An empty one.
    pub(super) fn new(room: &Room) -> Self {
        Self { room: room.clone(), held: Vec::new(), held_bytes: 0, runs: Vec::new() }
    }

    /// Takes a record.
    pub(super) fn push(&mut self, record: T) -> Result<()> {
        self.held_bytes += size_of::<T>() + record.heap_bytes();
        self.held.push(record);
        if self.held_bytes > self.room.buffer_bytes { self.spill() } else { Ok(()) }
    }

    /// All records in order.
    pub(super) fn sorted(mut self) -> Result<Sorted<T>> {
        if self.runs.is_empty() {
            self.held.sort_unstable_by(T::order);
            return Ok(Sorted::Held(self.held.into_iter()));
        }
        if !self.held.is_empty() {
            self.spill()?;
        }
        let runs = std::mem::take(&mut self.runs).into_iter().flatten().collect();
        Merge::new(runs, &self.room.folder).map(Sorted::Merged)
    }

    /// Writes what is held as one run.
    fn spill(&mut self) -> Result<()> {
        self.held.sort_unstable_by(T::order);
        self.held_bytes = 0;
        let records = self.held.drain(..).map(Ok);
        let run = write_run(records, &self.room.folder)?;
        self.add_run(0, run)
    }

    fn add_run(&mut self, level: usize, run: File) -> Result<()> {
        if self.runs.len() <= level {
            self.runs.push(Vec::new());
        }
        self.runs[level].push(run);
        if self.runs[level].len() < RUNS_MAX {
            return Ok(());
        }
        let full = std::mem::take(&mut self.runs[level]);
        let mut merge = Merge::<T>::new(full, &self.room.folder)?;
        let records = std::iter::from_fn(|| merge.next().transpose());
        let run = write_run(records, &self.room.folder)?;
        self.add_run(level + 1, run)
    }
}

/// Sorted records, one at a time.
#[derive(Debug)]
pub(super) enum Sorted<T> {
    /// All of them fitted.
    Held(vec::IntoIter<T>),
    /// They come from runs.
    Merged(Merge<T>),
}

impl<T: Record> Sorted<T> {
    /// The next record, `None` after the last.
    pub(super) fn next(&mut self) -> Result<Option<T>> {
        match self {
            Self::Held(records) => Ok(records.next()),
            Self::Merged(merge) => merge.next(),
        }
    }
}

/// Sorted records with a look at the next one.
#[derive(Debug)]
pub(super) struct Ahead<T> {
    sorted: Sorted<T>,
    next: Option<T>,
}

impl<T: Record> Ahead<T> {
    /// Starts at the first record.
    pub(super) fn new(mut sorted: Sorted<T>) -> Result<Self> {
        let next = sorted.next()?;
        Ok(Self { sorted, next })
    }

    /// The record that comes next.
    pub(super) fn peek(&self) -> Option<&T> {
        self.next.as_ref()
    }

    /// Takes the next record.
    pub(super) fn next(&mut self) -> Result<Option<T>> {
        let following = self.sorted.next()?;
        Ok(std::mem::replace(&mut self.next, following))
    }

    /// Takes the next record if it is wanted.
    pub(super) fn next_if(&mut self, wanted: impl FnOnce(&T) -> bool) -> Result<Option<T>> {
        if self.next.as_ref().is_some_and(wanted) { self.next() } else { Ok(None) }
    }
}

/// Several sorted runs as one.
#[derive(Debug)]
pub(super) struct Merge<T> {
    runs: Vec<Run>,
    heads: BinaryHeap<Head<T>>,
    folder: PathBuf,
}

impl<T: Record> Merge<T> {
    fn new(files: Vec<File>, folder: &Path) -> Result<Self> {
        let mut merge = Self { runs: Vec::new(), heads: BinaryHeap::new(), folder: folder.into() };
        for file in files {
            merge.runs.push(Run::new(file));
            merge.refill(merge.runs.len() - 1)?;
        }
        Ok(merge)
    }

    fn next(&mut self) -> Result<Option<T>> {
        let Some(Head { record, run }) = self.heads.pop() else { return Ok(None) };
        self.refill(run)?;
        Ok(Some(record))
    }

    fn refill(&mut self, run: usize) -> Result<()> {
        let record = self.runs[run].next().map_err(|error| fault(&self.folder, "read", &error))?;
        self.heads.extend(record.map(|record| Head { record, run }));
        Ok(())
    }
}

/// The first record of a run that is not taken yet.
#[derive(Debug)]
struct Head<T> {
    record: T,
    run: usize,
}

impl<T: Record> Ord for Head<T> {
    /// The largest leaves the heap first, so the order is turned round.
    fn cmp(&self, other: &Self) -> Ordering {
        other.record.order(&self.record).then(other.run.cmp(&self.run))
    }
}

impl<T: Record> PartialOrd for Head<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T: Record> PartialEq for Head<T> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl<T: Record> Eq for Head<T> {}

/// One run while it is read.
#[derive(Debug)]
struct Run {
    file: BufReader<File>,
    bytes: Vec<u8>,
}

impl Run {
    fn new(file: File) -> Self {
        Self { file: BufReader::with_capacity(RUN_BUFFER_BYTES, file), bytes: Vec::new() }
    }

    fn next<T: Record>(&mut self) -> io::Result<Option<T>> {
        let mut length = [0; 4];
        match self.file.read_exact(&mut length) {
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(None),
            other => other?,
        }
        let length = u32::from_le_bytes(length) as usize;
        if length > RECORD_BYTES_MAX {
            return Err(ErrorKind::InvalidData.into());
        }
        self.bytes.resize(length, 0);
        self.file.read_exact(&mut self.bytes)?;
        let record = T::read(&mut self.bytes.as_slice());
        record.map(Some).ok_or_else(|| ErrorKind::InvalidData.into())
    }
}

/// Writes sorted records to a new file, which is left at its start.
fn write_run<T: Record>(records: impl Iterator<Item = Result<T>>, folder: &Path) -> Result<File> {
    let failed = |error: &io::Error| fault(folder, "write", error);
    let file = tempfile::tempfile_in(folder).map_err(|error| failed(&error))?;
    let mut file = BufWriter::with_capacity(RUN_BUFFER_BYTES, file);
    let mut bytes = Vec::new();
    for record in records {
        bytes.clear();
        record?.write(&mut bytes);
        let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_le_bytes();
        file.write_all(&length).map_err(|error| failed(&error))?;
        file.write_all(&bytes).map_err(|error| failed(&error))?;
    }
    let mut file = file.into_inner().map_err(|error| failed(error.error()))?;
    file.rewind().map_err(|error| failed(&error))?;
    Ok(file)
}

fn fault(folder: &Path, what: &str, error: &io::Error) -> Error {
    Error::io(folder, &format!("{what} a temporary file in this folder"), error)
        .help("rows that do not fit in memory are sorted there; it needs about 500 bytes a row")
}

/// Takes `N` bytes off the front.
pub(super) fn take<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (front, rest) = bytes.split_first_chunk::<N>()?;
    *bytes = rest;
    Some(*front)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    impl Record for u64 {
        fn order(&self, other: &Self) -> Ordering {
            self.cmp(other)
        }

        fn write(&self, bytes: &mut Vec<u8>) {
            bytes.extend(self.to_le_bytes());
        }

        fn read(bytes: &mut &[u8]) -> Option<Self> {
            take(bytes).map(Self::from_le_bytes)
        }
    }

    fn sorted(numbers: &[u64], buffer_bytes: usize) -> Vec<u64> {
        let room = Room { folder: std::env::temp_dir(), buffer_bytes };
        let mut sorter = Sorter::new(&room);
        numbers.iter().for_each(|&number| sorter.push(number).unwrap());
        let mut sorted = sorter.sorted().unwrap();
        std::iter::from_fn(|| sorted.next().unwrap()).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn any_buffer_gives_the_same_order(
            numbers in proptest::collection::vec(any::<u64>(), 0..300),
            buffer in 0..400usize,
        ) {
            let mut expected = numbers.clone();
            expected.sort_unstable();
            prop_assert_eq!(sorted(&numbers, buffer), expected);
        }
    }

    #[test]
    fn more_runs_than_may_be_open_are_merged() {
        let count = RUNS_MAX as u64 * RUNS_MAX as u64 + 7;
        let numbers: Vec<u64> = (0..count).rev().collect();
        assert_eq!(sorted(&numbers, 0), (0..count).collect::<Vec<_>>());
    }

    #[test]
    fn a_folder_that_is_not_there_is_named() {
        let room = Room { folder: "/nonexistent/folder".into(), buffer_bytes: 0 };
        let error = Sorter::new(&room).push(1u64).unwrap_err().to_string();
        assert!(error.contains("/nonexistent/folder") && error.contains("temporary"), "{error}");
    }
}
