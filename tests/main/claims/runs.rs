//! Runs of the program, whose JSON figures are read from.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Output;
use std::sync::Mutex;

use assert_cmd::Command;
use serde_json::{Value, json};

use super::{Figures, Run, root};

/// What each run prints, by its name, under every seed.
pub fn all(runs: &[Run]) -> Figures {
    let most = runs.iter().filter_map(|run| run.seeds).max().unwrap_or(1);
    let each = runs.iter().flat_map(|run| (0..run.seeds.unwrap_or(1)).map(move |n| (run, n)));
    let left = Mutex::new(each);
    let made = Mutex::new(BTreeMap::new());
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                loop {
                    let Some((run, number)) = left.lock().unwrap().next() else { return };
                    let figures = run.figures(run.seeds.map(|_| number + 1));
                    made.lock().unwrap().insert((run.name.clone(), number), figures);
                }
            });
        }
    });
    let made: BTreeMap<(String, u64), Value> = made.into_inner().unwrap();
    let of_seed = |number: u64| {
        let figures = |run: &Run| {
            let number = number.min(run.seeds.unwrap_or(1) - 1);
            (run.name.clone(), made[&(run.name.clone(), number)].clone())
        };
        runs.iter().map(figures).collect()
    };
    Figures((0..most).map(of_seed).collect())
}

impl Run {
    fn figures(&self, seed: Option<u64>) -> Value {
        let folder = tempfile::tempdir().unwrap();
        let output = self.output(seed, folder.path());
        let said = String::from_utf8_lossy(&output.stderr);
        if let Some(words) = &self.refused {
            assert!(
                output.status.code() == Some(2) && said.contains(words),
                "{}: {said}",
                self.name
            );
            return json!({ "refused": 1 });
        }
        assert!(matches!(output.status.code(), Some(0 | 1)), "{}: {said}", self.name);
        let mut figures: Value = serde_json::from_slice(&output.stdout).unwrap();
        if self.calls {
            figures["calls"] = of_calls(&folder.path().join("calls.csv"));
        }
        figures
    }

    fn output(&self, seed: Option<u64>, folder: &Path) -> Output {
        let words = shell_words::split(&self.command).unwrap();
        assert_eq!(words[0], "tonnage", "{}", self.name);
        let mut command = Command::new(assert_cmd::cargo::cargo_bin!("tonnage"));
        command.current_dir(root()).args(&words[1..]).arg("--json");
        if let Some(seed) = seed {
            command.arg("--seed").arg(seed.to_string());
        }
        if self.calls {
            command.arg("--out").arg(folder);
        }
        command.output().unwrap()
    }
}

/// A call of `calls.csv`.
#[derive(serde::Deserialize)]
struct Call {
    outcome: String,
    in_window: bool,
    dispatched_s: f64,
    ended_s: f64,
    prompt_tokens: Option<f64>,
    cached_tokens: Option<f64>,
    places: String,
}

/// Figures of single calls in the window: the median hit of calls that are not the first of their
/// turn and of those at a boundary, and the most calls that were in flight at once.
fn of_calls(path: &Path) -> Value {
    let calls: Vec<Call> =
        csv::Reader::from_path(path).unwrap().deserialize().map(Result::unwrap).collect();
    let completed = |call: &&Call| call.in_window && call.outcome == "completed";
    let calls: Vec<&Call> = calls.iter().filter(completed).collect();
    let median = |place: &str| {
        let chosen = calls.iter().filter(|call| call.places.split(';').any(|at| at == place));
        let mut hits: Vec<f64> =
            chosen.map(|call| call.cached_tokens.unwrap() / call.prompt_tokens.unwrap()).collect();
        hits.sort_by(f64::total_cmp);
        hits[(hits.len() - 1) / 2]
    };
    let starts = calls.iter().map(|call| (call.dispatched_s, 1));
    let mut changes: Vec<(f64, i64)> =
        starts.chain(calls.iter().map(|call| (call.ended_s, -1))).collect();
    changes.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    let mut now = 0;
    let in_flight = changes.iter().map(|(_, change)| {
        now += change;
        now
    });
    json!({
        "in_flight_max": in_flight.max().unwrap(),
        "median_hit_later_calls": median("later_calls"),
        "median_hit_turn_boundary": median("turn_boundary"),
    })
}
