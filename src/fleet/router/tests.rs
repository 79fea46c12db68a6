use super::*;
use crate::config::router::Memory;
use crate::units::SegmentId;

const NOTHING: fn(ReplicaId) -> Tokens = |_| Tokens::ZERO;

/// A router in a test: content is one segment a session.
struct Asked(Router);

impl Asked {
    fn new(kind: RouterKind, routing: &Routing, replicas: u32) -> Self {
        Self(Router::new(kind, routing, replicas, 1))
    }

    fn plain(kind: RouterKind, replicas: u32) -> Self {
        Self::new(kind, &Routing::default(), replicas)
    }

    fn choose(&mut self, session: u32, pin: Option<u32>, prompt: u64) -> (u32, Sent) {
        self.knowing(session, pin, prompt, NOTHING)
    }

    fn knowing(
        &mut self,
        session: u32,
        pin: Option<u32>,
        prompt: u64,
        cached: impl Caches,
    ) -> (u32, Sent) {
        let mut path = Path::default();
        path.extend(SegmentId(session), Tokens(prompt));
        let (now, pin) = (Time::ZERO, pin.map(ReplicaId));
        let ask = Ask { now, session, pin, path: &path, prompt: Tokens(prompt) };
        let (replica, sent) = self.0.choose(&ask, cached).unwrap();
        (replica.0, sent)
    }

    fn ended(&mut self, replica: u32, sent: &Sent, answer: Option<&Answer>) {
        self.0.ended(Time::ZERO, ReplicaId(replica), sent, answer);
    }
}

#[test]
fn round_robin_takes_turns_from_the_first() {
    let mut router = Asked::plain(RouterKind::RoundRobin, 3);
    let order: Vec<u32> = (0..5).map(|_| router.choose(0, None, 1).0).collect();
    assert_eq!(order, [0, 1, 2, 0, 1]);
}

#[test]
fn least_loaded_counts_calls_in_flight_and_prefers_the_first() {
    let mut router = Asked::plain(RouterKind::LeastLoaded, 2);
    assert_eq!(router.choose(0, None, 1).0, 0);
    let (second, sent) = router.choose(0, None, 1);
    assert_eq!(second, 1);
    router.ended(1, &sent, None);
    assert_eq!(router.choose(0, None, 1).0, 1);
}

#[test]
fn affinity_stays_where_it_was_and_random_does_not() {
    let mut affinity = Asked::plain(RouterKind::SessionAffinity, 8);
    assert!((0..100).all(|_| affinity.choose(0, Some(5), 1).0 == 5));
    let mut random = Asked::plain(RouterKind::Random, 8);
    assert!((0..100).any(|_| random.choose(0, Some(5), 1).0 != 5));
}

#[test]
fn prefix_aware_weighs_what_is_cached_against_load() {
    let cached = |replica: ReplicaId| Tokens(if replica == ReplicaId(2) { 900 } else { 0 });
    let mut router = Asked::plain(RouterKind::PrefixAware, 4);
    // 100 to prefill against 1,000, whatever the order.
    let (first, sent) = router.knowing(0, None, 1_000, cached);
    assert_eq!((first, sent.uncached), (2, Tokens(100)));
    // Now 100 and 1,000 are there already: 100 + 100 + 1,000 is more than 1,000.
    let (second, sent) = router.knowing(0, None, 1_000, cached);
    assert_ne!(second, 2);
    assert_eq!(sent.uncached, Tokens(1_000));
    let heavier = Routing { prefill_weight: 3_000, ..Routing::default() };
    let mut router = Asked::new(RouterKind::PrefixAware, &heavier, 4);
    // 3 x 200 + 1,000 is less than 3 x 1,000.
    let both = [(); 2].map(|()| router.knowing(0, None, 1_000, cached).0);
    assert_eq!(both, [2, 2]);
}

/// Caches that are counted when they are asked.
struct Counted<'a> {
    cached: &'a [u64],
    /// By how much more may be there than is, or whether nothing is known of it.
    slack: Option<u64>,
    asked: &'a mut u32,
}

impl Caches for Counted<'_> {
    fn at_most(&self, replica: ReplicaId) -> Tokens {
        let slack = |slack| self.cached[replica.index()] + slack;
        Tokens(self.slack.map_or(u64::MAX, slack))
    }

    fn cached(&mut self, replica: ReplicaId) -> Tokens {
        *self.asked += 1;
        Tokens(self.cached[replica.index()])
    }
}

#[test]
fn caches_that_cannot_matter_are_not_asked() {
    const REPLICAS: u32 = 9;
    let mut routers = [(); 2].map(|()| Asked::plain(RouterKind::PrefixAware, REPLICAS));
    let mut chance = Stream::new(7, Purpose::Router, 0);
    let (mut asked, mut busy) = ([0, 0], Vec::new());
    // By replica: tokens to prefill, and those of all prompts.
    let mut loads = [(0, 0); REPLICAS as usize];
    for call in 0..2_000u32 {
        // Few different values, so that many costs are equal.
        let cached: Vec<u64> = (0..REPLICAS).map(|_| 100 * chance.uniform_below(4)).collect();
        let slack = 100 * chance.uniform_below(3);
        let both = [None, Some(slack)].into_iter().zip(&mut asked);
        let chosen: Vec<(u32, Sent)> = both
            .zip(&mut routers)
            .map(|((slack, asked), router)| {
                router.knowing(call, None, 300, Counted { cached: &cached, slack, asked })
            })
            .collect();
        assert_eq!(chosen[0], chosen[1]);
        let cost =
            |((uncached, prompts), cached): (&(u64, u64), &u64)| uncached + 300 - cached + prompts;
        let costs: Vec<u64> = loads.iter().zip(&cached).map(cost).collect();
        let (replica, sent) = chosen[0];
        assert_eq!(Some(&costs[replica as usize]), costs.iter().min());
        let load = &mut loads[replica as usize];
        *load = (load.0 + sent.uncached.0, load.1 + 300);
        busy.push((replica, sent));
        while busy.len() as u64 > chance.uniform_below(40) {
            let (replica, sent) = busy.remove(0);
            let load = &mut loads[replica as usize];
            *load = (load.0 - sent.uncached.0, load.1 - 300);
            routers.iter_mut().for_each(|router| router.ended(replica, &sent, None));
        }
    }
    // Knowing nothing, one still need not ask those that are too busy.
    assert!(asked[1] < asked[0] && asked[0] < 2_000 * REPLICAS, "{asked:?}");
}

#[test]
fn the_approximate_router_goes_back_to_where_it_sent_the_same() {
    let mut router = Asked::plain(RouterKind::PrefixAwareApproximate, 8);
    for session in 0..20 {
        let (first, sent) = router.choose(session, None, 1_000);
        assert_eq!(sent.uncached, Tokens(1_000));
        router.ended(first, &sent, None);
        let (second, sent) = router.choose(session, None, 1_200);
        assert_eq!((second, sent.uncached), (first, Tokens(200)));
        router.ended(second, &sent, None);
    }
    let memory = Memory { tokens: Tokens(10), ttl: Span::from_secs(120) };
    let routing = Routing { memory, ..Routing::default() };
    let mut router = Asked::new(RouterKind::PrefixAwareApproximate, &routing, 8);
    let (first, sent) = router.choose(0, None, 1_000);
    router.ended(first, &sent, None);
    assert_eq!(router.choose(0, None, 1_000).1.uncached, Tokens(1_000));
}

#[test]
fn a_sticky_session_is_let_go_at_the_margin() {
    let release = Release { uncached: None, margin: Some(3) };
    let routing = Routing { release, ..Routing::default() };
    let mut router = Asked::new(RouterKind::Sticky, &routing, 2);
    let to: Vec<u32> = (0..5).map(|_| router.choose(0, Some(0), 10).0).collect();
    assert_eq!(to, [0, 0, 0, 1, 0]);
}

#[test]
fn a_sticky_session_is_let_go_when_too_much_waits_to_be_prefilled() {
    let release = Release { uncached: Some(Tokens(1_500)), margin: None };
    let routing = Routing { release, ..Routing::default() };
    let mut router = Asked::new(RouterKind::Sticky, &routing, 2);
    let (first, mut sent) = router.choose(0, Some(0), 1_000);
    assert_eq!((first, router.choose(0, Some(0), 1_000).0), (0, 0));
    assert_eq!(router.choose(0, Some(0), 1_000).0, 1);
    router.0.prefilled(ReplicaId(0), &mut sent);
    assert_eq!((router.choose(0, Some(0), 1_000).0, sent.uncached), (0, Tokens(0)));
}

#[test]
fn a_shuffle_follows_the_weights() {
    let routing = Routing { weights: vec![3, 1, 0], ..Routing::default() };
    let mut router = Asked::new(RouterKind::SimpleShuffle, &routing, 4);
    let mut counts = [0u32; 4];
    for _ in 0..14_000 {
        counts[router.choose(0, None, 1).0 as usize] += 1;
    }
    // The fourth has the first's weight again.
    for (count, expected) in counts.into_iter().zip([6_000u32, 2_000, 0, 6_000]) {
        assert!(count.abs_diff(expected) < 200, "{counts:?}");
    }
}

#[test]
fn the_fastest_of_late_is_asked_and_the_unused_before() {
    let mut router = Asked::plain(RouterKind::LatencyBased, 3);
    let mut seen = Vec::new();
    for _ in 0..3 {
        let (replica, sent) = router.choose(0, None, 1);
        seen.push(replica);
        let ttft = Span::from_secs(if replica == 1 { 1 } else { 2 });
        let answer = Answer { ttft, all: ttft, output: Tokens(1) };
        router.ended(replica, &sent, Some(&answer));
    }
    seen.sort_unstable();
    assert_eq!(seen, [0, 1, 2]);
    assert!((0..20).all(|_| router.choose(0, None, 1).0 == 1));
}
