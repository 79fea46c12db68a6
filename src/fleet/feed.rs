//! Sessions made ready while others are played, on a thread of their own or in between.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};

use super::alone::AloneTimes;
use super::workload::{Arrival, Contexts, Planner};
use crate::diag::Result;
use crate::trace::record::{Item, Name, Session};

/// Calls of the sessions that go over in one go.
const BATCH_CALLS: usize = 4_096;
/// Batches that may wait to be played.
const WAITING_MAX: usize = 4;

/// Makes the items of a trace ready, one by one.
pub struct Feed<I> {
    items: I,
    planner: Planner,
    /// Who tells how long sessions take alone, if that is wanted, and what they share.
    alone: Option<AloneTimes>,
    contexts: Contexts,
}

impl<I: Iterator<Item = Result<Item>>> Feed<I> {
    /// `models` maps model groups to served models, as for [`Planner::new`].
    pub fn new(items: I, models: &BTreeMap<Name, Name>) -> Self {
        let (planner, contexts) = (Planner::new(models), Contexts::default());
        Self { items, planner, alone: None, contexts }
    }

    /// Has every session come with its model time alone, so that this is worked out here.
    #[must_use]
    pub fn with_alone(mut self, alone: Option<AloneTimes>) -> Self {
        self.alone = alone;
        self
    }

    /// Has sessions come without their recorded dispatches, which only an open loop asks for.
    #[must_use]
    pub fn in_closed_loop(mut self, closed: bool) -> Self {
        if closed {
            self.planner.forget_offsets();
        }
        self
    }

    fn ready(&mut self, session: &Session) -> Arrival {
        let mut arrival = self.planner.session(session);
        if let Some(times) = &self.alone {
            self.contexts.extend(arrival.contexts.iter().copied());
            let alone = times.task_llm(0, &arrival.plan, &self.contexts);
            if let Some(plan) = Arc::get_mut(&mut arrival.plan) {
                plan.alone = Some(alone);
            }
        }
        arrival
    }
}

impl<I: Iterator<Item = Result<Item>>> Iterator for Feed<I> {
    type Item = Result<Arrival>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            match self.items.next()? {
                Ok(Item::Context(context)) => self.planner.context(&context),
                Ok(Item::Session(session)) => return Some(Ok(self.ready(&session))),
                Err(error) => return Some(Err(error)),
            }
        }
    }
}

type Batch = Vec<Result<Arrival>>;

/// What another thread makes ready. It waits when it is far ahead, and ends when this is dropped.
pub struct Beside {
    batches: Receiver<Batch>,
    batch: std::vec::IntoIter<Result<Arrival>>,
    maker: Option<JoinHandle<()>>,
}

impl Beside {
    /// Has `make` run on another thread; what it hands to the [`Hand`] comes out here in order.
    pub fn new(make: impl FnOnce(&mut Hand) + Send + 'static) -> Self {
        let (sender, batches) = sync_channel(WAITING_MAX);
        let maker = thread::spawn(move || {
            let mut hand = Hand { sender, batch: Vec::new(), calls: 0 };
            make(&mut hand);
            hand.over();
        });
        Self { batches, batch: Vec::new().into_iter(), maker: Some(maker) }
    }
}

impl Iterator for Beside {
    type Item = Result<Arrival>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(arrival) = self.batch.next() {
                return Some(arrival);
            }
            match self.batches.recv() {
                Ok(batch) => self.batch = batch.into_iter(),
                Err(_) => {
                    // The end, unless it broke down.
                    if let Some(Err(panic)) = self.maker.take().map(JoinHandle::join) {
                        std::panic::resume_unwind(panic);
                    }
                    return None;
                }
            }
        }
    }
}

/// Hands sessions over from the thread that makes them ready.
pub struct Hand {
    sender: SyncSender<Batch>,
    batch: Batch,
    calls: usize,
}

impl Hand {
    /// Hands over one; false if nobody takes any more.
    pub fn over_to(&mut self, arrival: Result<Arrival>) -> bool {
        self.calls += arrival.as_ref().map_or(BATCH_CALLS, |arrival| arrival.plan.len());
        self.batch.push(arrival);
        if self.calls < BATCH_CALLS {
            return true;
        }
        self.over()
    }

    fn over(&mut self) -> bool {
        self.calls = 0;
        let room = Vec::with_capacity(self.batch.len());
        self.sender.send(std::mem::replace(&mut self.batch, room)).is_ok()
    }
}
