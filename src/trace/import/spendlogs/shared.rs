//! What the prompts of different sessions have in common: tools and system prompt.
//!
//! Two things tell. Where messages are known, the tools and system prompts that begin the prompts
//! of two sessions are the same or not. Where servers count cached tokens, the first call of a
//! session can only hit what other sessions have left; where many hit equally far, that is what
//! they share.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::prompt::{Message, Role};
use super::row::Row;
use super::spool::{Record, Room, Sorter, take};
use super::symbols::{Id, Symbol};
use crate::diag::Result;
use crate::trace::record::{Base, Name, SharedContext};
use crate::units::Tokens;

/// So many sessions must begin with equally long hits for these to be taken as a shared context.
const HITS_MIN: u64 = 3;
/// And one in so many of the first calls that hit anything.
const HIT_SHARE: u64 = 4;
/// Uses that are remembered so as not to be written twice.
const RECENT: usize = 4_096;

/// Fingerprints of the leading messages, with the characters up to there: of the first, of the
/// first two, and so on.
pub(super) fn chains(messages: &[Message]) -> impl Iterator<Item = (u64, u64)> + '_ {
    messages.iter().scan((0u64, 0u64), |(chain, chars), message| {
        // A bijection of either argument where the other is fixed.
        *chain = (chain.rotate_left(29) ^ message.hash).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        *chars += u64::from(message.chars);
        Some((*chain, *chars))
    })
}

/// How many of the leading messages are tools and system prompt.
pub(super) fn preamble(messages: &[Message]) -> usize {
    let is_preamble = |message: &&Message| matches!(message.role, Role::Tools | Role::System);
    messages.iter().take_while(is_preamble).count()
}

/// The share of a prompt's tokens that its first characters take.
pub(super) fn tokens_of(row: &Row, chars: u64) -> u64 {
    let all: u64 = row.messages.iter().map(|message| u64::from(message.chars)).sum();
    let share = u128::from(row.prompt) * u128::from(chars) / u128::from(all.max(1));
    u64::try_from(share).unwrap_or(row.prompt).min(row.prompt)
}

/// A session that begins with certain messages.
#[derive(Debug)]
struct Use {
    chain: u64,
    session: Id,
    /// The same without the last message.
    before: Option<u64>,
    tokens: u64,
}

impl Record for Use {
    fn order(&self, other: &Self) -> Ordering {
        let key = |one: &Self| (one.chain, one.session, one.tokens);
        key(self).cmp(&key(other))
    }

    fn write(&self, bytes: &mut Vec<u8>) {
        bytes.extend(self.chain.to_le_bytes());
        bytes.extend(self.session.0.to_le_bytes());
        bytes.extend(self.before.unwrap_or(0).to_le_bytes());
        bytes.extend(self.tokens.to_le_bytes());
    }

    fn read(bytes: &mut &[u8]) -> Option<Self> {
        let chain = u64::from_le_bytes(take(bytes)?);
        let session = Id(u128::from_le_bytes(take(bytes)?));
        let before = Some(u64::from_le_bytes(take(bytes)?)).filter(|&chain| chain != 0);
        Some(Self { chain, session, before, tokens: u64::from_le_bytes(take(bytes)?) })
    }
}

/// Hits of the first calls of one scaffold's sessions on one model.
#[derive(Debug, Default)]
struct FirstHits {
    /// Calls by cached tokens.
    by_tokens: BTreeMap<u64, u64>,
}

impl FirstHits {
    fn plateau(&self) -> Option<Plateau> {
        let hits = || self.by_tokens.iter().filter(|&(&tokens, _)| tokens > 0);
        let (&tokens, &count) =
            hits().max_by_key(|&(&tokens, &count)| (count, u64::MAX - tokens))?;
        let all_hits: u64 = hits().map(|(_, count)| count).sum();
        if count < HITS_MIN || count * HIT_SHARE < all_hits {
            return None;
        }
        let known: u64 = self.by_tokens.values().sum();
        let as_long: u64 = self.by_tokens.range(tokens..).map(|(_, count)| count).sum();
        Some(Plateau { tokens, is_common: as_long * 2 >= known, name: None })
    }
}

/// What is gathered while rows are put into sessions.
#[derive(Debug)]
pub(super) struct Prefixes {
    hits: BTreeMap<(Symbol, Symbol), FirstHits>,
    uses: Sorter<Use>,
    recent: Vec<(u64, Id)>,
}

impl Prefixes {
    /// Nothing yet.
    pub(super) fn new(room: &Room) -> Self {
        let room = Room { buffer_bytes: room.buffer_bytes / 4, ..room.clone() };
        Self {
            hits: BTreeMap::new(),
            uses: Sorter::new(&room),
            recent: vec![(0, Id::NONE); RECENT],
        }
    }

    /// Takes calls of a session, in order of start; `continues` if they do not begin it, or begin
    /// a part of it that works for another.
    pub(super) fn session(&mut self, session: Id, calls: &[Row], continues: bool) -> Result<()> {
        if !continues
            && let Some(first) = calls.iter().find(|row| row.is_counted())
            && let Some(cached) = first.cached
        {
            let hits = self.hits.entry((first.model, first.profile)).or_default();
            *hits.by_tokens.entry(cached).or_default() += 1;
        }
        calls.iter().filter(|row| row.is_counted()).try_for_each(|row| self.uses_of(session, row))
    }

    fn uses_of(&mut self, session: Id, row: &Row) -> Result<()> {
        let preamble = preamble(&row.messages);
        let mut before = None;
        for (chain, chars) in chains(&row.messages[..preamble]) {
            let slot = &mut self.recent[chain as usize % RECENT];
            if *slot != (chain, session) {
                *slot = (chain, session);
                self.uses.push(Use { chain, session, before, tokens: tokens_of(row, chars) })?;
            }
            before = Some(chain);
        }
        Ok(())
    }

    /// What at least two sessions share.
    pub(super) fn shared(self) -> Result<Shared> {
        let plateaus = self.hits.into_iter();
        let plateaus = plateaus.filter_map(|(who, hits)| Some((who, hits.plateau()?))).collect();
        let mut nodes = FxHashMap::default();
        let mut uses = self.uses.sorted()?;
        let mut next = uses.next()?;
        while let Some(first) = next {
            let (chain, before) = (first.chain, first.before);
            let (mut tokens, mut count, mut sessions) = (u128::from(first.tokens), 1u128, 1u64);
            let mut last = first.session;
            next = uses.next()?;
            while let Some(same) = next.take_if(|following| following.chain == chain) {
                tokens += u128::from(same.tokens);
                count += 1;
                sessions += u64::from(same.session != last);
                last = same.session;
                next = uses.next()?;
            }
            if sessions > 1 {
                let tokens = u64::try_from(tokens / count).unwrap_or(u64::MAX);
                nodes.insert(chain, Node { before, tokens, name: None });
            }
        }
        Ok(Shared { plateaus, nodes, declared: 0, fresh: Vec::new() })
    }
}

/// How far the first calls of a scaffold's sessions hit.
#[derive(Debug)]
struct Plateau {
    tokens: u64,
    /// Whether at least half of those for which it is known hit as far.
    is_common: bool,
    name: Option<Name>,
}

/// Leading messages that at least two sessions begin with.
#[derive(Debug)]
struct Node {
    before: Option<u64>,
    tokens: u64,
    name: Option<Name>,
}

/// Contexts that sessions share. They get their names in the order of their first use.
#[derive(Debug)]
pub(super) struct Shared {
    plateaus: BTreeMap<(Symbol, Symbol), Plateau>,
    nodes: FxHashMap<u64, Node>,
    declared: u64,
    fresh: Vec<SharedContext>,
}

/// What a call continues from other sessions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Start {
    /// The shared context.
    pub(super) base: Base,
    /// How much of it.
    pub(super) kept: u64,
    /// Whether the call's own hit says so, and not only that of others like it.
    pub(super) measured: bool,
}

impl Shared {
    /// The longest shared context that the messages of a call begin with.
    pub(super) fn by_messages(&mut self, row: &Row) -> Option<Start> {
        let leading = &row.messages[..preamble(&row.messages)];
        let shared = chains(leading).map(|(chain, _)| chain);
        let chain = shared.filter(|chain| self.nodes.contains_key(chain)).last()?;
        let (name, tokens) = self.declare_node(chain)?;
        let kept = tokens.min(row.prompt);
        Some(Start { base: Base::Shared(name), kept, measured: true })
    }

    /// The shared context that a call's hits speak of. A first call of a session without such hits
    /// is taken to begin alike if that is common: it came when the cache was cold.
    pub(super) fn by_hits(&mut self, row: &Row, begins_session: bool) -> Option<Start> {
        let cached = row.cached?;
        let plateau = self.plateaus.get_mut(&(row.model, row.profile))?;
        let measured = cached >= plateau.tokens;
        let cold = begins_session && plateau.is_common && cached == 0;
        if !(measured || cold) || row.prompt <= plateau.tokens {
            return None;
        }
        let tokens = plateau.tokens;
        let name = match &plateau.name {
            Some(name) => Arc::clone(name),
            None => {
                let name = declared(&mut self.declared, &mut self.fresh, None, tokens);
                plateau.name = Some(Arc::clone(&name));
                name
            }
        };
        Some(Start { base: Base::Shared(name), kept: tokens, measured })
    }

    /// The contexts named since this was asked last, each after its base.
    pub(super) fn take_fresh(&mut self) -> Vec<SharedContext> {
        std::mem::take(&mut self.fresh)
    }

    /// How many contexts are in use.
    pub(super) fn count(&self) -> u64 {
        self.declared
    }

    /// Name and length of a context of messages, after those that it continues.
    fn declare_node(&mut self, chain: u64) -> Option<(Name, u64)> {
        let mut open = vec![chain];
        while let Some(before) = self.nodes.get(open.last()?)?.before {
            open.push(before);
        }
        let mut base: Option<(Name, u64)> = None;
        for chain in open.into_iter().rev() {
            let node = self.nodes.get_mut(&chain)?;
            if node.name.is_none() {
                // Estimates of different prompts may be in the wrong order.
                node.tokens = node.tokens.max(base.as_ref().map_or(0, |&(_, tokens)| tokens));
                let name = declared(&mut self.declared, &mut self.fresh, base.take(), node.tokens);
                node.name = Some(name);
            }
            base = node.name.clone().map(|name| (name, node.tokens));
        }
        base
    }
}

/// Names a context and says what it is.
fn declared(
    count: &mut u64,
    fresh: &mut Vec<SharedContext>,
    base: Option<(Name, u64)>,
    tokens: u64,
) -> Name {
    *count += 1;
    let name: Name = Arc::from(format!("shared{count:02}"));
    let kept_tokens = Tokens(base.as_ref().map_or(0, |&(_, tokens)| tokens));
    fresh.push(SharedContext {
        name: Arc::clone(&name),
        base: base.map(|(name, _)| name),
        kept_tokens,
        prompt_tokens: Tokens(tokens),
    });
    name
}
