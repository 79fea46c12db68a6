//! Who is told what happens in a run.
//!
//! A run keeps nothing of what is over. Each call, turn and task is told once, in the order in
//! which they end, and whoever wants to know it later adds it up, writes it down or keeps it.

use super::workload::{Names, SessionPlan};
use crate::observe::records::{CallRecord, Records, TaskRecord, TurnRecord};
use crate::observe::replica::Window;
use crate::observe::timeline::HitsOverTime;

/// What a record is about.
#[derive(Clone, Copy, Debug)]
pub struct About<'a> {
    /// The session that is played.
    pub plan: &'a SessionPlan,
    /// What numbers in it mean.
    pub names: &'a Names,
    /// The part of the run that figures are made of; its end may be unknown so far.
    pub window: Window,
}

/// Who is told.
pub trait Observer {
    /// A call has ended.
    fn call(&mut self, call: &CallRecord, about: &About<'_>);

    /// A turn has ended.
    fn turn(&mut self, turn: &TurnRecord, about: &About<'_>);

    /// A session has ended.
    fn task(&mut self, task: &TaskRecord, about: &About<'_>);

    /// Whether tasks in the window come with their model time alone, which takes time to find out.
    fn wants_alone(&self) -> bool {
        false
    }

    /// Whether it can be told nothing more for now: the run pauses.
    fn is_full(&self) -> bool {
        false
    }

    /// Whether replicas are to keep what they did over time, which makes a run slower.
    fn wants_use_over_time(&self) -> bool {
        false
    }
}

/// Adds up hits, and wants replicas to keep the rest.
impl Observer for HitsOverTime {
    fn call(&mut self, call: &CallRecord, _: &About<'_>) {
        Self::call(self, call);
    }

    fn turn(&mut self, _: &TurnRecord, _: &About<'_>) {}

    fn task(&mut self, _: &TaskRecord, _: &About<'_>) {}

    fn wants_use_over_time(&self) -> bool {
        true
    }
}

/// Keeps everything.
impl Observer for Records {
    fn call(&mut self, call: &CallRecord, _: &About<'_>) {
        self.calls.push(*call);
    }

    fn turn(&mut self, turn: &TurnRecord, _: &About<'_>) {
        self.turns.push(*turn);
    }

    fn task(&mut self, task: &TaskRecord, _: &About<'_>) {
        self.tasks.push(*task);
    }
}

/// Tells both, the first first.
impl<A: Observer, B: Observer> Observer for (A, B) {
    fn call(&mut self, call: &CallRecord, about: &About<'_>) {
        self.0.call(call, about);
        self.1.call(call, about);
    }

    fn turn(&mut self, turn: &TurnRecord, about: &About<'_>) {
        self.0.turn(turn, about);
        self.1.turn(turn, about);
    }

    fn task(&mut self, task: &TaskRecord, about: &About<'_>) {
        self.0.task(task, about);
        self.1.task(task, about);
    }

    fn wants_alone(&self) -> bool {
        self.0.wants_alone() || self.1.wants_alone()
    }

    fn wants_use_over_time(&self) -> bool {
        self.0.wants_use_over_time() || self.1.wants_use_over_time()
    }
}

/// Tells it if there is one.
impl<A: Observer> Observer for Option<A> {
    fn call(&mut self, call: &CallRecord, about: &About<'_>) {
        if let Some(observer) = self {
            observer.call(call, about);
        }
    }

    fn turn(&mut self, turn: &TurnRecord, about: &About<'_>) {
        if let Some(observer) = self {
            observer.turn(turn, about);
        }
    }

    fn task(&mut self, task: &TaskRecord, about: &About<'_>) {
        if let Some(observer) = self {
            observer.task(task, about);
        }
    }

    fn wants_alone(&self) -> bool {
        self.as_ref().is_some_and(Observer::wants_alone)
    }

    fn wants_use_over_time(&self) -> bool {
        self.as_ref().is_some_and(Observer::wants_use_over_time)
    }
}
