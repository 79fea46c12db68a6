//! Scenario files: a fleet, its load, how long it is watched, and what it must reach.
//!
//! A scenario is a TOML file; every key may also be set on the command line. Keys of the engine
//! are spelled as `vllm serve` spells its flags. What is not modelled is refused by name, never
//! ignored.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::api_time::ApiTime;
use super::autoscale::read::Autoscale;
use super::calibration::Calibration;
use super::drawing::Drawing;
use super::faults::{self, FleetEvent};
use super::gateway::read::{self as gateway, Gateway};
use super::generated::{self, Generated};
pub use super::keys::KEYS;
use super::load;
pub use super::load::{Load, LoadKind};
use super::pools::{self, Pool, PoolPlaces};
use super::prices;
use super::reshape::Reshape;
pub use super::router::RouterKind;
use super::router::{self, Routing};
use super::serving::{self, Serving};
use super::vary::{self, Axis};
use super::vllm_serve;
use crate::diag::{Error, Place, Result};
use crate::document::Document;
use crate::trace::record::Name;
use crate::units::Span;

/// Sections whose keys are the user's own.
const FREE_SECTIONS: &[&str] = &[
    "models",
    prices::SECTION,
    vary::SECTION,
    generated::SECTION,
    gateway::ENVIRONMENT,
    gateway::LIMITS,
    pools::SECTION,
];

/// Keys with an option of their own on the command line.
const OWN_OPTIONS: [(&str, &str); 4] =
    [vllm_serve::OPTIONS[0], vllm_serve::OPTIONS[1], gateway::OPTIONS[0], gateway::OPTIONS[1]];

/// A scenario, read and checked.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// What the report calls it.
    pub name: String,
    /// Free text.
    pub description: String,
    /// The trace, `None` for the built-in one.
    pub trace: Option<PathBuf>,
    /// Sessions that are made, in place of a trace.
    pub generated: Option<Generated>,
    /// One replica.
    pub serving: Serving,
    /// Multipliers of its step time, fitted to measurements.
    pub calibration: Option<Calibration>,
    /// Engines behind the router, or in all pools together.
    pub replicas: u32,
    /// Parts of the fleet with calls of their own; none if every replica is there for every call.
    pub pools: Vec<Pool>,
    /// Where each of them stands.
    pub pool_places: Vec<PoolPlaces>,
    /// The gateway, which then routes the calls.
    pub gateway: Option<Gateway>,
    /// What makes its pods and the replicas more and fewer.
    pub autoscale: Autoscale,
    /// How calls are routed without a gateway.
    pub router: RouterKind,
    /// What its router is set with.
    pub routing: Routing,
    /// What happens to replicas, in order of time.
    pub events: Vec<FleetEvent>,
    /// What becomes of prompts beyond the context.
    pub on_overflow: OnOverflow,
    /// Who plays what.
    pub load: Load,
    /// What of the trace is played.
    pub reshape: Reshape,
    /// Whether calls are dispatched at their recorded times, whatever they wait for.
    pub open_loop: bool,
    /// Seed of every random choice.
    pub seed: u64,
    /// Left out of every figure.
    pub warmup: Span,
    /// Measured after it; `None` until the last call has ended.
    pub window: Option<Span>,
    /// Targets, one a line; not parsed here.
    pub targets: Vec<String>,
    /// Where each of them stands.
    pub target_places: Vec<Place>,
    /// Where the search of `size` gives up.
    pub max_replicas: u32,
    /// The same for pods of the gateway.
    pub max_pods: u32,
    /// Runs of each fleet in searches, with seeds from `seed` on.
    pub seeds: u32,
    /// How far off step times may be, as a share of them.
    pub step_time_band: f64,
    /// Whether intervals are worked out by drawing sessions; unless said, it is up to the command.
    pub bootstrap: Option<bool>,
    /// Keys that take several values in `size` and `sweep`.
    pub candidates: Vec<Axis>,
    /// How a sweep over them is drawn.
    pub drawing: Drawing,
    /// Price of one GPU for an hour, and where it comes from; `None` if unknown.
    pub price: Option<(f64, String)>,
    /// Whether that price holds whatever the GPU is.
    pub one_price: bool,
    /// Price of one pod of the gateway for an hour.
    pub pod_price: Option<f64>,
    /// Host time of a request.
    pub api: ApiTime,
    /// What clients do when they are refused.
    pub client: Client,
    /// Model groups of the trace that one served model answers.
    pub models: BTreeMap<Name, Name>,
}

/// What becomes of prompts beyond the context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnOverflow {
    /// The call fails and is counted, the session goes on.
    Reject,
    /// The agent is taken to have compacted its context.
    Compact,
}

/// What a client does when it is told that the server is busy (HTTP 503).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Client {
    /// Times that it asks again.
    pub max_retries: u32,
    /// First wait; each next one is twice as long.
    pub retry_base: Span,
    /// Longest wait.
    pub retry_max: Span,
}

/// Every key that may be set or varied, those that are refused unless switched off included.
#[must_use]
pub fn settable_keys() -> Vec<&'static str> {
    let known = KEYS.iter().map(|(key, _)| *key);
    known.chain(serving::UNMODELLED.iter().map(|flag| flag.key)).collect()
}

/// The lists of values in a scenario's `[candidates]`, whatever else is in it.
///
/// # Errors
/// What is no TOML, or no list, with its place.
pub fn candidates_of(text: &str, file: &str) -> Result<Vec<Axis>> {
    Axis::of_document(&Document::parse(text, file)?, &settable_keys())
}

impl Scenario {
    /// Reads a scenario; `overrides` are `key=value` of the command line.
    ///
    /// # Errors
    /// The first thing that is wrong, with its place.
    pub fn parse(text: &str, file: &str, overrides: &[String]) -> Result<Self> {
        let mut document = Document::parse(text, file)?.with_own_options(&OWN_OPTIONS);
        let unmodelled: Vec<&str> = serving::UNMODELLED.iter().map(|flag| flag.key).collect();
        let settable = settable_keys();
        for assignment in overrides {
            document.set(assignment, &settable)?;
        }
        load::forget_other_kinds(&mut document);
        router::forget_other_routers(&mut document);
        pools::forget_other_routers(&mut document);
        forget_gateway(&mut document);
        serving::refuse_unmodelled_tables(&document)?;
        document.check_keys(&settable, FREE_SECTIONS)?;
        let notes = vllm_serve::apply(&mut document, &unmodelled)?;
        serving::refuse_unmodelled(&document)?;
        let gateway = Gateway::read(&mut document)?;
        let generated = Generated::read(&mut document)?;
        let serving = Serving { notes, ..Serving::read(&document)? };
        let load = Load::read(&document)?;
        let is_trace = load.kind == LoadKind::Trace;
        let (pools, pool_places) = pools::read(&document, gateway.as_ref())?;
        let replicas = read_replicas(&document, gateway.as_ref(), &pools)?;
        let max_replicas = read_max_replicas(&document, &pools)?;
        let autoscale = Autoscale::read(&document, gateway.as_ref().map(Gateway::pods), replicas)?;
        let scene = faults::Scene::new(replicas, &pools, &autoscale, gateway.as_ref());
        let router = router::read_kind(&document, router::FLEET)?;
        let calibration = read_calibration(&document, &serving)?;
        let step_time_band = read_step_time_band(&document, calibration.as_ref())?;
        let api = read_api_time(&document, calibration.as_ref())?;
        Ok(Self {
            name: document.text("name")?.unwrap_or_else(|| file.to_owned()),
            description: document.text("description")?.unwrap_or_default(),
            trace: read_trace_path(&document)?,
            generated,
            calibration,
            replicas,
            events: faults::read(&document, &scene)?,
            autoscale,
            router,
            routing: Routing::of_fleet(&document, router, replicas)?,
            pools,
            pool_places,
            on_overflow: read_on_overflow(&document)?,
            load,
            reshape: Reshape::read(&document, is_trace)?,
            open_loop: document.flag("workload.open_loop")?.unwrap_or(false),
            seed: document.whole("run.seed", 0, i64::MAX as u64)?.unwrap_or(1),
            warmup: document.seconds("run.warmup_s", if is_trace { 0.0 } else { 1_800.0 })?,
            window: read_window(&document, is_trace)?,
            targets: document.texts("slo.targets")?.unwrap_or_default(),
            target_places: document.element_places("slo.targets"),
            max_replicas,
            max_pods: document.whole("size.max_gateway_replicas", 1, MAX_REPLICAS)?.unwrap_or(64)
                as u32,
            seeds: document.whole("size.seeds", 1, MAX_SEEDS)?.unwrap_or(1) as u32,
            step_time_band,
            bootstrap: document.flag("run.bootstrap")?,
            candidates: Axis::of_document(&document, &settable)?,
            drawing: Drawing::read(&document)?,
            price: prices::read(&document, &serving)?,
            one_price: document.has(prices::ONE_PRICE),
            pod_price: prices::read_pod(&document, gateway.is_some())?,
            api,
            client: read_client(&document, gateway.is_some())?,
            models: read_models(&document)?,
            gateway,
            serving,
        })
    }
}

impl Scenario {
    /// How calls are routed, in one line.
    #[must_use]
    pub fn router_name(&self) -> String {
        let Some(gateway) = &self.gateway else {
            let of_pool = |pool: &Pool| format!("{} in {}", pool.router.name(), pool.name);
            return match &self.pools[..] {
                [] => self.router.name().to_owned(),
                pools => pools.iter().map(of_pool).collect::<Vec<_>>().join(", "),
            };
        };
        let routing = &gateway.config().routing;
        let affinity = if routing.session_affinity { " with session_affinity" } else { "" };
        format!("{}{affinity}, in the gateway", routing.strategy)
    }

    /// Which served model answers a model group of the trace: what `[models]` says, and the
    /// gateway's aliases.
    #[must_use]
    pub fn served(&self) -> BTreeMap<Name, Name> {
        let mut served = self.models.clone();
        for (alias, group) in self.gateway.iter().flat_map(|gateway| &gateway.aliases) {
            served.entry(Name::from(alias.as_str())).or_insert_with(|| Name::from(group.as_str()));
        }
        served
    }
}

/// More replicas than any fleet has; a larger number is a slip.
const MAX_REPLICAS: u64 = 10_000;
/// More runs of one fleet than anybody waits for.
const MAX_SEEDS: u64 = 1_000;
/// Where the search of `size` ends. Every pool has one replica at least.
fn read_max_replicas(document: &Document, pools: &[Pool]) -> Result<u32> {
    const KEY: &str = "size.max_replicas";
    let most = document.whole(KEY, 1, MAX_REPLICAS)?.unwrap_or(256) as u32;
    if (most as usize) < pools.len() {
        let allowed = format!("at least {0}: each of {0} pools has a replica", pools.len());
        return Err(document.at(KEY, Error::found(most, allowed)));
    }
    Ok(most)
}

/// Replicas of the fleet: those of all pools. A config of the gateway names them, one for each
/// `api_base`.
fn read_replicas(document: &Document, gateway: Option<&Gateway>, pools: &[Pool]) -> Result<u32> {
    const KEY: &str = "fleet.replicas";
    if !pools.is_empty() {
        return Ok(pools.iter().map(|pool| pool.replicas).sum());
    }
    let given = document.whole(KEY, 1, MAX_REPLICAS)?.map(|replicas| replicas as u32);
    let named = gateway.and_then(Gateway::named_replicas);
    match (given, named) {
        (Some(given), Some(named)) if given != named && document.is_from_file(KEY) => {
            let text = format!("{given} replicas, and gateway.config names {named} by api_base");
            Err(document.at(KEY, Error::new(text).help("leave it out, or give it by --set")))
        }
        _ => Ok(given.or(named).unwrap_or(1)),
    }
}

fn read_window(document: &Document, is_trace: bool) -> Result<Option<Span>> {
    let key = "run.window_s";
    if is_trace && !document.has(key) {
        return Ok(None);
    }
    let window = document.seconds(key, 7_200.0)?;
    match window == Span::ZERO {
        true => Err(document.at(key, Error::found("0", "more than 0 seconds"))),
        false => Ok(Some(window)),
    }
}

fn read_on_overflow(document: &Document) -> Result<OnOverflow> {
    let rules = [("reject", OnOverflow::Reject), ("compact", OnOverflow::Compact)];
    Ok(document.choice("fleet.on_overflow", &rules)?.unwrap_or(OnOverflow::Reject))
}

fn read_trace_path(document: &Document) -> Result<Option<PathBuf>> {
    Ok(document.text("trace")?.filter(|name| name != "bundled").map(PathBuf::from))
}

/// The largest step-time band.
const MAX_STEP_TIME_BAND: f64 = 0.5;
/// The band of step times that nobody measured.
const STEP_TIME_BAND: f64 = 0.1;

/// As given, else that of the calibration.
fn read_step_time_band(document: &Document, calibration: Option<&Calibration>) -> Result<f64> {
    let given = document.number("size.step_time_band", 0.0, MAX_STEP_TIME_BAND)?;
    let fitted = calibration.and_then(|found| found.fit.step_time_band(MAX_STEP_TIME_BAND));
    Ok(given.or(fitted).unwrap_or(STEP_TIME_BAND))
}

fn read_calibration(document: &Document, serving: &Serving) -> Result<Option<Calibration>> {
    let key = "calibration";
    let Some(path) = document.text(key)?.filter(|path| path != "none") else { return Ok(None) };
    let calibration = Calibration::read(Path::new(&document.path_beside(path, key)))?;
    let gpu = &serving.gpu.name;
    let group = [serving.tensor_parallel_size, serving.data_parallel_size];
    let checked =
        calibration.check(&serving.model.name, gpu, group, serving.weights, serving.kv_dtype);
    checked.map_err(|error| document.at(key, error))?;
    Ok(Some(calibration))
}

/// Who names a router on the command line wants no gateway of the file, which would route itself.
fn forget_gateway(document: &mut Document) {
    if !document.has("fleet.router") || document.is_from_file("fleet.router") {
        return;
    }
    let of_gateway =
        |key: &&str| key.starts_with("gateway") || key.starts_with("autoscale.gateway");
    let keys: Vec<String> = document.keys().filter(of_gateway).map(str::to_owned).collect();
    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    document.forget_from_file(&keys);
}

/// As given, else that of the calibration.
fn read_api_time(document: &Document, calibration: Option<&Calibration>) -> Result<ApiTime> {
    let fitted = calibration.map(|found| found.api).unwrap_or_default();
    let span = |key: &str, fitted: Option<f64>, default: f64, unit: f64| {
        let value = document.number(key, 0.0, 1e6)?.or(fitted).unwrap_or(default);
        Ok(Span::from_secs_f64(value * unit))
    };
    Ok(ApiTime {
        request: span("api.request_ms", fitted.request_ms, 8.0, 1e-3)?,
        prompt_token: span("api.prompt_token_us", fitted.prompt_token_us, 2.0, 1e-6)?,
        output_token: span("api.output_token_us", fitted.output_token_us, 46.0, 1e-6)?,
    })
}

fn read_client(document: &Document, has_gateway: bool) -> Result<Client> {
    let limits = ["engine.max_num_queued_reqs", "engine.max_num_queued_tokens"];
    let client = ["client.max_retries", "client.retry_base_s", "client.retry_max_s"];
    let of_gateway = [
        "client.honour_retry_after",
        "client.agent_retries",
        "client.agent_wait_s",
        "client.timeout_s",
    ];
    if has_gateway {
        return Ok(Client {
            max_retries: document.whole(client[0], 0, 100)?.unwrap_or(2) as u32,
            retry_base: document.seconds(client[1], 0.5)?,
            retry_max: document.seconds(client[2], 8.0)?,
        });
    }
    if let Some(key) = of_gateway.into_iter().find(|key| document.has(key)) {
        return Err(document.at(key, Error::new("only goes with [gateway]")));
    }
    if !limits.iter().any(|limit| document.has(limit))
        && !document.has(faults::KEY)
        && let Some(key) = client.into_iter().find(|key| document.has(key))
    {
        let text = format!("without {} or {} nobody is refused", limits[0], limits[1]);
        return Err(document.at(key, Error::new(text)));
    }
    Ok(Client {
        max_retries: document.whole("client.max_retries", 0, 100)?.unwrap_or(2) as u32,
        retry_base: document.seconds("client.retry_base_s", 0.5)?,
        retry_max: document.seconds("client.retry_max_s", 8.0)?,
    })
}

fn read_models(document: &Document) -> Result<BTreeMap<Name, Name>> {
    let pairs = document.section("models")?.into_iter();
    Ok(pairs.map(|(group, served)| (group.into(), served.into())).collect())
}
