//! Limits, Redis, the database, the spend queue.

use super::*;
use crate::config::gateway::{Auth, Balancer, Database, Limit, Redis, Spend};
use crate::gateway::breaker::Health;
use crate::gateway::effect::Limited;
use crate::units::Bytes;

/// Three pods of four workers, taking turns, behind a key of 100 requests a minute.
fn limited(redis: Option<Redis>) -> GatewayConfig {
    GatewayConfig {
        pods: 3,
        workers: 4,
        balancer: Balancer::RoundRobin,
        limits: vec![Limit { rpm: Some(100), ..Limit::default() }],
        redis,
        ..config(1)
    }
}

fn with_key() -> CallSpec {
    CallSpec { limits: [Some(Limited { limit: 0, holder: 0 }), None], ..call(1) }
}

/// Requests of the key that are let through, of 2,400 within the minute after `from`.
fn allowed(rig: &mut Rig, from: f64) -> usize {
    let before = rig.sent.len();
    for index in 0..2_400 {
        rig.arrive(secs(from + f64::from(index) * 0.02), with_key());
    }
    rig.play(secs(from + 59.0));
    rig.sent.len() - before
}

#[test]
fn a_limit_of_100_is_one_of_1200_without_redis() {
    let mut rig = Rig::new(limited(None), after(0.01));
    assert_eq!(allowed(&mut rig, 0.0), 1_200);
    assert_eq!(rig.gateway.metrics().counts.rate_limited, 1_200);
    let mut rig = Rig::new(limited(Some(Redis::default())), after(0.01));
    assert_eq!(allowed(&mut rig, 0.0), 100);
}

#[test]
fn a_redis_outage_loses_global_limits_without_a_word() {
    let mut rig = Rig::new(limited(Some(Redis::default())), after(0.01));
    assert_eq!(allowed(&mut rig, 0.0), 100);
    rig.gateway.set_redis(Health::Refuses);
    assert_eq!(allowed(&mut rig, 100.0), 1_200);
    let counts = rig.gateway.counts();
    assert_eq!((counts.breakers_opened, counts.redis_stood_in), (12, 2_400));
    assert_eq!(rig.refused(Reason::RateLimit), 2_300 + 1_200, "no error of another kind");
    // Breakers that opened at 100 s rest until 160 s; after that the limit is one again.
    rig.gateway.set_redis(Health::Up);
    assert_eq!(allowed(&mut rig, 300.0), 100);
}

#[test]
fn checks_in_redis_go_one_after_another() {
    let redis = Some(Redis { round_trip: Span::from_millis(10), ..Redis::default() });
    let limits = vec![Limit { tpm: Some(u64::MAX), ..Limit::default() }];
    let mut rig = Rig::new(GatewayConfig { redis, limits, ..config(1) }, after(1.0));
    for _ in 0..10 {
        rig.arrive(Time::ZERO, with_key());
    }
    rig.play(Time::MAX);
    let slowest = rig.gateway.metrics().overhead.quantile(1.0).unwrap() / 1e6;
    assert!((slowest / 200.0 - 1.0).abs() < 0.01, "two trips of 10 ms for ten: {slowest}");
}

fn with_database(database: Database) -> GatewayConfig {
    GatewayConfig { database: Some(database), ..config(1) }
}

#[test]
fn a_key_is_looked_up_once_a_minute() {
    let mut rig = Rig::new(with_database(Database::default()), after(0.1));
    for index in 0..180_u32 {
        rig.arrive(secs(f64::from(index)), call(1));
    }
    rig.play(secs(200.0));
    let metrics = rig.gateway.metrics();
    let counts = metrics.counts;
    assert_eq!(counts.key_queries, 3);
    assert_eq!(metrics.overhead.quantile(1.0).map(|ns| (ns / 1e6).round()), Some(3.0));
    assert_eq!(rig.gateway.status(secs(200.0)).connections_max, 1);
}

#[test]
fn a_database_without_connections_refuses_every_key() {
    let database =
        Database { max_connections: 5, key_query: Span::from_secs(1), ..Database::default() };
    let auth = Auth { ttl: Span::ZERO, ..Auth::default() };
    let mut rig = Rig::new(GatewayConfig { auth, ..with_database(database) }, after(0.1));
    for key in 0..8 {
        rig.arrive(Time::ZERO, CallSpec { key, ..call(1) });
    }
    rig.play(secs(0.5));
    assert_eq!(rig.refused(Reason::Database), 3);
    rig.play(secs(9.0));
    assert_eq!(rig.answered(), 5);
}

#[test]
fn keys_that_wait_a_minute_for_a_connection_are_refused() {
    let database = Database { pool: 1, key_query: Span::from_secs(50), ..Database::default() };
    let mut rig = Rig::new(with_database(database), after(0.1));
    for key in 0..3 {
        rig.arrive(Time::ZERO, CallSpec { key, ..call(1) });
    }
    rig.play(secs(200.0));
    assert_eq!((rig.answered(), rig.refused(Reason::Database)), (2, 1));
    assert!(rig.log.iter().any(|(at, effect)| {
        *at == secs(60.0) && matches!(effect, Effect::Refused { status: 500, .. })
    }));
}

#[test]
fn rows_reach_a_database_that_keeps_up() {
    let mut rig = Rig::new(with_database(Database::default()), after(0.01));
    for index in 0..1_000_u32 {
        rig.arrive(secs(f64::from(index) * 0.01), call(1));
    }
    rig.play(secs(60.0));
    let (counts, status) = (rig.gateway.counts(), rig.gateway.status(secs(60.0)));
    assert_eq!(
        (counts.spend_rows_written, counts.spend_rows_lost, status.spend_rows),
        (1_000, 0, 0)
    );
    assert_eq!(counts.spend_nanos_written, 1_000_000_000, "one unit of the currency");
}

/// A database a thousand times slower takes 8.1 s for a statement of 31 rows, which are 2 MB: four
/// rows a second of 100 that come. The rest waits up to 64 MB, then is lost, with the money on it.
#[test]
fn a_slow_database_loses_rows_and_money_without_an_error() {
    let spend = Spend { row_bytes: Bytes(64_000), ..Spend::default() };
    // Keys stay known, so that only rows are slow.
    let auth = Auth { ttl: Span::from_secs(3_600), ..Auth::default() };
    let config = GatewayConfig { spend, auth, ..with_database(Database::default()) };
    let mut rig = Rig::new(config, after(0.01));
    rig.arrive(Time::ZERO, call(1));
    rig.play(secs(1.0));
    rig.gateway.slow_database(1_000_000);
    for index in 0..9_000_u32 {
        rig.arrive(secs(1.0 + f64::from(index) * 0.01), call(1));
    }
    rig.play(secs(91.5));
    let status = rig.gateway.status(secs(91.5));
    assert_eq!(status.spend_bytes_max, Bytes(64_000_000), "a thousand rows of 64,000 bytes");
    let counts = rig.gateway.counts();
    let lost = counts.spend_rows_lost;
    let all = counts.spend_rows_written + lost + status.spend_rows;
    assert!((9_001 - 31..=9_001).contains(&all), "but for one statement of 2 MB: {all}");
    assert!((7_600..7_700).contains(&lost), "{lost}");
    assert_eq!(counts.spend_nanos_lost, lost * 1_000_000);
    let told: u64 = rig
        .log
        .iter()
        .map(|(_, effect)| match effect {
            Effect::RowsLost { lost, .. } => lost.rows,
            _ => 0,
        })
        .sum();
    assert_eq!(told, lost);
    assert_eq!(rig.answered(), 9_001, "no client is told");
}

#[test]
fn a_drained_pod_writes_its_rows_first() {
    let mut rig = Rig::new(with_database(Database::default()), after(0.01));
    rig.arrive(Time::ZERO, call(1));
    rig.play(secs(0.5));
    assert_eq!(rig.gateway.status(secs(0.5)).spend_rows, 1);
    let mut effects = Vec::new();
    rig.gateway.drain_pod(secs(0.5), 0, &mut effects);
    assert!(effects.is_empty());
    rig.play(secs(0.6));
    assert_eq!(rig.log.last().unwrap().1, Effect::PodStopped { pod: 0 });
    assert_eq!(rig.gateway.counts().spend_rows_written, 1);
}
