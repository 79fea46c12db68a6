//! Whatever happens, every call ends once, nothing is left over, and the same happens again.

use proptest::prelude::*;

use super::*;
use crate::config::gateway::{
    Admission, Balancer, CountCost, CountPlace, Counting, Database, Limit, PgBouncer, Redis,
    Strategy as Routed,
};
use crate::gateway::breaker::Health;
use crate::gateway::effect::Limited;

#[derive(Clone, Copy, Debug)]
enum Deed {
    Arrive(u64, u32, bool),
    Gone(u32),
    Redis(u8),
    Slow(u64),
    AddPod,
    DrainPod(u32),
    KillPod(u32),
}

fn deed() -> impl Strategy<Value = Deed> {
    prop_oneof![
        20 => (0..40_u64, 0..120_000_u32, any::<bool>())
            .prop_map(|(session, tokens, streams)| Deed::Arrive(session, tokens, streams)),
        2 => (0..60_u32).prop_map(Deed::Gone),
        1 => (0..3_u8).prop_map(Deed::Redis),
        1 => prop_oneof![Just(1_000), Just(1_000_000)].prop_map(Deed::Slow),
        1 => Just(Deed::AddPod),
        1 => (0..4_u32).prop_map(Deed::DrainPod),
        1 => (0..4_u32).prop_map(Deed::KillPod),
    ]
}

fn any_config() -> impl Strategy<Value = GatewayConfig> {
    let strategy = (0..6_usize).prop_map(|index| Routed::ALL[index].1);
    let place = prop_oneof![
        Just(CountPlace::Off),
        Just(CountPlace::EventLoop),
        Just(CountPlace::budget(2)),
        Just(CountPlace::Threads { slots: 2, inline_below: Tokens(0) }),
    ];
    let switches = (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>());
    (strategy, place, switches, 1..4_u32, 1..3_u32).prop_map(
        |(strategy, place, (admits, redis, database, bouncer, pins), replicas, workers)| {
            let mut config = config(replicas);
            config.request_cpu = Span::from_millis(20);
            config.counting = Counting { place, cost: CountCost::PESSIMISTIC };
            config.admission = admits.then_some(Admission::new(3));
            config.redis = redis.then(Redis::default);
            config.database = database.then(|| Database {
                pool: 2,
                max_connections: 3,
                pgbouncer: bouncer
                    .then_some(PgBouncer { server_connections: 1, client_connections: 100 }),
                ..Database::default()
            });
            config.routing.strategy = strategy;
            config.routing.session_affinity = pins;
            config.routing.cache_entries = 8;
            config.limits = vec![Limit { rpm: Some(30), max_parallel: Some(9), tpm: None }];
            config.workers = workers;
            config.pods = 2;
            config.balancer = if pins { Balancer::Session } else { Balancer::Random };
            config.request_timeout = Span::from_secs(30);
            config
        },
    )
}

fn play(config: &GatewayConfig, deeds: &[Deed]) -> Rig {
    let mut rig = Rig::new(config.clone(), |replica, attempt| {
        match (attempt * 7 + u64::from(replica.0)) % 11 {
            0 => Answer::Hangs,
            1 | 2 => Answer::Fails(Span::from_millis(30), Failure::Status(503)),
            3 => Answer::Fails(Span::from_millis(3), Failure::Status(429)),
            4 => Answer::Fails(Span::from_millis(3), Failure::Connection),
            other => Answer::In(Span::from_millis(100 * other)),
        }
    });
    for (index, deed) in (0_u64..).zip(deeds) {
        let now = Time(index * 50_000_000);
        let mut effects = Vec::new();
        match *deed {
            Deed::Arrive(session, tokens, streams) => {
                let limits =
                    [(session % 3 == 0).then_some(Limited { limit: 0, holder: session % 2 }), None];
                let prompt = Tokens(u64::from(tokens));
                rig.arrive(
                    now,
                    CallSpec { prompt, streams, limits, key: session, ..call(session) },
                );
            }
            Deed::Gone(id) => rig.gateway.client_gone(now, CallId(id), &mut effects),
            Deed::Redis(0) => rig.gateway.set_redis(Health::Silent),
            Deed::Redis(1) => rig.gateway.set_redis(Health::Refuses),
            Deed::Redis(_) => rig.gateway.set_redis(Health::Up),
            Deed::Slow(thousandths) => rig.gateway.slow_database(thousandths),
            Deed::AddPod => drop(rig.gateway.add_pod(now)),
            Deed::DrainPod(pod) => rig.gateway.drain_pod(now, pod, &mut effects),
            Deed::KillPod(pod) => rig.gateway.kill_pod(now, pod, &mut effects),
        }
        rig.follow(now, effects);
        rig.play(now);
    }
    rig.play(secs(3_000.0));
    rig
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn every_call_ends_once(config in any_config(), deeds in prop::collection::vec(deed(), 1..80)) {
        let rig = play(&config, &deeds);
        let mut ends = BTreeMap::new();
        for (_, effect) in &rig.log {
            let ended = match effect {
                Effect::Answered { call }
                | Effect::Forgotten { call }
                | Effect::Refused { call, .. } => Some(*call),
                _ => None,
            };
            if let Some(call) = ended {
                *ends.entry(call).or_insert(0) += 1;
            }
        }
        prop_assert_eq!(ends.len(), rig.calls as usize, "a call never ended");
        prop_assert!(ends.values().all(|ends| *ends == 1), "a call ended twice");
        let status = rig.gateway.status(secs(3_000.0));
        prop_assert_eq!((status.in_flight, status.queued), (0, 0));
        prop_assert_eq!(rig.gateway.metrics().counts.attempts, rig.sent.len() as u64);
        prop_assert!(rig.running.is_empty(), "an attempt is still running");
        prop_assert_eq!(rig.gateway.queries.len(), 0);
    }

    #[test]
    fn the_same_happens_again(
        config in any_config(),
        deeds in prop::collection::vec(deed(), 1..60),
    ) {
        let logs = [play(&config, &deeds).log, play(&config, &deeds).log];
        prop_assert_eq!(&logs[0], &logs[1]);
    }
}
