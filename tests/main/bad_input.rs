//! `replay` and `size` from outside: whatever is wrong is named with its place, exit code 2, and
//! nothing is written; answers come as documented.

use std::fs;
use std::path::Path;

use assert_cmd::Command;
use serde_json::Value;
use tempfile::TempDir;

const SCENARIO: &str = r#"name = "small"
trace = "t.csv"

[engine]
model = "Llama-3.1-8B"
gpu = "h100-sxm"
max_model_len = 8192

[fleet]
replicas = 2
router = "round_robin"
"#;

const TRACE: &str = "\
session,call,at_s,after,gap_s,cause,turn,lane,model,tenant,user,profile,base,kept_tokens,\
prompt_tokens,output_tokens,tools,status
@tools,,,,,,,,,,,,,0,320,,,
one,0,0,,0,user,0,0,m,web,,,@tools,320,1000,20,,ok
one,1,9,0,2,tool,0,0,m,web,,,0,1020,1500,10,,ok
one,2,60,1,40,user,1,0,m,web,,,1,1510,2000,30,,ok
two,0,5,,0,user,0,0,m,ops,,,@tools,320,800,40,,ok
";

/// A folder with a scenario and its trace.
fn folder(scenario: &str, trace: impl AsRef<[u8]>) -> TempDir {
    let folder = TempDir::new().unwrap();
    fs::write(folder.path().join("s.toml"), scenario).unwrap();
    fs::write(folder.path().join("t.csv"), trace).unwrap();
    folder
}

fn tonnage(folder: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("tonnage"));
    command.current_dir(folder).args(args);
    command
}

/// Every file below a folder with its content, by path.
fn files(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path));
        } else {
            found.push((path.display().to_string(), fs::read(&path).unwrap()));
        }
    }
    found.sort();
    found
}

/// Both commands refuse it with exit code 2, say all of this, and write no file.
fn refused_in(folder: &Path, args: &[&str], said: &[&str]) {
    let before = files(folder);
    let with_out = [args, &["--out", "out"]].concat();
    for (command, args) in [("replay", args), ("replay", &with_out), ("size", args)] {
        let args = [&[command], args].concat();
        let output = tonnage(folder, &args).output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{args:?}: {stderr}");
        assert_eq!(output.stdout, b"", "{args:?}");
        assert!(stderr.starts_with("error: "), "{args:?}: {stderr}");
        for said in said {
            assert!(stderr.contains(said), "{args:?} does not say `{said}`:\n{stderr}");
        }
    }
    assert_eq!(files(folder), before, "{args:?} wrote something");
}

/// Refused with this scenario.
fn refused_scenario(scenario: &str, said: &[&str]) {
    assert_ne!(scenario, SCENARIO, "nothing is wrong for {said:?}");
    refused_in(folder(scenario, TRACE).path(), &["s.toml"], said);
}

/// Refused with this instead of that in the scenario.
fn refused_instead(that: &str, this: &str, said: &[&str]) {
    refused_scenario(&SCENARIO.replacen(that, this, 1), said);
}

/// Refused with these arguments behind the scenario.
fn refused_with(args: &[&str], said: &[&str]) {
    refused_in(folder(SCENARIO, TRACE).path(), &[&["s.toml"], args].concat(), said);
}

/// Refused with this trace.
fn refused_trace(trace: impl AsRef<[u8]>, said: &[&str]) {
    refused_in(folder(SCENARIO, trace).path(), &["s.toml"], said);
}

#[test]
fn scenarios_that_cannot_be_read() {
    refused_in(folder("", "").path(), &["none.toml"], &["none.toml: cannot read the scenario: "]);
    refused_in(folder("", "").path(), &["."], &[".: cannot read the scenario: "]);
    let binary = folder("", "");
    fs::write(binary.path().join("b.toml"), b"\x7fELF\x02\x01\xff\xfe\0\0").unwrap();
    refused_in(binary.path(), &["b.toml"], &["b.toml: cannot read the scenario", "UTF-8"]);
    refused_scenario("a = 1\nb = = 2\n", &["s.toml:2:5: not TOML"]);
    refused_scenario("[engine\n", &["s.toml:1:8: not TOML"]);
    refused_instead("[fleet]", "[engine]", &["s.toml:9:2: not TOML: duplicate key"]);
}

#[test]
fn keys_and_values_that_do_not_exist() {
    let near = "did you mean `fleet.replicas`?";
    refused_instead("replicas", "replica", &["s.toml:10:1: fleet.replica: unknown key", near]);
    refused_instead("[fleet]", "[flet]", &["s.toml:10:1: flet.replicas: unknown key", near]);
    refused_instead("[fleet]", "[run]", &["s.toml:10:1: run.replicas: unknown key", near]);
    let router = "s.toml:11:1: fleet.router: unknown value `round_robbin`, allowed: session";
    refused_instead("_robin", "_robbin", &[router, "did you mean `round_robin`?"]);
    let model = ["s.toml:5:1: ", "unknown model `Llama-3.1-9B`", "did you mean `Llama-3.1-8B`?"];
    refused_instead("3.1-8B", "3.1-9B", &model);
    let gpu = ["s.toml:6:1: ", "unknown GPU `h101-sxm`", "did you mean `H100-SXM`?"];
    refused_instead("h100", "h101", &gpu);
    refused_instead("gpu = \"h100-sxm\"\n", "", &["s.toml: engine.gpu: this key is needed"]);
}

#[test]
fn values_of_the_wrong_kind_or_size() {
    let place = "s.toml:10:1: fleet.replicas: ";
    for (value, found) in [("\"2\"", "`\"2\"`"), ("0", "`0`"), ("2.5", "`2.5`"), ("-1", "`-1`")] {
        let allowed = format!("found {found}, allowed: a whole number from 1 to 10000");
        refused_instead("replicas = 2", &format!("replicas = {value}"), &[place, &allowed]);
    }
    refused_instead("\"small\"", "[1]", &["s.toml:1:1: name: found `[1]`, allowed: a text"]);
    let engine = |line: &str, said: &[&str]| {
        refused_instead("[engine]", &format!("[engine]\n{line}"), said);
    };
    engine("watermark = 0.7", &["s.toml:5:1: engine.watermark: found `0.7`, allowed: a number"]);
    engine("watermark = nan", &["s.toml:5:1: engine.watermark: found `nan`"]);
    engine("enable_prefix_caching = 1", &["engine.enable_prefix_caching: found `1`", "true or"]);
    engine("block_size = 0", &["s.toml:5:1: engine.block_size: found `0`, allowed: a whole"]);
    refused_instead("[fleet]", "[run]\nwindow_s = 0\n[fleet]", &["run.window_s: found `0`"]);
    let pause = "load.pause_sigma: only goes with load.kind = \"developers\"";
    refused_instead("[fleet]", "[load]\npause_sigma = 1\n[fleet]", &["s.toml:10:1: ", pause]);
    let people = ["s.toml:10:1: load.kind: this kind of load needs `load.developers`"];
    refused_instead("[fleet]", "[load]\nkind = 'developers'\n[fleet]", &people);
    let at_any_time = "[load]\nkind = 'developers'\ndevelopers = 1\noffice_ramp_s = 60\n[fleet]";
    let nobody = ["s.toml:12:1: load.office_ramp_s: nobody arrives where people work at any time"];
    refused_instead("[fleet]", at_any_time, &nobody);
}

#[test]
fn what_does_not_fit_comes_with_the_arithmetic() {
    let said = [
        "s.toml:5:1: engine.model: Llama-3.1-70B in bf16 does not fit on 1 x H100-SXM",
        // 80 layers of 855,638,016 weights, output layer and embedding of 1,050,673,152 each.
        "weights take 131.41 GiB (141.10 GB)",
        "0.92 x (that - 0.50 GiB) = 72.82 GiB",
        "help: it fits with tp 2",
    ];
    refused_instead("3.1-8B", "3.1-70B", &said);
    let said = [
        "s.toml:7:1: ",
        "max_model_len: one sequence of 8192 tokens needs 512 blocks of 16 tokens; there are 99",
        // 99 x 16.
        "help: the largest max_model_len that fits is 1584",
    ];
    refused_instead("[fleet]", "num_gpu_blocks_override = 100\n[fleet]", &said);
    // What it names does fit, and one token more does not.
    let small = SCENARIO.replace("[fleet]", "num_gpu_blocks_override = 100\n[fleet]");
    let folder = folder(&small, TRACE);
    tonnage(folder.path(), &["replay", "s.toml", "--set", "max_model_len=1584"]).assert().code(0);
    tonnage(folder.path(), &["replay", "s.toml", "--set", "max_model_len=1585"]).assert().code(2);
}

#[test]
fn settings_that_contradict_each_other() {
    refused_instead(
        "[fleet]",
        "[slo]\ntargets = [\"p95 tfft <= 3 s\"]\n[fleet]",
        &["s.toml:10:17: slo.targets `p95 tfft <= 3 s`: unknown metric `tfft`", "`ttft`"],
    );
    refused_instead(
        "[fleet]",
        "[client]\nmax_retries = 3\n[fleet]",
        &["client.max_retries: without engine.max_num_queued_reqs"],
    );
    refused_instead(
        "[engine]",
        "[engine]\nmax_num_batched_tokens = 16\nmax_num_seqs = 64",
        &["engine.max_num_seqs: found `64`", "max_num_batched_tokens, which is 16"],
    );
}

#[test]
fn what_is_not_modelled_is_refused_by_name() {
    for (line, what) in [
        ("pipeline_parallel_size = 2", "found `2`, but not modelled yet: pipeline parallelism"),
        (
            "speculative_config = '{\"method\": \"eagle\"}'",
            "not modelled yet: speculative decoding",
        ),
        ("kv_offloading_size = 4.0", "not modelled yet: a KV tier in host memory"),
        ("prefill_schedule_interval = 8", "not modelled yet: prefill in some steps only"),
        ("enable_chunked_prefill = false", "not modelled yet: whole-prompt prefill"),
    ] {
        let (key, value) = line.split_once(" = ").unwrap();
        let place = format!("s.toml:5:1: engine.{key}: ");
        refused_instead("[engine]", &format!("[engine]\n{line}"), &[&place, what]);
        let set = format!("{key}={value}");
        refused_with(&["--set", &set], &[&format!("--set engine.{key}: "), what]);
    }
    // What changes nothing is accepted.
    let folder = folder(SCENARIO, TRACE);
    let neutral = ["replay", "s.toml", "--set", "pipeline_parallel_size=1"];
    tonnage(folder.path(), &neutral).assert().code(0);
    refused_instead(
        "[fleet]",
        "[engine.speculative_config]\nmethod = 'eagle'\n[fleet]",
        &["engine.speculative_config: not modelled yet: speculative decoding"],
    );
}

#[test]
fn wrong_arguments() {
    let near = "did you mean `fleet.replicas`?";
    refused_with(&["--set", "fleet.replicsa=2"], &["--set: unknown key `fleet.replicsa`", near]);
    refused_with(&["--set", "replicas"], &["--set: found `replicas`, allowed: key=value"]);
    refused_with(&["--set", "=3"], &["--set: unknown key ``"]);
    refused_with(&["--set", "replicas=x"], &["--set fleet.replicas: found `\"x\"`"]);
    refused_with(&["--seed", "x"], &["invalid value 'x' for '--seed"]);
    let metric =
        ["--slo `p95 tftt <= 10 s`: unknown metric `tftt`", "^^^^", "did you mean `ttft`?"];
    refused_with(&["--slo", "p95 tftt <= 10 s"], &metric);
    refused_with(&["--slo", "p95 ttft < 10 s"], &["found `<`, allowed: <=, >="]);
    refused_with(&["--slo", ""], &["--slo ``: ", "ends too early"]);
    let tenant = "p95 ttft[tenant=wbe] <= 1 s";
    let said = [tenant, "unknown tenant `wbe`, allowed: web, ops"];
    refused_with(&["--slo", tenant], &said);
    refused_with(&["--slo", tenant, "--set", "scale=2"], &said);
    refused_with(&["--slo", "p95 ttft[model=x] <= 1 s"], &["unknown model `x`, allowed: m"]);
    let written = format!("{SCENARIO}[slo]\ntargets = ['p95 tftt <= 1 s']\n");
    refused_scenario(&written, &["slo.targets `p95 tftt <= 1 s`: unknown metric `tftt`"]);
}

#[test]
fn traces_that_break_a_rule() {
    refused_trace("", &["t.csv: the file is empty"]);
    let head = TRACE.split_inclusive('\n').take(2).collect::<String>();
    refused_trace(&head, &["t.csv: the trace holds no session"]);
    refused_trace(&TRACE[..TRACE.len() - 12], &["t.csv:6: the row is too short"]);
    let packed = zstd::encode_all(TRACE.as_bytes(), 3).unwrap();
    refused_trace(&packed[..packed.len() - 20], &["t.csv: the compressed data ends in the middle"]);
    let waits = |call: &str, said: &str| {
        refused_trace(TRACE.replace("one,2,60,1,", &format!("one,2,60,{call},")), &[said]);
    };
    waits("2", "t.csv:5:4: after: call 2 cannot wait for itself");
    waits("7", "t.csv:5:4: after: the session has no call 7");
    waits("x", "t.csv:5:4: after: ");
    let later = TRACE.replace("one,1,9,0,", "one,1,9,2,");
    refused_trace(later, &["t.csv:4:4: after: call 1 cannot wait for call 2"]);
    refused_trace(TRACE.replace("user,0,0,m,ops", "usr,0,0,m,ops"), &["t.csv:6:6: cause: "]);
    refused_with(&["--trace", "none.csv"], &["none.csv: cannot open"]);
    refused_with(&["--trace", "s.toml"], &["s.toml:"]);
}

#[test]
fn tables_that_cannot_be_written() {
    let folder = folder(SCENARIO, TRACE);
    let path = folder.path();
    fs::create_dir_all(path.join("a/calls.csv")).unwrap();
    fs::create_dir_all(path.join("b/tasks.csv")).unwrap();
    let before = files(path);
    for (out, said) in [
        ("t.csv", "error: t.csv: cannot make the folder: "),
        ("t.csv/x", "error: t.csv/x: cannot make the folder: "),
        ("a", "error: a/calls.csv: cannot write: it exists and is no regular file"),
        ("b", "error: b/tasks.csv: cannot write: it exists and is no regular file"),
    ] {
        let output = tonnage(path, &["replay", "s.toml", "--out", out]).output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{stderr}");
        assert!(stderr.starts_with(said), "{stderr}");
        assert_eq!(output.stdout, b"");
        assert_eq!(files(path), before, "--out {out} left something behind");
    }
}

#[test]
fn exit_codes_say_whether_the_targets_are_met() {
    let folder = folder(SCENARIO, TRACE);
    let run = |args: &[&str]| tonnage(folder.path(), args).output().unwrap();
    let missed = ["--slo", "p95 ttft <= 1 ms"];
    for (args, code) in [
        (vec!["replay", "s.toml"], 0),
        (vec!["replay", "s.toml", "--check"], 0),
        ([&["replay", "s.toml"][..], &missed].concat(), 0),
        ([&["replay", "s.toml", "--check"][..], &missed].concat(), 1),
        (vec!["size", "s.toml"], 0),
        ([&["size", "s.toml", "--set", "size.max_replicas=3"][..], &missed].concat(), 1),
    ] {
        let output = run(&args);
        assert_eq!(output.status.code(), Some(code), "{args:?}");
        assert_eq!(output.stderr, b"", "{args:?}");
    }
    let output = run(&[&["size", "s.toml", "--set", "max_replicas=3"][..], &missed].concat());
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("No fleet of up to 3 replicas meets every target."), "{text}");
    assert!(text.contains("missed by 3 replicas: p95 ttft <= 0.001 s ("), "{text}");
}

fn keys(value: &Value) -> Vec<&str> {
    value.as_object().unwrap().keys().map(String::as_str).collect()
}

fn json(folder: &Path, args: &[&str]) -> Value {
    serde_json::from_slice(&tonnage(folder, args).output().unwrap().stdout).unwrap()
}

const HEADER_KEYS: [&str; 12] = [
    "scenario",
    "seed",
    "model",
    "weights",
    "kv_cache_dtype",
    "gpu",
    "tensor_parallel_size",
    "router",
    "step_time",
    "trace",
    "warnings",
    "notes",
];

#[test]
fn json_has_its_keys() {
    let folder = folder(SCENARIO, TRACE);
    let replay = json(folder.path(), &["replay", "s.toml", "--json", "--seed", "7"]);
    assert_eq!(
        keys(&replay),
        [&HEADER_KEYS[..], &["fleet", "intervals", "binds", "formulas"]].concat()
    );
    assert_eq!((&replay["scenario"], &replay["seed"]), (&"small".into(), &7.into()));
    assert_eq!((&replay["trace"]["sessions"], &replay["trace"]["calls"]), (&2.into(), &4.into()));
    let fleet = &replay["fleet"];
    assert_eq!(keys(fleet), ["met", "targets", "trust", "figures"]);
    assert_eq!(keys(&fleet["targets"][0]), ["target", "value", "met", "margin"]);
    let figures = [
        "replicas",
        "gpus",
        "window_s",
        "units",
        "admission",
        "tokens",
        "latency",
        "interactivity",
        "ttft_bands",
        "hit",
        "preemptions",
        "kv",
        "gpu",
        "time",
        "throughput",
        "burst",
        "cost",
    ];
    assert_eq!(keys(&fleet["figures"]), figures);
    assert_eq!(fleet["figures"]["units"]["calls"], 4);

    let size = json(folder.path(), &["size", "s.toml", "--json"]);
    let answer = [
        "met",
        "replicas",
        "gpus",
        "binding",
        "n_plus_1",
        "failing_above_answer",
        "max_replicas",
        "gave_up",
        "bands",
        "seeds",
        "tried",
        "formulas",
        "candidates",
        "refused",
        "offers",
    ];
    assert_eq!(keys(&size), [&HEADER_KEYS[..], &answer].concat());
    assert_eq!((&size["met"], &size["replicas"]), (&true.into(), &1.into()));
    assert_eq!(keys(&size["tried"][0]), [&keys(fleet)[..], &["by_seed"]].concat());

    let impossible = ["size", "s.toml", "--json", "--slo", "p95 ttft <= 1 ms", "--set"];
    let missed = json(folder.path(), &[&impossible[..], &["max_replicas=2"]].concat());
    assert_eq!((&missed["met"], &missed["replicas"]), (&false.into(), &Value::Null));
    assert_eq!(missed["tried"].as_array().unwrap().len(), 2);
}

#[test]
fn tables_have_a_row_for_each_call_and_task() {
    let folder = folder(SCENARIO, TRACE);
    let path = folder.path();
    tonnage(path, &["replay", "s.toml", "--out", "deep/out"]).assert().code(0);
    let table = |name: &str| {
        let mut reader = csv::Reader::from_path(path.join("deep/out").join(name)).unwrap();
        let columns: Vec<String> = reader.headers().unwrap().iter().map(str::to_owned).collect();
        let rows: Vec<csv::StringRecord> = reader.records().map(Result::unwrap).collect();
        (columns, rows)
    };
    let (columns, calls) = table("calls.csv");
    let column = |name: &str| columns.iter().position(|column| column == name).unwrap();
    let mut names: Vec<(&str, &str)> =
        calls.iter().map(|row| (&row[column("session")], &row[column("call")])).collect();
    names.sort_unstable();
    assert_eq!(names, [("one", "0"), ("one", "1"), ("one", "2"), ("two", "0")]);
    assert!(calls.iter().all(|row| &row[column("outcome")] == "completed"));
    let prompts: u64 =
        calls.iter().map(|row| row[column("prompt_tokens")].parse::<u64>().unwrap()).sum();
    assert_eq!(prompts, 5_300);

    let (columns, tasks) = table("tasks.csv");
    let column = |name: &str| columns.iter().position(|column| column == name).unwrap();
    let mut found: Vec<[&str; 3]> = tasks
        .iter()
        .map(|row| [&row[column("session")], &row[column("turns")], &row[column("calls")]])
        .collect();
    found.sort_unstable();
    assert_eq!(found, [["one", "2", "3"], ["two", "1", "1"]]);
    // No more files than these.
    assert_eq!(files(&path.join("deep")).len(), 2);
}

#[cfg(unix)]
#[test]
fn tables_can_be_read_by_others() {
    use std::os::unix::fs::PermissionsExt;
    let folder = folder(SCENARIO, TRACE);
    tonnage(folder.path(), &["replay", "s.toml", "--out", "."]).assert().code(0);
    let mode = |name: &str| {
        let metadata = fs::metadata(folder.path().join(name)).unwrap();
        metadata.permissions().mode()
    };
    // As any other new file of the same process, whatever the umask.
    assert_eq!(mode("calls.csv"), mode("t.csv"));
    assert_eq!(mode("tasks.csv"), mode("t.csv"));
}

/// What a command prints and complains of that is given this on standard input.
fn piped(folder: &Path, args: &[&str], input: &str) -> (String, String) {
    let output = tonnage(folder, args).write_stdin(input).output().unwrap();
    let [stdout, stderr] =
        [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
    assert_eq!(output.status.code() == Some(2), stderr.starts_with("error: "), "{stderr}");
    (stdout, stderr)
}

#[test]
fn a_trace_may_come_from_standard_input() {
    let folder = folder(SCENARIO, TRACE);
    let piped = |args: &[&str]| piped(folder.path(), args, TRACE);
    let of_file = piped(&["replay", "s.toml", "--json"]);
    assert!(of_file.1.is_empty() && of_file.0.contains("\"calls\": 4"), "{of_file:?}");
    assert_eq!(piped(&["replay", "s.toml", "--trace", "-", "--json"]), of_file);
    let size = ["size", "s.toml", "--json"];
    assert_eq!(piped(&[&size[..], &["--trace", "-"]].concat()), piped(&size));
    assert_eq!(
        piped(&["stats", "-"]).0.lines().nth(1),
        piped(&["stats", "t.csv"]).0.lines().nth(1)
    );
    // A tool reads its input twice.
    let cut = ["trace", "cut", "-", "--from", "5", "-o", "c.csv"];
    let said = "standard input: a trace tool reads its input twice: a regular file is needed";
    assert!(piped(&cut).1.contains(said));
}

#[test]
fn what_must_be_read_twice_and_cannot_be_is_refused() {
    let row = |session, at: u32, gap: u32| {
        format!("{session},0,{at},,{gap},user,0,0,m,,,,,0,900,60,,ok\n")
    };
    let header = &TRACE[..TRACE.find('\n').unwrap() + 1];
    // The first call comes later than recorded, after that of the next session.
    let trace = format!("{header}{}{}", row("one", 0, 100), row("two", 1, 0));
    let folder = folder(SCENARIO, &trace);
    assert!(piped(folder.path(), &["replay", "s.toml"], "").1.is_empty());
    for name in ["-", "/dev/stdin"] {
        let args = ["replay", "s.toml", "--trace", name];
        let said = "so the trace must be read twice, and standard input and pipes cannot be";
        let (_, error) = piped(folder.path(), &args, &trace);
        assert!(error.contains(said), "{error}");
    }
}

#[test]
fn another_trace_takes_the_place_of_one_that_is_not_there() {
    let help = "the scenario names this trace; --trace FILE plays another";
    refused_instead("t.csv", "u.csv", &["u.csv: cannot open: ", help]);
    let folder = folder(&SCENARIO.replace("t.csv", "u.csv"), TRACE);
    assert_eq!(piped(folder.path(), &["replay", "s.toml", "--trace", "t.csv"], "").1, "");
}

#[test]
fn a_scenario_that_needs_one_of_its_candidates_says_so() {
    let scenario = SCENARIO.to_owned()
        + "\n[generate]\nsessions = 4\nper_hour = 60\n\
        profile = \"copilot\"\n\n[profile]\nprompt.volatile = 1\n\n[candidates]\n\
        profile.prompt.volatile_at = [0, 4000]\n";
    let folder = folder(&scenario.replace("trace = \"t.csv\"\n", ""), TRACE);
    let said = "--set profile.prompt.volatile_at=0 takes one of them";
    let error =
        |args: &[&str]| piped(folder.path(), &[&["replay", "s.toml"][..], args].concat(), "").1;
    assert!(error(&[]).contains(said), "{}", error(&[]));
    // Where no value of the list mends it, it says nothing.
    for wrong in ["engine.block_size=0", "profile.prompt.volatile=2"] {
        let other = error(&["--set", wrong]);
        assert!(other.contains("allowed: ") && !other.contains("candidates"), "{other}");
    }
    assert_eq!(error(&["--set", "profile.prompt.volatile_at=4000"]), "");
}

#[test]
fn what_cannot_be_written_is_refused_before_anything_is_played() {
    for target in ["--metrics=none/m", "--plot=none/p.svg", "--metrics=-"] {
        let folder = folder(SCENARIO, TRACE);
        let args = ["replay", "s.toml", "--out", "out", target];
        let (shown, error) = piped(folder.path(), &args, "");
        let name = target.split_once('=').unwrap().1;
        assert!(shown.is_empty() && error.contains(name), "{target}: {error}");
        assert!(!error.contains(".tonnage-"), "{error}");
        // Nothing that was made for it stays.
        assert!(!folder.path().join("out").exists());
    }
    // The folder of the tables may take the figure, too.
    let folder = folder(SCENARIO, TRACE);
    let args = ["replay", "s.toml", "--out", "out", "--plot", "out/p.svg"];
    assert_eq!(piped(folder.path(), &args, "").1, "");
    assert_eq!(fs::read_dir(folder.path().join("out")).unwrap().count(), 3);
}

#[test]
fn long_and_wild_texts_are_shown_short_and_tame() {
    let long = "x".repeat(5_000);
    for (scenario, args) in [
        (format!("{SCENARIO}{long} = 1\n"), vec![]),
        (SCENARIO.to_owned(), vec![format!("--set={long}=1")]),
        (SCENARIO.to_owned(), vec![format!("--set=router={long}")]),
        (SCENARIO.to_owned(), vec![format!("--vllm=vllm serve M --{long} 3")]),
    ] {
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let folder = folder(&scenario, TRACE);
        let (_, error) = piped(folder.path(), &[&["replay", "s.toml"][..], &args].concat(), "");
        let words = error.split_whitespace().map(str::len).max();
        assert!(words.is_some_and(|longest| longest < 300), "{error}");
    }
    refused_trace(TRACE.replace("web", "\"a\u{1b}[31m\""), &["control"]);
    let (_, error) = piped(
        folder(SCENARIO, TRACE.replace(",60,", ",\u{1b}[31m,")).path(),
        &["replay", "s.toml"],
        "",
    );
    assert!(error.contains("found `\\u{1b}[31m`"), "{error}");
    let (_, error) = piped(Path::new("."), &["size", "--seeds", "0"], "");
    assert!(error.contains("--seeds: found `0`") && !error.contains("--set"), "{error}");
}
