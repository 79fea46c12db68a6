//! Failures, other tries, cooldowns, clients that hang up, pods that go.

use super::*;
use crate::config::gateway::{Admission, Cooldown};
use crate::gateway::client::SdkRetries;

fn fails(failure: Failure) -> impl FnMut(ReplicaId, u64) -> Answer {
    move |_, _| Answer::Fails(Span::from_millis(100), failure)
}

fn statuses(rig: &Rig) -> Vec<u16> {
    let status = |(_, effect): &(Time, Effect)| match effect {
        Effect::Refused { status, .. } => Some(*status),
        _ => None,
    };
    rig.log.iter().filter_map(status).collect()
}

#[test]
fn a_call_that_always_fails_is_sent_three_times() {
    let mut rig = Rig::new(config(2), fails(Failure::Status(503)));
    rig.arrive(Time::ZERO, call(1));
    rig.play(Time::MAX);
    assert_eq!((rig.sent.len(), statuses(&rig)), (3, vec![503]));
    let counts = rig.gateway.metrics().counts;
    assert_eq!((counts.attempts, counts.retried, counts.failed), (3, 2, 1));
    // Another deployment is healthy, so nothing is waited for.
    assert_eq!(rig.log.last().unwrap().0, secs(0.3));
}

#[test]
fn the_only_deployment_is_waited_for() {
    let mut rig = Rig::new(config(1), fails(Failure::Status(503)));
    rig.arrive(Time::ZERO, call(1));
    rig.play(Time::MAX);
    let end = rig.log.last().unwrap().0.secs();
    assert!((0.3 + 1.5..0.3 + 1.5 + 1.5).contains(&end), "0.5 s and 1 s with jitter: {end}");
}

#[test]
fn what_trying_again_does_not_help_is_not_tried_again() {
    for (failure, status) in [(Failure::Status(400), 400), (Failure::ContextWindow, 400)] {
        let mut rig = Rig::new(config(2), fails(failure));
        rig.arrive(Time::ZERO, call(1));
        rig.play(Time::MAX);
        assert_eq!((rig.sent.len(), statuses(&rig)), (1, vec![status]));
    }
}

#[test]
fn pinned_sessions_are_tried_again_where_they_are_pinned() {
    let mut config = config(8);
    config.routing.session_affinity = true;
    let mut rig = Rig::new(config, fails(Failure::Status(500)));
    rig.arrive(Time::ZERO, call(1));
    rig.play(Time::MAX);
    let first = rig.sent[0];
    assert_eq!(rig.sent, [first; 3]);
}

#[test]
fn a_busy_deployment_is_left_alone_for_five_seconds() {
    let busy = Failure::Status(429);
    let answer = move |replica: ReplicaId, _| match replica.0 {
        0 => Answer::Fails(Span::from_millis(1), busy),
        _ => Answer::In(Span::from_millis(1)),
    };
    let mut rig = Rig::new(config(2), answer);
    for index in 0..120_u32 {
        rig.arrive(secs(f64::from(index) * 0.1), call(1));
    }
    rig.play(Time::MAX);
    assert_eq!(rig.answered(), 120, "each failure is tried again on the other");
    let to_busy = rig.sent.iter().filter(|(_, replica)| replica.0 == 0).count();
    assert!((2..=4).contains(&to_busy), "once in five seconds of twelve: {to_busy}");
    assert_eq!(rig.gateway.metrics().counts.cooldowns, to_busy as u64);
}

#[test]
fn a_dead_replica_is_never_left_alone() {
    let answer = |replica: ReplicaId, _| match replica.0 {
        0 => Answer::Fails(Span::from_millis(1), Failure::Connection),
        _ => Answer::In(Span::from_millis(1)),
    };
    let mut rig = Rig::new(config(2), answer);
    for index in 0..400_u32 {
        rig.arrive(secs(f64::from(index) * 0.1), call(1));
    }
    rig.play(Time::MAX);
    assert_eq!(rig.gateway.metrics().counts.cooldowns, 0);
    // Three attempts at even odds.
    let failed = rig.gateway.metrics().counts.failed;
    assert!((30..70).contains(&failed), "an eighth of 400: {failed}");
}

#[test]
fn where_all_are_left_alone_nothing_is_sent() {
    let mut config = config(2);
    config.routing.cooldown = Cooldown { time: Span::from_secs(100), allowed_fails: Some(0) };
    let mut rig = Rig::new(config, fails(Failure::Status(500)));
    rig.arrive(Time::ZERO, call(1));
    rig.play(secs(50.0));
    assert_eq!((rig.sent.len(), statuses(&rig)), (2, vec![429]));
    rig.arrive(secs(101.0), call(1));
    rig.play(Time::MAX);
    assert_eq!(rig.sent.len(), 4);
}

#[test]
fn other_groups_are_tried_in_order_each_with_its_tries() {
    let mut config = config(2);
    config.groups[0].fallbacks = vec![1, 2];
    config.groups[0].context_window_fallbacks = vec![2];
    config.groups.extend(
        ["second", "third"].map(|name| Group { name: name.to_owned(), ..Group::default() }),
    );
    config.deployments.push(Deployment::new(1, ReplicaId(5)));
    config.deployments.push(Deployment::new(2, ReplicaId(6)));
    let answer = |replica: ReplicaId, attempt| match (replica.0, attempt) {
        (6, _) => Answer::In(Span::from_millis(1)),
        (_, 7..) => Answer::Fails(Span::from_millis(1), Failure::ContextWindow),
        _ => Answer::Fails(Span::from_millis(1), Failure::Status(500)),
    };
    let mut rig = Rig::new(config, answer);
    rig.arrive(Time::ZERO, call(1));
    rig.play(Time::MAX);
    let replicas: Vec<u32> = rig.sent.iter().map(|(_, replica)| replica.0).collect();
    assert_eq!(replicas[3..], [5, 5, 5, 6]);
    assert_eq!((rig.answered(), rig.gateway.metrics().counts.fallbacks), (1, 2));
    rig.arrive(secs(100.0), call(1));
    rig.play(Time::MAX);
    assert_eq!(rig.sent[8].1, ReplicaId(6), "a long prompt goes by its own list");
}

#[test]
fn a_hung_connection_holds_its_slot_for_6000_seconds() {
    let mut config = config(1);
    config.admission = Some(Admission::new(1));
    config.retries.num_retries = 0;
    let mut rig = Rig::new(config, |_, attempt| match attempt {
        0 => Answer::Hangs,
        _ => Answer::In(Span::from_millis(10)),
    });
    rig.arrive(Time::ZERO, call(1));
    rig.arrive(secs(5_990.0), call(2));
    rig.arrive(secs(5_999.5), call(3));
    rig.play(Time::MAX);
    assert_eq!(rig.refused(Reason::QueueTimeout), 1);
    assert_eq!(rig.refused(Reason::Upstream(Failure::Timeout)), 1);
    assert_eq!((rig.answered(), rig.gateway.metrics().counts.timeouts), (1, 1));
    assert!(matches!(rig.log[2], (at, Effect::Abandon { .. }) if at == secs(6_000.0)));
}

#[test]
fn a_stream_is_alive_from_its_first_token_on_and_is_not_tried_again() {
    let (mut rig, stream) =
        (Rig::new(config(2), |_, _| Answer::Hangs), CallSpec { streams: true, ..call(1) });
    rig.arrive(Time::ZERO, stream);
    rig.play(secs(5.0));
    rig.gateway.first_token(secs(5.0), CallId(0));
    rig.play(secs(50_000.0));
    assert_eq!(rig.gateway.metrics().counts.timeouts, 0);
    rig.gateway.stalled(secs(50_000.0), CallId(0));
    rig.play(Time::MAX);
    assert_eq!(rig.log.last().unwrap().0, secs(56_000.0));
    assert_eq!((rig.sent.len(), statuses(&rig)), (1, vec![408]));
}

#[test]
fn clients_that_hang_up_free_streams_at_once_and_others_later() {
    let admission = Some(Admission::new(1));
    for (streams, freed) in [(true, 1.0), (false, 8.0)] {
        let mut rig = Rig::new(GatewayConfig { admission, ..config(1) }, after(8.0));
        rig.arrive(Time::ZERO, CallSpec { streams, ..call(1) });
        rig.play(secs(1.0));
        let mut effects = Vec::new();
        rig.gateway.client_gone(secs(1.0), CallId(0), &mut effects);
        rig.follow(secs(1.0), effects);
        rig.play(Time::MAX);
        let (at, end) = *rig.log.last().unwrap();
        assert_eq!((at, end), (secs(freed), Effect::Forgotten { call: CallId(0) }));
        assert_eq!(rig.gateway.status(at).in_flight, 0);
    }
}

/// Clients that mind `retry-after` come back when it says; those that do not multiply the load.
#[test]
fn hasty_clients_multiply_rejections() {
    let offered = |honours_retry_after| {
        let sdk = SdkRetries { honours_retry_after, max_retries: 99, ..SdkRetries::SDK };
        let sdk = SdkRetries { longest: Span::from_millis(500), ..sdk };
        let admission = Some(Admission { max_queued: 0, ..Admission::new(1) });
        let mut rig = Rig::new(GatewayConfig { admission, ..config(1) }, after(10.0));
        rig.arrive(Time::ZERO, call(0));
        rig.arrive(Time(1), call(1));
        let mut refusals = 0;
        loop {
            rig.play(secs(9.9));
            let refused = |(_, effect): &&(Time, Effect)| matches!(effect, Effect::Refused { .. });
            let seen: Vec<_> = rig.log.iter().filter(refused).copied().collect();
            let Some(&(at, Effect::Refused { status, retry_after, .. })) = seen.get(refusals)
            else {
                return rig.gateway.metrics().counts.offered;
            };
            refusals += 1;
            if let Some(wait) = sdk.wait(status, refusals as u32, retry_after, 1, 1) {
                rig.arrive(at + wait, call(1));
            }
        }
    };
    assert_eq!(offered(true), 2 + 9, "once a second");
    assert!(offered(false) > 2 + 19, "{}", offered(false));
}

#[test]
fn a_drained_pod_finishes_and_a_killed_one_does_not() {
    let run = |kills: bool| {
        let mut rig = Rig::new(GatewayConfig { pods: 2, ..config(1) }, after(8.0));
        for index in 0..20 {
            rig.arrive(Time(index), call(index));
        }
        rig.play(secs(1.0));
        let mut effects = Vec::new();
        match kills {
            true => rig.gateway.kill_pod(secs(1.0), 0, &mut effects),
            false => rig.gateway.drain_pod(secs(1.0), 0, &mut effects),
        }
        rig.follow(secs(1.0), effects);
        rig.arrive(secs(2.0), call(99));
        rig.play(Time::MAX);
        let stopped = rig.log.iter().find(|(_, e)| *e == Effect::PodStopped { pod: 0 }).unwrap();
        (stopped.0.secs().round(), rig.answered(), rig.refused(Reason::WorkerKilled))
    };
    assert_eq!(run(false), (8.0, 21, 0));
    let (at, answered, killed) = run(true);
    assert_eq!((at, answered + killed), (1.0, 21));
    assert!((4..=16).contains(&killed), "{killed}");
}

#[test]
fn without_a_pod_requests_are_refused() {
    let mut rig = Rig::new(config(1), after(1.0));
    let mut effects = Vec::new();
    rig.gateway.drain_pod(Time::ZERO, 0, &mut effects);
    assert_eq!(effects, [Effect::PodStopped { pod: 0 }]);
    rig.arrive(Time(1), call(1));
    rig.play(secs(1.0));
    assert_eq!(rig.refused(Reason::NoWorker), 1);
    assert_eq!(rig.gateway.add_pod(secs(1.0)), 1);
    rig.arrive(secs(2.0), call(1));
    rig.play(secs(9.0));
    assert_eq!(rig.answered(), 1);
}

/// A replica that comes gets what the others have, and one that goes is sent nothing more.
#[test]
fn replicas_come_into_the_list_and_go_out_of_it() {
    let mut rig = Rig::new(config(1), after(1.0));
    let sent_to = |rig: &mut Rig, at: f64| {
        let before = rig.sent.len();
        (0..20).for_each(|session| rig.arrive(secs(at), call(session)));
        rig.play(secs(at + 9.0));
        let sent = rig.sent[before..].iter().map(|(_, replica)| replica.0);
        sent.collect::<std::collections::BTreeSet<u32>>().into_iter().collect::<Vec<u32>>()
    };
    assert_eq!(sent_to(&mut rig, 0.0), [0]);
    rig.gateway.list(ReplicaId(7));
    rig.gateway.list(ReplicaId(7));
    assert_eq!(rig.gateway.config().deployments.len(), 2);
    assert_eq!(sent_to(&mut rig, 10.0), [0, 7]);
    rig.gateway.unlist(ReplicaId(0));
    assert_eq!(sent_to(&mut rig, 20.0), [7]);
    rig.gateway.list(ReplicaId(0));
    assert_eq!(sent_to(&mut rig, 30.0), [0, 7]);
    rig.gateway.unlist(ReplicaId(0));
    rig.gateway.unlist(ReplicaId(7));
    assert!(sent_to(&mut rig, 40.0).is_empty());
    assert_eq!(rig.refused(Reason::Upstream(Failure::NoDeployment)), 20);
}
