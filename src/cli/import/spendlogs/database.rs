//! What `tonnage import spendlogs` may be told of a database.

use std::path::PathBuf;

use crate::diag::{Error, Result};
use crate::trace::import::spendlogs::{Bound, DatabaseUrl, Query, TableName, UtcOffset};

/// What may be said of a database, and of no file.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Of a database")]
pub struct DatabaseArgs {
    /// Only calls that started then or later: a date, or a date with a time
    #[arg(long, value_name = "WHEN")]
    since: Option<String>,
    /// Only calls that started before
    #[arg(long, value_name = "WHEN")]
    until: Option<String>,
    /// Only rows that meet this condition, in SQL, such as "team_id = 'search'"
    #[arg(long = "where", value_name = "SQL")]
    condition: Option<String>,
    /// The table, with its schema if it takes one [default: LiteLLM_SpendLogs]
    #[arg(long, value_name = "[SCHEMA.]TABLE")]
    table: Option<TableName>,
}

impl DatabaseArgs {
    /// The query, if the input is a database.
    ///
    /// # Errors
    /// Options that are for databases beside files, a URL beside another input, a bad bound.
    pub fn query(&self, inputs: &[PathBuf], utc_offset: UtcOffset) -> Result<Option<Query>> {
        let urls = inputs.iter().filter_map(|input| DatabaseUrl::of(input.to_str()?));
        match urls.collect::<Result<Vec<_>>>()?.pop() {
            None => self.of_files().map(|()| None),
            Some(url) if inputs.len() == 1 => self.ask(url, utc_offset).map(Some),
            Some(_) => {
                Err(Error::new("a database is an input of its own, without others beside it"))
            }
        }
    }

    fn ask(&self, url: DatabaseUrl, utc_offset: UtcOffset) -> Result<Query> {
        let bound = |text: &Option<String>, option: &str| {
            let bound = text.as_ref().map(|text| Bound::parse(text, utc_offset));
            bound.transpose().map_err(|error| error.in_field(option))
        };
        Ok(Query {
            url,
            table: self.table.clone().unwrap_or_default(),
            since: bound(&self.since, "--since")?,
            until: bound(&self.until, "--until")?,
            condition: self.condition.clone(),
        })
    }

    /// Refuses what only a database can be asked.
    fn of_files(&self) -> Result<()> {
        let given = [
            (self.since.is_some(), "--since"),
            (self.until.is_some(), "--until"),
            (self.condition.is_some(), "--where"),
            (self.table.is_some(), "--table"),
        ];
        match given.iter().find(|(given, _)| *given) {
            Some((_, option)) => Err(Error::new("this is for databases only, and here is a file")
                .help("the rows of a file are chosen when it is exported")
                .in_field(option)),
            None => Ok(()),
        }
    }
}

/// How it stands in the sidecar: the condition may tell who is who.
pub fn made_by(query: &Query) -> String {
    let mut text = String::new();
    for (bound, option) in [(query.since, " --since "), (query.until, " --until ")] {
        if let Some(bound) = bound {
            text.push_str(&format!("{option}{bound}"));
        }
    }
    if query.condition.is_some() {
        text.push_str(" --where ...");
    }
    text
}
