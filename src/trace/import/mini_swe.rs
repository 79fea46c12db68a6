//! Importer of mini-swe-agent runs: one row a step, with the cached tokens that the provider
//! reported.
//!
//! An agent sends its whole conversation with every step and appends to it. When a step ended is
//! not recorded; `docs/import-traces.md` says how its time is estimated.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::path::Path;

use super::chain::{self, Growth, Step, Tally};
use super::table::{Column, Row, Table};
use super::{BadRows, Count, Done, Job, Report, flat, plain_call};
use crate::diag::{Error, Result, Warning};
use crate::trace::canonical::Sink;
use crate::trace::check::numbered_id;
use crate::trace::meta::Meta;
use crate::trace::record::{Call, Cause, Finish, Name, Session};
use crate::units::{Span, Tokens};

const SESSION: usize = 0;
const STEP: usize = 1;
const T: usize = 2;
const PROMPT: usize = 3;
const COMPLETION: usize = 4;
const CACHED: usize = 5;
const REASONING: usize = 6;
const FINISH: usize = 9;

const COLUMNS: &[Column] = &[
    Column::required("session"),
    Column::required("step"),
    Column::required("t_s"),
    Column::required("prompt_tokens"),
    Column::required("completion_tokens"),
    Column::required("cached_tokens"),
    Column::optional("reasoning_tokens"),
    // What the agent added is in the prompt's growth, and who served the call changes nothing.
    Column::optional("new_input_chars"),
    Column::optional("provider"),
    Column::optional("finish"),
];

/// Ends of an answer by its limit, and others that are known.
const LIMIT: &str = "length";
const FINISHES: [&str; 4] = ["", "stop", "tool_calls", LIMIT];

/// One step as its row tells it.
#[derive(Debug)]
struct Recorded {
    at: Span,
    prompt: Tokens,
    output: Tokens,
    cached: Option<Tokens>,
    reasoning: Tokens,
    finish: Finish,
}

/// What the files hold.
#[derive(Default)]
struct Found {
    read: u64,
    bad: BadRows,
    other_finishes: u64,
    /// Calls with more reasoning than output, which the output cannot contain then.
    reasoning_apart: u64,
    unknown: Vec<String>,
    /// The steps of each run by their number, and the runs in the order of the files.
    sessions: BTreeMap<String, BTreeMap<u64, Recorded>>,
    order: Vec<String>,
}

/// Reads the runs of all files into a sink.
///
/// # Errors
/// A file that cannot be read or is of another form, rows that cannot be used (unless they are
/// skipped), nothing to import, and those of the sink.
pub fn read(job: &Job, sink: &mut dyn Sink) -> Result<Done> {
    job.options.check_rate()?;
    let mut found = Found::default();
    for file in &job.files {
        found.read(job, file)?;
    }
    found.bad.settle(job.options.skip_bad)?;
    let first = found.sessions.values().flat_map(BTreeMap::values).map(|step| step.at).min();
    let Some(first) = first else {
        return Err(Error::new(format!("no call to import: {} rows read", found.read)));
    };
    let mut sessions: Vec<(&str, Vec<&Recorded>)> = Vec::with_capacity(found.order.len());
    for id in &found.order {
        let mut steps: Vec<&Recorded> = found.sessions[id].values().collect();
        steps.sort_by_key(|step| step.at);
        sessions.push((id, steps));
    }
    // Stable: runs that start together stay in the order of the files.
    sessions.sort_by_key(|(_, steps)| steps[0].at);
    let (mut tally, mut calls) = (Tally::default(), 0);
    for (number, (id, steps)) in sessions.iter().enumerate() {
        let id = match job.options.keep_ids {
            true => Name::from(*id),
            false => numbered_id(number as u64),
        };
        calls += steps.len() as u64;
        sink.session(&Session { id, calls: session(job, steps, first, &mut tally) })?;
    }
    let (report, meta) = found.told(job, calls, first, &tally);
    Ok(Done { meta, report })
}

impl Found {
    fn read(&mut self, job: &Job, file: &Path) -> Result<()> {
        let mut table = Table::open(job, file, COLUMNS)?;
        self.unknown.append(&mut table.unknown);
        while let Some(row) = table.next()? {
            self.read += 1;
            if let Err(error) = row.is_whole().and_then(|()| self.take(&row)) {
                self.bad.add(row.placed(error));
            }
        }
        Ok(())
    }

    fn take(&mut self, row: &Row<'_>) -> Result<()> {
        let id = row.name(SESSION)?;
        if id.is_empty() || id.starts_with('@') {
            return Err(row.unfit(SESSION, id, "the id of a run, without a leading `@`"));
        }
        let optional = |column: usize| match row.text(column)?.is_empty() {
            true => Ok(None),
            false => row.tokens(column).map(Some),
        };
        let finish = row.text(FINISH)?;
        let step = Recorded {
            at: row.secs(T)?,
            prompt: row.tokens(PROMPT)?,
            output: row.tokens(COMPLETION)?,
            cached: optional(CACHED)?,
            reasoning: optional(REASONING)?.unwrap_or_default(),
            finish: if finish == LIMIT { Finish::Length } else { Finish::Stop },
        };
        if step.cached.is_some_and(|cached| cached > step.prompt) {
            let allowed = format!("at most {}, the whole prompt", step.prompt);
            return Err(row.unfit(CACHED, row.text(CACHED)?, allowed));
        }
        let (reasoning, output) = (step.reasoning, step.output);
        let number = row.number(STEP)?;
        let steps = self.sessions.entry(id.to_owned()).or_insert_with(|| {
            self.order.push(id.to_owned());
            BTreeMap::new()
        });
        match steps.entry(number) {
            Entry::Vacant(place) => place.insert(step),
            Entry::Occupied(_) => {
                let message = format!("step {number} of run `{id}` is given twice");
                return Err(row.wrong(STEP, Error::new(message)));
            }
        };
        self.reasoning_apart += u64::from(reasoning > output);
        self.other_finishes += u64::from(!FINISHES.contains(&finish));
        Ok(())
    }

    fn told(self, job: &Job, calls: u64, first: Span, tally: &Tally) -> (Report, Meta) {
        let mut warnings = flat::unknown_columns(&self.unknown);
        if self.other_finishes > 0 {
            let text =
                format!("{} calls ended in a way not known: taken as stop", self.other_finishes);
            warnings.push(Warning(text));
        }
        if self.reasoning_apart > 0 {
            let text = format!(
                "{} calls report more reasoning than output: their output is taken as it stands, \
                 without the reasoning",
                self.reasoning_apart
            );
            warnings.push(Warning(text));
        }
        let mut figures =
            vec![("sessions", self.order.len().to_string()), ("calls", calls.to_string())];
        figures.extend(tally.figures());
        let report = Report {
            unit: "rows",
            files: job.files.len() as u64,
            read: self.read,
            kept: calls,
            bad: self.bad,
            figures,
            assumed: vec![Count::new(calls, "calls had their duration estimated")],
            warnings,
            ..Report::default()
        };
        let mut notes = report.notes();
        notes.push(format!("the trace starts at second {} of the origin", first.secs_text()));
        notes.push("what a prompt repeats is inferred from its growth".to_owned());
        let meta = Meta {
            source: Some(format!("mini-swe-agent runs: {}", job.file_names())),
            licence: job.options.licence.clone(),
            notes,
            ..Meta::default()
        };
        (report, meta)
    }
}

/// The calls of a run.
fn session(job: &Job, recorded: &[&Recorded], first: Span, tally: &mut Tally) -> Vec<Call> {
    let mut steps = Vec::with_capacity(recorded.len());
    for (number, step) in recorded.iter().enumerate() {
        let at = step.at.saturating_sub(first);
        let next = recorded.get(number + 1);
        let interval = next.map_or(Span(u64::MAX), |next| next.at.saturating_sub(step.at));
        steps.push(Step {
            at,
            end: at + job.options.assumed_time(step.output, interval),
            prompt: step.prompt,
            output: step.output,
            not_repeated: step.reasoning,
            cached: step.cached,
            failed: false,
        });
    }
    let links = chain::link(&steps, job.options.outputs, Growth::Prompt, tally);
    let profile = Name::from("mini-swe-agent");
    let mut calls = Vec::with_capacity(recorded.len());
    for (number, (step, link)) in recorded.iter().zip(links).enumerate() {
        let mut call = plain_call(steps[number].at, step.prompt, step.output);
        call.profile = Name::clone(&profile);
        call.cause = if number == 0 { Cause::User } else { Cause::Tool };
        call.finish = step.finish;
        call.seen_cached = step.cached;
        link.fill(&mut call);
        calls.push(call);
    }
    calls
}
