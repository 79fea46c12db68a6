//! Settings of the gateway: what a LiteLLM proxy in front of the engines is told, and what its
//! machine and its database can do.
//!
//! The defaults are those of LiteLLM 1.102.0 unless a field says where its figure is from.

use std::fmt;

use clients::{Clients, TokenPrice};

use crate::units::{Bytes, ReplicaId, Span, Tokens};

pub mod clients;
mod models;
pub mod read;

/// A gateway in front of a fleet, and who is behind it.
///
/// A call asks for the model group with the name of its served model, or for the first group if
/// there is none: [`read::Gateway::check_models`] has told of that. Deployments name replicas of
/// the fleet. A replica that none names gets such as the first replica has, and those of replicas
/// that there are not, or not yet, are left out, so that fleets of any size stand behind the same
/// settings.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FrontEnd {
    /// The gateway.
    pub gateway: GatewayConfig,
    /// Its clients.
    pub clients: Clients,
}

/// A gateway: pods of worker processes in front of a list of deployments.
#[derive(Clone, Debug, PartialEq)]
pub struct GatewayConfig {
    /// Pods at the start.
    pub pods: u32,
    /// Worker processes of a pod (`NUM_WORKERS`).
    pub workers: u32,
    /// Thousandths of a core that all workers of a pod share.
    pub pod_millicores: u32,
    /// How the pods' service picks a worker for a request.
    pub balancer: Balancer,
    /// Admission control of a worker; `None` takes everything in.
    pub admission: Option<Admission>,
    /// CPU time of a request on the worker's event loop besides counting.
    ///
    /// The rows of a measured proxy name 15 to 26 ms for prompts of 8K to 27K tokens, on a busy
    /// machine and without a clear growth with size.
    pub request_cpu: Span,
    /// The cache of virtual keys.
    pub auth: Auth,
    /// What of a prompt is counted, and where.
    pub counting: Counting,
    /// The choice of a deployment.
    pub routing: Routing,
    /// What becomes of failed attempts.
    pub retries: Retries,
    /// Model groups in the order of their first deployment.
    pub groups: Vec<Group>,
    /// All deployments, each of one group.
    pub deployments: Vec<Deployment>,
    /// Limits of keys and teams; calls name them by position.
    pub limits: Vec<Limit>,
    /// Redis, if it is attached.
    pub redis: Option<Redis>,
    /// PostgreSQL, if there is one.
    pub database: Option<Database>,
    /// The queue of spend rows.
    pub spend: Spend,
    /// An attempt without a sign of life for so long has failed (`request_timeout`).
    pub request_timeout: Span,
}

impl Default for GatewayConfig {
    /// One pod of one worker on one core, in front of nothing.
    fn default() -> Self {
        Self {
            pods: 1,
            workers: 1,
            pod_millicores: 1_000,
            balancer: Balancer::Random,
            admission: None,
            request_cpu: Span::from_millis(15),
            auth: Auth::default(),
            counting: Counting::default(),
            routing: Routing::default(),
            retries: Retries::default(),
            groups: Vec::new(),
            deployments: Vec::new(),
            limits: Vec::new(),
            redis: None,
            database: None,
            spend: Spend::default(),
            request_timeout: Span::from_secs(6_000),
        }
    }
}

impl GatewayConfig {
    /// Connections that the workers open to the database or to PgBouncer when all are busy: pods x
    /// workers x pool.
    #[must_use]
    pub fn connections(&self) -> u64 {
        let pool = self.database.as_ref().map_or(0, |database| database.pool);
        u64::from(self.pods) * u64::from(self.workers) * u64::from(pool)
    }
}

/// How a worker is picked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Balancer {
    /// Any worker, each equally likely: a Kubernetes service in front of workers that share a
    /// socket.
    Random,
    /// Workers take turns.
    RoundRobin,
    /// The sessions are spread over the workers and stay there, as with an ingress that hashes the
    /// session's header.
    Session,
}

/// Admission control of one worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Admission {
    /// Most requests that hold a slot (`max_in_flight_requests_per_worker`).
    pub max_in_flight: u32,
    /// Most requests that wait for one (`max_queued_requests_per_worker`).
    pub max_queued: u32,
    /// The longest wait (`admission_queue_timeout_seconds`).
    pub timeout: Span,
}

impl Admission {
    /// So many slots, as many places to wait, for a second.
    #[must_use]
    pub const fn new(max_in_flight: u32) -> Self {
        Self { max_in_flight, max_queued: max_in_flight, timeout: Span::from_secs(1) }
    }
}

/// The cache of virtual keys of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Auth {
    /// How long a key stays known (`user_api_key_cache_ttl`).
    pub ttl: Span,
    /// How many are known (`user_api_key_cache_max_size`).
    pub capacity: u32,
}

impl Default for Auth {
    fn default() -> Self {
        Self { ttl: Span::from_secs(60), capacity: 200 }
    }
}

/// The token counter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Counting {
    /// Where requests are counted.
    pub place: CountPlace,
    /// What a count takes.
    pub cost: CountCost,
}

impl Default for Counting {
    fn default() -> Self {
        Self { place: CountPlace::Off, cost: CountCost::MEASURED }
    }
}

/// Where prompts are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CountPlace {
    /// Nowhere: no budget, no pre-call check, no project limit. The default of the proxy.
    Off,
    /// On the event loop, where nothing else of the worker goes on meanwhile.
    EventLoop,
    /// In threads beside the loop, so many at a time; shorter prompts on the loop itself.
    Threads {
        /// `TOKEN_COUNTER_MAX_CONCURRENT_COUNTS`, or the size of the default thread pool.
        slots: u32,
        /// Prompts below are counted on the event loop.
        inline_below: Tokens,
    },
}

impl CountPlace {
    /// The pre-call checks: up to four counts at a time in threads.
    pub const LIMITER: Self = Self::Threads { slots: 4, inline_below: Tokens(0) };

    /// The path of keys with a budget: the default thread pool above 30,000 characters, which are
    /// about 7,000 tokens of source code, and the event loop below.
    #[must_use]
    pub const fn budget(cores: u32) -> Self {
        let slots = if cores > 28 { 32 } else { cores + 4 };
        Self::Threads { slots, inline_below: Tokens(7_000) }
    }
}

/// CPU time of one count, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CountCost {
    /// Whatever is counted.
    pub base_ms: f64,
    /// For a thousand tokens of messages.
    pub ktok_ms: f64,
    /// For one tool of the catalogue.
    pub tool_ms: f64,
}

impl CountCost {
    /// Measured CPU time of LiteLLM 1.102.0's counter: 0.417 ms per thousand tokens of cl100k, of a
    /// public measurement 0.455 (litellm issue 36174), of which this is between.
    pub const MEASURED: Self = Self { base_ms: 0.016, ktok_ms: 0.45, tool_ms: 0.045 };
    /// The published 100 ms at 100K tokens.
    pub const PESSIMISTIC: Self = Self { base_ms: 0.016, ktok_ms: 1.0, tool_ms: 0.045 };

    /// CPU time of a count.
    #[must_use]
    pub fn of(&self, tokens: Tokens, tools: u32) -> Span {
        let ms =
            self.base_ms + self.ktok_ms * tokens.as_f64() / 1e3 + self.tool_ms * f64::from(tools);
        Span::from_secs_f64(ms / 1e3)
    }
}

/// The choice of a deployment.
#[derive(Clone, Debug, PartialEq)]
pub struct Routing {
    /// The strategy (`routing_strategy`).
    pub strategy: Strategy,
    /// Whether sessions are pinned (`session_affinity` among `optional_pre_call_checks`).
    pub session_affinity: bool,
    /// How long a pin outlives its last use (`deployment_affinity_ttl_seconds`).
    pub affinity_ttl: Span,
    /// Entries of a worker's routing cache, which pins, counters and cooldowns share.
    pub cache_entries: u32,
    /// The rule by which a deployment is left alone.
    pub cooldown: Cooldown,
}

impl Default for Routing {
    fn default() -> Self {
        Self {
            strategy: Strategy::SimpleShuffle,
            session_affinity: false,
            affinity_ttl: Span::from_secs(3_600),
            cache_entries: 200,
            cooldown: Cooldown::default(),
        }
    }
}

/// A routing strategy of LiteLLM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strategy {
    /// Random, weighted by `weight`, else `rpm`, else `tpm`, if the first deployment has one.
    SimpleShuffle,
    /// The fewest calls in flight, the first of the list on a tie.
    LeastBusy,
    /// The lowest mean of the last ten samples.
    Latency,
    /// The fewest tokens this minute, the first without any at once.
    Usage,
    /// The same with counters that are compared at random among the lowest.
    UsageV2,
    /// The lowest price.
    Cost,
}

impl Strategy {
    /// All that are modelled, by the names of LiteLLM.
    pub const ALL: [(&'static str, Self); 6] = [
        ("simple-shuffle", Self::SimpleShuffle),
        ("least-busy", Self::LeastBusy),
        ("latency-based-routing", Self::Latency),
        ("usage-based-routing", Self::Usage),
        ("usage-based-routing-v2", Self::UsageV2),
        ("cost-based-routing", Self::Cost),
    ];
    /// Those that LiteLLM has besides.
    pub const NOT_MODELLED: [&'static str; 2] = ["provider-budget-routing", "lar1"];

    /// Whether it counts every request's messages on the event loop.
    #[must_use]
    pub const fn counts_inline(self) -> bool {
        !matches!(self, Self::SimpleShuffle | Self::LeastBusy)
    }
}

impl fmt::Display for Strategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = Self::ALL.iter().find(|(_, strategy)| strategy == self);
        f.write_str(name.map_or("", |(name, _)| name))
    }
}

/// When a deployment is left alone, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cooldown {
    /// For how long (`cooldown_time`); zero for never (`disable_cooldowns`).
    pub time: Span,
    /// Failures that are let pass (`allowed_fails`), in place of the rule of shares.
    pub allowed_fails: Option<u32>,
}

impl Default for Cooldown {
    fn default() -> Self {
        Self { time: Span::from_secs(5), allowed_fails: None }
    }
}

/// What becomes of failed attempts.
#[derive(Clone, Debug, PartialEq)]
pub struct Retries {
    /// Attempts after the first (`num_retries`).
    pub num_retries: u32,
    /// The same for single kinds of failure (`retry_policy`).
    pub policy: RetryPolicy,
    /// The shortest wait where no other deployment is healthy (`retry_after`).
    pub min_wait: Span,
    /// Model groups tried one after another at most (`max_fallbacks`).
    pub max_fallbacks: u32,
}

impl Default for Retries {
    fn default() -> Self {
        Self {
            num_retries: 2,
            policy: RetryPolicy::default(),
            min_wait: Span::ZERO,
            max_fallbacks: 5,
        }
    }
}

/// Retries by the kind of failure; `None` for the common number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RetryPolicy {
    /// `TimeoutErrorRetries`.
    pub timeout: Option<u32>,
    /// `RateLimitErrorRetries`.
    pub rate_limit: Option<u32>,
    /// `InternalServerErrorRetries`.
    pub internal_server: Option<u32>,
    /// `ServiceUnavailableErrorRetries`.
    pub service_unavailable: Option<u32>,
    /// `DefaultRetries`.
    pub default: Option<u32>,
}

/// Deployments that serve one name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Group {
    /// The name that clients ask for.
    pub name: String,
    /// Groups tried after it has failed, by position.
    pub fallbacks: Vec<u32>,
    /// Groups tried after a prompt that is too long for it.
    pub context_window_fallbacks: Vec<u32>,
}

/// One entry of the model list.
#[derive(Clone, Debug, PartialEq)]
pub struct Deployment {
    /// Its group, by position.
    pub group: u32,
    /// The replica behind its `api_base`.
    pub replica: ReplicaId,
    /// `weight`, for shuffling.
    pub weight: Option<f64>,
    /// `rpm`: weight for shuffling, and a bound for usage-based routing.
    pub rpm: Option<u64>,
    /// `tpm`, likewise.
    pub tpm: Option<u64>,
    /// Price of input and output together, for cost-based routing.
    pub price: f64,
    /// What a token is billed with, if it is said for this deployment.
    pub token_price: Option<TokenPrice>,
}

impl Deployment {
    /// A deployment of a group on a replica, with nothing else said.
    #[must_use]
    pub const fn new(group: u32, replica: ReplicaId) -> Self {
        Self { group, replica, weight: None, rpm: None, tpm: None, price: 0.0, token_price: None }
    }
}

/// Limits of a key or a team; `None` for none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limit {
    /// Requests in a minute.
    pub rpm: Option<u64>,
    /// Tokens in a minute.
    pub tpm: Option<u64>,
    /// Requests at a time.
    pub max_parallel: Option<u64>,
}

/// Redis and how it is given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Redis {
    /// A round trip.
    pub round_trip: Span,
    /// How long an operation waits while Redis does not answer; zero where the connection is
    /// refused at once.
    pub timeout: Span,
    /// Failures in a row that open the breaker (`REDIS_CIRCUIT_BREAKER_FAILURE_THRESHOLD`).
    pub breaker_failures: u32,
    /// How long it stays open (`REDIS_CIRCUIT_BREAKER_RECOVERY_TIMEOUT`).
    pub breaker_recovery: Span,
    /// What a row of time-outs must span to count.
    pub breaker_timeout_span: Span,
}

impl Default for Redis {
    /// The breaker of LiteLLM; the round trip is an assumption for one data centre.
    fn default() -> Self {
        Self {
            round_trip: Span::from_micros(500),
            timeout: Span::from_secs(5),
            breaker_failures: 5,
            breaker_recovery: Span::from_secs(60),
            breaker_timeout_span: Span::from_secs(5),
        }
    }
}

/// PostgreSQL and the way there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Database {
    /// Connections of a worker (`database_connection_pool_limit`).
    pub pool: u32,
    /// How long a query waits for one (`database_connection_timeout`).
    pub pool_timeout: Span,
    /// `max_connections` of the server, less those it keeps for administrators.
    pub max_connections: u32,
    /// PgBouncer in between, if there is one.
    pub pgbouncer: Option<PgBouncer>,
    /// Time of the query for a key. An assumption.
    pub key_query: Span,
    /// Time of a statement that inserts spend rows, whatever their number. An assumption.
    pub insert: Span,
    /// The same for each row. An assumption.
    pub insert_row: Span,
}

impl Default for Database {
    fn default() -> Self {
        Self {
            pool: 10,
            pool_timeout: Span::from_secs(60),
            max_connections: 100,
            pgbouncer: None,
            key_query: Span::from_millis(3),
            insert: Span::from_millis(5),
            insert_row: Span::from_micros(100),
        }
    }
}

/// PgBouncer with transaction pooling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PgBouncer {
    /// Connections to the server (`max_db_connections`).
    pub server_connections: u32,
    /// Connections of clients (`max_client_conn`).
    pub client_connections: u32,
}

impl Default for PgBouncer {
    /// As the Helm chart of LiteLLM sets it.
    fn default() -> Self {
        Self { server_connections: 20, client_connections: 1_000 }
    }
}

/// The queue of spend rows of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spend {
    /// Whether rows are written at all (`disable_spend_logs`).
    pub enabled: bool,
    /// Most bytes that wait (`SPEND_LOG_QUEUE_MAX_BYTES`); beyond, the oldest rows are dropped.
    pub max_bytes: Bytes,
    /// Rows from which on the queue is written at once (`SPEND_LOG_QUEUE_SIZE_THRESHOLD`).
    pub threshold_rows: u32,
    /// The monitor's shortest wait (`SPEND_LOG_QUEUE_POLL_INTERVAL`).
    pub poll: Span,
    /// Its longest, to which it grows by half each time the queue is short.
    pub poll_max: Span,
    /// Most rows of a statement (`SPEND_LOG_WRITE_BATCH_MAX_ROWS`).
    pub statement_rows: u32,
    /// Most bytes of a statement (`SPEND_LOG_WRITE_BATCH_MAX_BYTES`).
    pub statement_bytes: Bytes,
    /// Period of the job that writes whatever waits (`proxy_batch_write_at`), up to 5 s late.
    pub write_interval: Span,
    /// Bytes of a row without prompts: what the rows of a measured proxy have in the mean.
    pub row_bytes: Bytes,
}

impl Default for Spend {
    fn default() -> Self {
        Self {
            enabled: true,
            max_bytes: Bytes(64_000_000),
            threshold_rows: 100,
            poll: Span::from_secs(2),
            poll_max: Span::from_secs(30),
            statement_rows: 100,
            statement_bytes: Bytes(2_000_000),
            write_interval: Span::from_secs(10),
            row_bytes: Bytes(8_300),
        }
    }
}
