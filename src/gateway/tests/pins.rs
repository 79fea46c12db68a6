//! The pins of sessions in a cache of 200 entries, against measurements.
//!
//! Measured on the Router of LiteLLM 1.102.0 with four deployments, one worker, no Redis and mocked
//! answers: the share of calls that go where their session's call before went.

use super::*;
use crate::config::gateway::{Balancer, Redis};
use crate::rng::{Purpose, Stream};

/// The order of the sessions' calls.
#[derive(Clone, Copy)]
enum Order {
    RoundRobin,
    Random,
}

/// Share of calls, in percent, that stay where their session was. LiteLLM counts an answer in the
/// background, `lag` percent of the time only after the next call was routed.
fn stay(config: GatewayConfig, sessions: u64, order: Order, lag: u64, calls: u64) -> f64 {
    let mut chance = Stream::new(3, Purpose::SessionOrder, sessions);
    let mut lags = Stream::new(4, Purpose::SessionOrder, sessions);
    let mut rig = Rig::new(config, move |_, _| {
        Answer::In(Span::from_millis(if lags.uniform_below(100) < lag { 3 } else { 1 }))
    });
    for index in 0..calls {
        let session = match order {
            Order::RoundRobin => index % sessions,
            Order::Random => chance.uniform_below(sessions),
        };
        rig.arrive(Time(index * 2_000_000), call(session));
    }
    rig.play(Time::MAX);
    let mut last = BTreeMap::new();
    let (mut stayed, mut moved) = (0_u32, 0_u32);
    for (session, replica) in &rig.sent {
        match last.insert(*session, *replica) {
            Some(before) if before == *replica => stayed += 1,
            Some(_) => moved += 1,
            None => {}
        }
    }
    100.0 * f64::from(stayed) / f64::from(stayed + moved)
}

fn pinned(replicas: u32) -> GatewayConfig {
    let mut config = config(replicas);
    config.routing.session_affinity = true;
    config
}

fn near(found: f64, measured: f64) {
    assert!((found - measured).abs() <= 3.0, "{found:.1} % is not {measured} %");
}

#[test]
fn about_200_live_sessions_is_a_cliff() {
    for (sessions, measured) in [(190, 100.0), (250, 23.0)] {
        near(stay(pinned(4), sessions, Order::RoundRobin, 0, 20_000), measured);
    }
    let random = [(220, 92.0), (250, 85.0), (300, 76.0), (400, 63.0), (800, 42.0)];
    for (sessions, measured) in random {
        let found = stay(pinned(4), sessions, Order::Random, 0, 40_000);
        near(found, measured);
        let c = (200.0 / sessions as f64).min(1.0);
        near(found, 100.0 * (c + (1.0 - c) / 4.0));
    }
}

/// At the edge itself the order of pins and counters decides: the counters of an answer push out
/// the pin that is needed next. If each answer is counted before the next call is routed, no pin is
/// ever found and a quarter stay by chance. Answers that are counted late let a pin live; how late
/// they were in the measurement (31 %) is not known, one in eleven explains it.
#[test]
fn at_200_sessions_in_turn_almost_no_pin_is_found() {
    near(stay(pinned(4), 200, Order::RoundRobin, 0, 40_000), 25.0);
    near(stay(pinned(4), 200, Order::RoundRobin, 9, 40_000), 31.0);
}

#[test]
fn with_redis_every_session_stays() {
    for (sessions, order) in [(400, Order::RoundRobin), (800, Order::Random)] {
        let redis = Some(Redis::default());
        let config = GatewayConfig { redis, ..pinned(4) };
        assert_eq!(stay(config, sessions, order, 0, 8_000), 100.0);
        let many = GatewayConfig { redis, pods: 2, workers: 2, ..pinned(4) };
        assert_eq!(stay(many, sessions, order, 0, 8_000), 100.0);
    }
}

/// Each worker pins for itself, so a session that is balanced at random is spread over the
/// replicas, and the balancer's stickiness mends it.
#[test]
fn workers_without_redis_pin_apart() {
    let of = |balancer| GatewayConfig { workers: 8, balancer, ..pinned(4) };
    let random = stay(of(Balancer::Random), 100, Order::Random, 0, 40_000);
    // Two workers agree by chance only: 1/8 + 7/8 of 1/4.
    near(random, 100.0 * (1.0 / 8.0 + 7.0 / 8.0 / 4.0));
    near(stay(of(Balancer::Session), 100, Order::Random, 0, 40_000), 100.0);
    // With as many entries for each, eight workers hold eight times the sessions.
    near(stay(of(Balancer::Session), 800, Order::Random, 0, 40_000), 100.0);
}

#[test]
fn a_pin_outlives_its_last_use_by_an_hour() {
    let mut rig = Rig::new(pinned(64), after(1.0));
    let mut gap = |hours: f64| {
        let at = rig.log.last().map_or(0.0, |(at, _)| at.secs());
        rig.arrive(secs(at + hours * 3_600.0), call(1));
        rig.play(Time::MAX);
    };
    (0..5).for_each(|_| gap(0.9));
    gap(1.1);
    let replicas: Vec<ReplicaId> = rig.sent.iter().map(|(_, replica)| *replica).collect();
    assert!(replicas[..5].iter().all(|replica| *replica == replicas[0]), "{replicas:?}");
    assert_eq!(rig.gateway.metrics().counts.pin_misses, 2);
    assert_ne!(replicas[5], replicas[0], "one in 64 that this is chance");
}
