//! `usage-based-routing` and `-v2`: the fewest tokens this minute, among deployments that the
//! prompt and one more request leave within `tpm` and `rpm`.
//!
//! The first version takes the first deployment without any tokens at once; the second draws among
//! the lowest.

use super::{Choice, MINUTE, Memory, any_of, as_count, minute};
use crate::gateway::cache::Key;
use crate::rng::Stream;
use crate::units::{DeploymentId, Time, Tokens};

/// Tokens of this minute of those that are within their limits, in the order of the list.
fn within_limits(memory: &Memory, choice: &Choice<'_>) -> Vec<(DeploymentId, i64)> {
    let minute = minute(choice.now);
    let used = |id: &DeploymentId| {
        let get = |key| memory.cache.get(choice.now, key).unwrap_or(0);
        let tokens = get(Key::UsageTokens(*id, minute));
        let requests = get(Key::UsageRequests(*id, minute));
        let deployment = choice.of(*id);
        let with = tokens.saturating_add(as_count(choice.prompt.0));
        let fits = deployment.tpm.is_none_or(|tpm| with <= as_count(tpm))
            && deployment.rpm.is_none_or(|rpm| requests < as_count(rpm));
        fits.then_some((*id, tokens))
    };
    choice.healthy.iter().filter_map(used).collect()
}

pub(super) fn choose_first(memory: &Memory, choice: &Choice<'_>) -> Option<DeploymentId> {
    let fits = within_limits(memory, choice);
    fits.into_iter().min_by_key(|(_, tokens)| *tokens).map(|(id, _)| id)
}

pub(super) fn choose_any(
    memory: &Memory,
    choice: &Choice<'_>,
    chance: &mut Stream,
) -> Option<DeploymentId> {
    let fits = within_limits(memory, choice);
    let lowest = fits.iter().map(|(_, tokens)| *tokens).min()?;
    let lowest: Vec<DeploymentId> =
        fits.into_iter().filter(|(_, tokens)| *tokens == lowest).map(|(id, _)| id).collect();
    any_of(&lowest, chance)
}

pub(super) fn started(memory: &mut Memory, now: Time, deployment: DeploymentId) {
    memory.cache.add(now, Key::UsageRequests(deployment, minute(now)), 1, MINUTE);
}

pub(super) fn ended(memory: &mut Memory, now: Time, deployment: DeploymentId, tokens: Tokens) {
    let key = Key::UsageTokens(deployment, minute(now));
    memory.cache.add(now, key, as_count(tokens.0), MINUTE);
}

#[cfg(test)]
mod tests {
    use super::super::tests::{deployments, spread};
    use super::super::{Memory, Strategy};
    use super::*;

    #[test]
    fn the_fewest_tokens_this_minute() {
        let mut memory = Memory::new(None);
        let list = deployments(3);
        assert_eq!(spread(Strategy::Usage, &mut memory, &list, 9), [9, 0, 0], "none has any");
        let any = spread(Strategy::UsageV2, &mut memory, &list, 9_000);
        assert!(any.iter().all(|count| count.abs_diff(3_000) < 200), "{any:?}");
        ended(&mut memory, Time(1), DeploymentId(0), Tokens(50));
        ended(&mut memory, Time(1), DeploymentId(1), Tokens(10));
        assert_eq!(spread(Strategy::Usage, &mut memory, &list, 1), [0, 0, 1]);
        ended(&mut memory, Time(1), DeploymentId(2), Tokens(70));
        assert_eq!(spread(Strategy::UsageV2, &mut memory, &list, 1), [0, 1, 0]);
    }

    #[test]
    fn limits_take_a_deployment_out() {
        let mut list = deployments(2);
        list[0].rpm = Some(3);
        list[1].tpm = Some(99);
        let spread = spread(Strategy::UsageV2, &mut Memory::new(None), &list, 10);
        assert_eq!(spread, [3, 0], "a prompt of 100 tokens never fits the second");
    }
}
