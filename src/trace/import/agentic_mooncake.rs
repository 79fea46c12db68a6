//! Importer of Agentic Mooncake traces, version 2: a header line, then one request a line with
//! what it waits for.
//!
//! A play is a session of the trace, a session of a play one of its agents. Times are in
//! milliseconds. A request is sent when `not_before_ms` has come and each dependency was
//! dispatched or completed `delay_ms` ago.

use std::path::Path;

use rustc_hash::FxHashMap;
use serde::Deserialize;
use serde_json::Value;

use super::blocks::{
    Delivery, IdList, LastBlock, MILLISECOND, Names, NodeId, SECS_MAX, Sharing, blank, blocks,
    count, lengths, meta, objects, origin, required, text, time, wrong,
};
use super::{Count, Done, Job, Options, Report};
use crate::diag::{Error, Result};
use crate::trace::canonical::Sink;
use crate::trace::check::numbered_id;
use crate::trace::record::{AfterEvent, Name};
use crate::units::{Span, Tokens};

mod play;

use play::Unusable;

/// What the header must say.
const SCHEMA: &str = "dynamo.agentic_mooncake";
const VERSION: u64 = 2;
/// The latest time, in seconds: dates of this century included.
const LATEST: f64 = 4e9;
/// The largest block, in tokens.
const BLOCK_SIZE_MAX: u64 = 1_000_000;

/// The first line of a file.
#[derive(Deserialize)]
struct RawHeader {
    schema: Option<Value>,
    version: Option<Value>,
    block_size: Option<Value>,
    hash_id_scope: Option<Value>,
}

/// A row as it stands in the file.
#[derive(Deserialize)]
struct RawRow {
    request_id: Option<Value>,
    play_id: Option<Value>,
    session_id: Option<Value>,
    model: Option<Value>,
    #[serde(alias = "input_tokens")]
    input_length: Option<Value>,
    #[serde(alias = "output_tokens")]
    output_length: Option<Value>,
    hash_ids: Option<IdList>,
    not_before_ms: Option<Value>,
    recorded_api_time_ms: Option<Value>,
    priority: Option<Value>,
    #[serde(default)]
    dependencies: Vec<RawDependency>,
}

#[derive(Deserialize)]
struct RawDependency {
    request_id: Option<Value>,
    trigger: Option<Value>,
    delay_ms: Option<Value>,
    relation: Option<Value>,
}

/// A row that was checked.
#[derive(Clone, Debug)]
struct Request {
    play: u32,
    /// Its `session_id`.
    agent: Name,
    model: Name,
    not_before: Span,
    api_time: Option<Span>,
    prompt: Tokens,
    output: Tokens,
    end: NodeId,
    dependencies: Vec<Dependency>,
    /// The file by number and the line, for errors that show when all rows are known.
    place: (u32, u64),
}

/// What a request waits for.
#[derive(Clone, Debug)]
struct Dependency {
    request: Name,
    event: AfterEvent,
    delay: Span,
}

/// Reads Agentic Mooncake rows into a sink.
///
/// # Errors
/// A file that cannot be read or is of another format, rows that cannot be used (unless they are
/// skipped), none that can, and the errors of the sink.
pub fn read(job: &Job, sink: &mut dyn Sink) -> Result<Done> {
    job.options.check_rate()?;
    let mut report = Report { unit: "rows", ..Report::default() };
    let mut found = Found::default();
    let mut headers = 0;
    let mut broken = None;
    let read = objects(job, &mut report, |line| {
        if line.first {
            headers += 1;
            let header = line.parse("the header").and_then(|header| found.header(&header));
            // Without its header, no row of a file means anything.
            return header.inspect_err(|error| {
                broken.get_or_insert_with(|| {
                    let file = &job.files[headers - 1];
                    error.clone().at_line(line.line).in_file(file.display())
                });
            });
        }
        if broken.is_some() {
            return Ok(());
        }
        found.add(line.parse("one request")?, (headers as u32 - 1, line.line))
    });
    broken.map_or(Ok(()), Err)?;
    read?;
    let (block_size, last_block, priorities) =
        (found.block_size, found.last_block, found.priorities);
    let delivered = found.deliver(job, &mut report, sink)?;
    report.assumed.extend([
        Count::new(delivered.assumed, "server times assumed, as they were not recorded"),
        Count::new(
            delivered.uneven,
            "calls whose dependencies have unlike delays: the gap counts from the last of them",
        ),
        Count::new(priorities, "rows with a priority, whose scale is not known: it was not read"),
    ]);
    let meta = meta(job, "Agentic Mooncake trace", delivered.date, block_size, last_block, &report);
    Ok(Done { meta, report })
}

/// What the files hold.
struct Found {
    block_size: u64,
    last_block: LastBlock,
    sharing: Sharing,
    /// The space of all plays, if ids are global.
    global: Option<NodeId>,
    requests: Vec<Request>,
    /// The plays by name, and their names and spaces.
    numbers: FxHashMap<Name, u32>,
    plays: Vec<(Name, NodeId)>,
    /// Rows by play and request.
    by_id: FxHashMap<(u32, Name), u32>,
    names: Names,
    priorities: u64,
}

impl Default for Found {
    fn default() -> Self {
        Self {
            block_size: 0,
            last_block: LastBlock::default(),
            sharing: Sharing::new(1),
            global: None,
            requests: Vec::new(),
            numbers: FxHashMap::default(),
            plays: Vec::new(),
            by_id: FxHashMap::default(),
            names: Names::default(),
            priorities: 0,
        }
    }
}

/// What came of handing the sessions over.
#[derive(Debug, Default)]
struct Delivered {
    date: Option<String>,
    assumed: u64,
    uneven: u64,
}

impl Found {
    fn header(&mut self, header: &RawHeader) -> Result<()> {
        let schema = required(text(header.schema.as_ref(), "schema")?, "schema")?;
        if schema != SCHEMA {
            return Err(Error::found(schema, SCHEMA).in_field("schema"));
        }
        let version = required(header.version.as_ref(), "version")?;
        if version.as_u64() != Some(VERSION) {
            return Err(wrong(version, VERSION, "version"));
        }
        let block_size =
            required(count(header.block_size.as_ref(), "block_size", 1)?, "block_size")?;
        if block_size > BLOCK_SIZE_MAX {
            return Err(Error::found(block_size, format!("at most {BLOCK_SIZE_MAX}"))
                .in_field("block_size"));
        }
        let scope = text(header.hash_id_scope.as_ref(), "hash_id_scope")?;
        let global = match required(scope, "hash_id_scope")? {
            "local" => false,
            "global" => true,
            other => return Err(Error::found(other, "local, global").in_field("hash_id_scope")),
        };
        if self.block_size == 0 {
            self.block_size = block_size;
            self.sharing = Sharing::new(block_size);
            self.global = global.then(|| self.sharing.space());
        } else if block_size != self.block_size {
            let allowed = format!("{} as in the files before", self.block_size);
            return Err(Error::found(block_size, allowed).in_field("block_size"));
        } else if global != self.global.is_some() {
            let error = Error::new("the files before have the other scope");
            return Err(error.in_field("hash_id_scope"));
        }
        Ok(())
    }

    fn add(&mut self, row: RawRow, place: (u32, u64)) -> Result<()> {
        let request = id(row.request_id.as_ref(), "request_id")?;
        let agent = id(row.session_id.as_ref(), "session_id")?;
        let play = id(row.play_id.as_ref(), "play_id")?;
        let model = required(text(row.model.as_ref(), "model")?, "model")?;
        let not_before = time(row.not_before_ms.as_ref(), "not_before_ms", MILLISECOND, LATEST)?;
        let api_time = row.recorded_api_time_ms.as_ref().filter(|value| !value.is_null());
        let api_time = time(api_time, "recorded_api_time_ms", MILLISECOND, SECS_MAX)?;
        let (prompt, output) = lengths(row.input_length.as_ref(), row.output_length.as_ref())?;
        let IdList(ids) = required(row.hash_ids, "hash_ids")?;
        let dependencies = row.dependencies.iter().enumerate().map(|(number, dependency)| {
            dependency.check().map_err(|error| {
                let field = error.place().field.clone().unwrap_or_default();
                error.with_field(format!("dependencies[{number}].{field}"))
            })
        });
        let dependencies = dependencies.collect::<Result<Vec<_>>>()?;
        let play = Name::from(play);
        let known = self.numbers.get(&play).copied();
        let request = Name::from(request);
        if known.is_some_and(|number| self.by_id.contains_key(&(number, request.clone()))) {
            let error = Error::new(format!("the play has a request `{request}` already"));
            return Err(error.in_field("request_id"));
        }
        self.last_block.check(blocks(&ids), prompt.0, self.block_size)?;
        // Nothing below fails, so a bad row leaves no trace.
        let number = known.unwrap_or_else(|| self.new_play(&play));
        self.priorities += u64::from(row.priority.is_some_and(|priority| !priority.is_null()));
        let end = self.sharing.add(self.plays[number as usize].1, number, &ids, prompt);
        self.by_id.insert((number, request), self.requests.len() as u32);
        self.requests.push(Request {
            play: number,
            agent: self.names.get(agent),
            model: self.names.get(model),
            not_before: not_before.unwrap_or_default(),
            api_time,
            prompt,
            output,
            end,
            dependencies,
            place,
        });
        Ok(())
    }

    fn new_play(&mut self, name: &Name) -> u32 {
        let number = self.plays.len() as u32;
        let space = self.global.unwrap_or_else(|| self.sharing.space());
        self.numbers.insert(name.clone(), number);
        self.plays.push((name.clone(), space));
        number
    }

    /// Hands all plays over, by their start.
    fn deliver(self, job: &Job, report: &mut Report, sink: &mut dyn Sink) -> Result<Delivered> {
        let Options { keep_ids, skip_bad, outputs, .. } = job.options;
        let mut by_play: Vec<u32> = (0..self.requests.len() as u32).collect();
        by_play.sort_by_key(|row| self.requests[*row as usize].play);
        let blank = blank();
        let mut delivered = Delivered::default();
        let mut plays = Vec::new();
        let same =
            |a: &u32, b: &u32| self.requests[*a as usize].play == self.requests[*b as usize].play;
        for rows in by_play.chunk_by(same) {
            let play = play::play(rows, &self.requests, &self.by_id, &blank, &job.options);
            for Unusable { row, error } in play.unusable {
                let (file, line) = self.requests[row as usize].place;
                let file: &Path = &job.files[file as usize];
                report.bad.add(error.at_line(line).in_file(file.display()));
            }
            delivered.assumed += play.assumed;
            delivered.uneven += play.uneven;
            if !play.calls.is_empty() {
                plays.push((self.requests[rows[0] as usize].play, play.calls));
            }
        }
        report.bad.settle(skip_bad)?;
        if plays.is_empty() {
            return Err(Error::new("no row is left to import"));
        }
        plays.sort_by_key(|(_, calls)| calls[0].1.at);
        let (first, date) = origin(plays[0].1[0].1.at);
        delivered.date = date;
        let mut delivery = Delivery::new(self.sharing, outputs, sink);
        for (place, (number, calls)) in plays.into_iter().enumerate() {
            let id = match keep_ids {
                true => self.plays[number as usize].0.clone(),
                false => numbered_id(place as u64),
            };
            let ends: Vec<NodeId> =
                calls.iter().map(|(row, _)| self.requests[*row as usize].end).collect();
            let calls = calls.into_iter().map(|(_, mut call)| {
                call.at = call.at.saturating_sub(first);
                call
            });
            delivery.session(number, id, &ends, calls.collect())?;
        }
        delivery.report(report);
        Ok(delivered)
    }
}

impl RawDependency {
    fn check(&self) -> Result<Dependency> {
        let request = Name::from(id(self.request_id.as_ref(), "request_id")?);
        let event = match required(text(self.trigger.as_ref(), "trigger")?, "trigger")? {
            "completion" => AfterEvent::Finished,
            "dispatch" => AfterEvent::Dispatched,
            other => return Err(Error::found(other, "completion, dispatch").in_field("trigger")),
        };
        match required(text(self.relation.as_ref(), "relation")?, "relation")? {
            // Whatever the reason, it is waited for.
            "sequence" | "spawn" | "join" | "replay_barrier" => {}
            other => {
                let allowed = "sequence, spawn, join, replay_barrier";
                return Err(Error::found(other, allowed).in_field("relation"));
            }
        }
        let delay = time(self.delay_ms.as_ref(), "delay_ms", MILLISECOND, SECS_MAX)?;
        Ok(Dependency { request, event, delay: delay.unwrap_or_default() })
    }
}

/// A text that names something.
fn id<'a>(value: Option<&'a Value>, field: &str) -> Result<&'a str> {
    let found = required(text(value, field)?, field)?;
    match found.is_empty() {
        true => Err(Error::new("the text is empty").in_field(field)),
        false => Ok(found),
    }
}
