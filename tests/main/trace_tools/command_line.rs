//! `tonnage trace` as it is used: files, sidecars, errors.

use std::fs;
use std::path::Path;

use assert_cmd::Command;
use tempfile::TempDir;
use tonnage::trace::canonical::read_all;
use tonnage::trace::meta::Meta;
use tonnage::units::Span;

const HEAD: &str = "session,call,at_s,after,gap_s,cause,turn,lane,model,tenant,user,profile,base,\
                    kept_tokens,prompt_tokens,output_tokens,tools,status\n";
const ROWS: &str = "\
@tools,,,,,,,,,,,,,0,50,,,
one,0,0,,0,user,0,0,m,web,ann,chat,@tools,50,90,10,,ok
one,1,9,0,3,tool,0,0,m,web,ann,chat,0,100,120,10,,ok
two,0,10,,0,user,0,0,m,lab,bob,code,@tools,50,70,10,,ok
three,0,20,,0,user,0,0,m,web,eve,chat,,0,70,10,,ok
four,0,30,,0,user,0,0,m,lab,joe,code,,0,70,10,,ok
";
const META: &str = r#"{"format_version": 1, "source": "a log", "licence": "CC0",
    "start": "2026-03-02T08:00:00Z", "origin_block_size": 16, "made_by": "hand",
    "notes": ["ann was on leave"]}"#;

/// A folder with the trace above as `t.csv`.
fn folder() -> TempDir {
    let folder = TempDir::new().unwrap();
    fs::write(folder.path().join("t.csv"), format!("{HEAD}{ROWS}")).unwrap();
    fs::write(folder.path().join("t.meta.json"), META).unwrap();
    folder
}

fn tool(folder: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("tonnage"));
    command.current_dir(folder).arg("trace").args(args);
    command
}

fn said(folder: &Path, args: &[&str]) -> String {
    let output = tool(folder, args).assert().success().get_output().clone();
    assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{args:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn meta(folder: &Path, name: &str) -> Meta {
    Meta::read_beside(&folder.join(name)).unwrap().unwrap()
}

#[test]
fn a_sample_says_what_it_kept_of_each_stratum() {
    let folder = folder();
    let folder = folder.path();
    let text = said(folder, &["sample", "t.csv", "--share", "0.5", "-o", "half.csv.gz"]);
    for line in [
        "web              chat                     2         1         3         ",
        "lab              code                     2         1         2         1",
        "all                                       4         2         5         ",
        "written: half.csv.gz",
    ] {
        assert!(text.contains(line), "{line:?} is not in\n{text}");
    }
    assert_eq!(fs::read(folder.join("half.csv.gz")).unwrap()[..2], [0x1f, 0x8b]);
    assert_eq!(read_all(&folder.join("half.csv.gz")).unwrap().sessions.len(), 2);
    let made = meta(folder, "half.csv.gz");
    assert_eq!(made.source.as_deref(), Some("a log"));
    let by =
        format!("tonnage {} trace sample t.csv --share 0.5 --seed 1", env!("CARGO_PKG_VERSION"));
    assert_eq!(made.made_by, Some(format!("hand; then {by}")));

    let bytes = |name: &str, seed: &str| {
        said(folder, &["sample", "t.csv", "--sessions", "2", "--seed", seed, "-o", name]);
        fs::read(folder.join(name)).unwrap()
    };
    assert_eq!(bytes("a.csv.zst", "3"), bytes("b.csv.zst", "3"));
    let other =
        (4..20).any(|seed| bytes("b.csv.zst", &seed.to_string()) != bytes("a.csv.zst", "3"));
    assert!(other, "the seed changes nothing");
}

#[test]
fn a_cut_by_the_clock_moves_the_clock() {
    let folder = folder();
    let folder = folder.path();
    let args = ["cut", "t.csv", "--from", "2026-03-02T09:00:08+01:00", "--to", "25", "-o", "c.csv"];
    let text = said(folder, &args);
    assert!(text.contains("4 sessions: 2 kept whole, 1 in part, 1 left out; 3 calls"), "{text}");
    assert_eq!(meta(folder, "c.csv").start.as_deref(), Some("2026-03-02T08:00:08Z"));
    let made = read_all(&folder.join("c.csv")).unwrap();
    let starts: Vec<Span> = made.sessions.iter().map(|session| session.calls[0].at).collect();
    assert_eq!(starts, [1, 2, 12].map(Span::from_secs));
    said(folder, &["check", "c.csv"]);
}

#[test]
fn merged_traces_begin_together_apart_or_by_the_clock() {
    let folder = folder();
    let folder = folder.path();
    fs::copy(folder.join("t.csv"), folder.join("u.csv")).unwrap();
    fs::write(folder.join("u.meta.json"), META.replace("08:00:00", "08:01:00")).unwrap();
    for (args, starts) in [
        (&[][..], [0, 0]),
        (&["--offset", "15"], [0, 15]),
        (&["--offset", "-15"], [15, 0]),
        (&["--clock"], [0, 60]),
    ] {
        let all = [&["merge", "t.csv", "u.csv", "-o", "m.csv"], args].concat();
        said(folder, &all);
        let made = read_all(&folder.join("m.csv")).unwrap();
        let start = |id: &str| {
            let session = made.sessions.iter().find(|session| &*session.id == id).unwrap();
            session.calls[0].at
        };
        assert_eq!([start("t/one"), start("u/one")], starts.map(Span::from_secs), "{args:?}");
    }
    let made = meta(folder, "m.csv");
    assert_eq!(made.start.as_deref(), Some("2026-03-02T08:00:00Z"));
    assert_eq!((made.source.as_deref(), made.origin_block_size), (Some("a log"), Some(16)));
    assert_eq!(made.notes, ["t: ann was on leave", "u: ann was on leave"]);
    // Calls of no tenant become the part's own, others are told apart by it.
    let made = read_all(&folder.join("m.csv")).unwrap();
    assert_eq!(&*made.sessions[0].calls[0].tenant, "t/web");
}

#[test]
fn new_names_leave_nothing_of_the_old_ones() {
    let folder = folder();
    let folder = folder.path();
    let args = ["anonymise", "t.csv", "--keep", "models", "--map", "names.csv", "-o", "x.csv"];
    let text = said(folder, &args);
    assert!(text.contains("left out of the sidecar: ann was on leave"), "{text}");
    let made = fs::read_to_string(folder.join("x.csv")).unwrap();
    let row = "s000001,0,0,,0,user,0,0,m,t01,u0001,p1,@c0001,50,90,10,,ok,stop,0,,,,0,,,";
    assert!(made.contains(row), "{made}");
    let names = fs::read_to_string(folder.join("names.csv")).unwrap();
    let first = "kind,old,new\ncontexts,tools,c0001\nsessions,one,s000001\ntenants,web,t01\n";
    assert!(names.starts_with(first), "{names}");
    let sidecar = fs::read_to_string(folder.join("x.meta.json")).unwrap();
    for gone in ["log", "2026", "ann", "hand", "t.csv"] {
        assert!(!sidecar.contains(gone), "{gone} is left: {sidecar}");
    }
    assert_eq!(meta(folder, "x.csv").licence.as_deref(), Some("CC0"));
}

#[test]
fn check_shows_every_violation_and_ends_with_2() {
    let folder = folder();
    let folder = folder.path();
    let text = said(folder, &["check", "t.csv"]);
    assert!(text.contains("sessions         4\ncalls            5, 0 of subagents"), "{text}");
    let bad = "\
@tools,,,,,,,,,,,,@none,0,50,,,
one,0,0,,0,user,0,0,m,web,ann,chat,@tools,50,90,10,,ok
one,1,9,7,3,tool,0,0,m,web,ann,chat,0,101,120,10,,ok
one,2,8,0,3,tool,0,0,m,web,ann,chat,0,100,120,10,,ok
two,0,10,,0,user,0,0,m,lab,bob,code,@tools,50,70
three,0,x,,0,user,0,0,m,web,eve,chat,,0,70,10,,ok
three,1,y,,0,user,0,0,m,web,eve,chat,,0,70,10,,ok
one,0,30,,0,user,0,0,m,lab,joe,code,,0,70,10,,ok
four,0,5,,0,user,0,0,m,lab,joe,code,,0,70,10,,ok
";
    fs::write(folder.join("bad.csv"), format!("{HEAD}{bad}")).unwrap();
    let output = tool(folder, &["check", "bad.csv"]).assert().code(2).get_output().clone();
    assert_eq!(output.stdout, b"");
    let found = String::from_utf8(output.stderr).unwrap();
    let lines: Vec<&str> = found.lines().filter(|line| line.starts_with("error: ")).collect();
    let expected = [
        "error: bad.csv:2:13: base: `@none` is not declared above",
        "error: bad.csv:4:4: after: the session has no call 7",
        "error: bad.csv:5:3: at_s: found `8`, allowed: 9 or later",
        "error: bad.csv:6: the row is too short: 15 cells, the header has 18 columns",
        "error: bad.csv:7:3: at_s: found `x`",
        "error: bad.csv:9:1: session: session `one` comes back after another",
        "error: bad.csv: rules of a trace are broken 6 times",
    ];
    assert_eq!(lines.len(), expected.len(), "{found}");
    for (line, expected) in lines.iter().zip(expected) {
        assert!(line.starts_with(expected), "{line} is not {expected}");
    }
    let args = ["check", "bad.csv", "--limit", "1"];
    let output = tool(folder, &args).assert().code(2).get_output().clone();
    let found = String::from_utf8(output.stderr).unwrap();
    assert!(found.contains("broken 6 times, 5 not shown (--limit)"), "{found}");
}

#[test]
fn wrong_input_ends_with_2_and_leaves_no_file() {
    let folder = folder();
    let folder = folder.path();
    fs::write(folder.join("bad.csv"), format!("{HEAD}{ROWS}five,0,1,,\n")).unwrap();
    fs::create_dir(folder.join("d")).unwrap();
    fs::write(folder.join("d/t.csv"), format!("{HEAD}{ROWS}")).unwrap();
    for (args, said) in [
        (&["sample", "t.csv"][..], "<--share <SHARE>|--sessions <N>>"),
        (&["sample", "t.csv", "--share", "0"], "--share: found `0`, allowed: a share above 0"),
        (&["sample", "t.csv", "--share", "1.5"], "--share: found `1.5`"),
        (&["sample", "t.csv", "--sessions", "5"], "--sessions: found `5`, allowed: 1 to 4"),
        (&["sample", "none.csv", "--share", "1"], "none.csv: cannot open"),
        (&["sample", "d", "--share", "1"], "d: a trace tool reads its input twice"),
        (&["sample", "bad.csv", "--share", "1"], "bad.csv:8: the row is too short"),
        (&["scale", "t.csv", "--by", "0"], "--by: found `0`, allowed: a factor above 0"),
        (&["scale", "t.csv", "--by", "NaN"], "--by: found `NaN`"),
        (&["scale", "t.csv", "--by", "2", "--jitter", "x"], "a decimal number of seconds"),
        (&["cut", "t.csv", "--from", "noon"], "seconds from the start of the trace"),
        (&["cut", "t.csv", "--from", "50"], "no call lies in this part"),
        (
            &["cut", "t.csv", "--from", "9", "--to", "9"],
            "--to: found `9`, allowed: an end after the start",
        ),
        (&["cut", "t.csv", "--to", "2026-03-02T07:59:00Z"], "--to: found `2026-03-02T07:59:00Z`"),
        (&["cut", "d/t.csv", "--from", "2026-03-02T09:00:00Z"], "--from: a clock time needs"),
        (&["merge", "t.csv"], "2 values required"),
        (&["merge", "t.csv", "d/t.csv"], "--tenant: two traces are called `t`"),
        (&["merge", "t.csv", "d/t.csv", "--tenant", "a"], "--tenant: found `a`, allowed: 2 names"),
        (&["merge", "t.csv", "d/t.csv", "--tenant", "a,b/c"], "a name without `/`"),
        (&["merge", "t.csv", "d/t.csv", "--tenant", "a,b", "--clock"], "d/t.csv: its sidecar"),
        (&["merge", "t.csv", "d/t.csv", "--offset", "1,2", "--tenant", "a,b"], "--offset: found"),
        (&["anonymise", "t.csv", "--keep", "names"], "invalid value 'names'"),
        (&["anonymise", "t.csv", "--round-start", "0"], "--round-start: found `0`"),
    ] {
        let args = [args, &["-o", "out.csv"]].concat();
        let output = tool(folder, &args).assert().code(2).get_output().clone();
        assert_eq!(output.stdout, b"", "{args:?}");
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(error.contains(said), "{args:?}: {error}");
    }
    let args = ["scale", "t.csv", "--by", "2", "-o", "./t.csv"];
    let output = tool(folder, &args).assert().code(2).get_output().clone();
    assert!(String::from_utf8_lossy(&output.stderr).contains("would replace a file"));
    let mut left: Vec<String> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    left.sort();
    assert_eq!(left, ["bad.csv", "d", "t.csv", "t.meta.json"]);
}

#[test]
fn no_output_takes_the_place_of_an_input_or_its_sidecar() {
    let folder = folder();
    let folder = folder.path();
    let before = fs::read(folder.join("t.csv")).unwrap();
    let sidecar = "the sidecar would replace that of an input";
    for (args, said) in [
        (&["anonymise", "t.csv", "-o", "t.csv.gz"][..], sidecar),
        (&["sample", "t.csv", "--share", "1", "-o", "./t.csv.zst"], sidecar),
        (&["scale", "t.csv", "--by", "2", "-o", "t.csv.gz"], sidecar),
        (&["cut", "t.csv", "--from", "1", "-o", "t.csv.gz"], sidecar),
        (&["merge", "t.csv", "t.csv", "--tenant", "a,b", "-o", "t.csv.gz"], sidecar),
        (&["scale", "t.csv", "--by", "2", "-o", "t.csv"], "would replace a file"),
        (&["scale", "t.csv", "--by", "2", "-o", "t.meta.json"], "the sidecar of an input"),
        (&["anonymise", "t.csv", "--map", "t.csv", "-o", "v.csv"], "--map: the names would"),
        (&["anonymise", "t.csv", "--map", "./v.csv", "-o", "v.csv"], "--map: the names would"),
        (&["anonymise", "t.csv", "--map", "v.meta.json", "-o", "v.csv.gz"], "sidecar of a trace"),
        (&["anonymise", "t.csv", "--map", "t.meta.json", "-o", "v.csv"], "sidecar of a trace"),
    ] {
        let output = tool(folder, args).assert().code(2).get_output().clone();
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(error.contains(said), "{args:?}: {error}");
    }
    assert_eq!(fs::read(folder.join("t.csv")).unwrap(), before);
    assert_eq!(fs::read_to_string(folder.join("t.meta.json")).unwrap(), META);
    assert_eq!(fs::read_dir(folder).unwrap().count(), 2);
}
