//! Stored requests: fingerprints of their messages, and headers that tell subagents apart.

use std::io::BufRead;

use super::fingerprint::{Digest, Fingerprints, message};
use super::json::{Kind, Read, Scanner};
use super::metadata::{JSON_TEXT_BYTES_MAX, text};
use super::prompt::{Message, Prompt, Role};

/// What a stored request tells.
#[derive(Debug, Default)]
pub(super) struct Request {
    tools: Option<Message>,
    system: Vec<Message>,
    messages: Vec<Message>,
    /// Whether messages are missing.
    incomplete: bool,
    /// Whether a stream was asked for; `None` if there is no request.
    pub(super) stream: Option<bool>,
    /// The headers that came with it.
    pub(super) headers: Headers,
    fingerprints: Fingerprints,
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

impl Request {
    /// One of the database, where long texts are cut.
    pub(super) fn stored() -> Self {
        let mut stored = Self::default();
        stored.may_be_cut(true);
        stored
    }

    /// Forgets what was read, for the next row.
    pub(super) fn clear(&mut self) {
        let mut fingerprints = std::mem::take(&mut self.fingerprints);
        fingerprints.clear();
        *self = Self { fingerprints, ..Self::default() };
    }

    /// Says whether the texts that follow may have been cut.
    pub(super) fn may_be_cut(&mut self, may_be_cut: bool) {
        self.fingerprints.may_be_cut = may_be_cut;
    }

    /// The messages, if there are any.
    pub(super) fn prompt(&self) -> Option<Prompt> {
        if self.messages.is_empty() || self.incomplete || self.fingerprints.redacted {
            return None;
        }
        let before = self.tools.iter().chain(&self.system);
        let messages = before.chain(&self.messages).copied().collect();
        Some(Prompt { messages, exact: !self.fingerprints.cut })
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
                    let message = self.fingerprints.message(scanner)?;
                    self.messages.push(message);
                    Ok(())
                })?;
                Ok(())
            }
            Kind::String => {
                let message = self.fingerprints.said(Role::User, scanner)?;
                self.messages.push(message);
                Ok(())
            }
            Kind::Object | Kind::Plain => scanner.skip(),
        }
    }

    fn tools<R: BufRead>(&mut self, scanner: &mut Scanner<R>) -> Read<()> {
        if scanner.kind()? != Kind::Array {
            return scanner.skip();
        }
        let tools = self.fingerprints.value(scanner)?;
        // An empty list is no tools.
        self.tools = (tools.chars > 2).then(|| message(Role::Tools, tools, Digest::default()));
        Ok(())
    }

    fn system<R: BufRead>(&mut self, scanner: &mut Scanner<R>) -> Read<()> {
        if scanner.kind()? == Kind::Plain {
            return scanner.skip();
        }
        let system = self.fingerprints.said(Role::System, scanner)?;
        self.system.push(system);
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
