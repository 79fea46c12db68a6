//! The results of a sweep as CSV: a row per cell, a column per figure.

use std::collections::BTreeMap;
use std::io::Write;

use csv::Writer;
use serde_json::Value;

use crate::diag::{Error, Result};
use crate::sizing::sweep::store::Manifest;

/// Columns after those of the varied keys and before those of targets and figures.
const OWN_COLUMNS: [&str; 4] = ["run.seed", "cell", "refused", "met"];

/// Writes a row per cell, in the order of the plan. `read` gives what was kept of a cell that can
/// run; it is asked twice for each, so that many cells need no memory.
///
/// # Errors
/// If the output cannot be written, or what `read` refuses.
pub fn results(
    manifest: &Manifest,
    read: impl Fn(&str) -> Result<Value>,
    out: impl Write,
) -> Result<()> {
    // Figures without a sample are left out of some cells: columns come in the order in which the
    // first cell that has them names them.
    let mut columns: Vec<String> = Vec::new();
    let mut positions: BTreeMap<String, usize> = BTreeMap::new();
    for cell in manifest.cells.iter().filter_map(|row| row.cell.as_deref()) {
        for (name, _) in figures(&read(cell)?) {
            if !positions.contains_key(&name) {
                positions.insert(name.clone(), columns.len());
                columns.push(name);
            }
        }
    }
    let failed = |error: csv::Error| Error::new(format!("cannot write the results: {error}"));
    let mut table = Writer::from_writer(out);
    // A list of seeds is a key like any other, and has its column already.
    let keys = || manifest.keys.iter().map(|key| key != OWN_COLUMNS[0]);
    let names = manifest.keys.iter().zip(keys()).filter(|(_, is_key)| *is_key);
    let names = names.map(|(name, _)| name.as_str()).chain(OWN_COLUMNS);
    table.write_record(names.chain(columns.iter().map(String::as_str))).map_err(failed)?;
    for row in &manifest.cells {
        let values = row.values.iter().zip(keys()).filter(|(_, is_key)| *is_key);
        let mut record: Vec<String> = values.map(|(value, _)| value.clone()).collect();
        let result = row.cell.as_deref().map(&read).transpose()?;
        record.push(row.seed.map(|seed| seed.to_string()).unwrap_or_default());
        record.push(row.cell.clone().unwrap_or_default());
        record.push(row.refused.clone().unwrap_or_default());
        record.push(result.as_ref().map(|result| text(&result["met"])).unwrap_or_default());
        let first = record.len();
        record.resize(first + columns.len(), String::new());
        for (name, value) in result.as_ref().map(figures).unwrap_or_default() {
            record[first + positions[&name]] = value;
        }
        table.write_record(&record).map_err(failed)?;
    }
    table.flush().map_err(|error| failed(error.into()))
}

/// The targets and figures of a cell by the names of their columns.
fn figures(result: &Value) -> Vec<(String, String)> {
    let mut list = Vec::new();
    for target in result["targets"].as_array().into_iter().flatten() {
        list.push((text(&target["target"]), text(&target["value"])));
    }
    flatten("", &result["figures"], &mut list);
    list
}

/// `{"a": {"b": 1}}` is a column `a.b`. A list is a column for each of its elements by the
/// element's texts: `hit.segments.turn_boundary.calls`.
fn flatten(name: &str, value: &Value, list: &mut Vec<(String, String)>) {
    let inner = |part: &str| match name {
        "" => part.to_owned(),
        name => format!("{name}.{part}"),
    };
    match value {
        Value::Object(fields) => {
            fields.iter().for_each(|(key, value)| flatten(&inner(key), value, list));
        }
        Value::Array(elements) => {
            for element in elements {
                let fields = element.as_object().into_iter().flatten();
                let (texts, rest): (Vec<_>, Vec<_>) =
                    fields.partition(|(_, value)| value.is_string());
                let texts = texts.into_iter().filter_map(|(_, value)| value.as_str());
                let name = inner(&texts.collect::<Vec<_>>().join(" "));
                rest.iter().for_each(|(key, value)| flatten(&format!("{name}.{key}"), value, list));
            }
        }
        value => list.push((name.to_owned(), text(value))),
    }
}

fn text(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::sizing::sweep::store::Row;

    #[test]
    fn figures_are_columns_by_their_path() {
        let result = json!({
            "targets": [{ "target": "p95 ttft <= 10 s", "value": 2.5, "met": true }],
            "figures": {
                "gpus": 4,
                "kv": { "p50": 0.25, "burst": null },
                "bands": [{ "prompt": "0-8k", "cached": "< 50 %", "n": 3 }],
            },
        });
        let named = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let expected = [
            named("p95 ttft <= 10 s", "2.5"),
            named("gpus", "4"),
            named("kv.p50", "0.25"),
            named("kv.burst", ""),
            named("bands.0-8k < 50 %.n", "3"),
        ];
        assert_eq!(figures(&result), expected);
    }

    #[test]
    fn a_cell_without_a_figure_leaves_its_column_empty() {
        let row = |cell: Option<&str>, value: &str| Row {
            values: vec![value.to_owned()],
            seed: cell.is_some().then_some(1),
            cell: cell.map(str::to_owned),
            refused: cell.is_none().then(|| "does not fit".to_owned()),
        };
        let manifest = Manifest {
            format: 1,
            model_version: String::new(),
            plan: String::new(),
            keys: vec!["fleet.replicas".to_owned()],
            cells: vec![row(Some("a"), "1"), row(Some("b"), "2"), row(None, "3")],
        };
        let result = |figures: Value| json!({ "met": true, "targets": [], "figures": figures });
        let kept = |cell: &str| match cell {
            "a" => Ok(result(json!({ "x": 1 }))),
            _ => Ok(result(json!({ "y": 2, "x": 3 }))),
        };
        let mut out = Vec::new();
        results(&manifest, kept, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        let expected = "fleet.replicas,run.seed,cell,refused,met,x,y\n1,1,a,,true,1,\n\
                        2,1,b,,true,3,2\n3,,,does not fit,,,\n";
        assert_eq!(text, expected);
    }
}
