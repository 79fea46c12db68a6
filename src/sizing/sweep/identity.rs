//! What a cell is known by: a hash of everything that its figures depend on.

use std::fmt::{self, Write};

use xxhash_rust::xxh3::Xxh3;

use crate::config::drawing::Drawing;
use crate::config::scenario::Scenario;
use crate::diag::Result;
use crate::fleet::Setup;
use crate::sizing::slo::Slo;
use crate::trace::record::Trace;

/// Raised whenever the same scenario, trace and seed give other figures, so that cells of before
/// are simulated again.
pub const MODEL_VERSION: u32 = 2;

/// A hash that is written to as text.
#[derive(Default)]
pub(super) struct Hash(Xxh3);

impl Write for Hash {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.update(text.as_bytes());
        Ok(())
    }
}

impl Hash {
    /// As 32 hexadecimal digits.
    pub(super) fn text(&self) -> String {
        format!("{:032x}", self.0.digest128())
    }

    /// Adds a part; parts cannot run into each other.
    pub(super) fn part(&mut self, part: &dyn fmt::Debug) {
        // Writing to a hash does not fail.
        let _ = write!(self, "{part:?}\n\0");
    }
}

/// The hash of a trace's content: the same however it is compressed or laid out.
#[must_use]
pub fn of_trace(trace: &Trace) -> String {
    let mut hash = Hash::default();
    trace.contexts.iter().for_each(|context| hash.part(context));
    trace.sessions.iter().for_each(|session| hash.part(session));
    hash.text()
}

/// The version of everything between a scenario and its figures.
#[must_use]
pub fn version() -> String {
    format!("{}-{MODEL_VERSION}", env!("CARGO_PKG_VERSION"))
}

/// The hash of a cell: what its scenario says, wherever it says so, the trace's content, the values
/// of the varied keys, and the version of the program's model.
///
/// # Errors
/// A replica without a step time.
pub fn of_cell(
    scenario: &Scenario,
    targets: &[Slo],
    values: &[(String, String)],
    trace: &str,
) -> Result<String> {
    let setup = Setup::of(scenario)?;
    // What is only shown, or says where something stands, or is for searches.
    let scenario = Scenario {
        name: String::new(),
        description: String::new(),
        trace: None,
        targets: Vec::new(),
        target_places: Vec::new(),
        pool_places: Vec::new(),
        max_replicas: 0,
        seeds: 0,
        step_time_band: 0.0,
        bootstrap: None,
        candidates: Vec::new(),
        drawing: Drawing::default(),
        ..scenario.clone()
    };
    let mut hash = Hash::default();
    hash.part(&version());
    hash.part(&trace);
    hash.part(&values);
    hash.part(&targets.iter().map(ToString::to_string).collect::<Vec<_>>());
    hash.part(&scenario);
    hash.part(&setup);
    Ok(hash.text())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str =
        "[engine]\nmodel = 'Llama-3.1-8B'\ngpu = 'h100-sxm'\n[fleet]\nreplicas = 2\n";

    fn hash(text: &str, set: &[&str], trace: &str) -> String {
        let set: Vec<String> = set.iter().map(|&set| set.to_owned()).collect();
        let scenario = Scenario::parse(text, "s.toml", &set).unwrap();
        of_cell(&scenario, &Slo::defaults(), &[], trace).unwrap()
    }

    #[test]
    fn what_changes_figures_changes_the_hash_and_nothing_else_does() {
        let plain = hash(TEXT, &[], "t");
        let commented = format!("# a comment\nname = 'another'\n{TEXT}router = 'session_affinity'");
        assert_eq!(hash(&commented, &["size.max_replicas=9"], "t"), plain);
        for set in ["run.seed=2", "replicas=3", "api.request_ms=9", "cost.usd_per_gpu_hour=1"] {
            assert_ne!(hash(TEXT, &[set], "t"), plain, "{set}");
        }
        assert_ne!(hash(TEXT, &[], "u"), plain);
    }
}
