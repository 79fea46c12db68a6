//! Sessions that start as recorded, one after the other.
//!
//! They come in the order of their first dispatch, which is that of the trace. A held trace whose
//! recorded times and gaps do not agree is put in that order; in one that is read while it is
//! played that is found out too late, and the run ends with [`Failure::Unsorted`].

use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::Arc;

use super::pools::HomelessCall;
use super::workload::{Arrival, Contexts, Counts, Names, SessionPlan, Workload};
use crate::diag::{Error, Result};
use crate::units::{ReplicaId, Time};

/// Sessions that are made ready one by one.
pub type Stream<'a> = Box<dyn Iterator<Item = Result<Arrival>> + Send + 'a>;

/// Where sessions come from.
pub enum Sessions<'a> {
    /// All of them are there.
    Held(&'a Workload),
    /// They come one by one and are forgotten when they are over. Only recorded starts can be
    /// played from them.
    Stream(Stream<'a>),
    /// None so far.
    None,
}

/// Why sessions stopped coming.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// A session was to start before another that had started: the recorded times do not agree
    /// with the gaps. The whole trace must be held to play it.
    Unsorted,
    /// The trace could not be read on.
    Input(Error),
    /// A call is of no pool.
    NoPool(HomelessCall),
    /// There is more content than can be told apart.
    TooMuchContent,
}

/// A session that starts next.
#[derive(Clone, Debug)]
pub(super) struct Next {
    /// When its first call is dispatched.
    pub(super) at: Time,
    /// Its number in the trace.
    pub(super) session: u32,
    pub(super) plan: Arc<SessionPlan>,
    /// Its number among all that are played, where others are played elsewhere.
    pub(super) number: Option<u32>,
    /// Where its calls go, where that is settled.
    pub(super) pin: Option<ReplicaId>,
}

impl Next {
    fn new(at: Time, session: u32, plan: Arc<SessionPlan>) -> Self {
        Self { at, session, plan, number: None, pin: None }
    }

    /// The only session there is.
    pub(super) fn alone(plan: Arc<SessionPlan>) -> Self {
        Self::new(Time::ZERO, 0, plan)
    }
}

/// What is known of the sessions of a run.
pub(super) struct Arrivals<'a> {
    source: Source<'a>,
    open_loop: bool,
    pub(super) contexts: Contexts,
    pub(super) names: Cow<'a, Names>,
    pub(super) counts: Counts,
    last: Time,
    pub(super) failure: Option<Failure>,
}

enum Source<'a> {
    /// Sessions in the order of their first dispatch, the last one first.
    Held(Vec<(Time, u32)>, &'a [Arc<SessionPlan>]),
    Stream(Stream<'a>),
    /// What another has handed over.
    Given(VecDeque<Next>),
    None,
}

impl<'a> Arrivals<'a> {
    /// `recorded` says whether sessions start as recorded.
    pub(super) fn new(sessions: Sessions<'a>, recorded: bool, open_loop: bool) -> Self {
        let (source, contexts, names, counts) = match sessions {
            Sessions::Held(workload) => {
                let plans = workload.sessions.iter().zip(0..).filter(|_| recorded);
                let starts =
                    plans.map(|(plan, session)| (first_dispatch(plan, open_loop), session));
                let mut order: Vec<(Time, u32)> = starts.collect();
                order.sort_unstable();
                order.reverse();
                let source = Source::Held(order, &workload.sessions);
                let names = Cow::Borrowed(&workload.names);
                (source, workload.contexts.clone(), names, workload.counts)
            }
            Sessions::Stream(stream) => {
                (Source::Stream(stream), Contexts::default(), Cow::default(), Counts::default())
            }
            Sessions::None => {
                (Source::None, Contexts::default(), Cow::default(), Counts::default())
            }
        };
        Self { source, open_loop, contexts, names, counts, last: Time::ZERO, failure: None }
    }

    /// None yet; they are handed over by [`Self::give`].
    pub(super) fn given() -> Self {
        Self {
            source: Source::Given(VecDeque::new()),
            open_loop: false,
            contexts: Contexts::default(),
            names: Cow::default(),
            counts: Counts::default(),
            last: Time::ZERO,
            failure: None,
        }
    }

    /// Hands sessions over, in their order, and the contexts that there are by now.
    pub(super) fn give(&mut self, sessions: Vec<Next>, contexts: &Contexts) {
        if let Source::Given(given) = &mut self.source {
            given.extend(sessions);
        }
        self.contexts.catch_up(contexts);
    }

    /// The session that starts next.
    pub(super) fn next(&mut self) -> Option<Next> {
        match &mut self.source {
            Source::None => None,
            Source::Given(given) => given.pop_front(),
            Source::Held(order, plans) => {
                let (at, session) = order.pop()?;
                Some(Next::new(at, session, Arc::clone(&plans[session as usize])))
            }
            Source::Stream(stream) => match stream.next()? {
                Ok(arrival) => self.arrived(arrival),
                Err(error) => {
                    self.failure = Some(Failure::Input(error));
                    None
                }
            },
        }
    }

    fn arrived(&mut self, arrival: Arrival) -> Option<Next> {
        let Arrival { plan, contexts, names, counts } = arrival;
        self.contexts.extend(contexts);
        if names != Names::default() {
            self.names.to_mut().extend(names);
        }
        let at = first_dispatch(&plan, self.open_loop);
        if at < self.last {
            self.failure = Some(Failure::Unsorted);
            return None;
        }
        self.last = at;
        let session = self.counts.sessions as u32;
        self.counts.add(&counts);
        Some(Next::new(at, session, plan))
    }
}

fn first_dispatch(plan: &SessionPlan, open_loop: bool) -> Time {
    let lead = match open_loop {
        true if !plan.is_empty() => plan.offset(0),
        _ => plan.lead,
    };
    Time::ZERO + plan.at + lead
}
