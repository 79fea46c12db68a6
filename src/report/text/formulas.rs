//! What was worked out on paper beside what was simulated.

use std::io::{self, Write};

use comfy_table::Cell;

use super::{right, short, short_or_dash, table as new_table};
use crate::sizing::case::Case;
use crate::sizing::figures::Figures;
use crate::sizing::formulas::checks;

pub(super) fn table(case: &Case, figures: &Figures, out: &mut dyn Write) -> io::Result<()> {
    let checks = checks(case, figures);
    if checks.is_empty() {
        return Ok(());
    }
    let mut table = new_table(&["closed formulas", "formula", "simulated", "ratio"]);
    for check in &checks {
        let unit = if check.unit.is_empty() { "" } else { ", " };
        table.add_row([
            Cell::new(format!("{}{unit}{}", check.name, check.unit)),
            right(short(check.closed)),
            right(short_or_dash(check.simulated)),
            right(short_or_dash(check.ratio())),
        ]);
    }
    writeln!(out, "{table}")?;
    for check in &checks {
        if let Some(broken) = &check.broken {
            writeln!(out, "  {}: it does not hold that {broken}", check.name)?;
        }
    }
    writeln!(out)
}
