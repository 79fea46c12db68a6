//! What people and programs read: text, JSON and CSV, one file a form.
//!
//! [`Text`](text::Text) and [`Json`](json::Json) show the same things behind one trait; the tables
//! of single calls, tasks and sweeps are CSV, and the engines' counters a Prometheus page.

use std::io::{self, Write};

use crate::sizing::candidates::Comparison;
use crate::sizing::capacity::Capacity;
use crate::sizing::case::{Case, Judged};
use crate::sizing::explain::Explanation;
use crate::sizing::replicates::Replicates;

pub mod csv;
pub mod json;
mod numbers;
pub mod plot;
pub mod prometheus;
pub mod sweep;
pub mod text;
mod trust;

/// A form in which results are shown.
pub trait Format {
    /// Shows one simulated fleet.
    ///
    /// # Errors
    /// If the output cannot be written.
    fn replay(&self, case: &Case, judged: &Judged, out: &mut dyn Write) -> io::Result<()>;

    /// Shows the search for a size, among all candidates.
    ///
    /// # Errors
    /// If the output cannot be written.
    fn size(&self, comparison: &Comparison, out: &mut dyn Write) -> io::Result<()>;

    /// Shows how much load a fleet carries.
    ///
    /// # Errors
    /// If the output cannot be written.
    fn capacity(
        &self,
        replicates: &Replicates,
        capacity: &Capacity,
        out: &mut dyn Write,
    ) -> io::Result<()>;

    /// Shows what binds a fleet, and what each lever changes.
    ///
    /// # Errors
    /// If the output cannot be written.
    fn explain(
        &self,
        replicates: &Replicates,
        explanation: &Explanation,
        out: &mut dyn Write,
    ) -> io::Result<()>;
}
