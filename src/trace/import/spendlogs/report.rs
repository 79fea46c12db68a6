//! What an import read, kept, left out and assumed, and the first figures of the traffic.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::Options;
use super::calls::Built;
use super::group::Grouped;
use super::rows::{Collector, Row};
use super::time::{self, MICROS_PER_HOUR};
use crate::diag::Warning;
use crate::trace::record::Status;

/// One file that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileReport {
    /// As the user named it.
    pub name: String,
    /// Its form.
    pub form: &'static str,
    /// Its rows.
    pub rows: u64,
}

/// What was put together without a session id.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Regrouped {
    /// Calls whose id is a UUID that no other row carries.
    pub random_ids: u64,
    /// Calls without an id.
    pub no_ids: u64,
    /// Sessions that these calls became.
    pub sessions: u64,
    /// Whether no id at all was on two rows, so that all were taken for random ones.
    pub every_id_once: bool,
}

impl Regrouped {
    /// Counts one call.
    pub(super) fn count(&mut self, no_id: bool) {
        if no_id {
            self.no_ids += 1;
        } else {
            self.random_ids += 1;
        }
    }
}

/// How many calls have their lineage from what.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Evidence {
    /// The prompt grew enough to hold the previous answer: prompt and answer are kept.
    pub with_output: u64,
    /// The prompt grew by less: the previous prompt is kept.
    pub prompt_only: u64,
    /// The same prompt as one sent at the same time.
    pub parallel: u64,
    /// The prompt shrank: nothing is known to be kept.
    pub compacted: u64,
    /// First of their lane: what they share with other sessions is unknown.
    pub first: u64,
    /// Failed, cut off or uncounted: taken from the lane's last counted call.
    pub uncounted: u64,
}

/// Calls made by a profile's people in the hours in which they worked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HumanHours {
    /// Scaffold; empty if unknown.
    pub profile: String,
    /// Calls.
    pub calls: u64,
    /// Pairs of a person and a clock hour (UTC) in which that person made a call.
    pub hours: u64,
}

/// Cached tokens as the servers counted them, in one clock hour.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CachedHour {
    /// The hour in UTC, as `2026-11-29T16`.
    pub hour: String,
    /// Answered calls that started in it.
    pub calls: u64,
    /// Those of them whose cached tokens are known.
    pub known: u64,
    /// Prompt tokens of the known ones.
    pub prompt_tokens: u64,
    /// Cached tokens of the known ones.
    pub cached_tokens: u64,
}

/// Everything that should be known of an import.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// The files.
    pub files: Vec<FileReport>,
    /// Rows of all files.
    pub rows_read: u64,
    /// Rows that cannot be read.
    pub rows_bad: u64,
    /// The first few of them.
    pub bad_rows: Vec<String>,
    /// Rows whose request id came before.
    pub duplicates: u64,
    /// Answers from the response cache: no load.
    pub cache_hits: u64,
    /// Rows of other call types, by type.
    pub other_types: BTreeMap<String, u64>,
    /// Calls of the trace that were answered.
    pub calls_ok: u64,
    /// Calls that failed without an answer.
    pub calls_failed: u64,
    /// Calls cut off in the middle of the answer.
    pub calls_aborted: u64,
    /// Start of the first call, RFC 3339.
    pub start: String,
    /// End of the last call, RFC 3339.
    pub end: String,
    /// Sessions.
    pub sessions: u64,
    /// Sessions of one call.
    pub one_call_sessions: u64,
    /// Lanes of all sessions, main ones included.
    pub lanes: u64,
    /// Sessions that became lanes of their parent.
    pub child_sessions: u64,
    /// Sessions whose parent is not in the input.
    pub orphans: u64,
    /// What was put together without an id.
    pub regrouped: Regrouped,
    /// Turns that began because a gap was long.
    pub gap_turns: u64,
    /// The gap from which on it was, in seconds.
    pub turn_gap: String,
    /// Calls made while another of their lane was under way.
    pub parallel_calls: u64,
    /// Calls with attempts before the recorded one.
    pub retried: u64,
    /// Calls with a first token told apart from the end.
    pub ttft_known: u64,
    /// Answered calls whose cached tokens are known.
    pub cached_known: u64,
    /// Calls whose prompt length was taken from the call before.
    pub assumed_prompts: u64,
    /// Prompts recorded without their cached part, which was added.
    pub uncached_prompts: u64,
    /// Answered calls without token counts.
    pub uncounted: u64,
    /// What the lineage rests on.
    pub evidence: Evidence,
    /// Calls per hour of human work.
    pub human_hours: Vec<HumanHours>,
    /// Median prompt length of answered calls.
    pub prompt_p50: Option<u64>,
    /// 95th percentile of it.
    pub prompt_p95: Option<u64>,
    /// Cached share by hour.
    pub cached_by_hour: Vec<CachedHour>,
    /// What to check before the trace is trusted.
    pub warnings: Vec<Warning>,
}

/// Puts the report together.
pub(super) fn report(
    collector: &Collector,
    order: &[usize],
    grouped: &Grouped,
    built: &Built,
    options: &Options,
) -> Report {
    let rows: Vec<&Row> = order.iter().map(|&index| &collector.rows[index]).collect();
    let counts = &collector.counts;
    let with = |test: &dyn Fn(&Row) -> bool| rows.iter().filter(|row| test(row)).count() as u64;
    let status = |wanted| with(&|row| row.status == wanted);
    let mut prompts: Vec<u64> =
        rows.iter().filter(|row| row.is_counted()).map(|row| row.prompt).collect();
    prompts.sort_unstable();
    let end = rows.iter().map(|row| row.end).max();
    let one_call = built.sessions.iter().filter(|session| session.calls.len() == 1);
    Report {
        files: collector.files.clone(),
        rows_read: counts.read,
        rows_bad: counts.bad,
        bad_rows: collector.bad_rows.iter().map(ToString::to_string).collect(),
        duplicates: counts.duplicates,
        cache_hits: counts.cache_hits,
        other_types: counts.other_types.clone(),
        calls_ok: status(Status::Ok),
        calls_failed: status(Status::Failed),
        calls_aborted: status(Status::Aborted),
        start: rows.first().map(|row| time::rfc3339(row.start)).unwrap_or_default(),
        end: end.map(time::rfc3339).unwrap_or_default(),
        sessions: built.sessions.len() as u64,
        one_call_sessions: one_call.count() as u64,
        lanes: built.lanes,
        child_sessions: grouped.children,
        orphans: grouped.orphans,
        regrouped: grouped.regrouped.clone(),
        gap_turns: built.gap_turns,
        turn_gap: options.turn_gap.secs_text(),
        parallel_calls: built.parallel,
        retried: with(&|row| row.retries > 0),
        ttft_known: with(&|row| row.first_token.is_some()),
        cached_known: with(&|row| row.cached.is_some()),
        assumed_prompts: built.assumed_prompts,
        uncached_prompts: counts.uncached_prompts,
        uncounted: with(&|row| row.status == Status::Ok && row.prompt == 0),
        evidence: built.evidence.clone(),
        human_hours: human_hours(collector, &rows),
        prompt_p50: nearest_rank(&prompts, 50),
        prompt_p95: nearest_rank(&prompts, 95),
        cached_by_hour: cached_by_hour(&rows),
        warnings: warnings(collector, grouped, built),
    }
}

/// The smallest value that at least `percent` in a hundred do not exceed.
fn nearest_rank(sorted: &[u64], percent: usize) -> Option<u64> {
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    sorted.get(rank - 1).copied()
}

fn human_hours(collector: &Collector, rows: &[&Row]) -> Vec<HumanHours> {
    let mut calls: BTreeMap<&str, u64> = BTreeMap::new();
    let mut hours: BTreeSet<(&str, u32, i64)> = BTreeSet::new();
    for row in rows {
        let profile: &str = collector.symbols.name(row.profile);
        *calls.entry(profile).or_default() += 1;
        hours.insert((profile, row.user.0, row.start.div_euclid(MICROS_PER_HOUR)));
    }
    let hours_of =
        |profile: &str| hours.iter().filter(|(worked_with, ..)| *worked_with == profile).count();
    let entry = |(profile, calls): (&str, u64)| HumanHours {
        profile: profile.to_owned(),
        calls,
        hours: hours_of(profile) as u64,
    };
    calls.into_iter().map(entry).collect()
}

fn cached_by_hour(rows: &[&Row]) -> Vec<CachedHour> {
    let mut by_hour: BTreeMap<i64, CachedHour> = BTreeMap::new();
    for row in rows.iter().filter(|row| row.status == Status::Ok) {
        let hour = row.start.div_euclid(MICROS_PER_HOUR);
        let entry = by_hour.entry(hour).or_insert_with(|| CachedHour {
            hour: time::hour_text(hour),
            calls: 0,
            known: 0,
            prompt_tokens: 0,
            cached_tokens: 0,
        });
        entry.calls += 1;
        if let Some(cached) = row.cached {
            entry.known += 1;
            entry.prompt_tokens += row.prompt;
            entry.cached_tokens += cached;
        }
    }
    by_hour.into_values().collect()
}

fn warnings(collector: &Collector, grouped: &Grouped, built: &Built) -> Vec<Warning> {
    let mut warnings = collector.warnings.clone();
    let mut warn = |holds: bool, text: String| {
        if holds {
            warnings.push(Warning(text));
        }
    };
    let (total, read) = (collector.query_total, collector.counts.read);
    warn(total > read, format!("the query has {total} rows and the pages hold {read}"));
    let ids = collector.counts.guessable_ids;
    warn(
        ids > 0,
        format!(
            "{ids} request ids look numbered rather than random: where a server repeats its ids, \
             LiteLLM drops the later rows, so calls may be missing"
        ),
    );
    warn(
        grouped.regrouped.every_id_once,
        "no session id is on two rows, so none says which calls belong together: calls were put \
         together by caller, time and growth"
            .to_owned(),
    );
    let orphans = grouped.orphans;
    warn(
        orphans > 0,
        format!("{orphans} sessions name a parent that is not in the input; they stand alone"),
    );
    let outliers = built.outliers;
    warn(
        outliers > 0,
        format!(
            "{outliers} prompts are ten times as long as the ones before and after them in their \
             lane: miscounted?"
        ),
    );
    warnings
}

impl Report {
    /// What the trace's sidecar should tell a later reader.
    #[must_use]
    pub fn notes(&self) -> Vec<String> {
        let evidence = &self.evidence;
        let mut notes = vec![
            format!(
                "turns rest on gaps of more than {} s alone: turn figures are approximate",
                self.turn_gap
            ),
            "lanes are inferred from overlap and prompt length".to_owned(),
            format!(
                "lineage rests on the growth of prompts within a lane: {} calls keep the prompt \
                 and answer before, {} the prompt only, {} start over after a compaction",
                evidence.with_output, evidence.prompt_only, evidence.compacted
            ),
            format!(
                "what the {} first prompts of lanes share with other sessions is unknown",
                evidence.first
            ),
            "an answer shows as streamed only where its first token was told apart from its end"
                .to_owned(),
        ];
        let mut note = |count: u64, text: &str| {
            if count > 0 {
                notes.push(format!("{count} {text}"));
            }
        };
        let regrouped = &self.regrouped;
        note(
            regrouped.random_ids + regrouped.no_ids,
            "calls without a session id of their own were put together by caller, time and growth",
        );
        note(self.assumed_prompts, "calls have the prompt length of the call before them");
        note(self.uncached_prompts, "prompts were recorded without their cached part");
        note(self.retried, "calls were retried: the wait before their last attempt is not in it");
        note(self.rows_bad, "rows could not be read and were left out");
        note(self.duplicates, "rows had a request id that came before and were left out");
        note(self.cache_hits, "answers of the response cache were left out");
        let other: u64 = self.other_types.values().sum();
        note(other, "rows of other call types were left out");
        notes.extend(self.warnings.iter().map(|warning| format!("warning: {warning}")));
        notes
    }

    fn write_rows(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for file in &self.files {
            writeln!(f, "{}: {}, {} rows", file.name, file.form, file.rows)?;
        }
        let kept = self.calls_ok + self.calls_failed + self.calls_aborted;
        writeln!(f, "rows        {} read, {kept} kept", self.rows_read)?;
        let mut left_out = |count: u64, what: &str| {
            if count > 0 { writeln!(f, "            {count} left out: {what}") } else { Ok(()) }
        };
        left_out(self.rows_bad, "bad")?;
        left_out(self.duplicates, "request id seen before")?;
        left_out(self.cache_hits, "answered from the response cache")?;
        for (call_type, count) in &self.other_types {
            left_out(*count, &format!("call type {call_type}"))?;
        }
        self.bad_rows.iter().try_for_each(|row| writeln!(f, "            bad: {row}"))
    }

    fn write_sessions(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "time        {} to {}", self.start, self.end)?;
        writeln!(
            f,
            "calls       {} ok, {} failed, {} aborted; {} retried, {} in parallel",
            self.calls_ok, self.calls_failed, self.calls_aborted, self.retried, self.parallel_calls
        )?;
        writeln!(
            f,
            "sessions    {}, of which {} have one call; {} lanes, of which {} are subagents",
            self.sessions,
            self.one_call_sessions,
            self.lanes,
            self.lanes - self.sessions
        )?;
        if self.child_sessions > 0 {
            let children = self.child_sessions;
            writeln!(f, "            {children} ids name another as parent and are its lanes")?;
        }
        let regrouped = &self.regrouped;
        if regrouped.random_ids + regrouped.no_ids > 0 {
            writeln!(
                f,
                "            put together: {} calls with a random id and {} without one became {} \
                 sessions",
                regrouped.random_ids, regrouped.no_ids, regrouped.sessions
            )?;
        }
        writeln!(
            f,
            "turns       approximate: {} began after a gap of more than {} s",
            self.gap_turns, self.turn_gap
        )
    }

    fn write_figures(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let evidence = &self.evidence;
        writeln!(
            f,
            "lineage     by growth: {} keep prompt and answer, {} the prompt only, {} sent twice\n\
             \x20           none: {} first of their lane, {} compacted\n\
             \x20           from the lane's last answered call: {} failed, cut off or uncounted",
            evidence.with_output,
            evidence.prompt_only,
            evidence.parallel,
            evidence.first,
            evidence.compacted,
            evidence.uncounted
        )?;
        let known = |count: Option<u64>| count.map_or("unknown".to_owned(), |n| n.to_string());
        let (p50, p95) = (known(self.prompt_p50), known(self.prompt_p95));
        writeln!(f, "prompt      p50 {p50}, p95 {p95} tokens")?;
        writeln!(f, "calls per hour of human work")?;
        for entry in &self.human_hours {
            let profile = if entry.profile.is_empty() { "(unknown)" } else { &entry.profile };
            let rate = entry.calls as f64 / entry.hours as f64;
            let (calls, hours) = (entry.calls, entry.hours);
            writeln!(f, "  {profile}: {rate:.1} ({calls} calls in {hours} hours)")?;
        }
        writeln!(f, "cached share of prompt tokens, as the servers counted")?;
        for hour in &self.cached_by_hour {
            let share = if hour.prompt_tokens == 0 {
                "unknown".to_owned()
            } else {
                format!("{:.1} %", 100.0 * hour.cached_tokens as f64 / hour.prompt_tokens as f64)
            };
            let (at, known, calls) = (&hour.hour, hour.known, hour.calls);
            writeln!(f, "  {at}: {share} (known for {known} of {calls} calls)")?;
        }
        Ok(())
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write_rows(f)?;
        self.write_sessions(f)?;
        self.write_figures(f)?;
        for (count, text) in [
            (self.assumed_prompts, "calls have the prompt length of the call before them"),
            (self.uncached_prompts, "prompts were recorded without their cached part: added"),
            (self.uncounted, "answered calls have no token counts"),
        ] {
            if count > 0 {
                writeln!(f, "note: {count} {text}")?;
            }
        }
        self.warnings.iter().try_for_each(|warning| writeln!(f, "warning: {warning}"))
    }
}
