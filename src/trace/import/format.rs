//! The formats that can be imported, by name.

use super::Setting::{AssumeTps, KeepIds, MaxContext, MaxSpan, Only, Outputs, Stagger};
use super::{Read, Setting, azure, burstgpt, mini_swe, tracelab, weka};

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
    MiniSweAgent, "mini-swe-agent", "Steps of mini-swe-agent runs (CSV)",
        [Outputs, AssumeTps, KeepIds], mini_swe::read;
    TraceLab, "tracelab", "Rounds of coding agents with the times of their tools (TraceLab, JSONL)",
        [Outputs, AssumeTps, KeepIds], tracelab::read;
    Azure, "azure", "Azure LLM inference traces of 2023 and 2024 (CSV)", [], azure::read;
    BurstGpt, "burstgpt", "BurstGPT (CSV)", [Outputs, AssumeTps, KeepIds], burstgpt::read;
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
