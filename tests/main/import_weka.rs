//! The command that imports agent sessions; what it makes of them is tested beside the importer.

use std::fs;
use std::path::{Path, PathBuf};

use assert_cmd::Command;

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/weka").join(name)
}

fn tonnage() -> Command {
    Command::cargo_bin("tonnage").expect("it is built with the tests")
}

#[test]
fn the_command_writes_trace_and_sidecar() {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let out = folder.path().join("mini.csv");
    let run = tonnage()
        .args(["import", "weka"])
        .arg(data("mini.jsonl.gz"))
        .arg("-o")
        .arg(&out)
        .args(["--licence", "Apache-2.0", "--max-context", "131072", "--max-span-s", "7200"])
        .assert()
        .success();
    let text = String::from_utf8_lossy(&run.get_output().stdout).into_owned();
    for line in ["sessions read     30\n", "sessions kept     15\n", "14 above --max-context\n"] {
        assert!(text.contains(line), "{text}");
    }
    let rows = fs::read_to_string(&out).expect("it was written");
    assert!(rows.starts_with("session,call,at_s,") && rows.contains("\ns000014,0,420,"), "{rows}");
    assert!(!rows.contains("trace_"), "no session keeps its id");
    let sidecar = fs::read_to_string(folder.path().join("mini.meta.json")).expect("it is there");
    let command = "import weka mini.jsonl.gz --stagger 30 --outputs auto --assume-tps 60 \
                   --max-context 131072 --max-span-s 7200\"";
    for part in ["\"licence\": \"Apache-2.0\"", "\"partial_block\": \"drop\"", command] {
        assert!(sidecar.contains(part), "{sidecar}");
    }
}

#[test]
fn a_sidecar_that_cannot_be_written_leaves_no_trace_either() {
    let folder = tempfile::tempdir().expect("a folder can be made");
    fs::create_dir(folder.path().join("mini.meta.json")).expect("a folder can be made");
    let out = folder.path().join("mini.csv");
    let mut run = tonnage();
    run.args(["import", "weka"]).arg(data("mini.jsonl.gz")).arg("-o").arg(&out);
    run.assert().code(2);
    assert!(!out.exists(), "the trace is there without its sidecar");
}

#[test]
fn what_cannot_be_read_leaves_no_file() {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let whole = fs::read(data("mini.jsonl.gz")).expect("it is there");
    let cases: [(&str, &[u8], &str); 4] = [
        ("cut.jsonl.gz", &whole[..whole.len() / 2], "cut.jsonl.gz:"),
        ("empty.jsonl", b"", "empty.jsonl: the file holds no session"),
        ("binary.jsonl", b"\x00\xff\xfe\x01\n\x80", "binary.jsonl:1: the line is not UTF-8"),
        ("row.jsonl", b"{\"id\": 3}\n", "row.jsonl:1: "),
    ];
    let out = folder.path().join("out.csv");
    for (name, content, said) in cases {
        let file = folder.path().join(name);
        fs::write(&file, content).expect("it can be written");
        let run = tonnage().args(["import", "weka"]).arg(&file).arg("-o").arg(&out).assert();
        let run = run.code(2);
        let error = String::from_utf8_lossy(&run.get_output().stderr).into_owned();
        assert!(error.contains(said), "{error}");
        assert!(!out.exists(), "{name}");
    }
    let left: Vec<_> = fs::read_dir(folder.path()).expect("it is there").collect();
    assert_eq!(left.len(), cases.len(), "nothing but the inputs");
}

#[test]
fn bad_lines_are_told_of_when_they_are_skipped() {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let file = folder.path().join("mixed.jsonl");
    let session = r#"{"id":"a","models":[],"block_size":64,"hash_id_scope":"local","requests":[
        {"t":0,"type":"n","model":"m","in":70,"out":3,"runs":[[1,1]],"api_time":1}]}"#;
    fs::write(&file, session.replace('\n', "") + "\n{}\n").expect("it can be written");
    let out = folder.path().join("out.csv");
    let run = tonnage()
        .args(["import", "weka", "--skip-bad"])
        .arg(&file)
        .arg("-o")
        .arg(&out)
        .assert()
        .success();
    let output = run.get_output();
    let warnings = String::from_utf8_lossy(&output.stderr);
    assert!(warnings.contains("mixed.jsonl:2: ") && warnings.contains("model `m`"), "{warnings}");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("1 cannot be used\n"), "{text}");
    assert!(out.exists());
}
