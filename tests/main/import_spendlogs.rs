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
        assert_eq!((evidence.with_output, evidence.prompt_only), (202, 0));
        assert_eq!((evidence.first, evidence.parallel, evidence.compacted), (30, 2, 0));
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
        assert_eq!(calls[16].kept_tokens, Tokens(14_248 + 45));
        // A pause of 7.4 s is a person's.
        assert_eq!((calls[17].cause, calls[17].turn), (Cause::User, 1));
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
        assert_eq!((&calls[6].base, calls[6].kept_tokens), (&Base::Call(4), Tokens(15_467)));
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
        let error = import(&[file], &options()).unwrap_err().to_string();
        assert!(error.contains("cut off"), "{error}");
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
        assert!(meta.contains("turn figures are approximate"), "{meta}");
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
