//! `tonnage step`: the time of one engine step, term by term.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::Outcome;
use super::scenario::show;
use crate::config::geometry::ModelGeometry;
use crate::config::gpus;
use crate::config::models;
use crate::config::precision::{KvDtype, WeightPrecision};
use crate::config::presets::Preset;
use crate::config::scenario::KEYS;
use crate::config::{serving, vllm_serve};
use crate::diag::{Error, Result, Warning};
use crate::document::Document;
use crate::engine::step_time::{StepCost, StepLoad, StepSetup, StepTime};

/// Sequences, prompt tokens and contexts beyond which a number is a slip.
const SEQS_MAX: u64 = 1 << 20;
const TOKENS_MAX: u64 = 1 << 24;
const CONTEXT_MAX: u64 = 1 << 32;
const PARTS_MAX: usize = 1 << 10;

/// Arguments of `tonnage step`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
A step computes one token for each decoding sequence and a chunk of some prompts. Its time is a \
closed formula over the data sheet with fitted constants; docs/timing.md gives it and says how \
far it was off.

  tonnage step --model Llama-3.1-70B --gpu h100 --tp 4 --decode 32x60000
  tonnage step --model Llama-3.1-70B --gpu h100 --tp 4 --decode 32x60000 --prefill 2048@40000
  tonnage step --model gpt-oss-120b --gpu b200 --decode 8x1000 --decode 1x120000

32x60000 are 32 sequences that attend to 60,000 tokens each; 2048@40000 are 2,048 prompt tokens \
behind 40,000 that are in the cache. A chunk completes its prompt, so that the step samples a \
token from it, unless a + follows: 2048@40000+.

With --dp the sequences are those of one rank, taken as the slowest: all ranks of a model with \
experts wait for it in every step.")]
pub struct Args {
    /// Model of the catalogue, or the path of a config.json
    #[arg(long, visible_alias = "config", required_unless_present = "vllm")]
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
        conflicts_with_all = ["model", "tp", "dp", "quantization", "kv_cache_dtype"]
    )]
    vllm: Option<String>,
    /// GPUs that share the model (tensor parallelism)
    #[arg(long, default_value_t = 1, value_name = "GPUS")]
    tp: u32,
    /// Ranks of data-parallel attention, each of --tp GPUs
    #[arg(long, default_value_t = 1, value_name = "RANKS")]
    dp: u32,
    /// Tokens that all other ranks compute in the step [default: each as many as this rank]
    #[arg(long, value_name = "TOKENS")]
    other_ranks: Option<u64>,
    /// Precision of the weights: bf16, fp8, nvfp4, mxfp4, int4 [default: the checkpoint's own]
    #[arg(long, value_name = "PRECISION")]
    quantization: Option<String>,
    /// Precision of the KV cache: auto (the model's 16-bit format), bf16, fp16, fp8
    #[arg(long, default_value = "auto", value_name = "DTYPE")]
    kv_cache_dtype: String,
    /// Decoding sequences and the context of each, such as 32x60000; may be repeated
    #[arg(long, value_name = "SEQSxCONTEXT")]
    decode: Vec<String>,
    /// A chunk of a prompt and the tokens before it, such as 2048@40000; may be repeated
    #[arg(long, value_name = "TOKENS@BEFORE")]
    prefill: Vec<String>,
    /// Print JSON, times in milliseconds
    #[arg(long)]
    json: bool,
}

/// Runs the command.
///
/// # Errors
/// An unknown name, a set-up that is not modelled, a step that cannot be read or is empty.
pub fn run(args: &Args) -> Result<Outcome> {
    let (document, notes) = document(args)?;
    let name = match document.text("engine.model")? {
        Some(name) => name,
        None => args.model.clone().unwrap_or_default(),
    };
    let (model, mut warnings) = models::resolve(&name)?;
    let setup = setup(args, &document, &model)?;
    let cost = StepCost::new(&setup)?;
    let load = load(args, setup.dp, &cost)?;
    warnings.extend(cost.warnings().iter().cloned());
    warnings.extend(too_long(&model, &load, args));
    let answer = Answer { setup: &setup, cost: &cost, load: &load, warnings: &warnings };
    show(|out| {
        if args.json {
            return writeln!(out, "{:#}", answer.as_json(&notes));
        }
        write!(out, "{}", answer.as_text())?;
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

fn setup<'a>(args: &Args, document: &Document, model: &'a ModelGeometry) -> Result<StepSetup<'a>> {
    let gpu = gpus::find(&args.gpu)?;
    if args.vllm.is_some() {
        let request = serving::memory_request(document, model, gpu)?;
        let (weights, kv_dtype) = (request.weights, request.kv_dtype);
        return Ok(StepSetup { model, gpu, tp: request.tp, dp: request.dp, weights, kv_dtype });
    }
    let weights = match &args.quantization {
        Some(name) => WeightPrecision::parse(name).map_err(|e| e.in_field("quantization"))?,
        None => model.quantization,
    };
    let kv_dtype = KvDtype::parse(&args.kv_cache_dtype, model.dtype)
        .map_err(|e| e.in_field("kv_cache_dtype"))?;
    Ok(StepSetup { model, gpu, tp: args.tp, dp: args.dp, weights, kv_dtype })
}

/// Two numbers with a sign between them; the second may be left out where `second` says what it is
/// then.
fn pair(text: &str, sign: char, second: Option<u64>) -> Option<(u64, u64)> {
    let (first, rest) = match text.split_once(sign) {
        Some((first, rest)) => (first, rest.parse().ok()?),
        None => (text, second?),
    };
    Some((first.parse().ok()?, rest))
}

fn within(option: &str, what: &str, found: u64, least: u64, most: u64) -> Result<()> {
    if (least..=most).contains(&found) {
        return Ok(());
    }
    Err(Error::found(found, format!("{least} to {most} {what}")).in_field(option))
}

fn load(args: &Args, dp: u32, cost: &StepCost) -> Result<StepLoad> {
    let mut load = cost.empty_load();
    for text in &args.decode {
        let (seqs, context) = pair(text, 'x', None).ok_or_else(|| {
            Error::found(text, "sequences x context of each, such as 32x60000").in_field("--decode")
        })?;
        within("--decode", "sequences", seqs, 1, SEQS_MAX)?;
        within("--decode", "tokens of context", context, 1, CONTEXT_MAX)?;
        let seen = load.window().map_or(context, |window| window.seen(context));
        load.add_decodes(seqs, seqs * context, seqs * seen);
    }
    for text in &args.prefill {
        let (chunk, emits) = match text.strip_suffix('+') {
            Some(chunk) => (chunk, false),
            None => (text.as_str(), true),
        };
        let (tokens, before) = pair(chunk, '@', Some(0)).ok_or_else(|| {
            Error::found(text, "tokens @ tokens before them, such as 2048@40000, or 2048")
                .in_field("--prefill")
        })?;
        within("--prefill", "prompt tokens", tokens, 1, TOKENS_MAX)?;
        within("--prefill", "tokens before them", before, 0, CONTEXT_MAX)?;
        load.add_prefill(before, tokens, emits);
    }
    let parts = args.decode.len() + args.prefill.len();
    if parts == 0 {
        return Err(Error::new("an empty step takes no time")
            .help("give --decode 32x60000, --prefill 2048@40000, or both"));
    }
    if parts > PARTS_MAX {
        return Err(Error::found(parts, format!("at most {PARTS_MAX} of --decode and --prefill")));
    }
    let others = match args.other_ranks {
        Some(tokens) if dp == 1 => {
            let error = Error::found(tokens, "no such option without --dp");
            return Err(error.in_field("--other-ranks"));
        }
        Some(tokens) => tokens,
        None => load.tokens() * u64::from(dp.max(1) - 1),
    };
    within("--other-ranks", "tokens", others, 0, SEQS_MAX * TOKENS_MAX)?;
    load.set_other_ranks(others);
    Ok(load)
}

fn too_long(model: &ModelGeometry, load: &StepLoad, args: &Args) -> Option<Warning> {
    let mean = load.decode_context().checked_div(load.decode_seqs()).unwrap_or(0);
    let chunks = args.prefill.iter().filter_map(|text| {
        pair(text.trim_end_matches('+'), '@', Some(0)).map(|(tokens, before)| tokens + before)
    });
    let longest = chunks.max().unwrap_or(0).max(mean);
    (longest > model.max_context).then(|| {
        Warning(format!(
            "{longest} tokens are more than the {} that {} was made for",
            model.max_context, model.name
        ))
    })
}

/// A part of a step's time, with the name of what bounds it.
struct Part {
    key: &'static str,
    name: &'static str,
    ms: f64,
}

/// The parts that add up to the step; reading weights and multiplying them overlap, so they are
/// one part, bounded by the larger.
fn parts(time: &StepTime) -> [Part; 6] {
    let part = |key, name, ms| Part { key, name, ms };
    let overlapped = time.weights_ms.hypot(time.gemm_ms);
    let (key, name) = if time.weights_ms >= time.gemm_ms {
        ("weights", "reading weights")
    } else {
        ("gemm", "multiplying weights")
    };
    [
        part(key, name, overlapped),
        part("kv", "reading the KV cache", time.kv_ms),
        part("prefill_attention", "attention of prefill", time.attention_ms),
        part("elementwise", "element-wise work", time.elementwise_ms),
        part("network", "the network", time.network_ms),
        part("host", "host and fixed time", time.host_ms),
    ]
}

struct Answer<'a> {
    setup: &'a StepSetup<'a>,
    cost: &'a StepCost,
    load: &'a StepLoad,
    warnings: &'a [Warning],
}

impl Answer<'_> {
    fn mean_context(&self) -> u64 {
        self.load.decode_context().checked_div(self.load.decode_seqs()).unwrap_or(0)
    }

    /// Tokens a second and user, if somebody decodes.
    fn per_user(&self, step_ms: f64) -> Option<f64> {
        (self.load.decode_seqs() > 0).then(|| 1e3 / step_ms)
    }

    /// Of each source of measurements, whether the step lies within it, and within what.
    fn ranges(&self) -> Vec<(&'static str, Option<(bool, String)>)> {
        [("serving", "serving runs"), ("tables", "kernel tables")]
            .map(|(source, name)| (name, self.range(self.cost.preset(), source)))
            .into()
    }

    fn range(&self, preset: &Preset, source: &str) -> Option<(bool, String)> {
        let range = preset.measured(source)?;
        let sizes = [
            ("sequences", self.load.decode_seqs(), range.decode_seqs_min, range.decode_seqs_max),
            ("tokens of context", self.mean_context(), range.context_min, range.context_max),
            (
                "prompt tokens",
                self.load.prefill_tokens(),
                range.prefill_tokens_min,
                range.prefill_tokens_max,
            ),
        ];
        // What a step has none of is not asked for.
        let inside = sizes
            .iter()
            .filter(|(_, found, _, _)| *found > 0)
            .all(|(_, found, least, most)| (least..=most).contains(&found));
        let spans: Vec<String> = sizes
            .iter()
            .map(|(what, _, least, most)| format!("{least} to {most} {what}"))
            .collect();
        Some((inside, spans.join(", ")))
    }

    fn as_json(&self, notes: &[String]) -> Value {
        let Self { setup, cost, load, warnings } = *self;
        let time = cost.cost(load);
        let (step, floor) = (time.total_ms(), cost.data_sheet_ms(load));
        let parts = parts(&time);
        let bound = parts.iter().max_by(|a, b| a.ms.total_cmp(&b.ms));
        let preset = cost.preset();
        let measured = self.ranges().into_iter().map(|(name, range)| {
            let (inside, span) = range.unzip();
            json!({"source": name, "inside": inside, "range": span})
        });
        json!({
            "model": setup.model.name,
            "gpu": setup.gpu.name,
            "tp": setup.tp,
            "dp": setup.dp,
            "in_lock_step": cost.in_lock_step(),
            "weights_precision": setup.weights.name(),
            "kv_cache_dtype": setup.kv_dtype.name(),
            "decode_seqs": load.decode_seqs(),
            "decode_context_tokens": load.decode_context(),
            "prefill_tokens": load.prefill_tokens(),
            "other_ranks_tokens": load.other_tokens(),
            "step_ms": step,
            "terms_ms": {
                "weights": time.weights_ms,
                "weights_of_experts": time.expert_weights_ms,
                "gemm": time.gemm_ms,
                "weights_and_gemm": time.weights_ms.hypot(time.gemm_ms),
                "kv": time.kv_ms,
                "prefill_attention": time.attention_ms,
                "elementwise": time.elementwise_ms,
                "network": time.network_ms,
                "host": time.host_ms,
            },
            "bound": bound.map(|part| part.key),
            "bound_share": bound.map(|part| part.ms / step),
            "data_sheet_ms": floor,
            "times_data_sheet": step / floor,
            "tokens_s_user": self.per_user(step),
            "prefill_tokens_s": load.prefill_tokens() as f64 * 1e3 / step,
            "preset": {
                "id": preset.id,
                "itl_error_pct": preset.itl_mape_pct,
                "left_out_itl_error_pct": preset.loo_itl_mape_pct,
                "basis": preset.basis,
                "measured": measured.collect::<Vec<_>>(),
            },
            "warnings": warnings.iter().map(|warning| warning.0.as_str()).collect::<Vec<_>>(),
            "notes": notes,
        })
    }

    fn as_text(&self) -> String {
        let mut out = String::new();
        self.head(&mut out);
        let time = self.cost.cost(self.load);
        let step = time.total_ms();
        let mut line = |name: &str, ms: f64, how: &str| {
            let share = 100.0 * ms / step;
            // Writing to a string cannot fail.
            let _ = writeln!(
                out,
                "{}",
                format!("  {name:<24}{ms:>10.3} ms{share:>7.1} %  {how}").trim_end()
            );
        };
        let overlap = format!(
            "W {:.3} and F {:.3} overlap: the root of the sum of squares",
            time.weights_ms, time.gemm_ms
        );
        line("weights", time.weights_ms.hypot(time.gemm_ms), &overlap);
        line("KV cache", time.kv_ms, "K, decode attention");
        line("prefill attention", time.attention_ms, "A");
        line("element-wise", time.elementwise_ms, "U");
        line("network", time.network_ms, "X");
        line("host and fixed", time.host_ms, "t0, layers, sequences");
        line("step", step, "");
        self.tail(&mut out, &time);
        out
    }

    fn head(&self, out: &mut String) {
        let Self { setup, load, .. } = self;
        let ranks = if setup.dp > 1 { format!("{} ranks of ", setup.dp) } else { String::new() };
        let _ = writeln!(
            out,
            "{} on {ranks}{} x {}: weights {}, KV cache {}",
            setup.model.name,
            setup.tp,
            setup.gpu.name,
            setup.weights.name(),
            setup.kv_dtype.name()
        );
        let mut work = Vec::new();
        if load.decode_seqs() > 0 {
            let mean = self.mean_context();
            work.push(format!("{} decodes at {mean} tokens of context each", load.decode_seqs()));
        }
        if load.prefill_tokens() > 0 {
            work.push(format!("{} prompt tokens", load.prefill_tokens()));
        }
        if load.other_tokens() > 0 {
            work.push(format!("{} tokens on the other ranks", load.other_tokens()));
        }
        let _ = writeln!(out, "One step: {}\n", work.join(", "));
    }

    fn tail(&self, out: &mut String, time: &StepTime) {
        let step = time.total_ms();
        if let Some(bound) = parts(time).iter().max_by(|a, b| a.ms.total_cmp(&b.ms)) {
            let share = 100.0 * bound.ms / step;
            let _ = writeln!(out, "\nBound: {}, {share:.1} % of the step", bound.name);
        }
        let floor = self.cost.data_sheet_ms(self.load);
        let above = step / floor;
        let _ = writeln!(
            out,
            "Data sheet: {floor:.3} ms at least; the step takes {above:.2} times that"
        );
        if let Some(rate) = self.per_user(step) {
            let _ = writeln!(out, "Speed: {rate:.1} tok/s for each user");
        }
        if self.load.prefill_tokens() > 0 {
            let rate = self.load.prefill_tokens() as f64 * 1e3 / step;
            let _ = writeln!(out, "Prefill: {rate:.0} tok/s");
        }
        let _ = writeln!(out, "Trust: {}", self.cost.preset());
        for (name, range) in self.ranges() {
            let text = match range {
                Some((true, span)) => format!("inside the {name}: {span}"),
                Some((false, span)) => format!("outside the {name}: {span}"),
                None => format!("no {name}"),
            };
            let _ = writeln!(out, "  {text}");
        }
        if !self.warnings.is_empty() {
            out.push_str("\nCheck before you trust this\n");
        }
        for warning in self.warnings {
            let _ = writeln!(out, "  - {warning}");
        }
    }
}
