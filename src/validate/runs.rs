//! Tables of serving runs: what was served where, under which load, and the mean latencies.

use super::table::{Column, Row};
use crate::diag::{Error, Result};

/// Columns that a table of serving runs must have.
pub const NEEDED: &[Column] = &[
    ("gpu", "a GPU of the catalogue"),
    ("model", "a model of the catalogue"),
    ("precision", "of the weights: fp16, bf16, fp8, fp4, nvfp4, mxfp4, int4"),
    ("tp", "GPUs of the tensor-parallel group"),
    ("isl", "tokens of a prompt"),
    ("osl", "tokens of an answer"),
];

/// Columns that it may have.
pub const OPTIONAL: &[Column] = &[
    ("concurrency", "closed loop: requests in flight"),
    ("rate_rps", "open loop: requests a second, evenly spaced"),
    ("ttft_mean_ms", "measured: mean time to the first token"),
    ("itl_mean_ms", "measured: mean time per token after the first"),
    ("e2e_mean_ms", "measured: mean time of a request"),
    ("request_rate_rps", "measured: requests a second"),
    ("origin", "who measured; InferenceX, NVIDIA and BLIS have reading rules"),
    ("experiment", "name of the run"),
    ("engine", "vllm unless said"),
    ("engine_version", "version of the engine"),
    ("dp", "ranks of attention data parallelism; 1"),
    ("ep", "GPUs over which experts are spread; 1"),
    ("pp", "stages of pipeline parallelism; 1"),
    ("cached_prefix", "leading tokens of every prompt that are in the cache; 0"),
    ("max_batched_tokens", "--max-num-batched-tokens; vLLM's default for the GPU"),
    ("max_num_seqs", "--max-num-seqs; vLLM's default for the GPU"),
    ("kv_cache_dtype", "--kv-cache-dtype; auto"),
    ("num_gpu_blocks", "KV blocks from the engine's log; computed"),
    ("gpu_memory_utilization", "--gpu-memory-utilization; 0.9 before vLLM 0.21, then 0.92"),
    ("length_min_share", "shortest length as a share of isl and osl, uniform up to 1; 1"),
    ("requests", "requests of the run; 10 x concurrency, or 600 s of the rate"),
    ("distinct_prompts", "so many prompts take turns; every request has its own"),
    ("warmup_requests", "the first of these, left out of the means; 0"),
    ("concurrency_known", "0: the concurrency is not that of the client"),
    ("source", "where the row comes from"),
    ("measured", "when, as 2026-04-22"),
    ("note", "why the row is doubtful"),
    ("workload", "not used: name of the workload"),
    ("ttft_p90_ms", "not used"),
    ("ttft_p99_ms", "not used"),
    ("e2e_p90_ms", "not used"),
    ("e2e_p99_ms", "not used"),
    ("decode_seqs", "not used: derived"),
    ("decode_ctx_mean", "not used: derived"),
    ("prefill_tokens_per_step", "not used: derived"),
];

/// Largest number of a column that counts something.
const MAX_COUNT: u64 = 1 << 20;
/// Longest prompt or answer.
const MAX_TOKENS: u64 = 1 << 24;
/// Longest time, in milliseconds: a day.
const MAX_MS: f64 = 8.64e7;

/// The load of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Offered {
    /// Requests in flight.
    Concurrency(u64),
    /// Requests a second, evenly spaced.
    Rate(f64),
    /// Requests a second, each at a random time.
    Random(f64),
}

/// What was measured, or what came out of a simulation; times are means in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Latencies {
    /// Time to the first token.
    pub ttft_ms: Option<f64>,
    /// Time per token after the first.
    pub itl_ms: Option<f64>,
    /// Time of a request.
    pub e2e_ms: Option<f64>,
    /// Requests a second.
    pub rate_rps: Option<f64>,
}

/// One row.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    /// Its line in the file.
    pub line: u64,
    /// Who measured.
    pub origin: String,
    /// Its name.
    pub experiment: String,
    /// GPU, model and precision as written.
    pub gpu: String,
    /// See `gpu`.
    pub model: String,
    /// See `gpu`.
    pub precision: String,
    /// `vllm`, or another engine.
    pub engine: String,
    /// Its version, as written.
    pub engine_version: String,
    /// Tensor, data, expert and pipeline parallelism.
    pub tp: u32,
    /// See `tp`.
    pub dp: u32,
    /// See `tp`.
    pub ep: u32,
    /// See `tp`.
    pub pp: u32,
    /// Tokens of a prompt, nominal.
    pub isl: u64,
    /// Tokens of an answer, nominal.
    pub osl: u64,
    /// The load.
    pub offered: Offered,
    /// Leading tokens that are in the cache.
    pub cached_prefix: u64,
    /// Settings of the engine, where given.
    pub max_batched_tokens: Option<u64>,
    /// See `max_batched_tokens`.
    pub max_num_seqs: Option<u64>,
    /// See `max_batched_tokens`.
    pub kv_cache_dtype: Option<String>,
    /// See `max_batched_tokens`.
    pub num_gpu_blocks: Option<u64>,
    /// See `max_batched_tokens`.
    pub gpu_memory_utilization: Option<f64>,
    /// Shortest length over the nominal one, where given.
    pub length_min_share: Option<f64>,
    /// Requests of the run, where given.
    pub requests: Option<u64>,
    /// Prompts that take turns, where they do.
    pub distinct_prompts: Option<u64>,
    /// The first of them, left out of the means.
    pub warmup_requests: u64,
    /// Whether the concurrency is that of the client.
    pub concurrency_known: bool,
    /// Prompt and answer of every request, where they are known; else they are drawn.
    pub lengths: Vec<(u64, u64)>,
    /// Why the row is doubtful; empty if it is not.
    pub note: String,
    /// When it was measured, as written.
    pub measured_on: String,
    /// What was measured.
    pub measured: Latencies,
}

impl Run {
    /// Reads a row.
    ///
    /// # Errors
    /// A field that is not what its column holds.
    pub fn read(row: &Row<'_>) -> Result<Self> {
        let text = |name: &str| row.text(name).unwrap_or_default().to_owned();
        let count = |name: &str| row.whole(name, 1, MAX_COUNT);
        // Some sources write 0 where they mean that it is not used.
        let degree = |name: &str| {
            Ok::<u32, Error>(row.whole(name, 0, 1_024)?.filter(|d| *d > 0).unwrap_or(1) as u32)
        };
        let tokens = |name: &str| row.whole(name, 1, MAX_TOKENS);
        let ms = |name: &str| row.number(name, 1e-6, MAX_MS);
        let required = |name: &str, found: Option<u64>| {
            found.ok_or_else(|| row.at(name, Error::new("this field must not be empty")))
        };
        let measured = Latencies {
            ttft_ms: ms("ttft_mean_ms")?,
            itl_ms: ms("itl_mean_ms")?,
            e2e_ms: ms("e2e_mean_ms")?,
            rate_rps: row.number("request_rate_rps", 1e-9, 1e9)?,
        };
        if [measured.ttft_ms, measured.itl_ms, measured.e2e_ms].iter().all(Option::is_none) {
            let text = "ttft_mean_ms, itl_mean_ms and e2e_mean_ms are all empty: nothing to \
                        compare with";
            return Err(row.at("itl_mean_ms", Error::new(text)));
        }
        let isl = required("isl", tokens("isl")?)?;
        let cached_prefix = row.whole("cached_prefix", 0, MAX_TOKENS)?.unwrap_or(0);
        if cached_prefix > isl {
            let error = Error::found(cached_prefix, format!("at most isl, which is {isl}"));
            return Err(row.at("cached_prefix", error));
        }
        let dtype = row.text("kv_cache_dtype").map(str::to_owned);
        Ok(Self {
            line: row.line(),
            origin: text("origin"),
            experiment: text("experiment"),
            gpu: row.needed("gpu")?.to_owned(),
            model: row.needed("model")?.to_owned(),
            precision: text("precision"),
            engine: row.text("engine").unwrap_or("vllm").to_owned(),
            engine_version: text("engine_version"),
            tp: required("tp", row.whole("tp", 1, 1_024)?)? as u32,
            dp: degree("dp")?,
            ep: degree("ep")?,
            pp: degree("pp")?,
            isl,
            osl: required("osl", tokens("osl")?)?,
            offered: offered(row)?,
            cached_prefix,
            max_batched_tokens: tokens("max_batched_tokens")?,
            max_num_seqs: count("max_num_seqs")?,
            kv_cache_dtype: dtype,
            num_gpu_blocks: row.whole("num_gpu_blocks", 2, u64::from(u32::MAX) - 1)?,
            gpu_memory_utilization: row.number("gpu_memory_utilization", 0.01, 1.0)?,
            length_min_share: row.number("length_min_share", 0.01, 1.0)?,
            requests: count("requests")?,
            distinct_prompts: count("distinct_prompts")?,
            warmup_requests: row.whole("warmup_requests", 0, MAX_COUNT)?.unwrap_or(0),
            concurrency_known: row.whole("concurrency_known", 0, 1)? != Some(0),
            lengths: Vec::new(),
            note: text("note"),
            measured_on: text("measured"),
            measured,
        })
    }

    /// A run of which nothing is known yet but what serves: for those that come from elsewhere than
    /// a table of runs.
    #[must_use]
    pub fn bare(name: &str, gpu: &str, model: &str, precision: &str, tp: u32) -> Self {
        Self {
            line: 0,
            origin: String::new(),
            experiment: name.to_owned(),
            gpu: gpu.to_owned(),
            model: model.to_owned(),
            precision: precision.to_owned(),
            engine: "vllm".to_owned(),
            engine_version: String::new(),
            tp,
            dp: 1,
            ep: 1,
            pp: 1,
            isl: 1,
            osl: 1,
            offered: Offered::Concurrency(1),
            cached_prefix: 0,
            max_batched_tokens: None,
            max_num_seqs: None,
            kv_cache_dtype: None,
            num_gpu_blocks: None,
            gpu_memory_utilization: None,
            length_min_share: None,
            requests: None,
            distinct_prompts: None,
            warmup_requests: 0,
            concurrency_known: true,
            lengths: Vec::new(),
            note: String::new(),
            measured_on: String::new(),
            measured: Latencies::default(),
        }
    }

    /// Whether the row counts in figures of accuracy.
    #[must_use]
    pub fn is_doubtful(&self) -> bool {
        !self.note.is_empty()
    }
}

fn offered(row: &Row<'_>) -> Result<Offered> {
    let concurrency = row.whole("concurrency", 1, MAX_COUNT)?;
    let rate = row.number("rate_rps", 1e-6, 1e6)?;
    match (concurrency, rate) {
        (Some(concurrency), None) => Ok(Offered::Concurrency(concurrency)),
        (None, Some(rate)) => Ok(Offered::Rate(rate)),
        _ => {
            let text = "exactly one of concurrency and rate_rps is needed";
            Err(row.at("concurrency", Error::new(text)))
        }
    }
}
