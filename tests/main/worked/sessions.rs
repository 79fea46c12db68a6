//! Sessions in a closed loop: what waits for what, turns and tasks, overflow and failures.

use tonnage::config::scenario::OnOverflow;
use tonnage::engine::config::EngineConfig;
use tonnage::engine::step_time::Factors;
use tonnage::fleet::{Run, Setup};
use tonnage::observe::records::{CallOutcome, TurnRecord};
use tonnage::trace::record::{Call, Status};
use tonnage::units::{Span, Time, Tokens};

use super::super::given::{
    With, call, engine_config, lasting, play, record, setup, step_cost, trace, trace_with,
};
use super::{assert_near, decoding, on_paper};

/// Plays one session whose calls last for fixed times.
fn played(calls: Vec<Call>) -> Run {
    play(&setup(), &trace(vec![(0, calls)]))
}

/// Turn and tool time in milliseconds.
fn turn(run: &Run, number: usize) -> (u64, u64) {
    let TurnRecord { started, ended, tool, .. } = run.records.turns[number];
    ((ended - started).0 / 1_000_000, tool.0 / 1_000_000)
}

#[test]
fn a_turn_waits_for_its_subagents_and_tools_are_taken_off_the_critical_path() {
    // Main 0 s to 10 s. One subagent from 12 to 42, another from 15 to 35; the main agent joins
    // both and goes on 3 s after the later, from 45 to 52. Ten seconds later the next turn.
    let run = played(vec![
        lasting(10),
        lasting(30).after("0").gap(2_000).lane(1),
        lasting(20).after("0").gap(5_000).lane(2),
        lasting(7).after("1;2").gap(3_000),
        lasting(1).after("3").gap(10_000).turn(1),
    ]);
    assert_eq!(record(&run, 0, 3).dispatched, Time::ZERO + Span::from_secs(45));
    // On the critical path: 2 s before the longer subagent, 3 s after it.
    assert_eq!(turn(&run, 0), (52_000, 5_000));
    assert_eq!(turn(&run, 1), (1_000, 0), "a person's pause belongs to no turn");
    let task = run.records.tasks[0];
    assert_eq!((task.task, task.task_llm), (Span::from_secs(53), Span::from_secs(48)));
    assert_eq!((task.session_span(), task.turns, task.calls), (Span::from_secs(63), 2, 5));
}

#[test]
fn a_slower_second_subagent_moves_the_critical_path() {
    let run = played(vec![
        lasting(10),
        lasting(30).after("0").gap(2_000).lane(1),
        lasting(40).after("0").gap(5_000).lane(2),
        lasting(7).after("1;2").gap(3_000),
    ]);
    assert_eq!(turn(&run, 0), (10_000 + 5_000 + 40_000 + 3_000 + 7_000, 5_000 + 3_000));
}

#[test]
fn a_title_call_beside_the_first_counts_where_it_is_the_last() {
    let with_title = |seconds| {
        played(vec![lasting(10), lasting(seconds).gap(500), lasting(20).after("0").gap(4_000)])
    };
    // The turn of 34 s is over before or after the title, which starts at 0.5 s.
    assert_eq!(turn(&with_title(30), 0), (34_000, 4_000));
    // With the title last, the half second before its dispatch is the client's.
    assert_eq!(turn(&with_title(60), 0), (60_500, 500));
    let task = with_title(60).records.tasks[0];
    assert_eq!((task.task.millis(), task.task_llm.millis()), (60_500.0, 60_000.0));
}

#[test]
fn a_call_may_wait_for_anothers_dispatch_only() {
    let run = played(vec![
        lasting(10),
        lasting(5).after("0").gap(1_000),
        lasting(50).after("0d").gap(4_000).lane(1),
        lasting(1).after("1;2d").gap(2_000),
    ]);
    assert_eq!(record(&run, 0, 2).dispatched, Time::ZERO + Span::from_secs(4));
    // Calls 1 and 2 are behind at 16 s; call 2 itself runs until 54 s.
    assert_eq!(record(&run, 0, 3).dispatched, Time::ZERO + Span::from_secs(18));
    assert_eq!(turn(&run, 0), (54_000, 4_000));
}

#[test]
fn a_turn_of_real_calls_is_its_steps_and_its_tools() {
    // Two subagents beside each other in one step each, then the join: all prompts are new.
    let run = played(vec![
        call(1_000, 3),
        call(500, 2).after("0").gap(2_000).lane(1),
        call(600, 2).after("0").gap(2_000).lane(2),
        call(800, 2).after("1;2").gap(1_000),
    ]);
    let steps = [
        on_paper(&[], &[(0, 1_000, true)]) + decoding(&[1_001], 2),
        on_paper(&[], &[(0, 500, true), (0, 600, true)]) + on_paper(&[501, 601], &[]),
        on_paper(&[], &[(0, 800, true)]) + on_paper(&[801], &[]),
    ];
    let llm: Span = steps.into_iter().sum();
    let turn = run.records.turns[0];
    assert_near((turn.turn_llm(), turn.turn()), (llm, llm + Span::from_secs(3)));
    let task = run.records.tasks[0];
    assert_eq!((task.task, task.task_llm), (turn.turn(), turn.turn_llm()));
}

#[test]
fn a_recorded_failure_lasts_and_costs_nothing() {
    let run = played(vec![lasting(10), call(100, 1).after("0").gap(1_000)]);
    let (failed, next) = (record(&run, 0, 0), record(&run, 0, 1));
    assert_eq!((failed.outcome, failed.replica), (CallOutcome::RecordedFailure, None));
    assert_eq!((failed.prefilled, failed.output), (Tokens(0), Tokens(0)));
    assert_eq!(next.dispatched, Time::ZERO + Span::from_secs(11));
    assert_eq!(next.outcome, CallOutcome::Completed);
    assert_near(run.replicas[0].busy, on_paper(&[], &[(0, 100, true)]));
    assert!(!run.records.turns[0].failed, "it had failed before the simulation");
}

#[test]
fn a_failure_of_unknown_length_takes_no_time() {
    let failed = Call { status: Status::Failed, ..call(100, 1) };
    let run = played(vec![failed, lasting(1).after("0").gap(1_000)]);
    assert_eq!(record(&run, 0, 0).e2e(), Span::ZERO);
    assert_eq!(record(&run, 0, 1).dispatched, Time::ZERO + Span::from_secs(1));
}

#[test]
fn an_empty_output_is_sent_as_one_token_and_counted() {
    let run = played(vec![call(100, 0), call(100, 1).after("0")]);
    assert_eq!((record(&run, 0, 0).output, run.counts.empty_outputs), (Tokens(1), 1));
    assert_eq!(record(&run, 0, 0).itl_secs(), None);
}

#[test]
fn a_call_without_a_prompt_is_sent_with_one_token_and_counted() {
    let calls = trace(vec![(0, vec![call(0, 5)])]);
    let workload = tonnage::fleet::workload::Workload::new(&calls, &Default::default());
    assert_eq!(workload.counts.empty_prompts, 1);
    let run = play(&setup(), &calls);
    let call = record(&run, 0, 0);
    assert_eq!((call.prompt, call.prefilled, call.output), (Tokens(1), Tokens(1), Tokens(5)));
}

fn with_context(max_model_len: u64, on_overflow: OnOverflow) -> Setup {
    let engine = EngineConfig { max_model_len: Tokens(max_model_len), ..engine_config() };
    Setup { engine, on_overflow, ..setup() }
}

#[test]
fn a_prompt_that_does_not_fit_is_rejected_and_the_session_goes_on() {
    // Prompt and output may fill the context of 1,000, and not a token more.
    let calls = vec![
        call(980, 20),
        call(981, 20).after("0").gap(1_000),
        call(100, 1).after("1").gap(2_000),
        call(100, 1).after("2").gap(3_000).turn(1),
    ];
    let run = play(&with_context(1_000, OnOverflow::Reject), &trace(vec![(0, calls)]));
    let (fits, rejected, next) = (record(&run, 0, 0), record(&run, 0, 1), record(&run, 0, 2));
    assert_eq!((fits.outcome, fits.output), (CallOutcome::Completed, Tokens(20)));
    assert_eq!((rejected.outcome, rejected.replica), (CallOutcome::Rejected, None));
    assert_eq!((rejected.e2e(), rejected.prefilled), (Span::ZERO, Tokens(0)));
    assert_eq!(next.dispatched - rejected.dispatched, Span::from_secs(2));
    assert_eq!(next.outcome, CallOutcome::Completed);
    let failed: Vec<bool> = run.records.turns.iter().map(|turn| turn.failed).collect();
    assert_eq!((failed, run.records.tasks[0].failed), (vec![true, false], true));
}

#[test]
fn a_prompt_that_does_not_fit_is_compacted_to_what_it_shares() {
    // 50,000 tokens on a shared prefix of 15,000 become 37,000 of which the prefix is kept; the
    // next call repeats all of it with its output and adds 900.
    let calls = vec![
        call(15_100, 10).sharing("tools", 15_000),
        call(50_000, 100).after("0").keeping(0, 15_110),
        call(51_000, 10).after("1").keeping(1, 50_100),
    ];
    let calls = trace_with(vec![("tools", 15_000)], vec![(0, calls)]);
    let run = play(&with_context(40_000, OnOverflow::Compact), &calls);
    let [first, second, third] = [0, 1, 2].map(|call| record(&run, 0, call));
    assert!(!first.compacted && second.compacted && !third.compacted);
    assert_eq!((second.prompt, second.cached), (Tokens(37_000), Tokens(14_992)));
    assert_eq!((third.prompt, third.cached), (Tokens(38_000), Tokens(37_088)));
    assert_eq!(second.output, Tokens(100));
    assert!(!run.records.tasks[0].failed);
    let run = play(&with_context(40_000, OnOverflow::Reject), &calls);
    let rejected = run.records.calls.iter().filter(|call| call.outcome == CallOutcome::Rejected);
    assert_eq!(rejected.count(), 2);
}

#[test]
fn a_slower_fleet_delays_later_calls_by_exactly_that() {
    let calls = trace(vec![(
        0,
        vec![call(1_000, 5), call(1_200, 3).after("0").gap(5_000).keeping(0, 1_005)],
    )]);
    let fast = play(&setup(), &calls);
    let factors = Factors { host: 2.0, ..Factors::default() };
    let slower = Setup { cost: step_cost().with_factors(factors).unwrap(), ..setup() };
    let slow = play(&slower, &calls);
    // Twice the host time of 5 steps, 4 of which decode: 5 x 1.9746 + 4 x .0199 ms more.
    let delay = record(&slow, 0, 1).dispatched - record(&fast, 0, 1).dispatched;
    assert!(delay.0.abs_diff(9_952_600) <= 5, "{delay}: each step rounds once");
    for run in [&fast, &slow] {
        let gap = record(run, 0, 1).dispatched - record(run, 0, 0).ended;
        assert_eq!(gap, Span::from_secs(5));
    }
}

#[test]
fn an_arrival_at_the_end_of_a_call_starts_with_what_the_call_left_in_the_cache() {
    let calls = vec![call(1_000, 9), call(1_100, 2).after("0").keeping(0, 1_009)];
    let run = played(calls);
    let second = record(&run, 0, 1);
    // 1,008 tokens have KV: 63 blocks of 16.
    assert_eq!(second.cached, Tokens(1_008));
    assert_near(second.ttft(), on_paper(&[], &[(1_008, 92, true)]));
}
