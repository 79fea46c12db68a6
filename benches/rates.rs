//! How fast whole simulations are: a row for each load on which simulators of this kind are
//! compared, in CPU time and instructions, which do not depend on what else the machine does.
//!
//! ```sh
//! cargo bench --bench rates                        # the table, in Markdown
//! cargo bench --bench rates -- w1 w2               # these rows only
//! cargo bench --bench rates -- -o benches/results/DATE.md
//! cargo bench --bench rates -- --no-instructions   # without valgrind
//! cargo bench --bench rates -- --gate              # hold benches/limits.toml, for .ci/run
//! ```
//!
//! `--row NAME` and `--simulate NAME` are what it starts itself as, one process a row, so that
//! each has its own peak of memory.
#![allow(missing_docs, reason = "a program, not a library")]

use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use mimalloc::MiMalloc;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use serde_json::{Value, json};
use tonnage::fleet::{Progress, Run};
use tonnage::sizing::case::Case;
use tonnage::sizing::tally::Tally;

#[path = "rates/gate.rs"]
mod gate;
#[path = "rates/table.rs"]
mod table;
#[path = "rates/work.rs"]
mod work;

use work::Work;

/// The program's.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// A row is simulated again and again for so long, but at most so often, and so is its whole
/// process started; the best time counts.
const LONG_ENOUGH: Duration = Duration::from_secs(1);
const RUNS_MAX: usize = 10;
/// CPU seconds after which a whole process is ended.
const WHOLE_SECS_MAX: u64 = 120;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        ["--row", name] => println!("{}", row(known(name))),
        ["--simulate", name] => println!("{}", calls_of(name)),
        ["--gate"] => return if gate::run() { ExitCode::SUCCESS } else { ExitCode::FAILURE },
        // What `cargo bench -- --test` asks for: that it works.
        ["--test", ..] => {
            println!("{}", calls_of("cc-weka-mini"));
        }
        _ => table::print(&words),
    }
    ExitCode::SUCCESS
}

fn known(name: &str) -> &'static Work {
    let names = || work::ALL.iter().map(|work| work.name).collect::<Vec<_>>().join(", ");
    work::named(name).unwrap_or_else(|| {
        eprintln!("unknown row `{name}`, allowed: {}", names());
        std::process::exit(2)
    })
}

/// A row, or a load of the gate, ready to be simulated.
fn case(name: &str) -> Case {
    let folder = tempfile::tempdir().expect("there is a folder for temporary files");
    let case = gate::case(name).unwrap_or_else(|| {
        let work = known(name);
        work.trace(folder.path()).and_then(|trace| work.case(&trace))
    });
    case.unwrap_or_else(|error| {
        eprintln!("error: {error}");
        std::process::exit(2)
    })
}

/// The simulation and nothing else. Its name tells callgrind where to count.
#[inline(never)]
fn simulate_alone(case: &Case) -> Run<Tally> {
    case.run(case.scenario.replicas, &Progress::default()).expect("it does not come to a stand")
}

/// Calls of a row, simulated once.
fn calls_of(name: &str) -> u64 {
    let case = case(name);
    simulated(&case, &simulate_alone(&case)).calls
}

/// The program itself, as it was built for this.
fn tonnage() -> Command {
    Command::new(env!("CARGO_BIN_EXE_tonnage"))
}

/// Calls by how they ended.
struct Calls {
    /// Those that the fleet answered.
    calls: u64,
    /// Those that it did not take, which cost nothing.
    rejected: u64,
    preemptions: u64,
}

fn simulated(case: &Case, run: &Run<Tally>) -> Calls {
    let figures = case.judge(run).figures;
    Calls {
        calls: figures.units.calls,
        rejected: figures.units.calls_failed,
        preemptions: figures.preemptions.count,
    }
}

/// User and system CPU time so far.
fn cpu(who: UsageWho) -> Duration {
    let usage = getrusage(who).expect("the system tells");
    let micros = usage.user_time().num_microseconds() + usage.system_time().num_microseconds();
    Duration::from_micros(micros as u64)
}

/// Measures a row: the whole program first, then the simulation alone.
fn row(work: &Work) -> Value {
    let folder = tempfile::tempdir().expect("there is a folder for temporary files");
    let trace = work.trace(folder.path()).expect("the trace can be made");
    let whole = best_whole(work, &trace, folder.path());
    // Of what was waited for; making a trace takes less than replaying it.
    let peak_kib = getrusage(UsageWho::RUSAGE_CHILDREN).expect("the system tells").max_rss();
    let case = work.case(&trace).expect("it did replay");
    let alone = best_of_some(UsageWho::RUSAGE_SELF, || Some(simulate_alone(&case)));
    let (alone, run) = alone.expect("a simulation gives a run");
    let calls = simulated(&case, &run);
    json!({
        "calls": calls.calls,
        "rejected": calls.rejected,
        "preemptions": calls.preemptions,
        "alone_s": alone.as_secs_f64(),
        "whole_s": whole,
        "peak_mib": peak_kib / 1_024,
    })
}

/// The CPU time in seconds of the fastest of some whole processes; none if one takes too long.
fn best_whole(work: &Work, trace: &Path, folder: &Path) -> Option<f64> {
    let mut whole = Command::new("sh");
    whole.args(["-c", &format!("ulimit -t {WHOLE_SECS_MAX}; exec \"$0\" \"$@\"")]);
    whole.arg(env!("CARGO_BIN_EXE_tonnage")).arg("replay").arg(work.scenario);
    whole.arg("--trace").arg(trace);
    whole.args(one_thread()).args(work.set.iter().flat_map(|set| ["--set", set]));
    whole.arg("--json").arg("--out").arg(folder.join("tables")).stdout(Stdio::null());
    let best = best_of_some(UsageWho::RUSAGE_CHILDREN, || {
        let status = whole.status().expect("tonnage runs");
        // A signal means that the time was up; anything else is a failure of the program.
        let failed = status.code().is_some_and(|code| code != 0);
        assert!(!failed, "tonnage replay {} failed", work.scenario);
        status.success().then_some(())
    });
    best.map(|(took, ())| took.as_secs_f64())
}

/// The CPU time of the fastest of some runs, and what the last gave; none if one gives nothing.
fn best_of_some<T>(who: UsageWho, mut run: impl FnMut() -> Option<T>) -> Option<(Duration, T)> {
    let (mut best, mut total) = (Duration::MAX, Duration::ZERO);
    for runs in 1.. {
        let before = cpu(who);
        let given = run()?;
        let took = cpu(who).saturating_sub(before);
        best = best.min(took);
        total += took;
        if total >= LONG_ENOUGH || runs == RUNS_MAX {
            return Some((best, given));
        }
    }
    unreachable!("the runs are limited")
}

/// Keeps to one thread, if the program can use more.
fn one_thread() -> &'static [&'static str] {
    let help = tonnage().args(["replay", "--help"]).output().expect("tonnage runs");
    let can = String::from_utf8_lossy(&help.stdout).contains("--threads");
    if can { &["--threads", "1"] } else { &[] }
}

/// Instructions a call of the simulation alone, counted by valgrind; `None` if that is not there.
fn instructions(name: &str) -> Option<f64> {
    let folder = tempfile::tempdir().expect("there is a folder for temporary files");
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--toggle-collect=*simulate_alone*"])
        .arg(format!("--callgrind-out-file={}", folder.path().join("out").display()))
        .arg(std::env::current_exe().expect("it runs"))
        .args(["--simulate", name])
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")))
        .output()
        .ok()?;
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "valgrind failed on {name}: {said}");
    let counted = said.lines().find_map(|line| line.split_once("Collected :"))?.1;
    let counted: f64 = counted.trim().parse().ok()?;
    let calls: f64 = String::from_utf8_lossy(&output.stdout).trim().parse().ok()?;
    Some(counted / calls)
}
