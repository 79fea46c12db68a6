//! The few keys of a row's metadata that are needed; all others are skipped without being kept.
//!
//! Some keys hold whatever a client sent, so a value of an unexpected type counts as absent. Only
//! text that is no JSON at all makes a row bad.

use std::io::BufRead;

use super::json::{Fault, Kind, Read, Scanner};
use super::request::Headers;

/// More attempts than this are no count of attempts.
const RETRIES_MAX: u32 = 10_000;

/// A value that is longer than this many bytes is none of those that are read here.
const TEXT_BYTES_MAX: usize = 16 * 1024;

/// What is read of a row's metadata.
#[derive(Debug, Default)]
pub(super) struct Metadata {
    failed: bool,
    client_gone: bool,
    retries: u32,
    call_id: String,
    parent_session: String,
    /// Token counts, since LiteLLM 1.74.
    usage: Option<Usage>,
    /// Token details of LiteLLM 1.60, where there is no usage object.
    older_usage: Option<Usage>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Usage {
    cached: Option<u64>,
    cache_read: Option<u64>,
}

/// Who made a call, as its metadata repeat it.
#[derive(Debug, Default)]
pub(super) struct Owner {
    /// API key, by its hash.
    pub(super) key: String,
    /// The key's user.
    pub(super) user: String,
    /// The key's team.
    pub(super) team: String,
    /// The end user that the client named.
    pub(super) end_user: String,
    /// Headers of the client's own, of which loggers get those that begin with `x-`.
    pub(super) headers: Headers,
}

#[derive(Clone, Copy)]
enum Key {
    Status,
    Usage,
    OlderUsage,
    Error,
    Retries,
    CallId,
    Client,
    Secret,
    User,
    Team,
    EndUser,
    Headers,
    Other,
}

fn key(name: &[u8]) -> Key {
    match name {
        b"status" => Key::Status,
        b"usage_object" => Key::Usage,
        b"additional_usage_values" => Key::OlderUsage,
        b"error_information" => Key::Error,
        b"attempted_retries" => Key::Retries,
        b"litellm_call_id" => Key::CallId,
        b"spend_logs_metadata" => Key::Client,
        b"user_api_key" | b"user_api_key_hash" => Key::Secret,
        b"user_api_key_user_id" => Key::User,
        b"user_api_key_team_id" => Key::Team,
        b"user_api_key_end_user_id" => Key::EndUser,
        b"requester_custom_headers" => Key::Headers,
        _ => Key::Other,
    }
}

impl Metadata {
    /// Reads the text of the column. The error says where, never what, since it may be private.
    #[cfg(any(test, feature = "postgres"))]
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let mut scanner = Scanner::new(text.as_bytes());
        Self::read(&mut scanner, None).map_err(|fault| {
            let passed = text.len() - scanner.source().len();
            broken(&fault, passed as u64)
        })
    }

    /// Reads an object, and who made the call if `owner` is wanted. No value at all, or one that is
    /// no object, says nothing.
    pub(super) fn read<R: BufRead>(
        scanner: &mut Scanner<R>,
        mut owner: Option<&mut Owner>,
    ) -> Read<Self> {
        let mut read = Self::default();
        if scanner.peek()?.is_none() {
            return Ok(read);
        }
        scanner.object(key, |scanner, key| {
            match (key, owner.as_deref_mut()) {
                (Key::Status, _) => read.failed = text(scanner)? == "failure",
                (Key::Usage, _) => read.usage = usage(scanner)?,
                (Key::OlderUsage, _) => read.older_usage = usage(scanner)?,
                (Key::Error, _) => read.client_gone = error_code(scanner)? == "499",
                (Key::Retries, _) => read.set_retries(&text(scanner)?),
                (Key::CallId, _) => read.call_id = text(scanner)?,
                (Key::Client, _) => read.parent_session = parent_session(scanner)?,
                (Key::Secret, Some(owner)) => owner.key = text(scanner)?,
                (Key::User, Some(owner)) => owner.user = text(scanner)?,
                (Key::Team, Some(owner)) => owner.team = text(scanner)?,
                (Key::EndUser, Some(owner)) => owner.end_user = text(scanner)?,
                (Key::Headers, Some(owner)) => owner.headers.read(scanner)?,
                _ => scanner.skip()?,
            }
            Ok(())
        })?;
        match scanner.peek()? {
            Some(b'}' | b']' | b',') | None => Ok(read),
            Some(_) => Err(Fault::Syntax),
        }
    }

    /// Reads an object inside a JSON row, or its text in a string.
    pub(super) fn read_any<R: BufRead>(
        scanner: &mut Scanner<R>,
        owner: &mut Owner,
    ) -> Read<Result<Self, String>> {
        if scanner.kind()? != Kind::String {
            return Self::read(scanner, Some(owner)).map(Ok);
        }
        let mut whole = Vec::new();
        match scanner.scalar(&mut whole, JSON_TEXT_BYTES_MAX) {
            Err(Fault::TooLong(most)) => return Ok(Err(broken(&Fault::TooLong(most), 0))),
            read => read?,
        };
        let mut inner = Scanner::new(&whole[..]);
        let read = Self::read(&mut inner, Some(owner));
        Ok(read.map_err(|fault| broken(&fault, (whole.len() - inner.source().len()) as u64)))
    }

    /// Whether it says that the call failed.
    pub(super) fn is_failure(&self) -> bool {
        self.failed
    }

    /// Whether the client went away before the answer was complete.
    pub(super) fn client_gone(&self) -> bool {
        self.client_gone
    }

    /// Says so from elsewhere.
    pub(super) fn set_client_gone(&mut self) {
        self.client_gone = true;
    }

    /// Attempts before the recorded one.
    pub(super) fn retries(&self) -> u32 {
        self.retries
    }

    /// Takes the number of attempts from its text; nothing from one that is none.
    pub(super) fn set_retries(&mut self, text: &str) {
        self.retries = text.parse().ok().filter(|&n| n <= RETRIES_MAX).unwrap_or(0);
    }

    /// The call's id, which all of its attempts share; empty if not recorded.
    pub(super) fn call_id(&self) -> &str {
        &self.call_id
    }

    /// The session that this one works for, as the client said.
    pub(super) fn parent_session(&self) -> &str {
        &self.parent_session
    }

    /// Takes the parent session from elsewhere, unless one is named here.
    pub(super) fn or_parent_session(&mut self, parent: &str) {
        if self.parent_session.is_empty() {
            parent.clone_into(&mut self.parent_session);
        }
    }

    /// Cached prompt tokens as the server counted them; `None` where it did not say.
    ///
    /// A server without prompt-token details leaves them null and the flat count at 0, so the flat
    /// count says something only where it is not 0.
    pub(super) fn cached_tokens(&self) -> Option<u64> {
        let usage = self.usage.or(self.older_usage)?;
        usage.cached.or(usage.cache_read.filter(|&tokens| tokens > 0))
    }
}

/// JSON inside of a JSON string may be this long, in bytes.
pub(super) const JSON_TEXT_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Why a value cannot be read, at the byte of its text at which that showed.
pub(super) fn broken(fault: &Fault, byte: u64) -> String {
    match fault {
        Fault::Ended => format!("not valid JSON: it ends in mid-value after {byte} bytes"),
        Fault::TooLong(most) => format!("longer than {most} bytes"),
        Fault::Syntax | Fault::Io(_) => format!("not valid JSON at byte {} of the text", byte + 1),
    }
}

/// A short text or number; anything else, and what is too long, is nothing.
pub(super) fn text<R: BufRead>(scanner: &mut Scanner<R>) -> Read<String> {
    let mut bytes = Vec::new();
    match scanner.scalar(&mut bytes, TEXT_BYTES_MAX) {
        Ok(_) => {}
        Err(Fault::TooLong(_)) => return Ok(String::new()),
        Err(fault) => return Err(fault),
    }
    Ok(match String::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) => String::from_utf8_lossy(error.as_bytes()).into_owned(),
    })
}

fn usage<R: BufRead>(scanner: &mut Scanner<R>) -> Read<Option<Usage>> {
    let mut usage = Usage::default();
    let name = |key: &[u8]| match key {
        b"prompt_tokens_details" => 1,
        b"cache_read_input_tokens" => 2,
        _ => 0,
    };
    let is_object = scanner.object(name, |scanner, key| {
        match key {
            1 => usage.cached = count(scanner, b"cached_tokens")?,
            2 => usage.cache_read = text(scanner)?.parse().ok(),
            _ => scanner.skip()?,
        }
        Ok(())
    })?;
    Ok(is_object.then_some(usage))
}

fn count<R: BufRead>(scanner: &mut Scanner<R>, wanted: &[u8]) -> Read<Option<u64>> {
    Ok(entry(scanner, wanted)?.parse().ok())
}

/// The text of one entry of an object.
pub(super) fn entry<R: BufRead>(scanner: &mut Scanner<R>, wanted: &[u8]) -> Read<String> {
    let mut found = String::new();
    scanner.object(
        |key| key == wanted,
        |scanner, is_wanted| {
            if is_wanted {
                found = text(scanner)?;
                return Ok(());
            }
            scanner.skip()
        },
    )?;
    Ok(found)
}

/// The code inside of an error's description.
pub(super) fn error_code<R: BufRead>(scanner: &mut Scanner<R>) -> Read<String> {
    entry(scanner, b"error_code")
}

fn parent_session<R: BufRead>(scanner: &mut Scanner<R>) -> Read<String> {
    entry(scanner, b"parent_session_id")
}

/// The text of the first User-Agent tag of a list of tags; what is no list has none.
pub(super) fn user_agent<R: BufRead>(scanner: &mut Scanner<R>) -> Read<Option<String>> {
    let mut found = None;
    scanner.array(|scanner| {
        if found.is_some() {
            return scanner.skip();
        }
        let tag = text(scanner)?;
        found = tag.strip_prefix("User-Agent: ").map(str::to_owned);
        Ok(())
    })?;
    Ok(found)
}

/// The User-Agent tag of a list of tags inside a JSON row, or of its text in a string.
pub(super) fn user_agent_any<R: BufRead>(scanner: &mut Scanner<R>) -> Read<Option<String>> {
    if scanner.kind()? == Kind::String {
        return Ok(user_agent_of_text(&text(scanner)?));
    }
    user_agent(scanner)
}

/// The User-Agent tag of the text of the tags column; what is no list of tags has none.
pub(super) fn user_agent_of_text(text: &str) -> Option<String> {
    let mut scanner = Scanner::new(text.as_bytes());
    if text.is_empty() { None } else { user_agent(&mut scanner).ok().flatten() }
}

/// The scaffold's own name in the text after `User-Agent: `: without version and remarks.
pub(super) fn scaffold(user_agent: &str) -> &str {
    let end = user_agent.find(['/', '(']).unwrap_or(user_agent.len());
    user_agent[..end].trim()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cached(text: &str) -> Option<u64> {
        Metadata::parse(text).unwrap().cached_tokens()
    }

    #[test]
    fn cached_tokens_are_unknown_where_the_server_did_not_count_them() {
        let details = r#"{"usage_object":{"prompt_tokens_details":{"cached_tokens":7}}}"#;
        assert_eq!(cached(details), Some(7));
        let zero = r#"{"usage_object":{"prompt_tokens_details":{"cached_tokens":0}}}"#;
        assert_eq!(cached(zero), Some(0));
        for unknown in [
            "",
            "{}",
            r#"{"usage_object":{"prompt_tokens_details":null,"cache_read_input_tokens":0}}"#,
            r#"{"usage_object":{"prompt_tokens_details":{"cached_tokens":null}}}"#,
            r#"{"usage_object":null}"#,
        ] {
            assert_eq!(cached(unknown), None, "{unknown}");
        }
    }

    #[test]
    fn the_flat_count_and_the_old_shape_are_read_too() {
        assert_eq!(cached(r#"{"usage_object":{"cache_read_input_tokens":5}}"#), Some(5));
        let old = r#"{"additional_usage_values":{"prompt_tokens_details":{"cached_tokens":9}}}"#;
        assert_eq!(cached(old), Some(9));
    }

    #[test]
    fn values_of_unexpected_types_count_as_absent() {
        let odd = r#"{"status":[1],"usage_object":"none","error_information":[],
            "attempted_retries":{"a":1},"spend_logs_metadata":"free text","other":{"x":[{}]}}"#;
        let metadata = Metadata::parse(odd).unwrap();
        assert!(!metadata.is_failure() && !metadata.client_gone());
        assert_eq!((metadata.retries(), metadata.parent_session()), (0, ""));
    }

    #[test]
    fn broken_json_is_told_by_place_and_not_repeated() {
        let error = Metadata::parse("{\"secret\": ").unwrap_err();
        assert!(error.contains("after 11 bytes") && !error.contains("secret"), "{error}");
        let error = Metadata::parse("{\"secret\" 1}").unwrap_err();
        assert!(error.contains("byte 11") && !error.contains("secret"), "{error}");
        assert!(Metadata::parse("{} {}").is_err());
    }

    #[test]
    fn scaffolds_lose_version_and_remarks() {
        for (tag, name) in [
            ("claude-cli/2.1.14 (external, cli)", "claude-cli"),
            ("claude-cli", "claude-cli"),
            ("Some Client (x)", "Some Client"),
        ] {
            assert_eq!(scaffold(tag), name);
        }
        let tags = r#"["team-x", 5, "User-Agent: opencode/1.0"]"#;
        assert_eq!(user_agent_of_text(tags).as_deref(), Some("opencode/1.0"));
        assert_eq!(user_agent_of_text("{}"), None);
    }
}
