//! One replica of a scenario: model, GPUs, and the flags of its engine.

use toml::Value;

use super::defaults::VllmVersion;
use super::geometry::ModelGeometry;
use super::gpus::{self, GpuSpec};
use super::memory::{self, MemoryPlan, MemoryRequest};
use super::models;
use super::precision::{KvDtype, WeightPrecision};
use super::vllm_serve::log;
use crate::diag::{Error, Result, Warning};
use crate::document::Document;
use crate::units::{Blocks, Tokens};

/// One replica, read and checked: the model fits on its GPUs and a context of `max_model_len`
/// fits in its KV pool.
#[derive(Clone, Debug)]
pub struct Serving {
    /// The model's shape.
    pub model: ModelGeometry,
    /// The GPU.
    pub gpu: &'static GpuSpec,
    /// GPUs of a tensor-parallel group.
    pub tensor_parallel_size: u32,
    /// Such groups, each a rank with a scheduler and a KV cache of its own; they share the experts.
    pub data_parallel_size: u32,
    /// How the weights are stored.
    pub weights: WeightPrecision,
    /// How keys and values are stored.
    pub kv_dtype: KvDtype,
    /// Where the memory goes.
    pub memory: MemoryPlan,
    /// Prompt and output together.
    pub max_model_len: Tokens,
    /// Token budget of a step.
    pub max_num_batched_tokens: Tokens,
    /// Most running requests.
    pub max_num_seqs: u64,
    /// Most tokens of one request in a step; 0 means no cap.
    pub long_prefill_token_threshold: Tokens,
    /// Whether computed blocks stay for later requests.
    pub enable_prefix_caching: bool,
    /// Whether priorities count.
    pub by_priority: bool,
    /// Share of the pool that admissions leave free.
    pub watermark: f64,
    /// Whether a step is scheduled while the one before it runs.
    pub async_scheduling: bool,
    /// Whether only what fits whole is admitted.
    pub scheduler_reserve_full_isl: bool,
    /// The version of vLLM.
    pub vllm: VllmVersion,
    /// Unfinished requests from which on others are refused.
    pub max_num_queued_reqs: Option<u64>,
    /// Waiting prompt tokens from which on requests are refused.
    pub max_num_queued_tokens: Option<Tokens>,
    /// What to check before the result is trusted.
    pub warnings: Vec<Warning>,
    /// What became of a command line: flags that were ignored, keys that gave way.
    pub notes: Vec<String>,
}

/// A key that vLLM has and the model of the engine has not.
pub struct Unmodelled {
    /// The key.
    pub key: &'static str,
    /// The values that change nothing; any other is refused.
    neutral: &'static [&'static str],
    /// What it would switch on.
    what: &'static str,
}

/// Every such key: refused by name unless its value switches it off.
pub const UNMODELLED: &[Unmodelled] = &[
    Unmodelled {
        key: "engine.pipeline_parallel_size",
        neutral: &["1"],
        what: "pipeline parallelism",
    },
    Unmodelled {
        key: "engine.prefill_schedule_interval",
        neutral: &["1"],
        what: "prefill in some steps only",
    },
    Unmodelled {
        key: "engine.decode_context_parallel_size",
        neutral: &["1"],
        what: "context parallelism",
    },
    Unmodelled {
        key: "engine.speculative_config",
        neutral: &["", "none"],
        what: "speculative decoding",
    },
    Unmodelled {
        key: "engine.num_speculative_tokens",
        neutral: &["0"],
        what: "speculative decoding",
    },
    Unmodelled {
        key: "engine.kv_offloading_size",
        neutral: &["0", "0.0"],
        what: "a KV tier in host memory",
    },
    Unmodelled {
        key: "engine.cpu_offload_gb",
        neutral: &["0", "0.0"],
        what: "weights in host memory",
    },
    Unmodelled {
        key: "engine.swap_space",
        neutral: &["0", "0.0"],
        what: "swapping to host memory (vLLM itself has it no more)",
    },
    Unmodelled {
        key: "engine.kv_transfer_config",
        neutral: &["", "none"],
        what: "KV connectors and disaggregated prefill",
    },
    Unmodelled {
        key: "engine.enable_chunked_prefill",
        neutral: &["true"],
        what: "whole-prompt prefill",
    },
    Unmodelled { key: "engine.enable_lora", neutral: &["false"], what: "LoRA adapters" },
];

/// Refuses what is not modelled and written as a table of its own, whatever stands in it.
///
/// # Errors
/// The first such table.
pub fn refuse_unmodelled_tables(document: &Document) -> Result<()> {
    for Unmodelled { key, what, .. } in UNMODELLED {
        if let Some(inner) = document.first_of_table(key) {
            let error = Error::new(format!("not modelled yet: {what}"));
            return Err(document.at(inner, error).with_field(key));
        }
    }
    Ok(())
}

/// Refuses what is asked for and not modelled.
///
/// # Errors
/// The first such key.
pub fn refuse_unmodelled(document: &Document) -> Result<()> {
    for Unmodelled { key, neutral, what } in UNMODELLED {
        let Some(value) = document.value(key) else { continue };
        let text = match value {
            Value::String(text) => text.to_lowercase(),
            other => other.to_string(),
        };
        if neutral.contains(&text.as_str()) {
            continue;
        }
        let message = format!("found `{text}`, but not modelled yet: {what}");
        let error = Error::new(message).help("leave the key out to simulate the engine without it");
        return Err(document.at(key, error));
    }
    Ok(())
}

/// Limits beyond which a number is a slip.
const MAX_TOKENS: u64 = 1 << 24;
const MAX_SEQS: u64 = 1 << 20;

impl Serving {
    /// GPUs of the replica.
    #[must_use]
    pub fn gpus(&self) -> u32 {
        self.memory.gpus()
    }

    /// Blocks of the replica that can hold tokens, in the KV caches of all its ranks.
    #[must_use]
    pub fn usable_blocks(&self) -> Blocks {
        Blocks(self.memory.usable_blocks().0 * u64::from(self.data_parallel_size))
    }

    /// Reads the `engine` section.
    ///
    /// # Errors
    /// The first thing that is wrong; a model that does not fit comes with the arithmetic.
    pub fn read(document: &Document) -> Result<Self> {
        let needed = |key: &str| {
            let text = document.text(key)?;
            text.ok_or_else(|| document.at(key, Error::new("this key is needed")))
        };
        let at = |key: &'static str| move |error: Error| document.at(key, error);
        let model = document.path_beside(needed("engine.model")?, "engine.model");
        let (model, mut warnings) = models::resolve(&model).map_err(at("engine.model"))?;
        let gpu = gpus::find(&needed("engine.gpu")?).map_err(at("engine.gpu"))?;
        let request = memory_request(document, &model, gpu)?;
        let (tp, dp) = (request.tp, request.dp);
        warnings.extend(expert_parallel(document, &model, tp, dp)?);
        let memory = memory::plan(&request).map_err(|error| of_setting(document, error))?;
        let longest = model.max_context.max(1);
        let max_model_len = max_model_len(document, &model)?;
        if max_model_len.0 > longest {
            warnings.push(Warning(format!(
                "max_model_len {max_model_len} is longer than the {longest} tokens that {} was \
                 made for",
                model.name
            )));
        }
        memory.check_context(max_model_len).map_err(at("engine.max_model_len"))?;
        warnings.extend(memory.warnings.iter().cloned());
        let threshold = document.whole("engine.long_prefill_token_threshold", 0, MAX_TOKENS)?;
        let MemoryRequest { weights, kv_dtype, vllm, .. } = request;
        let (batched, seqs) = (request.max_num_batched_tokens, request.max_num_seqs);
        Ok(Self {
            gpu,
            tensor_parallel_size: tp,
            data_parallel_size: dp,
            weights,
            kv_dtype,
            memory,
            max_model_len,
            max_num_batched_tokens: batched,
            max_num_seqs: seqs,
            long_prefill_token_threshold: Tokens(threshold.unwrap_or(0)),
            enable_prefix_caching: document.flag("engine.enable_prefix_caching")?.unwrap_or(true),
            by_priority: document
                .choice("engine.scheduling_policy", &[("fcfs", false), ("priority", true)])?
                .unwrap_or(false),
            watermark: document.number("engine.watermark", 0.0, 0.5)?.unwrap_or(0.0),
            vllm,
            max_num_queued_reqs: document.whole("engine.max_num_queued_reqs", 1, MAX_SEQS)?,
            max_num_queued_tokens: document
                .whole("engine.max_num_queued_tokens", 1, 1 << 40)?
                .map(Tokens),
            async_scheduling: document.flag("engine.async_scheduling")?.unwrap_or(true),
            scheduler_reserve_full_isl: document
                .flag("engine.scheduler_reserve_full_isl")?
                .unwrap_or(true),
            warnings,
            notes: Vec::new(),
            model,
        })
    }
}

/// Whether experts are spread over the GPUs instead of cut: both take the same memory and are
/// priced alike. What to know of it.
fn expert_parallel(
    document: &Document,
    model: &ModelGeometry,
    tp: u32,
    dp: u32,
) -> Result<Option<Warning>> {
    const KEY: &str = "engine.enable_expert_parallel";
    if !document.flag(KEY)?.unwrap_or(false) {
        return Ok(None);
    }
    if model.moe.is_none() {
        let error = Error::found("true", format!("false, since {} has no experts", model.name));
        return Err(document.at(KEY, error));
    }
    Ok((tp > 1 && dp == 1).then(|| {
        Warning(format!(
            "expert parallelism on {tp} GPUs is priced as experts cut over them: measured pairs \
             differ by 1-2 % on 2 GPUs and by up to 19 % on 4"
        ))
    }))
}

/// What the `engine` section says of the memory of one replica.
///
/// # Errors
/// The first thing that is wrong.
pub fn memory_request<'a>(
    document: &Document,
    model: &'a ModelGeometry,
    gpu: &'a GpuSpec,
) -> Result<MemoryRequest<'a>> {
    let at = |key: &'static str| move |error: Error| document.at(key, error);
    let tp = document.whole("engine.tensor_parallel_size", 1, 1024)?.unwrap_or(1) as u32;
    let mut request = MemoryRequest::new(model, gpu, tp);
    request.dp = document.whole("engine.data_parallel_size", 1, 1024)?.unwrap_or(1) as u32;
    if let Some(text) = document.text("engine.quantization")? {
        request.weights = WeightPrecision::parse(&text).map_err(at("engine.quantization"))?;
    }
    if let Some(text) = document.text("engine.kv_cache_dtype")? {
        request.kv_dtype =
            KvDtype::parse(&text, model.dtype).map_err(at("engine.kv_cache_dtype"))?;
    }
    read_limits(document, &mut request)?;
    let started_with = max_model_len(document, model)?;
    if let Some(blocks) = log::read(document, model, request.block_size, started_with)? {
        request.num_gpu_blocks = Some(blocks);
    }
    Ok(request)
}

/// Prompt and output together: as given, else the longest the model was made for.
///
/// # Errors
/// A number out of range.
pub fn max_model_len(document: &Document, model: &ModelGeometry) -> Result<Tokens> {
    let given = document.whole("engine.max_model_len", 2, MAX_TOKENS)?;
    Ok(Tokens(given.unwrap_or(model.max_context.max(1))))
}

/// Gives an error of the memory plan, which names its own settings, a place in the scenario.
fn of_setting(document: &Document, error: Error) -> Error {
    let key = match error.place().field.as_deref() {
        Some("tp") => "engine.tensor_parallel_size".to_owned(),
        Some("dp") => "engine.data_parallel_size".to_owned(),
        Some(field) => format!("engine.{field}"),
        None => "engine.model".to_owned(),
    };
    document.at(&key, error.with_field(&key))
}

fn read_limits(document: &Document, request: &mut MemoryRequest<'_>) -> Result<()> {
    if let Some(share) = document.number("engine.gpu_memory_utilization", 0.01, 1.0)? {
        request.gpu_memory_utilization = share;
    }
    if let Some(tokens) = document.whole("engine.max_num_batched_tokens", 1, MAX_TOKENS)? {
        request.max_num_batched_tokens = Tokens(tokens);
    }
    // A step gives every running request a token at least: vLLM lowers its default to the budget
    // and refuses a larger number.
    let budget = request.max_num_batched_tokens.0;
    request.max_num_seqs = request.max_num_seqs.min(budget);
    if let Some(seqs) = document.whole("engine.max_num_seqs", 1, MAX_SEQS)? {
        if seqs > budget {
            let allowed = format!("at most max_num_batched_tokens, which is {budget}");
            return Err(document.at("engine.max_num_seqs", Error::found(seqs, allowed)));
        }
        request.max_num_seqs = seqs;
    }
    if let Some(version) = document.choice("engine.vllm_version", &VllmVersion::SCHEDULERS)? {
        request.vllm = version;
    }
    if let Some(tokens) = document.whole("engine.block_size", 1, 1024)? {
        request.block_size = tokens;
    }
    let blocks = document.whole("engine.num_gpu_blocks_override", 2, u64::from(u32::MAX) - 1)?;
    request.num_gpu_blocks = blocks.map(Blocks);
    Ok(())
}
