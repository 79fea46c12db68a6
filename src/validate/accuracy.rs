//! How far simulated runs are from measured ones: for each row, for groups of rows, for all.

use std::collections::BTreeMap;

use super::runs::{Latencies, Offered, Run};
use super::simulated::{Compared, Simulated};
use crate::stats::quantile;

/// What is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Quantity {
    /// Time to the first token.
    Ttft,
    /// Time per token after the first.
    Itl,
    /// Time of a request.
    E2e,
    /// Requests a second.
    Throughput,
}

impl Quantity {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Ttft, Self::Itl, Self::E2e, Self::Throughput];

    /// Its name in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Ttft => "ttft",
            Self::Itl => "itl",
            Self::E2e => "e2e",
            Self::Throughput => "throughput",
        }
    }

    /// The figure of a run.
    #[must_use]
    pub fn of(self, latencies: &Latencies) -> Option<f64> {
        match self {
            Self::Ttft => latencies.ttft_ms,
            Self::Itl => latencies.itl_ms,
            Self::E2e => latencies.e2e_ms,
            Self::Throughput => latencies.rate_rps,
        }
    }

    /// Simulated over measured, less 1; none where either is not known.
    #[must_use]
    pub fn error(self, simulated: &Latencies, measured: &Latencies) -> Option<f64> {
        Some(self.of(simulated)? / self.of(measured)? - 1.0)
    }
}

/// The absolute errors of a group of rows, as shares of what was measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Errors {
    /// Rows.
    pub n: usize,
    /// Their mean.
    pub mean: f64,
    /// Their median.
    pub median: f64,
    /// Their 90th percentile.
    pub p90: f64,
    /// The mean with its sign: above 0 the simulation is slower.
    pub bias: f64,
}

impl Errors {
    /// Of errors with their signs; none without any.
    #[must_use]
    pub fn of(signed: &[f64]) -> Option<Self> {
        let mut sizes: Vec<f64> = signed.iter().map(|error| error.abs()).collect();
        sizes.sort_by(f64::total_cmp);
        let n = sizes.len();
        Some(Self {
            n,
            median: quantile(&sizes, 0.5)?,
            p90: quantile(&sizes, 0.9)?,
            mean: sizes.iter().sum::<f64>() / n as f64,
            bias: signed.iter().sum::<f64>() / n as f64,
        })
    }
}

/// The errors of a group, one for each [`Quantity`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Group {
    /// Rows in it.
    pub rows: usize,
    signed: [Vec<f64>; 4],
}

impl Group {
    /// The errors of a quantity.
    #[must_use]
    pub fn errors(&self, quantity: Quantity) -> Option<Errors> {
        Errors::of(&self.signed[quantity as usize])
    }

    /// Adds a row.
    pub fn add(&mut self, simulated: &Latencies, measured: &Latencies) {
        self.rows += 1;
        for quantity in Quantity::ALL {
            self.signed[quantity as usize].extend(quantity.error(simulated, measured));
        }
    }
}

/// By what rows are grouped, in the order of reports.
pub const DIMENSIONS: [&str; 7] =
    ["class", "gpu", "precision", "kind", "origin", "engine_version", "model"];

/// The rows of a file, sorted by what they are good for.
#[derive(Clone, Debug, Default)]
pub struct Accuracy {
    /// All rows that count.
    pub overall: Group,
    /// The same by dimension and name.
    pub groups: BTreeMap<(usize, String), Group>,
    /// Rows with a note, apart.
    pub doubtful: Group,
    /// Rows that could not be simulated, by reason.
    pub left_out: BTreeMap<String, usize>,
    /// How far the same configuration, measured again, was from the mean of its measurements.
    pub noise: Group,
}

impl Accuracy {
    /// Sorts the rows of a file.
    #[must_use]
    pub fn of(rows: &[Compared]) -> Self {
        let mut accuracy = Self::default();
        for Compared { run, outcome } in rows {
            let simulated = match outcome {
                Ok(simulated) => simulated,
                Err(reason) => {
                    *accuracy.left_out.entry(reason.clone()).or_default() += 1;
                    continue;
                }
            };
            if run.is_doubtful() {
                accuracy.doubtful.add(&simulated.latencies, &run.measured);
                continue;
            }
            accuracy.overall.add(&simulated.latencies, &run.measured);
            for (dimension, name) in names(run, simulated).into_iter().enumerate() {
                let group = accuracy.groups.entry((dimension, name)).or_default();
                group.add(&simulated.latencies, &run.measured);
            }
        }
        accuracy.noise = noise(rows.iter().map(|row| &row.run));
        accuracy
    }

    /// The group of this name in a dimension.
    #[must_use]
    pub fn group(&self, dimension: &str, name: &str) -> Option<&Group> {
        let dimension = DIMENSIONS.iter().position(|known| *known == dimension)?;
        self.groups.get(&(dimension, name.to_owned()))
    }
}

/// The name of a row in every dimension.
fn names(run: &Run, simulated: &Simulated) -> [String; 7] {
    let deployment = &simulated.deployment;
    let or_unknown = |text: &str| if text.is_empty() { "not stated" } else { text }.to_owned();
    let kind = if deployment.has_experts { "MoE" } else { "dense" };
    let bits = deployment.weights.bits();
    [
        format!("{kind} {bits}-bit"),
        deployment.gpu.to_owned(),
        deployment.weights.name().to_owned(),
        kind.to_owned(),
        or_unknown(&run.origin),
        or_unknown(&run.engine_version),
        deployment.model.clone(),
    ]
}

/// How far repeated measurements of one configuration are from their mean.
fn noise<'a>(runs: impl Iterator<Item = &'a Run>) -> Group {
    let mut same: BTreeMap<String, Vec<&Run>> = BTreeMap::new();
    for run in runs.filter(|run| !run.is_doubtful() && run.engine == "vllm") {
        same.entry(configuration(run)).or_default().push(run);
    }
    let mut group = Group::default();
    for repeated in same.values().filter(|runs| runs.len() > 1) {
        let mean = |quantity: Quantity| {
            let known: Vec<f64> =
                repeated.iter().filter_map(|run| quantity.of(&run.measured)).collect();
            (known.len() > 1).then(|| known.iter().sum::<f64>() / known.len() as f64)
        };
        let means = Latencies {
            ttft_ms: mean(Quantity::Ttft),
            itl_ms: mean(Quantity::Itl),
            e2e_ms: mean(Quantity::E2e),
            rate_rps: mean(Quantity::Throughput),
        };
        repeated.iter().for_each(|run| group.add(&run.measured, &means));
    }
    group
}

/// Everything that one can set, in one text.
#[must_use]
pub fn configuration(run: &Run) -> String {
    let load = match run.offered {
        Offered::Concurrency(seqs) => format!("c{seqs}"),
        Offered::Rate(rate) => format!("{rate}/s"),
        Offered::Random(rate) => format!("{rate}/s at random"),
    };
    let Run { gpu, model, precision, engine_version, tp, dp, ep, isl, osl, .. } = run;
    let Run { cached_prefix, max_batched_tokens, max_num_seqs, num_gpu_blocks, .. } = run;
    format!(
        "{gpu} {model} {precision} {engine_version} {tp} {dp} {ep} {isl} {osl} {cached_prefix} \
         {max_batched_tokens:?} {max_num_seqs:?} {num_gpu_blocks:?} {:?} {load}",
        run.kv_cache_dtype
    )
}
