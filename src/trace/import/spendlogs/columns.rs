//! The columns that the importer reads, by the names they carry in the table.

use std::borrow::Cow;

use super::metadata::Metadata;
use super::prompt::Prompt;

/// A column of the table that the importer reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Column {
    RequestId,
    CallType,
    ApiKey,
    PromptTokens,
    CompletionTokens,
    StartTime,
    EndTime,
    CompletionStartTime,
    Model,
    ModelGroup,
    User,
    Metadata,
    CacheHit,
    RequestTags,
    TeamId,
    EndUser,
    SessionId,
    Status,
    CallId,
}

/// How many columns are read.
pub(super) const COUNT: usize = 19;

/// All of them with their names; those from `session_id` on came after LiteLLM 1.60, so an export
/// may lack them.
pub(super) const COLUMNS: [(Column, &str); COUNT] = [
    (Column::RequestId, "request_id"),
    (Column::CallType, "call_type"),
    (Column::ApiKey, "api_key"),
    (Column::PromptTokens, "prompt_tokens"),
    (Column::CompletionTokens, "completion_tokens"),
    (Column::StartTime, "startTime"),
    (Column::EndTime, "endTime"),
    (Column::CompletionStartTime, "completionStartTime"),
    (Column::Model, "model"),
    (Column::ModelGroup, "model_group"),
    (Column::User, "user"),
    (Column::Metadata, "metadata"),
    (Column::CacheHit, "cache_hit"),
    (Column::RequestTags, "request_tags"),
    (Column::TeamId, "team_id"),
    (Column::EndUser, "end_user"),
    (Column::SessionId, "session_id"),
    (Column::Status, "status"),
    (Column::CallId, "litellm_call_id"),
];

impl Column {
    /// Its name in the table.
    pub(super) fn name(self) -> &'static str {
        COLUMNS[self as usize].1
    }

    /// The column of that name, if it is one that is read.
    pub(super) fn named(name: &str) -> Option<Self> {
        COLUMNS.iter().find(|(_, known)| *known == name).map(|(column, _)| *column)
    }

    /// Whether every version of LiteLLM has it.
    pub(super) fn is_required(self) -> bool {
        !matches!(self, Self::SessionId | Self::Status | Self::CallId)
    }
}

/// One row as its form gave it: scalars as text, NULL and absent as empty.
#[derive(Debug)]
pub(super) struct Fields<'a> {
    values: [Cow<'a, str>; COUNT],
    /// The metadata, or why it cannot be read.
    pub(super) metadata: Result<Metadata, String>,
    /// The User-Agent tag's text.
    pub(super) user_agent: Option<String>,
    /// The messages of the request, where they are stored.
    pub(super) prompt: Option<Prompt>,
    /// Whether the answer was streamed, where that is said.
    pub(super) stream: Option<bool>,
    /// The agent within the session that made the call, where a stored header names it.
    pub(super) agent: Cow<'a, str>,
}

impl Default for Fields<'_> {
    fn default() -> Self {
        Self {
            values: Default::default(),
            metadata: Ok(Metadata::default()),
            user_agent: None,
            prompt: None,
            stream: None,
            agent: Cow::Borrowed(""),
        }
    }
}

impl<'a> Fields<'a> {
    /// The text of a column.
    pub(super) fn get(&self, column: Column) -> &str {
        &self.values[column as usize]
    }

    /// Sets the text of a column.
    pub(super) fn set(&mut self, column: Column, value: impl Into<Cow<'a, str>>) {
        self.values[column as usize] = value.into();
    }
}

/// A text of a column that is longer than this many bytes makes its row bad.
pub(super) const TEXT_BYTES_MAX: usize = 64 * 1024;

/// The texts of one row until all of it is read.
#[derive(Debug, Default)]
pub(super) struct Texts {
    bytes: Vec<u8>,
    spans: [(usize, usize); COUNT],
}

impl Texts {
    /// Forgets them.
    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.spans = Default::default();
    }

    /// Takes what `write` appends as the text of a column.
    pub(super) fn append<T>(&mut self, column: Column, write: impl FnOnce(&mut Vec<u8>) -> T) -> T {
        let start = self.bytes.len();
        let result = write(&mut self.bytes);
        self.spans[column as usize] = (start, self.bytes.len());
        result
    }

    /// The bytes of a column's text.
    pub(super) fn bytes(&self, column: Column) -> &[u8] {
        let (start, end) = self.spans[column as usize];
        &self.bytes[start..end]
    }

    /// The row, but for what is no text; or a column whose text is no UTF-8.
    pub(super) fn fields(&self) -> Result<Fields<'_>, Fault> {
        let mut fields = Fields::default();
        for (column, _) in COLUMNS {
            let text = std::str::from_utf8(self.bytes(column)).map_err(|error| {
                let byte = error.valid_up_to() + 1;
                Fault { column, message: format!("byte {byte} of the field is not UTF-8") }
            })?;
            fields.set(column, text);
        }
        Ok(fields)
    }
}

/// Why a row cannot be used.
#[derive(Debug)]
pub(super) struct Fault {
    /// The column at fault.
    pub(super) column: Column,
    /// What is wrong with it. It never repeats free text of the row.
    pub(super) message: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_in_the_order_of_the_enum() {
        for (index, (column, name)) in COLUMNS.into_iter().enumerate() {
            assert_eq!(column as usize, index);
            assert_eq!(column.name(), name);
            assert_eq!(Column::named(name), Some(column));
        }
    }
}
