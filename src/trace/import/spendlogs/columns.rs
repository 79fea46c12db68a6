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
}

impl Default for Fields<'_> {
    fn default() -> Self {
        Self {
            values: Default::default(),
            metadata: Ok(Metadata::default()),
            user_agent: None,
            prompt: None,
            stream: None,
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
