//! `tonnage import`: one subcommand a format.

use clap::Subcommand;

use super::Outcome;
use crate::diag::Result;

mod args;
mod auto;
mod format;
mod spendlogs;

/// Arguments of `tonnage import`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    source: Source,
}

#[derive(Debug, Subcommand)]
enum Source {
    #[command(flatten)]
    Auto(auto::Auto),
    /// LiteLLM_SpendLogs: the live database, its exports, JSON of the API, payloads of loggers
    Spendlogs(spendlogs::Args),
    #[command(flatten)]
    Format(format::Chosen),
}

/// Runs the import that was asked for.
pub fn run(args: &Args) -> Result<Outcome> {
    match &args.source {
        Source::Auto(auto) => auto.run(),
        Source::Spendlogs(args) => spendlogs::run(args),
        Source::Format(chosen) => chosen.run(),
    }
}
