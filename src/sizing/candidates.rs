//! Kinds of fleets that are compared with each other: every combination of the values that keys of
//! the scenario take.
//!
//! A combination that cannot run (a model that does not fit) is left out and told, with the reason.
//! A value that cannot run in any combination is an error: it is a slip, not a candidate.

use super::bands::Bands;
use super::cost::Offer;
use super::replicates::Replicates;
use super::search::Search;
use crate::config::scenario::Scenario;
use crate::config::vary::Axis;
use crate::diag::{Error, Result};

/// More combinations than anybody reads; a larger number is a slip.
const COMBINATIONS_MAX: usize = 200_000;
/// More candidates than anybody compares.
const CANDIDATES_MAX: usize = 1_000;

/// One value of every key.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Combination {
    /// The number of the value of each axis.
    pub values: Vec<usize>,
}

/// A combination that cannot run.
#[derive(Clone, Debug)]
pub struct Refused {
    /// As [`name`] gives it.
    pub name: String,
    /// Why.
    pub reason: String,
}

/// A candidate for whom a size was looked for.
#[derive(Debug)]
pub struct Sized {
    /// As [`name`] gives it; empty if there is nothing to compare.
    pub name: String,
    /// Its scenario under every seed.
    pub replicates: Replicates,
    /// What was found.
    pub search: Search,
    /// How far that moves; only for the best candidate.
    pub bands: Option<Bands>,
}

/// All candidates.
#[derive(Debug)]
pub struct Comparison {
    /// Those that can run, the best first.
    pub sized: Vec<Sized>,
    /// The others.
    pub refused: Vec<Refused>,
}

impl Comparison {
    /// Puts the best candidate first: the cheapest by the hour, then that with the fewest GPUs,
    /// then in the order of the lists. Those without a price come after those with one, and those
    /// without an answer last.
    pub fn sort(&mut self) {
        let rank = |candidate: &Sized| {
            let offer = candidate.search.answer().map(Offer::of);
            let usd = offer.and_then(|offer| offer.usd_per_hour).unwrap_or(f64::INFINITY);
            (offer.is_none(), usd, offer.map_or(u32::MAX, |offer| offer.gpus))
        };
        self.sized.sort_by(|a, b| {
            let (a, b) = (rank(a), rank(b));
            a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)).then(a.2.cmp(&b.2))
        });
    }
}

/// Every combination, the last axis running fastest.
///
/// # Errors
/// More of them than anybody reads.
pub fn combinations(axes: &[Axis]) -> Result<Vec<Combination>> {
    let mut sizes = axes.iter().map(|axis| axis.values.len());
    let count = sizes.try_fold(1_usize, usize::checked_mul);
    let Some(count) = count.filter(|count| *count <= COMBINATIONS_MAX) else {
        return Err(Error::new(format!(
            "the lists give more than {COMBINATIONS_MAX} combinations"
        )));
    };
    let combination = |number: usize| {
        let mut rest = number;
        let mut values: Vec<usize> = axes
            .iter()
            .rev()
            .map(|axis| {
                let value = rest % axis.values.len();
                rest /= axis.values.len();
                value
            })
            .collect();
        values.reverse();
        Combination { values }
    };
    Ok((0..count).map(combination).collect())
}

/// The assignments of a combination, as the command line takes them.
#[must_use]
pub fn assignments(axes: &[Axis], combination: &Combination) -> Vec<String> {
    let pairs = axes.iter().zip(&combination.values);
    pairs.map(|(axis, value)| axis.assignment(*value)).collect()
}

/// What people call a combination: its values, with the names of keys that several sections have.
#[must_use]
pub fn name(axes: &[Axis], combination: &Combination) -> String {
    let pairs = axes.iter().zip(&combination.values);
    let pairs =
        pairs.map(|(axis, value)| format!("{}={}", short_key(&axis.key), axis.texts()[*value]));
    pairs.collect::<Vec<_>>().join(" ")
}

/// The last part of a key; the whole key in sections whose names come more than once.
pub(super) fn short_key(key: &str) -> &str {
    let is_full = ["gateway.", "autoscale.", "pools."].iter().any(|one| key.starts_with(one));
    key.rsplit_once('.').filter(|_| !is_full).map_or(key, |(_, leaf)| leaf)
}

/// What was made of every combination, or why it cannot run.
pub type Each<T> = Vec<(Combination, Result<T>)>;

/// Makes something of every combination.
///
/// # Errors
/// A value with which no combination can run.
pub fn each<T>(axes: &[Axis], make: impl Fn(&Combination) -> Result<T>) -> Result<Each<T>> {
    let read = |combination: Combination| {
        let made = make(&combination);
        let placed = made.map_err(|error| axes.iter().fold(error, |error, axis| axis.at(error)));
        (combination, placed)
    };
    let all: Each<T> = combinations(axes)?.into_iter().map(read).collect();
    let mut runs: Vec<Vec<bool>> = axes.iter().map(|axis| vec![false; axis.values.len()]).collect();
    for (combination, _) in all.iter().filter(|(_, made)| made.is_ok()) {
        for (runs, value) in runs.iter_mut().zip(&combination.values) {
            runs[*value] = true;
        }
    }
    let never_runs = |combination: &Combination| {
        let mut values = runs.iter().zip(&combination.values);
        axes.is_empty() || values.any(|(runs, value)| !runs[*value])
    };
    for (combination, made) in &all {
        if let Err(error) = made
            && never_runs(combination)
        {
            return Err(error.clone());
        }
    }
    Ok(all)
}

/// Reads the scenario of every combination.
///
/// # Errors
/// As [`each`], or more candidates than anybody compares.
pub fn scenarios(
    axes: &[Axis],
    read: impl Fn(&[String]) -> Result<Scenario>,
) -> Result<Each<Scenario>> {
    let count = combinations(axes)?.len();
    if count > CANDIDATES_MAX {
        return Err(Error::found(count, format!("at most {CANDIDATES_MAX} candidates")));
    }
    each(axes, |combination| read(&assignments(axes, combination)))
}

/// Whether a key is the number of replicas of a pool.
#[must_use]
pub fn is_pool_size(key: &str) -> bool {
    key.starts_with("pools.") && key.ends_with(".replicas")
}

/// Refuses lists that `size` cannot compare.
///
/// # Errors
/// A key that the search itself changes, or one price for several kinds of GPUs.
pub fn check(axes: &[Axis], one_price: bool) -> Result<()> {
    for axis in axes {
        let why = match axis.key.as_str() {
            "fleet.replicas" => "the number of replicas is what is looked for",
            "gateway.replicas" => "the number of gateway replicas is what is looked for",
            key if is_pool_size(key) => "the number of replicas of each pool is what is looked for",
            "run.seed" => "seeds are not candidates: size.seeds = 5 runs each fleet under five",
            "slo.targets" => "candidates are held to the same targets",
            "trace" => "candidates are compared on the same trace",
            key if key.starts_with("generate.") || key.starts_with("profile.") => {
                "candidates are compared on the same sessions; `sweep` varies them"
            }
            "engine.gpu" if one_price => {
                "cost.usd_per_gpu_hour is one price for several GPUs: give each its own in [prices]"
            }
            key if key.starts_with("generate.") => "candidates are compared on the same sessions",
            key if key.starts_with("load.") || key.starts_with("workload.") => {
                "candidates are compared under the same load; `sweep` varies it"
            }
            key if key.starts_with("size.") || key.starts_with("run.") => {
                "candidates are held to the same conditions"
            }
            _ => continue,
        };
        return Err(axis.at(Error::new(why).in_field(format!("--set {}", axis.key))));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn axes() -> Vec<Axis> {
        let known = crate::config::scenario::settable_keys();
        ["gpu=h100-sxm,l40s", "tensor_parallel_size=1,2"]
            .map(|text| Axis::parse(text, &known).unwrap())
            .into()
    }

    fn parse(model: &str) -> impl Fn(&[String]) -> Result<Scenario> {
        let text = format!("[engine]\nmodel = '{model}'\ngpu = 'h100-sxm'\nmax_model_len = 8192\n");
        move |assignments: &[String]| Scenario::parse(&text, "s", assignments)
    }

    #[test]
    fn the_last_axis_runs_fastest() {
        let axes = axes();
        let names: Vec<String> =
            combinations(&axes).unwrap().iter().map(|c| name(&axes, c)).collect();
        assert_eq!(names[1], "gpu=h100-sxm tensor_parallel_size=2");
        assert_eq!(names.len(), 4);
    }

    #[test]
    fn what_does_not_fit_is_refused_by_itself_and_what_never_fits_is_an_error() {
        // 61 GB of weights: not on one L40S of 48 GB, but on two, and on one H100.
        let scenarios = scenarios(&axes(), parse("Qwen3-Coder-30B-A3B")).unwrap();
        let fit: Vec<bool> = scenarios.iter().map(|(_, scenario)| scenario.is_ok()).collect();
        assert_eq!(fit, [true, true, false, true]);
        let error = super::scenarios(&axes(), parse("Qwen3-235B-A22B")).unwrap_err().to_string();
        assert!(error.contains("does not fit") || error.contains("GiB"), "{error}");
    }

    #[test]
    fn contradictory_lists_are_refused() {
        let known = crate::config::scenario::settable_keys();
        for (text, said) in [
            ("replicas=1,2", "what is looked for"),
            ("seed=1,2", "size.seeds"),
            ("load.developers=1,2", "same load"),
            ("generate.profile=chat,agentx", "same sessions"),
            ("gpu=h100,h200", "[prices]"),
        ] {
            let axes = [Axis::parse(text, &known).unwrap()];
            let error = check(&axes, true).unwrap_err().to_string();
            assert!(error.starts_with("--vary ") && error.contains(said), "{error}");
        }
    }
}
