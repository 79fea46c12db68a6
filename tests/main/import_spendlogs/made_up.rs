//! Rows made up one by one.

use proptest::collection::vec;
use proptest::prelude::*;
use tonnage::trace::check::Checker;

use super::*;

const HEADER: &str = "session_id,request_id,call_type,api_key,prompt_tokens,completion_tokens,\
                      startTime,endTime,completionStartTime,model,model_group,user,metadata,\
                      cache_hit,request_tags,team_id,end_user\n";

/// A row that starts `start` seconds into the hour and takes one second.
pub(super) fn row(session: &str, request: &str, start: u32, prompt: u64, metadata: &str) -> String {
    let time = |at: u32| format!("2026-11-29 16:{:02}:{:02}", at / 60, at % 60);
    let (start, end, metadata) = (time(start), time(start + 1), metadata.replace('"', "\"\""));
    format!(
        "{session},{request},acompletion,key,{prompt},10,{start},{end},{end},m,g,ana,\
         \"{metadata}\",None,[],team,\n"
    )
}

pub(super) fn read(rows: &[String], options: &Options) -> Result<Import, String> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("rows.csv");
    fs::write(&file, format!("{HEADER}{}", rows.concat())).unwrap();
    import(&[file], options).map_err(|error| error.to_string())
}

pub(super) fn ok(rows: &[String]) -> Import {
    read(rows, &Options { keep_ids: true, ..options() }).unwrap()
}

#[test]
fn bad_rows_stop_the_import_or_are_counted() {
    let good = row("s", "r1", 0, 100, "{}");
    let cases = [
        (good.replace(",100,", ",-100,"), "prompt_tokens: found `-100`", ":3:5: "),
        (good.replace(",100,", ",99999999999,"), "prompt_tokens: found `99999999999`", ":3:5: "),
        (good.replace("2026-11-29 16:00:00", "soon"), "startTime: found `soon`", ":3:7: "),
        (good.replace("16:00:01,2026", "15:00:01,2026"), "startTime (`", ":3:8: "),
        (good.replace("\"{}\"", "\"{\"\"a\"\":\""), "metadata: not valid JSON", ":3:13: "),
        (good.replace("ana", "a\0na"), "user: a NUL", ":3:12: "),
        (good.replace(",team,", ""), "fields, allowed: 17", ":3: "),
    ];
    for (bad, message, place) in cases {
        let rows = [row("s", "r0", 0, 50, "{}"), bad];
        let error = read(&rows, &options()).unwrap_err();
        assert!(error.contains(message) && error.contains(place), "{message}: {error}");
        assert!(error.contains("1 of 2 rows are bad; --skip-bad"), "{error}");
        let skipped = read(&rows, &Options { skip_bad: true, ..options() }).unwrap();
        assert_eq!((skipped.report.rows_bad, skipped.report.calls_ok), (1, 1));
    }
}

#[test]
fn what_is_no_generation_is_left_out_by_type() {
    let embedding = row("s", "r1", 1, 100, "{}").replace("acompletion", "aembedding");
    let report = ok(&[row("s", "r0", 0, 100, "{}"), embedding.clone()]).report;
    assert_eq!((report.rows_read, report.calls_ok), (2, 1));
    assert_eq!(report.other_types.get("aembedding"), Some(&1));
    let error = read(&[embedding], &options()).unwrap_err();
    assert!(error.contains("no call to import") && error.contains("1 of other"), "{error}");
}

#[test]
fn cached_tokens_beyond_the_prompt_are_added_to_it() {
    let usage = r#"{"usage_object":{"prompt_tokens_details":{"cached_tokens":900}}}"#;
    let import = ok(&[row("s", "r0", 0, 100, usage)]);
    let call = &import.trace.sessions[0].calls[0];
    assert_eq!((call.prompt_tokens, call.seen_cached), (Tokens(1_000), Some(Tokens(900))));
    assert_eq!(import.report.uncached_prompts, 1);
}

#[test]
fn growth_by_less_than_the_answer_keeps_the_prompt_only() {
    let import = ok(&[row("s", "r0", 0, 100, "{}"), row("s", "r1", 2, 105, "{}")]);
    assert_eq!(import.trace.sessions[0].calls[1].kept_tokens, Tokens(100));
    assert_eq!(import.report.evidence.prompt_only, 1);
}

#[test]
fn a_compaction_keeps_nothing_and_stays_in_its_lane() {
    let import = ok(&[
        row("s", "r0", 0, 1_000, "{}"),
        row("s", "r1", 2, 300, "{}"),
        row("s", "r2", 4, 400, "{}"),
    ]);
    let calls = &import.trace.sessions[0].calls;
    assert!(calls.iter().all(|call| call.lane == 0));
    assert_eq!((&calls[1].base, calls[1].kept_tokens), (&Base::None, Tokens(0)));
    assert_eq!((&calls[2].base, calls[2].kept_tokens), (&Base::Call(1), Tokens(310)));
    assert_eq!(import.report.evidence.compacted, 1);
}

#[test]
fn single_random_ids_are_put_together_up_to_the_gap_and_others_are_not() {
    let id = |n: u32| format!("00000000-0000-4000-8000-{n:012}");
    let rows = [
        row(&id(1), "r0", 0, 100, "{}"),
        row(&id(2), "r1", 5, 200, "{}"),
        row("mine", "r2", 10, 300, "{}"),
        row(&id(3), "r3", 500, 400, "{}"),
        row(&id(4), "r4", 510, 400, "{}"),
    ];
    let gap = Options { regroup_gap: Span::from_secs(60), ..options() };
    let report = read(&rows, &gap).unwrap().report;
    // 1 and 2 are one session; 3 came too late; 4 is not longer than 3; `mine` is no UUID.
    assert_eq!((report.sessions, report.regrouped.random_ids), (4, 4));
    assert_eq!(report.regrouped.sessions, 3);
    let report = read(&rows, &options()).unwrap().report;
    assert_eq!(report.sessions, 3, "half an hour bridges the pause");
}

#[test]
fn where_no_id_is_on_two_rows_no_id_counts() {
    let rows: Vec<String> = (0..10)
        .map(|n| row(&format!("id{n}"), &format!("r{n}"), n * 2, 100 * u64::from(n + 1), "{}"))
        .collect();
    let import = ok(&rows);
    assert!(import.report.regrouped.every_id_once);
    assert_eq!(import.trace.sessions.len(), 1);
    let few = ok(&rows[..9]);
    assert_eq!(few.trace.sessions.len(), 9, "too few to say");
}

#[test]
fn children_without_a_parent_in_the_input_stand_alone_and_rings_end() {
    let parent = |id: &str| format!(r#"{{"spend_logs_metadata":{{"parent_session_id":"{id}"}}}}"#);
    let import = ok(&[row("child", "r0", 0, 100, &parent("gone"))]);
    assert_eq!((import.report.orphans, import.trace.sessions.len()), (1, 1));
    let ring = [row("a", "r0", 0, 100, &parent("b")), row("b", "r1", 2, 100, &parent("a"))];
    assert_eq!(ok(&ring).trace.sessions.len(), 1);
}

#[test]
fn a_full_page_of_the_api_is_suspicious() {
    let page = r#"{"data":[ROW],"total":10000,"total_is_capped":true}"#;
    let json_row = r#"{"request_id":"chatcmpl-0123456789abcdef0123456789abcdef",
        "call_type":"acompletion","prompt_tokens":10,"completion_tokens":1,
        "startTime":"2026-11-29T16:00:00Z","endTime":"2026-11-29T16:00:01+00:00",
        "metadata":{},"session_id":null}"#;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("page.json");
    fs::write(&file, page.replace("ROW", json_row)).unwrap();
    let report = import(std::slice::from_ref(&file), &options()).unwrap().report;
    let warnings: Vec<&str> = report.warnings.iter().map(|warning| &*warning.0).collect();
    assert!(warnings.iter().any(|text| text.contains("total_is_capped")), "{warnings:?}");
    assert!(warnings.iter().any(|text| text.contains("10000 rows")), "{warnings:?}");
    fs::write(&file, &page.replace("ROW", json_row)[..200]).unwrap();
    let error = import(std::slice::from_ref(&file), &options()).unwrap_err().to_string();
    assert!(error.contains("cut off"), "{error}");
    // One row a session is what group_by_session gives.
    let rows: Vec<String> = (0..10)
        .map(|n| {
            let row = json_row.replace("89abcdef\"", &format!("89abcd{n:02}\""));
            row.replace("null", &format!("\"session-{n}\""))
        })
        .collect();
    fs::write(&file, page.replace("ROW", &rows.join(","))).unwrap();
    let report = import(std::slice::from_ref(&file), &options()).unwrap().report;
    let warned = |text: &str| report.warnings.iter().any(|warning| warning.0.contains(text));
    assert!(warned("group_by_session"), "{:?}", report.warnings);
}

/// Start and duration in seconds, prompt, answer, session, its parent, and how it ended.
type Made = (u32, u32, u64, u64, usize, usize, usize);

fn made(number: usize, (start, lasts, prompt, output, session, parent, ends): Made) -> String {
    let ids = ["", "a", "b", "00000000-0000-4000-8000-000000000001"];
    let ending = ["", r#","status":"failure""#, r#","error_information":{"error_code":"499"}"#];
    let parent = ids[parent];
    let metadata =
        format!(r#"{{"spend_logs_metadata":{{"parent_session_id":"{parent}"}}{}}}"#, ending[ends]);
    let end = |at: u32| format!("2026-11-29 16:{:02}:{:02}", at / 60, at % 60);
    row(ids[session], &format!("r{number}"), start, prompt, &metadata)
        .replace(&end(start + 1), &end(start + lasts))
        .replace(",10,2026", &format!(",{output},2026"))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Whatever the rows say, the trace keeps the rules of traces, and every call is in it.
    #[test]
    fn every_trace_keeps_the_rules(
        calls in vec(
            (0..60u32, 0..40u32, 0..60u64, 0..9u64, 0..4usize, 0..4usize, 0..3usize),
            1..40,
        )
    ) {
        let rows: Vec<String> =
            calls.iter().enumerate().map(|(number, &call)| made(number, call)).collect();
        let import = ok(&rows);
        let mut checker = Checker::default();
        for session in &import.trace.sessions {
            let checked = checker.session(session);
            prop_assert!(checked.is_ok(), "{checked:?}");
            let end = |call: &After| {
                let call = &session.calls[call.call as usize];
                call.at + call.seen_duration.unwrap()
            };
            for call in &session.calls {
                let begin = session.calls[0].at;
                let latest = call.after.iter().map(end).max().unwrap_or(begin);
                prop_assert_eq!(latest + call.gap, call.at, "gaps run from the last wait");
            }
        }
        let kept: usize = import.trace.sessions.iter().map(|session| session.calls.len()).sum();
        prop_assert_eq!(kept, rows.len());
        let backwards: Vec<String> = rows.iter().rev().cloned().collect();
        prop_assert_eq!(ok(&backwards).trace, import.trace);
    }
}

/// Call, cached tokens, model: what the property on order varies beside.
type Extra = (usize, u64, bool);

fn varied(number: usize, made_up: Made, (call, cached, other): Extra) -> String {
    let ids = ["", "call-a", "call-b"];
    let usage = format!(
        r#"{{"litellm_call_id":"{}","usage_object":{{"prompt_tokens_details":
            {{"cached_tokens":{}}}}},"#,
        ids[call],
        cached * 4
    );
    let usage = usage.replace('"', "\"\"");
    let row = made(number, made_up).replacen("\"{", &format!("\"{usage}"), 1);
    if other { row.replace(",m,g,ana,", ",m,h,ben,") } else { row }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Neither the order of the rows nor how many of them fit in memory changes anything.
    #[test]
    fn order_and_buffer_do_not_matter(
        (rows, shuffled) in vec(
            (
                (0..90u32, 0..20u32, 0..90u64, 0..9u64, 0..4usize, 0..4usize, 0..3usize),
                (0..3usize, 0..20u64, any::<bool>()),
                0..50usize,
            ),
            1..60,
        )
        .prop_map(|calls| {
            // Equal numbers are rows that come twice, perhaps with other content.
            let rows = calls.into_iter().map(|(call, extra, number)| varied(number, call, extra));
            rows.collect::<Vec<_>>()
        })
        .prop_flat_map(|rows| (Just(rows.clone()), Just(rows).prop_shuffle())),
        buffer_bytes in 0..20_000usize,
    ) {
        let held = ok(&rows);
        let options = Options { keep_ids: true, buffer_bytes, ..options() };
        let spilled = read(&shuffled, &options).unwrap();
        prop_assert_eq!(&spilled.trace, &held.trace);
        prop_assert_eq!(spilled.meta, held.meta);
        let no_files = |report: Report| Report { files: Vec::new(), ..report };
        prop_assert_eq!(no_files(spilled.report), no_files(held.report));
        let mut checker = Checker::default();
        held.trace.contexts.iter().try_for_each(|context| checker.context(context)).unwrap();
        for session in &held.trace.sessions {
            prop_assert_eq!(checker.session(session), Ok(()));
        }
    }
}

#[test]
fn failed_attempts_of_a_call_are_no_calls_and_two_answers_are_two() {
    let id = r#"{"litellm_call_id":"c""#;
    let failed = format!(r#"{id},"status":"failure"}}"#);
    let answered = format!("{id}}}");
    let attempt =
        |request: &str, start| row("s", request, start, 90, &failed).replace(",10,2026", ",0,2026");
    let import = ok(&[
        attempt("r0", 0),
        attempt("r1", 5),
        row("s", "r2", 9, 100, &answered),
        row("s", "r3", 20, 200, &answered),
        attempt("r4", 30),
    ]);
    let report = &import.report;
    assert_eq!((report.attempts, report.calls_ok, report.calls_failed), (2, 2, 1));
    let retries: Vec<u32> =
        import.trace.sessions[0].calls.iter().map(|call| call.retries).collect();
    assert_eq!(retries, [2, 0, 0]);
    let late = ok(&[attempt("r0", 0), row("s", "r1", 900, 100, &answered)]);
    assert_eq!(late.report.attempts, 0, "after a quarter of an hour it is another call");
}

#[test]
fn of_rows_that_come_twice_the_fuller_one_is_kept() {
    let failed = row("s", "r0", 0, 90, r#"{"status":"failure"}"#);
    let answered = row("s", "r0", 0, 100, "{}");
    for rows in [[failed.clone(), answered.clone()], [answered, failed]] {
        let report = ok(&rows).report;
        assert_eq!((report.duplicates, report.calls_ok, report.calls_failed), (1, 1, 0));
    }
}

#[test]
fn an_id_on_more_calls_than_a_session_has_says_nothing() {
    let rows: Vec<String> = (0..10_001u32)
        .map(|n| row("default", &format!("r{n}"), n % 3_000, u64::from(100 + n / 3), "{}"))
        .collect();
    let report = ok(&rows).report;
    assert_eq!((report.regrouped.overfull_ids, report.regrouped.overfull_calls), (1, 10_001));
    assert!(report.sessions > 1, "{}", report.sessions);
    let warned = |text: &str| report.warnings.iter().any(|warning| warning.0.contains(text));
    assert!(warned("1 session ids are on more than 10000 calls each"));
}

#[test]
fn a_prompt_far_longer_than_its_neighbours_is_pointed_out() {
    let prompts = [1_000, 1_100, 50_000, 1_200, 1_300];
    let rows: Vec<String> =
        (0..5u32).map(|n| row("s", &format!("r{n}"), 2 * n, prompts[n as usize], "{}")).collect();
    let warnings = ok(&rows).report.warnings;
    assert!(warnings.iter().any(|warning| warning.0.contains("1 prompts are ten times")));
}

#[test]
fn clocks_that_were_set_forward_or_back_are_pointed_out() {
    let at = |number: u32, day: &str, hour: u32| {
        row("s", &format!("r{day}-{hour}-{number}"), number * 60, 100, "{}")
            .replace("2026-11-29 16", &format!("{day} {hour:02}"))
    };
    let hours = |day: &str, hours: [u32; 2]| -> Vec<String> {
        hours.iter().flat_map(|&hour| (0..40).map(move |n| at(n, day, hour))).collect()
    };
    let texts = |rows: &[String]| {
        let report = read(rows, &options()).unwrap().report;
        report.warnings.into_iter().map(|warning| warning.0).collect::<Vec<_>>().join("\n")
    };
    let forward = texts(&hours("2024-03-10", [1, 3]));
    assert!(forward.contains("in the hour 2024-03-10T02 (as recorded)"), "{forward}");
    assert!(!texts(&hours("2024-03-11", [1, 3])).contains("set forward"), "a Monday");
    let mut rows = hours("2024-11-03", [0, 1]);
    rows.extend((0..40).map(|n| at(n + 5, "2024-11-03", 1).replace(",r", ",again-r")));
    let back = texts(&rows);
    assert!(!back.contains("set back"), "35 minutes are no hour: {back}");
    let (first, second) = (hours("2024-11-03", [0, 1]), hours("2024-11-03", [1, 2]));
    let second = second.iter().map(|row| row.replace(",r", ",again-r"));
    let rows: Vec<String> = first
        .iter()
        .take(79)
        .cloned()
        .chain((40..59).map(|n| at(n, "2024-11-03", 1)))
        .chain(second)
        .collect();
    let back = texts(&rows);
    assert!(back.contains("step back by an hour 1 times"), "{back}");
    let ends = row("s", "r", 0, 100, "{}").replace("16:00:01,2026", "15:30:01,2026");
    let error = read(&[ends], &options()).unwrap_err();
    assert!(error.contains("a local clock that was set back"), "{error}");
}

#[test]
fn sessions_that_hit_alike_share_a_context() {
    let usage = |cached: u64| {
        format!(r#"{{"usage_object":{{"prompt_tokens_details":{{"cached_tokens":{cached}}}}}}}"#)
    };
    // The first finds the cache cold, one continues other content, one is too short.
    let cached = [0, 640, 640, 960, 128];
    let mut rows: Vec<String> = (0..5u32)
        .map(|n| {
            let (id, request) = (format!("s{n}"), format!("r{n}"));
            row(&id, &request, 10 * n, 1_000, &usage(cached[n as usize]))
        })
        .collect();
    rows.push(row("s5", "r5", 60, 1_000, &usage(640)));
    rows.push(row("s5", "r6", 62, 1_100, &usage(992)));
    let import = ok(&rows);
    let [context] = &import.trace.contexts[..] else { panic!("one context") };
    assert_eq!((&*context.name, context.prompt_tokens), ("shared01", Tokens(640)));
    let kept: Vec<u64> =
        import.trace.sessions.iter().map(|session| session.calls[0].kept_tokens.0).collect();
    assert_eq!(kept, [640, 640, 640, 640, 0, 640]);
    let evidence = &import.report.evidence;
    assert_eq!((evidence.shared_hits, evidence.shared_assumed, evidence.first), (4, 1, 1));
    // The hit ends with the prompt before, but the answer of 10 tokens is less than 2 blocks.
    assert_eq!((evidence.hit_prompt_only, evidence.with_output), (0, 1));
}

#[test]
fn a_hit_tells_whether_the_answer_before_is_repeated() {
    let usage = |cached: u64| {
        format!(r#"{{"usage_object":{{"prompt_tokens_details":{{"cached_tokens":{cached}}}}}}}"#)
    };
    let long = |text: String| text.replace(",10,2026", ",90,2026");
    let kept = |second: u64, third: u64| {
        let import = ok(&[
            long(row("s", "r0", 0, 1_000, &usage(0))),
            long(row("s", "r1", 2, 1_200, &usage(second))),
            row("s", "r2", 4, 1_400, &usage(third)),
        ]);
        let calls = &import.trace.sessions[0].calls;
        [calls[1].kept_tokens.0, calls[2].kept_tokens.0]
    };
    assert_eq!(kept(1_088, 1_280), [1_090, 1_290], "hits reach into the answers");
    assert_eq!(kept(992, 1_184), [1_000, 1_200], "hits end with the prompts");
    assert_eq!(kept(992, 16), [1_000, 1_200], "what was evicted follows the others");
}

#[test]
fn a_hit_on_what_nobody_sent_points_out_missing_rows() {
    let hit = r#"{"usage_object":{"prompt_tokens_details":{"cached_tokens":1184}}}"#;
    let rows = [row("s", "r0", 0, 1_000, "{}"), row("s", "r1", 2, 1_400, hit)];
    let warnings = ok(&rows).report.warnings;
    assert!(warnings.iter().any(|warning| warning.0.contains("calls in between")));
    let between = row("s", "r2", 1, 1_200, "{}");
    let warnings = ok(&[&rows[..], &[between]].concat()).report.warnings;
    assert!(!warnings.iter().any(|warning| warning.0.contains("calls in between")));
}

#[test]
fn a_header_that_lacks_columns_says_which_and_what_is_nearest() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("rows.csv");
    fs::write(&file, HEADER.replace("startTime", "start_time")).unwrap();
    let error = import(&[file], &options()).unwrap_err().to_string();
    assert!(error.contains("the header lacks startTime"), "{error}");
    assert!(error.contains("`start_time` is there"), "{error}");
}
