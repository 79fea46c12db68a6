//! A profile with a few parameters turned, as a scenario asks for it.

use super::read::PAIRS;
use super::{KEYS, Key, Kind, Mark, Parameter, Profile, Spec};
use crate::diag::{Error, Result};
use crate::workload::dist::Dist;

/// What behind a drawn parameter's name means a factor on every draw.
const TIMES: &str = ".times";
/// The largest factor; beyond it is a slip.
const TIMES_MAX: f64 = 1e4;
/// The largest amount of anything.
const AMOUNT_MAX: f64 = 1e9;

impl Profile {
    /// The profile with other numbers: a share or factor is set, a drawn parameter is set to one
    /// value, and `NAME.times` multiplies all draws of one.
    ///
    /// # Errors
    /// A name that is none, a number out of range, and what has no effect or lacks something.
    pub fn adjusted(mut self, changes: &[(String, f64)]) -> Result<Self> {
        let mut turned = Vec::new();
        for (name, value) in changes {
            let key = self.adjust(name, *value).map_err(|error| in_scenario(error, name))?;
            turned.push((key, name));
        }
        for (switch, needs, may_have) in PAIRS {
            let is_on = switch.is_on(&self);
            if let Some(key) = needs.iter().find(|key| is_on && self.get(**key).is_none()) {
                let missing = key.spec();
                let error = Error::new(format!("{} needs this parameter", switch.name()));
                return Err(in_scenario(error.help(missing.meaning), missing.name));
            }
            let mut dependents = needs.iter().chain(*may_have);
            let idle = dependents.find_map(|key| turned.iter().find(|(turned, _)| turned == key));
            let switched = |key: &Key| turned.iter().any(|(turned, _)| turned == key);
            if let Some((_, name)) = idle.filter(|_| !is_on && !switch.keys().iter().any(switched))
            {
                let error = Error::new(format!("it has no effect: {} is needed", switch.name()));
                return Err(in_scenario(error, name));
            }
        }
        if self.number(Key::Switch) > 0.0 && self.other_model.is_none() {
            let error = Error::new(format!("the profile {} has no other model", self.name));
            return Err(in_scenario(error, Key::Switch.spec().name));
        }
        Ok(self)
    }

    fn adjust(&mut self, name: &str, value: f64) -> Result<Key> {
        let (parameter, times) = match name.strip_suffix(TIMES) {
            Some(parameter) => (parameter, true),
            None => (name, false),
        };
        let spec = find(parameter)?;
        let dist = match (spec.kind, times) {
            (Kind::Number(..), true) => {
                return Err(Error::new("it is one number: set it instead of multiplying it"));
            }
            (Kind::Number(min, max), false) => Dist::constant(within(value, min, max)?),
            (Kind::Draw, false) => Dist::constant(within(value, 0.0, AMOUNT_MAX)?),
            (Kind::Draw, true) => {
                let factor = within(value, 0.0, TIMES_MAX)?;
                let Some(dist) = self.dist(spec.key) else {
                    return Err(Error::new(format!("the profile {} has none", self.name)));
                };
                dist.times(factor)
            }
        };
        let (mark, source) = (Mark::Assumed, "the scenario".to_owned());
        self.set(spec.key, Parameter { dist, mark, source });
        Ok(spec.key)
    }
}

fn find(name: &str) -> Result<&'static Spec> {
    let names = KEYS.iter().map(|spec| spec.name);
    KEYS.iter()
        .find(|spec| spec.name == name)
        .ok_or_else(|| Error::unknown("parameter of a profile", name, names))
}

fn within(value: f64, min: f64, max: f64) -> Result<f64> {
    match (min..=max).contains(&value) {
        true => Ok(value),
        false => Err(Error::found(value, format!("a number from {min} to {max}"))),
    }
}

fn in_scenario(error: Error, name: &str) -> Error {
    error.in_field(format!("profile.{name}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::catalogue;

    fn adjusted(changes: &[(&str, f64)]) -> Result<Profile> {
        let changes: Vec<_> = changes.iter().map(|(name, to)| ((*name).to_owned(), *to)).collect();
        catalogue::profile("copilot")?.adjusted(&changes)
    }

    #[test]
    fn numbers_are_set_and_draws_multiplied() {
        let plain = catalogue::profile("copilot").unwrap();
        let turned = adjusted(&[("gap.user.times", 4.0), ("models.switch", 0.5)]).unwrap();
        let median = |profile: &Profile| profile.dist(Key::GapUser).unwrap().quantile(0.5);
        assert!((median(&turned) / median(&plain) - 4.0).abs() < 1e-9);
        assert_eq!(turned.number(Key::Switch), 0.5);
        let volatile = [("prompt.volatile", 0.5), ("prompt.volatile_at", 200.0)];
        assert_eq!(adjusted(&volatile).unwrap().number(Key::Volatile), 0.5);
        // A share may be turned down to nothing beside what it would need.
        assert!(adjusted(&[("prompt.volatile", 0.0), ("prompt.volatile_at", 200.0)]).is_ok());
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (changes, said) in [
            (&[("gap.usr.times", 4.0)][..], "did you mean `gap.user`?"),
            (&[("models.switch", 1.5)], "from 0 to 1"),
            (&[("models.switch.times", 2.0)], "set it instead"),
            (&[("prompt.volatile_at", 9.0)], "profile.prompt.volatile_at: it has no effect"),
            (&[("prompt.replaced", 0.2)], "profile.prompt.replaced_tokens"),
        ] {
            let error = adjusted(changes).unwrap_err().to_string();
            assert!(error.contains(said), "{error}");
        }
    }
}
