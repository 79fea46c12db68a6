//! `tonnage trace`: one subcommand a tool.

use clap::Subcommand;

use super::Outcome;
use crate::diag::Result;
use crate::trace::check::TIME_MAX;
use crate::units::Span;

mod anonymise;
mod check;
mod cut;
mod files;
mod merge;
mod sample;
mod scale;

/// Arguments of `tonnage trace`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    tool: Tool,
}

#[derive(Debug, Subcommand)]
enum Tool {
    /// Hold a trace against every rule, and tell what in it is doubtful
    Check(check::Args),
    /// Keep some of the sessions, whole, with every tenant and profile in proportion
    Sample(sample::Args),
    /// Clone sessions under fresh identities, or leave some out: the same load, larger or smaller
    Scale(scale::Args),
    /// Keep a part of the time, with the sessions that are under way at its start
    Cut(cut::Args),
    /// Put several traces together, each as a tenant of its own
    Merge(merge::Args),
    /// Replace names by numbers, and clean the sidecar
    Anonymise(anonymise::Args),
}

/// Runs the tool that was asked for.
pub fn run(args: &Args) -> Result<Outcome> {
    match &args.tool {
        Tool::Check(args) => check::run(args),
        Tool::Sample(args) => sample::run(args),
        Tool::Scale(args) => scale::run(args),
        Tool::Cut(args) => cut::run(args),
        Tool::Merge(args) => merge::run(args),
        Tool::Anonymise(args) => anonymise::run(args),
    }
}

/// Reads a number of seconds.
fn seconds(text: &str) -> std::result::Result<Span, String> {
    Span::parse_secs(text)
        .filter(|span| *span <= TIME_MAX)
        .ok_or_else(|| "allowed: a decimal number of seconds from 0, such as 1.5".to_owned())
}
