//! Environment variables of a proxy.

use std::collections::BTreeMap;

use super::yaml::{Node, Section, Value};
use crate::config::gateway::{GatewayConfig, Redis};
use crate::diag::{Error, Result};
use crate::units::{Bytes, Span};

/// Variables with their values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Environment(BTreeMap<String, String>);

/// Variables that would change a figure and are not modelled, with values that change none.
const REFUSED: &[(&str, &[&str], &str)] = &[
    ("LITELLM_RUST", &["", "0", "false"], "the counter in Rust"),
    (
        "LITELLM_TPM_TOKEN_RESERVATION_ENABLED",
        &["", "1", "true"],
        "counting tokens against limits at the end only",
    ),
    ("MAX_REQUESTS_BEFORE_RESTART", &["", "0"], "restarting workers after so many requests"),
];

/// Variables that are read, for the documentation and its test.
pub const READ: &[&str] = &[
    "NUM_WORKERS",
    "DATABASE_URL",
    "TOKEN_COUNTER_MAX_CONCURRENT_COUNTS",
    "PROXY_BATCH_WRITE_AT",
    "SPEND_LOG_QUEUE_MAX_BYTES",
    "SPEND_LOG_QUEUE_SIZE_THRESHOLD",
    "SPEND_LOG_QUEUE_POLL_INTERVAL",
    "SPEND_LOG_WRITE_BATCH_MAX_ROWS",
    "SPEND_LOG_WRITE_BATCH_MAX_BYTES",
    "REDIS_CIRCUIT_BREAKER_FAILURE_THRESHOLD",
    "REDIS_CIRCUIT_BREAKER_RECOVERY_TIMEOUT",
];

impl Environment {
    /// Reads lines of `NAME=value`, as in an `.env` file: comments, `export`, quotes.
    ///
    /// # Errors
    /// A line that is none.
    pub fn parse(text: &str, file: &str) -> Result<Self> {
        let mut variables = BTreeMap::new();
        for (line, number) in text.lines().zip(1_u64..) {
            let plain = line.trim();
            let plain = plain.strip_prefix("export ").unwrap_or(plain).trim_start();
            if plain.is_empty() || plain.starts_with('#') {
                continue;
            }
            let pair = plain.split_once('=').filter(|(name, _)| is_name(name));
            let Some((name, value)) = pair else {
                // A line may hold a secret, so it is not shown.
                return Err(Error::new("a line that is not NAME=value")
                    .in_file(file)
                    .at_line(number));
            };
            variables.insert(name.to_owned(), unquoted(value.trim()).to_owned());
        }
        Ok(Self(variables))
    }

    /// Adds one `NAME=value`.
    ///
    /// # Errors
    /// What is none.
    pub fn set(&mut self, assignment: &str) -> Result<()> {
        let pair = assignment.split_once('=').filter(|(name, _)| is_name(name));
        let (name, value) =
            pair.ok_or_else(|| Error::new("an assignment that is not NAME=value"))?;
        self.0.insert(name.to_owned(), value.to_owned());
        Ok(())
    }

    /// The value of a variable; empty ones count as unset.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    /// The same with what the file's own section sets, which LiteLLM lets win.
    pub(super) fn with_section(&self, file: &str, value: Option<&Value>) -> Result<Self> {
        let section = Section::of(file, "environment_variables", value)?;
        let mut all = self.clone();
        for (name, value) in section.entries() {
            match &value.node {
                Node::Null => {}
                Node::List(_) | Node::Map(_) => return Err(section.wrong(value, name, "a text")),
                // A reference to itself, or to another, is the variable as it is.
                Node::Text(text) if text.starts_with("os.environ/") => {
                    let other = text.trim_start_matches("os.environ/");
                    if let Some(found) = self.get(other) {
                        all.0.insert(name.to_owned(), found.to_owned());
                    }
                }
                _ => drop(all.0.insert(name.to_owned(), value.to_string())),
            }
        }
        Ok(all)
    }

    /// A whole number.
    pub(super) fn number(&self, name: &str) -> Result<Option<u64>> {
        let Some(text) = self.get(name) else { return Ok(None) };
        let number = text.trim().parse();
        number.map(Some).map_err(|_| Error::found(text, "a whole number").in_field(name))
    }

    /// A whole number from 1 that fits 32 bits.
    fn count(&self, name: &str) -> Result<Option<u32>> {
        let Some(number) = self.number(name)? else { return Ok(None) };
        let count = u32::try_from(number).ok().filter(|count| *count > 0);
        let wrong = || Error::found(number, "a whole number from 1").in_field(name);
        count.map(Some).ok_or_else(wrong)
    }

    fn seconds(&self, name: &str) -> Result<Option<Span>> {
        let Some(text) = self.get(name) else { return Ok(None) };
        let span = Span::parse_secs(text.trim()).filter(|span| span.0 > 0);
        span.map(Some).ok_or_else(|| Error::found(text, "seconds above 0").in_field(name))
    }

    /// The breaker of Redis, with what the variables say.
    pub(super) fn redis(&self, before: Option<Redis>) -> Result<Redis> {
        let mut redis = before.unwrap_or_default();
        if let Some(failures) = self.count("REDIS_CIRCUIT_BREAKER_FAILURE_THRESHOLD")? {
            redis.breaker_failures = failures;
        }
        if let Some(rest) = self.seconds("REDIS_CIRCUIT_BREAKER_RECOVERY_TIMEOUT")? {
            redis.breaker_recovery = rest;
        }
        Ok(redis)
    }

    /// Sets what the variables say, over what the file said.
    pub(super) fn apply(&self, gateway: &mut GatewayConfig) -> Result<()> {
        for (name, neutral, what) in REFUSED {
            let value = self.get(name).unwrap_or_default().to_lowercase();
            if !neutral.contains(&value.as_str()) && self.has(name) {
                let text = format!("{what} is not modelled: found `{value}`");
                return Err(Error::new(text).in_field(name));
            }
        }
        if let Some(workers) = self.count("NUM_WORKERS")? {
            gateway.workers = workers;
        }
        let spend = &mut gateway.spend;
        if let Some(rows) = self.count("SPEND_LOG_QUEUE_SIZE_THRESHOLD")? {
            spend.threshold_rows = rows;
        }
        if let Some(rows) = self.count("SPEND_LOG_WRITE_BATCH_MAX_ROWS")? {
            spend.statement_rows = rows;
        }
        if let Some(bytes) = self.number("SPEND_LOG_QUEUE_MAX_BYTES")? {
            spend.max_bytes = Bytes(bytes.max(1));
        }
        if let Some(bytes) = self.number("SPEND_LOG_WRITE_BATCH_MAX_BYTES")? {
            spend.statement_bytes = Bytes(bytes.max(1));
        }
        if let Some(poll) = self.seconds("SPEND_LOG_QUEUE_POLL_INTERVAL")? {
            spend.poll = poll;
            spend.poll_max = spend.poll_max.max(poll);
        }
        if let Some(interval) = self.seconds("PROXY_BATCH_WRITE_AT")? {
            spend.write_interval = interval;
        }
        Ok(())
    }
}

fn is_name(name: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    !name.is_empty() && name.bytes().all(allowed) && !name.as_bytes()[0].is_ascii_digit()
}

fn unquoted(value: &str) -> &str {
    let inner = |quote: char| value.strip_prefix(quote)?.strip_suffix(quote);
    inner('"').or_else(|| inner('\'')).unwrap_or(value)
}
