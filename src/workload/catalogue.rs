//! The profiles that are compiled in.

use super::profile::Profile;
use crate::diag::{Error, Result};

/// Every built-in profile with the text of its file.
pub const PROFILES: &[(&str, &str)] = &[
    ("copilot", include_str!("data/copilot.toml")),
    ("agentx", include_str!("data/agentx.toml")),
    ("swe-bench-pro", include_str!("data/swe-bench-pro.toml")),
    ("terminal-bench", include_str!("data/terminal-bench.toml")),
    ("gaia", include_str!("data/gaia.toml")),
    ("dabstep", include_str!("data/dabstep.toml")),
    ("chat", include_str!("data/chat.toml")),
    ("long-loop", include_str!("data/long-loop.toml")),
    ("rag-dynamic", include_str!("data/rag-dynamic.toml")),
];

/// The text of a built-in profile.
///
/// # Errors
/// A name that is none of them, with the nearest.
pub fn text(name: &str) -> Result<&'static str> {
    match PROFILES.iter().find(|(known, _)| *known == name) {
        Some((_, text)) => Ok(text),
        None => {
            let known: Vec<&str> = PROFILES.iter().map(|(known, _)| *known).collect();
            let help = "a profile of your own is named by its path, which ends in .toml";
            Err(Error::unknown("profile", name, known).help(help))
        }
    }
}

/// A built-in profile.
///
/// # Errors
/// A name that is none of them, with the nearest.
pub fn profile(name: &str) -> Result<Profile> {
    Profile::parse(text(name)?, name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_profile_is_one_and_bears_its_name() {
        for (name, text) in PROFILES {
            let profile = Profile::parse(text, name).unwrap();
            assert_eq!(profile.name, *name);
            assert!(!profile.summary.is_empty() && !profile.targets.is_empty(), "{name}");
            assert_eq!(Profile::parse(&profile.to_toml(), name).unwrap(), profile);
        }
        let error = profile("copliot").unwrap_err().to_string();
        assert!(error.contains("did you mean `copilot`?"), "{error}");
    }
}
