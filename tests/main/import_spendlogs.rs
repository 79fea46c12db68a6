//! The importer of LiteLLM_SpendLogs on rows of a real proxy; see the README beside the data.

use std::fs;
use std::path::{Path, PathBuf};

use assert_cmd::Command;
use tonnage::trace::canonical;
use tonnage::trace::import::spendlogs::{Import, Options, Report, import};
use tonnage::trace::record::{After, AfterEvent, Base, Call, Cause, Session, Status};
use tonnage::units::{Span, Tokens};

mod inputs;
mod known_problems;
mod made_up;
mod prompts;

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
