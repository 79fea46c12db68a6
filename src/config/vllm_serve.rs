//! A real command line of vLLM's server, read as the engine of a scenario.
//!
//! The line describes the whole engine: keys of the scenario that are flags of vLLM and that the
//! line does not name go back to vLLM's defaults. It wins over the scenario's file, and `--set`
//! wins over it. A flag that would change a figure and is not modelled is refused by name; a flag
//! that changes none is listed as ignored.

pub mod log;
mod number;
pub mod tables;
#[cfg(test)]
mod tests;
mod words;

use toml::Value;

use self::tables::{Flag, Kind, MODELLED, Refused};
use self::words::{Given, Words, flag_field};
use crate::diag::{Error, Result};
use crate::document::Document;

/// The key that holds the line.
pub const KEY: &str = "engine.vllm_serve";

/// The options of the command line for these keys, which complaints name.
pub const OPTIONS: &[(&str, &str)] = &[(KEY, "--vllm"), (log::KEY, "--vllm-log")];

/// The assignment that sets a key to a text, as [`Document::set`] takes it.
#[must_use]
pub fn assignment(key: &str, text: &str) -> String {
    format!("{key}={}", Value::from(text))
}

/// A key that the line sets.
#[derive(Clone, Debug, PartialEq)]
pub struct Setting {
    /// The key.
    pub key: &'static str,
    /// Its value.
    pub value: Value,
    /// The flag without dashes; `None` for the model that stands by itself.
    pub flag: Option<&'static str>,
}

/// A command line, read.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CommandLine {
    /// What it sets, each key once.
    pub settings: Vec<Setting>,
    /// What the user should know: what was ignored or given twice.
    pub notes: Vec<String>,
}

impl CommandLine {
    /// Reads `vllm serve MODEL --flag value ...`.
    ///
    /// # Errors
    /// What is no such line, or a flag that does not exist, is not modelled, or has no value or a
    /// wrong one.
    pub fn read(text: &str) -> Result<Self> {
        let words = Words::read(text)?;
        let mut line = Self { settings: Vec::new(), notes: words.notes };
        line.note_repeats(&words.flags);
        line.note_ignored(&words.flags);
        for given in &words.flags {
            if let Flag::Refused(flag) = given.flag {
                check_refused(flag, given, last(&words.flags, &given.name))?;
            }
        }
        for flag in MODELLED {
            let name = format!("--{}", flag.name);
            let value = match last(&words.flags, &name) {
                Some(given) => convert(flag.kind, given)?,
                None => continue,
            };
            line.set(flag.key, value, Some(flag.name));
        }
        line.choose_model(words.model.as_deref(), &words.flags)?;
        Ok(line)
    }

    fn set(&mut self, key: &'static str, value: Value, flag: Option<&'static str>) {
        self.settings.retain(|setting| setting.key != key);
        self.settings.push(Setting { key, value, flag });
    }

    /// The model that stands by itself wins over `--model`, as in vLLM, and the place of the
    /// config.json over both.
    fn choose_model(&mut self, by_itself: Option<&str>, flags: &[Given]) -> Result<()> {
        let by_flag = last(flags, "--model").map(|given| given.value.as_str());
        let config = last(flags, "--hf-config-path").map(|given| given.value.as_str());
        let Some(model) = by_itself.or(by_flag) else {
            return Err(Error::new("the line names no model").help(
                "put it after `vllm serve`: a name of the catalogue or the path of a config.json",
            ));
        };
        if by_itself.is_some() && by_flag.is_some_and(|name| name != model) {
            self.notes.push(format!("--model gives way to {model}, which stands by itself"));
        }
        if let Some(config) = config {
            self.notes.push(format!("the shape of {model} is read from {config}"));
        } else {
            let flag = by_itself.is_none().then_some("model");
            self.set("engine.model", Value::String(model.to_owned()), flag);
        }
        Ok(())
    }

    fn note_repeats(&mut self, flags: &[Given]) {
        let counts = |given: &Given| !matches!(given.flag, Flag::Ignored(..)) && !given.is_part;
        let names: Vec<&str> =
            flags.iter().filter(|given| counts(given)).map(|given| given.name.as_str()).collect();
        let mut repeated: Vec<&str> = Vec::new();
        for (index, name) in names.iter().enumerate() {
            if names[..index].contains(name) && !repeated.contains(name) {
                repeated.push(name);
            }
        }
        if !repeated.is_empty() {
            let text = "given more than once, of which the last counts";
            self.notes.push(format!("{text}: {}", repeated.join(", ")));
        }
    }

    fn note_ignored(&mut self, flags: &[Given]) {
        let mut names: Vec<&str> = Vec::new();
        for given in flags {
            if matches!(given.flag, Flag::Ignored(..)) && !names.contains(&given.name.as_str()) {
                names.push(&given.name);
            }
        }
        if !names.is_empty() {
            self.notes.push(format!("ignored vllm serve flags: {}", names.join(", ")));
        }
    }
}

/// The last time that a flag was given as a whole.
fn last<'a>(flags: &'a [Given], name: &str) -> Option<&'a Given> {
    flags.iter().rev().find(|given| given.name == name && !given.is_part)
}

fn check_refused(flag: &Refused, given: &Given, last: Option<&Given>) -> Result<()> {
    let counts = if given.is_part { given } else { last.unwrap_or(given) };
    let plain: String = counts.value.to_lowercase().split_whitespace().collect();
    if !counts.is_part && flag.neutral.contains(&plain.as_str()) {
        return Ok(());
    }
    let text = format!("{} is not modelled: found `{}`", flag.what, counts.value);
    let error = Error::new(text).in_field(flag_field(&given.name));
    Err(match flag.name {
        "kv-cache-memory-bytes" => {
            error.help("give the number of blocks: --num-gpu-blocks-override, or the log's line")
        }
        _ => error.help("leave the flag out to simulate the engine without it"),
    })
}

fn convert(kind: Kind, given: &Given) -> Result<Value> {
    let value = given.value.as_str();
    let whole = |number: u64| i64::try_from(number).ok().map(Value::Integer);
    let (read, allowed) = match kind {
        Kind::Text => (Some(Value::String(value.to_owned())), "a text"),
        Kind::Whole => (value.parse().ok().and_then(whole), "a whole number"),
        Kind::Human => (
            number::human(value).and_then(whole),
            "a whole number; 128k is 128,000 and 128K is 131,072",
        ),
        Kind::Number => {
            let number = value.parse::<f64>().ok().filter(|number| number.is_finite());
            (number.map(Value::Float), "a number")
        }
        Kind::Switch => (value.parse().ok().map(Value::Boolean), "no value"),
    };
    let error = || {
        let error = Error::found(value, allowed).in_field(flag_field(&given.name));
        match (given.name.as_str(), value) {
            ("--max-model-len", "auto" | "-1") => {
                error.help("a length chosen by vLLM is not modelled: give it in tokens")
            }
            _ => error,
        }
    };
    read.ok_or_else(error)
}

/// Puts what [`KEY`] says into the document, and settles which of a line, a log and the scenario's
/// own keys count.
///
/// `refused` are the keys that are flags and not modelled. Returns what the user should know.
///
/// # Errors
/// A line that cannot be read, a line without a GPU beside it, or keys that contradict one another.
pub fn apply(document: &mut Document, refused: &[&str]) -> Result<Vec<String>> {
    let mut notes = Vec::new();
    if let Some(text) = document.text(KEY)? {
        let line = CommandLine::read(&text).map_err(|error| {
            let field = error.place().field.clone();
            let error = document.at(KEY, error);
            field.iter().fold(error, |error, field| error.with_field(field))
        })?;
        notes.extend(line.notes);
        notes.extend(clear(document, refused)?);
        for Setting { key, value, flag } in line.settings {
            // Only --set is left to win over the line.
            if !document.has(key) {
                let name = flag.map_or("MODEL".to_owned(), |flag| format!("--{flag}"));
                document.derive(key, value, KEY, &flag_field(&name));
            }
        }
        if !document.has("engine.gpu") {
            let error = Error::new("a command line does not say on which GPU it runs");
            let help = "add --set engine.gpu=h100-sxm, or gpu = \"h100-sxm\" under [engine]";
            return Err(document.at(KEY, error.help(help)));
        }
    }
    notes.extend(settle_log(document)?);
    Ok(notes)
}

/// Takes the keys of the scenario's file that are flags of vLLM out, so that its defaults stand.
fn clear(document: &mut Document, refused: &[&str]) -> Result<Option<String>> {
    let is_from_file = document.is_from_file(KEY);
    let flags = MODELLED.iter().map(|flag| flag.key).chain(refused.iter().copied());
    let mut cleared: Vec<&str> = Vec::new();
    for key in flags.chain([log::KEY]) {
        if !document.is_from_file(key) || cleared.contains(&key) {
            continue;
        }
        if !is_from_file {
            document.remove(key);
            cleared.push(key);
        } else if key != log::KEY {
            let text = format!("stands beside {KEY}, which describes the whole engine");
            let help = "put it into the command line as a flag";
            return Err(document.at(key, Error::new(text).help(help)));
        }
    }
    let text = "the vllm line stands in for these keys of the scenario";
    Ok((!cleared.is_empty()).then(|| format!("{text}: {}", cleared.join(", "))))
}

/// Lets the log of a start or a number of blocks count, whichever is nearer to the command line.
fn settle_log(document: &mut Document) -> Result<Option<String>> {
    const BLOCKS: &str = "engine.num_gpu_blocks_override";
    if !document.has(log::KEY) || !document.has(BLOCKS) {
        return Ok(None);
    }
    let loser = match (document.is_from_file(log::KEY), document.is_from_file(BLOCKS)) {
        (true, false) => log::KEY,
        (false, true) => BLOCKS,
        _ => {
            let text = format!("stands beside {BLOCKS}: both give the number of blocks");
            return Err(document.at(log::KEY, Error::new(text).help("keep one of them")));
        }
    };
    document.remove(loser);
    Ok(Some(format!("{loser} of the scenario gives way to the command line")))
}
