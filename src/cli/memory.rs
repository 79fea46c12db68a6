//! `tonnage memory`: the memory of one replica with its arithmetic.

use std::fmt::Write as _;

use serde_json::json;

use super::Outcome;
use super::scenario::show;
use crate::config::defaults::{self, VllmVersion};
use crate::config::geometry::{Attention, ModelGeometry};
use crate::config::gpus::{self, GpuSpec};
use crate::config::memory::{self, MemoryPlan, MemoryRequest};
use crate::config::models;
use crate::config::precision::{KvDtype, WeightPrecision};
use crate::config::scenario::KEYS;
use crate::config::{serving, vllm_serve};
use crate::diag::{Error, Result, Warning};
use crate::document::Document;
use crate::units::{Blocks, Bytes, Tokens};

/// Arguments of `tonnage memory`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
KV bytes of a token are 2 x layers x KV heads x head width x bytes, with the KV heads that the \
model's own config.json has. A published worked example takes 8 KV heads for Qwen3-Coder-30B-A3B \
and gets 12.0 GiB for 131,072 tokens in FP8; the model has 4, and needs 6.0 GiB.

1 GiB is 2^30 bytes, 1 GB is 10^9 bytes; both are printed.")]
pub struct Args {
    /// Model of the catalogue, or the path of a config.json
    #[arg(long, required_unless_present = "vllm")]
    model: Option<String>,
    /// GPU of the catalogue, for example h100-sxm
    #[arg(long)]
    gpu: String,
    /// The engine as a real command line, "vllm serve MODEL --flag ...", in place of the options
    /// that are its flags
    #[arg(
        long,
        value_name = "COMMAND",
        allow_hyphen_values = true,
        conflicts_with_all = [
            "model", "tp", "dp", "quantization", "kv_cache_dtype", "gpu_memory_utilization",
            "max_num_batched_tokens", "max_num_seqs", "block_size", "num_gpu_blocks_override",
        ]
    )]
    vllm: Option<String>,
    /// The line of vLLM's log that gives the size of the KV cache, such as
    /// "GPU KV cache size: 1,391,552 tokens"
    #[arg(long, value_name = "LINE", conflicts_with = "num_gpu_blocks_override")]
    vllm_log: Option<String>,
    /// GPUs that share the model (tensor parallelism)
    #[arg(long, default_value_t = 1, value_name = "GPUS")]
    tp: u32,
    /// Ranks of data-parallel attention, each of --tp GPUs, which share the experts
    #[arg(long, default_value_t = 1, value_name = "RANKS")]
    dp: u32,
    /// Precision of the weights: bf16, fp8, nvfp4, mxfp4, int4 [default: the checkpoint's own]
    #[arg(long, value_name = "PRECISION")]
    quantization: Option<String>,
    /// Precision of the KV cache: auto (the model's 16-bit format), bf16, fp16, fp8
    #[arg(long, default_value = "auto", value_name = "DTYPE")]
    kv_cache_dtype: String,
    /// Tokens of a sequence [default: the longest the model was made for]
    #[arg(long, value_name = "TOKENS")]
    context: Option<u64>,
    /// Share of the GPU's memory that vLLM may use
    #[arg(long, default_value_t = defaults::GPU_MEMORY_UTILIZATION, value_name = "SHARE")]
    gpu_memory_utilization: f64,
    /// Most tokens of a step [default: vLLM's for the GPU]
    #[arg(long, value_name = "TOKENS")]
    max_num_batched_tokens: Option<u64>,
    /// Most sequences that run at once [default: vLLM's for the GPU]
    #[arg(long, value_name = "SEQS")]
    max_num_seqs: Option<u64>,
    /// Tokens of a KV-cache block
    #[arg(long, default_value_t = defaults::BLOCK_SIZE, value_name = "TOKENS")]
    block_size: u64,
    /// Number of blocks from the engine's log; wins over the computed one
    #[arg(long, value_name = "BLOCKS")]
    num_gpu_blocks_override: Option<u64>,
    /// Weights of one GPU in GiB from the engine's log, instead of the computed ones
    #[arg(long, value_name = "GIB")]
    weights_gib: Option<f64>,
    /// Version of vLLM; up to 0.20 nothing is set aside for CUDA graphs
    #[arg(long, default_value_t = VllmVersion::default().to_string(), value_name = "VERSION")]
    vllm_version: String,
    /// Print JSON, sizes in bytes
    #[arg(long)]
    json: bool,
}

/// Runs the command.
///
/// # Errors
/// An unknown name, a setting out of range, or a model or context that does not fit.
pub fn run(args: &Args) -> Result<Outcome> {
    let (document, notes) = document(args)?;
    let name = match document.text("engine.model")? {
        Some(name) => name,
        None => args.model.clone().unwrap_or_default(),
    };
    let (model, mut warnings) = models::resolve(&name)?;
    let gpu = gpus::find(&args.gpu)?;
    let request = request(args, &document, &model, gpu)?;
    let plan = memory::plan(&request)?;
    let context = Tokens(match args.context {
        Some(0) => return Err(Error::found(0, "an integer from 1").in_field("context")),
        Some(context) => context,
        None => serving::max_model_len(&document, &model)?.0,
    });
    plan.check_context(context)?;
    warnings.extend(plan.warnings.iter().cloned());
    show(|out| {
        if args.json {
            return writeln!(out, "{:#}", as_json(&request, &plan, context, &warnings, &notes));
        }
        write!(out, "{}", as_text(&request, &plan, context, &warnings))?;
        notes.iter().try_for_each(|note| writeln!(out, "note: {note}"))
    })?;
    Ok(Outcome::Met)
}

/// What a command line says, and what became of it; empty without one.
fn document(args: &Args) -> Result<(Document, Vec<String>)> {
    let mut document = Document::default().with_own_options(vllm_serve::OPTIONS);
    let Some(line) = &args.vllm else { return Ok((document, Vec::new())) };
    let known: Vec<&str> = KEYS.iter().map(|(key, _)| *key).collect();
    document.set(&vllm_serve::assignment(vllm_serve::KEY, line), &known)?;
    document.set(&vllm_serve::assignment("engine.gpu", &args.gpu), &known)?;
    let notes = vllm_serve::apply(&mut document, &[])?;
    Ok((document, notes))
}

fn request<'a>(
    args: &Args,
    document: &Document,
    model: &'a ModelGeometry,
    gpu: &'a GpuSpec,
) -> Result<MemoryRequest<'a>> {
    let mut request = if args.vllm.is_some() {
        serving::memory_request(document, model, gpu)?
    } else {
        own_request(args, model, gpu)?
    };
    if let Some(line) = &args.vllm_log {
        let started_with = serving::max_model_len(document, model)?;
        let blocks = vllm_serve::log::blocks(line, model, request.block_size, started_with);
        request.num_gpu_blocks = Some(blocks.map_err(|error| error.in_field("--vllm-log"))?);
    }
    request.vllm = VllmVersion::parse(&args.vllm_version)?;
    request.weights_logged = match args.weights_gib {
        Some(gib) if gib > 0.0 && gib < 1e5 => Some(Bytes((gib * (1u64 << 30) as f64) as u64)),
        Some(gib) => {
            return Err(Error::found(gib, "a size in GiB above 0").in_field("weights_gib"));
        }
        None => None,
    };
    Ok(request)
}

/// The request of the command's own options.
fn own_request<'a>(
    args: &Args,
    model: &'a ModelGeometry,
    gpu: &'a GpuSpec,
) -> Result<MemoryRequest<'a>> {
    let mut request = MemoryRequest::new(model, gpu, args.tp);
    request.dp = args.dp;
    if let Some(name) = &args.quantization {
        request.weights = WeightPrecision::parse(name).map_err(|e| e.in_field("quantization"))?;
    }
    request.kv_dtype = KvDtype::parse(&args.kv_cache_dtype, model.dtype)
        .map_err(|e| e.in_field("kv_cache_dtype"))?;
    request.gpu_memory_utilization = args.gpu_memory_utilization;
    if let Some(tokens) = args.max_num_batched_tokens {
        request.max_num_batched_tokens = Tokens(tokens);
    }
    request.max_num_seqs = args.max_num_seqs.unwrap_or(request.max_num_seqs);
    request.block_size = args.block_size;
    request.num_gpu_blocks = args.num_gpu_blocks_override.map(Blocks);
    Ok(request)
}

fn as_json(
    request: &MemoryRequest,
    plan: &MemoryPlan,
    context: Tokens,
    warnings: &[Warning],
    notes: &[String],
) -> serde_json::Value {
    let reserve = &plan.reserve;
    let mut value = json!({
        "model": request.model.name,
        "gpu": request.gpu.name,
        "tp": plan.tp,
        "weights_precision": request.weights.name(),
        "kv_cache_dtype": request.kv_dtype.name(),
        "vllm_version": request.vllm.to_string(),
        "gpu_memory_utilization": request.gpu_memory_utilization,
        "max_num_batched_tokens": request.max_num_batched_tokens.0,
        "max_num_seqs": request.max_num_seqs,
        "block_size_tokens": plan.block_size,
        "per_gpu_bytes": {
            "device": plan.device.0,
            "budget": plan.budget.0,
            "weights": plan.weights.0,
            "reserve": reserve.total().0,
            "reserve_runtime": reserve.runtime.0,
            "reserve_collectives": reserve.collectives.0,
            "reserve_sampler": reserve.sampler.0,
            "reserve_activations": reserve.activations.0,
            "reserve_cuda_graphs": reserve.cuda_graphs.0,
            "pool": plan.pool.map(|pool| pool.0),
            "kv_per_token": plan.kv_per_token_gpu.0,
        },
        "kv_per_token_bytes": plan.kv_per_token.0,
        "num_gpu_blocks_computed": plan.blocks_computed.map(|blocks| blocks.0),
        "num_gpu_blocks": plan.num_gpu_blocks.0,
        "usable_blocks": plan.usable_blocks().0,
        "window_blocks_per_sequence": plan.window_blocks.0,
        "max_model_len_tokens": plan.max_model_len().0,
        "context_tokens": context.0,
        "sequence_bytes": plan.sequence_bytes(context).0,
        "sequence_blocks": plan.sequence_blocks(context).0,
        "sequences_that_fit": plan.sequences_that_fit(context),
        "warnings": warnings.iter().map(|warning| warning.0.as_str()).collect::<Vec<_>>(),
        "notes": notes,
    });
    if plan.dp > 1 {
        value["dp"] = json!(plan.dp);
        value["gpus"] = json!(plan.gpus());
    }
    value
}

/// One line: name, size in both units, how it comes about.
fn line(out: &mut String, name: &str, bytes: Bytes, how: &str) {
    let sizes = format!("{:>9.2} GiB {:>9.2} GB", bytes.gib(), bytes.gb());
    // Writing to a string cannot fail.
    let _ = writeln!(out, "{}", format!("  {name:<16}{sizes}  {how}").trim_end());
}

/// One line: name, count, how it comes about.
fn count(out: &mut String, name: &str, number: u64, how: &str) {
    let row = format!("  {name:<27}{:>15}  {how}", grouped(number));
    let _ = writeln!(out, "{}", row.trim_end());
}

fn as_text(
    request: &MemoryRequest,
    plan: &MemoryPlan,
    context: Tokens,
    warnings: &[Warning],
) -> String {
    let mut out = String::new();
    let ranks = if plan.dp > 1 { format!("{} ranks of ", plan.dp) } else { String::new() };
    let _ = writeln!(
        out,
        "{} on {ranks}{} x {}: weights {}, KV cache {}, vLLM {}\n\nOne GPU",
        request.model.name,
        plan.tp,
        request.gpu.name,
        request.weights.name(),
        request.kv_dtype.name(),
        request.vllm
    );
    gpu_lines(&mut out, request, plan);
    kv_lines(&mut out, request, plan, context);
    if !warnings.is_empty() {
        let _ = writeln!(out, "\nCheck before you trust this");
    }
    for warning in warnings {
        let _ = writeln!(out, "  - {warning}");
    }
    out
}

fn gpu_lines(out: &mut String, request: &MemoryRequest, plan: &MemoryPlan) {
    let reserve = &plan.reserve;
    let how = match request.gpu.hbm_mib {
        Some(mib) => format!("{} MiB ({})", grouped(mib), request.gpu.hbm_mib_source),
        None => format!("{} GB as sold", request.gpu.hbm_gb),
    };
    line(out, "device", plan.device, &how);
    let share = request.gpu_memory_utilization;
    line(out, "budget", plan.budget, &format!("{share} x (device - 0.50 GiB)"));
    let how = match request.weights_logged {
        Some(_) => "as given".to_owned(),
        None => weights_how(request),
    };
    line(out, "weights", plan.weights, &how);
    let peak = if reserve.sampler > reserve.activations {
        format!("sampler {:.2} (20 B x max_num_seqs x vocabulary)", reserve.sampler.gib())
    } else {
        format!("activations of the largest step {:.2}", reserve.activations.gib())
    };
    let how = format!(
        "GiB: runtime {:.2}, collectives {:.2}, {peak}, CUDA graphs {:.2}",
        reserve.runtime.gib(),
        reserve.collectives.gib(),
        reserve.cuda_graphs.gib()
    );
    line(out, "reserve", reserve.total(), &how);
    match plan.pool {
        Some(pool) => line(out, "KV-cache pool", pool, "budget - weights - reserve"),
        None => out.push_str("  KV-cache pool   none: weights and reserve exceed the budget\n"),
    }
}

/// How the weights come about.
fn weights_how(request: &MemoryRequest) -> String {
    let MemoryRequest { model, weights, tp, dp, .. } = *request;
    let bytes = weights.bytes();
    let each = if weights == WeightPrecision::Bits16 {
        format!("{bytes} B each")
    } else if weights.other_bytes(model.moe.is_some()) == bytes {
        format!("{bytes} B each, embedding and output layer 2 B")
    } else {
        format!("{bytes} B each in routed experts, 2 B elsewhere")
    };
    let share = match (tp, dp) {
        (1, 1) => String::new(),
        (_, 1) => format!(", 1/{tp} on each GPU"),
        (1, _) => format!(", of the experts 1/{dp} on each GPU"),
        _ => format!(", 1/{tp} on each GPU, of the experts 1/{}", tp * dp),
    };
    format!("{:.2} billion weights{share}, {each}", model.total_params() as f64 / 1e9)
}

fn kv_lines(out: &mut String, request: &MemoryRequest, plan: &MemoryPlan, context: Tokens) {
    let model = request.model;
    let bytes = request.kv_dtype.bytes();
    out.push_str("\nKV cache\n");
    let how = match model.attention {
        Attention::Grouped { kv_heads, head_dim } => format!(
            "= 2 x {} layers x {kv_heads} KV heads x {head_dim} x {bytes} B ({:.4} MiB)",
            model.layers,
            plan.kv_per_token.as_f64() / f64::from(1 << 20)
        ),
        Attention::Latent { kv_lora_rank, qk_rope_head_dim, .. } => format!(
            "= {} layers x ({kv_lora_rank} + {qk_rope_head_dim}) x {bytes} B ({:.4} MiB), whole \
             on every GPU",
            model.layers,
            plan.kv_per_token.as_f64() / f64::from(1 << 20)
        ),
    };
    count(out, "bytes of a token", plan.kv_per_token.0, &how);
    let what = if plan.window_blocks > Blocks::ZERO { "in full-attention layers" } else { "" };
    count(out, "bytes of it on each GPU", plan.kv_per_token_gpu.0, what);
    let how = match (request.num_gpu_blocks, plan.blocks_computed) {
        (Some(_), Some(computed)) => format!("as given; computed {}", grouped(computed.0)),
        (Some(_), None) => "as given".to_owned(),
        _ => format!(
            "pool / ({} tokens x {} B), one of them the null block",
            plan.block_size,
            grouped(plan.kv_per_token_gpu.0)
        ),
    };
    count(out, "num_gpu_blocks", plan.num_gpu_blocks.0, &how);
    let tokens = plan.usable_blocks().tokens(plan.block_size).0;
    count(out, "tokens they hold", tokens, &format!("{} usable", grouped(plan.usable_blocks().0)));
    if plan.window_blocks > Blocks::ZERO {
        let how = "for the layers with a sliding window";
        count(out, "blocks a running sequence", plan.window_blocks.0, how);
    }
    count(out, "largest max_model_len", plan.max_model_len().0, "tokens");

    let _ = writeln!(out, "\nSequences of {} tokens", grouped(context.0));
    line(out, "KV of one", plan.sequence_bytes(context), "every layer and head once");
    count(out, "blocks of one", plan.sequence_blocks(context).0, "");
    let how = match plan.dp {
        1 => "at once, without sharing a prefix",
        _ => "at once on each rank, without sharing a prefix",
    };
    count(out, "sequences that fit", plan.sequences_that_fit(context), how);
}

/// `1234567` as `1,234,567`.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}
