//! `tonnage fit`.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use indicatif::{ProgressBar, ProgressStyle};

use super::Outcome;
use crate::diag::{self, Error, Result};
use crate::trace::canonical::Reader;
use crate::trace::canonical::new_file::NewFile;
use crate::trace::meta::Meta;
use crate::trace::record::Item;
use crate::workload::fit::{self, About, Filter, Play, Readings};
use crate::workload::profile::Profile;

mod report;
mod week;

use report::Fitted;

/// Sessions of the check where the command line does not say, at most.
const CHECK_MAX: u64 = 20_000;

/// Arguments of `tonnage fit`.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub struct Args {
    /// Canonical trace: CSV, plain, gzip or zstd
    trace: PathBuf,
    /// The profile to write (NAME.toml); without this, only the distances are shown
    #[arg(short, long, value_name = "OUT", value_parser = toml_path)]
    output: Option<PathBuf>,
    /// Name of the profile [default: the value of --profile-column or the trace's only profile,
    /// other characters than of names as `-`; else the trace's file name up to its first dot]
    #[arg(long, value_name = "NAME", conflicts_with = "each", value_parser = name)]
    name: Option<String>,
    /// Learn from the sessions that have this in the trace's `profile` column
    #[arg(long, value_name = "VALUE", conflicts_with = "each")]
    profile_column: Option<String>,
    /// Learn from the sessions of this tenant
    #[arg(long, value_name = "TENANT")]
    tenant: Option<String>,
    /// Write a profile for each value of the `profile` column: OUT-VALUE.toml
    #[arg(long, requires = "output")]
    each: bool,
    /// Sessions to generate for the distances [default: as many as are learnt from, at most 20000]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    check_sessions: Option<u64>,
    /// Seed of the generated sessions
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Print the distances as JSON on standard output
    #[arg(long)]
    json: bool,
}

const HELP: &str = "A session belongs to the profile and tenant of its first call.\n\nExamples:\n  \
                    tonnage fit week.csv.zst -o ours.toml\n  \
                    tonnage generate ./ours.toml --developers 200 -o twice.csv.zst\n  \
                    tonnage fit week.csv.zst --each -o team.toml";

/// Runs the command.
pub fn run(args: &Args) -> Result<Outcome> {
    let meta = Meta::read_beside(&args.trace)?.unwrap_or_default();
    let mut fits: Vec<Fitted> = Vec::new();
    let mut files: Vec<NewFile> = Vec::new();
    for (filter, output) in args.jobs()? {
        let fitted = args.fit(&filter, &meta)?;
        if let Some(output) = output {
            files.push(written(&output, &fitted.profile)?);
        }
        fits.push(fitted);
    }
    // All or none: what can fail is done before a file gets its name.
    files.into_iter().try_for_each(NewFile::commit)?;
    if args.json {
        print(&report::json(&fits)?)?;
    } else {
        // The profile is written; who does not read the report loses nothing.
        let _ = write!(std::io::stderr(), "{}", report::text(&fits));
    }
    Ok(Outcome::Met)
}

impl Args {
    /// What is learnt from which sessions, and where it goes.
    fn jobs(&self) -> Result<Vec<(Filter, Option<PathBuf>)>> {
        let filter = Filter { profile: self.profile_column.clone(), tenant: self.tenant.clone() };
        let Some(output) = self.output.as_ref().filter(|_| self.each) else {
            return Ok(vec![(filter, self.output.clone())]);
        };
        let (_, seen) = self.read(&filter, |_| ())?;
        let mut taken: BTreeSet<PathBuf> = BTreeSet::new();
        let jobs = seen.profiles.into_keys().map(|value| {
            let stem = output.file_stem().unwrap_or_default().to_string_lossy();
            let path = output.with_file_name(format!("{stem}-{}.toml", clean(&value)));
            if !taken.insert(path.clone()) {
                let error =
                    Error::new(format!("two values would be written to {}", path.display()));
                return Err(error.in_field("--each").help("fit them with --profile-column"));
            }
            Ok((Filter { profile: Some(value), ..filter.clone() }, Some(path)))
        });
        jobs.collect()
    }

    fn fit(&self, filter: &Filter, meta: &Meta) -> Result<Fitted> {
        let mut readings = Readings::default();
        let (sessions, seen) = self.read(filter, |item| match item {
            Item::Context(context) => readings.context(context),
            Item::Session(session) => readings.session(session),
        })?;
        if readings.sessions() == 0 {
            return Err(self.nothing(filter, sessions, &seen));
        }
        readings.finish()?;
        let start_hour = meta.start.as_deref().and_then(week::hour_of);
        let file = self.trace.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let about = About {
            name: self.profile_name(filter, &seen),
            source: meta.source.clone().map_or(file.clone(), |source| format!("{file} ({source})")),
            start_hour,
        };
        let mut learnt = fit::learn(&readings, &about);
        learnt.warnings.splice(0..0, seen.mixed());
        let sessions = self.check_sessions.unwrap_or(readings.sessions().min(CHECK_MAX));
        let how = Play { sessions, seed: self.seed, start_hour: start_hour.unwrap_or(0) };
        let bar = bar(sessions, "{bar:40} {percent:>3} % {elapsed}");
        let played = fit::play(&learnt.profile, &readings, &how, || bar.inc(1))?;
        bar.finish_and_clear();
        let comparison = fit::compare(&readings, &played);
        learnt.profile.targets = fit::targets(&comparison, &about.source);
        Ok(Fitted {
            profile: learnt.profile,
            warnings: learnt.warnings,
            sessions: readings.sessions(),
            calls: readings.calls(),
            played: (played.sessions(), played.calls()),
            comparison,
        })
    }

    /// Reads the sessions that are asked for; how many there are, and what all sessions are.
    fn read(&self, filter: &Filter, mut take: impl FnMut(&Item)) -> Result<(u64, Seen)> {
        let mut seen = Seen::default();
        let bar = bar(0, "{human_pos} sessions read {elapsed}");
        let mut sessions = 0;
        for item in Reader::open(&self.trace)? {
            let item = item?;
            if let Item::Session(session) = &item {
                sessions += 1;
                bar.inc(1);
                seen.session(session, filter);
                if !filter.takes(session) {
                    continue;
                }
            }
            take(&item);
        }
        bar.finish_and_clear();
        Ok((sessions, seen))
    }

    fn nothing(&self, filter: &Filter, sessions: u64, seen: &Seen) -> Error {
        let file = self.trace.display();
        let (value, known, field) = match (&filter.tenant, &filter.profile) {
            (Some(tenant), _) if !seen.tenants.contains_key(tenant) => {
                (tenant, &seen.tenants, "--tenant")
            }
            (_, Some(profile)) => (profile, &seen.profiles, "--profile-column"),
            _ => {
                let text = format!("none of {sessions} sessions has a call of a main agent");
                return Error::new(text).in_file(file);
            }
        };
        let error = Error::new(format!("no session of {file} has the value `{value}`"));
        let error = error.in_field(field);
        match diag::nearest(value, known.keys().map(String::as_str)) {
            Some(near) => error.help(format!("did you mean `{near}`?")),
            None => error,
        }
    }

    fn profile_name(&self, filter: &Filter, seen: &Seen) -> String {
        let only = seen.profiles.keys().next().filter(|_| seen.profiles.len() == 1);
        let value = filter.profile.as_ref().or(only).filter(|value| !value.is_empty());
        let stem = || {
            let name = self.trace.file_name().unwrap_or_default().to_string_lossy().into_owned();
            name.split('.').next().unwrap_or_default().to_owned()
        };
        clean(&self.name.clone().or(value.cloned()).unwrap_or_else(stem))
    }
}

/// What the sessions of a trace are, whichever are learnt from.
#[derive(Debug, Default)]
struct Seen {
    /// Sessions by value of the `profile` column, of the tenant that is asked for.
    profiles: BTreeMap<String, u64>,
    tenants: BTreeMap<String, u64>,
    /// Values of the profile column among the sessions that are learnt from.
    learnt: BTreeMap<String, u64>,
}

impl Seen {
    fn session(&mut self, session: &crate::trace::record::Session, filter: &Filter) {
        let Some(call) = session.calls.first() else { return };
        *self.tenants.entry(call.tenant.to_string()).or_default() += 1;
        if filter.tenant.as_ref().is_none_or(|tenant| **tenant == *call.tenant) {
            *self.profiles.entry(call.profile.to_string()).or_default() += 1;
        }
        if filter.takes(session) {
            *self.learnt.entry(call.profile.to_string()).or_default() += 1;
        }
    }

    fn mixed(&self) -> Option<String> {
        let list = self.learnt.iter().map(|(value, n)| format!("`{value}` {n}"));
        (self.learnt.len() > 1).then(|| {
            format!(
                "the trace mixes profiles ({}): one is fitted to all; --profile-column or --each \
                 fits them apart",
                list.collect::<Vec<_>>().join(", ")
            )
        })
    }
}

/// Whether a profile's name may have this.
fn is_fine(c: char) -> bool {
    c.is_ascii_alphanumeric() || "-_.".contains(c)
}

fn name(text: &str) -> std::result::Result<String, String> {
    match !text.is_empty() && text.chars().all(is_fine) {
        true => Ok(text.to_owned()),
        false => Err("allowed: letters, digits, `-`, `_` and `.`".to_owned()),
    }
}

fn toml_path(text: &str) -> std::result::Result<PathBuf, String> {
    let path = PathBuf::from(text);
    match path.extension().is_some_and(|extension| extension == "toml") {
        true => Ok(path),
        false => Err("a profile's file ends in .toml, by which `generate` knows it".to_owned()),
    }
}

/// A name as a profile may have it, from one that a trace has.
fn clean(name: &str) -> String {
    let name: String = name.chars().map(|c| if is_fine(c) { c } else { '-' }).collect();
    if name.is_empty() { "unnamed".to_owned() } else { name }
}

fn written(path: &Path, profile: &Profile) -> Result<NewFile> {
    let mut file = NewFile::create(path)?;
    let written = file.write_all(profile.to_toml().as_bytes());
    written.map_err(|error| Error::io(path, "write the profile", &error))?;
    Ok(file)
}

/// Shows itself on a terminal only.
fn bar(length: u64, template: &str) -> ProgressBar {
    let style = ProgressStyle::with_template(template);
    ProgressBar::new(length).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
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
