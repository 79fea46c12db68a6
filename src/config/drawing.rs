//! `[plot]`: how a sweep over the scenario's `[candidates]` is drawn.

use crate::diag::Result;
use crate::document::Document;

/// What `tonnage plot` draws unless the command line says otherwise.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Drawing {
    /// The key on the axis.
    pub x: Option<String>,
    /// The key whose values are lines.
    pub by: Option<String>,
    /// Panels by name, or columns of the results.
    pub panels: Vec<String>,
    /// The title.
    pub title: Option<String>,
    /// What stands below it.
    pub subtitle: Option<String>,
}

impl Drawing {
    /// Reads the section.
    ///
    /// # Errors
    /// A value of another type.
    pub fn read(document: &Document) -> Result<Self> {
        Ok(Self {
            x: document.text("plot.x")?,
            by: document.text("plot.by")?,
            panels: document.texts("plot.panels")?.unwrap_or_default(),
            title: document.text("plot.title")?,
            subtitle: document.text("plot.subtitle")?,
        })
    }
}
