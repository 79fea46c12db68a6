//! How far a target's figure depends on which sessions happened to be in the trace: intervals by
//! resampling sessions.
//!
//! Sessions of the run are drawn with replacement, as many as there were, and the figure is taken
//! of their samples; the middle of what comes out is the interval. Calls and turns of a session
//! stay together, because they are alike, and so do all plays of a session that developers play
//! several times. How sessions slow each other down stays as it was in the run: that is what other
//! seeds are for.

use rayon::prelude::*;

use super::slo::{Asks, Slo};
use crate::rng::{Purpose, Stream};
use crate::stats::{nearest_rank, quantile};

/// Times that sessions are drawn.
pub const RESAMPLES: u64 = 400;
/// The share of all draws that lies inside an interval.
pub const INSIDE: f64 = 0.95;
/// More samples than this are not kept.
const KEPT_MAX: usize = 20_000_000;

/// What is kept of one target: samples, or parts and wholes of a share, each with its session.
#[derive(Clone, Debug, Default)]
pub struct Kept {
    samples: Vec<(u32, f64)>,
    shares: Vec<(u32, u64, u64)>,
    is_full: bool,
}

/// Where a figure lies for most draws of sessions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    /// Its lower end, in the base unit of the target.
    pub low: f64,
    /// Its upper end.
    pub high: f64,
    /// Sessions that were drawn from: those with a sample.
    pub sessions: u32,
}

/// Why there is no interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unavailable {
    /// Nothing that the target is about ended in the window.
    NoSample,
    /// Samples of one session only.
    OneSession,
    /// More samples than are kept.
    TooMany,
}

impl Unavailable {
    /// In words.
    #[must_use]
    pub fn why(self) -> &'static str {
        match self {
            Self::NoSample => "no sample",
            Self::OneSession => "samples of one session only",
            Self::TooMany => "more than 20,000,000 samples are not kept",
        }
    }
}

impl Kept {
    /// One more sample of a session.
    pub fn sample(&mut self, session: u32, sample: f64) {
        if self.has_room() {
            self.samples.push((session, sample));
        }
    }

    /// One more call of a session, that counts for so much of a share.
    pub fn share(&mut self, session: u32, part: u64, whole: u64) {
        if self.has_room() {
            self.shares.push((session, part, whole));
        }
    }

    fn has_room(&mut self) -> bool {
        self.is_full |= self.samples.len().max(self.shares.len()) == KEPT_MAX;
        !self.is_full
    }

    /// The interval of a target's figure. The same draws whatever the number of threads.
    ///
    /// # Errors
    /// Why there is none.
    pub fn interval(&self, target: &Slo, seed: u64) -> Result<Interval, Unavailable> {
        if self.is_full {
            return Err(Unavailable::TooMany);
        }
        let sessions = self.samples.iter().map(|sample| sample.0);
        let mut sessions: Vec<u32> =
            sessions.chain(self.shares.iter().map(|share| share.0)).collect();
        sessions.sort_unstable();
        sessions.dedup();
        match sessions.len() {
            0 => return Err(Unavailable::NoSample),
            1 => return Err(Unavailable::OneSession),
            _ => {}
        }
        let place = |session: u32| sessions.binary_search(&session).unwrap_or(0);
        let figure = match target.statistic.quantile() {
            Some(q) => Figure::percentile(q, sessions.len(), &self.samples, place),
            None => Figure::share(sessions.len(), &self.shares, place),
        };
        let each = (0..RESAMPLES).into_par_iter();
        let each = each.map(|number| figure.of(&weights(seed, number, sessions.len())));
        let mut figures: Vec<f64> = each.collect();
        if let Asks::InversePercentile(_) = target.metric.asks() {
            figures.iter_mut().for_each(|figure| *figure = figure.recip());
        }
        figures.sort_by(f64::total_cmp);
        let at = |p| quantile(&figures, p).unwrap_or(f64::NAN);
        let outside = (1.0 - INSIDE) / 2.0;
        let (low, high) = (at(outside), at(1.0 - outside));
        Ok(Interval { low, high, sessions: sessions.len() as u32 })
    }
}

/// How often each session is drawn.
fn weights(seed: u64, number: u64, sessions: usize) -> Vec<u32> {
    let mut stream = Stream::new(seed, Purpose::Bootstrap, number);
    let mut weights = vec![0; sessions];
    for _ in 0..sessions {
        weights[stream.uniform_below(sessions as u64) as usize] += 1;
    }
    weights
}

/// What is taken of the sessions that were drawn.
enum Figure {
    /// The quantile, of samples in rising order with their sessions, and samples by session.
    Percentile(f64, Vec<(f64, usize)>, Vec<u64>),
    /// Part and whole by session.
    Share(Vec<(u64, u64)>),
}

impl Figure {
    fn percentile(
        q: f64,
        sessions: usize,
        samples: &[(u32, f64)],
        place: impl Fn(u32) -> usize,
    ) -> Self {
        let mut sorted: Vec<(f64, usize)> =
            samples.iter().map(|&(session, sample)| (sample, place(session))).collect();
        sorted.sort_unstable_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        let mut counts = vec![0; sessions];
        sorted.iter().for_each(|(_, session)| counts[*session] += 1);
        Self::Percentile(q, sorted, counts)
    }

    fn share(sessions: usize, shares: &[(u32, u64, u64)], place: impl Fn(u32) -> usize) -> Self {
        let mut sums = vec![(0, 0); sessions];
        for &(session, part, whole) in shares {
            let (parts, wholes) = &mut sums[place(session)];
            *parts += part;
            *wholes += whole;
        }
        Self::Share(sums)
    }

    /// The figure, each session as often as it was drawn.
    fn of(&self, weights: &[u32]) -> f64 {
        match self {
            Self::Percentile(q, sorted, counts) => {
                let all =
                    counts.iter().zip(weights).map(|(count, weight)| count * u64::from(*weight));
                let rank = nearest_rank(*q, all.sum());
                let mut seen = 0;
                let found = sorted.iter().find(|(_, session)| {
                    seen += u64::from(weights[*session]);
                    seen >= rank
                });
                found.map_or(f64::NAN, |(sample, _)| *sample)
            }
            Self::Share(sums) => {
                let sum = |of: fn(&(u64, u64)) -> u64| {
                    let each = sums.iter().zip(weights);
                    each.map(|(sums, weight)| of(sums) * u64::from(*weight)).sum::<u64>() as f64
                };
                sum(|sums| sums.0) / sum(|sums| sums.1)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(text: &str) -> Slo {
        text.parse().unwrap()
    }

    #[test]
    fn sessions_are_drawn_and_not_samples() {
        let ttft = target("p50 ttft <= 1 s");
        // Two kinds of sessions, all of whose calls are alike: half of the draws have more of one.
        let mut kept = Kept::default();
        for play in 0..10 {
            (0..1_000).for_each(|_| kept.sample(play, f64::from(play % 2)));
        }
        let expected = Interval { low: 0.0, high: 1.0, sessions: 10 };
        assert_eq!(kept.interval(&ttft, 1), Ok(expected));
        assert_eq!(kept.interval(&ttft, 1), kept.interval(&ttft, 1));
        // The same samples without their sessions would be known much better.
        let mut apart = Kept::default();
        (0..10_000).for_each(|play| apart.sample(play, f64::from(play % 100)));
        let Interval { low, high, .. } = apart.interval(&ttft, 1).unwrap();
        assert!(45.0 < low && low <= 50.0 && (49.0..55.0).contains(&high), "{low} {high}");
    }

    #[test]
    fn a_mean_of_shares_has_the_width_that_theory_gives() {
        let mut kept = Kept::default();
        (0..400).for_each(|play| kept.share(play, u64::from(play % 2 == 0), 1));
        let Interval { low, high, .. } = kept.interval(&target("failed <= 1 %"), 7).unwrap();
        // A deviation of sqrt(0.25 / 400) = 0.025, twice to either side.
        assert!((0.44..0.47).contains(&low) && (0.53..0.56).contains(&high), "{low} {high}");
    }

    #[test]
    fn rates_are_those_of_the_slow_end_and_what_is_missing_is_named() {
        let rate = target("p90 interactivity >= 40 tok/s");
        let mut kept = Kept::default();
        assert_eq!(kept.interval(&rate, 1), Err(Unavailable::NoSample));
        kept.sample(0, 0.02);
        assert_eq!(kept.interval(&rate, 1), Err(Unavailable::OneSession));
        (1..100).for_each(|play| kept.sample(play, 0.02 + 0.0001 * f64::from(play)));
        let Interval { low, high, sessions } = kept.interval(&rate, 1).unwrap();
        assert!(sessions == 100 && 33.0 < low && low < high && high < 36.5, "{low} {high}");
    }
}
