//! One row of TraceLab's rounds, checked.

use serde::Deserialize;
use serde_json::Value;

use crate::diag::{Error, Result};
use crate::trace::check::{NAME_BYTES_MAX, TOKENS_MAX};
use crate::trace::import::instant;
use crate::units::Tokens;

/// Events that a prompt brings, and those that an answer shows.
const INPUTS: [&str; 2] = ["user_message", "tool_result"];
const OUTPUTS: [&str; 3] = ["reasoning", "text", "tool_call"];
/// The provider's account of a call, which comes when it is over.
const USAGE: &str = "usage_report";
/// Characters of a wrong value that a message repeats.
const SHOWN_CHARS_MAX: usize = 40;

/// The fields that are read. Values are checked later, so that a message can name the field.
#[derive(Deserialize)]
struct RawRound {
    provider: Option<Value>,
    user: Option<Value>,
    session_id: Option<Value>,
    round_index: Option<Value>,
    model: Option<Value>,
    input_tokens_total: Option<Value>,
    prefix_tokens: Option<Value>,
    newly_append_tokens: Option<Value>,
    output_tokens: Option<Value>,
    trace_key: Option<Value>,
    timing_events: Option<Vec<RawEvent>>,
    tools: Option<Vec<RawTool>>,
}

#[derive(Deserialize)]
struct RawTool {
    emitted_at: Option<Value>,
    result_at: Option<Value>,
    tool_internal_latency_ms: Option<Value>,
    tool_wall_latency_ms: Option<Value>,
}

#[derive(Deserialize)]
struct RawEvent {
    event_type: Option<Value>,
    timestamp: Option<Value>,
}

/// One call. Times are nanoseconds since the Unix epoch.
#[derive(Debug)]
pub(super) struct Round {
    pub(super) provider: String,
    /// Empty where the rows name none.
    pub(super) user: String,
    pub(super) session: String,
    pub(super) index: u64,
    pub(super) model: String,
    pub(super) prompt: Tokens,
    /// The part of the prompt that the provider had cached.
    pub(super) cached: Tokens,
    pub(super) output: Tokens,
    pub(super) key: Option<String>,
    /// The last input before the first output.
    pub(super) input_at: Option<i64>,
    pub(super) first_output_at: Option<i64>,
    pub(super) last_output_at: Option<i64>,
    /// The first event of any kind.
    pub(super) any_at: i64,
    /// When the last of the tools that it called was done.
    pub(super) tools_done_at: Option<i64>,
    /// Whether a person wrote something that this round answers.
    pub(super) from_user: bool,
}

impl Round {
    /// Reads a line.
    pub(super) fn parse(line: &[u8]) -> Result<Self> {
        if !line.trim_ascii_start().starts_with(b"{") {
            let start = String::from_utf8_lossy(line).trim().chars().take(20).collect::<String>();
            return Err(Error::found(start.escape_debug(), "a JSON object, one round"));
        }
        let raw: RawRound = serde_json::from_slice(line).map_err(|error| {
            let full = error.to_string();
            let place = format!(" at line {} column {}", error.line(), error.column());
            Error::new(full.strip_suffix(&place).unwrap_or(&full)).at_column(error.column() as u64)
        })?;
        let prompt = tokens(raw.input_tokens_total.as_ref(), "input_tokens_total")?;
        let cached = tokens(raw.prefix_tokens.as_ref(), "prefix_tokens")?;
        let new = tokens(raw.newly_append_tokens.as_ref(), "newly_append_tokens")?;
        if cached + new != prompt {
            let allowed = format!("{}, prefix_tokens and newly_append_tokens", cached + new);
            return Err(Error::found(prompt, allowed).in_field("input_tokens_total"));
        }
        let session = name(raw.session_id.as_ref(), "session_id")?;
        if session.is_empty() || session.starts_with('@') {
            let allowed = "an id without a leading `@`";
            return Err(Error::found(session, allowed).in_field("session_id"));
        }
        let index = raw.round_index.as_ref().and_then(Value::as_u64);
        let index = index.ok_or_else(|| {
            wrong(raw.round_index.as_ref(), "a whole number from 0", "round_index")
        })?;
        let times = Times::of(raw.timing_events.unwrap_or_default())?;
        Ok(Self {
            provider: name(raw.provider.as_ref(), "provider")?,
            user: name(raw.user.as_ref(), "user")?,
            session,
            index,
            model: name(raw.model.as_ref(), "model")?,
            prompt,
            cached,
            output: tokens(raw.output_tokens.as_ref(), "output_tokens")?,
            key: raw.trace_key.as_ref().and_then(Value::as_str).map(str::to_owned),
            input_at: times.input,
            first_output_at: times.first_output,
            last_output_at: times.last_output,
            any_at: times.any,
            tools_done_at: raw.tools.iter().flatten().filter_map(RawTool::done_at).max(),
            from_user: times.from_user,
        })
    }
}

impl RawTool {
    /// When it was done: as seen, or so long after it was called as it is said to have taken.
    fn done_at(&self) -> Option<i64> {
        let time = |value: &Option<Value>| Some(instant::parse(value.as_ref()?.as_str()?)?.0);
        let millis = |value: &Option<Value>| value.as_ref()?.as_i64();
        time(&self.result_at).or_else(|| {
            let latency = millis(&self.tool_internal_latency_ms);
            let latency = latency.or_else(|| millis(&self.tool_wall_latency_ms))?;
            time(&self.emitted_at)?.checked_add(latency.checked_mul(1_000_000)?)
        })
    }
}

/// What the events of a round say of its times.
struct Times {
    input: Option<i64>,
    first_output: Option<i64>,
    last_output: Option<i64>,
    any: i64,
    from_user: bool,
}

impl Times {
    fn of(events: Vec<RawEvent>) -> Result<Self> {
        let mut timed = Vec::with_capacity(events.len());
        for (number, event) in events.into_iter().enumerate() {
            let field = |name: &str| format!("timing_events[{number}].{name}");
            let kind = event.event_type.as_ref().and_then(Value::as_str);
            let kind = kind
                .ok_or_else(|| wrong(event.event_type.as_ref(), "a text", &field("event_type")))?;
            let text = event.timestamp.as_ref().and_then(Value::as_str);
            let at = text.and_then(instant::parse).ok_or_else(|| {
                let allowed = "a time such as `2026-06-01T05:40:20.151Z`";
                wrong(event.timestamp.as_ref(), allowed, &field("timestamp"))
            })?;
            timed.push((kind.to_owned(), at.0));
        }
        let Some(any) = timed.iter().map(|(_, at)| *at).min() else {
            return Err(Error::new("there is no event, so that nothing tells when it was")
                .in_field("timing_events"));
        };
        let of = |kinds: &[&str]| -> Vec<i64> {
            let some = timed.iter().filter(|(kind, _)| kinds.contains(&kind.as_str()));
            some.map(|(_, at)| *at).collect()
        };
        let outputs = of(&OUTPUTS);
        let first_output = outputs.iter().min().copied();
        let by_then = |at: &i64| first_output.is_none_or(|first| *at <= first);
        Ok(Self {
            input: of(&INPUTS).into_iter().filter(by_then).max(),
            first_output,
            last_output: outputs.into_iter().max().or_else(|| of(&[USAGE]).into_iter().max()),
            any,
            from_user: of(&INPUTS[..1]).iter().any(by_then),
        })
    }
}

fn tokens(value: Option<&Value>, field: &str) -> Result<Tokens> {
    let count = value.and_then(Value::as_u64).map(Tokens).filter(|count| *count <= TOKENS_MAX);
    let allowed = || format!("a whole number from 0 to {TOKENS_MAX}");
    count.ok_or_else(|| wrong(value, &allowed(), field))
}

/// A text that may stand in a trace; empty if there is none.
fn name(value: Option<&Value>, field: &str) -> Result<String> {
    match value {
        None | Some(Value::Null) => Ok(String::new()),
        Some(Value::String(text))
            if text.len() <= NAME_BYTES_MAX && !text.chars().any(char::is_control) =>
        {
            Ok(text.clone())
        }
        _ => {
            let allowed =
                format!("a text of up to {NAME_BYTES_MAX} bytes without control characters");
            Err(wrong(value, &allowed, field))
        }
    }
}

fn wrong(found: Option<&Value>, allowed: &str, field: &str) -> Error {
    let Some(found) = found else {
        return Error::new("the value is missing").in_field(field);
    };
    let shown: String = found.to_string().chars().take(SHOWN_CHARS_MAX).collect();
    Error::found(shown, allowed).in_field(field)
}
