//! One fleet on several threads: the same results as in one world, however it is taken apart.

use std::collections::BTreeMap;
use std::process::Command;
use std::sync::atomic::Ordering;

use proptest::prelude::*;
use tempfile::TempDir;
use tonnage::config::router::{RouterKind, Routing};
use tonnage::config::scenario::OnOverflow;
use tonnage::diag::Error;
use tonnage::engine::config::Pool;
use tonnage::fleet::admission::Limits;
use tonnage::fleet::alone::AloneTimes;
use tonnage::fleet::arrivals::{Failure, Sessions};
use tonnage::fleet::feed::Feed;
use tonnage::fleet::observer::{About, Observer};
use tonnage::fleet::shards::{Sizes, why_together};
use tonnage::fleet::workload::Workload;
use tonnage::fleet::{Progress, Run, Setup, simulate, simulate_in};
use tonnage::observe::records::{CallRecord, Records, TaskRecord, TurnRecord};
use tonnage::observe::replica::ReplicaUse;
use tonnage::observe::timeline::HitsOverTime;
use tonnage::trace::record::{Item, Trace};
use tonnage::units::{Blocks, ReplicaId, Span, Time};

use super::given::{With, call, setup, trace};
use super::property::{any_setup, any_trace, config};

/// Wants tasks to come with their time alone.
struct WantsAlone;

impl Observer for WantsAlone {
    fn call(&mut self, call: &CallRecord, about: &About<'_>) {
        assert!(about.plan.len() > call.call as usize);
    }

    fn turn(&mut self, _: &TurnRecord, _: &About<'_>) {}

    fn task(&mut self, _: &TaskRecord, _: &About<'_>) {}

    fn wants_alone(&self) -> bool {
        true
    }
}

type Everything = (Records, (HitsOverTime, WantsAlone));

fn everything() -> Everything {
    (Records::default(), (HitsOverTime::default(), WantsAlone))
}

/// Everything that a run gave, with the records of one instant in the order of their sessions.
fn told(run: Run<Everything>) -> String {
    let (mut run, (hits, _)) = run.split();
    run.records.calls.sort_by_key(|call| (call.ended, call.play));
    run.records.turns.sort_by_key(|turn| (turn.ended, turn.play));
    run.records.tasks.sort_by_key(|task| (task.ended, task.play));
    if let Some(burst) = &mut run.burst {
        burst.waits.sort_unstable();
    }
    format!("{run:#?}\n{hits:?}")
}

fn items(trace: &Trace) -> impl Iterator<Item = tonnage::diag::Result<Item>> + Send + use<> {
    let contexts = trace.contexts.clone().into_iter().map(Item::Context);
    contexts.chain(trace.sessions.clone().into_iter().map(Item::Session)).map(Ok)
}

/// By one world, and on so many threads.
fn both(setup: &Setup, trace: &Trace, threads: usize, sizes: &Sizes, held: bool) -> [String; 2] {
    assert_eq!(why_together(setup), None);
    let workload = Workload::new(trace, &BTreeMap::new());
    let alone = AloneTimes::new(setup, workload.sessions.len());
    let sessions = || match held {
        true => Sessions::Held(&workload),
        false => Sessions::Stream(Box::new(Feed::new(items(trace), &BTreeMap::new()))),
    };
    let progress = Progress::default();
    let one = simulate(setup, sessions(), everything(), Some(&alone), &progress);
    let alone = Some(&alone);
    let apart =
        simulate_in(threads, sizes, setup, sessions(), everything(), alone, &Progress::default());
    [told(one), told(apart)]
}

fn any_sizes() -> impl Strategy<Value = Sizes> {
    (2usize..6, 1usize..20, 1usize..40).prop_map(|(shards, batch_calls, room)| Sizes {
        shards,
        batch_calls,
        room,
    })
}

proptest! {
    #![proptest_config(config(300))]

    #[test]
    fn a_fleet_taken_apart_gives_the_same(
        trace in any_trace(), any in any_setup(), sizes in any_sizes(),
        flags in any::<[bool; 3]>(), threads in 1usize..4, replicas in 2u32..6,
        times in (0u64..40, prop::option::of(1u64..80)),
        queued in prop::option::of(1u64..4),
    ) {
        let [held, open_loop, compact] = flags;
        let limits = Limits { max_num_queued_reqs: queued, ..Limits::default() };
        let setup = Setup {
            router: RouterKind::SessionAffinity,
            routing: Routing::default(),
            replicas,
            open_loop,
            limits,
            warmup: Span::from_millis(times.0),
            window: times.1.map(Span::from_millis),
            on_overflow: if compact { OnOverflow::Compact } else { OnOverflow::Reject },
            ..any
        };
        let [one, apart] = both(&setup, &trace, threads, &sizes, held);
        prop_assert!(one == apart, "{}", difference(&one, &apart));
    }
}

/// The first lines that differ.
fn difference(one: &str, other: &str) -> String {
    let mut lines = one.lines().zip(other.lines()).enumerate();
    let Some((at, (one_line, other_line))) = lines.find(|(_, (one, other))| one != other) else {
        return "one is longer".to_owned();
    };
    let before: Vec<&str> = one.lines().skip(at.saturating_sub(30)).take(30).collect();
    format!("{}\nline {at}: {one_line} in one world, {other_line} apart", before.join("\n"))
}

/// JSON, tables, metrics and points of a replay.
fn replayed(args: &[&str]) -> (Vec<String>, String) {
    let folder = TempDir::new().unwrap();
    let file = |name: &str| folder.path().join(name).display().to_string();
    let output = Command::new(assert_cmd::cargo::cargo_bin!("tonnage"))
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .args(["replay", "--json", "--out", &file("out"), "--metrics", &file("page")])
        .args(["--plot", &file("points.csv")])
        .args(args)
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let written = ["out/calls.csv", "out/tasks.csv", "page", "points.csv"];
    let written = written.map(|name| std::fs::read_to_string(file(name)).unwrap());
    let figures = String::from_utf8(output.stdout).unwrap();
    let told = [figures].into_iter().chain(written).collect();
    (told, String::from_utf8(output.stderr).unwrap())
}

#[test]
fn sessions_of_agents_give_the_same_bytes_on_any_number_of_threads() {
    let with = |threads| {
        let stretch = ["--slo", "p90 stretch <= 3", "--slo", "p95 ttft <= 10 s"];
        replayed(&[&["benches/w2.toml", "--threads", threads][..], &stretch].concat())
    };
    let one = with("1");
    assert!(one.0[1].lines().count() > 15_000, "{} calls", one.0[1].lines().count());
    for threads in ["2", "3"] {
        let more = with(threads);
        for (one, more) in one.0.iter().zip(&more.0) {
            assert!(one == more, "{threads} threads: {}", difference(one, more));
        }
        assert_eq!(more.1, "", "nothing is said of threads");
    }
}

#[test]
fn who_asks_for_threads_is_told_why_one_simulates() {
    let args = ["benches/w2.toml", "--set", "workload.to_s=60", "--set", "router=least_loaded"];
    let told = |threads: &[&str]| replayed(&[&args[..], threads].concat());
    let (one, two) = (told(&["--threads", "1"]), told(&["--threads", "2"]));
    let why = "note: one thread simulates: the router chooses a replica for every call";
    assert!(two.1.starts_with(why), "{}", two.1);
    assert_eq!((&*one.1, &*told(&[]).1), ("", ""));
    // Another thread plays sessions alone meanwhile.
    assert!(one.0 == two.0, "{}", difference(&one.0[2], &two.0[2]));
}

/// Stops the run after so many calls.
struct Stops<'a>(u64, &'a Progress);

impl Observer for Stops<'_> {
    fn call(&mut self, _: &CallRecord, _: &About<'_>) {
        self.0 = self.0.saturating_sub(1);
        self.1.stop.fetch_or(self.0 == 0, Ordering::Relaxed);
    }

    fn turn(&mut self, _: &TurnRecord, _: &About<'_>) {}

    fn task(&mut self, _: &TaskRecord, _: &About<'_>) {}
}

fn stopped_after(calls: u64, setup: &Setup, trace: &Trace, sizes: &Sizes) -> Run {
    let progress = Progress::default();
    let workload = Workload::new(trace, &BTreeMap::new());
    let observer = (Records::default(), Stops(calls, &progress));
    let held = Sessions::Held(&workload);
    simulate_in(2, sizes, setup, held, observer, None, &progress).split().0
}

fn in_one_world(setup: &Setup, trace: &Trace) -> Run {
    let workload = Workload::new(trace, &BTreeMap::new());
    let held = Sessions::Held(&workload);
    simulate(setup, held, Records::default(), None, &Progress::default())
}

/// What was told and counted, with records in one order; but for how the run ended.
fn figures(mut run: Run) -> String {
    run.interrupted = None;
    run.records.calls.sort_by_key(|call| (call.ended, call.play));
    run.records.turns.sort_by_key(|turn| (turn.ended, turn.play));
    run.records.tasks.sort_by_key(|task| (task.ended, task.play));
    if let Some(burst) = &mut run.burst {
        burst.waits.sort_unstable();
    }
    format!("{run:#?}")
}

/// A run that was stopped is one that was measured up to there; one that had come to its end is
/// whole. Only the step under way where it stopped counts in full.
fn assert_holds_what_came_before(mut run: Run, setup: &Setup, trace: &Trace) {
    let window = run.interrupted.map(|at| Span(at.0));
    let mut asked = in_one_world(&Setup { window, ..setup.clone() }, trace);
    if window.is_some() {
        for (stopped, asked) in std::iter::zip(&run.replicas, &asked.replicas) {
            let work = |of: &ReplicaUse| (of.steps, of.decode_tokens, of.prefill_tokens);
            assert_eq!(work(stopped), work(asked));
            assert!(stopped.busy >= asked.busy && stopped.waiting_max == asked.waiting_max);
        }
        run.replicas.clear();
        asked.replicas.clear();
    }
    let (run, asked) = (figures(run), figures(asked));
    assert!(run == asked, "stopped at {window:?}: {}", difference(&asked, &run));
}

/// A fleet of two, and two shards that may log so many records each in one go.
fn two(room: usize) -> (Setup, Sizes) {
    let sizes = Sizes { shards: 2, batch_calls: 1 << 10, room: 2 * room };
    (Setup { replicas: 2, ..setup() }, sizes)
}

/// For so many sessions, whether each goes to the first replica of two.
fn goes_to_the_first(sessions: u64) -> Vec<bool> {
    let short = trace((0..sessions).map(|n| (100 * n, vec![call(50, 2)])).collect());
    let mut to = vec![false; sessions as usize];
    for call in &in_one_world(&two(1).0, &short).records.calls {
        to[call.session as usize] = call.replica == Some(ReplicaId(0));
    }
    assert!(to.contains(&true) && to.contains(&false));
    to
}

/// Thirty sessions: on the first replica with one more call after a hundred seconds, on the second
/// one with so many calls, ten seconds after each other.
fn unequal(calls: u32) -> Trace {
    let again = |number: u32, gap| call(50, 2).after(&(number - 1).to_string()).gap(gap);
    let session = |(n, first): (u64, bool)| {
        let more: Vec<_> = match first {
            true => vec![again(1, 100_000)],
            false => (1..calls).map(|number| again(number, 10_000)).collect(),
        };
        (100 * n, [vec![call(50, 2)], more].concat())
    };
    trace((0..).zip(goes_to_the_first(30)).map(session).collect())
}

#[test]
fn a_stop_holds_what_a_shard_did_that_has_nothing_left() {
    // One shard does all that it has to do in one go, and is a hundred seconds ahead.
    let (setup, sizes) = two(80);
    let calls = unequal(20);
    let run = stopped_after(5, &setup, &calls, &sizes);
    let at = run.interrupted.expect("the second replica has calls left");
    assert!(at > Time(100_000_000_000) && run.window.until == at, "{at:?}");
    assert!(run.records.calls.iter().all(|call| call.ended < at));
    assert!(run.cut_off.tasks > 0);
    let tasks = run.records.tasks.len() as u64 + run.cut_off.tasks;
    assert_eq!((tasks, run.counts.sessions), (30, 30));
    assert_holds_what_came_before(run, &setup, &calls);
}

#[test]
fn a_stop_that_comes_after_the_end_leaves_the_run_whole() {
    // The first calls are told while the last ones are played.
    let (setup, sizes) = two(80);
    let calls = unequal(7);
    let run = stopped_after(5, &setup, &calls, &sizes);
    assert_eq!((run.interrupted, run.cut_off.calls), (None, 0));
    assert_holds_what_came_before(run, &setup, &calls);
}

proptest! {
    #![proptest_config(config(200))]

    #[test]
    fn a_fleet_that_is_stopped_holds_what_came_before(
        trace in any_trace(), any in any_setup(), sizes in any_sizes(), open_loop in any::<bool>(),
        replicas in 2u32..6, calls in 1u64..12,
    ) {
        let (router, routing) = (RouterKind::SessionAffinity, Routing::default());
        let setup = Setup { router, routing, replicas, open_loop, ..any };
        let run = stopped_after(calls, &setup, &trace, &sizes);
        assert_holds_what_came_before(run, &setup, &trace);
    }
}

#[test]
fn the_first_standstill_ends_a_run_on_several_threads() {
    // Two prompts that no pool holds, one on each replica, and the second comes first.
    let to = goes_to_the_first(30);
    let place = |first: bool| to.iter().rposition(|of| *of == first).unwrap();
    let (one, other) = (place(true), place(false));
    let session = |n: usize| {
        let prompt = if n == one || n == other { 2_000 } else { 50 };
        (100 * n as u64, vec![call(prompt, 2)])
    };
    let calls = trace((0..30).map(session).collect());
    for room in [1, 3, 1_000] {
        let (mut setup, sizes) = two(room);
        setup.engine.pool = Pool::Limited(Blocks(101));
        let run = in_one_world(&setup, &calls);
        let stuck = run.stuck.expect("a prompt is too large");
        assert!(stuck.contains(&format!("session {} ", one.min(other))), "{stuck}");
        let workload = Workload::new(&calls, &BTreeMap::new());
        let (held, progress) = (Sessions::Held(&workload), Progress::default());
        let apart = simulate_in(2, &sizes, &setup, held, Records::default(), None, &progress);
        assert_eq!((apart.stuck, apart.interrupted), (Some(stuck), None));
    }
}

#[test]
fn a_trace_that_breaks_off_ends_a_run_on_several_threads() {
    let calls = trace((0..30).map(|n| (100 * n, vec![call(50, 2)])).collect());
    let error = Error::new("the line breaks off");
    for (sessions, room) in [(0, 1), (1, 1), (20, 1), (20, 1_000)] {
        let broken = || {
            let read = items(&calls).take(sessions).chain([Err(error.clone())]);
            Sessions::Stream(Box::new(Feed::new(read, &BTreeMap::new())))
        };
        let (setup, sizes) = two(room);
        let progress = Progress::default();
        let one = simulate(&setup, broken(), Records::default(), None, &progress);
        let progress = Progress::default();
        let apart = simulate_in(2, &sizes, &setup, broken(), Records::default(), None, &progress);
        assert_eq!(apart.failure, Some(Failure::Input(error.clone())));
        assert_eq!((&one.failure, one.counts), (&apart.failure, apart.counts));
        // What the last session that came would have waited for has happened.
        assert_eq!(apart.records.calls.len(), sessions.saturating_sub(1));
        assert_eq!(one.records.calls, apart.records.calls);
    }
}

#[test]
fn who_asks_for_threads_is_told_once_also_where_a_trace_is_read_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("late.csv");
    let path = path.to_str().unwrap();
    let made = ["generate", "chat", "--sessions", "4", "-o", path];
    let made = Command::new(assert_cmd::cargo::cargo_bin!("tonnage")).args(made).output().unwrap();
    assert!(made.status.success(), "{made:?}");
    // The second session's first call comes late: sessions are not in the order of these calls.
    let late = |line: &str| match line.strip_prefix("s0000001,0,") {
        None => format!("{line}\n"),
        Some(rest) => {
            let fields: Vec<&str> = rest.split(',').collect();
            let more = fields[3..].join(",");
            format!("s0000001,0,{},{},1000,{more}\n", fields[0], fields[1])
        }
    };
    let text = std::fs::read_to_string(path).unwrap();
    std::fs::write(path, text.lines().map(late).collect::<String>()).unwrap();
    let args = ["--trace", path, "--set", "load.kind=trace", "--set", "router=least_loaded"];
    let mut run = Command::new(assert_cmd::cargo::cargo_bin!("tonnage"));
    run.args(["replay", "--threads", "2", "--set", "replicas=2"]).args(args);
    let output = run.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(said.matches("one thread simulates").count(), 1, "{said}");
}
