//! What is known of the gateway, shown by scenarios: limits that workers multiply, connections,
//! admissions a second, pins, outages of its stores.

use tonnage::config::scenario::Scenario;
use tonnage::fleet::Progress;
use tonnage::rng::{Purpose, Stream};
use tonnage::sizing::case::Case;
use tonnage::sizing::figures::Figures;
use tonnage::trace::record::{Call, Name, Trace};
use tonnage::units::Span;

use super::given::{With, call, trace};

const HEAD: &str = "
[engine]
model = 'Llama-3.1-8B'
gpu = 'h100-sxm'
max_model_len = 131072
";

/// The figures of a scenario's fleet on a trace.
fn figures(text: &str, trace: &Trace) -> Figures {
    let scenario = Scenario::parse(&format!("{HEAD}{text}"), "shown.toml", &[]).unwrap();
    let replicas = scenario.replicas;
    let case = Case::new(scenario, trace, &[]).unwrap();
    case.judge(&case.run(replicas, &Progress::default()).unwrap()).figures
}

/// Short calls, one every so many milliseconds, the tenants in turn.
fn of_tenants(calls: u64, every_ms: u64, tenants: u64) -> Trace {
    let one = |number: u64| {
        let tenant = Name::from(format!("t{}", number % tenants));
        (number * every_ms, vec![Call { tenant, ..call(20, 1) }])
    };
    trace((0..calls).map(one).collect())
}

/// Three pods of four workers that take turns, clients that do not ask again.
fn twelve_workers(more: &str) -> String {
    format!(
        "[client]\nmax_retries = 0\n[gateway]\nreplicas = 3\nnum_workers = 4\ncores = 4\n\
         balancer = 'round_robin'\n{more}"
    )
}

#[test]
fn a_hundred_requests_a_minute_are_1200_with_four_workers_and_three_replicas() {
    let answered = |more: &str, tenants: u64| {
        let trace = of_tenants(2_400 * tenants, 24 / tenants, tenants);
        let gateway = figures(&twelve_workers(more), &trace).gateway.unwrap().counts;
        assert_eq!(gateway.answered + gateway.rate_limited, 2_400 * tenants);
        gateway.answered
    };
    assert_eq!(answered("rpm_limit = 100\n", 1), 1_200);
    assert_eq!(answered("rpm_limit = 100\nredis = true\n", 1), 100);
    // Each tenant is a key of its own, with a whole limit in each worker.
    assert_eq!(answered("rpm_limit = 100\n", 2), 2_400);
    assert_eq!(answered("rpm_limit = 100\nredis = true\n", 2), 200);
    let own = "rpm_limit = 100\nredis = true\n[gateway.limits.t1]\nrpm_limit = 7\n";
    assert_eq!(answered(own, 2), 107);
}

/// A database that takes three seconds for a key has every connection opened.
#[test]
fn a_pod_of_four_workers_opens_40_connections_and_three_pods_120() {
    let trace = of_tenants(2_000, 5, 2_000);
    let of = |pods: u32, more: &str| {
        let text = format!(
            "[gateway]\nreplicas = {pods}\nnum_workers = 4\ncores = 4\ndatabase = true\n{more}\
             [[events]]\nat_s = 0\nkind = 'database_slow'\ntimes_slower = 1000\n"
        );
        let gateway = figures(&text, &trace).gateway.unwrap();
        (gateway.connections_max, gateway.counts.connections_refused > 0)
    };
    assert_eq!(of(1, ""), (40, false));
    assert_eq!(of(3, "database_max_connections = 500\n"), (120, false));
    assert_eq!(of(3, ""), (100, true), "PostgreSQL's own bound");
    assert_eq!(of(3, "pgbouncer = true\n"), (120, false));
}

#[test]
fn forty_admissions_a_second_take_four_cores_and_one_gives_ten() {
    let calls = (0..2_000).map(|number| (number * 10, vec![call(100_000, 1)])).collect();
    let trace = trace(calls);
    let a_second = |cores: u32, cost: &str| {
        let text = format!(
            "[run]\nwindow_s = 20\n[gateway]\ncores = {cores}\nrequest_cpu_ms = 0\n\
             token_counting = 'threads'\ntoken_count_cost = '{cost}'\n"
        );
        figures(&text, &trace).gateway.unwrap().counts.attempts as f64 / 20.0
    };
    let rates = [1, 2, 4, 8].map(|cores| a_second(cores, "pessimistic"));
    for (rate, expected) in rates.into_iter().zip([10.0, 20.0, 40.0, 40.0]) {
        assert!((expected - 0.3..=expected).contains(&rate), "{rates:?}");
    }
    let measured = a_second(1, "measured");
    assert!((21.8..=22.3).contains(&measured), "{measured}");
}

/// The order in which the sessions' calls come.
#[derive(Clone, Copy, PartialEq)]
enum Order {
    InTurn,
    Random,
}

const CALLS: u64 = 12_000;

/// Calls of so many sessions, one every 100 ms. `late` percent of the answers take longer than that.
fn sessions_in(order: Order, sessions: u64, late: u64) -> Trace {
    let mut chance = Stream::new(3, Purpose::SessionOrder, sessions);
    let mut lags = Stream::new(4, Purpose::SessionOrder, sessions);
    let mut all: Vec<(u64, Vec<Call>)> = vec![(0, Vec::new()); sessions as usize];
    for number in 0..CALLS {
        let session = match order {
            Order::InTurn => number % sessions,
            Order::Random => chance.uniform_below(sessions),
        };
        let output = if lags.uniform_below(100) < late { 16 } else { 1 };
        let (start, calls) = &mut all[session as usize];
        let at = number * 100;
        let made = call(20, output);
        if calls.is_empty() {
            *start = at;
            calls.push(made);
        } else {
            let after = (calls.len() - 1).to_string();
            calls.push(made.after(&after).gap(at - *start));
        }
    }
    all.retain(|(_, calls)| !calls.is_empty());
    all.sort_by_key(|(start, _)| *start);
    let mut made = trace(all);
    // What is a gap above is the time since the session's start.
    for session in &mut made.sessions {
        let first = session.calls[0].at;
        for call in &mut session.calls[1..] {
            call.at = first + std::mem::take(&mut call.gap);
        }
    }
    made
}

fn stay(trace: &Trace, more: &str) -> f64 {
    let text = format!(
        "[fleet]\nreplicas = 4\n[workload]\nopen_loop = true\n[run]\nwarmup_s = 120\n\
         [gateway]\nsession_affinity = true\n{more}"
    );
    100.0 * figures(&text, trace).gateway.unwrap().stayed.unwrap()
}

/// The points measured on the real Router: four replicas, one worker, no Redis.
const MEASURED: [(Order, u64, u64, f64); 10] = [
    (Order::InTurn, 150, 0, 100.0),
    (Order::InTurn, 190, 0, 100.0),
    // At the edge it depends on how many answers are counted after the next call was routed.
    (Order::InTurn, 200, 9, 31.0),
    (Order::InTurn, 250, 0, 23.0),
    (Order::InTurn, 400, 0, 27.0),
    (Order::Random, 220, 0, 92.0),
    (Order::Random, 250, 0, 85.0),
    (Order::Random, 300, 0, 76.0),
    (Order::Random, 400, 0, 63.0),
    (Order::Random, 800, 0, 42.0),
];

#[test]
fn the_measured_points_of_the_pin_cliff() {
    let mut off = Vec::new();
    for (order, sessions, late, measured) in MEASURED {
        let found = stay(&sessions_in(order, sessions, late), "");
        println!("{sessions} {late} {found} {measured}");
        if (found - measured).abs() > 3.0 {
            off.push((sessions, found, measured));
        }
    }
    assert!(off.is_empty(), "sessions, simulated, measured: {off:?}");
}

#[test]
fn with_redis_every_session_stays() {
    for (order, sessions) in [(Order::InTurn, 400), (Order::Random, 800)] {
        let trace = sessions_in(order, sessions, 0);
        assert_eq!(stay(&trace, "redis = true\n"), 100.0);
        assert_eq!(stay(&trace, "redis = true\nreplicas = 2\nnum_workers = 2\n"), 100.0);
    }
}

/// Ten requests a second of one key through three workers, under a limit of 100 a minute, for five
/// minutes. From the second to the fourth Redis is away: every worker counts for itself, nobody is
/// told, and a breaker that rests notices up to a minute late that Redis is back.
#[test]
fn an_outage_of_redis_loses_the_global_limit_without_an_error() {
    let trace = of_tenants(3_000, 100, 1);
    let of = |events: &str| {
        let text = format!(
            "[client]\nmax_retries = 0\n[gateway]\nnum_workers = 3\ncores = 3\n\
             balancer = 'round_robin'\nredis = true\nrpm_limit = 100\n{events}"
        );
        figures(&text, &trace).gateway.unwrap().counts
    };
    let whole = of("");
    assert_eq!((whole.answered, whole.rate_limited, whole.redis_stood_in), (500, 2_500, 0));
    let without = of("[[events]]\nat_s = 60\nkind = 'redis_outage'\nfor_s = 120\n");
    // 100 in the first minute, 300 in each of the outage, and then 100 again, but for the counters
    // that Redis and the workers still have.
    println!("{without:?}");
    assert_eq!(without.answered + without.rate_limited, 3_000, "no error of another kind");
    assert!((900..=1_200).contains(&without.answered), "{without:?}");
    assert!(without.breakers_opened >= 3 && without.redis_stood_in >= 1_200, "{without:?}");
    // A Redis that does not answer is waited for, five times a worker, five seconds each.
    let silent = of("[[events]]\nat_s = 60\nkind = 'redis_outage'\nfor_s = 120\nsilent = true\n");
    println!("{silent:?}");
    assert_eq!(silent.answered + silent.rate_limited, 3_000);
}

/// Prompts are stored, so that a row has 400 KB. A database that is as slow as this for ten minutes
/// takes five rows, which are 2 MB, in half a minute; the queue holds 160; the rest is lost.
#[test]
fn a_slow_database_loses_rows_and_money() {
    let trace = of_tenants(6_000, 200, 1);
    let of = |events: &str| {
        let text = format!(
            "[gateway]\ndatabase = true\nspend_row_bytes = 400000\nuser_api_key_cache_ttl = 9999\n\
             input_cost_per_token = 1e-6\noutput_cost_per_token = 5e-6\n{events}"
        );
        figures(&text, &trace)
    };
    let row = 20.0 * 1e-6 + 5e-6;
    let quick = of("").gateway.unwrap();
    assert_eq!(quick.counts.spend_rows_lost, 0);
    assert_eq!(quick.counts.spend_rows_written + quick.spend_rows_waiting, 6_000);
    let slow =
        of("[[events]]\nat_s = 60\nkind = 'database_slow'\ntimes_slower = 5000\nfor_s = 600\n");
    let gateway = slow.gateway.unwrap();
    println!("{gateway:?}");
    assert_eq!(gateway.counts.answered, 6_000, "no client is told");
    assert_eq!(gateway.spend_queue_bytes_max, 64_000_000);
    let lost = gateway.counts.spend_rows_lost;
    assert!((2_700..2_900).contains(&lost), "{lost}");
    let usd = gateway.spend_usd_lost.unwrap();
    assert!((usd - lost as f64 * row).abs() < 1e-9, "{usd}");
    assert_eq!(Span::from_secs(600).secs(), 600.0);
}
