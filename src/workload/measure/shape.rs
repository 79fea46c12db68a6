//! The shape of one session: its turns, its lanes, its sums.

use std::collections::BTreeMap;

use crate::trace::record::{Cause, Session};
use crate::workload::session::Facts;

/// A turn has a longest chain worth naming from so many calls on.
const CHAIN_CALLS_MIN: f64 = 10.0;

/// What the figures need of a session.
#[derive(Debug, Default)]
pub(super) struct Shape {
    pub(super) main_calls: u64,
    pub(super) last_prompt: f64,
    pub(super) minutes: f64,
    pub(super) prompt_at_30: Option<f64>,
    pub(super) prompt_tokens: f64,
    pub(super) output_tokens: f64,
    /// Calls that no person started.
    pub(super) agent_started: f64,
    /// Changes of the main agent's model.
    pub(super) switches: f64,
    /// By turn.
    pub(super) turn_calls: Vec<f64>,
    pub(super) turn_main: Vec<f64>,
    pub(super) turn_tokens: Vec<f64>,
    pub(super) concurrency: Vec<f64>,
    /// By subagent.
    pub(super) subagent_calls: Vec<f64>,
}

impl Shape {
    pub(super) fn of(session: &Session, facts: &Facts) -> Self {
        let mut shape = Self::default();
        let mut beside: Vec<f64> = Vec::new();
        let mut subagents: BTreeMap<u32, f64> = BTreeMap::new();
        let mut model = None;
        for call in &session.calls {
            let turn = call.turn as usize;
            if turn >= shape.turn_calls.len() {
                shape.turn_calls.resize(turn + 1, 0.0);
                shape.turn_main.resize(turn + 1, 0.0);
                shape.turn_tokens.resize(turn + 1, 0.0);
                beside.resize(turn + 1, 0.0);
            }
            let prompt = call.prompt_tokens.0 as f64;
            shape.turn_calls[turn] += 1.0;
            shape.turn_tokens[turn] += prompt;
            shape.prompt_tokens += prompt;
            shape.output_tokens += call.output_tokens.0 as f64;
            shape.agent_started += f64::from(u8::from(call.cause != Cause::User));
            if call.lane > 0 {
                match facts.beside.binary_search(&call.lane) {
                    Ok(_) => beside[turn] += 1.0,
                    Err(_) => *subagents.entry(call.lane).or_default() += 1.0,
                }
                continue;
            }
            shape.main_calls += 1;
            shape.turn_main[turn] += 1.0;
            shape.last_prompt = prompt;
            shape.minutes = (call.at - session.calls[0].at).secs() / 60.0;
            if shape.main_calls == 30 {
                shape.prompt_at_30 = Some(prompt);
            }
            let changed = model.replace(&call.model).is_some_and(|last| *last != call.model);
            shape.switches += f64::from(u8::from(changed));
        }
        let turns = shape.turn_main.iter().zip(&beside);
        let long = turns.filter(|(main, beside)| **main + **beside >= CHAIN_CALLS_MIN);
        shape.concurrency = long.map(|(main, beside)| (main + beside) / main).collect();
        shape.subagent_calls = subagents.into_values().collect();
        shape
    }
}
