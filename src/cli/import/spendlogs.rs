//! `tonnage import spendlogs`.

use crate::cli::Outcome;
use crate::diag::Result;

/// Arguments of `tonnage import spendlogs`.
#[derive(Debug, clap::Args)]
pub struct Args {}

/// Runs the import.
pub fn run(_args: &Args) -> Result<Outcome> {
    Ok(Outcome::Met)
}
