//! `[gateway]` of a scenario: a LiteLLM `config.yaml`, keys of its own, or both.
//!
//! A key that the config tells as well may not stand beside it in the file; on the command line it
//! wins.

use std::collections::BTreeMap;
use std::path::Path;

use super::clients::{Clients, TokenPrice};
use super::{
    Admission, CountCost, CountPlace, Database, Deployment, FrontEnd, GatewayConfig, Group, Limit,
    PgBouncer, Redis, Strategy,
};
use crate::config::litellm::{self, Environment, ProxyConfig};
use crate::diag::{Error, Result, Warning};
use crate::document::{Document, MAX_SECONDS};
use crate::trace::record::Name;
use crate::units::{Bytes, ReplicaId, Span, Tokens};

/// The section.
const SECTION: &str = "gateway";
/// The key that names a config.
pub const CONFIG: &str = "gateway.config";
/// The key that names a file of variables, and the section of variables.
pub const ENVIRONMENT: &str = "gateway.environment";
/// The price of a token of the prompt, and of one of the answer.
const INPUT_PRICE: &str = "gateway.input_cost_per_token";
const OUTPUT_PRICE: &str = "gateway.output_cost_per_token";
/// The section of limits by tenant.
pub const LIMITS: &str = "gateway.limits";
/// The options of the command line for these keys, which complaints name.
pub const OPTIONS: [(&str, &str); 2] =
    [(CONFIG, "--litellm-config"), (ENVIRONMENT, "--litellm-env")];

/// Keys that a config tells as well.
const TOLD: [&str; 22] = [
    "gateway.num_workers",
    "gateway.max_in_flight_requests_per_worker",
    "gateway.max_queued_requests_per_worker",
    "gateway.admission_queue_timeout_seconds",
    "gateway.user_api_key_cache_ttl",
    "gateway.user_api_key_cache_max_size",
    "gateway.token_counter_max_concurrent_counts",
    "gateway.routing_strategy",
    "gateway.session_affinity",
    "gateway.deployment_affinity_ttl_seconds",
    "gateway.num_retries",
    "gateway.retry_after",
    "gateway.allowed_fails",
    "gateway.cooldown_time",
    "gateway.request_timeout",
    "gateway.redis",
    "gateway.database",
    "gateway.database_connection_pool_limit",
    "gateway.database_connection_timeout",
    "gateway.disable_spend_logs",
    INPUT_PRICE,
    OUTPUT_PRICE,
];

/// How long the SDKs of OpenAI and Anthropic wait for an answer to begin: ten minutes.
const SDK_TIMEOUT: Span = Span::from_secs(600);
/// More pods, workers, slots, keys or connections than anybody has.
const MANY: u64 = 1_000_000;

/// The gateway of a scenario.
#[derive(Clone, Debug, PartialEq)]
pub struct Gateway {
    front: FrontEnd,
    /// Replicas that a config names; none without one.
    named: Option<u32>,
    /// Model groups by the names that stand for them.
    pub aliases: BTreeMap<String, String>,
    /// The config, as it was named.
    pub file: Option<String>,
    /// What to check before the result is trusted.
    pub warnings: Vec<Warning>,
    /// What else the user should know: settings that were ignored.
    pub notes: Vec<String>,
}

impl Gateway {
    /// Reads the section; none if there is none.
    ///
    /// # Errors
    /// What is wrong in it or in the config that it names, with its place.
    pub(in crate::config) fn read(document: &mut Document) -> Result<Option<Self>> {
        let prefix = format!("{SECTION}.");
        if !document.has(SECTION) && !document.keys().any(|key| key.starts_with(&prefix)) {
            return Ok(None);
        }
        refuse_others(document)?;
        settle(document)?;
        let mut gateway = Self::of_config(document)?;
        let reader = Reader { document };
        let FrontEnd { gateway: config, clients } = &mut gateway.front;
        reader.pods(config)?;
        reader.admission(config)?;
        reader.keys(config)?;
        reader.routing(config)?;
        reader.retries(config)?;
        reader.stores(config)?;
        reader.counting(config, clients)?;
        reader.limits(config, clients)?;
        reader.clients(clients)?;
        reader.prices(config, clients)?;
        let unpriced = gateway.unpriced();
        gateway.warnings.extend(unpriced);
        Ok(Some(gateway))
    }

    /// What a config says, or the defaults with one group.
    fn of_config(document: &Document) -> Result<Self> {
        let environment = read_environment(document)?;
        let Some(path) = document.text(CONFIG)? else {
            if document.has(ENVIRONMENT) || has_variables(document) {
                let key = if document.has(ENVIRONMENT) { ENVIRONMENT } else { SECTION };
                let text = format!("variables are only read with {CONFIG}");
                return Err(document.at(key, Error::new(text)));
            }
            let groups = vec![Group { name: "fleet".to_owned(), ..Group::default() }];
            let deployments = vec![Deployment::new(0, ReplicaId(0))];
            let config = GatewayConfig { groups, deployments, ..GatewayConfig::default() };
            return Ok(Self {
                front: FrontEnd { gateway: config, clients: Clients::default() },
                named: None,
                aliases: BTreeMap::new(),
                file: None,
                warnings: Vec::new(),
                notes: Vec::new(),
            });
        };
        let file = document.path_beside(path, CONFIG);
        let text = std::fs::read_to_string(Path::new(&file)).map_err(|error| {
            document.at(CONFIG, Error::new(format!("cannot read {file}: {error}")))
        })?;
        let proxy = litellm::read(&text, &file, &environment)?;
        let mut notes: Vec<String> = proxy.ignored_note().into_iter().collect();
        if let [only] = proxy.gateway.groups.as_slice() {
            notes.push(format!("calls of every model go to the only model group, `{}`", only.name));
        }
        let ProxyConfig { gateway, api_bases, aliases, warnings, .. } = proxy;
        let named = u32::try_from(api_bases.len()).unwrap_or(u32::MAX);
        Ok(Self {
            front: FrontEnd { gateway, clients: Clients::default() },
            named: Some(named),
            aliases,
            file: Some(file),
            warnings,
            notes,
        })
    }

    /// Replicas that a config names, one for each `api_base`; none without a config.
    #[must_use]
    pub const fn named_replicas(&self) -> Option<u32> {
        self.named
    }

    /// The settings, as they are for the replicas that the scenario names.
    #[must_use]
    pub const fn config(&self) -> &GatewayConfig {
        &self.front.gateway
    }

    /// Whether it is known what a token is billed with.
    #[must_use]
    pub fn has_token_price(&self) -> bool {
        self.front.clients.price != TokenPrice::default()
            || self.front.gateway.deployments.iter().any(|one| one.token_price.is_some())
    }

    /// The same with another number of pods.
    #[must_use]
    pub fn with_pods(&self, pods: u32) -> Self {
        let mut other = self.clone();
        other.front.gateway.pods = pods;
        other
    }

    /// The gateway in front of so many replicas: a deployment of every group on each.
    ///
    /// # Errors
    /// A config whose deployments are not alike, so that what one more is like cannot be told.
    pub fn before(&self, replicas: u32) -> Result<FrontEnd> {
        let mut front = self.front.clone();
        let config = &mut front.gateway;
        if self.named == Some(replicas) {
            return Ok(front);
        }
        let on_first = config.deployments.iter().filter(|one| one.replica == ReplicaId(0));
        let pattern: Vec<Deployment> = on_first.cloned().collect();
        if !is_regular(config, &pattern) {
            let text = format!(
                "the deployments differ between the {} replicas that they name, so there is no \
                 telling what those of {replicas} are",
                self.named.unwrap_or(1)
            );
            let help = "give every model group one deployment on each api_base, all alike";
            return Err(Error::new(text).in_field(CONFIG).help(help));
        }
        config.deployments = (0..replicas)
            .flat_map(|replica| pattern.iter().map(move |like| (replica, like)))
            .map(|(replica, like)| Deployment { replica: ReplicaId(replica), ..like.clone() })
            .collect();
        Ok(front)
    }
}

/// Whether every replica has one deployment of each group, alike on all.
fn is_regular(config: &GatewayConfig, pattern: &[Deployment]) -> bool {
    let groups = config.groups.len();
    let mut deployments = config.deployments.clone();
    deployments.sort_by_key(|deployment| (deployment.replica, deployment.group));
    let mut like = pattern.to_vec();
    like.sort_by_key(|deployment| deployment.group);
    groups > 0
        && like.len() == groups
        && deployments.len().is_multiple_of(groups)
        && deployments.chunks(groups).zip(0..).all(|(chunk, replica)| {
            chunk.iter().zip(&like).zip(0..).all(|((deployment, like), group)| {
                let there = Deployment { replica: ReplicaId(replica), group, ..like.clone() };
                *deployment == there
            })
        })
}

/// A gateway routes calls: what another router is set with has no place beside it.
fn refuse_others(document: &mut Document) -> Result<()> {
    let keys = document.keys().filter(|key| *key == "fleet.router" || key.starts_with("router."));
    let others: Vec<String> = keys.map(str::to_owned).collect();
    let from_file = [CONFIG, SECTION].iter().any(|key| document.is_from_file(key))
        || document.keys().any(|key| key.starts_with("gateway.") && document.is_from_file(key));
    for key in others {
        if !from_file && document.is_from_file(&key) {
            // A gateway that comes with the command line takes the place of the file's router.
            document.remove(&key);
            continue;
        }
        let text = "a gateway routes the calls: gateway.routing_strategy and session_affinity";
        return Err(
            document.at(&key, Error::new(text).help("leave it out, or leave out [gateway]"))
        );
    }
    Ok(())
}

/// Lets a config on the command line take the place of the file's keys, and refuses two that tell
/// the same.
fn settle(document: &mut Document) -> Result<()> {
    if !document.has(CONFIG) {
        return Ok(());
    }
    for key in TOLD {
        if !document.is_from_file(key) {
            continue;
        }
        if document.is_from_file(CONFIG) {
            let text = format!("stands beside {CONFIG}, which tells it as well");
            let help = "change it in the config; on the command line a key wins over the config";
            return Err(document.at(key, Error::new(text).help(help)));
        }
        document.remove(key);
    }
    Ok(())
}

fn has_variables(document: &Document) -> bool {
    document.first_of_table(ENVIRONMENT).is_some()
}

fn read_environment(document: &Document) -> Result<Environment> {
    let prefix = format!("{ENVIRONMENT}.");
    let mut environment = Environment::default();
    if document.has(ENVIRONMENT) && document.value(ENVIRONMENT).is_some_and(toml::Value::is_str) {
        let name = document.text(ENVIRONMENT)?.unwrap_or_default();
        let file = document.path_beside(name, ENVIRONMENT);
        let text = std::fs::read_to_string(Path::new(&file)).map_err(|error| {
            document.at(ENVIRONMENT, Error::new(format!("cannot read {file}: {error}")))
        })?;
        environment = Environment::parse(&text, &file)?;
    }
    for key in document.keys().filter(|key| key.starts_with(&prefix)) {
        let value = match document.value(key) {
            Some(toml::Value::String(text)) => text.clone(),
            Some(
                value @ (toml::Value::Integer(_) | toml::Value::Float(_) | toml::Value::Boolean(_)),
            ) => value.to_string(),
            other => {
                let found = other.map(ToString::to_string).unwrap_or_default();
                return Err(document.at(key, Error::found(found, "a text or a number")));
            }
        };
        let set = environment.set(&format!("{}={value}", &key[prefix.len()..]));
        set.map_err(|error| document.at(key, error))?;
    }
    Ok(environment)
}

/// Reads keys over what a config said.
struct Reader<'a> {
    document: &'a Document,
}

impl Reader<'_> {
    fn count(&self, key: &str, least: u64, into: &mut u32) -> Result<()> {
        if let Some(number) = self.document.whole(key, least, MANY)? {
            *into = number as u32;
        }
        Ok(())
    }

    /// A time in units of so many seconds, from `least` of them on.
    fn span(&self, key: &str, unit: f64, least: f64, into: &mut Span) -> Result<()> {
        if let Some(number) = self.document.number(key, least, MAX_SECONDS)? {
            *into = Span::from_secs_f64(number * unit);
        }
        Ok(())
    }

    fn flag(&self, key: &str) -> Result<Option<bool>> {
        self.document.flag(key)
    }

    fn refuse(&self, keys: &[&str], why: &str) -> Result<()> {
        match keys.iter().find(|key| self.document.has(key)) {
            Some(key) => Err(self.document.at(key, Error::new(why))),
            None => Ok(()),
        }
    }

    fn pods(&self, config: &mut GatewayConfig) -> Result<()> {
        use super::Balancer;
        self.count("gateway.replicas", 1, &mut config.pods)?;
        self.count("gateway.num_workers", 1, &mut config.workers)?;
        if let Some(cores) = self.document.number("gateway.cores", 0.001, 1_000.0)? {
            config.pod_millicores = (cores * 1e3).round() as u32;
        }
        let balancers = [
            ("random", Balancer::Random),
            ("round_robin", Balancer::RoundRobin),
            ("session", Balancer::Session),
        ];
        if let Some(balancer) = self.document.choice("gateway.balancer", &balancers)? {
            config.balancer = balancer;
        }
        self.span("gateway.request_cpu_ms", 1e-3, 0.0, &mut config.request_cpu)
    }

    fn admission(&self, config: &mut GatewayConfig) -> Result<()> {
        const SLOTS: &str = "gateway.max_in_flight_requests_per_worker";
        const PLACES: &str = "gateway.max_queued_requests_per_worker";
        const WAIT: &str = "gateway.admission_queue_timeout_seconds";
        if let Some(slots) = self.document.whole(SLOTS, 1, MANY)? {
            let before = config.admission.replace(Admission::new(slots as u32));
            if let (Some(before), Some(now)) = (before, &mut config.admission) {
                now.timeout = before.timeout;
                if before.max_queued != before.max_in_flight {
                    now.max_queued = before.max_queued;
                }
            }
        }
        let Some(admission) = &mut config.admission else {
            return self.refuse(&[PLACES, WAIT], &format!("has no effect without {SLOTS}"));
        };
        self.count(PLACES, 0, &mut admission.max_queued)?;
        self.span(WAIT, 1.0, 0.0, &mut admission.timeout)?;
        if admission.timeout == Span::ZERO && admission.max_queued > 0 {
            let text = format!("a wait of 0 s contradicts {} places to wait", admission.max_queued);
            let help = format!("or {PLACES} = 0");
            return Err(self.document.at(WAIT, Error::new(text).help(help)));
        }
        Ok(())
    }

    fn keys(&self, config: &mut GatewayConfig) -> Result<()> {
        self.span("gateway.user_api_key_cache_ttl", 1.0, 0.0, &mut config.auth.ttl)?;
        self.count("gateway.user_api_key_cache_max_size", 1, &mut config.auth.capacity)
    }

    fn routing(&self, config: &mut GatewayConfig) -> Result<()> {
        const STRATEGY: &str = "gateway.routing_strategy";
        const TTL: &str = "gateway.deployment_affinity_ttl_seconds";
        let routing = &mut config.routing;
        if let Some(name) = self.document.text(STRATEGY)?
            && Strategy::NOT_MODELLED.contains(&name.as_str())
        {
            let error = Error::new(format!("`{name}` is not modelled"));
            return Err(self.document.at(STRATEGY, error));
        }
        if let Some(strategy) = self.document.choice(STRATEGY, &Strategy::ALL)? {
            routing.strategy = strategy;
        }
        if let Some(affinity) = self.flag("gateway.session_affinity")? {
            routing.session_affinity = affinity;
        }
        if !routing.session_affinity {
            self.refuse(&[TTL], "has no effect without gateway.session_affinity")?;
        }
        self.span(TTL, 1.0, 1e-3, &mut routing.affinity_ttl)?;
        self.count("gateway.routing_cache_entries", 1, &mut routing.cache_entries)?;
        self.span("gateway.cooldown_time", 1.0, 0.0, &mut routing.cooldown.time)?;
        if let Some(fails) = self.document.whole("gateway.allowed_fails", 0, MANY)? {
            routing.cooldown.allowed_fails = Some(fails as u32);
        }
        Ok(())
    }

    fn retries(&self, config: &mut GatewayConfig) -> Result<()> {
        self.count("gateway.num_retries", 0, &mut config.retries.num_retries)?;
        self.span("gateway.retry_after", 1.0, 0.0, &mut config.retries.min_wait)?;
        self.span("gateway.request_timeout", 1.0, 1e-3, &mut config.request_timeout)
    }

    fn stores(&self, config: &mut GatewayConfig) -> Result<()> {
        const REDIS: [&str; 2] = ["gateway.redis_round_trip_ms", "gateway.redis_timeout_s"];
        const DATABASE: [&str; 6] = [
            "gateway.database_connection_pool_limit",
            "gateway.database_connection_timeout",
            "gateway.database_max_connections",
            "gateway.pgbouncer",
            "gateway.disable_spend_logs",
            "gateway.spend_row_bytes",
        ];
        match self.flag("gateway.redis")? {
            Some(true) => drop(config.redis.get_or_insert_with(Redis::default)),
            Some(false) => config.redis = None,
            None => {}
        }
        match &mut config.redis {
            Some(redis) => {
                self.span(REDIS[0], 1e-3, 0.0, &mut redis.round_trip)?;
                self.span(REDIS[1], 1.0, 0.0, &mut redis.timeout)?;
            }
            None => self.refuse(&REDIS, "has no effect without Redis: gateway.redis = true")?,
        }
        match self.flag("gateway.database")? {
            Some(true) => drop(config.database.get_or_insert_with(Database::default)),
            Some(false) => config.database = None,
            None => {}
        }
        let Some(database) = &mut config.database else {
            let why = "has no effect without a database: gateway.database = true";
            return self.refuse(&DATABASE, why);
        };
        self.count(DATABASE[0], 1, &mut database.pool)?;
        self.span(DATABASE[1], 1.0, 0.0, &mut database.pool_timeout)?;
        self.count(DATABASE[2], 1, &mut database.max_connections)?;
        if self.flag(DATABASE[3])? == Some(true) {
            database.pgbouncer = Some(PgBouncer::default());
        }
        if let Some(disabled) = self.flag(DATABASE[4])? {
            config.spend.enabled = !disabled;
        }
        if let Some(bytes) = self.document.whole(DATABASE[5], 1, 100_000_000)? {
            config.spend.row_bytes = Bytes(bytes);
        }
        Ok(())
    }

    fn counting(&self, config: &mut GatewayConfig, clients: &mut Clients) -> Result<()> {
        const PLACE: &str = "gateway.token_counting";
        const SLOTS: &str = "gateway.token_counter_max_concurrent_counts";
        const COST: &str = "gateway.token_count_cost";
        const KTOK: &str = "gateway.token_count_ms_per_ktok";
        const TOOL: &str = "gateway.token_count_ms_per_tool";
        let budgets = self.flag("gateway.budgets")?.unwrap_or(false);
        let counting = &mut config.counting;
        if budgets {
            let cores = config.pod_millicores.div_ceil(1_000);
            counting.place = CountPlace::budget(cores);
        }
        let places = [("off", 0), ("threads", 1), ("event_loop", 2)];
        match self.document.choice(PLACE, &places)? {
            Some(0) if budgets => {
                let text = "with budgets every prompt is counted: gateway.budgets is true";
                return Err(self.document.at(PLACE, Error::new(text)));
            }
            Some(0) => counting.place = CountPlace::Off,
            Some(1) => counting.place = CountPlace::LIMITER,
            Some(_) => counting.place = CountPlace::EventLoop,
            None => {}
        }
        match &mut counting.place {
            CountPlace::Threads { slots, inline_below } if *inline_below == Tokens::ZERO => {
                self.count(SLOTS, 1, slots)?;
            }
            _ => self.refuse(&[SLOTS], "only goes with gateway.token_counting = \"threads\"")?,
        }
        let costs = [("measured", CountCost::MEASURED), ("pessimistic", CountCost::PESSIMISTIC)];
        if self.document.has(COST) {
            self.refuse(&[KTOK], &format!("{COST} tells it as well"))?;
        }
        if let Some(cost) = self.document.choice(COST, &costs)? {
            counting.cost = cost;
        }
        if let Some(ms) = self.document.number(KTOK, 0.0, 1e6)? {
            counting.cost.ktok_ms = ms;
        }
        if let Some(ms) = self.document.number(TOOL, 0.0, 1e6)? {
            counting.cost.tool_ms = ms;
        }
        clients.is_counted = counting.place != CountPlace::Off;
        if !clients.is_counted && !config.routing.strategy.counts_inline() {
            let why = "nothing is counted: see gateway.budgets and gateway.token_counting";
            self.refuse(&[COST, KTOK, TOOL], why)?;
        }
        Ok(())
    }

    /// What a token is billed with, in place of what a config says.
    fn prices(&self, config: &mut GatewayConfig, clients: &mut Clients) -> Result<()> {
        const USD_MAX: f64 = 1.0;
        let price = |key| -> Result<Option<u64>> {
            let usd = self.document.number(key, 0.0, USD_MAX)?;
            let kept = usd.map(TokenPrice::kept).transpose();
            kept.map_err(|error| self.document.at(key, error))
        };
        let (input, output) = (price(INPUT_PRICE)?, price(OUTPUT_PRICE)?);
        if input.is_some() || output.is_some() {
            let (input, output) = (input.unwrap_or(0), output.unwrap_or(0));
            clients.price = TokenPrice { input, output };
            config.deployments.iter_mut().for_each(|one| one.token_price = None);
        }
        Ok(())
    }

    /// Limits of single tenants, and those that each of all others has.
    fn limits(&self, config: &mut GatewayConfig, clients: &mut Clients) -> Result<()> {
        let prefix = format!("{LIMITS}.");
        let mut by_tenant: BTreeMap<&str, Limit> = BTreeMap::new();
        for key in self.document.keys().filter(|key| key.starts_with(&prefix)) {
            let path = &key[prefix.len()..];
            let Some((tenant, _)) = path.rsplit_once('.') else {
                let text = "a table for each tenant, such as [gateway.limits.web]";
                return Err(self.document.at(key, Error::found(path, text)));
            };
            let limit = by_tenant.entry(tenant).or_default();
            self.limit(key, &path[tenant.len() + 1..], limit)?;
        }
        let mut others = Limit::default();
        for field in LIMIT_FIELDS {
            let key = format!("{SECTION}.{field}");
            if self.document.has(&key) {
                self.limit(&key, field, &mut others)?;
            }
        }
        let mut add = |limit: Limit| {
            config.limits.push(limit);
            u32::try_from(config.limits.len() - 1).unwrap_or(u32::MAX)
        };
        for (tenant, limit) in by_tenant {
            clients.limits.insert(Name::from(tenant), [Some(add(limit)), None]);
        }
        if others != Limit::default() {
            clients.other_limits = [Some(add(others)), None];
        }
        Ok(())
    }

    fn limit(&self, key: &str, field: &str, limit: &mut Limit) -> Result<()> {
        const MOST: u64 = 1_000_000_000_000;
        let number = self.document.whole(key, 1, MOST)?;
        match field {
            "rpm_limit" => limit.rpm = number,
            "tpm_limit" => limit.tpm = number,
            "max_parallel_requests" => limit.max_parallel = number,
            _ => {
                let error = Error::unknown("limit", field, LIMIT_FIELDS);
                return Err(self.document.at(key, error));
            }
        }
        Ok(())
    }

    fn clients(&self, clients: &mut Clients) -> Result<()> {
        self.count("gateway.tools", 0, &mut clients.tools)?;
        if let Some(honour) = self.flag("client.honour_retry_after")? {
            clients.honour_retry_after = honour;
        }
        if let Some(retries) = self.document.whole("client.agent_retries", 0, 100)? {
            clients.agent_retries = retries as u32;
        }
        let timeout = clients.timeout.insert(SDK_TIMEOUT);
        self.span("client.timeout_s", 1.0, 1e-3, timeout)?;
        self.span("client.agent_wait_s", 1.0, 0.0, &mut clients.agent_wait)
    }
}

const LIMIT_FIELDS: [&str; 3] = ["rpm_limit", "tpm_limit", "max_parallel_requests"];

#[cfg(test)]
mod tests;
