//! From calls to the sessions of a trace.

use std::collections::BTreeMap;

use crate::diag::Result;
use crate::trace::canonical::Sink;
use crate::trace::import::{Job, Outputs, Report, plain_call};
use crate::trace::meta::Meta;
use crate::trace::record::{Call, Name, Session};
use crate::units::{Span, Tokens};

use super::share::Sharing;
use super::tree::NodeId;
use super::whole::LastBlock;

/// A pause from which on a person is thought to have spoken, where nothing else tells.
pub(in crate::trace::import) const PERSON_PAUSE: Span = Span::from_secs(60);
/// Timestamps from here on (2001 if in seconds since 1970) are dates.
const DATES_FROM: Span = Span::from_secs(1_000_000_000);

/// Names that calls share.
#[derive(Debug, Default)]
pub(in crate::trace::import) struct Names(BTreeMap<String, Name>);

impl Names {
    /// The one name of this text.
    pub(in crate::trace::import) fn get(&mut self, text: &str) -> Name {
        if let Some(name) = self.0.get(text) {
            return name.clone();
        }
        let name = Name::from(text);
        self.0.insert(text.to_owned(), name.clone());
        name
    }
}

/// A call of which nothing is known, to be filled in.
pub(in crate::trace::import) fn blank() -> Call {
    plain_call(Span::ZERO, Tokens::ZERO, Tokens::ZERO)
}

/// What to take from all times so that the trace begins with the first of them, and that date, if
/// they are dates.
pub(in crate::trace::import) fn origin(first: Span) -> (Span, Option<String>) {
    if first < DATES_FROM {
        return (Span::ZERO, None);
    }
    let date = jiff::Timestamp::from_nanosecond(i128::from(first.0));
    (first, date.ok().map(|date| date.to_string()))
}

/// The sidecar of a trace of such a format.
pub(in crate::trace::import) fn meta(
    job: &Job,
    origin: &str,
    start: Option<String>,
    block_size: u64,
    last_block: LastBlock,
    report: &Report,
) -> Meta {
    Meta {
        source: Some(format!("{origin}: {}", job.file_names())),
        licence: job.options.licence.clone(),
        start,
        origin_block_size: Some(block_size),
        partial_block: Some(last_block.found()),
        notes: report.notes(),
        ..Meta::default()
    }
}

/// Puts linked sessions into a sink, contexts before their first use, and counts.
pub(in crate::trace::import) struct Delivery<'a> {
    sharing: Sharing,
    sink: &'a mut dyn Sink,
    outputs: Outputs,
    contexts: usize,
    sessions: u64,
    calls: u64,
    outputs_kept: u64,
    no_output: u64,
}

impl<'a> Delivery<'a> {
    /// Of prompts that are all known.
    pub(in crate::trace::import) fn new(
        sharing: Sharing,
        outputs: Outputs,
        sink: &'a mut dyn Sink,
    ) -> Self {
        Self {
            sharing,
            sink,
            outputs,
            contexts: 0,
            sessions: 0,
            calls: 0,
            outputs_kept: 0,
            no_output: 0,
        }
    }

    /// The next session, `number` among the prompts, with the ends of its prompts.
    pub(in crate::trace::import) fn session(
        &mut self,
        number: u32,
        id: Name,
        ends: &[NodeId],
        mut calls: Vec<Call>,
    ) -> Result<()> {
        self.outputs_kept += self.sharing.link(number, ends, &mut calls, self.outputs);
        self.sessions += 1;
        self.calls += calls.len() as u64;
        let silent = calls.iter().filter(|call| call.output_tokens == Tokens::ZERO);
        self.no_output += silent.count() as u64;
        for context in &self.sharing.contexts()[self.contexts..] {
            self.sink.context(context)?;
        }
        self.contexts = self.sharing.contexts().len();
        self.sink.session(&Session { id, calls })
    }

    /// What was counted, into a report of rows.
    pub(in crate::trace::import) fn report(self, report: &mut Report) {
        report.unit = "rows";
        report.kept = self.calls;
        report.read = report.kept + report.dropped();
        report.figures.extend([
            ("sessions", self.sessions.to_string()),
            ("outputs", format!("{} calls repeat their base's output", self.outputs_kept)),
            ("without output", format!("{} calls", self.no_output)),
            ("shared contexts", self.contexts.to_string()),
        ]);
    }
}
