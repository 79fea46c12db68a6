//! The flags of `vllm serve`: which set a key of the scenario, which are refused, which are
//! ignored, and which no longer exist.
//!
//! Names are those of vLLM 0.29, without the dashes in front; `docs/vllm-serve.md` shows the same
//! tables to users and a test holds the two together.

mod ignored;
mod refused;

pub use ignored::{IGNORED, IgnoredGroup};
pub use refused::{GONE, Gone, REFUSED, Refused};

/// What follows a flag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Takes {
    /// One value.
    One,
    /// Any number of values.
    Many,
    /// One value or none.
    Maybe,
    /// No value; `--no-` in front of the name switches it off.
    Switch,
}

/// How the value of a modelled flag is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// As it stands.
    Text,
    /// A whole number.
    Whole,
    /// A whole number, or a number with a suffix: `128k` is 128,000 and `128K` is 131,072.
    Human,
    /// A number.
    Number,
    /// On or off.
    Switch,
}

/// A flag that sets a key of the scenario.
#[derive(Debug)]
pub struct Modelled {
    /// Its name.
    pub name: &'static str,
    /// How its value is read.
    pub kind: Kind,
    /// The key it sets.
    pub key: &'static str,
}

const fn sets(name: &'static str, kind: Kind, key: &'static str) -> Modelled {
    Modelled { name, kind, key }
}

/// Every flag that sets a key.
pub const MODELLED: &[Modelled] = &[
    sets("model", Kind::Text, "engine.model"),
    // Where the model's shape is read instead; a later entry wins over an earlier one.
    sets("hf-config-path", Kind::Text, "engine.model"),
    sets("tensor-parallel-size", Kind::Whole, "engine.tensor_parallel_size"),
    sets("data-parallel-size", Kind::Whole, "engine.data_parallel_size"),
    sets("enable-expert-parallel", Kind::Switch, "engine.enable_expert_parallel"),
    sets("quantization", Kind::Text, "engine.quantization"),
    sets("kv-cache-dtype", Kind::Text, "engine.kv_cache_dtype"),
    sets("max-model-len", Kind::Human, "engine.max_model_len"),
    sets("block-size", Kind::Whole, "engine.block_size"),
    sets("gpu-memory-utilization", Kind::Number, "engine.gpu_memory_utilization"),
    sets("num-gpu-blocks-override", Kind::Whole, "engine.num_gpu_blocks_override"),
    sets("max-num-batched-tokens", Kind::Human, "engine.max_num_batched_tokens"),
    sets("max-num-seqs", Kind::Whole, "engine.max_num_seqs"),
    sets("max-num-queued-reqs", Kind::Whole, "engine.max_num_queued_reqs"),
    sets("max-num-queued-tokens", Kind::Whole, "engine.max_num_queued_tokens"),
    sets("long-prefill-token-threshold", Kind::Whole, "engine.long_prefill_token_threshold"),
    sets("enable-prefix-caching", Kind::Switch, "engine.enable_prefix_caching"),
    sets("scheduling-policy", Kind::Text, "engine.scheduling_policy"),
    sets("watermark", Kind::Number, "engine.watermark"),
    sets("scheduler-reserve-full-isl", Kind::Switch, "engine.scheduler_reserve_full_isl"),
    sets("async-scheduling", Kind::Switch, "engine.async_scheduling"),
];

/// The short spellings.
pub const SHORT: &[(&str, &str)] = &[
    ("tp", "tensor-parallel-size"),
    ("q", "quantization"),
    ("pp", "pipeline-parallel-size"),
    ("dp", "data-parallel-size"),
    ("dpn", "data-parallel-rank"),
    ("dpr", "data-parallel-start-rank"),
    ("dpl", "data-parallel-size-local"),
    ("dpa", "data-parallel-address"),
    ("dpp", "data-parallel-rpc-port"),
    ("dpb", "data-parallel-backend"),
    ("dph", "data-parallel-hybrid-lb"),
    ("dpe", "data-parallel-external-lb"),
    ("dpm", "data-parallel-multi-port-external-lb"),
    ("dcp", "decode-context-parallel-size"),
    ("pcp", "prefill-context-parallel-size"),
    ("ep", "enable-expert-parallel"),
    ("n", "nnodes"),
    ("r", "node-rank"),
    ("sc", "speculative-config"),
    ("dc", "diffusion-config"),
    ("cc", "compilation-config"),
    ("ac", "attention-config"),
    ("O", "optimization-level"),
    ("asc", "api-server-count"),
];

/// A flag, whichever table it stands in.
#[derive(Clone, Copy, Debug)]
pub enum Flag {
    /// Sets a key.
    Modelled(&'static Modelled),
    /// Refused, unless its value switches nothing on.
    Refused(&'static Refused),
    /// Without effect on what is simulated.
    Ignored(&'static str, Takes),
    /// Not a flag of this version.
    Gone(&'static Gone),
}

impl Flag {
    /// The flag of this name, without dashes in front.
    #[must_use]
    pub fn find(name: &str) -> Option<Self> {
        let modelled = MODELLED.iter().find(|flag| flag.name == name).map(Self::Modelled);
        let refused = || REFUSED.iter().find(|flag| flag.name == name).map(Self::Refused);
        let ignored = || {
            let mut flags = IGNORED.iter().flat_map(|group| group.flags);
            flags.find(|(known, _)| *known == name).map(|&(name, takes)| Self::Ignored(name, takes))
        };
        let gone = || GONE.iter().find(|flag| flag.name == name).map(Self::Gone);
        modelled.or_else(refused).or_else(ignored).or_else(gone)
    }

    /// What follows it.
    #[must_use]
    pub fn takes(self) -> Takes {
        match self {
            Self::Modelled(Modelled { kind: Kind::Switch, .. }) => Takes::Switch,
            Self::Modelled(_) => Takes::One,
            Self::Refused(flag) => flag.takes,
            Self::Ignored(_, takes) => takes,
            Self::Gone(_) => Takes::Maybe,
        }
    }

    /// The names of all flags of this version.
    pub fn names() -> impl Iterator<Item = &'static str> + Clone {
        let modelled = MODELLED.iter().map(|flag| flag.name);
        let refused = REFUSED.iter().map(|flag| flag.name);
        let ignored = IGNORED.iter().flat_map(|group| group.flags).map(|(name, _)| *name);
        modelled.chain(refused).chain(ignored)
    }
}
