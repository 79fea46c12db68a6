//! `tonnage import`: one subcommand a format.

use clap::Subcommand;

use super::Outcome;
use crate::diag::Result;

mod spendlogs;
mod weka;

/// Arguments of `tonnage import`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    format: Format,
}

#[derive(Debug, Subcommand)]
enum Format {
    /// Run-length JSONL of agent sessions with block ids (cc-weka, cc-weka-global)
    Weka(weka::Args),
    /// LiteLLM_SpendLogs: CSV and more from psql, JSON of the API, payloads of loggers
    Spendlogs(spendlogs::Args),
}

/// Runs the import that was asked for.
pub fn run(args: &Args) -> Result<Outcome> {
    match &args.format {
        Format::Weka(args) => weka::run(args),
        Format::Spendlogs(args) => spendlogs::run(args),
    }
}
