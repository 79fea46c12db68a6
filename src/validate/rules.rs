//! From a measured run to its simulation: what the row says, and what is known of how its source
//! measured.

use super::drive::{Ask, Pacing, Server};
use super::runs::{Latencies, Offered, Run};
use crate::config::api_time::ApiTime;
use crate::config::defaults::{GPU_MEMORY_UTILIZATION, VllmVersion};
use crate::config::geometry::ModelGeometry;
use crate::config::gpus::{self, Arch, GpuSpec};
use crate::config::memory::{self, MemoryRequest};
use crate::config::models;
use crate::config::precision::{KvDtype, WeightPrecision};
use crate::diag::{Error, Result};
use crate::engine::config::{EngineConfig, Policy, Pool};
use crate::engine::step_time::{Factors, StepCost, StepSetup};
use crate::rng::{Purpose, Stream};
use crate::units::{Blocks, Span, Time, Tokens};

/// How a source measured, where its rows do not say.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Habits {
    /// Shortest length over the nominal one; uniform up to the nominal length.
    length_min_share: f64,
    /// Whether E2E is not measured but TTFT + ITL x (osl - 1).
    e2e_is_derived: bool,
    /// Whether the rate is not measured but concurrency / E2E.
    rate_is_derived: bool,
    /// Whether the prefix cache is on.
    prefix_caching: bool,
    /// Whether the KV cache has 8 bits on Blackwell.
    fp8_kv_on_blackwell: bool,
    /// Prompts that take turns; none where each is another.
    distinct_prompts: Option<u64>,
    /// Whether the ITL is not that of the engine but E2E by tokens counted in the text.
    itl_is_of_text: bool,
}

/// Nobody in particular: rows are taken at their word.
const PLAIN: Habits = Habits {
    length_min_share: 1.0,
    e2e_is_derived: false,
    rate_is_derived: false,
    prefix_caching: true,
    fp8_kv_on_blackwell: false,
    distinct_prompts: None,
    itl_is_of_text: false,
};

/// Sources whose way of measuring is known.
///
/// - InferenceX: its client draws lengths with `RANDOM_RANGE_RATIO` 0.8, its recipes switch the
///   prefix cache off, and on Blackwell they ask for an FP8 KV cache.
/// - BLIS (the 38 experiments of sim-to-real-accuracy-validation): `inference-perf` sends 10 groups
///   of 10 prompts in turn, so that all but the first 100 requests find their whole prompt in the
///   cache (`results/config.yaml` of each published run). Its ITL is the time of a request over
///   the tokens of its text, counted anew (`normalized_time_per_output_token`); with `ignore_eos`
///   the engine makes exactly `osl` tokens, so ITL is (E2E - TTFT) / (osl - 1).
const SOURCES: [(&str, Habits); 3] = [
    (
        "InferenceX",
        Habits {
            length_min_share: 0.8,
            e2e_is_derived: true,
            rate_is_derived: true,
            prefix_caching: false,
            fp8_kv_on_blackwell: true,
            distinct_prompts: None,
            itl_is_of_text: false,
        },
    ),
    ("NVIDIA", Habits { e2e_is_derived: true, rate_is_derived: true, ..PLAIN }),
    (
        "BLIS",
        Habits {
            rate_is_derived: true,
            distinct_prompts: Some(100),
            itl_is_of_text: true,
            ..PLAIN
        },
    ),
];

fn habits(origin: &str) -> Habits {
    SOURCES.iter().find(|(name, _)| *name == origin).map_or(PLAIN, |(_, habits)| *habits)
}

/// Why the rows of one published study are apart: the multiplications of their prompts alone would
/// take 26 to 87 % of the chip's peak, averaged over all steps.
const TOO_FAST: &str = "suspect: needs a large part of the data-sheet peak for GEMMs alone";

/// The row as its source measured it: figures that mean something else there are put right, and
/// rows that cannot be true get a note.
#[must_use]
pub fn as_measured(mut run: Run) -> Run {
    let gaps = run.osl.saturating_sub(1) as f64;
    let Latencies { ttft_ms, e2e_ms, .. } = run.measured;
    if habits(&run.origin).itl_is_of_text
        && let (Some(ttft), Some(e2e)) = (ttft_ms, e2e_ms)
        && gaps > 0.0
        && e2e > ttft
    {
        run.measured.itl_ms = Some((e2e - ttft) / gaps);
    }
    if run.origin == "InferenceX" && run.dp > 1 && run.tp == run.dp {
        read_ranks(&mut run);
    }
    if run.note.is_empty()
        && run.origin == "NVIDIA"
        && run.model == "Llama-3.1-8B-Instruct-FP8"
        && run.osl <= 500
    {
        run.note = TOO_FAST.to_owned();
    }
    run
}

/// From this day on recipes of InferenceX act on their switch for data-parallel attention.
const RANKS_SINCE: &str = "2026-04-20";
/// Why rows that are there twice count once.
const TWICE: &str = "the same measurement as a row of NVIDIA, with tp 4, ep 4 and no ranks";

/// Rows of InferenceX with data-parallel attention give the GPUs of the engine as `tp` and as
/// `dp`, and their product as `ep`. The engine has a rank on each of its GPUs. Before the recipes
/// acted on the switch it had none: those rows equal others with `tp` GPUs and expert parallelism
/// within 1.3 % at every concurrency, and those of Kimi-K2.5 are published by NVIDIA as such.
fn read_ranks(run: &mut Run) {
    if run.measured_on.is_empty() || run.measured_on.as_str() >= RANKS_SINCE {
        (run.tp, run.ep) = (1, run.dp);
        return;
    }
    (run.dp, run.ep) = (1, run.tp);
    if run.note.is_empty() && run.model == "Kimi-K2.5" {
        run.note = TWICE.to_owned();
    }
}

/// Requests of a closed loop for each of its concurrency, as benchmark clients have it.
const REQUESTS_PER_CLIENT: u64 = 10;
/// Length of a run at a constant rate.
const OPEN_LOOP_SECONDS: f64 = 600.0;
/// Requests of the longest run that is simulated.
const MAX_REQUESTS: u64 = 1 << 20;
/// Share of the memory that vLLM took before 0.21.
const OLD_MEMORY_UTILIZATION: f64 = 0.9;

/// With what times a run is simulated.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Times {
    /// Multipliers of the step time.
    pub factors: Factors,
    /// Host time of requests.
    pub api: ApiTime,
}

impl From<Factors> for Times {
    fn from(factors: Factors) -> Self {
        Self { factors, ..Self::default() }
    }
}

/// A run that can be simulated.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Engine and step time.
    pub server: Server,
    /// What is asked, in order.
    pub asks: Vec<Ask>,
    /// When.
    pub pacing: Pacing,
    /// The first requests, left out of the means.
    pub warmup: usize,
    /// E2E is TTFT + ITL x this, where the source has it so.
    pub derived_gaps: Option<f64>,
    /// Requests a second are this over E2E, where the source has it so.
    pub derived_rate: Option<f64>,
    /// What serves.
    pub deployment: Deployment,
}

/// What serves, in the names of the catalogue.
#[derive(Clone, Debug, PartialEq)]
pub struct Deployment {
    /// The model.
    pub model: String,
    /// Whether it has experts.
    pub has_experts: bool,
    /// The GPU.
    pub gpu: &'static str,
    /// GPUs of the group.
    pub tp: u32,
    /// Groups that share the experts.
    pub dp: u32,
    /// How weights are stored.
    pub weights: WeightPrecision,
    /// How keys and values are stored.
    pub kv_dtype: KvDtype,
}

/// What a serving run and a log of requests have in common.
#[derive(Clone, Debug)]
pub struct Host<'a> {
    /// The model.
    pub model: &'a ModelGeometry,
    /// The GPU.
    pub gpu: &'static GpuSpec,
    /// GPUs of the group.
    pub tp: u32,
    /// Groups that share the experts.
    pub dp: u32,
    /// How weights are stored.
    pub weights: WeightPrecision,
    /// How keys and values are stored.
    pub kv_dtype: KvDtype,
    /// Version of vLLM.
    pub vllm: VllmVersion,
    /// Settings, where given.
    pub max_num_batched_tokens: Option<u64>,
    /// See `max_num_batched_tokens`.
    pub max_num_seqs: Option<u64>,
    /// See `max_num_batched_tokens`.
    pub num_gpu_blocks: Option<u64>,
    /// See `max_num_batched_tokens`.
    pub gpu_memory_utilization: Option<f64>,
    /// Longest prompt with its answer.
    pub longest: Tokens,
    /// Whether the prefix cache is on.
    pub prefix_caching: bool,
}

impl Host<'_> {
    /// What serves, in the names of the catalogue.
    #[must_use]
    pub fn deployment(&self) -> Deployment {
        Deployment {
            has_experts: self.model.moe.is_some(),
            gpu: &self.gpu.name,
            tp: self.tp,
            dp: self.dp,
            weights: self.weights,
            kv_dtype: self.kv_dtype,
            model: self.model.name.clone(),
        }
    }

    /// The engine, with a KV pool as the memory formula has it unless the number is given.
    ///
    /// # Errors
    /// What cannot be served there.
    pub fn server(&self, api: ApiTime, shared: Tokens, factors: Factors) -> Result<Server> {
        let mut request = MemoryRequest::new(self.model, self.gpu, self.tp);
        request.dp = self.dp;
        request.weights = self.weights;
        request.kv_dtype = self.kv_dtype;
        request.vllm = self.vllm;
        if let Some(tokens) = self.max_num_batched_tokens {
            request.max_num_batched_tokens = Tokens(tokens);
        }
        let budget = request.max_num_batched_tokens.0;
        request.max_num_seqs = self.max_num_seqs.unwrap_or(request.max_num_seqs).min(budget);
        request.num_gpu_blocks = self.num_gpu_blocks.map(Blocks);
        let default = match self.vllm.counts_cuda_graphs() {
            true => GPU_MEMORY_UTILIZATION,
            false => OLD_MEMORY_UTILIZATION,
        };
        request.gpu_memory_utilization = self.gpu_memory_utilization.unwrap_or(default);
        let memory = memory::plan(&request)?;
        memory.check_context(self.longest)?;
        let setup = StepSetup {
            model: self.model,
            gpu: self.gpu,
            tp: self.tp,
            dp: self.dp,
            weights: self.weights,
            kv_dtype: self.kv_dtype,
        };
        let cost = StepCost::new(&setup)?.with_factors(factors)?;
        let engine = EngineConfig {
            block_size: memory.block_size,
            pool: Pool::Limited(memory.num_gpu_blocks),
            window_blocks: memory.window_blocks,
            max_num_seqs: request.max_num_seqs as usize,
            max_num_batched_tokens: request.max_num_batched_tokens,
            long_prefill_token_threshold: Tokens::ZERO,
            max_model_len: self.longest,
            enable_prefix_caching: self.prefix_caching,
            policy: Policy::Fcfs,
            watermark: 0.0,
            async_scheduling: true,
            vllm: self.vllm,
            scheduler_reserve_full_isl: true,
        };
        Ok(Server { engine, cost, api, shared })
    }
}

/// Weights as a table of runs names them: `fp4` is the checkpoint's own MXFP4, else NVFP4.
///
/// # Errors
/// An unknown precision.
pub fn weights_of(precision: &str, model: &ModelGeometry) -> Result<WeightPrecision> {
    match (precision, model.quantization) {
        ("", own) => Ok(own),
        ("fp4", WeightPrecision::Mxfp4) => Ok(WeightPrecision::Mxfp4),
        ("fp4", _) => Ok(WeightPrecision::Nvfp4),
        _ => WeightPrecision::parse(precision).map_err(|error| error.in_field("precision")),
    }
}

/// A version as far as it is known; nightly builds and none at all are taken for the newest.
#[must_use]
pub fn version_of(text: &str) -> VllmVersion {
    VllmVersion::parse(text).unwrap_or_default()
}

impl Plan {
    /// Plans the simulation of a row.
    ///
    /// # Errors
    /// Why it cannot be simulated.
    pub fn of(run: &Run, times: Times, seed: u64) -> Result<Self> {
        refuse(run)?;
        let habits = habits(&run.origin);
        let model = models::find(&run.model)?;
        let gpu = gpus::find(&run.gpu)?;
        let kv_dtype = match &run.kv_cache_dtype {
            Some(text) => KvDtype::parse(text, model.dtype)?,
            None if habits.fp8_kv_on_blackwell && gpu.arch == Arch::Blackwell => KvDtype::Fp8,
            None => KvDtype::of(model.dtype),
        };
        let host = Host {
            model: &model,
            gpu,
            tp: run.tp,
            dp: run.dp,
            weights: weights_of(&run.precision, &model)?,
            kv_dtype,
            vllm: version_of(&run.engine_version),
            max_num_batched_tokens: budget(run, gpu),
            max_num_seqs: run.max_num_seqs,
            num_gpu_blocks: run.num_gpu_blocks,
            gpu_memory_utilization: run.gpu_memory_utilization,
            longest: longest(run),
            prefix_caching: habits.prefix_caching || run.cached_prefix > 0,
        };
        let server = host.server(times.api, Tokens(run.cached_prefix), times.factors)?;
        let (requests, pacing) = load(run, seed);
        let share = run.length_min_share.unwrap_or(habits.length_min_share);
        let distinct = run.distinct_prompts.or(habits.distinct_prompts).unwrap_or(requests);
        let asks = asks(run, share, requests, distinct, seed);
        Ok(Self {
            server,
            asks,
            pacing,
            warmup: run.warmup_requests.min(requests.saturating_sub(1)) as usize,
            derived_gaps: habits.e2e_is_derived.then_some((run.osl - 1) as f64),
            derived_rate: match run.offered {
                Offered::Concurrency(seqs) if habits.rate_is_derived => Some(seqs as f64),
                _ => None,
            },
            deployment: host.deployment(),
        })
    }
}

/// What is not simulated, by name.
fn refuse(run: &Run) -> Result<()> {
    let reason = if run.engine != "vllm" {
        "another engine than vllm"
    } else if run.pp > 1 {
        "pipeline parallelism is not modelled"
    } else if !run.concurrency_known {
        "the concurrency of the client is not known"
    } else {
        return Ok(());
    };
    Err(Error::new(reason))
}

fn longest(run: &Run) -> Tokens {
    let known = run.lengths.iter().map(|(prompt, output)| prompt + output).max();
    Tokens(known.unwrap_or(run.isl + run.osl))
}

/// The token budget of a step: as given; InferenceX serves MiniMax on Blackwell with 2 x isl.
fn budget(run: &Run, gpu: &GpuSpec) -> Option<u64> {
    let minimax = run.origin == "InferenceX" && run.model.starts_with("MiniMax");
    let twice = (minimax && gpu.arch == Arch::Blackwell).then_some(2 * run.isl);
    run.max_batched_tokens.or(twice)
}

fn load(run: &Run, seed: u64) -> (u64, Pacing) {
    match run.offered {
        Offered::Concurrency(seqs) => {
            let requests = run.requests.unwrap_or(REQUESTS_PER_CLIENT * seqs);
            (requests.min(MAX_REQUESTS), Pacing::Closed(seqs as usize))
        }
        Offered::Rate(rate) | Offered::Random(rate) => {
            let whole = (rate * OPEN_LOOP_SECONDS).ceil().max(1.0) as u64;
            let requests = run.requests.unwrap_or(whole).min(MAX_REQUESTS);
            let mut stream = Stream::new(seed, Purpose::Arrival, 0);
            let mut sum = 0.0;
            let at = |number: u64| {
                let random = matches!(run.offered, Offered::Random(_));
                let secs = if random { sum } else { number as f64 / rate };
                if random {
                    sum += stream.exponential(1.0 / rate);
                }
                Time::ZERO + Span::from_secs_f64(secs)
            };
            (requests, Pacing::Open((0..requests).map(at).collect()))
        }
    }
}

/// Lengths drawn uniformly from the shortest to the nominal one.
fn asks(run: &Run, min_share: f64, requests: u64, distinct: u64, seed: u64) -> Vec<Ask> {
    if !run.lengths.is_empty() {
        let known = run.lengths.iter().zip(0u32..).take(requests as usize);
        let ask = |(&(prompt, output), content)| Ask {
            prompt: Tokens(prompt),
            output: Tokens(output),
            content,
        };
        return known.map(ask).collect();
    }
    let mut stream = Stream::new(seed, Purpose::BenchmarkLengths, 0);
    let mut length = |most: u64| {
        let least = ((most as f64 * min_share).round() as u64).clamp(1, most);
        Tokens(least + stream.uniform_below(most - least + 1))
    };
    let prompts: Vec<Tokens> = (0..distinct.min(requests)).map(|_| length(run.isl)).collect();
    let asks = prompts.iter().zip(0u32..).cycle().take(requests as usize);
    asks.map(|(&prompt, content)| Ask { prompt, output: length(run.osl), content }).collect()
}
