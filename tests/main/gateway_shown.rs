//! What is known of the gateway, shown by scenarios: limits that workers multiply, connections,
//! admissions a second, pins, outages of its stores.

use tonnage::config::scenario::Scenario;
use tonnage::fleet::Progress;
use tonnage::rng::{Purpose, Stream};
use tonnage::sizing::case::Case;
use tonnage::sizing::figures::Figures;
use tonnage::trace::record::{Call, Name, Trace};

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
        let trace = of_tenants(2_400 * tenants, 20 / tenants, tenants);
        let gateway = figures(&twelve_workers(more), &trace).gateway.unwrap().counts;
        assert_eq!(gateway.answered + gateway.rate_limited, 2_400 * tenants);
        gateway.answered
    };
    assert_eq!(answered("rpm_limit = 100\n", 1), 1_200);
    assert_eq!(answered("rpm_limit = 100\nredis = true\n", 1), 100);
    // Each tenant is a key of its own, with a whole limit in each worker.
    assert_eq!(answered("rpm_limit = 100\n", 5), 6_000);
    assert_eq!(answered("rpm_limit = 100\nredis = true\n", 5), 500);
    let own = "rpm_limit = 100\nredis = true\n[gateway.limits.t1]\nrpm_limit = 7\n";
    assert_eq!(answered(own, 5), 407);
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

/// Calls of so many sessions, one every 100 ms. `late` percent of the answers take longer.
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
    // 100 in the first minute and in each with Redis; in the outage, and until breakers notice its
    // end, each worker has its own hundred, of a minute that begins with its first request.
    assert_eq!(without.answered + without.rate_limited, 3_000, "no error of another kind");
    // They rest until 181.2 s, when four requests of each have come: 6 * 100 + 3 * 4 + 3 * 100.
    assert_eq!(without.answered, 912, "{without:?}");
    // Three breakers open, and once more when they try after a minute.
    assert_eq!(without.breakers_opened, 6);
    // A Redis that does not answer is waited for; after five of these a breaker opens as well.
    // Each request waits for 5 s before it is counted, so the hundreds of a worker begin at 65 s,
    // 125 s and 185 s. Its breaker opens at 66 s and at 131 s, after a trial that takes 5 s, and
    // rests until 191 s: 21 requests of each worker are let through by its third hundred.
    let silent = of("[[events]]\nat_s = 60\nkind = 'redis_outage'\nfor_s = 120\nsilent = true\n");
    assert_eq!(silent.answered + silent.rate_limited, 3_000);
    assert_eq!((silent.answered, silent.breakers_opened), (963, 6), "{silent:?}");
    // One that begins when another ends: as one that is as long as both.
    let halves =
        [60, 120].map(|at| format!("[[events]]\nat_s = {at}\nkind = 'redis_outage'\nfor_s = 60\n"));
    assert_eq!(of(&halves.concat()), without);
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
    assert_eq!(gateway.counts.answered, 6_000, "no client is told");
    assert_eq!(gateway.spend_queue_bytes_max, 64_000_000);
    let lost = gateway.counts.spend_rows_lost;
    // From 60 s until the statement ends that runs at 660 s, at 688 s at the latest, 3,000 to 3,140
    // rows come, up to 50 wait before, 160 wait behind, and 20 to 22 statements of 27.5 s each take
    // five: 2,730 to 2,930 are lost.
    assert_eq!(lost, 2_810);
    let usd = gateway.spend_usd_lost.unwrap();
    assert!((usd - lost as f64 * row).abs() < 1e-9, "{usd}");
    let halves = [60, 360].map(|at| {
        format!(
            "[[events]]\nat_s = {at}\nkind = 'database_slow'\ntimes_slower = 5000\nfor_s = 300\n"
        )
    });
    let halved = of(&halves.concat()).gateway.unwrap();
    assert_eq!(halved.counts, gateway.counts, "one that begins when another ends");
}

/// A burst for which an autoscaler starts replicas one after another: each has a number of its own,
/// and what is counted is those that were held at once.
#[test]
fn an_autoscaled_fleet_is_as_large_as_what_it_held() {
    let busy = |minute: u64| minute % 20 < 5;
    let minutes = (0..120).filter(|minute| busy(*minute));
    let starts = minutes.flat_map(|minute| (0..60).map(move |second| minute * 60 + second));
    let trace = trace(starts.map(|second| (second * 1_000, vec![call(8_000, 400)])).collect());
    let text = "[autoscale.engines]\nmax_replicas = 3\nrequests_waiting = 2\nstartup_s = 30\n\
                down_stabilization_s = 60\ngrace_s = 60\n[cost]\nusd_per_gpu_hour = 2\n";
    let text = text.replacen("[autoscale", "max_num_seqs = 2\n[autoscale", 1);
    let figures = figures(&text, &trace);
    let scaling = figures.replica_scaling.unwrap();
    // Three cycles and more start two replicas each time.
    assert!(scaling.changes >= 6, "{scaling:?}");
    assert_eq!((figures.replicas, figures.gpus), (scaling.held_max, scaling.held_max));
    // What drains has a minute, and the next burst comes after a quarter of an hour: no more than
    // `max_replicas` are held at once.
    assert_eq!(scaling.held_max, 3, "{scaling:?}");
    let hours = figures.window_s / 3_600.0;
    let gpu_hours = scaling.gpu_hours.unwrap();
    assert!((gpu_hours - scaling.held_mean * hours).abs() < 1e-6 * gpu_hours);
    let cost = figures.cost.unwrap();
    assert!((cost.usd_per_hour - 2.0 * scaling.held_mean).abs() < 1e-9);
    let per_gpu = figures.throughput.tasks_per_hour / scaling.held_mean;
    assert!((figures.throughput.tasks_per_hour_per_gpu - per_gpu).abs() < 1e-9);
    assert!((0.3..0.95).contains(&figures.gpu.idle), "{:?}", figures.gpu);
}

/// A config of two model groups, and what comes of a trace that asks for these models.
fn asked(groups: &[&str], models: &[&str], more: &str) -> Result<Vec<String>, String> {
    let folder = tempfile::tempdir().unwrap();
    let deployment = |name: &&str| {
        format!(
            "  - {{model_name: {name}, litellm_params: {{model: x/y, api_base: 'http://a'}}}}\n"
        )
    };
    let list: String = groups.iter().map(deployment).collect();
    let config = folder.path().join("config.yaml");
    std::fs::write(&config, format!("model_list:\n{list}")).unwrap();
    let text = format!("{HEAD}[gateway]\nconfig = '{}'\n{more}", config.display());
    let scenario = Scenario::parse(&text, "shown.toml", &[]).unwrap();
    let calls =
        models.iter().map(|name| (0, vec![Call { model: Name::from(*name), ..call(9, 1) }]));
    let trace = trace(calls.collect());
    let case = Case::new(scenario, &trace, &[]).map_err(|error| error.to_string())?;
    Ok(case.warnings().map(|warning| warning.0.clone()).collect())
}

#[test]
fn a_model_that_no_group_is_called_as_is_told() {
    let both = ["coder", "small"];
    assert_eq!(asked(&both, &["coder", "small"], ""), Ok(Vec::new()));
    let slip = asked(&both, &["coder", "smal"], "").unwrap_err();
    assert!(slip.contains("no model group is called `smal`"), "{slip}");
    assert!(slip.contains("did you mean `small`?") && slip.contains("gateway.config"), "{slip}");
    let other = asked(&both, &["claude"], "").unwrap_err();
    assert!(other.contains("there are: coder, small"), "{other}");
    assert_eq!(asked(&both, &["claude"], "[models]\nclaude = 'small'\n"), Ok(Vec::new()));
    let three = asked(&["coder"], &["a", "b", "c"], "").unwrap();
    assert!(three[0].contains("calls of it and 2 others go"), "{three:?}");
    let two = asked(&["coder"], &["a", "b"], "").unwrap();
    assert!(two[0].contains("calls of it and 1 other go"), "{two:?}");
    let only = asked(&["coder"], &["claude"], "").unwrap();
    assert!(only[0].contains("`claude`") && only[0].contains("only one, `coder`"), "{only:?}");
}

/// A trace that is read while it is played tells who has no group once it is over.
#[test]
fn a_streamed_replay_tells_of_a_model_without_a_group() {
    let folder = super::small::folder();
    let list =
        "model_list:\n  - {model_name: coder, litellm_params: {model: x/y, api_base: 'http://a'}}";
    std::fs::write(folder.path().join("config.yaml"), list).unwrap();
    let text = format!("trace = 't.csv'\n{HEAD}[gateway]\nconfig = 'config.yaml'\n");
    std::fs::write(folder.path().join("s.toml"), text).unwrap();
    let output =
        super::small::tonnage(folder.path(), &["replay", "s.toml", "--json"]).output().unwrap();
    let answer: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let warnings = answer["warnings"].as_array().unwrap();
    let is_told = |text: &str| text.contains("no model group") && text.contains("is called `m`");
    assert!(warnings.iter().any(|one| is_told(one.as_str().unwrap())), "{warnings:?}");
}

#[test]
fn outages_that_cannot_happen_are_refused() {
    let outage = "[[events]]\nat_s = 1\nkind = 'redis_outage'\n";
    let slow = "[[events]]\nat_s = 1\nkind = 'database_slow'\n";
    let engines = "[autoscale.engines]\nmax_replicas = 3\n";
    for (text, said) in [
        (outage.to_owned(), "there is no Redis"),
        (format!("[gateway]\ndatabase = true\n{outage}"), "there is no Redis"),
        (format!("[gateway]\nredis = true\n{slow}times_slower = 9\n"), "there is no database"),
        (format!("[gateway]\ndatabase = true\n{slow}"), "times_slower: this key is needed"),
        (format!("[gateway]\ndatabase = true\n{slow}times_slower = 0.5\n"), "a number from 1"),
        (format!("[gateway]\nredis = true\n{outage}silent = 1\n"), "true or false"),
        (format!("[gateway]\nredis = true\n{outage}drain_s = 1\n"), "does not go with kind"),
        (format!("[gateway]\nredis = true\n{outage}{outage}"), "at once"),
        (format!("[gateway]\nredis = true\n{outage}for_s = 0\n"), "for_s: an event of 0 s does"),
        (format!("[gateway]\nredis = true\n{outage}for_s = 1e-10\n"), "for_s: an event of 0 s"),
        (
            format!("[gateway]\ndatabase = true\n{slow}times_slower = 9\nfor_s = 0\n"),
            "for_s: an event of 0 s does",
        ),
        (
            format!(
                "[fleet]\nreplicas = 2\n{engines}[[events]]\nat_s = 1\nkind = 'added'\nreplica = 1"
            ),
            "does not go with [autoscale.engines]",
        ),
        (format!("{engines}min_replicas = 0\n"), "scaling to none is not modelled"),
        ("[client]\ntimeout_s = 60\n".to_owned(), "only goes with [gateway]"),
    ] {
        let found = Scenario::parse(&format!("{HEAD}{text}"), "s.toml", &[]).map(|_| ());
        let found = found.unwrap_err().to_string();
        assert!(found.contains(said) && found.contains("s.toml:"), "{found}");
    }
}
