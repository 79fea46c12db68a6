//! A LiteLLM proxy's `config.yaml` and its environment variables, read as the gateway's settings.
//!
//! A setting that would change a figure and is not modelled is an error that names it, or a
//! warning where it changes little; one that changes none is listed as ignored. Values of the form
//! `os.environ/NAME` are looked up in the environment that is given, not in the program's own, and
//! only where the value counts: keys and passwords need none.
//!
//! Each `api_base` is one replica; deployments with the same are on the same. What the file cannot
//! tell - pods, cores, which keys have budgets or limits, how fast the database is - keeps its
//! default for whoever knows better.

mod environment;
mod general;
mod models;
mod router;
pub mod tables;
#[cfg(test)]
mod tests;
mod yaml;

use std::collections::BTreeMap;

pub use self::environment::{Environment, READ as VARIABLES};
use self::models::Models;
use self::tables::{Fate, SECTIONS, Setting};
use self::yaml::{Section, Value};
use super::gateway::{Database, GatewayConfig};
use crate::diag::{Error, Result, Warning, nearest};

/// A proxy's settings, read.
#[derive(Clone, Debug)]
pub struct ProxyConfig {
    /// The gateway.
    pub gateway: GatewayConfig,
    /// The `api_base` of each replica that a deployment names, by the replica's number.
    pub api_bases: Vec<String>,
    /// Names that stand for a model group.
    pub aliases: BTreeMap<String, String>,
    /// What to check before the result is trusted.
    pub warnings: Vec<Warning>,
    /// Settings that change no figure, in full.
    pub ignored: Vec<String>,
}

impl ProxyConfig {
    /// The position of the group that answers a name, if one does.
    #[must_use]
    pub fn group(&self, name: &str) -> Option<u32> {
        let name = self.aliases.get(name).map_or(name, String::as_str);
        let found = self.gateway.groups.iter().position(|group| group.name == name)?;
        u32::try_from(found).ok()
    }

    /// What was ignored, in one line; `None` if nothing was.
    #[must_use]
    pub fn ignored_note(&self) -> Option<String> {
        let list = self.ignored.join(", ");
        (!list.is_empty()).then(|| format!("ignored settings of LiteLLM: {list}"))
    }
}

/// What is read along the way.
#[derive(Debug)]
struct Reading<'a> {
    file: &'a str,
    environment: &'a Environment,
    gateway: GatewayConfig,
    warnings: Vec<Warning>,
    ignored: Vec<String>,
}

/// Reads a `config.yaml`.
///
/// # Errors
/// What is no YAML, with line and column; a setting with a wrong value; one that matters and is
/// not modelled; settings that contradict one another; a name that does not exist.
pub fn read(text: &str, file: &str, environment: &Environment) -> Result<ProxyConfig> {
    let root = yaml::parse(text, file)?;
    let top = Section::of(file, "", Some(&root))?;
    let environment = environment.with_section(file, top.get("environment_variables"))?;
    let mut reading = Reading {
        file,
        environment: &environment,
        gateway: GatewayConfig::default(),
        warnings: Vec::new(),
        ignored: Vec::new(),
    };
    reading.top_level(&top)?;
    let section = |name: &str| Section::of(file, name, top.get(name));
    let (litellm, general, routing) =
        (section("litellm_settings")?, section("general_settings")?, section("router_settings")?);
    for section in [&litellm, &general, &routing] {
        reading.check_keys(section)?;
    }
    let models = Models::read(&mut reading, top.get("model_list"), &top.place())?;
    general::read(&mut reading, &general)?;
    let router = router::read(&mut reading, &litellm, &routing, &models)?;
    environment.apply(&mut reading.gateway)?;
    reading.stores(&litellm, &general, &routing)?;
    reading.counting(&models, router.checks_prompts)?;
    let Reading { gateway, warnings, ignored, .. } = reading;
    let api_bases = models.api_bases;
    Ok(ProxyConfig { gateway, api_bases, aliases: router.aliases, warnings, ignored })
}

impl Reading<'_> {
    fn warn(&mut self, text: impl Into<String>) {
        self.warnings.push(Warning(text.into()));
    }

    /// Complains about sections that there are not.
    fn top_level(&mut self, top: &Section<'_>) -> Result<()> {
        const READ: [&str; 5] = [
            "model_list",
            "litellm_settings",
            "general_settings",
            "router_settings",
            "environment_variables",
        ];
        for (key, value) in top.entries() {
            if key == "include" {
                let text = "other files that are included are not read";
                return Err(top.error(value, key, text).help("put them into one file"));
            }
            if READ.contains(&key) {
                continue;
            }
            if let Some(near) = nearest(key, READ) {
                let text = "is no section of a LiteLLM config";
                return Err(top.error(value, key, text).help(format!("did you mean `{near}`?")));
            }
            self.ignored.push(key.to_owned());
        }
        Ok(())
    }

    /// Sorts the settings of a section: those that are read, that are refused, that are ignored.
    fn check_keys(&mut self, section: &Section<'_>) -> Result<()> {
        let name = section.name.clone();
        self.check_keys_as(&name, section)
    }

    /// The same by the table of this name.
    fn check_keys_as(&mut self, table: &str, section: &Section<'_>) -> Result<()> {
        let known = SECTIONS.iter().find(|(name, _)| *name == table);
        let settings: &[Setting] = known.map_or(&[], |(_, settings)| settings);
        for (key, value) in section.entries() {
            let Some(setting) = settings.iter().find(|setting| setting.name == key) else {
                self.unknown(section, key, value, settings)?;
                continue;
            };
            match setting.fate {
                Fate::Read => {}
                Fate::Ignored => self.ignored.push(section.path(key)),
                _ if setting.is_neutral(value) => self.ignored.push(section.path(key)),
                Fate::Refused(why) => {
                    let text = format!("{why} is not modelled: found `{value}`");
                    let help = "leave it out to simulate the gateway without it";
                    return Err(section.error(value, key, text).help(help));
                }
                Fate::Warned(why) => {
                    let at = section.error(value, key, "");
                    let place = at.place().to_string();
                    self.warn(format!("{place}: {why}"));
                }
            }
        }
        Ok(())
    }

    /// A setting that is nowhere known: a slip of the pen, or one that came with a later version.
    fn unknown(
        &mut self,
        section: &Section<'_>,
        key: &str,
        value: &Value,
        settings: &[Setting],
    ) -> Result<()> {
        let names = settings.iter().filter(|setting| setting.fate == Fate::Read);
        if let Some(near) = nearest(key, names.map(|setting| setting.name)) {
            let error = section.error(value, key, "there is no such setting");
            return Err(error.help(format!("did you mean `{near}`?")));
        }
        let path = section.path(key);
        self.warn(format!("{path} is not known and was left out: check whether it matters"));
        Ok(())
    }

    /// Redis and the database, if either is attached.
    fn stores(
        &mut self,
        litellm: &Section<'_>,
        general: &Section<'_>,
        routing: &Section<'_>,
    ) -> Result<()> {
        let cache =
            Section::of(self.file, "litellm_settings.cache_params", litellm.get("cache_params"))?;
        let caches = litellm.switch("cache", self.environment)?.unwrap_or(false);
        let kind = cache.text("type", self.environment)?;
        let cache_is_redis = caches && kind.as_deref().is_none_or(|kind| kind == "redis");
        let router_has = ["redis_host", "redis_url"].iter().any(|key| routing.get(key).is_some());
        if caches && cache.text("mode", self.environment)?.as_deref() != Some("default_off") {
            self.warn(
                "litellm_settings.cache: answers from the response cache are not modelled; every \
                 request goes to a replica",
            );
        }
        if router_has && !cache_is_redis {
            self.warn(
                "router_settings.redis_host: limits of keys and teams are taken to be shared as \
                 well, which LiteLLM promises only with litellm_settings.cache_params",
            );
        }
        if cache_is_redis || router_has {
            self.gateway.redis = Some(self.environment.redis(self.gateway.redis)?);
        }
        let has_url = general.get("database_url").is_some() || self.environment.has("DATABASE_URL");
        if !has_url {
            // Nothing is looked up or written without one.
            self.gateway.database = None;
        } else if self.gateway.database.is_none() {
            self.gateway.database = Some(Database::default());
        }
        Ok(())
    }

    /// What the file alone says about counting: the checks before a call.
    fn counting(&mut self, models: &Models, checks_prompts: bool) -> Result<()> {
        use super::gateway::CountPlace;
        let slots = self.environment.number("TOKEN_COUNTER_MAX_CONCURRENT_COUNTS")?;
        if slots == Some(0) {
            return Err(
                Error::found(0, "a number from 1").in_field("TOKEN_COUNTER_MAX_CONCURRENT_COUNTS")
            );
        }
        if checks_prompts && models.has_input_limit {
            let slots = slots.map_or(4, |slots| u32::try_from(slots).unwrap_or(u32::MAX));
            let inline_below = crate::units::Tokens(0);
            self.gateway.counting.place = CountPlace::Threads { slots, inline_below };
        } else if slots.is_some() {
            self.warn(
                "TOKEN_COUNTER_MAX_CONCURRENT_COUNTS has no effect: nothing here has prompts \
                 counted through that limiter (budgets of keys count without it)",
            );
        }
        Ok(())
    }
}
