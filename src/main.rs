//! The command line of tonnage: reads the arguments, runs one command, turns its outcome into an
//! exit code.

use std::process::ExitCode;

use clap::Parser;
use mimalloc::MiMalloc;
use tonnage::cli::{self, Cli};

/// Long runs take about a tenth less CPU time with it; `benches/results` has the figures. Whoever
/// uses the library chooses for themselves.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    match cli::run(Cli::parse()) {
        Ok(outcome) => outcome.exit_code(),
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(cli::EXIT_ERROR)
        }
    }
}
