//! What the commands that run a scenario have in common: the scenario, its trace, the form of the
//! result, and progress on a terminal.

use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use crate::config::scenario::{KEYS, LoadKind, Scenario, candidates_of, settable_keys};
use crate::config::vary::Axis;
use crate::config::vllm_serve;
use crate::diag::{Error, Result};
use crate::document;
use crate::fleet::Progress;
use crate::report::Format;
use crate::report::json::Json;
use crate::report::text::Text;
use crate::sizing::case::Case;
use crate::sizing::slo::Metric;
use crate::trace::canonical;
use crate::trace::record::Trace;

/// The built-in scenario and the trace that comes with it.
const BUNDLED_SCENARIO: &str = include_str!("../../scenarios/eighty-developers.toml");
const BUNDLED_TRACE: &[u8] = include_bytes!("../../traces/bundled.csv.zst");

/// Arguments that name a scenario and change it.
#[derive(Debug, clap::Args)]
pub struct ScenarioArgs {
    /// Scenario file; without one, the built-in "eighty developers"
    scenario: Option<PathBuf>,
    /// Trace to play, in place of the scenario's (canonical CSV, plain, .gz or .zst)
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Change a key of the scenario, such as fleet.replicas=3; the section may be left out where
    /// only one has that key
    #[arg(long = "set", value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// The engine as a real command line, "vllm serve MODEL --flag ...": takes the place of the
    /// scenario's keys that are vLLM's flags; --set wins over it; the GPU stays engine.gpu
    #[arg(long, value_name = "COMMAND", allow_hyphen_values = true)]
    vllm: Option<String>,
    /// The line of vLLM's log that gives the size of the KV cache, such as
    /// "GPU KV cache size: 1,391,552 tokens"
    #[arg(long, value_name = "LINE")]
    vllm_log: Option<String>,
    /// Seed of every random choice
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Play every call at its recorded time, whatever it waits for: workload.open_loop
    #[arg(long)]
    open: bool,
    /// Play so many times the sessions of the trace, clones under fresh identities:
    /// workload.scale; needs --set load.kind=trace where the scenario has another load
    #[arg(long, value_name = "FACTOR")]
    scale: Option<f64>,
    /// Play this share of the sessions: workload.sample
    #[arg(long, value_name = "SHARE")]
    sample: Option<f64>,
    /// A target, such as "p90 turn_llm <= 90 s"; may be given several times, and adds to those of
    /// the scenario
    #[arg(long = "slo", value_name = "TARGET")]
    slo: Vec<String>,
    /// Simulate every step of every engine by itself, as the reference does: slower, and the same
    /// result
    #[arg(long)]
    every_step: bool,
}

/// The form of the result.
#[derive(Debug, clap::Args)]
pub struct FormatArgs {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl FormatArgs {
    /// The form of the result.
    pub fn format(&self) -> &'static dyn Format {
        if self.json { &Json } else { &Text }
    }
}

/// Keys that take several values.
#[derive(Debug, clap::Args)]
pub struct VaryArgs {
    /// A key of the scenario and the values that it takes in turn, such as
    /// router=session_affinity,random or replicas=1..16 ("1..16 step 2", "1..16 x2"); several give
    /// every combination. Comes on top of the scenario's [candidates], or in place of a list there
    #[arg(long, value_name = "KEY=LIST")]
    vary: Vec<String>,
}

/// A scenario that has not been read yet: its text, and what the command line changes.
pub struct Source<'a> {
    args: &'a ScenarioArgs,
    text: String,
    name: String,
    overrides: Vec<String>,
}

impl ScenarioArgs {
    /// Reads scenario and trace.
    pub fn load(&self) -> Result<Case> {
        let source = self.source(&[])?;
        let scenario = source.scenario(&[])?;
        let trace = source.trace(&scenario)?;
        source.case(scenario, &trace)
    }

    /// The scenario's text; `more` are assignments of options that only one command has.
    pub fn source(&self, more: &[String]) -> Result<Source<'_>> {
        let mut overrides = self.set.clone();
        let option = |key: &str, text: &Option<String>| {
            text.as_ref().map(|text| vllm_serve::assignment(key, text))
        };
        overrides.extend(option(vllm_serve::KEY, &self.vllm));
        overrides.extend(option(vllm_serve::log::KEY, &self.vllm_log));
        overrides.extend(self.seed.map(|seed| format!("run.seed={seed}")));
        overrides.extend(self.open.then(|| "workload.open_loop=true".to_owned()));
        overrides.extend(self.scale.map(|factor| format!("workload.scale={factor:?}")));
        overrides.extend(self.sample.map(|share| format!("workload.sample={share:?}")));
        overrides.extend_from_slice(more);
        let (text, name) = match &self.scenario {
            Some(path) => {
                let text = std::fs::read_to_string(path)
                    .map_err(|error| Error::io(path, "read the scenario", &error))?;
                (text, path.display().to_string())
            }
            None => (BUNDLED_SCENARIO.to_owned(), "built-in scenario".to_owned()),
        };
        Ok(Source { args: self, text, name, overrides })
    }

    /// The targets of the command line.
    pub fn targets(&self) -> &[String] {
        &self.slo
    }

    /// Names the option that was given where an error names the key that it stands for.
    fn under_own_name(&self, error: Error) -> Error {
        let options = [
            (self.seed.is_some(), "--set run.seed", "--seed"),
            (self.open, "--set workload.open_loop", "--open"),
            (self.scale.is_some(), "--set workload.scale", "--scale"),
            (self.sample.is_some(), "--set workload.sample", "--sample"),
        ];
        let field = error.place().field.as_deref();
        match options.iter().find(|(given, key, _)| *given && field == Some(*key)) {
            Some((.., option)) => error.with_field(option),
            None => error,
        }
    }

    fn load_trace(&self, scenario: &Scenario) -> Result<Trace> {
        if let Some(path) = &self.trace {
            return canonical::read_all(path);
        }
        match &scenario.trace {
            // The path is relative to the scenario that names it.
            Some(path) => {
                let folder = self.scenario.as_deref().and_then(Path::parent);
                canonical::read_all(&folder.unwrap_or(Path::new("")).join(path))
            }
            None => canonical::read_from(BUNDLED_TRACE, "built-in trace"),
        }
    }
}

impl Source<'_> {
    /// Reads the scenario, with some more assignments.
    pub fn scenario(&self, more: &[String]) -> Result<Scenario> {
        let overrides: Vec<String> = self.overrides.iter().chain(more).cloned().collect();
        let scenario = Scenario::parse(&self.text, &self.name, &overrides);
        scenario.map_err(|error| self.args.under_own_name(error))
    }

    /// Reads the scenario's trace.
    pub fn trace(&self, scenario: &Scenario) -> Result<Trace> {
        self.args.load_trace(scenario)
    }

    /// A scenario of this source, ready to be run.
    pub fn case(&self, scenario: Scenario, trace: &Trace) -> Result<Case> {
        Ok(Case::new(scenario, trace, &self.args.slo)?.every_step(self.args.every_step))
    }

    /// The keys that take several values: those of the scenario's `[candidates]`, then those of the
    /// command line.
    pub fn axes(&self, args: &VaryArgs) -> Result<Vec<Axis>> {
        let known = settable_keys();
        let mut axes = candidates_of(&self.text, &self.name)?;
        let given = args.vary.iter().map(|text| Axis::parse(text, &known));
        let given = given.collect::<Result<Vec<_>>>()?;
        axes.retain(|axis| given.iter().all(|given| given.key != axis.key));
        for axis in given {
            let wrong = |text: &str| Err(Error::new(text).in_field(format!("--vary {}", axis.key)));
            if axes.iter().any(|other| other.key == axis.key) {
                return wrong("this key is varied twice");
            }
            axes.push(axis);
        }
        let keys = self.overrides.iter().filter_map(|set| set.split_once('=')).map(|(key, _)| key);
        for key in keys {
            let key = document::full_name(key.trim(), &known)?;
            if let Some(axis) = axes.iter().find(|axis| axis.key == key) {
                let error = Error::new(format!("`{key}` has one value on the command line, too"));
                return Err(axis.at(error.in_field(format!("--set {key}"))));
            }
        }
        Ok(axes)
    }
}

/// What `--help` of the commands that run a scenario says at its end.
pub fn help() -> String {
    let width = KEYS.iter().map(|(key, _)| key.len()).max().unwrap_or(0);
    let keys = KEYS.iter().map(|(key, meaning)| format!("  {key:width$}  {meaning}\n"));
    let metrics = Metric::ALL
        .iter()
        .map(|metric| format!("  {:18} {}\n", metric.name(), metric.definition()));
    format!(
        "Keys of a scenario, with their defaults:\n{}  {:width$}  served model that answers this \
         model group of the trace; the group itself\n  {:width$}  price of this GPU for an \
         hour in USD, in place of the table's\n  {:width$}  list of values that this key takes \
         in turn in `size` and `sweep`\n\n\
         Targets: p90 METRIC <= VALUE UNIT, or hit >= SHARE, failed <= SHARE. Metrics:\n{}\n\
         Examples:\n  \
         tonnage size --set load.developers=200\n  \
         tonnage size my-fleet.toml --trace week.csv.zst --slo \"p90 turn_llm <= 90 s\"\n  \
         tonnage replay --set replicas=4 --set router=random --json\n  \
         tonnage size --vary gpu=h100,h200 --vary tensor_parallel_size=1,2 --seeds 3\n  \
         tonnage capacity --set replicas=4\n  \
         tonnage sweep --vary replicas=1..8 --vary router=session_affinity,random -o cells",
        keys.collect::<String>(),
        "models.GROUP",
        "prices.GPU",
        "candidates.KEY",
        metrics.collect::<String>(),
    )
}

/// Writes a result to standard output.
pub fn show(write: impl FnOnce(&mut dyn Write) -> std::io::Result<()>) -> Result<()> {
    let mut out = std::io::stdout().lock();
    match write(&mut out).and_then(|()| out.flush()) {
        // Whoever reads it may stop early, as `head` does.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        Err(error) => Err(Error::new(format!("cannot write to standard output: {error}"))),
        Ok(()) => Ok(()),
    }
}

/// Runs some work while a bar on the terminal shows how far its simulation has come.
pub fn with_progress<T: Send>(
    case: &Case,
    label: &str,
    progress: &Progress,
    work: impl FnOnce() -> T + Send,
) -> T {
    if !std::io::stderr().is_terminal() {
        return work();
    }
    let by_calls = case.scenario.load.kind == LoadKind::Trace && case.setup.window.is_none();
    let end = case.setup.warmup + case.setup.window.unwrap_or_default();
    let length = if by_calls { case.workload.calls() } else { end.0 / 1_000_000_000 };
    let unit = if by_calls { "calls" } else { "simulated s" };
    let bar = ProgressBar::new(length);
    let style = ProgressStyle::with_template(&format!(
        "{{msg}} {{wide_bar}} {{pos}}/{{len}} {unit} ({{eta}} left)"
    ));
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar.set_message(label.to_owned());
    let result = std::thread::scope(|scope| {
        let worker = scope.spawn(work);
        while !worker.is_finished() {
            let position = match by_calls {
                true => progress.calls.load(Ordering::Relaxed),
                false => progress.nanos.load(Ordering::Relaxed) / 1_000_000_000,
            };
            bar.set_position(position);
            std::thread::sleep(Duration::from_millis(50));
        }
        worker.join()
    });
    bar.finish_and_clear();
    result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}
