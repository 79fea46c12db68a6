//! `tonnage import auto`: finds out what the files are, says so, and imports them as that.

use std::ffi::OsString;
use std::path::Path;

use clap::{ArgMatches, Command, FromArgMatches};

use super::args::{self, Args};
use super::{format, spendlogs};
use crate::cli::Outcome;
use crate::diag::{Error, Result};
use crate::trace::import::detect::{self, Found, Kind};
use crate::trace::import::spendlogs::{DatabaseUrl, first_file};
use crate::trace::import::{Format, Setting};

/// Its name as a subcommand.
const NAME: &str = "auto";

/// Files of a format that is to be found out.
#[derive(Debug)]
pub struct Auto {
    args: Args,
}

impl clap::Subcommand for Auto {
    fn augment_subcommands(command: Command) -> Command {
        let about = "Find out by the content which format the files are, and import them";
        command.subcommand(args::command(NAME, about, &Setting::ALL))
    }

    fn augment_subcommands_for_update(command: Command) -> Command {
        Self::augment_subcommands(command)
    }

    fn has_subcommand(name: &str) -> bool {
        name == NAME
    }
}

impl FromArgMatches for Auto {
    fn from_arg_matches(matches: &ArgMatches) -> std::result::Result<Self, clap::Error> {
        match matches.subcommand() {
            Some((NAME, own)) => Ok(Self { args: Args::of(own) }),
            _ => Err(clap::Error::new(clap::error::ErrorKind::MissingSubcommand)),
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

impl Auto {
    /// Runs the import.
    pub fn run(&self) -> Result<Outcome> {
        let found = one_kind(&self.args)?;
        match found.kind {
            Kind::Canonical => Err(Error::new(
                "this is a canonical trace already: every command reads it as it is",
            )
            .in_file(self.args.files[0].display())),
            Kind::SpendLogs => self.spendlogs(),
            // LMCache's sessions are of the form of weka's, with the scaffold's name and its start.
            Kind::Lmcache => self.import(found.kind.format().unwrap_or(Format::Weka), &found),
            Kind::Weka => self.import(Format::Weka, &found),
            Kind::Azure => self.import(Format::Azure, &found),
            Kind::BurstGpt => self.import(Format::BurstGpt, &found),
            Kind::MiniSweAgent => self.import(Format::MiniSweAgent, &found),
            Kind::TraceLab => self.import(Format::TraceLab, &found),
            Kind::Mooncake
            | Kind::Bailian
            | Kind::AgenticMooncake
            | Kind::InferenceLab
            | Kind::PrefixGroups => match found.kind.format() {
                Some(format) => self.import(format, &found),
                None => Err(Error::new(format!("{} cannot be imported", found.what))
                    .in_file(self.args.files[0].display())),
            },
        }
    }

    fn import(&self, format: Format, found: &Found) -> Result<Outcome> {
        for setting in &self.args.given {
            if !format.settings().contains(setting) {
                let error = format!("{} tells nothing that this could change", found.what);
                return Err(Error::new(error).in_field(format!("--{}", setting.name())));
            }
        }
        format::import(format, &self.args)
    }

    /// SpendLogs have a command of their own, with other options.
    fn spendlogs(&self) -> Result<Outcome> {
        let keep_ids = Setting::KeepIds;
        if let Some(other) = self.args.given.iter().find(|setting| **setting != keep_ids) {
            return Err(Error::new("SpendLogs have no such option")
                .in_field(format!("--{}", other.name()))
                .help("tonnage import spendlogs --help lists theirs"));
        }
        if self.args.options.licence.is_some() {
            return Err(Error::new("SpendLogs have no such option").in_field("--licence"));
        }
        let mut words = vec![OsString::from("spendlogs"), "-o".into()];
        words.push(self.args.output.clone().into());
        let options = &self.args.options;
        for (set, flag) in [(options.keep_ids, "--keep-ids"), (options.skip_bad, "--skip-bad")] {
            if set {
                words.push(flag.into());
            }
        }
        words.push("--".into());
        words.extend(self.args.files.iter().map(|file| file.clone().into()));
        let command = <spendlogs::Args as clap::Args>::augment_args(Command::new("spendlogs"));
        let matches = command.try_get_matches_from(words);
        let args = matches.and_then(|matches| spendlogs::Args::from_arg_matches(&matches));
        spendlogs::run(&args.map_err(|error| Error::new(error.to_string()))?)
    }
}

/// What a file is, or the files of a folder, of which the first is looked at.
fn kind_of(input: &Path) -> Result<Found> {
    if input.to_str().is_some_and(|text| DatabaseUrl::of(text).is_some()) {
        // The URL may hold a password, so it is not repeated.
        return Err(Error::new("this is no file: nothing has to be found out about a database")
            .help("tonnage import spendlogs reads SpendLogs from it"));
    }
    if !input.is_dir() {
        return detect::detect(input);
    }
    let found = detect::detect(&first_file(input)?)?;
    if found.kind == Kind::SpendLogs {
        return Ok(found);
    }
    let message = format!("a folder of {}, allowed: one of SpendLogs", found.what);
    Err(Error::new(message).in_file(input.display()).help("name its files instead"))
}

/// What the files are, all of them one kind. It is told before they are read.
fn one_kind(args: &Args) -> Result<Found> {
    let mut first: Option<(&Path, Found)> = None;
    for file in &args.files {
        let found = kind_of(file)?;
        eprintln!("{}: {}, by its {}", file.display(), found.what, found.fields.join(", "));
        match &first {
            Some((_, other)) if other.kind == found.kind => {}
            Some((other_file, other)) => {
                let other = format!("but {} is {}", other_file.display(), other.what);
                let message = format!("this is {}, {other}", found.what);
                return Err(Error::new(message)
                    .in_file(file.display())
                    .help("import each format by itself"));
            }
            None => first = Some((file, found)),
        }
    }
    first.map(|(_, found)| found).ok_or_else(|| Error::new("there is no file to import"))
}
