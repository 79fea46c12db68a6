//! The rows of the table: which scenario plays which trace, and what that stands for.

use std::path::{Path, PathBuf};

use tonnage::config::scenario::Scenario;
use tonnage::diag::Result;
use tonnage::sizing::case::Case;
use tonnage::trace::canonical::{self, Writer};
use tonnage::trace::import::{Job, Options, weka};

/// One row of the table.
#[derive(Clone, Copy)]
pub struct Work {
    /// Its name, also on the command line.
    pub name: &'static str,
    /// What it is, for the table.
    pub what: &'static str,
    pub scenario: &'static str,
    /// Keys of the scenario that are changed.
    pub set: &'static [&'static str],
    /// What makes the trace, where it is not the scenario's.
    pub trace: Made,
    /// Whether it is short enough to count its instructions.
    pub short: bool,
}

/// A trace that is too large to be kept, or kept in another form.
#[derive(Clone, Copy)]
pub enum Made {
    /// It is the scenario's.
    Kept,
    /// Import of agent sessions.
    Weka(&'static str),
    /// `tonnage generate` with these words.
    Generated(&'static [&'static str]),
}

const fn work(
    name: &'static str,
    what: &'static str,
    scenario: &'static str,
    set: &'static [&'static str],
) -> Work {
    Work { name, what, scenario, set, trace: Made::Kept, short: false }
}

const fn short(work: Work) -> Work {
    Work { short: true, ..work }
}

const fn made(trace: Made, work: Work) -> Work {
    Work { trace, ..work }
}

const W1: &str = "benches/w1.toml";
const W1N: &str = "benches/w1n.toml";
const W2: &str = "benches/w2.toml";
const WEKA: &str = "benches/cc-weka.toml";
const GLOBAL: &str = "benches/cc-weka-global.toml";
const MINI: Made = Made::Weka("tests/data/weka/mini.jsonl.gz");
const GLOBAL_TRACE: Made = Made::Weka("tests/data/weka-global/sessions.jsonl.gz");
const TWENTY: &[&str] = &["scale=20", "time_compression=0.05"];
const HUNDRED: &[&str] = &["scale=100", "time_compression=0.01"];
const DEVELOPERS: Made =
    Made::Generated(&["generate", "copilot", "--developers", "2000", "--days", "1"]);

/// All rows, in the order of the table.
pub const ALL: &[Work] = &[
    short(work("w1", "W1, 10,000 requests", W1, &[])),
    work("w1-200k", "W1, 200,000 requests", W1, TWENTY),
    work("w1-1m", "W1, 1,000,000 requests", W1, HUNDRED),
    short(work("w1n", "W1n, 10,000 requests", W1N, &[])),
    work("w1n-200k", "W1n, 200,000 requests", W1N, TWENTY),
    work("w1n-1m", "W1n, 1,000,000 requests", W1N, HUNDRED),
    short(work("w2", "W2", W2, &[])),
    short(work("w2-least-loaded", "W2, least loaded", W2, &["router=least_loaded"])),
    work("w2-long", "W2, ten times as long", "benches/w2-long.toml", &[]),
    work("w2-64", "W2, 64 replicas, 8 sessions/s", "benches/w2-64.toml", &[]),
    work(
        "w2-64-aware",
        "the same, routed by what caches hold",
        "benches/w2-64.toml",
        &["router=prefix_aware"],
    ),
    made(MINI, short(work("cc-weka-mini", "cc-weka mini", "benches/cc-weka-mini.toml", &[]))),
    short(work("cc-weka-4", "cc-weka, 4 replicas", WEKA, &[])),
    short(work("cc-weka-16", "cc-weka, 16 replicas", WEKA, &["replicas=16"])),
    made(GLOBAL_TRACE, short(work("global-4", "cc-weka-global, 4 replicas", GLOBAL, &[]))),
    made(
        GLOBAL_TRACE,
        short(work("global-16", "cc-weka-global, 16 replicas", GLOBAL, &["replicas=16"])),
    ),
    short(work("w2-tight", "W2, 8,000 blocks: preemptions", "benches/w2-tight.toml", &[])),
    work("askings", "50,000 askings of one prompt", "benches/askings.toml", &[]),
    made(
        DEVELOPERS,
        work("copilot-64", "copilot, generated, 64 replicas", "benches/copilot.toml", &[]),
    ),
    made(
        DEVELOPERS,
        work(
            "copilot-16",
            "copilot, generated, 16 replicas: overload",
            "benches/copilot.toml",
            &["replicas=16"],
        ),
    ),
];

/// The row of that name.
pub fn named(name: &str) -> Option<&'static Work> {
    ALL.iter().find(|work| work.name == name)
}

impl Work {
    /// The trace in its canonical form: the scenario's, or made in this folder.
    pub fn trace(&self, folder: &Path) -> Result<PathBuf> {
        let made = folder.join("made.csv.zst");
        match self.trace {
            Made::Kept => {
                let text = std::fs::read_to_string(self.scenario).unwrap_or_default();
                let scenario = Scenario::parse(&text, self.scenario, &[])?;
                let beside = Path::new(self.scenario).parent().unwrap_or(Path::new(""));
                return Ok(beside.join(scenario.trace.unwrap_or_default()));
            }
            Made::Weka(file) => {
                let mut writer = Writer::create(&made)?;
                weka::read(&Job::new(&[file.into()], &Options::default()), &mut writer)?;
                writer.finish()?;
            }
            Made::Generated(words) => {
                let mut command = super::tonnage();
                command.args(words).arg("-o").arg(&made);
                command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
                let status = command.status().expect("tonnage runs");
                assert!(status.success(), "tonnage {} failed", words.join(" "));
            }
        }
        Ok(made)
    }

    /// The row, ready to be simulated.
    pub fn case(&self, trace: &Path) -> Result<Case> {
        let text = std::fs::read_to_string(self.scenario).expect("the scenario is there");
        let set: Vec<String> = self.set.iter().map(|&set| set.to_owned()).collect();
        let scenario = Scenario::parse(&text, self.scenario, &set)?;
        Case::new(scenario, &canonical::read_all(trace)?, &[])
    }
}
