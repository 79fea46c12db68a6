//! A trace played otherwise than as recorded: open loop, a part, a sample, a multiple, denser
//! starts, and a warm-up.

use tonnage::config::scenario::Scenario;
use tonnage::fleet::{Progress, Run, Setup};
use tonnage::report::Format;
use tonnage::report::json::Json;
use tonnage::sizing::case::Case;
use tonnage::trace::record::{Call, Trace};
use tonnage::units::{Span, Time, Tokens};

use super::super::given::{With, call, kept, lasting, play, record, setup, trace, trace_with};

/// One replica without host time, and these lines.
fn case(trace: &Trace, lines: &str) -> Case {
    let text = format!(
        "[engine]\nmodel = 'Llama-3.1-8B'\ngpu = 'h100-sxm'\n\
         [api]\nrequest_ms = 0\nprompt_token_us = 0\noutput_token_us = 0\n{lines}"
    );
    let scenario = Scenario::parse(&text, "test", &[]).unwrap();
    Case::new(scenario, trace, &[]).unwrap()
}

fn run(case: &Case) -> Run {
    kept(case, 1)
}

fn seconds(run: &Run, session: u32, call: u32) -> f64 {
    record(run, session, call).dispatched.secs()
}

/// A call that took 10 s, and one that waits for it, recorded `secs` after the start.
fn pair(secs: u64) -> Trace {
    let mut pair = trace(vec![(0, vec![lasting(10), lasting(2).after("0").gap(1_000)])]);
    pair.sessions[0].calls[1].at = Span::from_secs(secs);
    pair
}

#[test]
fn in_an_open_loop_calls_come_at_their_recorded_times() {
    let open = Setup { open_loop: true, ..setup() };
    // Recorded on a faster fleet: the second call came before the first ends here.
    let early = play(&open, &pair(5));
    assert_eq!((seconds(&early, 0, 0), seconds(&early, 0, 1)), (0.0, 5.0));
    let turn = early.records.turns[0];
    assert_eq!((turn.turn(), turn.tool), (Span::from_secs(10), Span::ZERO));
    // Recorded on a slower one: 5 s pass in which nothing runs that the second call waits for.
    let late = play(&open, &pair(15));
    assert_eq!(seconds(&late, 0, 1), 15.0);
    let turn = late.records.turns[0];
    assert_eq!((turn.turn(), turn.tool), (Span::from_secs(17), Span::from_secs(5)));
    assert_eq!(turn.turn_llm(), Span::from_secs(12));
    // In a closed loop neither recorded time matters.
    for recorded in [5, 15] {
        assert_eq!(seconds(&play(&setup(), &pair(recorded)), 0, 1), 11.0);
    }
}

#[test]
fn a_session_with_a_gap_before_its_first_call_starts_no_later_than_recorded() {
    // The second session starts at 6 s and the first at 10 s; first calls come at 10 s and 11 s.
    let calls = trace(vec![(10_000, vec![lasting(1)]), (6_000, vec![lasting(1).gap(5_000)])]);
    for open_loop in [false, true] {
        let run = play(&Setup { open_loop, ..setup() }, &calls);
        assert_eq!((seconds(&run, 0, 0), seconds(&run, 1, 0)), (10.0, 11.0));
    }
}

#[test]
fn an_open_loop_quotes_what_is_not_there_yet_as_new() {
    // The second prompt repeats the first prompt and its answer, and comes long before that is
    // complete. It hits the prompt's blocks, which are taken by then, and no more.
    let mut calls =
        trace(vec![(0, vec![call(1_600, 900), call(2_600, 4).after("0").keeping(0, 2_500)])]);
    calls.sessions[0].calls[1].at = Span::from_millis(200);
    let open = play(&Setup { open_loop: true, ..setup() }, &calls);
    let second = record(&open, 0, 1);
    assert_eq!(second.dispatched, Time(200_000_000));
    assert!(second.cached >= Tokens(1_600) && second.cached < Tokens(1_760), "{}", second.cached);
    assert_eq!(record(&play(&setup(), &calls), 0, 1).cached, Tokens(2_496));
}

#[test]
fn compressed_starts_leave_gaps_as_they_are() {
    let session = || vec![lasting(10), lasting(2).after("0").gap(3_000)];
    let calls = trace(vec![(0, session()), (100_000, session()), (150_000, session())]);
    let case = case(&calls, "[workload]\ntime_compression = 4\n");
    let run = run(&case);
    let firsts = [0, 1, 2].map(|session| seconds(&run, session, 0));
    assert_eq!(firsts, [0.0, 25.0, 37.5]);
    let seconds = [0, 1, 2].map(|session| seconds(&run, session, 1));
    assert_eq!(seconds, [13.0, 38.0, 50.5]);
    assert_eq!(case.notes.len(), 1);
}

#[test]
fn a_part_begins_inside_running_sessions() {
    // At 60 s session 0 waits for its user until 65 s, session 1 has a call of 20 s running since
    // 50 s, session 2 has not begun and session 3 is over.
    let mut calls = trace(vec![
        (
            0,
            vec![
                call(800, 10),
                Call { prompt_tokens: Tokens(900), ..lasting(3) }
                    .after("0")
                    .gap(64_000)
                    .keeping(0, 810),
            ],
        ),
        (50_000, vec![lasting(20), lasting(2).after("0").gap(1_000)]),
        (55_000, vec![lasting(2)]),
        (70_000, vec![lasting(2)]),
    ]);
    calls.sessions[0].calls[1].at = Span::from_secs(65);
    calls.sessions[1].calls[1].at = Span::from_secs(71);
    let case = case(&calls, "[workload]\nfrom_s = 60\nto_s = 90\n");
    let ids: Vec<&str> = case.workload.sessions.iter().map(|session| &*session.id).collect();
    // In the order of their first calls: 0 s, 5 s and 10 s.
    assert_eq!(ids, ["s1", "s0", "s3"]);
    let run = run(&case);
    let found = [(0, 0), (0, 1), (1, 0), (2, 0)].map(|(at, call)| seconds(&run, at, call));
    // Of the running call 10 s are left.
    assert_eq!(found, [0.0, 11.0, 5.0, 10.0]);
    assert_eq!(run.records.calls.len(), 4);
    let note = "played from 60 s on: 3 of 4 sessions, 2 of them under way there";
    assert_eq!(case.notes, [note]);
}

/// Ten sessions that share tools, each with a conversation of its own.
fn ten() -> Trace {
    let session = |n: u64| {
        (
            n * 30_000,
            vec![call(640, 4).sharing("tools", 320), call(960, 4).after("0").keeping(0, 640)],
        )
    };
    trace_with(vec![("tools", 320)], (0..10).map(session).collect())
}

#[test]
fn a_sample_plays_whole_sessions_and_keeps_tools_common() {
    let calls = ten();
    let developers = "[load]\nkind = 'developers'\ndevelopers = 1\npause_median_s = 1\n\
                      [run]\nwarmup_s = 0\nwindow_s = 300\n[workload]\nsample = 0.3\n";
    let case = case(&calls, developers);
    assert_eq!(case.workload.sessions.len(), 3);
    assert_eq!(case.workload.calls(), 6);
    // Three sessions use the tools now, and ten in the whole: they are common to every pass.
    let run = run(&case);
    assert!(run.records.tasks.len() > 30);
    for (position, record) in run.records.calls.iter().enumerate() {
        let expected = if position == 0 { 0 } else { [320, 640][record.call as usize] };
        assert_eq!(record.cached, Tokens(expected), "call {position}");
    }
    assert_eq!(case.notes, ["a sample of 3 of 10 sessions"]);
}

#[test]
fn a_scaled_load_has_clones_that_share_the_tools_only() {
    let case = case(&ten(), "[workload]\nscale = 2.5\njitter_s = 20\n");
    let plans = &case.workload.sessions;
    assert_eq!(plans.len(), 25);
    assert_eq!(plans.iter().filter(|plan| plan.id.contains('~')).count(), 15);
    let run = run(&case);
    for record in &run.records.calls {
        let original = plans[record.session as usize].id.split('~').next().unwrap();
        let start: f64 = 30.0 * original[1..].parse::<f64>().unwrap();
        if record.call == 0 {
            assert!((record.dispatched.secs() - start).abs() <= 20.0, "{original}");
        }
    }
    let mut firsts: Vec<_> = run.records.calls.iter().filter(|record| record.call == 0).collect();
    firsts.sort_by_key(|record| record.dispatched);
    let cached: Vec<u64> = firsts.iter().map(|record| record.cached.0).collect();
    assert_eq!((cached[0], cached[1..].iter().all(|&hit| hit == 320)), (0, true), "{cached:?}");
    // Three of ten sessions, three times: the tools are common still.
    let few = self::case(&ten(), "[workload]\nsample = 0.3\nscale = 3\n");
    let mut hits: Vec<u64> =
        self::run(&few).records.calls.iter().filter(|r| r.call == 0).map(|r| r.cached.0).collect();
    hits.sort_unstable();
    assert_eq!(hits, [0, 320, 320, 320, 320, 320, 320, 320, 320]);
    let half = self::case(&ten(), "[workload]\nscale = 0.5\n");
    assert_eq!(half.workload.sessions.len(), 5);
    assert!(half.workload.sessions.iter().all(|plan| !plan.id.contains('~')));
}

#[test]
fn the_same_seed_gives_the_same_bytes_and_another_seed_others() {
    let lines = "[workload]\nsample = 0.5\nscale = 3\ntime_compression = 2\nopen_loop = true\n";
    let calls = ten();
    let bytes = |seed: u64| {
        let case = case(&calls, &format!("{lines}[run]\nseed = {seed}\n"));
        let mut out = Vec::new();
        let run = case.run(1, &Progress::default()).unwrap();
        Json.replay(&case, &case.judge(&run), &mut out).unwrap();
        String::from_utf8(out).unwrap()
    };
    let once = bytes(1);
    assert_eq!(once, bytes(1));
    assert!(
        (2..6).any(|seed| bytes(seed).replace(&format!("\"seed\": {seed}"), "\"seed\": 1") != once)
    );
    for note in ["a sample of 5 of 10", "scaled by 3: 5 of 5", "2 times closer", "open loop: every"]
    {
        assert!(once.contains(note), "{note} is not in {once}");
    }
}

#[test]
fn the_warm_up_of_a_recorded_load_is_in_no_figure() {
    // Calls end at 2 s, 12 s, 22 s and 32 s; the second is the first that ends after 11 s.
    let calls = trace((0..4).map(|n| (n * 10_000, vec![lasting(2)])).collect());
    let case = case(&calls, "[run]\nwarmup_s = 11\n");
    let run = run(&case);
    assert_eq!(run.records.calls.len(), 4);
    assert_eq!(run.window.from, Time(11_000_000_000));
    let judged = case.judge(&case.run(1, &Progress::default()).unwrap());
    assert_eq!(judged.figures.units.calls_failed_as_recorded, 3);
    assert_eq!(judged.figures.units.tasks, 3);
}

#[test]
fn a_key_that_would_do_nothing_is_an_error() {
    let engine = "[engine]\nmodel = 'Llama-3.1-8B'\ngpu = 'h100-sxm'\n";
    let developers = "[load]\nkind = 'developers'\ndevelopers = 2\n";
    for (lines, said) in [
        ("[workload]\nscale = 0\n", "workload.scale: found `0`"),
        ("[workload]\nsample = 1.5\n", "workload.sample: found `1.5`"),
        ("[workload]\njitter_s = 5\n", "workload.jitter_s: without workload.scale above 1"),
        ("[workload]\nfrom_s = 9\nto_s = 9\n", "workload.to_s: found `9`, allowed: a time after"),
        ("[workload]\nscael = 2\n", "did you mean `workload.scale`?"),
    ] {
        let error = Scenario::parse(&format!("{engine}{lines}"), "test", &[]).unwrap_err();
        assert!(error.to_string().contains(said), "{error}");
    }
    for key in ["from_s = 1", "to_s = 1", "scale = 2", "time_compression = 2"] {
        let text = format!("{engine}{developers}[workload]\n{key}\n");
        let error = Scenario::parse(&text, "test", &[]).unwrap_err().to_string();
        assert!(error.contains("only goes with load.kind = \"trace\""), "{error}");
    }
    // Who asks for developers on the command line does not want what the file says of recorded
    // starts.
    let text = format!("{engine}[workload]\nscale = 2\nsample = 0.5\n");
    let set = ["load.kind=developers".to_owned(), "developers=2".to_owned()];
    let scenario = Scenario::parse(&text, "test", &set).unwrap();
    assert_eq!((scenario.reshape.scale, scenario.reshape.sample), (None, Some(0.5)));
    let text = format!("{engine}[workload]\nfrom_s = 500\n");
    let scenario = Scenario::parse(&text, "test", &[]).unwrap();
    let error = Case::new(scenario, &ten(), &[]).unwrap_err().to_string();
    assert_eq!(error, "workload.from_s: no call lies in this part of the trace");
}
