//! Agentic Mooncake JSONL, version 2: a header, then one request a line with what it waits for.
//!
//! A session of the trace is a play, a lane of it a session of the play. A call's gap becomes the
//! delay behind all that it waits for.

use std::collections::BTreeSet;
use std::io::Write;

use serde::Serialize;
use serde_json::Number;

use super::{Ids, Items, Lost, Options, Report, check_any, line, millis, write};
use crate::diag::Result;
use crate::trace::import::Count;
use crate::trace::meta::PartialBlock;
use crate::trace::record::{AfterEvent, Base, Call, Item, Session};
use crate::trace::summary::blocks::BlockRun;
use crate::trace::summary::prompts::PromptBlocks;
use crate::units::Span;

/// What equal ids mean.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// Equal content within a play only.
    #[default]
    Local,
    /// Equal content everywhere.
    Global,
}

#[derive(Serialize)]
struct Header<'a> {
    schema: &'a str,
    version: u32,
    block_size: u64,
    hash_id_scope: Scope,
    source: Source<'a>,
}

#[derive(Serialize)]
struct Source<'a> {
    format: &'a str,
    digest: &'a str,
}

#[derive(Serialize)]
struct Row<'a> {
    request_id: String,
    play_id: &'a str,
    session_id: String,
    model: &'a str,
    input_length: u64,
    output_length: u64,
    hash_ids: Ids<'a>,
    not_before_ms: Number,
    #[serde(skip_serializing_if = "Option::is_none")]
    recorded_api_time_ms: Option<Number>,
    dependencies: Vec<Dependency>,
}

#[derive(Serialize)]
struct Dependency {
    request_id: String,
    trigger: &'static str,
    delay_ms: Number,
    relation: &'static str,
}

/// Writes a trace as Agentic Mooncake JSONL; `source` names it in the header.
///
/// # Errors
/// The first error of `items`, too many blocks for 32 bits, or what cannot be written.
pub fn export(
    items: Items<'_>,
    options: &Options,
    scope: Scope,
    source: &str,
    out: &mut dyn Write,
) -> Result<Report> {
    let mut blocks = PromptBlocks::new(options.block_size, options.partial_block);
    let mut report = Report::default();
    let (mut lost, mut sharing, mut partial) = (Lost::default(), 0, 0);
    let header = Header {
        schema: "dynamo.agentic_mooncake",
        version: 2,
        block_size: options.block_size,
        hash_id_scope: scope,
        source: Source { format: "tonnage", digest: source },
    };
    write(out, &line(&header)?)?;
    for item in items {
        let mut session = match item? {
            Item::Context(context) => {
                blocks.context(&context)?;
                continue;
            }
            Item::Session(session) => session,
        };
        lost.with_prompts(&mut session);
        let mut rows = Vec::new();
        let mut failed = None;
        let lanes = Lanes::of(&session);
        blocks.session(&session, |number, call, runs| {
            lost.add(call);
            let is_partial = !call.prompt_tokens.0.is_multiple_of(options.block_size);
            partial += u64::from(is_partial && options.partial_block == PartialBlock::Drop);
            match line(&row(&session, &lanes, number, call, runs)) {
                Ok(mut row) => rows.append(&mut row),
                Err(error) => failed = Some(error),
            }
        })?;
        failed.map_or(Ok(()), Err)?;
        write(out, &rows)?;
        let shares = |call: &Call| matches!(call.base, Base::Shared(_));
        sharing += u64::from(session.calls.iter().any(shares));
        report.sessions += 1;
        report.calls += session.calls.len() as u64;
    }
    check_any(report.sessions)?;
    report.lost = lost.counts();
    let sharing = if scope == Scope::Local { sharing } else { 0 };
    report.lost.extend([
        Count::new(sharing, "sessions share no longer what they shared with others: ids are local"),
        Count::new(partial, "prompts are longer than their block ids, which Dynamo refuses"),
    ]);
    Ok(report)
}

/// Which calls begin their lane.
struct Lanes {
    firsts: Vec<bool>,
}

impl Lanes {
    fn of(session: &Session) -> Self {
        let mut seen = BTreeSet::new();
        Self { firsts: session.calls.iter().map(|call| seen.insert(call.lane)).collect() }
    }
}

fn row<'a>(
    session: &'a Session,
    lanes: &Lanes,
    number: u32,
    call: &'a Call,
    runs: &'a [BlockRun],
) -> Row<'a> {
    let request_id = |number: u32| format!("{}/{number}", session.id);
    let first = &session.calls[0];
    // As a replay sends it: so long after the session's start, which its first call tells.
    let start = first.at.saturating_sub(first.gap);
    let not_before = match call.after.is_empty() {
        true => Span(start.0.saturating_add(call.gap.0)),
        false => Span::ZERO,
    };
    let dependencies = call.after.iter().map(|after| Dependency {
        request_id: request_id(after.call),
        trigger: match after.event {
            AfterEvent::Finished => "completion",
            AfterEvent::Dispatched => "dispatch",
        },
        delay_ms: millis(call.gap),
        relation: match session.calls[after.call as usize].lane == call.lane {
            true => "sequence",
            false if lanes.firsts[number as usize] => "spawn",
            false => "join",
        },
    });
    Row {
        request_id: request_id(number),
        play_id: &session.id,
        session_id: match call.lane {
            0 => session.id.to_string(),
            lane => format!("{}.{lane}", session.id),
        },
        model: if call.model.is_empty() { "unknown" } else { &call.model },
        input_length: call.prompt_tokens.0,
        output_length: call.output_tokens.0,
        hash_ids: Ids(runs),
        not_before_ms: millis(not_before),
        recorded_api_time_ms: call.seen_duration.map(millis),
        dependencies: dependencies.collect(),
    }
}
