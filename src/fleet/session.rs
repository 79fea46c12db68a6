//! A session that is being played.
//!
//! Many are open at once, and most of what was known of a session is never asked for again, so a
//! place for a session holds a window: calls from the first one on that has not ended, or that one
//! waits for or continues that was not dispatched; turns from the first one on that has not ended.

use std::collections::VecDeque;
use std::sync::Arc;

use super::content::{CompactPath, OwnContent};
use super::overflow::Fit;
use super::population::Start;
use super::workload::SessionPlan;
use crate::observe::records::{TaskRecord, TurnRecord};
use crate::trace::lineage::Path;
use crate::trace::record::AfterEvent;
use crate::units::{ReplicaId, SegmentId, Span, Time, Tokens};

/// A session that is being played.
#[derive(Debug, Default)]
pub struct Play {
    /// What it is like.
    pub plan: Arc<SessionPlan>,
    /// Calls that have not ended; none where no session is being played.
    pub calls_left: u32,
    /// What is known of its calls.
    pub calls: Calls,
    /// The position of the first turn in the window.
    first_turn: u32,
    /// Whether a call of it failed.
    failed: bool,
    /// Whether calls are dispatched as recorded: then all of them stay in the window, since what
    /// they wait for may happen later.
    open_loop: bool,
    /// Turns in the window, up to the last one that has begun.
    pub turns: VecDeque<TurnState>,
    /// Its content.
    pub own: OwnContent,
    /// Contexts that are kept for calls that continue them.
    kept: Vec<KeptContext>,
    /// A place among them that is free.
    free_kept: Option<u32>,
    /// Its number among all that were played.
    pub number: u32,
    /// Which session of the trace.
    pub session: u32,
    /// The pass through the trace.
    pub pass: u32,
    /// Who plays it.
    pub player: u32,
    /// When it started.
    pub started: Time,
    /// Its first dispatch.
    first: Option<Time>,
    /// Prompt and output of the main agent's latest call.
    pub context: Tokens,
    /// Sums over its completed turns.
    turns_total: Span,
    /// The same less tool time.
    turns_llm_total: Span,
    /// Where its calls go, once one has gone somewhere.
    pub pin: Option<ReplicaId>,
    /// The same for the pools from the second on.
    other_pins: Box<[Option<ReplicaId>]>,
}

/// Calls in the window, up to the last one of which anything is known.
#[derive(Debug, Default)]
pub struct Calls {
    /// The number of the first one.
    first: u32,
    /// The turn of the last one, and of all others up to this number.
    turn: u32,
    turn_until: u32,
    states: VecDeque<CallState>,
}

/// A call of a session that is being played.
#[derive(Clone, Copy, Debug)]
pub struct CallState {
    /// When it was dispatched; [`Time::MAX`] before.
    dispatched: Time,
    /// When the client had its answer; [`Time::MAX`] before.
    ended: Time,
    /// Client time on the way to it that took longest, from the start of its turn.
    tool: Span,
    /// Calls that it still waits for.
    waits: u32,
    /// Calls that wait for it and were not dispatched yet.
    waited_for: u32,
    /// The position of its turn.
    turn: u32,
    /// Its place among [`Play::kept`], if its context is there.
    context: u32,
    /// The segment that is of no use once it has ended; [`NO_SEGMENT`] if there is none.
    last: SegmentId,
}

/// Nothing is kept.
const NOWHERE: u32 = u32::MAX;
const NO_SEGMENT: SegmentId = SegmentId(u32::MAX);

/// The context of a call for those that continue it.
#[derive(Clone, Debug)]
struct KeptContext {
    /// Prompt and recorded output.
    path: CompactPath,
    /// How it was fitted into the model's context, as far as that matters to others.
    shorter: u32,
    untouched: u32,
    shared: u32,
    /// Calls that continue it and were not dispatched yet; of a free place, the next one.
    left: u32,
}

impl Calls {
    /// What is known of a call, nothing so far if it was not asked for.
    fn state(&mut self, plan: &SessionPlan, call: u32) -> &mut CallState {
        let place = (call - self.first) as usize;
        while self.states.len() <= place {
            let number = self.first + self.states.len() as u32;
            if number >= self.turn_until {
                (self.turn, self.turn_until) = plan.turn_from(number);
            }
            self.states.push_back(CallState {
                dispatched: Time::MAX,
                ended: Time::MAX,
                tool: Span::ZERO,
                waits: plan.after(number).len() as u32,
                waited_for: plan.then(number).len() as u32,
                turn: self.turn,
                context: NOWHERE,
                last: NO_SEGMENT,
            });
        }
        &mut self.states[place]
    }

    /// One that was asked for before.
    fn known(&mut self, call: u32) -> &mut CallState {
        &mut self.states[(call - self.first) as usize]
    }

    fn get_mut(&mut self, call: u32) -> Option<&mut CallState> {
        self.states.get_mut(call.checked_sub(self.first)? as usize)
    }

    /// One of those that a call waits for has done so; whether it was the last one.
    pub fn stops_waiting(&mut self, plan: &SessionPlan, call: u32) -> bool {
        let state = self.state(plan, call);
        state.waits -= 1;
        state.waits == 0
    }

    /// Calls that were dispatched and have not ended.
    #[must_use]
    pub fn under_way(&self) -> usize {
        let is_under_way =
            |call: &&CallState| call.dispatched != Time::MAX && call.ended == Time::MAX;
        self.states.iter().filter(is_under_way).count()
    }

    /// Nobody asks any more for the first ones that are over.
    fn forget(&mut self) {
        while self.states.front().is_some_and(CallState::is_over) {
            self.states.pop_front();
            self.first += 1;
        }
    }

    /// The session is over.
    fn end(&mut self) {
        (self.first, self.turn_until) = (0, 0);
        self.states.clear();
        if self.states.capacity() > ROOM_KEPT {
            self.states = VecDeque::new();
        }
    }
}

impl CallState {
    fn dispatched(&self) -> Option<Time> {
        (self.dispatched != Time::MAX).then_some(self.dispatched)
    }

    /// Whether nobody asks for it any more.
    fn is_over(&self) -> bool {
        self.ended != Time::MAX && self.waited_for == 0 && self.context == NOWHERE
    }

    /// When this happened to it; [`Time::MAX`] before.
    const fn at(&self, event: AfterEvent) -> Time {
        match event {
            AfterEvent::Finished => self.ended,
            AfterEvent::Dispatched => self.dispatched,
        }
    }
}

/// A turn of a session that is being played.
#[derive(Clone, Copy, Debug)]
pub struct TurnState {
    /// When its first call was dispatched; [`Time::MAX`] before.
    started: Time,
    /// Calls that have not ended.
    calls_left: u32,
    /// Whether a call of it failed.
    failed: bool,
}

impl TurnState {
    /// Whether it has begun and not ended.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.started != Time::MAX && self.calls_left > 0
    }
}

/// Room for so many calls, turns and contexts stays with a place for a session when another takes
/// it over.
const ROOM_KEPT: usize = 8;

impl Play {
    /// Begins a session in this place.
    pub fn begin(
        &mut self,
        plan: Arc<SessionPlan>,
        number: u32,
        start: Start,
        now: Time,
        open_loop: bool,
    ) {
        (self.first_turn, self.failed) = (0, false);
        self.open_loop = open_loop;
        (self.number, self.session, self.pass) = (number, start.session, start.pass);
        (self.player, self.started, self.first, self.pin) = (start.player, now, None, start.pin);
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
            let mut pins = std::mem::take(&mut self.other_pins).into_vec();
            pins.resize(other + 1, None);
            self.other_pins = pins.into();
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
        self.calls.end();
        self.turns.clear();
        self.kept.clear();
        self.free_kept = None;
        self.other_pins.fill(None);
        if self.turns.capacity() > ROOM_KEPT {
            self.turns = VecDeque::new();
        }
        if self.kept.capacity() > ROOM_KEPT {
            self.kept = Vec::new();
        }
        self.own.end();
    }

    /// What is known of a turn that has not ended.
    fn turn(&mut self, turn: u32) -> &mut TurnState {
        let place = (turn - self.first_turn) as usize;
        while self.turns.len() <= place {
            let turn = self.first_turn + self.turns.len() as u32;
            let calls_left = self.plan.turn_calls(turn);
            self.turns.push_back(TurnState { started: Time::MAX, calls_left, failed: false });
        }
        &mut self.turns[place]
    }

    /// A call is dispatched.
    pub fn dispatched(&mut self, now: Time, call: u32) {
        let state = self.calls.state(&self.plan, call);
        state.dispatched = now;
        let position = state.turn;
        let turn = self.turn(position);
        turn.started = turn.started.min(now);
        let turn_started = turn.started;
        self.first.get_or_insert(now);
        if self.open_loop {
            return;
        }
        // All that it waited for has happened.
        let mut longest: Option<(Time, u32)> = None;
        for after in self.plan.after(call).iter() {
            let waited_for = self.calls.known(after.call());
            waited_for.waited_for -= 1;
            longest = longest.max(Some((waited_for.at(after.event()), after.call())));
        }
        let tool = match longest {
            Some((at, before)) => {
                let before = self.calls.known(before);
                let earlier = if before.turn == position { before.tool } else { Span::ZERO };
                earlier + now.saturating_since(at.max(turn_started))
            }
            // It waited for nothing but the client's own time since the session started.
            None => now.saturating_since(self.started.max(turn_started)),
        };
        self.calls.known(call).tool = tool;
    }

    /// The context that a call continues, and how it was fitted; nothing where that call was never
    /// dispatched.
    pub fn take_base(&mut self, base: u32) -> (Fit, Path) {
        let Some(state) = self.calls.get_mut(base) else { return Default::default() };
        let Some(kept) = self.kept.get_mut(state.context as usize) else {
            return Default::default();
        };
        let fit = Fit {
            shorter: Tokens(kept.shorter.into()),
            untouched: Tokens(kept.untouched.into()),
            shared: Tokens(kept.shared.into()),
            ..Fit::default()
        };
        let path = kept.path.whole();
        kept.left -= 1;
        if kept.left == 0 {
            kept.path = CompactPath::default();
            kept.left = self.free_kept.unwrap_or(NOWHERE);
            self.free_kept = Some(state.context);
            state.context = NOWHERE;
        }
        (fit, path)
    }

    /// Keeps the context of a call for those that continue it. `last` is a segment in it that none
    /// of them needs, if there is one.
    pub fn keep(&mut self, call: u32, fit: &Fit, path: &Path, left: u32, last: Option<SegmentId>) {
        let state = self.calls.known(call);
        state.last = last.unwrap_or(NO_SEGMENT);
        if left == 0 {
            return;
        }
        let small = |tokens: Tokens| tokens.0 as u32;
        let kept = KeptContext {
            path: CompactPath::of(path),
            shorter: small(fit.shorter),
            untouched: small(fit.untouched),
            shared: small(fit.shared),
            left,
        };
        state.context = match self.free_kept {
            Some(free) => {
                let next = std::mem::replace(&mut self.kept[free as usize], kept).left;
                self.free_kept = (next != NOWHERE).then_some(next);
                free
            }
            None => {
                if self.kept.len() == self.kept.capacity() {
                    self.kept.reserve_exact(self.kept.len().max(1));
                }
                self.kept.push(kept);
                self.kept.len() as u32 - 1
            }
        };
    }

    /// The client has the answer to a call.
    pub fn ended(&mut self, now: Time, call: u32, failed: bool) {
        let state = self.calls.known(call);
        state.ended = now;
        let (turn, last) = (state.turn, state.last);
        if last != NO_SEGMENT {
            self.own.forget(last, || self.plan.class(call).model);
        }
        self.calls_left -= 1;
        self.failed |= failed;
        let turn = self.turn(turn);
        turn.calls_left -= 1;
        turn.failed |= failed;
    }

    /// The record of the turn that `last` has ended, if it was its last call.
    pub fn turn_ended(&mut self, last: u32) -> Option<TurnRecord> {
        let state = *self.calls.known(last);
        let turn = *self.turn(state.turn);
        let record = (turn.calls_left == 0).then(|| TurnRecord {
            play: self.number,
            session: self.session,
            turn: state.turn,
            started: turn.started,
            ended: state.ended,
            tool: if self.open_loop { self.tool_time(last, turn.started) } else { state.tool },
            failed: turn.failed,
        });
        if let Some(record) = &record {
            self.turns_total += record.turn();
            self.turns_llm_total += record.turn_llm();
            while self.turns.front().is_some_and(|turn| turn.calls_left == 0) {
                self.turns.pop_front();
                self.first_turn += 1;
            }
        }
        if !self.open_loop {
            self.calls.forget();
        }
        record
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
            turns: self.plan.turns,
            calls: self.plan.len() as u32,
            failed: self.failed,
            alone: None,
        }
    }

    /// Client time on the critical path of the turn that `last` ended: back from it, always to
    /// what a call waited for longest, to the start of the turn. All calls are known.
    fn tool_time(&self, last: u32, turn_started: Time) -> Span {
        let plan = &*self.plan;
        let turn = plan.turn(last);
        let mut tool = Span::ZERO;
        let mut call = last;
        let states = &self.calls.states;
        while let Some(dispatched) = states[call as usize].dispatched() {
            let reached = plan.after(call).iter().filter_map(|after| {
                let at = states.get(after.call() as usize)?.at(after.event());
                (at != Time::MAX).then_some((at, after.call()))
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
