//! Sessions of profiles whose every number is a constant, worked out on paper.

use super::*;
use crate::trace::record::{After, AfterEvent, Call, Status};

/// Two turns of three calls; every prompt grows by 100 tokens, every answer has 60.
const PLAIN: &str = "
name = 'plain'
models.main = 'm'
sessions.single_turn.value = 0
sessions.turns.value = 2
calls.first_turn.value = 3
calls.later_turn.value = 3
prompt.tools.value = 400
prompt.system.value = 100
prompt.first.value = 1000
prompt.growth_tool.value = 100
prompt.growth_user.value = 100
output.tokens.value = 60
gap.tool.value = 2
gap.user.value = 30
";

/// The session of the profile with these lines more, or other values of keys that it has.
fn made(changes: &[&str]) -> (Vec<Call>, Facts) {
    let mut lines: Vec<String> = PLAIN.lines().map(str::to_owned).collect();
    for change in changes {
        let key = change.split(" =").next().unwrap();
        lines.retain(|line| line.split(" =").next() != Some(key));
        // A key without a value is taken out.
        lines.extend((!change.ends_with('=')).then(|| (*change).to_owned()));
    }
    let marks = |line: &String| {
        let key = line.split(".value =").next().filter(|key| key.len() < line.len());
        let key = key.filter(|key| !key.starts_with("models") || key.ends_with("switch"));
        key.map(|key| format!("{key}.mark = 'assumed'\n{key}.source = 'a test'"))
    };
    let marks: Vec<String> = lines.iter().filter_map(marks).collect();
    let text = format!("{}\n{}", lines.join("\n"), marks.join("\n"));
    let profile = Profile::parse(&text, "plain").unwrap();
    let who = Who {
        profile: &profile,
        calls: 1.0,
        context: 1.0,
        id: "s".into(),
        tenant: "t".into(),
        user: "u".into(),
        key: "k".into(),
        label: "plain".into(),
        models: ["m".into(), "n".into()],
        prefix: Some(Prefix { name: "plain-v1".into(), tokens: Tokens(500) }),
        start: Span::from_secs(100),
    };
    let (session, facts) = session(&who, 1, 1, 60.0);
    (session.calls, facts)
}

fn after(calls: &[u32]) -> Vec<After> {
    let after = calls.iter().map(|call| After { call: *call, event: AfterEvent::Finished });
    after.collect()
}

fn bases(calls: &[Call]) -> Vec<(Base, u64, u64)> {
    let base = |call: &Call| (call.base.clone(), call.kept_tokens.0, call.prompt_tokens.0);
    calls.iter().map(base).collect()
}

fn shared() -> Base {
    Base::Shared("plain-v1".into())
}

#[test]
fn a_conversation_only_grows() {
    let (calls, facts) = made(&[]);
    assert_eq!(facts, Facts::default());
    // An answer of 60 tokens takes 1 s and 1 s; tools take 2 s, the user 30 s.
    let times: Vec<f64> = calls.iter().map(|call| call.at.secs()).collect();
    assert_eq!(times, [100.0, 104.0, 108.0, 140.0, 144.0, 148.0]);
    let turns: Vec<_> = calls.iter().map(|call| (call.turn, call.cause)).collect();
    let turn = |n| [(n, Cause::User), (n, Cause::Tool), (n, Cause::Tool)];
    assert_eq!(turns, [turn(0), turn(1)].concat());
    assert_eq!(bases(&calls)[..2], [(shared(), 500, 1_000), (Base::Call(0), 1_060, 1_100)]);
    assert_eq!(bases(&calls)[5], (Base::Call(4), 1_460, 1_500));
    assert_eq!((calls[0].after.clone(), calls[3].after.clone()), (vec![], after(&[2])));
    assert!(calls.iter().all(|call| (&*call.key.clone().unwrap(), &*call.user) == ("k", "u")));
}

#[test]
fn at_the_limit_a_session_is_compacted_or_ends() {
    let limit = "prompt.limit.value = 1250";
    let (calls, facts) = made(&[limit, "prompt.compacted.value = 800"]);
    let lengths: Vec<u64> = calls.iter().map(|call| call.prompt_tokens.0).collect();
    assert_eq!(lengths, [1_000, 1_100, 1_200, 800, 900, 1_000]);
    assert_eq!((bases(&calls)[3].clone(), facts.compactions), ((shared(), 500, 800), 1));
    let (calls, _) = made(&[limit, "prompt.at_limit = 'end'"]);
    assert_eq!(calls.len(), 3);
    // Who begins beyond the limit has twice that room.
    let first = "prompt.first.value = 9000";
    let (calls, facts) = made(&[limit, first, "prompt.compacted.value = 800"]);
    assert_eq!((calls[5].prompt_tokens.0, facts.compactions), (9_500, 0));
}

#[test]
fn what_is_not_repeated_exactly_is_not_kept() {
    let (calls, _) = made(&["prompt.stripped.value = 1"]);
    assert_eq!(bases(&calls)[1], (Base::Call(0), 1_000, 1_100));
    let (calls, _) = made(&["output.tokens.value = 150"]);
    assert_eq!(bases(&calls)[1], (Base::Call(0), 1_000, 1_100));
    let (calls, _) = made(&["prompt.volatile.value = 1", "prompt.volatile_at.value = 40"]);
    assert_eq!(bases(&calls)[..2], [(shared(), 40, 1_000), (Base::Call(0), 40, 1_100)]);
    let (calls, _) = made(&["prompt.replaced.value = 1", "prompt.replaced_tokens.value = 700"]);
    assert_eq!(bases(&calls)[1..], vec![(shared(), 500, 700); 5]);
}

#[test]
fn calls_beside_the_main_agents_share_its_history_and_are_waited_for() {
    let (calls, facts) = made(&["calls.beside.value = 1", "calls.first_turn.value = 1000"]);
    let lanes = facts.beside.len() as f64;
    // The second turn has one or two of its three calls beside the main agent's.
    assert!((lanes - 501.5).abs() <= 1.5, "{lanes}");
    for (number, call) in calls.iter().enumerate().filter(|(_, call)| call.lane > 0) {
        let main = calls.iter().rfind(|main| main.lane == 0 && main.at == call.at).unwrap();
        assert_eq!((&call.base, call.kept_tokens), (&main.base, main.kept_tokens));
        assert_eq!((&call.after, call.cause), (&main.after, Cause::Subagent));
        let next = calls.iter().find(|next| next.lane == 0 && next.at > call.at);
        assert!(next.is_none_or(|next| next.after.iter().any(|a| a.call == number as u32)));
    }
}

#[test]
fn the_next_call_waits_for_all_subagents() {
    let (calls, _) = made(&[
        "subagents.sessions.value = 1",
        "subagents.spawns.value = 2",
        "subagents.together.value = 2",
        "subagents.calls.value = 3",
        "subagents.first.value = 700",
        "subagents.growth.value = 80",
        "subagents.kept.value = 300",
    ]);
    assert_eq!(calls.len(), 12);
    let lane = |lane: u32| {
        calls.iter().enumerate().filter(move |(_, call)| call.lane == lane).collect::<Vec<_>>()
    };
    let (spawner, joiner) = (calls[lane(1)[0].0].after[0].call, lane(1)[2].0 as u32);
    assert_eq!(calls[spawner as usize].lane, 0);
    for number in [1, 2] {
        let own = lane(number);
        let found: Vec<_> = own.iter().map(|(_, call)| (call.cause, call.at)).collect();
        let start = calls[spawner as usize].at + Span::from_secs(2);
        let later = |secs| start + Span::from_secs(secs);
        let causes = [Cause::Subagent, Cause::Tool, Cause::Tool];
        assert_eq!(found, [0, 1, 2].map(|n| (causes[n], later(4 * n as u64))));
        let first = own[0].1;
        assert_eq!(
            (&first.base, first.kept_tokens.0, first.prompt_tokens.0),
            (&shared(), 300, 700)
        );
        assert_eq!(own[2].1.prompt_tokens.0, 860);
    }
    let waits =
        calls.iter().find(|call| call.lane == 0 && call.after.contains(&after(&[joiner])[0]));
    assert_eq!(waits.unwrap().after.len(), 3, "spawner and two subagents");
}

#[test]
fn failed_attempts_stand_before_the_one_that_succeeds() {
    let (calls, _) = made(&[
        "failures.calls.value = 0.5",
        "failures.duration.value = 4",
        "failures.retry_gap.value = 1",
    ]);
    let failed: Vec<usize> =
        (0..calls.len()).filter(|call| calls[*call].status == Status::Failed).collect();
    assert_eq!(calls.len(), 6 + failed.len());
    assert!(!failed.is_empty(), "none of six calls failed");
    for number in failed {
        let (first, again) = (&calls[number], &calls[number + 1]);
        assert_eq!((first.output_tokens.0, first.seen_duration), (0, Some(Span::from_secs(4))));
        assert_eq!((again.cause, &again.after), (Cause::Retry, &after(&[number as u32])));
        assert_eq!((&again.base, again.kept_tokens), (&first.base, first.kept_tokens));
        assert_eq!(again.at, first.at + Span::from_secs(5));
    }
}

#[test]
fn a_switch_changes_the_model_for_the_turns_that_follow() {
    let (calls, _) =
        made(&["models.switch.value = 1", "models.other = 'n'", "sessions.turns.value = 3"]);
    let models: Vec<&str> = calls.iter().step_by(3).map(|call| &*call.model).collect();
    assert_eq!(models, ["m", "n", "m"]);
}

#[test]
fn failures_make_turns_and_sessions_longer() {
    let (calls, _) = made(&["calls.failed_turn.value = 1", "calls.failed_turn_factor.value = 4"]);
    assert_eq!(calls.len(), 24);
    let (calls, facts) = made(&["sessions.failed.value = 1", "sessions.failed_factor.value = 2"]);
    assert_eq!((calls.len(), facts.is_stuck), (12, true));
}

#[test]
fn the_slowest_tool_of_a_batch_decides() {
    let slow = |batch: u32| {
        let batch = format!("gap.batch.value = {batch}");
        let (calls, _) = made(&[
            "gap.tool = { family = 'exponential', mean = 2, mark = 'fit', source = '' }",
            "gap.tool.value =",
            &batch,
            "calls.first_turn.value = 4000",
        ]);
        let gaps = calls.iter().filter(|call| call.cause == Cause::Tool);
        gaps.map(|call| call.gap.secs()).sum::<f64>() / 4_001.0
    };
    // The largest of three exponential times is 1 + 1/2 + 1/3 of their mean, on average.
    assert!((slow(1) - 2.0).abs() < 0.1, "{}", slow(1));
    assert!((slow(3) - 3.667).abs() < 0.15, "{}", slow(3));
}
