//! From an attempt to the end of the call: tokens, answers, failures, other tries.

use super::cache::Key;
use super::call::{CallRef, Phase, Step};
use super::cooldown::{Failure, Minute, is_left_alone};
use super::effect::{Effect, Reason, Usage};
use super::routing::{self, Sample};
use super::{Gateway, Timer, retry};
use crate::config::gateway::clients::TokenPrice;
use crate::units::{CallId, DeploymentId, Span, Time, Tokens, WorkerId};

impl Gateway {
    /// The first token of a stream has come: from here on the stream is alive, until
    /// [`Self::stalled`] says otherwise.
    pub fn first_token(&mut self, now: Time, id: CallId) {
        let Some(call) = self.numbered(id) else { return };
        if let Some(found) = self.call(call)
            && found.spec.streams
        {
            found.first_token = Some(now);
            self.cancel_timer(call);
        }
    }

    /// A stream that had begun gives no more tokens, without ending: it is given up when it has
    /// been silent for `request_timeout`.
    pub fn stalled(&mut self, now: Time, id: CallId) {
        let Some(call) = self.numbered(id) else { return };
        let at = now + self.config.request_timeout;
        self.set_timer(call, at, Timer::Silence(call));
    }

    /// A replica has answered in full. The call must be one that was sent and not ended since.
    pub fn upstream_ended(
        &mut self,
        now: Time,
        id: CallId,
        usage: Usage,
        effects: &mut Vec<Effect>,
    ) {
        let Some(call) = self.numbered(id) else { return };
        let Some(found) = self.call(call) else { return };
        let Phase::Sent(deployment) = found.phase else { return };
        let (worker, spec) = (found.worker, found.spec);
        let sample = match found.first_token {
            Some(first) if spec.streams => first.saturating_since(found.sent).secs(),
            _ => now.saturating_since(found.sent).secs() / usage.output.0.max(1) as f64,
        };
        let tokens = usage.prompt + usage.output;
        self.attempt_over(now, call, deployment, Sample::Seconds(sample), tokens);
        self.worker(worker).memory.count_end(now, deployment, Some(tokens));
        self.settle_limits(call, tokens);
        self.bill(now, worker, usage.nano_cost, effects);
        self.metrics.counts.answered += 1;
        let is_gone = self.call(call).is_some_and(|call| call.is_gone);
        effects.push(match is_gone {
            true => Effect::Forgotten { call: id },
            false => Effect::Answered { call: id },
        });
        self.close(now, call, effects);
    }

    /// What a token of the attempt that is under way is billed with, if its deployment says.
    #[must_use]
    pub fn price_of(&self, id: CallId) -> Option<TokenPrice> {
        match self.calls.get(id.index())?.as_ref()?.phase {
            Phase::Sent(deployment) => self.config.deployments[deployment.index()].token_price,
            Phase::Queued | Phase::Working | Phase::Pausing => None,
        }
    }

    /// An attempt is over for the strategy, however it ended.
    fn attempt_over(
        &mut self,
        now: Time,
        call: CallRef,
        deployment: DeploymentId,
        sample: Sample,
        tokens: Tokens,
    ) {
        self.cancel_timer(call);
        let Some(found) = self.call(call) else { return };
        let (worker, group) = (found.worker, found.group);
        found.phase = Phase::Working;
        let strategy = self.config.routing.strategy;
        let memory = self.memory(now, worker);
        routing::ended(strategy, memory, now, group, deployment, sample, tokens);
    }

    /// The gateway hangs up on the replica of a call.
    pub(super) fn hang_up(
        &mut self,
        now: Time,
        call: CallRef,
        deployment: DeploymentId,
        sample: Sample,
        effects: &mut Vec<Effect>,
    ) {
        self.attempt_over(now, call, deployment, sample, Tokens::ZERO);
        let replica = self.config.deployments[deployment.index()].replica;
        effects.push(Effect::Abandon { call: call.id, replica });
    }

    /// An attempt has given no sign of life for too long.
    pub(super) fn silence(&mut self, now: Time, call: CallRef, effects: &mut Vec<Effect>) {
        let Some(Phase::Sent(deployment)) = self.call(call).map(|call| call.phase) else { return };
        self.metrics.counts.timeouts += 1;
        self.hang_up(now, call, deployment, Sample::Timeout, effects);
        self.count_failure(now, call, deployment, Failure::Timeout, None);
        self.after_failure(now, call, Failure::Timeout, None, effects);
    }

    /// An attempt failed, or could not be made.
    pub(super) fn attempt_failed(
        &mut self,
        now: Time,
        call: CallRef,
        failure: Failure,
        retry_after: Option<Span>,
        effects: &mut Vec<Effect>,
    ) {
        let Some(found) = self.call(call) else { return };
        if let Phase::Sent(deployment) = found.phase {
            let sample = match failure {
                Failure::Timeout => Sample::Timeout,
                _ => Sample::None,
            };
            self.attempt_over(now, call, deployment, sample, Tokens::ZERO);
            self.count_failure(now, call, deployment, failure, retry_after);
        }
        self.after_failure(now, call, failure, retry_after, effects);
    }

    /// A failure counts against a deployment, which may be left alone for it.
    fn count_failure(
        &mut self,
        now: Time,
        call: CallRef,
        deployment: DeploymentId,
        failure: Failure,
        retry_after: Option<Span>,
    ) {
        let Some(found) = self.call(call) else { return };
        let (id, group) = (found.worker, found.group);
        let rule = self.config.routing.cooldown;
        let is_alone = self.listed[group as usize].len() == 1;
        let worker = self.worker(id);
        worker.memory.count_end(now, deployment, None);
        let (recent, until) = &mut worker.recent_fails[deployment.index()];
        if *until <= now {
            (*recent, *until) = (0, now + rule.time);
        }
        *recent += 1;
        let recent = *recent;
        let count = |key| worker.memory.cache.get(now, key).unwrap_or(0).max(0) as u64;
        let minute = Minute {
            successes: count(Key::Successes(deployment)),
            fails: count(Key::Fails(deployment)),
        };
        if is_left_alone(&rule, failure, minute, recent, is_alone) {
            let time = retry_after.unwrap_or(rule.time);
            worker.memory.cache.renew(now, Key::Cooldown(deployment), 1, time);
            if self.shares(id, now) {
                self.shared.cache.renew(now, Key::Cooldown(deployment), 1, time);
            }
            self.metrics.counts.cooldowns += 1;
        }
    }

    /// Another try in the group, another group, or the end.
    fn after_failure(
        &mut self,
        now: Time,
        call: CallRef,
        failure: Failure,
        retry_after: Option<Span>,
        effects: &mut Vec<Effect>,
    ) {
        let Some(found) = self.call(call) else { return };
        if found.is_gone {
            self.forget(now, call, effects);
            return;
        }
        let (worker, group, done) = (found.worker, found.group, found.failed_tries);
        // What a client has read of a stream cannot be taken back.
        let has_begun = found.first_token.is_some();
        let others = self.listed[group as usize].len() > 1;
        let healthy = !self.healthy(now, worker, group).is_empty();
        let fallback = self.next_fallback(call, failure);
        let is_worth_it = failure.is_retryable() || (failure.status() == 401 && others);
        let waits_in_vain = failure.status() == 429 && !healthy && fallback.is_some();
        let tries = retry::tries(&self.config.retries, failure);
        if is_worth_it && !waits_in_vain && !has_begun && done < tries {
            self.try_again(now, call, worker, others && healthy, retry_after);
        } else if let Some(next) = fallback.filter(|_| !has_begun) {
            self.fall_back(now, call, failure, next, effects);
        } else {
            self.metrics.counts.failed += 1;
            self.bill(now, worker, 0, effects);
            let reason = Reason::Upstream(failure);
            self.refuse(now, call, failure.status(), retry_after, reason, effects);
        }
    }

    fn try_again(
        &mut self,
        now: Time,
        call: CallRef,
        worker: WorkerId,
        another_is_healthy: bool,
        retry_after: Option<Span>,
    ) {
        let Some(found) = self.call(call) else { return };
        let done = found.failed_tries;
        found.failed_tries += 1;
        found.phase = Phase::Pausing;
        self.metrics.counts.retried += 1;
        let chance = &mut self.workers[worker.index()].retry_chance;
        let wait = retry::wait(&self.config.retries, done, another_is_healthy, retry_after, chance);
        self.set_timer(call, now + wait, Timer::Step(call, Step::Route));
    }

    /// The group to try next after a failure, and its place in the list that it is from.
    fn next_fallback(&self, call: CallRef, failure: Failure) -> Option<(u32, usize)> {
        let found = self.calls[call.id.index()].as_ref()?;
        if found.fallbacks >= self.config.retries.max_fallbacks {
            return None;
        }
        let group = &self.config.groups[found.spec.group as usize];
        let (first_failure, at) = match found.fallback_at {
            Some((first, at)) => (first, at + 1),
            None => (failure, 0),
        };
        let own =
            first_failure == Failure::ContextWindow && !group.context_window_fallbacks.is_empty();
        let list = if own { &group.context_window_fallbacks } else { &group.fallbacks };
        list.get(at).map(|next| (*next, at))
    }

    fn fall_back(
        &mut self,
        now: Time,
        call: CallRef,
        failure: Failure,
        (group, at): (u32, usize),
        effects: &mut Vec<Effect>,
    ) {
        let Some(found) = self.call(call) else { return };
        let first = found.fallback_at.map_or(failure, |(first, _)| first);
        found.fallback_at = Some((first, at));
        found.group = group;
        found.failed_tries = 0;
        found.fallbacks += 1;
        self.metrics.counts.fallbacks += 1;
        self.step(now, call, Step::Route, effects);
    }

    /// A call that has a slot, or waits for one, ends with an error.
    pub(super) fn refuse(
        &mut self,
        now: Time,
        call: CallRef,
        status: u16,
        retry_after: Option<Span>,
        reason: Reason,
        effects: &mut Vec<Effect>,
    ) {
        let Some(found) = self.call(call) else { return };
        effects.push(match found.is_gone {
            true => Effect::Forgotten { call: call.id },
            false => Effect::Refused { call: call.id, status, retry_after, reason },
        });
        self.close(now, call, effects);
    }

    /// Nothing is left of a call whose client is gone.
    pub(super) fn forget(&mut self, now: Time, call: CallRef, effects: &mut Vec<Effect>) {
        if self.call(call).is_some() {
            self.metrics.counts.forgotten += 1;
            effects.push(Effect::Forgotten { call: call.id });
            self.close(now, call, effects);
        }
    }

    /// A call is over: its slot goes to the next.
    fn close(&mut self, now: Time, call: CallRef, effects: &mut Vec<Effect>) {
        self.cancel_timer(call);
        self.settle_limits(call, Tokens::ZERO);
        let Some(found) = self.calls[call.id.index()].take() else { return };
        let worker = self.worker(found.worker);
        if found.phase == Phase::Queued {
            worker.slots.leave_queue(call.id);
        } else if let Some(next) = worker.slots.release()
            && let Some(next) = self.numbered(next)
        {
            self.admitted(now, next);
        }
        self.stop_if_drained(self.workers[found.worker.index()].pod, effects);
    }
}
