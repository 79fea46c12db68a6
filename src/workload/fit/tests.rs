use super::*;
use crate::trace::canonical;
use crate::trace::record::Trace;
use crate::workload::profile::Key;

const HEAD: &str = "session,call,at_s,after,gap_s,cause,turn,lane,model,tenant,user,profile,base,\
                    kept_tokens,prompt_tokens,output_tokens,tools,status,seen_duration_s\n";

fn trace(rows: &str) -> Trace {
    let text = format!("{HEAD}{rows}");
    canonical::read_from(std::io::Cursor::new(text.into_bytes()), "t.csv").unwrap()
}

fn read(trace: &Trace) -> Readings {
    let mut readings = Readings::default();
    trace.contexts.iter().for_each(|context| readings.context(context));
    trace.sessions.iter().for_each(|session| readings.session(session));
    readings.finish().unwrap();
    readings
}

fn about() -> About {
    About { name: "t".into(), source: "t.csv".into(), start_hour: None }
}

fn how(sessions: u64) -> Play {
    Play { sessions, seed: 1, start_hour: 0 }
}

fn values(readings: &Readings, quantity: Quantity) -> Vec<(f64, u64)> {
    let sample = readings.sample(quantity);
    sample.map_or(Vec::new(), |sample| sample.cells(quantity.steps(), false).values)
}

/// Two turns; a call beside, a subagent of two calls, a failed attempt, a compaction.
const SESSION: &str = "\
s,0,0,,0,user,0,0,m,,u,,,0,1000,50,9,ok,
s,1,0,,0,subagent,0,1,m,,u,,,0,1200,20,9,ok,
s,2,5,0;1,2,tool,0,0,m,,u,,0,1050,1500,30,9,ok,
s,3,8,2,0,subagent,0,2,n,,u,,,0,700,10,9,ok,
s,4,10,3,1,tool,0,2,n,,u,,3,710,900,10,9,ok,
s,5,20,2;4,4,tool,0,0,m,,u,,2,1500,40000,30,9,failed,7
s,6,30,5,3,retry,0,0,m,,u,,2,1500,40000,30,9,ok,
s,7,90,6,55,user,1,0,n,,u,,,0,9000,60,9,ok,
";

#[test]
fn a_session_worked_out_on_paper() {
    let readings = read(&trace(SESSION));
    for (quantity, expected) in [
        (Quantity::Turns, vec![(2.0, 1)]),
        // The subagent's calls and the failed attempt do not count, the call beside does.
        (Quantity::CallsFirst, vec![(4.0, 1)]),
        (Quantity::CallsLater, vec![(1.0, 1)]),
        (Quantity::CallsSingle, vec![]),
        (Quantity::First, vec![(1000.0, 1)]),
        (Quantity::GrowthTool, vec![(500.0, 1), (38500.0, 1)]),
        (Quantity::GrowthUser, vec![]),
        (Quantity::Compacted, vec![(9000.0, 1)]),
        (Quantity::GapTool, vec![(1.0, 1), (2.0, 1), (4.0, 1)]),
        (Quantity::GapUser, vec![(55.0, 1)]),
        (Quantity::Spawns, vec![(1.0, 1)]),
        (Quantity::SubagentCalls, vec![(2.0, 1)]),
        (Quantity::SubagentFirst, vec![(700.0, 1)]),
        (Quantity::SubagentGrowth, vec![(200.0, 1)]),
        (Quantity::FailedDuration, vec![(7.0, 1)]),
        (Quantity::RetryGap, vec![(3.0, 1)]),
        (Quantity::CallsPerSession, vec![(8.0, 1)]),
        (Quantity::CallsPerTurn, vec![(1.0, 1), (7.0, 1)]),
    ] {
        assert_eq!(values(&readings, quantity), expected, "{}", quantity.name());
    }
    for (share, expected) in [
        (Share::SingleTurn, 0.0),
        (Share::FailedCalls, 1.0 / 8.0),
        (Share::Switches, 1.0),
        // One growth had room for the answer and kept it, the other did and had not.
        (Share::Stripped, 0.0),
        (Share::Compactions, 1.0 / 3.0),
        (Share::SubagentSessions, 1.0),
    ] {
        assert_eq!(readings.value(share).unwrap().0, expected, "{}", share.name());
    }
}

#[test]
fn what_was_learnt_is_a_profile_that_reads_back() {
    let readings = read(&trace(SESSION));
    let mut learnt = learn(&readings, &about());
    let played = play(&learnt.profile, &readings, &how(50), || ()).unwrap();
    let comparison = compare(&readings, &played);
    learnt.profile.targets = targets(&comparison, "t.csv");
    let text = learnt.profile.to_toml();
    assert_eq!(Profile::parse(&text, "t.toml").unwrap(), learnt.profile, "{text}");
    assert_eq!((learnt.profile.model.as_str(), played.sessions()), ("m", 50));
    assert!(learnt.warnings.iter().any(|text| text.contains("`calls.first_turn` rests on 1")));
    // Nothing else was there to draw from.
    assert_eq!(values(&played, Quantity::First), [(1000.0, 50)]);
}

#[test]
fn one_call_is_enough() {
    let readings = read(&trace("s,0,0,,0,user,0,0,m,,,,,0,900,0,,ok,\n"));
    let profile = learn(&readings, &about()).profile;
    Profile::parse(&profile.to_toml(), "t.toml").unwrap();
    assert_eq!(profile.number(Key::SingleTurn), 1.0);
    assert_eq!(play(&profile, &readings, &how(3), || ()).unwrap().calls(), 3);
}

#[test]
fn a_token_that_changes_in_every_call_is_found_and_no_replaced_context() {
    let rows = "\
s,0,0,,0,user,0,0,m,,,,,0,900,10,,ok,
s,1,5,0,1,tool,0,0,m,,,,0,40,1200,10,,ok,
s,2,9,1,1,tool,0,0,m,,,,1,40,1300,10,,ok,
r,0,10,,0,user,0,0,m,,,,,0,900,10,,ok,
r,1,15,0,1,tool,0,0,m,,,,,0,700,10,,ok,
r,2,19,1,1,tool,0,0,m,,,,,0,1300,10,,ok,
";
    let readings = read(&trace(rows));
    assert_eq!(values(&readings, Quantity::VolatileAt), [(40.0, 1)]);
    assert_eq!(values(&readings, Quantity::GrowthTool), [(100.0, 1), (300.0, 1)]);
    assert_eq!(values(&readings, Quantity::ReplacedTokens), [(700.0, 1), (1300.0, 1)]);
    assert_eq!(readings.value(Share::Volatile), Some((0.5, 2.0)));
}

#[test]
fn sessions_are_chosen_by_their_first_call() {
    let rows = "\
a,0,0,,0,user,0,0,m,x,,p,,0,900,10,,ok,
b,0,1,,0,user,0,0,m,y,,p,,0,900,10,,ok,
";
    let sessions = trace(rows).sessions;
    let takes = |profile: Option<&str>, tenant: Option<&str>| {
        let filter = Filter { profile: profile.map(Into::into), tenant: tenant.map(Into::into) };
        sessions.iter().map(|session| filter.takes(session)).collect::<Vec<_>>()
    };
    assert_eq!(takes(None, None), [true, true]);
    assert_eq!(takes(Some("p"), Some("y")), [false, true]);
    assert_eq!(takes(Some("q"), None), [false, false]);
}

/// So many sessions of one call with prompts of 1,000 tokens and more, each so many times longer.
fn one_call_each(sessions: u64, factor: u64) -> Readings {
    let row = |n: u64| format!("s{n},0,{n},,0,user,0,0,m,,,,,0,{},9,,ok,\n", factor * (1_000 + n));
    read(&trace(&(0..sessions).map(row).collect::<String>()))
}

#[test]
fn a_trace_is_close_to_itself_and_off_from_another() {
    let verdicts = |comparison: &Comparison| {
        let rows = comparison.rows.iter().map(|row| row.verdict);
        rows.chain(comparison.shares.iter().map(|row| row.verdict)).collect::<Vec<_>>()
    };
    let readings = one_call_each(100, 1);
    let itself = compare(&readings, &readings);
    assert!(verdicts(&itself).iter().all(|verdict| *verdict == Verdict::Close), "{itself:?}");
    assert!(itself.rows.iter().all(|row| row.distance.unwrap().ks == 0.0));
    let other = compare(&readings, &one_call_each(100, 2));
    let prompt = other.rows.iter().find(|row| row.quantity == Quantity::Prompt).unwrap();
    assert_eq!((prompt.verdict, prompt.why.is_some()), (Verdict::Off, true));
    assert_eq!(prompt.distance.unwrap().moved, Some(1.0));
    // Of four sessions nothing can be told.
    let few = compare(&one_call_each(2, 1), &one_call_each(2, 2));
    let prompt = few.rows.iter().find(|row| row.quantity == Quantity::Prompt).unwrap();
    assert_eq!(prompt.verdict, Verdict::Sampling);
}
