//! How many pods or replicas there were, where their number changes.

use super::replica::Window;
use crate::units::{ReplicaId, Span, Time};

/// Members of a set inside the window. A member counts from the decision to start it until its
/// process has ended: it holds its machine while it loads and while it drains.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MemberUse {
    /// Mean number.
    pub mean: f64,
    /// Most at once.
    pub max: u32,
    /// Time that members were there, added up.
    pub held: Span,
    /// The part of it in which they took calls.
    pub serving: Span,
}

/// What is scaled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scaled {
    /// The gateway's pods.
    Pods,
    /// The replicas.
    Replicas,
}

/// An autoscaler has changed the number that it wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScaleEvent {
    /// When.
    pub at: Time,
    /// Of what.
    pub what: Scaled,
    /// Members that were there, those included that were starting.
    pub from: u32,
    /// Members that are wanted from now on.
    pub to: u32,
}

/// A replica takes calls, or takes no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplicaChange {
    /// When.
    pub at: Time,
    /// Which.
    pub replica: ReplicaId,
    /// What became of it.
    pub became: Became,
}

/// What a replica became.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Became {
    /// It takes calls from now on, with an empty cache.
    Up,
    /// It is gone at once, and its calls with it.
    Lost,
    /// It takes no new calls, as planned.
    Drained,
    /// The same, for a rolling update.
    Updated,
    /// The same, because an autoscaler wants fewer.
    ScaledIn,
}

/// What autoscalers did.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ScalingUse {
    /// The replicas, if they are scaled.
    pub replicas: Option<MemberUse>,
    /// Every change of a wanted number, in order, warm-up included.
    pub events: Vec<ScaleEvent>,
}

/// A number of members while it goes on.
#[derive(Clone, Copy, Debug)]
pub struct MemberWatch {
    window: Window,
    held: u32,
    serving: u32,
    since: Time,
    held_nanos: u128,
    serving_nanos: u128,
    max: u32,
}

impl MemberWatch {
    /// So many from the start, all serving.
    #[must_use]
    pub fn new(window: Window, members: u32) -> Self {
        let (held, serving, since) = (members, members, Time::ZERO);
        Self { window, held, serving, since, held_nanos: 0, serving_nanos: 0, max: 0 }
    }

    /// How many there are, and how many take calls, from now on.
    pub fn set(&mut self, now: Time, held: u32, serving: u32) {
        self.pass_to(now);
        (self.held, self.serving) = (held, serving);
    }

    fn pass_to(&mut self, now: Time) {
        let inside = self.window.overlap(self.since, now);
        if inside > Span::ZERO {
            self.held_nanos += u128::from(self.held) * u128::from(inside.0);
            self.serving_nanos += u128::from(self.serving) * u128::from(inside.0);
            self.max = self.max.max(self.held);
        }
        self.since = now;
    }

    /// The run is over.
    #[must_use]
    pub fn finish(mut self, window: Window) -> MemberUse {
        self.pass_to(window.until);
        let span = |nanos: u128| Span(u64::try_from(nanos).unwrap_or(u64::MAX));
        MemberUse {
            mean: self.held_nanos as f64 / (window.until - window.from).as_f64(),
            max: self.max,
            held: span(self.held_nanos),
            serving: span(self.serving_nanos),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_lies_in_the_window_counts() {
        let window = Window { from: Time(100), until: Time(200) };
        let mut watch = MemberWatch::new(window, 4);
        watch.set(Time(50), 9, 1);
        watch.set(Time(60), 2, 2);
        watch.set(Time(150), 3, 2);
        watch.set(Time(190), 3, 3);
        let used = watch.finish(window);
        let expected = MemberUse { mean: 2.5, max: 3, held: Span(250), serving: Span(210) };
        assert_eq!(used, expected);
    }
}
