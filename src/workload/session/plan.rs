//! How many turns, how many calls in each, and what runs beside which.

use super::Who;
use crate::rng::Stream;
use crate::workload::dist::happens;
use crate::workload::profile::Key;

/// The most calls of a session's main agent, and of one subagent.
pub(super) const CALLS_MAX: u64 = 100_000;
/// The most turns of a session.
const TURNS_MAX: u64 = 10_000;
/// The most subagents of a session.
const SPAWNS_MAX: u64 = 10_000;

/// The shape of a session.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) turns: Vec<Turn>,
    pub(super) is_stuck: bool,
}

/// The shape of a turn.
#[derive(Debug, Default)]
pub(super) struct Turn {
    /// Calls of the main agent.
    pub(super) main: u32,
    /// Steps that have a call beside them, in order; one that has two stands twice.
    beside: Vec<u32>,
    /// Steps that spawn a subagent, in the same way.
    spawns: Vec<u32>,
}

impl Turn {
    pub(super) fn beside_at(&self, step: u32) -> usize {
        count(&self.beside, step)
    }

    pub(super) fn spawned_at(&self, step: u32) -> usize {
        count(&self.spawns, step)
    }
}

fn count(sorted: &[u32], step: u32) -> usize {
    let from = sorted.partition_point(|other| *other < step);
    sorted[from..].iter().take_while(|other| **other == step).count()
}

impl Plan {
    pub(super) fn draw(who: &Who<'_>, plan: &mut Stream, aside: &mut Stream) -> Self {
        let profile = who.profile;
        let is_single = happens(plan, profile.number(Key::SingleTurn));
        let is_stuck = happens(plan, profile.number(Key::FailedSessions));
        let turns = match profile.dist(Key::Turns) {
            Some(dist) if !is_single => dist.draw_count(plan).clamp(1, TURNS_MAX),
            _ => 1,
        };
        let factor = if is_stuck { profile.number(Key::FailedSessionFactor) } else { 1.0 };
        let mut room = CALLS_MAX;
        let mut planned = Vec::new();
        for turn in 0..turns {
            let key = match (is_single, turn) {
                (true, _) => Key::CallsSingle,
                (false, 0) => Key::CallsFirst,
                (false, _) => Key::CallsLater,
            };
            let calls = calls(who, key, factor, plan).min(room);
            if calls == 0 {
                break;
            }
            room -= calls;
            planned.push(with_beside(who, calls, aside));
        }
        let mut plan = Self { turns: planned, is_stuck };
        if happens(aside, profile.number(Key::SubagentSessions)) {
            plan.spawn(who, aside);
        }
        plan
    }

    /// Spreads subagents over the calls that have another behind them in their turn: that one
    /// reads what they found.
    fn spawn(&mut self, who: &Who<'_>, aside: &mut Stream) {
        let draw = |key, stream: &mut Stream| {
            who.profile.dist(key).map_or(1, |dist| dist.draw_count(stream).max(1))
        };
        let steps: u64 = self.turns.iter().map(|turn| u64::from(turn.main) - 1).sum();
        if steps == 0
            && let Some(first) = self.turns.first_mut()
        {
            first.main += 1;
        }
        let mut left = draw(Key::Spawns, aside).min(SPAWNS_MAX);
        while left > 0 {
            let together = draw(Key::SpawnsTogether, aside).min(left);
            left -= together;
            let mut step = aside.uniform_below(steps.max(1));
            for turn in &mut self.turns {
                let here = u64::from(turn.main) - 1;
                if step < here {
                    turn.spawns.extend((0..together).map(|_| step as u32));
                    break;
                }
                step -= here;
            }
        }
        self.turns.iter_mut().for_each(|turn| turn.spawns.sort_unstable());
    }
}

/// Calls of a turn, those beside the main agent's included.
fn calls(who: &Who<'_>, key: Key, factor: f64, plan: &mut Stream) -> u64 {
    let profile = who.profile;
    let Some(dist) = profile.dist(key) else { return 1 };
    let drawn = dist.draw(plan);
    let fails = happens(plan, profile.number(Key::FailedTurns));
    let failed = if fails { profile.number(Key::FailedTurnFactor) } else { 1.0 };
    // A float-to-int cast saturates.
    ((drawn * failed * factor * who.calls).floor() as u64).max(1)
}

/// Divides the calls of a turn among the main agent and what runs beside it.
fn with_beside(who: &Who<'_>, calls: u64, aside: &mut Stream) -> Turn {
    let Some(dist) = who.profile.dist(Key::Beside) else {
        return Turn { main: calls as u32, ..Turn::default() };
    };
    let beside = dist.draw(aside);
    // Rounded up or down by chance, so that short turns have their part of it on average.
    let main = (calls as f64 / (1.0 + beside) + aside.uniform_f64()).floor() as u64;
    let main = main.clamp(1, calls);
    let mut steps: Vec<u32> = (main..calls).map(|_| aside.uniform_below(main) as u32).collect();
    steps.sort_unstable();
    Turn { main: main as u32, beside: steps, spawns: Vec::new() }
}
