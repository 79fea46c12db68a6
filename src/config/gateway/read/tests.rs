use super::*;
use crate::config::gateway::Balancer;
use crate::config::scenario::Scenario;

const ENGINE: &str = "[engine]\nmodel = 'Llama-3.1-8B'\ngpu = 'h100-sxm'\nmax_model_len = 8192\n";

fn scenario(more: &str, set: &[&str]) -> Result<Scenario> {
    let set: Vec<String> = set.iter().map(|set| (*set).to_owned()).collect();
    Scenario::parse(&format!("{ENGINE}{more}"), "s.toml", &set)
}

fn gateway(more: &str) -> Gateway {
    scenario(more, &[]).unwrap().gateway.unwrap()
}

fn complaint(more: &str, set: &[&str]) -> String {
    scenario(more, set).unwrap_err().to_string()
}

const CONFIG_YAML: &str = "\
model_list:
  - {model_name: coder, litellm_params: {model: hosted_vllm/q, api_base: 'http://a/v1'}}
  - {model_name: coder, litellm_params: {model: hosted_vllm/q, api_base: 'http://b/v1'}}
router_settings: {num_retries: 4, model_group_alias: {opus: coder}, redis_host: os.environ/REDIS}
general_settings: {master_key: os.environ/KEY, max_in_flight_requests_per_worker: 8}
";

/// A folder with a config, and the keys that name it.
fn with_config(yaml: &str, more: &str) -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("config.yaml");
    std::fs::write(&path, yaml).unwrap();
    let text = format!("[gateway]\nconfig = '{}'\n{more}", path.display());
    (folder, text)
}

#[test]
fn without_a_section_there_is_no_gateway() {
    assert!(scenario("", &[]).unwrap().gateway.is_none());
    let plain = gateway("[gateway]\n");
    assert_eq!(plain.config().deployments.len(), 1);
    assert_eq!((plain.config().pods, plain.config().workers), (1, 1));
}

#[test]
fn keys_of_its_own_are_read() {
    let gateway = gateway(
        "[gateway]\nreplicas = 3\nnum_workers = 4\ncores = 2\nbalancer = 'session'\n\
         max_in_flight_requests_per_worker = 24\nsession_affinity = true\nredis = true\n\
         routing_strategy = 'least-busy'\nbudgets = true\ndatabase = true\nrpm_limit = 9\n\
         [gateway.limits.web]\nrpm_limit = 100\nmax_parallel_requests = 5\n",
    );
    let config = gateway.config();
    assert_eq!((config.pods, config.workers, config.pod_millicores), (3, 4, 2_000));
    assert_eq!((config.balancer, config.connections()), (Balancer::Session, 120));
    assert_eq!(config.admission, Some(Admission::new(24)));
    assert_eq!(config.routing.strategy, Strategy::LeastBusy);
    assert_eq!(config.counting.place, CountPlace::budget(2));
    assert_eq!(config.limits.len(), 2);
    let front = gateway.before(3).unwrap();
    assert_eq!(front.clients.limits["web"], [Some(0), None]);
    assert_eq!(front.clients.other_limits, [Some(1), None]);
    assert!(front.clients.is_counted);
    let replicas: Vec<u32> =
        front.gateway.deployments.iter().map(|deployment| deployment.replica.0).collect();
    assert_eq!(replicas, [0, 1, 2]);
}

#[test]
fn a_config_names_the_replicas_and_what_is_ignored() {
    let environment = "[gateway.environment]\nREDIS = 'r'\nNUM_WORKERS = 2\n";
    let (_folder, text) = with_config(CONFIG_YAML, environment);
    let read = scenario(&text, &[]).unwrap();
    assert_eq!(read.replicas, 2);
    assert_eq!(read.served()["opus"], Name::from("coder"));
    let gateway = read.gateway.unwrap();
    let config = gateway.config();
    assert_eq!((config.workers, config.retries.num_retries), (2, 4));
    assert!(config.redis.is_some() && gateway.warnings.len() == 1, "{:?}", gateway.warnings);
    assert!(gateway.notes[0].contains("general_settings.master_key"), "{:?}", gateway.notes);
    // One more replica is like those that are there.
    assert_eq!(gateway.before(5).unwrap().gateway.deployments.len(), 5);
    let set = scenario(&text, &["gateway.num_retries=1", "replicas=3"]).unwrap();
    assert_eq!(set.gateway.unwrap().config().retries.num_retries, 1, "the command line wins");
    assert_eq!(set.replicas, 3);
}

#[test]
fn deployments_that_differ_cannot_be_more() {
    let yaml = CONFIG_YAML.replacen("model: hosted_vllm/q,", "model: hosted_vllm/q, weight: 3,", 1);
    let (_folder, text) = with_config(&yaml, "environment = 'none'\n");
    assert!(complaint(&text, &[]).contains("cannot read none"));
    let text = text.replace("environment = 'none'\n", "[gateway.environment]\nREDIS = 'r'\n");
    let gateway = scenario(&text, &[]).unwrap().gateway.unwrap();
    assert!(gateway.before(2).is_ok());
    let error = gateway.before(3).unwrap_err().to_string();
    assert!(error.contains("differ between the 2 replicas"), "{error}");
}

#[test]
fn groups_on_replicas_of_their_own_cannot_be_more_or_fewer() {
    let yaml = "model_list:\n\
        - {model_name: coder, litellm_params: {model: hosted_vllm/q, api_base: 'http://a/v1'}}\n\
        - {model_name: chat, litellm_params: {model: hosted_vllm/q, api_base: 'http://b/v1'}}\n";
    let (_folder, text) = with_config(yaml, "");
    let gateway = scenario(&text, &[]).unwrap().gateway.unwrap();
    assert_eq!(gateway.before(2).unwrap().gateway.deployments.len(), 2);
    for replicas in [1, 3, 4] {
        let error = gateway.before(replicas).unwrap_err().to_string();
        assert!(error.contains("differ between the 2 replicas"), "{replicas}: {error}");
    }
}

#[test]
fn what_a_config_gets_wrong_is_told_with_its_place() {
    let (_folder, text) = with_config("model_list: [\n", "");
    let error = complaint(&text, &[]);
    assert!(error.contains("config.yaml:1:13: not YAML"), "{error}");
    // Whether Redis is there counts, not where: a reference without a value is fine there.
    let yaml = CONFIG_YAML.replace("num_retries: 4", "num_retries: os.environ/TRIES");
    let (_folder, text) = with_config(&yaml, "");
    let error = complaint(&text, &[]);
    assert!(error.contains("config.yaml:4:") && error.contains("TRIES"), "{error}");
    let (_folder, text) = with_config(CONFIG_YAML, "[gateway.environment]\nNUM_WORKERS = 0\n");
    let error = complaint(&text, &[]);
    assert!(error.contains("NUM_WORKERS") && error.contains("from 1"), "{error}");
}

#[test]
fn keys_beside_a_config_may_not_tell_the_same() {
    let (_folder, text) = with_config(CONFIG_YAML, "num_retries = 2\n");
    let error = complaint(&text, &[]);
    assert!(error.contains("s.toml:7:1: gateway.num_retries: stands beside"), "{error}");
    let (_folder, text) = with_config(CONFIG_YAML, "cores = 2\n[fleet]\nreplicas = 3\n");
    let error = complaint(&text, &[]);
    assert!(error.contains("names 2 by api_base"), "{error}");
}

#[test]
fn contradictions_are_told_with_their_place() {
    for (text, said) in [
        ("[gateway]\n[fleet]\nrouter = 'random'\n", "s.toml:7:1: fleet.router: a gateway routes"),
        ("[gateway]\n[router]\nworkers = 2\n", "router.workers: a gateway routes"),
        ("[gateway]\nreplicas = 0\n", "s.toml:6:1: gateway.replicas: found `0`"),
        ("[gateway]\nnum_workers = 0\n", "found `0`"),
        ("[gateway]\nnum_worker = 2\n", "did you mean `gateway.num_workers`"),
        ("[gateway]\nrouting_strategy = 'lar1'\n", "`lar1` is not modelled"),
        ("[gateway]\nrouting_strategy = 'least-bussy'\n", "did you mean `least-busy`"),
        ("[gateway]\nmax_queued_requests_per_worker = 3\n", "has no effect without"),
        (
            "[gateway]\nmax_in_flight_requests_per_worker = 3\n\
             admission_queue_timeout_seconds = 0\n",
            "contradicts 3 places",
        ),
        ("[gateway]\nredis_timeout_s = 1\n", "gateway.redis = true"),
        ("[gateway]\npgbouncer = true\n", "gateway.database = true"),
        ("[gateway]\nbudgets = true\ntoken_counting = 'off'\n", "every prompt is counted"),
        ("[gateway]\ntoken_count_cost = 'measured'\n", "nothing is counted"),
        ("[gateway]\nenvironment = '.env'\n", "cannot read"),
        ("[gateway.environment]\nNUM_WORKERS = 2\n", "only read with gateway.config"),
        ("[gateway.limits]\nweb = 3\n", "a table for each tenant"),
        ("[gateway.limits.web]\nrpm = 3\n", "unknown limit `rpm`"),
        ("[gateway.limits.web]\nrpm_limit = 0\n", "found `0`"),
        ("[client]\nagent_retries = 1\n", "only goes with [gateway]"),
        ("[cost]\nusd_per_gateway_replica_hour = 1\n", "only goes with [gateway]"),
    ] {
        let found = complaint(text, &[]);
        assert!(found.contains(said), "{text}: {found}");
    }
}

#[test]
fn the_command_line_takes_the_place_of_the_files_router_or_gateway() {
    let text = "[fleet]\nrouter = 'random'\n";
    assert!(scenario(text, &["gateway.num_workers=2"]).unwrap().gateway.is_some());
    let text = "[gateway]\nnum_workers = 2\n[fleet]\nreplicas = 2\n";
    assert!(scenario(text, &["router=random"]).unwrap().gateway.is_none());
    assert_eq!(scenario(text, &["replicas=3"]).unwrap().replicas, 3);
}

#[test]
fn prices_and_the_patience_of_clients() {
    let plain = gateway("[gateway]\n");
    assert!(!plain.has_token_price());
    assert_eq!(plain.front.clients.timeout, Some(Span::from_secs(600)));
    let told = gateway(
        "[gateway]\ninput_cost_per_token = 3e-6\noutput_cost_per_token = 1.5e-5\n\
         [client]\ntimeout_s = 90\n",
    );
    assert_eq!(told.front.clients.price, TokenPrice { input: 3_000_000, output: 15_000_000 });
    assert!(told.has_token_price());
    assert_eq!(told.front.clients.timeout, Some(Span::from_secs(90)));
    // A config prices each deployment; keys of the command line take the place of that.
    let yaml = CONFIG_YAML.replace("'http://a/v1'", "'http://a/v1', input_cost_per_token: 2e-6");
    let (_folder, text) = with_config(&yaml, "[gateway.environment]\nREDIS = 'r'\n");
    let prices = |set: &[&str]| {
        let gateway = scenario(&text, set).unwrap().gateway.unwrap();
        let of = |at: usize| gateway.config().deployments[at].token_price;
        (of(0), of(1), gateway.front.clients.price)
    };
    let two = TokenPrice { input: 2_000_000, output: 0 };
    assert_eq!(prices(&[]), (Some(two), None, TokenPrice::default()));
    let nine = TokenPrice { input: 0, output: 9_000_000 };
    assert_eq!(prices(&["gateway.output_cost_per_token=9e-6"]), (None, None, nine));
}

#[test]
fn small_prices_are_kept_and_smaller_ones_refused() {
    let kept =
        gateway("[gateway]\ninput_cost_per_token = 3.75e-8\noutput_cost_per_token = 4e-10\n");
    let price = kept.front.clients.price;
    assert_eq!(price, TokenPrice { input: 37_500, output: 400 });
    assert_eq!(price.of(Tokens(1_000_000), Tokens(1_000)), 37_500_000 + 400);
    let refused = scenario("[gateway]\noutput_cost_per_token = 4e-13\n", &[]).unwrap_err();
    assert!(refused.to_string().contains("gateway.output_cost_per_token"), "{refused}");
    assert!(refused.to_string().contains("at least 1e-12 USD"), "{refused}");
    let yaml = CONFIG_YAML.replace("'http://a/v1'", "'http://a/v1', input_cost_per_token: 4e-13");
    let (_folder, text) = with_config(&yaml, "[gateway.environment]\nREDIS = 'r'\n");
    let refused = scenario(&text, &[]).unwrap_err().to_string();
    assert!(
        refused.contains("input_cost_per_token") && refused.contains("config.yaml:"),
        "{refused}"
    );
}

#[test]
fn a_config_that_prices_some_deployments_only_is_told() {
    let warnings = |first: &str, second: &str, set: &[&str]| {
        let yaml = CONFIG_YAML.replace("'http://a/v1'", &format!("'http://a/v1'{first}"));
        let yaml = yaml.replace("'http://b/v1'", &format!("'http://b/v1'{second}"));
        let (_folder, text) = with_config(&yaml, "[gateway.environment]\nREDIS = 'r'\n");
        let warnings = scenario(&text, set).unwrap().gateway.unwrap().warnings;
        warnings.into_iter().filter(|one| one.0.contains("costs")).collect::<Vec<_>>()
    };
    let (price, free) = (", input_cost_per_token: 2e-6", ", input_cost_per_token: 0");
    let database = ["gateway.database=true"];
    let found = warnings(price, "", &database);
    assert!(found[0].0.contains("not for every deployment of coder:"), "{found:?}");
    // One that costs nothing has a price, and without rows there is no bill.
    assert_eq!(warnings(price, free, &database), []);
    assert_eq!(warnings("", "", &database), []);
    assert_eq!(warnings(price, "", &[]), []);
    assert_eq!(warnings(price, "", &[database[0], "gateway.input_cost_per_token=1e-6"]), []);
}
