//! Who starts a session when.
//!
//! Each person has streams of their own: another person more, or another day more, changes nothing
//! about those who were there.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::hours::Clock;
use super::profile::{Key, Profile};
use crate::rng::{Purpose, Stream};
use crate::units::Span;

/// How many sessions are made, and for whom.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Population {
    /// So many sessions at a steady rate, each of one of the users.
    Sessions {
        /// Sessions to make.
        sessions: u64,
        /// Sessions that start in an hour.
        per_hour: f64,
        /// People who start them.
        users: u32,
    },
    /// So many developers, who work at the hours of their profile for so many days.
    Developers {
        /// People.
        developers: u32,
        /// Days from the start of the trace.
        days: u32,
    },
}

/// A person: what does not change from session to session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Person {
    /// Number of the person, from 0.
    pub number: u32,
    /// Which profile of the mix.
    pub profile: usize,
    /// Which of its classes, if it has any.
    pub class: Option<usize>,
    /// Which version of the scaffold.
    pub version: u32,
    /// Which team.
    pub tenant: u32,
}

/// Steps of two evenly spreading sequences: persons in a row get shares as even as can be,
/// whatever their number.
const GOLDEN: f64 = 0.618_033_988_749_894_9;
const SILVER: f64 = 0.414_213_562_373_095_1;

impl Person {
    /// The person of this number in a mix of profiles with shares that add up to 1.
    #[must_use]
    pub fn new(mix: &[(Profile, f64)], seed: u64, number: u32, with_classes: bool) -> Self {
        let mut phases = Stream::new(seed, Purpose::Person, u64::MAX);
        let mut spread = |step: f64| (phases.uniform_f64() + f64::from(number) * step).fract();
        let (of_profile, of_class) = (spread(GOLDEN), spread(SILVER));
        let profile = pick(mix.iter().map(|(_, share)| *share), of_profile);
        let profile_is = &mix[profile].0;
        let classes = profile_is.classes.iter().map(|class| class.share);
        let class = with_classes && !profile_is.classes.is_empty();
        let versions = profile_is.number(Key::Versions) as u64;
        let mut own = Stream::new(seed, Purpose::Person, u64::from(number));
        Self {
            number,
            profile,
            class: class.then(|| pick(classes, of_class)),
            version: own.uniform_below(versions.max(1)) as u32,
            tenant: number / profile_is.number(Key::Team).max(1.0) as u32,
        }
    }
}

/// Which of several shares, that add up to 1, holds `u`.
fn pick(shares: impl Iterator<Item = f64>, u: f64) -> usize {
    let mut below = 0.0;
    let mut last = 0;
    for (index, share) in shares.enumerate() {
        below += share;
        last = index;
        if u < below {
            break;
        }
    }
    last
}

/// The start of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Start {
    /// When.
    pub at: Span,
    /// By whom.
    pub person: u32,
    /// Number of the session among that person's, or among all at a steady rate.
    pub number: u32,
    /// What names the session's streams.
    pub entity: u64,
}

/// All starts, in the order of time.
#[derive(Debug)]
pub enum Starts {
    /// At a steady rate.
    Steady {
        /// Sessions still to come.
        left: u64,
        /// Time between two, on average.
        mean_gap_s: f64,
        /// People.
        users: u32,
        /// Its stream.
        stream: Box<Stream>,
        /// The last start.
        last: Start,
    },
    /// Person by person.
    People {
        /// Every person's next start.
        next: BinaryHeap<Reverse<(Span, u32)>>,
        /// Indexed by person.
        people: Vec<Renewal>,
        /// No session starts later.
        end: Span,
    },
}

impl Starts {
    /// The starts of a population.
    #[must_use]
    pub fn new(population: Population, mix: &[(Profile, f64)], seed: u64, start_hour: u64) -> Self {
        match population {
            Population::Sessions { sessions, per_hour, users } => Self::Steady {
                left: sessions,
                mean_gap_s: 3_600.0 / per_hour,
                users: users.max(1),
                stream: Box::new(Stream::new(seed, Purpose::PersonStarts, u64::MAX)),
                last: Start { at: Span::ZERO, person: 0, number: 0, entity: 0 },
            },
            Population::Developers { developers, days } => {
                let end = Span::from_secs(u64::from(days) * 86_400);
                let mut people: Vec<Renewal> = Vec::with_capacity(developers as usize);
                let mut next = BinaryHeap::new();
                for number in 0..developers {
                    let person = Person::new(mix, seed, number, true);
                    let profile = &mix[person.profile].0;
                    let mut renewal = Renewal::new(profile, seed, number, start_hour);
                    next.extend(renewal.next(end).map(|at| Reverse((at, number))));
                    people.push(renewal);
                }
                Self::People { next, people, end }
            }
        }
    }
}

impl Iterator for Starts {
    type Item = Start;

    fn next(&mut self) -> Option<Start> {
        match self {
            Self::Steady { left, mean_gap_s, users, stream, last } => {
                *left = left.checked_sub(1)?;
                let start = *last;
                let person = stream.uniform_below(u64::from(*users)) as u32;
                last.at += Span::from_secs_f64(stream.exponential(*mean_gap_s));
                last.number = last.number.wrapping_add(1);
                last.entity += 1;
                Some(Start { person, ..start })
            }
            Self::People { next, people, end } => {
                let Reverse((at, person)) = next.pop()?;
                let renewal = &mut people[person as usize];
                let number = renewal.started;
                renewal.started += 1;
                next.extend(renewal.next(*end).map(|at| Reverse((at, person))));
                let entity = (u64::from(person) + 1) << 32 | u64::from(number);
                Some(Start { at, person, number, entity })
            }
        }
    }
}

/// A person's starts: a renewal process in working time with gaps from a Gamma distribution.
#[derive(Debug)]
pub struct Renewal {
    stream: Stream,
    clock: Clock,
    shape: f64,
    /// Hours of work between two starts, on average.
    mean_gap_h: f64,
    last: Span,
    /// Hours of work to the next start.
    pending_h: f64,
    started: u32,
}

/// Gaps before the start of the trace after which the process has forgotten how it began.
const FORGOTTEN_AFTER: f64 = 50.0;

impl Renewal {
    fn new(profile: &Profile, seed: u64, person: u32, start_hour: u64) -> Self {
        let cv = profile.number(Key::BurstCv);
        let mean_gap_h = profile.number(Key::StartsPerHour).recip();
        let mut renewal = Self {
            stream: Stream::new(seed, Purpose::PersonStarts, u64::from(person)),
            clock: Clock { hours: profile.hours, start_hour },
            shape: (cv * cv).recip(),
            mean_gap_h,
            last: Span::ZERO,
            pending_h: -FORGOTTEN_AFTER * mean_gap_h,
            started: 0,
        };
        while renewal.pending_h < 0.0 {
            renewal.pending_h += renewal.gap();
        }
        renewal
    }

    fn gap(&mut self) -> f64 {
        self.stream.gamma(self.shape, self.mean_gap_h / self.shape)
    }

    fn next(&mut self, end: Span) -> Option<Span> {
        let at = self.clock.after(self.last, self.pending_h, end)?;
        self.last = at;
        self.pending_h = self.gap();
        Some(at)
    }
}
