//! `least-busy`: the fewest calls in flight; on a tie the first of the list.
//!
//! A worker counts its own calls only, unless Redis is attached. The counts of a group are one
//! entry of an hour in the cache: when it goes, they begin at zero again and calls that were in
//! flight then count below it as they end.

use super::{Choice, Memory};
use crate::gateway::cache::Key;
use crate::units::{DeploymentId, Span, Time};

const HOUR: Span = Span::from_secs(3_600);

pub(super) fn choose(memory: &mut Memory, choice: &Choice<'_>) -> Option<DeploymentId> {
    let known = memory.cache.get(choice.now, Key::InFlight(choice.group)).is_some();
    let count = |id: &DeploymentId| match known {
        true => memory.in_flight.get(id.index()).copied().unwrap_or(0),
        false => 0,
    };
    choice.healthy.iter().copied().min_by_key(count)
}

pub(super) fn change(
    memory: &mut Memory,
    now: Time,
    group: u32,
    deployment: DeploymentId,
    more: i64,
) {
    let index = deployment.index();
    if memory.in_flight.len() <= index {
        memory.in_flight.resize(index + 1, 0);
    }
    if memory.cache.get(now, Key::InFlight(group)).is_none() {
        // Deployments of other groups keep theirs: groups do not share deployments.
        memory.cache.renew(now, Key::InFlight(group), i64::from(group), HOUR);
        memory.forget_in_flight(group);
    }
    memory.in_flight[index] += more;
    memory.note_group(deployment, group);
}

#[cfg(test)]
mod tests {
    use super::super::tests::{deployments, spread};
    use super::super::{Memory, Strategy};
    use super::*;

    #[test]
    fn ties_go_to_the_first() {
        let mut memory = Memory::new(None);
        assert_eq!(spread(Strategy::LeastBusy, &mut memory, &deployments(3), 4), [2, 1, 1]);
        change(&mut memory, Time(2), 0, DeploymentId(2), -1);
        assert_eq!(spread(Strategy::LeastBusy, &mut memory, &deployments(3), 1), [0, 0, 1]);
    }

    #[test]
    fn counts_that_are_lost_begin_at_zero_and_go_below() {
        let mut memory = Memory::new(None);
        spread(Strategy::LeastBusy, &mut memory, &deployments(2), 10);
        memory.cache.remove(Key::InFlight(0));
        change(&mut memory, Time(2), 0, DeploymentId(1), -1);
        assert_eq!(spread(Strategy::LeastBusy, &mut memory, &deployments(2), 2), [1, 1]);
        assert_eq!(memory.in_flight, [1, 0]);
    }
}
