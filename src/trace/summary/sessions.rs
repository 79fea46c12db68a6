//! Figures of the sessions and of their lanes.

use std::collections::BTreeMap;
use std::mem::take;

use serde::Serialize;

use super::collect::Collector;
use super::dist::{Dist, ratio};

/// Lengths, growth and hits of sessions. Where nothing else is said, a session's main lane counts.
#[derive(Clone, Debug, Serialize)]
pub struct Sessions {
    /// Sessions.
    pub sessions: u64,
    /// Lanes other than main agents'.
    pub subagent_threads: u64,
    /// Sessions with any such lane.
    pub sessions_with_subagents: u64,
    /// Such lanes of a session that has any.
    pub subagents_per_session_having_any: Option<Dist<i64>>,
    /// Calls of a session in its main lane.
    pub calls_per_session_main: Option<Dist<i64>>,
    /// Calls of a session in all lanes.
    pub calls_per_session_all: Option<Dist<i64>>,
    /// From its first to its last dispatch.
    pub session_duration_s: Option<Dist<f64>>,
    /// Prompt of its first call.
    pub first_prompt_tokens: Option<Dist<i64>>,
    /// Prompt of its last call.
    pub last_prompt_tokens: Option<Dist<i64>>,
    /// Its longest prompt.
    pub max_prompt_tokens: Option<Dist<i64>>,
    /// By how much a prompt is longer than the one before, in every lane.
    pub context_growth_tokens_per_call: Option<Dist<i64>>,
    /// Prompts less than half as long as the one before, in every lane.
    pub context_halvings: u64,
    /// Time between two dispatches that follow one another, in every lane.
    pub inter_call_interval_s: Option<Dist<f64>>,
    /// Share of prompt tokens that an endless cache hits, by the call's number.
    pub step_hit_tokens: BTreeMap<String, f64>,
    /// Share of a session's prompt tokens, in all lanes, that an endless cache hits.
    pub per_session_hit: Option<Dist<f64>>,
    /// Recorded durations over the session's time.
    pub session_duty_cycle: Option<Dist<f64>>,
    /// Calls that ask for another model than the one before, as a share.
    pub model_change_share_of_consecutive_calls: Option<f64>,
}

impl Sessions {
    /// Uses up the collected values; `hit_tokens` are an endless cache's, call by call.
    pub(super) fn of(all: &mut Collector, hit_tokens: &[u64]) -> Self {
        let step_hit_tokens = step_hit(all, hit_tokens);
        let per_session_hit = session_hit(all, hit_tokens);
        let subagents = all.sessions.iter().map(|session| session.subagents);
        let subagents: Vec<u64> = subagents.filter(|lanes| *lanes > 0).collect();
        Self {
            sessions: all.sessions.len() as u64,
            subagent_threads: subagents.iter().sum(),
            sessions_with_subagents: subagents.len() as u64,
            subagents_per_session_having_any: Dist::of_counts(subagents),
            calls_per_session_main: Dist::of_counts(all.sessions.iter().map(|s| s.main_calls)),
            calls_per_session_all: Dist::of_counts(all.sessions.iter().map(|s| s.calls)),
            session_duration_s: Dist::of_rounded(take(&mut all.durations), 3),
            first_prompt_tokens: Dist::of_counts(take(&mut all.first_prompts)),
            last_prompt_tokens: Dist::of_counts(take(&mut all.last_prompts)),
            max_prompt_tokens: Dist::of_counts(take(&mut all.max_prompts)),
            context_growth_tokens_per_call: Dist::of(take(&mut all.growth)),
            context_halvings: all.halvings,
            inter_call_interval_s: Dist::of_rounded(take(&mut all.intervals), 3),
            step_hit_tokens,
            per_session_hit,
            session_duty_cycle: Dist::of_rounded(take(&mut all.duty_cycles), 4),
            model_change_share_of_consecutive_calls: ratio(
                all.model_changes as f64,
                all.main_steps as f64,
                5,
            ),
        }
    }
}

/// By the number of the call in the main lane; from the sixth on together.
fn step_hit(all: &Collector, hit_tokens: &[u64]) -> BTreeMap<String, f64> {
    const NAMES: [&str; 6] = ["0", "1", "2", "3", "4", "5+"];
    let mut sums = [(0u64, 0u64); NAMES.len()];
    for (call, hit) in all.calls.iter().zip(hit_tokens) {
        if let Some(step) = call.main_step {
            let (hits, tokens) = &mut sums[(step as usize).min(NAMES.len() - 1)];
            *hits += hit;
            *tokens += call.prompt;
        }
    }
    let shares = NAMES.iter().zip(sums).filter_map(|(name, (hits, tokens))| {
        ratio(hits as f64, tokens as f64, 4).map(|share| ((*name).to_owned(), share))
    });
    shares.collect()
}

fn session_hit(all: &Collector, hit_tokens: &[u64]) -> Option<Dist<f64>> {
    let mut sums = vec![(0u64, 0u64); all.sessions.len()];
    for (call, hit) in all.calls.iter().zip(hit_tokens) {
        let (hits, tokens) = &mut sums[call.session as usize];
        *hits += hit;
        *tokens += call.prompt;
    }
    let shares = sums.into_iter().filter(|(_, tokens)| *tokens > 0);
    Dist::of_rounded(shares.map(|(hits, tokens)| hits as f64 / tokens as f64).collect(), 4)
}
