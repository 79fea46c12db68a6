//! `tonnage stats`.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Write};
use std::num::NonZeroU64;
use std::path::PathBuf;

use super::Outcome;
use crate::diag::{Error, Result};
use crate::trace::canonical::Reader;
use crate::trace::meta::{Meta, PartialBlock};
use crate::trace::summary::{self, Options, Summary};

mod text;

/// Tokens in a block where neither the command line nor the sidecar says.
const BLOCK_SIZE: u64 = 64;

/// Arguments of `tonnage stats`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Canonical trace: CSV, plain, gzip or zstd; - is standard input, which has no sidecar
    trace: PathBuf,
    /// Replay through LRU caches of these sizes, in blocks; a prompt's tail is evicted first
    #[arg(long, value_name = "BLOCKS,…", value_delimiter = ',')]
    lru: Vec<NonZeroU64>,
    /// The same with a prompt's head evicted first
    #[arg(long, value_name = "BLOCKS,…", value_delimiter = ',')]
    lru_forward: Vec<NonZeroU64>,
    /// Tokens in a block [default: as in the trace's origin, else 64]
    #[arg(long, value_name = "TOKENS")]
    block_size: Option<NonZeroU64>,
    /// A prompt's last, partial block [default: as in the trace's origin, else drop]
    #[arg(long, value_enum)]
    partial_block: Option<Partial>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Partial {
    /// Counts as a block
    Count,
    /// Does not count
    Drop,
}

impl From<Partial> for PartialBlock {
    fn from(partial: Partial) -> Self {
        match partial {
            Partial::Count => Self::Count,
            Partial::Drop => Self::Drop,
        }
    }
}

/// Runs the command.
pub fn run(args: &Args) -> Result<Outcome> {
    let meta = Meta::read_beside(&args.trace)?.unwrap_or_default();
    let sizes = |sizes: &[NonZeroU64]| sizes.iter().map(|size| size.get()).collect();
    let block_size = args.block_size.map(NonZeroU64::get);
    let partial_block = args.partial_block.map(PartialBlock::from);
    let block_size = block_size.or(meta.origin_block_size).unwrap_or(BLOCK_SIZE);
    let partial_block = partial_block.or(meta.partial_block).unwrap_or(PartialBlock::Drop);
    // In other blocks than the origin's there is nothing to leave out.
    let as_origin =
        Some(block_size) == meta.origin_block_size && partial_block == PartialBlock::Drop;
    let unnumbered_blocks = if as_origin { meta.unnumbered_blocks } else { BTreeMap::default() };
    let options = Options {
        block_size,
        partial_block,
        unnumbered_blocks,
        lru: sizes(&args.lru),
        lru_forward: sizes(&args.lru_forward),
    };
    let summary = summary::summarise(Reader::open(&args.trace)?, &options)?;
    let text = if args.json { json(&summary)? } else { text::render(&summary) };
    match std::io::stdout().lock().write_all(text.as_bytes()) {
        // A reader such as `head` that has seen enough is no failure.
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(Error::new(format!("cannot write the figures: {error}")))
        }
        _ => Ok(Outcome::Met),
    }
}

fn json(summary: &Summary) -> Result<String> {
    let text = serde_json::to_string_pretty(summary)
        .map_err(|error| Error::new(format!("cannot write the figures as JSON: {error}")))?;
    Ok(text + "\n")
}
