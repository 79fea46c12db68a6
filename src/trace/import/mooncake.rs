//! Importer of Mooncake traces: one request a line, with the ids of its prompt's blocks.
//!
//! `timestamp` and `delay` are in milliseconds. An id names a block and all before it, over the
//! whole trace. Rows with a `session_id` are turns of that session, in the order of the file;
//! `delay` counts from the end of the turn before. A row without one is a session by itself.

use rustc_hash::FxHashMap;
use serde::Deserialize;
use serde_json::Value;

use super::blocks::{
    Delivery, IdList, LastBlock, MILLISECOND, NodeId, PERSON_PAUSE, Sharing, blank, blocks,
    lengths, meta, objects, origin, required, time, wrong,
};
use super::{Count, Done, Job, Options, Report};
use crate::diag::{Error, Result};
use crate::trace::canonical::Sink;
use crate::trace::check::numbered_id;
use crate::trace::record::{After, AfterEvent, Call, Cause, Name};
use crate::units::{Span, Tokens};

/// Tokens in a block, unless the user says otherwise.
const BLOCK_SIZE: u64 = 512;
/// The latest timestamp, in seconds: dates of this century included.
const LATEST: f64 = 4e9;
/// The longest delay: ten years, in seconds.
const DELAY_MAX: f64 = super::blocks::SECS_MAX;

/// A row as it stands in the file.
#[derive(Deserialize)]
struct RawRow {
    #[serde(alias = "created_time")]
    timestamp: Option<Value>,
    #[serde(alias = "input_tokens")]
    input_length: Option<Value>,
    #[serde(alias = "output_tokens")]
    output_length: Option<Value>,
    hash_ids: Option<IdList>,
    session_id: Option<Value>,
    #[serde(alias = "delay_ms")]
    delay: Option<Value>,
    priority: Option<Value>,
}

/// A row that was checked.
#[derive(Clone, Copy, Debug)]
struct Turn {
    session: u32,
    at: Option<Span>,
    delay: Option<Span>,
    prompt: Tokens,
    output: Tokens,
    end: NodeId,
}

/// Reads Mooncake rows into a sink.
///
/// # Errors
/// A file that cannot be read, rows that cannot be used (unless they are skipped), none that can,
/// and the errors of the sink.
pub fn read(job: &Job, sink: &mut dyn Sink) -> Result<Done> {
    job.options.check_rate()?;
    let mut report = Report { unit: "rows", ..Report::default() };
    let mut found = Found::new(job.options.block_size.unwrap_or(BLOCK_SIZE));
    objects(job, &mut report, |line| found.add(line.parse("one request")?))?;
    if found.turns.is_empty() {
        return Err(Error::new("no row is left to import"));
    }
    let (block_size, last_block, priorities) =
        (found.block_size, found.last_block, found.priorities);
    let (start, assumed) = found.deliver(&job.options, &mut report, sink)?;
    report.assumed.extend([
        Count::new(assumed.times, "calls without a timestamp: it follows from the delay"),
        Count::new(assumed.ends, "server times assumed, as the trace has none"),
        Count::new(priorities, "rows with a priority, whose scale is not known: it was not read"),
    ]);
    let meta = meta(job, "Mooncake trace", start, block_size, last_block, &report);
    Ok(Done { meta, report })
}

/// What the files hold.
struct Found {
    block_size: u64,
    last_block: LastBlock,
    sharing: Sharing,
    space: NodeId,
    turns: Vec<Turn>,
    /// Names of sessions by number, empty where there is none.
    names: Vec<Name>,
    /// Number and latest timestamp of sessions by name.
    by_name: FxHashMap<String, (u32, Span)>,
    nobody: Name,
    priorities: u64,
}

/// How often something had to be assumed.
#[derive(Clone, Copy, Debug, Default)]
struct Assumed {
    times: u64,
    ends: u64,
}

impl Found {
    fn new(block_size: u64) -> Self {
        let mut sharing = Sharing::new(block_size);
        Self {
            block_size,
            last_block: LastBlock::default(),
            space: sharing.space(),
            sharing,
            turns: Vec::new(),
            names: Vec::new(),
            by_name: FxHashMap::default(),
            nobody: Name::default(),
            priorities: 0,
        }
    }

    fn add(&mut self, row: RawRow) -> Result<()> {
        let at = time(row.timestamp.as_ref(), "timestamp", MILLISECOND, LATEST)?;
        let delay = time(row.delay.as_ref(), "delay", MILLISECOND, DELAY_MAX)?;
        let (prompt, output) = lengths(row.input_length.as_ref(), row.output_length.as_ref())?;
        let IdList(ids) = required(row.hash_ids, "hash_ids")?;
        let name = session_name(row.session_id.as_ref())?;
        let known = name.as_ref().and_then(|name| self.by_name.get(name)).copied();
        if known.is_none() && at.is_none() {
            let error = Error::new("the first row of a session has none").in_field("timestamp");
            return Err(error);
        }
        let at_least = known.map(|(_, latest)| latest).unwrap_or_default();
        if let Some(at) = at.filter(|at| *at < at_least) {
            let allowed = format!("{} or later, as in the row before", at_least.millis());
            return Err(Error::found(at.millis(), allowed).in_field("timestamp"));
        }
        self.last_block.check(blocks(&ids), prompt.0, self.block_size)?;
        // Nothing below fails, so a bad row leaves no trace.
        let session = known.map_or(self.names.len() as u32, |(number, _)| number);
        if known.is_none() {
            self.names.push(name.as_deref().map_or(self.nobody.clone(), Name::from));
        }
        if let Some(name) = name {
            self.by_name.insert(name, (session, at.unwrap_or(at_least)));
        }
        self.priorities += u64::from(row.priority.is_some_and(|priority| !priority.is_null()));
        let end = self.sharing.add(self.space, session, &ids, prompt);
        self.turns.push(Turn { session, at, delay, prompt, output, end });
        Ok(())
    }

    /// Hands all sessions over, by their start; and the date of the trace's start.
    fn deliver(
        mut self,
        options: &Options,
        report: &mut Report,
        sink: &mut dyn Sink,
    ) -> Result<(Option<String>, Assumed)> {
        // Stable: the rows of a session stay in the order of the file.
        self.turns.sort_by_key(|turn| turn.session);
        let mut sessions: Vec<&[Turn]> =
            self.turns.chunk_by(|a, b| a.session == b.session).collect();
        let start = |turns: &&[Turn]| turns[0].at.unwrap_or_default();
        sessions.sort_by_key(start);
        let (first, date) = origin(sessions.first().map(start).unwrap_or_default());
        let mut delivery = Delivery::new(self.sharing, options.outputs, sink);
        let blank = blank();
        let mut assumed = Assumed::default();
        for (place, turns) in sessions.iter().enumerate() {
            let number = turns[0].session;
            let name = &self.names[number as usize];
            let id = match options.keep_ids && !name.is_empty() {
                true => name.clone(),
                false => numbered_id(place as u64),
            };
            let ends: Vec<NodeId> = turns.iter().map(|turn| turn.end).collect();
            let calls = calls(turns, first, &blank, options, &mut assumed);
            delivery.session(number, id, &ends, calls)?;
        }
        delivery.report(report);
        Ok((date, assumed))
    }
}

/// A session's name; numbers are names, too.
fn session_name(value: Option<&Value>) -> Result<Option<String>> {
    match value {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(name)) if !name.is_empty() => Ok(Some(name.clone())),
        Some(Value::Number(number)) => Ok(Some(number.to_string())),
        Some(other) => Err(wrong(other, "a text or a number", "session_id")),
    }
}

/// The calls of a session, each behind the one before.
fn calls(
    turns: &[Turn],
    origin: Span,
    blank: &Call,
    options: &Options,
    assumed: &mut Assumed,
) -> Vec<Call> {
    let mut calls: Vec<Call> = Vec::with_capacity(turns.len());
    for (number, turn) in turns.iter().enumerate() {
        let mut call = Call {
            at: turn.at.unwrap_or_default().saturating_sub(origin),
            prompt_tokens: turn.prompt,
            output_tokens: turn.output,
            ..blank.clone()
        };
        if let Some(before) = calls.last() {
            call.after = vec![After { call: number as u32 - 1, event: AfterEvent::Finished }];
            let (at, gap) = match (turn.at, turn.delay) {
                (None, delay) => {
                    assumed.times += 1;
                    let gap = delay.unwrap_or_default();
                    let served = options.assumed_time(before.output_tokens, DAY);
                    let idle = served.0.saturating_add(gap.0);
                    (Span(before.at.0.saturating_add(idle)), gap)
                }
                (Some(_), Some(delay)) => (call.at.max(before.at), delay),
                (Some(_), None) => {
                    assumed.ends += 1;
                    let at = call.at.max(before.at);
                    let interval = at - before.at;
                    let served = options.assumed_time(before.output_tokens, interval);
                    (at, interval.saturating_sub(served))
                }
            };
            (call.at, call.gap) = (at, gap);
            let person = gap >= PERSON_PAUSE;
            call.cause = if person { Cause::User } else { Cause::Tool };
            call.turn = before.turn + u32::from(person);
        }
        calls.push(call);
    }
    calls
}

/// No call takes longer.
const DAY: Span = Span::from_secs(86_400);
