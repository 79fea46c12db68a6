//! From a trace to the profile that makes traces like it.
//!
//! A trace is read once, session by session ([`Readings`]); [`learn`] turns what was read into a
//! profile of the same form as the built-in ones; [`play`] generates as many sessions from it, and
//! [`compare`] says, quantity by quantity, how far they are from the trace. Nothing is tuned until
//! it fits: what a profile draws apart and the trace has together stays visible as a distance.
//!
//! Memory is bounded but for names: values are kept exactly up to 65,536 of a quantity and in
//! buckets of 0.4 % beyond, correlations and limits rest on the first 65,536 cases, pauses between
//! a person's sessions on the first million.

use crate::diag::Result;
use crate::trace::record::Session;
use crate::units::Span;

mod compare;
mod coupling;
mod learn;
mod limit;
mod prefix;
mod quantity;
mod readings;
mod sample;
mod starts;
mod steps;
mod table;
mod targets;
#[cfg(test)]
mod tests;

pub use compare::{Comparison, Figures, Row, SLACK, ShareRow, Verdict, compare};
pub use coupling::Coupling;
pub use learn::{About, Learnt, learn};
pub use quantity::{Quantity, Share};
pub use readings::Readings;
pub use sample::{Cells, Distance, Sample};
pub use targets::targets;

use super::generate::{Generated, Generator, Request};
use super::people::{self, Population};
use super::profile::Profile;

/// Which sessions of a trace are learnt from. A session is what its first call says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// Value of the `profile` column.
    pub profile: Option<String>,
    /// Value of the `tenant` column.
    pub tenant: Option<String>,
}

impl Filter {
    /// Whether a session is one of them.
    #[must_use]
    pub fn takes(&self, session: &Session) -> bool {
        let Some(call) = session.calls.first() else { return false };
        let is = |wanted: &Option<String>, found: &str| {
            wanted.as_ref().is_none_or(|wanted| wanted == found)
        };
        is(&self.profile, &call.profile) && is(&self.tenant, &call.tenant)
    }
}

/// Recorded times of generated calls rest on this speed, in tokens per second.
const TOKENS_PER_S: f64 = 60.0;
/// Slower than this no sessions start, in sessions per hour.
const RATE_MIN: f64 = 1e-3;
const RATE_MAX: f64 = 1e7;

/// How a profile is played to see how well it fits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Play {
    /// Sessions to generate.
    pub sessions: u64,
    /// Seed of every stream.
    pub seed: u64,
    /// Hour of the week, from Monday 0:00, at which the trace begins.
    pub start_hour: u64,
}

/// Generates sessions from a profile that was learnt from `trace`, started at the trace's mean rate
/// by as many people, and reads them; `seen` is called for each. The peak of the starts is that of
/// as many people over as many days.
///
/// # Errors
/// If the sessions have too many blocks to count their hits.
pub fn play(
    profile: &Profile,
    trace: &Readings,
    how: &Play,
    mut seen: impl FnMut(),
) -> Result<Readings> {
    let starts = &trace.starts;
    let hours = starts.length().secs() / 3_600.0;
    // One session has no rate; any will do.
    let rate = if hours > 0.0 { trace.sessions as f64 / hours } else { 60.0 };
    let request = Request {
        mix: vec![(profile.clone(), 1.0)],
        population: Population::Sessions {
            sessions: how.sessions,
            per_hour: rate.clamp(RATE_MIN, RATE_MAX),
            users: u32::try_from(starts.users()).unwrap_or(u32::MAX).max(1),
        },
        seed: how.seed,
        start_hour: how.start_hour,
        tokens_per_s: TOKENS_PER_S,
    };
    let mut readings = Readings::default();
    for item in Generator::new(&request) {
        match item {
            Generated::Context(context, _) => readings.context(&context),
            Generated::Session(made) => {
                readings.session(&made.session);
                seen();
            }
        }
    }
    readings.finish()?;
    if starts.users() > 0 {
        readings.set_peak(peak_of_starts(profile, trace, how));
    }
    Ok(readings)
}

/// Most starts of an hour over the mean, of as many people over as many whole days as in the trace.
fn peak_of_starts(profile: &Profile, trace: &Readings, how: &Play) -> Option<(f64, u64)> {
    let developers = u32::try_from(trace.starts.users()).ok()?;
    let length = trace.starts.length().secs();
    let days = ((length / 86_400.0).ceil() as u32).max(1);
    let mix = [(profile.clone(), 1.0)];
    let population = Population::Developers { developers, days };
    let mut hours: Vec<u64> = Vec::new();
    for start in people::Starts::new(population, &mix, how.seed, how.start_hour) {
        let hour = (start.at.0 / Span::from_secs(3_600).0) as usize;
        if hour >= hours.len() {
            hours.resize(hour + 1, 0);
        }
        hours[hour] += 1;
    }
    starts::peak_to_mean(&hours)
}
