//! The columns of a table without a header, found by what they hold.
//!
//! Databases differ in the order of their columns: one that was created by some version of LiteLLM
//! has the order of that version's schema, with the columns of later versions behind. Each such
//! order is tried on the first rows; one is taken only if the values leave no other.

use super::columns::Column;
use super::json::Scanner;
use super::metadata::{Metadata, Owner};
use super::time::{self, UtcOffset};
use crate::diag::{Error, Result};

/// The columns that LiteLLM 1.60 had, in an order that has not changed since.
const FIRST: [&str; 25] = [
    "request_id",
    "call_type",
    "api_key",
    "spend",
    "total_tokens",
    "prompt_tokens",
    "completion_tokens",
    "startTime",
    "endTime",
    "completionStartTime",
    "model",
    "model_id",
    "model_group",
    "custom_llm_provider",
    "api_base",
    "user",
    "metadata",
    "cache_hit",
    "cache_key",
    "request_tags",
    "team_id",
    "end_user",
    "requester_ip_address",
    "messages",
    "response",
];

/// Later columns in the order in which they came, and before which column the schema has them;
/// those without one stand at its end.
const LATER: [(&str, Option<&str>); 11] = [
    ("proxy_server_request", None),
    ("session_id", Some("proxy_server_request")),
    ("status", Some("proxy_server_request")),
    ("mcp_namespaced_tool_name", Some("proxy_server_request")),
    ("organization_id", Some("end_user")),
    ("agent_id", Some("proxy_server_request")),
    ("request_duration_ms", Some("completionStartTime")),
    ("created_at", None),
    ("updated_at", None),
    ("billing_agent_id", None),
    ("litellm_call_id", None),
];

/// One row as texts.
type Row = Vec<Vec<u8>>;

/// The names of the columns of `rows`.
///
/// # Errors
/// No known order fits, or several that differ in a column that is read.
pub(super) fn find(rows: &[Row]) -> Result<Vec<String>> {
    let width = rows.first().map_or(0, Vec::len);
    let fitting: Vec<Vec<&str>> = orders(width)
        .into_iter()
        .filter(|order| rows.iter().all(|row| fits(order, row)) && is_proven(order, rows))
        .collect();
    let Some((found, others)) = fitting.split_first() else {
        return Err(unknown(&format!(
            "no header, and the {width} columns hold what fits no order that LiteLLM is known to \
             use"
        )));
    };
    if others.iter().any(|other| read_columns(other) != read_columns(found)) {
        return Err(unknown(&format!(
            "no header, and the first {} rows leave open which of {} orders of columns this is",
            rows.len(),
            fitting.len()
        )));
    }
    Ok(found.iter().map(|name| (*name).to_owned()).collect())
}

fn unknown(message: &str) -> Error {
    Error::new(message).help(
        "export with `csv header`, since the order of columns varies between databases; or name \
         the columns in their order with --columns request_id,call_type,...",
    )
}

/// All orders that tables with so many columns may have.
fn orders(width: usize) -> Vec<Vec<&'static str>> {
    let Some(later) = width.checked_sub(FIRST.len()).and_then(|count| LATER.get(..count)) else {
        return Vec::new();
    };
    let mut orders: Vec<Vec<&str>> = Vec::new();
    for created_with in 0..=later.len() {
        let (in_schema, added) = later.split_at(created_with);
        let mut order = FIRST.to_vec();
        for (name, before) in in_schema {
            let place = before.and_then(|before| order.iter().position(|other| *other == before));
            order.insert(place.unwrap_or(order.len()), name);
        }
        order.extend(added.iter().map(|(name, _)| name));
        if !orders.contains(&order) {
            orders.push(order);
        }
    }
    orders
}

/// Which of the columns that are read stands where.
fn read_columns<'a>(order: &[&'a str]) -> Vec<Option<&'a str>> {
    let is_read = |name: &&str| {
        Column::named(name).is_some() || matches!(*name, "messages" | "proxy_server_request")
    };
    order.iter().map(|name| Some(*name).filter(is_read)).collect()
}

fn fits(order: &[&str], row: &Row) -> bool {
    row.len() == order.len()
        && order.iter().zip(row).all(|(name, value)| holds(name, value))
        && owner_agrees(order, row)
}

/// Whether a value may be of a column.
fn holds(name: &str, value: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(value) else { return false };
    let is_time = || time::parse(text, UtcOffset::default()).is_some();
    match name {
        "request_id" => !text.is_empty(),
        "call_type" => {
            text.bytes().all(|byte| byte.is_ascii_lowercase() || matches!(byte, b'_' | b'/'))
        }
        "spend" => text.parse::<f64>().is_ok(),
        "total_tokens" | "prompt_tokens" | "completion_tokens" => text.parse::<u64>().is_ok(),
        "startTime" | "endTime" => is_time(),
        "completionStartTime" | "created_at" | "updated_at" => text.is_empty() || is_time(),
        "request_duration_ms" => text.is_empty() || text.parse::<i64>().is_ok(),
        "cache_hit" => matches!(text, "" | "None" | "True" | "False"),
        "status" => matches!(text, "" | "success" | "failure"),
        "metadata" | "request_tags" | "messages" | "response" | "proxy_server_request" => {
            text.is_empty() || text.starts_with(['{', '[', '"']) || text == "null"
        }
        // Names and ids, which are no JSON and no times.
        _ => !text.starts_with(['{', '[']) && !is_time(),
    }
}

/// Whether the metadata name the same key, user and team as the columns.
fn owner_agrees(order: &[&str], row: &Row) -> bool {
    let value = |name: &str| value(order, row, name);
    let owner = owner(value("metadata"));
    [(&owner.key, "api_key"), (&owner.user, "user"), (&owner.team, "team_id")]
        .into_iter()
        .all(|(said, name)| said.is_empty() || value(name) == said.as_bytes())
}

/// Whether some row says more than nothing: a key that the metadata repeat, and a status.
fn is_proven(order: &[&str], rows: &[Row]) -> bool {
    let some = |test: &dyn Fn(&Row) -> bool| rows.iter().any(test);
    let has_status = order.contains(&"status");
    some(&|row| !owner(value(order, row, "metadata")).key.is_empty())
        && (!has_status || some(&|row| !value(order, row, "status").is_empty()))
}

fn owner(metadata: &[u8]) -> Owner {
    let mut owner = Owner::default();
    // Metadata that cannot be read tell nothing here, and make their row bad later.
    let _ = Metadata::read(&mut Scanner::new(metadata), Some(&mut owner));
    owner
}

fn value<'a>(order: &[&str], row: &'a Row, name: &str) -> &'a [u8] {
    let index = order.iter().position(|other| *other == name);
    index.and_then(|index| row.get(index)).map_or(&[], Vec::as_slice)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_of_created_and_of_migrated_databases_are_known() {
        assert_eq!(orders(25), [FIRST.to_vec()]);
        assert!(orders(24).is_empty() && orders(37).is_empty());
        let of_1_74 = orders(28);
        assert!(
            of_1_74
                .iter()
                .any(|order| { order[25..] == ["proxy_server_request", "session_id", "status"] })
        );
        assert!(
            of_1_74
                .iter()
                .any(|order| { order[25..] == ["session_id", "status", "proxy_server_request"] })
        );
        let newest = orders(36).pop().unwrap();
        assert_eq!(newest[8..11], ["endTime", "request_duration_ms", "completionStartTime"]);
    }
}
