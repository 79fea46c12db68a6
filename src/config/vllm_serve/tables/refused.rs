//! Flags that change scheduling, memory or speed in a way that is not modelled.

use super::Takes::{self, Many, One, Switch};

/// A flag that is refused, unless its value switches nothing on.
#[derive(Debug)]
pub struct Refused {
    /// Its name.
    pub name: &'static str,
    /// What follows it.
    pub takes: Takes,
    /// The values that change nothing.
    pub neutral: &'static [&'static str],
    /// What any other value brings.
    pub what: &'static str,
}

/// A flag that vLLM 0.29 does not have.
#[derive(Debug)]
pub struct Gone {
    /// Its name.
    pub name: &'static str,
    /// What became of it.
    pub note: &'static str,
}

const fn no(
    name: &'static str,
    takes: Takes,
    neutral: &'static [&'static str],
    what: &'static str,
) -> Refused {
    Refused { name, takes, neutral, what }
}

const fn gone(name: &'static str, note: &'static str) -> Gone {
    Gone { name, note }
}

const OFF: &[&str] = &["false"];
const ON: &[&str] = &["true"];
const ZERO: &[&str] = &["0", "0.0"];
const ONE: &[&str] = &["1"];
const NEVER: &[&str] = &[];
const EMPTY: &[&str] = &["", "{}", "none", "null"];
const AUTO: &[&str] = &["auto"];
const NO_IMAGES: &[&str] = &[
    "{\"image\":0}",
    "{\"image\":0,\"video\":0}",
    "{\"video\":0,\"image\":0}",
    "{\"image\":0,\"video\":0,\"audio\":0}",
];
const LOADERS: &[&str] = &[
    "auto",
    "hf",
    "safetensors",
    "pt",
    "npcache",
    "dummy",
    "mistral",
    "tensorizer",
    "sharded_state",
    "fastsafetensors",
    "instanttensor",
    "runai_streamer",
    "runai_streamer_sharded",
];

/// Every such flag.
pub const REFUSED: &[Refused] = &[
    // The model and its numbers.
    no("dtype", One, &["auto", "half", "float16", "bfloat16"], "activations of 32 bits"),
    no("hf-overrides", One, EMPTY, "a model other than its config.json says"),
    no("model-class-overrides", One, EMPTY, "another implementation of the model"),
    no("quantization-config", One, EMPTY, "weights in mixed precisions"),
    no("load-format", One, LOADERS, "weights of another precision"),
    no("model-impl", One, &["auto", "vllm"], "another implementation of the model"),
    no("runner", One, &["auto", "generate"], "a model that does not generate"),
    no("convert", One, &["auto", "none"], "a model that does not generate"),
    no("pooler-config", One, EMPTY, "a model that does not generate"),
    no("diffusion-config", One, EMPTY, "a diffusion model"),
    no("disable-sliding-window", Switch, OFF, "sliding layers cut to their window"),
    no("enable-prompt-embeds", Switch, OFF, "prompts given as embeddings"),
    no("logits-processors", Many, NEVER, "code of the user's own in every step"),
    // Parallelism.
    no("pipeline-parallel-size", One, ONE, "pipeline parallelism"),
    no("data-parallel-size-local", One, NEVER, "ranks on several machines"),
    no("data-parallel-start-rank", One, ZERO, "ranks on several machines"),
    no("data-parallel-hybrid-lb", Switch, OFF, "ranks on several machines"),
    no("data-parallel-external-lb", Switch, OFF, "ranks that are balanced from outside"),
    no("data-parallel-multi-port-external-lb", Switch, OFF, "ranks that are balanced from outside"),
    no("data-parallel-rank", One, NEVER, "ranks that are balanced from outside"),
    no("prefill-context-parallel-size", One, ONE, "context parallelism"),
    no("decode-context-parallel-size", One, ONE, "context parallelism"),
    no("enable-elastic-ep", Switch, OFF, "ranks that come and go"),
    no("enable-eplb", Switch, OFF, "balancing of experts over GPUs"),
    no("nnodes", One, ONE, "a replica over several machines"),
    no("node-rank", One, ZERO, "a replica over several machines"),
    no("headless", Switch, OFF, "a replica over several machines"),
    no("distributed-executor-backend", One, &["mp", "uni"], "another executor"),
    no("disable-custom-all-reduce", Switch, OFF, "slower all-reduce"),
    no("enable-dbo", Switch, OFF, "two batches that overlap"),
    no("ubatch-size", One, ZERO, "steps in several small batches"),
    no("enable-batch-sharded-sampling", Switch, OFF, "sampling spread over the GPUs"),
    // The KV cache.
    no("kv-cache-memory-bytes", One, NEVER, "a KV cache of a fixed number of bytes"),
    no("kv-cache-dtype-skip-layers", Many, NEVER, "a KV cache of mixed precision"),
    no("kv-sharing-fast-prefill", Switch, OFF, "layers that share their KV cache"),
    no("prefix-cache-retention-interval", One, NEVER, "a prefix cache that keeps only some blocks"),
    no("prefix-match-unit", One, NEVER, "prefix hits in other units than blocks"),
    no("disable-hybrid-kv-cache-manager", Switch, OFF, "sliding layers that keep every token"),
    no("kv-transfer-config", One, EMPTY, "KV connectors and disaggregated prefill"),
    no("ec-transfer-config", One, EMPTY, "an encoder on other GPUs"),
    no("ec-manager-config", One, EMPTY, "a cache of encoder outputs"),
    no("kv-offloading-size", One, ZERO, "a KV tier in host memory"),
    // Weights in host memory.
    no("cpu-offload-gb", One, ZERO, "weights in host memory"),
    no("offload-backend", One, AUTO, "weights in host memory"),
    no("offload-group-size", One, ZERO, "weights in host memory"),
    // The scheduler.
    no("max-num-scheduled-tokens", One, NEVER, "a budget below max-num-batched-tokens"),
    no("enable-chunked-prefill", Switch, ON, "prompts that are never cut"),
    no("prefill-schedule-interval", One, ONE, "prefill in some steps only"),
    no("scheduler-cls", One, NEVER, "another scheduler"),
    no("stream-interval", One, ONE, "tokens sent several at a time"),
    no("performance-mode", One, &["balanced"], "limits and kernels of another mode"),
    no("speculative-config", One, EMPTY, "speculative decoding"),
    no("spec-method", One, NEVER, "speculative decoding"),
    no("spec-model", One, NEVER, "speculative decoding"),
    no("spec-tokens", One, ZERO, "speculative decoding"),
    // Kernels and graphs.
    no("enforce-eager", Switch, OFF, "steps without CUDA graphs"),
    no("compilation-config", One, EMPTY, "other graphs and fusions"),
    no("optimization-level", One, &["2"], "other graphs and fusions"),
    no("cudagraph-capture-sizes", Many, NEVER, "other CUDA graphs"),
    no("max-cudagraph-capture-size", One, NEVER, "other CUDA graphs"),
    no("attention-backend", One, AUTO, "another attention kernel"),
    no("attention-config", One, EMPTY, "another attention kernel"),
    no("disable-cascade-attn", Switch, ON, "cascade attention"),
    no("moe-backend", One, AUTO, "another kernel for the experts"),
    no("linear-backend", One, AUTO, "another kernel for the linear layers"),
    no("kernel-config", One, EMPTY, "other kernels"),
    no("ir-op-priority", One, EMPTY, "other kernels"),
    no("enable-flashinfer-autotune", Switch, ON, "kernels that are not tuned"),
    no("enable-bf16x3-router-gemm", Switch, OFF, "another kernel for the router of experts"),
    no("use-fp64-gumbel", Switch, OFF, "sampling in double precision"),
    no("enable-return-routed-experts", Switch, OFF, "experts recorded in every step"),
    no("return-sampling-mask", Switch, OFF, "sampling masks recorded in every step"),
    no("enable-trace-replay", Switch, OFF, "outputs that are replayed"),
    no("worker-cls", One, AUTO, "another worker"),
    no("worker-extension-cls", One, &[""], "another worker"),
    no("additional-config", One, EMPTY, "settings of another platform"),
    // Adapters and images.
    no("enable-lora", Switch, OFF, "LoRA adapters"),
    no("lora-modules", Many, NEVER, "LoRA adapters"),
    no("default-mm-loras", One, EMPTY, "LoRA adapters"),
    no("limit-mm-per-prompt", One, NO_IMAGES, "memory for images, video or sound"),
    no("skip-mm-profiling", Switch, OFF, "memory for images, video or sound"),
    no("mm-ipc-gpu-memory-gb", One, ZERO, "memory for images, video or sound"),
    no("mm-encoder-only", Switch, OFF, "an encoder without its language model"),
    // Flags from elsewhere.
    no("config", One, NEVER, "flags from a file, which has to be written into the line"),
];

const SPECULATION: &str = "speculative decoding moved to --speculative-config, which is not \
                           modelled";
const MULTI_STEP: &str = "several steps per scheduling were removed with the V0 engine";
const PARTIAL: &str = "--long-prefill-token-threshold alone limits long prompts since";
const PROMPT_ADAPTERS: &str = "prompt adapters were removed with the V0 engine";
const ROPE: &str = "it moved to --hf-overrides, which is not modelled; set it in the config.json";
const LATER: &str = "it came with 0.33 and is not modelled";

/// Flags of older and newer versions that people still paste.
pub const GONE: &[Gone] = &[
    gone("max-num-partial-prefills", PARTIAL),
    gone("max-long-partial-prefills", PARTIAL),
    gone("long-prefill-token-threshold-adaptive", LATER),
    gone("max-num-active-seqs", LATER),
    gone("swap-space", "preempted requests are always computed again"),
    gone("preemption-mode", "preempted requests are always computed again"),
    gone("num-scheduler-steps", MULTI_STEP),
    gone("multi-step-stream-outputs", MULTI_STEP),
    gone("scheduler-delay-factor", "it was removed with the V0 engine"),
    gone("num-lookahead-slots", "it was removed with the V0 engine"),
    gone("use-v2-block-manager", "it was removed with the V0 engine"),
    gone("disable-async-output-proc", "it was removed with the V0 engine"),
    gone("enable-prompt-adapter", PROMPT_ADAPTERS),
    gone("max-prompt-adapters", PROMPT_ADAPTERS),
    gone("max-prompt-adapter-token", PROMPT_ADAPTERS),
    gone("lora-extra-vocab-size", "adapters can no longer extend the vocabulary"),
    gone("rope-scaling", ROPE),
    gone("rope-theta", ROPE),
    gone("max-seq-len-to-capture", "the size of CUDA graphs is counted in tokens of a step since"),
    gone("cuda-graph-sizes", "it is --cudagraph-capture-sizes now, which is not modelled"),
    gone("speculative-model", SPECULATION),
    gone("num-speculative-tokens", SPECULATION),
    gone("ngram-prompt-lookup-max", SPECULATION),
    gone("ngram-prompt-lookup-min", SPECULATION),
    gone("guided-decoding-backend", "it is part of --structured-outputs-config now"),
    gone("enable-reasoning", "--reasoning-parser alone is enough now"),
    gone("task", "it is --runner and --convert now"),
    gone("device", "the device follows from the installation"),
    gone("worker-use-ray", "it is --distributed-executor-backend now"),
    gone("engine-use-ray", "it is --distributed-executor-backend now"),
];
