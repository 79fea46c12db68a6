//! Exporters: a canonical trace in the form of other tools, so that they can run the same work.
//!
//! Both forms name the content of prompts by the ids of their blocks. Ids go by lineage: two
//! prompts have the same id where they agree from the start to the end of that block, be it prompt
//! or answer that they repeat. What a form has no place for is counted in the [`Report`].

use std::io::Write;

use serde::Serialize;
use serde::ser::Serializer;
use serde_json::Number;

use crate::diag::{Error, Result, Warning};
use crate::trace::import::Count;
use crate::trace::meta::PartialBlock;
use crate::trace::record::{Call, Finish, Item, Session, Status};
use crate::trace::summary::blocks::BlockRun;
use crate::units::{Span, Tokens};

pub mod agentic_mooncake;
pub mod mooncake;

/// How to export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Tokens in a block.
    pub block_size: u64,
    /// Whether a prompt's last, partial block gets an id.
    pub partial_block: PartialBlock,
}

/// What an export wrote, and what it had no place for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Sessions of the trace.
    pub sessions: u64,
    /// Their calls, each one row.
    pub calls: u64,
    /// What the form does not carry.
    pub lost: Vec<Count>,
}

impl Report {
    /// What does not come out as it stands in the trace.
    #[must_use]
    pub fn warnings(&self) -> Vec<Warning> {
        let lost = self.lost.iter().filter(|lost| lost.count > 0);
        lost.map(|lost| Warning(format!("{} {}", lost.count, lost.what))).collect()
    }
}

/// What neither form has a place for.
#[derive(Clone, Copy, Debug, Default)]
struct Lost {
    who: u64,
    empty: u64,
    failed: u64,
    aborted: u64,
    limited: u64,
    priority: u64,
    retries: u64,
}

impl Lost {
    /// Gives calls without a prompt one of a token that nothing else has: neither form allows 0.
    fn with_prompts(&mut self, session: &mut Session) {
        for call in session.calls.iter_mut().filter(|call| call.prompt_tokens == Tokens(0)) {
            call.prompt_tokens = Tokens(1);
            self.empty += 1;
        }
    }

    fn add(&mut self, call: &Call) {
        let names = [&call.tenant, &call.user, &call.profile];
        let named = names.iter().any(|name| !name.is_empty()) || call.key.is_some();
        self.who += u64::from(named);
        self.failed += u64::from(call.status == Status::Failed);
        self.aborted += u64::from(call.status == Status::Aborted);
        self.limited += u64::from(call.finish == Finish::Length || call.max_tokens.is_some());
        self.priority += u64::from(call.priority != 0);
        self.retries += u64::from(call.retries > 0);
    }

    fn counts(self) -> Vec<Count> {
        vec![
            Count::new(self.failed, "failed calls are written like others: they will do work"),
            Count::new(
                self.empty,
                "calls without a prompt get one of 1 token, as the form needs one",
            ),
            Count::new(self.aborted, "aborted calls are written as answers of their length"),
            Count::new(self.limited, "calls lose their token limit"),
            Count::new(self.who, "calls lose their tenant, user, profile or key"),
            Count::new(self.priority, "calls lose their priority"),
            Count::new(self.retries, "calls lose the number of attempts before them"),
        ]
    }
}

/// A trace without a session is none.
fn check_any(sessions: u64) -> Result<()> {
    match sessions {
        0 => Err(Error::new("the trace holds no session")),
        _ => Ok(()),
    }
}

/// Milliseconds, whole where they are.
fn millis(span: Span) -> Number {
    const NANOS_PER_MILLI: u64 = 1_000_000;
    let whole = || Number::from(span.0 / NANOS_PER_MILLI);
    if span.0.is_multiple_of(NANOS_PER_MILLI) {
        return whole();
    }
    Number::from_f64(span.millis()).unwrap_or_else(whole)
}

/// Block ids as an array.
struct Ids<'a>(&'a [BlockRun]);

impl Serialize for Ids<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter().flat_map(|run| run.ids()))
    }
}

/// One line of JSON.
fn line(row: &impl Serialize) -> Result<Vec<u8>> {
    let mut line = serde_json::to_vec(row)
        .map_err(|error| Error::new(format!("cannot write a row as JSON: {error}")))?;
    line.push(b'\n');
    Ok(line)
}

fn write(out: &mut dyn Write, line: &[u8]) -> Result<()> {
    out.write_all(line).map_err(|error| Error::new(format!("cannot write: {error}")))
}

/// What an exporter is given: the items of a trace, and where to.
type Items<'a> = &'a mut dyn Iterator<Item = Result<Item>>;
