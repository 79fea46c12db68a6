//! `router_settings`, and what `litellm_settings` says of the same.

use std::collections::BTreeMap;

use super::models::Models;
use super::yaml::{Node, Section, Value};
use super::{Environment, Reading};
use crate::config::gateway::{RetryPolicy, Strategy};
use crate::diag::{Error, Result};
use crate::units::Span;

/// What the router's settings say beside the gateway's.
#[derive(Debug)]
pub(super) struct Router {
    /// Names that stand for a group.
    pub(super) aliases: BTreeMap<String, String>,
    /// Whether prompts are held against `max_input_tokens`.
    pub(super) checks_prompts: bool,
}

pub(super) fn read(
    reading: &mut Reading<'_>,
    litellm: &Section<'_>,
    section: &Section<'_>,
    models: &Models,
) -> Result<Router> {
    let environment = reading.environment;
    reading.gateway.routing.strategy = strategy(section, environment)?;
    cooldown(reading, litellm, section)?;
    retries(reading, litellm, section)?;
    affinity(reading, section)?;
    for (place, key) in [(litellm, "request_timeout"), (section, "timeout")] {
        if let Some(timeout) = place.seconds(key, environment)? {
            if timeout.0 == 0
                && let Some(value) = place.get(key)
            {
                return Err(place.wrong(value, key, "seconds above 0"));
            }
            reading.gateway.request_timeout = timeout;
        }
    }
    let aliases = aliases(section, models)?;
    for place in [litellm, section] {
        fallbacks(reading, place, models, &aliases)?;
    }
    let checks = section.switch("enable_pre_call_checks", environment)?;
    Ok(Router { aliases, checks_prompts: checks == Some(true) })
}

fn strategy(section: &Section<'_>, environment: &Environment) -> Result<Strategy> {
    const KEY: &str = "routing_strategy";
    let Some(name) = section.text(KEY, environment)? else { return Ok(Strategy::SimpleShuffle) };
    if let Some((_, strategy)) = Strategy::ALL.iter().find(|(known, _)| *known == name) {
        return Ok(*strategy);
    }
    let names = Strategy::ALL.map(|(name, _)| name);
    let error = match Strategy::NOT_MODELLED.contains(&name.as_str()) {
        true => Error::new(format!("`{name}` is not modelled, allowed: {}", names.join(", "))),
        false => Error::unknown("routing strategy", &name, names),
    };
    Err(place(section, KEY, error))
}

/// Adds the place of a key to an error about it.
fn place(section: &Section<'_>, key: &str, error: Error) -> Error {
    match section.get(key) {
        Some(value) => place_of(section, key, value, error),
        None => error,
    }
}

fn place_of(section: &Section<'_>, key: &str, value: &Value, error: Error) -> Error {
    let at = section.error(value, key, "");
    error.at_place(at.place()).in_field(section.path(key))
}

fn cooldown(reading: &mut Reading<'_>, litellm: &Section<'_>, section: &Section<'_>) -> Result<()> {
    let environment = reading.environment;
    let cooldown = &mut reading.gateway.routing.cooldown;
    if let Some(time) = section.seconds("cooldown_time", environment)? {
        cooldown.time = time;
    }
    for place in [litellm, section] {
        if let Some(fails) = place.whole("allowed_fails", 0, environment)? {
            cooldown.allowed_fails = Some(fails);
        }
    }
    if section.switch("disable_cooldowns", environment)? == Some(true) {
        if let Some(value) = section.get("cooldown_time") {
            let text = "contradicts disable_cooldowns: true";
            return Err(section.error(value, "cooldown_time", text));
        }
        cooldown.time = Span::ZERO;
    }
    Ok(())
}

fn retries(reading: &mut Reading<'_>, litellm: &Section<'_>, section: &Section<'_>) -> Result<()> {
    let environment = reading.environment;
    for place in [litellm, section] {
        if let Some(retries) = place.whole("num_retries", 0, environment)? {
            reading.gateway.retries.num_retries = retries;
        }
    }
    if let Some(wait) = section.seconds("retry_after", environment)? {
        reading.gateway.retries.min_wait = wait;
    }
    if let Some(most) = section.whole("max_fallbacks", 0, environment)? {
        reading.gateway.retries.max_fallbacks = most;
    }
    let name = section.path("retry_policy");
    let policy = Section::of(reading.file, &name, section.get("retry_policy"))?;
    let into = &mut reading.gateway.retries.policy;
    for (key, value) in policy.entries() {
        let Some(field) = policy_field(into, key) else {
            if NEVER_RETRIED.contains(&key) {
                let text = format!("{} does not happen or is not tried again", policy.path(key));
                reading.warnings.push(crate::diag::Warning(text));
                continue;
            }
            let error = Error::unknown("kind of failure", key, POLICY_FIELDS);
            return Err(place_of(&policy, key, value, error));
        };
        *field = policy.whole(key, 0, environment)?;
    }
    Ok(())
}

const POLICY_FIELDS: [&str; 5] = [
    "TimeoutErrorRetries",
    "RateLimitErrorRetries",
    "InternalServerErrorRetries",
    "ServiceUnavailableErrorRetries",
    "DefaultRetries",
];
const NEVER_RETRIED: [&str; 4] = [
    "BadRequestErrorRetries",
    "AuthenticationErrorRetries",
    "ContentPolicyViolationErrorRetries",
    "NotFoundErrorRetries",
];

fn policy_field<'a>(policy: &'a mut RetryPolicy, key: &str) -> Option<&'a mut Option<u32>> {
    let index = POLICY_FIELDS.iter().position(|name| *name == key)?;
    Some(match index {
        0 => &mut policy.timeout,
        1 => &mut policy.rate_limit,
        2 => &mut policy.internal_server,
        3 => &mut policy.service_unavailable,
        _ => &mut policy.default,
    })
}

fn affinity(reading: &mut Reading<'_>, section: &Section<'_>) -> Result<()> {
    const KEY: &str = "optional_pre_call_checks";
    const HARMLESS: [&str; 3] = [
        "responses_api_deployment_check",
        "encrypted_content_affinity",
        "forward_client_headers_by_model_group",
    ];
    const REFUSED: [&str; 3] = ["router_budget_limiting", "prompt_caching", "deployment_affinity"];
    for (name, value) in section.texts(KEY)? {
        match name.as_str() {
            "session_affinity" => reading.gateway.routing.session_affinity = true,
            known if HARMLESS.contains(&known) => {
                reading.ignored.push(format!("{} {name}", section.path(KEY)));
            }
            known if REFUSED.contains(&known) => {
                return Err(section.error(value, KEY, format!("`{name}` is not modelled")));
            }
            _ => {
                let known = std::iter::once("session_affinity").chain(HARMLESS).chain(REFUSED);
                let known: Vec<&str> = known.collect();
                let error = Error::unknown("check", &name, known.iter().copied());
                return Err(place_of(section, KEY, value, error));
            }
        }
    }
    let ttl = section.seconds("deployment_affinity_ttl_seconds", reading.environment)?;
    if let Some(ttl) = ttl {
        reading.gateway.routing.affinity_ttl = ttl;
    }
    Ok(())
}

fn aliases(section: &Section<'_>, models: &Models) -> Result<BTreeMap<String, String>> {
    const KEY: &str = "model_group_alias";
    let mut aliases = BTreeMap::new();
    let Some(value) = section.get(KEY) else { return Ok(aliases) };
    let Node::Map(entries) = &value.node else {
        return Err(section.wrong(value, KEY, "a mapping of names to model groups"));
    };
    for (alias, value) in entries {
        let name = match &value.node {
            Node::Text(name) => name.as_str(),
            Node::Map(parts) => {
                let model = parts.iter().find(|(key, _)| key == "model").map(|(_, value)| value);
                match model.map(|value| &value.node) {
                    Some(Node::Text(name)) => name.as_str(),
                    _ => return Err(section.wrong(value, KEY, "the name of a model group")),
                }
            }
            _ => return Err(section.wrong(value, KEY, "the name of a model group")),
        };
        models.group(name).map_err(|error| place_of(section, KEY, value, error))?;
        aliases.insert(alias.clone(), name.to_owned());
    }
    Ok(aliases)
}

/// Sets the fallbacks of groups: those that a section lists, and for groups without any the common
/// ones.
fn fallbacks(
    reading: &mut Reading<'_>,
    section: &Section<'_>,
    models: &Models,
    aliases: &BTreeMap<String, String>,
) -> Result<()> {
    let group = |key: &str, name: &str, value: &Value| {
        let name = aliases.get(name).map_or(name, String::as_str);
        models.group(name).map_err(|error| place_of(section, key, value, error))
    };
    for key in ["fallbacks", "context_window_fallbacks"] {
        for (name, value, to) in lists(section, key)? {
            let mut targets = Vec::new();
            for (target, value) in to {
                targets.push(group(key, &target, value)?);
            }
            let from = match name {
                "*" => (0..models.groups.len() as u32).collect(),
                _ => vec![group(key, name, value)?],
            };
            for from in from {
                let targets = targets.iter().copied().filter(|to| *to != from).collect();
                let group = &mut reading.gateway.groups[from as usize];
                match key {
                    "fallbacks" => group.fallbacks = targets,
                    _ => group.context_window_fallbacks = targets,
                }
            }
        }
    }
    let mut common = Vec::new();
    for (name, value) in section.texts("default_fallbacks")? {
        common.push(group("default_fallbacks", &name, value)?);
    }
    for (index, group) in (0..).zip(&mut reading.gateway.groups) {
        if group.fallbacks.is_empty() {
            group.fallbacks = common.iter().copied().filter(|to| *to != index).collect();
        }
    }
    Ok(())
}

/// A name with its place and the names listed for it, with theirs.
type Listed<'a> = (&'a str, &'a Value, Vec<(String, &'a Value)>);

fn lists<'a>(section: &Section<'a>, key: &str) -> Result<Vec<Listed<'a>>> {
    const ALLOWED: &str = "a list such as [{\"model\": [\"other\"]}]";
    let Some(value) = section.get(key) else { return Ok(Vec::new()) };
    let Node::List(items) = &value.node else { return Err(section.wrong(value, key, ALLOWED)) };
    let mut all = Vec::new();
    for item in items {
        let Node::Map(entries) = &item.node else {
            return Err(section.wrong(item, key, ALLOWED));
        };
        for (name, to) in entries {
            let Node::List(targets) = &to.node else {
                return Err(section.wrong(to, key, ALLOWED));
            };
            let mut names = Vec::new();
            for target in targets {
                let Node::Text(text) = &target.node else {
                    return Err(section.wrong(target, key, "the name of a model group"));
                };
                names.push((text.clone(), target));
            }
            all.push((name.as_str(), to, names));
        }
    }
    Ok(all)
}
