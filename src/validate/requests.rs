//! Logs of requests: real runs, request by request, sent again at the times at which the engine
//! got them.

use std::collections::BTreeMap;

use super::drive::{Ask, Pacing, Server, drive};
use super::rules::{Deployment, Host, version_of, weights_of};
use super::runs::{Latencies, Offered, Run};
use super::simulated::{Compared, Simulated, means};
use super::table::{Column, Row, Table};
use crate::config::api_time::ApiTime;
use crate::config::precision::KvDtype;
use crate::config::{gpus, models};
use crate::diag::{Error, Result};
use crate::engine::step_time::Factors;
use crate::units::{Span, Time, Tokens};

/// Columns that a log must have.
pub const NEEDED: &[Column] = &[
    ("run", "name of the run that the request belongs to"),
    ("gpu", "a GPU of the catalogue"),
    ("model", "a model of the catalogue"),
    ("precision", "of the weights: fp16, bf16, fp8, fp4, nvfp4, mxfp4, int4"),
    ("tp", "GPUs of the tensor-parallel group"),
    ("input_tokens", "tokens of the prompt"),
    ("output_tokens", "tokens of the answer"),
    ("queued_s", "when the engine got it, in seconds"),
    ("first_token_s", "when its first token came"),
    ("last_token_s", "when its last token came"),
];

/// Columns that it may have.
pub const OPTIONAL: &[Column] = &[
    ("dp", "ranks of attention data parallelism; 1"),
    ("ep", "GPUs over which experts are spread; 1"),
    ("max_num_seqs", "--max-num-seqs; vLLM's default for the GPU"),
    ("max_batched_tokens", "--max-num-batched-tokens; vLLM's default for the GPU"),
    ("engine_version", "version of vLLM; LLMServingSim's logs are of 0.19"),
    ("num_gpu_blocks", "KV blocks from the engine's log; computed"),
    ("kv_cache_dtype", "--kv-cache-dtype; auto"),
    ("gpu_memory_utilization", "--gpu-memory-utilization; 0.9 before vLLM 0.21, then 0.92"),
    ("source", "where the row comes from"),
    ("request_id", "not used"),
    ("arrival_s", "not used: when the client sent it"),
    ("scheduled_s", "not used"),
    ("ttft_ms", "not used: derived"),
    ("e2e_ms", "not used: derived"),
];

/// No host time around the engine.
const NO_API: ApiTime =
    ApiTime { request: Span::ZERO, prompt_token: Span::ZERO, output_token: Span::ZERO };
const MAX_TOKENS: u64 = 1 << 24;
/// A year in seconds: a longer time is a slip.
const MAX_SECONDS: f64 = 3.2e7;

/// One run of a log.
#[derive(Clone, Debug, PartialEq)]
pub struct Log {
    /// Set-up and means, as of a row of serving runs.
    pub head: Run,
    requests: Vec<Logged>,
}

/// One request of it; times in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Logged {
    prompt: Tokens,
    output: Tokens,
    queued: f64,
    first_token: f64,
    last_token: f64,
}

impl Logged {
    fn read(row: &Row<'_>) -> Result<Self> {
        let tokens = |name: &str| {
            let found = row.whole(name, 1, MAX_TOKENS)?;
            found.ok_or_else(|| row.at(name, Error::new("this field must not be empty")))
        };
        let seconds = |name: &str| {
            let found = row.number(name, 0.0, MAX_SECONDS)?;
            found.ok_or_else(|| row.at(name, Error::new("this field must not be empty")))
        };
        let logged = Self {
            prompt: Tokens(tokens("input_tokens")?),
            output: Tokens(tokens("output_tokens")?),
            queued: seconds("queued_s")?,
            first_token: seconds("first_token_s")?,
            last_token: seconds("last_token_s")?,
        };
        for (name, later, earlier) in [
            ("first_token_s", logged.first_token, logged.queued),
            ("last_token_s", logged.last_token, logged.first_token),
        ] {
            if later < earlier {
                let allowed = format!("a time from {earlier} on: things happen one by one");
                return Err(row.at(name, Error::found(later, allowed)));
            }
        }
        Ok(logged)
    }
}

/// The runs of a table, in the order of their first rows.
///
/// # Errors
/// A field that is not what its column holds, or a run whose rows do not agree on its set-up.
pub fn read(table: &Table) -> Result<Vec<Log>> {
    let mut logs: Vec<Log> = Vec::new();
    let mut known: BTreeMap<&str, usize> = BTreeMap::new();
    for row in table.rows() {
        let name = row.needed("run")?;
        let head = head(&row, name)?;
        let logged = Logged::read(&row)?;
        let at = *known.entry(name).or_insert(logs.len());
        if at == logs.len() {
            logs.push(Log { head: head.clone(), requests: Vec::new() });
        }
        let log = &mut logs[at];
        if (Run { line: log.head.line, ..head }) != log.head {
            let text = format!("this row has another set-up than line {}", log.head.line);
            return Err(row.at("run", Error::new(text)));
        }
        log.requests.push(logged);
    }
    logs.iter_mut().for_each(Log::complete);
    Ok(logs)
}

/// What a row says of its run.
fn head(row: &Row<'_>, name: &str) -> Result<Run> {
    let text = |name: &str| row.text(name).unwrap_or_default().to_owned();
    let degree = |name: &str| {
        Ok::<u32, Error>(row.whole(name, 0, 1_024)?.filter(|d| *d > 0).unwrap_or(1) as u32)
    };
    let of_llmservingsim = text("source").starts_with("LLMServingSim");
    let version = row.text("engine_version").unwrap_or(if of_llmservingsim { "0.19" } else { "" });
    let (gpu, model) = (row.needed("gpu")?, row.needed("model")?);
    Ok(Run {
        line: row.line(),
        origin: if of_llmservingsim { "LLMServingSim".to_owned() } else { String::new() },
        engine_version: version.to_owned(),
        dp: degree("dp")?,
        ep: degree("ep")?,
        offered: Offered::Rate(1.0),
        max_batched_tokens: row.whole("max_batched_tokens", 1, MAX_TOKENS)?,
        max_num_seqs: row.whole("max_num_seqs", 1, 1 << 20)?,
        kv_cache_dtype: row.text("kv_cache_dtype").map(str::to_owned),
        num_gpu_blocks: row.whole("num_gpu_blocks", 2, u64::from(u32::MAX) - 1)?,
        gpu_memory_utilization: row.number("gpu_memory_utilization", 0.01, 1.0)?,
        ..Run::bare(name, gpu, model, row.text("precision").unwrap_or_default(), degree("tp")?)
    })
}

impl Log {
    /// Puts the requests in order and fills in what only all of them together tell.
    fn complete(&mut self) {
        self.requests.sort_by(|a, b| a.queued.total_cmp(&b.queued));
        let count = self.requests.len() as f64;
        let mean = |value: fn(&Logged) -> f64| self.requests.iter().map(value).sum::<f64>() / count;
        let itl = |one: &Logged| {
            let gaps = one.output.0.saturating_sub(1);
            (gaps > 0).then(|| (one.last_token - one.first_token) / gaps as f64)
        };
        let gaps: Vec<f64> = self.requests.iter().filter_map(itl).collect();
        let first = self.requests.iter().map(|one| one.queued).fold(f64::INFINITY, f64::min);
        let last = self.requests.iter().map(|one| one.last_token).fold(0.0, f64::max);
        let sent = self.requests.iter().map(|one| one.queued).fold(0.0, f64::max);
        let head = &mut self.head;
        head.isl = mean(|one| one.prompt.as_f64()).round() as u64;
        head.osl = mean(|one| one.output.as_f64()).round() as u64;
        head.requests = Some(self.requests.len() as u64);
        head.offered = Offered::Rate(if sent > first { count / (sent - first) } else { count });
        head.measured = Latencies {
            ttft_ms: Some(mean(|one| one.first_token - one.queued) * 1e3),
            itl_ms: (!gaps.is_empty()).then(|| gaps.iter().sum::<f64>() / gaps.len() as f64 * 1e3),
            e2e_ms: Some(mean(|one| one.last_token - one.queued) * 1e3),
            rate_rps: (last > first).then(|| count / (last - first)),
        };
    }

    /// The server of the run. Times count from the engine's queue, so that the API has no part in
    /// them.
    ///
    /// # Errors
    /// Why the run cannot be simulated.
    pub fn server(&self, factors: Factors) -> Result<Server> {
        Ok(self.serving(factors)?.0)
    }

    fn serving(&self, factors: Factors) -> Result<(Server, Deployment)> {
        let head = &self.head;
        let model = models::find(&head.model)?;
        let gpu = gpus::find(&head.gpu)?;
        let kv_dtype = match &head.kv_cache_dtype {
            Some(text) => KvDtype::parse(text, model.dtype)?,
            None => KvDtype::of(model.dtype),
        };
        let longest = self.requests.iter().map(|one| one.prompt + one.output).max();
        let host = Host {
            model: &model,
            gpu,
            tp: head.tp,
            dp: head.dp,
            weights: weights_of(&head.precision, &model)?,
            kv_dtype,
            vllm: version_of(&head.engine_version),
            max_num_batched_tokens: head.max_batched_tokens,
            max_num_seqs: head.max_num_seqs,
            num_gpu_blocks: head.num_gpu_blocks,
            gpu_memory_utilization: head.gpu_memory_utilization,
            longest: longest.unwrap_or_default(),
            prefix_caching: true,
        };
        Ok((host.server(NO_API, Tokens::ZERO, factors)?, host.deployment()))
    }

    /// Sends the requests again.
    ///
    /// # Errors
    /// Why the run cannot be simulated.
    pub fn simulate(&self, factors: Factors) -> Result<Simulated> {
        let (server, deployment) = self.serving(factors)?;
        let (mut asks, mut times) = (Vec::new(), Vec::new());
        for (one, content) in self.requests.iter().zip(0u32..) {
            asks.push(Ask { prompt: one.prompt, output: one.output, content });
            times.push(Time::ZERO + Span::from_secs_f64(one.queued));
        }
        let driven = drive(&server, &asks, &Pacing::Open(times)).map_err(Error::new)?;
        Ok(Simulated { latencies: means(&driven.served), deployment })
    }

    /// The run beside its simulation.
    #[must_use]
    pub fn compare(&self, factors: Factors) -> Compared {
        let outcome = self.simulate(factors).map_err(|error| error.message().to_owned());
        Compared { run: self.head.clone(), outcome }
    }
}
