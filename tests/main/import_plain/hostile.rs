//! Rows that cannot be used, and files that are nothing at all.

use std::path::Path;

use proptest::prelude::*;
use tonnage::trace::canonical::{Compression, Writer};
use tonnage::trace::import::{Format, Job, Options, Outputs};

use super::{Desk, calls};

const AZURE: &str = "TIMESTAMP,ContextTokens,GeneratedTokens\n\
                     2023-11-16 18:17:03.9799600,4808,10\n";
const BURST: &str = "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,\
                     Log Type\n5,a,1.5,m,472,18,chat\n9,a,1.5,m,500,0,chat\n9,,1.5,m,600,8,api\n";
const STEPS: &str = "session,step,t_s,prompt_tokens,completion_tokens,cached_tokens,\
                     reasoning_tokens,new_input_chars,provider,finish\n\
                     a,0,0,2513,32,2141,54,8275,google,stop\na,1,6,4551,470,2093,0,5,google,stop\n";
const ROUNDS: &str = concat!(
    r#"{"provider":"claude","session_id":"s","round_index":0,"model":"m","input_tokens_total":9,"#,
    r#""prefix_tokens":4,"newly_append_tokens":5,"output_tokens":1,"timing_events":["#,
    r#"{"event_type":"user_message","timestamp":"2026-06-01T05:40:20.151Z"},"#,
    r#"{"event_type":"text","timestamp":"2026-06-01T05:40:21.151Z"}]}"#,
    "\n"
);

const GROUPS: &str = "\
request_id,arrival_us,prefix_group,prefix_tokens,suffix_tokens,output_tokens\n\
                      0,1480,18,2048,1287,250\n1,205886,25,2048,2509,216\n2,205887,,0,9,1\n";
const SESSIONS: &str = concat!(
    r#"{"id":"a","start_s":1.5,"steps":[{"input":100,"new":100,"output":20,"kind":"user"},"#,
    r#"{"input":130,"new":10,"output":5,"gap":2.5,"kind":"tool"}]}"#,
    "\n"
);

/// A row that is bad, and what is said of it.
type BadRow = (String, &'static str);

/// Formats, each with a good file and bad rows.
fn bad_rows() -> Vec<(&'static str, &'static str, Vec<BadRow>)> {
    let row = |text: &str| text.to_owned();
    vec![
        (
            "azure",
            AZURE,
            vec![
                (
                    row("2023-11-16,1,1"),
                    "1: TIMESTAMP: found `2023-11-16`, allowed: a date and time",
                ),
                (row("2023-11-16 18:17:03,-1,1"), "2: ContextTokens: found `-1`, allowed: a whole"),
                (row("2023-11-16 18:17:03,1,9999999999"), "3: GeneratedTokens: found `9999999999`"),
                (row("2023-11-16 18:17:03,1"), " found 2 fields, allowed: 3 as in the header"),
            ],
        ),
        (
            "burstgpt",
            BURST,
            vec![
                (row("x,a,1,m,1,1,chat"), "1: Timestamp: found `x`, allowed: a number of seconds"),
                (row("5,@a,1,m,1,1,chat"), "2: Session ID: found `@a`"),
                (row("5,a,soon,m,1,1,chat"), "3: Elapsed time: found `soon`"),
                (row("5,a,1,m,1.5,1,chat"), "5: Request tokens: found `1.5`"),
                (row("99999999999,a,1,m,1,1,chat"), "1: Timestamp: found `99999999999`"),
            ],
        ),
        (
            "mini-swe-agent",
            STEPS,
            vec![
                (row("a,1,9,1,1,0,0,0,g,stop"), "2: step: step 1 of run `a` is given twice"),
                (row("b,x,9,1,1,0,0,0,g,stop"), "2: step: found `x`, allowed: a whole number"),
                (row("@b,0,9,1,1,0,0,0,g,stop"), "1: session: found `@b`"),
                (row("b,0,9,1,1,2,0,0,g,stop"), "6: cached_tokens: found `2`, allowed: at most 1"),
            ],
        ),
        (
            "prefix-groups",
            GROUPS,
            vec![
                (row("1,5,18,2048,1,1"), "1: request_id: the request `1` is given twice"),
                (row("@9,5,18,2048,1,1"), "1: request_id: found `@9`"),
                (row("9,-5,18,2048,1,1"), "2: arrival_us: found `-5`, allowed: a whole number"),
                (row("9,9999999999999999,18,1,1,1"), "2: arrival_us: found `9999999999999999`"),
                (row("9,5,,2048,1,1"), "3: prefix_group: found ``, allowed: the group"),
                (row("9,5,@g,2048,1,1"), "3: prefix_group: found `@g`"),
                (row("9,5,18,1000000000,1,1"), "5: suffix_tokens: found `1`, allowed: at most"),
            ],
        ),
        ("inference-lab", SESSIONS, bad_sessions()),
        ("tracelab", ROUNDS, bad_rounds()),
    ]
}

fn bad_rounds() -> Vec<BadRow> {
    let round = |from: &str, to: &str| ROUNDS.trim_end().replacen(from, to, 1);
    vec![
        (round("\"prefix_tokens\":4", "\"prefix_tokens\":5"), "input_tokens_total: found `9`"),
        (round("\"round_index\":0", "\"round_index\":-1"), "round_index: found `-1`"),
        (
            round("user_message\",\"timestamp\":\"2026", "user_message\",\"timestamp\":\"x"),
            "timing_events[0].timestamp: found",
        ),
        ("{\"provider\":".to_owned(), "EOF while parsing"),
        ("[]".to_owned(), "found `[]`, allowed: a JSON object, one round"),
    ]
}

fn bad_sessions() -> Vec<BadRow> {
    let named = SESSIONS.trim_end().replacen("\"a\"", "\"b\"", 1);
    let session = |from: &str, to: &str| named.replacen(from, to, 1);
    vec![
        (SESSIONS.trim_end().to_owned(), "id: the session `a` is given twice"),
        (session("\"b\"", "\"@b\""), "id: found `@b`"),
        (session("\"start_s\":1.5,", ""), "start_s: the value is missing"),
        (session("1.5", "-1"), "start_s: found `-1`, allowed: a number from 0"),
        (session("\"new\":10,", ""), "steps[1].new: the value is missing"),
        (session("\"new\":10,", "\"new\":131,"), "steps[1].new: found `131`, allowed: at most"),
        (session("\"input\":100", "\"input\":0"), "steps[0].input: found `0`, allowed: an integer"),
        (session("\"gap\"", "\"gapp\""), "steps[1]: unknown field `gapp`, allowed: input, new"),
        (session("2.5", "1e300"), "steps[1].gap: found `1e+300`"),
        (session("\"steps\"", "\"step\""), "unknown field `step`, allowed: id, start_s, steps"),
    ]
}

#[test]
fn a_bad_row_is_refused_with_its_place_or_left_out_and_counted() {
    for (format, good, rows) in bad_rows() {
        let desk = Desk::new();
        let lines = good.lines().count();
        let (kept, _) = desk.import(format, &desk.write("good", good), &[]);
        std::fs::remove_file(desk.path("out.csv")).expect("it is there");
        std::fs::remove_file(desk.path("out.meta.json")).expect("it is there");
        for (row, said) in &rows {
            let file = desk.write("bad", format!("{good}{row}\n"));
            let error = desk.refuse(format, &file, &[]);
            let place = format!("bad:{}:", lines + 1);
            assert!(error.contains(&place) && error.contains(said), "{row}: {error}");
        }
        let all: String = rows.iter().map(|(row, _)| format!("{row}\n")).collect();
        let (trace, said) =
            desk.import(format, &desk.write("bad", format!("{good}{all}")), &["--skip-bad"]);
        assert_eq!(trace, kept, "{format}");
        // Rows, or sessions where a row is one.
        let count = rows.len().to_string();
        let dropped = |line: &str| line.contains(" dropped ") && line.ends_with(&count);
        assert!(said.lines().any(dropped) && said.contains("cannot be used"), "{said}");
        // Five of them, and how many more there are.
        assert_eq!(said.matches("warning: left out: ").count(), rows.len().min(6), "{said}");
    }
}

#[test]
fn a_file_of_another_form_is_refused_with_what_it_lacks() {
    let desk = Desk::new();
    for (format, text, said) in [
        ("azure", "", "the file is empty"),
        ("azure", "TIMESTAMP,ContextTokens\n", ":1: the header lacks GeneratedTokens"),
        ("azure", AZURE.lines().next().unwrap_or_default(), "no call to import: 0 rows read"),
        (
            "burstgpt",
            "Timestamp,model,Request tokens,Response tokens,Log Type\n",
            "`model` is there; the format has `Model`",
        ),
        ("mini-swe-agent", AZURE, "the header lacks session, step, t_s"),
        ("tracelab", "\n\n", "the file holds no round"),
        ("azure", "TIMESTAMP,TIMESTAMP,ContextTokens,GeneratedTokens\n", "appears twice"),
    ] {
        let error = desk.refuse(format, &desk.write("x.csv", text), &[]);
        assert!(error.contains(said), "{error}");
    }
    let error = desk.refuse("azure", &desk.path("none.csv"), &[]);
    assert!(error.contains("none.csv: cannot open"), "{error}");
    for (format, said) in
        [("azure", "no regular file, and it must be read twice"), ("auto", "allowed: one of")]
    {
        let error = desk.refuse(format, desk.0.path(), &[]);
        assert!(error.contains(said), "{error}");
    }
    let file = desk.write("steps.csv", STEPS);
    let error = desk.refuse("mini-swe-agent", &file, &["--assume-tps", "0"]);
    assert!(error.contains("--assume-tps: found `0`, allowed: a number from 1"), "{error}");
}

#[test]
fn columns_that_are_not_read_are_told_of() {
    let desk = Desk::new();
    let text = "TIMESTAMP,ContextTokens,GeneratedTokens,Region\n2024-05-10 00:00:00+00:00,1,1,x\n";
    let (trace, said) = desk.import("azure", &desk.write("a.csv", text), &[]);
    assert_eq!(calls(&trace).count(), 1);
    assert!(said.contains("column \"Region\" is none of the format"), "{said}");
    let notes = desk.sidecar()["notes"].to_string();
    assert!(notes.contains("Region"), "{notes}");
}

/// Imports a text; what comes out must keep the rules of a trace.
fn try_import(format: Format, file: &Path, skip_bad: bool, outputs: Outputs) {
    let options = Options { skip_bad, outputs, ..Options::default() };
    let mut out = Vec::new();
    let mut writer =
        Writer::from_write(&mut out, Compression::None, "memory").expect("it can be written");
    if let Err(error) = format.reader()(&Job::new(&[file.to_owned()], &options), &mut writer) {
        let text = error.to_string();
        assert!(!text.contains("memory:"), "the rules of a trace are broken: {text}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn no_file_makes_a_reader_panic_or_break_the_rules(
        edits in prop::collection::vec((any::<prop::sample::Index>(), "[ -~\n\u{e4}]{0,9}"), 0..6),
        repeat in 1usize..4,
        outputs in prop::sample::select(Outputs::ALL.to_vec()),
        skip_bad in any::<bool>(),
    ) {
        let desk = Desk::new();
        for (format, text) in [
            (Format::Azure, AZURE), (Format::BurstGpt, BURST),
            (Format::MiniSweAgent, STEPS), (Format::TraceLab, ROUNDS),
        ] {
            let (head, rows) = match format {
                Format::TraceLab => ("", text),
                _ => text.split_at(text.find('\n').map_or(0, |end| end + 1)),
            };
            let mut content: Vec<char> = format!("{head}{}", rows.repeat(repeat)).chars().collect();
            for (place, new) in &edits {
                let at = place.index(content.len());
                let end = (at + 3).min(content.len());
                content.splice(at..end, new.chars());
            }
            let content: String = content.into_iter().collect();
            try_import(format, &desk.write("x", content), skip_bad, outputs);
        }
    }

    #[test]
    fn numbers_of_any_size_keep_the_rules(
        rows in prop::collection::vec(
            (0u64..40, 0u64..3, 0u64..1_000, 0u64..400, 0u64..1_500), 1..25,
        ),
        outputs in prop::sample::select(Outputs::ALL.to_vec()),
    ) {
        let desk = Desk::new();
        let mut burst = format!("{}\n", BURST.lines().next().unwrap_or_default());
        let mut steps = format!("{}\n", STEPS.lines().next().unwrap_or_default());
        for (number, (at, session, prompt, output, cached)) in rows.iter().enumerate() {
            let session_text = if *session == 0 { String::new() } else { session.to_string() };
            burst += &format!("{at},{session_text},{cached},m,{prompt},{output},x\n");
            let reasoning = output / 3 * (at % 2);
            let cached = cached.min(prompt);
            steps += &format!("{session},{number},{at},{prompt},{output},{cached},{reasoning},");
            steps += "0,g,stop\n";
        }
        try_import(Format::BurstGpt, &desk.write("b", burst), false, outputs);
        try_import(Format::MiniSweAgent, &desk.write("s", steps), false, outputs);
    }
}

#[test]
fn bytes_behind_packed_rows_are_named_and_not_called_a_cut() {
    use std::io::Write;
    let desk = Desk::new();
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(AZURE.as_bytes()).expect("it can be packed");
    let packed = gzip.finish().expect("it can be packed");
    let file = desk.write("more.gz", [&packed[..], b"\0\0\0\0"].concat());
    let error = desk.refuse("azure", &file, &[]);
    assert!(error.contains("bytes that are no gzip follow the compressed content"), "{error}");
    let file = desk.write("less.gz", &packed[..packed.len() - 3]);
    let error = desk.refuse("azure", &file, &[]);
    assert!(!error.contains("no gzip") && error.contains("cut short"), "{error}");
}

#[test]
fn a_trace_is_not_written_under_the_name_of_something_else() {
    let desk = Desk::new();
    let file = desk.write("good", AZURE);
    for name in ["x.parquet", "x", "x.json", ".csv", "x.csv.bz2"] {
        let output = desk.path(name);
        let mut command = assert_cmd::Command::cargo_bin("tonnage").expect("it is built");
        let done = command.args(["import", "azure"]).arg(&file).arg("-o").arg(&output).assert();
        let error = String::from_utf8_lossy(&done.code(2).get_output().stderr).into_owned();
        assert!(error.contains("written as .csv, .csv.gz or .csv.zst"), "{name}: {error}");
        assert!(!output.exists());
    }
}
