//! Faults of LiteLLM's logging that were reported in public, each with what becomes of it here.

use super::made_up::{ok, read, row};
use super::*;

/// Issue 28376: a server repeats its response ids. Issue 35563: a client repeats its call id.
#[test]
fn ids_that_look_repeated_are_warned_of() {
    let report = with_ids("set-b-prompts-on.csv.gz").report;
    // `chatcmpl-static-1` and `fixed-call-id`, of which one row each is left.
    let warned = report.warnings.iter().find(|warning| warning.0.contains("look numbered"));
    assert!(warned.unwrap().0.starts_with("2 request ids"), "{:?}", report.warnings);
}

/// PR 37365: the prompt of a failure is 0 tokens or an estimate without the tools, by version.
#[test]
fn the_prompt_that_was_logged_for_a_failure_is_no_matter() {
    let failure = |prompt| {
        row("s", "r1", 2, prompt, r#"{"status":"failure"}"#).replace(",10,2026", ",0,2026")
    };
    let import = |prompt| {
        ok(&[row("s", "r0", 0, 1_000, "{}"), failure(prompt), row("s", "r2", 4, 1_100, "{}")])
    };
    let (zero, estimated) = (import(0), import(700));
    assert_eq!(zero.trace, estimated.trace);
    assert_eq!(zero.trace.sessions[0].calls[1].prompt_tokens, Tokens(1_000));
    let report = zero.report;
    assert_eq!((report.calls_failed, report.prompt_p50, report.lanes), (1, Some(1_000), 1));
    assert_eq!(report.prompt_p95, Some(1_100));
}

/// PRs 30630 and 37558, issue 14457: of a client that went away some versions log nothing, some no
/// tokens, some those that had come.
#[test]
fn answers_that_nobody_waited_for_are_cut_off_after_what_came() {
    let gone = r#"{"error_information":{"error_code":"499"}}"#;
    let first = || row("s", "r0", 0, 1_000, "{}");
    let last = || row("s", "r2", 4, 1_200, "{}");
    for (prompt, output, expected) in [(0, 0, 1_000), (700, 4, 1_000), (1_100, 4, 1_100)] {
        let aborted = row("s", "r1", 2, prompt, gone);
        let aborted = aborted.replace(",10,2026", &format!(",{output},2026"));
        let import = ok(&[first(), aborted, last()]);
        let call = &import.trace.sessions[0].calls[1];
        assert_eq!((call.status, call.output_tokens), (Status::Aborted, Tokens(output)));
        assert_eq!(call.prompt_tokens, Tokens(expected), "{prompt} logged");
        assert_eq!((import.report.calls_aborted, import.report.lanes), (1, 1));
    }
    let report = ok(&[first(), last()]).report;
    assert_eq!((report.calls_aborted, report.lanes), (0, 1), "no row");
}

/// Issues 8999, 25598 and 31385: the first token is logged at the end, or at the start.
#[test]
fn a_first_token_at_the_end_of_an_answer_is_unknown() {
    let import = ok(&[row("s", "r0", 0, 1_000, "{}"), row("s", "r1", 2, 1_100, "{}")]);
    let calls = &import.trace.sessions[0].calls;
    assert!(calls.iter().all(|call| call.seen_ttft.is_none() && call.stream.is_none()));
    let second = row("s", "r1", 2, 1_100, "{}").replacen("16:00:03,m", "16:00:02,m", 1);
    let import = ok(&[row("s", "r0", 0, 1_000, "{}"), second]);
    assert_eq!(import.report.ttft_known, 1);
}

/// Issue 15641: prompts are stored, and yet `messages` is `{}`.
#[test]
fn messages_are_looked_for_in_the_stored_request() {
    let evidence = with_ids("set-b-prompts-on.csv.gz").report.evidence;
    assert!(evidence.messages + evidence.changed_ends >= 9, "{evidence:?}");
}

/// A disk that is full ends the import when it is, not when all rows are read.
#[test]
fn rows_that_cannot_be_put_aside_end_the_import_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let elsewhere = folder.path().join("not there");
    let options = Options { buffer_bytes: 5_000, temp_dir: Some(elsewhere), ..options() };
    for name in ["set-a.csv.gz", "set-a.v2.json.gz", "legacy-array.json.gz"] {
        // The end of the file is cut off, which a reader that comes there says.
        let bytes = fs::read(data(name)).unwrap();
        let file = folder.path().join(name);
        fs::write(&file, &bytes[..bytes.len() - 20]).unwrap();
        let few = Options { buffer_bytes: 500, ..options.clone() };
        let error = import(&[file], &few).unwrap_err().to_string();
        assert!(error.contains("a temporary file in this folder"), "{name}: {error}");
        assert!(error.contains("not there"), "{name}: {error}");
    }
    let rows = [row("s", "r0", 0, 1_000, "{}")];
    assert!(read(&rows, &options).is_ok(), "what fits in memory needs no file");
}
