//! A smaller trace: some of the sessions, whole, with every tenant and profile in proportion.

use super::Source;
use super::survey::{COMMON_FROM_SESSIONS, Stratum, Survey};
use crate::diag::{Error, Result};
use crate::trace::canonical::Sink;
use crate::trace::record::Item;

/// How many sessions are kept.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Size {
    /// This share of them, above 0 and up to 1; at least one session.
    Share(f64),
    /// So many.
    Sessions(u64),
}

/// What was kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sampled {
    /// The strata of the whole trace.
    pub whole: Vec<Stratum>,
    /// What was kept of each, in the same order.
    pub kept: Vec<Stratum>,
    /// Shared contexts of the whole trace.
    pub contexts: u64,
    /// Of these, those that kept sessions use.
    pub contexts_kept: u64,
    /// Kept contexts that only in the whole trace have enough users to be taken for tools and
    /// system prompts.
    pub contexts_less_common: u64,
}

impl Size {
    fn of(self, sessions: u64) -> Result<u64> {
        match self {
            Self::Share(share) if share > 0.0 && share <= 1.0 => {
                Ok(((share * sessions as f64).round() as u64).clamp(1, sessions.max(1)))
            }
            Self::Share(share) => Err(Error::found(share, "a share above 0, up to 1")),
            Self::Sessions(wanted) if (1..=sessions).contains(&wanted) => Ok(wanted),
            Self::Sessions(wanted) => {
                let allowed = format!("1 to {sessions}, the sessions of the trace");
                Err(Error::found(wanted, allowed))
            }
        }
    }
}

/// Hands on some sessions of a trace, chosen by `seed`, with the contexts that they use.
///
/// # Errors
/// The first error of the trace or of the sink, or a size that the trace does not have.
pub fn sample(
    source: &(impl Source + ?Sized),
    size: Size,
    seed: u64,
    sink: &mut dyn Sink,
) -> Result<Sampled> {
    let survey = Survey::of(source)?;
    let total = size.of(survey.sessions.len() as u64)?;
    let chosen = survey.choose(total, seed);
    let users = survey.users(|session| chosen[session]);
    let mut contexts = users.iter();
    let mut sessions = chosen.iter();
    for item in source.items()? {
        match item? {
            Item::Context(context) if contexts.next().is_some_and(|users| *users > 0) => {
                sink.context(&context)?;
            }
            Item::Session(session) if sessions.next().is_some_and(|chosen| *chosen) => {
                sink.session(&session)?;
            }
            _ => {}
        }
    }
    Ok(told(survey, &chosen, &users))
}

fn told(survey: Survey, chosen: &[bool], users: &[u32]) -> Sampled {
    let none = |stratum: &Stratum| Stratum { sessions: 0, calls: 0, ..stratum.clone() };
    let mut kept: Vec<Stratum> = survey.strata.iter().map(none).collect();
    for (session, _) in survey.sessions.iter().zip(chosen).filter(|(_, chosen)| **chosen) {
        kept[session.stratum as usize].sessions += 1;
        kept[session.stratum as usize].calls += session.calls;
    }
    let before = survey.users(|_| true);
    let less_common = |(before, after): &(u32, &u32)| {
        **after > 0 && **after < COMMON_FROM_SESSIONS && *before >= COMMON_FROM_SESSIONS
    };
    Sampled {
        whole: survey.strata,
        kept,
        contexts: users.len() as u64,
        contexts_kept: users.iter().filter(|users| **users > 0).count() as u64,
        contexts_less_common: before.into_iter().zip(users).filter(less_common).count() as u64,
    }
}
