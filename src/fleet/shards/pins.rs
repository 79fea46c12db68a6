//! Where sessions go that stay where their first call went, found out ahead of them.
//!
//! Replicas are drawn in the order in which the first calls of sessions are routed. Up to then a
//! session has to do with no replica: its calls had failed when recorded or do not fit into the
//! context, and what follows them follows from the trace alone. So that order needs no replica to
//! be simulated, only the clients of the few sessions that do not begin with a call for one.
//!
//! Sessions are handed over in the order of their starts. Behind one of those few all others wait
//! that start before it is settled: as many are held as start in that time.

use crate::config::scenario::OnOverflow;
use crate::fleet::Setup;
use crate::fleet::arrivals::{Arrivals, Failure, Next, Sessions};
use crate::fleet::content::OWN_SEGMENTS_MAX;
use crate::fleet::overflow::{self, Fit, Verdict};
use crate::fleet::workload::{BasePlan, SessionPlan};
use crate::queue::EventQueue;
use crate::rng::{Purpose, Stream};
use crate::units::{ReplicaId, Time, Tokens};

/// The first batch has so many calls, each other twice as many as the one before: a run that is
/// stopped early has come somewhere.
const FIRST_BATCH: usize = 1 << 10;

/// Sessions that start before an instant, in their order.
#[derive(Debug, Default)]
pub(super) struct Batch {
    /// They have their numbers, and replicas of the whole fleet.
    pub(super) sessions: Vec<Next>,
    /// Every session that starts before is in this batch or one before it.
    pub(super) before: Time,
}

/// Settles where sessions go.
pub(super) struct Pins<'a> {
    /// Where they come from, and what is known of them.
    pub(super) arrivals: Arrivals<'a>,
    rule: OnOverflow,
    max_model_len: Tokens,
    open_loop: bool,
    until: Time,
    /// Calls of the next batch, and most calls of one.
    batch_calls: (usize, usize),
    replicas: u64,
    chance: Stream,
    queue: EventQueue<Event>,
    /// Sessions that are not handed over, in the order of their starts.
    waiting: std::collections::VecDeque<Waiting>,
    /// The number of the first of them.
    first: u32,
    /// The session that comes next.
    next: Option<Next>,
    segments: u32,
    /// The start of the last session that was read.
    last: Time,
    /// All were read that are wanted.
    is_over: bool,
}

#[derive(Debug)]
struct Waiting {
    next: Next,
    is_settled: bool,
    /// What its clients do until a call is routed; none where its first one is.
    client: Option<Box<Client>>,
}

/// The clients of a session of which no call was routed yet.
#[derive(Debug)]
struct Client {
    waits: Vec<u32>,
    /// How each call that was dispatched fits into the context.
    fits: Vec<Option<Fit>>,
    /// Calls that have not ended.
    left: usize,
}

#[derive(Clone, Copy, Debug)]
enum Event {
    /// The first call of a session is routed.
    Routed {
        session: u32,
    },
    Dispatch {
        session: u32,
        call: u32,
    },
    /// A call that no replica has to do with is over.
    Ended {
        session: u32,
        call: u32,
    },
}

impl<'a> Pins<'a> {
    pub(super) fn new(
        setup: &Setup,
        sessions: Sessions<'a>,
        until: Time,
        batch_calls: usize,
    ) -> Self {
        let mut arrivals = Arrivals::new(sessions, true, setup.open_loop);
        let next = arrivals.next();
        Self {
            next,
            arrivals,
            rule: setup.on_overflow,
            max_model_len: setup.engine.max_model_len,
            open_loop: setup.open_loop,
            until,
            batch_calls: (batch_calls.min(FIRST_BATCH), batch_calls),
            replicas: setup.replicas.into(),
            chance: Stream::new(setup.seed, Purpose::Router, 0),
            queue: EventQueue::default(),
            waiting: std::collections::VecDeque::new(),
            first: 0,
            segments: 0,
            last: Time::ZERO,
            is_over: false,
        }
    }

    /// Whether all sessions were handed over.
    pub(super) fn is_over(&self) -> bool {
        self.is_over && self.waiting.is_empty()
    }

    /// The sessions that come next.
    pub(super) fn batch(&mut self) -> Batch {
        let mut calls = 0;
        let mut sessions = Vec::new();
        let (wanted, most) = self.batch_calls;
        self.batch_calls.0 = (2 * wanted).min(most);
        while calls < wanted && !self.is_over {
            self.read();
            self.hand_over(&mut sessions, &mut calls);
        }
        let next = self.waiting.front().map(|waiting| &waiting.next).or(self.next.as_ref());
        let none = match self.arrivals.failure {
            Some(_) => self.last,
            None => Time::MAX,
        };
        Batch { sessions, before: next.map_or(none, |next| next.at) }
    }

    fn hand_over(&mut self, sessions: &mut Vec<Next>, calls: &mut usize) {
        while self.waiting.front().is_some_and(|waiting| waiting.is_settled) {
            let Some(Waiting { next, .. }) = self.waiting.pop_front() else { break };
            *calls += next.plan.len();
            sessions.push(next);
            self.first += 1;
        }
    }

    /// Takes the next session in, and what its clients and others do before one more comes.
    fn read(&mut self) {
        let Some(next) = self.next.take().filter(|next| next.at < self.until) else {
            self.end();
            return;
        };
        let segments = self.segments.checked_add(next.plan.segments);
        let Some(segments) = segments.filter(|all| *all <= OWN_SEGMENTS_MAX) else {
            self.arrivals.failure = Some(Failure::TooMuchContent);
            self.end();
            return;
        };
        (self.segments, self.last) = (segments, next.at);
        self.next = self.arrivals.next();
        self.take_in(next);
        let upto = self.next.as_ref().map_or(self.until, |next| next.at.min(self.until));
        self.play(upto);
        if self.next.is_none() {
            self.end();
        }
    }

    /// No more sessions come.
    fn end(&mut self) {
        self.is_over = true;
        self.next = None;
        self.play(self.until);
        // No call of these is ever routed.
        self.waiting.iter_mut().for_each(|waiting| waiting.is_settled = true);
    }

    fn take_in(&mut self, mut next: Next) {
        let session = self.first + self.waiting.len() as u32;
        next.number = Some(session);
        let plan = &next.plan;
        let dispatched = |wait| Time::ZERO + plan.at + wait;
        let first = plan.starts(self.open_loop).find(|(_, wait)| dispatched(*wait) == next.at);
        let routed = first.is_some_and(|(call, _)| {
            !plan.class(call).failed && self.fit(plan, call, None).verdict != Verdict::Rejected
        });
        if routed {
            self.queue.push(next.at, Event::Routed { session });
            self.waiting.push_back(Waiting { next, is_settled: false, client: None });
            return;
        }
        for (call, wait) in plan.starts(self.open_loop) {
            self.queue.push(dispatched(wait), Event::Dispatch { session, call });
        }
        let waits = (0..plan.len() as u32).map(|call| plan.after(call).len() as u32);
        let waits = waits.collect();
        let left = plan.len();
        let client = Some(Box::new(Client { waits, fits: vec![None; left], left }));
        self.waiting.push_back(Waiting { next, is_settled: false, client });
    }

    /// Lets happen what happens before an instant; sessions that start in it come first.
    fn play(&mut self, upto: Time) {
        while let Some(now) = self.queue.next_at().filter(|at| *at < upto) {
            let Some((_, event)) = self.queue.pop() else { break };
            let (Event::Routed { session }
            | Event::Dispatch { session, .. }
            | Event::Ended { session, .. }) = event;
            let Some(place) = session.checked_sub(self.first).map(|place| place as usize) else {
                continue;
            };
            if self.waiting.get(place).is_none_or(|waiting| waiting.is_settled) {
                continue;
            }
            match event {
                Event::Routed { .. } => self.settle(place),
                Event::Dispatch { call, .. } => self.dispatch(now, place, session, call),
                Event::Ended { call, .. } => self.ended(now, place, session, call),
            }
        }
    }

    fn settle(&mut self, place: usize) {
        let replica = self.chance.uniform_below(self.replicas) as u32;
        let waiting = &mut self.waiting[place];
        waiting.next.pin = Some(ReplicaId(replica));
        waiting.is_settled = true;
        waiting.client = None;
    }

    fn dispatch(&mut self, now: Time, place: usize, session: u32, call: u32) {
        self.satisfy(now, place, session, call, true);
        let waiting = &self.waiting[place];
        let plan = &waiting.next.plan;
        let fit = self.fit(plan, call, waiting.client.as_deref());
        if plan.class(call).failed {
            let at = now + plan.failed_after(call).unwrap_or_default();
            self.queue.push(at, Event::Ended { session, call });
        } else if fit.verdict == Verdict::Rejected {
            self.queue.push(now, Event::Ended { session, call });
        } else {
            self.settle(place);
        }
        if let Some(client) = &mut self.waiting[place].client {
            client.fits[call as usize] = Some(fit);
        }
    }

    fn ended(&mut self, now: Time, place: usize, session: u32, call: u32) {
        self.satisfy(now, place, session, call, false);
        let waiting = &mut self.waiting[place];
        if let Some(client) = &mut waiting.client {
            client.left -= 1;
            // None of its calls was ever routed.
            waiting.is_settled |= client.left == 0;
        }
    }

    /// As the world fits it, see there.
    fn fit(&self, plan: &SessionPlan, call: u32, client: Option<&Client>) -> Fit {
        let of = &plan.call(call);
        let base = match of.base() {
            BasePlan::None => Fit::default(),
            BasePlan::Call(base) => {
                client.and_then(|client| client.fits[base as usize]).unwrap_or_default()
            }
            BasePlan::Context(_) => Fit::of_context(of),
        };
        overflow::fit_call(of, &base, self.rule, self.max_model_len)
    }

    fn satisfy(&mut self, now: Time, place: usize, session: u32, call: u32, on_dispatch: bool) {
        let Waiting { next, client, .. } = &mut self.waiting[place];
        let Some(client) = client.as_mut().filter(|_| !self.open_loop) else { return };
        for then in next.plan.then(call).iter().filter(|then| then.on_dispatch() == on_dispatch) {
            let call = then.call();
            let waits = &mut client.waits[call as usize];
            *waits -= 1;
            if *waits == 0 {
                let at = now + next.plan.gap(call);
                self.queue.push(at, Event::Dispatch { session, call });
            }
        }
    }
}
