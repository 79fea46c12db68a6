//! One fleet on several threads: the same results as in one world, however it is taken apart.

use std::collections::BTreeMap;
use std::process::Command;

use proptest::prelude::*;
use tempfile::TempDir;
use tonnage::config::router::{RouterKind, Routing};
use tonnage::config::scenario::OnOverflow;
use tonnage::fleet::admission::Limits;
use tonnage::fleet::alone::AloneTimes;
use tonnage::fleet::arrivals::Sessions;
use tonnage::fleet::feed::Feed;
use tonnage::fleet::observer::{About, Observer};
use tonnage::fleet::shards::{Sizes, why_together};
use tonnage::fleet::workload::Workload;
use tonnage::fleet::{Progress, Run, Setup, simulate, simulate_in};
use tonnage::observe::records::{CallRecord, Records, TaskRecord, TurnRecord};
use tonnage::observe::timeline::HitsOverTime;
use tonnage::trace::record::{Item, Trace};
use tonnage::units::Span;

use super::property::{any_setup, any_trace, config};

/// Wants tasks to come with their time alone.
struct WantsAlone;

impl Observer for WantsAlone {
    fn call(&mut self, call: &CallRecord, about: &About<'_>) {
        assert!(about.plan.calls.len() > call.call as usize);
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
        flags in any::<[bool; 4]>(), replicas in 2u32..6,
        times in (0u64..40, prop::option::of(1u64..80)),
        queued in prop::option::of(1u64..4),
    ) {
        let [held, open_loop, three, compact] = flags;
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
        let threads = if three { 3 } else { 2 };
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
