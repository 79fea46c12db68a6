//! Sessions alone on an idle replica: by a formula where their calls do not meet, and by an engine
//! that takes every step.

use std::collections::BTreeMap;

use proptest::prelude::*;
use tonnage::config::api_time::ApiTime;
use tonnage::config::scenario::OnOverflow;
use tonnage::config::{gpus, models};
use tonnage::engine::step_time::{StepCost, StepSetup};
use tonnage::fleet::Setup;
use tonnage::fleet::alone::AloneTimes;
use tonnage::fleet::workload::Workload;
use tonnage::trace::record::Trace;
use tonnage::units::{Span, Tokens};

use super::given::{call, setup, trace};
use super::property::{any_setup, any_trace, config};

/// The times of all sessions, step by step or not.
fn times(setup: &Setup, trace: &Trace, every_step: bool) -> Vec<Span> {
    let workload = Workload::new(trace, &BTreeMap::new());
    let mut alone = AloneTimes::new(setup, 0);
    alone.every_step(every_step);
    let plans = (0..).zip(&workload.sessions);
    plans.map(|(number, plan)| alone.task_llm(number, plan, &workload.contexts)).collect()
}

/// A model's step times on one H100.
fn cost_of(model: &str) -> StepCost {
    let (model, base) = (models::find(model).unwrap(), gpus::find("H100-SXM").unwrap());
    let setup = StepSetup {
        model: &model,
        gpu: base,
        tp: 1,
        dp: 1,
        weights: tonnage::config::precision::WeightPrecision::Bits16,
        kv_dtype: tonnage::config::precision::KvDtype::Bf16,
    };
    StepCost::new(&setup).unwrap()
}

proptest! {
    #![proptest_config(config(400))]

    #[test]
    fn alone_a_session_takes_as_long_as_step_by_step(
        trace in any_trace(), any in any_setup(), host_time in any::<bool>(),
        compact in any::<bool>(), threshold in 0u64..40,
    ) {
        let mut setup = Setup {
            open_loop: false,
            on_overflow: if compact { OnOverflow::Compact } else { OnOverflow::Reject },
            ..any
        };
        setup.engine.long_prefill_token_threshold = Tokens(threshold);
        if host_time {
            setup.api = ApiTime::default();
        }
        prop_assert_eq!(times(&setup, &trace, false), times(&setup, &trace, true));
    }
}

#[test]
fn long_prompts_and_models_with_windows_take_as_long_as_step_by_step() {
    let calls = [(1, 1), (2_048, 1), (2_049, 17), (30_000, 300), (7_777, 6_000), (1, 40)];
    let one = |(prompt, output)| (0, vec![call(prompt, output)]);
    let trace = trace(calls.into_iter().map(one).collect());
    for model in ["Llama-3.1-8B", "gpt-oss-20b"] {
        let mut setup = Setup { cost: cost_of(model), ..setup() };
        for asynchronous in [false, true] {
            setup.engine.async_scheduling = asynchronous;
            setup.engine.max_num_batched_tokens = Tokens(2_048);
            assert_eq!(times(&setup, &trace, false), times(&setup, &trace, true), "{model}");
        }
    }
}
