//! What one step of each lever changes: the fleet as it is and every neighbour of it, simulated on
//! the same sessions.

use rayon::prelude::*;

use super::binding::Binding;
use super::candidates;
use super::replicates::{Fleet, Replicates};
use crate::config::pools::Pool;
use crate::config::precision::KvDtype;
use crate::config::scenario::{RouterKind, Scenario};
use crate::config::vary::Axis;
use crate::diag::{Error, Result};
use crate::fleet::Progress;

/// One step of one lever.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lever {
    /// What people call it.
    pub name: String,
    /// The key of the scenario that it moves.
    pub key: String,
    /// The assignment that moves it.
    pub assignment: String,
    /// Why it cannot be moved from where the scenario stands.
    pub cannot: Option<String>,
}

/// What became of a lever.
#[derive(Debug)]
pub struct Moved {
    /// The lever.
    pub lever: Lever,
    /// The fleet behind it, or why there is none.
    pub fleet: std::result::Result<Fleet, String>,
}

/// A fleet, what binds it, and its neighbours.
#[derive(Debug)]
pub struct Explanation {
    /// The fleet as the scenario has it, under every seed.
    pub base: Fleet,
    /// What binds it under the first seed.
    pub binding: Option<Binding>,
    /// Every lever, in the order in which they were given.
    pub levers: Vec<Moved>,
}

/// Beyond this little is left for what vLLM does not count; the lever stops there.
const UTILIZATION_MAX: f64 = 0.95;
/// One step of it.
const UTILIZATION_STEP: f64 = 0.03;
/// A cap on one request's tokens in a step, where there was none.
const THRESHOLD: u64 = 512;
/// Keys that size the KV pool.
const POOL_KEYS: [&str; 3] =
    ["engine.kv_cache_dtype", "engine.tensor_parallel_size", "engine.gpu_memory_utilization"];

impl Lever {
    /// The levers of a fleet, each moved by one step from where it stands.
    #[must_use]
    pub fn of(scenario: &Scenario) -> Vec<Self> {
        let serving = &scenario.serving;
        let lever = |name: String, key: &str, value: String| Self {
            name,
            key: key.to_owned(),
            assignment: format!("{key}={value}"),
            cannot: None,
        };
        let kv = match serving.kv_dtype {
            KvDtype::Fp8 => ("KV cache back in 16 bits", "'auto'"),
            _ => ("KV cache in FP8", "'fp8'"),
        };
        let tp = serving.tensor_parallel_size.saturating_mul(2);
        let threshold = match serving.long_prefill_token_threshold.0 {
            0 => THRESHOLD,
            _ => 0,
        };
        let seats = serving.max_num_seqs;
        let mut levers = more_replicas(scenario);
        levers.extend([
            lever(kv.0.to_owned(), "engine.kv_cache_dtype", kv.1.to_owned()),
            lever(format!("tensor parallel {tp}"), "engine.tensor_parallel_size", tp.to_string()),
            lever(
                match threshold {
                    0 => "no long_prefill_token_threshold".to_owned(),
                    tokens => format!("long_prefill_token_threshold {tokens}"),
                },
                "engine.long_prefill_token_threshold",
                threshold.to_string(),
            ),
        ]);
        // Each pool has a router of its own, which a list can vary.
        levers.extend(scenario.pools.is_empty().then(|| router(scenario)));
        levers.extend([
            lever(
                format!("max_num_seqs {}", seats / 2),
                "engine.max_num_seqs",
                (seats / 2).to_string(),
            ),
            lever(
                format!("max_num_seqs {}", seats.saturating_mul(2)),
                "engine.max_num_seqs",
                seats.saturating_mul(2).to_string(),
            ),
            utilization(scenario),
        ]);
        levers
    }

    /// The levers of lists: each value of each key by itself.
    ///
    /// # Errors
    /// A key with which other work would be done, or under other conditions.
    pub fn of_axes(axes: &[Axis], scenario: &Scenario) -> Result<Vec<Self>> {
        let is_size = |key: &str| key == "fleet.replicas" || candidates::is_pool_size(key);
        let of_fleet: Vec<Axis> = axes.iter().filter(|axis| !is_size(&axis.key)).cloned().collect();
        candidates::check(&of_fleet, scenario.one_price)?;
        let lever = |axis: &Axis, value: usize, text: &str| Self {
            name: format!("{} {text}", candidates::short_key(&axis.key)),
            key: axis.key.clone(),
            assignment: axis.assignment(value),
            cannot: None,
        };
        let of_axis = |axis: &Axis| -> Vec<Self> {
            let texts = axis.texts().into_iter().enumerate();
            texts.map(|(value, text)| lever(axis, value, &text)).collect()
        };
        Ok(axes.iter().flat_map(of_axis).collect())
    }

    /// Refuses a scenario in which the lever moves nothing although it should.
    fn check(&self, scenario: &Scenario) -> Option<String> {
        let memory = &scenario.serving.memory;
        let by_hand = memory.blocks_computed != Some(memory.num_gpu_blocks);
        (by_hand && POOL_KEYS.contains(&self.key.as_str())).then(|| {
            "the number of KV blocks is given (engine.num_gpu_blocks_override or engine.vllm_log), \
             and would be another one then"
                .to_owned()
        })
    }
}

/// One more replica, of the fleet or of each of its pools.
fn more_replicas(scenario: &Scenario) -> Vec<Lever> {
    let one_more = |name: String, key: String, replicas: u32| Lever {
        name,
        assignment: format!("{key}={}", u64::from(replicas) + 1),
        key,
        cannot: None,
    };
    if scenario.pools.is_empty() {
        let (name, key) = ("one more replica".to_owned(), "fleet.replicas".to_owned());
        return vec![one_more(name, key, scenario.replicas)];
    }
    let of_pool = |pool: &Pool| {
        let name = format!("one more replica in {}", pool.name);
        one_more(name, format!("pools.{}.replicas", pool.name), pool.replicas)
    };
    scenario.pools.iter().map(of_pool).collect()
}

fn router(scenario: &Scenario) -> Lever {
    const ONLY_ONE: &str = "with one replica every router sends every call there";
    let cannot = (scenario.replicas == 1).then(|| ONLY_ONE.to_owned());
    if let Some(gateway) = &scenario.gateway {
        let to = !gateway.config().routing.session_affinity;
        let name = if to { "session affinity on" } else { "session affinity off" };
        return Lever {
            name: name.to_owned(),
            key: "gateway.session_affinity".to_owned(),
            assignment: format!("gateway.session_affinity={to}"),
            cannot,
        };
    }
    let to = match scenario.router {
        RouterKind::SessionAffinity => RouterKind::Random,
        _ => RouterKind::SessionAffinity,
    };
    let name = match to {
        RouterKind::Random => "session affinity off (random)",
        _ => "session affinity on",
    };
    Lever {
        name: name.to_owned(),
        key: "fleet.router".to_owned(),
        assignment: format!("fleet.router='{}'", to.name()),
        cannot,
    }
}

fn utilization(scenario: &Scenario) -> Lever {
    let now = scenario.serving.memory.utilization();
    let next = ((now + UTILIZATION_STEP).min(UTILIZATION_MAX) * 1e3).round() / 1e3;
    let full = format!("it is {now:.2} already, and no step beyond {UTILIZATION_MAX} is tried");
    Lever {
        name: format!("gpu_memory_utilization {next}"),
        key: "engine.gpu_memory_utilization".to_owned(),
        assignment: format!("engine.gpu_memory_utilization={next:?}"),
        cannot: (next <= now + 1e-3).then_some(full),
    }
}

impl Explanation {
    /// Simulates what a fleet would be with each lever moved. `moved` makes the case of a
    /// lever's assignment; a lever that it refuses is told with the reason.
    pub fn of(
        base: Fleet,
        replicates: &Replicates,
        levers: Vec<Lever>,
        moved: impl Fn(&Lever) -> Result<Replicates> + Sync,
        progress: &Progress,
    ) -> Self {
        let pull = |lever: Lever| {
            let fleet = match &lever.cannot {
                Some(why) => Err(why.clone()),
                None => pulled(&lever, &moved, progress).map_err(|error| told(&error)),
            };
            Moved { lever, fleet }
        };
        let levers = levers.into_par_iter().map(pull).collect();
        let binding = Binding::of(replicates.case(), base.figures());
        Self { base, binding, levers }
    }
}

fn pulled(
    lever: &Lever,
    moved: &(impl Fn(&Lever) -> Result<Replicates> + Sync),
    progress: &Progress,
) -> Result<Fleet> {
    let replicates = moved(lever)?;
    let case = replicates.case();
    if let Some(why) = lever.check(&case.scenario) {
        return Err(Error::new(why));
    }
    replicates.judge(case.scenario.replicas, progress)
}

/// The first line of an error: the field is the lever itself.
fn told(error: &Error) -> String {
    error.message().lines().next().unwrap_or_default().to_owned()
}
