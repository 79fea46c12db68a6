//! What is exported is read back as the same work, up to the size of a block.

use std::collections::BTreeMap;
use std::fs;

use proptest::prelude::*;
use serde_json::Value;
use tonnage::diag::Result;
use tonnage::trace::canonical::{self, Writer};
use tonnage::trace::export::agentic_mooncake::Scope;
use tonnage::trace::export::{self, Options, Report};
use tonnage::trace::import;
use tonnage::trace::meta::PartialBlock;
use tonnage::trace::record::{
    After, AfterEvent, Base, Call, Cause, Item, Session, SharedContext, Status, Trace,
};
use tonnage::units::{Span, Tokens};

use super::sharing::{assert_alike, prompts};
use super::{data, folder, stats, tonnage, try_import};
use crate::main::given::call;

/// Random numbers that become one call.
#[derive(Clone, Debug)]
struct Seed {
    /// What it continues: 0 nothing, 1 and 2 the contexts, else an earlier call.
    base: usize,
    kept: u64,
    new: u64,
    output: u64,
    waits: Vec<(usize, bool)>,
    gap: u64,
    served: u64,
    lane: u32,
}

fn seed() -> impl Strategy<Value = Seed> {
    let waits = prop::collection::vec((0usize..8, prop::bool::weighted(0.2)), 0..3);
    let times = (0u64..90_000_000_000, 1u64..9_000_000_000);
    ((0usize..9, 0u64..=64, 1u64..90, 0u64..50), waits, times, 0u32..3).prop_map(
        |((base, kept, new, output), waits, (gap, served), lane)| Seed {
            base,
            kept,
            new,
            output,
            waits,
            gap,
            served,
            lane,
        },
    )
}

fn sessions() -> impl Strategy<Value = Vec<(u64, Vec<Seed>)>> {
    prop::collection::vec((0u64..50_000_000, prop::collection::vec(seed(), 1..9)), 1..5)
}

const CONTEXTS: [u64; 2] = [37, 64];

/// A trace whose recorded times follow from gaps and durations, as a reader infers them. In a
/// chain every call waits for just the one before.
fn trace(sessions: &[(u64, Vec<Seed>)], chains: bool) -> Trace {
    let context = |(number, tokens): (usize, &u64)| SharedContext {
        name: format!("x{number}").into(),
        base: None,
        kept_tokens: Tokens(0),
        prompt_tokens: Tokens(*tokens),
    };
    let mut trace = Trace {
        contexts: CONTEXTS.iter().enumerate().map(context).collect(),
        sessions: Vec::new(),
    };
    let mut start = 0;
    for (number, (wait, seeds)) in sessions.iter().enumerate() {
        start += wait;
        let mut calls: Vec<Call> = Vec::new();
        for seed in seeds {
            calls.push(grown(seed, &calls, Span(start), chains));
        }
        // Lanes are numbered in order of first appearance.
        let mut lanes: BTreeMap<u32, u32> = BTreeMap::new();
        for call in &mut calls {
            let next = lanes.len() as u32;
            call.lane = *lanes.entry(call.lane).or_insert(next);
            call.cause = Cause::Tool;
        }
        trace.sessions.push(Session { id: format!("session {number}").into(), calls });
    }
    trace
}

fn grown(seed: &Seed, calls: &[Call], start: Span, chains: bool) -> Call {
    let number = calls.len();
    let mut new = call(seed.new, seed.output);
    new.lane = seed.lane;
    new.seen_duration = Some(Span(seed.served));
    if number > 0 && chains {
        new.after = vec![After { call: number as u32 - 1, event: AfterEvent::Finished }];
    } else if number > 0 {
        for (before, dispatched) in &seed.waits {
            let event = if *dispatched { AfterEvent::Dispatched } else { AfterEvent::Finished };
            new.after.push(After { call: (before % number) as u32, event });
        }
        new.after.sort_unstable();
        new.after.dedup();
    }
    let happened = new.after.iter().map(|after| {
        let before = &calls[after.call as usize];
        match after.event {
            AfterEvent::Finished => before.at + before.seen_duration.unwrap_or_default(),
            AfterEvent::Dispatched => before.at,
        }
    });
    let ready = happened.max().unwrap_or(start);
    // A session starts with its first call, and numbers go by time.
    let at_least = calls.last().map_or(start, |last| last.at);
    new.at = if number == 0 { start } else { (ready + Span(seed.gap)).max(at_least) };
    new.gap = new.at - ready;
    let (base, length) = match seed.base {
        0 => return new,
        n @ 1..=2 => (Base::Shared(format!("x{}", n - 1).into()), CONTEXTS[n - 1]),
        _ if number == 0 => return new,
        n => {
            let base = (n - 3) % number;
            let finished = After { call: base as u32, event: AfterEvent::Finished };
            let output =
                if new.after.contains(&finished) { calls[base].output_tokens.0 } else { 0 };
            (Base::Call(base as u32), calls[base].prompt_tokens.0 + output)
        }
    };
    new.base = base;
    new.kept_tokens = Tokens(length * seed.kept / 64);
    new.prompt_tokens += new.kept_tokens;
    new
}

fn items(trace: &Trace) -> impl Iterator<Item = Result<Item>> + '_ {
    let contexts = trace.contexts.iter().cloned().map(Item::Context);
    contexts.chain(trace.sessions.iter().cloned().map(Item::Session)).map(Ok)
}

fn back(format: &str, text: &[u8], block_size: Option<u64>) -> Trace {
    let options = import::Options { keep_ids: true, block_size, ..Default::default() };
    try_import(format, str::from_utf8(text).unwrap(), &options).unwrap().0
}

fn flat<T: Copy + Into<u64>>(prompts: Vec<Vec<Vec<T>>>) -> Vec<Vec<u64>> {
    let prompts = prompts.into_iter().flatten();
    prompts.map(|prompt| prompt.into_iter().map(Into::into).collect()).collect()
}

fn partials() -> impl Strategy<Value = PartialBlock> {
    prop::sample::select(vec![PartialBlock::Count, PartialBlock::Drop])
}

proptest! {
    #[test]
    fn agentic_mooncake_carries_all_that_steers_a_replay(
        sessions in sessions(),
        block_size in prop::sample::select(vec![1u64, 8, 16, 64]),
        partial_block in partials(),
    ) {
        let trace = trace(&sessions, false);
        let options = Options { block_size, partial_block };
        let mut text = Vec::new();
        let items = &mut items(&trace);
        let scope = Scope::Global;
        export::agentic_mooncake::export(items, &options, scope, "t", &mut text).unwrap();
        let again = back("agentic-mooncake", &text, None);
        prop_assert_eq!(again.sessions.len(), trace.sessions.len());
        for (session, again) in trace.sessions.iter().zip(&again.sessions) {
            prop_assert_eq!(&session.id, &again.id);
            prop_assert_eq!(session.calls.len(), again.calls.len());
            for (call, again) in session.calls.iter().zip(&again.calls) {
                prop_assert_eq!((call.at, call.gap), (again.at, again.gap));
                prop_assert_eq!(&call.after, &again.after);
                prop_assert_eq!(call.prompt_tokens, again.prompt_tokens);
                prop_assert_eq!(call.output_tokens, again.output_tokens);
                prop_assert_eq!((call.lane, &call.model), (again.lane, &again.model));
                prop_assert_eq!(call.seen_duration, again.seen_duration);
            }
        }
        let before = flat(prompts(&trace, block_size, partial_block));
        let after: Vec<_> = prompts(&again, block_size, partial_block);
        assert_alike(&before, &after.into_iter().flatten().collect::<Vec<_>>())?;
    }

    #[test]
    fn mooncake_carries_chains(
        sessions in sessions(),
        block_size in prop::sample::select(vec![1u64, 16, 512]),
        partial_block in partials(),
    ) {
        let trace = trace(&sessions, true);
        let mut text = Vec::new();
        let options = Options { block_size, partial_block };
        let report = export::mooncake::export(&mut items(&trace), &options, &mut text).unwrap();
        let calls: usize = trace.sessions.iter().map(|session| session.calls.len()).sum();
        prop_assert_eq!(report.calls, calls as u64);
        let again = back("mooncake", &text, Some(block_size));
        prop_assert_eq!(again.sessions.len(), trace.sessions.len());
        for (session, again) in trace.sessions.iter().zip(&again.sessions) {
            prop_assert_eq!(session.calls[0].at, again.calls[0].at);
            prop_assert_eq!(session.calls.len(), again.calls.len());
            for (call, again) in session.calls.iter().zip(&again.calls) {
                prop_assert_eq!((call.gap, &call.after), (again.gap, &again.after));
                prop_assert_eq!(call.prompt_tokens, again.prompt_tokens);
                prop_assert_eq!(call.output_tokens, again.output_tokens);
            }
        }
        let before = flat(prompts(&trace, block_size, partial_block));
        let after = prompts(&again, block_size, partial_block);
        assert_alike(&before, &after.into_iter().flatten().collect::<Vec<_>>())?;
    }

    #[test]
    fn mooncake_shares_what_any_trace_shares(sessions in sessions(), partial_block in partials()) {
        let mut trace = trace(&sessions, false);
        // The outputs tell the calls apart, wherever they go.
        let calls = trace.sessions.iter_mut().flat_map(|session| &mut session.calls);
        for (number, call) in calls.enumerate() {
            if call.kept_tokens > Tokens(0) || call.base == Base::None {
                call.output_tokens = call.output_tokens.max(Tokens(1));
            }
            call.output_tokens = Tokens(call.output_tokens.0 * 1_000 + number as u64);
        }
        let mut text = Vec::new();
        let options = Options { block_size: 8, partial_block };
        export::mooncake::export(&mut items(&trace), &options, &mut text).unwrap();
        let again = back("mooncake", &text, Some(8));
        let by_output = |trace: &Trace| {
            let calls = trace.sessions.iter().flat_map(|session| &session.calls);
            let outputs: Vec<u64> = calls.map(|call| call.output_tokens.0).collect();
            let prompts = prompts(trace, 8, partial_block).into_iter().flatten();
            outputs.into_iter().zip(prompts).collect::<BTreeMap<_, _>>()
        };
        let (before, after) = (by_output(&trace), by_output(&again));
        prop_assert!(before.keys().eq(after.keys()));
        let before: Vec<Vec<u64>> =
            before.into_values().map(|ids| ids.into_iter().map(u64::from).collect()).collect();
        assert_alike(&before, &after.into_values().collect::<Vec<_>>())?;
    }
}

/// A small trace with everything that a form may have no place for.
fn rich() -> Trace {
    let seed = |base, waits: &[(usize, bool)], lane| Seed {
        base,
        kept: 64,
        new: 100,
        output: 40,
        waits: waits.to_vec(),
        gap: 1_000_000_500,
        served: 2_000_000_000,
        lane,
    };
    let finished = [(0, false)];
    let calls = vec![
        seed(1, &[], 0),
        seed(3, &finished, 0),
        seed(1, &[(0, true)], 1),
        seed(4, &[(1, false), (2, false)], 0),
    ];
    let mut trace = trace(&[(0, calls.clone()), (5_000_000, calls[..2].to_vec())], false);
    trace.sessions[0].calls[1].tenant = "team".into();
    trace.sessions[0].calls[1].priority = 2;
    trace.sessions[0].calls[2].status = Status::Failed;
    trace.sessions[0].calls[2].model = "small".into();
    trace
}

fn write(trace: &Trace, path: &std::path::Path) {
    let mut writer = Writer::create(path).unwrap();
    trace.contexts.iter().for_each(|context| writer.context(context).unwrap());
    trace.sessions.iter().for_each(|session| writer.session(session).unwrap());
    writer.finish().unwrap();
}

#[test]
fn a_prompt_that_repeats_an_answer_has_its_block_ids() {
    let trace = rich();
    let options = Options { block_size: 10, partial_block: PartialBlock::Count };
    let mut text = Vec::new();
    export::mooncake::export(&mut items(&trace), &options, &mut text).unwrap();
    let rows = str::from_utf8(&text).unwrap().lines();
    let rows: Vec<Value> = rows.map(|row| serde_json::from_str(row).unwrap()).collect();
    // Call 1 of the first session repeats 137 tokens of prompt and 40 of answer, call 3 all of it.
    let ids = |row: &Value| -> Vec<u64> {
        row["hash_ids"].as_array().unwrap().iter().filter_map(Value::as_u64).collect()
    };
    let of = |length: u64, session: &str| {
        let found = rows.iter().filter(|row| row["input_length"] == length);
        let mut found = found.filter(|row| session.is_empty() || row["session_id"] == session);
        ids(found.next().unwrap())
    };
    let (second, last) = (of(277, "session 0"), of(417, ""));
    assert_eq!(second[..27], last[..27]);
    assert_eq!((second.len(), last.len()), (28, 42));
    // Whole blocks of the shared context, then each session's own.
    let other = of(277, "session 1");
    assert_eq!((&second[..3], second[3] == other[3]), (&other[..3], false));
}

#[test]
fn the_form_of_the_rows_is_the_one_that_others_read() {
    let trace = rich();
    let options = Options { block_size: 64, partial_block: PartialBlock::Count };
    let mut text = Vec::new();
    let items = &mut items(&trace);
    export::agentic_mooncake::export(items, &options, Scope::Local, "t.csv", &mut text).unwrap();
    let rows: Vec<&str> = str::from_utf8(&text).unwrap().lines().collect();
    assert_eq!(
        rows[0],
        concat!(
            r#"{"schema":"dynamo.agentic_mooncake","version":2,"block_size":64,"#,
            r#""hash_id_scope":"local","source":{"format":"tonnage","digest":"t.csv"}}"#,
        )
    );
    assert_eq!(
        rows[3],
        concat!(
            r#"{"request_id":"session 0/2","play_id":"session 0","session_id":"session 0.1","#,
            r#""model":"small","input_length":137,"output_length":40,"hash_ids":[7,8,9],"#,
            r#""not_before_ms":0,"recorded_api_time_ms":2000,"dependencies":["#,
            r#"{"request_id":"session 0/0","trigger":"dispatch","delay_ms":3000.0005,"#,
            r#""relation":"spawn"}]}"#,
        )
    );
    assert!(
        rows[4].contains(r#""relation":"sequence"},{"request_id":"session 0/2""#),
        "{}",
        rows[4]
    );
    assert!(rows[4].contains(r#""relation":"join"}"#), "{}", rows[4]);
    let mut text = Vec::new();
    let items = &mut self::items(&trace);
    export::mooncake::export(items, &options, &mut text).unwrap();
    let rows: Vec<&str> = str::from_utf8(&text).unwrap().lines().collect();
    assert_eq!(
        rows[0],
        concat!(
            r#"{"timestamp":0,"input_length":137,"output_length":40,"hash_ids":[1,2,3],"#,
            r#""session_id":"session 0"}"#,
        )
    );
    assert!(rows[2].ends_with(r#""session_id":"session 0","delay":1000.0005}"#), "{}", rows[2]);
}

fn lost(report: &Report) -> Vec<String> {
    report.warnings().iter().map(|warning| warning.0.clone()).collect()
}

#[test]
fn what_a_form_has_no_place_for_is_told() {
    let trace = rich();
    let options = Options { block_size: 64, partial_block: PartialBlock::Drop };
    let agentic = |scope| {
        let items = &mut items(&trace);
        export::agentic_mooncake::export(items, &options, scope, "t", &mut Vec::new()).unwrap()
    };
    let common = [
        "1 failed calls are written like others: they will do work",
        "1 calls lose their tenant, user, profile or key",
        "1 calls lose their priority",
    ];
    let local = lost(&agentic(Scope::Local));
    assert_eq!(local[..3], common);
    assert!(local[3].starts_with("2 sessions share no longer"), "{local:?}");
    assert_eq!(local[4], "6 prompts are longer than their block ids, which Dynamo refuses");
    assert_eq!(lost(&agentic(Scope::Global)).len(), 4);
    let report = export::mooncake::export(&mut items(&trace), &options, &mut Vec::new()).unwrap();
    let mooncake = lost(&report);
    assert_eq!(mooncake[..3], common);
    assert!(mooncake[3].starts_with("2 calls do not wait for just the call before"));
    assert!(mooncake[4].starts_with("2 models become one"), "{mooncake:?}");
    assert!(export::mooncake::export(&mut [].into_iter(), &options, &mut Vec::new()).is_err());
}

#[test]
fn the_command_writes_a_file_that_is_whole_or_not_there() {
    let folder = folder();
    let path = |name: &str| folder.path().join(name);
    write(&rich(), &path("t.csv"));
    let mut run = tonnage(folder.path());
    let run = run.args(["export", "agentic-mooncake", "t.csv", "-o", "a.jsonl.gz"]);
    let run = run.args(["--hash-id-scope", "global"]).assert().success();
    let said = String::from_utf8_lossy(&run.get_output().stderr).into_owned();
    assert!(said.contains("warning: 1 failed calls are written like others"), "{said}");
    let text = String::from_utf8_lossy(&run.get_output().stdout).into_owned();
    assert!(
        text.contains("sessions          2\n") && text.contains("calls             6\n"),
        "{text}"
    );
    let mut run = tonnage(folder.path());
    run.args(["import", "agentic-mooncake", "a.jsonl.gz", "-o", "b.csv", "--keep-ids"]);
    run.assert().success();
    let again = canonical::read_all(&path("b.csv")).unwrap();
    assert_eq!(again.sessions[0].calls[3].after, rich().sessions[0].calls[3].after);
    assert_eq!(again.sessions[0].calls[3].gap, rich().sessions[0].calls[3].gap);
    let whole = fs::read_to_string(path("t.csv")).unwrap();
    fs::write(path("bad.csv"), whole.replace(",tool,0,1,", ",tol,0,1,")).unwrap();
    for (args, said) in [
        (&["export", "mooncake", "bad.csv", "-o", "m.jsonl"][..], "bad.csv:"),
        (&["export", "mooncake", "t.csv", "-o", "t.csv"], "would replace the trace"),
        (&["export", "mooncake", "t.csv", "-o", "m.jsonl", "--block-size", "0"], "block-size"),
        (&["export", "mooncakes", "t.csv", "-o", "m.jsonl"], "mooncake"),
    ] {
        let run = tonnage(folder.path()).args(args).assert().code(2);
        let error = String::from_utf8_lossy(&run.get_output().stderr).into_owned();
        assert!(error.contains(said), "{args:?}: {error}");
        assert!(!path("m.jsonl").exists() && fs::read_to_string(path("t.csv")).unwrap() == whole);
    }
}

#[test]
fn a_trace_of_the_public_hour_goes_there_and_back() {
    let folder = folder();
    let mut run = tonnage(folder.path());
    run.args(["import", "mooncake"]).arg(data("mooncake/conversation_trace.jsonl.gz"));
    run.args(["-o", "t.csv.zst"]).assert().success();
    let mut run = tonnage(folder.path());
    run.args(["export", "mooncake", "t.csv.zst", "-o", "m.jsonl.zst"]).assert().success();
    let mut run = tonnage(folder.path());
    run.args(["import", "mooncake", "m.jsonl.zst", "-o", "u.csv.zst"]).assert().success();
    let figures = |trace| stats(folder.path(), &[trace, "--lru", "1000,10000,50000"]);
    assert_eq!(figures("t.csv.zst"), figures("u.csv.zst"));
}

#[test]
fn a_call_without_a_prompt_comes_back_with_one_token() {
    let mut trace = rich();
    let session = &mut trace.sessions[0];
    let mut call = session.calls[0].clone();
    (call.base, call.kept_tokens, call.prompt_tokens) = (Base::None, Tokens(0), Tokens(0));
    (call.output_tokens, call.status, call.after) = (Tokens(0), Status::Failed, Vec::new());
    session.calls = vec![call];
    let told = "calls without a prompt get one of 1 token";
    for partial_block in [PartialBlock::Count, PartialBlock::Drop] {
        let options = Options { block_size: 16, partial_block };
        let (mut plain, mut agentic) = (Vec::new(), Vec::new());
        let reports = [
            export::mooncake::export(&mut items(&trace), &options, &mut plain).unwrap(),
            export::agentic_mooncake::export(
                &mut items(&trace),
                &options,
                Scope::Global,
                "t",
                &mut agentic,
            )
            .unwrap(),
        ];
        for report in reports {
            let count = report.lost.iter().find(|lost| lost.what.starts_with(told));
            assert_eq!(count.map(|lost| lost.count), Some(1));
        }
        for again in [back("mooncake", &plain, Some(16)), back("agentic-mooncake", &agentic, None)]
        {
            assert_eq!(again.sessions[0].calls[0].prompt_tokens, Tokens(1));
        }
    }
}
