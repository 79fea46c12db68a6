//! `tonnage import auto`.

use std::fs;
use std::io::Write;

use super::{Desk, data};

/// A file of each format that is in the tests' data.
const FILES: [(&str, &str); 9] = [
    ("azure", "azure/code.csv.gz"),
    ("mini-swe-agent", "mini-swe-agent/steps.csv.gz"),
    ("tracelab", "tracelab/round_trace.jsonl.gz"),
    ("inference-lab", "inference-lab/sessions.jsonl"),
    ("prefix-groups", "prefix-groups/requests.csv"),
    ("weka", "weka/mini.jsonl.gz"),
    ("spendlogs", "spendlogs/set-a.csv.gz"),
    ("spendlogs", "spendlogs/set-a.v2.json.gz"),
    ("spendlogs", "spendlogs/derived-1.60-shape.csv"),
];

#[test]
fn a_file_is_imported_as_what_it_is() {
    for (format, name) in FILES {
        let desk = Desk::new();
        let said = desk.run("auto", &data(name), &[]).success();
        let said = String::from_utf8_lossy(&said.get_output().stderr).into_owned();
        assert!(said.contains(", by its "), "{name}: {said}");
        let found = fs::read(desk.path("out.csv")).expect("it was written");
        let sidecar = desk.sidecar();
        desk.run(format, &data(name), &[]).success();
        assert_eq!(found, fs::read(desk.path("out.csv")).expect("it was written"), "{name}");
        assert_eq!(sidecar, desk.sidecar(), "{name}");
    }
}

#[test]
fn the_name_of_a_file_says_nothing() {
    let desk = Desk::new();
    let text = "TIMESTAMP,ContextTokens,GeneratedTokens\n2024-05-10 00:00:00+00:00,1,1\n";
    let zstd = zstd::encode_all(text.as_bytes(), 3).expect("it can be packed");
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(text.as_bytes()).expect("it can be packed");
    let gzip = gzip.finish().expect("it can be packed");
    for content in [text.as_bytes(), &zstd, &gzip] {
        let (trace, said) = desk.import("auto", &desk.write("x.jsonl.zip", content), &[]);
        assert_eq!(trace.sessions.len(), 1);
        assert!(said.contains("an Azure LLM inference trace, by its TIMESTAMP"), "{said}");
    }
}

#[test]
fn every_form_of_spendlogs_is_known() {
    for name in [
        "copy-text.tsv.zst",
        "no-header.csv.zst",
        "row-to-json.jsonl.zst",
        "legacy-array.json.gz",
        "set-b-prompts-on.json.zst",
        "logger-payloads.jsonl.zst",
    ] {
        let desk = Desk::new();
        let done = desk.run("auto", &data("spendlogs").join(name), &[]).success();
        let said = String::from_utf8_lossy(&done.get_output().stderr).into_owned();
        assert!(said.contains("SpendLogs") || said.contains("StandardLoggingPayload"), "{said}");
        assert!(!said.contains("no known format"), "{name}: {said}");
    }
}

#[test]
fn a_folder_of_a_logger_s_calls_is_known_by_its_first_file() {
    let desk = Desk::new();
    let lines = fs::read(data("spendlogs/logger-payloads.jsonl.zst")).expect("it is there");
    let lines = zstd::decode_all(&lines[..]).expect("it is packed");
    let folder = desk.path("calls");
    fs::create_dir_all(folder.join("2026-11-29")).expect("it can be made");
    for (number, line) in lines.split(|&byte| byte == b'\n').enumerate().take(10) {
        let file = folder.join(format!("2026-11-29/{number}.json"));
        fs::write(file, line).expect("it can be written");
    }
    let done = desk.run("auto", &folder, &["--keep-ids"]).success();
    let said = String::from_utf8_lossy(&done.get_output().stderr).into_owned();
    assert!(said.contains("StandardLoggingPayload") && said.contains("10 read, 10 kept"), "{said}");
    fs::write(folder.join("2026-11-29/0.json"), "TIMESTAMP,ContextTokens,GeneratedTokens\n")
        .expect("it can be written");
    let other = Desk::new();
    let said = other.refuse("auto", &folder, &[]);
    assert!(said.contains("a folder of an Azure LLM inference trace, allowed: one of"), "{said}");
    let said = other.refuse("auto", "postgres://ana:secret@db/litellm".as_ref(), &[]);
    assert!(said.contains("this is no file") && !said.contains("secret"), "{said}");
}

#[test]
fn what_cannot_be_told_or_imported_is_refused() {
    let desk = Desk::new();
    let trace = desk.write("t.csv", "session,call,at_s,after,gap_s,prompt_tokens,output_tokens\n");
    let said = desk.refuse("auto", &trace, &[]);
    assert!(said.contains("t.csv: this is a canonical trace already"), "{said}");
    let unknown = desk.write("u.csv", "TIMESTAMP,ContextTokens,Generated\n1,2,3\n");
    let said = desk.refuse("auto", &unknown, &[]);
    assert!(
        said.contains("u.csv: no known format") && said.contains("nearest is an Azure"),
        "{said}"
    );
    let azure = data("azure/code.csv.gz").display().to_string();
    let said = desk.refuse("auto", &data("tracelab/round_trace.jsonl.gz"), &[&azure]);
    assert!(said.contains("this is an Azure LLM inference trace, but"), "{said}");
    let said = desk.refuse("auto", &data("azure/code.csv.gz"), &["--keep-ids"]);
    assert!(said.contains("--keep-ids: an Azure LLM inference trace tells nothing"), "{said}");
    let said = desk.refuse("auto", &data("spendlogs/set-a.csv.gz"), &["--stagger", "3"]);
    assert!(said.contains("--stagger: SpendLogs have no such option"), "{said}");
    let whole = fs::read(data("azure/code.csv.gz")).expect("it is there");
    let said = desk.refuse("auto", &desk.write("cut.gz", &whole[..whole.len() / 2]), &[]);
    assert!(said.contains("the file may be cut short or damaged"), "{said}");
}

#[test]
fn what_is_clearly_no_row_in_a_folder_is_named_and_left_out() {
    let desk = Desk::new();
    let folder = desk.path("calls");
    fs::create_dir_all(&folder).expect("it can be made");
    let rows = data("spendlogs/derived-1.60-shape.csv");
    fs::copy(&rows, folder.join("rows.csv")).expect("it can be copied");
    desk.run("spendlogs", &folder, &[]).success();
    let alone = fs::read(desk.path("out.csv")).expect("it was written");
    fs::write(folder.join("README.md"), "# Calls\n").expect("it can be written");
    fs::write(folder.join("sums.sha256"), "00  rows.csv\n").expect("it can be written");
    for format in ["spendlogs", "auto"] {
        let done = desk.run(format, &folder, &[]).success();
        let said = String::from_utf8_lossy(&done.get_output().stderr).into_owned();
        for name in ["README.md", "sums.sha256"] {
            let line = said.lines().find(|line| line.contains(name));
            assert!(line.is_some_and(|line| line.contains("left out")), "{name}: {said}");
        }
        assert_eq!(fs::read(desk.path("out.csv")).expect("it was written"), alone);
    }
    fs::remove_file(desk.path("out.csv")).expect("it is there");
    fs::remove_file(desk.path("out.meta.json")).expect("it is there");
    // What has the name of rows must be rows.
    fs::write(folder.join("notes.txt"), "nothing\n").expect("it can be written");
    let error = desk.refuse("spendlogs", &folder, &[]);
    assert!(error.contains("notes.txt"), "{error}");
    fs::remove_file(folder.join("notes.txt")).expect("it is there");
    fs::remove_file(folder.join("rows.csv")).expect("it is there");
    let error = desk.refuse("spendlogs", &folder, &[]);
    assert!(error.contains("holds no files of rows"), "{error}");
}
