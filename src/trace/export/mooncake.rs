//! Mooncake JSONL: one request a line, in order of time, with the ids of its prompt's blocks.
//!
//! Calls that wait for just the one before become turns of one session, with the gap as `delay`.
//! A call that waits for anything else begins a session at its recorded time.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};
use std::io::Write;

use serde::Serialize;
use serde_json::Number;

use super::{Ids, Items, Lost, Options, Report, check_any, line, millis, write};
use crate::diag::Result;
use crate::trace::import::Count;
use crate::trace::record::{After, AfterEvent, Call, Item, Name, Session};
use crate::trace::summary::prompts::PromptBlocks;
use crate::units::Span;

#[derive(Serialize)]
struct Row<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    timestamp: Option<Number>,
    input_length: u64,
    output_length: u64,
    hash_ids: Ids<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    session_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    delay: Option<Number>,
}

/// A row that waits for rows of later sessions that stand before it: by time, session and call.
type Waiting = Reverse<(Span, u64, u32, Vec<u8>)>;

/// Writes a trace as Mooncake JSONL.
///
/// # Errors
/// The first error of `items`, too many blocks for 32 bits, or what cannot be written.
pub fn export(items: Items<'_>, options: &Options, out: &mut dyn Write) -> Result<Report> {
    let mut blocks = PromptBlocks::new(options.block_size, options.partial_block);
    let mut waiting: BinaryHeap<Waiting> = BinaryHeap::new();
    let mut report = Report::default();
    let (mut lost, mut apart) = (Lost::default(), 0);
    let mut models: BTreeSet<Name> = BTreeSet::new();
    for item in items {
        let mut session = match item? {
            Item::Context(context) => {
                blocks.context(&context)?;
                continue;
            }
            Item::Session(session) => session,
        };
        lost.with_prompts(&mut session);
        let start = session.calls.first().map(|call| call.at).unwrap_or_default();
        while waiting.peek().is_some_and(|Reverse((at, ..))| *at < start) {
            if let Some(Reverse((.., row))) = waiting.pop() {
                write(out, &row)?;
            }
        }
        let chains = Chains::of(&session);
        apart += chains.apart;
        let mut failed = None;
        blocks.session(&session, |number, call, runs| {
            lost.add(call);
            if !models.contains(&call.model) {
                models.insert(call.model.clone());
            }
            let row = chains.row(number, call, Ids(runs));
            match line(&row) {
                Ok(row) => waiting.push(Reverse((call.at, report.sessions, number, row))),
                Err(error) => failed = Some(error),
            }
        })?;
        failed.map_or(Ok(()), Err)?;
        report.sessions += 1;
        report.calls += session.calls.len() as u64;
    }
    check_any(report.sessions)?;
    while let Some(Reverse((.., row))) = waiting.pop() {
        write(out, &row)?;
    }
    let models = models.len() as u64;
    report.lost = lost.counts();
    report.lost.extend([
        Count::new(apart, "calls do not wait for just the call before: they start as recorded"),
        Count::new(
            if models > 1 { models } else { 0 },
            "models become one: rows of this form name none",
        ),
    ]);
    Ok(report)
}

/// The calls of a session as chains, in each of which every call waits for the one before.
struct Chains {
    /// The chain of each call, and whether it is the chain's first.
    of: Vec<(usize, bool)>,
    /// The name of each chain; none for a call by itself.
    names: Vec<Option<String>>,
    /// Calls beside the session's first that begin a chain.
    apart: u64,
}

impl Chains {
    fn of(session: &Session) -> Self {
        let mut of: Vec<(usize, bool)> = Vec::with_capacity(session.calls.len());
        let mut last: Vec<u32> = Vec::new();
        let mut lengths: Vec<u32> = Vec::new();
        for (call, number) in session.calls.iter().zip(0u32..) {
            let before = match call.after[..] {
                [After { call, event: AfterEvent::Finished }] => Some(call),
                _ => None,
            };
            let chain = before.map(|before| (of[before as usize].0, before));
            match chain.filter(|(chain, before)| last[*chain] == *before) {
                Some((chain, _)) => {
                    last[chain] = number;
                    lengths[chain] += 1;
                    of.push((chain, false));
                }
                None => {
                    of.push((last.len(), true));
                    last.push(number);
                    lengths.push(1);
                }
            }
        }
        let name = |(chain, length): (usize, &u32)| match (chain, length) {
            (_, 1) => None,
            (0, _) => Some(session.id.to_string()),
            _ => Some(format!("{}#{chain}", session.id)),
        };
        let apart = (lengths.len() as u64).saturating_sub(1);
        Self { of, names: lengths.iter().enumerate().map(name).collect(), apart }
    }

    fn row<'a>(&'a self, number: u32, call: &Call, hash_ids: Ids<'a>) -> Row<'a> {
        let (chain, first) = self.of[number as usize];
        Row {
            timestamp: first.then(|| millis(call.at)),
            input_length: call.prompt_tokens.0,
            output_length: call.output_tokens.0,
            hash_ids,
            session_id: self.names[chain].as_deref(),
            delay: (!first).then(|| millis(call.gap)),
        }
    }
}
