//! Which resource binds: a rule over the figures of one run. Its thresholds and what each step of
//! it rests on are told in `docs/explain.md`.
//!
//! Every part of a task's time on its critical path is laid at the door of one resource; the
//! largest claim binds.
//!
//! Figures say where time goes, not what would help: two claims that are close to each
//! other are both named, and what a resource's claim hides is told as a doubt.

use super::case::Case;
use super::figures::{Figures, TaskTime};
use super::tally::Part;
use crate::config::pools::Pool;
use crate::config::scenario::RouterKind;

/// What a task may wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resource {
    /// Room for KV: what was evicted is computed again, and calls wait for free blocks.
    KvCapacity,
    /// Calls that land where their context is not.
    Router,
    /// The gateway: slots, its event loops, counting, stores, and waits after a refusal.
    Gateway,
    /// Memory bandwidth: steps that decode read weights and KV.
    Bandwidth,
    /// Prefill of new tokens, of a call itself and of others beside its decode.
    PrefillCompute,
    /// Seats and the token budget of a step.
    Queue,
    /// The host: API server, and the fixed time of a step.
    Host,
    /// The client's tools.
    Tools,
    /// The people who read and think.
    People,
}

impl Resource {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::KvCapacity,
        Self::Router,
        Self::Gateway,
        Self::Bandwidth,
        Self::PrefillCompute,
        Self::Queue,
        Self::Host,
        Self::Tools,
        Self::People,
    ];

    /// Its name in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::KvCapacity => "kv_capacity",
            Self::Router => "router",
            Self::Gateway => "gateway",
            Self::Bandwidth => "bandwidth",
            Self::PrefillCompute => "prefill_compute",
            Self::Queue => "queue",
            Self::Host => "host",
            Self::Tools => "tools",
            Self::People => "people",
        }
    }

    /// Whether it is part of the fleet, so that more of it could be bought.
    #[must_use]
    pub const fn is_of_fleet(self) -> bool {
        !matches!(self, Self::Tools | Self::People)
    }
}

/// Time that one resource takes of a task.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Claim {
    /// Which.
    pub resource: Resource,
    /// Mean seconds of a task.
    pub seconds: f64,
    /// Over the mean `task_llm`; none for tools and people.
    pub of_task_llm: Option<f64>,
    /// Over the mean `session`.
    pub of_session: f64,
}

/// A figure that says whether something is used up.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sign {
    /// The figure.
    pub name: &'static str,
    /// As measured.
    pub value: f64,
    /// From here on it is a sign of strain.
    pub from: f64,
}

impl Sign {
    /// Whether it is one.
    #[must_use]
    pub fn is_strained(&self) -> bool {
        self.value >= self.from
    }
}

/// What binds, and what that rests on.
#[derive(Clone, Debug, PartialEq)]
pub struct Binding {
    /// Of the fleet's resources, the one that takes most of `task_llm`, and those that are close.
    pub fleet: Vec<Resource>,
    /// The same of the whole session, tools and people included.
    pub session: Vec<Resource>,
    /// What every resource takes, the largest first.
    pub claims: Vec<Claim>,
    /// Signs of strain, reached or not.
    pub signs: Vec<Sign>,
    /// Why the answer may be wrong.
    pub doubts: Vec<String>,
}

/// A claim of at least so much of the largest one is as good as it.
const CLOSE: f64 = 2.0 / 3.0;
/// Blocks held by requests, 95th percentile over time.
const KV_FULL: f64 = 0.9;
/// Tokens of open contexts over those of the pools.
const LIVE_FULL: f64 = 1.0;
/// Hit rate below that of a cache that never evicts.
const HIT_SHORT: f64 = 0.05;
/// Queue over `task_llm`.
const QUEUE_LONG: f64 = 0.1;
/// Time in steps.
const GPU_BUSY: f64 = 0.8;
/// Sequences in a step over `max_num_seqs`.
const SEATS_TAKEN: f64 = 0.9;
/// Sessions that a gateway keeps in place.
const STAYED_MIN: f64 = 0.98;
/// Core time of the gateway in use.
const CPU_BUSY: f64 = 0.8;
/// Fewer tasks say little.
const TASKS_MIN: u64 = 30;

impl Binding {
    /// What binds a fleet; none without a completed task.
    #[must_use]
    pub fn of(case: &Case, figures: &Figures) -> Option<Self> {
        let time = figures.time.as_ref()?;
        let kv_full = has_no_room(case, figures);
        let scattered = figures.replicas > 1 && is_scattered(case, figures);
        let mut claims = claims(case, figures, time, kv_full, scattered);
        claims.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
        let close = |among: &dyn Fn(Resource) -> bool| -> Vec<Resource> {
            let most = claims.iter().find(|claim| among(claim.resource)).map(|c| c.seconds);
            let most = most.filter(|most| *most > 0.0);
            let near = |claim: &&Claim| {
                among(claim.resource) && most.is_some_and(|most| claim.seconds >= most * CLOSE)
            };
            claims.iter().filter(near).map(|claim| claim.resource).collect()
        };
        let fleet = close(&Resource::is_of_fleet);
        let session = close(&|_| true);
        let signs = signs(case, figures, time);
        let mut doubts = doubts(figures, time, &fleet, &signs, scattered);
        if kv_full && figures.kv.p95 < KV_FULL && time.mean_s(Part::Queue) > 0.0 {
            doubts.push(
                "the pool is full at peaks only: part of the queue that kv_capacity claims may \
                 have waited for seats or for the token budget"
                    .to_owned(),
            );
        }
        Some(Self { fleet, session, claims, signs, doubts })
    }

    /// Whether any sign of strain is reached.
    #[must_use]
    pub fn is_strained(&self) -> bool {
        self.signs.iter().any(Sign::is_strained)
    }
}

/// Whether calls of a session go to several replicas.
fn is_scattered(case: &Case, figures: &Figures) -> bool {
    match &figures.gateway {
        Some(gateway) => gateway.stayed.is_some_and(|stayed| stayed < STAYED_MIN),
        None => match &case.scenario.pools[..] {
            [] => case.scenario.router != RouterKind::SessionAffinity,
            pools => pools.iter().any(Pool::scatters),
        },
    }
}

/// Whether a call may have had to wait for blocks: at the peak there was no room for one more long
/// prompt, or somebody lost theirs.
fn has_no_room(case: &Case, figures: &Figures) -> bool {
    // A prompt finds room on one rank only.
    let blocks = figures.kv.blocks / case.setup.cost.ranks() as u64;
    let pool = blocks * case.scenario.serving.memory.block_size;
    let prompt = figures.tokens.prompt.map_or(0.0, |prompt| prompt.p95);
    figures.preemptions.count > 0 || figures.kv.max + prompt / pool.max(1) as f64 >= 1.0
}

fn claims(
    case: &Case,
    figures: &Figures,
    time: &TaskTime,
    kv_full: bool,
    scattered: bool,
) -> Vec<Claim> {
    let of = |part| time.mean_s(part);
    let (decode, queue, again) = (of(Part::Decode), of(Part::Queue), of(Part::Reprefill));
    // While a call decodes, others prefill so much of the time on its replica.
    let busy = 1.0 - figures.gpu.idle;
    let beside = decode * busy * figures.gpu.prefill_share.unwrap_or(0.0);
    let host = (decode - beside) * host_share(case, figures);
    let seconds = |resource| match resource {
        Resource::KvCapacity => {
            (if scattered { 0.0 } else { again }) + if kv_full { queue } else { 0.0 }
        }
        Resource::Router => {
            if scattered {
                again
            } else {
                0.0
            }
        }
        Resource::Gateway => of(Part::Gateway),
        Resource::Bandwidth => decode - beside - host,
        Resource::PrefillCompute => of(Part::Prefill) + beside,
        Resource::Queue => {
            if kv_full {
                0.0
            } else {
                queue
            }
        }
        Resource::Host => of(Part::Host) + host,
        Resource::Tools => of(Part::Tool),
        Resource::People => of(Part::Human),
    };
    let share = |part: f64, whole: f64| if whole > 0.0 { part / whole } else { 0.0 };
    let claim = |resource: Resource| {
        let seconds = seconds(resource);
        let of_fleet = resource.is_of_fleet();
        Claim {
            resource,
            seconds,
            of_task_llm: of_fleet.then(|| share(seconds, time.task_llm_s)),
            of_session: share(seconds, time.session_s),
        }
    };
    let is_there =
        |resource: &Resource| *resource != Resource::Gateway || figures.gateway.is_some();
    Resource::ALL.into_iter().filter(is_there).map(claim).collect()
}

/// The part of a step of decodes that the host and fixed times take, at the mean batch and context.
fn host_share(case: &Case, figures: &Figures) -> f64 {
    let tokens = &figures.tokens;
    let (Some(prompt), Some(output)) = (tokens.prompt, tokens.output) else { return 0.0 };
    let cost = &case.setup.cost;
    let mut load = cost.empty_load();
    let context = ((prompt.mean + output.mean / 2.0).round() as u64).max(1);
    let ranks = cost.ranks() as u64;
    let sequences = ((figures.gpu.mean_decode_batch / ranks as f64).round() as u64).max(1);
    let windowed = load.window().map_or(context, |window| window.seen_in_the_mean(context));
    load.add_decodes(sequences, sequences * context, sequences * windowed);
    load.set_other_ranks((ranks - 1) * sequences);
    let step = cost.cost(&load);
    let [host, linear, attention] = step.groups_ms();
    host / (host + linear + attention)
}

fn signs(case: &Case, figures: &Figures, time: &TaskTime) -> Vec<Sign> {
    let sign = |name, value, from| Sign { name, value, from };
    let hit = &figures.hit;
    let short = hit.infinite_cache.zip(hit.engine_counter).map_or(0.0, |(most, hit)| most - hit);
    let queue = match time.task_llm_s {
        llm if llm > 0.0 => time.mean_s(Part::Queue) / llm,
        _ => 0.0,
    };
    let all_seats = case.setup.engine.max_num_seqs.max(1) * case.setup.cost.ranks();
    let seats = figures.gpu.mean_decode_batch / all_seats as f64;
    let cpu = figures.gateway.as_ref().and_then(|gateway| gateway.cpu_utilisation);
    let gateway = cpu.map(|cpu| sign("gateway_cpu", cpu, CPU_BUSY));
    let mut signs = vec![
        sign("gpu_busy", 1.0 - figures.gpu.idle, GPU_BUSY),
        sign("kv_use_p95", figures.kv.p95, KV_FULL),
        sign("live_context_over_pool", figures.kv.live_context_over_pool, LIVE_FULL),
        sign("hit_below_infinite_cache", short, HIT_SHORT),
        sign("queue_of_task_llm", queue, QUEUE_LONG),
        sign("batch_over_max_num_seqs", seats, SEATS_TAKEN),
    ];
    signs.extend(gateway);
    signs
}

fn doubts(
    figures: &Figures,
    time: &TaskTime,
    fleet: &[Resource],
    signs: &[Sign],
    scattered: bool,
) -> Vec<String> {
    let mut doubts = Vec::new();
    if let [first, others @ ..] = fleet
        && !others.is_empty()
    {
        let others: Vec<&str> = others.iter().map(|other| other.name()).collect();
        doubts.push(format!(
            "{} is not alone: {} takes at least two thirds as much",
            first.name(),
            others.join(", ")
        ));
    }
    if !signs.iter().any(Sign::is_strained) {
        doubts.push(
            "nothing is used up: what binds here is the pace of a single answer, and more \
             replicas would not change it"
                .to_owned(),
        );
    }
    if figures.preemptions.count > 0 {
        doubts.push(format!(
            "{} preemptions: what calls waited and computed again after one is in decode and \
             prefill, so kv_capacity takes more than is shown",
            figures.preemptions.count
        ));
    }
    if scattered && figures.kv.evicted_blocks > 0 && time.mean_s(Part::Reprefill) > 0.0 {
        doubts.push(
            "what was computed again is laid at the router's door, since calls of a session go to \
             several replicas; part of it may have been evicted where it was"
                .to_owned(),
        );
    }
    if time.tasks < TASKS_MIN {
        doubts.push(format!("only {} tasks completed in the window", time.tasks));
    }
    doubts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::scenario::Scenario;
    use crate::fleet::Progress;
    use crate::trace::canonical;

    const TRACE: &str = "\
session,call,at_s,after,gap_s,cause,turn,lane,model,tenant,user,profile,base,kept_tokens,\
prompt_tokens,output_tokens,tools,status
a,0,0,,0,user,0,0,m,,,,,0,4000,100,,ok
a,1,9,0,30,tool,0,0,m,,,,0,4100,5000,300,,ok
a,2,99,1,25,user,1,0,m,,,,1,5300,6000,100,,ok
b,0,1,,0,user,0,0,m,,,,,0,4000,100,,ok
b,1,9,0,30,tool,0,0,m,,,,0,4100,5000,300,,ok
b,2,99,1,25,user,1,0,m,,,,1,5300,6000,100,,ok
";

    fn judged(more: &str) -> (Case, Figures) {
        let text = format!(
            "[engine]\nmodel = 'Llama-3.1-8B'\ngpu = 'h100-sxm'\nmax_model_len = 8192\n{more}"
        );
        let trace = canonical::read_from(TRACE.as_bytes(), "trace").unwrap();
        let scenario = Scenario::parse(&text, "s", &[]).unwrap();
        let case = Case::new(scenario, &trace, &[]).unwrap();
        let run = case.run(case.scenario.replicas, &Progress::default()).unwrap();
        let figures = case.judge(&run).figures;
        (case, figures)
    }

    #[test]
    fn parts_and_claims_add_up() {
        let (case, figures) = judged("");
        let time = figures.time.clone().unwrap();
        let latency = &figures.latency;
        assert_eq!(time.tasks, 2);
        assert!((time.task_llm_s - latency.task_llm.unwrap().mean).abs() < 1e-6);
        assert!((time.session_s - latency.session.unwrap().mean).abs() < 1e-6);
        assert!((time.mean_s(Part::Tool) - 30.0).abs() < 1e-6, "{time:?}");
        assert!((time.mean_s(Part::Human) - 25.0).abs() < 1e-6, "{time:?}");
        assert!(time.mean_s(Part::Other) < 1e-6, "{time:?}");
        let binding = Binding::of(&case, &figures).unwrap();
        let claimed: f64 = binding.claims.iter().map(|claim| claim.seconds).sum();
        assert!((claimed - time.session_s).abs() < 1e-6, "{binding:?}");
        assert_eq!(binding.session, [Resource::Tools, Resource::People]);
        assert_eq!(binding.fleet[0], Resource::Bandwidth, "{binding:?}");
        assert!(!binding.is_strained(), "{binding:?}");
    }

    #[test]
    fn a_pool_that_is_too_small_is_named() {
        // 8,208 tokens: one session's context and a bit.
        let (case, figures) = judged("num_gpu_blocks_override = 514\n");
        let binding = Binding::of(&case, &figures).unwrap();
        let claim = |resource| {
            let found = binding.claims.iter().find(|claim| claim.resource == resource);
            found.unwrap().seconds
        };
        // What was evicted is computed again, and one session waits for the other's blocks.
        assert!(claim(Resource::KvCapacity) > 0.5, "{binding:?}");
        assert_eq!(claim(Resource::Queue), 0.0);
        assert_eq!(claim(Resource::Router), 0.0);
        assert!(binding.is_strained(), "{binding:?}");
    }
}
