//! Which rank of a replica gets a request: vLLM's internal load balancer.
//!
//! Two rules, by version. The earlier one takes the rank with the least 4 x waiting + running, the
//! first of equals. The later one takes the rank with the least requests in flight, to which a
//! queue adds as the KV cache fills: nothing up to half full, three more for each waiting request
//! when it is full; it starts its search one rank further each time, so that equals take turns.
//!
//! In vLLM the front end learns these numbers every 100 ms and counts by itself what it has sent
//! since; here it knows them as they are.

use super::Occupancy;
use crate::config::defaults::VllmVersion;

/// Requests that run for one that waits, in the earlier rule.
const WAITING_WEIGHT: u128 = 4;
/// What a waiting request adds for each share of the KV cache beyond half of it.
const PRESSURE_WEIGHT: u128 = 6;

/// Chooses ranks.
#[derive(Debug)]
pub(super) struct Balancer {
    weighs_pressure: bool,
    /// Where the next search begins.
    start: usize,
}

impl Balancer {
    pub(super) fn new(vllm: VllmVersion) -> Self {
        Self { weighs_pressure: vllm.balances_by_kv_pressure(), start: 0 }
    }

    /// The rank for the next request. There is at least one.
    pub(super) fn choose(&mut self, ranks: impl ExactSizeIterator<Item = Occupancy>) -> usize {
        let number = ranks.len();
        let weighs_pressure = self.weighs_pressure;
        let turn = |rank: usize| (rank + number - self.start) % number;
        let least = ranks
            .enumerate()
            .map(|(rank, one)| (score(&one, weighs_pressure), turn(rank), rank))
            .reduce(|a, b| if less((b.0, b.1), (a.0, a.1)) { b } else { a });
        if weighs_pressure {
            self.start = (self.start + 1) % number;
        }
        least.map_or(0, |(_, _, rank)| rank)
    }
}

/// A load as numerator and denominator, so that none is rounded.
type Score = (u128, u128);

fn score(rank: &Occupancy, weighs_pressure: bool) -> Score {
    let (running, waiting) = (u128::from(rank.running), u128::from(rank.waiting));
    if !weighs_pressure {
        return (WAITING_WEIGHT * waiting + running, 1);
    }
    let (used, blocks) = (u128::from(rank.used.0), u128::from(rank.blocks.0.max(1)));
    let beyond_half = (2 * used).saturating_sub(blocks);
    (2 * blocks * (running + waiting) + PRESSURE_WEIGHT * waiting * beyond_half, 2 * blocks)
}

/// Whether one comes before another: by load, then by turn.
fn less((a, a_turn): (Score, usize), (b, b_turn): (Score, usize)) -> bool {
    (a.0 * b.1, a_turn) < (b.0 * a.1, b_turn)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Blocks;

    fn rank(running: u64, waiting: u64, used: u64) -> Occupancy {
        Occupancy { running, waiting, used: Blocks(used), blocks: Blocks(100) }
    }

    fn balancer(version: &str) -> Balancer {
        Balancer::new(VllmVersion::parse(version).unwrap())
    }

    /// 4 x waiting + running: 7, 6, 8, 6.
    #[test]
    fn the_earlier_rule_counts_a_waiting_request_four_times() {
        let mut balancer = balancer("0.19");
        let ranks = [rank(7, 0, 90), rank(2, 1, 90), rank(0, 2, 0), rank(6, 0, 10)];
        for _ in 0..3 {
            assert_eq!(balancer.choose(ranks.into_iter()), 1, "the first of equals, each time");
        }
    }

    /// In flight 6, 5, 5, and 6 x waiting x (used - half): 0, 6 x 2 x 0.4 = 4.8, 6 x 4 x 0 = 0.
    #[test]
    fn the_later_rule_flees_from_a_queue_at_a_full_cache_only() {
        let mut balancer = balancer("0.29");
        let ranks = [rank(6, 0, 99), rank(3, 2, 90), rank(1, 4, 50)];
        assert_eq!(balancer.choose(ranks.into_iter()), 2);
        assert_eq!(balancer.choose([rank(6, 0, 99), rank(3, 2, 90)].into_iter()), 0);
        assert_eq!(balancer.choose([rank(6, 0, 99), rank(3, 2, 60)].into_iter()), 0);
        assert_eq!(balancer.choose([rank(6, 0, 99), rank(3, 2, 50)].into_iter()), 1);
    }

    #[test]
    fn equals_take_turns_in_the_later_rule() {
        let mut balancer = balancer("0.29");
        let chosen: Vec<usize> =
            (0..6).map(|_| balancer.choose([rank(0, 0, 0); 3].into_iter())).collect();
        assert_eq!(chosen, [0, 1, 2, 0, 1, 2]);
    }
}
