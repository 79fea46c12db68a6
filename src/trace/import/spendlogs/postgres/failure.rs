//! What went wrong between us and the server, in the server's words, with what helps.

use std::error::Error as StdError;

use postgres::error::{DbError, ErrorPosition, SqlState};

use crate::diag::Error;

/// The user's condition, and after how many characters of the statement it starts.
#[derive(Debug)]
pub(super) struct Condition<'q> {
    pub(super) sql: &'q str,
    pub(super) start: usize,
}

/// A URL that cannot be read. Its parser names options, never values.
pub(super) fn of_url(error: &postgres::Error) -> Error {
    Error::new(format!("the database URL cannot be read: {}", reasons(error)))
        .help("its form is postgres://USER@HOST:PORT/DATABASE?sslmode=require")
}

/// A connection that did not come about.
pub(super) fn of_connecting(error: &postgres::Error) -> Error {
    let text = reasons(error);
    let Some(refusal) = error.as_db_error() else {
        let error = Error::new(format!("cannot connect: {text}"));
        return match text.as_str() {
            _ if text.contains("password missing") => error.help(WHERE_PASSWORDS_ARE),
            _ if text.contains("UnknownIssuer") => {
                error.help("name the file of the authority's certificate with sslrootcert=FILE")
            }
            _ if text.contains("CaUsedAsEndEntity") => error
                .help("the server's certificate is its own authority; sslmode=require takes it"),
            _ if text.contains("does not support TLS") => {
                error.help("sslmode=disable or prefer connects without encryption")
            }
            _ => error,
        };
    };
    let error = in_its_words("cannot connect", refusal);
    match *refusal.code() {
        SqlState::INVALID_PASSWORD => error.help(WHERE_PASSWORDS_ARE),
        SqlState::INVALID_AUTHORIZATION_SPECIFICATION => {
            error.help("if the server wants encryption: sslmode=require (then no sslmode=disable)")
        }
        _ => error,
    }
}

const WHERE_PASSWORDS_ARE: &str = "a password is taken from the URL, else from PGPASSWORD, else \
                                   from ~/.pgpass (or PGPASSFILE)";

/// A failure after `rows` rows, where no part of the statement is the user's.
pub(super) fn of_reading(error: &postgres::Error, rows: u64) -> Error {
    of_statement(error, rows, "", None)
}

/// A failure of a statement after `rows` rows.
pub(super) fn of_statement(
    error: &postgres::Error,
    rows: u64,
    statement: &str,
    condition: Option<&Condition<'_>>,
) -> Error {
    let Some(refusal) = error.as_db_error() else {
        let text = match error.is_closed() {
            true => "the server closed the connection".to_owned(),
            false => reasons(error),
        };
        return lost(&text, rows);
    };
    let code = refusal.code();
    // Class 08: connection exception. Class 57P: the server shuts down or crashed.
    if code.code().starts_with("08") || code.code().starts_with("57P") {
        return lost(refusal.message(), rows);
    }
    let mut error = in_its_words("PostgreSQL", refusal);
    if let Some(ErrorPosition::Original(position)) = refusal.position() {
        error = match condition {
            Some(condition) => at_position(error, *position, statement, condition),
            None => error,
        };
    }
    match *code {
        SqlState::QUERY_CANCELED => error.help(
            "if the server's statement_timeout is too short: narrow the rows with --since and \
             --until, or add options=-c%20statement_timeout%3D0 to the URL",
        ),
        SqlState::INSUFFICIENT_PRIVILEGE => {
            error.help("the user of the URL needs USAGE on the schema and SELECT on the table")
        }
        SqlState::READ_ONLY_SQL_TRANSACTION => {
            error.help("an import only reads: a condition must not change anything")
        }
        SqlState::CHARACTER_NOT_IN_REPERTOIRE | SqlState::UNTRANSLATABLE_CHARACTER => error.help(
            "a text of the table is not in the database's encoding: find its row, and leave it \
             out with --where",
        ),
        SqlState::T_R_SERIALIZATION_FAILURE => error.help(
            "a standby gave up the snapshot: run the command again, in smaller parts with --since \
             and --until, or raise its max_standby_streaming_delay",
        ),
        _ => error,
    }
}

fn lost(text: &str, rows: u64) -> Error {
    Error::new(format!("the connection was lost after {rows} rows: {text}")).help(
        "nothing was written; run the command again, and it reads a new snapshot from the start",
    )
}

/// Message, SQLSTATE, detail and hint.
fn in_its_words(who: &str, refusal: &DbError) -> Error {
    let (message, code) = (refusal.message(), refusal.code().code());
    let mut error = Error::new(format!("{who}: {message} (SQLSTATE {code})"));
    for more in [refusal.detail(), refusal.hint()].into_iter().flatten() {
        error = error.help(more);
    }
    error
}

/// Points at the word of the condition that the server stumbled over.
fn at_position(error: Error, position: u32, statement: &str, condition: &Condition<'_>) -> Error {
    let position = usize::try_from(position).unwrap_or(usize::MAX);
    let length = condition.sql.chars().count();
    // The server counts from 1.
    let within = position.checked_sub(condition.start + 1);
    let error = error.in_field("--where");
    match within {
        Some(within) if within < length => {
            let rest: String = condition.sql.chars().skip(within).take(40).collect();
            error.help(format!("at character {} of the condition: {rest}", within + 1))
        }
        Some(_) if position <= statement.chars().count() => {
            error.help("at the end of the condition: it must be one whole condition")
        }
        _ => error.help("it must be one whole condition"),
    }
}

/// An error and what caused it.
fn reasons(error: &postgres::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        // Some errors repeat their cause.
        if !text.ends_with(&more) {
            text.push_str(": ");
            text.push_str(&more);
        }
        cause = error.source();
    }
    text
}
