//! One JSON object that is a row of the table or a logger's payload.

use std::io::BufRead;

use super::columns::{Column, Fault, Fields, TEXT_BYTES_MAX, Texts};
use super::json::{Fault as JsonFault, Read, Scanner};
use super::metadata::{Metadata, Owner, error_code, text, user_agent_any};
use super::request::Request;
use super::rows::Collector;
use super::time;

/// What a key of an object means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Key {
    /// A column of the table, of which many have the same name in payloads.
    Column(Column),
    /// The messages of a payload; in a row, those of old versions.
    Messages,
    /// The stored request of a row.
    Request,
    /// The id of a payload.
    Id,
    /// The session of a payload.
    TraceId,
    /// Whether a payload was streamed.
    Stream,
    /// Tools and system prompt of a payload.
    Parameters,
    /// Attempts, of a payload.
    HiddenParameters,
    /// Why a payload's call failed.
    Error,
    /// The client's program, of a payload.
    UserAgent,
    /// The rows of a page.
    Data,
    /// The rows of a query.
    Total,
    /// Whether there are more than that.
    Capped,
    /// Nothing that is read.
    Other,
}

/// The meaning of a key.
pub(super) fn key(name: &[u8]) -> Key {
    match name {
        b"messages" => Key::Messages,
        b"proxy_server_request" => Key::Request,
        b"id" => Key::Id,
        b"trace_id" => Key::TraceId,
        b"stream" => Key::Stream,
        b"model_parameters" => Key::Parameters,
        b"hidden_params" => Key::HiddenParameters,
        b"error_information" => Key::Error,
        b"user_agent" => Key::UserAgent,
        b"data" => Key::Data,
        b"total" => Key::Total,
        b"total_is_capped" => Key::Capped,
        _ => std::str::from_utf8(name).ok().and_then(Column::named).map_or(Key::Other, Key::Column),
    }
}

/// What an object is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    /// A row of the table.
    Row,
    /// A StandardLoggingPayload.
    Payload,
    /// Neither.
    Unknown,
}

/// What was read of one object.
#[derive(Debug, Default)]
pub(super) struct Element {
    texts: Texts,
    is_row: bool,
    is_payload: bool,
    metadata: Option<Result<Metadata, String>>,
    owner: Owner,
    user_agent: Option<String>,
    client: String,
    request: Request,
    id: String,
    trace_id: String,
    stream: Option<bool>,
    attempted_retries: String,
    client_gone: bool,
    /// The first value that could not be taken.
    fault: Option<Fault>,
}

impl Element {
    /// Forgets all, for the next object.
    pub(super) fn clear(&mut self) {
        let (mut texts, mut request) =
            (std::mem::take(&mut self.texts), std::mem::take(&mut self.request));
        texts.clear();
        request.clear();
        *self = Self { texts, request, ..Self::default() };
    }

    /// What it is.
    pub(super) fn what(&self) -> What {
        match (self.is_row, self.is_payload) {
            (true, _) => What::Row,
            (false, true) => What::Payload,
            (false, false) => What::Unknown,
        }
    }

    /// The text of its start.
    pub(super) fn start(&self) -> &[u8] {
        self.texts.bytes(Column::StartTime)
    }

    /// Reads the value of a key.
    pub(super) fn value<R: BufRead>(&mut self, scanner: &mut Scanner<R>, key: Key) -> Read<()> {
        match key {
            Key::Column(Column::Metadata) => {
                self.metadata = Some(Metadata::read_any(scanner, &mut self.owner)?);
            }
            Key::Column(Column::RequestTags) => self.user_agent = user_agent_any(scanner)?,
            Key::Column(column) => {
                self.is_row |= column == Column::RequestId;
                let read = self.texts.append(column, |bytes| scanner.scalar(bytes, TEXT_BYTES_MAX));
                return self.unless_too_long(column, read);
            }
            Key::Messages => {
                // Loggers get texts before they are cut.
                self.request.may_be_cut(self.is_row);
                self.request.messages(scanner)?;
            }
            Key::Request => {
                self.request.may_be_cut(true);
                let read = self.request.read(scanner);
                return self.unless_too_long(Column::RequestId, read);
            }
            Key::Id => self.id = text(scanner)?,
            Key::TraceId => {
                self.is_payload = true;
                self.trace_id = text(scanner)?;
            }
            Key::Stream => {
                // Null is what LiteLLM writes for a call that did not ask for a stream.
                self.stream = Some(text(scanner)? == "True");
            }
            Key::Parameters => self.request.parameters(scanner)?,
            Key::HiddenParameters => self.attempted_retries = attempted_retries(scanner)?,
            Key::Error => self.client_gone = error_code(scanner)? == "499",
            Key::UserAgent => self.client = text(scanner)?,
            Key::Data | Key::Total | Key::Capped | Key::Other => scanner.skip()?,
        }
        Ok(())
    }

    /// A value that is too long spoils its row, not the file.
    fn unless_too_long<T>(&mut self, column: Column, read: Read<T>) -> Read<()> {
        match read {
            Ok(_) => Ok(()),
            Err(JsonFault::TooLong(most)) => {
                let message = format!("longer than {most} bytes");
                self.fault.get_or_insert(Fault { column, message });
                Ok(())
            }
            Err(fault) => Err(fault),
        }
    }

    /// Hands it on as the row that it is.
    pub(super) fn take(&mut self, what: What, collector: &mut Collector) -> Result<(), Fault> {
        if let Some(fault) = self.fault.take() {
            return Err(fault);
        }
        let metadata = self.metadata.take().unwrap_or_else(|| Ok(Metadata::default()));
        let user_agent = self.user_agent.take();
        let mut fields = self.texts.fields()?;
        fields.metadata = metadata;
        fields.user_agent = user_agent;
        match what {
            What::Row => fields.stream = self.request.stream,
            What::Payload => self.complete(&mut fields),
            What::Unknown => {
                let message = "found nothing, allowed: the id of the request".to_owned();
                return Err(Fault { column: Column::RequestId, message });
            }
        }
        let session = fields.get(Column::SessionId).to_owned();
        let headers = self.request.headers.or(&self.owner.headers);
        fields.agent = headers.agent(&session).into();
        if let Ok(metadata) = &mut fields.metadata {
            metadata.or_parent_session(headers.parent(&session));
        }
        fields.prompt = self.request.prompt();
        collector.take(&fields)
    }

    /// Puts in place what a payload calls otherwise than the table.
    fn complete(&self, fields: &mut Fields<'_>) {
        let id = match (&*self.id, fields.get(Column::CallId)) {
            ("", call_id) => call_id.to_owned(),
            (id, _) => id.to_owned(),
        };
        fields.set(Column::RequestId, id);
        if fields.get(Column::SessionId).is_empty() {
            fields.set(Column::SessionId, self.trace_id.clone());
        }
        for column in [Column::StartTime, Column::EndTime, Column::CompletionStartTime] {
            if let Some(micros) = epoch_micros(fields.get(column)) {
                fields.set(column, time::rfc3339(micros));
            }
        }
        let owner = &self.owner;
        for (column, value) in [
            (Column::ApiKey, &owner.key),
            (Column::User, &owner.user),
            (Column::TeamId, &owner.team),
            (Column::EndUser, &owner.end_user),
        ] {
            if fields.get(column).is_empty() {
                fields.set(column, value.clone());
            }
        }
        if fields.user_agent.is_none() && !self.client.is_empty() {
            fields.user_agent = Some(self.client.clone());
        }
        if let Ok(metadata) = &mut fields.metadata {
            if !self.attempted_retries.is_empty() {
                metadata.set_retries(&self.attempted_retries);
            }
            if self.client_gone {
                metadata.set_client_gone();
            }
        }
        fields.stream = self.stream;
    }
}

/// `x-litellm-attempted-retries` among a payload's hidden parameters.
fn attempted_retries<R: BufRead>(scanner: &mut Scanner<R>) -> Read<String> {
    let mut found = String::new();
    scanner.object(
        |key| key == b"additional_headers",
        |scanner, is_headers| {
            if is_headers {
                found = super::metadata::entry(scanner, b"x-litellm-attempted-retries")?;
                return Ok(());
            }
            scanner.skip()
        },
    )?;
    Ok(found)
}

/// Seconds since the Unix epoch as a decimal, in microseconds. Digits beyond those are dropped.
fn epoch_micros(text: &str) -> Option<i64> {
    let (seconds, fraction) = text.split_once('.').unwrap_or((text, ""));
    let is_digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    if seconds.is_empty() || !is_digits(seconds) || !is_digits(fraction) {
        return None;
    }
    let seconds: i64 = seconds.parse().ok()?;
    let padded = format!("{fraction:0<6.6}");
    seconds.checked_mul(1_000_000)?.checked_add(padded.parse().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_since_the_epoch_are_read_exactly() {
        for (text, micros) in [
            ("1795971697.041888", Some(1_795_971_697_041_888)),
            ("1795971697.5", Some(1_795_971_697_500_000)),
            ("1795971697", Some(1_795_971_697_000_000)),
            ("1795971697.0418889", Some(1_795_971_697_041_888)),
            ("2026-11-29T17:01:37Z", None),
            ("", None),
            ("-5", None),
            ("99999999999999999999", None),
        ] {
            assert_eq!(epoch_micros(text), micros, "{text}");
        }
    }
}
