//! The catalogue of GPUs: data sheets and prices, from `data/gpus.csv`.

use std::sync::LazyLock;

use serde::Deserialize;

use crate::diag::{Error, Result};
use crate::units::Bytes;

/// GPU architecture, as far as step times tell them apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Arch {
    /// A100, A6000.
    Ampere,
    /// L40S, RTX 4090.
    Ada,
    /// H100, H200.
    Hopper,
    /// B200, B300 and their Grace pairings.
    Blackwell,
    /// The workstation Blackwell, RTX PRO 6000.
    BlackwellWs,
    /// MI300X, MI325X.
    Cdna3,
    /// MI355X.
    Cdna4,
}

impl Arch {
    /// The name that presets use.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ampere => "ampere",
            Self::Ada => "ada",
            Self::Hopper => "hopper",
            Self::Blackwell => "blackwell",
            Self::BlackwellWs => "blackwell_ws",
            Self::Cdna3 => "cdna3",
            Self::Cdna4 => "cdna4",
        }
    }

    /// Whether the maker is AMD.
    #[must_use]
    pub const fn is_amd(self) -> bool {
        matches!(self, Self::Cdna3 | Self::Cdna4)
    }
}

/// One GPU by its data sheet. Rates are dense (no sparsity); links count one direction.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct GpuSpec {
    /// Name in the catalogue.
    pub name: String,
    /// Other names, separated by semicolons.
    aliases: String,
    /// Architecture.
    pub arch: Arch,
    /// Name of its step-time preset, where there is one.
    pub preset: String,
    /// Memory as sold, in GB.
    pub hbm_gb: f64,
    /// Memory as the driver reports it, in MiB, where known.
    pub hbm_mib: Option<u64>,
    /// Where that reading comes from.
    pub hbm_mib_source: String,
    /// Memory bandwidth in TB/s.
    pub hbm_tb_s: f64,
    /// Peak of 16-bit arithmetic in TFLOP/s.
    pub tflops_16: f64,
    /// Peak of 8-bit arithmetic in TFLOP/s.
    pub tflops_8: Option<f64>,
    /// Peak of 4-bit arithmetic in TFLOP/s.
    pub tflops_4: Option<f64>,
    /// Kind of link within the node.
    pub link: String,
    /// Its bandwidth in GB/s.
    pub link_gb_s: f64,
    /// How many GPUs it joins.
    pub link_world: u32,
    /// PCIe bandwidth in GB/s.
    pub pcie_gb_s: f64,
    /// Board power in W.
    pub tdp_w: f64,
    /// Lowest on-demand price of an hour in USD.
    pub price_low_usd_h: Option<f64>,
    /// Highest on-demand price of an hour in USD.
    pub price_high_usd_h: Option<f64>,
    /// Total cost of ownership of an hour at a hyperscaler, in USD.
    pub tco_hyperscaler_usd_h: Option<f64>,
    /// Total cost of ownership of an hour at a GPU cloud, in USD.
    pub tco_neocloud_usd_h: Option<f64>,
    /// Rent of an hour under contract, in USD.
    pub rental_usd_h: Option<f64>,
}

/// GPUs that one tensor-parallel group may span over PCIe within a node.
const NODE_GPUS: u32 = 8;

impl GpuSpec {
    /// Memory of the device: the driver's reading, else as sold.
    #[must_use]
    pub fn memory(&self) -> Bytes {
        match self.hbm_mib {
            Some(mib) => Bytes(mib << 20),
            None => Bytes((self.hbm_gb * 1e9) as u64),
        }
    }

    /// Link bandwidth in GB/s within a group of `tp` GPUs: beyond the GPUs that the fast link
    /// joins, PCIe.
    #[must_use]
    pub fn group_link_gb_s(&self, tp: u32) -> f64 {
        if tp <= self.link_world { self.link_gb_s } else { self.pcie_gb_s }
    }

    /// GPUs of one node, or of the domain that the fast link joins where that is larger.
    #[must_use]
    pub fn node_gpus(&self) -> u32 {
        self.link_world.max(NODE_GPUS)
    }

    /// Refuses groups that span more than one node.
    ///
    /// # Errors
    /// No GPU, or more of them than a node has.
    pub fn check_group(&self, tp: u32) -> Result<()> {
        let most = self.node_gpus();
        if (1..=most).contains(&tp) {
            return Ok(());
        }
        let error = Error::found(tp, format!("1 to {most} GPUs of {}", self.name)).in_field("tp");
        Err(error.help("tensor parallelism across nodes is not modelled"))
    }

    /// Refuses `dp` groups of `tp` GPUs that share experts and span more than one node.
    ///
    /// # Errors
    /// No rank, or more of them than fit in a node.
    pub fn check_ranks(&self, tp: u32, dp: u32) -> Result<()> {
        let most = self.node_gpus() / tp.max(1);
        if (1..=most).contains(&dp) {
            return Ok(());
        }
        let allowed =
            format!("at most {most} with tp {tp}: a node has {} {}", self.node_gpus(), self.name);
        let error = Error::found(dp, allowed).in_field("dp");
        Err(error.help("experts across nodes are not modelled"))
    }

    fn answers_to(&self, wanted: &str) -> bool {
        std::iter::once(self.name.as_str())
            .chain(self.aliases.split(';'))
            .filter(|name| !name.is_empty())
            .any(|name| squeeze(name) == wanted)
    }
}

static GPUS: LazyLock<Vec<GpuSpec>> = LazyLock::new(|| {
    csv::Reader::from_reader(include_str!("data/gpus.csv").as_bytes())
        .deserialize()
        .collect::<std::result::Result<_, _>>()
        .expect("the GPU table compiled in is well formed")
});

/// All GPUs of the catalogue.
#[must_use]
pub fn all() -> &'static [GpuSpec] {
    &GPUS
}

/// The GPU of this name. Case, punctuation and the maker's name do not matter.
///
/// # Errors
/// An unknown name, with the nearest known one.
pub fn find(name: &str) -> Result<&'static GpuSpec> {
    let wanted = squeeze(name);
    GPUS.iter().find(|gpu| gpu.answers_to(&wanted)).ok_or_else(|| {
        Error::unknown("GPU", name, GPUS.iter().map(|gpu| gpu.name.as_str())).in_field("gpu")
    })
}

/// The name without what spellings differ in.
fn squeeze(name: &str) -> String {
    let lower: String =
        name.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).collect();
    let bare = lower.strip_prefix("nvidia").or_else(|| lower.strip_prefix("amdinstinct"));
    bare.or_else(|| lower.strip_prefix("amd")).unwrap_or(&lower).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spellings_of_one_gpu_meet() {
        for name in ["h100-sxm", "H100", "H100-SXM5", "h100_sxm", "NVIDIA H100 80GB"] {
            assert_eq!(find(name).unwrap().name, "H100-SXM", "{name}");
        }
        assert_eq!(find("RTX 4090").unwrap().name, "RTX4090");
        assert_eq!(find("AMD Instinct MI300X").unwrap().name, "MI300X");
    }

    #[test]
    fn names_and_aliases_are_unambiguous() {
        for gpu in all() {
            for name in std::iter::once(gpu.name.as_str()).chain(gpu.aliases.split(';')) {
                if !name.is_empty() {
                    assert_eq!(find(name).unwrap().name, gpu.name);
                }
            }
        }
        assert!(find("").is_err());
    }

    #[test]
    fn an_unknown_gpu_names_the_nearest() {
        let text = find("h100-sxn").unwrap_err().to_string();
        assert!(text.contains("did you mean `H100-SXM`?"), "{text}");
    }

    #[test]
    fn groups_stay_within_a_node() {
        let gpu = find("h100").unwrap();
        assert!(gpu.check_group(8).is_ok() && gpu.check_group(16).is_err());
        assert!(gpu.check_group(0).is_err());
        assert!(find("gb200").unwrap().check_group(72).is_ok());
        assert_eq!(find("a6000").unwrap().group_link_gb_s(2), 56.0);
        assert_eq!(find("a6000").unwrap().group_link_gb_s(4), 32.0);
    }
}
