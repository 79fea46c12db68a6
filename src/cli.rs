//! The command line: one file a subcommand, each with its arguments and its `run`.
//!
//! Exit codes: 0 the answer is yes or the work is done, 1 the answer is no (an SLO is not met),
//! 2 the input was wrong and nothing was written, 130 the run was stopped by Ctrl-C and what was
//! done so far is shown.

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::diag::Result;

mod calibrate;
mod capacity;
mod conform;
mod explain;
mod export;
mod fit;
mod generate;
mod import;
mod memory;
mod plot;
mod progress;
mod replaced;
mod replay;
mod scenario;
mod size;
mod source;
mod stats;
mod step;
mod sweep;
mod trace;
mod validate;

/// Exit code for anything wrong with what the user gave.
pub const EXIT_ERROR: u8 = 2;

/// Exit code of a run that was stopped: 128 and the number of SIGINT, as shells have it.
pub const EXIT_INTERRUPTED: u8 = 130;

/// How big must the LLM inference fleet be when its users are agents?
#[derive(Debug, Parser)]
#[command(name = "tonnage", version, about, max_term_width = 100)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Find the smallest fleet that meets every target, among all candidates
    Size(Box<size::Args>),
    /// Find the load that a fleet carries, and where its hit rate bends
    Capacity(Box<capacity::Args>),
    /// Simulate every combination of values of some keys, resumably, on many cores or machines
    Sweep(Box<sweep::Args>),
    /// Simulate one fleet and show everything that was measured
    Replay(replay::Args),
    /// Show where task time goes, which resource binds, and what each lever would change
    Explain(Box<explain::Args>),
    /// Turn recorded traffic into a canonical trace
    Import(import::Args),
    /// Write a trace in the form of another tool
    Export(export::Args),
    /// Make a trace from a workload profile, and hold it against published figures
    Generate(Box<generate::Args>),
    /// Learn a workload profile from a trace, and show how well it makes traces like it
    Fit(fit::Args),
    /// Describe a trace: counts, percentiles, sharing, cache hits by size
    Stats(stats::Args),
    /// Make one trace of another, or check one
    Trace(Box<trace::Args>),
    /// Draw a sweep: hit rate, throughput and task time over one of its keys
    Plot(plot::Args),
    /// Hold the engine against recordings of a real scheduler, decision by decision
    Conform(conform::Args),
    /// Hold the simulator against measured serving runs, and show how far it is from them
    Validate(Box<validate::Args>),
    /// Fit the step time to measurements of your own, for scenarios to name
    Calibrate(Box<calibrate::Args>),
    /// Show what a model takes of a GPU's memory, and what is left for the KV cache
    Memory(Box<memory::Args>),
    /// Show how long one engine step takes, term by term, and what bounds it
    Step(Box<step::Args>),
}

/// How a command ended that did not fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Done, or the targets are met.
    Met,
    /// The targets are not met.
    NotMet,
    /// It was stopped by Ctrl-C, and what was done so far is shown.
    Interrupted,
}

impl Outcome {
    /// The exit code that says so.
    #[must_use]
    pub fn exit_code(self) -> ExitCode {
        match self {
            Self::Met => ExitCode::SUCCESS,
            Self::NotMet => ExitCode::from(1),
            Self::Interrupted => ExitCode::from(EXIT_INTERRUPTED),
        }
    }
}

/// Runs the command that was asked for.
///
/// # Errors
/// Whatever is wrong with the input; nothing has been written then.
pub fn run(cli: Cli) -> Result<Outcome> {
    match cli.command {
        Command::Size(args) => size::run(&args),
        Command::Capacity(args) => capacity::run(&args),
        Command::Sweep(args) => sweep::run(&args),
        Command::Replay(args) => replay::run(&args),
        Command::Explain(args) => explain::run(&args),
        Command::Import(args) => import::run(&args),
        Command::Export(args) => export::run(&args),
        Command::Generate(args) => generate::run(&args),
        Command::Fit(args) => fit::run(&args),
        Command::Stats(args) => stats::run(&args),
        Command::Trace(args) => trace::run(&args),
        Command::Plot(args) => plot::run(&args),
        Command::Conform(args) => conform::run(&args),
        Command::Calibrate(args) => calibrate::run(&args),
        Command::Validate(args) => validate::run(&args),
        Command::Memory(args) => memory::run(&args),
        Command::Step(args) => step::run(&args),
    }
}
