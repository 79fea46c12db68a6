//! What is read stays as it is, whatever the output is called, and secrets are not repeated.

use std::fs;
use std::path::Path;

use assert_cmd::Command;

use super::data;

fn import(format: &str, inputs: &[&Path], more: &[&str]) -> assert_cmd::assert::Assert {
    let mut command = Command::cargo_bin("tonnage").unwrap();
    command.args(["import", format]).args(inputs).args(more).assert()
}

fn said(done: &assert_cmd::assert::Assert) -> String {
    String::from_utf8_lossy(&done.get_output().stderr).into_owned()
}

#[cfg(unix)]
#[test]
fn no_input_is_replaced_by_way_of_a_link_or_a_sidecar() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let rows = fs::read(data("derived-1.60-shape.csv")).unwrap();
    fs::write(at("rows.csv"), &rows).unwrap();
    fs::write(at("spend.meta.json"), &rows).unwrap();
    std::os::unix::fs::symlink(at("rows.csv"), at("link.csv")).unwrap();
    for (format, input, output) in [
        ("spendlogs", "rows.csv", "link.csv"),
        ("spendlogs", "link.csv", "rows.csv"),
        ("auto", "link.csv", "rows.csv"),
        ("spendlogs", "spend.meta.json", "spend.csv"),
    ] {
        let output = at(output);
        let done = import(format, &[&at(input)], &["-o", output.to_str().unwrap()]).code(2);
        assert!(said(&done).contains("would replace an input"), "{}", said(&done));
        assert_eq!(fs::read(at(input)).unwrap(), rows);
    }
}

#[test]
fn addresses_of_databases_are_not_repeated() {
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("x.csv");
    let output = ["-o", output.to_str().unwrap()];
    for (format, address) in [
        ("auto", "postgres://u:s3cret@127.0.0.1:1/db"),
        ("weka", "postgres://u:s3cret@127.0.0.1:1/db"),
        ("spendlogs", "postgres:/u:s3cret@h/db"),
        ("spendlogs", "host=127.0.0.1 password=s3cret"),
        ("azure", "mysql://u:s3cret@h/db"),
    ] {
        let done = import(format, &[Path::new(address)], &output).code(2);
        assert!(!said(&done).contains("s3cret"), "{format}: {}", said(&done));
    }
}

#[test]
fn a_page_behind_the_last_one_has_no_rows_and_is_no_fault() {
    let folder = tempfile::tempdir().unwrap();
    let last = folder.path().join("page9.json");
    let page = r#"{"data":[],"total":245,"page":9,"page_size":1000,"total_pages":1}"#;
    fs::write(&last, page).unwrap();
    let output = folder.path().join("x.csv");
    let output = ["-o", output.to_str().unwrap()];
    let done = import("spendlogs", &[&data("set-a.v2.json.gz"), &last], &output).success();
    assert!(said(&done).contains("245 read"), "{}", said(&done));
    let done = import("spendlogs", &[&last], &output).code(2);
    assert!(said(&done).contains("no call to import: 0 rows read"), "{}", said(&done));
}

#[test]
fn a_folder_for_temporary_files_is_tried_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("x.csv");
    let options = ["-o", output.to_str().unwrap(), "--temp-dir", "/nowhere/at/all"];
    let done = import("spendlogs", &[&data("derived-1.60-shape.csv")], &options).code(2);
    assert!(said(&done).contains("/nowhere/at/all: cannot make temporary"), "{}", said(&done));
}

#[test]
fn sums_per_day_are_called_so_by_auto_too() {
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("x.csv");
    let options = ["-o", output.to_str().unwrap()];
    let done = import("auto", &[&data("per-day.json")], &options).code(2);
    assert!(said(&done).contains("a sum per day, no rows"), "{}", said(&done));
    assert!(!said(&done).contains("09310c78"), "{}", said(&done));
}
