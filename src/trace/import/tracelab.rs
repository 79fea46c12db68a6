//! Importer of TraceLab's rounds: calls of coding agents, with the times at which inputs came in
//! and outputs came out, and the part of each prompt that the provider had cached.
//!
//! A round begins with the last input before its first output and ends with its last output, so
//! that the time between two rounds is what tools and people took. `docs/import-traces.md` says
//! what is inferred.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::chain::{self, Growth, Step, Tally};
use super::{BadRows, Count, Done, Job, Report, instant, plain_call};
use crate::diag::{Error, Result};
use crate::trace::canonical::Sink;
use crate::trace::check::numbered_id;
use crate::trace::meta::Meta;
use crate::trace::record::{Call, Cause, Name, Session};
use crate::units::{Span, Tokens};

mod raw;

use raw::Round;

/// What the files hold.
#[derive(Default)]
struct Found {
    read: u64,
    bad: BadRows,
    repeated: u64,
    keys: BTreeSet<String>,
    /// The rounds of each session, and the sessions in the order of the files.
    sessions: BTreeMap<String, Vec<Round>>,
    order: Vec<String>,
    users: BTreeMap<String, Name>,
}

/// What had to be assumed.
#[derive(Default)]
struct Assumed {
    starts: u64,
    ends: u64,
    tally: Tally,
    calls: u64,
    user_turns: u64,
}

/// Reads the rounds of all files into a sink.
///
/// # Errors
/// A file that cannot be read, rows that cannot be used (unless they are skipped), nothing to
/// import, and those of the sink.
pub fn read(job: &Job, sink: &mut dyn Sink) -> Result<Done> {
    job.options.check_rate()?;
    let mut found = Found::default();
    for file in &job.files {
        found.read(job, file)?;
    }
    found.bad.settle(job.options.skip_bad)?;
    let mut assumed = Assumed::default();
    let mut sessions = Vec::with_capacity(found.order.len());
    for id in &found.order {
        let mut rounds = found.sessions.remove(id).unwrap_or_default();
        // Stable: rounds of one number stay in the order of the files.
        rounds.sort_by_key(|round| round.index);
        sessions.push((id, placed(job, rounds, &mut assumed)));
    }
    // Stable: sessions that start together stay in the order of the files.
    sessions.sort_by_key(|(_, rounds)| rounds[0].at);
    let Some(first) = sessions.first().map(|(_, rounds)| rounds[0].at) else {
        return Err(Error::new(format!("no call to import: {} rows read", found.read)));
    };
    for (number, (id, rounds)) in sessions.iter().enumerate() {
        let id = match job.options.keep_ids {
            true => Name::from(id.as_str()),
            false => numbered_id(number as u64),
        };
        let calls = calls(job, rounds, first, &found.users, &mut assumed);
        sink.session(&Session { id, calls })?;
    }
    let report = report(job, &found, &assumed);
    let mut notes = report.notes();
    notes.push("what a prompt repeats is inferred from its growth and from what was cached".into());
    notes.push("the time between a tool's result and the next call counts as server time".into());
    let meta = Meta {
        source: Some(format!("TraceLab rounds: {}", job.file_names())),
        licence: job.options.licence.clone(),
        start: Some(instant::rfc3339(first)),
        notes,
        ..Meta::default()
    };
    Ok(Done { meta, report })
}

impl Found {
    fn read(&mut self, job: &Job, file: &Path) -> Result<()> {
        let mut lines = job.lines(file)?;
        let before = self.read;
        while let Some(bytes) = lines.next()? {
            if bytes.trim_ascii().is_empty() {
                continue;
            }
            self.read += 1;
            if let Err(error) = Round::parse(&bytes).and_then(|round| self.take(job, round)) {
                self.bad.add(error.at_line(lines.line()).in_file(file.display()));
            }
        }
        if self.read == before {
            return Err(Error::new("the file holds no round").in_file(file.display()));
        }
        Ok(())
    }

    fn take(&mut self, job: &Job, round: Round) -> Result<()> {
        if let Some(key) = &round.key
            && !self.keys.insert(key.clone())
        {
            self.repeated += 1;
            return Ok(());
        }
        if !round.user.is_empty() && !self.users.contains_key(&round.user) {
            let name = match job.options.keep_ids {
                true => Name::from(round.user.as_str()),
                false => Name::from(format!("u{:02}", self.users.len() + 1)),
            };
            self.users.insert(round.user.clone(), name);
        }
        if !self.sessions.contains_key(&round.session) {
            self.order.push(round.session.clone());
        }
        self.sessions.entry(round.session.clone()).or_default().push(round);
        Ok(())
    }
}

/// A round with its place in time, in nanoseconds since the Unix epoch.
struct Placed {
    at: i64,
    end: i64,
    /// Whether the end was recorded and not only estimated.
    timed: bool,
    round: Round,
}

/// The rounds of a session in the order of their start.
fn placed(job: &Job, rounds: Vec<Round>, assumed: &mut Assumed) -> Vec<Placed> {
    let mut placed: Vec<Placed> = Vec::with_capacity(rounds.len());
    let starts: Vec<Option<i64>> = rounds.iter().map(|round| round.input_at).collect();
    for (number, round) in rounds.into_iter().enumerate() {
        let at = round.input_at.unwrap_or_else(|| {
            assumed.starts += 1;
            unseen_start(placed.last(), &round)
        });
        let end = round.last_output_at.filter(|end| *end > at);
        let timed = end.is_some();
        let end = end.unwrap_or_else(|| {
            assumed.ends += 1;
            let next = starts.get(number + 1).copied().flatten();
            let limit = next.map_or(Span(u64::MAX), |next| since(next, at));
            at.saturating_add_unsigned(job.options.assumed_time(round.output, limit).0)
        });
        placed.push(Placed { at, end, timed, round });
    }
    placed.sort_by_key(|placed| placed.at);
    placed
}

/// When a round began that shows no input: when the tools of the round before were done, or else
/// as that round ended, and in no case after its own first output.
fn unseen_start(before: Option<&Placed>, round: &Round) -> i64 {
    let before =
        before.map(|before| before.round.tools_done_at.unwrap_or(before.end).max(before.end));
    match (before, round.first_output_at) {
        (Some(end), Some(output)) => end.min(output),
        (Some(at), None) | (None, Some(at)) => at,
        (None, None) => round.any_at,
    }
}

/// The time from `earlier`, or none where that is later.
fn since(at: i64, earlier: i64) -> Span {
    Span(u64::try_from(i128::from(at) - i128::from(earlier)).unwrap_or(0))
}

fn calls(
    job: &Job,
    placed: &[Placed],
    first: i64,
    users: &BTreeMap<String, Name>,
    assumed: &mut Assumed,
) -> Vec<Call> {
    let steps: Vec<Step> = placed
        .iter()
        .map(|Placed { at, end, round, .. }| Step {
            at: since(*at, first),
            end: since(*end, first),
            prompt: round.prompt,
            output: round.output,
            // Some agents send reasoning back and some do not: growth and cache tell.
            not_repeated: Tokens::ZERO,
            cached: Some(round.cached),
            failed: false,
        })
        .collect();
    let links = chain::link(&steps, job.options.outputs, Growth::Prompt, &mut assumed.tally);
    let mut turn = 0;
    let mut calls = Vec::with_capacity(placed.len());
    for (number, (placed, link)) in placed.iter().zip(links).enumerate() {
        let round = &placed.round;
        let step = &steps[number];
        let mut call = plain_call(step.at, round.prompt, round.output);
        let asked = number == 0 || round.from_user;
        turn += u32::from(number > 0 && asked);
        assumed.user_turns += u64::from(asked);
        call.cause = if asked { Cause::User } else { Cause::Tool };
        call.turn = turn;
        call.model = Name::from(round.model.as_str());
        call.profile = Name::from(round.provider.as_str());
        call.user = users.get(&round.user).map_or_else(|| Name::from(""), Name::clone);
        call.seen_cached = Some(round.cached);
        call.seen_duration = placed.timed.then(|| step.end.saturating_sub(step.at));
        link.fill(&mut call);
        calls.push(call);
    }
    assumed.calls += calls.len() as u64;
    calls
}

fn report(job: &Job, found: &Found, assumed: &Assumed) -> Report {
    let mut figures = vec![
        ("sessions", found.order.len().to_string()),
        ("calls", assumed.calls.to_string()),
        ("turns", assumed.user_turns.to_string()),
    ];
    figures.extend(assumed.tally.figures());
    Report {
        unit: "rows",
        files: job.files.len() as u64,
        read: found.read,
        kept: assumed.calls,
        bad: found.bad.clone(),
        left_out: vec![Count::new(found.repeated, "repeat the `trace_key` of an earlier row")],
        figures,
        assumed: vec![
            Count::new(
                assumed.starts,
                "calls show no input: they start as tools or the call before end",
            ),
            Count::new(assumed.ends, "calls show no output time: their duration is estimated"),
        ],
        warnings: Vec::new(),
    }
}
