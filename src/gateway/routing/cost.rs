//! `cost-based-routing`: the lowest price of input and output together, the first on a tie.

use super::Choice;
use crate::units::DeploymentId;

pub(super) fn choose(choice: &Choice<'_>) -> Option<DeploymentId> {
    let price = |id: &DeploymentId| choice.of(*id).price;
    choice.healthy.iter().copied().min_by(|a, b| price(a).total_cmp(&price(b)))
}

#[cfg(test)]
mod tests {
    use super::super::tests::{deployments, spread};
    use super::super::{Memory, Strategy};

    #[test]
    fn the_cheapest_and_of_equals_the_first() {
        let mut list = deployments(3);
        list[0].price = 2.0;
        assert_eq!(spread(Strategy::Cost, &mut Memory::new(None), &list, 5), [0, 5, 0]);
    }
}
