//! Members of a scaled set: how they come, serve and go.
//!
//! A member serves once it has loaded and a probe has seen it. Of those to go, ones that are still
//! starting go first, at once, then the newest: they are drained, and killed if they take longer
//! than the grace period.

use crate::config::autoscale::Lifecycle;
use crate::units::Time;

/// What to do with a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// It starts, with nothing cached, and serves from then on; `None`: never.
    Start {
        /// Its number, not used before.
        member: u32,
        /// When it serves.
        ready: Option<Time>,
    },
    /// It was starting and is given up.
    Cancel {
        /// Its number.
        member: u32,
    },
    /// It gets nothing new, ends what it has, and is killed at last.
    Drain {
        /// Its number.
        member: u32,
        /// When it is killed.
        kill: Time,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Starting(Option<Time>),
    Serving,
    Gone,
}

/// A scaled set.
#[derive(Clone, Debug)]
pub struct Scaled {
    lifecycle: Lifecycle,
    members: Vec<Stage>,
}

impl Scaled {
    /// So many members that serve from the start.
    #[must_use]
    pub fn new(lifecycle: Lifecycle, members: u32) -> Self {
        Self { lifecycle, members: vec![Stage::Serving; members as usize] }
    }

    /// Lets those serve whose time has come.
    fn catch_up(&mut self, now: Time) {
        for stage in &mut self.members {
            if matches!(*stage, Stage::Starting(Some(ready)) if ready <= now) {
                *stage = Stage::Serving;
            }
        }
    }

    /// Makes them `desired`, appending what to do.
    pub fn scale_to(&mut self, now: Time, desired: u32, actions: &mut Vec<Action>) {
        self.catch_up(now);
        let (serving, starting) = self.count(now);
        let present = serving + starting;
        for _ in present..desired {
            let ready = self.lifecycle.ready_after().map(|span| now + span);
            let member = self.members.len() as u32;
            self.members.push(Stage::Starting(ready));
            actions.push(Action::Start { member, ready });
        }
        let mut surplus = present.saturating_sub(desired);
        let kill = now + self.lifecycle.grace;
        for is_starting in [true, false] {
            for (member, stage) in self.members.iter_mut().enumerate().rev() {
                let member = member as u32;
                let is_next = match stage {
                    Stage::Starting(_) => is_starting,
                    Stage::Serving => !is_starting,
                    Stage::Gone => false,
                };
                if surplus == 0 || !is_next {
                    continue;
                }
                *stage = Stage::Gone;
                surplus -= 1;
                actions.push(match is_starting {
                    true => Action::Cancel { member },
                    false => Action::Drain { member, kill },
                });
            }
        }
    }

    /// A member has failed by itself: another is started by the next [`Self::scale_to`].
    pub fn lost(&mut self, member: u32) {
        if let Some(stage) = self.members.get_mut(member as usize) {
            *stage = Stage::Gone;
        }
    }

    /// Members that serve, and those that are starting.
    #[must_use]
    pub fn count(&self, now: Time) -> (u32, u32) {
        let serves = |stage: &&Stage| match **stage {
            Stage::Serving => true,
            Stage::Starting(ready) => ready.is_some_and(|ready| ready <= now),
            Stage::Gone => false,
        };
        let present = self.members.iter().filter(|stage| **stage != Stage::Gone).count();
        let serving = self.members.iter().filter(serves).count();
        (serving as u32, (present - serving) as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Span;

    fn at(secs: u64) -> Time {
        Time::ZERO + Span::from_secs(secs)
    }

    fn scale(set: &mut Scaled, secs: u64, desired: u32) -> Vec<Action> {
        let mut actions = Vec::new();
        set.scale_to(at(secs), desired, &mut actions);
        actions
    }

    #[test]
    fn a_member_serves_from_the_probe_after_its_start() {
        assert_eq!(Lifecycle::GATEWAY.ready_after(), Some(Span::from_secs(20)));
        let slow = |secs| Lifecycle { startup: Span::from_secs(secs), ..Lifecycle::GATEWAY };
        assert_eq!(slow(300).ready_after(), Some(Span::from_secs(300)), "30 probes of 10 s");
        assert_eq!(slow(301).ready_after(), None, "started anew for ever");
        let mut set = Scaled::new(Lifecycle::engine(Span::from_secs(110)), 1);
        let start = scale(&mut set, 7, 2);
        assert_eq!(start, [Action::Start { member: 1, ready: Some(at(117)) }]);
        assert_eq!((set.count(at(116)), set.count(at(117))), ((1, 1), (2, 0)));
    }

    #[test]
    fn those_that_start_go_first_then_the_newest() {
        let mut set = Scaled::new(Lifecycle::GATEWAY, 3);
        scale(&mut set, 0, 5);
        let actions = scale(&mut set, 10, 2);
        let [cancels @ .., drain] = actions.as_slice() else { panic!("{actions:?}") };
        assert_eq!(cancels, [Action::Cancel { member: 4 }, Action::Cancel { member: 3 }]);
        assert_eq!(*drain, Action::Drain { member: 2, kill: at(40) });
        assert_eq!(scale(&mut set, 50, 2), []);
    }

    #[test]
    fn what_is_lost_is_replaced() {
        let mut set = Scaled::new(Lifecycle::GATEWAY, 2);
        set.lost(0);
        assert_eq!(set.count(at(0)), (1, 0));
        assert_eq!(scale(&mut set, 0, 2), [Action::Start { member: 2, ready: Some(at(20)) }]);
    }
}
