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

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;

    fn read(text: &str) -> Request {
        let mut request = Request::stored();
        request.read(&mut Scanner::new(text.as_bytes())).unwrap();
        request
    }

    fn prompt(text: &str) -> Prompt {
        read(text).prompt().unwrap()
    }

    /// Stored requests of real rows: id, prompt tokens, session, request.
    fn stored() -> Vec<(String, u64, String, Request)> {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/spendlogs/");
        let file = std::fs::File::open(format!("{folder}set-b-prompts-on.csv.gz")).unwrap();
        let mut text = String::new();
        flate2::read::GzDecoder::new(file).read_to_string(&mut text).unwrap();
        let mut reader = csv::Reader::from_reader(text.as_bytes());
        let header = reader.headers().unwrap().clone();
        let at = |name: &str| header.iter().position(|other| other == name).unwrap();
        let (session, body) = (at("session_id"), at("proxy_server_request"));
        let rows = reader.records().map(Result::unwrap);
        rows.map(|row| {
            let prompt = row[at("prompt_tokens")].parse().unwrap();
            (row[0].to_owned(), prompt, row[session].to_owned(), read(&row[body]))
        })
        .collect()
    }

    #[test]
    fn stored_requests_tell_which_prompt_continues_which() {
        let stored = stored();
        let of = |wanted: &str| {
            let in_session = stored.iter().filter(|(_, _, session, _)| session == wanted);
            in_session
                .map(|(_, tokens, _, request)| (*tokens, request.prompt().unwrap()))
                .collect::<Vec<(u64, Prompt)>>()
        };
        for session in
            ["ff3b887d-591f-d9e0-e46e-d87db49b4248", "3702bd64-8019-a6c7-8013-0006ec2c2b85"]
        {
            let calls = of(session);
            assert!(calls.len() >= 4);
            for pair in calls.windows(2) {
                let (before, after) = (&pair[0].1.messages, &pair[1].1.messages);
                // These clients ended their last message with a mark that the next request lacks.
                let kept = before.len() - 1;
                assert_eq!(after[..kept], before[..kept], "{session}");
                assert_eq!(after[kept].role, before[kept].role);
                assert!(before[kept].chars - after[kept].chars < 30);
                assert_eq!(after[before.len()].role, Role::Assistant);
                assert!(!pair[1].1.exact, "the system prompt was cut");
            }
            // The server that was logged counts a token for four characters.
            for (tokens, prompt) in &calls {
                let chars: u64 = prompt.messages.iter().map(|part| u64::from(part.chars)).sum();
                let counted = tokens * 4;
                assert!(chars.abs_diff(counted) * 20 < counted, "{chars} of {counted} characters");
            }
        }
    }

    #[test]
    fn headers_tell_agents_and_parents() {
        let stored = stored();
        let with = |session: &str| {
            let (.., request) = stored.iter().find(|(_, _, other, _)| other == session).unwrap();
            (request.headers.agent(session).to_owned(), request.headers.parent(session).to_owned())
        };
        let none = (String::new(), String::new());
        assert_eq!(with("parent-session-0001"), ("child-session-0001".to_owned(), String::new()));
        assert_eq!(with("b-cache-0001"), none);
        let claude = read(
            r#"{"litellm_metadata":{"headers":{"x-claude-code-agent-id":"a7",
            "x-claude-code-session-id":"s","x-claude-code-parent-session-id":"p"}}}"#,
        );
        assert_eq!((claude.headers.agent("s"), claude.headers.parent("s")), ("a7", "p"));
    }

    #[test]
    fn what_a_model_does_not_see_changes_no_fingerprint() {
        let plain = prompt(
            r#"{"system":"be brief","messages":[{"role":"user","content":"hello"},
            {"role":"assistant","content":null,"tool_calls":[{"id":"1","type":"function"}]},
            {"role":"tool","content":"done","tool_call_id":"1"}],"tools":[{"name":"x","a":[1]}]}"#,
        );
        let other = prompt(
            r#"{"tools":[{"a":[1],"name":"x","cache_control":{"type":"ephemeral"}}],"messages":[
            {"content":[{"cache_control":{"type":"ephemeral"},"text":"hello","type":"text"}],
            "role":"user"},
            {"tool_calls":[{"type":"function","id":"1"}],"role":"assistant"},
            {"tool_call_id":"1","role":"tool","content":"done"}],
            "system":[{"type":"text","text":"be brief","cache_control":{}}]}"#,
        );
        assert_eq!(plain, other);
        let roles: Vec<Role> = plain.messages.iter().map(|message| message.role).collect();
        let expected = [Role::Tools, Role::System, Role::User, Role::Assistant, Role::Tool];
        assert_eq!(roles, expected);
        let chars: Vec<u32> = plain.messages.iter().map(|message| message.chars).collect();
        assert_eq!(chars[..3], [22, 8, 5], "[{{\"name\":\"x\",\"a\":[1]}}] has 22 characters");
        assert!(plain.exact);
    }

    #[test]
    fn what_a_model_sees_changes_it() {
        let base = r#"{"messages":[{"role":"user","content":"hello"}]}"#;
        let others = [
            base.replace("hello", "hellp"),
            base.replace("user", "assistant"),
            base.replace(
                "\"hello\"",
                r#"[{"type":"text","text":"hel"},{"type":"text","text":"lo"}]"#,
            ),
            base.replace("\"hello\"", r#"[{"type":"tool_result","content":"hello"}]"#),
            base.replace("\"hello\"", r#""hello","name":"x""#),
        ];
        let base = prompt(base).messages[0];
        for other in others {
            assert_ne!(prompt(&other).messages[0].hash, base.hash, "{other}");
        }
        let result = r#"{"messages":[{"role":"user","content":[{"type":"tool_result"}]}]}"#;
        assert_eq!(prompt(result).messages[0].role, Role::Tool);
    }

    #[test]
    fn fingerprints_are_the_same_on_every_machine() {
        let [message] = prompt(r#"{"messages":[{"role":"user","content":"hello"}]}"#).messages[..]
        else {
            panic!("one message")
        };
        assert_eq!((message.hash, message.chars), (12_450_247_732_753_659_540, 5));
    }

    #[test]
    fn both_kinds_of_cuts_give_head_tail_and_true_length() {
        let text: String = (0..20_000).map(|n| if n % 7 == 0 { 'é' } else { 'x' }).collect();
        let part = |from: usize, to: usize| text.chars().skip(from).take(to - from).collect();
        let (head, tail): (String, String) = (part(0, 716), part(20_000 - 1_331, 20_000));
        let skipped = 20_000 - 716 - 1_331;
        let newer = format!(
            "{head}... (litellm_truncated skipped {skipped} chars. Truncation is a safeguard \
             (OTEL, etc.). To increase it, set `X` in your env.) ...{tail}"
        );
        let head: String = part(0, 1_000);
        let older = format!("{head}... (truncated 19000 chars)");
        let body = |text: &str| {
            prompt(
                &serde_json::json!({"messages": [{"role": "user", "content": text}]}).to_string(),
            )
        };
        for stored in [&newer, &older] {
            let prompt = body(stored);
            assert_eq!((prompt.messages[0].chars, prompt.exact), (20_000, false), "{stored}");
        }
        // Only the true length differs.
        let other = newer.replace(&skipped.to_string(), &(skipped + 1).to_string());
        assert_ne!(body(&newer).messages[0].hash, body(&other).messages[0].hash);
        // Another wording of the same cut.
        let other = newer.replace("a safeguard", "safe");
        assert_eq!(body(&newer).messages[0].hash, body(&other).messages[0].hash);
        for whole in ["(litellm_truncated skipped many chars)", "(truncated x chars)", " chars)"] {
            let prompt = body(whole);
            assert!(prompt.exact && prompt.messages[0].chars as usize == whole.len(), "{whole}");
        }
    }

    #[test]
    fn requests_without_their_messages_have_no_prompt() {
        for text in [
            "{}",
            "null",
            r#""free text""#,
            r#"{"messages":[]}"#,
            r#"{"messages":{}}"#,
            r#"{"messages":[{"role":"user","content":"redacted-by-litellm"}]}"#,
            r#"{"input":"and then?","previous_response_id":"resp_1"}"#,
        ] {
            assert_eq!(read(text).prompt(), None, "{text}");
        }
        let responses = prompt(
            r#"{"instructions":"be brief","input":[{"role":"user","content":[{"type":"input_text",
            "text":"hello"}]},{"type":"function_call","name":"ls","arguments":"{}","call_id":"1"},
            {"type":"function_call_output","call_id":"1","output":"a b"}]}"#,
        );
        let roles: Vec<Role> = responses.messages.iter().map(|message| message.role).collect();
        assert_eq!(roles, [Role::System, Role::User, Role::Assistant, Role::Tool]);
        assert_eq!(prompt(r#"{"input":"hello"}"#).messages[0], responses.messages[1]);
    }
}
