//! Accuracy as text, for people.

use std::io::{self, Write};

use super::dimension;
use crate::validate::accuracy::{Accuracy, Group, Quantity};
use crate::validate::runs::{Offered, Run};
use crate::validate::simulated::{Compared, Simulated};
use crate::validate::sweeps::Sweep;

/// Rows, groups, all rows, and what was left out.
pub(super) fn write(
    accuracy: &Accuracy,
    rows: &[Compared],
    with_rows: bool,
    out: &mut dyn Write,
) -> io::Result<()> {
    if with_rows {
        self::rows(rows, out)?;
    }
    writeln!(out, "Errors in percent of what was measured: mean, median and 90th percentile of")?;
    writeln!(out, "their sizes, and the mean with its sign (+: the simulation is slower).\n")?;
    let quantities = Quantity::ALL.map(|quantity| format!("{:^29}", quantity.name()));
    writeln!(out, "{:34}{:>5} {}", "", "", quantities.join(" "))?;
    let columns = format!("{:>6} {:>6} {:>6} {:>7} ", "mean", "median", "p90", "sign");
    writeln!(out, "{:34}{:>5} {}", "group", "rows", [columns.as_str(); 4].join(" "))?;
    let mut last = None;
    for ((position, name), group) in &accuracy.groups {
        if last.replace(position) != Some(position) {
            writeln!(out, "{}", dimension(*position))?;
        }
        line(&format!("  {name}"), group, out)?;
    }
    line("all rows", &accuracy.overall, out)?;
    if accuracy.doubtful.rows > 0 {
        line("apart: rows with a note", &accuracy.doubtful, out)?;
    }
    if accuracy.noise.rows > 0 {
        line("noise floor: measured again", &accuracy.noise, out)?;
    }
    writeln!(out)?;
    for (reason, count) in &accuracy.left_out {
        writeln!(out, "left out: {count} rows: {reason}")?;
    }
    Ok(())
}

fn line(name: &str, group: &Group, out: &mut dyn Write) -> io::Result<()> {
    let percent = |share: f64| format!("{:.1}", share * 100.0);
    let cells = Quantity::ALL.map(|quantity| match group.errors(quantity) {
        Some(errors) => format!(
            "{:>6} {:>6} {:>6} {:>7} ",
            percent(errors.mean),
            percent(errors.median),
            percent(errors.p90),
            format!("{:+.1}", errors.bias * 100.0)
        ),
        None => format!("{:>6} {:>6} {:>6} {:>7} ", "-", "-", "-", "-"),
    });
    writeln!(out, "{name:34}{:>5} {}", group.rows, cells.join(" ").trim_end())
}

fn rows(rows: &[Compared], out: &mut dyn Write) -> io::Result<()> {
    for Compared { run, outcome } in rows {
        let name = name(run);
        match outcome {
            Err(reason) => writeln!(out, "{name}: left out: {reason}")?,
            Ok(Simulated { latencies, .. }) => {
                let mark = if run.is_doubtful() { " (apart)" } else { "" };
                let pairs = Quantity::ALL.iter().filter_map(|quantity| {
                    let (found, wanted) = (quantity.of(latencies)?, quantity.of(&run.measured)?);
                    let error = (found / wanted - 1.0) * 100.0;
                    let unit = if *quantity == Quantity::Throughput { "/s" } else { " ms" };
                    let name = quantity.name();
                    Some(format!("{name} {found:.2}{unit} for {wanted:.2} ({error:+.1} %)"))
                });
                let pairs: Vec<String> = pairs.collect();
                writeln!(out, "{name}{mark}: {}", pairs.join(", "))?;
            }
        }
    }
    writeln!(out)
}

fn name(run: &Run) -> String {
    let load = match run.offered {
        Offered::Concurrency(seqs) => format!("{seqs} in flight"),
        Offered::Rate(rate) | Offered::Random(rate) => format!("{rate:.3}/s"),
    };
    let Run { line, gpu, model, precision, tp, isl, osl, .. } = run;
    format!("line {line}: {model} {precision} on {tp} x {gpu}, {isl} + {osl} tokens, {load}")
}

/// The largest fall of each sweep.
pub(super) fn sweeps(sweeps: &[Sweep], out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "Largest fall of the hit rate within one doubling of concurrency:\n")?;
    for sweep in sweeps {
        let Sweep { name, model, levels } = sweep;
        let name = if model.is_empty() { name.clone() } else { format!("{name} ({model})") };
        let Some(fall) = sweep.largest_fall() else {
            writeln!(out, "{name}: {} levels, no doubling with a hit rate", levels.len())?;
            continue;
        };
        let mark = if fall.is_collapse() { "  COLLAPSE" } else { "" };
        writeln!(
            out,
            "{name}: {} -> {} in flight: hit {:.1} -> {:.1} %, first token {:.0} -> \
             {:.0} ms (x {:.1}){mark}",
            fall.from.concurrency,
            fall.to.concurrency,
            fall.from.hit * 100.0,
            fall.to.hit * 100.0,
            fall.from.ttft_ms,
            fall.to.ttft_ms,
            fall.ttft_ratio(),
        )?;
    }
    writeln!(out, "\nCOLLAPSE: hits more than halve, the first token takes over ten times as long.")
}
