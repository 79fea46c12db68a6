//! Importer of Qwen-Bailian traces: one request a line, with the ids of its prompt's blocks and
//! the request of the same chat that it follows.
//!
//! `timestamp` is in seconds. A chat's requests are one session: a request waits for its parent,
//! and a parent may have several children. An id names a block and all before it, over the trace.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;
use serde::Deserialize;
use serde_json::Value;

use super::blocks::{
    Delivery, IdList, LastBlock, Names, NodeId, SECOND, Sharing, blank, blocks, count, lengths,
    meta, objects, origin, required, text, time, wrong,
};
use super::{Count, Done, Job, Options, Report};
use crate::diag::{Error, Result};
use crate::trace::canonical::Sink;
use crate::trace::check::numbered_id;
use crate::trace::record::{After, AfterEvent, Call, Name};
use crate::units::{Span, Tokens};

/// Tokens in a block, unless the user says otherwise.
const BLOCK_SIZE: u64 = 16;
/// The latest timestamp, in seconds: dates of this century included.
const LATEST: f64 = 4e9;

/// A row as it stands in the file.
#[derive(Deserialize)]
struct RawRow {
    chat_id: Option<Value>,
    parent_chat_id: Option<Value>,
    timestamp: Option<Value>,
    input_length: Option<Value>,
    output_length: Option<Value>,
    #[serde(rename = "type")]
    kind: Option<Value>,
    turn: Option<Value>,
    hash_ids: Option<IdList>,
}

/// A row that was checked.
#[derive(Clone, Debug)]
struct Request {
    session: u32,
    at: Span,
    /// The row of its parent, if that is in the trace.
    parent: Option<u32>,
    turn: u32,
    kind: Name,
    prompt: Tokens,
    output: Tokens,
    end: NodeId,
}

/// Reads Bailian rows into a sink.
///
/// # Errors
/// A file that cannot be read, rows that cannot be used (unless they are skipped), none that can,
/// and the errors of the sink.
pub fn read(job: &Job, sink: &mut dyn Sink) -> Result<Done> {
    job.options.check_rate()?;
    let mut report = Report { unit: "rows", ..Report::default() };
    let mut found = Found::new(job.options.block_size.unwrap_or(BLOCK_SIZE));
    objects(job, &mut report, |line| found.add(line.parse("one request")?))?;
    if found.requests.is_empty() {
        return Err(Error::new("no row is left to import"));
    }
    let (block_size, last_block) = (found.block_size, found.last_block);
    let followers = found.requests.iter().filter(|request| request.parent.is_some()).count();
    report.assumed.extend([
        Count::new(found.orphans, "requests whose parent is not above them: they begin a session"),
        Count::new(followers as u64, "server times assumed, as the trace has none"),
    ]);
    let start = found.deliver(&job.options, &mut report, sink)?;
    let meta = meta(job, "Qwen-Bailian trace", start, block_size, last_block, &report);
    Ok(Done { meta, report })
}

/// What the files hold.
struct Found {
    block_size: u64,
    last_block: LastBlock,
    sharing: Sharing,
    space: NodeId,
    requests: Vec<Request>,
    /// Rows by `chat_id`.
    by_chat: FxHashMap<u64, u32>,
    sessions: u32,
    orphans: u64,
    names: Names,
}

impl Found {
    fn new(block_size: u64) -> Self {
        let mut sharing = Sharing::new(block_size);
        Self {
            block_size,
            last_block: LastBlock::default(),
            space: sharing.space(),
            sharing,
            requests: Vec::new(),
            by_chat: FxHashMap::default(),
            sessions: 0,
            orphans: 0,
            names: Names::default(),
        }
    }

    fn add(&mut self, row: RawRow) -> Result<()> {
        let chat = required(row.chat_id.as_ref(), "chat_id")?;
        let chat = chat.as_u64().ok_or_else(|| wrong(chat, "an integer from 0", "chat_id"))?;
        let parent = parent_chat(row.parent_chat_id.as_ref())?;
        let at = time(row.timestamp.as_ref(), "timestamp", SECOND, LATEST)?;
        let at = required(at, "timestamp")?;
        let (prompt, output) = lengths(row.input_length.as_ref(), row.output_length.as_ref())?;
        let turn = count(row.turn.as_ref(), "turn", 0)?.unwrap_or(1);
        let turn = u32::try_from(turn).unwrap_or(u32::MAX).saturating_sub(1);
        let kind = text(row.kind.as_ref(), "type")?.unwrap_or_default();
        let IdList(ids) = required(row.hash_ids, "hash_ids")?;
        if self.by_chat.contains_key(&chat) {
            return Err(
                Error::new(format!("the request {chat} is given twice")).in_field("chat_id")
            );
        }
        self.last_block.check(blocks(&ids), prompt.0, self.block_size)?;
        // Nothing below fails, so a bad row leaves no trace.
        let known = parent.and_then(|parent| self.by_chat.get(&parent)).copied();
        let known = known.filter(|row| self.requests[*row as usize].at <= at);
        self.orphans += u64::from(parent.is_some() && known.is_none());
        let session = match known {
            Some(row) => self.requests[row as usize].session,
            None => {
                self.sessions += 1;
                self.sessions - 1
            }
        };
        let end = self.sharing.add(self.space, session, &ids, prompt);
        self.by_chat.insert(chat, self.requests.len() as u32);
        let kind = self.names.get(kind);
        self.requests.push(Request { session, at, parent: known, turn, kind, prompt, output, end });
        Ok(())
    }

    /// Hands all sessions over, by their start; and the date of the trace's start.
    fn deliver(
        self,
        options: &Options,
        report: &mut Report,
        sink: &mut dyn Sink,
    ) -> Result<Option<String>> {
        let mut rows: Vec<u32> = (0..self.requests.len() as u32).collect();
        let request = |row: &u32| &self.requests[*row as usize];
        rows.sort_by_key(|row| (request(row).session, request(row).at, *row));
        let mut sessions: Vec<&[u32]> =
            rows.chunk_by(|a, b| request(a).session == request(b).session).collect();
        sessions.sort_by_key(|rows| (request(&rows[0]).at, rows[0]));
        let first = sessions.first().map(|rows| request(&rows[0]).at).unwrap_or_default();
        let (first, date) = origin(first);
        let mut delivery = Delivery::new(self.sharing, options.outputs, sink);
        let blank = blank();
        for (place, rows) in sessions.iter().enumerate() {
            let ends: Vec<NodeId> = rows.iter().map(|row| request(row).end).collect();
            let calls = calls(rows, &self.requests, first, &blank, options);
            delivery.session(request(&rows[0]).session, numbered_id(place as u64), &ends, calls)?;
        }
        delivery.report(report);
        Ok(date)
    }
}

/// The parent that a row names, if any.
fn parent_chat(value: Option<&Value>) -> Result<Option<u64>> {
    let Some(value) = value.filter(|value| !value.is_null()) else { return Ok(None) };
    match (value.as_u64(), value.as_i64()) {
        (Some(chat), _) => Ok(Some(chat)),
        (None, Some(-1)) => Ok(None),
        _ => Err(wrong(value, "an integer from 0, or -1 for none", "parent_chat_id")),
    }
}

/// The calls of a session, whose rows are in order of time.
fn calls(
    rows: &[u32],
    requests: &[Request],
    origin: Span,
    blank: &Call,
    options: &Options,
) -> Vec<Call> {
    let numbers: BTreeMap<u32, u32> = rows.iter().copied().zip(0..).collect();
    let mut calls: Vec<Call> = Vec::with_capacity(rows.len());
    for row in rows {
        let request = &requests[*row as usize];
        let mut call = Call {
            at: request.at.saturating_sub(origin),
            // A second child of an early request comes after later turns of the first.
            turn: calls.last().map_or(0, |before| before.turn).max(request.turn),
            profile: request.kind.clone(),
            prompt_tokens: request.prompt,
            output_tokens: request.output,
            ..blank.clone()
        };
        if let Some(&parent) = request.parent.and_then(|parent| numbers.get(&parent)) {
            let before = &calls[parent as usize];
            let interval = call.at.saturating_sub(before.at);
            let served = options.assumed_time(before.output_tokens, interval);
            call.gap = interval.saturating_sub(served);
            call.after = vec![After { call: parent, event: AfterEvent::Finished }];
        }
        calls.push(call);
    }
    calls
}
