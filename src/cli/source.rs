//! Where the sessions of a run come from: a file, the built-in trace, or a workload profile.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::thread;
use std::time::Duration;

use super::generate;
use super::progress::Extent;
use crate::config::generated::{Generated, Starts};
use crate::config::scenario::Scenario;
use crate::diag::{Error, Result};
use crate::fleet::alone::AloneTimes;
use crate::fleet::arrivals::Stream;
use crate::fleet::feed::{Beside, Feed};
use crate::fleet::played::Repeated;
use crate::fleet::workload::Arrival;
use crate::sizing::case::Case;
use crate::trace::canonical::{self, Reader};
use crate::trace::record::{Item, Kept, Lend, Trace};
use crate::units::Span;
use crate::workload::generate as workload;
use crate::workload::generate::{Generator, Request};
use crate::workload::people::Population;

/// The trace that comes with the built-in scenario.
const BUNDLED_TRACE: &[u8] = include_bytes!("../../traces/bundled.csv.zst");
const BUNDLED_NAME: &str = "built-in trace";

/// By how much an interrupt may come later than what it does to others.
const MOMENT: Duration = Duration::from_millis(100);

/// Where sessions come from.
#[derive(Clone, Debug)]
pub enum Source {
    /// A canonical trace.
    File(PathBuf),
    /// The built-in trace.
    BuiltIn,
    /// Profiles.
    Made(Arc<Request>),
}

impl Source {
    /// Sessions of a profile, whose path counts from `folder`.
    pub fn generated(generated: &Generated, folder: &Path, seed: u64) -> Result<Self> {
        let load = |name: &str| match generate::is_path(name) {
            true => generate::load(&folder.join(name).display().to_string()),
            false => generate::load(name),
        };
        let name = &generated.profile;
        let mix = match name.contains('=') {
            true => {
                let entries: Vec<String> = name.split(',').map(str::to_owned).collect();
                generate::mix(&entries, load).map_err(|error| error.in_field("generate.profile"))?
            }
            false => vec![(load(name)?.adjusted(&generated.turned)?, 1.0)],
        };
        let population = match generated.starts {
            Starts::Steady { sessions, per_hour, users } => {
                Population::Sessions { sessions, per_hour, users }
            }
            Starts::People { people, days } => Population::Developers { developers: people, days },
        };
        let tokens_per_s = generated.assume_tps;
        Ok(Self::Made(Arc::new(Request { mix, population, seed, start_hour: 0, tokens_per_s })))
    }

    /// What a report says of it, where that is not a trace.
    pub fn note(&self) -> Option<String> {
        let Self::Made(request) = self else { return None };
        let names: Vec<&str> = request.mix.iter().map(|(profile, _)| &*profile.name).collect();
        let starts = match request.population {
            Population::Sessions { sessions, per_hour, users } => {
                format!("{sessions} sessions of {users} users, {per_hour} an hour")
            }
            Population::Developers { developers, days } => {
                format!("{developers} people for {days} days")
            }
        };
        Some(format!("synthetic sessions of the profile {}: {starts}", names.join(", ")))
    }

    /// Refuses to read it again where that cannot be.
    pub fn check_read_again(&self) -> Result<()> {
        match self {
            Self::File(path) if !canonical::can_be_read_again(path) => {
                let error = Error::new(
                    "recorded times and gaps do not agree, so the trace must be read twice, and \
                     standard input and pipes cannot be",
                );
                Err(error
                    .in_file(canonical::display_name(path))
                    .help("write it to a file and name that"))
            }
            _ => Ok(()),
        }
    }

    /// All of it.
    pub fn read(&self) -> Result<Trace> {
        match self {
            Self::File(path) => canonical::read_all(path),
            Self::BuiltIn => canonical::read_from(BUNDLED_TRACE, BUNDLED_NAME),
            Self::Made(request) => {
                let mut trace = Trace::default();
                for item in Generator::owning(Arc::clone(request)) {
                    match made(item)? {
                        Item::Context(context) => trace.contexts.push(context),
                        Item::Session(session) => trace.sessions.push(session),
                    }
                }
                Ok(trace)
            }
        }
    }

    /// What is played of it where that is made of the whole of it; none if it is played as it is.
    pub fn repeated(&self, scenario: &Scenario) -> Result<Option<Repeated>> {
        if scenario.reshape.is_whole() {
            return Ok(None);
        }
        let (reshape, seed) = (&scenario.reshape, scenario.seed);
        Repeated::new(self.read()?, reshape, seed, &scenario.served()).map(Some)
    }

    /// Its sessions one by one, made ready on another thread if `beside`; and how far it goes.
    /// Each comes with its time alone if that `wants_alone`. `repeated` is what is played of it.
    pub fn stream(
        &self,
        repeated: Option<Repeated>,
        case: &Case,
        beside: bool,
        wants_alone: bool,
    ) -> Result<(Stream<'static>, Extent)> {
        let alone = wants_alone.then(|| case.alone_times()).flatten();
        if let Some(Repeated { items, calls, .. }) = repeated {
            let feed = feed(items, case, alone);
            return Ok((streamed(feed, beside), Extent::Calls(calls)));
        }
        let (reader, extent) = match self {
            Self::Made(request) => return Ok(stream_made(request, case, beside, alone)),
            Self::File(path) => {
                let read = Arc::new(AtomicU64::new(0));
                let reader = Reader::open_counting(path, &read)?;
                if !canonical::can_be_read_again(path) {
                    let feed = patient(feed(reader, case, alone));
                    return Ok((streamed(feed, beside), Extent::Bytes { read, bytes: 0 }));
                }
                let bytes = std::fs::metadata(path).map_or(0, |data| data.len());
                (reader, Extent::Bytes { read, bytes })
            }
            Self::BuiltIn => (Reader::from_read(BUNDLED_TRACE, BUNDLED_NAME)?, Extent::Unknown),
        };
        Ok((streamed(feed(reader, case, alone), beside), extent))
    }
}

fn made(item: workload::Generated) -> Result<Item> {
    Ok(match item {
        workload::Generated::Context(context, _) => Item::Context(context),
        workload::Generated::Session(made) => Item::Session(made.session),
    })
}

fn stream_made(
    request: &Arc<Request>,
    case: &Case,
    beside: bool,
    alone: Option<AloneTimes>,
) -> (Stream<'static>, Extent) {
    let extent = match request.population {
        Population::Developers { days, .. } => {
            Extent::Time(Span::from_secs(u64::from(days) * 86_400))
        }
        Population::Sessions { sessions, per_hour, .. } => {
            Extent::Time(Span::from_secs_f64(sessions as f64 / per_hour * 3_600.0))
        }
    };
    let items = Generator::owning(Arc::clone(request)).map(made);
    (streamed(feed(Kept::from(items), case, alone), beside), extent)
}

fn feed<I: Lend>(items: I, case: &Case, alone: Option<AloneTimes>) -> Feed<I> {
    let feed = Feed::lent(items, &case.scenario.served()).with_alone(alone);
    feed.in_closed_loop(!case.scenario.open_loop)
}

/// Waits with an error of a pipe: Ctrl-C ends whoever writes into it, too, and perhaps a moment
/// before it is heard of here.
fn patient<I: Iterator<Item = Result<Arrival>>>(feed: I) -> impl Iterator<Item = Result<Arrival>> {
    feed.inspect(|arrival| {
        if arrival.is_err() {
            thread::sleep(MOMENT);
        }
    })
}

/// On a thread of its own if `beside`.
fn streamed(
    feed: impl Iterator<Item = Result<Arrival>> + Send + 'static,
    beside: bool,
) -> Stream<'static> {
    if !beside {
        return Box::new(feed);
    }
    Box::new(Beside::new(move |hand| {
        for arrival in feed {
            if !hand.over_to(arrival) {
                break;
            }
        }
    }))
}
