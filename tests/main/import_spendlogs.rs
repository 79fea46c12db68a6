//! The importer of LiteLLM_SpendLogs on rows of a real proxy; see the README beside the data.

use std::fs;
use std::path::{Path, PathBuf};

use assert_cmd::Command;
use tonnage::trace::canonical;
use tonnage::trace::import::spendlogs::{Import, Options, Report, import};
use tonnage::trace::record::{After, AfterEvent, Base, Call, Cause, Session, Status};
use tonnage::units::{Span, Tokens};

const SESSION_1: &str = "1a6dd42a-7fd5-f3b6-4792-a32bbf448fe4";
const SESSION_2: &str = "1bb24ee7-caff-f72a-c16f-92fec3ef0939";
const SESSION_3: &str = "7a772d58-279c-72f7-516f-9d530cd542f2";
const SESSION_4: &str = "b7c9d6fc-5f79-56b0-9f64-9eebd744df6b";
const SESSION_5: &str = "4b9458a7-0201-6a72-426a-5621c7ae467e";
const SESSION_6: &str = "e127e49b-e267-ebce-e4dc-68229fe6cde4";
const SESSION_11_FIRST: &str = "4e10591c-350a-4fb6-83d1-06ef500f9d5f";
const CHAT: &str = "e149bd09-0df5-3245-44b0-6badfa7576c5";

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/spendlogs").join(name)
}

fn options() -> Options {
    Options { turn_gap: Span::from_secs(4), ..Options::default() }
}

fn with_ids(name: &str) -> Import {
    import(&[data(name)], &Options { keep_ids: true, ..options() }).unwrap()
}

fn session<'a>(import: &'a Import, id: &str) -> &'a Session {
    let found = import.trace.sessions.iter().find(|session| &*session.id == id);
    found.unwrap()
}

/// Calls of each lane.
fn lanes(session: &Session) -> Vec<usize> {
    let most = session.calls.iter().map(|call| call.lane).max().unwrap() as usize;
    let mut counts = vec![0; most + 1];
    for call in &session.calls {
        counts[call.lane as usize] += 1;
    }
    counts
}

fn finished(calls: &[u32]) -> Vec<After> {
    calls.iter().map(|&call| After { call, event: AfterEvent::Finished }).collect()
}

fn turns(session: &Session) -> u32 {
    session.calls.iter().map(|call| call.turn).max().unwrap() + 1
}

mod set_a {
    use super::*;

    #[test]
    fn sessions_fall_into_the_lanes_that_were_run() {
        let a = with_ids("set-a.csv.gz");
        for (id, expected) in [
            (SESSION_1, &[17, 3, 3, 3][..]),
            (SESSION_2, &[20]),
            (SESSION_3, &[16, 4, 4]),
            (SESSION_4, &[13]),
            (SESSION_5, &[15, 3, 3]),
            (SESSION_6, &[17]),
            (SESSION_11_FIRST, &[9]),
            (CHAT, &[14]),
            ("awk-parallel-001", &[3]),
        ] {
            assert_eq!(lanes(session(&a, id)), expected, "{id}");
        }
        assert_eq!(a.trace.sessions.len(), 30);
        assert_eq!(a.trace.sessions.iter().map(|s| s.calls.len()).sum::<usize>(), 245);
    }

    #[test]
    fn temporary_files_change_nothing() {
        let held = import(&[data("set-a.csv.gz")], &options()).unwrap();
        let tiny = Options { buffer_bytes: 5_000, ..options() };
        let spilled = import(&[data("set-a.csv.gz")], &tiny).unwrap();
        assert_eq!((spilled.trace, spilled.report), (held.trace, held.report));
    }

    #[test]
    fn csv_and_api_give_the_same_trace() {
        let csv = import(&[data("set-a.csv.gz")], &options()).unwrap();
        let page = import(&[data("set-a.v2.json.gz")], &options()).unwrap();
        assert_eq!(csv.trace, page.trace);
        assert_eq!(csv.meta, page.meta);
        assert_eq!(Report { files: Vec::new(), ..csv.report }, {
            Report { files: Vec::new(), ..page.report }
        });
    }

    #[test]
    fn the_report_counts_what_was_put_together_and_what_lineage_rests_on() {
        let report = with_ids("set-a.csv.gz").report;
        assert_eq!((report.rows_read, report.duplicates, report.rows_bad), (245, 0, 0));
        assert_eq!((report.calls_ok, report.calls_failed, report.calls_aborted), (234, 9, 2));
        assert_eq!((report.regrouped.random_ids, report.regrouped.no_ids), (12, 0));
        assert_eq!(report.regrouped.sessions, 4, "session 11 and three single calls");
        assert_eq!((report.sessions, report.lanes, report.child_sessions), (30, 37, 2));
        assert_eq!(report.one_call_sessions, 16);
        let evidence = &report.evidence;
        // The model servers cached prompts only, and one of the two models says nothing of hits.
        assert_eq!((evidence.hit_with_output, evidence.hit_prompt_only), (0, 192));
        assert_eq!((evidence.with_output, evidence.prompt_only), (10, 0));
        assert_eq!((evidence.shared_hits, evidence.shared_assumed), (15, 2));
        assert_eq!((evidence.first, evidence.parallel, evidence.compacted), (13, 2, 0));
        assert_eq!(evidence.uncounted, 11);
        assert_eq!((report.prompt_p50, report.prompt_p95), (Some(14_612), Some(31_084)));
        let codex = report.human_hours.iter().find(|entry| entry.profile == "codex_cli_rs");
        assert_eq!(codex.map(|entry| (entry.calls, entry.hours)), Some((6, 1)));
        let [hour] = &report.cached_by_hour[..] else { panic!("one hour of rows") };
        assert_eq!((&*hour.hour, hour.calls, hour.known), ("2026-11-29T16", 234, 220));
    }

    #[test]
    fn subagents_start_after_the_main_call_before_and_the_next_main_call_waits_for_them() {
        let a = with_ids("set-a.csv.gz");
        let calls = &session(&a, SESSION_1).calls;
        for (number, lane) in [(7, 1), (8, 2), (9, 3)] {
            let call = &calls[number];
            assert_eq!((call.lane, call.cause, call.turn), (lane, Cause::Subagent, 0));
            assert_eq!(call.after, finished(&[6]));
            assert_eq!((&call.base, call.kept_tokens), (&Base::None, Tokens(0)));
        }
        // Ends: 6 at 17.023 s, lanes at 21.090, 21.893 and 23.707 s; this call starts at 26.469 s.
        assert_eq!((calls[16].lane, calls[16].cause), (0, Cause::Tool));
        assert_eq!(calls[16].after, finished(&[6, 12, 13, 15]));
        assert_eq!(calls[16].gap, Span::from_millis(2_762));
        assert_eq!(calls[16].base, Base::Call(6));
        assert_eq!(calls[16].kept_tokens, Tokens(14_248), "its hit of 14,240 tokens ends there");
        // A pause of 7.4 s is a person's.
        assert_eq!((calls[17].cause, calls[17].turn), (Cause::User, 1));
    }

    #[test]
    fn first_calls_that_hit_alike_share_their_beginning() {
        let a = with_ids("set-a.csv.gz");
        let [context] = &a.trace.contexts[..] else { panic!("{:?}", a.trace.contexts) };
        assert_eq!((context.base.as_ref(), context.prompt_tokens), (None, Tokens(9_440)));
        let first = &session(&a, SESSION_3).calls[0];
        let shared = Base::Shared(context.name.clone());
        assert_eq!((&first.base, first.kept_tokens), (&shared, Tokens(9_440)));
        // Its subagents begin with something else.
        let other = session(&a, SESSION_3).calls.iter().find(|call| call.lane == 1).unwrap();
        assert_eq!((&other.base, other.seen_cached), (&Base::None, Some(Tokens(1_296))));
    }

    #[test]
    fn a_model_switch_stays_in_its_lane_and_unknown_cached_tokens_are_not_zero() {
        let a = with_ids("set-a.csv.gz");
        let calls = &session(&a, SESSION_4).calls;
        assert_eq!((&*calls[8].model, &*calls[9].model), ("agents-30b", "small-8b"));
        assert_eq!(calls[9].base, Base::Call(8));
        assert_eq!((calls[8].seen_cached, calls[9].seen_cached), (Some(Tokens(13_136)), None));
        // Not streamed: the first token is not told apart from the end.
        assert_eq!((calls[8].seen_ttft, calls[8].stream), (None, None));
        let streamed = &session(&a, SESSION_1).calls[0];
        assert_eq!(streamed.seen_ttft, Some(Span::from_millis(873)));
        assert_eq!(streamed.stream, Some(true));
        assert_eq!(streamed.seen_duration, Some(Span::from_millis(1_082)));
    }

    #[test]
    fn failures_take_the_prompt_of_the_call_before_and_the_next_call_is_a_retry() {
        let a = with_ids("set-a.csv.gz");
        let calls = &session(&a, SESSION_6).calls;
        assert_eq!((calls[5].status, calls[5].prompt_tokens), (Status::Failed, Tokens(15_404)));
        assert_eq!((calls[5].output_tokens, calls[5].retries), (Tokens(0), 2));
        assert_eq!(calls[6].cause, Cause::Retry);
        assert_eq!(calls[6].after, finished(&[5]));
        assert_eq!((&calls[6].base, calls[6].kept_tokens), (&Base::Call(4), Tokens(15_404)));
        assert_eq!((calls[10].status, calls[10].retries), (Status::Ok, 1));
        for (id, output) in [("awk-disconnect-001", 17), ("awk-midcut-001", 105)] {
            let [call] = &session(&a, id).calls[..] else { panic!("one call") };
            assert_eq!((call.status, call.output_tokens), (Status::Aborted, Tokens(output)));
            assert_eq!(call.seen_cached, None, "what LiteLLM writes there is its own guess");
        }
    }

    #[test]
    fn people_teams_and_scaffolds_are_known() {
        let a = with_ids("set-a.csv.gz");
        let who = |id: &str| {
            let Call { user, tenant, profile, key, .. } = &session(&a, id).calls[0];
            (user.to_string(), tenant.to_string(), profile.to_string(), key.is_some())
        };
        let expected = |user: &str, tenant: &str, profile: &str, key| {
            (user.to_owned(), tenant.to_owned(), profile.to_owned(), key)
        };
        assert_eq!(who(SESSION_1), expected("ana", "team-platform", "claude-cli", true));
        assert_eq!(who(CHAT), expected("pepe@example.com", "team-platform", "OpenWebUI", true));
        assert_eq!(who("awk-master-001"), expected("default_user_id", "", "python-httpx", true));
        assert_eq!(turns(session(&a, CHAT)), 10);
    }

    #[test]
    fn names_are_short_and_tell_nothing_unless_ids_are_kept() {
        let a = import(&[data("set-a.csv.gz")], &options()).unwrap();
        assert_eq!(&*a.trace.sessions[0].id, "s000001");
        let call = &a.trace.sessions[0].calls[0];
        assert_eq!((&*call.user, &*call.tenant), ("u01", "t01"));
        assert_eq!(call.key.as_deref(), Some("k01"));
        let all = format!("{:?} {:?}", a.trace, a.meta);
        for secret in ["ana", "pepe", "team-platform", "litellm_proxy_master_key", SESSION_1] {
            assert!(!all.contains(secret), "{secret} is in the trace");
        }
    }

    #[test]
    fn equal_calls_at_once_share_their_prompt_and_wait_for_nothing() {
        let a = with_ids("set-a.csv.gz");
        let calls = &session(&a, "awk-parallel-001").calls;
        assert!(calls.iter().all(|call| call.after.is_empty() && call.turn == 0));
        assert_eq!((&calls[1].base, calls[1].kept_tokens), (&Base::Call(0), Tokens(9_653)));
    }

    #[test]
    fn the_order_of_pages_and_repeated_rows_are_no_matter() {
        let both = [data("set-a.v2.json.gz"), data("set-a.csv.gz")];
        let twice = import(&both, &options()).unwrap();
        let once = import(&both[1..], &options()).unwrap();
        assert_eq!(twice.trace, once.trace);
        assert_eq!((twice.report.rows_read, twice.report.duplicates), (490, 245));
    }
}

#[test]
fn rows_of_old_versions_import() {
    let old = import(&[data("derived-1.60-shape.csv")], &options()).unwrap();
    assert_eq!((old.report.rows_read, old.report.calls_ok), (80, 80));
    assert_eq!(old.report.regrouped.no_ids, 80, "1.60 has no session ids");
    assert_eq!(old.report.cached_known, 69, "cached tokens stand in the older place");
    let later = import(&[data("derived-1.74-shape.csv.gz")], &options()).unwrap();
    assert_eq!((later.report.calls_ok, later.report.calls_failed), (71, 7));
}

#[test]
fn answers_of_the_response_cache_are_left_out_and_counted() {
    let b = import(&[data("set-b-prompts-on.csv.gz")], &options()).unwrap();
    assert_eq!((b.report.rows_read, b.report.cache_hits), (25, 5));
    assert_eq!(b.report.regrouped.no_ids, 4);
    assert!(b.report.warnings.iter().any(|warning| warning.0.contains("look numbered")));
}

#[test]
fn other_forms_are_refused_by_name() {
    for (name, expected) in [
        ("per-day.json", "sum per day, no rows"),
        ("legacy-array.json.gz", "summarize=false"),
        ("row-to-json.jsonl.gz", "row_to_json"),
        ("copy-text.tsv.gz", "text format of COPY"),
        ("no-header.csv.gz", "a row, not a header"),
        ("logger-payload.jsonl.gz", "StandardLoggingPayload"),
        ("README.md", "no export of LiteLLM_SpendLogs"),
    ] {
        let error = import(&[data(name)], &options()).unwrap_err().to_string();
        assert!(error.contains(expected) && error.contains(name), "{name}: {error}");
    }
}

/// Rows made up one by one.
mod made_up {
    use proptest::collection::vec;
    use proptest::prelude::*;
    use tonnage::trace::check::Checker;

    use super::*;

    const HEADER: &str = "session_id,request_id,call_type,api_key,prompt_tokens,completion_tokens,\
                          startTime,endTime,completionStartTime,model,model_group,user,metadata,\
                          cache_hit,request_tags,team_id,end_user\n";

    /// A row that starts `start` seconds into the hour and takes one second.
    fn row(session: &str, request: &str, start: u32, prompt: u64, metadata: &str) -> String {
        let time = |at: u32| format!("2026-11-29 16:{:02}:{:02}", at / 60, at % 60);
        let (start, end, metadata) = (time(start), time(start + 1), metadata.replace('"', "\"\""));
        format!(
            "{session},{request},acompletion,key,{prompt},10,{start},{end},{end},m,g,ana,\
             \"{metadata}\",None,[],team,\n"
        )
    }

    fn read(rows: &[String], options: &Options) -> Result<Import, String> {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("rows.csv");
        fs::write(&file, format!("{HEADER}{}", rows.concat())).unwrap();
        import(&[file], options).map_err(|error| error.to_string())
    }

    fn ok(rows: &[String]) -> Import {
        read(rows, &Options { keep_ids: true, ..options() }).unwrap()
    }

    #[test]
    fn bad_rows_stop_the_import_or_are_counted() {
        let good = row("s", "r1", 0, 100, "{}");
        let cases = [
            (good.replace(",100,", ",-100,"), "prompt_tokens: found `-100`", ":3:5: "),
            (
                good.replace(",100,", ",99999999999,"),
                "prompt_tokens: found `99999999999`",
                ":3:5: ",
            ),
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
        let parent =
            |id: &str| format!(r#"{{"spend_logs_metadata":{{"parent_session_id":"{id}"}}}}"#);
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
        let metadata = format!(
            r#"{{"spend_logs_metadata":{{"parent_session_id":"{parent}"}}{}}}"#,
            ending[ends]
        );
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
        let attempt = |request: &str, start| {
            row("s", request, start, 90, &failed).replace(",10,2026", ",0,2026")
        };
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
        let rows: Vec<String> = (0..5u32)
            .map(|n| row("s", &format!("r{n}"), 2 * n, prompts[n as usize], "{}"))
            .collect();
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
            format!(
                r#"{{"usage_object":{{"prompt_tokens_details":{{"cached_tokens":{cached}}}}}}}"#
            )
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
            format!(
                r#"{{"usage_object":{{"prompt_tokens_details":{{"cached_tokens":{cached}}}}}}}"#
            )
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
}

mod command {
    use super::*;

    fn tonnage() -> Command {
        Command::cargo_bin("tonnage").unwrap()
    }

    #[test]
    fn writes_a_trace_that_reads_back_with_its_sidecar() {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("a.csv.zst");
        let run = tonnage()
            .args(["import", "spendlogs", "--turn-gap", "4", "-o"])
            .args([&out, &data("set-a.csv.gz")])
            .assert()
            .success();
        let report = String::from_utf8_lossy(&run.get_output().stderr).into_owned();
        assert!(report.contains("30, of which 16 have one call"), "{report}");
        assert!(report.contains("turns       approximate"), "{report}");
        let trace = canonical::read_all(&out).unwrap();
        assert_eq!(trace, import(&[data("set-a.csv.gz")], &options()).unwrap().trace);
        let meta = fs::read_to_string(folder.path().join("a.meta.json")).unwrap();
        assert!(meta.contains("\"start\": \"2026-11-29T16:41:07.973Z\""), "{meta}");
        assert!(meta.contains("gaps of more than 4 s alone"), "{meta}");
    }

    /// The rows were made with a server of 9,000 blocks on each of three replicas.
    #[test]
    fn a_replay_hits_about_as_much_as_the_recorded_servers_did() {
        let folder = tempfile::tempdir().unwrap();
        let trace = folder.path().join("a.csv");
        let scenario = folder.path().join("a.toml");
        fs::write(
            &scenario,
            "trace = \"a.csv\"\n[engine]\nmodel = \"Llama-3.1-8B\"\ngpu = \"h100-sxm\"\n\
             block_size = 16\nnum_gpu_blocks_override = 9000\n[fleet]\nreplicas = 3\n",
        )
        .unwrap();
        tonnage()
            .args(["import", "spendlogs", "--turn-gap", "4", "-o"])
            .args([&trace, &data("set-a.csv.gz")])
            .assert()
            .success();
        tonnage()
            .arg("replay")
            .arg(&scenario)
            .args(["--out".as_ref(), folder.path().as_os_str()])
            .assert()
            .success();
        type Row = std::collections::BTreeMap<String, String>;
        let table = |file: &str| -> Vec<Row> {
            let mut rows = csv::Reader::from_path(folder.path().join(file)).unwrap();
            rows.deserialize().map(Result::unwrap).collect()
        };
        let (recorded, simulated) = (table("a.csv"), table("calls.csv"));
        let number = |row: &Row, column: &str| row[column].parse::<u64>().ok();
        let (mut known, mut prompts, mut seen, mut hit) = (0, 0, 0, 0);
        for row in &recorded {
            let Some(cached) = number(row, "seen_cached") else { continue };
            let same = |other: &&Row| ["session", "call"].iter().all(|&id| other[id] == row[id]);
            known += 1;
            seen += cached;
            prompts += number(row, "prompt_tokens").unwrap();
            hit += number(simulated.iter().find(same).unwrap(), "cached_tokens").unwrap();
        }
        assert_eq!((known, 1_000 * seen / prompts), (220, 911));
        let simulated = 1_000 * hit / prompts;
        // By growth alone it is 87.4 %.
        assert!((901..=931).contains(&simulated), "{simulated} per mille");
    }

    /// Whatever kills it, the system takes away what had no name.
    #[cfg(unix)]
    #[test]
    fn leaves_nothing_behind_when_it_is_killed() {
        use std::io::Write as _;
        use std::process::{Command, Stdio};
        let folder = tempfile::tempdir().unwrap();
        let mut child = Command::new(assert_cmd::cargo::cargo_bin("tonnage"))
            .args(["import", "spendlogs", "/dev/stdin", "-o"])
            .arg(folder.path().join("a.csv"))
            .stdin(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut rows = flate2::read::GzDecoder::new(fs::File::open(data("set-a.csv.gz")).unwrap());
        let mut pipe = child.stdin.take().unwrap();
        // More than a pipe holds, so it is reading by then.
        std::io::copy(&mut rows, &mut pipe).unwrap();
        pipe.flush().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        drop(pipe);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn leaves_nothing_behind_when_it_fails() {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("a.csv");
        tonnage()
            .args(["import", "spendlogs", "-o"])
            .args([&out, &data("per-day.json")])
            .assert()
            .code(2);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
