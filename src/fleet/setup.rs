//! From a scenario to a fleet that can run.

use super::Setup;
use super::admission::Limits;
use crate::config::autoscale::Scaling;
use crate::config::calibration::Calibration;
use crate::config::faults::numbered_through;
use crate::config::gateway::FrontEnd;
use crate::config::scenario::Scenario;
use crate::diag::{Error, Result};
use crate::engine::config::{EngineConfig, Policy, Pool};
use crate::engine::step_time::{Factors, StepCost, StepSetup};

/// The gateway in front of so many replicas; it lists those that an autoscaler adds by itself.
///
/// # Errors
/// A gateway that names others.
fn front(scenario: &Scenario, replicas: u32) -> Result<Option<FrontEnd>> {
    scenario.gateway.as_ref().map(|gateway| gateway.before(replicas)).transpose()
}

/// What is scaled of a fleet that begins with so many replicas.
fn scaling(scenario: &Scenario, replicas: u32) -> Scaling {
    let pods = scenario.gateway.as_ref().map_or(1, |gateway| gateway.config().pods);
    scenario.autoscale.from(pods, replicas)
}

impl Setup {
    /// The same fleet with this many replicas.
    ///
    /// # Errors
    /// A gateway of the scenario that cannot be in front of so many, or pools that have others.
    pub fn with_replicas(&self, scenario: &Scenario, replicas: u32) -> Result<Self> {
        if !self.pools.is_empty() && replicas != self.replicas {
            let have = format!("as many as the pools have together, {}", self.replicas);
            return Err(Error::found(replicas, have).in_field("replicas"));
        }
        let gateway = front(scenario, replicas)?;
        let scaling = scaling(scenario, replicas);
        Ok(Self { replicas, gateway, scaling, ..self.clone() })
    }

    /// The fleet of a scenario.
    ///
    /// # Errors
    /// A replica whose step time cannot be told, or an event in a pool that has no such replica.
    pub fn of(scenario: &Scenario) -> Result<Self> {
        let serving = &scenario.serving;
        let cost = StepCost::new(&StepSetup {
            model: &serving.model,
            gpu: serving.gpu,
            tp: serving.tensor_parallel_size,
            dp: serving.data_parallel_size,
            weights: serving.weights,
            kv_dtype: serving.kv_dtype,
        })?;
        let cost = match &scenario.calibration {
            Some(Calibration { host, linear, attention, .. }) => {
                cost.with_factors(Factors { host: *host, linear: *linear, attention: *attention })?
            }
            None => cost,
        };
        let engine = EngineConfig {
            block_size: serving.memory.block_size,
            pool: Pool::Limited(serving.memory.num_gpu_blocks),
            window_blocks: serving.memory.window_blocks,
            max_num_seqs: serving.max_num_seqs as usize,
            max_num_batched_tokens: serving.max_num_batched_tokens,
            long_prefill_token_threshold: serving.long_prefill_token_threshold,
            max_model_len: serving.max_model_len,
            enable_prefix_caching: serving.enable_prefix_caching,
            policy: if serving.by_priority { Policy::Priority } else { Policy::Fcfs },
            watermark: serving.watermark,
            async_scheduling: serving.async_scheduling,
            vllm: serving.vllm,
            scheduler_reserve_full_isl: serving.scheduler_reserve_full_isl,
        };
        let limits = Limits {
            max_num_queued_reqs: serving.max_num_queued_reqs,
            max_num_queued_tokens: serving.max_num_queued_tokens,
        };
        Ok(Self {
            replicas: scenario.replicas,
            gateway: front(scenario, scenario.replicas)?,
            scaling: scaling(scenario, scenario.replicas),
            router: scenario.router,
            routing: scenario.routing.clone(),
            events: numbered_through(&scenario.events, &scenario.pools)?,
            pools: scenario.pools.clone(),
            engine,
            cost,
            api: scenario.api,
            limits,
            client: scenario.client,
            load: scenario.load.clone(),
            open_loop: scenario.open_loop,
            on_overflow: scenario.on_overflow,
            seed: scenario.seed,
            warmup: scenario.warmup,
            window: scenario.window,
            every_step: false,
        })
    }
}
