//! A small scenario with its trace in a folder of its own, and the program run there.

use std::fs;
use std::path::Path;

use assert_cmd::Command;
use tempfile::TempDir;

pub const SCENARIO: &str = r#"name = "small"
trace = "t.csv"

[engine]
model = "Llama-3.1-8B"
gpu = "h100-sxm"
max_model_len = 8192
num_gpu_blocks_override = 600

[load]
kind = "developers"
developers = 6
pause_median_s = 20

[run]
warmup_s = 60
window_s = 900
"#;

/// Sessions of two tenants with turns, a shared prompt and a call that is beyond the cache.
const SESSIONS: &str = "\
session,call,at_s,after,gap_s,cause,turn,lane,model,tenant,user,profile,base,kept_tokens,\
prompt_tokens,output_tokens,tools,status
@tools,,,,,,,,,,,,,0,320,,,
one,0,0,,0,user,0,0,m,web,,,@tools,320,1000,20,,ok
one,1,9,0,2,tool,0,0,m,web,,,0,1020,1500,110,,ok
one,2,60,1,40,user,1,0,m,web,,,1,1510,2000,30,,ok
two,0,5,,0,user,0,0,m,ops,,,@tools,320,800,140,,ok
two,1,8,0,1,tool,0,0,m,ops,,,0,900,4000,60,,ok
three,0,9,,0,user,0,0,m,web,,,@tools,320,3000,90,,ok
three,1,14,0,1,tool,0,0,m,web,,,0,3090,5000,40,,ok
three,2,30,1,9,user,1,0,m,web,,,1,5040,6000,80,,ok
";

pub fn folder() -> TempDir {
    let folder = TempDir::new().unwrap();
    fs::write(folder.path().join("s.toml"), SCENARIO).unwrap();
    fs::write(folder.path().join("t.csv"), SESSIONS).unwrap();
    folder
}

pub fn tonnage(folder: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("tonnage"));
    command.current_dir(folder).args(args);
    command
}

/// Whatever a run reads is still there after it.
#[test]
fn outputs_never_replace_what_they_are_made_of() {
    let folder = folder();
    let path = folder.path();
    fs::create_dir(path.join("o")).unwrap();
    fs::copy(path.join("t.csv"), path.join("o/calls.csv")).unwrap();
    fs::write(path.join("bench.json"), "{}").unwrap();
    tonnage(path, &["sweep", "s.toml", "--vary", "replicas=1..2", "-o", "cells"])
        .assert()
        .success();
    let own = "the output would replace a file that it is made of";
    let twice = "two outputs are one file";
    fs::copy(path.join("t.csv"), path.join("results.csv")).unwrap();
    let drawn = format!("{SCENARIO}\n[candidates]\nfleet.replicas = [1, 2]\n");
    fs::write(path.join("d.toml"), drawn).unwrap();
    let varied =
        ["sweep", "s.toml", "--vary", "replicas=1..2", "--trace", "results.csv", "-o", "."];
    let cases: [(&[&str], &str, &str); 9] = [
        (&varied, "results.csv", own),
        (&["plot", "d.toml", "-o", "t.csv"], "t.csv", own),
        (&["replay", "s.toml", "--plot", "./t.csv"], "t.csv", own),
        (&["replay", "s.toml", "--metrics", "s.toml"], "s.toml", own),
        (&["replay", "s.toml", "--trace", "o/calls.csv", "--out", "o"], "o/calls.csv", own),
        (&["replay", "s.toml", "--out", "n", "--plot", "n/calls.csv"], "t.csv", twice),
        (&["size", "s.toml", "--slo", "hit >= 0.1", "--plot", "t.csv"], "t.csv", own),
        (&["plot", "cells", "-o", "cells/results.csv"], "cells/results.csv", own),
        (&["calibrate", "bench.json", "--gpu", "h100", "-o", "bench.json"], "bench.json", own),
    ];
    for (args, kept, said) in cases {
        let before = fs::read(path.join(kept)).unwrap();
        let output = tonnage(path, args).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{args:?}: {output:?}");
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(error.contains(said), "{args:?}: {error}");
        assert_eq!(before, fs::read(path.join(kept)).unwrap(), "{args:?}");
    }
}
