//! Recordings of a real scheduler: a small workload and, step by step, what was decided for it.
//!
//! There is no time in a recording. `docs/engine.md` describes the form and how to record more.

use std::fs::File;
use std::io::Read;
use std::path::Path as FilePath;

use flate2::read::MultiGzDecoder;
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use crate::config::defaults::VllmVersion;
use crate::diag::{Error, Result};
use crate::engine::config::{EngineConfig, Policy, Pool};
use crate::engine::request::Request;
use crate::trace::lineage::Path;
use crate::trace::record::Finish;
use crate::units::{Blocks, RequestId, SegmentId, Tokens};

/// One recording.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Recording {
    /// What it is called.
    pub name: String,
    /// The scheduler's settings.
    pub config: RecordedConfig,
    /// The workload, in the order in which it was handed over.
    pub requests: Vec<RecordedRequest>,
    /// What was decided.
    pub expected: Expected,
}

/// The scheduler's settings, under vLLM's names.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct RecordedConfig {
    /// Tokens in a block.
    pub block_size: u64,
    /// Blocks, the null block among them.
    pub num_gpu_blocks: u64,
    /// Most requests in the running list.
    pub max_num_seqs: u64,
    /// Token budget of a step.
    pub max_num_batched_tokens: u64,
    /// Most tokens of one request in a step; 0: no such cap.
    pub long_prefill_token_threshold: u64,
    /// Whether there is a prefix cache.
    pub enable_prefix_caching: bool,
    /// `fcfs` or `priority`.
    pub policy: String,
    /// Most tokens of prompt and output together.
    pub max_model_len: u64,
    /// Fraction of the pool that an admission leaves free while others run.
    pub watermark: f64,
    /// Whether a request is admitted only if its whole present length fits.
    pub scheduler_reserve_full_isl: bool,
    /// Whether a batch is scheduled before the output of the one before it is taken in.
    pub async_scheduling: bool,
}

/// One request of the workload.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct RecordedRequest {
    /// Its position in the workload.
    pub id: u32,
    /// Handed over before this step's scheduling.
    pub arrival_step: u64,
    /// Leading parts of segments, joined: (segment, tokens).
    pub prompt: Vec<(u64, u64)>,
    /// The segment that its output is.
    pub out_seg: u64,
    /// Tokens that come out of it, unless the context's limit comes first.
    pub output_len: u64,
    /// How it ends.
    #[serde(default)]
    pub finish: RecordedFinish,
    /// Lower is served first, under `priority`.
    #[serde(default)]
    pub priority: i32,
}

/// How a request ends.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RecordedFinish {
    /// By a limit of tokens that the scheduler knows.
    #[default]
    Length,
    /// By a stop token that nobody foresees.
    Stop,
}

/// What was decided.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct Expected {
    /// Sums over the run.
    pub totals: serde_json::Map<String, serde_json::Value>,
    /// Requests that were left over.
    pub stuck: Vec<u32>,
    /// By request.
    pub requests: Vec<serde_json::Map<String, serde_json::Value>>,
    /// By step.
    pub steps: Vec<serde_json::Map<String, serde_json::Value>>,
}

impl RecordedRequest {
    /// Why it ended, given how many tokens came out.
    #[must_use]
    pub fn reason(&self, output_tokens: u64) -> &'static str {
        match self.finish {
            RecordedFinish::Stop if output_tokens == self.output_len => "stop",
            _ => "length",
        }
    }
}

impl Recording {
    /// Reads a recording, plain or gzipped.
    ///
    /// # Errors
    /// What is wrong with it, with the place where JSON has one.
    pub fn read(path: &FilePath) -> Result<Self> {
        let io = |error: std::io::Error| Error::io(path, "read the recording", &error);
        let mut bytes = Vec::new();
        File::open(path).and_then(|mut file| file.read_to_end(&mut bytes)).map_err(io)?;
        if bytes.starts_with(&[0x1f, 0x8b]) {
            let mut plain = Vec::new();
            MultiGzDecoder::new(bytes.as_slice()).read_to_end(&mut plain).map_err(io)?;
            bytes = plain;
        }
        let recording: Self = serde_json::from_slice(&bytes).map_err(|error| {
            Error::new(format!("no recording: {error}"))
                .in_file(path.display())
                .at_line(error.line() as u64)
                .at_column(error.column() as u64)
        })?;
        recording.check().map_err(|error| error.in_file(path.display()))?;
        Ok(recording)
    }

    fn check(&self) -> Result<()> {
        let config = &self.config;
        let sizes = [
            ("block_size", config.block_size),
            ("num_gpu_blocks", config.num_gpu_blocks),
            ("max_num_seqs", config.max_num_seqs),
            ("max_num_batched_tokens", config.max_num_batched_tokens),
            ("max_model_len", config.max_model_len),
        ];
        for (field, value) in sizes {
            if !(1..=1 << 30).contains(&value) {
                let error = Error::found(value, "an integer from 1 to 2^30");
                return Err(error.in_field(format!("config.{field}")));
            }
        }
        if !["fcfs", "priority"].contains(&config.policy.as_str()) {
            let error = Error::unknown("policy", &config.policy, ["fcfs", "priority"]);
            return Err(error.in_field("config.policy"));
        }
        let mut last_arrival = 0;
        for (position, request) in self.requests.iter().enumerate() {
            let wrong =
                |text: &str| Err(Error::new(text).in_field(format!("requests[{position}]")));
            let tokens: u64 = request.prompt.iter().map(|(_, n)| n).sum();
            if request.id as usize != position {
                return wrong("ids must be 0, 1, 2 and so on");
            }
            if request.arrival_step < last_arrival {
                return wrong("arrival_step goes back");
            }
            if tokens == 0 || request.output_len == 0 {
                return wrong("a request needs a prompt and an output");
            }
            last_arrival = request.arrival_step;
        }
        Ok(())
    }

    /// The engine that was recorded, by the rules of this version.
    #[must_use]
    pub fn engine(&self, vllm: VllmVersion) -> EngineConfig {
        let config = &self.config;
        EngineConfig {
            block_size: config.block_size,
            pool: Pool::Limited(Blocks(config.num_gpu_blocks)),
            window_blocks: Blocks::ZERO,
            max_num_seqs: config.max_num_seqs as usize,
            max_num_batched_tokens: Tokens(config.max_num_batched_tokens),
            long_prefill_token_threshold: Tokens(config.long_prefill_token_threshold),
            max_model_len: Tokens(config.max_model_len),
            enable_prefix_caching: config.enable_prefix_caching,
            policy: match config.policy.as_str() {
                "priority" => Policy::Priority,
                _ => Policy::Fcfs,
            },
            watermark: config.watermark,
            async_scheduling: config.async_scheduling,
            vllm,
            scheduler_reserve_full_isl: config.scheduler_reserve_full_isl,
        }
    }

    /// The requests with their content as paths in one tree.
    #[must_use]
    pub fn workload(&self) -> Vec<Request> {
        let mut tree = Tree::default();
        self.requests.iter().map(|request| tree.request(request)).collect()
    }
}

/// The tree of all contents: where two of them part, they get segments of their own.
#[derive(Default)]
struct Tree {
    /// By the segment before, how far it was taken, and the recorded segment that follows.
    children: FxHashMap<(Option<SegmentId>, Tokens, u64), SegmentId>,
}

impl Tree {
    fn request(&mut self, recorded: &RecordedRequest) -> Request {
        let mut path = Path::default();
        let mut before = None;
        let output = (recorded.out_seg, recorded.output_len);
        let mut prompt = Tokens::ZERO;
        for &(segment, tokens) in recorded.prompt.iter().chain([&output]) {
            if tokens == 0 {
                continue;
            }
            prompt = path.len();
            let next = SegmentId::from_index(self.children.len());
            // How far the last run went says where this one begins: at another place it is
            // another content.
            let at = (before, path.len(), segment);
            let own = *self.children.entry(at).or_insert(next);
            path.extend(own, path.len() + Tokens(tokens));
            before = Some(own);
        }
        Request {
            id: RequestId(recorded.id),
            prompt,
            path,
            output: Tokens(recorded.output_len),
            finish: match recorded.finish {
                RecordedFinish::Length => Finish::Length,
                RecordedFinish::Stop => Finish::Stop,
            },
            priority: recorded.priority,
        }
    }
}
