//! The shape of a model: what its weights, its KV cache and its arithmetic are computed from.

use super::precision::{TorchDtype, WeightPrecision};
use crate::diag::{Error, Result};

/// Matrices of a gated feed-forward block: gate, up and down.
const FFN_MATRICES: u64 = 3;

/// How attention keeps its keys and values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attention {
    /// Grouped-query attention; with as many KV heads as heads, plain multi-head attention.
    Grouped {
        /// Heads of keys and values.
        kv_heads: u64,
        /// Width of one head.
        head_dim: u64,
    },
    /// Multi-head latent attention: one compressed vector a token and layer, the same for all
    /// heads and therefore on every GPU of a group.
    Latent {
        /// Rank of the query projection; without it the projection is one full matrix.
        q_lora_rank: Option<u64>,
        /// Width of the compressed keys and values.
        kv_lora_rank: u64,
        /// Width of a query head without position.
        qk_nope_head_dim: u64,
        /// Width of the part that carries the position, cached beside the compressed vector.
        qk_rope_head_dim: u64,
        /// Width of a value head.
        v_head_dim: u64,
    },
}

/// In what way some layers see less than the whole context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WindowKind {
    /// The last so many tokens.
    Sliding,
    /// The tokens since the last multiple of so many.
    Chunked,
}

/// The layers that see less than the whole context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// In what way.
    pub kind: WindowKind,
    /// Most tokens that they see.
    pub tokens: u64,
    /// How many layers do so.
    pub layers: u64,
}

/// The mixture-of-experts part of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moe {
    /// Layers that have experts instead of one feed-forward block.
    pub layers: u64,
    /// Routed experts a layer.
    pub experts: u64,
    /// Routed experts that a token passes through.
    pub experts_per_token: u64,
    /// Inner width of a routed expert.
    pub expert_width: u64,
    /// Weights a layer that every token passes through (shared experts).
    pub shared_params: u64,
}

/// The shape of a model, as its `config.json` gives it.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelGeometry {
    /// Name in the catalogue, or the file it was read from.
    pub name: String,
    /// Decoder layers.
    pub layers: u64,
    /// Width of the hidden state.
    pub hidden: u64,
    /// Query heads.
    pub heads: u64,
    /// Keys and values.
    pub attention: Attention,
    /// Layers with sliding or chunked attention, if any.
    pub window: Option<Window>,
    /// Inner width of the feed-forward block of the layers without experts; 0 if there are none.
    pub ffn: u64,
    /// Experts, if any.
    pub moe: Option<Moe>,
    /// Rows of the embedding and of the output layer.
    pub vocab: u64,
    /// Whether embedding and output layer are one matrix.
    pub tied_embeddings: bool,
    /// 16-bit format of activations and, by default, of the KV cache.
    pub dtype: TorchDtype,
    /// How the checkpoint stores its weights.
    pub quantization: WeightPrecision,
    /// Longest context the model was made for.
    pub max_context: u64,
}

impl ModelGeometry {
    /// Layers with experts.
    #[must_use]
    pub fn moe_layers(&self) -> u64 {
        self.moe.map_or(0, |moe| moe.layers)
    }

    /// Layers with a plain feed-forward block.
    #[must_use]
    pub fn dense_layers(&self) -> u64 {
        self.layers - self.moe_layers()
    }

    /// Layers whose attention sees at most a window.
    #[must_use]
    pub fn windowed_layers(&self) -> u64 {
        self.window.map_or(0, |window| window.layers)
    }

    /// Layers whose attention sees the whole context.
    #[must_use]
    pub fn full_layers(&self) -> u64 {
        self.layers - self.windowed_layers()
    }

    /// Weights of one layer's attention.
    #[must_use]
    pub fn attention_params(&self) -> u64 {
        let (hidden, heads) = (self.hidden, self.heads);
        match self.attention {
            Attention::Grouped { kv_heads, head_dim } => {
                hidden * head_dim * (heads + 2 * kv_heads) + heads * head_dim * hidden
            }
            Attention::Latent {
                q_lora_rank,
                kv_lora_rank,
                qk_nope_head_dim: nope,
                qk_rope_head_dim: rope,
                v_head_dim,
            } => {
                let query = match q_lora_rank {
                    Some(rank) => hidden * rank + rank * heads * (nope + rope),
                    None => hidden * heads * (nope + rope),
                };
                let key_value =
                    hidden * (kv_lora_rank + rope) + kv_lora_rank * heads * (nope + v_head_dim);
                query + key_value + heads * v_head_dim * hidden
            }
        }
    }

    /// Weights of all layers outside the routed experts: attention, plain feed-forward blocks,
    /// shared experts and routers.
    #[must_use]
    pub fn common_params(&self) -> u64 {
        let dense = self.dense_layers() * FFN_MATRICES * self.hidden * self.ffn;
        let routed =
            self.moe.map_or(0, |moe| moe.layers * (moe.shared_params + self.hidden * moe.experts));
        self.layers * self.attention_params() + dense + routed
    }

    /// Weights of one routed expert; 0 without experts.
    #[must_use]
    pub fn expert_params(&self) -> u64 {
        self.moe.map_or(0, |moe| FFN_MATRICES * self.hidden * moe.expert_width)
    }

    /// Weights of all routed experts of all layers.
    #[must_use]
    pub fn all_expert_params(&self) -> u64 {
        self.moe.map_or(0, |moe| moe.layers * moe.experts * self.expert_params())
    }

    /// Weights of the embedding and the output layer.
    #[must_use]
    pub fn vocab_params(&self) -> u64 {
        self.vocab * self.hidden * if self.tied_embeddings { 1 } else { 2 }
    }

    /// All weights of all matrices; norms and biases, some thousandths, are not counted.
    #[must_use]
    pub fn total_params(&self) -> u64 {
        self.common_params() + self.all_expert_params() + self.vocab_params()
    }

    /// Bytes of weights on each GPU of `dp` tensor-parallel groups of `tp` GPUs that share the
    /// experts, whether these are cut or spread over them; everything else is there once a group.
    /// Embedding and output layer have 16 bits in every precision.
    #[must_use]
    pub fn weight_bytes_per_gpu(&self, precision: WeightPrecision, tp: u32, dp: u32) -> f64 {
        let common = self.common_params() as f64 * precision.other_bytes(self.moe.is_some());
        let experts = self.all_expert_params() as f64 * precision.bytes() / f64::from(dp);
        (common + experts + self.vocab_params() as f64 * 2.0) / f64::from(tp)
    }

    /// Cached elements of one token in one layer, over all heads.
    #[must_use]
    pub fn kv_elements(&self) -> u64 {
        match self.attention {
            Attention::Grouped { kv_heads, head_dim } => 2 * kv_heads * head_dim,
            Attention::Latent { kv_lora_rank, qk_rope_head_dim, .. } => {
                kv_lora_rank + qk_rope_head_dim
            }
        }
    }

    /// Cached elements of one token in one layer on each GPU of a group: a KV head is never cut,
    /// so with fewer heads than GPUs each GPU holds one; latent attention is not cut at all.
    #[must_use]
    pub fn kv_elements_per_gpu(&self, tp: u32) -> u64 {
        match self.attention {
            Attention::Grouped { kv_heads, head_dim } => {
                2 * (kv_heads / u64::from(tp)).max(1) * head_dim
            }
            Attention::Latent { .. } => self.kv_elements(),
        }
    }

    /// Heads times the mean width of what prefill attention multiplies (query by key, weight by
    /// value).
    #[must_use]
    pub fn attention_width(&self) -> f64 {
        let heads = self.heads as f64;
        match self.attention {
            Attention::Grouped { head_dim, .. } => heads * head_dim as f64,
            Attention::Latent { qk_nope_head_dim, qk_rope_head_dim, v_head_dim, .. } => {
                heads * (qk_nope_head_dim + qk_rope_head_dim + v_head_dim) as f64 / 2.0
            }
        }
    }

    /// Width of a head if attention has plain heads.
    #[must_use]
    pub fn plain_head_dim(&self) -> Option<u64> {
        match self.attention {
            Attention::Grouped { head_dim, .. } => Some(head_dim),
            Attention::Latent { .. } => None,
        }
    }

    /// Refuses data-parallel ranks of a model without experts, whose ranks have nothing to do with
    /// each other.
    ///
    /// # Errors
    /// More than one rank without experts.
    pub fn check_dp(&self, dp: u32) -> Result<()> {
        if dp == 1 || self.moe.is_some() {
            return Ok(());
        }
        let allowed = format!("1, since {} has no experts that its ranks could share", self.name);
        let error = Error::found(dp, allowed).in_field("dp");
        Err(error.help("each rank is a replica by itself: count them as replicas"))
    }

    /// Refuses group sizes that do not cut the model evenly, as vLLM does.
    ///
    /// # Errors
    /// `tp` does not divide the heads, or neither divides nor is a multiple of the KV heads.
    pub fn check_tp(&self, tp: u32) -> Result<()> {
        let gpus = u64::from(tp);
        if gpus == 0 || !self.heads.is_multiple_of(gpus) {
            let allowed =
                format!("a divisor of the {} attention heads of {}", self.heads, self.name);
            return Err(Error::found(tp, allowed).in_field("tp"));
        }
        if let Attention::Grouped { kv_heads, .. } = self.attention
            && !kv_heads.is_multiple_of(gpus)
            && !gpus.is_multiple_of(kv_heads)
        {
            let allowed = format!("a divisor or a multiple of the {kv_heads} KV heads");
            return Err(Error::found(tp, allowed).in_field("tp"));
        }
        Ok(())
    }
}
