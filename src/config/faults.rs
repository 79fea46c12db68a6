//! What happens to replicas, and to the stores of a gateway, while a scenario runs: faults and
//! planned changes.
//!
//! Each is a table of the list `events`: when, what, and to which replica.

use toml::{Table, Value};

use super::autoscale::read::Autoscale;
use super::gateway::GatewayConfig;
use super::gateway::read::Gateway;
use super::pools::{self, Pool};
use crate::diag::{Error, Place, Result};
use crate::document::Document;
use crate::units::Span;

/// The list's key.
pub(super) const KEY: &str = "events";
/// A hundred years: a longer time is a slip.
const MAX_SECONDS: f64 = 3.2e9;
/// The keys of one event.
const FIELDS: [&str; 10] = [
    "at_s",
    "kind",
    "pool",
    "replica",
    "restart_s",
    "start_s",
    "drain_s",
    "for_s",
    "silent",
    "times_slower",
];
const KINDS: [&str; 6] =
    ["lost", "drained", "added", "rolling_update", "redis_outage", "database_slow"];
/// Slower than this is a slip.
const TIMES_MAX: f64 = 1e9;

/// Something that happens to the fleet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FleetEvent {
    /// When, from the start of the run.
    pub at: Span,
    /// What.
    pub happens: Happens,
    /// From the start of a replica's process until it takes calls.
    pub start: Span,
    /// The pool in which it happens, by number. Replicas are numbered in the pool then, as the
    /// scenario has them; those of `Setup::events` are numbered through the fleet.
    pub pool: Option<u32>,
}

/// What happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Happens {
    /// A replica is gone with its calls and its cache.
    Lost {
        /// Which.
        replica: u32,
        /// From then until its process is started again, if it is.
        restart: Option<Span>,
    },
    /// A replica gets no more calls; those that it has end there.
    Drained {
        /// Which.
        replica: u32,
        /// From its last call until its process is started again, if it is.
        restart: Option<Span>,
    },
    /// A replica that was not there so far is started.
    Added {
        /// Which.
        replica: u32,
    },
    /// One replica after another is drained and started again.
    RollingUpdate {
        /// How long a replica may take to drain before its calls are cut off.
        drain: Option<Span>,
    },
    /// The gateway's Redis does not answer.
    RedisOutage {
        /// For how long; to the end of the run without.
        lasts: Option<Span>,
        /// Whether it is waited for in vain, in place of a connection that is refused at once.
        silent: bool,
    },
    /// The gateway's database takes longer for every query.
    DatabaseSlow {
        /// For how long; to the end of the run without.
        lasts: Option<Span>,
        /// Thousandths of the usual time.
        thousandths: u64,
    },
}

/// What of a scenario decides whether an event can happen.
pub(super) struct Scene<'a> {
    /// Replicas of the fleet.
    pub(super) replicas: u32,
    /// Parts of it.
    pub(super) pools: &'a [Pool],
    /// Whether an autoscaler makes them more and fewer.
    pub(super) scales_replicas: bool,
    /// The gateway, if there is one.
    pub(super) gateway: Option<&'a GatewayConfig>,
}

impl<'a> Scene<'a> {
    pub(super) fn new(
        replicas: u32,
        pools: &'a [Pool],
        autoscale: &Autoscale,
        gateway: Option<&'a Gateway>,
    ) -> Self {
        let (scales_replicas, gateway) =
            (autoscale.scales_replicas(), gateway.map(Gateway::config));
        Self { replicas, pools, scales_replicas, gateway }
    }
}

impl Happens {
    /// The replica that it names.
    fn replica_mut(&mut self) -> Option<&mut u32> {
        match self {
            Self::Lost { replica, .. }
            | Self::Drained { replica, .. }
            | Self::Added { replica } => Some(replica),
            Self::RollingUpdate { .. } | Self::RedisOutage { .. } | Self::DatabaseSlow { .. } => {
                None
            }
        }
    }
}

impl FleetEvent {
    /// The replica that it names.
    #[must_use]
    pub fn replica(&self) -> Option<u32> {
        match self.happens {
            Happens::Lost { replica, .. }
            | Happens::Drained { replica, .. }
            | Happens::Added { replica } => Some(replica),
            Happens::RollingUpdate { .. }
            | Happens::RedisOutage { .. }
            | Happens::DatabaseSlow { .. } => None,
        }
    }

    /// The store that it is about, by its kind, and how long it is.
    fn store(&self) -> Option<(&'static str, Option<Span>)> {
        match self.happens {
            Happens::RedisOutage { lasts, .. } => Some(("redis_outage", lasts)),
            Happens::DatabaseSlow { lasts, .. } => Some(("database_slow", lasts)),
            _ => None,
        }
    }
}

/// The events of a fleet with the numbers that replicas have in all of it, not in their pool.
///
/// # Errors
/// A replica that its pool does not have.
pub fn numbered_through(events: &[FleetEvent], pools: &[Pool]) -> Result<Vec<FleetEvent>> {
    let firsts: Vec<u32> = pools::firsts(pools).collect();
    let through = |event: &FleetEvent| {
        let mut event = *event;
        let Some(pool) = event.pool.map(|pool| pool as usize) else { return Ok(event) };
        let Pool { name, replicas, .. } = &pools[pool];
        if let Some(replica) = event.happens.replica_mut() {
            if *replica >= *replicas {
                let text = format!(
                    "an event names replica {replica} of pool {name}, and a pool of {replicas} has \
                     none (they are numbered from 0)"
                );
                return Err(Error::new(text).in_field("events"));
            }
            *replica += firsts[pool];
        }
        Ok(event)
    };
    events.iter().map(through).collect()
}

/// Reads the events of a scenario, in order of time.
///
/// # Errors
/// The first that is none, or that cannot happen in this scene.
pub(super) fn read(document: &Document, scene: &Scene<'_>) -> Result<Vec<FleetEvent>> {
    let Some(value) = document.value(KEY) else { return Ok(Vec::new()) };
    let tables = value.as_array().filter(|list| list.iter().all(Value::is_table));
    let Some(tables) = tables else {
        let error = Error::found(value, "tables such as [[events]] with at_s and kind");
        return Err(document.at(KEY, error));
    };
    let places = document.element_places(KEY);
    let mut events = Vec::new();
    for (number, (table, place)) in tables.iter().zip(&places).enumerate() {
        let Some(table) = table.as_table() else { continue };
        let one = One { table, place, number: number + 1, pools: scene.pools };
        let event = one.read(scene)?;
        one.check_history(&event, &events)?;
        one.check_store(&event, &events)?;
        events.push(event);
    }
    events.sort_by_key(|event| event.at);
    Ok(events)
}

/// One table of the list.
struct One<'a> {
    table: &'a Table,
    place: &'a Place,
    number: usize,
    pools: &'a [Pool],
}

impl One<'_> {
    fn at(&self, field: &str, error: Error) -> Error {
        error.at_place(self.place).with_field(format!("{KEY} {}, {field}", self.number))
    }

    fn read(&self, scene: &Scene<'_>) -> Result<FleetEvent> {
        if let Some(key) = self.table.keys().find(|key| !FIELDS.contains(&key.as_str())) {
            return Err(self.at(key, Error::unknown("key", key, FIELDS)));
        }
        let kind = self.table.get("kind").and_then(Value::as_str);
        let allowed: &[&str] = match kind {
            Some("lost" | "drained") => &["pool", "replica", "restart_s", "start_s"],
            Some("added") => &["pool", "replica", "start_s"],
            Some("rolling_update") => &["pool", "start_s", "drain_s"],
            Some("redis_outage") => &["for_s", "silent"],
            Some("database_slow") => &["for_s", "times_slower"],
            Some(other) => return Err(self.at("kind", Error::unknown("value", other, KINDS))),
            None => {
                let text = format!("this key is needed: one of {}", KINDS.join(", "));
                return Err(self.at("kind", Error::new(text)));
            }
        };
        let kind = kind.unwrap_or_default();
        let mut given = self.table.keys().filter(|key| !["at_s", "kind"].contains(&key.as_str()));
        if let Some(key) = given.find(|key| !allowed.contains(&key.as_str())) {
            return Err(self.at(key, Error::new(format!("does not go with kind = \"{kind}\""))));
        }
        let at = self.seconds("at_s")?.ok_or_else(|| {
            self.at("at_s", Error::new("this key is needed: seconds from the start of the run"))
        })?;
        let pool = match kind {
            "redis_outage" | "database_slow" => None,
            _ => self.pool(kind)?,
        };
        let happens = self.happens(kind, scene, pool)?;
        let start = self.seconds("start_s")?.unwrap_or(Span::ZERO);
        Ok(FleetEvent { at, happens, start, pool })
    }

    fn happens(&self, kind: &str, scene: &Scene<'_>, pool: Option<u32>) -> Result<Happens> {
        let restart = self.seconds("restart_s")?;
        if matches!(kind, "lost" | "drained") && restart.is_none() {
            self.refuse("start_s", "without restart_s the replica is not started again")?;
        }
        let (replicas, lasts) = (scene.replicas, self.lasts()?);
        Ok(match kind {
            "lost" => Happens::Lost { replica: self.replica(replicas, pool)?, restart },
            "drained" => Happens::Drained { replica: self.replica(replicas, pool)?, restart },
            "added" if scene.scales_replicas => {
                let text = "does not go with [autoscale.engines]: the autoscaler, which counts \
                            every replica from the start, starts them";
                return Err(self.at("kind", Error::new(text)));
            }
            "added" => Happens::Added { replica: self.replica(replicas, pool)? },
            "redis_outage" => {
                if scene.gateway.is_none_or(|gateway| gateway.redis.is_none()) {
                    let text = "there is no Redis: only goes with gateway.redis = true";
                    return Err(self.at("kind", Error::new(text)));
                }
                Happens::RedisOutage { lasts, silent: self.flag("silent")? }
            }
            "database_slow" => {
                if scene.gateway.is_none_or(|gateway| gateway.database.is_none()) {
                    let text = "there is no database: only goes with gateway.database = true";
                    return Err(self.at("kind", Error::new(text)));
                }
                Happens::DatabaseSlow { lasts, thousandths: self.thousandths("times_slower")? }
            }
            _ => Happens::RollingUpdate { drain: self.seconds("drain_s")? },
        })
    }

    /// How long a store is out of order.
    fn lasts(&self) -> Result<Option<Span>> {
        let lasts = self.seconds("for_s")?;
        if lasts == Some(Span::ZERO) {
            let text = "an event of 0 s does nothing: more seconds, or leave the event out";
            return Err(self.at("for_s", Error::new(text)));
        }
        Ok(lasts)
    }

    fn flag(&self, key: &str) -> Result<bool> {
        let Some(value) = self.table.get(key) else { return Ok(false) };
        value.as_bool().ok_or_else(|| self.at(key, Error::found(value, "true or false")))
    }

    /// A factor from 1 on, which must be there.
    fn thousandths(&self, key: &str) -> Result<u64> {
        let Some(value) = self.table.get(key) else {
            let text = "this key is needed: how many times longer each query takes";
            return Err(self.at(key, Error::new(text)));
        };
        let number = value.as_float().or(value.as_integer().map(|whole| whole as f64));
        let number = number.filter(|number| (1.0..=TIMES_MAX).contains(number));
        let allowed = format!("a number from 1 to {TIMES_MAX}");
        let number = number.ok_or_else(|| self.at(key, Error::found(value, allowed)))?;
        Ok((number * 1e3).round() as u64)
    }

    /// A store is out of order once at a time.
    fn check_store(&self, event: &FleetEvent, others: &[FleetEvent]) -> Result<()> {
        let Some((kind, lasts)) = event.store() else { return Ok(()) };
        let ends = |at: Span, lasts: Option<Span>| lasts.map(|lasts| at + lasts);
        for other in others {
            let Some((_, other_lasts)) = other.store().filter(|(of, _)| *of == kind) else {
                continue;
            };
            let after = ends(other.at, other_lasts).is_some_and(|end| end <= event.at);
            let before = ends(event.at, lasts).is_some_and(|end| end <= other.at);
            if !after && !before {
                let text = format!("two events of kind = \"{kind}\" at once: see for_s");
                return Err(self.at("at_s", Error::new(text)));
            }
        }
        Ok(())
    }

    /// The pool that it names. One replica of several pools is known by its pool, whatever the
    /// size of the others.
    fn pool(&self, kind: &str) -> Result<Option<u32>> {
        let names = || self.pools.iter().map(|pool| pool.name.as_str());
        let Some(value) = self.table.get("pool") else {
            if self.pools.is_empty() || kind == "rolling_update" {
                return Ok(None);
            }
            let names = names().collect::<Vec<_>>().join(", ");
            let text = format!("this key is needed where there are pools: one of {names}");
            return Err(self.at("pool", Error::new(text)));
        };
        if self.pools.is_empty() {
            return Err(self.at("pool", Error::new("there are no pools: only goes with [pools]")));
        }
        let Some(name) = value.as_str() else {
            return Err(self.at("pool", Error::found(value, "a pool's name in quotes")));
        };
        let known: Vec<&str> = names().collect();
        match known.iter().position(|known| *known == name) {
            Some(number) => Ok(Some(number as u32)),
            None => Err(self.at("pool", Error::unknown("pool", name, known))),
        }
    }

    fn refuse(&self, key: &str, text: &str) -> Result<()> {
        match self.table.contains_key(key) {
            true => Err(self.at(key, Error::new(text))),
            false => Ok(()),
        }
    }

    fn seconds(&self, key: &str) -> Result<Option<Span>> {
        let Some(value) = self.table.get(key) else { return Ok(None) };
        let number = value.as_float().or(value.as_integer().map(|whole| whole as f64));
        let number = number.filter(|number| (0.0..=MAX_SECONDS).contains(number));
        let allowed = format!("a number from 0 to {MAX_SECONDS}");
        let number = number.ok_or_else(|| self.at(key, Error::found(value, allowed)))?;
        Ok(Some(Span::from_secs_f64(number)))
    }

    fn replica(&self, replicas: u32, pool: Option<u32>) -> Result<u32> {
        let pool = pool.map(|pool| &self.pools[pool as usize]);
        let (replicas, key) = match pool {
            Some(pool) => (pool.replicas, format!("pools.{}.replicas", pool.name)),
            None => (replicas, "fleet.replicas".to_owned()),
        };
        let Some(value) = self.table.get("replica") else {
            return Err(self.at("replica", Error::new("this key is needed: a replica, from 0 on")));
        };
        let number = value.as_integer().and_then(|number| u32::try_from(number).ok());
        let allowed = format!("a replica from 0 to {}: {key} is {replicas}", replicas - 1);
        let number = number.filter(|&number| number < replicas);
        number.ok_or_else(|| self.at("replica", Error::found(value, allowed)))
    }

    /// What happened to its replica before must leave it possible.
    fn check_history(&self, event: &FleetEvent, others: &[FleetEvent]) -> Result<()> {
        let Some(replica) = event.replica() else { return Ok(()) };
        let same =
            |other: &&FleetEvent| (other.replica(), other.pool) == (Some(replica), event.pool);
        let of_it = others.iter().filter(same);
        for other in of_it {
            let (first, second) =
                if other.at <= event.at { (other, event) } else { (event, other) };
            let gone_for_good = matches!(
                first.happens,
                Happens::Lost { restart: None, .. } | Happens::Drained { restart: None, .. }
            );
            let added_later = matches!(second.happens, Happens::Added { .. });
            if gone_for_good || added_later {
                let text = match added_later {
                    true => "something happens to this replica before it is added",
                    false => "this replica is gone by then, or before the other event",
                };
                return Err(self.at("replica", Error::new(text)));
            }
        }
        Ok(())
    }
}
