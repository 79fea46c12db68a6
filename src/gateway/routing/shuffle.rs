//! `simple-shuffle`: at random, weighted by `weight`, else by `rpm`, else by `tpm`.
//!
//! The first healthy deployment decides which of them counts: if it has a `weight`, those of all
//! others without one are zero.

use super::{Choice, any_of};
use crate::config::gateway::Deployment;
use crate::rng::Stream;
use crate::units::DeploymentId;

pub(super) fn choose(choice: &Choice<'_>, chance: &mut Stream) -> Option<DeploymentId> {
    let weigh: [fn(&Deployment) -> Option<f64>; 3] = [
        |deployment| deployment.weight,
        |deployment| deployment.rpm.map(|rpm| rpm as f64),
        |deployment| deployment.tpm.map(|tpm| tpm as f64),
    ];
    let first = choice.of(*choice.healthy.first()?);
    let Some(weigh) = weigh.into_iter().find(|weigh| weigh(first).is_some()) else {
        return any_of(choice.healthy, chance);
    };
    let weights = choice.healthy.iter().map(|id| (*id, weigh(choice.of(*id)).unwrap_or(0.0)));
    let total: f64 = weights.clone().map(|(_, weight)| weight).sum();
    if total <= 0.0 {
        return any_of(choice.healthy, chance);
    }
    let mut left = total * chance.uniform_f64();
    let mut chosen = None;
    for (id, weight) in weights.filter(|(_, weight)| *weight > 0.0) {
        chosen = Some(id);
        left -= weight;
        if left < 0.0 {
            break;
        }
    }
    chosen
}

#[cfg(test)]
mod tests {
    use super::super::tests::{deployments, spread};
    use super::super::{Memory, Strategy};

    fn shuffled(change: impl Fn(&mut [super::Deployment])) -> Vec<u32> {
        let mut list = deployments(3);
        change(&mut list);
        spread(Strategy::SimpleShuffle, &mut Memory::new(None), &list, 30_000)
    }

    fn is_near(found: &[u32], expected: [u32; 3]) -> bool {
        found.iter().zip(expected).all(|(found, expected)| found.abs_diff(expected) < 400)
    }

    #[test]
    fn without_weights_each_is_equally_likely() {
        assert!(is_near(&shuffled(|_| {}), [10_000; 3]));
    }

    #[test]
    fn weight_goes_before_rpm_and_rpm_before_tpm() {
        let spread = shuffled(|list| {
            (list[0].rpm, list[1].rpm) = (Some(1), Some(2));
            (list[0].tpm, list[2].tpm) = (Some(9), Some(9));
        });
        assert!(is_near(&spread, [10_000, 20_000, 0]), "{spread:?}");
        let spread = shuffled(|list| {
            (list[0].weight, list[1].weight, list[2].weight) = (Some(0.5), Some(0.0), Some(1.0));
            list[1].rpm = Some(100);
        });
        assert!(is_near(&spread, [10_000, 0, 20_000]), "{spread:?}");
    }

    #[test]
    fn only_the_first_decides_which_weight_counts() {
        let spread = shuffled(|list| list[1].weight = Some(5.0));
        assert!(is_near(&spread, [10_000; 3]), "{spread:?}");
    }
}
