//! Fingerprints of messages, which tell equal ones without their text.
//!
//! A fingerprint depends neither on the order of keys (`jsonb` changes it) nor on whether a text
//! stands alone or in a list of one block, nor on `cache_control` marks, which move from message
//! to message as a conversation grows: none of these changes what a model sees.

use std::io::BufRead;

use xxhash_rust::xxh64::{Xxh64, xxh64};

use super::cut::Cut;
use super::head::Head;
use super::json::{Kind, Read, Scanner};
use super::metadata::text;
use super::prompt::{Message, Role};

/// Longer strings are not looked through for the mark of a cut, since LiteLLM leaves none so long.
const CUT_TEXT_BYTES_MAX: usize = 1024 * 1024;

/// What LiteLLM puts for messages that are not to be logged.
const REDACTED: &[u8] = b"redacted-by-litellm";

/// Fingerprint and length of a value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Digest {
    /// Fingerprint.
    pub(super) hash: u64,
    /// Characters.
    pub(super) chars: u64,
}

/// Makes fingerprints of values as they are read.
#[derive(Debug, Default)]
pub(super) struct Fingerprints {
    /// Whether texts may have been cut, as LiteLLM does before it stores them.
    pub(super) may_be_cut: bool,
    /// Whether a text was cut.
    pub(super) cut: bool,
    /// Whether a text was taken out.
    pub(super) redacted: bool,
    /// The beginning of the message that is read.
    head: Head,
    /// A string whose end has not come yet.
    text: Vec<u8>,
}

impl Fingerprints {
    /// Forgets what was found; texts may be cut as before.
    pub(super) fn clear(&mut self) {
        (self.cut, self.redacted) = (false, false);
        self.head.open(false);
    }

    /// One message of a conversation.
    pub(super) fn message<R: BufRead>(&mut self, scanner: &mut Scanner<R>) -> Read<Message> {
        if scanner.kind()? != Kind::Object {
            return self.said(Role::User, scanner);
        }
        self.head.clear();
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
            self.head.open(matches!(key, MessageKey::Content));
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
        self.head.open(false);
        let heads = self.head.fingerprints();
        Ok(Message { heads, ..message(role_of(&role, &kind, has_results), content, rest) })
    }

    /// A content that stands where a message of a role might.
    pub(super) fn said<R: BufRead>(
        &mut self,
        role: Role,
        scanner: &mut Scanner<R>,
    ) -> Read<Message> {
        self.head.clear();
        self.head.open(true);
        let content = self.content(scanner)?;
        self.head.open(false);
        let heads = self.head.fingerprints();
        Ok(Message { heads, ..message(role, content, Digest::default()) })
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
    pub(super) fn value<R: BufRead>(&mut self, scanner: &mut Scanner<R>) -> Read<Digest> {
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
        let mut hasher = Xxh64::new(0);
        let mut chars = 0;
        let mut buffered = self.may_be_cut;
        let (text, head) = (&mut self.text, &mut self.head);
        text.clear();
        scanner.string(&mut |piece| {
            head.add(piece);
            if buffered && text.len() + piece.len() <= CUT_TEXT_BYTES_MAX {
                text.extend_from_slice(piece);
                return;
            }
            buffered = false;
            for part in [&text[..], piece] {
                hasher.update(part);
                chars += characters(part);
            }
            text.clear();
        })?;
        if let Some(cut) = Cut::find(text) {
            self.cut = true;
            hasher.update(cut.head);
            hasher.update(&cut.skipped.to_le_bytes());
            hasher.update(cut.tail);
            let chars = cut.skipped + characters(cut.head) + characters(cut.tail);
            return Ok(Digest { hash: hasher.digest(), chars });
        }
        self.redacted |= text == REDACTED;
        hasher.update(text);
        Ok(Digest { hash: hasher.digest(), chars: chars + characters(text) })
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

/// A message of one role, with its content and what else belongs to it.
pub(super) fn message(role: Role, content: Digest, rest: Digest) -> Message {
    let hash = pair(pair(role as u64, content.hash), rest.hash);
    let chars = u32::try_from(content.chars + rest.chars).unwrap_or(u32::MAX);
    Message { hash, chars, heads: [0; 2], role }
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

fn hash(bytes: &[u8]) -> u64 {
    xxh64(bytes, 0)
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
