//! Speed of the SpendLogs importer on rows of the real shape and size, about 9 kB each.
//!
//! `cargo bench --bench import` measures 10,000 rows. `cargo bench --bench import -- --rows N FILE`
//! writes N rows to a file instead, to measure time and memory of the whole program with.
#![allow(missing_docs, reason = "criterion's macros make undocumented items")]

use std::fs::File;
use std::hint::black_box;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use criterion::{Criterion, Throughput};
use csv::StringRecord;
use flate2::read::MultiGzDecoder;
use jiff::civil::DateTime;
use jiff::{SignedDuration, Span};
use tonnage::trace::canonical::Sink;
use tonnage::trace::import::spendlogs::{Options, import_into};
use tonnage::trace::record::{Session, SharedContext};

/// Seconds from one copy of the recorded rows to the next; the rows span 170 s.
const COPY_SECONDS: i64 = 60;
/// Copies after which the same people come again.
const PEOPLE: u64 = 40;

/// The recorded rows, and how to make others of them.
struct Recorded {
    header: StringRecord,
    rows: Vec<StringRecord>,
}

impl Recorded {
    fn read() -> Self {
        let path = Path::new("tests/data/spendlogs/set-a.csv.gz");
        let file = File::open(path).expect("the rows are in the repository");
        let mut reader = csv::Reader::from_reader(MultiGzDecoder::new(file));
        let header = reader.headers().expect("they have a header").clone();
        Self { header, rows: reader.records().map(|row| row.expect("they read")).collect() }
    }

    /// Writes so many rows: copies with ids, times and people of their own.
    fn write(&self, count: usize, sink: impl Write) {
        let mut writer = csv::Writer::from_writer(sink);
        writer.write_record(&self.header).expect("it can be written");
        let rows = (0..).flat_map(|copy| self.rows.iter().map(move |row| (copy, row)));
        for (copy, row) in rows.take(count) {
            let fields = self.header.iter().zip(row);
            let fields = fields.map(|(column, text)| field(column, text, copy));
            writer.write_record(fields).expect("it can be written");
        }
        writer.flush().expect("it can be written");
    }
}

/// A field of a copied row.
fn field(column: &str, text: &str, copy: u64) -> String {
    match column {
        "request_id" => format!("{text}-{copy:x}"),
        "session_id" => session(text, copy),
        "startTime" | "endTime" | "completionStartTime" if !text.is_empty() => {
            let at: DateTime = text.parse().expect("it is a time");
            let shift = Span::try_from(SignedDuration::from_secs(copy as i64 * COPY_SECONDS));
            at.checked_add(shift.expect("it fits")).expect("it is a date").to_string()
        }
        "user" | "api_key" if !text.is_empty() => format!("{text}-{}", copy % PEOPLE),
        "metadata" => metadata(text, copy),
        _ => text.to_owned(),
    }
}

/// Another session id of the same form: a UUID stays one.
fn session(text: &str, copy: u64) -> String {
    match text.split_at_checked(8) {
        Some((_, rest)) if text.len() == 36 => format!("{copy:08x}{rest}"),
        _ => format!("{text}-{copy}"),
    }
}

/// The metadata with ids of its own.
fn metadata(text: &str, copy: u64) -> String {
    let mut text = text.to_owned();
    for key in ["\"litellm_call_id\": \"", "\"parent_session_id\": \""] {
        let Some(at) = text.find(key).map(|at| at + key.len()) else { continue };
        let Some(length) = text[at..].find('"') else { continue };
        let id = session(&text[at..at + length], copy);
        text.replace_range(at..at + length, &id);
    }
    text
}

/// Takes a trace and forgets it.
struct Nowhere;

impl Sink for Nowhere {
    fn context(&mut self, context: &SharedContext) -> tonnage::diag::Result<()> {
        black_box(context);
        Ok(())
    }

    fn session(&mut self, session: &Session) -> tonnage::diag::Result<()> {
        black_box(session);
        Ok(())
    }
}

fn imports(criterion: &mut Criterion) {
    const ROWS: usize = 10_000;
    let folder = tempfile::tempdir().expect("there is a folder for temporary files");
    let file = folder.path().join("rows.csv");
    Recorded::read().write(ROWS, BufWriter::new(File::create(&file).expect("it can be made")));
    let files: [PathBuf; 1] = [file];
    let mut group = criterion.benchmark_group("import");
    group.sample_size(10);
    group.throughput(Throughput::Elements(ROWS as u64));
    for (name, buffer_bytes) in [("in memory", 24 << 20), ("in temporary files", 256 << 10)] {
        let options = Options { buffer_bytes, ..Options::default() };
        group.bench_function(format!("SpendLogs CSV, {name}"), |bencher| {
            bencher.iter(|| import_into(&files, &options, &mut Nowhere).expect("it imports"));
        });
    }
    group.finish();
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    if let Some(at) = args.iter().position(|arg| arg == "--rows") {
        let rows = args.get(at + 1).and_then(|rows| rows.parse().ok()).expect("--rows N FILE");
        let file = File::create(args.get(at + 2).expect("--rows N FILE")).expect("it can be made");
        Recorded::read().write(rows, BufWriter::new(file));
        return;
    }
    let mut criterion = Criterion::default().configure_from_args();
    imports(&mut criterion);
    criterion.final_summary();
}
