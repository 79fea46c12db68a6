//! Reader and writer together, and every refusal with its place.

use std::fs;
use std::io::Write;

use proptest::prelude::*;

use super::*;
use crate::diag::Error;
use crate::trace::record::{After, Base, Call, Name, Session, SharedContext};
use crate::units::{Span, Tokens};

const HEAD: &str = "session,call,at_s,after,gap_s,cause,turn,lane,model,tenant,user,profile,base,\
                    kept_tokens,prompt_tokens,output_tokens,tools,status\n";

/// Two sessions on one shared context; calls that overlap, fail, and wait for a dispatch.
const GOOD: &str = "\
@sys,,,,,,,,,,,,,0,120,,,
@fork,,,,,,,,,,,,@sys,100,300,,,
a,0,0,,0,user,0,0,m,t,u,p,@sys,120,400,60,14,ok
a,1,0.5,0d,0.5,subagent,0,1,m,t,u,p,@fork,250,260,0,,failed
a,2,9,0;1,1.25,tool,0,0,m,t,u,p,0,460,500,20,,ok
a,3,9,2d,0,retry,1,0,m2,t,u,p,0,460,480,20,,aborted
b,0,3,,0,user,7,0,m,,,,,0,0,0,,ok
";

fn read(text: impl Into<Vec<u8>>) -> Result<Vec<Item>> {
    Reader::from_read(std::io::Cursor::new(text.into()), "t.csv")?.collect()
}

fn rows(rows: &str) -> Result<Vec<Item>> {
    read(format!("{HEAD}{rows}"))
}

fn refusal(result: Result<Vec<Item>>) -> String {
    result.unwrap_err().to_string()
}

#[test]
fn a_trace_is_read_as_it_stands() {
    let items = rows(GOOD).unwrap();
    assert_eq!(items.len(), 4);
    let Item::Context(fork) = &items[1] else { panic!("{:?}", items[1]) };
    assert_eq!((&*fork.name, fork.base.as_deref()), ("fork", Some("sys")));
    assert_eq!((fork.kept_tokens, fork.prompt_tokens), (Tokens(100), Tokens(300)));
    let Item::Session(a) = &items[2] else { panic!("{:?}", items[2]) };
    assert_eq!(a.calls[0].base, Base::Shared("sys".into()));
    assert_eq!(a.calls[0].tools, Some(14));
    assert_eq!(a.calls[1].after, [After { call: 0, event: AfterEvent::Dispatched }]);
    assert_eq!((a.calls[1].cause, a.calls[1].status), (Cause::Subagent, Status::Failed));
    assert_eq!(a.calls[2].gap, Span::from_millis(1_250));
    assert_eq!(a.calls[3].finish, Finish::Stop);
    assert_eq!(a.calls[3].seen_duration, None);
}

#[test]
fn the_example_of_the_documentation_keeps_the_rules() {
    let page = include_str!("../../../docs/trace.md");
    let (_, example) = page.split_once("```csv\n").unwrap();
    let (example, _) = example.split_once("```").unwrap();
    assert_eq!(read(example).unwrap().len(), 3);
    for column in Column::ALL {
        assert!(page.contains(&format!("`{}`", column.name())), "{}", column.name());
    }
}

#[test]
fn the_header_decides_and_data_frames_are_understood() {
    let text = "\u{feff}status,stream,tools,max_tokens,seen_ttft_s,output_tokens,prompt_tokens,\
                kept_tokens,base,profile,user,tenant,model,lane,turn,cause,gap_s,after,at_s,call,\
                session\r\n\
                ok,True,12.0,4096.0,1e-05,5,10,0,,,,,m,0,0,user,0.0,,2.5E1,0,s\r\n\
                ok,,,,,5,10,10,0.0,,,,m,0,0,tool,0.0,0.0,2.5E1,1,s\r\n";
    let items = read(text).unwrap();
    let Item::Session(session) = &items[0] else { panic!("{items:?}") };
    let call = &session.calls[0];
    assert_eq!((call.tools, call.stream), (Some(12), Some(true)));
    assert_eq!(call.max_tokens, Some(Tokens(4096)));
    assert_eq!(call.seen_ttft, Some(Span::from_micros(10)));
    assert_eq!(call.at, Span::from_secs(25));
    assert_eq!(session.calls[1].base, Base::Call(0));
    assert_eq!(session.calls[1].after, [After { call: 0, event: AfterEvent::Finished }]);
}

#[test]
fn compression_is_known_by_content_and_members_are_joined() {
    let plain = format!("{HEAD}{GOOD}");
    let (one, two) = plain.as_bytes().split_at(200);
    let gzip = |bytes: &[u8]| {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), Default::default());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    };
    let expected = read(&plain[..]).unwrap();
    let gzipped = [gzip(one), gzip(two)].concat();
    assert_eq!(read(gzipped.clone()).unwrap(), expected);
    let zstd = |bytes| zstd::encode_all(bytes, 0).unwrap();
    let zstd = [zstd(one), zstd(two)].concat();
    assert_eq!(read(zstd.clone()).unwrap(), expected);
    for whole in [gzipped, zstd] {
        for len in [5, 30, whole.len() - 20, whole.len() - 1] {
            let error = refusal(read(&whole[..len]));
            assert!(error.starts_with("t.csv") && error.contains("cut off"), "{len}: {error}");
        }
    }
}

#[test]
fn what_is_no_trace_is_refused_by_name() {
    for (bytes, said) in [
        (&b""[..], "t.csv: the file is empty"),
        (b"PAR1\x15\x04", "t.csv: this is a Parquet file"),
        (b"session\0call", "t.csv: this is a binary file"),
        (b"\xff\xfes\0e\0s\0", "t.csv: the text is UTF-16"),
        (b"session,\xffcall\n", "t.csv:1:2: the header is not UTF-8"),
        (b"session,call\n", "t.csv:1: the header lacks at_s, after, gap_s"),
        (b"session,call,session\n", "t.csv:1:3: column `session` stands twice"),
        (b"session,promt_tokens\n", "t.csv:1:2: unknown column `promt_tokens`"),
        (b"a,0,0\n", "the first line must name the columns"),
        (HEAD.as_bytes(), "t.csv: the trace holds no session"),
    ] {
        let error = refusal(read(bytes));
        assert!(error.contains(said), "{error}");
    }
    assert!(refusal(read(&b"session,promt_tokens\n"[..])).contains("did you mean `prompt_tokens`"));
    assert!(refusal(rows("@c,,,,,,,,,,,,,0,5,,,\n")).contains("no session"));
    let gone = Reader::open(Path::new("/no/such/trace.csv")).err().unwrap().to_string();
    assert!(gone.starts_with("/no/such/trace.csv: cannot open"), "{gone}");
}

/// Replaces one cell of the good trace; `line` counts from 1, as in the error.
fn with_cell(line: usize, column: Column, cell: &str) -> String {
    let text = format!("{HEAD}{GOOD}");
    let lines = text.lines().enumerate().map(|(number, row)| {
        let mut cells: Vec<&str> = row.split(',').collect();
        if number + 1 == line {
            cells[column as usize] = cell;
        }
        cells.join(",") + "\n"
    });
    lines.collect()
}

/// A table, and so a long one: a line for each refusal.
#[test]
fn a_file_that_was_cut_off_is_said_to_be_so_once() {
    let rows: String = (0..30_000).map(|at| format!("s{at},{}", "0,".repeat(at % 9))).collect();
    let whole = zstd::encode_all(format!("{HEAD}{GOOD}{rows}").as_bytes(), 0).unwrap();
    let cut = std::io::Cursor::new(whole[..whole.len() - 1].to_vec());
    let found = Reader::from_read(cut, "t.csv.zst").unwrap().lenient();
    let errors = found.filter_map(std::result::Result::err).map(|error| error.to_string());
    assert_eq!(errors.filter(|error| error.contains("cut off")).count(), 1);
}

#[test]
fn a_wrong_header_is_named_with_its_line() {
    let error = refusal(read(format!("\r\n\n{}", HEAD.replace("gap_s", "gap"))));
    assert!(error.starts_with("t.csv:3:5: unknown column `gap`"), "{error}");
}

#[test]
fn a_wrong_cell_is_named_with_line_and_column() {
    for (line, column, cell, said) in [
        (2, Column::Session, "@", "a shared context needs a name"),
        (2, Column::Kept, "1", "found `1`, allowed: 0, as there is no base"),
        (2, Column::Kept, "", "found ``, allowed: a whole number"),
        (2, Column::Model, "m", "found `m`, allowed: nothing in the row of a shared context"),
        (3, Column::Session, "@sys", "`@sys` is declared twice"),
        (3, Column::Base, "@fork", "`@fork` is not declared above"),
        (3, Column::Base, "0", "found `0`, allowed: `@name`"),
        (3, Column::Kept, "121", "at most 120, the length of `@sys`"),
        (3, Column::Prompt, "90", "at most 90, the length of the prompt"),
        (4, Column::Session, "", "a session id, not empty"),
        (4, Column::Call, "1", "found `1`, allowed: 0, the next call"),
        (4, Column::At, "-1", "found `-1`, allowed: seconds from 0"),
        (4, Column::At, "-1e3", "found `-1e3`, allowed: seconds from 0"),
        (4, Column::At, "inf", "found `inf`, allowed: seconds from 0"),
        (4, Column::At, "4000000000", "seconds from 0 to 3155760000"),
        (4, Column::Gap, "", "found ``, allowed: seconds"),
        (4, Column::Cause, "subagent", "allowed: user, tool, retry in lane 0"),
        (4, Column::Cause, "tol", "did you mean `tool`?"),
        (4, Column::Turn, "x", "found `x`, allowed: a whole number from 0 to 1000000"),
        (4, Column::Base, "@syss", "did you mean `@sys`?"),
        (4, Column::Base, "0", "found `0`, allowed: a call of this session before this one"),
        (4, Column::Base, "x", "an earlier call's number, `@name`"),
        (4, Column::Kept, "-5", "found `-5`, allowed: a whole number"),
        (4, Column::Kept, "+5", "found `+5`, allowed: a whole number"),
        (4, Column::Kept, "130", "at most 120, the length of `@sys`"),
        (4, Column::Prompt, "1000000001", "a whole number from 0 to 1000000000"),
        (4, Column::Output, "1.5", "found `1.5`, allowed: a whole number"),
        (4, Column::After, "0", "call 0 cannot wait for itself"),
        (5, Column::After, "3", "call 1 cannot wait for call 3"),
        (5, Column::After, "9d", "the session has no call 9"),
        (5, Column::After, "0;", "as in `3;5d`"),
        (6, Column::After, "0;0", "call 0 stands twice"),
        (6, Column::Kept, "461", "at most 460, the length of call 0 (prompt and output)"),
        (6, Column::After, "", "at most 400, the prompt of call 0, which need not have finished"),
        (6, Column::Call, "3", "found `3`, allowed: 2, the next call"),
        (7, Column::Turn, "0", ""),
        (7, Column::Status, "okay", "did you mean `ok`?"),
        (8, Column::Session, "a", "found `0`, allowed: 4, the next call"),
        (8, Column::User, "a\u{7}b", "control character"),
    ] {
        let result = read(with_cell(line, column, cell));
        if said.is_empty() {
            result.unwrap();
            continue;
        }
        let error = result.unwrap_err();
        let place = error.place();
        assert_eq!(place.file.as_deref(), Some("t.csv"));
        assert_eq!(place.line, Some(line as u64), "{error}");
        let named = Column::ALL.iter().position(|c| Some(c.name()) == place.field.as_deref());
        assert_eq!(place.column, named.map(|index| index as u64 + 1), "{error}");
        assert!(error.to_string().contains(said), "line {line}: {error}");
    }
    let exact = refusal(read(with_cell(4, Column::Cause, "tol")));
    assert!(exact.starts_with("t.csv:4:6: cause: unknown cause `tol`"), "{exact}");
    // Where two rows contradict each other, the later one is named.
    let at = refusal(read(with_cell(4, Column::At, "5")));
    assert!(at.starts_with("t.csv:5:3: at_s: found `0.5`, allowed: 5 or later"), "{at}");
    let turn = refusal(read(with_cell(4, Column::Turn, "2")));
    assert!(turn.starts_with("t.csv:6:7: turn: found `0`, allowed: 2 or later, in"), "{turn}");
}

#[test]
fn rows_out_of_shape_or_out_of_place_are_refused() {
    let row = |id: &str, at: &str| format!("{id},0,{at},,0,user,0,0,m,,,,,0,1,1,,ok\n");
    let back = row("a", "0") + &row("b", "0") + &row("a", "0");
    for (text, said) in [
        (back, "t.csv:4:1: session: session `a` comes back after another"),
        (row("a", "2") + &row("b", "1"), "t.csv:3:3: at_s: found `1`, allowed: 2 or later"),
        ("a,0\n".to_owned(), "t.csv:2: the row is too short: 2 cells, the header has 18"),
        (row("a", "0,1"), "t.csv:2: the row is too long: 19 cells"),
        (row("\"a", "0") + &row("b", "0"), "t.csv:2: a quotation mark is never closed"),
        (row("\"a", "0") + "b\",x\n", "is a quotation mark never closed?"),
    ] {
        let error = refusal(rows(&text));
        assert!(error.contains(said), "{error}");
    }
    let mut bytes = format!("{HEAD}{GOOD}").into_bytes();
    let place = bytes.len() - 30;
    let user = bytes[place..].iter().position(|byte| *byte == b'm').unwrap() + place;
    bytes[user] = 0xff;
    assert!(refusal(read(bytes)).contains("t.csv:8:9: model: the text is not UTF-8"));
}

#[test]
fn an_error_ends_the_iteration() {
    let text = format!("{HEAD}{GOOD}b,0,0,,0,user,0,0,m,,,,,0,1,1,,ok\n{GOOD}");
    let reader = Reader::from_read(std::io::Cursor::new(text), "t.csv").unwrap();
    let results: Vec<bool> = reader.map(|item| item.is_ok()).collect();
    assert_eq!(results, [true, true, true, false]);
}

/// The writer's form of some items.
fn written(items: &[Item], compression: Compression) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut writer = Writer::from_write(&mut bytes, compression, "out")?;
    for item in items {
        match item {
            Item::Context(context) => writer.context(context)?,
            Item::Session(session) => writer.session(session)?,
        }
    }
    writer.finish()?;
    Ok(bytes)
}

#[test]
fn a_file_appears_only_when_it_is_whole() {
    let folder = tempfile::tempdir().unwrap();
    let names = || fs::read_dir(folder.path()).unwrap().count();
    let items = rows(GOOD).unwrap();
    for name in ["x.csv", "x.csv.gz", "x.csv.zst"] {
        let path = folder.path().join(name);
        let before = names();
        let mut writer = Writer::create(&path).unwrap();
        for item in &items {
            match item {
                Item::Context(context) => writer.context(context).unwrap(),
                Item::Session(session) => writer.session(session).unwrap(),
            }
        }
        assert!(!path.exists());
        writer.finish().unwrap();
        assert_eq!(names(), before + 1);
        let trace = read_all(&path).unwrap();
        assert_eq!((trace.contexts.len(), trace.sessions.len()), (2, 2));
    }
    let zstd = fs::read(folder.path().join("x.csv.zst")).unwrap();
    assert_eq!(zstd[..4], [0x28, 0xb5, 0x2f, 0xfd]);

    // Neither a dropped writer nor a trace without a session touches what is there.
    let path = folder.path().join("x.csv");
    let old = fs::read(&path).unwrap();
    drop(Writer::create(&path).unwrap());
    assert!(Writer::create(&path).unwrap().finish().is_err());
    assert_eq!(fs::read(&path).unwrap(), old);
    assert_eq!(names(), 3);
    assert!(Writer::create(folder.path()).is_err());
}

#[test]
fn the_writer_keeps_the_rules_too() {
    let mut items = rows(GOOD).unwrap();
    let Item::Session(session) = &mut items[2] else { panic!("no session") };
    session.calls[2].kept_tokens = Tokens(900);
    let error = written(&items, Compression::None).unwrap_err().to_string();
    let said = "out: session `a`, call 2: kept_tokens: found `900`, allowed: at most 460";
    assert!(error.starts_with(said), "{error}");
    items.remove(0);
    let error = written(&items, Compression::None).unwrap_err().to_string();
    assert!(error.starts_with("out: shared context `@fork`: base: `@sys` is not"), "{error}");
}

/// A write that fails must not be taken for one that worked.
#[test]
fn a_full_disk_is_an_error() {
    struct Full;
    impl Write for Full {
        fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
            Err(std::io::Error::from(std::io::ErrorKind::StorageFull))
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    for compression in [Compression::None, Compression::Gzip, Compression::Zstd] {
        let mut writer = Writer::from_write(Full, compression, "out").unwrap();
        let Item::Session(session) = &rows(GOOD).unwrap()[3] else { panic!("no session") };
        let ended = writer.session(session).and_then(|()| writer.finish());
        assert!(ended.is_err_and(|error: Error| error.to_string().contains("cannot write")));
    }
}

/// Numbers from which a call is made that keeps the rules.
type Raw = ((u64, u64, u64), (u32, u32, u32), (u64, u64, u64), String, Option<bool>);

fn raw() -> impl Strategy<Value = Raw> {
    (
        (0..5_000_000_000u64, 0..3_000_000_000u64, any::<u64>()),
        (0..4u32, 0..3u32, 0..3u32),
        (0..2_000u64, 0..2_000u64, 0..500u64),
        "[a-z@;,\" é']{0,6}",
        any::<Option<bool>>(),
    )
}

fn call(raw: &Raw, earlier: &[Call], contexts: &[SharedContext]) -> Call {
    let ((step, gap, bits), (turn, lane, kind), (kept, prompt, output), text, flag) = raw;
    let number = earlier.len();
    let pick = |len: usize| (*bits as usize >> 8) % len.max(1);
    let (base, length) = match kind {
        1 if number > 0 => {
            let base = pick(number);
            let whole = earlier[base].prompt_tokens + earlier[base].output_tokens;
            (Base::Call(base as u32), whole)
        }
        2 if !contexts.is_empty() => {
            let context = &contexts[pick(contexts.len())];
            (Base::Shared(Name::clone(&context.name)), context.prompt_tokens)
        }
        _ => (Base::None, Tokens(0)),
    };
    let mut after = Vec::new();
    if let Base::Call(call) = base {
        after.push(After { call, event: AfterEvent::Finished });
    }
    if number > 0 && bits & 1 == 1 {
        after.push(After { call: number as u32 - 1, event: AfterEvent::Dispatched });
    }
    let main = earlier.iter().rfind(|call| call.lane == 0);
    let name = Name::from(&text[..]);
    let kept_tokens = Tokens(*kept).min(length);
    Call {
        at: Span(earlier.last().map_or(0, |call| call.at.0) + step),
        after,
        gap: Span(*gap),
        cause: if *lane == 0 { Cause::Tool } else { Cause::Subagent },
        turn: main.map_or(0, |call| call.turn) + turn,
        lane: *lane,
        model: Name::clone(&name),
        tenant: "t".into(),
        user: Name::clone(&name),
        profile: "".into(),
        base,
        kept_tokens,
        prompt_tokens: kept_tokens + Tokens(*prompt),
        output_tokens: Tokens(*output),
        tools: flag.map(|_| *turn),
        status: [Status::Ok, Status::Failed, Status::Aborted][pick(3)],
        finish: if bits & 2 == 0 { Finish::Stop } else { Finish::Length },
        priority: *bits as i32,
        key: (!name.is_empty()).then_some(name),
        stream: *flag,
        max_tokens: flag.map(|_| Tokens(*prompt)),
        retries: *turn,
        seen_cached: flag.map(|_| Tokens(*kept)),
        seen_ttft: flag.map(|_| Span(*gap)),
        seen_duration: flag.map(|_| Span(*step)),
    }
}

proptest! {
    #[test]
    fn what_is_written_is_read_back(
        lengths in prop::collection::vec((0..500u64, 0..500u64, ".{0,4}"), 0..4),
        sessions in prop::collection::vec(prop::collection::vec(raw(), 1..6), 1..6),
    ) {
        let mut contexts: Vec<SharedContext> = Vec::new();
        for (number, (kept, new, text)) in lengths.iter().enumerate() {
            let text: String = text.chars().filter(|c| !c.is_control()).collect();
            let base = contexts.last();
            let kept_tokens = Tokens(*kept).min(base.map_or(Tokens(0), |base| base.prompt_tokens));
            contexts.push(SharedContext {
                name: format!("c{number}{text}").into(),
                base: base.map(|base| Name::clone(&base.name)),
                kept_tokens,
                prompt_tokens: kept_tokens + Tokens(*new),
            });
        }
        let mut sessions: Vec<Session> = sessions.iter().enumerate().map(|(number, raws)| {
            let mut calls = Vec::new();
            for raw in raws {
                let next = call(raw, &calls, &contexts);
                calls.push(next);
            }
            Session { id: format!("s{number}").into(), calls }
        }).collect();
        sessions.sort_by_key(|session| session.calls[0].at);
        let contexts = contexts.into_iter().map(Item::Context);
        let items: Vec<Item> = contexts.chain(sessions.into_iter().map(Item::Session)).collect();
        for compression in [Compression::None, Compression::Gzip, Compression::Zstd] {
            let bytes = written(&items, compression).unwrap();
            prop_assert_eq!(&read(bytes).unwrap(), &items);
        }
    }

    /// No input makes the reader panic, or read without end.
    #[test]
    fn any_bytes_are_read_or_refused(
        bytes in prop::collection::vec(any::<u8>(), 0..300),
        line in 0..9usize,
    ) {
        let _ = read(bytes.clone());
        let mut text = format!("{HEAD}{GOOD}").into_bytes();
        let place = (line * 60).min(text.len());
        text.splice(place..place, bytes);
        let lines = text.split(|&byte| byte == b'\n' || byte == b'\r').count();
        if let Ok(reader) = Reader::from_read(std::io::Cursor::new(text.clone()), "t") {
            // Who goes on after errors comes to an end: at most one error a row, and one at last.
            let items = reader.lenient().take(2 * lines + 9).count();
            prop_assert!(items <= 2 * lines, "{items} items in {lines} lines");
        }
        let _ = read(text);
    }
}
