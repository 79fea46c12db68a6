//! `model_list`: deployments, their groups and the replicas behind them.

use super::yaml::{Node, Section, Value};
use super::{Reading, SECTIONS};
use crate::config::gateway::clients::TokenPrice;
use crate::config::gateway::{Deployment, Group};
use crate::diag::{Error, Place, Result, nearest};
use crate::units::ReplicaId;

/// More deployments than anybody has.
const MOST: usize = 100_000;

/// What the list says beside the gateway's deployments.
#[derive(Debug, Default)]
pub(super) struct Models {
    /// Names of the groups in the order of their first deployment.
    pub(super) groups: Vec<String>,
    /// The `api_base` of each replica.
    pub(super) api_bases: Vec<String>,
    /// Whether a deployment declares `max_input_tokens`.
    pub(super) has_input_limit: bool,
}

impl Models {
    pub(super) fn read(
        reading: &mut Reading<'_>,
        list: Option<&Value>,
        place: &Place,
    ) -> Result<Self> {
        let missing = |text: &str| Error::new(text).in_field("model_list").at_place(place);
        let list = match list.map(|value| &value.node) {
            Some(Node::List(list)) if !list.is_empty() => list,
            None | Some(Node::Null | Node::List(_)) => {
                return Err(missing("there is no deployment")
                    .help("the models in the database are not read: list them in the file"));
            }
            Some(_) => return Err(missing("this is no list of deployments")),
        };
        if list.len() > MOST {
            return Err(missing(&format!("found {} deployments, at most {MOST}", list.len())));
        }
        let mut models = Self::default();
        for (index, value) in list.iter().enumerate() {
            let name = format!("model_list[{index}]");
            let deployment = models.deployment(reading, &name, value)?;
            reading.gateway.deployments.push(deployment);
        }
        reading.gateway.groups = models
            .groups
            .iter()
            .map(|name| Group { name: name.clone(), ..Group::default() })
            .collect();
        models.check_weights(reading)?;
        reading.ignored.sort();
        reading.ignored.dedup();
        Ok(models)
    }

    fn deployment(
        &mut self,
        reading: &mut Reading<'_>,
        name: &str,
        value: &Value,
    ) -> Result<Deployment> {
        let (file, environment) = (reading.file, reading.environment);
        let entry = Section::of(file, name, Some(value))?;
        let required = |section: &Section<'_>, key: &str| {
            let text = section.text(key, environment)?;
            text.ok_or_else(|| section.error_here(format!("{key} is missing")))
        };
        let group = required(&entry, "model_name")?;
        let params = Section::of(file, &entry.path("litellm_params"), entry.get("litellm_params"))?;
        let info = Section::of(file, &entry.path("model_info"), entry.get("model_info"))?;
        check(reading, "litellm_params", &params)?;
        check(reading, "model_info", &info)?;
        required(&params, "model")?;
        if group.contains('*') {
            let text = format!("found `{group}`: a pattern of names is not modelled");
            return Err(entry.error_here(text).help("list the models one by one"));
        }
        let Some(api_base) = params.text("api_base", environment)? else {
            let text = "has no api_base, so it is at a provider and no replica of this fleet";
            return Err(params.error_here(text).help("leave it out, with fallbacks to it"));
        };
        let replica = position(&mut self.api_bases, api_base.trim_end_matches('/'));
        let price = |key: &str| -> Result<Option<f64>> {
            let own = params.number(key, environment)?;
            Ok(own.or(info.number(key, environment)?))
        };
        let (input, output) = (price("input_cost_per_token")?, price("output_cost_per_token")?);
        let is_priced = input.is_some() || output.is_some();
        let (input, output) = (input.unwrap_or(0.0), output.unwrap_or(0.0));
        let kept = |usd: f64, key: &str| {
            let refused = |error: Error| params.error_here(format!("{key}: {error}"));
            TokenPrice::kept(usd).map_err(refused)
        };
        let token_price = TokenPrice {
            input: kept(input, "input_cost_per_token")?,
            output: kept(output, "output_cost_per_token")?,
        };
        self.has_input_limit |= info.get("max_input_tokens").is_some();
        let whole = |key: &str| -> Result<Option<u64>> {
            Ok(params.whole(key, 0, environment)?.map(u64::from))
        };
        Ok(Deployment {
            group: position(&mut self.groups, &group),
            replica: ReplicaId(replica),
            weight: params.number("weight", environment)?,
            rpm: whole("rpm")?,
            tpm: whole("tpm")?,
            price: input + output,
            token_price: is_priced.then_some(token_price),
        })
    }

    /// Weights that are all zero choose nothing.
    fn check_weights(&self, reading: &Reading<'_>) -> Result<()> {
        for (group, name) in self.groups.iter().enumerate() {
            let own = reading.gateway.deployments.iter();
            let own = own.filter(|deployment| deployment.group as usize == group);
            let weights: Vec<f64> = own.filter_map(|deployment| deployment.weight).collect();
            if !weights.is_empty() && weights.iter().all(|weight| *weight == 0.0) {
                let text = format!("every weight of `{name}` is 0");
                return Err(Error::new(text).in_file(reading.file).in_field("model_list"));
            }
        }
        Ok(())
    }

    /// The group of this name, or one that an alias stands for.
    pub(super) fn group(&self, name: &str) -> std::result::Result<u32, Error> {
        let found = self.groups.iter().position(|group| group == name);
        match found.and_then(|index| u32::try_from(index).ok()) {
            Some(index) => Ok(index),
            None => {
                let names = self.groups.iter().map(String::as_str);
                let error = Error::new(format!("there is no model group `{name}`"));
                Err(match nearest(name, names) {
                    Some(near) => error.help(format!("did you mean `{near}`?")),
                    None => error.help(format!("there are: {}", self.groups.join(", "))),
                })
            }
        }
    }
}

/// Sorts the settings of a deployment as those of the sections, without its number in the list.
fn check(reading: &mut Reading<'_>, table: &'static str, section: &Section<'_>) -> Result<()> {
    debug_assert!(SECTIONS.iter().any(|(name, _)| *name == table));
    let (before, warned) = (reading.ignored.len(), reading.warnings.len());
    reading.check_keys_as(table, section)?;
    for ignored in &mut reading.ignored[before..] {
        *ignored = ignored.replace(&section.name, table);
    }
    // The same warning for each of many deployments says nothing more.
    let known: Vec<_> = reading.warnings[..warned].to_vec();
    let mut place = warned;
    while let Some(warning) = reading.warnings.get_mut(place) {
        warning.0 = warning.0.replace(&section.name, table);
        if known.contains(warning) {
            reading.warnings.remove(place);
        } else {
            place += 1;
        }
    }
    Ok(())
}

/// The position of a name, which is added if it is new.
fn position(names: &mut Vec<String>, name: &str) -> u32 {
    let found = names.iter().position(|known| known == name);
    let index = found.unwrap_or_else(|| {
        names.push(name.to_owned());
        names.len() - 1
    });
    u32::try_from(index).unwrap_or(u32::MAX)
}
