//! The engine against recordings of vLLM's scheduler: every number of every step.

use std::path::{Path, PathBuf};

use assert_cmd::Command;
use flate2::read::GzDecoder;
use tonnage::config::defaults::VllmVersion;
use tonnage::engine::extents::ExtentCache;
use tonnage::validate::conform::{conform, conform_with};
use tonnage::validate::recording::Recording;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/recordings")
}

/// All recordings, by name.
pub fn recordings() -> Vec<Recording> {
    let files = folder().read_dir().unwrap().map(|file| file.unwrap().path());
    let mut files: Vec<PathBuf> =
        files.filter(|file| file.extension().is_some_and(|name| name == "gz")).collect();
    files.sort();
    assert_eq!(files.len(), 60);
    files.iter().map(|file| Recording::read(file).unwrap()).collect()
}

/// The text of a recording, to be doctored.
fn text(name: &str) -> String {
    let file = std::fs::File::open(folder().join(format!("{name}.json.gz"))).unwrap();
    std::io::read_to_string(GzDecoder::new(file)).unwrap()
}

/// Runs `tonnage conform` on a file of this text; gives the exit code, stdout and stderr.
fn conform_text(text: &str) -> (i32, String, String) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("doctored.json");
    std::fs::write(&file, text).unwrap();
    run(&file)
}

fn run(path: &Path) -> (i32, String, String) {
    let mut command = Command::cargo_bin("tonnage").unwrap();
    let output = command.arg("conform").arg(path).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

#[test]
fn every_recording_conforms() {
    let differences: Vec<_> = recordings()
        .iter()
        .filter_map(|recording| {
            Some((recording.name.clone(), conform(recording, VllmVersion::default())?))
        })
        .collect();
    assert_eq!(differences, []);
}

#[test]
fn every_recording_conforms_with_blocks_in_extents() {
    let version = VllmVersion::default();
    let differences: Vec<_> = recordings()
        .iter()
        .filter_map(|recording| conform_with::<ExtentCache>(recording, version))
        .collect();
    assert_eq!(differences, []);
}

#[test]
fn the_command_line_says_so() {
    let (code, stdout, stderr) = run(&folder());
    assert_eq!(stdout.lines().last(), Some("60 passed, 0 failed"), "{stderr}");
    assert_eq!(stdout.lines().count(), 61);
    assert!(stdout.contains("\nevict-lru: equal\n"), "{stdout}");
    assert_eq!(code, 0);
}

/// Every field of a step, of a request and of the totals is looked at.
#[test]
fn one_changed_number_is_found() {
    let recording = text("preempt-readmit-hits");
    let changes = [
        ("\"free_mid\":", "step 0: free_mid: recorded 1"),
        ("\"free\":", "step 0: free: recorded 1"),
        ("\"evict\":", "step 0: evict: recorded 1"),
        ("\"cached\":", "step 0: cached: recorded 1"),
        ("\"q\":[", "step 0: q: recorded [1"),
        ("\"sched\":[[", "step 0: sched: recorded [[1"),
        ("\"run\":", "step 0: run: recorded 1"),
        ("\"wait\":", "step 0: wait: recorded 1"),
        ("\"first_token\":", "request 0: first_token: recorded 1"),
        ("\"finish\":", "request 0: finish: recorded 1"),
        ("\"output_tokens\":", "request 0: output_tokens: recorded 1"),
        ("\"reported_cached\":", "request 0: reported_cached: recorded 1"),
        ("\"admissions\":[[", "request 0: admissions: recorded [[1"),
        ("\"steps\":", "totals: steps: recorded 1"),
        ("\"scheduled_tokens\":", "totals: scheduled_tokens: recorded 1"),
        ("\"evicted_blocks\":", "totals: evicted_blocks: recorded 1"),
        ("\"preempted_hits\":", "totals: preempted_hits: recorded 1"),
    ];
    for (field, message) in changes {
        // A digit in front makes it another number.
        let at = recording.find(field).unwrap() + field.len();
        let doctored = format!("{}1{}", &recording[..at], &recording[at..]);
        let (code, stdout, _) = conform_text(&doctored);
        assert!(stdout.contains(&format!("preempt-readmit-hits: {message}")), "{field}: {stdout}");
        assert!(stdout.ends_with("\n0 passed, 1 failed\n"), "{stdout}");
        assert_eq!(code, 1);
    }
}

#[test]
fn a_difference_names_step_field_and_both_values() {
    let recording = text("decode-simple");
    let doctored = recording.replacen("[0,1,20,\"c\"]", "[0,1,21,\"c\"]", 1);
    assert_ne!(doctored, recording);
    let (code, stdout, _) = conform_text(&doctored);
    let line = "decode-simple: step 1: sched: \
                recorded [[0,1,21,\"c\"],[1,1,33,\"c\"],[2,1,7,\"c\"]], \
                engine [[0,1,20,\"c\"],[1,1,33,\"c\"],[2,1,7,\"c\"]]\n0 passed, 1 failed\n";
    assert_eq!((code, stdout.as_str()), (1, line));
}

#[test]
fn a_step_too_few_or_too_many_is_found() {
    let mut recording = recordings().remove(0);
    let last = recording.expected.steps.pop().unwrap();
    assert_eq!(conform(&recording, VllmVersion::default()).unwrap().field, "step");
    recording.expected.steps.extend([last.clone(), last]);
    assert!(conform(&recording, VllmVersion::default()).is_some());
}

#[test]
fn a_broken_file_is_refused_with_its_place() {
    let (code, stdout, stderr) = conform_text("{\n\"name\": \"x\",\n\"config\": 7}");
    assert_eq!((code, stdout.as_str()), (2, ""));
    assert!(stderr.contains("doctored.json:3:11: no recording: invalid type"), "{stderr}");
    let doctored = text("decode-simple").replace("\"fcfs\"", "\"lifo\"");
    let (code, _, stderr) = conform_text(&doctored);
    assert_eq!(code, 2);
    assert!(stderr.contains("config.policy: unknown policy `lifo`"), "{stderr}");
    let doctored = text("decode-simple").replacen("\"id\":1", "\"id\":7", 1);
    assert!(conform_text(&doctored).2.contains("requests[1]: ids must be 0, 1, 2"));
}
