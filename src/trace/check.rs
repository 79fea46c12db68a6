//! The rules that every trace keeps, checked one session at a time.
//!
//! Reader and writer both apply them, so a trace that exists keeps them. A [`Checker`] remembers
//! what the rules need of earlier items: the shared contexts with their lengths, the sessions'
//! ids, and the last start.
//!
//! Legal on purpose: calls that overlap, failed calls with dependents, calls that wait for
//! nothing, calls that wait for another's dispatch only, clients' times that do not add up to the
//! recorded ones.

use std::collections::BTreeMap;
use std::fmt;

use rustc_hash::FxHashSet;
use smallvec::SmallVec;

use crate::diag::{Error, Result, nearest};
use crate::trace::record::{After, AfterEvent, Base, Call, Cause, Name, Session, SharedContext};
use crate::units::{Span, Tokens};

mod ids;

use ids::Ids;

/// More tokens than any prompt or output has; beyond it a count is a slip.
pub const TOKENS_MAX: Tokens = Tokens(1_000_000_000);
/// A hundred years of 365.25 days; beyond it a time is a slip (milliseconds, or a date).
pub const TIME_MAX: Span = Span::from_secs(100 * 31_557_600);
/// The largest turn, lane, number of tools or of retries.
pub const NUMBER_MAX: u32 = 1_000_000;
/// The longest name or id, in bytes.
pub const NAME_BYTES_MAX: usize = 512;

/// A rule that a call breaks. The error names the field, as the column of the file form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The call's number in its session.
    pub call: usize,
    /// What is wrong.
    pub error: Error,
}

/// Checks the items of one trace, in order.
#[derive(Debug, Default)]
pub struct Checker {
    contexts: BTreeMap<Name, Tokens>,
    sessions: Ids,
    last_start: Span,
}

/// The id of session `number` where sessions are numbered.
#[must_use]
pub fn numbered_id(number: u64) -> Name {
    Name::from(format!("s{number:06}"))
}

/// The error for a session whose rows do not stand together.
pub(crate) fn came_back(id: &str) -> Error {
    Error::new(format!("session `{id}` comes back after another: its rows must stand together"))
        .in_field("session")
}

impl Checker {
    /// Whether a session of that id was checked already.
    #[must_use]
    pub fn knows(&self, session: &str) -> bool {
        self.sessions.knows(session)
    }

    /// Checks a shared context and remembers it.
    ///
    /// # Errors
    /// If it breaks a rule.
    pub fn context(&mut self, context: &SharedContext) -> Result<()> {
        name("session", &context.name)?;
        if context.name.is_empty() {
            return Err(Error::new("a shared context needs a name").in_field("session"));
        }
        if self.contexts.contains_key(&context.name) {
            return Err(
                Error::new(format!("`@{}` is declared twice", context.name)).in_field("session")
            );
        }
        let base = match &context.base {
            Some(base) => Some((Whose::Shared(base), self.declared(base)?)),
            None => None,
        };
        kept(context.kept_tokens, context.prompt_tokens, base)?;
        tokens("prompt_tokens", context.prompt_tokens)?;
        self.contexts.insert(Name::clone(&context.name), context.prompt_tokens);
        Ok(())
    }

    /// Checks a session and remembers its id and start.
    ///
    /// # Errors
    /// With the first call that breaks a rule.
    pub fn session(&mut self, session: &Session) -> std::result::Result<(), Fault> {
        if let Some(fault) = self.faults(session, 1).into_iter().next() {
            return Err(fault);
        }
        self.remember(session);
        Ok(())
    }

    /// What is wrong with a session, at most `most` faults: of the session as a whole, then the
    /// first of each call.
    #[must_use]
    pub fn faults(&self, session: &Session, most: usize) -> Vec<Fault> {
        let whole = self.start(session).err().map(|error| Fault { call: 0, error });
        let mut faults: Vec<Fault> = whole.into_iter().collect();
        let mut main_turn = 0;
        for (number, call) in session.calls.iter().enumerate() {
            if faults.len() >= most {
                break;
            }
            let earlier = &session.calls[..number];
            let checked = self
                .call(call, session, number)
                .and_then(|()| order(call, earlier.last(), &mut main_turn));
            faults.extend(checked.err().map(|error| Fault { call: number, error }));
        }
        faults
    }

    /// Remembers a session, whatever is wrong with it.
    pub(crate) fn remember(&mut self, session: &Session) {
        if let Some(first) = session.calls.first() {
            self.last_start = self.last_start.max(first.at);
        }
        self.sessions.add(&session.id);
    }

    /// Takes a context that cannot be read for declared, and for as long as need be.
    pub(crate) fn assume(&mut self, context: &Name) {
        self.contexts.entry(Name::clone(context)).or_insert(TOKENS_MAX);
    }

    fn start(&self, session: &Session) -> Result<()> {
        let id = &session.id;
        name("session", id)?;
        if id.is_empty() || id.starts_with('@') {
            return Err(Error::found(id, "a session id, not empty and without a leading `@`")
                .in_field("session"));
        }
        if self.knows(id) {
            return Err(came_back(id));
        }
        let Some(first) = session.calls.first() else {
            return Err(Error::new("the session has no call").in_field("session"));
        };
        if first.at < self.last_start {
            return Err(Error::found(
                first.at.secs_text(),
                format!("{} or later", self.last_start.secs_text()),
            )
            .in_field("at_s")
            .help("sessions stand in the order of their start"));
        }
        Ok(())
    }

    fn call(&self, call: &Call, session: &Session, number: usize) -> Result<()> {
        limits(call)?;
        after(call, number, session.calls.len())?;
        let base = match &call.base {
            Base::None => None,
            Base::Shared(name) => Some((Whose::Shared(name), self.declared(name)?)),
            Base::Call(base) => {
                let earlier = session.calls[..number].get(*base as usize);
                let Some(earlier) = earlier else {
                    return Err(Error::found(base, "a call of this session before this one")
                        .in_field("base"));
                };
                let length = earlier.prompt_tokens + earlier.output_tokens;
                Some((Whose::Call(*base), length))
            }
        };
        kept(call.kept_tokens, call.prompt_tokens, base)?;
        output_is_there(call, session, number)
    }

    /// The length of a shared context.
    fn declared(&self, name: &Name) -> Result<Tokens> {
        self.contexts.get(name).copied().ok_or_else(|| {
            let error = Error::new(format!("`@{name}` is not declared above")).in_field("base");
            match nearest(name, self.contexts.keys().map(|name| &**name)) {
                Some(near) => error.help(format!("did you mean `@{near}`?")),
                None => error.help("a row with session `@name` declares it, before its first use"),
            }
        })
    }
}

/// Time and turn go forward.
fn order(call: &Call, previous: Option<&Call>, main_turn: &mut u32) -> Result<()> {
    if let Some(previous) = previous
        && call.at < previous.at
    {
        let least = previous.at.secs_text();
        return Err(Error::found(call.at.secs_text(), format!("{least} or later"))
            .in_field("at_s")
            .help("the calls of a session stand in the order of their dispatch"));
    }
    if call.lane == 0 {
        if call.turn < *main_turn {
            return Err(Error::found(call.turn, format!("{main_turn} or later, in lane 0"))
                .in_field("turn"));
        }
        *main_turn = call.turn;
        if call.cause == Cause::Subagent {
            return Err(Error::found("subagent", "user, tool, retry in lane 0, the main agent's")
                .in_field("cause"));
        }
    }
    Ok(())
}

/// Sizes, times and texts within bounds.
fn limits(call: &Call) -> Result<()> {
    if !are_within(call) {
        numbers_within(call)?;
    }
    let texts = [
        ("model", &call.model),
        ("tenant", &call.tenant),
        ("user", &call.user),
        ("profile", &call.profile),
    ];
    for (field, text) in texts {
        name(field, text)?;
    }
    match &call.key {
        Some(key) if key.is_empty() => {
            Err(Error::new("a key that is known is not empty").in_field("key"))
        }
        Some(key) => name("key", key),
        None => Ok(()),
    }
}

/// Whether all numbers are, which they nearly always are.
fn are_within(call: &Call) -> bool {
    let seen = [call.seen_ttft, call.seen_duration].map(Option::unwrap_or_default);
    let tokens = [call.max_tokens, call.seen_cached].map(Option::unwrap_or_default);
    let times = call.at.max(call.gap).max(seen[0]).max(seen[1]);
    let tokens = call.prompt_tokens.max(call.output_tokens).max(tokens[0]).max(tokens[1]);
    let numbers = call.turn.max(call.lane).max(call.tools.unwrap_or_default()).max(call.retries);
    times <= TIME_MAX && tokens <= TOKENS_MAX && numbers <= NUMBER_MAX
}

/// The first number that is not.
fn numbers_within(call: &Call) -> Result<()> {
    let times = [
        ("at_s", Some(call.at)),
        ("gap_s", Some(call.gap)),
        ("seen_ttft_s", call.seen_ttft),
        ("seen_duration_s", call.seen_duration),
    ];
    for (field, span) in times {
        if let Some(span) = span.filter(|span| *span > TIME_MAX) {
            let allowed = format!("at most {} (100 years)", TIME_MAX.secs_text());
            return Err(Error::found(span.secs_text(), allowed).in_field(field));
        }
    }
    let counts = [
        ("prompt_tokens", Some(call.prompt_tokens)),
        ("output_tokens", Some(call.output_tokens)),
        ("max_tokens", call.max_tokens),
        ("seen_cached", call.seen_cached),
    ];
    for (field, count) in counts {
        tokens(field, count.unwrap_or_default())?;
    }
    let numbers = [
        ("turn", call.turn),
        ("lane", call.lane),
        ("tools", call.tools.unwrap_or_default()),
        ("retries", call.retries),
    ];
    for (field, number) in numbers {
        if number > NUMBER_MAX {
            return Err(Error::found(number, format!("at most {NUMBER_MAX}")).in_field(field));
        }
    }
    Ok(())
}

/// Names are short and printable: they go into reports and into other CSV files.
fn name(field: &str, text: &str) -> Result<()> {
    if text.len() > NAME_BYTES_MAX {
        let length = text.len();
        return Err(Error::new(format!(
            "the text is {length} bytes long, at most {NAME_BYTES_MAX}"
        ))
        .in_field(field));
    }
    let plain = text.bytes().all(|byte| matches!(byte, b' '..=b'~'));
    if !plain && text.chars().any(char::is_control) {
        return Err(Error::new(format!("control character in {text:?}")).in_field(field));
    }
    Ok(())
}

fn tokens(field: &str, count: Tokens) -> Result<()> {
    if count > TOKENS_MAX {
        return Err(Error::found(count, format!("at most {TOKENS_MAX} tokens")).in_field(field));
    }
    Ok(())
}

/// Whose context a prompt continues.
enum Whose<'a> {
    Shared(&'a Name),
    Call(u32),
}

impl fmt::Display for Whose<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Shared(name) => write!(out, "`@{name}`"),
            Self::Call(call) => write!(out, "call {call} (prompt and output)"),
        }
    }
}

/// A prompt keeps no more than it is long, and no more than there is to keep.
fn kept(kept: Tokens, prompt: Tokens, base: Option<(Whose<'_>, Tokens)>) -> Result<()> {
    let refused = |allowed: String| Err(Error::found(kept, allowed).in_field("kept_tokens"));
    match base {
        None if kept > Tokens::ZERO => refused("0, as there is no base".to_owned()),
        Some((base, length)) if kept > length => {
            refused(format!("at most {length}, the length of {base}"))
        }
        _ if kept > prompt => refused(format!("at most {prompt}, the length of the prompt")),
        _ => Ok(()),
    }
}

/// What a call waits for has happened before it.
fn after(call: &Call, number: usize, calls: usize) -> Result<()> {
    let mut sorted: SmallVec<[After; 4]> = SmallVec::from_slice(&call.after);
    sorted.sort_unstable();
    if let Some(twice) = sorted.windows(2).find(|pair| pair[0] == pair[1]) {
        let named = twice[0].call;
        return Err(Error::new(format!("call {named} stands twice")).in_field("after"));
    }
    for entry in &call.after {
        let named = entry.call as usize;
        let wrong = if named == number {
            format!("call {named} cannot wait for itself")
        } else if named >= calls {
            format!("the session has no call {named}")
        } else if named > number {
            format!("call {number} cannot wait for call {named}, which is dispatched later")
        } else {
            continue;
        };
        return Err(Error::new(wrong).in_field("after"));
    }
    Ok(())
}

/// A prompt that quotes its base's output can only be sent when that output is complete.
fn output_is_there(call: &Call, session: &Session, number: usize) -> Result<()> {
    let Base::Call(base) = call.base else { return Ok(()) };
    let prompt = session.calls[base as usize].prompt_tokens;
    if call.kept_tokens <= prompt || surely_finished(&session.calls, number, base) {
        return Ok(());
    }
    Err(Error::found(
        call.kept_tokens,
        format!("at most {prompt}, the prompt of call {base}, which need not have finished"),
    )
    .in_field("kept_tokens")
    .help(format!("`after` must lead from call {number} to the end of call {base}")))
}

/// Whether `base` has finished in any replay before call `number` is dispatched.
///
/// Waiting for a call's end or for its dispatch both mean that all it waited for has happened;
/// only waiting for its end means that it has finished itself.
pub(crate) fn surely_finished(calls: &[Call], number: usize, base: u32) -> bool {
    // Nearly always it waits for it itself.
    let end = After { call: base, event: AfterEvent::Finished };
    if calls[number].after.contains(&end) {
        return true;
    }
    let mut seen = FxHashSet::default();
    let mut open = vec![number];
    while let Some(at) = open.pop() {
        for entry in &calls[at].after {
            if *entry == end {
                return true;
            }
            // Edges lead to earlier calls only, so none leads back up to the base.
            if entry.call > base && seen.insert(entry.call) {
                open.push(entry.call as usize);
            }
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::canonical::Reader;
    use crate::trace::record::{After, Item};

    /// Calls of a session, each waiting as written, the last quoting the output of call 0.
    fn last_quotes_first(afters: &[&str]) -> Result<()> {
        let mut text = String::from(
            "session,call,at_s,after,gap_s,cause,turn,lane,model,tenant,user,profile,base,\
             kept_tokens,prompt_tokens,output_tokens,tools,status\n",
        );
        for (number, after) in afters.iter().enumerate() {
            let last = number + 1 == afters.len();
            let (base, kept) = if last { ("0", 15) } else { ("", 0) };
            text += &format!("s,{number},0,{after},0,user,0,0,m,,,,{base},{kept},20,5,,ok\n");
        }
        let text = std::io::Cursor::new(text.replacen(",20,5,", ",10,5,", 1));
        Reader::from_read(text, "t")?.collect::<Result<Vec<Item>>>().map(|_| ())
    }

    #[test]
    fn an_output_can_be_quoted_once_it_is_surely_there() {
        for afters in [
            &["", "0"][..],
            &["", "0", "1"],
            // Call 1 was dispatched, so what it waits for has happened.
            &["", "0", "1d"],
            &["", "", "0;1", "2d", "3"],
        ] {
            assert_eq!(last_quotes_first(afters), Ok(()), "{afters:?}");
        }
        for afters in [&["", ""][..], &["", "0d"], &["", "0d", "1"], &["", "", "1"]] {
            let error = last_quotes_first(afters).unwrap_err().to_string();
            assert!(error.contains("which need not have finished"), "{afters:?}: {error}");
        }
    }

    #[test]
    fn the_search_for_an_end_is_short_in_long_sessions() {
        let call = |after: Vec<u32>| {
            let after = after.iter().map(|call| After { call: *call, event: AfterEvent::Finished });
            after.collect::<Vec<_>>()
        };
        // Every call waits for the two before it: exponentially many ways lead down.
        let afters: Vec<Vec<After>> =
            (0..2_000u32).map(|n| call((n.saturating_sub(2)..n).collect())).collect();
        let calls: Vec<Call> = afters.into_iter().map(call_waiting).collect();
        assert!(surely_finished(&calls, 1_999, 0));
    }

    fn call_waiting(after: Vec<After>) -> Call {
        Call {
            at: Span::ZERO,
            after,
            gap: Span::ZERO,
            cause: Cause::User,
            turn: 0,
            lane: 0,
            model: "m".into(),
            tenant: "".into(),
            user: "".into(),
            profile: "".into(),
            base: Base::None,
            kept_tokens: Tokens(0),
            prompt_tokens: Tokens(1),
            output_tokens: Tokens(1),
            tools: None,
            status: Default::default(),
            finish: Default::default(),
            priority: 0,
            key: None,
            stream: None,
            max_tokens: None,
            retries: 0,
            seen_cached: None,
            seen_ttft: None,
            seen_duration: None,
        }
    }

    fn session(id: &str, calls: Vec<Call>) -> Session {
        Session { id: id.into(), calls }
    }

    #[test]
    fn a_fault_names_call_and_field() {
        let mut late = call_waiting(vec![]);
        late.lane = NUMBER_MAX + 1;
        let calls = vec![call_waiting(vec![]), late];
        let fault = Checker::default().session(&session("s", calls)).unwrap_err();
        assert_eq!((fault.call, fault.error.place().field.as_deref()), (1, Some("lane")));
        let fault = Checker::default().session(&session("s", vec![])).unwrap_err();
        assert!(fault.error.to_string().contains("has no call"));
        let fault = Checker::default().session(&session("@s", vec![])).unwrap_err();
        assert!(fault.error.to_string().contains("without a leading `@`"));
        let long = "x".repeat(NAME_BYTES_MAX + 1);
        let fault = Checker::default().session(&session(&long, vec![])).unwrap_err();
        assert!(fault.error.to_string().contains("513 bytes long"));
    }

    #[test]
    fn a_session_is_known_once_it_was_checked() {
        let mut checker = Checker::default();
        let once = session("s", vec![call_waiting(vec![])]);
        assert!(!checker.knows("s"));
        assert_eq!(checker.session(&once), Ok(()));
        assert!(checker.knows("s"));
        assert!(checker.session(&once).is_err());
    }
}
