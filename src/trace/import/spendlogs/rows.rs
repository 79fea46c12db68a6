//! Checks rows and hands them on, short enough to keep; counts those that cannot be used.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use xxhash_rust::xxh3::xxh3_64;

use super::clock::Clock;
use super::columns::{Column, Fault, Fields};
use super::metadata::{Metadata, scaffold};
use super::names::fitting;
use super::report::FileReport;
use super::row::{Kind, Loose, Row};
use super::spool::{Room, Sorter};
use super::symbols::{Id, Symbols};
use super::time::{self, Micros, UtcOffset};
use super::{BAD_ROWS_SHOWN, Options, Progress};
use crate::diag::{Error, Result as Outcome, Warning};
use crate::trace::record::Status;

/// No model takes or gives as many tokens in one call.
const TOKENS_MAX: u64 = 20_000_000;

/// Call types in which a model generates text. Everything else (embeddings, images, reranking,
/// tool calls of MCP servers) is no load of the kind that is simulated.
const GENERATING: [&str; 12] = [
    "",
    "acompletion",
    "completion",
    "anthropic_messages",
    "aresponses",
    "responses",
    "atext_completion",
    "text_completion",
    "agenerate_content",
    "generate_content",
    "agenerate_content_stream",
    "generate_content_stream",
];

/// Takes rows from all files.
#[derive(Debug)]
pub(super) struct Collector {
    /// The rows, to be sorted by session and call.
    pub(super) rows: Sorter<Row>,
    /// Sessions that rows name as their parent.
    pub(super) parents: Sorter<Id>,
    /// The texts of the rows.
    pub(super) symbols: Symbols,
    /// All rows of all files.
    pub(super) read: u64,
    /// Rows that cannot be read.
    pub(super) bad: u64,
    /// The first few of them.
    pub(super) bad_rows: Vec<Error>,
    /// What was read file by file.
    pub(super) files: Vec<FileReport>,
    /// What the files themselves make doubtful.
    pub(super) warnings: Vec<Warning>,
    /// The most rows that a page says its query has.
    pub(super) query_total: u64,
    /// What the timestamps without an offset tell of their clock.
    pub(super) clock: Clock,
    /// Tokens in a block of the servers' caches: what all counts of cached tokens are multiples of.
    pub(super) block: u64,
    /// Why rows cannot be put aside any more.
    failure: Option<Error>,
    naive_at: UtcOffset,
    keep_ids: bool,
    last_parent: Id,
    progress: Arc<Progress>,
}

impl Collector {
    /// An empty one.
    pub(super) fn new(options: &Options) -> Self {
        let room = options.room();
        Self {
            rows: Sorter::new(&room),
            parents: Sorter::new(&Room { buffer_bytes: room.buffer_bytes / 8, ..room }),
            symbols: Symbols::new(),
            read: 0,
            bad: 0,
            bad_rows: Vec::new(),
            files: Vec::new(),
            warnings: Vec::new(),
            query_total: 0,
            clock: Clock::default(),
            block: 0,
            failure: None,
            naive_at: options.utc_offset,
            keep_ids: options.keep_ids,
            last_parent: Id::NONE,
            progress: Arc::clone(&options.progress),
        }
    }

    /// Takes one row, unless it is bad.
    pub(super) fn take(&mut self, fields: &Fields<'_>) -> Result<(), Fault> {
        let row = self.checked(fields)?;
        self.count();
        if self.failure.is_none()
            && let Err(error) = self.put_aside(row)
        {
            self.failure = Some(error);
        }
        Ok(())
    }

    /// Counts a row that cannot be used; the first few are kept to be shown.
    pub(super) fn reject(&mut self, error: Error) {
        self.count();
        self.bad += 1;
        if self.bad_rows.len() < BAD_ROWS_SHOWN {
            self.bad_rows.push(error);
        }
    }

    /// Fails once rows can no longer be put aside. Readers of long input ask now and then.
    ///
    /// # Errors
    /// If a temporary file cannot be written.
    pub(super) fn check(&self) -> Outcome<()> {
        self.failure.clone().map_or(Ok(()), Err)
    }

    /// The error that ends an import with bad rows, if there are any.
    pub(super) fn bad_rows_error(&self) -> Option<Error> {
        let (first, others) = self.bad_rows.split_first()?;
        let mut error = first.clone();
        for other in others {
            error = error.help(format!("also {other}"));
        }
        let (bad, read) = (self.bad, self.read);
        Some(error.help(format!("{bad} of {read} rows are bad; --skip-bad leaves them out")))
    }

    fn count(&mut self) {
        self.read += 1;
        self.progress.rows.store(self.read, Ordering::Relaxed);
    }

    fn put_aside(&mut self, row: Row) -> Outcome<()> {
        if !row.parent.is_none() && row.parent != self.last_parent && row.kind == Kind::Call {
            self.last_parent = row.parent;
            self.parents.push(row.parent)?;
        }
        let cached = row.cached.unwrap_or(0);
        self.block = gcd(self.block, cached);
        self.rows.push(row)
    }

    fn checked(&mut self, fields: &Fields<'_>) -> Result<Row, Fault> {
        let request = request(fields)?;
        let (start, end) = self.span(fields)?;
        let first_token = match fields.get(Column::CompletionStartTime) {
            "" => None,
            _ => Some(self.instant(fields, Column::CompletionStartTime)?),
        };
        let prompt = number(fields, Column::PromptTokens)?;
        let output = number(fields, Column::CompletionTokens)?;
        let metadata = fields.metadata.as_ref();
        let metadata = metadata
            .map_err(|message| Fault { column: Column::Metadata, message: message.clone() })?;
        let status = status(fields, metadata, output);
        // What LiteLLM writes for a call that was cut off is its own estimate: the server's counts
        // come with the last chunk.
        let cached = metadata.cached_tokens().filter(|_| status == Status::Ok);
        let cached = cached.filter(|&tokens| tokens <= TOKENS_MAX);
        let left_out = cached.filter(|&cached| cached > prompt);
        let session = fields.get(Column::SessionId);
        let Ids { unit, call, parent } = Ids::of(fields, metadata, request);
        let known = fields.prompt.as_ref();
        Ok(Row {
            unit,
            call,
            request: Id::of(request),
            parent,
            agent: Id::of(&fields.agent),
            caller: caller(fields),
            start,
            end,
            first_token: first_token.filter(|&at| start <= at && at < end),
            prompt: prompt + left_out.unwrap_or(0),
            output,
            cached,
            status,
            kind: self.kind(fields),
            loose: match session {
                "" => Loose::NoId,
                session if is_uuid(session) => Loose::Random,
                _ => Loose::Single,
            },
            stream: fields.stream,
            uncached_prompt: left_out.is_some(),
            guessable: is_guessable(request),
            retries: metadata.retries(),
            model: self.symbols.intern(&fitting(match fields.get(Column::ModelGroup) {
                "" => fields.get(Column::Model),
                group => group,
            })),
            key: self.symbols.intern(fields.get(Column::ApiKey)),
            tenant: self.symbols.intern(fields.get(Column::TeamId)),
            user: self.symbols.intern(person(fields)),
            profile: self
                .symbols
                .intern(&fitting(scaffold(fields.user_agent.as_deref().unwrap_or_default()))),
            name: if self.keep_ids { name(session, request) } else { "" }.into(),
            messages: known.map_or_else(Box::default, |all| all.messages[..].into()),
            cut: known.is_some_and(|all| !all.exact),
        })
    }

    fn kind(&mut self, fields: &Fields<'_>) -> Kind {
        let call_type = fields.get(Column::CallType);
        if fields.get(Column::CacheHit).eq_ignore_ascii_case("true") {
            Kind::CacheHit
        } else if GENERATING.contains(&call_type) {
            Kind::Call
        } else {
            Kind::Other(self.symbols.intern(&fitting(call_type)))
        }
    }

    fn span(&mut self, fields: &Fields<'_>) -> Result<(Micros, Micros), Fault> {
        let start = self.instant(fields, Column::StartTime)?;
        let end = self.instant(fields, Column::EndTime)?;
        let (start_text, end_text) = (fields.get(Column::StartTime), fields.get(Column::EndTime));
        if time::is_naive(start_text) {
            let ahead = self.naive_at.micros();
            self.clock.saw(start + ahead, end + ahead);
        }
        if end >= start {
            return Ok((start, end));
        }
        let mut message =
            format!("found `{end_text}`, allowed: startTime (`{start_text}`) or later");
        if time::is_naive(end_text) && Clock::is_set_back(end - start) {
            message += "; a local clock that was set back in between gives this";
        }
        Err(Fault { column: Column::EndTime, message })
    }

    fn instant(&self, fields: &Fields<'_>, column: Column) -> Result<Micros, Fault> {
        let text = fields.get(column);
        time::parse(text, self.naive_at).ok_or_else(|| {
            let found: String = text.chars().take(40).collect();
            let message = format!(
                "found `{found}`, allowed: a date and time such as `2026-11-29 16:41:29.788`"
            );
            Fault { column, message }
        })
    }
}

/// The id of a row whose texts are such that it can be used.
fn request<'f>(fields: &'f Fields<'_>) -> Result<&'f str, Fault> {
    for (column, _) in super::columns::COLUMNS {
        if fields.get(column).contains('\0') {
            return Err(Fault { column, message: "a NUL character, allowed: text".to_owned() });
        }
    }
    let request = fields.get(Column::RequestId);
    if request.is_empty() {
        let message = "found nothing, allowed: the id of the request".to_owned();
        return Err(Fault { column: Column::RequestId, message });
    }
    Ok(request)
}

fn status(fields: &Fields<'_>, metadata: &Metadata, output: u64) -> Status {
    let failed = fields.get(Column::Status) == "failure" || metadata.is_failure();
    match (failed, output > 0, metadata.client_gone()) {
        (true, false, _) => Status::Failed,
        (true, true, _) | (false, _, true) => Status::Aborted,
        (false, _, false) => Status::Ok,
    }
}

/// What a row belongs to.
struct Ids {
    unit: Id,
    call: Id,
    parent: Id,
}

impl Ids {
    fn of(fields: &Fields<'_>, metadata: &Metadata, request: &str) -> Self {
        let session = fields.get(Column::SessionId);
        let call = match fields.get(Column::CallId) {
            "" => metadata.call_id(),
            call => call,
        };
        let parent = metadata.parent_session();
        let parent = if parent == session { Id::NONE } else { Id::of(parent) };
        Self {
            // Without a session of its own a row belongs to whatever else its parent started so.
            unit: match session {
                "" if parent.is_none() => Id::NONE,
                "" => parent.with(Id::NONE),
                session => Id::of(session),
            },
            call: Id::of(if call.is_empty() { request } else { call }),
            parent,
        }
    }
}

/// What a session is called that begins with a row.
fn name<'f>(session: &'f str, request: &'f str) -> &'f str {
    if session.is_empty() { request } else { session }
}

/// Claude Code puts account and session into the end user, which is no person then.
fn person<'f>(fields: &'f Fields<'_>) -> &'f str {
    match fields.get(Column::EndUser) {
        "" => fields.get(Column::User),
        end_user if end_user.contains("_session_") => fields.get(Column::User),
        end_user => end_user,
    }
}

/// Who calls: key, end user and user, as recorded.
fn caller(fields: &Fields<'_>) -> u64 {
    let texts = [Column::ApiKey, Column::EndUser, Column::User].map(|column| fields.get(column));
    let hashes = texts.map(|text| xxh3_64(text.as_bytes()).to_le_bytes());
    xxh3_64(hashes.as_flattened())
}

fn gcd(mut a: u64, mut b: u64) -> u64 {
    while b > 0 {
        (a, b) = (b, a % b);
    }
    a
}

fn number(fields: &Fields<'_>, column: Column) -> Result<u64, Fault> {
    let text = fields.get(column);
    match text.parse() {
        Ok(tokens) if tokens <= TOKENS_MAX => Ok(tokens),
        _ => {
            let found: String = text.chars().take(40).collect();
            let message = format!("found `{found}`, allowed: an integer from 0 to {TOKENS_MAX}");
            Err(Fault { column, message })
        }
    }
}

/// Whether an id is too short for a random one: a server that counts its answers, or repeats their
/// ids, makes later rows overwrite nothing and be lost.
fn is_guessable(request: &str) -> bool {
    let start = request.find(['-', '_']).map_or(0, |at| at + 1);
    let tail = if is_uuid(request) { request } else { &request[start..] };
    tail.chars().filter(char::is_ascii_alphanumeric).count() < 16
}

/// Whether it is a UUID in its usual form, with hyphens.
fn is_uuid(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.len() == 36
        && bytes.iter().enumerate().all(|(at, byte)| match at {
            8 | 13 | 18 | 23 => *byte == b'-',
            _ => byte.is_ascii_hexdigit(),
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uuids_and_counters_are_told_apart() {
        let uuid = "84ba234e-ba6c-4998-8e04-e009117291ac";
        assert!(is_uuid(uuid) && !is_guessable(uuid));
        assert!(!is_uuid("4bf92f3577b34da6a3ce929d0e0e4736"), "a trace id");
        assert!(!is_uuid("84ba234e-ba6c-4998-8e04-e009117291a-"));
        assert!(!is_guessable("chatcmpl-89901333707547f0a1d2a93d77abcab1"));
        assert!(!is_guessable("msg_3cde4f7a-180a-43b7-ab15-8592b2037233"));
        assert!(is_guessable("chatcmpl-static-1") && is_guessable("17"));
    }

    #[test]
    fn a_person_is_the_end_user_unless_that_is_a_session() {
        let mut fields = Fields::default();
        fields.set(Column::User, "ana");
        assert_eq!(person(&fields), "ana");
        fields.set(Column::EndUser, "user_ana_account__session_1");
        assert_eq!(person(&fields), "ana");
        fields.set(Column::EndUser, "customer-77");
        assert_eq!(person(&fields), "customer-77");
    }
}
