//! `tonnage stats`.

use super::Outcome;
use crate::diag::Result;

/// Arguments of `tonnage stats`.
#[derive(Debug, clap::Args)]
pub struct Args {}

/// Runs the command.
pub fn run(_args: &Args) -> Result<Outcome> {
    Ok(Outcome::Met)
}
