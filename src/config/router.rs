//! How calls are routed, and what each way of doing so is set with.

use crate::diag::{Error, Result};
use crate::document::{Document, MAX_SECONDS};
use crate::units::{Span, Tokens};

/// How calls are routed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RouterKind {
    /// A session stays where its first call went, which is random.
    SessionAffinity,
    /// Every call goes anywhere.
    Random,
    /// Replicas take turns.
    RoundRobin,
    /// The replica with the fewest calls in flight, the first of them on a tie.
    LeastLoaded,
    /// The least of uncached tokens and load, knowing what each replica has cached.
    PrefixAware,
    /// The same, believing that what was sent lately is cached.
    PrefixAwareApproximate,
    /// A session stays until its replica is saturated.
    Sticky,
    /// At random, by weights.
    SimpleShuffle,
    /// The lowest mean latency of late.
    LatencyBased,
}

impl RouterKind {
    /// All of them with their names.
    pub const ALL: [(&'static str, Self); 9] = [
        ("session_affinity", Self::SessionAffinity),
        ("random", Self::Random),
        ("round_robin", Self::RoundRobin),
        ("least_loaded", Self::LeastLoaded),
        ("prefix_aware", Self::PrefixAware),
        ("prefix_aware_approximate", Self::PrefixAwareApproximate),
        ("sticky", Self::Sticky),
        ("simple_shuffle", Self::SimpleShuffle),
        ("latency_based", Self::LatencyBased),
    ];

    /// Its name in scenarios and reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, kind)| *kind == self).map_or("", |(name, _)| name)
    }
}

/// LiteLLM's name of what is `least_loaded` here.
const LEAST_BUSY: (&str, RouterKind) = ("least_busy", RouterKind::LeastLoaded);

/// What routers are set with; each uses its own part.
#[derive(Clone, Debug, PartialEq)]
pub struct Routing {
    /// Where sessions are remembered; `None` if that never fails.
    pub pins: Option<Pins>,
    /// What an uncached token weighs against one of load, in thousandths.
    pub prefill_weight: u64,
    /// What is believed to be cached.
    pub memory: Memory,
    /// When a session is let go.
    pub release: Release,
    /// Weights of the replicas, from the first on and then again; none if all are alike.
    pub weights: Vec<u64>,
    /// What is taken for the latency.
    pub latency: Latency,
}

/// A table of which session is where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pins {
    /// Most sessions in it.
    pub size: u64,
    /// How long after its last use a session is forgotten.
    pub ttl: Span,
    /// Gateway workers, which calls reach at random.
    pub workers: u64,
    /// Whether they have one table together.
    pub shared: bool,
}

/// What a router that has sent something believes of caches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    /// Tokens that it remembers of each replica.
    pub tokens: Tokens,
    /// How long after it was last sent content is forgotten.
    pub ttl: Span,
}

/// When a sticky session is let go; either is enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Release {
    /// More uncached tokens than these wait on its replica.
    pub uncached: Option<Tokens>,
    /// So many more calls than on the least loaded replica are in flight on its own.
    pub margin: Option<u64>,
}

/// What is taken for the latency.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Latency {
    /// The time to the first token, as for streamed answers.
    Ttft,
    /// The whole time for each token that came out.
    PerToken,
}

impl Default for Routing {
    fn default() -> Self {
        Self {
            pins: None,
            prefill_weight: 1_000,
            memory: Memory { tokens: Tokens(u64::MAX), ttl: Span::from_secs(120) },
            release: Release { uncached: None, margin: Some(8) },
            weights: Vec::new(),
            latency: Latency::Ttft,
        }
    }
}

/// The keys, and the routers that they go with.
const GOES_WITH: &[(&str, &[RouterKind])] = &[
    ("router.pins", &[RouterKind::SessionAffinity]),
    ("router.pin_ttl_s", &[RouterKind::SessionAffinity]),
    ("router.workers", &[RouterKind::SessionAffinity]),
    ("router.shared_pins", &[RouterKind::SessionAffinity]),
    ("router.prefill_weight", &[RouterKind::PrefixAware, RouterKind::PrefixAwareApproximate]),
    ("router.remembered_tokens", &[RouterKind::PrefixAwareApproximate]),
    ("router.remembered_s", &[RouterKind::PrefixAwareApproximate]),
    ("router.release_uncached_tokens", &[RouterKind::Sticky]),
    ("router.release_margin", &[RouterKind::Sticky]),
    ("router.weights", &[RouterKind::SimpleShuffle]),
    ("router.latency", &[RouterKind::LatencyBased]),
];

/// More sessions, tokens or calls than anybody has.
const MANY: u64 = 1_000_000_000_000;
/// More workers than any gateway has.
const MAX_WORKERS: u64 = 10_000;
/// Weights are small numbers.
const MAX_WEIGHT: i64 = 1_000_000;

/// Who changes the router on the command line does not want what the file says of another. A
/// router that `--vary` gives comes in the same way.
pub(super) fn forget_other_routers(document: &mut Document) {
    if !document.has("fleet.router") || document.is_from_file("fleet.router") {
        return;
    }
    let Ok(kind) = read_kind(document) else { return };
    let others = GOES_WITH.iter().filter(|(_, kinds)| !kinds.contains(&kind));
    let others: Vec<&str> = others.map(|(key, _)| *key).collect();
    document.forget_from_file(&others);
}

/// Which router a scenario asks for.
pub(super) fn read_kind(document: &Document) -> Result<RouterKind> {
    let names: Vec<_> = RouterKind::ALL.into_iter().chain([LEAST_BUSY]).collect();
    Ok(document.choice("fleet.router", &names)?.unwrap_or(RouterKind::SessionAffinity))
}

impl Routing {
    /// Reads what a router of this kind is set with.
    ///
    /// # Errors
    /// A key of another router, or a value out of range.
    pub(super) fn read(document: &Document, kind: RouterKind, replicas: u32) -> Result<Self> {
        for (key, kinds) in GOES_WITH {
            if document.has(key) && !kinds.contains(&kind) {
                let names: Vec<_> =
                    kinds.iter().map(|kind| format!("\"{}\"", kind.name())).collect();
                let text = format!("only goes with fleet.router = {}", names.join(" or "));
                return Err(document.at(key, Error::new(text)));
            }
        }
        let default = Self::default();
        let seconds = |key| -> Result<Option<Span>> {
            Ok(document.number(key, 1e-3, MAX_SECONDS)?.map(Span::from_secs_f64))
        };
        let tokens = |key, least| -> Result<Option<Tokens>> {
            Ok(document.whole(key, least, MANY)?.map(Tokens))
        };
        let prefill_weight = document.number("router.prefill_weight", 0.0, 1_000.0)?;
        let release = Release {
            uncached: tokens("router.release_uncached_tokens", 0)?,
            margin: document.whole("router.release_margin", 1, MANY)?,
        };
        let says_when = release.uncached.is_some() || release.margin.is_some();
        Ok(Self {
            pins: read_pins(document)?,
            prefill_weight: prefill_weight
                .map_or(default.prefill_weight, |weight| (weight * 1e3).round() as u64),
            memory: Memory {
                tokens: tokens("router.remembered_tokens", 1)?.unwrap_or(default.memory.tokens),
                ttl: seconds("router.remembered_s")?.unwrap_or(default.memory.ttl),
            },
            release: if says_when { release } else { default.release },
            weights: read_weights(document, replicas)?,
            latency: document
                .choice(
                    "router.latency",
                    &[("ttft", Latency::Ttft), ("per_token", Latency::PerToken)],
                )?
                .unwrap_or(default.latency),
        })
    }
}

/// Without any of its keys there is no table, and nothing is forgotten.
fn read_pins(document: &Document) -> Result<Option<Pins>> {
    let keys = ["router.pins", "router.pin_ttl_s", "router.workers", "router.shared_pins"];
    if !keys.iter().any(|key| document.has(key)) {
        return Ok(None);
    }
    let workers = document.whole("router.workers", 1, MAX_WORKERS)?.unwrap_or(1);
    if workers == 1 && document.has("router.shared_pins") {
        let text = "with one worker there is nobody to share pins with; see `router.workers`";
        return Err(document.at("router.shared_pins", Error::new(text)));
    }
    let ttl = document.number("router.pin_ttl_s", 1e-3, MAX_SECONDS)?.unwrap_or(3_600.0);
    Ok(Some(Pins {
        size: document.whole("router.pins", 1, MANY)?.unwrap_or(200),
        ttl: Span::from_secs_f64(ttl),
        workers,
        shared: document.flag("router.shared_pins")?.unwrap_or(false),
    }))
}

fn read_weights(document: &Document, replicas: u32) -> Result<Vec<u64>> {
    let key = "router.weights";
    let Some(value) = document.value(key) else { return Ok(Vec::new()) };
    let allowed = format!("a list of whole numbers from 0 to {MAX_WEIGHT}, such as [2, 1, 1]");
    let wrong = || document.at(key, Error::found(value, &allowed));
    let items = value.as_array().filter(|items| !items.is_empty()).ok_or_else(wrong)?;
    let weight = |item: &toml::Value| {
        let weight = item.as_integer().filter(|weight| (0..=MAX_WEIGHT).contains(weight));
        weight.and_then(|weight| u64::try_from(weight).ok()).ok_or_else(wrong)
    };
    let weights = items.iter().map(weight).collect::<Result<Vec<u64>>>()?;
    if weights.len() > replicas as usize {
        let text = format!("{} weights for {replicas} replicas", weights.len());
        return Err(document.at(key, Error::new(text)));
    }
    if weights.iter().all(|&weight| weight == 0) {
        return Err(document.at(key, Error::new("every weight is 0: no call could go anywhere")));
    }
    Ok(weights)
}
