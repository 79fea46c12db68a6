//! Random numbers in separate streams, so that drawing more of one kind never shifts another.
//!
//! A stream belongs to a seed, a [`Purpose`] and an entity (a session, a replica, a client): the
//! pauses of session 7 are the same numbers whatever the router drew, and two fleets that differ
//! in one setting see the same arrivals. The generator is PCG-64, whose output is the same on
//! every machine; whole numbers, uniform numbers and shuffles are made from it here, the
//! distributions come from `rand_distr`.
//!
//! ```
//! use tonnage::rng::{Purpose, Stream};
//!
//! let mut once = Stream::new(1, Purpose::Pause, 7);
//! let mut again = Stream::new(1, Purpose::Pause, 7);
//! assert_eq!(once.exponential(600.0), again.exponential(600.0));
//! ```

use rand::Rng;
use rand_distr::{Distribution, Exp, Gamma, LogNormal};
use rand_pcg::Pcg64;

/// What a stream is drawn for. The numbers are part of every seeded result: never change one,
/// never give one to something else.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u64)]
pub enum Purpose {
    /// In which order sessions of a trace are played.
    SessionOrder = 1,
    /// When a session or a developer starts.
    SessionStart = 2,
    /// How long a developer pauses between sessions.
    Pause = 3,
    /// Ties and random choices of a router.
    Router = 4,
    /// Times between arrivals.
    Arrival = 5,
    /// How long a client waits before it asks again.
    Retry = 6,
    /// When somebody arrives on a working day.
    Workday = 7,
    /// Which sessions of a trace are kept, or cloned once more.
    SessionChoice = 10,
    /// By how much a cloned session starts earlier or later than the original.
    CloneStart = 11,
    /// Which profile and kind of person somebody is.
    Person = 20,
    /// When somebody starts sessions.
    PersonStarts = 21,
    /// Sizes of the prompts' heads that sessions share.
    Scaffold = 22,
    /// Turns and calls of a generated session.
    SessionPlan = 23,
    /// Prompts of its main agent.
    SessionPrompts = 24,
    /// Answers to its main agent.
    SessionOutputs = 25,
    /// Times of its tools and of its user.
    SessionGaps = 26,
    /// Everything about its subagents and the calls beside the main agent's.
    SessionAside = 27,
    /// Attempts that fail.
    SessionFailures = 28,
    /// Lengths of a benchmark's prompts and answers.
    BenchmarkLengths = 40,
    /// Which gateway worker gets a request.
    LoadBalancer = 50,
    /// Random choices of a gateway worker's routing strategy.
    RoutingStrategy = 51,
    /// How long a gateway waits before it tries again.
    RouterRetry = 52,
    /// How long an SDK behind an agent waits before it asks again.
    SdkRetry = 53,
    /// By how much a gateway worker's periodic jobs are late.
    WorkerJitter = 54,
    /// Which sessions of a run are drawn again for the interval of a figure.
    Bootstrap = 70,
}

/// One independent stream of random numbers.
#[derive(Clone, Debug)]
pub struct Stream(Pcg64);

impl Stream {
    /// The stream that belongs to `seed`, `purpose` and `entity`.
    #[must_use]
    pub fn new(seed: u64, purpose: Purpose, entity: u64) -> Self {
        let word = |lane: u64| {
            [seed, purpose as u64, entity].into_iter().fold(mix(lane), |hash, part| {
                // Each part is added to a well-mixed word and mixed again, so the order counts.
                mix(hash.wrapping_add(part))
            })
        };
        let wide = |high: u64, low: u64| u128::from(word(high)) << 64 | u128::from(word(low));
        Self(Pcg64::new(wide(1, 2), wide(3, 4)))
    }

    /// A whole number from 0 to `n - 1`, each equally likely.
    ///
    /// # Panics
    /// If `n` is zero: there is no such number.
    #[must_use]
    pub fn uniform_below(&mut self, n: u64) -> u64 {
        assert!(n > 0, "no number is below zero");
        // The high half of a product maps 2^64 draws to n numbers; the draws that would give
        // some numbers one more than others (those whose low half is below 2^64 mod n) are
        // drawn again.
        let unfair = n.wrapping_neg() % n;
        loop {
            let product = u128::from(self.0.next_u64()) * u128::from(n);
            if product as u64 >= unfair {
                return (product >> 64) as u64;
            }
        }
    }

    /// A number from 0 to 1, 1 excluded, in steps of 2^-53.
    #[must_use]
    pub fn uniform_f64(&mut self) -> f64 {
        (self.0.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// A log-normal number with this median; `sigma` is the deviation of its logarithm.
    ///
    /// # Panics
    /// If the median is negative, or `sigma` negative or not finite.
    #[must_use]
    pub fn log_normal(&mut self, median: f64, sigma: f64) -> f64 {
        assert!(median >= 0.0 && sigma >= 0.0, "log-normal of median {median}, sigma {sigma}");
        self.draw(LogNormal::new(median.ln(), sigma).expect("a finite sigma"))
    }

    /// A Gamma number: mean `shape * scale`, coefficient of variation `1 / sqrt(shape)`.
    ///
    /// # Panics
    /// If either is not above zero.
    #[must_use]
    pub fn gamma(&mut self, shape: f64, scale: f64) -> f64 {
        self.draw(Gamma::new(shape, scale).expect("a shape and a scale above zero"))
    }

    /// An exponential number with this mean.
    ///
    /// # Panics
    /// If the mean is not above zero.
    #[must_use]
    pub fn exponential(&mut self, mean: f64) -> f64 {
        assert!(mean > 0.0, "exponential of mean {mean}");
        self.draw(Exp::new(mean.recip()).expect("a rate above zero"))
    }

    /// Puts the items in a random order, each order equally likely.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.uniform_below(last as u64 + 1) as usize);
        }
    }

    fn draw(&mut self, distribution: impl Distribution<f64>) -> f64 {
        distribution.sample(&mut self.0)
    }
}

/// One step of SplitMix64: a bijection of 64 bits in which every input bit reaches every output
/// bit.
fn mix(word: u64) -> u64 {
    let word = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Purpose; 9] = [
        Purpose::SessionOrder,
        Purpose::SessionStart,
        Purpose::Pause,
        Purpose::Router,
        Purpose::Arrival,
        Purpose::Retry,
        Purpose::Workday,
        Purpose::SessionChoice,
        Purpose::CloneStart,
    ];

    fn mean_of(n: u32, mut draw: impl FnMut() -> f64) -> f64 {
        (0..n).map(|_| draw()).sum::<f64>() / f64::from(n)
    }

    #[test]
    fn mix_is_splitmix64() {
        // The first outputs of the published generator from the state 0.
        assert_eq!(mix(0), 0xe220_a839_7b1d_cdaf);
        assert_eq!(mix(0x9e37_79b9_7f4a_7c15), 0x6e78_9e6a_a1b9_65f4);
    }

    #[test]
    fn the_generator_is_pcg64() {
        // First output of the reference demonstration program with state 42 and stream 54.
        assert_eq!(Pcg64::new(42, 54).next_u64(), 0x86b1_da1d_7206_2b68);
    }

    #[test]
    fn the_purposes_keep_their_numbers() {
        assert_eq!(ALL.map(|purpose| purpose as u64), [1, 2, 3, 4, 5, 6, 7, 10, 11]);
        let generating = [Purpose::Person, Purpose::PersonStarts, Purpose::Scaffold];
        assert_eq!(generating.map(|purpose| purpose as u64), [20, 21, 22]);
        let of_a_session = [
            Purpose::SessionPlan,
            Purpose::SessionPrompts,
            Purpose::SessionOutputs,
            Purpose::SessionGaps,
            Purpose::SessionAside,
            Purpose::SessionFailures,
        ];
        assert_eq!(of_a_session.map(|purpose| purpose as u64), [23, 24, 25, 26, 27, 28]);
        let of_the_gateway = [
            Purpose::LoadBalancer,
            Purpose::RoutingStrategy,
            Purpose::RouterRetry,
            Purpose::SdkRetry,
            Purpose::WorkerJitter,
        ];
        assert_eq!(of_the_gateway.map(|purpose| purpose as u64), [50, 51, 52, 53, 54]);
        assert_eq!(Purpose::BenchmarkLengths as u64, 40);
    }

    #[test]
    fn no_two_streams_begin_alike() {
        let mut firsts = Vec::new();
        for (seed, entity) in (0..20).flat_map(|seed| (0..20).map(move |entity| (seed, entity))) {
            firsts.extend(ALL.map(|purpose| Stream::new(seed, purpose, entity).0.next_u64()));
        }
        let drawn = firsts.len();
        firsts.sort_unstable();
        firsts.dedup();
        assert_eq!(firsts.len(), drawn);
    }

    #[test]
    fn draws_stay_in_range_and_are_fair() {
        let mut stream = Stream::new(1, Purpose::Router, 0);
        let mut counts = [0_u32; 7];
        for _ in 0..70_000 {
            counts[stream.uniform_below(7) as usize] += 1;
        }
        assert!(counts.iter().all(|count| count.abs_diff(10_000) < 500), "{counts:?}");
        assert_eq!(stream.uniform_below(1), 0);
        let mean = mean_of(10_000, || stream.uniform_f64());
        assert!((mean - 0.5).abs() < 0.02, "{mean}");
    }

    #[test]
    fn the_distributions_take_the_parameters_that_they_say() {
        let mut stream = Stream::new(2, Purpose::Arrival, 0);
        let mean = mean_of(20_000, || stream.exponential(600.0));
        assert!((mean / 600.0 - 1.0).abs() < 0.03, "{mean}");
        let mean = mean_of(20_000, || stream.gamma(0.25, 8.0));
        assert!((mean / 2.0 - 1.0).abs() < 0.06, "{mean}");
        let below = mean_of(20_000, || f64::from(u8::from(stream.log_normal(600.0, 1.0) < 600.0)));
        assert!((below - 0.5).abs() < 0.02, "{below}");
        assert_eq!(stream.log_normal(0.0, 1.0), 0.0);
    }

    /// A dependency that changes its values must not do so unnoticed: every seeded result would
    /// change with it.
    #[test]
    fn the_first_draws_are_golden() {
        let mut stream = Stream::new(42, Purpose::SessionOrder, 0);
        let words = [12_701_367_448_291_276_765, 14_997_146_130_187_300_835];
        assert_eq!([0; 2].map(|_| stream.0.next_u64()), words);

        let mut stream = Stream::new(42, Purpose::Router, u64::MAX);
        let below = [10, 1_000, 1 << 40, u64::MAX].map(|n| stream.uniform_below(n));
        assert_eq!(below, [4, 115, 134_976_992_753, 10_310_928_147_912_030_331]);
        assert_eq!(stream.uniform_f64(), 0.566_904_033_718_951_4);

        let mut stream = Stream::new(1, Purpose::SessionStart, 3);
        let mut items: Vec<u32> = (0..10).collect();
        stream.shuffle(&mut items);
        assert_eq!(items, [9, 6, 2, 3, 5, 0, 7, 4, 8, 1]);
    }

    #[test]
    fn the_first_draws_of_each_distribution_are_golden() {
        // To 12 digits only: logarithms differ in the last one between machines.
        let alike = |drawn: [f64; 3], golden: [f64; 3]| {
            let close = |(a, b): (f64, f64)| (a / b - 1.0).abs() < 1e-12;
            assert!(drawn.into_iter().zip(golden).all(close), "{drawn:?} is not {golden:?}");
        };
        let mut stream = Stream::new(1, Purpose::Pause, 7);
        let drawn = [0; 3].map(|_| stream.log_normal(600.0, 1.0));
        alike(drawn, [473.070934562324, 1147.962903806824, 61.57566423198704]);
        let mut stream = Stream::new(1, Purpose::Arrival, 7);
        let drawn = [0; 3].map(|_| stream.exponential(600.0));
        alike(drawn, [420.47078525246616, 795.5620604597023, 1277.7132904768357]);
        let drawn = [0.25, 1.0, 3.0].map(|shape| stream.gamma(shape, 2.0));
        alike(drawn, [1.965185217193013, 1.6460370771388964, 4.6258736814680805]);
    }

    #[test]
    fn a_shuffle_keeps_every_item() {
        let mut items: Vec<u32> = (0..100).collect();
        Stream::new(3, Purpose::SessionOrder, 0).shuffle(&mut items);
        assert!(!items.is_sorted());
        items.sort_unstable();
        assert_eq!(items, (0..100).collect::<Vec<_>>());
    }
}
