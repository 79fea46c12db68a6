//! Importer of inference-lab's sessions: one session a line, a chain of steps each of which
//! continues the whole context of the one before with some new tokens.
//!
//! A step's prompt is `input` tokens long, of which all but `new` repeat what the step before had
//! in context, its output included; `gap` seconds lie between the end of that step and this one's
//! start. The simulator's own files do not say when a session starts; `start_s` is read where it
//! is there.

use rustc_hash::FxHashSet;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::blocks::{
    PERSON_PAUSE, SECOND, SECS_MAX, blank, count, objects, origin, required, text, time,
};
use super::{Count, Done, Job, Options, Report};
use crate::diag::{Error, Result};
use crate::trace::canonical::Sink;
use crate::trace::check::{NAME_BYTES_MAX, TIME_MAX, numbered_id};
use crate::trace::meta::Meta;
use crate::trace::record::{After, AfterEvent, Base, Call, Cause, Name, Session};
use crate::units::{Span, Tokens};

/// The latest start, in seconds: dates of this century included.
const LATEST: f64 = 4e9;
/// No step takes longer.
const DAY: Span = Span::from_secs(86_400);

const SESSION_FIELDS: [&str; 3] = ["id", "start_s", "steps"];
const STEP_FIELDS: [&str; 5] = ["input", "new", "output", "gap", "kind"];

/// A session as it stands in the file.
#[derive(Deserialize)]
struct RawSession {
    id: Option<Value>,
    start_s: Option<Value>,
    steps: Option<Vec<RawStep>>,
    #[serde(flatten)]
    others: Map<String, Value>,
}

#[derive(Deserialize)]
struct RawStep {
    input: Option<Value>,
    new: Option<Value>,
    output: Option<Value>,
    gap: Option<Value>,
    kind: Option<Value>,
    #[serde(flatten)]
    others: Map<String, Value>,
}

/// A step that was checked.
#[derive(Clone, Copy, Debug)]
struct Step {
    input: Tokens,
    new: Tokens,
    output: Tokens,
    gap: Span,
    /// Whether a person asked; not said if there is no kind.
    person: Option<bool>,
}

/// A session that was checked. Times of its calls count from its start.
#[derive(Clone, Debug)]
struct Checked {
    id: Name,
    start: Span,
    calls: Vec<Call>,
}

/// What the files hold.
#[derive(Default)]
struct Found {
    sessions: Vec<Checked>,
    ids: FxHashSet<Name>,
    /// Whether sessions say when they start, as the first one does.
    starts: Option<bool>,
    empty: u64,
    claims: Claims,
}

/// Prompts that repeat less than they claim.
#[derive(Clone, Copy, Debug, Default)]
struct Claims {
    /// First steps that claim to repeat something.
    first: u64,
    /// Later ones that claim more than there was.
    beyond: u64,
}

/// Reads sessions into a sink, by their start.
///
/// # Errors
/// A file that cannot be read, sessions that cannot be used (unless they are skipped), none that
/// can, and the errors of the sink.
pub fn read(job: &Job, sink: &mut dyn Sink) -> Result<Done> {
    job.options.check_rate()?;
    let mut report = Report { unit: "sessions", ..Report::default() };
    let mut found = Found::default();
    objects(job, &mut report, |line| found.add(line.parse("one session")?, &job.options))?;
    if found.sessions.is_empty() {
        return Err(Error::new("no session is left to import"));
    }
    // Stable: sessions that start together stay in the order of the files.
    found.sessions.sort_by_key(|session| session.start);
    let (first, date) = origin(found.sessions[0].start);
    let mut calls = 0;
    report.kept = found.sessions.len() as u64;
    for (number, mut session) in found.sessions.into_iter().enumerate() {
        let start = session.start.saturating_sub(first);
        for call in &mut session.calls {
            call.at = Span(call.at.0.saturating_add(start.0));
        }
        calls += session.calls.len() as u64;
        let id = if job.options.keep_ids { session.id } else { numbered_id(number as u64) };
        sink.session(&Session { id, calls: session.calls })?;
    }
    report.left_out.push(Count::new(found.empty, "have no step"));
    report.read = report.kept + report.dropped();
    report.figures.push(("calls", calls.to_string()));
    let staggered = if found.starts == Some(false) { report.kept } else { 0 };
    report.assumed.extend([
        Count::new(staggered, "sessions start one after the other, as the files do not say when"),
        Count::new(calls - report.kept, "recorded times assumed: they follow from the gaps"),
        Count::new(found.claims.first, "first steps whose prompt is not all new: it is taken so"),
        Count::new(found.claims.beyond, "steps that repeat more than there was: they repeat that"),
    ]);
    let meta = Meta {
        source: Some(format!("inference-lab sessions: {}", job.file_names())),
        licence: job.options.licence.clone(),
        start: date,
        notes: report.notes(),
        ..Meta::default()
    };
    Ok(Done { meta, report })
}

impl Found {
    fn add(&mut self, row: RawSession, options: &Options) -> Result<()> {
        known_fields(&row.others, &SESSION_FIELDS)?;
        let id = required(text(row.id.as_ref(), "id")?, "id")?;
        check_id(id)?;
        if self.ids.contains(id) {
            return Err(Error::new(format!("the session `{id}` is given twice")).in_field("id"));
        }
        let start = time(row.start_s.as_ref(), "start_s", SECOND, LATEST)?;
        let said = *self.starts.get_or_insert(start.is_some());
        let start = match start {
            Some(_) if !said => {
                let error = Error::new("sessions before this one have none: all or none must");
                return Err(error.in_field("start_s"));
            }
            Some(start) => start,
            None if said => return required(None, "start_s"),
            None => Span(options.stagger.0.saturating_mul(self.sessions.len() as u64)),
        };
        let steps = required(row.steps, "steps")?;
        let steps: Vec<Step> = steps
            .into_iter()
            .enumerate()
            .map(|(number, step)| step.check().map_err(|error| within(error, number)))
            .collect::<Result<_>>()?;
        let mut claims = self.claims;
        let calls = calls(&steps, start, options, &mut claims)?;
        // Nothing below fails, so a bad row leaves no trace.
        self.claims = claims;
        if calls.is_empty() {
            self.empty += 1;
            return Ok(());
        }
        let id = Name::from(id);
        self.ids.insert(Name::clone(&id));
        self.sessions.push(Checked { id, start, calls });
        Ok(())
    }
}

/// A name that a session of a trace may have.
fn check_id(id: &str) -> Result<()> {
    let fits = !id.is_empty()
        && id.len() <= NAME_BYTES_MAX
        && !id.starts_with('@')
        && !id.chars().any(char::is_control);
    if fits {
        return Ok(());
    }
    let shown: String = id.chars().take(40).collect();
    let allowed = format!("1 to {NAME_BYTES_MAX} bytes, no leading `@`, no control characters");
    Err(Error::found(shown.escape_debug(), allowed).in_field("id"))
}

/// Refuses fields that the format does not have: a gap that is misspelt would be none.
fn known_fields(others: &Map<String, Value>, known: &[&str]) -> Result<()> {
    match others.keys().next() {
        Some(name) => {
            let shown: String = name.chars().take(40).collect();
            let shown = shown.escape_debug().to_string();
            Err(Error::unknown("field", &shown, known.iter().copied()))
        }
        None => Ok(()),
    }
}

/// Names the step at fault.
fn within(error: Error, number: usize) -> Error {
    let field = match &error.place().field {
        Some(field) => format!("steps[{number}].{field}"),
        None => format!("steps[{number}]"),
    };
    error.with_field(field)
}

impl RawStep {
    fn check(self) -> Result<Step> {
        known_fields(&self.others, &STEP_FIELDS)?;
        let input = required(count(self.input.as_ref(), "input", 1)?, "input")?;
        let new = required(count(self.new.as_ref(), "new", 0)?, "new")?;
        if new > input {
            return Err(Error::found(new, format!("at most the input, {input}")).in_field("new"));
        }
        let output = required(count(self.output.as_ref(), "output", 0)?, "output")?;
        let gap = time(self.gap.as_ref(), "gap", SECOND, SECS_MAX)?.unwrap_or_default();
        let kind = text(self.kind.as_ref().filter(|kind| !kind.is_null()), "kind")?;
        let person = kind.map(|kind| kind == "user");
        Ok(Step { input: Tokens(input), new: Tokens(new), output: Tokens(output), gap, person })
    }
}

/// The calls of a session, each behind the one before; times count from its start.
fn calls(steps: &[Step], start: Span, options: &Options, claims: &mut Claims) -> Result<Vec<Call>> {
    let mut calls: Vec<Call> = Vec::with_capacity(steps.len());
    for (number, step) in steps.iter().enumerate() {
        let mut call = Call { prompt_tokens: step.input, output_tokens: step.output, ..blank() };
        let claimed = step.input - step.new;
        if let Some(before) = calls.last() {
            let there = before.prompt_tokens + before.output_tokens;
            claims.beyond += u64::from(claimed > there);
            call.kept_tokens = claimed.min(there);
            let number = number as u32 - 1;
            if call.kept_tokens > Tokens::ZERO {
                call.base = Base::Call(number);
            }
            call.after = vec![After { call: number, event: AfterEvent::Finished }];
            call.gap = step.gap;
            let served = options.assumed_time(before.output_tokens, DAY);
            call.at = Span(before.at.0.saturating_add(served.0).saturating_add(step.gap.0));
            if call.at.0.saturating_add(start.0) > TIME_MAX.0 {
                let error = Error::new("with all gaps before it, the step is 100 years away");
                return Err(within(error.in_field("gap"), number as usize + 1));
            }
            let person = step.person.unwrap_or(step.gap >= PERSON_PAUSE);
            call.cause = if person { Cause::User } else { Cause::Tool };
            call.turn = before.turn + u32::from(person);
        } else {
            claims.first += u64::from(claimed > Tokens::ZERO);
        }
        calls.push(call);
    }
    Ok(calls)
}
