//! Where the time of tasks goes, as text.

use comfy_table::{Cell, Table};

use super::{right, table};
use crate::report::numbers::{percent, percent_or_dash, short};
use crate::sizing::figures::TaskTime;

/// One row a part.
pub(super) fn parts(time: &TaskTime) -> Table {
    let mut table = table(&["time of a task", "mean, s", "of task_llm", "of session"]);
    for part in &time.parts {
        table.add_row([
            Cell::new(part.name),
            right(short(part.mean_s)),
            right(percent_or_dash(part.of_task_llm)),
            right(percent(part.of_session)),
        ]);
    }
    let llm = time.task_llm_s;
    table.add_row([
        Cell::new("task_llm"),
        right(short(llm)),
        right(percent(1.0)),
        right(percent(if time.session_s > 0.0 { llm / time.session_s } else { 0.0 })),
    ]);
    table
}
