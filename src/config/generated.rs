//! `[generate]`: sessions made while they are played, in place of a trace.

use crate::diag::{Error, Result};
use crate::document::Document;

/// A workload to be generated. The names in it are looked up where profiles are known.
#[derive(Clone, Debug, PartialEq)]
pub struct Generated {
    /// A built-in profile, or the path of one, relative to the scenario; or several of them by
    /// their share of the people, `NAME=SHARE,NAME=SHARE`.
    pub profile: String,
    /// Who starts sessions.
    pub starts: Starts,
    /// Speed at which answers are taken to be generated, for the recorded times, in tokens per
    /// second.
    pub assume_tps: f64,
    /// Parameters of the profile that are turned, by name, as the file of a profile names them.
    pub turned: Vec<(String, f64)>,
}

/// Who starts sessions, and how many.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Starts {
    /// So many sessions at a steady rate, by so many users.
    Steady {
        /// Sessions.
        sessions: u64,
        /// How many start in an hour.
        per_hour: f64,
        /// Who start them.
        users: u32,
    },
    /// So many people for so many days.
    People {
        /// People.
        people: u32,
        /// Days.
        days: u32,
    },
}

/// The section whose keys are parameters of the profile.
pub const SECTION: &str = "profile";
/// The largest amount of anything in a profile.
const AMOUNT_MAX: f64 = 1e9;

const PROFILE: &str = "generate.profile";
const SESSIONS: &str = "generate.sessions";
const PER_HOUR: &str = "generate.per_hour";
const USERS: &str = "generate.users";
const PEOPLE: &str = "generate.people";
const DAYS: &str = "generate.days";
const ASSUME_TPS: &str = "generate.assume_tps";

/// Hours of ten years, over which sessions may start.
const HOURS_MAX: f64 = 87_660.0;

impl Generated {
    /// Reads the section; none if it names no profile.
    ///
    /// # Errors
    /// A value out of range, keys that exclude each other, or keys without a profile.
    pub fn read(document: &mut Document) -> Result<Option<Self>> {
        let Some(profile) = document.text(PROFILE)? else {
            let others = [SESSIONS, PER_HOUR, USERS, PEOPLE, DAYS, ASSUME_TPS];
            return match others.into_iter().find(|key| document.has(key)) {
                Some(key) => Err(document.at(key, Error::new(format!("only goes with {PROFILE}")))),
                None => match keys_of_section(document).first() {
                    Some(key) => {
                        let error = Error::new(format!("only goes with {PROFILE}"));
                        Err(document.at(key, error))
                    }
                    None => Ok(None),
                },
            };
        };
        if document.has("trace") && document.is_from_file("trace") != document.is_from_file(PROFILE)
        {
            // The command line wins over the file.
            document.forget_from_file(&["trace"]);
        }
        if document.has("trace") {
            let error = Error::new("a trace is played, or generated sessions: not both");
            return Err(document.at(PROFILE, error));
        }
        let starts = read_starts(document)?;
        let assume_tps = document.number(ASSUME_TPS, 1.0, 1e6)?.unwrap_or(60.0);
        let number = |key: String| {
            let number = document.number(&key, 0.0, AMOUNT_MAX)?.unwrap_or_default();
            Ok((key[SECTION.len() + 1..].to_owned(), number))
        };
        let turned = keys_of_section(document).into_iter().map(number);
        let turned = turned.collect::<Result<Vec<_>>>()?;
        if let (true, Some(key)) = (profile.contains('='), keys_of_section(document).first()) {
            let text = format!("turns one profile, and {PROFILE} mixes several");
            return Err(document.at(key, Error::new(text)));
        }
        Ok(Some(Self { profile, starts, assume_tps, turned }))
    }
}

/// Keys in the section `[profile]`, those of tables in it left out.
fn keys_of_section(document: &Document) -> Vec<String> {
    let prefix = format!("{SECTION}.");
    let keys = document.keys().filter(|key| key.starts_with(&prefix));
    let is_table = |key: &&str| document.value(key).is_some_and(toml::Value::is_table);
    keys.filter(|key| !is_table(key)).map(str::to_owned).collect()
}

fn read_starts(document: &Document) -> Result<Starts> {
    let people = document.whole(PEOPLE, 1, 10_000_000)?;
    let excluded = match people {
        Some(_) => [SESSIONS, PER_HOUR, USERS].as_slice(),
        None => [DAYS].as_slice(),
    };
    if let Some(key) = excluded.iter().find(|key| document.has(key)) {
        let text = match people {
            Some(_) => format!("does not go with {PEOPLE}"),
            None => format!("only goes with {PEOPLE}"),
        };
        return Err(document.at(key, Error::new(text)));
    }
    if let Some(people) = people {
        let days = document.whole(DAYS, 1, 3_660)?.unwrap_or(7);
        return Ok(Starts::People { people: people as u32, days: days as u32 });
    }
    let sessions = document.whole(SESSIONS, 1, 1_000_000_000)?.unwrap_or(1_000);
    let per_hour = document.number(PER_HOUR, 1e-3, 1e7)?.unwrap_or(60.0);
    let users = document.whole(USERS, 1, 10_000_000)?.unwrap_or(100);
    if sessions as f64 / per_hour > HOURS_MAX {
        let error = Error::new("so many sessions at that rate start over more than 10 years");
        return Err(document.at(SESSIONS, error));
    }
    Ok(Starts::Steady { sessions, per_hour, users: users as u32 })
}
