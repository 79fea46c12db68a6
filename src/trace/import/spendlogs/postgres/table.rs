//! Finds the table and its columns in the database's catalogue.

use postgres::Transaction;

use super::{TableName, failure};
use crate::diag::{Error, Result, nearest};
use crate::trace::import::spendlogs::columns::{COLUMNS, Column};
use crate::trace::import::spendlogs::table_form::Slot;

/// Tables, partitioned ones, views, materialised views and foreign tables of a name; those on the
/// search path first.
const FIND_TABLE: &str = "\
    SELECT c.oid, n.nspname::text, pg_catalog.pg_table_is_visible(c.oid) \
    FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace \
    WHERE c.relname::text = $1 AND n.nspname::text = coalesce($2, n.nspname::text) \
    AND c.relkind IN ('r', 'p', 'v', 'm', 'f') ORDER BY 3 DESC, 2";

/// Tables whose names are alike but for case and underscores.
const FIND_ALIKE: &str = "\
    SELECT n.nspname::text, c.relname::text \
    FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace \
    WHERE replace(lower(c.relname::text), '_', '') = replace(lower($1), '_', '') \
    AND c.relkind IN ('r', 'p', 'v', 'm', 'f') ORDER BY 1, 2 LIMIT 5";

const FIND_COLUMNS: &str = "\
    SELECT a.attname::text, t.typname::text \
    FROM pg_catalog.pg_attribute a JOIN pg_catalog.pg_type t ON t.oid = a.atttypid \
    WHERE a.attrelid = $1 AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum";

/// A table that holds what an import needs.
#[derive(Debug)]
pub(super) struct Table {
    /// With its schema.
    pub(super) name: TableName,
    /// The columns that are read and are there.
    pub(super) columns: Vec<Found>,
}

/// A column of the table.
#[derive(Debug)]
pub(super) struct Found {
    /// What becomes of it.
    pub(super) slot: Slot,
    /// Its name.
    pub(super) name: String,
    /// The name of its type.
    pub(super) kind: String,
}

impl Table {
    /// Finds the table. Without a schema in its name, `schema` is meant, else the search path,
    /// else the only schema that has one.
    pub(super) fn find(
        transaction: &mut Transaction<'_>,
        name: &TableName,
        schema: Option<&str>,
    ) -> Result<Self> {
        let schema = name.schema.as_deref().or(schema);
        let rows = transaction.query(FIND_TABLE, &[&name.name, &schema]);
        let rows = rows.map_err(|error| failure::of_reading(&error, 0))?;
        let mut found = Vec::new();
        for row in &rows {
            let place: (u32, String, bool) = (row.get(0), row.get(1), row.get(2));
            found.push(place);
        }
        let (oid, schema) = match &found[..] {
            [] => return Err(no_table(transaction, name, schema)),
            [(oid, schema, visible), others @ ..] if *visible || others.is_empty() => (oid, schema),
            _ => {
                let schemas: Vec<&str> = found.iter().map(|(_, schema, _)| &**schema).collect();
                return Err(Error::new(format!("{name} is in several schemas"))
                    .help(format!("say --table SCHEMA.TABLE: {}", schemas.join(", "))));
            }
        };
        let name = TableName { schema: Some(schema.clone()), name: name.name.clone() };
        let rows = transaction.query(FIND_COLUMNS, &[oid]);
        let rows = rows.map_err(|error| failure::of_reading(&error, 0))?;
        let names: Vec<(String, String)> =
            rows.iter().map(|row| (row.get(0), row.get(1))).collect();
        Ok(Self { columns: needed(&name, &names)?, name })
    }

    /// The type of a column; empty if it is not there.
    pub(super) fn type_of(&self, wanted: Column) -> &str {
        let found = self.columns.iter().find(|found| found.name == wanted.name());
        found.map_or("", |found| &found.kind)
    }
}

/// The columns that are read, or which are missing.
fn needed(table: &TableName, there: &[(String, String)]) -> Result<Vec<Found>> {
    let has = |wanted: &str| there.iter().any(|(name, _)| name == wanted);
    let required = COLUMNS.into_iter().filter(|(column, _)| column.is_required());
    let missing: Vec<&str> = required.map(|(_, name)| name).filter(|name| !has(name)).collect();
    if missing.is_empty() {
        let found = there.iter().filter_map(|(name, kind)| {
            let slot = Slot::named(name)?;
            Some(Found { slot, name: name.clone(), kind: kind.clone() })
        });
        return Ok(found.collect());
    }
    let mut error = Error::new(format!("the table {table} lacks {}", missing.join(", ")));
    for name in missing {
        let others = there.iter().map(|(other, _)| other.as_str());
        let near = nearest(name, others.filter(|other| Slot::named(other).is_none()));
        if let Some(near) = near {
            error = error.help(format!("`{near}` is there; LiteLLM calls it `{name}`"));
        }
    }
    Err(error)
}

/// The error for a table that is not there, with those that could be meant.
fn no_table(transaction: &mut Transaction<'_>, name: &TableName, schema: Option<&str>) -> Error {
    let error = match schema {
        Some(schema) => Error::new(format!("there is no table \"{}\" in {schema}", name.name)),
        None => Error::new(format!("there is no table {name} in this database")),
    };
    let Ok(alike) = transaction.query(FIND_ALIKE, &[&name.name]) else { return error };
    alike.iter().fold(error, |error, row| {
        let (schema, name) = (Some(row.get(0)), row.get(1));
        error.help(format!("did you mean {}?", TableName { schema, name }))
    })
}
