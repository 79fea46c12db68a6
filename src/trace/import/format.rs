//! The formats that can be imported, by name.

use super::Setting::{
    AssumeTps, BlockSize, KeepIds, MaxContext, MaxSpan, NoSharing, Only, Outputs, Stagger,
};
use super::{
    Read, Setting, agentic_mooncake, azure, bailian, burstgpt, inference_lab, mini_swe, mooncake,
    prefix_groups, tracelab, weka,
};

/// Defines the formats: variant, name, what it is, the settings that it heeds, its reader.
macro_rules! formats {
    ($($variant:ident, $name:literal, $about:literal, [$($setting:expr),*], $read:path;)*) => {
        /// A format that can be imported.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Format {
            $(#[doc = $about] $variant,)*
        }

        impl Format {
            /// All of them, in the order in which they are shown.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            /// Its name, also on the command line.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            /// What it is, in a line.
            #[must_use]
            pub const fn about(self) -> &'static str {
                match self { $(Self::$variant => $about,)* }
            }

            /// The options that it heeds, beside those that all formats do.
            #[must_use]
            pub const fn settings(self) -> &'static [Setting] {
                match self { $(Self::$variant => &[$($setting),*],)* }
            }

            /// What reads it.
            #[must_use]
            pub const fn reader(self) -> Read {
                match self { $(Self::$variant => $read,)* }
            }
        }
    };
}

formats! {
    Weka, "weka", "Run-length JSONL of agent sessions with block ids (cc-weka, cc-weka-global)",
        [Stagger, Outputs, AssumeTps, KeepIds, Only, MaxContext, MaxSpan], weka::read;
    Lmcache, "lmcache", "Run-length JSONL of LMCache's agent runs, which weka reads, too",
        [Stagger, Outputs, AssumeTps, KeepIds, Only, MaxContext, MaxSpan], weka::read;
    Mooncake, "mooncake", "Mooncake JSONL: one request a line with the ids of its blocks",
        [Outputs, AssumeTps, KeepIds, BlockSize], mooncake::read;
    AgenticMooncake, "agentic-mooncake",
        "Agentic Mooncake JSONL, version 2: requests with what they wait for",
        [Outputs, AssumeTps, KeepIds], agentic_mooncake::read;
    Bailian, "bailian", "Qwen-Bailian JSONL: the same, with the request before in the chat",
        [Outputs, AssumeTps, BlockSize], bailian::read;
    MiniSweAgent, "mini-swe-agent", "Steps of mini-swe-agent runs (CSV)",
        [Outputs, AssumeTps, KeepIds], mini_swe::read;
    TraceLab, "tracelab", "Rounds of coding agents with the times of their tools (TraceLab, JSONL)",
        [Outputs, AssumeTps, KeepIds], tracelab::read;
    Azure, "azure", "Azure LLM inference traces of 2023 and 2024 (CSV)", [], azure::read;
    BurstGpt, "burstgpt", "BurstGPT (CSV)", [Outputs, AssumeTps, KeepIds], burstgpt::read;
    InferenceLab, "inference-lab", "Sessions of the simulator inference-lab (JSONL)",
        [Stagger, AssumeTps, KeepIds], inference_lab::read;
    PrefixGroups, "prefix-groups", "Single requests whose prompts begin alike by group (CSV)",
        [KeepIds, NoSharing], prefix_groups::read;
}

impl Format {
    /// The format of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|format| format.name() == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_finds_its_format() {
        for &format in Format::ALL {
            assert_eq!(Format::named(format.name()), Some(format));
        }
        assert_eq!(Format::named("parquet"), None);
    }
}
