//! The command line of tonnage: reads the arguments, runs one command, turns its outcome into an
//! exit code.

use std::process::ExitCode;

use clap::Parser;
use tonnage::cli::{self, Cli};

fn main() -> ExitCode {
    match cli::run(Cli::parse()) {
        Ok(outcome) => outcome.exit_code(),
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(cli::EXIT_ERROR)
        }
    }
}
