//! What an import read, kept, left out and assumed, in the form that all formats share.

use super::BadRows;
use crate::diag::Warning;

/// What an import read, kept, left out and assumed.
///
/// `read` = `kept` + bad rows + all that was left out, in whatever the format has one of a line
/// or an entry.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// What is counted: `rows`, `sessions`.
    pub unit: &'static str,
    /// Files read.
    pub files: u64,
    /// Rows or sessions read.
    pub read: u64,
    /// Those that are in the trace.
    pub kept: u64,
    /// Those that cannot be used.
    pub bad: BadRows,
    /// Those left out for another reason.
    pub left_out: Vec<Count>,
    /// What was found, name and value, in the order to show.
    pub figures: Vec<(&'static str, String)>,
    /// How often something was assumed that the file does not say.
    pub assumed: Vec<Count>,
    /// What to check before the trace is trusted.
    pub warnings: Vec<Warning>,
}

/// How often something was the case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Count {
    /// How often.
    pub count: u64,
    /// What, so that the number reads well before it.
    pub what: &'static str,
}

impl Count {
    /// So many of what.
    #[must_use]
    pub const fn new(count: u64, what: &'static str) -> Self {
        Self { count, what }
    }
}

impl Report {
    /// Rows that are not in the trace.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.bad.count() + self.left_out.iter().map(|left| left.count).sum::<u64>()
    }

    /// Why they are not, without reasons that no row gave.
    #[must_use]
    pub fn reasons(&self) -> Vec<Count> {
        let bad = Count::new(self.bad.count(), "cannot be used");
        std::iter::once(bad)
            .chain(self.left_out.iter().cloned())
            .filter(|left| left.count > 0)
            .collect()
    }

    /// What must be known before the trace is trusted, for the sidecar.
    #[must_use]
    pub fn notes(&self) -> Vec<String> {
        let unit = self.unit;
        let dropped = self.reasons().into_iter();
        let dropped = dropped.map(|left| format!("{} {unit} left out: {}", left.count, left.what));
        let assumed = self.assumed.iter().filter(|assumed| assumed.count > 0);
        let assumed = assumed.map(|assumed| format!("{} {}", assumed.count, assumed.what));
        let warnings = self.warnings.iter().map(|warning| warning.0.clone());
        dropped.chain(assumed).chain(warnings).collect()
    }
}
