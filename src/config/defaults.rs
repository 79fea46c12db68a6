//! What vLLM does when nothing is said, by version and by class of GPU.

use std::fmt;

use super::gpus::{Arch, GpuSpec};
use crate::diag::{Error, Result};
use crate::units::Tokens;

/// Share of a GPU's memory that vLLM takes.
pub const GPU_MEMORY_UTILIZATION: f64 = 0.92;

/// Tokens in a KV-cache block.
pub const BLOCK_SIZE: u64 = 16;

/// A version of vLLM, as far as its memory use differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct VllmVersion {
    minor: u32,
}

impl VllmVersion {
    /// First version that sets memory for CUDA graphs aside before it sizes the KV cache.
    const GRAPHS_COUNTED: Self = Self { minor: 21 };

    /// Reads `0.29`, `0.29.0` or `v0.29.0`.
    ///
    /// # Errors
    /// Anything that is no such version.
    pub fn parse(text: &str) -> Result<Self> {
        let bare = text.strip_prefix('v').unwrap_or(text);
        let mut parts = bare.split('.');
        let minor = match (parts.next(), parts.next().map(str::parse)) {
            (Some("0"), Some(Ok(minor))) => Some(minor),
            _ => None,
        };
        let patch_ok = parts.next().is_none_or(|patch| patch.parse::<u32>().is_ok());
        match minor {
            Some(minor) if patch_ok && parts.next().is_none() => Ok(Self { minor }),
            _ => Err(Error::found(text, "a vLLM version such as 0.29").in_field("vllm_version")),
        }
    }

    /// First version known to differ in what its scheduler decides.
    const REVISED_SCHEDULER: Self = Self { minor: 33 };

    /// The versions whose scheduler is modelled, by the names that scenarios use.
    pub const SCHEDULERS: [(&str, Self); 2] =
        [("0.29", Self { minor: 29 }), ("0.33", Self::REVISED_SCHEDULER)];

    /// The version of this name, if its scheduler is modelled.
    ///
    /// # Errors
    /// Any other version, with those that are.
    pub fn scheduler(name: &str) -> Result<Self> {
        let known = Self::SCHEDULERS.iter().find(|(known, _)| *known == name);
        known.map(|(_, version)| *version).ok_or_else(|| {
            Error::unknown("version of vLLM", name, Self::SCHEDULERS.map(|(known, _)| known))
        })
    }

    /// Whether `long_prefill_token_threshold` leaves a request alone that has the engine to itself.
    #[must_use]
    pub fn spares_a_lone_request_the_threshold(self) -> bool {
        self >= Self::REVISED_SCHEDULER
    }

    /// Whether under the priority policy a step goes on with the next running request after one
    /// that lacked a block had to preempt itself.
    #[must_use]
    pub fn goes_on_after_self_preemption(self) -> bool {
        self >= Self::REVISED_SCHEDULER
    }

    /// First version that balances data-parallel ranks by requests in flight and KV pressure:
    /// pull request 49204 of vllm-project/vllm, merged on 27 July 2026. The sources of 0.26 do not
    /// have it, those of 0.27.1 do.
    const PRESSURE_BALANCED: Self = Self { minor: 27 };

    /// Whether a rank with a queue and a full KV cache is avoided, and equal ranks take turns;
    /// before, a waiting request counted four times and the first of equals was taken.
    #[must_use]
    pub fn balances_by_kv_pressure(self) -> bool {
        self >= Self::PRESSURE_BALANCED
    }

    /// Whether memory for CUDA graphs is set aside before the KV cache is sized.
    #[must_use]
    pub fn counts_cuda_graphs(self) -> bool {
        self >= Self::GRAPHS_COUNTED
    }
}

impl Default for VllmVersion {
    fn default() -> Self {
        Self { minor: 29 }
    }
}

impl fmt::Display for VllmVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "0.{}", self.minor)
    }
}

/// The limits of one scheduler step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchLimits {
    /// Most tokens that one step computes.
    pub max_num_batched_tokens: Tokens,
    /// Most sequences that run at once.
    pub max_num_seqs: u64,
}

/// The limits that `vllm serve` chooses for `gpu`: three classes by memory, in which the A100
/// counts as small whatever it has.
#[must_use]
pub fn batch_limits(gpu: &GpuSpec) -> BatchLimits {
    let gib = gpu.memory().gib();
    // Every GPU of the catalogue with a name like A100 is the A100; A6000 and the like are small.
    let is_a100 = gpu.arch == Arch::Ampere && gpu.preset == "A100";
    let (tokens, max_num_seqs) = if gib >= 160.0 {
        (16_384, 1_024)
    } else if gib >= 70.0 && !is_a100 {
        (8_192, 1_024)
    } else {
        (2_048, 256)
    };
    BatchLimits { max_num_batched_tokens: Tokens(tokens), max_num_seqs }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::gpus;

    #[test]
    fn limits_follow_the_class_of_the_gpu() {
        let limits = |gpu| {
            let limits = batch_limits(gpus::find(gpu).unwrap());
            (limits.max_num_batched_tokens.0, limits.max_num_seqs)
        };
        assert_eq!(limits("B200"), (16_384, 1_024));
        assert_eq!(limits("MI300X"), (16_384, 1_024));
        assert_eq!(limits("H200"), (8_192, 1_024));
        assert_eq!(limits("H100"), (8_192, 1_024));
        assert_eq!(limits("A100"), (2_048, 256));
        assert_eq!(limits("RTX4090"), (2_048, 256));
    }

    #[test]
    fn versions() {
        let graphs = |text| VllmVersion::parse(text).unwrap().counts_cuda_graphs();
        assert!(!graphs("0.19") && !graphs("0.9.2") && graphs("0.21.0") && graphs("v0.29.1"));
        for text in ["", "0", "1.0", "0.x", "0.29.0.1", "0.29.x"] {
            assert!(VllmVersion::parse(text).is_err(), "{text}");
        }
        assert_eq!(VllmVersion::default().to_string(), "0.29");
    }
}
