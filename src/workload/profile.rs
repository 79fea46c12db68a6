//! A workload profile: what sessions of one kind of work look like, as data.
//!
//! A profile is a TOML file (`docs/generate.md`); the built-in ones are such files, compiled in.
//! It holds parameters, each with a mark that says what it rests on, the targets that a generated
//! trace is held against, and the contradictions among them. [`KEYS`] is the one list of the
//! parameters: reader, writer and documentation go by it.

use super::dist::{Dist, Family};
use super::target::Target;

mod adjust;
mod keys;
mod read;
#[cfg(test)]
mod tests;
mod write;

pub use keys::{KEYS, Key, Kind, Spec};

/// What a figure rests on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// Measured from a public data set.
    Measured,
    /// Stated by a publication.
    Published,
    /// Chosen so that targets come out.
    Fit,
    /// A guess.
    Assumed,
}

impl Mark {
    /// Every mark with its word.
    pub const WORDS: [(&'static str, Self); 4] = [
        ("measured", Self::Measured),
        ("published", Self::Published),
        ("fit", Self::Fit),
        ("assumed", Self::Assumed),
    ];

    /// Its word.
    #[must_use]
    pub fn word(self) -> &'static str {
        Self::WORDS.iter().find(|(_, mark)| *mark == self).map_or("", |(word, _)| word)
    }
}

/// A distribution with what it rests on.
#[derive(Clone, Debug, PartialEq)]
pub struct Parameter {
    /// What is drawn.
    pub dist: Dist,
    /// What it rests on.
    pub mark: Mark,
    /// Where it is from, in words.
    pub source: String,
}

/// What happens to a prompt that would exceed the limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AtLimit {
    /// The conversation is compacted: the shared prefix stays, the rest is written anew.
    #[default]
    Compact,
    /// The session ends.
    End,
}

impl AtLimit {
    pub(super) const WORDS: [(&'static str, Self); 2] =
        [("compact", Self::Compact), ("end", Self::End)];
}

/// When people are at work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Hours {
    /// Office hours in one time zone, Monday to Friday.
    #[default]
    Office,
    /// A service used around the world.
    Global,
    /// Evenly, day and night.
    Even,
}

impl Hours {
    /// Every kind with its word.
    pub const WORDS: [(&'static str, Self); 3] =
        [("office", Self::Office), ("global", Self::Global), ("even", Self::Even)];
}

/// A kind of people: the profile with other amounts.
#[derive(Clone, Debug, PartialEq)]
pub struct Class {
    /// Its name; it is written behind the profile's in the trace.
    pub name: String,
    /// Share of the people.
    pub share: f64,
    /// Factor on the calls of a turn.
    pub calls: f64,
    /// Factor on what a prompt holds beyond the shared prefix: first prompts and growth.
    pub context: f64,
    /// Prompt tokens of a turn on average that the factors are meant to give, if known.
    pub tokens_per_turn: Option<f64>,
}

/// Published figures that exclude one another, and which of them is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// Its name in the file.
    pub name: String,
    /// What excludes what, and why.
    pub why: String,
    /// What is kept.
    pub choice: String,
}

/// A workload profile.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    /// Its name; it stands in the trace's `profile` column.
    pub name: String,
    /// One line on what it is.
    pub summary: String,
    /// Model group that sessions ask for.
    pub model: String,
    /// Model group that a switch leads to.
    pub other_model: Option<String>,
    /// What happens at the prompt's limit.
    pub at_limit: AtLimit,
    /// When people are at work.
    pub hours: Hours,
    /// Indexed by key.
    parameters: Vec<Option<Parameter>>,
    /// Kinds of people; none: all are alike.
    pub classes: Vec<Class>,
    /// What a generated trace is held against.
    pub targets: Vec<Target>,
    /// Which published figures exclude one another.
    pub conflicts: Vec<Conflict>,
}

impl Profile {
    /// A profile without parameters; those that are required must be [`set`](Self::set).
    #[must_use]
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            summary: String::new(),
            model: "main".to_owned(),
            other_model: None,
            at_limit: AtLimit::default(),
            hours: Hours::default(),
            parameters: vec![None; KEYS.len()],
            classes: Vec::new(),
            targets: Vec::new(),
            conflicts: Vec::new(),
        }
    }

    /// A parameter, if the profile says.
    #[must_use]
    pub fn get(&self, key: Key) -> Option<&Parameter> {
        self.parameters[key as usize].as_ref()
    }

    /// Sets a parameter.
    pub fn set(&mut self, key: Key, parameter: Parameter) {
        self.parameters[key as usize] = Some(parameter);
    }

    /// What a parameter draws from, if the profile says.
    #[must_use]
    pub fn dist(&self, key: Key) -> Option<&Dist> {
        self.get(key).map(|parameter| &parameter.dist)
    }

    /// The number that a parameter is, or its default.
    #[must_use]
    pub fn number(&self, key: Key) -> f64 {
        match self.dist(key).map(|dist| &dist.family) {
            Some(Family::Constant(value)) => *value,
            _ => key.spec().default.unwrap_or_default(),
        }
    }
}
