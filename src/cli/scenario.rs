//! What the commands that run a scenario have in common: the scenario, its trace and the form of
//! the result.

use std::io::Write;
use std::path::{Path, PathBuf};

use super::source::Source;
use crate::config::gateway::read as gateway;
use crate::config::pools;
use crate::config::scenario::{KEYS, Scenario, candidates_of, settable_keys};
use crate::config::vary::Axis;
use crate::config::vllm_serve;
use crate::diag::{Error, Result};
use crate::document;
use crate::fleet::played::Repeated;
use crate::report::Format;
use crate::report::json::Json;
use crate::report::text::Text;
use crate::sizing::case::Case;
use crate::sizing::slo::Metric;
use crate::trace::record::Trace;

/// The built-in scenario.
const BUNDLED_SCENARIO: &str = include_str!("../../scenarios/eighty-developers.toml");

/// Arguments that name a scenario and change it.
#[derive(Debug, Default, clap::Args)]
pub struct ScenarioArgs {
    /// Scenario file; without one, the built-in "eighty developers"
    scenario: Option<PathBuf>,
    /// Trace to play, in place of the scenario's (canonical CSV, plain, .gz or .zst; - is
    /// standard input)
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Make the sessions of a workload profile (built in, or NAME.toml) while they are played, in
    /// place of a trace: generate.profile; generate.sessions and its neighbours say how many
    #[arg(long, value_name = "PROFILE", conflicts_with = "trace")]
    profile: Option<String>,
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
    /// The gateway as a LiteLLM config.yaml: gateway.config; takes the place of the scenario's
    /// router and of the keys of [gateway] that the config tells; --set wins over it
    #[arg(long, value_name = "FILE")]
    litellm_config: Option<PathBuf>,
    /// Environment variables for it, lines of NAME=value: gateway.environment
    #[arg(long, value_name = "FILE", requires = "litellm_config")]
    litellm_env: Option<PathBuf>,
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
#[derive(Debug, Default, clap::Args)]
pub struct VaryArgs {
    /// A key of the scenario and the values that it takes in turn, such as
    /// router=session_affinity,random or replicas=1..16 ("1..16 step 2", "1..16 x2"); several give
    /// every combination. Comes on top of the scenario's [candidates], or in place of a list there
    #[arg(long, value_name = "KEY=LIST")]
    vary: Vec<String>,
}

/// A scenario that has not been read yet: its text, and what the command line changes.
pub struct Written<'a> {
    args: &'a ScenarioArgs,
    text: String,
    name: String,
    overrides: Vec<String>,
}

impl ScenarioArgs {
    /// A scenario as it is.
    pub fn of(path: &Path) -> Self {
        Self { scenario: Some(path.to_owned()), ..Self::default() }
    }

    /// The scenario's text; `more` are assignments of options that only one command has.
    pub fn written(&self, more: &[String]) -> Result<Written<'_>> {
        let mut overrides = self.set.clone();
        let option = |key: &str, text: &Option<String>| {
            text.as_ref().map(|text| vllm_serve::assignment(key, text))
        };
        overrides.extend(option(vllm_serve::KEY, &self.vllm));
        overrides.extend(option(vllm_serve::log::KEY, &self.vllm_log));
        overrides.extend(option("generate.profile", &self.profile));
        let file = |key: &str, path: &Option<PathBuf>| {
            path.as_ref().map(|path| vllm_serve::assignment(key, &path.display().to_string()))
        };
        overrides.extend(file(gateway::CONFIG, &self.litellm_config));
        overrides.extend(file(gateway::ENVIRONMENT, &self.litellm_env));
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
        Ok(Written { args: self, text, name, overrides })
    }

    /// The targets of the command line.
    pub fn targets(&self) -> &[String] {
        &self.slo
    }

    /// Names the option that was given where an error names the key that it stands for.
    fn under_own_name(&self, error: Error) -> Error {
        let options = [
            (self.profile.is_some(), "--set generate.profile", "--profile"),
            (self.seed.is_some(), "--set run.seed", "--seed"),
            (self.open, "--set workload.open_loop", "--open"),
            (self.scale.is_some(), "--set workload.scale", "--scale"),
            (self.sample.is_some(), "--set workload.sample", "--sample"),
            // Only some commands have it, which hand it over as an assignment.
            (!self.set.iter().any(|set| set.contains("seeds=")), "--set size.seeds", "--seeds"),
        ];
        let field = error.place().field.as_deref();
        match options.iter().find(|(given, key, _)| *given && field == Some(*key)) {
            Some((.., option)) => error.with_field(option),
            None => error,
        }
    }
}

impl Written<'_> {
    /// Reads the scenario, with some more assignments.
    pub fn scenario(&self, more: &[String]) -> Result<Scenario> {
        let overrides: Vec<String> = self.overrides.iter().chain(more).cloned().collect();
        let scenario = Scenario::parse(&self.text, &self.name, &overrides);
        scenario.map_err(|error| self.args.under_own_name(error))
    }

    /// The scenario as it is, without its `[candidates]`, and where its sessions come from.
    pub fn as_is(&self) -> Result<(Scenario, Source)> {
        self.with(&[]).map_err(|error| match self.candidate_that_helps() {
            Some(set) => error.help(format!(
                "only `tonnage size`, `sweep` and `plot` try the values of [candidates]; \
                 --set {set} takes one of them"
            )),
            None => error,
        })
    }

    fn with(&self, more: &[String]) -> Result<(Scenario, Source)> {
        let scenario = self.scenario(more)?;
        let source = self.source(&scenario)?;
        Ok((scenario, source))
    }

    /// A value of the `[candidates]` with which the scenario can be played.
    fn candidate_that_helps(&self) -> Option<String> {
        let axes = candidates_of(&self.text, &self.name).ok()?;
        let sets =
            axes.iter().flat_map(|axis| (0..axis.values.len()).map(|value| axis.assignment(value)));
        sets.into_iter().find(|set| self.with(std::slice::from_ref(set)).is_ok())
    }

    /// Refuses intervals where a command shows none.
    pub fn without_intervals(&self, scenario: &Scenario) -> Result<()> {
        if scenario.bootstrap != Some(true) {
            return Ok(());
        }
        let error = Error::found("true", "false: this command shows no intervals");
        Err(error.in_file(&self.name).in_field("run.bootstrap").help(
            "`tonnage replay` and `tonnage size` show them; --set run.bootstrap=false goes without",
        ))
    }

    /// Where the sessions of a scenario come from.
    pub fn source(&self, scenario: &Scenario) -> Result<Source> {
        let folder = self.args.scenario.as_deref().and_then(Path::parent).unwrap_or(Path::new(""));
        match (&self.args.trace, &scenario.generated, &scenario.trace) {
            (Some(path), ..) => Ok(Source::File(path.clone())),
            // On the command line a profile is named from the current folder.
            (_, Some(generated), _) if self.args.profile.is_some() => {
                Source::generated(generated, Path::new(""), scenario.seed)
            }
            (_, Some(generated), _) => Source::generated(generated, folder, scenario.seed),
            // The path is relative to the scenario that names it.
            (.., Some(path)) => {
                let path = folder.join(path);
                let other = "the scenario names this trace; --trace FILE plays another";
                std::fs::metadata(&path)
                    .map_err(|error| Error::io(&path, "open", &error).help(other))?;
                Ok(Source::File(path))
            }
            _ => Ok(Source::BuiltIn),
        }
    }

    /// The files that a run is made of.
    pub fn inputs(&self, source: &Source) -> Vec<PathBuf> {
        let args = self.args;
        let named = [&args.scenario, &args.litellm_config, &args.litellm_env];
        let trace = match source {
            Source::File(path) => Some(path),
            Source::BuiltIn | Source::Made(_) => None,
        };
        named.into_iter().flatten().chain(trace).cloned().collect()
    }

    /// A scenario of this file with its trace, ready to be run.
    pub fn case(&self, scenario: Scenario, source: &Source, trace: &Trace) -> Result<Case> {
        let args = self.args;
        let mut case = Case::new(scenario, trace, &args.slo)?.every_step(args.every_step);
        case.notes.extend(source.note());
        Ok(case)
    }

    /// A scenario of this file whose trace is read, or made of another, while it is played.
    pub fn stream(
        &self,
        scenario: Scenario,
        source: &Source,
        repeated: Option<&Repeated>,
    ) -> Result<Case> {
        let args = self.args;
        let mut case = Case::streaming(scenario, &args.slo)?.every_step(args.every_step);
        if let Some(repeated) = repeated {
            case = case.repeating(repeated)?;
        }
        case.notes.extend(source.note());
        Ok(case)
    }

    /// The targets of the command line.
    pub fn targets(&self) -> &[String] {
        &self.args.slo
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
    let pools = pools::FIELDS
        .iter()
        .map(|(field, meaning)| format!("  {:width$}  {meaning}\n", format!("pools.NAME.{field}")));
    let metrics = Metric::ALL
        .iter()
        .map(|metric| format!("  {:18} {}\n", metric.name(), metric.definition()));
    format!(
        "Keys of a scenario, with their defaults:\n{}  {:width$}  served model that answers this \
         model group of the trace; the group itself\n  {:width$}  price of this GPU for an \
         hour in USD, in place of the table's\n{}  {:width$}  rpm_limit, tpm_limit and \
         max_parallel_requests of this tenant's key\n  {:width$}  list of values that this key \
         takes in turn in `size` and `sweep`\n\n\
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
        pools.collect::<String>(),
        "gateway.limits.TENANT",
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
