//! The replicas' side: calls are queued, engines take their steps, effects are recorded.

use super::content::{Content, OwnContent};
use super::observer::Observer;
use super::world::{Event, InFlight, Replica, Stage, World};
use crate::engine::Engine;
use crate::engine::request::{Effect, Level, Request, StepRun, StepSummary};
use crate::gateway::cooldown::Failure;
use crate::observe::records::{CallOutcome, CallRecord, Missed};
use crate::observe::replica::{ReplicaUse, StepUse};
use crate::trace::lineage::Path;
use crate::units::{Blocks, CallId, ReplicaId, RequestId, Span, Time, Tokens};

impl<E: Engine, O: Observer> World<'_, E, O> {
    pub(super) fn enter_queue(&mut self, now: Time, request: RequestId, attempt: u32) {
        let in_flight = &mut self.in_flight[request.index()];
        if in_flight.attempt != attempt || in_flight.stage != Stage::Sent {
            return;
        }
        let InFlight { record, play, path, kept, burst, stage, .. } = in_flight;
        if record.outcome == CallOutcome::Rejected {
            self.refuse_attempt(now, request, Failure::ContextWindow);
            return;
        }
        let replica = record.replica.expect("only routed calls are queued");
        let server = &mut self.replicas[replica.index()].server;
        if !server.admit(&self.setup.limits, record.prompt) {
            self.refuse(now, request);
            return;
        }
        *stage = Stage::Waiting;
        self.burst.queued(now, *burst);
        let session = &self.plays[*play as usize].plan;
        let (output, class) = (session.output(record.call), session.class(record.call));
        let handed_over = Request {
            id: request,
            path: path.clone(),
            prompt: record.prompt,
            output,
            finish: class.finish,
            priority: class.priority,
        };
        if self.is_alone {
            self.replicas[replica.index()].engine.warm(&handed_over.path, *kept);
        }
        self.replicas[replica.index()].engine.submit(now, handed_over);
        self.refresh(replica);
    }

    /// The API server is too busy: the client asks again later, or gives up.
    fn refuse(&mut self, now: Time, request: RequestId) {
        if self.gate.is_some() {
            self.refuse_attempt(now, request, Failure::Status(503));
            return;
        }
        let in_flight = &mut self.in_flight[request.index()];
        in_flight.stage = Stage::Client;
        in_flight.record.refusals += 1;
        let Some(wait) = self.patience(request) else {
            self.in_flight[request.index()].record.outcome = CallOutcome::Refused;
            self.push(now, Event::Ended { request });
            return;
        };
        self.leave_replica(now, request);
        if self.route(now, request) {
            // It is tokenised and checked anew.
            self.in_flight[request.index()].record.note_attempt(now + wait);
            self.enter_server(now + wait, request);
        } else {
            self.push(now + wait, Event::Send { request });
        }
    }

    pub(super) fn refresh(&mut self, replica: ReplicaId) {
        self.agenda.set(replica, self.replicas[replica.index()].engine.due());
    }

    pub(super) fn advance(&mut self, now: Time, replica: ReplicaId) {
        let mut effects = std::mem::take(&mut self.effects);
        let state = &mut self.replicas[replica.index()];
        state.engine.advance(now, &mut effects);
        match self.is_alone {
            true => state.engine.take_runs(|_, _| {}),
            false => state.count_runs(),
        }
        if let Some(stuck) = state.engine.stuck() {
            let record = &self.in_flight[stuck.head.index()].record;
            let replica = ReplicaId(self.first_replica + replica.0);
            self.stuck = Some(format!(
                "call {} of session {} (a prompt of {} tokens) on replica {replica} {stuck}",
                record.call, record.session, record.prompt
            ));
        }
        for &effect in &effects {
            self.apply(now, replica, effect);
        }
        effects.clear();
        self.effects = effects;
        self.refresh(replica);
    }

    fn apply(&mut self, now: Time, replica: ReplicaId, effect: Effect) {
        match effect {
            Effect::Admitted { request, cached, resumed } => {
                if !resumed {
                    self.first_admission(now, replica, request, cached);
                }
            }
            Effect::Preempted { request, lost } => {
                let record = &mut self.in_flight[request.index()].record;
                record.preemptions += 1;
                record.lost += lost;
            }
            Effect::FirstToken { request } => {
                let InFlight { record, sent, stage, ask, .. } =
                    &mut self.in_flight[request.index()];
                record.first_token = now;
                (*stage, *ask) = (Stage::Streaming, 0);
                let prompt = record.prompt;
                self.router.prefilled(replica, sent);
                self.replicas[replica.index()].server.first_token(prompt);
                if self.gate.is_some() {
                    self.tell_gateway(now, |gateway, _| {
                        gateway.first_token(now, CallId(request.0));
                    });
                }
            }
            Effect::Finished { request, output, prefilled } => {
                let InFlight { record, play, path, stage, attempt, .. } =
                    &mut self.in_flight[request.index()];
                let attempt = *attempt;
                *stage = Stage::Client;
                record.last_token = now;
                record.output = output;
                record.prefilled = prefilled;
                // The last token's KV is never computed.
                let computed = record.prompt + output - Tokens(1);
                // Behind a gateway the same call may be sent once more.
                let path = match self.gate {
                    Some(_) => path.clone(),
                    None => std::mem::take(path),
                };
                let own = &mut self.plays[*play as usize].own;
                self.content.compute(own, &path, computed);
                if !self.is_alone {
                    let process = self.replicas[replica.index()].process;
                    self.content.reach(own, &path, computed, process, true);
                }
                self.replicas[replica.index()].server.finished();
                let at = now + self.setup.api.after_last_token(output);
                self.push(
                    at,
                    match self.gate {
                        Some(_) => Event::Answered { request, attempt },
                        None => Event::Ended { request },
                    },
                );
            }
            Effect::StepStarted(_) if self.is_alone => {}
            Effect::StepStarted(step) => {
                self.replicas[replica.index()].usage.step(now, &step_use(&step));
            }
        }
    }

    fn first_admission(
        &mut self,
        now: Time,
        replica: ReplicaId,
        request: RequestId,
        cached: Tokens,
    ) {
        let InFlight { record, play, path, burst, stage, .. } =
            &mut self.in_flight[request.index()];
        record.scheduled = now;
        *stage = Stage::Scheduled;
        self.burst.scheduled(now, *burst, record.queue());
        let own = &mut self.plays[*play as usize].own;
        record.cached = cached;
        let block_size = self.setup.engine.block_size;
        let known = self.content.computed(own, path);
        self.content.asked(own, path, known, (record.play, record.call));
        record.ceiling = ceiling(record, known, block_size);
        self.content.compute(own, path, record.prompt);
        if self.is_alone {
            return;
        }
        // Behind a gateway it may be admitted once more, and find everything.
        record.missed = Missed::default();
        if cached < record.ceiling {
            let processes =
                Processes { of: &self.replicas, at: replica, gone: !self.gone.is_empty() };
            let has_cache = self.setup.engine.enable_prefix_caching;
            let blocks = has_cache.then_some(block_size);
            let until = record.ceiling;
            record.missed = processes.missed(&self.content, own, path, (cached, until), blocks);
        }
        let process = self.replicas[replica.index()].process;
        self.content.reach(own, path, record.prompt, process, false);
    }

    /// Tells of what engines have begun before the end of the run and not told yet.
    pub(super) fn settle(&mut self, until: Time) {
        self.replicas.iter_mut().for_each(|replica| replica.settle(until));
    }
}

/// What a cache that never evicts and serves the whole fleet would have held of a call's prompt, of
/// whose context so many leading tokens were computed before.
pub(super) fn ceiling(call: &CallRecord, computed: Tokens, block_size: u64) -> Tokens {
    let known = computed.min(call.prompt - Tokens(1));
    known.blocks_floor(block_size).tokens(block_size).max(call.cached)
}

/// The processes of a fleet at the admission of a call by one of them.
struct Processes<'a, E> {
    of: &'a [Replica<E>],
    at: ReplicaId,
    /// Whether any process has ended.
    gone: bool,
}

impl<E> Processes<'_, E> {
    /// Why so much of a prompt that the fleet had computed is not in the cache. `blocks` is the
    /// length of a block; none without a cache.
    fn missed(
        &self,
        content: &Content,
        own: &OwnContent,
        path: &Path,
        (cached, until): (Tokens, Tokens),
        blocks: Option<u64>,
    ) -> Missed {
        let (cached, until) = (cached.0 as u32, until.0 as u32);
        let Some(block_size) = blocks else {
            return Missed { uncached: until - cached, ..Missed::default() };
        };
        // Less than a block is in no cache.
        let whole = |upto: u32| upto - upto % block_size as u32;
        let at = cached;
        let here = content.reached(own, path, self.of[self.at.index()].process);
        let done = whole(here.done).clamp(at, until);
        let begun = whole(here.begun).clamp(done, until);
        let mut living = if self.gone { begun } else { until };
        for other in self.of {
            if living >= until {
                break;
            }
            let there = content.reached(own, path, other.process).begun;
            living = living.max(whole(there).min(until));
        }
        Missed {
            evicted: done - at,
            under_way: begun - done,
            elsewhere: living - begun,
            gone: until - living,
            uncached: 0,
        }
    }
}

impl<E: Engine> Replica<E> {
    /// Tells of what its engine has begun before this instant and not told yet.
    pub(super) fn settle(&mut self, until: Time) {
        self.engine.settle(until);
        self.count_runs();
    }

    fn count_runs(&mut self) {
        self.engine.take_runs(|run, levels| count_steps(&mut self.usage, run, levels));
    }
}

fn step_use(step: &StepSummary) -> StepUse {
    StepUse {
        span: step.span,
        decode_span: step.decode_span,
        prefill_tokens: step.prefill_tokens,
        decode_seqs: step.decode_seqs,
        used_blocks: step.used_blocks,
        running: step.running,
        waiting: step.waiting,
    }
}

fn count_steps(usage: &mut ReplicaUse, run: &StepRun, levels: &[Level]) {
    let span = run.span();
    let all = StepUse {
        span,
        decode_span: run.decode_span(span),
        prefill_tokens: Tokens(run.steps * run.prefill_tokens.0),
        decode_seqs: run.steps * run.decode_seqs,
        used_blocks: Blocks::ZERO,
        running: run.running,
        waiting: run.waiting,
    };
    let (mut walk, mut start) = (run.series.walk(run.steps), Span::ZERO);
    let spans = levels.iter().map(|level| {
        let end = walk.pass(level.steps);
        let span = end - start;
        start = end;
        (level.used_blocks, span)
    });
    let each = run.each(levels).map(|(at, step)| (at, step_use(&step)));
    usage.steps(run.at, &all, run.steps, spans, each);
}
