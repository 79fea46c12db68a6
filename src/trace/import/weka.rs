//! Importer of agent sessions with block ids: the run-length JSONL of cc-weka and cc-weka-global,
//! and the original form of kv-cache-tester, one JSON file a session.
//!
//! The format names the content of every prompt by block ids, so who shares what with whom is
//! known to the block. It says when a call was made and how long it took; what waited for what is
//! inferred, by the rules of `docs/import-weka.md`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::blocks::{Names, NodeId, Sharing, blank, object};
use super::{Done, Job};
use crate::diag::{self, Error, Result};
use crate::trace::canonical::Sink;
use crate::trace::check::numbered_id;
use crate::trace::meta::{Meta, PartialBlock};
use crate::trace::record::{After, AfterEvent, Call, Name, Session, Trace};
use crate::units::{Span, Tokens};

mod raw;
mod recorded;
mod report;
#[cfg(test)]
mod tests;
mod timeline;

pub use super::{Options, Outputs};
pub use report::Report;

use raw::RawSession;
use recorded::{Recorded, Scope};
use timeline::{Timed, Timeline};

/// The latest that a session may start: far inside what a [`Span`] holds.
const START_MAX: Span = Span::from_secs(100 * 366 * 86_400);

/// What an import gives.
#[derive(Clone, Debug)]
pub struct Import {
    /// The trace; shared contexts stand in the order of their first use in the files.
    pub trace: Trace,
    /// Where it comes from, but for the command that made it.
    pub meta: Meta,
    /// What was found, kept and left out.
    pub report: Report,
}

/// Reads the sessions of all files into a sink.
///
/// # Errors
/// As for [`import`], and those of the sink.
pub fn read(job: &Job, sink: &mut dyn Sink) -> Result<Done> {
    let Import { trace, meta, report } = import_job(job)?;
    for context in &trace.contexts {
        sink.context(context)?;
    }
    for session in &trace.sessions {
        sink.session(session)?;
    }
    Ok(Done { meta, report: report.common() })
}

/// Imports the sessions of all files as one trace.
///
/// # Errors
/// A file that cannot be read, lines that cannot be used (unless they are skipped), an id to keep
/// that no session has, or nothing left to import.
pub fn import(files: &[PathBuf], options: &Options) -> Result<Import> {
    import_job(&Job::new(files, options))
}

fn import_job(job: &Job) -> Result<Import> {
    let options = &job.options;
    options.check_rate()?;
    let mut found = Found::default();
    for file in &job.files {
        found.read(file, job)?;
    }
    found.report.bad.settle(options.skip_bad)?;
    found.check_left(options)?;
    let block_size = found.block_size.unwrap_or_default();
    let mut report = found.report;
    let (trace, unnumbered) = build(&found.sessions, block_size, options, &mut report);
    let meta = Meta {
        source: Some(source(job, &found.sessions)),
        licence: options.licence.clone(),
        origin_block_size: Some(block_size),
        partial_block: Some(PartialBlock::Drop),
        unnumbered_blocks: unnumbered,
        notes: report.notes(),
        ..Meta::default()
    };
    Ok(Import { trace, meta, report })
}

/// What the files hold so far.
#[derive(Default)]
struct Found {
    sessions: Vec<Recorded>,
    ids: BTreeSet<String>,
    block_size: Option<u64>,
    report: Report,
}

impl Found {
    fn read(&mut self, file: &Path, job: &Job) -> Result<()> {
        let mut lines = job.lines(file)?;
        let lines_before = self.report.lines;
        self.report.files += 1;
        while let Some(mut bytes) = lines.next()? {
            let line = lines.line();
            let text = bytes.trim_ascii();
            if text.is_empty() {
                continue;
            }
            // The first line of a session that is printed over many.
            if text == b"{" && self.report.lines == lines_before {
                bytes.append(&mut lines.rest()?);
            }
            self.report.lines += 1;
            if let Err(error) =
                object(&bytes, line, "one session").and_then(|raw| self.add(raw, &job.options))
            {
                self.report.bad.add(error.at_line(line).in_file(file.display()));
            }
        }
        if self.report.lines == lines_before {
            return Err(Error::new("the file holds no session").in_file(file.display()));
        }
        Ok(())
    }

    fn add(&mut self, raw: RawSession, options: &Options) -> Result<()> {
        let session = raw.check()?;
        let block_size = self.block_size.unwrap_or(session.block_size);
        if session.block_size != block_size {
            let allowed = format!("{block_size} as in the sessions before");
            return Err(Error::found(session.block_size, allowed).in_field("block_size"));
        }
        if !self.ids.insert(session.id.clone()) {
            return Err(Error::new(format!("session `{}` is given twice", session.id)));
        }
        self.block_size = Some(block_size);
        let too_much = |limit: Option<Tokens>| limit.is_some_and(|max| session.context_max() > max);
        if !options.only.is_empty() && !options.only.contains(&session.id) {
            self.report.not_asked += 1;
        } else if too_much(options.max_context) {
            self.report.too_long_context += 1;
        } else if options.max_span.is_some_and(|max| session.span() > max) {
            self.report.too_long_span += 1;
        } else {
            self.sessions.push(session);
        }
        Ok(())
    }

    /// Whether all that was asked for is there, and anything at all.
    fn check_left(&self, options: &Options) -> Result<()> {
        if let Some(id) = options.only.iter().find(|id| !self.ids.contains(*id)) {
            let error = Error::new(format!("no session has the id `{id}`")).in_field("--only");
            let near = diag::nearest(id, self.ids.iter().map(String::as_str));
            return Err(match near {
                Some(near) => error.help(format!("did you mean `{near}`?")),
                None => error,
            });
        }
        if self.sessions.is_empty() {
            let error = Error::new("no session is left to import");
            return Err(self.report.notes().into_iter().fold(error, Error::help));
        }
        if options.stagger.0.saturating_mul(self.sessions.len() as u64) > START_MAX.0 {
            let found = format!("{} s", options.stagger.secs_text());
            let allowed = format!("at most 100 years over {} sessions", self.sessions.len());
            return Err(Error::found(found, allowed).in_field("--stagger"));
        }
        Ok(())
    }
}

/// Where the trace comes from, in words.
fn source(job: &Job, sessions: &[Recorded]) -> String {
    let global = sessions.iter().any(|session| session.scope == Scope::Global);
    let local = sessions.iter().any(|session| session.scope == Scope::Local);
    let scope = match (local, global) {
        (true, true) => "local and global",
        (false, true) => "global",
        _ => "local",
    };
    format!("agent sessions with {scope} block ids: {}", job.file_names())
}

fn build(
    sessions: &[Recorded],
    block_size: u64,
    options: &Options,
    report: &mut Report,
) -> (Trace, BTreeMap<String, Vec<u32>>) {
    let mut sharing = Sharing::new(block_size);
    let ends = add_prompts(sessions, &mut sharing);
    let mut names = Names::default();
    let mut built = Vec::with_capacity(sessions.len());
    let mut short = BTreeMap::new();
    let mut start = Span::ZERO;
    for (number, session) in sessions.iter().enumerate() {
        let timeline = Timeline::of(session, options.assume_tps);
        count(session, &timeline, report);
        let id = match options.keep_ids {
            true => Name::from(session.id.as_str()),
            false => numbered_id(number as u64),
        };
        let mut calls = calls(session, &timeline, start, &mut names);
        let in_order = |call: &Timed| ends[number][call.recorded];
        let ends: Vec<NodeId> = timeline.calls.iter().map(in_order).collect();
        report.outputs_kept += sharing.link(number as u32, &ends, &mut calls, options.outputs);
        let is_short = |call: &Timed| session.calls[call.recorded].short;
        let numbers = (0u32..).zip(&timeline.calls).filter(|(_, call)| is_short(call));
        let numbers: Vec<u32> = numbers.map(|(number, _)| number).collect();
        if !numbers.is_empty() {
            report.short += numbers.len() as u64;
            short.insert(id.to_string(), numbers);
        }
        built.push(Session { id, calls });
        start += options.stagger;
    }
    // A session may begin with a pause that is longer than the time to the next one's start.
    built.sort_by_key(|session| session.calls[0].at);
    let contexts = sharing.contexts().to_vec();
    report.contexts = contexts.len() as u64;
    (Trace { contexts, sessions: built }, short)
}

/// Where the prompts of each session end, call by call in the order of the file.
fn add_prompts(sessions: &[Recorded], sharing: &mut Sharing) -> Vec<Vec<NodeId>> {
    let global = sharing.space();
    let ends = sessions.iter().zip(0..).map(|(session, number)| {
        let space = match session.scope {
            Scope::Local => sharing.space(),
            Scope::Global => global,
        };
        let calls = session.calls.iter();
        calls.map(|call| sharing.add(space, number, &call.ids, call.prompt)).collect()
    });
    ends.collect()
}

fn count(session: &Recorded, timeline: &Timeline, report: &mut Report) {
    let lanes = &session.lanes;
    let joinable = lanes.iter().filter(|lane| lane.joined_at.is_some()).count() as u64;
    report.sessions += 1;
    report.calls += session.calls.len() as u64;
    report.main_calls += lanes[0].calls.len() as u64;
    report.estimated += timeline.estimated;
    report.parallel += timeline.parallel;
    report.joined_lanes += timeline.joined;
    report.async_lanes += lanes.len() as u64 - 1 - joinable;
    report.unused_lanes += joinable - timeline.joined;
    report.empty_lanes += session.empty_lanes;
    report.early_lanes += session.early_lanes;
    report.reordered_lanes += lanes.iter().filter(|lane| lane.out_of_order).count() as u64;
    let silent = session.calls.iter().filter(|call| call.output == Tokens::ZERO);
    report.no_output += silent.count() as u64;
    report.calls_per_turn.extend(timeline::turns_by_stop(session));
    for model in &session.unlisted {
        *report.unlisted_models.entry(model.clone()).or_default() += 1;
    }
}

fn calls(session: &Recorded, timeline: &Timeline, start: Span, names: &mut Names) -> Vec<Call> {
    let blank = Call { profile: names.get(&session.profile), ..blank() };
    let call = |timed: &Timed| {
        let recorded = &session.calls[timed.recorded];
        let finished = |&call: &usize| After { call: call as u32, event: AfterEvent::Finished };
        Call {
            at: start + timed.at,
            after: timed.after.iter().map(finished).collect(),
            gap: timed.gap,
            cause: timed.cause,
            turn: timed.turn,
            lane: recorded.lane as u32,
            model: names.get(&recorded.model),
            prompt_tokens: recorded.prompt,
            output_tokens: recorded.output,
            seen_ttft: recorded.ttft,
            seen_duration: recorded.api_time,
            ..blank.clone()
        }
    };
    timeline.calls.iter().map(call).collect()
}
