//! The sidecar `NAME.meta.json`: where a trace comes from and how it was made.

use serde::{Deserialize, Serialize};

/// What a sidecar says of its trace. Every field is optional for a reader.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Meta {
    /// Version of the canonical form, now 1.
    pub format_version: u32,
    /// What it was made of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// Licence of the data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub licence: Option<String>,
    /// Absolute start, RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start: Option<String>,
    /// IANA time zone of the people in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_zone: Option<String>,
    /// Tokens in a block of the origin's block ids.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin_block_size: Option<u64>,
    /// Whether the origin counts a prompt's last, partial block.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partial_block: Option<PartialBlock>,
    /// The command that made it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub made_by: Option<String>,
    /// What a reader should know: counts of estimated times, dropped rows, approximations.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// What statistics do with a prompt's last, partial block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PartialBlock {
    /// It counts as a block.
    Count,
    /// It does not exist.
    Drop,
}
