//! Reads the rows: one snapshot, one statement, a batch at a time.

use postgres::fallible_iterator::FallibleIterator as _;
use postgres::{Client, IsolationLevel, Row, Transaction};

use super::connect::Place;
use super::failure::{self, Condition};
use super::table::{Found, Table};
use super::values::Values;
use super::{Bound, Query};
use crate::diag::{Error, Result};
use crate::trace::import::spendlogs::columns::Column;
use crate::trace::import::spendlogs::report::FileReport;
use crate::trace::import::spendlogs::rows::Collector;
use crate::trace::import::spendlogs::table_form::Slot;
use crate::trace::import::spendlogs::time::{self, UtcOffset};

/// How many rows the server is asked for at a time. They are handed on one by one as they come.
const BATCH_ROWS: u16 = 2_000;

/// Dates in the form that is read, and instants (which LiteLLM does not write) in UTC.
const SETTINGS: &str = "SET LOCAL DateStyle TO 'ISO, YMD'; SET LOCAL TimeZone TO 'UTC'";

/// A key of the metadata with two thirds of its bytes, alike in all rows and never read.
const STATIC_KEY: &str = "model_map_information";

/// Reads what the query asks for.
pub(super) fn read(
    client: &mut Client,
    place: &Place,
    query: &Query,
    naive_at: UtcOffset,
    collector: &mut Collector,
) -> Result<()> {
    let failed = |error: &postgres::Error| failure::of_reading(error, 0);
    let mut transaction = client
        .build_transaction()
        .isolation_level(IsolationLevel::RepeatableRead)
        .read_only(true)
        .start()
        .map_err(|error| failed(&error))?;
    transaction.batch_execute(SETTINGS).map_err(|error| failed(&error))?;
    let table = Table::find(&mut transaction, &query.table, place.schema.as_deref())?;
    let select = Select::of(&table, query, naive_at);
    select.check(&mut transaction, &table)?;
    let mut values = Values::default();
    let rows = fetch(&mut transaction, &select, |row| {
        if let Err(error) = values.take(row, &table, collector) {
            collector.reject(error.in_file(&place.name));
        }
        collector.check()
    })?;
    if rows == 0 {
        return Err(no_rows(&mut transaction, &table, query));
    }
    let name = format!("{} {}", place.name, table.name);
    collector.files.push(FileReport { name, form: "PostgreSQL", rows });
    Ok(())
}

/// Runs the statement, hands on its rows until they are refused, and says how many there were.
fn fetch(
    transaction: &mut Transaction<'_>,
    select: &Select<'_>,
    mut each: impl FnMut(&Row) -> Result<()>,
) -> Result<u64> {
    let failed = |error: &postgres::Error, rows| {
        failure::of_statement(error, rows, &select.text, select.condition.as_ref())
    };
    let portal = transaction.bind(&select.text, &[]).map_err(|error| failed(&error, 0))?;
    let mut rows = 0;
    loop {
        let before = rows;
        let mut batch = transaction
            .query_portal_raw(&portal, i32::from(BATCH_ROWS))
            .map_err(|error| failed(&error, rows))?;
        while let Some(row) = batch.next().map_err(|error| failed(&error, rows))? {
            rows += 1;
            each(&row)?;
        }
        if rows - before < u64::from(BATCH_ROWS) {
            return Ok(rows);
        }
    }
}

/// The statement.
struct Select<'q> {
    text: String,
    condition: Option<Condition<'q>>,
}

impl<'q> Select<'q> {
    fn of(table: &Table, query: &'q Query, naive_at: UtcOffset) -> Self {
        let columns: Vec<String> = table.columns.iter().map(expression).collect();
        let mut text = format!("SELECT {} FROM {}", columns.join(", "), table.name);
        let mut word = " WHERE ";
        for (bound, relation) in [(query.since, ">="), (query.until, "<")] {
            if let Some(bound) = bound {
                text.push_str(word);
                text.push_str(&comparison(table, relation, bound, naive_at));
                word = " AND ";
            }
        }
        let condition = query.condition.as_deref().map(|sql| {
            // The line break ends a comment that the condition may end with.
            text.push_str(&format!("{word}(\n"));
            let start = text.chars().count();
            text.push_str(&format!("{sql}\n)"));
            Condition { sql, start }
        });
        Self { text, condition }
    }

    /// Sees to it that a condition is one whole condition. `a) OR (b` stands as well between
    /// parentheses as `a` does, and would get round the bounds, but not between brackets.
    fn check(&self, transaction: &mut Transaction<'_>, table: &Table) -> Result<()> {
        let Some(Condition { sql, .. }) = &self.condition else { return Ok(()) };
        // Without the NULL, nothing at all would be a condition.
        let before = "SELECT ARRAY[NULL,\n";
        let text = format!("{before}{sql}\n] FROM {}", table.name);
        let condition = Condition { sql, start: before.chars().count() };
        let failed =
            |error: &postgres::Error| failure::of_statement(error, 0, &text, Some(&condition));
        let statement = transaction.prepare(&text).map_err(|error| failed(&error))?;
        if statement.params().is_empty() {
            return Ok(());
        }
        Err(Error::new("a condition with a parameter such as $1, which nothing gives a value")
            .in_field("--where"))
    }
}

/// A column as text.
fn expression(Found { slot, name, kind }: &Found) -> String {
    match (slot, &**kind) {
        (Slot::Metadata, "jsonb") => format!(
            "(CASE jsonb_typeof(\"{name}\") WHEN 'object' THEN \"{name}\" - '{STATIC_KEY}' \
             ELSE \"{name}\" END)::text"
        ),
        _ => format!("\"{name}\"::text"),
    }
}

/// `"startTime"` held against an instant, on the clock of the column.
fn comparison(table: &Table, relation: &str, bound: Bound, naive_at: UtcOffset) -> String {
    let literal = match table.type_of(Column::StartTime) {
        "timestamptz" => format!("timestamptz '{}'", time::rfc3339(bound.0)),
        _ => format!("timestamp '{}'", time::on_clock(bound.0, naive_at)),
    };
    format!("\"{}\" {relation} {literal}", Column::StartTime.name())
}

/// The error for a query without rows, with the times that the table has.
fn no_rows(transaction: &mut Transaction<'_>, table: &Table, query: &Query) -> Error {
    let name = &table.name;
    let error = Error::new(format!("no row of {name} was asked for: nothing to import"));
    if query.since.is_none() && query.until.is_none() && query.condition.is_none() {
        return Error::new(format!("the table {name} is empty"));
    }
    let start = Column::StartTime.name();
    let times = format!("SELECT min(\"{start}\")::text, max(\"{start}\")::text FROM {name}");
    let row = transaction.query_one(&times, &[]);
    let times = row.and_then(|row| Ok((row.try_get(0)?, row.try_get(1)?)));
    match times {
        Ok((Some::<String>(first), Some::<String>(last))) => {
            error.help(format!("its calls started from {first} to {last}"))
        }
        _ => error.help("the table is empty"),
    }
}
