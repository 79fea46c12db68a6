use super::*;
use crate::config::gateway::{CountPlace, Strategy};
use crate::units::{Bytes, ReplicaId, Span};

/// The shortest config there is, to which a test adds.
const MODELS: &str = "\
model_list:
  - model_name: coder
    litellm_params:
      model: hosted_vllm/qwen
      api_base: http://vllm-0:8000/v1
      api_key: os.environ/VLLM_KEY
  - model_name: coder
    litellm_params:
      model: hosted_vllm/qwen
      api_base: http://vllm-1:8000/v1/
";

fn read_with(more: &str, variables: &str) -> Result<ProxyConfig> {
    let environment = Environment::parse(variables, ".env")?;
    read(&format!("{MODELS}{more}"), "config.yaml", &environment)
}

fn good(more: &str) -> ProxyConfig {
    read_with(more, "").unwrap_or_else(|error| panic!("{error}"))
}

/// The complaint about what is added after the ten lines of the models.
fn complaint(more: &str) -> String {
    read_with(more, "").unwrap_err().to_string()
}

fn says(text: &str, parts: &[&str]) {
    assert!(parts.iter().all(|part| text.contains(part)), "{text:?} lacks some of {parts:?}");
}

/// The settings that an article on coding agents behind vLLM shows for 20 developers.
#[test]
fn a_whole_config_is_read() {
    let proxy = read_with(
        "\
router_settings:
  routing_strategy: simple-shuffle
  num_retries: 2
  allowed_fails: 3
  cooldown_time: 30
  optional_pre_call_checks: [session_affinity]
  redis_host: os.environ/REDIS_HOST
  redis_password: os.environ/REDIS_PASSWORD
general_settings:
  master_key: os.environ/LITELLM_MASTER_KEY
  database_url: os.environ/DATABASE_URL
  database_connection_pool_limit: 10
  max_in_flight_requests_per_worker: 24
  max_queued_requests_per_worker: 48
  admission_queue_timeout_seconds: 1.0
litellm_settings:
  request_timeout: 600
  callbacks: [prometheus]
",
        "# of the deployment\nNUM_WORKERS=4\nexport TOKEN_COUNTER_MAX_CONCURRENT_COUNTS='8'\n",
    )
    .unwrap();
    let gateway = &proxy.gateway;
    assert_eq!(proxy.api_bases, ["http://vllm-0:8000/v1", "http://vllm-1:8000/v1"]);
    assert_eq!((gateway.groups.len(), gateway.deployments.len()), (1, 2));
    assert_eq!(gateway.deployments[1].replica, ReplicaId(1));
    let admission = gateway.admission.unwrap();
    assert_eq!((admission.max_in_flight, admission.max_queued), (24, 48));
    assert_eq!(gateway.routing.cooldown.time, Span::from_secs(30));
    assert_eq!(gateway.routing.cooldown.allowed_fails, Some(3));
    assert!(gateway.routing.session_affinity && gateway.redis.is_some());
    assert_eq!((gateway.workers, gateway.connections()), (4, 40));
    assert_eq!(gateway.request_timeout, Span::from_secs(600));
    assert_eq!(gateway.counting.place, CountPlace::Off);
    assert!(proxy.ignored.contains(&"general_settings.master_key".to_owned()));
    assert!(proxy.ignored.contains(&"litellm_params.api_key".to_owned()));
    let warnings: Vec<&str> = proxy.warnings.iter().map(|warning| warning.0.as_str()).collect();
    assert_eq!(warnings.len(), 2, "{warnings:?}");
    says(
        &warnings.join("\n"),
        &["redis_host", "TOKEN_COUNTER_MAX_CONCURRENT_COUNTS has no effect"],
    );
}

#[test]
fn what_is_not_said_keeps_litellms_default() {
    let gateway = good("").gateway;
    let plain = GatewayConfig {
        groups: gateway.groups.clone(),
        deployments: gateway.deployments.clone(),
        ..GatewayConfig::default()
    };
    assert_eq!(gateway, plain);
}

#[test]
fn groups_weights_prices_and_fallbacks() {
    let proxy = good(
        "  - model_name: big
    litellm_params:
      model: hosted_vllm/big
      api_base: http://vllm-1:8000/v1
      weight: 0.5
      rpm: 600
      tpm: 1000000
    model_info: {input_cost_per_token: 1.8e-7, output_cost_per_token: 0.00000072}
router_settings:
  routing_strategy: least-busy
  model_group_alias: {opus: big}
  fallbacks: [{coder: [opus]}]
  context_window_fallbacks: [{\"*\": [big]}]
  retry_policy: {TimeoutErrorRetries: 0}
litellm_settings:
  num_retries: 5
",
    );
    let gateway = &proxy.gateway;
    assert_eq!(gateway.routing.strategy, Strategy::LeastBusy);
    let big = &gateway.deployments[2];
    assert_eq!((big.group, big.replica, big.rpm), (1, ReplicaId(1), Some(600)));
    assert!((big.price - 9e-7).abs() < 1e-12);
    assert_eq!(gateway.groups[0].fallbacks, [1]);
    assert_eq!(gateway.groups[0].context_window_fallbacks, [1]);
    assert!(gateway.groups[1].context_window_fallbacks.is_empty(), "not to itself");
    assert_eq!(
        (proxy.group("opus"), proxy.group("coder"), proxy.group("x")),
        (Some(1), Some(0), None)
    );
    assert_eq!(gateway.retries.num_retries, 5);
    assert_eq!(gateway.retries.policy.timeout, Some(0));
}

#[test]
fn pre_call_checks_count_through_the_limiter() {
    let more = "    model_info: {max_input_tokens: 131072}\n\
                router_settings: {enable_pre_call_checks: true}\n";
    let slots = |variables| match read_with(more, variables).unwrap().gateway.counting.place {
        CountPlace::Threads { slots, .. } => slots,
        place => panic!("{place:?}"),
    };
    assert_eq!(slots(""), 4);
    assert_eq!(slots("TOKEN_COUNTER_MAX_CONCURRENT_COUNTS=8"), 8);
}

#[test]
fn variables_set_the_spend_queue_and_the_files_own_win() {
    let more = "environment_variables:\n  SPEND_LOG_QUEUE_MAX_BYTES: 1000000\n  NUM_WORKERS: 3\n";
    let gateway =
        read_with(more, "NUM_WORKERS=2\nSPEND_LOG_QUEUE_SIZE_THRESHOLD=7\n").unwrap().gateway;
    assert_eq!((gateway.workers, gateway.spend.threshold_rows), (3, 7));
    assert_eq!(gateway.spend.max_bytes, Bytes(1_000_000));
}

#[test]
fn broken_yaml_is_found_by_line_and_column() {
    says(&complaint("router_settings: {num_retries: [1, 2\n"), &["config.yaml:", "not YAML"]);
    says(&complaint("router_settings:\n  a: 1\n b: 2\n"), &["config.yaml:1", "not YAML"]);
    says(
        &complaint("router_settings: {}\nrouter_settings: {}\n"),
        &["config.yaml:12:", "not YAML"],
    );
    says(&complaint("router_settings: 5\n"), &["config.yaml:11:18: router_settings: found `5`"]);
}

#[test]
fn wrong_values_are_found_by_line_and_column() {
    let text = complaint("router_settings:\n  num_retries: many\n");
    says(&text, &["config.yaml:12:16: router_settings.num_retries: found `many`", "from 0"]);
    says(
        &complaint("general_settings:\n  max_in_flight_requests_per_worker: 0\n"),
        &["12:38", "from 1"],
    );
    says(&complaint("litellm_settings: {request_timeout: -1}\n"), &["found `-1`", "from 0"]);
    says(&complaint("litellm_settings: {request_timeout: 1e300}\n"), &["a hundred years"]);
    says(&complaint("litellm_settings: {request_timeout: 0}\n"), &["above 0"]);
    says(&complaint("router_settings: {fallbacks: {coder: [x]}}\n"), &["found `a mapping`"]);
    says(&complaint("router_settings: {fallbacks: [{coder: [x]}]}\n"), &["no model group `x`"]);
    says(
        &complaint("router_settings: {fallbacks: [{codre: [coder]}]}\n"),
        &["did you mean `coder`"],
    );
}

#[test]
fn references_without_a_value_are_errors_where_the_value_counts() {
    let text = complaint("router_settings:\n  num_retries: os.environ/RETRIES\n");
    says(&text, &["config.yaml:12:16", "environment variable RETRIES, which has no value"]);
    let more = "router_settings:\n  num_retries: os.environ/RETRIES\n";
    assert_eq!(read_with(more, "RETRIES=7").unwrap().gateway.retries.num_retries, 7);
    let text =
        complaint("  - model_name: x\n    litellm_params: {model: y, api_base: os.environ/BASE}\n");
    says(&text, &["model_list[2].litellm_params.api_base", "BASE"]);
}

#[test]
fn strategies_that_do_not_exist_or_are_not_modelled() {
    let text = complaint("router_settings:\n  routing_strategy: least_busy\n");
    says(&text, &["config.yaml:12:21", "unknown routing strategy", "did you mean `least-busy`?"]);
    let text = complaint("router_settings: {routing_strategy: provider-budget-routing}\n");
    says(&text, &["`provider-budget-routing` is not modelled", "simple-shuffle"]);
    let text = complaint("router_settings: {optional_pre_call_checks: [sesion_affinity]}\n");
    says(&text, &["did you mean `session_affinity`?"]);
}

#[test]
fn contradictions_are_errors() {
    let text = complaint("general_settings: {max_queued_requests_per_worker: 5}\n");
    says(&text, &["no effect without max_in_flight_requests_per_worker"]);
    let text = complaint("router_settings: {disable_cooldowns: true, cooldown_time: 5}\n");
    says(&text, &["contradicts disable_cooldowns"]);
    let text = complaint(
        "general_settings: {max_in_flight_requests_per_worker: 2, \
         max_queued_requests_per_worker: 1, admission_queue_timeout_seconds: 0}\n",
    );
    says(&text, &["0 s contradicts places to wait"]);
    let text = read_with("", "NUM_WORKERS=0").unwrap_err().to_string();
    says(&text, &["NUM_WORKERS", "found `0`", "from 1"]);
}

#[test]
fn what_matters_and_is_not_modelled_is_refused() {
    let text = complaint("router_settings:\n  enable_tag_filtering: true\n");
    says(&text, &["config.yaml:12:25", "routing by tags is not modelled"]);
    good("router_settings: {enable_tag_filtering: false, stream_timeout: null}\n");
    says(&complaint("include: [other.yaml]\n"), &["not read"]);
    says(&read_with("", "LITELLM_RUST=1").unwrap_err().to_string(), &["LITELLM_RUST", "Rust"]);
    says(&complaint("general_settings: {global_max_parallel_requests: 9}\n"), &["not modelled"]);
}

#[test]
fn unknown_settings_are_slips_or_warned_of() {
    says(&complaint("router_settings: {num_retry: 1}\n"), &["did you mean `num_retries`?"]);
    says(&complaint("router_setings: {num_retries: 1}\n"), &["did you mean `router_settings`?"]);
    let proxy = good("general_settings: {zzz_new_in_2027: 1}\nguardrails: []\n");
    says(&proxy.warnings[0].0, &["general_settings.zzz_new_in_2027 is not known"]);
    assert!(proxy.ignored.contains(&"guardrails".to_owned()));
}

#[test]
fn deployments_without_a_replica() {
    let text = complaint("  - model_name: gpt\n    litellm_params: {model: gpt-x}\n");
    says(&text, &["model_list[2].litellm_params", "no api_base"]);
    says(&complaint("  - {}\n"), &["config.yaml:11:", "model_name is missing"]);
    says(
        &complaint("  - {model_name: \"*\", litellm_params: {model: \"*\", api_base: x}}\n"),
        &["pattern"],
    );
    let none = read("router_settings: {}\n", "c.yaml", &Environment::default());
    says(&none.unwrap_err().to_string(), &["c.yaml: model_list: there is no deployment"]);
    let zero = "  - {model_name: z, litellm_params: {model: z, api_base: z, weight: 0}}\n";
    says(&complaint(zero), &["every weight of `z` is 0"]);
}

#[test]
fn hostile_files_end_in_an_error() {
    for text in ["", "[]", "- 1", "a: &a [*a]", "\u{0}", "model_list: {a: 1}", "x", "{", "? [1]: 2"]
    {
        let error = read(text, "c.yaml", &Environment::default()).unwrap_err();
        says(&error.to_string(), &["c.yaml"]);
    }
    let deep = format!("model_list: {}", "[".repeat(100_000));
    assert!(read(&deep, "c.yaml", &Environment::default()).is_err());
    let mut laughs = "a: &a [x,x,x,x,x,x,x,x,x]\n".to_owned();
    for (this, before) in ('b'..='j').zip('a'..) {
        laughs.push_str(&format!("{this}: &{this} [{}]\n", format!("*{before},").repeat(9)));
    }
    assert!(read(&laughs, "c.yaml", &Environment::default()).is_err());
    assert!(
        Environment::parse("A=1\nnonsense\n", ".env")
            .unwrap_err()
            .to_string()
            .starts_with(".env:2")
    );
}
