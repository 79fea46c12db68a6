//! A session that is being played.

use std::sync::Arc;

use super::content::OwnContent;
use super::overflow::Fit;
use super::population::Start;
use super::workload::SessionPlan;
use crate::observe::records::{TaskRecord, TurnRecord};
use crate::trace::lineage::Path;
use crate::trace::record::AfterEvent;
use crate::units::{ReplicaId, Span, Time, Tokens};

/// A session that is being played.
#[derive(Debug, Default)]
pub struct Play {
    /// Its number among all that were played.
    pub number: u32,
    /// Which session of the trace.
    pub session: u32,
    /// The pass through the trace.
    pub pass: u32,
    /// Who plays it.
    pub player: u32,
    /// What it is like.
    pub plan: Arc<SessionPlan>,
    /// When it started.
    pub started: Time,
    /// Its first dispatch.
    pub first: Option<Time>,
    /// Where its calls go, once one has gone somewhere.
    pub pin: Option<ReplicaId>,
    /// The same for the pools from the second on.
    other_pins: Vec<Option<ReplicaId>>,
    /// Its calls by number, up to the last one of which anything is known.
    pub calls: Vec<CallState>,
    /// Its turns by position.
    pub turns: Vec<TurnState>,
    /// Calls that have not ended; none where no session is being played.
    pub calls_left: u32,
    /// Prompt and output of the main agent's latest call.
    pub context: Tokens,
    /// Sums over its completed turns.
    pub turns_total: Span,
    /// The same less tool time.
    pub turns_llm_total: Span,
    /// Its content.
    pub own: OwnContent,
    /// Contexts that are kept for calls that continue them.
    pub kept: Vec<KeptContext>,
    free_kept: Vec<u32>,
}

/// A call of a session that is being played.
#[derive(Clone, Copy, Debug)]
pub struct CallState {
    /// Calls that it still waits for.
    pub waits: u32,
    /// Its place among [`Play::kept`], if its context is there.
    context: u32,
    /// When it was dispatched; [`Time::MAX`] before.
    dispatched: Time,
    /// When the client had its answer; [`Time::MAX`] before.
    ended: Time,
}

/// Nothing is kept.
const NOWHERE: u32 = u32::MAX;

/// The context of a call for those that continue it.
#[derive(Clone, Debug, Default)]
pub struct KeptContext {
    /// How it was fitted into the model's context.
    fit: Fit,
    /// Prompt and recorded output.
    path: Path,
    /// Calls that continue it and were not dispatched yet.
    left: u32,
}

impl CallState {
    /// When it was dispatched.
    #[must_use]
    pub fn dispatched(&self) -> Option<Time> {
        (self.dispatched != Time::MAX).then_some(self.dispatched)
    }

    /// When the client had its answer.
    #[must_use]
    pub fn ended(&self) -> Option<Time> {
        (self.ended != Time::MAX).then_some(self.ended)
    }
}

/// A turn of a session that is being played.
#[derive(Clone, Copy, Debug, Default)]
pub struct TurnState {
    /// Calls that have not ended.
    pub calls_left: u32,
    /// When its first call was dispatched.
    pub started: Option<Time>,
    /// Whether a call of it failed.
    pub failed: bool,
}

impl TurnState {
    /// Whether it has begun and not ended.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.started.is_some() && self.calls_left > 0
    }
}

/// Room for so many calls stays with a place for a session when another takes it over.
const ROOM_KEPT: usize = 64;

impl Play {
    /// Begins a session in this place.
    pub fn begin(&mut self, plan: Arc<SessionPlan>, number: u32, start: Start, now: Time) {
        self.calls.clear();
        let turn = |turn| TurnState { calls_left: plan.turn_calls(turn), ..TurnState::default() };
        self.turns.clear();
        self.turns.extend((0..plan.turns).map(turn));
        (self.number, self.session, self.pass) = (number, start.session, start.pass);
        (self.player, self.started, self.first, self.pin) = (start.player, now, None, start.pin);
        self.other_pins.clear();
        self.calls_left = plan.len() as u32;
        self.context = Tokens::ZERO;
        (self.turns_total, self.turns_llm_total) = (Span::ZERO, Span::ZERO);
        self.plan = plan;
    }

    /// Where its last call in this pool went.
    #[must_use]
    pub fn pin(&self, pool: u16) -> Option<ReplicaId> {
        match usize::from(pool).checked_sub(1) {
            None => self.pin,
            Some(other) => self.other_pins.get(other).copied().flatten(),
        }
    }

    /// A call of it goes there, in this pool.
    pub fn pin_to(&mut self, pool: u16, replica: ReplicaId) {
        let Some(other) = usize::from(pool).checked_sub(1) else {
            self.pin = Some(replica);
            return;
        };
        if self.other_pins.len() <= other {
            self.other_pins.resize(other + 1, None);
        }
        self.other_pins[other] = Some(replica);
    }

    /// Whether a session is being played here.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.calls_left > 0
    }

    /// The session is over: nothing of it is needed any more.
    pub fn end(&mut self, nobody: &Arc<SessionPlan>) {
        self.plan = Arc::clone(nobody);
        self.kept.clear();
        self.free_kept.clear();
        if self.calls.capacity() > ROOM_KEPT {
            *self = Self { plan: Arc::clone(nobody), ..Self::default() };
        }
    }

    /// What is known of a call, nothing so far if it was not asked for.
    fn state<'a>(
        calls: &'a mut Vec<CallState>,
        plan: &SessionPlan,
        call: u32,
    ) -> &'a mut CallState {
        let known = calls.len() as u32;
        if known <= call {
            // As calls are dispatched one after the other, not twice as much as there is now.
            if call as usize >= calls.capacity() {
                calls.reserve_exact((call + 1 - known).max(known / 4 + 4) as usize);
            }
            calls.extend((known..=call).map(|call| CallState {
                waits: plan.after(call).len() as u32,
                context: NOWHERE,
                dispatched: Time::MAX,
                ended: Time::MAX,
            }));
        }
        &mut calls[call as usize]
    }

    /// One of those that a call waits for has done so; whether it was the last one.
    pub fn stops_waiting(calls: &mut Vec<CallState>, plan: &SessionPlan, call: u32) -> bool {
        let state = Self::state(calls, plan, call);
        state.waits -= 1;
        state.waits == 0
    }

    /// A call is dispatched.
    pub fn dispatched(&mut self, now: Time, call: u32) {
        Self::state(&mut self.calls, &self.plan, call).dispatched = now;
        let turn = self.plan.turn(call);
        self.turns[turn as usize].started.get_or_insert(now);
        self.first.get_or_insert(now);
    }

    /// The context that a call continues, and how it was fitted; nothing where that call was never
    /// dispatched.
    pub fn take_base(&mut self, base: u32) -> (Fit, Path) {
        let place = self.calls.get(base as usize).map_or(NOWHERE, |call| call.context);
        let Some(kept) = self.kept.get_mut(place as usize) else { return Default::default() };
        kept.left -= 1;
        if kept.left > 0 {
            return (kept.fit, kept.path.clone());
        }
        self.calls[base as usize].context = NOWHERE;
        self.free_kept.push(place);
        (kept.fit, std::mem::take(&mut kept.path))
    }

    /// Keeps the context of a call for those that continue it.
    pub fn keep(&mut self, call: u32, fit: Fit, path: &Path) {
        let left = self.plan.call(call).continued_by;
        if left == 0 {
            return;
        }
        let kept = KeptContext { fit, path: path.clone(), left };
        let place = self.free_kept.pop().unwrap_or(self.kept.len() as u32);
        match self.kept.get_mut(place as usize) {
            Some(free) => *free = kept,
            None => self.kept.push(kept),
        }
        self.calls[call as usize].context = place;
    }

    /// The client has the answer to a call.
    pub fn ended(&mut self, now: Time, call: u32, failed: bool) {
        self.calls[call as usize].ended = now;
        self.calls_left -= 1;
        let turn = self.plan.turn(call);
        let turn = &mut self.turns[turn as usize];
        turn.calls_left -= 1;
        turn.failed |= failed;
    }

    /// The record of the turn that `last` has ended, if it was its last call.
    pub fn turn_ended(&mut self, last: u32) -> Option<TurnRecord> {
        let position = self.plan.turn(last);
        let turn = self.turns[position as usize];
        if turn.calls_left > 0 {
            return None;
        }
        let started = turn.started.unwrap_or(self.started);
        let record = TurnRecord {
            play: self.number,
            session: self.session,
            turn: position,
            started,
            ended: self.calls[last as usize].ended().unwrap_or(started),
            tool: self.tool_time(last, started),
            failed: turn.failed,
        };
        self.turns_total += record.turn();
        self.turns_llm_total += record.turn_llm();
        Some(record)
    }

    /// The record of the session, which ends now.
    #[must_use]
    pub fn task_record(&self, now: Time) -> TaskRecord {
        TaskRecord {
            play: self.number,
            session: self.session,
            started: self.first.unwrap_or(self.started),
            ended: now,
            task: self.turns_total,
            task_llm: self.turns_llm_total,
            turns: self.turns.len() as u32,
            calls: self.plan.len() as u32,
            failed: self.turns.iter().any(|turn| turn.failed),
            alone: None,
        }
    }

    /// Client time on the critical path of the turn that `last` ended: back from it, always to
    /// what a call waited for longest, to the start of the turn.
    fn tool_time(&self, last: u32, turn_started: Time) -> Span {
        let plan = &*self.plan;
        let turn = plan.turn(last);
        let mut tool = Span::ZERO;
        let mut call = last;
        while let Some(dispatched) = self.calls[call as usize].dispatched() {
            let reached = plan.after(call).iter().filter_map(|after| {
                let waited_for = self.calls.get(after.call() as usize)?;
                let at = match after.event() {
                    AfterEvent::Finished => waited_for.ended(),
                    AfterEvent::Dispatched => waited_for.dispatched(),
                };
                at.map(|at| (at, after.call()))
            });
            let Some((at, before)) = reached.max() else {
                // It waited for nothing but the client's own time since the session started.
                tool += dispatched.saturating_since(self.started.max(turn_started));
                break;
            };
            tool += dispatched.saturating_since(at.max(turn_started));
            if plan.turn(before) != turn {
                break;
            }
            call = before;
        }
        tool
    }
}
