//! Which model group of a config answers which model of the trace.

use super::Deployment;
use super::read::{CONFIG, Gateway};
use crate::diag::{Error, Result, Warning, nearest};

impl Gateway {
    /// Pods at the start.
    #[must_use]
    pub fn pods(&self) -> u32 {
        self.config().pods
    }

    /// Model groups of a config that prices others and not these: what they bill is not known, and
    /// adds nothing to what rows bill.
    pub(super) fn unpriced(&self) -> Option<Warning> {
        let config = self.config();
        let is_priced = |one: &Deployment| one.token_price.is_some();
        if config.database.is_none()
            || !config.spend.enabled
            || !config.deployments.iter().any(is_priced)
        {
            return None;
        }
        let lacks = |group: u32| {
            let mut own = config.deployments.iter().filter(|one| one.group == group);
            own.any(|one| !is_priced(one))
        };
        let groups = (0..).zip(&config.groups).filter(|(group, _)| lacks(*group));
        let names: Vec<&str> = groups.map(|(_, group)| group.name.as_str()).collect();
        (!names.is_empty()).then(|| {
            Warning(format!(
                "{CONFIG} says what a token costs, but not for every deployment of {}: calls that \
                 those answer bill nothing in spend_usd_written and spend_usd_lost",
                names.join(", ")
            ))
        })
    }

    /// Checks that calls of these served models have a model group in the config. Without a config
    /// there is one group, which takes all; so does the only one of a config, with a warning.
    ///
    /// # Errors
    /// A served model that no group of several is called as, with the nearest name.
    pub fn check_models<'a>(
        &self,
        served: impl Iterator<Item = &'a str>,
    ) -> Result<Option<Warning>> {
        let groups = &self.config().groups;
        let names = || groups.iter().map(|group| group.name.as_str());
        let mut homeless = served.filter(|model| names().all(|name| name != *model));
        let Some(first) = homeless.next().filter(|_| self.file.is_some()) else {
            return Ok(None);
        };
        if let [only] = groups.as_slice() {
            let others: Vec<&str> = homeless.collect();
            let others = match others.len() {
                0 => String::new(),
                1 => " and 1 other".to_owned(),
                more => format!(" and {more} others"),
            };
            let text = format!(
                "no model group of {CONFIG} is called `{first}`: calls of it{others} go to the \
                 only one, `{}`; LiteLLM would refuse them (see [models])",
                only.name
            );
            return Ok(Some(Warning(text)));
        }
        let listed: Vec<&str> = names().collect();
        let help = match nearest(first, names()) {
            Some(near) => format!("did you mean `{near}`? [models] says who serves what"),
            None => format!("[models] says who serves what; there are: {}", listed.join(", ")),
        };
        let text = format!("no model group is called `{first}`, which the trace asks for");
        Err(Error::new(text).in_field(CONFIG).help(help))
    }
}
