//! The values of a row, read as those of a CSV's row are.

use postgres::Row;

use super::table::Table;
use crate::diag::{Error, Result};
use crate::trace::import::spendlogs::columns::{Column, Fault, Fields, TEXT_BYTES_MAX};
use crate::trace::import::spendlogs::json::{Fault as JsonFault, Scanner};
use crate::trace::import::spendlogs::metadata::{Metadata, broken, user_agent_of_text};
use crate::trace::import::spendlogs::request::Request;
use crate::trace::import::spendlogs::rows::Collector;
use crate::trace::import::spendlogs::table_form::Slot;

/// Reads rows; keeps its room from one to the next.
pub(super) struct Values {
    request: Request,
}

impl Default for Values {
    fn default() -> Self {
        Self { request: Request::stored() }
    }
}

impl Values {
    /// Hands one row on.
    pub(super) fn take(
        &mut self,
        row: &Row,
        table: &Table,
        collector: &mut Collector,
    ) -> Result<()> {
        self.request.clear();
        let mut fields = Fields::default();
        for (index, column) in table.columns.iter().enumerate() {
            // NULL is empty, as in a CSV.
            let text = row.try_get::<_, Option<&str>>(index).map(Option::unwrap_or_default);
            let set = match text {
                Ok(text) => self.set(&mut fields, column.slot, text),
                Err(_) => Err("the field is not UTF-8".to_owned()),
            };
            set.map_err(|message| in_row(Error::new(message), row, table, &column.name))?;
        }
        let headers = &self.request.headers;
        let session = fields.get(Column::SessionId);
        let (agent, parent) = (headers.agent(session), headers.parent(session).to_owned());
        fields.agent = agent.to_owned().into();
        if let Ok(metadata) = &mut fields.metadata {
            metadata.or_parent_session(&parent);
        }
        fields.prompt = self.request.prompt();
        fields.stream = self.request.stream;
        collector.take(&fields).map_err(|Fault { column, message }| {
            in_row(Error::new(message), row, table, column.name())
        })
    }

    /// Takes a value, or says what is wrong with it.
    fn set<'a>(
        &mut self,
        fields: &mut Fields<'a>,
        slot: Slot,
        text: &'a str,
    ) -> std::result::Result<(), String> {
        let mut scanner = Scanner::new(text.as_bytes());
        let read = match slot {
            Slot::Text(_) if text.len() > TEXT_BYTES_MAX => {
                return Err(format!("longer than {TEXT_BYTES_MAX} bytes"));
            }
            Slot::Text(column) => {
                fields.set(column, text);
                Ok(())
            }
            Slot::Metadata => {
                fields.metadata = Metadata::parse(text);
                Ok(())
            }
            Slot::Tags => {
                fields.user_agent = user_agent_of_text(text);
                Ok(())
            }
            Slot::Request => self.request.read(&mut scanner),
            // Nearly always `{}`.
            Slot::Messages if text.starts_with('[') => self.request.messages(&mut scanner),
            Slot::Messages | Slot::Skipped => Ok(()),
        };
        read.map_err(|fault: JsonFault| {
            broken(&fault, (text.len() - scanner.into_source().len()) as u64)
        })
    }
}

/// Says which row and column an error is about.
fn in_row(error: Error, row: &Row, table: &Table, column: &str) -> Error {
    let index = table.columns.iter().position(|found| found.name == Column::RequestId.name());
    let request = index.and_then(|index| row.try_get::<_, Option<&str>>(index).ok().flatten());
    let request: String = request.unwrap_or_default().chars().take(80).collect();
    error.in_field(format!("request_id `{request}`: {column}"))
}
