//! Figures of the calls, whatever their session.

use serde::Serialize;

use super::arrival::Arrival;
use super::as_map;
use super::cache::Prompts;
use super::collect::Collector;
use super::dist::{Dist, ratio};
use crate::trace::record::Name;

/// Sizes, sharing and times of all calls.
#[derive(Clone, Debug, Serialize)]
pub struct Traffic {
    /// Calls.
    pub requests: u64,
    /// Prompt tokens of all calls.
    pub tokens_in: u64,
    /// Output tokens of all calls.
    pub tokens_out: u64,
    /// Prompt tokens for each output token.
    pub in_out_ratio: Option<f64>,
    /// The same call by call; an output of 0 counts as 1.
    pub in_out_ratio_per_request: Option<Dist<f64>>,
    /// How the calls are spread over time.
    pub arrival_on_merged_timeline: Option<Arrival>,
    /// Prompt tokens of a call.
    pub prompt_tokens: Option<Dist<i64>>,
    /// Output tokens of a call.
    pub output_tokens: Option<Dist<i64>>,
    /// Sharing: what a cache that never evicts would hit.
    pub infinite: Infinite,
    /// Prompt tokens of a call that such a cache does not have.
    pub new_tokens: Option<Dist<i64>>,
    /// New prompt tokens for each output token.
    pub new_to_out_ratio_total: Option<f64>,
    /// Recorded duration of a call (`seen_duration_s`).
    pub api_time_s: Option<Dist<f64>>,
    /// Calls that have one, as a share.
    pub api_time_coverage: Option<f64>,
    /// Calls by model group, most first.
    #[serde(serialize_with = "as_map")]
    pub models: Vec<(Name, u64)>,
}

/// What a cache that never evicts would hit.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Infinite {
    /// Blocks of all prompts.
    pub total_blocks: u64,
    /// Different blocks.
    pub unique_blocks: u64,
    /// Leading blocks of prompts that were there before.
    pub prefix_hit_blocks: u64,
    /// Their share.
    pub hit_rate_blocks: Option<f64>,
    /// Their share in tokens.
    pub hit_rate_tokens: Option<f64>,
}

/// What an endless cache hits.
#[derive(Debug)]
pub(super) struct Hits {
    /// Tokens of each call, in the order of the merged timeline.
    pub(super) tokens: Vec<u64>,
    infinite: Infinite,
}

impl Hits {
    /// From the blocks hit by each prompt and the number of different blocks.
    pub(super) fn new(prompts: &Prompts<'_>, blocks: &[u64], unique_blocks: u64) -> Self {
        let pairs = prompts.prompts.iter().zip(blocks);
        let tokens: Vec<u64> =
            pairs.map(|((_, tokens), blocks)| prompts.hit_tokens(*blocks, *tokens)).collect();
        let total_blocks = prompts.total_blocks();
        let prefix_hit_blocks: u64 = blocks.iter().sum();
        let hit_tokens: u64 = tokens.iter().sum();
        let infinite = Infinite {
            total_blocks,
            unique_blocks,
            prefix_hit_blocks,
            hit_rate_blocks: ratio(prefix_hit_blocks as f64, total_blocks as f64, 6),
            hit_rate_tokens: ratio(hit_tokens as f64, prompts.total_tokens() as f64, 6),
        };
        Self { tokens, infinite }
    }
}

impl Traffic {
    /// The calls are in the order of the merged timeline, and so are the hits.
    pub(super) fn of(all: &Collector, hits: &Hits) -> Self {
        let calls = &all.calls;
        let requests = calls.len() as u64;
        let tokens_in: u64 = calls.iter().map(|call| call.prompt).sum();
        let tokens_out: u64 = calls.iter().map(|call| call.output).sum();
        let new: Vec<u64> =
            calls.iter().zip(&hits.tokens).map(|(call, hit)| call.prompt - hit).collect();
        let new_total: u64 = new.iter().sum();
        let ratios = calls.iter().map(|call| call.prompt as f64 / call.output.max(1) as f64);
        let times: Vec<u64> = calls.iter().map(|call| call.at_micros).collect();
        Self {
            requests,
            tokens_in,
            tokens_out,
            in_out_ratio: ratio(tokens_in as f64, tokens_out as f64, 3),
            in_out_ratio_per_request: Dist::of_rounded(ratios.collect(), 3),
            arrival_on_merged_timeline: Arrival::of(&times),
            prompt_tokens: Dist::of_counts(calls.iter().map(|call| call.prompt)),
            output_tokens: Dist::of_counts(calls.iter().map(|call| call.output)),
            infinite: hits.infinite.clone(),
            new_tokens: Dist::of_counts(new),
            new_to_out_ratio_total: ratio(new_total as f64, tokens_out as f64, 4),
            api_time_s: Dist::of_rounded(all.api_times.clone(), 3),
            api_time_coverage: ratio(all.api_times.len() as f64, requests as f64, 4),
            models: all.models.most_first(),
        }
    }
}
