//! The settings of a LiteLLM config that are known, and what becomes of each.
//!
//! Names are those of LiteLLM 1.102 to 1.110; `docs/gateway.md` shows the same tables and a test
//! holds the two together.
// tidy: long table: one entry for each setting that is known.

use super::yaml::{Node, Value};

/// What becomes of a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It is read.
    Read,
    /// It changes no figure.
    Ignored,
    /// It would change figures and this is not modelled.
    Refused(&'static str),
    /// It would change a little; what the user is told.
    Warned(&'static str),
}

/// A setting.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// Its name.
    pub name: &'static str,
    /// What becomes of it.
    pub fate: Fate,
}

impl Setting {
    /// Whether this value is as if the setting were left out.
    pub(super) fn is_neutral(&self, value: &Value) -> bool {
        match &value.node {
            Node::Null | Node::Bool(false) => true,
            Node::Text(text) => text == "total" && self.name == "token_rate_limit_type",
            Node::List(list) => list.is_empty(),
            Node::Map(map) => map.is_empty(),
            Node::Bool(true) | Node::Int(_) | Node::Float(_) => false,
        }
    }
}

const fn read(name: &'static str) -> Setting {
    Setting { name, fate: Fate::Read }
}

const fn refused(name: &'static str, why: &'static str) -> Setting {
    Setting { name, fate: Fate::Refused(why) }
}

const fn warned(name: &'static str, why: &'static str) -> Setting {
    Setting { name, fate: Fate::Warned(why) }
}

const fn ignored(name: &'static str) -> Setting {
    Setting { name, fate: Fate::Ignored }
}

/// The settings of each section.
pub const SECTIONS: [(&str, &[Setting]); 5] = [
    ("router_settings", ROUTER),
    ("general_settings", GENERAL),
    ("litellm_settings", LITELLM),
    ("litellm_params", PARAMS),
    ("model_info", INFO),
];

const ROUTER: &[Setting] = &[
    read("routing_strategy"),
    read("num_retries"),
    read("retry_policy"),
    read("retry_after"),
    read("allowed_fails"),
    read("cooldown_time"),
    read("disable_cooldowns"),
    read("fallbacks"),
    read("context_window_fallbacks"),
    read("default_fallbacks"),
    read("max_fallbacks"),
    read("optional_pre_call_checks"),
    read("deployment_affinity_ttl_seconds"),
    read("enable_pre_call_checks"),
    read("timeout"),
    read("model_group_alias"),
    read("redis_host"),
    read("redis_url"),
    refused("allowed_fails_policy", "a number of failures for each kind of them"),
    refused("model_group_retry_policy", "a retry policy for each group"),
    refused("model_group_affinity_config", "affinity for single groups"),
    refused("routing_strategy_args", "an argument of a strategy"),
    refused("provider_budget_config", "a budget for each provider"),
    refused("enable_tag_filtering", "routing by tags"),
    refused("enable_weighted_failover", "weighted failover"),
    refused("stream_timeout", "a timeout of its own for streams"),
    refused("default_max_parallel_requests", "a bound on parallel requests of a deployment"),
    refused("default_priority", "the router's own priority queue"),
    refused("default_litellm_params", "a parameter for all requests"),
    warned("cache_responses", "answers from the response cache are not modelled"),
    ignored("content_policy_fallbacks"),
    ignored("redis_port"),
    ignored("redis_password"),
    ignored("redis_db"),
    ignored("cache_kwargs"),
    ignored("caching_groups"),
    ignored("client_ttl"),
    ignored("set_verbose"),
    ignored("debug_level"),
    ignored("alerting_config"),
    ignored("assistants_config"),
    ignored("polling_interval"),
    ignored("tag_filtering_match_any"),
    ignored("tag_routing_prefix"),
    ignored("keepalive_seconds"),
    ignored("allow_client_keepalive_override"),
    ignored("router_general_settings"),
    ignored("ignore_invalid_deployments"),
];

const GENERAL: &[Setting] = &[
    read("max_in_flight_requests_per_worker"),
    read("max_queued_requests_per_worker"),
    read("admission_queue_timeout_seconds"),
    read("database_url"),
    read("database_connection_pool_limit"),
    read("database_connection_timeout"),
    read("database_connection_pool_timeout"),
    read("user_api_key_cache_ttl"),
    read("user_api_key_cache_max_size"),
    read("proxy_batch_write_at"),
    read("disable_spend_logs"),
    refused("max_parallel_requests", "a bound on parallel requests of a deployment"),
    refused("global_max_parallel_requests", "a bound on parallel requests of the proxy"),
    refused("cancel_on_disconnect", "hanging up on replicas when clients do"),
    refused("use_redis_transaction_buffer", "buffering spend in Redis"),
    refused("fail_closed_budget_enforcement", "asking the database for each budget"),
    refused("allow_requests_on_db_unavailable", "letting requests pass without the database"),
    refused("enable_health_check_routing", "routing by health checks"),
    refused("completion_model", "one model for all requests"),
    refused("token_rate_limit_type", "counting one kind of tokens against limits"),
    refused("disable_retry_on_max_parallel_request_limit_error", "other tries after a limit"),
    warned(
        "background_health_checks",
        "requests of health checks are no load on the replicas here",
    ),
    warned("custom_auth", "what a custom authentication takes is not known"),
    warned("enable_jwt_auth", "checking a token is taken to cost as much as a virtual key"),
    warned("enable_oauth2_auth", "checking a token is taken to cost as much as a virtual key"),
    warned("store_prompts_in_spend_logs", "rows with prompts are larger: set their size"),
    warned("max_request_size_mb", "requests are not refused for their size here"),
    warned("database_statement_timeout", "statements are not cut short here"),
    warned("database_lock_timeout", "statements are not cut short here"),
    ignored("disable_budget_reservation"),
    ignored("disable_spend_updates"),
    ignored("disable_error_logs"),
    ignored("master_key"),
    ignored("health_check_interval"),
    ignored("health_check_details"),
    ignored("alerting"),
    ignored("alerting_threshold"),
    ignored("alerting_args"),
    ignored("alert_types"),
    ignored("alert_to_webhook_url"),
    ignored("allowed_routes"),
    ignored("public_routes"),
    ignored("admin_only_routes"),
    ignored("allowed_ips"),
    ignored("always_include_stream_usage"),
    ignored("database_connect_timeout"),
    ignored("database_socket_timeout"),
    ignored("database_extra_connection_params"),
    ignored("database_disable_prepared_statements"),
    ignored("disable_master_key_return"),
    ignored("disable_prisma_schema_update"),
    ignored("disable_reset_budget"),
    ignored("enable_drain_endpoint"),
    ignored("enforce_user_param"),
    ignored("forward_client_headers_to_llm_api"),
    ignored("infer_model_from_keys"),
    ignored("key_management_system"),
    ignored("key_management_settings"),
    ignored("litellm_key_header_name"),
    ignored("litellm_license"),
    ignored("max_response_size_mb"),
    ignored("maximum_spend_logs_retention_interval"),
    ignored("maximum_spend_logs_retention_period"),
    ignored("missing_session_id"),
    ignored("pass_through_endpoints"),
    ignored("proxy_batch_polling_interval"),
    ignored("proxy_budget_rescheduler_max_time"),
    ignored("proxy_budget_rescheduler_min_time"),
    ignored("proxy_config_reload_interval_seconds"),
    ignored("scheduled_job_stagger"),
    ignored("spend_report_frequency"),
    ignored("sse_keepalive_ping_interval_seconds"),
    ignored("store_model_in_db"),
    ignored("supported_db_objects"),
    ignored("ui_access_mode"),
    ignored("use_x_forwarded_for"),
    ignored("user_header_name"),
    ignored("user_header_mappings"),
];

const LITELLM: &[Setting] = &[
    read("request_timeout"),
    read("num_retries"),
    read("allowed_fails"),
    read("fallbacks"),
    read("context_window_fallbacks"),
    read("default_fallbacks"),
    read("cache"),
    read("cache_params"),
    refused("enable_redis_auth_cache", "keys that workers share through Redis"),
    warned("max_budget", "whether a budget of the whole proxy has prompts counted is not known"),
    warned("guardrails", "what guardrails take is not modelled"),
    ignored("content_policy_fallbacks"),
    ignored("success_callback"),
    ignored("failure_callback"),
    ignored("callbacks"),
    ignored("service_callbacks"),
    ignored("turn_off_message_logging"),
    ignored("redact_user_api_key_info"),
    ignored("langfuse_default_tags"),
    ignored("set_verbose"),
    ignored("json_logs"),
    ignored("force_ipv4"),
    ignored("http2"),
    ignored("disable_aiohttp_transport"),
    ignored("drop_params"),
    ignored("modify_params"),
    ignored("add_function_to_prompt"),
    ignored("telemetry"),
    ignored("ssl_verify"),
    ignored("return_response_headers"),
    ignored("enable_preview_features"),
    ignored("enable_json_schema_validation"),
    ignored("disable_hf_tokenizer_download"),
    ignored("disable_end_user_cost_tracking"),
    ignored("disable_end_user_cost_tracking_prometheus_only"),
    ignored("enable_end_user_cost_tracking_prometheus_only"),
    ignored("key_generation_settings"),
    ignored("default_key_generate_params"),
    ignored("upperbound_key_generate_params"),
    ignored("default_internal_user_params"),
    ignored("default_team_params"),
    ignored("default_team_settings"),
    ignored("max_internal_user_budget"),
    ignored("default_max_internal_user_budget"),
    ignored("max_ui_session_budget"),
    ignored("mcp_aliases"),
    ignored("request_correlation_in_logs"),
    ignored("store_audit_logs"),
    ignored("cost_discount_config"),
    ignored("cost_margin_config"),
    ignored("use_chat_completions_url_for_anthropic_messages"),
    ignored("custom_provider_map"),
];

/// `litellm_params` of a deployment.
const PARAMS: &[Setting] = &[
    read("model"),
    read("api_base"),
    read("weight"),
    read("rpm"),
    read("tpm"),
    read("input_cost_per_token"),
    read("output_cost_per_token"),
    refused("timeout", "a timeout of a deployment"),
    refused("stream_timeout", "a timeout of its own for streams"),
    refused("max_retries", "retries of a deployment"),
    refused("num_retries", "retries of a deployment"),
    refused("cooldown_time", "a cooldown of a deployment"),
    refused("max_parallel_requests", "a bound on parallel requests of a deployment"),
    refused("order", "an order of deployments"),
    refused("tags", "routing by tags"),
    refused("mock_response", "a mocked answer"),
    refused("max_budget", "a budget of a deployment"),
    warned("max_tokens", "outputs are as long as recorded, whatever the deployment allows"),
    ignored("api_key"),
    ignored("api_version"),
    ignored("organization"),
    ignored("custom_llm_provider"),
    ignored("drop_params"),
    ignored("temperature"),
    ignored("top_p"),
    ignored("extra_headers"),
    ignored("extra_body"),
    ignored("headers"),
    ignored("merge_reasoning_content_in_choices"),
    ignored("use_in_pass_through"),
    ignored("input_cost_per_second"),
    ignored("cache_read_input_token_cost"),
    ignored("cache_creation_input_token_cost"),
];

/// `model_info` of a deployment.
const INFO: &[Setting] = &[
    read("max_input_tokens"),
    read("input_cost_per_token"),
    read("output_cost_per_token"),
    ignored("id"),
    ignored("mode"),
    ignored("base_model"),
    ignored("max_tokens"),
    ignored("max_output_tokens"),
    ignored("description"),
    ignored("access_groups"),
    ignored("supports_function_calling"),
    ignored("supports_vision"),
    ignored("supports_reasoning"),
    ignored("supports_tool_choice"),
    ignored("supports_prompt_caching"),
    ignored("supported_environments"),
    ignored("disable_background_health_check"),
    ignored("health_check_model"),
    ignored("litellm_provider"),
    ignored("cache_read_input_token_cost"),
    ignored("cache_creation_input_token_cost"),
];
