//! The import of traces without block ids, and of files whose format is to be found out.

use std::fs;
use std::path::{Path, PathBuf};

use assert_cmd::Command;
use serde_json::Value;
use tempfile::TempDir;
use tonnage::trace::canonical;
use tonnage::trace::record::{Base, Call, Cause, Finish, Status, Trace};
use tonnage::units::{NANOS_PER_SEC, Span};

#[path = "import_plain/auto.rs"]
mod auto;
#[path = "import_plain/hostile.rs"]
mod hostile;

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
}

/// A folder for what a test writes.
struct Desk(TempDir);

impl Desk {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a folder can be made"))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, content).expect("it can be written");
        path
    }

    fn run(&self, format: &str, file: &Path, more: &[&str]) -> assert_cmd::assert::Assert {
        let mut command = Command::cargo_bin("tonnage").expect("it is built with the tests");
        command.args(["import", format]).arg(file).arg("-o").arg(self.path("out.csv"));
        command.args(more).assert()
    }

    /// Imports a file, and gives the trace and what was said.
    fn import(&self, format: &str, file: &Path, more: &[&str]) -> (Trace, String) {
        let done = self.run(format, file, more).success();
        let said = [&done.get_output().stdout[..], &done.get_output().stderr].concat();
        let trace = canonical::read_all(&self.path("out.csv")).expect("it keeps the rules");
        (trace, String::from_utf8(said).expect("it is text"))
    }

    /// Fails to import a file, and gives what was said.
    fn refuse(&self, format: &str, file: &Path, more: &[&str]) -> String {
        let done = self.run(format, file, more).code(2);
        assert!(!self.path("out.csv").exists() && !self.path("out.meta.json").exists());
        String::from_utf8(done.get_output().stderr.clone()).expect("it is text")
    }

    fn stats(&self) -> Value {
        let mut command = Command::cargo_bin("tonnage").expect("it is built with the tests");
        let done = command.arg("stats").arg(self.path("out.csv")).arg("--json").assert().success();
        serde_json::from_slice(&done.get_output().stdout).expect("it is JSON")
    }

    fn sidecar(&self) -> Value {
        let text = fs::read(self.path("out.meta.json")).expect("it is there");
        serde_json::from_slice(&text).expect("it is JSON")
    }
}

fn reference(name: &str) -> Value {
    let text = fs::read(data(name)).expect("it is there");
    serde_json::from_slice(&text).expect("it is JSON")
}

/// All figures of the reference that are no definition come out of the imported trace.
fn assert_figures(found: &Value, expected: &Value, not_of_a_trace: &[&str]) {
    let about = ["name", "block_size", "definitions"];
    let mut equal = 0;
    for (key, value) in expected.as_object().expect("an object") {
        if about.contains(&key.as_str()) || not_of_a_trace.contains(&key.as_str()) {
            continue;
        }
        let ours = if key == "arrival" { "arrival_on_merged_timeline" } else { key.as_str() };
        assert_eq!(&found[ours], value, "{key}");
        equal += 1;
    }
    assert!(equal >= 8, "only {equal} figures");
}

fn calls(trace: &Trace) -> impl Iterator<Item = &Call> {
    trace.sessions.iter().flat_map(|session| &session.calls)
}

fn secs(text: &str) -> Span {
    Span::parse_secs(text).expect("a number of seconds")
}

#[test]
fn azure_gives_the_reference_figures() {
    for name in ["code", "conv-30min"] {
        let desk = Desk::new();
        let file = data(&format!("azure/{name}.csv.gz"));
        let (trace, said) = desk.import("azure", &file, &["--licence", "CC-BY-4.0"]);
        let expected = reference(&format!("azure/{name}.stats.json"));
        assert_figures(&desk.stats(), &expected, &[]);
        assert!(trace.sessions.iter().all(|session| session.calls.len() == 1));
        assert!(said.contains("by time, as in the files"), "{said}");
    }
}

#[test]
fn azure_2024_is_read_and_put_in_order() {
    let desk = Desk::new();
    let text = "TIMESTAMP,ContextTokens,GeneratedTokens\n\
                2024-05-10 00:00:02.500000+00:00,30,5\n\
                2024-05-10 02:00:00.009930+02:00,2162,0\n\
                2024-05-10 00:00:02.500000+00:00,0,7\n";
    let (trace, said) = desk.import("azure", &desk.write("a.csv", text), &[]);
    let rows: Vec<_> = calls(&trace)
        .map(|call| (call.at.secs_text(), call.prompt_tokens.0, call.output_tokens.0))
        .collect();
    let at = "2.49007".to_owned();
    assert_eq!(rows, [("0".to_owned(), 2162, 0), (at.clone(), 30, 5), (at, 0, 7)]);
    for part in ["sorted by time", "1 calls have an empty prompt", "1 calls have no output"] {
        assert!(said.contains(part), "{said}");
    }
    assert_eq!(desk.sidecar()["start"], "2024-05-10T00:00:00.00993Z");
    assert_eq!(trace.sessions[2].id.as_ref(), "s000002");
}

#[test]
fn files_that_are_in_order_one_after_the_other_are_one_trace() {
    let desk = Desk::new();
    let head = "TIMESTAMP,ContextTokens,GeneratedTokens\n";
    let first = desk.write("1.csv", format!("{head}2024-05-10 00:00:00+00:00,1,1\n"));
    let second = desk.write("2.csv", format!("{head}2024-05-10 00:00:09+00:00,2,2\n"));
    let paths = |files: [&Path; 2]| files.map(|file| file.display().to_string());
    for (files, order) in [
        (paths([&first, &second]), "as in the files"),
        (paths([&second, &first]), "which the files are not"),
    ] {
        let (trace, said) = desk.import("azure", Path::new(&files[0]), &[&files[1]]);
        let prompts: Vec<u64> = calls(&trace).map(|call| call.prompt_tokens.0).collect();
        assert_eq!(prompts, [1, 2]);
        assert!(said.contains(order), "{said}");
    }
}

#[test]
fn burstgpt_of_the_first_releases_is_calls_that_may_have_failed() {
    let desk = Desk::new();
    let text = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n\
                5,ChatGPT,472,18,490,Conversation log\n\
                45,GPT-4,1087,230,1318,API log\n\
                1106,ChatGPT,0,0,0,Conversation log\n";
    let (trace, said) = desk.import("burstgpt", &desk.write("b.csv", text), &[]);
    let rows: Vec<_> = calls(&trace)
        .map(|call| (call.at.secs_text(), &*call.model, &*call.profile, call.status))
        .collect();
    let chat = "Conversation log";
    assert_eq!(rows[0], ("0".to_owned(), "ChatGPT", chat, Status::Ok));
    assert_eq!(rows[1], ("40".to_owned(), "GPT-4", "API log", Status::Ok));
    assert_eq!(rows[2], ("1101".to_owned(), "ChatGPT", chat, Status::Failed));
    for part in ["3, 1 of them failed", "1 rows whose total is not the sum"] {
        assert!(said.contains(part), "{said}");
    }
    let notes = desk.sidecar()["notes"].to_string();
    assert!(notes.contains("starts at second 5 of the origin's clock"), "{notes}");
}

#[test]
fn burstgpt_with_conversations_makes_sessions() {
    let desk = Desk::new();
    let text = "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,\
                Total tokens,Log Type\n\
                10.0,a,4.5,GPT-4,100,20,120,Conversation log\n\
                11.0,,2,GPT-4,55,5,60,API log\n\
                12.0,b,nan,GPT-4,9,600,609,Conversation log\n\
                60.0,a,3.0,GPT-4,130,10,140,Conversation log\n\
                70.0,a,1,GPT-4,0,0,0,Conversation log\n\
                75.0,a,2,GPT-4,150,10,160,Conversation log\n\
                90.0,b,5,GPT-4,30,1,31,Conversation log\n";
    let (trace, said) = desk.import("burstgpt", &desk.write("b.csv", text), &["--keep-ids"]);
    let ids: Vec<&str> = trace.sessions.iter().map(|session| &*session.id).collect();
    assert_eq!(ids, ["a", "s000001", "b"]);
    let a = &trace.sessions[0].calls;
    let told: Vec<_> = a.iter().map(|call| (call.gap, call.kept_tokens.0, call.turn)).collect();
    // The third failed after a second; the fourth asks again and continues the second.
    assert_eq!(
        told,
        [(Span::ZERO, 0, 0), (secs("45.5"), 120, 1), (secs("7"), 0, 2), (secs("4"), 140, 2),]
    );
    assert_eq!(
        (a[2].status, a[3].cause, &a[3].base),
        (Status::Failed, Cause::Retry, &Base::Call(1))
    );
    assert_eq!(a[2].seen_duration, Some(secs("1")));
    // Its duration is 1 s + 600 / 60 per s; the next prompt is shorter than its answer.
    let b = &trace.sessions[2].calls[1];
    assert_eq!((b.gap, b.kept_tokens.0, b.base.clone()), (secs("67"), 0, Base::None));
    for part in ["3, 1 of them single calls", "1 calls of conversations had their duration"] {
        assert!(said.contains(part), "{said}");
    }
    let (numbered, _) = desk.import("burstgpt", &desk.path("b.csv"), &[]);
    assert_eq!(numbered.sessions[2].id.as_ref(), "s000002");
}

#[test]
fn mini_swe_agent_gives_the_reference_figures() {
    let desk = Desk::new();
    let file = data("mini-swe-agent/steps.csv.gz");
    let (trace, said) = desk.import("mini-swe-agent", &file, &["--outputs", "kept"]);
    let expected = reference("mini-swe-agent/steps.stats.json");
    // What a provider reported is no figure of the simulated cache; it is compared below.
    let reported = [
        "provider_reported_cached_share_tokens",
        "provider_step_hit_tokens",
        "append_only_ideal_share_tokens",
    ];
    assert_figures(&desk.stats(), &expected, &reported);
    let sum = |of: fn(&Call) -> u64| calls(&trace).map(of).sum::<u64>() as f64;
    let prompt = sum(|call| call.prompt_tokens.0);
    let cached = sum(|call| call.seen_cached.expect("it is reported").0) / prompt;
    let kept = sum(|call| call.kept_tokens.0) / prompt;
    let close = |value: f64, key: &str| (value - expected[key].as_f64().expect("a number")).abs();
    assert!(close(cached, reported[0]) < 1e-6, "{cached}");
    assert!(close(kept, reported[2]) < 1e-6, "{kept}");
    for step in 0..5 {
        let of_step = || trace.sessions.iter().filter_map(|session| session.calls.get(step));
        let cached: u64 = of_step().filter_map(|call| call.seen_cached).map(|c| c.0).sum();
        let prompt: u64 = of_step().map(|call| call.prompt_tokens.0).sum();
        let share = expected[reported[1]][step.to_string()].as_f64().expect("a number");
        assert!((cached as f64 / prompt as f64 - share).abs() < 6e-5, "step {step}");
    }
    assert!(said.contains("14 calls report more reasoning than output"), "{said}");
    assert_eq!(calls(&trace).filter(|call| call.finish == Finish::Length).count(), 1);
}

#[test]
fn mini_swe_agent_gaps_are_what_the_estimated_server_time_leaves() {
    let desk = Desk::new();
    let file = data("mini-swe-agent/steps.csv.gz");
    let (trace, _) = desk.import("mini-swe-agent", &file, &["--assume-tps", "50"]);
    let mut with_gap = 0;
    for pair in trace.sessions.iter().flat_map(|session| session.calls.windows(2)) {
        let interval = pair[1].at - pair[0].at;
        let served = Span(NANOS_PER_SEC + pair[0].output_tokens.0 * NANOS_PER_SEC / 50);
        assert_eq!(pair[1].gap, interval.saturating_sub(served));
        with_gap += u32::from(pair[1].gap > Span::ZERO);
    }
    assert!(with_gap > 8_000, "{with_gap}");
    // Reasoning does not come back, so the answer that follows it is not a prefix of anything.
    let reasoned = "session,step,t_s,prompt_tokens,completion_tokens,cached_tokens,\
                    reasoning_tokens\n\
                    r,0,0,100,50,0,20\nr,1,9,140,5,0,0\nr,2,20,160,5,,0\nr,3,30,150,5,80,0\n";
    let (trace, _) = desk.import("mini-swe-agent", &desk.write("r.csv", reasoned), &[]);
    let kept: Vec<u64> = calls(&trace).map(|call| call.kept_tokens.0).collect();
    assert_eq!(kept, [0, 100, 145, 80]);
    assert_eq!(trace.sessions[0].calls[2].seen_cached, None);
}

#[test]
fn tracelab_knows_what_tools_and_people_took() {
    let desk = Desk::new();
    let (trace, said) = desk.import("tracelab", &data("tracelab/round_trace.jsonl.gz"), &[]);
    assert_eq!(trace.sessions.len(), 2);
    let [codex, claude] = [&trace.sessions[0].calls, &trace.sessions[1].calls];
    assert_eq!((codex.len(), claude.len()), (9, 10));
    assert_eq!((&*claude[0].model, &*claude[0].profile), ("claude-opus-4-8", "claude"));
    // Two tools run beside each other until 50.938; the answer ended at 31.647.
    assert_eq!((claude[1].gap, claude[1].cause), (secs("19.291"), Cause::Tool));
    // The person read for 42.333 - 23.420 s and one second more.
    assert_eq!((claude[5].gap, claude[5].cause, claude[5].turn), (secs("19.913"), Cause::User, 1));
    assert_eq!(claude[0].seen_duration, Some(secs("11.496")));
    assert_eq!((claude[0].seen_cached.map(|t| t.0), claude[3].kept_tokens.0), (Some(27217), 41067));
    // Codex dropped its reasoning at the second turn: what was cached is what is surely the same.
    assert_eq!((codex[5].kept_tokens.0, codex[5].turn, codex[8].turn), (9216, 1, 2));
    let sums = calls(&trace).fold((0, 0), |(prompt, output), call| {
        (prompt + call.prompt_tokens.0, output + call.output_tokens.0)
    });
    assert_eq!(sums, (514_012, 11_335));
    assert!(said.contains("turns             5"), "{said}");
    assert_eq!(desk.sidecar()["start"], "2026-03-21T10:05:59.328Z");
}

#[test]
fn tracelab_rounds_without_times_are_placed_and_counted() {
    let desk = Desk::new();
    let round = |index: u32, total: u32, events: &str, tools: &str| {
        format!(
            r#"{{"provider":"claude","user":"ann","session_id":"s","model":"m",
            "round_index":{index},"trace_key":"k{index}","input_tokens_total":{total},
            "prefix_tokens":0,
            "newly_append_tokens":{total},"output_tokens":120,"tools":[{tools}],
            "timing_events":[{events}]}}"#
        )
        .replace('\n', " ")
    };
    let event = |kind: &str, second: &str| {
        format!(r#"{{"event_type":"{kind}","timestamp":"2026-06-01T05:00:{second}Z"}}"#)
    };
    let tool =
        r#"{"emitted_at":"2026-06-01T05:00:05Z","result_at":null,"tool_wall_latency_ms":2500}"#;
    let lines = [
        round(0, 100, &[event("user_message", "00"), event("text", "05")].join(","), tool),
        // Tools were done at 7.5 s, which is when it began.
        round(1, 300, &event("text", "10"), ""),
        // Only an input: the answer took 1 + 120 / 60 s.
        round(2, 500, &event("user_message", "20"), ""),
        round(2, 500, &event("user_message", "20"), ""),
        round(3, 700, &[event("tool_result", "30"), event("text", "31")].join(","), ""),
    ];
    let (trace, said) = desk.import("tracelab", &desk.write("t.jsonl", lines.join("\n")), &[]);
    let told: Vec<_> =
        calls(&trace).map(|call| (call.at.secs_text(), call.gap.secs_text(), call.turn)).collect();
    let expected = [("0", "0", 0), ("7.5", "2.5", 0), ("20", "10", 1), ("30", "7", 1)];
    assert_eq!(told, expected.map(|(at, gap, turn)| (at.to_owned(), gap.to_owned(), turn)));
    assert_eq!(trace.sessions[0].calls[2].seen_duration, None);
    assert_eq!(&*trace.sessions[0].calls[0].user, "u01");
    for part in ["1 repeat the `trace_key`", "1 calls show no input", "1 calls show no output time"]
    {
        assert!(said.contains(part), "{said}");
    }
}

#[test]
fn requests_of_a_group_share_its_prefix() {
    let desk = Desk::new();
    let file = data("prefix-groups/requests.csv");
    let (trace, said) = desk.import("prefix-groups", &file, &["--licence", "CC0-1.0"]);
    assert!(said.contains("1024149 of prompts, 29921 of outputs"), "{said}");
    assert_eq!(trace.contexts.len(), 40);
    let context = trace.contexts.iter().map(|context| context.prompt_tokens.0);
    assert!(context.into_iter().all(|tokens| tokens == 2048));
    assert!(calls(&trace).all(|call| call.kept_tokens.0 == 2048 && call.base != Base::None));
    assert_eq!(calls(&trace).next().map(|call| call.at), Some(secs("0.00148")));
    let (alone, _) = desk.import("prefix-groups", &file, &["--no-sharing"]);
    assert!(alone.contexts.is_empty() && calls(&alone).all(|call| call.base == Base::None));
    let prompts = |trace: &Trace| calls(trace).map(|call| call.prompt_tokens).collect::<Vec<_>>();
    assert_eq!(prompts(&alone), prompts(&trace));
}

#[test]
fn a_group_has_its_longest_prefix_and_requests_the_part_they_name() {
    let desk = Desk::new();
    let text = "request_id,arrival_us,prefix_group,prefix_tokens,suffix_tokens,output_tokens,x\n\
                late,2000000,b,64,6,1,\nfirst,1000000,a,100,10,5,\nthird,3000000,a,160,0,0,\n";
    let (trace, said) = desk.import("prefix-groups", &desk.write("a", text), &["--keep-ids"]);
    let declared: Vec<_> =
        trace.contexts.iter().map(|context| (&*context.name, context.prompt_tokens.0)).collect();
    assert_eq!(declared, [("a", 160), ("b", 64)]);
    let rows: Vec<_> = trace
        .sessions
        .iter()
        .map(|session| (&*session.id, session.calls[0].kept_tokens.0))
        .collect();
    assert_eq!(rows, [("first", 100), ("late", 64), ("third", 160)]);
    assert!(said.contains("1 calls have no output") && said.contains("column \"x\""), "{said}");
}

#[test]
fn inference_lab_steps_repeat_all_that_is_not_new() {
    let desk = Desk::new();
    let file = data("inference-lab/sessions.jsonl");
    let (trace, said) = desk.import("inference-lab", &file, &["--keep-ids"]);
    assert_eq!((trace.sessions.len(), calls(&trace).count()), (20, 298));
    let new = calls(&trace).map(|call| (call.prompt_tokens - call.kept_tokens).0);
    assert_eq!(new.sum::<u64>(), 619_368);
    assert_eq!(calls(&trace).map(|call| call.prompt_tokens.0).sum::<u64>(), 6_995_225);
    assert_eq!(&*trace.sessions[19].id, "s19");
    assert_eq!(trace.sessions[19].calls[0].at, secs("37.945"));
    assert!(said.contains("recorded times assumed"), "{said}");
}

#[test]
fn sessions_without_a_start_are_staggered_and_claims_are_cut() {
    let desk = Desk::new();
    let text = concat!(
        r#"{"id":"a","steps":[{"input":50,"new":40,"output":10},"#,
        r#"{"input":100,"new":20,"output":0,"gap":4,"kind":"agent"},"#,
        r#"{"input":30,"new":30,"output":1,"gap":61},{"input":40,"new":0,"output":1,"gap":1.5}]}"#,
        "\n",
        r#"{"id":"none","steps":[]}"#,
        "\n",
        r#"{"id":"b","steps":[{"input":9,"new":9,"output":1,"kind":"user"}]}"#,
        "\n"
    );
    let file = desk.write("a", text);
    let (trace, said) = desk.import("inference-lab", &file, &["--stagger", "7"]);
    let rows: Vec<_> = calls(&trace)
        .map(|call| (call.kept_tokens.0, call.gap.secs_text(), call.cause, call.turn))
        .collect();
    let row = |kept, gap: &str, cause, turn| (kept, gap.to_owned(), cause, turn);
    let expected = [
        row(0, "0", Cause::User, 0),
        row(60, "4", Cause::Tool, 0),
        row(0, "61", Cause::User, 1),
        row(31, "1.5", Cause::Tool, 1),
        row(0, "0", Cause::User, 0),
    ];
    assert_eq!(rows, expected);
    assert_eq!(trace.sessions[1].calls[0].at, secs("7"));
    for part in [
        "sessions read     3",
        "1 have no step",
        "2 sessions start one after the other",
        "1 first steps whose prompt is not all new",
        "2 steps that repeat more than there was",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
}
