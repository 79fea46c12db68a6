//! What people and programs read: text, JSON and CSV, one file a form.
//!
//! [`Text`](text::Text) and [`Json`](json::Json) show the same two things behind one trait; the
//! tables of single calls and tasks are CSV, and the engines' counters a Prometheus page.

use std::io::{self, Write};

use crate::sizing::case::{Case, Judged};
use crate::sizing::search::Search;

pub mod csv;
pub mod json;
mod numbers;
pub mod plot;
pub mod prometheus;
pub mod text;
mod trust;

/// A form in which results are shown.
pub trait Format {
    /// Shows one simulated fleet.
    ///
    /// # Errors
    /// If the output cannot be written.
    fn replay(&self, case: &Case, judged: &Judged, out: &mut dyn Write) -> io::Result<()>;

    /// Shows the search for a size.
    ///
    /// # Errors
    /// If the output cannot be written.
    fn size(&self, case: &Case, search: &Search<Judged>, out: &mut dyn Write) -> io::Result<()>;
}
