//! The gateway in front of replicas of several ranks.

use proptest::prelude::*;
use tonnage::config::precision::{KvDtype, WeightPrecision};
use tonnage::config::{gpus, models};
use tonnage::engine::step_time::{StepCost, StepSetup};
use tonnage::fleet::Setup;
use tonnage::fleet::admission::Limits;
use tonnage::units::Span;

use super::fleet_gateway::{
    any_front, any_happens, any_trace, assert_nothing_is_lost, behind, played_alike, quick, use_of,
};
use super::given::{call, trace};

/// Qwen3-30B-A3B on as many H100 as there are ranks.
fn step_cost(ranks: u32) -> StepCost {
    let model = models::find("Qwen3-30B-A3B").unwrap();
    let setup = StepSetup {
        model: &model,
        gpu: gpus::find("H100-SXM").unwrap(),
        tp: 1,
        dp: ranks,
        weights: WeightPrecision::Bits16,
        kv_dtype: KvDtype::Bf16,
    };
    StepCost::new(&setup).unwrap()
}

/// Six answers that take longer than the gateway's patience, on two ranks: each is hung up on nine
/// times and taken back from the rank that has it, and the ranks rest when all are gone.
#[test]
fn what_the_gateway_hangs_up_on_is_taken_back_from_its_rank() {
    let mut front = quick();
    front.clients.streams = false;
    front.gateway.request_timeout = Span::from_secs(2);
    let calls = (0..6).map(|_| (0, vec![call(1_000, 2_000)])).collect();
    let setup = Setup { cost: step_cost(2), ..behind(front, 1) };
    let run = played_alike(&setup, &trace(calls));
    assert_nothing_is_lost(&run, 6);
    let counts = use_of(&run).counts;
    assert_eq!((counts.timeouts, counts.attempts, counts.answered), (54, 54, 0));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// Whatever happens to the fleet, every call ends once, the ranks are empty behind it, and both
    /// engines and every run give the same.
    #[test]
    fn nothing_is_lost_between_ranks(
        front in any_front(),
        events in any_happens(),
        trace in any_trace(),
        ranks in prop::sample::select(vec![2u32, 4]),
        queued in prop::option::of(1u64..4),
        seed in 0u64..1_000,
    ) {
        let limits = Limits { max_num_queued_reqs: queued, ..Limits::default() };
        let cost = step_cost(ranks);
        let setup = Setup { cost, events, limits, seed, ..behind(front, 3) };
        let run = played_alike(&setup, &trace);
        let calls = trace.sessions.iter().map(|session| session.calls.len()).sum();
        assert_nothing_is_lost(&run, calls);
    }
}
