//! Accuracy as the tables of `docs/accuracy.md`.

use std::io::{self, Write};

use super::dimension;
use crate::validate::accuracy::{Accuracy, Group, Quantity};

/// One table of all groups; a dash where nothing was measured.
pub(super) fn write(accuracy: &Accuracy, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "| group | rows | ITL | E2E | TTFT | throughput |\n|---|---:|---|---|---|---|")?;
    line("**all rows**", &accuracy.overall, out)?;
    for ((position, name), group) in &accuracy.groups {
        line(&format!("{}: {name}", dimension(*position)), group, out)?;
    }
    line("apart: rows with a note", &accuracy.doubtful, out)?;
    line("noise floor: measured again", &accuracy.noise, out)?;
    writeln!(out)?;
    for (reason, count) in &accuracy.left_out {
        writeln!(out, "- left out: {count} rows: {reason}")?;
    }
    Ok(())
}

/// Mean / median / 90th percentile, and the mean with its sign.
fn line(name: &str, group: &Group, out: &mut dyn Write) -> io::Result<()> {
    let order = [Quantity::Itl, Quantity::E2e, Quantity::Ttft, Quantity::Throughput];
    let cells = order.map(|quantity| match group.errors(quantity) {
        Some(errors) => {
            let [mean, median, p90] = [errors.mean, errors.median, errors.p90].map(|e| e * 100.0);
            format!("{mean:.1} / {median:.1} / {p90:.1} ({:+.1})", errors.bias * 100.0)
        }
        None => "-".to_owned(),
    });
    writeln!(out, "| {name} | {} | {} |", group.rows, cells.join(" | "))
}
