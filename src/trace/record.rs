//! The canonical trace in memory: shared contexts and sessions of calls.
//!
//! The columns of the file form and their rules are in `docs/trace.md`; a field here carries the
//! meaning of the column of the same name.

use std::sync::Arc;

use crate::diag::Result;
use crate::units::{Span, Tokens};

/// A name that many calls share: model group, tenant, user, profile, key.
pub type Name = Arc<str>;

/// What a trace holds, in the order of its rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Item {
    /// A context that later sessions continue.
    Context(SharedContext),
    /// One session with all of its calls.
    Session(Session),
}

/// The same, of which a session is there only until the next one is asked for.
#[derive(Debug)]
pub enum Lent<'a> {
    /// A context that later sessions continue.
    Context(SharedContext),
    /// One session with all of its calls.
    Session(&'a Session),
}

/// Who tells what a trace holds, item by item, and keeps it.
pub trait Lend {
    /// The next item; `None` at the end.
    fn lend(&mut self) -> Option<Result<Lent<'_>>>;
}

/// Items that come one by one, the last of which is kept.
#[derive(Debug)]
pub struct Kept<I> {
    items: I,
    last: Option<Session>,
}

impl<I> From<I> for Kept<I> {
    fn from(items: I) -> Self {
        Self { items, last: None }
    }
}

impl<I: Iterator<Item = Result<Item>>> Lend for Kept<I> {
    fn lend(&mut self) -> Option<Result<Lent<'_>>> {
        match self.items.next()? {
            Ok(Item::Context(context)) => Some(Ok(Lent::Context(context))),
            Ok(Item::Session(session)) => Some(Ok(Lent::Session(self.last.insert(session)))),
            Err(error) => Some(Err(error)),
        }
    }
}

/// A whole trace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trace {
    /// Shared contexts in order of declaration; a context's base stands before it.
    pub contexts: Vec<SharedContext>,
    /// Sessions in order of their start.
    pub sessions: Vec<Session>,
}

/// A prefix that several sessions share: tools and system prompt, or a forked conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedContext {
    /// Its name, without the `@` of the file form.
    pub name: Name,
    /// The earlier context that it continues.
    pub base: Option<Name>,
    /// Leading tokens of `base` that it repeats.
    pub kept_tokens: Tokens,
    /// Its whole length.
    pub prompt_tokens: Tokens,
}

/// One session: a person's or a program's conversation with its agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    /// Its id in the file.
    pub id: Name,
    /// Its calls; the position is the call's number, in order of first dispatch.
    pub calls: Vec<Call>,
}

/// One call of the model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// When it was dispatched as recorded, from the start of the trace.
    pub at: Span,
    /// What must have happened before it is dispatched; may be empty.
    pub after: Vec<After>,
    /// Client time between the last of `after` (or the session's start) and the dispatch.
    pub gap: Span,
    /// Why it was made.
    pub cause: Cause,
    /// User turn it belongs to.
    pub turn: u32,
    /// 0 for the main agent, n for subagent n.
    pub lane: u32,
    /// Model group asked for.
    pub model: Name,
    /// Team that pays; may be empty.
    pub tenant: Name,
    /// Person; may be empty.
    pub user: Name,
    /// Kind of work or scaffold; may be empty.
    pub profile: Name,
    /// What the prompt continues.
    pub base: Base,
    /// Leading tokens of the base's context (its prompt, then its output) repeated exactly.
    pub kept_tokens: Tokens,
    /// The whole prompt.
    pub prompt_tokens: Tokens,
    /// Tokens generated.
    pub output_tokens: Tokens,
    /// Tools in the catalogue that was sent, if known.
    pub tools: Option<u32>,
    /// How it ended as recorded.
    pub status: Status,
    /// Why generation stopped.
    pub finish: Finish,
    /// Scheduling priority (lower is served first).
    pub priority: i32,
    /// API key, on which affinity and limits rest, if known.
    pub key: Option<Name>,
    /// Whether the answer was streamed, if known.
    pub stream: Option<bool>,
    /// The client's token limit, if known.
    pub max_tokens: Option<Tokens>,
    /// Attempts before the recorded one.
    pub retries: u32,
    /// Cached prompt tokens that the recording system measured.
    pub seen_cached: Option<Tokens>,
    /// Time to first token that the recording system measured.
    pub seen_ttft: Option<Span>,
    /// Duration that the recording system measured.
    pub seen_duration: Option<Span>,
}

/// A call that must have come to something before another is dispatched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct After {
    /// Its number in the session.
    pub call: u32,
    /// What is waited for.
    pub event: AfterEvent,
}

/// What is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum AfterEvent {
    /// The call has finished (`5`).
    Finished,
    /// The call was dispatched (`5d`).
    Dispatched,
}

/// What a prompt continues.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Base {
    /// Nothing: the whole prompt is new.
    #[default]
    None,
    /// A call of the same session, by number.
    Call(u32),
    /// A shared context, by name.
    Shared(Name),
}

/// Why a call was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Cause {
    /// A person asked.
    #[default]
    User,
    /// A tool's result came back.
    Tool,
    /// The first call of a subagent.
    Subagent,
    /// An earlier attempt failed.
    Retry,
}

/// How a call ended as recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Status {
    /// It gave its whole answer.
    #[default]
    Ok,
    /// It gave nothing: no GPU work, its recorded duration passes.
    Failed,
    /// It was cut off after `output_tokens`.
    Aborted,
}

/// Why generation stopped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Finish {
    /// A stop token that nobody foresees.
    #[default]
    Stop,
    /// The token limit, known to the engine beforehand.
    Length,
}
