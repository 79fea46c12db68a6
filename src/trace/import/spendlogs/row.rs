//! One call as its row tells it, short enough to keep, and its form in a temporary file.

use std::cmp::Ordering;

use super::prompt::{Message, Role};
use super::spool::{Record, take};
use super::symbols::{Id, Symbol};
use super::time::Micros;
use crate::trace::record::Status;

/// What a row stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    /// A call that a model worked on.
    Call,
    /// An answer from the response cache.
    CacheHit,
    /// A call type that generates no text.
    Other(Symbol),
}

/// Why a call may have to be put together with others by likeness.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Loose {
    /// If nothing else carries its id, which does not look random.
    Single,
    /// If nothing else carries its id, a UUID.
    Random,
    /// It has no id.
    NoId,
    /// Its id is on more calls than a session has.
    Overfull,
}

/// A row that was checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Row {
    /// Session; none if the row has none and names no parent either.
    pub(super) unit: Id,
    /// What makes it one call: LiteLLM's id of the call, else the id of the request.
    pub(super) call: Id,
    /// The row's primary key.
    pub(super) request: Id,
    /// Session that this one works for; none if no other was named.
    pub(super) parent: Id,
    /// The agent within the session, where a header names it.
    pub(super) agent: Id,
    /// The caller: key, end user and user in one.
    pub(super) caller: u64,
    /// First (or, after retries, last) dispatch.
    pub(super) start: Micros,
    /// End of the answer.
    pub(super) end: Micros,
    /// First token, where it was told apart from the end.
    pub(super) first_token: Option<Micros>,
    /// Prompt tokens, cached ones included.
    pub(super) prompt: u64,
    /// Tokens generated.
    pub(super) output: u64,
    /// Cached prompt tokens, where the server counted them.
    pub(super) cached: Option<u64>,
    /// How it ended.
    pub(super) status: Status,
    /// What it stands for.
    pub(super) kind: Kind,
    /// Why it may have to be put together with others.
    pub(super) loose: Loose,
    /// Whether the answer was streamed, where that is known.
    pub(super) stream: Option<bool>,
    /// Whether the prompt was recorded without its cached part, which was added.
    pub(super) uncached_prompt: bool,
    /// Whether the request's id looks numbered, not random.
    pub(super) guessable: bool,
    /// Attempts before the recorded one.
    pub(super) retries: u32,
    /// Public model name that was asked for.
    pub(super) model: Symbol,
    /// API key.
    pub(super) key: Symbol,
    /// Team.
    pub(super) tenant: Symbol,
    /// The person, by the rule on end users.
    pub(super) user: Symbol,
    /// Scaffold.
    pub(super) profile: Symbol,
    /// What its session is called if it is the first of it; empty unless ids are kept.
    pub(super) name: Box<str>,
    /// Its messages, where they are known.
    pub(super) messages: Box<[Message]>,
    /// Whether texts of these were cut, so that equal fingerprints only make equal texts likely.
    pub(super) cut: bool,
}

/// Where a row stands among all: by start, and by ids where starts are equal, so that the order of
/// a file is no matter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Standing {
    /// Dispatch.
    pub(super) start: Micros,
    call: Id,
    request: Id,
    unit: Id,
}

impl Standing {
    /// An id that no other call shares.
    pub(super) fn id(&self) -> Id {
        self.call
    }

    /// Appends it to `bytes`.
    pub(super) fn write(&self, bytes: &mut Vec<u8>) {
        bytes.extend(self.start.to_le_bytes());
        [self.call, self.request, self.unit].iter().for_each(|id| bytes.extend(id.0.to_le_bytes()));
    }

    /// Takes it off the front of `bytes`.
    pub(super) fn read(bytes: &mut &[u8]) -> Option<Self> {
        let start = i64::from_le_bytes(take(bytes)?);
        Some(Self { start, call: id(bytes)?, request: id(bytes)?, unit: id(bytes)? })
    }
}

impl Row {
    /// Whether its token counts are the server's, so that contexts may be told apart by them.
    pub(super) fn is_counted(&self) -> bool {
        self.status == Status::Ok && self.prompt > 0
    }

    /// Where it stands among all rows.
    pub(super) fn standing(&self) -> Standing {
        let Self { start, call, request, unit, .. } = *self;
        Standing { start, call, request, unit }
    }

    /// The role of the last message: who has spoken before the model answers.
    pub(super) fn last_role(&self) -> Option<Role> {
        self.messages.last().map(|message| message.role)
    }
}

/// The order in which rows are told apart: those of a session together, those of a call in it.
impl Record for Row {
    fn order(&self, other: &Self) -> Ordering {
        let key = |row: &Self| (row.unit, row.call, row.request, row.start, row.end);
        key(self).cmp(&key(other))
    }

    fn heap_bytes(&self) -> usize {
        self.name.len() + size_of_val(&*self.messages)
    }

    fn write(&self, bytes: &mut Vec<u8>) {
        for id in [self.unit, self.call, self.request, self.parent, self.agent] {
            bytes.extend(id.0.to_le_bytes());
        }
        bytes.extend(self.caller.to_le_bytes());
        bytes.extend(self.start.to_le_bytes());
        bytes.extend(self.end.to_le_bytes());
        bytes.extend(self.first_token.unwrap_or(Micros::MIN).to_le_bytes());
        bytes.extend(self.prompt.to_le_bytes());
        bytes.extend(self.output.to_le_bytes());
        bytes.extend(self.cached.unwrap_or(u64::MAX).to_le_bytes());
        let other = if let Kind::Other(symbol) = self.kind { symbol } else { Symbol::EMPTY };
        let numbers = [self.retries, self.model.0, self.key.0, self.tenant.0, self.user.0];
        for number in numbers.into_iter().chain([self.profile.0, other.0]) {
            bytes.extend(number.to_le_bytes());
        }
        bytes.extend(self.flags().to_le_bytes());
        bytes.extend(u32::try_from(self.name.len()).unwrap_or(0).to_le_bytes());
        bytes.extend(self.name.as_bytes());
        for message in &self.messages {
            bytes.extend(message.hash.to_le_bytes());
            bytes.extend(message.chars.to_le_bytes());
            message.heads.iter().for_each(|head| bytes.extend(head.to_le_bytes()));
            bytes.push(place_of(&ROLES, &message.role));
        }
    }

    fn read(bytes: &mut &[u8]) -> Option<Self> {
        let (unit, call) = (id(bytes)?, id(bytes)?);
        let (request, parent, agent) = (id(bytes)?, id(bytes)?, id(bytes)?);
        let caller = u64::from_le_bytes(take(bytes)?);
        let (start, end) = (i64::from_le_bytes(take(bytes)?), i64::from_le_bytes(take(bytes)?));
        let first_token = Some(i64::from_le_bytes(take(bytes)?)).filter(|&at| at != Micros::MIN);
        let (prompt, output) = (u64::from_le_bytes(take(bytes)?), u64::from_le_bytes(take(bytes)?));
        let cached = Some(u64::from_le_bytes(take(bytes)?)).filter(|&tokens| tokens != u64::MAX);
        let retries = number(bytes)?;
        let (model, key) = (Symbol(number(bytes)?), Symbol(number(bytes)?));
        let (tenant, user) = (Symbol(number(bytes)?), Symbol(number(bytes)?));
        let (profile, other) = (Symbol(number(bytes)?), Symbol(number(bytes)?));
        let [kind, loose, status, stream, uncached_prompt, guessable, cut] = split(take(bytes)?);
        let length = number(bytes)? as usize;
        let (name, rest) = bytes.split_at_checked(length)?;
        *bytes = rest;
        let mut messages = Vec::new();
        while !bytes.is_empty() {
            let hash = u64::from_le_bytes(take(bytes)?);
            let chars = number(bytes)?;
            let heads = [number(bytes)?, number(bytes)?];
            let [role] = take(bytes)?;
            messages.push(Message { hash, chars, heads, role: *ROLES.get(usize::from(role))? });
        }
        Some(Self {
            unit,
            call,
            request,
            parent,
            agent,
            caller,
            start,
            end,
            first_token,
            prompt,
            output,
            cached,
            status: *STATUSES.get(status)?,
            kind: *[Kind::Call, Kind::CacheHit, Kind::Other(other)].get(kind)?,
            loose: *LOOSE.get(loose)?,
            stream: *STREAMS.get(stream)?,
            uncached_prompt: uncached_prompt != 0,
            guessable: guessable != 0,
            retries,
            model,
            key,
            tenant,
            user,
            profile,
            name: std::str::from_utf8(name).ok()?.into(),
            messages: messages.into(),
            cut: cut != 0,
        })
    }
}

const ROLES: [Role; 5] = [Role::Tools, Role::System, Role::User, Role::Assistant, Role::Tool];
const STATUSES: [Status; 3] = [Status::Ok, Status::Failed, Status::Aborted];
const STREAMS: [Option<bool>; 3] = [None, Some(false), Some(true)];
const LOOSE: [Loose; 4] = [Loose::Single, Loose::Random, Loose::NoId, Loose::Overfull];

/// Bits of each of the small values that share a number.
const FLAG_BITS: usize = 4;

impl Row {
    /// The small values in one number.
    fn flags(&self) -> u32 {
        let kind = match self.kind {
            Kind::Call => 0,
            Kind::CacheHit => 1,
            Kind::Other(_) => 2,
        };
        let values = [
            kind,
            place_of(&LOOSE, &self.loose),
            place_of(&STATUSES, &self.status),
            place_of(&STREAMS, &self.stream),
            u8::from(self.uncached_prompt),
            u8::from(self.guessable),
            u8::from(self.cut),
        ];
        values.iter().rev().fold(0, |flags, &value| flags << FLAG_BITS | u32::from(value))
    }
}

fn split(flags: [u8; 4]) -> [usize; 7] {
    let flags = u32::from_le_bytes(flags);
    std::array::from_fn(|at| (flags >> (at * FLAG_BITS)) as usize & ((1 << FLAG_BITS) - 1))
}

/// The place of a value among all; every value is there.
fn place_of<T: PartialEq>(all: &[T], value: &T) -> u8 {
    let place = all.iter().position(|other| other == value).unwrap_or_default();
    u8::try_from(place).unwrap_or_default()
}

fn id(bytes: &mut &[u8]) -> Option<Id> {
    take(bytes).map(u128::from_le_bytes).map(Id)
}

fn number(bytes: &mut &[u8]) -> Option<u32> {
    take(bytes).map(u32::from_le_bytes)
}

/// An answered call for tests: of one caller, session and model.
#[cfg(test)]
pub(super) fn answered(start: Micros, prompt: u64, output: u64) -> Row {
    Row {
        unit: Id::of("session"),
        call: Id::of(&start.to_string()),
        request: Id::of(&start.to_string()),
        parent: Id::NONE,
        agent: Id::NONE,
        caller: 0,
        start,
        end: start + 1,
        first_token: None,
        prompt,
        output,
        cached: None,
        status: Status::Ok,
        kind: Kind::Call,
        loose: Loose::Single,
        stream: None,
        uncached_prompt: false,
        guessable: false,
        retries: 0,
        model: Symbol::EMPTY,
        key: Symbol::EMPTY,
        tenant: Symbol::EMPTY,
        user: Symbol::EMPTY,
        profile: Symbol::EMPTY,
        name: "".into(),
        messages: Box::default(),
        cut: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row() -> Row {
        Row {
            parent: Id::of("parent"),
            agent: Id::of("agent"),
            caller: 7,
            first_token: Some(2_000),
            cached: Some(64),
            status: Status::Aborted,
            kind: Kind::Other(Symbol(9)),
            loose: Loose::Overfull,
            stream: Some(true),
            uncached_prompt: true,
            guessable: true,
            retries: 2,
            model: Symbol(1),
            key: Symbol(2),
            tenant: Symbol(3),
            user: Symbol(4),
            profile: Symbol(5),
            name: "näme, \"quoted\"".into(),
            messages: Box::new([
                Message { hash: 1, chars: 5, heads: [0, 0], role: Role::System },
                Message { hash: u64::MAX, chars: 600, heads: [7, u32::MAX], role: Role::Tool },
            ]),
            cut: true,
            ..answered(1_000, 900, 80)
        }
    }

    #[test]
    fn what_is_written_is_read_back() {
        for row in [row(), answered(1_000, 900, 80)] {
            let mut bytes = Vec::new();
            row.write(&mut bytes);
            assert_eq!(Row::read(&mut bytes.as_slice()), Some(row.clone()));
            let standing = row.standing();
            let mut bytes = Vec::new();
            standing.write(&mut bytes);
            assert_eq!(Standing::read(&mut bytes.as_slice()), Some(standing));
        }
    }

    #[test]
    fn what_was_cut_off_is_none() {
        let mut bytes = Vec::new();
        row().write(&mut bytes);
        for length in 0..bytes.len() - 42 {
            assert_eq!(Row::read(&mut &bytes[..length]), None, "{length}");
        }
    }
}
