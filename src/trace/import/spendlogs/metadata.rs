//! The few keys of a row's metadata that are needed; all others are skipped without being kept.
//!
//! Some keys hold whatever a client sent, so a value of an unexpected type counts as absent. Only
//! text that is no JSON at all makes a row bad.

use std::fmt;
use std::marker::PhantomData;

use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// More attempts than this are no count of attempts.
const RETRIES_MAX: u32 = 10_000;

/// What is read of a row's metadata.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Metadata {
    /// `failure`, or nothing.
    status: Scalar,
    /// Token counts, since LiteLLM 1.74.
    usage_object: Object<Usage>,
    /// Token details of LiteLLM 1.60, where there is no usage object.
    additional_usage_values: Object<Usage>,
    /// Set on failures and on answers that the client did not wait for.
    error_information: Object<ErrorInformation>,
    /// Attempts before the recorded one.
    attempted_retries: Scalar,
    /// The call's id, the same for all of its attempts, where the table has no column of it.
    litellm_call_id: Scalar,
    /// Whatever the client wanted to be logged.
    spend_logs_metadata: Object<ClientMetadata>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Usage {
    prompt_tokens_details: Object<PromptDetails>,
    cache_read_input_tokens: Scalar,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct PromptDetails {
    cached_tokens: Scalar,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ErrorInformation {
    error_code: Scalar,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ClientMetadata {
    parent_session_id: Scalar,
}

impl Metadata {
    /// Reads the text of the column. The error says where, never what, since it may be private.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            return Ok(Self::default());
        }
        let object: Object<Self> = serde_json::from_str(text).map_err(|error| {
            let (line, column) = (error.line(), error.column());
            format!("not valid JSON at line {line}, column {column} of the text")
        })?;
        Ok(object.0.unwrap_or_default())
    }

    /// Whether it says that the call failed.
    pub(super) fn is_failure(&self) -> bool {
        self.status.text() == "failure"
    }

    /// Whether the client went away before the answer was complete.
    pub(super) fn client_gone(&self) -> bool {
        self.error_information.0.as_ref().is_some_and(|error| error.error_code.text() == "499")
    }

    /// Attempts before the recorded one.
    pub(super) fn retries(&self) -> u32 {
        self.attempted_retries.text().parse().ok().filter(|&n| n <= RETRIES_MAX).unwrap_or(0)
    }

    /// The call's id, which all of its attempts share; empty if not recorded.
    pub(super) fn call_id(&self) -> &str {
        self.litellm_call_id.text()
    }

    /// The session that this one works for, as the client said.
    pub(super) fn parent_session(&self) -> &str {
        self.spend_logs_metadata.0.as_ref().map_or("", |client| client.parent_session_id.text())
    }

    /// Cached prompt tokens as the server counted them; `None` where it did not say.
    ///
    /// A server without prompt-token details leaves them null and the flat count at 0, so the flat
    /// count says something only where it is not 0.
    pub(super) fn cached_tokens(&self) -> Option<u64> {
        let usage = self.usage_object.0.as_ref().or(self.additional_usage_values.0.as_ref())?;
        let details = usage.prompt_tokens_details.0.as_ref();
        let flat = || usage.cache_read_input_tokens.count().filter(|&tokens| tokens > 0);
        details.and_then(|details| details.cached_tokens.count()).or_else(flat)
    }
}

/// A string or number kept as text; anything else is empty.
#[derive(Debug, Default)]
pub(super) struct Scalar(String);

impl Scalar {
    /// Its text.
    pub(super) fn text(&self) -> &str {
        &self.0
    }

    /// Its text, to keep.
    pub(super) fn into_text(self) -> String {
        self.0
    }

    fn count(&self) -> Option<u64> {
        self.0.parse().ok()
    }
}

impl<'de> Deserialize<'de> for Scalar {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(ScalarVisitor)
    }
}

struct ScalarVisitor;

impl<'de> Visitor<'de> for ScalarVisitor {
    type Value = Scalar;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_str<E>(self, text: &str) -> Result<Scalar, E> {
        Ok(Scalar(text.to_owned()))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Scalar, E> {
        Ok(Scalar(number.to_string()))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Scalar, E> {
        Ok(Scalar(number.to_string()))
    }

    fn visit_f64<E>(self, number: f64) -> Result<Scalar, E> {
        Ok(Scalar(number.to_string()))
    }

    fn visit_bool<E>(self, flag: bool) -> Result<Scalar, E> {
        Ok(Scalar(if flag { "True" } else { "False" }.to_owned()))
    }

    fn visit_unit<E>(self) -> Result<Scalar, E> {
        Ok(Scalar::default())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Scalar, A::Error> {
        while items.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Scalar::default())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Scalar, A::Error> {
        while entries.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Scalar::default())
    }
}

/// An object of the wanted shape; anything else is absent.
#[derive(Debug)]
pub(super) struct Object<T>(pub(super) Option<T>);

impl<T> Default for Object<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(ObjectVisitor(PhantomData)).map(Self)
    }
}

struct ObjectVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for ObjectVisitor<T> {
    type Value = Option<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_map<A: MapAccess<'de>>(self, entries: A) -> Result<Self::Value, A::Error> {
        T::deserialize(MapAccessDeserializer::new(entries)).map(Some)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
        while items.next_element::<IgnoredAny>()?.is_some() {}
        Ok(None)
    }

    fn visit_str<E>(self, _: &str) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(None)
    }
}

/// Metadata inside a JSON row: an object, or its text.
#[derive(Debug)]
pub(super) struct AnyMetadata(pub(super) Result<Metadata, String>);

impl<'de> Deserialize<'de> for AnyMetadata {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(MetadataVisitor).map(Self)
    }
}

struct MetadataVisitor;

impl<'de> Visitor<'de> for MetadataVisitor {
    type Value = Result<Metadata, String>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object, its text, or null")
    }

    fn visit_map<A: MapAccess<'de>>(self, entries: A) -> Result<Self::Value, A::Error> {
        Metadata::deserialize(MapAccessDeserializer::new(entries)).map(Ok)
    }

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Metadata::parse(text))
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(Ok(Metadata::default()))
    }
}

/// The User-Agent tag of the tags inside a JSON row: a list, or its text.
#[derive(Debug)]
pub(super) struct AnyTags(pub(super) Option<String>);

impl<'de> Deserialize<'de> for AnyTags {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(TagsVisitor).map(Self)
    }
}

struct TagsVisitor;

impl<'de> Visitor<'de> for TagsVisitor {
    type Value = Option<String>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of tags, its text, or null")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
        let mut found = None;
        while let Some(tag) = items.next_element::<Scalar>()? {
            found = found.or_else(|| user_agent([tag.text()]).map(str::to_owned));
        }
        Ok(found)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Self::Value, A::Error> {
        while entries.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(None)
    }

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok(user_agent_of_text(text))
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(None)
    }
}

/// The scaffold's own name in the text after `User-Agent: `: without version and remarks.
pub(super) fn scaffold(user_agent: &str) -> &str {
    let end = user_agent.find(['/', '(']).unwrap_or(user_agent.len());
    user_agent[..end].trim()
}

/// The text of the first User-Agent tag of a list of tags.
fn user_agent<'a>(tags: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    tags.into_iter().find_map(|tag| tag.strip_prefix("User-Agent: "))
}

/// The User-Agent tag of the text of the tags column; what is no list of tags has none.
pub(super) fn user_agent_of_text(text: &str) -> Option<String> {
    let tags: Vec<Scalar> = serde_json::from_str(text).ok()?;
    user_agent(tags.iter().map(Scalar::text)).map(str::to_owned)
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
        assert!(error.contains("line 1, column") && !error.contains("secret"), "{error}");
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
