//! Each rule on the smallest session that shows it. Blocks have 10 tokens here, so `in` is easy
//! to read: 25 tokens are two blocks and half a third.

use std::io::Write as _;

use serde_json::{Value, json};

use super::*;
use crate::trace::record::{Base, Cause};

mod reference;

/// A call at `t` that takes `api` seconds, with a prompt of `tokens` in one run from block 1.
fn call(t: f64, api: f64, tokens: u64) -> Value {
    json!({"t": t, "type": "n", "model": "m", "in": tokens, "out": 5, "runs": [[1, tokens / 10]],
        "input_types": [], "stop": "tool_use", "api_time": api})
}

/// The same with other fields; `null` takes one away.
fn with(mut value: Value, fields: &Value) -> Value {
    for (key, field) in fields.as_object().unwrap() {
        value[key] = field.clone();
    }
    value
}

fn ids(t: f64, tokens: u64, runs: &Value) -> Value {
    with(call(t, 1.0, tokens), &json!({"runs": runs}))
}

fn subagent(t: f64, duration_ms: &Value, requests: &[Value]) -> Value {
    json!({"t": t, "type": "subagent", "duration_ms": duration_ms, "status": "completed",
        "models": ["m"], "requests": requests})
}

fn session(id: &str, scope: &str, requests: &[Value]) -> String {
    let models = ["m"];
    json!({"id": id, "models": models, "block_size": 10, "hash_id_scope": scope,
        "requests": requests})
    .to_string()
}

fn try_import(content: &str, options: &Options) -> Result<Import> {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(content.as_bytes()).unwrap();
    import(&[file.path().to_owned()], options)
}

fn import_lines(lines: &[String], options: &Options) -> Import {
    try_import(&lines.join("\n"), options).unwrap()
}

fn calls_of(requests: &[Value]) -> Vec<Call> {
    let lines = [session("a", "local", requests)];
    import_lines(&lines, &Options::default()).trace.sessions.remove(0).calls
}

fn after(call: &Call) -> Vec<u32> {
    assert!(call.after.iter().all(|after| after.event == AfterEvent::Finished));
    call.after.iter().map(|after| after.call).collect()
}

fn gaps(calls: &[Call]) -> Vec<f64> {
    calls.iter().map(|call| call.gap.secs()).collect()
}

fn bases(calls: &[Call]) -> Vec<(Base, u64)> {
    calls.iter().map(|call| (call.base.clone(), call.kept_tokens.0)).collect()
}

fn shared(name: &str) -> Base {
    Base::Shared(Name::from(name))
}

fn error_of(content: &str) -> String {
    try_import(content, &Options::default()).unwrap_err().to_string()
}

#[test]
fn sessions_start_apart_in_the_order_of_the_file_without_their_names() {
    let lines =
        ["b", "a"].map(|id| session(id, "local", &[call(0.0, 1.0, 25), call(4.5, 1.0, 30)]));
    let trace = import_lines(&lines, &Options::default()).trace;
    let starts: Vec<_> = trace.sessions.iter().map(|s| s.calls[0].at.secs()).collect();
    assert_eq!(starts, [0.0, 30.0]);
    assert_eq!(trace.sessions[1].calls[1].at.secs(), 34.5);
    assert_eq!(trace.sessions.iter().map(|s| &*s.id).collect::<Vec<_>>(), ["s000000", "s000001"]);
    let options =
        Options { keep_ids: true, stagger: Span::from_millis(1_500), ..Options::default() };
    let trace = import_lines(&lines, &options).trace;
    assert_eq!(&*trace.sessions[0].id, "b");
    assert_eq!(trace.sessions[1].calls[0].at.secs(), 1.5);
}

#[test]
fn a_gap_runs_from_the_finish_before_to_the_dispatch() {
    let calls = calls_of(&[call(0.5, 4.0, 25), call(10.0, 2.0, 30)]);
    assert_eq!(gaps(&calls), [0.5, 5.5]);
    assert_eq!((after(&calls[0]), after(&calls[1])), (vec![], vec![0]));
    assert_eq!(calls[1].seen_duration, Some(Span::from_secs(2)));
    assert_eq!(calls[1].output_tokens, Tokens(5));
}

#[test]
fn a_subagent_was_spawned_its_duration_before_its_marker() {
    // The marker at 100 minus 80 s: spawned at 20.
    let lane = subagent(100.0, &json!(80_000), &[call(0.5, 10.0, 40), call(15.0, 3.0, 45)]);
    let calls = calls_of(&[call(0.0, 19.0, 25), lane, call(101.0, 1.0, 30)]);
    assert_eq!(calls.iter().map(|c| c.at.secs()).collect::<Vec<_>>(), [0.0, 20.5, 35.0, 101.0]);
    assert_eq!(calls.iter().map(|c| c.lane).collect::<Vec<_>>(), [0, 1, 1, 0]);
    assert_eq!((after(&calls[1]), after(&calls[2])), (vec![0], vec![1]));
    assert_eq!(gaps(&calls), [0.0, 1.5, 4.5, 63.0]);
    assert_eq!(calls[1].cause, Cause::Subagent);
    assert_eq!(calls[2].cause, Cause::Tool);
}

#[test]
fn a_join_waits_for_the_lanes_last_call_and_counts_from_the_latest_end() {
    let one = subagent(100.0, &json!(80_000), &[call(0.0, 10.0, 40)]);
    let two = subagent(101.9, &json!(80_000), &[call(0.0, 60.0, 40), call(70.0, 2.0, 45)]);
    let calls =
        calls_of(&[call(0.0, 19.0, 25), one, two, call(101.0, 1.0, 30), call(105.0, 1.0, 35)]);
    // Number 1 and 2 are the lanes' first calls, 3 the second lane's last one, until 93.9.
    assert_eq!(after(&calls[4]), [0, 1, 3]);
    assert_eq!(gaps(&calls)[4], 7.1);
    assert_eq!(after(&calls[5]), [4], "nobody waits for a lane twice");
}

#[test]
fn a_marker_a_second_later_than_the_call_is_for_the_next_call() {
    let lane = subagent(51.0, &json!(31_000), &[call(0.0, 10.0, 40)]);
    let calls = calls_of(&[call(0.0, 19.0, 25), lane, call(50.0, 1.0, 30), call(60.0, 1.0, 35)]);
    assert_eq!(after(&calls[2]), [0]);
    assert_eq!(after(&calls[3]), [1, 2]);
}

#[test]
fn an_async_lane_starts_at_its_marker_and_is_never_joined() {
    let lane = json!({"t": 20.0, "type": "subagent", "status": "async_launched", "models": ["m"],
        "duration_ms": null, "requests": [call(0.0, 5.0, 40)]});
    let lines = [session("a", "local", &[call(0.0, 19.0, 25), lane, call(50.0, 1.0, 30)])];
    let import = import_lines(&lines, &Options::default());
    let calls = &import.trace.sessions[0].calls;
    assert_eq!((calls[1].at.secs(), after(&calls[1]), after(&calls[2])), (20.0, vec![0], vec![0]));
    assert_eq!((import.report.async_lanes, import.report.joined_lanes), (1, 0));
}

#[test]
fn a_subagent_may_spawn_others() {
    let inner = subagent(30.0, &json!(20_000), &[call(1.0, 1.0, 60)]);
    let outer = subagent(100.0, &json!(80_000), &[call(0.0, 9.0, 40), inner, call(31.0, 2.0, 45)]);
    let empty = subagent(90.0, &json!(95_000), &[]);
    let lines = [session("a", "local", &[call(0.0, 19.0, 25), outer, empty, call(101.0, 1.0, 30)])];
    let import = import_lines(&lines, &Options::default());
    let calls = &import.trace.sessions[0].calls;
    assert_eq!(calls.iter().map(|c| c.lane).collect::<Vec<_>>(), [0, 1, 2, 1, 0]);
    assert_eq!(calls.iter().map(|c| c.at.secs()).collect::<Vec<_>>(), [0., 20., 31., 51., 101.]);
    assert_eq!(
        calls.iter().map(after).collect::<Vec<_>>(),
        [vec![], vec![0], vec![1], vec![1, 2], vec![0, 3]]
    );
    let report = import.report;
    assert_eq!((report.joined_lanes, report.empty_lanes, report.early_lanes), (2, 1, 1));
}

#[test]
fn the_spawner_is_the_last_call_that_ended_before_a_second_after_the_spawn() {
    let spawned_at = |spawn: f64| {
        let lane = subagent(spawn + 30.0, &json!(30_000), &[call(2.0, 1.0, 40)]);
        calls_of(&[call(0.0, 10.0, 25), call(12.0, 8.0, 30), lane])
    };
    assert_eq!(after(&spawned_at(19.5)[2]), [1]);
    assert_eq!(gaps(&spawned_at(19.5))[2], 1.5);
    assert_eq!(after(&spawned_at(19.0)[2]), [0], "the second call ends at 20, not before");
    let early = calls_of(&[
        call(5.0, 10.0, 25),
        subagent(40.0, &json!(39_000), &[call(0.0, 1.0, 40), call(3.0, 1.0, 45)]),
    ]);
    assert_eq!((early[0].lane, after(&early[0]), early[0].gap.secs()), (1, vec![], 1.0));
}

#[test]
fn a_real_overlap_is_parallel_and_a_later_call_waits_for_all() {
    let lines = [session(
        "a",
        "local",
        &[
            call(0.0, 4.0, 25),
            call(5.0, 20.0, 30),
            call(10.0, 3.0, 35),
            call(15.0, 1.0, 40),
            call(30.0, 1.0, 45),
        ],
    )];
    let import = import_lines(&lines, &Options::default());
    let calls = &import.trace.sessions[0].calls;
    // 2 runs beside 1; 3 follows 2 while 1 still runs; 4 starts after all of them.
    assert_eq!(
        calls.iter().map(after).collect::<Vec<_>>(),
        [vec![], vec![0], vec![0], vec![2], vec![1, 3]]
    );
    assert_eq!(gaps(calls), [0.0, 1.0, 6.0, 2.0, 5.0]);
    assert_eq!(import.report.parallel, 1);
}

#[test]
fn a_parallel_call_with_nothing_finished_counts_from_the_sessions_start() {
    let calls = calls_of(&[call(0.0, 5.7, 25), call(1.0, 2.0, 30), call(6.0, 1.0, 35)]);
    assert_eq!(calls.iter().map(after).collect::<Vec<_>>(), [vec![], vec![], vec![0, 1]]);
    assert_eq!(gaps(&calls)[1], 1.0);
    assert!((gaps(&calls)[2] - 0.3).abs() < 1e-9);
}

#[test]
fn an_overlap_below_two_seconds_is_noise() {
    let noise = calls_of(&[call(0.0, 11.9, 25), call(10.0, 2.0, 30)]);
    assert_eq!((after(&noise[1]), noise[1].gap), (vec![0], Span::ZERO));
    let parallel = calls_of(&[call(0.0, 12.0, 25), call(10.0, 2.0, 30)]);
    assert_eq!((after(&parallel[1]), parallel[1].gap.secs()), (vec![], 10.0));
}

#[test]
fn missing_server_time_is_estimated_up_to_the_next_call() {
    let unknown = |t, out: u64| with(call(t, 1.0, 25), &json!({"api_time": null, "out": out}));
    let lines = [session(
        "a",
        "local",
        &[unknown(0.0, 60), unknown(10.0, 6_000), unknown(13.0, 0), call(13.0, 1.0, 25)],
    )];
    let options = Options { assume_tps: 20.0, ..Options::default() };
    let import = import_lines(&lines, &options);
    let calls = &import.trace.sessions[0].calls;
    assert_eq!(gaps(calls), [0.0, 6.0, 0.0, 0.0], "1 s + 60 / 20, then the whole interval");
    assert_eq!(import.report.estimated, 3);
    assert_eq!(calls[0].seen_duration, None);
    assert_eq!((calls[2].output_tokens, import.report.no_output), (Tokens(0), 1));
    let zero = [session("a", "local", &[call(0.0, 0.0, 25)])];
    let import = import_lines(&zero, &options);
    assert_eq!(import.report.estimated, 1, "a call that took no time was not measured");
    assert_eq!(import.trace.sessions[0].calls[0].seen_duration, None);
}

#[test]
fn turns_follow_the_stop_and_what_the_next_call_brings() {
    let of = |stop: &str, types: &Value, pause: f64| {
        let first = with(call(0.0, 1.0, 25), &json!({"stop": stop}));
        let next = with(call(1.0 + pause, 1.0, 30), &json!({"input_types": types}));
        let calls = calls_of(&[first, next]);
        assert_eq!((calls[0].turn, calls[0].cause), (0, Cause::User));
        (calls[1].turn, calls[1].cause)
    };
    let (same, new) = ((0, Cause::Tool), (1, Cause::User));
    assert_eq!(of("tool_use", &json!(["text"]), 900.0), same);
    assert_eq!(of("end_turn", &json!(["tool_result"]), 0.0), new);
    assert_eq!(of("", &json!(["text", "tool_result"]), 900.0), same);
    assert_eq!(of("", &json!(["text"]), 0.0), new);
    assert_eq!(of("", &json!([]), 59.0), same);
    assert_eq!(of("", &json!([]), 60.0), new);
}

#[test]
fn a_lane_keeps_its_spawners_turn() {
    let ended = |t| with(call(t, 1.0, 25), &json!({"stop": "end_turn"}));
    let lane = subagent(60.0, &json!(48_000), &[ended(0.0), ended(5.0)]);
    let calls = calls_of(&[ended(0.0), ended(10.0), lane, call(70.0, 1.0, 30)]);
    assert_eq!(calls.iter().map(|c| c.turn).collect::<Vec<_>>(), [0, 1, 1, 1, 2]);
    assert_eq!(calls[3].cause, Cause::Tool);
}

#[test]
fn calls_at_one_time_are_numbered_as_in_the_file() {
    let lane = subagent(30.0, &json!(20_000), &[call(0.0, 1.0, 41), call(0.5, 1.0, 42)]);
    let calls = calls_of(&[call(0.0, 1.0, 25), lane, call(10.0, 1.0, 31), call(10.0, 1.0, 32)]);
    let prompts: Vec<_> = calls.iter().map(|c| c.prompt_tokens.0).collect();
    assert_eq!(prompts, [25, 41, 31, 32, 42]);
}

#[test]
fn turns_by_stop_count_the_main_agents_calls() {
    let ended = |t| with(call(t, 1.0, 25), &json!({"stop": ""}));
    let lines = [session("a", "local", &[call(0.0, 1.0, 25), ended(5.0), call(9.0, 1.0, 25)])];
    let report = import_lines(&lines, &Options::default()).report;
    assert_eq!(report.calls_per_turn, [2, 1]);
    assert_eq!((report.calls_per_turn_at(0.5), report.calls_per_turn_mean()), (Some(2), Some(1.5)));
}

#[test]
fn the_base_is_the_latest_call_with_the_longest_match() {
    let calls = calls_of(&[
        ids(0.0, 30, &json!([[1, 3]])),
        ids(10.0, 50, &json!([[1, 5]])),
        ids(20.0, 50, &json!([[1, 4], [90, 1]])),
        ids(30.0, 60, &json!([[1, 4], [80, 2]])),
        ids(40.0, 40, &json!([[50, 4]])),
    ]);
    assert_eq!(
        bases(&calls),
        [
            (Base::None, 0),
            (Base::Call(0), 35),
            (Base::Call(1), 40),
            (Base::Call(2), 40),
            (Base::None, 0)
        ]
    );
}

#[test]
fn a_whole_prompt_is_kept_to_its_last_token_but_no_more_than_there_is() {
    let calls = calls_of(&[
        ids(0.0, 28, &json!([[1, 2]])),
        ids(10.0, 30, &json!([[1, 2], [9, 1]])),
        ids(20.0, 32, &json!([[1, 2], [9, 1]])),
        ids(30.0, 31, &json!([[1, 2], [9, 1]])),
    ]);
    assert_eq!(
        bases(&calls),
        [(Base::None, 0), (Base::Call(0), 28), (Base::Call(1), 30), (Base::Call(2), 31)]
    );
}

#[test]
fn a_block_without_an_id_is_not_kept_to_its_last_token() {
    let requests = [
        ids(0.0, 30, &json!([[1, 2]])),
        ids(10.0, 45, &json!([[1, 4]])),
        ids(20.0, 40, &json!([[1, 2], [9, 2]])),
    ];
    let import = import_lines(&[session("a", "local", &requests)], &Options::default());
    // What call 0 lacks of its third block, call 1 may have, and call 2 has something else.
    assert_eq!(
        bases(&import.trace.sessions[0].calls),
        [(Base::None, 0), (Base::Call(0), 29), (Base::Call(1), 20)]
    );
    assert_eq!(import.report.short, 1);
    assert_eq!(import.meta.unnumbered_blocks, BTreeMap::from([("s000000".to_owned(), vec![0])]));
}

#[test]
fn outputs_are_kept_where_the_prompt_has_grown_by_as_much() {
    let with_outputs = |outputs, next: u64| {
        let lines = [session("a", "local", &[call(0.0, 1.0, 28), call(10.0, 1.0, next)])];
        let import = import_lines(&lines, &Options { outputs, ..Options::default() });
        let kept = import.trace.sessions[0].calls[1].kept_tokens.0;
        assert_eq!(import.report.outputs_kept, u64::from(kept > 28));
        kept
    };
    assert_eq!(with_outputs(Outputs::Auto, 33), 33);
    assert_eq!(with_outputs(Outputs::Auto, 32), 28);
    assert_eq!(with_outputs(Outputs::Kept, 32), 32);
    assert_eq!(with_outputs(Outputs::Kept, 90), 33);
    assert_eq!(with_outputs(Outputs::Dropped, 90), 28);
}

#[test]
fn the_output_of_a_call_that_may_still_run_is_not_kept() {
    for outputs in [Outputs::Auto, Outputs::Kept] {
        let requests = [call(0.0, 9.0, 20), call(1.0, 1.0, 90), call(12.0, 1.0, 200)];
        let lines = [session("a", "local", &requests)];
        let import = import_lines(&lines, &Options { outputs, ..Options::default() });
        let kept = bases(&import.trace.sessions[0].calls);
        assert_eq!(kept[1..], [(Base::Call(0), 20), (Base::Call(1), 95)]);
    }
}

#[test]
fn an_output_is_kept_through_calls_that_waited() {
    // Call 2 repeats call 0, which it waits for through call 1 only.
    let calls = calls_of(&[
        call(0.0, 1.0, 20),
        ids(10.0, 40, &json!([[70, 4]])),
        ids(20.0, 60, &json!([[1, 2], [30, 4]])),
    ]);
    assert_eq!((after(&calls[2]), bases(&calls)[2].clone()), (vec![1], (Base::Call(0), 25)));
}

#[test]
fn sessions_share_what_their_ids_share_from_the_start() {
    let lines = [
        session("a", "global", &[ids(0.0, 50, &json!([[1, 3], [20, 2]]))]),
        session("b", "global", &[ids(0.0, 55, &json!([[1, 3], [30, 2]]))]),
        session("c", "global", &[ids(0.0, 60, &json!([[1, 3], [30, 1], [40, 2]]))]),
        // Its ids are others' from the second block on, but stand elsewhere.
        session("d", "global", &[ids(0.0, 50, &json!([[2, 2], [30, 2], [60, 1]]))]),
    ];
    let import = import_lines(&lines, &Options::default());
    let first = |n: usize| bases(&import.trace.sessions[n].calls)[0].clone();
    assert_eq!(first(0), (shared("c0000"), 30));
    assert_eq!(first(1), (shared("c0001"), 40));
    assert_eq!(first(2), (shared("c0001"), 40));
    assert_eq!(first(3), (Base::None, 0));
    let contexts = &import.trace.contexts;
    assert_eq!(contexts.len(), 2);
    assert_eq!((contexts[0].prompt_tokens, contexts[0].base.clone()), (Tokens(30), None));
    assert_eq!((contexts[1].prompt_tokens, contexts[1].kept_tokens), (Tokens(40), Tokens(30)));
    assert_eq!(contexts[1].base.as_deref(), Some("c0000"));
    assert_eq!(import.report.contexts, 2);
}

#[test]
fn a_context_continues_another_only_as_far_as_they_agree() {
    // Two pairs of sessions share five blocks each, of which all four share the first two.
    let of = |id, branch: u64, end: u64| {
        session(id, "global", &[ids(0.0, 60, &json!([[1, 2], [branch, 3], [end, 1]]))])
    };
    let lines = [of("a", 20, 90), of("b", 20, 91), of("c", 30, 92), of("d", 30, 93)];
    let contexts = import_lines(&lines, &Options::default()).trace.contexts;
    assert_eq!(contexts.len(), 2);
    assert_eq!((contexts[0].prompt_tokens, contexts[0].kept_tokens), (Tokens(50), Tokens(0)));
    assert_eq!((contexts[1].prompt_tokens, contexts[1].kept_tokens), (Tokens(50), Tokens(20)));
    assert_eq!(contexts[1].base.as_deref(), Some("c0000"));
}

#[test]
fn on_a_tie_the_own_session_is_the_base_and_else_the_longer_match() {
    let lines = [
        session(
            "a",
            "global",
            &[
                ids(0.0, 30, &json!([[1, 3]])),
                ids(10.0, 60, &json!([[1, 3], [20, 3]])),
                ids(20.0, 40, &json!([[1, 3], [50, 1]])),
            ],
        ),
        session("b", "global", &[ids(0.0, 50, &json!([[1, 3], [20, 2]]))]),
    ];
    let import = import_lines(&lines, &Options::default());
    assert_eq!(
        bases(&import.trace.sessions[0].calls),
        [(shared("c0000"), 30), (shared("c0001"), 50), (Base::Call(1), 30)]
    );
    assert_eq!(bases(&import.trace.sessions[1].calls), [(shared("c0001"), 50)]);
}

#[test]
fn local_ids_mean_nothing_to_other_sessions() {
    let lines = ["a", "b"].map(|id| session(id, "local", &[call(0.0, 1.0, 50)]));
    let trace = import_lines(&lines, &Options::default()).trace;
    assert!(trace.contexts.is_empty());
    assert!(trace.sessions.iter().all(|s| s.calls[0].base == Base::None));
}

#[test]
fn one_sessions_own_branches_are_no_shared_context() {
    let calls = [ids(0.0, 50, &json!([[1, 5]])), ids(9.0, 50, &json!([[1, 4], [9, 1]]))];
    let lines = [session("a", "global", &calls)];
    assert!(import_lines(&lines, &Options::default()).trace.contexts.is_empty());
}

#[test]
fn the_original_form_reads_as_the_run_length_one() {
    let original = |mut value: Value| {
        value["hash_ids"] = json!([1, 2, 3, 9, 10]);
        value["runs"] = Value::Null;
        value
    };
    let runs = [session("a", "local", &[ids(0.0, 52, &json!([[1, 3], [9, 2]]))])];
    let arrays = [session("a", "local", &[original(call(0.0, 1.0, 52))])];
    let options = Options::default();
    assert_eq!(import_lines(&runs, &options).trace, import_lines(&arrays, &options).trace);
    let value: Value = serde_json::from_str(&arrays[0]).unwrap();
    let pretty = try_import(&serde_json::to_string_pretty(&value).unwrap(), &options).unwrap();
    assert_eq!(pretty.trace, import_lines(&runs, &options).trace);
}

#[test]
fn sessions_are_left_out_whole_and_counted() {
    let long = subagent(30.0, &json!(20_000), &[call(0.0, 1.0, 96)]);
    let lines = [
        session("a", "local", &[call(0.0, 1.0, 95)]),
        session("b", "local", &[call(0.0, 1.0, 25), long]),
        session("c", "local", &[call(0.0, 1.0, 25), call(9.0, 1.5, 35)]),
    ];
    let limits = Options {
        max_context: Some(Tokens(100)),
        max_span: Some(Span::from_secs(10)),
        keep_ids: true,
        ..Options::default()
    };
    let import = import_lines(&lines, &limits);
    assert_eq!(import.trace.sessions.iter().map(|s| &*s.id).collect::<Vec<_>>(), ["a"]);
    let report = import.report;
    assert_eq!((report.lines, report.sessions), (3, 1));
    assert_eq!((report.too_long_context, report.too_long_span), (1, 1));
    let only = Options { only: vec!["c".into()], ..Options::default() };
    let import = import_lines(&lines, &only);
    assert_eq!((import.trace.sessions.len(), import.report.not_asked), (1, 2));
    assert_eq!(import.trace.sessions[0].calls[0].at, Span::ZERO, "it is the first that is kept");
    let missing = Options { only: vec!["session_c".into()], ..Options::default() };
    let error = try_import(&lines.join("\n"), &missing).unwrap_err().to_string();
    assert_eq!(error, "--only: no session has the id `session_c`");
}

#[test]
fn a_model_that_is_not_listed_is_counted() {
    let lane = subagent(30.0, &json!(20_000), &[with(call(0.0, 1.0, 40), &json!({"model": "x"}))]);
    let other = with(call(0.0, 1.0, 25), &json!({"model": "y"}));
    let lines = [session("a", "local", &[other, lane, call(31.0, 1.0, 30)])];
    let import = import_lines(&lines, &Options::default());
    let unlisted: Vec<_> = import.report.unlisted_models.into_iter().collect();
    assert_eq!(unlisted, [("x".into(), 1), ("y".into(), 1)]);
    assert_eq!(&*import.trace.sessions[0].calls[0].model, "y");
}

#[test]
fn the_sidecar_says_where_the_trace_comes_from() {
    let lines = [session("a", "global", &[with(call(0.0, 1.0, 25), &json!({"ttft": 0.5}))])];
    let licence = Some("Apache-2.0".to_owned());
    let import = import_lines(&lines, &Options { licence, ..Options::default() });
    assert_eq!(import.trace.sessions[0].calls[0].seen_ttft, Some(Span::from_millis(500)));
    let meta = import.meta;
    assert_eq!((meta.origin_block_size, meta.partial_block), (Some(10), Some(PartialBlock::Drop)));
    assert_eq!(meta.licence.as_deref(), Some("Apache-2.0"));
    assert!(!meta.source.unwrap().contains('/'));
}

#[test]
fn bad_values_are_named_with_their_line_and_place() {
    let good = session("a", "local", &[call(0.0, 1.0, 25)]);
    let error_with = |fields: &Value| {
        let bad = session("b", "local", &[call(0.0, 1.0, 25), with(call(9.0, 1.0, 30), fields)]);
        error_of(&format!("{good}\n{bad}"))
    };
    for (fields, expected) in [
        (json!({"in": -5}), "requests[1].in: found `-5`, allowed: an integer from 1"),
        (json!({"in": 1e15}), "requests[1].in: found"),
        (json!({"out": 5_000_000_000u64}), "requests[1].out: found `5000000000`"),
        (json!({"out": "many"}), "requests[1].out: found `\"many\"`"),
        (json!({"t": -1}), "requests[1].t: found `-1`"),
        (json!({"t": 1e12}), "requests[1].t: found"),
        (json!({"api_time": -0.5}), "requests[1].api_time: found `-0.5`"),
        (json!({"type": "x"}), "requests[1].type: found `x`, allowed: n, s, subagent"),
        (json!({"runs": [[1, 1]]}), "requests[1].runs: 1 block ids do not fit `in` = 30"),
        (json!({"in": 31, "runs": [[1, 2]]}), "requests[1].runs: 2 block ids do not fit"),
        (json!({"runs": [[1, 0]]}), "requests[1].runs: found `[1,0]`"),
        (json!({"runs": null}), "requests[1]: neither `runs` nor `hash_ids`"),
        (json!({"model": null}), "requests[1].model: the value is missing"),
        (json!({"stop": 3}), "requests[1].stop: found `3`, allowed: a text"),
    ] {
        let error = error_with(&fields);
        assert!(error.contains(expected) && error.contains(":2: "), "{fields}: {error}");
    }
}

#[test]
fn what_is_no_session_is_refused() {
    let good = session("a", "local", &[call(0.0, 1.0, 25)]);
    for (content, expected) in [
        (String::new(), ": the file holds no session"),
        ("\n\n".to_owned(), ": the file holds no session"),
        ("[1, 2]".to_owned(), ":1: found `[1, 2]`, allowed: a JSON object"),
        (good.clone() + "\n{\"id\": \"b\", ", ":2:12: EOF while parsing"),
        (good.replace("[[1,2]]", "[[1,-2]]"), ":1:"),
        (good.replace("\"requests\":[", "\"requests\":5,\"x\":["), "expected a sequence"),
        (good.replace("local", "mine"), "hash_id_scope: found `mine`, allowed: local, global"),
        (format!("{good}\n{good}"), ":2: session `a` is given twice"),
        (session("a", "local", &[]), "requests: the session has no calls"),
        (
            format!("{good}\n{}", good.replace("\"a\"", "\"b\"").replace(":10,", ":11,")),
            ":2: block_size: found `11`",
        ),
    ] {
        let error = error_of(&content);
        assert!(error.contains(expected), "{content}: {error}");
    }
}

#[test]
fn bad_lines_can_be_skipped_and_are_counted() {
    let good = session("a", "local", &[call(0.0, 1.0, 25)]);
    let options = Options { skip_bad: true, ..Options::default() };
    let import = try_import(&format!("{{\n{good}\nnonsense"), &options);
    assert!(import.unwrap_err().to_string().contains("no session is left"));
    let import = try_import(&format!("{good}\nnonsense\n\u{0}"), &options).unwrap();
    assert_eq!((import.report.lines, import.report.bad.count()), (3, 2));
    assert_eq!(import.trace.sessions.len(), 1);
    assert_eq!(import.meta.notes, ["2 lines could not be used and were left out"]);
}

#[test]
fn options_out_of_range_are_refused() {
    let good = session("a", "local", &[call(0.0, 1.0, 25)]);
    let slow = Options { assume_tps: 0.0, ..Options::default() };
    let error = try_import(&good, &slow).unwrap_err().to_string();
    assert!(error.starts_with("--assume-tps: found `0`"), "{error}");
    let far = Options { stagger: Span(u64::MAX), ..Options::default() };
    let error = try_import(&good, &far).unwrap_err().to_string();
    assert!(error.starts_with("--stagger: found"), "{error}");
}
