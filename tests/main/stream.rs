//! Sessions that are read or made while others are played: the same results as with all of them at
//! hand, for any number of threads, in memory that follows the open ones.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command as Plain, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use assert_cmd::Command;
use proptest::prelude::*;
use serde_json::Value;
use tempfile::TempDir;
use tonnage::config::reshape::Reshape;
use tonnage::config::scenario::Scenario;
use tonnage::diag::Result;
use tonnage::fleet::arrivals::{Failure, Sessions};
use tonnage::fleet::feed::{Beside, Feed};
use tonnage::fleet::observer::{About, Observer};
use tonnage::fleet::played::{Repeated, played};
use tonnage::fleet::workload::{Arrival, Workload};
use tonnage::fleet::{Progress, Run, Setup, simulate};
use tonnage::observe::records::{CallRecord, Records, TaskRecord, TurnRecord};
use tonnage::sizing::case::Case;
use tonnage::trace::record::{Item, Lend, Lent, Name, Trace};
use tonnage::units::{Span, Time};

use super::given::{call, lasting, setup, trace};
use super::property::{any_setup, any_trace, config};

fn items(trace: &Trace) -> impl Iterator<Item = Result<Item>> + Send + use<> {
    let contexts = trace.contexts.clone().into_iter().map(Item::Context);
    contexts.chain(trace.sessions.clone().into_iter().map(Item::Session)).map(Ok)
}

fn feed(trace: &Trace) -> impl Iterator<Item = Result<Arrival>> + Send + use<> {
    Feed::new(items(trace), &BTreeMap::new())
}

fn streamed(setup: &Setup, trace: &Trace, beside: bool) -> Run {
    let feed = feed(trace);
    let sessions = match beside {
        false => Sessions::Stream(Box::new(feed)),
        true => Sessions::Stream(Box::new(Beside::new(move |hand| {
            for arrival in feed {
                hand.over_to(arrival);
            }
        }))),
    };
    simulate(setup, sessions, Records::default(), None, &Progress::default())
}

fn held(setup: &Setup, trace: &Trace) -> Run {
    let workload = Workload::new(trace, &BTreeMap::new());
    let sessions = Sessions::Held(&workload);
    simulate(setup, sessions, Records::default(), None, &Progress::default())
}

proptest! {
    #![proptest_config(config(200))]

    #[test]
    fn a_stream_is_played_like_a_held_trace(
        trace in any_trace(), setup in any_setup(), beside in any::<bool>(), open in any::<bool>(),
    ) {
        let setup = Setup { open_loop: open, ..setup };
        let (held, streamed) = (held(&setup, &trace), streamed(&setup, &trace, beside));
        prop_assert_eq!(&streamed.failure, &None);
        prop_assert_eq!(&held.records.calls, &streamed.records.calls);
        prop_assert_eq!(&held.records.turns, &streamed.records.turns);
        prop_assert_eq!(&held.records.tasks, &streamed.records.tasks);
        prop_assert_eq!(&held.engines, &streamed.engines);
        prop_assert_eq!(&held.burst, &streamed.burst);
        prop_assert_eq!(held.counts, streamed.counts);
        prop_assert_eq!(&held.names, &streamed.names);
        prop_assert_eq!(held.window, streamed.window);
        prop_assert_eq!(held.live_context_mean, streamed.live_context_mean);
    }
}

/// What is told of a trace, item by item.
fn told(mut items: impl Lend) -> Trace {
    let mut trace = Trace::default();
    while let Some(item) = items.lend() {
        match item.unwrap() {
            Lent::Context(context) => trace.contexts.push(context),
            Lent::Session(session) => trace.sessions.push(session.clone()),
        }
    }
    trace
}

proptest! {
    #![proptest_config(config(200))]

    #[test]
    fn clones_made_one_by_one_are_those_of_a_held_trace(
        trace in any_trace(), scale in prop::option::of(1.0f64..4.0),
        factor in prop::option::of(0.1f64..3.0), jitter in 0u64..2_000, seed in 0u64..9,
    ) {
        let reshape = Reshape {
            scale,
            jitter: Span::from_millis(jitter),
            time_compression: factor,
            ..Reshape::default()
        };
        prop_assert!(Repeated::is_all_of(&reshape));
        let held = played(&trace, &reshape, seed).unwrap();
        let repeated = Repeated::new(trace.clone(), &reshape, seed, &BTreeMap::new()).unwrap();
        prop_assert_eq!(&repeated.notes, &held.notes);
        let mut expected = held.trace.into_owned();
        let mut made = told(repeated.items);
        let calls = made.sessions.iter().map(|session| session.calls.len() as u64).sum::<u64>();
        prop_assert_eq!(repeated.calls, calls);
        // No run asks who calls are of, so these are not renamed.
        for session in made.sessions.iter_mut().chain(&mut expected.sessions) {
            for call in &mut session.calls {
                (call.user, call.key) = (Name::default(), None);
            }
        }
        prop_assert_eq!(made, expected);
    }
}

/// Counts tasks that ended.
struct Ended(Arc<AtomicU64>);

impl Observer for Ended {
    fn call(&mut self, _: &CallRecord, _: &About<'_>) {}

    fn turn(&mut self, _: &TurnRecord, _: &About<'_>) {}

    fn task(&mut self, _: &TaskRecord, _: &About<'_>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn only_open_sessions_are_held() {
    // A session a second, each of which lasts 5 s: five are open, and one is looked ahead to.
    let long = trace((0..1_000).map(|n| (1_000 * n, vec![lasting(5)])).collect());
    let ended = Arc::new(AtomicU64::new(0));
    let (count, most) = (Arc::clone(&ended), Arc::new(AtomicU64::new(0)));
    let most_held = Arc::clone(&most);
    let watched = feed(&long).zip(1u64..).map(move |(arrival, asked_for)| {
        most_held.fetch_max(asked_for - count.load(Ordering::Relaxed), Ordering::Relaxed);
        arrival
    });
    let sessions = Sessions::Stream(Box::new(watched));
    let run = simulate(&setup(), sessions, Ended(Arc::clone(&ended)), None, &Progress::default());
    assert_eq!((run.counts.sessions, ended.load(Ordering::Relaxed)), (1_000, 1_000));
    assert!(run.open_sessions_max <= 6, "{} at once", run.open_sessions_max);
    assert!(most.load(Ordering::Relaxed) <= 7, "{most:?} sessions were asked for and not over");
}

#[test]
fn the_thread_beside_does_not_run_ahead() {
    let long = trace((0..30_000).map(|n| (n, vec![lasting(1)])).collect());
    let made = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&made);
    let feed = feed(&long);
    let mut beside = Beside::new(move |hand| {
        for arrival in feed {
            count.fetch_add(1, Ordering::Relaxed);
            if !hand.over_to(arrival) {
                return;
            }
        }
    });
    let first = beside.next().unwrap().unwrap();
    assert_eq!(&*first.plan.id, "s0");
    drop(beside);
    // A few batches of some thousand calls at most, then nobody took any more.
    assert!(made.load(Ordering::Relaxed) < 30_000, "{made:?} of 30000 were made");
}

#[test]
fn sessions_in_another_order_than_their_first_calls_are_found_out() {
    // The first session's first call comes 10 s after its start, whatever was recorded.
    let mut calls = trace(vec![(0, vec![lasting(1)]), (5_000, vec![lasting(1)])]);
    calls.sessions[0].calls[0].gap = Span::from_secs(10);
    assert_eq!(streamed(&setup(), &calls, false).failure, Some(Failure::Unsorted));
    let run = held(&setup(), &calls);
    let order: Vec<(u32, Time)> =
        run.records.calls.iter().map(|call| (call.session, call.dispatched)).collect();
    assert_eq!(order, [(1, Time(5_000_000_000)), (0, Time(10_000_000_000))]);
}

/// Stops the run after so many calls.
struct StopsAfter<'a>(u64, &'a Progress, Records);

impl Observer for StopsAfter<'_> {
    fn call(&mut self, call: &CallRecord, about: &About<'_>) {
        self.2.call(call, about);
        if self.2.calls.len() as u64 == self.0 {
            self.1.stop.store(true, Ordering::Relaxed);
        }
    }

    fn turn(&mut self, turn: &TurnRecord, about: &About<'_>) {
        self.2.turn(turn, about);
    }

    fn task(&mut self, task: &TaskRecord, about: &About<'_>) {
        self.2.task(task, about);
    }
}

#[test]
fn a_run_that_is_stopped_tells_what_came_before() {
    let calls = trace((0..50).map(|n| (100 * n, vec![call(400, 30); 1])).collect());
    let progress = Progress::default();
    let observer = StopsAfter(20, &progress, Records::default());
    let workload = Workload::new(&calls, &BTreeMap::new());
    let run = simulate(&setup(), Sessions::Held(&workload), observer, None, &progress);
    let whole = held(&setup(), &calls);
    assert_eq!(run.records.2.calls, whole.records.calls[..20]);
    let last = run.records.2.calls[19].ended;
    assert_eq!((run.interrupted, run.window.until), (Some(last), last));
    assert!(run.cut_off.calls > 0 && run.cut_off.tasks == run.cut_off.calls);
}

fn tonnage(folder: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("tonnage"));
    command.current_dir(folder).args(args);
    command
}

const PROFILE: [&str; 12] = [
    "--profile",
    "chat",
    "--set",
    "load.kind=trace",
    "--set",
    "generate.per_hour=400",
    "--set",
    "generate.users=20",
    "--set",
    "max_model_len=65536",
    "--seed",
    "3",
];

/// JSON and both tables of a replay.
fn replay(folder: &Path, args: &[&str]) -> (String, [String; 2]) {
    let out = folder.join("out");
    let mut command = tonnage(folder, &["replay", "--json", "--out", out.to_str().unwrap()]);
    let output = command.args(args).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let table = |name: &str| fs::read_to_string(out.join(name)).unwrap();
    (String::from_utf8(output.stdout).unwrap(), ["calls.csv", "tasks.csv"].map(table))
}

#[test]
fn any_number_of_threads_and_a_file_or_none_give_the_same_bytes() {
    let folder = TempDir::new().unwrap();
    let path = folder.path();
    let made = [&PROFILE[..], &["--set", "generate.sessions=120"]].concat();
    let with = |threads| replay(path, &[&made[..], &["--threads", threads]].concat());
    let one = with("1");
    assert!(one.1[0].lines().count() > 200, "{} calls", one.1[0].lines().count());
    assert!(one == with("2") && one == with("3"), "threads change the result");
    // The same sessions from a file; only the note on where they are from is another.
    let args = ["generate", "chat", "--sessions", "120", "--per-hour", "400", "--users", "20"];
    let write = [&args[..], &["--seed", "3", "-o", "t.csv.zst"]].concat();
    tonnage(path, &write).assert().success();
    let played = ["--trace", "t.csv.zst", "--set", "load.kind=trace", "--seed", "3"];
    let played = [&played[..], &["--set", "max_model_len=65536", "--threads", "2"]].concat();
    let from_file = replay(path, &played);
    assert!(one.1 == from_file.1, "a file gives other rows");
    let figures = |text: &str| serde_json::from_str::<Value>(text).unwrap()["fleet"].clone();
    assert_eq!(figures(&one.0), figures(&from_file.0));
}

#[test]
fn what_is_found_out_late_leaves_nothing_behind() {
    let folder = TempDir::new().unwrap();
    let path = folder.path();
    let write = ["generate", "chat", "--sessions", "50", "-o", "t.csv"];
    tonnage(path, &write).assert().success();
    let text = fs::read_to_string(path.join("t.csv")).unwrap();
    let lines = text.lines().count();
    fs::write(path.join("broken.csv"), format!("{text}x,0,1\n")).unwrap();
    let run = |args: &[&str]| {
        let base = ["replay", "--set", "load.kind=trace", "--out", "out", "--metrics", "page"];
        let output = tonnage(path, &[&base[..], args].concat()).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        let left = path.join("out").read_dir().map_or(0, Iterator::count);
        assert_eq!((left, path.join("page").exists()), (0, false), "something was written");
        String::from_utf8(output.stderr).unwrap()
    };
    let error = run(&["--trace", "broken.csv"]);
    assert!(error.contains(&format!("broken.csv:{}", lines + 1)), "{error}");
    let error = run(&["--trace", "t.csv", "--slo", "p90 ttft[tenant=nobody] <= 1 s"]);
    assert!(error.contains("nobody") && error.contains("t0000"), "{error}");
    let error = run(&["--trace", "t.csv", "--set", "models.grande=main"]);
    assert!(error.contains("grande"), "{error}");
    let error = run(&["--profile", "chatt"]);
    assert!(error.contains("chat"), "{error}");
    let error = run(&["--profile", "chat", "--set", "generate.days=3"]);
    assert!(error.contains("only goes with generate.people"), "{error}");
    let error = run(&["--set", "generate.sessions=3"]);
    assert!(error.contains("only goes with generate.profile"), "{error}");
}

#[cfg(unix)]
#[test]
fn an_interrupt_shows_what_was_done_and_ends_with_130() {
    let folder = TempDir::new().unwrap();
    let out = folder.path().join("out");
    let mut child = Plain::new(assert_cmd::cargo::cargo_bin!("tonnage"))
        .current_dir(folder.path())
        .args(["replay", "--json", "--out", "out", "--set", "replicas=4"])
        .args(PROFILE)
        .args(["--set", "generate.sessions=100000000", "--set", "generate.per_hour=20000"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    // Its folder is made just before it listens to interrupts.
    while !out.exists() {
        assert!(child.try_wait().unwrap().is_none(), "it ended by itself");
        std::thread::sleep(Duration::from_millis(20));
    }
    std::thread::sleep(Duration::from_secs(2));
    let pid = child.id().to_string();
    assert!(Plain::new("kill").args(["-INT", &pid]).status().unwrap().success());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130));
    let told: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(told["partial"], true);
    assert!(told["simulated_s"].as_f64().unwrap() > 0.0);
    let calls = fs::read_to_string(out.join("calls.csv")).unwrap();
    assert!(calls.ends_with('\n'));
    let columns = calls.lines().next().unwrap().split(',').count();
    assert!(calls.lines().all(|line| line.split(',').count() == columns));
    let rows = calls.lines().count() as u64 - 1;
    let units = &told["fleet"]["figures"]["units"];
    let counted = ["calls", "calls_failed", "calls_failed_as_recorded"];
    assert_eq!(counted.iter().map(|key| units[key].as_u64().unwrap()).sum::<u64>(), rows);
}

/// Who writes into a pipe is interrupted as well, perhaps in the middle of a row.
#[cfg(unix)]
#[test]
fn an_interrupt_that_cuts_off_a_pipe_shows_what_was_done() {
    const HEADER: &str = "session,call,at_s,after,gap_s,cause,turn,lane,model,tenant,user,profile,\
        base,kept_tokens,prompt_tokens,output_tokens,tools,status\n";
    for (threads, replicas) in [("1", 1), ("1", 9), ("2", 9)] {
        let folder = TempDir::new().unwrap();
        let mut rows = HEADER.to_owned();
        for session in 0..40_000 {
            rows += &format!("s{session},0,{session},,0,user,0,0,m,,,,,0,900,60,,ok\n");
        }
        let scenario = format!(
            "[engine]\nmodel = \"Llama-3.1-8B\"\ngpu = \"h100-sxm\"\nmax_model_len = 8192\n\
             [fleet]\nrouter = \"session_affinity\"\nreplicas = {replicas}\n"
        );
        fs::write(folder.path().join("s.toml"), scenario).unwrap();
        let mut child = Plain::new(assert_cmd::cargo::cargo_bin!("tonnage"))
            .current_dir(folder.path())
            .args(["replay", "s.toml", "--json", "--trace", "-", "--threads", threads])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut pipe = child.stdin.take().unwrap();
        pipe.write_all(rows.as_bytes()).unwrap();
        pipe.write_all(b"s40000,0,40000,,0,us").unwrap();
        // The most of it was read, and what comes next is waited for.
        std::thread::sleep(Duration::from_secs(1));
        let pid = child.id().to_string();
        assert!(Plain::new("kill").args(["-INT", &pid]).status().unwrap().success());
        drop(pipe);
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(130));
        let told: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(told["partial"], true);
    }
}

#[test]
fn names_are_checked_before_a_repeated_trace_is_played() {
    let keys = ["engine.model=Llama-3.1-8B", "engine.gpu=h100-sxm", "workload.scale=2"];
    let scenario = Scenario::parse("", "test", &keys.map(str::to_owned)).unwrap();
    let trace = trace(vec![(0, vec![call(30, 1)])]);
    let repeated = Repeated::new(trace, &scenario.reshape, 1, &BTreeMap::new()).unwrap();
    let with = |target: &str| {
        Case::streaming(scenario.clone(), &[target.to_owned()])?.repeating(&repeated).map(drop)
    };
    assert_eq!(with("p95 ttft <= 1 s"), Ok(()));
    let error = with("p95 ttft[tenant=nobody] <= 1 s").unwrap_err().to_string();
    assert!(error.contains("unknown tenant `nobody`"), "{error}");
}
