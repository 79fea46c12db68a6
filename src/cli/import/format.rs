//! `tonnage import FORMAT`: reads a format into a trace with its sidecar, and says what it found.

use std::fmt::Write as _;
use std::io::{IsTerminal, Write as _};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use clap::{ArgMatches, Command};
use indicatif::{ProgressBar, ProgressStyle};

use super::args::{self, Args};
use crate::cli::Outcome;
use crate::cli::replaced::refuse_own;
use crate::diag::Result;
use crate::trace::canonical::Writer;
use crate::trace::import::{Format, Job, Options, Progress, Report, Setting};

/// A format with its arguments, as a subcommand.
#[derive(Debug)]
pub struct Chosen {
    format: Format,
    args: Args,
}

impl Chosen {
    /// Runs the import.
    pub fn run(&self) -> Result<Outcome> {
        import(self.format, &self.args)
    }
}

impl clap::Subcommand for Chosen {
    fn augment_subcommands(command: Command) -> Command {
        let one = |format: &Format| args::command(format.name(), format.about(), format.settings());
        command.subcommands(Format::ALL.iter().map(one))
    }

    fn augment_subcommands_for_update(command: Command) -> Command {
        Self::augment_subcommands(command)
    }

    fn has_subcommand(name: &str) -> bool {
        Format::named(name).is_some()
    }
}

impl clap::FromArgMatches for Chosen {
    fn from_arg_matches(matches: &ArgMatches) -> std::result::Result<Self, clap::Error> {
        let chosen = matches.subcommand();
        let format = chosen.and_then(|(name, own)| Some((Format::named(name)?, own)));
        match format {
            Some((format, own)) => Ok(Self { format, args: Args::of(own) }),
            None => Err(clap::Error::new(clap::error::ErrorKind::MissingSubcommand)),
        }
    }

    fn update_from_arg_matches(
        &mut self,
        matches: &ArgMatches,
    ) -> std::result::Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// Reads the files as `format`, writes trace and sidecar, and prints what was found.
pub fn import(format: Format, args: &Args) -> Result<Outcome> {
    refuse_own(&args.output, args.files.iter().map(|file| file.as_ref()))?;
    let job = Job::new(&args.files, &args.options);
    let mut writer = Writer::create(&args.output)?;
    let mut done = with_bar(&job, || format.reader()(&job, &mut writer))?;
    done.meta.made_by = Some(made_by(format, args));
    // Both or neither: what can fail is done before the trace gets its name.
    let sidecar = done.meta.prepare_beside(&args.output)?;
    writer.finish()?;
    sidecar.commit()?;
    print_warnings(&done.report);
    // The trace is written; a reader of the summary that has seen enough is no failure.
    let _ = std::io::stdout().write_all(summary(&done.report, &args.output).as_bytes());
    Ok(Outcome::Met)
}

/// The command for the sidecar: files by their names only, and no id that was taken away.
fn made_by(format: Format, args: &Args) -> String {
    let mut command = format!("tonnage {} import {}", env!("CARGO_PKG_VERSION"), format.name());
    for file in args.files.iter().filter_map(|file| file.file_name()) {
        command += &format!(" {}", file.to_string_lossy());
    }
    for setting in format.settings() {
        if let Some(value) = value_text(*setting, &args.options) {
            command += &format!(" --{}{value}", setting.name());
        }
    }
    if args.options.skip_bad {
        command += " --skip-bad";
    }
    command
}

/// The value of a setting behind its name, or `None` where it is not set.
fn value_text(setting: Setting, options: &Options) -> Option<String> {
    match setting {
        Setting::Stagger => Some(format!(" {}", options.stagger.secs_text())),
        Setting::Outputs => Some(format!(" {}", options.outputs.name())),
        Setting::AssumeTps => Some(format!(" {}", options.assume_tps)),
        Setting::KeepIds => options.keep_ids.then(String::new),
        Setting::Only if options.only.is_empty() => None,
        Setting::Only if options.keep_ids => Some(format!(" {}", options.only.join(","))),
        Setting::Only => Some(format!(" ({} ids)", options.only.len())),
        Setting::MaxContext => options.max_context.map(|tokens| format!(" {tokens}")),
        Setting::MaxSpan => options.max_span.map(|span| format!(" {}", span.secs_text())),
        Setting::BlockSize => options.block_size.map(|tokens| format!(" {tokens}")),
        Setting::NoSharing => options.no_sharing.then(String::new),
    }
}

/// Does some work while a bar on the terminal shows how much of the files was read.
fn with_bar<T>(job: &Job, work: impl FnOnce() -> T) -> T {
    if !std::io::stderr().is_terminal() {
        return work();
    }
    let sizes = job.files.iter().filter_map(|file| std::fs::metadata(file).ok());
    let length: u64 = sizes.map(|data| data.len()).sum();
    let bar = ProgressBar::new(length);
    let style = "reading {wide_bar} {bytes}/{total_bytes} ({eta} left)";
    let style = ProgressStyle::with_template(style);
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    let (progress, watched): (Arc<Progress>, _) = (Arc::clone(&job.progress), bar.clone());
    // It ends by itself: the bar is finished even if the work panics.
    let watcher = std::thread::spawn(move || {
        while !watched.is_finished() {
            watched.set_length(length.saturating_mul(progress.passes()));
            watched.set_position(progress.bytes());
            std::thread::sleep(Duration::from_millis(50));
        }
    });
    let result = work();
    bar.finish_and_clear();
    // It only draws; that it stopped early is no failure of the import.
    let _ = watcher.join();
    result
}

fn print_warnings(report: &Report) {
    for error in report.bad.shown() {
        eprintln!("warning: left out: {error}");
    }
    let hidden = report.bad.count() - report.bad.shown().len() as u64;
    if hidden > 0 {
        eprintln!("warning: left out: {hidden} more that cannot be used");
    }
    for warning in &report.warnings {
        eprintln!("warning: {warning}");
    }
}

fn summary(report: &Report, out: &Path) -> String {
    let unit = report.unit;
    let mut rows = vec![
        ("files read".to_owned(), report.files.to_string()),
        (format!("{unit} read"), report.read.to_string()),
        (format!("{unit} kept"), report.kept.to_string()),
        (format!("{unit} dropped"), report.dropped().to_string()),
    ];
    for left in report.reasons() {
        rows.push((String::new(), format!("{} {}", left.count, left.what)));
    }
    rows.extend(report.figures.iter().map(|(name, value)| ((*name).to_owned(), value.clone())));
    let assumed = report.assumed.iter().filter(|assumed| assumed.count > 0).enumerate();
    rows.extend(assumed.map(|(number, assumed)| {
        let name = if number == 0 { "assumed" } else { "" };
        (name.to_owned(), format!("{} {}", assumed.count, assumed.what))
    }));
    rows.push(("written".to_owned(), out.display().to_string()));
    rows.into_iter().fold(String::new(), |mut text, (name, value)| {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{name:<17} {value}");
        text
    })
}
