//! `[pools.NAME]`: the replicas of a fleet set apart for parts of the traffic.
//!
//! A pool says which calls are its own, how many replicas it has, how it routes and whether its
//! calls may go elsewhere when it is full. Pools stand in the order of the file, and so do their
//! replicas; the first pool whose rules a call meets takes it.

use super::gateway::read::Gateway;
use super::keys::KEYS;
use super::router::{self, RouterKind, Routing};
use crate::diag::{Error, Place, Result};
use crate::document::Document;

/// The section.
pub const SECTION: &str = "pools";
/// Where calls may go if every pool that lends will do.
const ANY: &str = "any";
/// More replicas than any pool has.
const MAX_REPLICAS: u64 = 10_000;
/// More pools than anybody keeps apart.
const MAX_POOLS: usize = 100;
/// More calls than anybody has in flight on a replica.
const MANY: u64 = 1_000_000;

/// The keys of one pool, those of its router apart, with their meaning.
pub const FIELDS: [(&str, &str); 10] = [
    ("models", "list of served models whose calls are the pool's"),
    ("tenants", "list of tenants whose calls are; with other rules, calls that meet all of them"),
    ("profiles", "list of profiles, likewise"),
    ("kind", "main or subagent: calls of the main agent or of subagents, likewise"),
    ("rest", "true, instead: the calls that no other pool takes"),
    ("replicas", "its engines; needed; `size` looks for the number"),
    ("router", "its router, with the keys of [router] beside; fleet.router"),
    ("overflow", "pool, or any, that takes its calls while it is full; none: strictly apart"),
    ("overflow_calls", "calls in flight on each of its replicas from which on it is full"),
    ("lend", "whether calls of other pools may come here; true"),
];

/// A part of the fleet.
#[derive(Clone, Debug, PartialEq)]
pub struct Pool {
    /// Its name in the scenario.
    pub name: String,
    /// The calls that are its own.
    pub takes: Takes,
    /// Its replicas.
    pub replicas: u32,
    /// How its calls are routed.
    pub router: RouterKind,
    /// What its router is set with.
    pub routing: Routing,
    /// Where its calls go while it is full; none if it is strictly apart.
    pub overflow: Option<Overflow>,
    /// Whether calls of any other pool may come here.
    pub lends: bool,
}

/// Where a pool and its lists stand.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PoolPlaces {
    /// The first of its keys.
    pub first: Place,
    /// Its list of models.
    pub models: Place,
    /// Its list of tenants.
    pub tenants: Place,
    /// Its list of profiles.
    pub profiles: Place,
}

/// Which calls are a pool's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Takes {
    /// Those that meet all of these rules.
    Calls(Rules),
    /// Those that no other pool takes.
    Rest,
}

/// Rules that a call must meet; an empty list is none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    /// Its served model is one of these.
    pub models: Vec<String>,
    /// Its tenant is.
    pub tenants: Vec<String>,
    /// Its profile is.
    pub profiles: Vec<String>,
    /// Who makes it.
    pub kind: Option<Kind>,
}

/// Who makes a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The main agent.
    Main,
    /// A subagent.
    Subagent,
}

/// Where the calls of a pool go while it is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overflow {
    /// The pool, by number; none for every one that lends.
    pub to: Option<usize>,
    /// So many calls in flight on each of its replicas make it full.
    pub calls: u64,
}

impl Pool {
    /// Whether calls of one session may go to several replicas for its sake. A session's calls are
    /// taken to be of one tenant and one profile.
    #[must_use]
    pub fn scatters(&self) -> bool {
        let by_call = match &self.takes {
            Takes::Calls(rules) => rules.kind.is_some() || !rules.models.is_empty(),
            Takes::Rest => false,
        };
        by_call || self.overflow.is_some() || self.router != RouterKind::SessionAffinity
    }
}

/// The replica with which each pool begins.
pub fn firsts(pools: &[Pool]) -> impl Iterator<Item = u32> + '_ {
    pools.iter().scan(0, |next, pool| {
        let first = *next;
        *next += pool.replicas;
        Some(first)
    })
}

/// Who changes the router of a pool on the command line does not want what the file says of
/// another.
pub(super) fn forget_other_routers(document: &mut Document) {
    for name in names(document).unwrap_or_default() {
        router::forget_others(document, &section(&name), &key(&name, "router"));
    }
}

/// Reads the pools, in the order of the file; those of the command line come last. Their places
/// come with them.
///
/// # Errors
/// A key that does not exist, a pool that takes nothing, or what cannot be beside pools.
pub(super) fn read(
    document: &Document,
    gateway: Option<&Gateway>,
) -> Result<(Vec<Pool>, Vec<PoolPlaces>)> {
    let names = names(document)?;
    if names.is_empty() {
        return Ok((Vec::new(), Vec::new()));
    }
    refuse_beside(document, gateway, &names)?;
    let readers = names.iter().map(|name| Reader { document, name, names: &names });
    let pools = readers.map(|reader| reader.pool()).collect::<Result<Vec<_>>>()?;
    check_together(document, &pools)?;
    let of_list = |name: &str, list| document.at(&key(name, list), Error::new("")).place().clone();
    let places = |name: &String| PoolPlaces {
        first: place(document, name),
        models: of_list(name, "models"),
        tenants: of_list(name, "tenants"),
        profiles: of_list(name, "profiles"),
    };
    let places = names.iter().map(places).collect();
    Ok((pools, places))
}

fn section(name: &str) -> String {
    format!("{SECTION}.{name}")
}

fn key(name: &str, field: &str) -> String {
    format!("{SECTION}.{name}.{field}")
}

/// The names of all pools.
fn names(document: &Document) -> Result<Vec<String>> {
    let prefix = format!("{SECTION}.");
    let mut names: Vec<String> = Vec::new();
    for full in document.keys() {
        let rest = full.strip_prefix(&prefix);
        let is_table = document.value(full).is_some_and(toml::Value::is_table);
        if full == SECTION || rest.is_some_and(|rest| !rest.contains('.') && !is_table) {
            let error = Error::new("pools are tables with names, such as [pools.agents]");
            return Err(document.at(full, error));
        }
        let Some(rest) = rest else { continue };
        let name = rest.rsplit_once('.').map_or(rest, |(name, _)| name);
        let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        if name.is_empty() || !name.chars().all(is_plain) || name == ANY {
            let allowed = "letters, digits, `-` and `_`, and not `any`, as the name of a pool";
            let error = Error::found(name, allowed)
                .help("keys of a pool and of its router stand in the pool: pools.NAME.pins");
            return Err(document.at(full, error));
        }
        if !names.iter().any(|known| known == name) {
            names.push(name.to_owned());
        }
    }
    if names.len() > MAX_POOLS {
        return Err(Error::found(names.len(), format!("at most {MAX_POOLS} pools")));
    }
    let at = |name: &String| {
        let Place { line, column, .. } = place(document, name);
        (line.is_none(), line, column)
    };
    names.sort_by_key(at);
    Ok(names)
}

/// Where a pool begins in the file; nowhere if it is of the command line.
fn place(document: &Document, name: &str) -> Place {
    let of_pool = |key: &&str| {
        let rest = key.strip_prefix(SECTION).and_then(|rest| rest.strip_prefix('.'));
        rest.is_some_and(|rest| rest.rsplit_once('.').map_or(rest, |(name, _)| name) == name)
    };
    let keys = document.keys().filter(of_pool).filter(|key| document.is_from_file(key));
    let places = keys.map(|key| document.at(key, Error::new("")).place().clone());
    let first = places.min_by_key(|place| (place.line, place.column));
    Place { field: Some(section(name)), ..first.unwrap_or_default() }
}

/// What has no meaning, or is not modelled, beside pools.
fn refuse_beside(document: &Document, gateway: Option<&Gateway>, names: &[String]) -> Result<()> {
    if document.has("fleet.replicas") {
        let keys: Vec<String> = names.iter().map(|name| key(name, "replicas")).collect();
        let text = format!("each pool has its own: {}", keys.join(", "));
        return Err(document.at("fleet.replicas", Error::new(text)));
    }
    let by_name = |error: Error| error.at_place(&place(document, &names[0])).in_field(SECTION);
    if gateway.is_some() {
        let text = "pools behind a gateway are not modelled: its config routes by model group";
        return Err(by_name(Error::new(text)));
    }
    if document.first_of_table("autoscale.engines").is_some() {
        let text = "pools whose replicas are scaled are not modelled: leave out autoscale.engines";
        return Err(by_name(Error::new(text)));
    }
    let own = names.iter().all(|name| document.has(&key(name, "router")));
    let of_fleet = ["fleet.router".to_owned()].into_iter().chain(router::keys("router"));
    match of_fleet.into_iter().find(|key| own && document.has(key)) {
        Some(key) => {
            let text = "every pool has a router of its own, so that this has no effect";
            Err(document.at(&key, Error::new(text)))
        }
        None => Ok(()),
    }
}

/// Two pools that take the rest or the same, and too many replicas.
fn check_together(document: &Document, pools: &[Pool]) -> Result<()> {
    for (number, pool) in pools.iter().enumerate() {
        let Some(other) = pools[..number].iter().find(|other| other.takes == pool.takes) else {
            continue;
        };
        let text = match pool.takes {
            Takes::Rest => format!("pool {} takes the rest already", other.name),
            Takes::Calls(_) => {
                format!("pool {} takes the same calls, and stands before", other.name)
            }
        };
        return Err(Error::new(text)
            .at_place(&place(document, &pool.name))
            .in_field(section(&pool.name)));
    }
    let all: u64 = pools.iter().map(|pool| u64::from(pool.replicas)).sum();
    if all > MAX_REPLICAS {
        let error = Error::found(all, format!("at most {MAX_REPLICAS} replicas in all pools"));
        return Err(error.in_field(SECTION));
    }
    Ok(())
}

/// Reads one pool.
struct Reader<'a> {
    document: &'a Document,
    name: &'a str,
    names: &'a [String],
}

impl Reader<'_> {
    fn key(&self, field: &str) -> String {
        key(self.name, field)
    }

    fn at(&self, field: &str, error: Error) -> Error {
        self.document.at(&self.key(field), error)
    }

    /// An error about what is missing.
    fn lacks(&self, text: &str) -> Error {
        let place = place(self.document, self.name);
        let error = Error::new(text).at_place(&place).in_field(section(self.name));
        let others = self.names.iter().filter(|name| *name != self.name).map(String::as_str);
        match crate::diag::nearest(self.name, others) {
            // A slip on the command line makes a pool of its own.
            Some(near) if place.line.is_none() => {
                error.help(format!("did you mean the pool `{near}`?"))
            }
            _ => error,
        }
    }

    fn pool(&self) -> Result<Pool> {
        self.check_fields()?;
        let takes = self.takes()?;
        let replicas = self.document.whole(&self.key("replicas"), 1, MAX_REPLICAS)?;
        let Some(replicas) = replicas.map(|replicas| replicas as u32) else {
            return Err(self.lacks("this pool needs the key `replicas`"));
        };
        let (router, routing) = self.routing(replicas)?;
        Ok(Pool {
            name: self.name.to_owned(),
            takes,
            replicas,
            router,
            routing,
            overflow: self.overflow()?,
            lends: self.lend()?,
        })
    }

    fn check_fields(&self) -> Result<()> {
        let prefix = format!("{}.", section(self.name));
        let settings: Vec<&str> = router::names().collect();
        let known = || FIELDS.iter().map(|(field, _)| *field).chain(settings.iter().copied());
        for full in self.document.keys() {
            let Some(field) = full.strip_prefix(&prefix) else { continue };
            if known().any(|known| known == field) {
                continue;
            }
            let of_engine = format!("engine.{field}");
            let error = match KEYS.iter().any(|(key, _)| *key == of_engine) {
                true => Error::new(
                    "all pools have the same engine: other engines in one fleet are not modelled",
                ),
                false => Error::unknown("key", field, known()),
            };
            return Err(self.document.at(full, error));
        }
        Ok(())
    }

    fn takes(&self) -> Result<Takes> {
        let list = |field: &str| -> Result<Vec<String>> {
            let names = self.document.texts(&self.key(field))?;
            match names {
                Some(names) if names.is_empty() => {
                    Err(self.at(field, Error::new("the list is empty: leave it out")))
                }
                names => Ok(names.unwrap_or_default()),
            }
        };
        let kinds = [("main", Kind::Main), ("subagent", Kind::Subagent)];
        let rules = Rules {
            models: list("models")?,
            tenants: list("tenants")?,
            profiles: list("profiles")?,
            kind: self.document.choice(&self.key("kind"), &kinds)?,
        };
        let has_rules = rules != Rules::default();
        match (self.document.flag(&self.key("rest"))?.unwrap_or(false), has_rules) {
            (true, false) => Ok(Takes::Rest),
            (false, true) => Ok(Takes::Calls(rules)),
            (true, true) => {
                let text = "the rest is what no other pool takes: it has no rules of its own";
                Err(self.at("rest", Error::new(text)))
            }
            (false, false) => Err(self.lacks(
                "this pool takes no calls: it needs `models`, `tenants`, `profiles`, `kind` or \
                 `rest = true`",
            )),
        }
    }

    /// Its own router, or the fleet's.
    fn routing(&self, replicas: u32) -> Result<(RouterKind, Routing)> {
        let own = self.key("router");
        if self.document.has(&own) {
            let section = section(self.name);
            let kind = router::read_kind(self.document, &own)?;
            return Ok((kind, Routing::read(self.document, &section, &own, kind, replicas)?));
        }
        if let Some(key) = router::keys(&section(self.name)).find(|key| self.document.has(key)) {
            let text = format!("only goes with {own}: without it the pool has the fleet's router");
            return Err(self.document.at(&key, Error::new(text)));
        }
        let kind = router::read_kind(self.document, router::FLEET)?;
        Ok((kind, Routing::read(self.document, "router", router::FLEET, kind, replicas)?))
    }

    fn overflow(&self) -> Result<Option<Overflow>> {
        let calls = self.document.whole(&self.key("overflow_calls"), 1, MANY)?;
        let Some(to) = self.document.text(&self.key("overflow"))? else {
            return match calls {
                Some(_) => {
                    let text = format!("only goes with {}", self.key("overflow"));
                    Err(self.at("overflow_calls", Error::new(text)))
                }
                None => Ok(None),
            };
        };
        let others = || self.names.iter().map(String::as_str).filter(|name| *name != self.name);
        let Some(calls) = calls else {
            let text = "this key needs `overflow_calls` beside it: calls in flight on each replica \
                        from which on the pool is full";
            return Err(self.at("overflow", Error::new(text)));
        };
        if to == ANY {
            if !others().any(|name| self.lends(name)) {
                let error = Error::new("there is no other pool that lends its replicas");
                return Err(self.at("overflow", error));
            }
            return Ok(Some(Overflow { to: None, calls }));
        }
        if !others().any(|name| name == to) {
            let known: Vec<&str> = others().chain([ANY]).collect();
            return Err(self.at("overflow", Error::unknown("pool", &to, known)));
        }
        if !self.lends(&to) {
            let error = Error::new(format!("pool {to} does not lend its replicas"));
            return Err(self.at("overflow", error));
        }
        let to = self.names.iter().position(|name| *name == to);
        Ok(Some(Overflow { to, calls }))
    }

    /// Whether it lends its replicas. Only `any` could come to one that does not.
    fn lend(&self) -> Result<bool> {
        let lends = self.document.flag(&self.key("lend"))?.unwrap_or(true);
        let is_any = |name: &String| {
            let to = self.document.value(&key(name, "overflow")).and_then(toml::Value::as_str);
            name != self.name && to == Some(ANY)
        };
        if lends || self.names.iter().any(is_any) {
            return Ok(lends);
        }
        let text =
            "only goes with overflow = \"any\" of another pool: nothing else could come here";
        Err(self.at("lend", Error::new(text)))
    }

    fn lends(&self, name: &str) -> bool {
        self.document.value(&key(name, "lend")).and_then(toml::Value::as_bool).unwrap_or(true)
    }
}
