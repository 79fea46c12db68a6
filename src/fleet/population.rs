//! Who starts which session when.

use crate::config::load::{Load, LoadKind, Office};
use crate::rng::{Purpose, Stream};
use crate::units::{ReplicaId, Span, Time};

/// A session that is to start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Start {
    /// When.
    pub at: Time,
    /// Which session of the trace.
    pub session: u32,
    /// The pass through the trace: a session played again is somebody else's.
    pub pass: u32,
    /// Who plays it: the developer, or the position among all starts.
    pub player: u32,
    /// Where its calls go, where that is settled beforehand.
    pub pin: Option<ReplicaId>,
}

/// Nobody waits longer than ten years: the tail of a wide distribution must not leave the clock.
const LONGEST_WAIT: Span = Span::from_secs(10 * 365 * 86_400);

/// Who starts sessions where they do not start as recorded.
#[derive(Debug)]
pub struct Population {
    load: Load,
    seed: u64,
    first_starts_within: Span,
    sessions: u32,
    /// The order of the sessions in each pass so far.
    passes: Vec<Vec<u32>>,
    /// By developer: how many sessions were begun, and the pauses between them.
    developers: Vec<(u32, Stream)>,
    arrivals: Stream,
    next_arrival: u32,
    last_arrival: Time,
}

impl Population {
    /// The people of this load. First starts of developers are uniform over `warmup`, or over the
    /// time in which they arrive on a working day.
    #[must_use]
    pub fn new(load: &Load, sessions: u32, seed: u64, warmup: Span) -> Self {
        let developers = match load.kind {
            LoadKind::Developers { developers } => developers,
            _ => 0,
        };
        let pauses = (0..developers).map(|d| (0, Stream::new(seed, Purpose::Pause, d.into())));
        Self {
            load: load.clone(),
            seed,
            first_starts_within: load.office.map_or(warmup, |office| office.ramp),
            sessions,
            passes: Vec::new(),
            developers: pauses.collect(),
            arrivals: Stream::new(seed, Purpose::Arrival, 0),
            next_arrival: 0,
            last_arrival: Time::ZERO,
        }
    }

    /// The starts that are known when the run begins. Every other start follows from
    /// [`Self::after_start`] or [`Self::after_session`].
    pub fn first(&mut self) -> Vec<Start> {
        match self.load.kind {
            LoadKind::Developers { developers } => {
                (0..developers).map(|developer| self.first_of(developer)).collect()
            }
            LoadKind::SessionsPerHour { rate, cv } => vec![self.next_open(rate, cv)],
            LoadKind::Trace => Vec::new(),
        }
    }

    /// A session has started: the one that follows whatever becomes of it, if any.
    pub fn after_start(&mut self) -> Option<Start> {
        match self.load.kind {
            LoadKind::SessionsPerHour { rate, cv } => Some(self.next_open(rate, cv)),
            _ => None,
        }
    }

    /// A session of `player` has ended: the one that the same person plays next, if any.
    pub fn after_session(&mut self, player: u32, now: Time) -> Option<Start> {
        let LoadKind::Developers { developers } = self.load.kind else { return None };
        let (begun, pauses) = &mut self.developers[player as usize];
        let pause = pauses.log_normal(self.load.pause_median.secs(), self.load.pause_sigma);
        // Sessions are dealt to the developers in turn, so that who plays what does not depend on
        // how fast the fleet is: two fleets are compared on the same sessions.
        let position = u64::from(*begun) * u64::from(developers) + u64::from(player);
        *begun += 1;
        let (session, pass) = self.deal(position);
        let at = now + Span::from_secs_f64(pause).min(LONGEST_WAIT);
        let at = match self.load.office {
            Some(office) if !office.is_open(at) => self.arrival(office, at, player),
            _ => at,
        };
        Some(Start { at, session, pass, player, pin: None })
    }

    /// When somebody who has left by `after` arrives on the next working day. Drawn by person and
    /// day, so that it does not depend on when they left.
    fn arrival(&self, office: Office, after: Time, player: u32) -> Time {
        let (day, begins) = office.next_day(after);
        let entity = day << u32::BITS | u64::from(player);
        let within = Stream::new(self.seed, Purpose::Workday, entity).uniform_f64();
        begins + Span::from_secs_f64(within * office.ramp.secs())
    }

    fn first_of(&mut self, developer: u32) -> Start {
        let mut stream = Stream::new(self.seed, Purpose::SessionStart, developer.into());
        let within = stream.uniform_f64() * self.first_starts_within.secs();
        self.developers[developer as usize].0 = 1;
        let (session, pass) = self.deal(developer.into());
        Start {
            at: Time::ZERO + Span::from_secs_f64(within),
            session,
            pass,
            player: developer,
            pin: None,
        }
    }

    fn next_open(&mut self, rate: f64, cv: f64) -> Start {
        let player = self.next_arrival;
        // A renewal process with Gamma gaps: cv 1 is Poisson, more is bursty.
        let shape = 1.0 / (cv * cv);
        let gap = self.arrivals.gamma(shape, 3600.0 / rate / shape);
        self.last_arrival = self.last_arrival + Span::from_secs_f64(gap).min(LONGEST_WAIT);
        let (session, pass) = self.deal(player.into());
        self.next_arrival += 1;
        Start { at: self.last_arrival, session, pass, player, pin: None }
    }

    /// The session at this position of an endless deal: every pass holds each session once, in an
    /// order of its own.
    fn deal(&mut self, position: u64) -> (u32, u32) {
        let pass = (position / u64::from(self.sessions)) as u32;
        while self.passes.len() <= pass as usize {
            let mut order: Vec<u32> = (0..self.sessions).collect();
            let number = self.passes.len() as u64;
            Stream::new(self.seed, Purpose::SessionOrder, number).shuffle(&mut order);
            self.passes.push(order);
        }
        let session = self.passes[pass as usize][(position % u64::from(self.sessions)) as usize];
        (session, pass)
    }
}
