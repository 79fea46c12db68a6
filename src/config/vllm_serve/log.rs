//! The size of the KV cache as vLLM logs it when it starts.
//!
//! ```text
//! INFO ... GPU KV cache size: 1,391,552 tokens
//! INFO ... Maximum concurrency for 131,072 tokens per request: 10.62x
//! INFO ... # GPU blocks: 2588, # CPU blocks: 0
//! vllm:cache_config_info{...,num_gpu_blocks="2588",...} 1.0
//! ```
//!
//! The third is of older versions, the fourth of `/metrics`; both give the number of blocks, the
//! null block included. The first is a number of sequences times their length:
//! `int(num_gpu_blocks / blocks of one sequence of max_model_len x max_model_len)`. Where a
//! sequence fills its last block that is `num_gpu_blocks x block_size`, the null block included.

use super::super::geometry::{ModelGeometry, WindowKind};
use crate::diag::{Error, Result};
use crate::document::Document;
use crate::units::{Blocks, Tokens};

/// The key.
pub const KEY: &str = "engine.vllm_log";

const EXPECTED: &str = "a line of vLLM's log such as `GPU KV cache size: 1,391,552 tokens` or \
                        `# GPU blocks: 2588`";
const TOKENS: &str = "GPU KV cache size:";
const CONCURRENCY: &str = "Maximum concurrency for";
const BLOCKS: [&str; 2] = ["# GPU blocks:", "num_gpu_blocks=\""];

/// The number of blocks that the log tells of.
///
/// `max_model_len` is what the engine was started with; a line on the maximum concurrency in the
/// text says it better.
///
/// # Errors
/// A text that tells of no size or of different ones, or a size in tokens for a model with sliding
/// layers, whose tokens are not blocks.
pub fn blocks(
    text: &str,
    model: &ModelGeometry,
    block_size: u64,
    max_model_len: Tokens,
) -> Result<Blocks> {
    let logged: Vec<u64> = BLOCKS.iter().flat_map(|mark| numbers(text, mark)).collect();
    let tokens = numbers(text, TOKENS);
    if let Some(blocks) = only(&logged)? {
        return Ok(Blocks(blocks));
    }
    let tokens = only(&tokens)?.ok_or_else(|| Error::found(text.trim(), EXPECTED))?;
    if model.window.is_some_and(|window| window.kind == WindowKind::Sliding) {
        let text = format!(
            "for {}, some of whose layers have a sliding window, vLLM logs tokens that are not \
             blocks x block size",
            model.name
        );
        return Err(Error::new(text)
            .help("give num_gpu_blocks=\"...\" of the metric vllm:cache_config_info"));
    }
    let length = only(&numbers(text, CONCURRENCY))?.map_or(max_model_len, Tokens).0.max(1);
    let of_one = u128::from(Tokens(length).blocks_ceil(block_size).0);
    let (tokens, length) = (u128::from(tokens), u128::from(length));
    // The logged number is rounded down by less than one token, a block is more than that.
    let blocks = (tokens * of_one * 2 + length) / (length * 2);
    u64::try_from(blocks).map(Blocks).map_err(|_| Error::found(tokens, "a number of tokens"))
}

/// The number of blocks that [`KEY`] tells of, if it is given.
///
/// # Errors
/// As [`blocks`].
pub fn read(
    document: &Document,
    model: &ModelGeometry,
    block_size: u64,
    max_model_len: Tokens,
) -> Result<Option<Blocks>> {
    let Some(text) = document.text(KEY)? else { return Ok(None) };
    let blocks = blocks(&text, model, block_size, max_model_len);
    blocks.map(Some).map_err(|error| document.at(KEY, error))
}

/// The numbers that follow a mark, thousands set off by commas or not.
fn numbers(text: &str, mark: &str) -> Vec<u64> {
    let after = text.match_indices(mark).map(|(at, mark)| text[at + mark.len()..].trim_start());
    let digits = after.map(|rest| {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != ',').unwrap_or(rest.len());
        rest[..end].replace(',', "")
    });
    digits.filter_map(|digits| digits.parse().ok()).collect()
}

/// The number, if all are the same.
fn only(numbers: &[u64]) -> Result<Option<u64>> {
    match numbers {
        [first, rest @ ..] if rest.iter().any(|number| number != first) => {
            let found: Vec<String> = numbers.iter().map(u64::to_string).collect();
            Err(Error::new(format!("the log tells of several sizes: {}", found.join(", ")))
                .help("give the line of one start of one engine"))
        }
        [first, ..] => Ok(Some(*first)),
        [] => Ok(None),
    }
}
