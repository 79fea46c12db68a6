//! `tonnage generate`.

use std::fs;
use std::io::{ErrorKind, Write};
use std::path::PathBuf;

use clap::ValueEnum;

use super::Outcome;
use crate::diag::{Error, Result};
use crate::trace::canonical::Writer;
use crate::trace::meta::Meta;
use crate::workload::catalogue;
use crate::workload::generate::{Generated, Generator, Request};
use crate::workload::people::Population;
use crate::workload::profile::{Hours, Profile};

mod progress;
mod report;

use progress::Progress;
use report::Report;

/// Sessions that are made where the command line does not say.
const SESSIONS: u64 = 1_000;
const DAYS_MAX: u32 = 3_660;
/// The longest time over which sessions may start.
const YEARS_MAX: f64 = 10.0;
const HOURS_OF_A_YEAR: f64 = 8_766.0;

/// Arguments of `tonnage generate`.
#[derive(Debug, clap::Args)]
#[command(after_help = help())]
pub struct Args {
    /// A built-in profile, or the path of a profile of your own (NAME.toml)
    #[arg(required_unless_present_any = ["mix", "show"])]
    profile: Option<String>,
    /// The trace to write: X.csv, X.csv.gz or X.csv.zst, with X.meta.json beside it; without this,
    /// only the fit is shown
    #[arg(short, long, value_name = "OUT")]
    output: Option<PathBuf>,
    /// Make so many sessions, at a steady rate [default: 1000]
    #[arg(long, value_name = "N", conflicts_with = "developers",
        value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    sessions: Option<u64>,
    /// With --sessions: how many start in an hour
    #[arg(long, value_name = "RATE", default_value_t = 60.0, conflicts_with = "developers",
        value_parser = per_hour)]
    per_hour: f64,
    /// With --sessions: people who start them
    #[arg(long, value_name = "N", default_value_t = 100, conflicts_with = "developers",
        value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    users: u32,
    /// Make the sessions of so many developers, who work at the hours of their profile
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    developers: Option<u32>,
    /// With --developers: days from the start of the trace
    #[arg(long, value_name = "N", default_value_t = 7, requires = "developers",
        value_parser = clap::value_parser!(u32).range(1..=i64::from(DAYS_MAX)))]
    days: u32,
    /// With --developers: weekday on which the trace begins, at 0:00
    #[arg(long, value_enum, default_value_t = Weekday::Mon, requires = "developers")]
    start: Weekday,
    /// With --developers: when they work [default: as the profile says]
    #[arg(long, value_name = "HOURS", requires = "developers", value_parser = hours)]
    hours: Option<Hours>,
    /// Several profiles by their share of the people, instead of PROFILE
    #[arg(long, value_name = "NAME=SHARE,…", value_delimiter = ',', conflicts_with = "profile")]
    mix: Vec<String>,
    /// Seed of every random number
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Tokens per second at which answers are taken to be generated, for the recorded times
    #[arg(long, value_name = "RATE", default_value_t = 60.0, value_parser = rate)]
    assume_tps: f64,
    /// Print the fit as JSON on standard output
    #[arg(long)]
    json: bool,
    /// Print the TOML of a built-in profile, to start one of your own from
    #[arg(long, value_name = "PROFILE", exclusive = true)]
    show: Option<String>,
}

/// A day of the week.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Weekday {
    Mon,
    Tue,
    Wed,
    Thu,
    Fri,
    Sat,
    Sun,
}

fn help() -> String {
    let names: Vec<&str> = catalogue::PROFILES.iter().map(|(name, _)| *name).collect();
    format!(
        "Built-in profiles: {}.\n\nExamples:\n  \
         tonnage generate copilot --sessions 30000\n  \
         tonnage generate copilot --developers 20 --days 7 -o week.csv.zst\n  \
         tonnage generate --mix copilot=0.7,chat=0.3 --developers 200 -o week.csv.zst\n  \
         tonnage generate --show copilot > mine.toml; tonnage generate ./mine.toml",
        names.join(", ")
    )
}

/// Runs the command.
pub fn run(args: &Args) -> Result<Outcome> {
    if let Some(name) = &args.show {
        print(catalogue::text(name)?)?;
        return Ok(Outcome::Met);
    }
    let request = args.request()?;
    let mut report = Report::new(&request);
    let progress = Progress::new(&request.population);
    let mut writer = args.output.as_deref().map(Writer::create).transpose()?;
    for item in Generator::new(&request) {
        if let Some(writer) = &mut writer {
            match &item {
                Generated::Context(context, _) => writer.context(context)?,
                Generated::Session(made) => writer.session(&made.session)?,
            }
        }
        progress.seen(&item);
        report.take(&item);
    }
    progress.done();
    report.finish()?;
    if let (Some(writer), Some(output)) = (writer, &args.output) {
        // Both or neither: what can fail is done before the trace gets its name.
        let sidecar = args.meta(&request).prepare_beside(output)?;
        writer.finish()?;
        sidecar.commit()?;
    }
    if args.json {
        print(&report.json()?)?;
    } else {
        // The trace is written; who does not read the report loses nothing.
        let _ = write!(std::io::stderr(), "{}", report.text());
    }
    Ok(Outcome::Met)
}

impl Args {
    fn request(&self) -> Result<Request> {
        let mut mix = match &self.profile {
            Some(name) => vec![(load(name)?, 1.0)],
            None => mix(&self.mix, load).map_err(|error| error.in_field("--mix"))?,
        };
        if let Some(hours) = self.hours {
            mix.iter_mut().for_each(|(profile, _)| profile.hours = hours);
        }
        let population = match self.developers {
            Some(developers) => Population::Developers { developers, days: self.days },
            None => Population::Sessions {
                sessions: self.sessions.unwrap_or(SESSIONS),
                per_hour: self.per_hour,
                users: self.users,
            },
        };
        if let Population::Sessions { sessions, per_hour, .. } = population {
            let years = sessions as f64 / per_hour / HOURS_OF_A_YEAR;
            if years > YEARS_MAX {
                let text = format!("so many sessions at that rate start over {years:.0} years");
                let help = format!("at most {YEARS_MAX} years; raise --per-hour");
                return Err(Error::new(text).in_field("--sessions").help(help));
            }
        }
        let start_hour = 24 * self.start as u64;
        Ok(Request { mix, population, seed: self.seed, start_hour, tokens_per_s: self.assume_tps })
    }

    fn meta(&self, request: &Request) -> Meta {
        let names = request.mix.iter().map(|(profile, share)| match request.mix.len() {
            1 => profile.name.clone(),
            _ => format!("{}={share}", profile.name),
        });
        let names = names.collect::<Vec<_>>().join(",");
        let what = if request.mix.len() == 1 { names } else { format!("--mix {names}") };
        let population = match request.population {
            Population::Sessions { sessions, per_hour, users } => {
                format!("--sessions {sessions} --per-hour {per_hour} --users {users}")
            }
            Population::Developers { developers, days } => {
                let day = self.start.to_possible_value();
                let day = day.as_ref().map_or("", |day| day.get_name());
                format!("--developers {developers} --days {days} --start {day}")
            }
        };
        let hours = self.hours.and_then(|hours| Hours::WORDS.iter().find(|(_, h)| *h == hours));
        let hours = hours.map(|(word, _)| format!(" --hours {word}")).unwrap_or_default();
        let made_by = format!(
            "tonnage {} generate {what} {population}{hours} --seed {} --assume-tps {}",
            env!("CARGO_PKG_VERSION"),
            self.seed,
            self.assume_tps
        );
        let own = self.profile.as_deref().is_some_and(is_path);
        let mut notes = vec![
            "Synthetic: no call was ever made. Recorded times assume 1 s before the first token \
             and the speed of --assume-tps after it."
                .to_owned(),
        ];
        if own || self.mix.iter().any(|entry| entry.contains(".toml")) {
            notes.push("Made from a profile that is not built in.".to_owned());
        }
        Meta {
            source: Some("synthetic".to_owned()),
            made_by: Some(made_by),
            notes,
            ..Meta::default()
        }
    }
}

/// Whether a profile is named by a path.
pub(super) fn is_path(name: &str) -> bool {
    name.ends_with(".toml") || name.contains(['/', '\\'])
}

/// A built-in profile, or one in a file.
pub(super) fn load(name: &str) -> Result<Profile> {
    if !is_path(name) {
        return catalogue::profile(name);
    }
    let path = PathBuf::from(name);
    let text = fs::read_to_string(&path);
    let text = text.map_err(|error| Error::io(&path, "read the profile", &error))?;
    Profile::parse(&text, name)
}

/// Profiles with shares that add up to 1.
pub(super) fn mix(
    entries: &[String],
    load: impl Fn(&str) -> Result<Profile>,
) -> Result<Vec<(Profile, f64)>> {
    let mut mix: Vec<(Profile, f64)> = Vec::new();
    for entry in entries {
        let wrong = || Error::found(entry, "NAME=SHARE, such as copilot=0.7");
        let (name, share) = entry.rsplit_once('=').ok_or_else(wrong)?;
        let share: f64 = share.trim().parse().map_err(|_| wrong())?;
        if !(share > 0.0 && share <= 1.0) {
            return Err(Error::found(share, "a share above 0, at most 1"));
        }
        let profile = load(name.trim())?;
        if mix.iter().any(|(other, _)| other.name == profile.name) {
            let text = format!("the profile `{}` stands twice", profile.name);
            return Err(Error::new(text));
        }
        mix.push((profile, share));
    }
    let total: f64 = mix.iter().map(|(_, share)| share).sum();
    if (total - 1.0).abs() > 1e-6 {
        return Err(Error::new(format!("the shares add up to {total:.6}, not to 1")));
    }
    Ok(mix)
}

fn number(text: &str, max: f64, allowed: &str) -> std::result::Result<f64, String> {
    let number = text.parse::<f64>().ok().filter(|number| *number > 0.0 && *number <= max);
    number.ok_or_else(|| format!("allowed: {allowed}"))
}

fn per_hour(text: &str) -> std::result::Result<f64, String> {
    match number(text, 1e7, "a number from 0.001 to 10000000") {
        Ok(rate) if rate < 1e-3 => Err("allowed: a number from 0.001 to 10000000".to_owned()),
        other => other,
    }
}

fn rate(text: &str) -> std::result::Result<f64, String> {
    match number(text, 1e6, "a number from 1 to 1000000") {
        Ok(rate) if rate < 1.0 => Err("allowed: a number from 1 to 1000000".to_owned()),
        other => other,
    }
}

fn hours(text: &str) -> std::result::Result<Hours, String> {
    let found = Hours::WORDS.iter().find(|(word, _)| *word == text);
    found.map(|(_, hours)| *hours).ok_or_else(|| {
        let words: Vec<&str> = Hours::WORDS.iter().map(|(word, _)| *word).collect();
        format!("allowed: {}", words.join(", "))
    })
}

fn print(text: &str) -> Result<()> {
    match std::io::stdout().lock().write_all(text.as_bytes()) {
        // A reader such as `head` that has seen enough is no failure.
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(Error::new(format!("cannot write to standard output: {error}")))
        }
        _ => Ok(()),
    }
}
