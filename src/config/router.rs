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

/// The keys of a router's section, and the routers that they go with.
const GOES_WITH: &[(&str, &[RouterKind])] = &[
    ("pins", &[RouterKind::SessionAffinity]),
    ("pin_ttl_s", &[RouterKind::SessionAffinity]),
    ("workers", &[RouterKind::SessionAffinity]),
    ("shared_pins", &[RouterKind::SessionAffinity]),
    ("prefill_weight", &[RouterKind::PrefixAware, RouterKind::PrefixAwareApproximate]),
    ("remembered_tokens", &[RouterKind::PrefixAwareApproximate]),
    ("remembered_s", &[RouterKind::PrefixAwareApproximate]),
    ("release_uncached_tokens", &[RouterKind::Sticky]),
    ("release_margin", &[RouterKind::Sticky]),
    ("weights", &[RouterKind::SimpleShuffle]),
    ("latency", &[RouterKind::LatencyBased]),
];

/// More sessions, tokens or calls than anybody has.
const MANY: u64 = 1_000_000_000_000;
/// More workers than any gateway has.
const MAX_WORKERS: u64 = 10_000;
/// Weights are small numbers.
const MAX_WEIGHT: i64 = 1_000_000;

/// The key of the fleet's router.
pub(super) const FLEET: &str = "fleet.router";
/// The section of what it is set with.
const SECTION: &str = "router";

/// The names of all keys that set a router.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    GOES_WITH.iter().map(|(name, _)| *name)
}

/// The same in a section.
pub(super) fn keys(section: &str) -> impl Iterator<Item = String> {
    names().map(move |name| format!("{section}.{name}"))
}

/// Who changes the router on the command line does not want what the file says of another. A
/// router that `--vary` gives comes in the same way.
pub(super) fn forget_other_routers(document: &mut Document) {
    forget_others(document, SECTION, FLEET);
}

/// The same for a router of this key, which is set in this section.
pub(super) fn forget_others(document: &mut Document, section: &str, router: &str) {
    if !document.has(router) || document.is_from_file(router) {
        return;
    }
    let Ok(kind) = read_kind(document, router) else { return };
    let others = GOES_WITH.iter().filter(|(_, kinds)| !kinds.contains(&kind));
    let others: Vec<String> = others.map(|(name, _)| format!("{section}.{name}")).collect();
    let others: Vec<&str> = others.iter().map(String::as_str).collect();
    document.forget_from_file(&others);
}

/// Which router a key of the scenario asks for.
pub(super) fn read_kind(document: &Document, router: &str) -> Result<RouterKind> {
    let names: Vec<_> = RouterKind::ALL.into_iter().chain([LEAST_BUSY]).collect();
    Ok(document.choice(router, &names)?.unwrap_or(RouterKind::SessionAffinity))
}

/// The section of a router.
struct Keys<'a> {
    document: &'a Document,
    section: &'a str,
}

impl Keys<'_> {
    fn key(&self, name: &str) -> String {
        format!("{}.{name}", self.section)
    }

    fn has(&self, name: &str) -> bool {
        self.document.has(&self.key(name))
    }

    fn at(&self, name: &str, error: Error) -> Error {
        self.document.at(&self.key(name), error)
    }

    fn whole(&self, name: &str, least: u64, most: u64) -> Result<Option<u64>> {
        self.document.whole(&self.key(name), least, most)
    }

    fn seconds(&self, name: &str) -> Result<Option<Span>> {
        let seconds = self.document.number(&self.key(name), 1e-3, MAX_SECONDS)?;
        Ok(seconds.map(Span::from_secs_f64))
    }
}

impl Routing {
    /// Reads what the fleet's router is set with.
    ///
    /// # Errors
    /// As [`Routing::read`].
    pub(super) fn of_fleet(document: &Document, kind: RouterKind, replicas: u32) -> Result<Self> {
        Self::read(document, SECTION, FLEET, kind, replicas)
    }

    /// Reads what a router of this kind is set with in this section; `router` is the key of the
    /// router itself.
    ///
    /// # Errors
    /// A key of another router, or a value out of range.
    pub(super) fn read(
        document: &Document,
        section: &str,
        router: &str,
        kind: RouterKind,
        replicas: u32,
    ) -> Result<Self> {
        let keys = Keys { document, section };
        for (name, kinds) in GOES_WITH {
            if keys.has(name) && !kinds.contains(&kind) {
                let names: Vec<_> =
                    kinds.iter().map(|kind| format!("\"{}\"", kind.name())).collect();
                let text = format!("only goes with {router} = {}", names.join(" or "));
                return Err(keys.at(name, Error::new(text)));
            }
        }
        let default = Self::default();
        let tokens = |name, least| -> Result<Option<Tokens>> {
            Ok(keys.whole(name, least, MANY)?.map(Tokens))
        };
        let prefill_weight = document.number(&keys.key("prefill_weight"), 0.0, 1_000.0)?;
        let release = Release {
            uncached: tokens("release_uncached_tokens", 0)?,
            margin: keys.whole("release_margin", 1, MANY)?,
        };
        let says_when = release.uncached.is_some() || release.margin.is_some();
        let latencies = [("ttft", Latency::Ttft), ("per_token", Latency::PerToken)];
        Ok(Self {
            pins: read_pins(&keys)?,
            prefill_weight: prefill_weight
                .map_or(default.prefill_weight, |weight| (weight * 1e3).round() as u64),
            memory: Memory {
                tokens: tokens("remembered_tokens", 1)?.unwrap_or(default.memory.tokens),
                ttl: keys.seconds("remembered_s")?.unwrap_or(default.memory.ttl),
            },
            release: if says_when { release } else { default.release },
            weights: read_weights(&keys, replicas)?,
            latency: document.choice(&keys.key("latency"), &latencies)?.unwrap_or(default.latency),
        })
    }
}

/// Without any of its keys there is no table, and nothing is forgotten.
fn read_pins(keys: &Keys<'_>) -> Result<Option<Pins>> {
    if !["pins", "pin_ttl_s", "workers", "shared_pins"].iter().any(|name| keys.has(name)) {
        return Ok(None);
    }
    let workers = keys.whole("workers", 1, MAX_WORKERS)?.unwrap_or(1);
    if workers == 1 && keys.has("shared_pins") {
        let text = format!(
            "with one worker there is nobody to share pins with; see `{}`",
            keys.key("workers")
        );
        return Err(keys.at("shared_pins", Error::new(text)));
    }
    Ok(Some(Pins {
        size: keys.whole("pins", 1, MANY)?.unwrap_or(200),
        ttl: keys.seconds("pin_ttl_s")?.unwrap_or(Span::from_secs(3_600)),
        workers,
        shared: keys.document.flag(&keys.key("shared_pins"))?.unwrap_or(false),
    }))
}

fn read_weights(keys: &Keys<'_>, replicas: u32) -> Result<Vec<u64>> {
    let name = "weights";
    let Some(value) = keys.document.value(&keys.key(name)) else { return Ok(Vec::new()) };
    let allowed = format!("a list of whole numbers from 0 to {MAX_WEIGHT}, such as [2, 1, 1]");
    let wrong = || keys.at(name, Error::found(value, &allowed));
    let items = value.as_array().filter(|items| !items.is_empty()).ok_or_else(wrong)?;
    let weight = |item: &toml::Value| {
        let weight = item.as_integer().filter(|weight| (0..=MAX_WEIGHT).contains(weight));
        weight.and_then(|weight| u64::try_from(weight).ok()).ok_or_else(wrong)
    };
    let weights = items.iter().map(weight).collect::<Result<Vec<u64>>>()?;
    if weights.len() > replicas as usize {
        let text = format!("{} weights for {replicas} replicas", weights.len());
        return Err(keys.at(name, Error::new(text)));
    }
    if weights.iter().all(|&weight| weight == 0) {
        return Err(keys.at(name, Error::new("every weight is 0: no call could go anywhere")));
    }
    Ok(weights)
}
