//! Accuracy as JSON, for programs. Errors are shares, times milliseconds.

use std::io::{self, Write};

use serde_json::{Map, Value, json};

use super::dimension;
use crate::validate::accuracy::{Accuracy, Group, Quantity};
use crate::validate::simulated::Compared;
use crate::validate::sweeps::{Fall, Level, Sweep};

/// `overall`, `groups` and the rest.
pub(super) fn write(
    accuracy: &Accuracy,
    rows: &[Compared],
    with_rows: bool,
    out: &mut dyn Write,
) -> io::Result<()> {
    let mut groups: Map<String, Value> = Map::new();
    for ((position, name), found) in &accuracy.groups {
        let of_dimension = groups.entry(dimension(*position)).or_insert_with(|| json!({}));
        of_dimension[name] = group(found);
    }
    let left_out: Vec<Value> = accuracy
        .left_out
        .iter()
        .map(|(reason, rows)| json!({ "reason": reason, "rows": rows }))
        .collect();
    let mut value = json!({
        "overall": group(&accuracy.overall),
        "groups": groups,
        "doubtful": group(&accuracy.doubtful),
        "noise_floor": group(&accuracy.noise),
        "left_out": left_out,
    });
    if with_rows {
        value["rows"] = rows.iter().map(row).collect();
    }
    finish(&value, out)
}

fn group(group: &Group) -> Value {
    let mut value = json!({ "rows": group.rows });
    for quantity in Quantity::ALL {
        value[quantity.name()] = match group.errors(quantity) {
            Some(errors) => json!({
                "n": errors.n,
                "mean": errors.mean,
                "median": errors.median,
                "p90": errors.p90,
                "bias": errors.bias,
            }),
            None => Value::Null,
        };
    }
    value
}

fn row(compared: &Compared) -> Value {
    let Compared { run, outcome } = compared;
    let mut value = json!({
        "line": run.line,
        "experiment": run.experiment,
        "model": run.model,
        "gpu": run.gpu,
        "note": run.note,
        "left_out": outcome.as_ref().err(),
    });
    for quantity in Quantity::ALL {
        let simulated = outcome.as_ref().ok().and_then(|found| quantity.of(&found.latencies));
        value[quantity.name()] =
            json!({ "measured": quantity.of(&run.measured), "simulated": simulated });
    }
    value
}

/// The largest fall of each sweep.
pub(super) fn sweeps(sweeps: &[Sweep], out: &mut dyn Write) -> io::Result<()> {
    let level = |level: Level| {
        json!({
            "concurrency": level.concurrency,
            "hit": level.hit,
            "ttft_ms": level.ttft_ms,
        })
    };
    let fall = |fall: Fall| {
        json!({
            "from": level(fall.from),
            "to": level(fall.to),
            "hit_ratio": fall.hit_ratio(),
            "ttft_ratio": fall.ttft_ratio(),
            "is_collapse": fall.is_collapse(),
        })
    };
    let all: Vec<Value> = sweeps
        .iter()
        .map(|sweep| {
            json!({
                "sweep": sweep.name,
                "model": sweep.model,
                "levels": sweep.levels.len(),
                "largest_fall": sweep.largest_fall().map(fall),
            })
        })
        .collect();
    finish(&json!({ "sweeps": all }), out)
}

fn finish(value: &Value, out: &mut dyn Write) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, value)?;
    out.write_all(b"\n")
}
