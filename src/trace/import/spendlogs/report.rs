//! What an import read, kept, left out and assumed, and the first figures of the traffic.

use std::collections::BTreeMap;
use std::fmt;

use super::row::Loose;
use crate::diag::Warning;

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
    /// Calls whose id is on more calls than a session has.
    pub overfull_calls: u64,
    /// The ids of these.
    pub overfull_ids: u64,
}

impl Regrouped {
    /// Counts one call.
    pub(super) fn count(&mut self, loose: Loose) {
        match loose {
            Loose::Single | Loose::Random => self.random_ids += 1,
            Loose::NoId => self.no_ids += 1,
            Loose::Overfull => self.overfull_calls += 1,
        }
    }

    /// All calls that were put together.
    #[must_use]
    pub fn calls(&self) -> u64 {
        self.random_ids + self.no_ids + self.overfull_calls
    }
}

/// How many calls have their lineage from what. Every call is counted once, but for
/// [`cut_messages`](Self::cut_messages).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Evidence {
    /// Messages: the prompt begins with those of an earlier call of its session, or with none.
    pub messages: u64,
    /// Messages: the prompt begins with those of an earlier call, but for the end of its last one.
    pub changed_ends: u64,
    /// Messages: tools and system prompt are those of another session.
    pub shared_messages: u64,
    /// Measured hits: the first of a lane, or of a compacted one, hits what sessions share.
    pub shared_hits: u64,
    /// The first of a session, with a cold cache, begins as most sessions like it do.
    pub shared_assumed: u64,
    /// Measured hits reach into the previous answer: prompt and answer are kept.
    pub hit_with_output: u64,
    /// Measured hits end before the previous answer: the previous prompt is kept.
    pub hit_prompt_only: u64,
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
    /// Those by messages of which texts were cut before they were stored: both ends and the true
    /// length are compared, so that they are only likely to be equal.
    pub cut_messages: u64,
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
    /// Failures that a later attempt of the same call follows.
    pub attempts: u64,
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
    /// Agents that a header tells apart from the first of their session, whose lanes they became.
    pub agents: u64,
    /// Sessions whose parent is not in the input.
    pub orphans: u64,
    /// What was put together without an id.
    pub regrouped: Regrouped,
    /// Turns that began with a person's message.
    pub said_turns: u64,
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
    /// Contexts that sessions share.
    pub shared_contexts: u64,
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

impl Evidence {
    /// What there is of each kind, the best first.
    fn lines(&self) -> Vec<(&'static str, u64)> {
        let all = [
            ("by messages: continue, or do not, an earlier call", self.messages),
            ("by messages: continue one but for the end of its last message", self.changed_ends),
            ("by messages: begin with a context that sessions share", self.shared_messages),
            ("by hits: begin with a context that sessions share", self.shared_hits),
            ("by hits of others: begin so too, with a cold cache", self.shared_assumed),
            ("by hits: keep the prompt and answer before", self.hit_with_output),
            ("by hits: keep the prompt before only", self.hit_prompt_only),
            ("by growth: keep the prompt and answer before", self.with_output),
            ("by growth: keep the prompt before only", self.prompt_only),
            ("by length: one prompt sent several times", self.parallel),
            ("none: start over after a compaction", self.compacted),
            ("none: first of their lane", self.first),
            ("none: failed, cut off or uncounted, so as the call before", self.uncounted),
        ];
        all.into_iter().filter(|&(_, count)| count > 0).collect()
    }

    fn text(&self) -> String {
        let lines = self.lines().into_iter().map(|(what, count)| format!("{count} {what}"));
        lines.chain(self.cut_text()).collect::<Vec<_>>().join("; ")
    }

    /// How much of it is not exact.
    fn cut_text(&self) -> Option<String> {
        let cut = self.cut_messages;
        (cut > 0).then(|| format!("{cut} of those by messages rest on texts that LiteLLM had cut"))
    }
}

impl Report {
    /// What the trace's sidecar should tell a later reader.
    #[must_use]
    pub fn notes(&self) -> Vec<String> {
        let evidence = &self.evidence;
        let mut notes = vec![
            format!(
                "{} turns begin with a person's message, {} rest on gaps of more than {} s alone: \
                 figures of the latter are approximate",
                self.said_turns, self.gap_turns, self.turn_gap
            ),
            "lanes are inferred from overlap and prompt length".to_owned(),
            format!("lineage rests on: {}", evidence.text()),
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
        note(
            self.regrouped.calls(),
            "calls without a session id of their own were put together by caller, time and growth",
        );
        note(self.assumed_prompts, "calls have the prompt length of the call before them");
        note(self.uncached_prompts, "prompts were recorded without their cached part");
        note(self.retried, "calls were retried: the wait before their last attempt is not in it");
        note(self.rows_bad, "rows could not be read and were left out");
        note(self.duplicates, "rows had a request id that came before and were left out");
        note(self.attempts, "failures were earlier attempts of a call and were left out");
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
        left_out(self.attempts, "failed attempts of a call that was tried again")?;
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
        if self.agents > 0 {
            let agents = self.agents;
            writeln!(f, "            {agents} agents are named by headers and are lanes")?;
        }
        let regrouped = &self.regrouped;
        if regrouped.calls() > 0 {
            writeln!(
                f,
                "            put together: {} calls with a random id, {} without one and {} with \
                 one that too many have became {} sessions",
                regrouped.random_ids,
                regrouped.no_ids,
                regrouped.overfull_calls,
                regrouped.sessions
            )?;
        }
        if self.said_turns > 0 {
            writeln!(f, "turns       {} began with a person's message", self.said_turns)?;
        }
        writeln!(
            f,
            "turns       approximate: {} began after a gap of more than {} s",
            self.gap_turns, self.turn_gap
        )
    }

    fn write_figures(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, (what, count)) in self.evidence.lines().into_iter().enumerate() {
            let title = if number == 0 { "lineage" } else { "" };
            writeln!(f, "{title:<12}{count} {what}")?;
        }
        if let Some(text) = self.evidence.cut_text() {
            writeln!(f, "            {text}")?;
        }
        if self.shared_contexts > 0 {
            writeln!(f, "            {} contexts are shared", self.shared_contexts)?;
        }
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
