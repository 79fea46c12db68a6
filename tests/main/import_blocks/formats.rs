//! Each rule of a format on the smallest file that shows it.

use std::fs;

use tonnage::trace::import::{Options, Outputs};
use tonnage::trace::meta::PartialBlock;
use tonnage::trace::record::{After, AfterEvent, Base, Call, Cause, Trace};
use tonnage::units::{Span, Tokens};

use super::{after, error_of, folder, import, joined, tonnage, try_import};

const HEADER: &str = concat!(
    r#"{"schema":"dynamo.agentic_mooncake","version":2,"block_size":10,"#,
    r#""hash_id_scope":"local","source":{"format":"test","digest":"x"}}"#,
);

fn bases(trace: &Trace) -> Vec<Vec<(Base, u64)>> {
    let of_call = |call: &Call| (call.base.clone(), call.kept_tokens.0);
    trace.sessions.iter().map(|session| session.calls.iter().map(of_call).collect()).collect()
}

fn shared(name: &str) -> Base {
    Base::Shared(name.into())
}

fn gaps(calls: &[Call]) -> Vec<f64> {
    calls.iter().map(|call| call.gap.secs()).collect()
}

#[test]
fn mooncake_rows_without_a_session_share_by_their_ids() {
    let rows = r#"
        {"timestamp": 250, "input_length": 1300, "output_length": 9, "hash_ids": [1, 2, 3]}
        {"timestamp": 0, "input_length": 1500, "output_length": 7, "hash_ids": [1, 2, 4]}

        {"timestamp": 400.5, "input_length": 1300, "output_length": 0, "hash_ids": [1, 2, 3]}
    "#;
    let (trace, done) = import("mooncake", &joined(rows));
    let at: Vec<f64> = trace.sessions.iter().map(|s| s.calls[0].at.secs()).collect();
    assert_eq!(at, [0.0, 0.25, 0.4005]);
    // Two whole blocks are common to all, and the two equal prompts agree to their last token.
    assert_eq!(
        bases(&trace),
        [[(shared("c0000"), 1024)], [(shared("c0001"), 1300)], [(shared("c0001"), 1300)]]
    );
    assert_eq!(trace.contexts[1].base.as_deref(), Some("c0000"));
    assert_eq!(
        (trace.contexts[1].kept_tokens, trace.contexts[1].prompt_tokens.0),
        (Tokens(1024), 1300)
    );
    assert_eq!(done.meta.origin_block_size, Some(512));
    assert_eq!(done.meta.partial_block, Some(PartialBlock::Count));
    assert_eq!((done.report.read, done.report.kept), (3, 3));
}

#[test]
fn mooncake_turns_of_a_session_wait_for_the_one_before() {
    let rows = r#"
        {"session_id": "a", "timestamp": 1000, "input_length": 20, "output_length": 60,
            "hash_ids": [1, 2]}
        {"session_id": 7, "timestamp": 1500, "input_length": 25, "output_length": 5,
            "hash_ids": [1, 9, 10]}
        {"session_id": "a", "delay": 500, "input_length": 95, "output_length": 5,
            "hash_ids": [1, 2, 3, 4, 5, 6, 7, 8, 20, 21]}
        {"session_id": "a", "timestamp": 80000, "input_length": 30, "output_length": 5,
            "hash_ids": [1, 2, 40]}
        {"session_id": "a", "timestamp": 82000, "delay": 1250.5, "input_length": 40,
            "output_length": 5, "hash_ids": [1, 2, 40, 41]}
    "#;
    let options =
        Options { block_size: Some(10), keep_ids: true, assume_tps: 30.0, ..Options::default() };
    let (trace, done) = try_import("mooncake", &joined(rows), &options).unwrap();
    assert_eq!(trace.sessions.iter().map(|s| &*s.id).collect::<Vec<_>>(), ["a", "7"]);
    let calls = &trace.sessions[0].calls;
    // The second has no time: 1 s + 60 tokens at 30/s, then the delay.
    assert_eq!(calls.iter().map(|c| c.at.secs()).collect::<Vec<_>>(), [1.0, 4.5, 80.0, 82.0]);
    let third = 75.5 - (1.0 + 5.0 / 30.0);
    assert_eq!(gaps(calls)[..2], [0.0, 0.5]);
    assert!((gaps(calls)[2] - third).abs() < 1e-6 && gaps(calls)[3] == 1.2505);
    assert_eq!(calls.iter().map(after).collect::<Vec<_>>(), [vec![], vec![0], vec![1], vec![2]]);
    let told: Vec<_> = calls.iter().map(|call| (call.cause, call.turn)).collect();
    let (user, tool) = (Cause::User, Cause::Tool);
    assert_eq!(told, [(user, 0), (tool, 0), (user, 1), (tool, 1)]);
    // Call 1 has room for the answer of call 0; call 3 has none for that of call 2.
    assert_eq!(
        bases(&trace)[0],
        [(shared("c0000"), 10), (Base::Call(0), 80), (Base::Call(1), 20), (Base::Call(2), 35),]
    );
    let assumed: Vec<u64> = done.report.assumed.iter().map(|assumed| assumed.count).collect();
    assert_eq!(assumed, [1, 1, 0]);
    let dropped = Options { outputs: Outputs::Dropped, ..options };
    let (trace, _) = try_import("mooncake", &joined(rows), &dropped).unwrap();
    assert_eq!(bases(&trace)[0][1], (Base::Call(0), 20));
}

#[test]
fn dates_become_times_from_the_first_of_them() {
    let rows = r#"
        {"timestamp": 1700000000250, "input_length": 5, "output_length": 9, "hash_ids": [1]}
        {"timestamp": 1700000001000, "input_length": 5, "output_length": 7, "hash_ids": [2]}
    "#;
    let (trace, done) = import("mooncake", &joined(rows));
    let at: Vec<f64> = trace.sessions.iter().map(|s| s.calls[0].at.secs()).collect();
    assert_eq!(at, [0.0, 0.75]);
    assert_eq!(done.meta.start.as_deref(), Some("2023-11-14T22:13:20.25Z"));
}

#[test]
fn partial_blocks_have_ids_in_all_rows_or_in_none() {
    let row = |length: u64, ids: &str| {
        format!(
            "{{\"timestamp\":0,\"input_length\":{length},\"output_length\":1,\"hash_ids\":{ids}}}\n"
        )
    };
    let (_, done) = import("mooncake", &(row(1024, "[1,2]") + &row(600, "[1]")));
    assert_eq!(done.meta.partial_block, Some(PartialBlock::Drop));
    let mixed = row(600, "[1]") + &row(600, "[1,2]");
    assert!(error_of("mooncake", &mixed).starts_with(":2: hash_ids: the partial block has an id"));
    let error = error_of("mooncake", &row(600, "[1,2,3]"));
    assert!(error.contains("3 block ids do not fit 600 tokens: that is 1 whole block"), "{error}");
}

#[test]
fn bailian_chats_are_sessions() {
    let rows = r#"
        {"chat_id": 10, "parent_chat_id": -1, "timestamp": 61.114, "input_length": 40,
            "output_length": 30, "type": "text", "turn": 1, "hash_ids": [1, 2, 3]}
        {"chat_id": 11, "parent_chat_id": -1, "timestamp": 62, "input_length": 20,
            "output_length": 5, "type": "search", "turn": 1, "hash_ids": [1, 9]}
        {"chat_id": 12, "parent_chat_id": 10, "timestamp": 70.614, "input_length": 80,
            "output_length": 5, "type": "text", "turn": 2, "hash_ids": [1, 2, 4, 5, 6]}
        {"chat_id": 13, "parent_chat_id": 12, "timestamp": 90, "input_length": 85,
            "output_length": 5, "type": "image", "turn": 3, "hash_ids": [1, 2, 4, 5, 6, 7]}
        {"chat_id": 14, "parent_chat_id": 10, "timestamp": 95, "input_length": 41,
            "output_length": 5, "type": "text", "turn": 2, "hash_ids": [1, 2, 30]}
        {"chat_id": 15, "parent_chat_id": 99, "timestamp": 96, "input_length": 15,
            "output_length": 5, "type": "text", "turn": 4, "hash_ids": [70]}
    "#;
    let (trace, done) = import("bailian", &joined(rows));
    assert_eq!(trace.sessions.iter().map(|s| s.calls.len()).collect::<Vec<_>>(), [4, 1, 1]);
    let calls = &trace.sessions[0].calls;
    assert_eq!(calls[0].at.secs(), 61.114);
    assert_eq!(calls.iter().map(after).collect::<Vec<_>>(), [vec![], vec![0], vec![1], vec![0]]);
    // 9.5 s less 1 s and 30 tokens at 60/s.
    assert_eq!(gaps(calls)[1], 8.0);
    assert_eq!(calls.iter().map(|call| call.turn).collect::<Vec<_>>(), [0, 1, 2, 2]);
    assert_eq!(&*calls[2].profile, "image");
    assert_eq!(
        bases(&trace),
        [
            vec![
                (shared("c0000"), 16),
                (Base::Call(0), 70),
                (Base::Call(1), 85),
                (Base::Call(2), 32),
            ],
            vec![(shared("c0000"), 16)],
            vec![(Base::None, 0)],
        ]
    );
    assert_eq!(done.report.assumed[0].count, 1, "one parent is not there");
    assert_eq!(done.meta.origin_block_size, Some(16));
}

fn agentic(rows: &[&str]) -> String {
    let rows: Vec<String> = rows.iter().map(|row| row.replace('\'', "\"")).collect();
    format!("{HEADER}\n{}\n", rows.join("\n"))
}

#[test]
fn agentic_requests_are_sent_when_what_they_wait_for_has_happened() {
    let text = agentic(&[
        "{'request_id':'d','play_id':'p','session_id':'main','model':'m','input_length':45,\
         'output_length':5,'hash_ids':[1,2,3,4,5],'not_before_ms':0,'dependencies':[\
         {'request_id':'a','trigger':'completion','delay_ms':0,'relation':'sequence'},\
         {'request_id':'c','trigger':'completion','delay_ms':250,'relation':'join'}]}",
        "{'request_id':'a','play_id':'p','session_id':'main','model':'m','input_length':25,\
         'output_length':12,'hash_ids':[1,2,3],'not_before_ms':5000,\
         'recorded_api_time_ms':2000}",
        "{'request_id':'b','play_id':'p','session_id':'sub','model':'n','input_length':20,\
         'output_length':60,'hash_ids':[1,8],'not_before_ms':0,'dependencies':[\
         {'request_id':'a','trigger':'dispatch','delay_ms':500.5,'relation':'spawn'}]}",
        "{'request_id':'c','play_id':'p','session_id':'sub','model':'n','input_length':30,\
         'output_length':120,'hash_ids':[1,8,9],'not_before_ms':20000,'dependencies':[\
         {'request_id':'b','trigger':'completion','delay_ms':10,\
         'relation':'replay_barrier'}]}",
        "{'request_id':'a','play_id':'q','session_id':'main','model':'m','input_length':25,\
         'output_length':12,'hash_ids':[1,2,3],'not_before_ms':7000}",
    ]);
    let options = Options { keep_ids: true, ..Options::default() };
    let (trace, done) = try_import("agentic-mooncake", &text, &options).unwrap();
    assert_eq!(trace.sessions.iter().map(|s| &*s.id).collect::<Vec<_>>(), ["p", "q"]);
    let calls = &trace.sessions[0].calls;
    // b: half a second behind a's dispatch, takes 2 s; c: not before 20, takes 3 s.
    assert_eq!(calls.iter().map(|c| c.at.secs()).collect::<Vec<_>>(), [5.0, 5.5005, 20.0, 23.25]);
    assert_eq!(calls.iter().map(|c| c.lane).collect::<Vec<_>>(), [0, 1, 1, 0]);
    assert_eq!(gaps(calls), [0.0, 0.5005, 12.4995, 0.25]);
    assert_eq!(calls[1].after, [After { call: 0, event: AfterEvent::Dispatched }]);
    assert_eq!(after(&calls[3]), [0, 2]);
    let causes: Vec<Cause> = calls.iter().map(|call| call.cause).collect();
    assert_eq!(causes, [Cause::User, Cause::Subagent, Cause::Tool, Cause::Tool]);
    assert_eq!(calls[0].seen_duration, Some(Span::from_secs(2)));
    assert_eq!(&*calls[1].model, "n");
    // Ids are the play's own: nothing is shared with the other.
    assert!(trace.contexts.is_empty());
    assert_eq!(
        bases(&trace)[0][1..],
        [(Base::Call(0), 10), (Base::Call(1), 20), (Base::Call(0), 37)]
    );
    let assumed: Vec<u64> = done.report.assumed.iter().map(|assumed| assumed.count).collect();
    assert_eq!(assumed, [4, 2, 0], "server times, unlike delays, priorities");
    let global = text.replace("\"local\"", "\"global\"");
    let (trace, _) = import("agentic-mooncake", &global);
    assert_eq!(bases(&trace)[1], [(shared("c0000"), 25)]);
}

#[test]
fn agentic_files_of_another_kind_are_refused() {
    let row = "{'request_id':'a','play_id':'p','session_id':'s','model':'m',\
     'input_length':5,'output_length':1,'hash_ids':[1],'not_before_ms':0}";
    let good = agentic(&[row]);
    assert_eq!(import("agentic-mooncake", &good).0.sessions.len(), 1);
    let skip = Options { skip_bad: true, ..Options::default() };
    for (from, to, said) in [
        (HEADER, "", ":2: schema: the value is missing"),
        ("dynamo.", "my.", ":1: schema: found `my.agentic_mooncake`, allowed: dynamo.agentic"),
        ("\"version\":2", "\"version\":1", ":1: version: found `1`, allowed: 2"),
        ("\"block_size\":10", "\"block_size\":0", ":1: block_size: found `0`"),
        ("local", "mine", ":1: hash_id_scope: found `mine`, allowed: local, global"),
    ] {
        let text = good.replace(from, to);
        let error = error_of("agentic-mooncake", &text);
        assert!(error.starts_with(said), "{error}");
        let error = try_import("agentic-mooncake", &text, &skip).unwrap_err().to_string();
        assert!(error.contains(said), "nothing can be read without its header: {error}");
    }
}

#[test]
fn rows_that_others_make_useless_are_bad_rows() {
    let row = |id: &str, waits: &str| {
        format!(
            "{{'request_id':'{id}','play_id':'p','session_id':'s','model':'m','input_length':5,\
             'output_length':1,'hash_ids':[1],'not_before_ms':0,'dependencies':[{waits}]}}"
        )
    };
    let wait = |id: &str| {
        format!("{{'request_id':'{id}','trigger':'completion','delay_ms':0,'relation':'sequence'}}")
    };
    let rows = [
        row("a", ""),
        row("b", &wait("nobody")),
        row("c", &wait("b")),
        row("d", &wait("e")),
        row("e", &wait("d")),
        row("f", &wait("a")),
    ];
    let text = agentic(&rows.iter().map(String::as_str).collect::<Vec<_>>());
    let error = error_of("agentic-mooncake", &text);
    assert!(error.starts_with(":3: dependencies: the play has no request `nobody`"), "{error}");
    let skip = Options { skip_bad: true, ..Options::default() };
    let (trace, done) = try_import("agentic-mooncake", &text, &skip).unwrap();
    assert_eq!((trace.sessions[0].calls.len(), done.report.bad.count()), (2, 4));
    assert_eq!((done.report.read, done.report.kept), (6, 2));
    assert!(done.report.bad.shown()[1].to_string().contains("waits for itself, or for a row"));
}

#[test]
fn bad_rows_name_line_and_field() {
    let mooncake = r#"{"timestamp":0,"input_length":5,"output_length":1,"hash_ids":[1]}"#;
    let bailian = concat!(
        r#"{"chat_id":1,"parent_chat_id":-1,"timestamp":0,"input_length":5,"output_length":1,"#,
        r#""type":"text","turn":1,"hash_ids":[1]}"#,
    );
    let agentic = concat!(
        r#"{"request_id":"a","play_id":"p","session_id":"s","model":"m","input_length":5,"#,
        r#""output_length":1,"hash_ids":[1],"not_before_ms":0,"dependencies":["#,
        r#"{"request_id":"b","trigger":"completion","delay_ms":0,"relation":"join"}]}"#,
    );
    for (format, row, from, to, said) in [
        (
            "mooncake",
            mooncake,
            "\"timestamp\":0,",
            "",
            "timestamp: the first row of a session has none",
        ),
        ("mooncake", mooncake, ":0,", ":-1,", "timestamp: found `-1`, allowed: a number from 0"),
        ("mooncake", mooncake, ":0,", ":\"now\",", "timestamp: found `\"now\"`"),
        ("mooncake", mooncake, ":5,", ":0,", "input_length: found `0`, allowed: an integer from 1"),
        ("mooncake", mooncake, ":1,", ":1.5,", "output_length: found `1.5`"),
        ("mooncake", mooncake, "[1]", "[-1]", ":2:64: invalid value: integer `-1`"),
        ("mooncake", mooncake, ",\"hash_ids\":[1]", "", "hash_ids: the value is missing"),
        (
            "mooncake",
            mooncake,
            "{",
            "{\"session_id\":[],",
            "session_id: found `[]`, allowed: a text",
        ),
        ("mooncake", mooncake, mooncake, "[1]", "found `[1]`, allowed: a JSON object, one request"),
        ("bailian", bailian, "\"chat_id\":1", "\"chat_id\":\"x\"", "chat_id: found `\"x\"`"),
        ("bailian", bailian, "-1", "-2", "parent_chat_id: found `-2`, allowed: an integer from 0"),
        ("bailian", bailian, "\"text\"", "5", "type: found `5`, allowed: a text"),
        (
            "agentic-mooncake",
            agentic,
            "\"join\"",
            "\"fork\"",
            "dependencies[0].relation: found `fork`",
        ),
        ("agentic-mooncake", agentic, "completion", "end", "dependencies[0].trigger: found `end`"),
        ("agentic-mooncake", agentic, "\"s\"", "\"\"", "session_id: the text is empty"),
        ("agentic-mooncake", agentic, "\"model\":\"m\",", "", "model: the value is missing"),
    ] {
        let bad = row.replacen(from, to, 1);
        let head = if format == "agentic-mooncake" { HEADER } else { row };
        let error =
            error_of(format, &format!("{head}\n{}", bad.replace(":1,\"parent", ":2,\"parent")));
        assert!(error.starts_with(":2:") && error.contains(said), "{said}: {error}");
    }
    let twice = format!("{bailian}\n{bailian}");
    assert!(error_of("bailian", &twice).contains("chat_id: the request 1 is given twice"));
    assert!(error_of("bailian", "\n").starts_with(": the file holds no row"));
}

#[test]
fn the_command_counts_what_it_leaves_out() {
    let folder = folder();
    let row = r#"{"timestamp":0,"input_length":5,"output_length":1,"hash_ids":[1]}"#;
    fs::write(folder.path().join("m.jsonl"), format!("{row}\nnonsense\n{row}\n")).unwrap();
    let mut run = tonnage(folder.path());
    let run = run.args(["import", "mooncake", "m.jsonl", "-o", "t.csv"]).assert().code(2);
    let said = String::from_utf8_lossy(&run.get_output().stderr).into_owned();
    assert!(said.contains("m.jsonl:2: found `nonsense`") && said.contains("--skip-bad"), "{said}");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing is half written");
    let mut run = tonnage(folder.path());
    run.args(["import", "mooncake", "m.jsonl", "-o", "t.csv", "--skip-bad", "--block-size", "16"]);
    let run = run.assert().success();
    let text = String::from_utf8_lossy(&run.get_output().stdout).into_owned();
    for line in ["rows read         3\n", "rows kept         2\n", "rows dropped      1\n"] {
        assert!(text.contains(line), "{text}");
    }
    let said = String::from_utf8_lossy(&run.get_output().stderr).into_owned();
    assert!(said.contains("left out: m.jsonl:2:"), "{said}");
    let sidecar = fs::read_to_string(folder.path().join("t.meta.json")).unwrap();
    assert!(sidecar.contains("--assume-tps 60 --block-size 16 --skip-bad\""), "{sidecar}");
}
