//! The JSON of one session: its form, and the checks that turn it into a [`Recorded`] session.

use serde::Deserialize;
use serde_json::Value;

use super::recorded::{InputTypes, Lane, Recorded, RecordedCall, Scope, Stop};
use crate::diag::{Error, Result};
use crate::trace::import::blocks::{
    IdList, IdRun, MILLISECOND, SECOND, SECS_MAX, TOKENS_MAX, blocks, count, names, required, text,
    time,
};
use crate::units::{Span, Tokens};

/// A session as it stands in the file. Values are checked later, so that a message can name the
/// entry and the field.
#[derive(Deserialize)]
pub(super) struct RawSession {
    id: Option<Value>,
    agent: Option<Value>,
    models: Option<Value>,
    block_size: Option<Value>,
    hash_id_scope: Option<Value>,
    requests: Option<Vec<RawEntry>>,
}

/// A call, or a subagent with calls of its own.
#[derive(Deserialize)]
struct RawEntry {
    t: Option<Value>,
    #[serde(rename = "type")]
    kind: Option<Value>,
    model: Option<Value>,
    models: Option<Value>,
    #[serde(rename = "in")]
    prompt: Option<Value>,
    out: Option<Value>,
    runs: Option<Vec<[u64; 2]>>,
    hash_ids: Option<IdList>,
    input_types: Option<Value>,
    stop: Option<Value>,
    api_time: Option<Value>,
    ttft: Option<Value>,
    duration_ms: Option<Value>,
    status: Option<Value>,
    requests: Option<Vec<RawEntry>>,
}

impl RawSession {
    /// The session, if every number in it makes sense.
    pub(super) fn check(self) -> Result<Recorded> {
        let scope = text(self.hash_id_scope.as_ref(), "hash_id_scope")?;
        let scope = match required(scope, "hash_id_scope")? {
            "local" => Scope::Local,
            "global" => Scope::Global,
            other => return Err(Error::found(other, "local, global").in_field("hash_id_scope")),
        };
        let block_size = required(count(self.block_size.as_ref(), "block_size", 1)?, "block_size")?;
        let id = text(self.id.as_ref(), "id")?.filter(|id| !id.is_empty());
        let mut session = Recorded {
            id: required(id, "id")?.to_owned(),
            profile: text(self.agent.as_ref(), "agent")?.unwrap_or_default().to_owned(),
            block_size,
            scope,
            lanes: Vec::new(),
            calls: Vec::new(),
            empty_lanes: 0,
            early_lanes: 0,
            unlisted: Vec::new(),
        };
        let entries = required(self.requests, "requests")?;
        let models = names(self.models.as_ref(), "models")?;
        session.lanes.push(Lane::default());
        add_entries(&mut session, entries, 0, &models, "requests")?;
        if session.calls.is_empty() {
            return Err(Error::new("the session has no calls").in_field("requests"));
        }
        for lane in &mut session.lanes {
            let calls = &session.calls;
            lane.out_of_order = !lane.calls.is_sorted_by_key(|&call| calls[call].at);
            lane.calls.sort_by_key(|&call| calls[call].at);
        }
        Ok(session)
    }
}

/// Adds the calls of one lane, and those of the subagents that it spawned.
fn add_entries(
    session: &mut Recorded,
    entries: Vec<RawEntry>,
    lane: usize,
    models: &[String],
    path: &str,
) -> Result<()> {
    for (number, entry) in entries.into_iter().enumerate() {
        let path = format!("{path}[{number}]");
        let placed = |error: Error| nested(&error, &path);
        let kind = text(entry.kind.as_ref(), "type").and_then(|kind| required(kind, "type"));
        match kind.map_err(placed)? {
            "n" | "s" => {
                let call = check_call(session, entry, lane).map_err(placed)?;
                if !models.contains(&call.model) {
                    session.unlisted.push(call.model.clone());
                }
                session.lanes[lane].calls.push(session.calls.len());
                session.calls.push(call);
            }
            "subagent" => add_subagent(session, entry, lane, models, &path)?,
            other => {
                return Err(placed(Error::found(other, "n, s, subagent").in_field("type")));
            }
        }
    }
    Ok(())
}

fn add_subagent(
    session: &mut Recorded,
    entry: RawEntry,
    parent: usize,
    models: &[String],
    path: &str,
) -> Result<()> {
    let placed = |error: Error| nested(&error, path);
    let listed = names(entry.models.as_ref(), "models").map_err(placed)?;
    let own_models = if entry.models.is_some() { &listed } else { models };
    let lane = check_lane(session, &entry, parent).map_err(placed)?;
    let entries = entry.requests.unwrap_or_default();
    if entries.is_empty() {
        session.empty_lanes += 1;
        return Ok(());
    }
    session.lanes.push(lane);
    let lane = session.lanes.len() - 1;
    add_entries(session, entries, lane, own_models, &format!("{path}.requests"))
}

/// When a subagent was spawned and whether its spawner waited for it.
fn check_lane(session: &mut Recorded, entry: &RawEntry, parent: usize) -> Result<Lane> {
    let t = required(time(entry.t.as_ref(), "t", SECOND, SECS_MAX)?, "t")?;
    let marker = within_limit(session.lanes[parent].spawn + t)?;
    let duration = time(entry.duration_ms.as_ref(), "duration_ms", MILLISECOND, SECS_MAX)?;
    let launched_async = text(entry.status.as_ref(), "status")? == Some("async_launched");
    let lived = duration.unwrap_or_default();
    session.early_lanes += u64::from(lived > marker);
    Ok(Lane {
        parent,
        spawn: marker.saturating_sub(lived),
        joined_at: (duration.is_some() && !launched_async).then_some(marker),
        calls: Vec::new(),
        out_of_order: false,
    })
}

fn check_call(session: &Recorded, entry: RawEntry, lane: usize) -> Result<RecordedCall> {
    let t = required(time(entry.t.as_ref(), "t", SECOND, SECS_MAX)?, "t")?;
    let prompt = required(count(entry.prompt.as_ref(), "in", 1)?, "in")?;
    let ids = match (entry.runs, entry.hash_ids) {
        (Some(runs), None) => check_runs(&runs)?,
        (None, Some(IdList(runs))) => runs,
        (Some(_), Some(_)) => return Err(Error::new("both `runs` and `hash_ids` are given")),
        (None, None) => return Err(Error::new("neither `runs` nor `hash_ids` is given")),
    };
    let (have, fit) = (blocks(&ids), prompt / session.block_size);
    // Where tokens were counted by rounding up, a last block may just not be whole.
    let short = have + 1 == fit && prompt % session.block_size == 0;
    if have != fit && !short {
        let message = format!(
            "{have} block ids do not fit `in` = {prompt}: it has {fit} whole blocks of {} tokens",
            session.block_size
        );
        return Err(Error::new(message).in_field("runs"));
    }
    let stop = match text(entry.stop.as_ref(), "stop")? {
        Some("tool_use") => Stop::ToolUse,
        Some("end_turn") => Stop::EndTurn,
        _ => Stop::Unknown,
    };
    let inputs = names(entry.input_types.as_ref(), "input_types")?;
    let input = match inputs.is_empty() {
        true => InputTypes::Unknown,
        false if inputs.iter().any(|name| name == "tool_result") => InputTypes::WithToolResult,
        false => InputTypes::Other,
    };
    Ok(RecordedCall {
        lane,
        at: within_limit(session.lanes[lane].spawn + t)?,
        model: required(text(entry.model.as_ref(), "model")?, "model")?.to_owned(),
        prompt: Tokens(prompt),
        output: Tokens(required(count(entry.out.as_ref(), "out", 0)?, "out")?),
        ids,
        short,
        input,
        stop,
        // A call takes time, so zero says no more than a missing value.
        api_time: time(entry.api_time.as_ref(), "api_time", SECOND, SECS_MAX)?
            .filter(|time| time.0 > 0),
        ttft: time(entry.ttft.as_ref(), "ttft", SECOND, SECS_MAX)?,
    })
}

fn check_runs(pairs: &[[u64; 2]]) -> Result<Vec<IdRun>> {
    let mut runs = Vec::with_capacity(pairs.len());
    for &[first, count] in pairs {
        if count == 0 || count > TOKENS_MAX || first >= u64::MAX / 2 {
            let allowed = "[first id, count from 1]";
            return Err(Error::found(format!("[{first},{count}]"), allowed).in_field("runs"));
        }
        runs.push(IdRun { first, count });
    }
    Ok(runs)
}

/// Puts the entry's path before the field that an error names.
fn nested(error: &Error, path: &str) -> Error {
    let field = match &error.place().field {
        Some(field) => format!("{path}.{field}"),
        None => path.to_owned(),
    };
    Error::new(error.message()).in_field(field)
}

/// A time from the session's start, if it is one that a session may last.
fn within_limit(at: Span) -> Result<Span> {
    if at > Span::from_secs_f64(SECS_MAX) {
        let found = format!("{} s after the session's start", at.secs_text());
        return Err(Error::found(found, "at most ten years").in_field("t"));
    }
    Ok(at)
}
