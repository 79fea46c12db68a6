//! Small traces whose parts, clones and doubts were worked out on paper.

use tonnage::trace::canonical::read_from;
use tonnage::trace::record::{Item, Trace};
use tonnage::trace::tools::Source;
use tonnage::trace::tools::cut::{Cut, Window, cut};
use tonnage::trace::tools::inspect::{Doubt, Inspection};
use tonnage::trace::tools::scale::{Scale, scale};
use tonnage::units::Span;

use super::assert_keeps_the_rules;

const HEAD: &str = "session,call,at_s,after,gap_s,cause,turn,lane,model,tenant,user,profile,base,\
                    kept_tokens,prompt_tokens,output_tokens,tools,status,seen_duration_s\n";

fn read(rows: &str) -> Trace {
    read_from(std::io::Cursor::new(format!("{HEAD}{rows}")), "rows").unwrap()
}

/// A main agent with a subagent, and a later session. At 20 s call 2 is running, call 4 has not
/// come, and the subagent's call 3 has just been dispatched.
const ROWS: &str = "\
@tools,,,,,,,,,,,,,0,1000,,,,
@more,,,,,,,,,,,,@tools,800,900,,,,
one,0,0,,0,user,0,0,m,,,,@more,850,2000,100,,ok,5
one,1,6,0,1,tool,0,0,m,,,,0,2100,2300,50,,ok,4
one,2,12,1,2,tool,0,0,m,,,,1,2350,2600,70,,ok,10
one,3,13,2d,1,subagent,0,1,m,,,,@tools,1000,1500,40,,ok,4
one,4,21,3,4,tool,0,1,m,,,,3,1540,1700,30,,ok,2
one,5,30,2;4,7,tool,0,0,m,,,,0,1900,2500,20,,ok,2
one,6,40,1,30,user,1,0,m,,,,1,2200,2400,20,,failed,3
two,0,25,,0,user,0,0,m,,,,@tools,1000,1200,10,,ok,1
";

fn from(secs: u64) -> Window {
    Window { from: Span::from_secs(secs), ..Window::default() }
}

#[test]
fn a_session_goes_on_with_what_was_running() {
    let mut made = Trace::default();
    let told = cut(&read(ROWS), &from(20), &mut made).unwrap();
    // Calls 0, 1 and 3 had ended. Call 2 goes on with 2 s left; what it says before is 2350 tokens
    // of call 1's context, of which 800 are the tools'. The subagent repeats all 1540 tokens of
    // call 3's, 1000 of them the tools'. Call 5 keeps 1900 tokens of call 0's context and call 6
    // 2200 of call 1's: both are the beginning of those 2350.
    let expected = "\
@tools,,,,,,,,,,,,,0,1000,,,,
@more,,,,,,,,,,,,@tools,800,900,,,,
@one:before0,,,,,,,,,,,,@more,850,2350,,,,
@one:before1,,,,,,,,,,,,@tools,1000,1540,,,,
one,0,0,,0,tool,0,0,m,,,,@one:before0,2350,2600,70,,ok,2
one,1,1,,1,tool,0,1,m,,,,@one:before1,1540,1700,30,,ok,2
one,2,10,0;1,7,tool,0,0,m,,,,@one:before0,1900,2500,20,,ok,2
one,3,20,,20,user,1,0,m,,,,@one:before0,2200,2400,20,,failed,3
two,0,5,,0,user,0,0,m,,,,@tools,1000,1200,10,,ok,1
";
    let names: Vec<&str> = made.contexts.iter().map(|context| &*context.name).collect();
    assert_eq!(names, ["tools", "more", "one:before0", "one:before1"]);
    assert_eq!(made, read(expected));
    assert_eq!(
        told,
        Cut {
            sessions: 2,
            whole: 1,
            partial: 1,
            under_way: 1,
            calls: 5,
            running: 1,
            contexts_made: 2
        }
    );
    assert_keeps_the_rules(&made);
}

#[test]
fn an_idle_session_comes_at_its_recorded_time() {
    let mut made = Trace::default();
    cut(&read(ROWS), &Window { to: Some(Span::from_secs(41)), ..from(35) }, &mut made).unwrap();
    let expected = "\
@tools,,,,,,,,,,,,,0,1000,,,,
@more,,,,,,,,,,,,@tools,800,900,,,,
@one:before0,,,,,,,,,,,,@more,850,2200,,,,
one,0,5,,0,user,1,0,m,,,,@one:before0,2200,2400,20,,failed,3
";
    assert_eq!(made, read(expected));
}

#[test]
fn a_call_that_waited_for_a_dispatch_keeps_its_distance() {
    // Call 0 was dispatched at 4 s and runs until 24 s; call 1 came 9 s after its dispatch. From
    // 10 s on, 3 s are left. Call 2 waits for the end too, and its gap counts from there.
    let trace = read(
        "s,0,4,,0,user,0,0,m,,,,,0,100,5,,ok,20\n\
         s,1,13,0d,9,subagent,0,1,m,,,,,0,100,5,,ok,1\n\
         s,2,27,0;1d,3,tool,0,0,m,,,,0,105,200,5,,ok,1\n",
    );
    let mut made = Trace::default();
    cut(&trace, &from(10), &mut made).unwrap();
    let expected = read(
        "s,0,0,,0,user,0,0,m,,,,,0,100,5,,ok,14\n\
         s,1,3,0d,3,subagent,0,1,m,,,,,0,100,5,,ok,1\n\
         s,2,17,0;1d,3,tool,0,0,m,,,,0,105,200,5,,ok,1\n",
    );
    assert_eq!(made, expected);
}

#[test]
fn whole_sessions_are_those_that_start_in_the_part() {
    let mut made = Trace::default();
    let window = Window { to: Some(Span::from_secs(26)), whole_sessions: true, ..from(20) };
    let told = cut(&read(ROWS), &window, &mut made).unwrap();
    let expected = "\
@tools,,,,,,,,,,,,,0,1000,,,,
two,0,5,,0,user,0,0,m,,,,@tools,1000,1200,10,,ok,1
";
    assert_eq!(made, read(expected));
    assert_eq!((told.whole, told.partial, told.under_way), (1, 0, 0));
}

#[test]
fn a_part_without_calls_is_refused() {
    for window in [from(100), Window { to: Some(Span::from_secs(3)), ..from(3) }] {
        assert!(cut(&read(ROWS), &window, &mut Trace::default()).is_err());
    }
}

/// Five sessions use `@tools`, one of them through `@talk`, which two use.
fn shared() -> Trace {
    let mut rows = "@tools,,,,,,,,,,,,,0,100,,,,\n@talk,,,,,,,,,,,,@tools,90,300,,,,\n".to_owned();
    for (id, base) in [("a", "talk"), ("b", "talk"), ("c", "tools"), ("d", "tools"), ("e", "tools")]
    {
        rows += &format!("{id},0,9,,0,user,0,0,m,t,ann,,@{base},50,400,1,,ok,\n");
    }
    read(&rows)
}

#[test]
fn tools_stay_common_and_talks_get_an_identity_a_pass() {
    let mut made = Trace::default();
    let how = Scale { by: 3.0, jitter: Span::ZERO, seed: 1 };
    let told = scale(&shared(), &how, &mut made).unwrap();
    let contexts: Vec<(&str, Option<&str>)> =
        made.contexts.iter().map(|c| (&*c.name, c.base.as_deref())).collect();
    let tools = Some("tools");
    assert_eq!(contexts, [("tools", None), ("talk", tools), ("talk~1", tools), ("talk~2", tools)]);
    let ids: Vec<&str> = made.sessions.iter().map(|session| &*session.id).collect();
    assert_eq!(ids[..4], ["a", "a~1", "a~2", "b"]);
    assert_eq!(&*made.sessions[2].calls[0].user, "ann~2");
    assert_eq!(&*made.sessions[2].calls[0].tenant, "t");
    assert_eq!((told.kept, told.clones, told.common_contexts, told.cloned_contexts), (5, 10, 1, 2));

    // A scaled trace that is scaled again makes names that are still its own.
    let mut again = Trace::default();
    scale(&made, &Scale { by: 2.0, ..how }, &mut again).unwrap();
    assert_keeps_the_rules(&again);
    assert!(again.sessions.iter().any(|session| &*session.id == "a~2~3"));
    assert_eq!(again.sessions.len(), 30);
}

#[test]
fn what_is_legal_and_doubtful_is_told_with_its_first_place() {
    let trace = read(
        "@unused,,,,,,,,,,,,,0,9,,,,\n\
         s,0,3600,,0,user,0,0,m,a,,,,0,500,0,,ok,10\n\
         s,1,3605,0,0,tool,0,0,m,b,,,,0,400,5,,failed,\n\
         s,2,3700,1;0,90000,tool,0,0,m,a,,,,0,0,5,,ok,\n",
    );
    let mut inspection = Inspection::default();
    for item in trace.items().unwrap() {
        match item.unwrap() {
            Item::Context(context) => inspection.context(&context),
            Item::Session(session) => inspection.session(&session),
        }
    }
    let found: Vec<(Doubt, u64, String)> = inspection
        .doubts()
        .into_iter()
        .map(|(doubt, told)| (doubt, told.count, told.first))
        .collect();
    let call = |number| format!("session `s`, call {number}");
    assert_eq!(
        found,
        [
            (Doubt::NoOutput, 1, call(0)),
            (Doubt::NoPrompt, 1, call(2)),
            (Doubt::FailureWithoutDuration, 1, call(1)),
            (Doubt::ShrunkWithoutBase, 2, call(1)),
            (Doubt::OverlapsAwaited, 1, call(1)),
            (Doubt::LongGap, 1, call(2)),
            (Doubt::SeveralTenants, 1, call(1)),
            (Doubt::LateStart, 1, call(0)),
            (Doubt::UnusedContext, 1, "`@unused`".to_owned()),
        ]
    );
}
