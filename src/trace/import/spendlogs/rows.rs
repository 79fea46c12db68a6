//! The rows that count: checked, with their text interned, and the tally of those left out.

use std::collections::BTreeMap;
use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

use super::BAD_ROWS_SHOWN;
use super::columns::{Column, Fault, Fields};
use super::metadata::scaffold;
use super::names::fitting;
use super::report::FileReport;
use super::time::{self, Micros, UtcOffset};
use crate::diag::{Error, Warning};
use crate::trace::record::{Name, Status};

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

/// A text that many rows share, by number; 0 is the empty text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Symbol(pub(super) u32);

impl Symbol {
    /// The empty text.
    pub(super) const EMPTY: Self = Self(0);

    /// Whether it is the empty text.
    pub(super) fn is_empty(self) -> bool {
        self == Self::EMPTY
    }

    /// The number as an index.
    pub(super) fn index(self) -> usize {
        self.0 as usize
    }
}

/// Texts by number.
#[derive(Debug)]
pub(super) struct Symbols {
    by_text: FxHashMap<Name, Symbol>,
    texts: Vec<Name>,
}

impl Symbols {
    fn new() -> Self {
        let mut symbols = Self { by_text: FxHashMap::default(), texts: Vec::new() };
        symbols.intern("");
        symbols
    }

    fn intern(&mut self, text: &str) -> Symbol {
        if let Some(&symbol) = self.by_text.get(text) {
            return symbol;
        }
        let number = u32::try_from(self.texts.len()).expect("more than u32::MAX different texts");
        let name: Name = Arc::from(text);
        self.texts.push(Arc::clone(&name));
        self.by_text.insert(name, Symbol(number));
        Symbol(number)
    }

    /// The text.
    pub(super) fn name(&self, symbol: Symbol) -> &Name {
        &self.texts[symbol.index()]
    }

    /// How many texts there are.
    pub(super) fn len(&self) -> usize {
        self.texts.len()
    }
}

/// One call as its row tells it.
#[derive(Clone, Debug)]
pub(super) struct Row {
    /// The row's primary key.
    pub(super) request: Name,
    /// Session id; empty if the row has none.
    pub(super) session: Symbol,
    /// Session that this one works for; empty if none was named.
    pub(super) parent: Symbol,
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
    /// Attempts before the recorded one.
    pub(super) retries: u32,
    /// Public model name that was asked for.
    pub(super) model: Symbol,
    /// API key.
    pub(super) key: Symbol,
    /// Team.
    pub(super) tenant: Symbol,
    /// End user as recorded.
    pub(super) end_user: Symbol,
    /// The key's user as recorded.
    pub(super) key_user: Symbol,
    /// The person, by the rule on end users.
    pub(super) user: Symbol,
    /// Scaffold.
    pub(super) profile: Symbol,
}

impl Row {
    /// Whether its token counts are the server's, so that contexts may be told apart by them.
    pub(super) fn is_counted(&self) -> bool {
        self.status == Status::Ok && self.prompt > 0
    }
}

/// What became of the rows.
#[derive(Clone, Debug, Default)]
pub(super) struct Counts {
    /// All rows of all files.
    pub(super) read: u64,
    /// Rows that cannot be read.
    pub(super) bad: u64,
    /// Rows whose request id came before.
    pub(super) duplicates: u64,
    /// Answers from the response cache.
    pub(super) cache_hits: u64,
    /// Rows of call types that generate no text.
    pub(super) other_types: BTreeMap<String, u64>,
    /// Prompts that were counted without their cached part.
    pub(super) uncached_prompts: u64,
    /// Request ids that look numbered, not random.
    pub(super) guessable_ids: u64,
}

/// Takes rows from all files.
#[derive(Debug)]
pub(super) struct Collector {
    /// The calls, in the order of the files.
    pub(super) rows: Vec<Row>,
    /// Their texts.
    pub(super) symbols: Symbols,
    /// Rows of each session id, calls or not, by symbol.
    pub(super) rows_of_session: Vec<u32>,
    /// What became of the rows.
    pub(super) counts: Counts,
    /// The first few bad rows.
    pub(super) bad_rows: Vec<Error>,
    /// What was read file by file.
    pub(super) files: Vec<FileReport>,
    /// What the files themselves make doubtful.
    pub(super) warnings: Vec<Warning>,
    /// The most rows that a page says its query has.
    pub(super) query_total: u64,
    seen: FxHashSet<Name>,
    naive_at: UtcOffset,
}

impl Collector {
    /// An empty one that takes timestamps without offset to be `naive_at`.
    pub(super) fn new(naive_at: UtcOffset) -> Self {
        Self {
            rows: Vec::new(),
            symbols: Symbols::new(),
            rows_of_session: Vec::new(),
            counts: Counts::default(),
            bad_rows: Vec::new(),
            files: Vec::new(),
            warnings: Vec::new(),
            query_total: 0,
            seen: FxHashSet::default(),
            naive_at,
        }
    }

    /// Takes one row, unless it is bad, a duplicate or no call.
    pub(super) fn take(&mut self, fields: &Fields<'_>) -> Result<(), Fault> {
        let row = self.checked(fields)?;
        self.counts.read += 1;
        if !self.seen.insert(Arc::clone(&row.request)) {
            self.counts.duplicates += 1;
            return Ok(());
        }
        let slot = row.session.index();
        if self.rows_of_session.len() <= slot {
            self.rows_of_session.resize(slot + 1, 0);
        }
        self.rows_of_session[slot] += 1;
        let call_type = fields.get(Column::CallType);
        if fields.get(Column::CacheHit).eq_ignore_ascii_case("true") {
            self.counts.cache_hits += 1;
        } else if !GENERATING.contains(&call_type) {
            *self.counts.other_types.entry(call_type.to_owned()).or_default() += 1;
        } else {
            self.counts.guessable_ids += u64::from(is_guessable(&row.request));
            self.counts.uncached_prompts += u64::from(row.cached.is_some_and(|cached| {
                number(fields, Column::PromptTokens).is_ok_and(|prompt| cached > prompt)
            }));
            self.rows.push(row);
        }
        Ok(())
    }

    /// Counts a row that cannot be used; the first few are kept to be shown.
    pub(super) fn reject(&mut self, error: Error) {
        self.counts.read += 1;
        self.counts.bad += 1;
        if self.bad_rows.len() < BAD_ROWS_SHOWN {
            self.bad_rows.push(error);
        }
    }

    /// The error that ends an import with bad rows, if there are any.
    pub(super) fn bad_rows_error(&self) -> Option<Error> {
        let (first, others) = self.bad_rows.split_first()?;
        let mut error = first.clone();
        for other in others {
            error = error.help(format!("also {other}"));
        }
        let (bad, read) = (self.counts.bad, self.counts.read);
        Some(error.help(format!("{bad} of {read} rows are bad; --skip-bad leaves them out")))
    }

    /// The calls by start. Equal starts go by request id, so that the order of a file is no matter.
    pub(super) fn in_order(&self) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.rows.len()).collect();
        order.sort_by(|&a, &b| {
            let (a, b) = (&self.rows[a], &self.rows[b]);
            (a.start, &a.request).cmp(&(b.start, &b.request))
        });
        order
    }

    fn checked(&mut self, fields: &Fields<'_>) -> Result<Row, Fault> {
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
        let start = self.instant(fields, Column::StartTime)?;
        let end = self.instant(fields, Column::EndTime)?;
        if end < start {
            let (start, end) = (fields.get(Column::StartTime), fields.get(Column::EndTime));
            let message = format!("found `{end}`, allowed: startTime (`{start}`) or later");
            return Err(Fault { column: Column::EndTime, message });
        }
        let first_token = match fields.get(Column::CompletionStartTime) {
            "" => None,
            _ => Some(self.instant(fields, Column::CompletionStartTime)?),
        };
        let prompt = number(fields, Column::PromptTokens)?;
        let output = number(fields, Column::CompletionTokens)?;
        let metadata = fields.metadata.as_ref();
        let metadata = metadata
            .map_err(|message| Fault { column: Column::Metadata, message: message.clone() })?;
        let failed = fields.get(Column::Status) == "failure" || metadata.is_failure();
        let status = match (failed, output > 0, metadata.client_gone()) {
            (true, false, _) => Status::Failed,
            (true, true, _) | (false, _, true) => Status::Aborted,
            (false, _, false) => Status::Ok,
        };
        // What LiteLLM writes for a call that was cut off is its own estimate: the server's counts
        // come with the last chunk.
        let cached = metadata.cached_tokens().filter(|_| status == Status::Ok);
        let prompt = prompt + cached.filter(|&cached| cached > prompt).unwrap_or(0);
        Ok(Row {
            request: Arc::from(request),
            session: self.symbols.intern(fields.get(Column::SessionId)),
            parent: self.symbols.intern(metadata.parent_session()),
            start,
            end,
            first_token: first_token.filter(|&at| start <= at && at < end),
            prompt,
            output,
            cached,
            status,
            retries: metadata.retries(),
            model: self.symbols.intern(&fitting(match fields.get(Column::ModelGroup) {
                "" => fields.get(Column::Model),
                group => group,
            })),
            key: self.symbols.intern(fields.get(Column::ApiKey)),
            tenant: self.symbols.intern(fields.get(Column::TeamId)),
            end_user: self.symbols.intern(fields.get(Column::EndUser)),
            key_user: self.symbols.intern(fields.get(Column::User)),
            user: self.symbols.intern(person(fields)),
            profile: self
                .symbols
                .intern(&fitting(scaffold(fields.user_agent.as_deref().unwrap_or_default()))),
        })
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

/// Claude Code puts account and session into the end user, which is no person then.
fn person<'f>(fields: &'f Fields<'_>) -> &'f str {
    match fields.get(Column::EndUser) {
        "" => fields.get(Column::User),
        end_user if end_user.contains("_session_") => fields.get(Column::User),
        end_user => end_user,
    }
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
pub(super) fn is_uuid(text: &str) -> bool {
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
