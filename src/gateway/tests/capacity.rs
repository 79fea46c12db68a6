//! Admission, counting and cores.

use super::*;
use crate::config::gateway::{Admission, Balancer, CountCost, CountPlace, Counting};

/// Requests of 100K tokens sent to replicas in a second, of far more that arrive.
fn admissions_per_s(place: CountPlace, cost: CountCost, cores: u32) -> f64 {
    let counting = Counting { place, cost };
    let config = GatewayConfig { counting, pod_millicores: cores * 1_000, ..config(2) };
    let mut rig = Rig::new(config, after(5.0));
    for arrival in 0..2_000_u32 {
        rig.arrive(secs(f64::from(arrival) / 200.0), call(u64::from(arrival)));
    }
    rig.play(secs(10.0));
    rig.sent.len() as f64 / 10.0
}

#[test]
fn forty_admissions_a_second_take_four_cores() {
    let rate = |cores| admissions_per_s(CountPlace::LIMITER, CountCost::PESSIMISTIC, cores);
    assert!((39.0..=40.0).contains(&rate(4)), "{}", rate(4));
    assert!((9.5..=10.0).contains(&rate(1)), "{}", rate(1));
    assert!((19.0..=20.0).contains(&rate(2)), "{}", rate(2));
    assert_eq!(rate(4), rate(16), "the limiter is the bound, not the cores");
}

#[test]
fn at_the_measured_cost_a_core_counts_22_a_second() {
    let rate = admissions_per_s(CountPlace::LIMITER, CountCost::MEASURED, 1);
    assert!((21.5..=22.3).contains(&rate), "{rate}");
}

#[test]
fn the_event_loop_counts_one_at_a_time_whatever_the_cores() {
    let rate = admissions_per_s(CountPlace::EventLoop, CountCost::PESSIMISTIC, 8);
    assert!((9.5..=10.0).contains(&rate), "{rate}");
    let eight = admissions_per_s(
        CountPlace::Threads { slots: 8, inline_below: Tokens(0) },
        CountCost::PESSIMISTIC,
        8,
    );
    assert!((79.0..=80.0).contains(&eight), "{eight}");
}

#[test]
fn without_a_budget_nothing_is_counted() {
    let mut rig = Rig::new(
        GatewayConfig {
            counting: Counting { place: CountPlace::LIMITER, cost: CountCost::PESSIMISTIC },
            ..config(1)
        },
        after(1.0),
    );
    rig.arrive(Time::ZERO, CallSpec { is_counted: false, ..call(1) });
    rig.play(secs(2.0));
    assert_eq!(rig.gateway.metrics().counts.token_counts, 0);
    assert_eq!(rig.gateway.metrics().overhead.quantile(0.5), Some(0.0));
}

#[test]
fn strategies_that_go_by_tokens_count_on_the_loop() {
    let mut config = config(2);
    config.routing.strategy = crate::config::gateway::Strategy::Latency;
    let mut rig = Rig::new(config, after(1.0));
    rig.arrive(Time::ZERO, CallSpec { is_counted: false, ..call(1) });
    rig.play(secs(2.0));
    let overhead = rig.gateway.metrics().overhead.mean().unwrap();
    assert_eq!(overhead, 45_016_000.0, "100K tokens at the measured cost, no tools");
}

#[test]
fn a_slot_is_held_until_the_answer_is_through() {
    let admission = Some(Admission { max_queued: 3, ..Admission::new(2) });
    let mut rig = Rig::new(GatewayConfig { admission, ..config(1) }, after(0.6));
    for arrival in 0..6 {
        rig.arrive(Time(arrival), call(arrival));
    }
    rig.play(secs(5.0));
    // Two at once, two when those end; the fifth waits a second in vain, the sixth has no place.
    assert_eq!(rig.refused(Reason::QueueFull), 1);
    assert_eq!(rig.refused(Reason::QueueTimeout), 1);
    assert_eq!(rig.answered(), 4);
    let is_503 = |(_, effect): &&(Time, Effect)| {
        matches!(effect, Effect::Refused { status: 503, retry_after, .. }
            if *retry_after == Some(Span::from_secs(1)))
    };
    assert_eq!(rig.log.iter().filter(is_503).count(), 2);
    let counts = rig.gateway.metrics().counts;
    assert_eq!((counts.offered, counts.admitted, counts.queued, counts.rejected), (6, 4, 2, 2));
    let status = rig.gateway.status(secs(5.0));
    assert_eq!((status.in_flight, status.queued), (0, 0));
}

#[test]
fn workers_of_a_pod_share_its_cores_and_pods_do_not() {
    let time = |pods, workers| {
        let config = GatewayConfig {
            request_cpu: Span::from_millis(100),
            balancer: Balancer::RoundRobin,
            pods,
            workers,
            ..config(1)
        };
        let mut rig = Rig::new(config, after(1.0));
        for arrival in 0..4 {
            rig.arrive(Time::ZERO, call(arrival));
        }
        rig.play(secs(9.0));
        rig.gateway.metrics().overhead.quantile(1.0).unwrap() / 1e6
    };
    let near = |found: f64, ms: f64| assert!((found / ms - 1.0).abs() < 0.01, "{found} {ms}");
    near(time(1, 1), 400.0);
    near(time(1, 4), 400.0);
    near(time(4, 1), 100.0);
}

#[test]
fn sessions_stay_with_a_worker_if_the_balancer_says_so() {
    let run = |balancer| {
        let config = GatewayConfig { balancer, pods: 2, workers: 4, ..config(1) };
        let mut gateway = Gateway::new(config, 1);
        let picks = (0..50).map(|_| gateway.pick_worker(Some(7)));
        picks.collect::<std::collections::BTreeSet<_>>().len()
    };
    assert_eq!(run(Balancer::Session), 1);
    assert_eq!(run(Balancer::RoundRobin), 8);
    assert_eq!(run(Balancer::Random), 8);
}
