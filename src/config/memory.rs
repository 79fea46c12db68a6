//! What a model takes of a GPU's memory, and how many KV-cache blocks are left.
//!
//! Per GPU of a tensor-parallel group, or of several that share their experts:
//!
//! ```text
//! budget  = utilisation x (device memory - 512 MiB)
//! reserve = 0.5 GiB + 0.5 GiB if in a group + activations + CUDA graphs
//! pool    = budget - weights - reserve
//! blocks  = pool / (block size x KV bytes of a token on this GPU), rounded down
//! ```
//!
//! The reserve is an estimate that start-up logs bear out within some percent of the pool; a number
//! of blocks taken from a log always wins over it.

use super::defaults::{self, VllmVersion};
use super::geometry::{Attention, ModelGeometry, Window, WindowKind};
use super::gpus::GpuSpec;
use super::precision::{KvDtype, WeightPrecision};
use crate::diag::{Error, Result, Warning};
use crate::units::{Blocks, Bytes, Tokens};

#[cfg(test)]
mod tests;

const GIB: u64 = 1 << 30;
/// Memory that the driver and other processes hold before the engine starts.
const DEVICE_OVERHEAD: Bytes = Bytes(512 << 20);
/// Buffers of the runtime that no setting changes.
const RUNTIME: Bytes = Bytes(GIB / 2);
/// Buffers of the collective library, in groups.
const COLLECTIVES: Bytes = Bytes(GIB / 2);
/// CUDA graphs, where the version sets memory aside for them; logs show 0.26 to 1.34 GiB.
const CUDA_GRAPHS: Bytes = Bytes(GIB);
/// Bytes a sequence and vocabulary entry in the sampler: logits in several copies.
const SAMPLER_BYTES: u64 = 20;
/// A pool of fewer reserves than this is mostly made of the reserve's error.
const SAFE_RESERVES: u64 = 3;
const BLOCK_SIZE_MAX: u64 = 1_024;
const BATCHED_TOKENS_MAX: u64 = 1 << 24;
const SEQS_MAX: u64 = 1 << 20;

/// What is to be placed where, with which settings of vLLM.
#[derive(Clone, Debug)]
pub struct MemoryRequest<'a> {
    /// The model.
    pub model: &'a ModelGeometry,
    /// The GPU.
    pub gpu: &'a GpuSpec,
    /// GPUs of the tensor-parallel group.
    pub tp: u32,
    /// Such groups that share the experts (attention data parallelism).
    pub dp: u32,
    /// How the weights are stored.
    pub weights: WeightPrecision,
    /// How keys and values are stored.
    pub kv_dtype: KvDtype,
    /// `--gpu-memory-utilization`.
    pub gpu_memory_utilization: f64,
    /// `--max-num-batched-tokens`.
    pub max_num_batched_tokens: Tokens,
    /// `--max-num-seqs`.
    pub max_num_seqs: u64,
    /// `--block-size`.
    pub block_size: u64,
    /// Version of vLLM.
    pub vllm: VllmVersion,
    /// Weights of one GPU as the engine logged them, instead of the computed ones.
    pub weights_logged: Option<Bytes>,
    /// `--num-gpu-blocks-override`, or the number that the engine logged; wins over the pool.
    pub num_gpu_blocks: Option<Blocks>,
}

impl<'a> MemoryRequest<'a> {
    /// The checkpoint's own precision, and vLLM's defaults for the GPU.
    #[must_use]
    pub fn new(model: &'a ModelGeometry, gpu: &'a GpuSpec, tp: u32) -> Self {
        let limits = defaults::batch_limits(gpu);
        Self {
            model,
            gpu,
            tp,
            dp: 1,
            weights: model.quantization,
            kv_dtype: KvDtype::of(model.dtype),
            gpu_memory_utilization: defaults::GPU_MEMORY_UTILIZATION,
            max_num_batched_tokens: limits.max_num_batched_tokens,
            max_num_seqs: limits.max_num_seqs,
            block_size: defaults::BLOCK_SIZE,
            vllm: VllmVersion::default(),
            weights_logged: None,
            num_gpu_blocks: None,
        }
    }

    fn check(&self) -> Result<()> {
        self.gpu.check_group(self.tp)?;
        self.model.check_tp(self.tp)?;
        self.model.check_dp(self.dp)?;
        self.gpu.check_ranks(self.tp, self.dp)?;
        let share = self.gpu_memory_utilization;
        if !(share > 0.0 && share <= 1.0) {
            return Err(Error::found(share, "a share above 0 and up to 1")
                .in_field("gpu_memory_utilization"));
        }
        let within = |field, found: u64, most: u64| {
            if (1..=most).contains(&found) {
                return Ok(());
            }
            Err(Error::found(found, format!("an integer from 1 to {most}")).in_field(field))
        };
        within("max_num_batched_tokens", self.max_num_batched_tokens.0, BATCHED_TOKENS_MAX)?;
        within("max_num_seqs", self.max_num_seqs, SEQS_MAX)?;
        within("block_size", self.block_size, BLOCK_SIZE_MAX)?;
        if let Some(blocks) = self.num_gpu_blocks {
            // Block 0 is the null block, so one is not enough.
            if !(2..=u64::from(u32::MAX)).contains(&blocks.0) {
                let allowed = format!("an integer from 2 to {}", u32::MAX);
                return Err(Error::found(blocks, allowed).in_field("num_gpu_blocks_override"));
            }
        }
        Ok(())
    }

    fn reserve(&self) -> Reserve {
        let model = self.model;
        // A token passes `copies` experts, each of which keeps its inputs and outputs.
        let (copies, width) = match model.moe {
            Some(moe) => (moe.experts_per_token, moe.experts_per_token * moe.expert_width),
            None => (0, model.ffn),
        };
        let sampler = SAMPLER_BYTES * self.max_num_seqs * model.vocab;
        let per_token =
            3.0 * width as f64 / f64::from(self.tp) + ((6 + copies) * model.hidden) as f64;
        let activations = 2.0 * self.max_num_batched_tokens.as_f64() * per_token;
        Reserve {
            runtime: RUNTIME,
            collectives: if self.tp * self.dp > 1 { COLLECTIVES } else { Bytes::ZERO },
            sampler: Bytes(sampler),
            activations: Bytes(activations.round() as u64),
            cuda_graphs: if self.vllm.counts_cuda_graphs() { CUDA_GRAPHS } else { Bytes::ZERO },
        }
    }
}

/// Memory of one GPU that is neither weights nor KV cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reserve {
    /// Buffers of the runtime.
    pub runtime: Bytes,
    /// Buffers of the collective library.
    pub collectives: Bytes,
    /// Logits of the most sequences that run at once; only the larger of this and
    /// [`Reserve::activations`] counts, since they do not live at the same time.
    pub sampler: Bytes,
    /// Activations of the largest step.
    pub activations: Bytes,
    /// CUDA graphs.
    pub cuda_graphs: Bytes,
}

impl Reserve {
    /// The larger of sampler and activations.
    #[must_use]
    pub fn peak(&self) -> Bytes {
        self.sampler.max(self.activations)
    }

    /// All of it.
    #[must_use]
    pub fn total(&self) -> Bytes {
        self.runtime + self.collectives + self.peak() + self.cuda_graphs
    }
}

/// The memory of one replica, term by term.
#[derive(Clone, Debug, PartialEq)]
pub struct MemoryPlan {
    /// GPUs of the group.
    pub tp: u32,
    /// Groups, each with a pool of its own.
    pub dp: u32,
    /// Tokens in a block.
    pub block_size: u64,
    /// Memory of one GPU.
    pub device: Bytes,
    /// What vLLM may use of it.
    pub budget: Bytes,
    /// Weights on one GPU.
    pub weights: Bytes,
    /// What else is needed on one GPU.
    pub reserve: Reserve,
    /// What is left for the KV cache on one GPU; `None` if weights and reserve exceed the budget,
    /// which only a number of blocks from the user makes acceptable.
    pub pool: Option<Bytes>,
    /// KV bytes of one token over all layers, each counted once.
    pub kv_per_token: Bytes,
    /// KV bytes of one token on one GPU in the layers that see the whole context; on these the
    /// blocks are counted.
    pub kv_per_token_gpu: Bytes,
    /// Blocks that fit in the pool.
    pub blocks_computed: Option<Blocks>,
    /// Blocks that the engine has, the null block included: the user's number, else the computed.
    pub num_gpu_blocks: Blocks,
    /// Blocks that each running sequence needs on top for its layers with a sliding window.
    pub window_blocks: Blocks,
    /// What to check before the numbers are trusted.
    pub warnings: Vec<Warning>,
    kv_per_token_layer: Bytes,
    full_layers: u64,
    sliding: Option<Window>,
}

/// Computes the memory of one replica.
///
/// # Errors
/// A setting is out of range, the group does not cut the model evenly, or the model does not fit
/// and the user gave no number of blocks.
pub fn plan(request: &MemoryRequest) -> Result<MemoryPlan> {
    request.check()?;
    let MemoryRequest { model, gpu, tp, dp, .. } = *request;
    let device = gpu.memory();
    let usable = device.saturating_sub(DEVICE_OVERHEAD);
    let budget = Bytes((request.gpu_memory_utilization * usable.as_f64()).floor() as u64);
    let computed = Bytes(model.weight_bytes_per_gpu(request.weights, tp, dp).round() as u64);
    let weights = request.weights_logged.unwrap_or(computed);
    let reserve = request.reserve();
    let needed = weights + reserve.total();
    let pool = (budget > needed).then(|| budget - needed);

    // Chunked layers keep the whole context: vLLM turns its hybrid cache off for them.
    let sliding = model.window.filter(|window| window.kind == WindowKind::Sliding);
    let full_layers = model.layers - sliding.map_or(0, |window| window.layers);
    let layer_gpu = model.kv_elements_per_gpu(tp) * request.kv_dtype.bytes();
    let kv_per_token_gpu = Bytes(full_layers * layer_gpu);
    let block_bytes = request.block_size * kv_per_token_gpu.0;
    let blocks_computed = pool.map(|pool| Blocks(pool.0 / block_bytes));
    let window_blocks = sliding.map_or(Blocks::ZERO, |window| {
        // A window that starts within a block touches one more.
        let held = Tokens(window.tokens).blocks_ceil(request.block_size).0 + 1;
        Blocks((held * window.layers).div_ceil(full_layers))
    });
    let kv_per_token_layer = Bytes(model.kv_elements() * request.kv_dtype.bytes());
    let plan = MemoryPlan {
        tp,
        dp,
        block_size: request.block_size,
        device,
        budget,
        weights,
        reserve,
        pool,
        kv_per_token: Bytes(kv_per_token_layer.0 * model.layers),
        kv_per_token_gpu,
        blocks_computed,
        num_gpu_blocks: request.num_gpu_blocks.or(blocks_computed).unwrap_or_default(),
        window_blocks,
        warnings: warnings(request, pool, &reserve, sliding),
        kv_per_token_layer,
        full_layers,
        sliding,
    };
    if request.num_gpu_blocks.is_none() && blocks_computed.is_none_or(|blocks| blocks.0 < 2) {
        return Err(does_not_fit(request, &plan));
    }
    Ok(plan)
}

fn warnings(
    request: &MemoryRequest,
    pool: Option<Bytes>,
    reserve: &Reserve,
    sliding: Option<Window>,
) -> Vec<Warning> {
    let MemoryRequest { model, gpu, tp, .. } = *request;
    let mut list = Vec::new();
    if gpu.hbm_mib.is_none() && request.num_gpu_blocks.is_none() {
        list.push(format!(
            "{}: what the driver reports as memory is not known; {} GB are taken as sold",
            gpu.name, gpu.hbm_gb
        ));
    }
    if let Some(window) = sliding {
        list.push(format!(
            "{} of {} layers see {} tokens: blocks are counted on the other layers and each \
             running sequence sets aside its window; vLLM's hybrid KV cache groups are \
             approximated by this",
            window.layers, model.layers, window.tokens
        ));
    }
    if let Some(window) = model.window.filter(|window| window.kind == WindowKind::Chunked) {
        list.push(format!(
            "{} of {} layers attend in chunks of {} tokens: their KV cache is counted in full, as \
             vLLM keeps it unless its hybrid cache is switched on for such models",
            window.layers, model.layers, window.tokens
        ));
    }
    if let Attention::Grouped { kv_heads, .. } = model.attention
        && u64::from(tp) > kv_heads
    {
        list.push(format!(
            "{kv_heads} KV heads on {tp} GPUs: each head is held {} times",
            u64::from(tp) / kv_heads
        ));
    }
    let thin = pool.is_none_or(|pool| pool.0 < SAFE_RESERVES * reserve.total().0);
    if thin && request.num_gpu_blocks.is_none() {
        list.push(format!(
            "the pool is smaller than {SAFE_RESERVES} reserves, so an error of the reserve \
             weighs heavily: give num_gpu_blocks from the log of a real start"
        ));
    }
    list.into_iter().map(Warning).collect()
}

/// `71.29 GiB (76.55 GB)`.
#[must_use]
pub fn gib_and_gb(bytes: Bytes) -> String {
    format!("{:.2} GiB ({:.2} GB)", bytes.gib(), bytes.gb())
}

fn does_not_fit(request: &MemoryRequest, plan: &MemoryPlan) -> Error {
    let error = Error::new(format!(
        "{} in {} does not fit on {} x {}: of a GPU's {}, {} x (that - 0.50 GiB) = {} may be used, \
         but weights take {} and the reserve {}",
        request.model.name,
        request.weights.name(),
        plan.gpus(),
        request.gpu.name,
        gib_and_gb(plan.device),
        request.gpu_memory_utilization,
        gib_and_gb(plan.budget),
        gib_and_gb(plan.weights),
        gib_and_gb(plan.reserve.total()),
    ));
    // A logged weight holds for one group size only, so it says nothing about larger ones.
    let larger = (request.weights_logged.is_none()).then(|| fitting_tp(request)).flatten();
    match larger {
        Some(tp) => error.help(format!("it fits with tp {tp}")),
        None => error.help("use larger GPUs or weights of fewer bits"),
    }
}

/// The smallest doubling of the group with which the model fits.
fn fitting_tp(request: &MemoryRequest) -> Option<u32> {
    let doubled = MemoryRequest { tp: request.tp.checked_mul(2)?, ..request.clone() };
    doubled.check().ok()?;
    let weights = doubled.model.weight_bytes_per_gpu(doubled.weights, doubled.tp, doubled.dp);
    let usable = doubled.gpu.memory().saturating_sub(DEVICE_OVERHEAD).as_f64();
    let budget = doubled.gpu_memory_utilization * usable;
    if budget > weights + doubled.reserve().total().as_f64() {
        return Some(doubled.tp);
    }
    fitting_tp(&doubled)
}

impl MemoryPlan {
    /// The share of the device that vLLM may take: `gpu_memory_utilization`.
    #[must_use]
    pub fn utilization(&self) -> f64 {
        self.budget.as_f64() / self.device.saturating_sub(DEVICE_OVERHEAD).as_f64()
    }

    /// GPUs of the replica.
    #[must_use]
    pub fn gpus(&self) -> u32 {
        self.tp * self.dp
    }

    /// Blocks of one group that can hold tokens: all but the null block.
    #[must_use]
    pub fn usable_blocks(&self) -> Blocks {
        self.num_gpu_blocks.saturating_sub(Blocks(1))
    }

    /// Blocks of one sequence of `context` tokens, its sliding layers included.
    #[must_use]
    pub fn sequence_blocks(&self, context: Tokens) -> Blocks {
        context.blocks_ceil(self.block_size) + self.window_blocks
    }

    /// KV bytes of one sequence of `context` tokens, each layer counted once, without the rest of
    /// its last block.
    #[must_use]
    pub fn sequence_bytes(&self, context: Tokens) -> Bytes {
        let windowed = self.sliding.map_or(0, |w| w.layers * context.0.min(w.tokens));
        Bytes(self.kv_per_token_layer.0 * (self.full_layers * context.0 + windowed))
    }

    /// Sequences of `context` tokens that the blocks hold at once without sharing.
    #[must_use]
    pub fn sequences_that_fit(&self, context: Tokens) -> u64 {
        self.usable_blocks().0 / self.sequence_blocks(context).0.max(1)
    }

    /// The longest context that one sequence can have.
    #[must_use]
    pub fn max_model_len(&self) -> Tokens {
        self.usable_blocks().saturating_sub(self.window_blocks).tokens(self.block_size)
    }

    /// Refuses a context that not even one sequence can have, as vLLM does when it starts.
    ///
    /// # Errors
    /// The context does not fit, with the arithmetic and the longest that does.
    pub fn check_context(&self, context: Tokens) -> Result<()> {
        if self.sequence_blocks(context) <= self.usable_blocks() {
            return Ok(());
        }
        let pool = match self.pool.filter(|_| Some(self.num_gpu_blocks) == self.blocks_computed) {
            Some(pool) => format!(
                "budget {} - weights {} - reserve {} = pool {} a GPU, ",
                gib_and_gb(self.budget),
                gib_and_gb(self.weights),
                gib_and_gb(self.reserve.total()),
                gib_and_gb(pool)
            ),
            None => String::new(),
        };
        Err(Error::new(format!(
            "one sequence of {context} tokens needs {} blocks of {} tokens; there are {} ({pool}{} \
             blocks less the null block)",
            self.sequence_blocks(context),
            self.block_size,
            self.usable_blocks(),
            self.num_gpu_blocks,
        ))
        .in_field("max_model_len")
        .help(format!("the largest max_model_len that fits is {}", self.max_model_len())))
    }
}
