//! The measured rows of the calibration folder, read by the rules that its README states.

use std::error::Error;
use std::path::Path;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use tonnage::config::gpus::{self, Arch, GpuSpec};
use tonnage::config::models;
use tonnage::config::precision::{KvDtype, WeightPrecision};
use tonnage::config::presets::{self, Preset};
use tonnage::validate::kernels::KERNEL_START_MS;

use super::terms::{Constants, Deployment, Kept, Terms, Work, load};

/// The mean inter-token latency of a serving run.
#[derive(Clone, Debug)]
pub struct Row {
    pub gpu: &'static GpuSpec,
    pub weights: WeightPrecision,
    pub model: String,
    pub moe: bool,
    /// How the model lies on its GPUs.
    pub layout: String,
    /// Nominal lengths, which with all of the above name a set-up.
    lengths: String,
    /// Whether the source says how many data-parallel ranks there were.
    pub states_ranks: bool,
    /// Measured milliseconds.
    pub measured: f64,
    /// Kinds of step with their shares.
    steps: Vec<(f64, Terms)>,
    /// What the fit keeps.
    pub kept: Kept,
    /// The composition of a step.
    pub work: Work,
}

impl Row {
    /// Predicted milliseconds.
    pub fn predicted(&self, constants: &Constants) -> f64 {
        let constants = constants.with(self.kept);
        self.steps.iter().map(|(share, terms)| share * terms.time(&constants)).sum()
    }

    /// The GPU and the weight format.
    pub fn cell(&self) -> (&'static str, &'static str) {
        (&self.gpu.preset, self.weights.name())
    }

    /// The share of the arithmetic peak that multiplying weights alone would need.
    pub fn peak_share(&self) -> f64 {
        self.steps.iter().map(|(share, terms)| share * terms.gemm).sum::<f64>() / self.measured
    }

    /// Whether both say something else of one set-up: fewer than half the sequences, but slower by
    /// a fifth.
    pub fn contradicts(&self, other: &Self) -> bool {
        let setup =
            |row: &Self| (row.cell(), row.model.clone(), row.layout.clone(), row.lengths.clone());
        let (few, many) =
            if self.work.decodes < other.work.decodes { (self, other) } else { (other, self) };
        2 * few.work.decodes <= many.work.decodes
            && few.measured > 1.2 * many.measured
            && setup(few) == setup(many)
    }
}

/// A step of a kernel table.
#[derive(Clone, Debug)]
pub struct TableStep {
    pub gpu: &'static GpuSpec,
    pub weights: WeightPrecision,
    pub model: String,
    pub work: Work,
    /// Measured attention over the formula's, for decodes.
    pub attention: Option<f64>,
    /// Measured milliseconds of all kernels, and the formula's terms.
    pub whole: Option<(f64, Terms)>,
    /// What the fit keeps.
    pub kept: Kept,
}

type Rows<T> = Result<Vec<T>, Box<dyn Error>>;

fn read<T: DeserializeOwned>(folder: &Path, name: &str) -> Rows<T> {
    let mut reader = csv::Reader::from_path(folder.join(name))?;
    Ok(reader.deserialize().collect::<Result<_, _>>()?)
}

fn precision(model: &str, text: &str) -> Option<WeightPrecision> {
    Some(match text {
        "fp16" | "bf16" => WeightPrecision::Bits16,
        "fp8" => WeightPrecision::Fp8,
        "fp4" if model.starts_with("gpt-oss") => WeightPrecision::Mxfp4,
        "fp4" => WeightPrecision::Nvfp4,
        _ => return None,
    })
}

#[derive(Debug, Deserialize)]
struct Serving {
    origin: String,
    gpu: String,
    model: String,
    precision: String,
    engine: String,
    tp: u32,
    dp: Option<f64>,
    ep: Option<f64>,
    isl: Option<f64>,
    osl: Option<f64>,
    concurrency: Option<f64>,
    rate_rps: Option<f64>,
    cached_prefix: Option<f64>,
    max_batched_tokens: Option<f64>,
    ttft_mean_ms: Option<f64>,
    itl_mean_ms: Option<f64>,
    e2e_mean_ms: Option<f64>,
    decode_seqs: Option<f64>,
    note: String,
}

/// Tokens of a step that vLLM's server takes by default on large and on small GPUs.
fn default_budget(gpu: &GpuSpec) -> f64 {
    if gpu.hbm_gb >= 70.0 && gpu.arch != Arch::Ampere { 8192.0 } else { 2048.0 }
}

/// Tokens of a block of the KV cache: the prefix cache holds whole blocks, and never the last token
/// of a prompt.
const BLOCK: f64 = 16.0;

/// What a source's client does, where the columns of its rows do not say: the same reading as that
/// of `tonnage validate`.
#[derive(Clone, Copy, Debug)]
struct Reading {
    /// Mean inter-token latency in ms.
    itl: f64,
    /// Decoding sequences of a step.
    decodes: f64,
    /// Mean tokens of a prompt and of an answer.
    input: f64,
    output: f64,
    /// Leading tokens of a prompt that are in the cache.
    cached: f64,
}

impl Reading {
    /// Prompt tokens of a step: those not in the cache, as often as sequences end.
    fn prompt(&self) -> f64 {
        self.decodes * self.rest() / (self.output - 1.0)
    }

    /// Mean context of a decoding sequence.
    fn context(&self) -> f64 {
        self.input + self.output / 2.0
    }

    /// Tokens of a prompt that are not in the cache.
    fn rest(&self) -> f64 {
        (self.input - self.cached).max(1.0)
    }
}

impl Serving {
    fn reading(&self) -> Option<Reading> {
        let (input, output) = (self.isl?, self.osl?);
        match (self.origin.as_str(), self.concurrency) {
            // Lengths are uniform from 0.8 to 1 times the nominal ones, the prefix cache is off.
            ("InferenceX", Some(clients)) => {
                let (input, output, itl) = (0.9 * input, 0.9 * output, self.itl_mean_ms?);
                let decoding = (output - 1.0) * itl;
                let decodes = clients * decoding / (self.ttft_mean_ms? + decoding);
                Some(Reading { itl, decodes, input, output, cached: 0.0 })
            }
            // 100 prompts take turns at a constant rate, so each is in the cache as a whole; the
            // column of the latency is E2E by tokens counted in the text.
            ("BLIS", _) => {
                let decoding = self.e2e_mean_ms? - self.ttft_mean_ms?;
                let decodes = self.rate_rps? * decoding / 1e3;
                let cached = ((input - 1.0) / BLOCK).floor() * BLOCK;
                let itl = decoding / (output - 1.0);
                Some(Reading { itl, decodes, input, output, cached })
            }
            _ => {
                let (itl, decodes) = (self.itl_mean_ms?, self.decode_seqs?);
                let cached = self.cached_prefix.unwrap_or(0.0);
                Some(Reading { itl, decodes, input, output, cached })
            }
        }
    }

    fn row(&self, neutral: &'static Preset) -> Option<Row> {
        let weights = precision(&self.model, &self.precision)?;
        let gpu = gpus::find(&self.gpu).ok()?;
        let model = models::find(&self.model).ok()?;
        let kv_dtype = match gpu.arch {
            Arch::Blackwell => KvDtype::Fp8,
            _ => KvDtype::of(model.dtype),
        };
        let deployment = Deployment { model, gpu, tp: self.tp, weights, kv_dtype };
        let bare = deployment.cost(neutral)?;
        let used = deployment.cost(presets::lookup(gpu, weights))?;
        let reading = self.reading()?;
        let Reading { itl, decodes, cached, .. } = reading;
        let (prompt, whole) = (reading.prompt(), reading.rest());
        let budget = match self.max_batched_tokens {
            Some(tokens) => tokens,
            None if self.model.starts_with("MiniMax") && gpu.arch == Arch::Blackwell => {
                2.0 * self.isl?
            }
            None => default_budget(gpu),
        };
        // Most steps only decode; prompts come whole, as far as the budget allows.
        let chunk = whole.max(prompt).min((budget - decodes).max(1.0));
        let share = (prompt / chunk).min(1.0);
        let decoding =
            Work { decodes: round(decodes), context: round(reading.context()), ..Work::default() };
        let both = Work {
            chunk: round(chunk),
            before: round(cached + (whole - chunk).max(0.0) / 2.0) - 1,
            ..decoding
        };
        let steps = vec![
            (1.0 - share, deployment.terms(&bare, &used, &decoding)),
            (share, deployment.terms(&bare, &used, &both)),
        ];
        Some(Row {
            gpu,
            weights,
            moe: deployment.model.moe.is_some(),
            model: deployment.model.name,
            layout: format!("tp{} ep{}", self.tp, self.ep.unwrap_or(1.0)),
            lengths: format!("{:?} {:?} {}", self.isl, self.osl, self.origin),
            states_ranks: self.dp.is_some(),
            measured: itl,
            steps,
            kept: kept(presets::lookup(gpu, weights)),
            work: both,
        })
    }
}

/// What the fit keeps of a preset: the efficiency of multiplying weights where kernel tables tell
/// it, and at 16 bits that of the link, because no prompt of those runs is prefilled: they send too
/// little for the link to matter.
pub fn kept(preset: &Preset) -> Kept {
    let told = preset.n_kernel_steps > 0;
    let of_all = presets::all().iter().find(|other| other.id == "joint/16").unwrap_or(preset);
    let e_n = if told { preset.e_n } else { of_all.e_n };
    Kept { e_c: told.then_some(preset.e_c), e_n: (preset.weight_bits == 16).then_some(e_n) }
}

/// A mean count, at least 1.
fn round(mean: f64) -> u64 {
    mean.round().max(1.0) as u64
}

#[derive(Debug, Deserialize)]
struct KernelStep {
    model: String,
    system: String,
    kv_dtype: String,
    tp: u32,
    kind: String,
    new_tokens: u64,
    past_tokens: u64,
    batch: u64,
    context: u64,
    attn_ms: f64,
    step_ms: f64,
}

impl KernelStep {
    fn step(&self, neutral: &'static Preset) -> Option<TableStep> {
        let (name, text) = self.model.rsplit_once('-')?;
        let weights = precision(name, if text == "mxfp4" { "fp4" } else { text })?;
        let (gpu, model) = (gpus::find(&self.system).ok()?, models::find(name).ok()?);
        let kv_dtype = if self.kv_dtype == "fp8" { KvDtype::Fp8 } else { KvDtype::Bf16 };
        let deployment = Deployment { model, gpu, tp: self.tp, weights, kv_dtype };
        let prefills = self.kind != "decode";
        let work = Work {
            decodes: if self.kind == "prefill" { 0 } else { self.batch },
            context: self.context,
            chunk: if prefills { self.new_tokens } else { 0 },
            before: if prefills { self.past_tokens } else { 0 },
        };
        let preset = presets::lookup(gpu, weights);
        let cost = deployment.cost(preset)?;
        let terms = deployment.terms(&deployment.cost(neutral)?, &cost, &work);
        let kv_ms = cost.cost(&load(&cost, &work)).kv_ms;
        let start = KERNEL_START_MS * deployment.model.layers as f64;
        Some(TableStep {
            gpu,
            weights,
            model: deployment.model.name,
            work,
            attention: (!prefills).then(|| (kv_ms + start) / self.attn_ms),
            whole: Some((self.step_ms, terms)),
            kept: kept(preset),
        })
    }
}

#[derive(Debug, Deserialize)]
struct Composed {
    gpu: String,
    model: String,
    precision: String,
    decode_seqs: u64,
    decode_ctx_mean: u64,
    prefill_tokens: u64,
    prefill_ctx: u64,
}

impl Composed {
    fn step(&self) -> Option<TableStep> {
        let model = models::find(&self.model).ok()?;
        Some(TableStep {
            gpu: gpus::find(&self.gpu).ok()?,
            weights: precision(&self.model, &self.precision)?,
            model: model.name,
            work: Work {
                decodes: self.decode_seqs,
                context: self.decode_ctx_mean,
                chunk: self.prefill_tokens,
                before: self.prefill_ctx,
            },
            attention: None,
            whole: None,
            kept: Kept::default(),
        })
    }
}

/// The serving runs of vLLM that have no note. More than one data-parallel rank: the columns of
/// these rows cannot be read reliably.
pub fn serving(folder: &Path, neutral: &'static Preset) -> Rows<Row> {
    let runs: Vec<Serving> = read(folder, "serving_runs.csv")?;
    let counted = runs
        .iter()
        .filter(|run| run.engine == "vllm" && run.note.is_empty() && run.dp.unwrap_or(1.0) == 1.0);
    Ok(counted.filter_map(|run| run.row(neutral)).collect())
}

/// The steps of the kernel tables.
pub fn tables(folder: &Path, neutral: &'static Preset) -> Rows<TableStep> {
    let kernel: Vec<KernelStep> = read(folder, "kernel_model_steps.csv")?;
    let composed: Vec<Composed> = read(folder, "steps_composed.csv")?;
    let steps = kernel.iter().filter_map(|step| step.step(neutral));
    Ok(steps.chain(composed.iter().filter_map(Composed::step)).collect())
}
