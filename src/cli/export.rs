//! `tonnage export FORMAT`: writes a trace in the form of another tool.

use std::io::{IsTerminal, Write as _};
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};

use clap::{Subcommand, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};

use super::Outcome;
use super::replaced::same;
use crate::diag::{Error, Result};
use crate::trace::canonical::Reader;
use crate::trace::canonical::new_text::NewText;
use crate::trace::export::agentic_mooncake::{self, Scope};
use crate::trace::export::{Options, Report, mooncake};
use crate::trace::meta::{PartialBlock, sidecar_path};
use crate::trace::record::Item;

/// Arguments of `tonnage export`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    format: Format,
}

#[derive(Debug, Subcommand)]
enum Format {
    /// Mooncake JSONL: requests by time; turns of a session wait for the one before
    Mooncake {
        #[command(flatten)]
        common: Common,
        /// Tokens in a block
        #[arg(long, value_name = "TOKENS", default_value = "512")]
        block_size: NonZeroU64,
    },
    /// Agentic Mooncake JSONL, version 2: requests with all that they wait for
    AgenticMooncake {
        #[command(flatten)]
        common: Common,
        /// Tokens in a block
        #[arg(long, value_name = "TOKENS", default_value = "64")]
        block_size: NonZeroU64,
        /// Where equal block ids mean equal content; Dynamo reads only local
        #[arg(long, value_enum, default_value_t = IdScope::Local)]
        hash_id_scope: IdScope,
    },
}

#[derive(Debug, clap::Args)]
struct Common {
    /// Canonical trace: CSV, plain, gzip or zstd
    trace: PathBuf,
    /// The file to write, compressed if it ends in .gz or .zst
    #[arg(short, long, value_name = "OUT.jsonl")]
    output: PathBuf,
    /// Whether a prompt's last, partial block gets an id
    #[arg(long, value_enum, default_value_t = Partial::Count)]
    partial_block: Partial,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Partial {
    /// It gets one, as other tools expect
    Count,
    /// It gets none
    Drop,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum IdScope {
    /// Within a session: what sessions share is lost
    Local,
    /// Everywhere
    Global,
}

/// Runs the export.
pub fn run(args: &Args) -> Result<Outcome> {
    match &args.format {
        Format::Mooncake { common, block_size } => common.export(|common, items, out| {
            mooncake::export(items, &common.options(*block_size), out)
        }),
        Format::AgenticMooncake { common, block_size, hash_id_scope } => {
            let scope = match hash_id_scope {
                IdScope::Local => Scope::Local,
                IdScope::Global => Scope::Global,
            };
            common.export(|common, items, out| {
                let name = common.trace.file_name().unwrap_or_default().to_string_lossy();
                let options = common.options(*block_size);
                agentic_mooncake::export(items, &options, scope, &name, out)
            })
        }
    }
}

impl Common {
    fn options(&self, block_size: NonZeroU64) -> Options {
        let partial_block = match self.partial_block {
            Partial::Count => PartialBlock::Count,
            Partial::Drop => PartialBlock::Drop,
        };
        Options { block_size: block_size.get(), partial_block }
    }

    fn export(
        &self,
        write: impl FnOnce(
            &Self,
            &mut dyn Iterator<Item = Result<Item>>,
            &mut NewText,
        ) -> Result<Report>,
    ) -> Result<Outcome> {
        refuse_own_output(&self.trace, &self.output)?;
        let reader = Reader::open(&self.trace)?;
        let mut out = NewText::create(&self.output)?;
        let bar = bar();
        let mut items = reader.inspect(|_| bar.inc(1));
        let report = write(self, &mut items, &mut out);
        bar.finish_and_clear();
        let report = report?;
        out.finish()?;
        for warning in report.warnings() {
            eprintln!("warning: {warning}");
        }
        let written = self.output.display();
        let (sessions, calls) = (report.sessions, report.calls);
        let text = format!(
            "{:<17} {sessions}\n{:<17} {calls}\n{:<17} {written}\n",
            "sessions", "calls", "written"
        );
        // The file is written; a reader of the summary that has seen enough is no failure.
        let _ = std::io::stdout().write_all(text.as_bytes());
        Ok(Outcome::Met)
    }
}

/// The export must replace neither the trace that it is made of nor that trace's sidecar.
fn refuse_own_output(trace: &Path, output: &Path) -> Result<()> {
    let text = match output {
        output if same(trace, output) => "the export would replace the trace that it is made of",
        output if same(&sidecar_path(trace), output) => {
            "the export would replace the sidecar of the trace that it is made of"
        }
        _ => return Ok(()),
    };
    Err(Error::new(text).in_file(output.display()))
}

/// Counts sessions and contexts on a terminal.
fn bar() -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{spinner} {human_pos} sessions and contexts");
    ProgressBar::new_spinner().with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}
