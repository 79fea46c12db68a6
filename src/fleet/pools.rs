//! Pools of replicas: which calls are whose, a router for each, and what they do for each other.
//!
//! A fleet without pools is one pool that takes everything. Outside of here replicas are numbered
//! through; the router of a pool knows its own ones only, from 0 on.

use super::Setup;
use super::router::loads::Sent;
use super::router::{Answer, Ask, Caches, Router};
use super::workload::{Class, Names, SessionPlan};
use crate::config::pools::{Kind, Overflow, Pool, Rules, Takes, firsts};
use crate::config::router::Routing;
use crate::trace::record::Name;
use crate::units::{ReplicaId, Time, Tokens};

/// The routers of all pools.
#[derive(Debug)]
pub(super) struct Routers(Vec<Part>);

/// One pool.
#[derive(Debug)]
struct Part {
    router: Router,
    /// Its first replica, among all.
    first: u32,
    /// Where its calls go while it is full.
    overflow: Option<Overflow>,
    lends: bool,
}

impl Part {
    fn own(&self, replica: ReplicaId) -> ReplicaId {
        ReplicaId(replica.0 - self.first)
    }
}

/// The caches of one pool's replicas, which its router numbers from 0.
struct OfPool<C> {
    caches: C,
    first: u32,
}

impl<C: Caches> Caches for OfPool<C> {
    fn at_most(&self, replica: ReplicaId) -> Tokens {
        self.caches.at_most(ReplicaId(replica.0 + self.first))
    }

    fn cached(&mut self, replica: ReplicaId) -> Tokens {
        self.caches.cached(ReplicaId(replica.0 + self.first))
    }
}

impl Routers {
    pub(super) fn new(setup: &Setup) -> Self {
        let Setup { router, routing, replicas, seed, pools, .. } = setup;
        if pools.is_empty() {
            let router = Router::new(*router, routing, *replicas, *seed);
            return Self(vec![Part { router, first: 0, overflow: None, lends: true }]);
        }
        let part = |(number, (pool, first)): (u64, (&Pool, u32))| Part {
            router: Router::of_pool(pool.router, &pool.routing, pool.replicas, *seed, number),
            first,
            overflow: pool.overflow,
            lends: pool.lends,
        };
        Self((0..).zip(pools.iter().zip(firsts(pools))).map(part).collect())
    }

    /// Whether the router of a pool asks the cache of every replica in it.
    pub(super) fn asks_caches(&self, pool: u16) -> bool {
        self.0[usize::from(pool)].router.asks_caches()
    }

    /// The pool that a replica is of.
    fn pool_of(&self, replica: ReplicaId) -> usize {
        match self.0.len() {
            1 => 0,
            _ => self.0.partition_point(|part| part.first <= replica.0) - 1,
        }
    }

    fn part(&mut self, replica: ReplicaId) -> &mut Part {
        let pool = self.pool_of(replica);
        &mut self.0[pool]
    }

    /// The pool that serves a call of this one: another if this one is full and the other is not.
    pub(super) fn serving(&self, home: u16) -> u16 {
        let Some(Overflow { to, calls }) = self.0[usize::from(home)].overflow else { return home };
        let fewest = |pool: u16| self.0[usize::from(pool)].router.fewest_calls();
        // Without a replica that takes calls any other will do.
        let limit = match fewest(home) {
            Some(fewest) if fewest < calls => return home,
            Some(_) => calls,
            None => u64::MAX,
        };
        let takes = |pool: &u16| {
            let number = usize::from(*pool);
            *pool != home && to.map_or(self.0[number].lends, |to| to == number)
        };
        let others = (0..self.0.len() as u16).filter(takes);
        let room = others.filter_map(|pool| Some((fewest(pool)?, pool)));
        room.filter(|(fewest, _)| *fewest < limit).min().map_or(home, |(_, pool)| pool)
    }

    /// The replica of this pool for a call, as [`Router::choose`].
    pub(super) fn choose(
        &mut self,
        pool: u16,
        ask: &Ask<'_>,
        caches: impl Caches,
    ) -> Option<(ReplicaId, Sent)> {
        let Part { router, first, .. } = &mut self.0[usize::from(pool)];
        let first = *first;
        let ask = Ask { pin: ask.pin.map(|pin| ReplicaId(pin.0 - first)), ..*ask };
        let (chosen, sent) = router.choose(&ask, OfPool { caches, first })?;
        Some((ReplicaId(chosen.0 + first), sent))
    }

    /// One more replica, behind all others; see [`Router::grow`].
    pub(super) fn grow(&mut self, routing: &Routing) {
        if let Some(last) = self.0.last_mut() {
            last.router.grow(routing);
        }
    }

    /// See [`Router::chosen`].
    pub(super) fn chosen(&mut self, now: Time, replica: ReplicaId, prompt: Tokens) -> Sent {
        let part = self.part(replica);
        part.router.chosen(now, part.own(replica), prompt)
    }

    /// See [`Router::leaves`].
    pub(super) fn leaves(&mut self, replica: ReplicaId) {
        let part = self.part(replica);
        part.router.leaves(part.own(replica));
    }

    /// See [`Router::joins`].
    pub(super) fn joins(&mut self, replica: ReplicaId) {
        let part = self.part(replica);
        part.router.joins(part.own(replica));
    }

    /// See [`Router::calls`].
    pub(super) fn calls(&self, replica: ReplicaId) -> u64 {
        let part = &self.0[self.pool_of(replica)];
        part.router.calls(part.own(replica))
    }

    /// See [`Router::prefilled`].
    pub(super) fn prefilled(&mut self, replica: ReplicaId, sent: &mut Sent) {
        let part = self.part(replica);
        part.router.prefilled(part.own(replica), sent);
    }

    /// See [`Router::ended`].
    pub(super) fn ended(
        &mut self,
        now: Time,
        replica: ReplicaId,
        sent: &Sent,
        answer: Option<&Answer>,
    ) {
        let part = self.part(replica);
        part.router.ended(now, part.own(replica), sent, answer);
    }
}

/// A call that no pool takes, in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HomelessCall(pub String);

impl HomelessCall {
    /// The call of this number.
    #[must_use]
    pub fn new(session: &SessionPlan, call: u32, names: &Names) -> Self {
        let class = session.class(call);
        let name = |names: &[Name], number: u32| names.get(number as usize).cloned();
        let kinds = [
            ("model", name(&names.models, class.model)),
            ("tenant", name(&names.tenants, class.tenant)),
            ("profile", name(&names.profiles, class.profile)),
        ];
        let kinds = kinds.into_iter().filter_map(|(kind, name)| {
            let name = name.filter(|name| !name.is_empty())?;
            Some(format!("{kind} {name}, "))
        });
        let who = if class.is_main { "main agent" } else { "subagent" };
        let about = kinds.collect::<String>();
        Self(format!("call {call} of session {} ({about}{who}) is of no pool", session.id))
    }
}

/// Tells which pool a call is of.
#[derive(Debug)]
pub struct Homes {
    /// Pools with rules, in order.
    rules: Vec<(u16, Matcher)>,
    /// The pool of all other calls.
    rest: Option<u16>,
}

impl Homes {
    /// Those of these pools. Without pools everything is of pool 0.
    #[must_use]
    pub fn new(pools: &[Pool]) -> Self {
        let mut homes = Self { rules: Vec::new(), rest: pools.is_empty().then_some(0) };
        for (number, pool) in (0..).zip(pools) {
            match &pool.takes {
                Takes::Calls(rules) => homes.rules.push((number, Matcher::new(rules))),
                Takes::Rest => homes.rest = Some(number),
            }
        }
        homes
    }

    /// The pool of a call of this class; none if no pool takes it.
    pub fn of(&mut self, call: &Class, names: &Names) -> Option<u16> {
        let taken = self
            .rules
            .iter_mut()
            .find_map(|(pool, matcher)| matcher.takes(call, names).then_some(*pool));
        taken.or(self.rest)
    }
}

/// The rules of one pool, by number of the names.
#[derive(Debug)]
struct Matcher {
    models: Listed,
    tenants: Listed,
    profiles: Listed,
    kind: Option<Kind>,
}

impl Matcher {
    fn new(rules: &Rules) -> Self {
        let listed = |names: &[String]| Listed { wanted: names.to_vec(), known: Vec::new() };
        Self {
            models: listed(&rules.models),
            tenants: listed(&rules.tenants),
            profiles: listed(&rules.profiles),
            kind: rules.kind,
        }
    }

    fn takes(&mut self, call: &Class, names: &Names) -> bool {
        let kind = if call.is_main { Kind::Main } else { Kind::Subagent };
        self.kind.is_none_or(|wanted| wanted == kind)
            && self.models.has(call.model, &names.models)
            && self.tenants.has(call.tenant, &names.tenants)
            && self.profiles.has(call.profile, &names.profiles)
    }
}

/// A list of names; an empty one has all.
#[derive(Debug)]
struct Listed {
    wanted: Vec<String>,
    /// By number, as far as names were met.
    known: Vec<bool>,
}

impl Listed {
    fn has(&mut self, number: u32, names: &[Name]) -> bool {
        if self.wanted.is_empty() {
            return true;
        }
        for name in &names[self.known.len().min(names.len())..] {
            self.known.push(self.wanted.iter().any(|wanted| **wanted == **name));
        }
        self.known.get(number as usize).copied().unwrap_or(false)
    }
}
