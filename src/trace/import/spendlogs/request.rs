//! Stored requests: fingerprints of their messages, and headers that tell subagents apart.
//!
//! A fingerprint depends neither on the order of keys (`jsonb` changes it) nor on whether a text
//! stands alone or in a list of one block, nor on `cache_control` marks, which move from message
//! to message as a conversation grows: none of these changes what a model sees.

use std::hash::Hasher;
use std::io::BufRead;

use memchr::memmem;
use twox_hash::XxHash64;

use super::json::{Kind, Read, Scanner};
use super::metadata::{JSON_TEXT_BYTES_MAX, text};
use super::prompt::{Message, Prompt, Role};

/// Longer strings are not looked through for the mark of a cut, since LiteLLM leaves none so long.
const CUT_TEXT_BYTES_MAX: usize = 1024 * 1024;

/// What LiteLLM puts for messages that are not to be logged.
const REDACTED: &[u8] = b"redacted-by-litellm";

/// What a stored request tells.
#[derive(Debug, Default)]
pub(super) struct Request {
    tools: Option<Message>,
    system: Vec<Message>,
    messages: Vec<Message>,
    /// Whether messages are missing or were taken out.
    incomplete: bool,
    cut: bool,
    /// Whether a stream was asked for; `None` if there is no request.
    pub(super) stream: Option<bool>,
    /// The headers that came with it.
    pub(super) headers: Headers,
    /// Whether texts may have been cut, as LiteLLM does before it stores them.
    may_be_cut: bool,
    /// A string whose end has not come yet.
    text: Vec<u8>,
}

/// What a client's headers say of the agent that sent a request.
#[derive(Debug, Default)]
pub(super) struct Headers {
    /// `x-claude-code-agent-id`.
    agent: String,
    /// `x-session-id`.
    session: String,
    /// `x-parent-session-id`, or what a vendor calls so.
    parent: String,
}

impl Headers {
    /// Reads an object of headers.
    pub(super) fn read<R: BufRead>(&mut self, scanner: &mut Scanner<R>) -> Read<()> {
        scanner.object(header, |scanner, header| {
            let place = match header {
                Header::Agent => &mut self.agent,
                Header::Session => &mut self.session,
                Header::Parent => &mut self.parent,
                Header::Other => return scanner.skip(),
            };
            *place = text(scanner)?;
            Ok(())
        })?;
        Ok(())
    }

    /// The agent within the session `session`, if a header names one.
    pub(super) fn agent(&self, session: &str) -> &str {
        match (&*self.agent, &*self.session) {
            ("", own) if own != session => own,
            (agent, _) => agent,
        }
    }

    /// The session that the session `session` works for, if a header names another one.
    pub(super) fn parent(&self, session: &str) -> &str {
        if self.parent == session { "" } else { &self.parent }
    }

    /// Whether nothing was said.
    fn is_empty(&self) -> bool {
        self.agent.is_empty() && self.session.is_empty() && self.parent.is_empty()
    }

    /// These, or `other` if these say nothing.
    pub(super) fn or<'a>(&'a self, other: &'a Self) -> &'a Self {
        if self.is_empty() { other } else { self }
    }
}

/// Fingerprint and length of a value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Digest {
    hash: u64,
    chars: u64,
}

impl Request {
    /// One of the database, where long texts are cut.
    pub(super) fn stored() -> Self {
        Self { may_be_cut: true, ..Self::default() }
    }

    /// Forgets what was read, for the next row.
    pub(super) fn clear(&mut self) {
        let text = std::mem::take(&mut self.text);
        *self = Self { may_be_cut: self.may_be_cut, text, ..Self::default() };
    }

    /// Says whether the texts that follow may have been cut.
    pub(super) fn may_be_cut(&mut self, may_be_cut: bool) {
        self.may_be_cut = may_be_cut;
    }

    /// The messages, if there are any.
    pub(super) fn prompt(&self) -> Option<Prompt> {
        if self.messages.is_empty() || self.incomplete {
            return None;
        }
        let before = self.tools.iter().chain(&self.system);
        let messages = before.chain(&self.messages).copied().collect();
        Some(Prompt { messages, exact: !self.cut })
    }

    /// Reads a request's body, or its text in a string.
    pub(super) fn read<R: BufRead>(&mut self, scanner: &mut Scanner<R>) -> Read<()> {
        if scanner.peek()?.is_none() {
            return Ok(());
        }
        if scanner.kind()? != Kind::String {
            return self.body(scanner);
        }
        let mut whole = Vec::new();
        scanner.scalar(&mut whole, JSON_TEXT_BYTES_MAX)?;
        let mut inner = Scanner::new(&whole[..]);
        if inner.peek()? == Some(b'{') { self.body(&mut inner) } else { Ok(()) }
    }

    fn body<R: BufRead>(&mut self, scanner: &mut Scanner<R>) -> Read<()> {
        let mut messages = Vec::new();
        std::mem::swap(&mut messages, &mut self.messages);
        scanner.object(body_key, |scanner, key| match key {
            BodyKey::Other => scanner.skip(),
            BodyKey::Stream => {
                self.stream = Some(text(scanner)? == "True");
                Ok(())
            }
            BodyKey::Metadata => self.headers_of_metadata(scanner),
            BodyKey::Previous => self.previous(scanner),
            BodyKey::Tools => self.tools(scanner),
            BodyKey::System => self.system(scanner),
            BodyKey::Messages => self.messages(scanner),
        })?;
        if self.messages.is_empty() {
            self.messages = messages;
        } else {
            self.stream.get_or_insert(false);
        }
        Ok(())
    }

    /// Reads tools and system prompt from among a logger's model parameters.
    pub(super) fn parameters<R: BufRead>(&mut self, scanner: &mut Scanner<R>) -> Read<()> {
        scanner.object(body_key, |scanner, key| match key {
            BodyKey::Previous => self.previous(scanner),
            BodyKey::Tools => self.tools(scanner),
            BodyKey::System => self.system(scanner),
            _ => scanner.skip(),
        })?;
        Ok(())
    }

    /// Reads a list of messages, or a text that is the only one.
    pub(super) fn messages<R: BufRead>(&mut self, scanner: &mut Scanner<R>) -> Read<()> {
        match scanner.kind()? {
            Kind::Array => {
                scanner.array(|scanner| {
                    let message = self.message(scanner)?;
                    self.messages.push(message);
                    Ok(())
                })?;
                Ok(())
            }
            Kind::String => {
                let content = self.content(scanner)?;
                self.messages.push(message(Role::User, content, Digest::default()));
                Ok(())
            }
            Kind::Object | Kind::Plain => scanner.skip(),
        }
    }

    fn tools<R: BufRead>(&mut self, scanner: &mut Scanner<R>) -> Read<()> {
        if scanner.kind()? != Kind::Array {
            return scanner.skip();
        }
        let tools = self.value(scanner)?;
        // An empty list is no tools.
        self.tools = (tools.chars > 2).then(|| message(Role::Tools, tools, Digest::default()));
        Ok(())
    }

    fn system<R: BufRead>(&mut self, scanner: &mut Scanner<R>) -> Read<()> {
        if scanner.kind()? == Kind::Plain {
            return scanner.skip();
        }
        let system = self.content(scanner)?;
        self.system.push(message(Role::System, system, Digest::default()));
        Ok(())
    }

    /// An id of an answer whose conversation the server remembers and the request does not repeat.
    fn previous<R: BufRead>(&mut self, scanner: &mut Scanner<R>) -> Read<()> {
        self.incomplete |= !text(scanner)?.is_empty();
        Ok(())
    }

    fn headers_of_metadata<R: BufRead>(&mut self, scanner: &mut Scanner<R>) -> Read<()> {
        scanner.object(
            |key| key == b"headers",
            |scanner, is_headers| {
                if is_headers { self.headers.read(scanner) } else { scanner.skip() }
            },
        )?;
        Ok(())
    }

    fn message<R: BufRead>(&mut self, scanner: &mut Scanner<R>) -> Read<Message> {
        if scanner.kind()? != Kind::Object {
            let content = self.content(scanner)?;
            return Ok(message(Role::User, content, Digest::default()));
        }
        let (mut role, mut kind) = (String::new(), String::new());
        let (mut content, mut rest) = (Digest::default(), Digest::default());
        let mut has_results = false;
        let name = |key: &[u8]| match key {
            b"role" => MessageKey::Role,
            b"type" => MessageKey::Type,
            b"content" => MessageKey::Content,
            b"cache_control" => MessageKey::Ignored,
            _ => MessageKey::Other(hash(key), characters(key)),
        };
        scanner.object(name, |scanner, key| {
            match key {
                MessageKey::Role => role = text(scanner)?,
                MessageKey::Type => kind = text(scanner)?,
                MessageKey::Content if scanner.kind()? == Kind::Array => {
                    (content, has_results) = self.blocks(scanner)?;
                }
                MessageKey::Content => content = self.content(scanner)?,
                MessageKey::Ignored => scanner.skip()?,
                MessageKey::Other(..) if scanner.peek()? == Some(b'n') => scanner.skip()?,
                MessageKey::Other(key, chars) => rest.add_entry(key, chars, self.value(scanner)?),
            }
            Ok(())
        })?;
        Ok(message(role_of(&role, &kind, has_results), content, rest))
    }

    /// A message's content: a text, or blocks. A text counts as one block of text.
    fn content<R: BufRead>(&mut self, scanner: &mut Scanner<R>) -> Read<Digest> {
        match scanner.kind()? {
            Kind::Array => Ok(self.blocks(scanner)?.0),
            Kind::String => {
                let text = self.string(scanner)?;
                Ok(Digest { hash: pair(0, text.hash), chars: text.chars })
            }
            Kind::Plain => scanner.skip().map(|()| Digest::default()),
            Kind::Object => self.value(scanner),
        }
    }

    /// The blocks of a content, and whether one of them is a tool's result.
    fn blocks<R: BufRead>(&mut self, scanner: &mut Scanner<R>) -> Read<(Digest, bool)> {
        let mut all = Digest::default();
        let mut has_results = false;
        scanner.array(|scanner| {
            let (block, is_result) = self.block(scanner)?;
            has_results |= is_result;
            all = Digest { hash: pair(all.hash, block.hash), chars: all.chars + block.chars };
            Ok(())
        })?;
        Ok((all, has_results))
    }

    fn block<R: BufRead>(&mut self, scanner: &mut Scanner<R>) -> Read<(Digest, bool)> {
        if scanner.kind()? != Kind::Object {
            return Ok((self.value(scanner)?, false));
        }
        let mut kind = String::new();
        let mut words = None;
        let mut rest = Digest::default();
        let name = |key: &[u8]| match key {
            b"type" => BlockKey::Type,
            b"text" => BlockKey::Text,
            b"cache_control" => BlockKey::Ignored,
            _ => BlockKey::Other(hash(key), characters(key)),
        };
        scanner.object(name, |scanner, key| {
            match key {
                BlockKey::Type => kind = text(scanner)?,
                BlockKey::Text if scanner.kind()? == Kind::String => {
                    words = Some(self.string(scanner)?);
                }
                BlockKey::Text | BlockKey::Ignored => scanner.skip()?,
                BlockKey::Other(..) if scanner.peek()? == Some(b'n') => scanner.skip()?,
                BlockKey::Other(key, chars) => rest.add_entry(key, chars, self.value(scanner)?),
            }
            Ok(())
        })?;
        let is_result = kind == "tool_result";
        let words = words.unwrap_or_default();
        if rest == Digest::default() && kind.ends_with("text") {
            return Ok((words, is_result));
        }
        let hash = pair(pair(hash(kind.as_bytes()), words.hash), rest.hash);
        Ok((Digest { hash, chars: words.chars + rest.chars }, is_result))
    }

    /// Any value. Its length is that of its text without white space.
    fn value<R: BufRead>(&mut self, scanner: &mut Scanner<R>) -> Read<Digest> {
        match scanner.kind()? {
            Kind::String => {
                let text = self.string(scanner)?;
                Ok(Digest { hash: pair(1, text.hash), chars: text.chars + 2 })
            }
            Kind::Plain => {
                let text = text(scanner)?;
                let chars = if text.is_empty() { 4 } else { text.len() as u64 };
                Ok(Digest { hash: pair(2, hash(text.as_bytes())), chars })
            }
            Kind::Array => {
                let mut all = Digest { hash: 3, chars: 2 };
                scanner.array(|scanner| {
                    let item = self.value(scanner)?;
                    let comma = u64::from(all.hash != 3);
                    let chars = all.chars + item.chars + comma;
                    all = Digest { hash: pair(all.hash, item.hash), chars };
                    Ok(())
                })?;
                Ok(all)
            }
            Kind::Object => {
                let mut all = Digest { hash: 4, chars: 2 };
                let name =
                    |key: &[u8]| (key != b"cache_control").then(|| (hash(key), characters(key)));
                scanner.object(name, |scanner, key| {
                    let Some((key, chars)) = key else { return scanner.skip() };
                    all.add_entry(key, chars, self.value(scanner)?);
                    Ok(())
                })?;
                Ok(all)
            }
        }
    }

    /// A string. Of one that was cut, head, tail and true length count.
    fn string<R: BufRead>(&mut self, scanner: &mut Scanner<R>) -> Read<Digest> {
        let mut hasher = XxHash64::with_seed(0);
        let mut chars = 0;
        let mut buffered = self.may_be_cut;
        let text = &mut self.text;
        text.clear();
        scanner.string(&mut |piece| {
            if buffered && text.len() + piece.len() <= CUT_TEXT_BYTES_MAX {
                text.extend_from_slice(piece);
                return;
            }
            buffered = false;
            for part in [&text[..], piece] {
                hasher.write(part);
                chars += characters(part);
            }
            text.clear();
        })?;
        if let Some(cut) = Cut::find(text) {
            self.cut = true;
            hasher.write(cut.head);
            hasher.write(&cut.skipped.to_le_bytes());
            hasher.write(cut.tail);
            let chars = cut.skipped + characters(cut.head) + characters(cut.tail);
            return Ok(Digest { hash: hasher.finish(), chars });
        }
        self.incomplete |= text == REDACTED;
        hasher.write(text);
        Ok(Digest { hash: hasher.finish(), chars: chars + characters(text) })
    }
}

#[derive(Clone, Copy)]
enum BodyKey {
    Tools,
    System,
    Messages,
    Metadata,
    Stream,
    Previous,
    Other,
}

fn body_key(key: &[u8]) -> BodyKey {
    match key {
        b"tools" | b"functions" => BodyKey::Tools,
        b"system" | b"instructions" => BodyKey::System,
        b"messages" | b"input" | b"prompt" => BodyKey::Messages,
        b"metadata" | b"litellm_metadata" => BodyKey::Metadata,
        b"stream" => BodyKey::Stream,
        b"previous_response_id" => BodyKey::Previous,
        _ => BodyKey::Other,
    }
}

#[derive(Clone, Copy)]
enum MessageKey {
    Role,
    Type,
    Content,
    Ignored,
    Other(u64, u64),
}

#[derive(Clone, Copy)]
enum BlockKey {
    Type,
    Text,
    Ignored,
    Other(u64, u64),
}

#[derive(Clone, Copy)]
enum Header {
    Agent,
    Session,
    Parent,
    Other,
}

fn header(name: &[u8]) -> Header {
    match name {
        b"x-claude-code-agent-id" => Header::Agent,
        b"x-session-id" => Header::Session,
        _ if name.ends_with(b"-parent-session-id") => Header::Parent,
        _ => Header::Other,
    }
}

/// Results of tools come as `tool`, as items of their own, or in blocks of the user's message.
fn role_of(role: &str, kind: &str, has_results: bool) -> Role {
    match (role, kind) {
        ("system" | "developer", _) => Role::System,
        ("assistant" | "model", _) => Role::Assistant,
        ("tool" | "function", _) => Role::Tool,
        ("", kind) if kind.ends_with("_output") => Role::Tool,
        ("", kind) if kind.ends_with("_call") || kind == "reasoning" => Role::Assistant,
        _ if has_results => Role::Tool,
        _ => Role::User,
    }
}

fn message(role: Role, content: Digest, rest: Digest) -> Message {
    let hash = pair(pair(role as u64, content.hash), rest.hash);
    let chars = u32::try_from(content.chars + rest.chars).unwrap_or(u32::MAX);
    Message { hash, chars, role }
}

impl Digest {
    /// Adds an entry of an object; the order of entries is no matter.
    fn add_entry(&mut self, key: u64, key_chars: u64, value: Self) {
        self.hash = self.hash.wrapping_add(pair(key, value.hash));
        // Quotes, colon, and the comma that all entries but one have.
        let comma = u64::from(self.chars > 2);
        self.chars += key_chars + 3 + value.chars + comma;
    }
}

/// A text whose middle or end LiteLLM cut out.
struct Cut<'a> {
    head: &'a [u8],
    /// Characters cut out.
    skipped: u64,
    tail: &'a [u8],
}

impl<'a> Cut<'a> {
    /// Finds the mark of newer versions, which stands between head and tail, or that of older ones,
    /// which stands at the end.
    fn find(text: &'a [u8]) -> Option<Self> {
        if let Some(at) = memmem::find(text, b"(litellm_truncated skipped ") {
            let rest = &text[at + b"(litellm_truncated skipped ".len()..];
            let (skipped, rest) = number(rest)?;
            let rest = rest.strip_prefix(b" chars")?;
            let close = memchr::memchr(b')', rest)?;
            // The remark itself holds one pair of brackets.
            let close = match memchr::memchr(b'(', &rest[..close]) {
                None => close,
                Some(_) => close + 1 + memchr::memchr(b')', &rest[close + 1..])?,
            };
            let tail = &rest[close + 1..];
            let tail = tail.strip_prefix(b" ...").unwrap_or(tail);
            let head = &text[..at];
            return Some(Self { head: head.strip_suffix(b"... ").unwrap_or(head), skipped, tail });
        }
        let body = text.strip_suffix(b" chars)")?;
        let at = memmem::rfind(body, b"(truncated ")?;
        let (skipped, rest) = number(&body[at + b"(truncated ".len()..])?;
        let head = text[..at].strip_suffix(b" ").unwrap_or(&text[..at]);
        let head = head.strip_suffix(b"...").unwrap_or(head);
        rest.is_empty().then_some(Self { head, skipped, tail: b"" })
    }
}

/// A number at the start of `text`, and what follows.
fn number(text: &[u8]) -> Option<(u64, &[u8])> {
    let end = text.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(text.len());
    let digits = std::str::from_utf8(&text[..end]).ok()?;
    let number: u64 = digits.parse().ok()?;
    // No text has more characters than this.
    (number <= u64::from(u32::MAX)).then_some((number, &text[end..]))
}

fn hash(bytes: &[u8]) -> u64 {
    XxHash64::oneshot(0, bytes)
}

/// One fingerprint of two, in this order.
fn pair(first: u64, second: u64) -> u64 {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&first.to_le_bytes());
    bytes[8..].copy_from_slice(&second.to_le_bytes());
    hash(&bytes)
}

/// Characters of UTF-8: all bytes but those that continue one.
fn characters(text: &[u8]) -> u64 {
    text.iter().filter(|&&byte| byte & 0xc0 != 0x80).count() as u64
}
