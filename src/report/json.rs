//! Results as JSON, for programs. Keys keep their order; times are in seconds, shares from 0 to 1.

use std::io::{self, Write};

use serde_json::{Value, json};

use super::Format;
use super::trust::Trust;
use crate::fleet::workload::Counts;
use crate::sizing::case::{Case, Judged};
use crate::sizing::search::{Candidate, Search};
use crate::sizing::slo::Slo;

/// Results as JSON.
#[derive(Clone, Copy, Debug)]
pub struct Json;

impl Format for Json {
    fn replay(&self, case: &Case, judged: &Judged, out: &mut dyn Write) -> io::Result<()> {
        let mut value = header(case, &judged.counts);
        if let Some(at) = judged.interrupted {
            value["partial"] = json!(true);
            value["simulated_s"] = json!(at.secs());
        }
        value["fleet"] = fleet(case, judged);
        write(&value, out)
    }

    fn size(&self, case: &Case, search: &Search<Judged>, out: &mut dyn Write) -> io::Result<()> {
        let mut value = header(case, &case.workload.counts);
        let tp = case.scenario.serving.tensor_parallel_size;
        value["met"] = json!(search.smallest.is_some());
        value["replicas"] = json!(search.smallest);
        value["gpus"] = json!(search.smallest.map(|replicas| replicas * tp));
        value["binding"] = json!(
            search
                .answer()
                .and_then(Judged::binding)
                .map(|position| case.targets[position].to_string())
        );
        value["failing_above_answer"] = json!(search.failing_above_answer());
        value["max_replicas"] = json!(search.max_replicas);
        value["tried"] = search.tried.iter().map(|judged| fleet(case, judged)).collect();
        write(&value, out)
    }
}

fn header(case: &Case, counts: &Counts) -> Value {
    let scenario = &case.scenario;
    let serving = &scenario.serving;
    json!({
        "scenario": scenario.name,
        "seed": scenario.seed,
        "model": serving.model.name,
        "weights": serving.weights.name(),
        "kv_cache_dtype": serving.kv_dtype.name(),
        "gpu": serving.gpu.name,
        "tensor_parallel_size": serving.tensor_parallel_size,
        "router": scenario.router.name(),
        "step_time": {
            "preset": case.setup.cost.preset().id,
            "calibrated": scenario.calibration.is_some(),
            "calibration": scenario.calibration.as_ref().map(|found| &found.file),
        },
        "trace": {
            "sessions": counts.sessions,
            "calls": counts.calls,
            "empty_outputs": counts.empty_outputs,
            "empty_prompts": counts.empty_prompts,
            "failures_without_duration": counts.failures_without_duration,
        },
        "warnings": serving
            .warnings
            .iter()
            .chain(case.setup.cost.warnings())
            .map(ToString::to_string)
            .collect::<Vec<_>>(),
        "notes": serving.notes.iter().chain(&case.notes).collect::<Vec<_>>(),
    })
}

fn fleet(case: &Case, judged: &Judged) -> Value {
    let pairs = case.targets.iter().zip(&judged.verdicts);
    let targets: Vec<Value> = pairs
        .map(|(target, verdict)| {
            json!({
                "target": Slo::to_string(target),
                "value": verdict.value,
                "met": verdict.met,
                "margin": verdict.margin,
            })
        })
        .collect();
    let mut value = json!({ "met": judged.met(), "targets": targets });
    value["trust"] = Trust::of(case, &judged.figures).json();
    value["figures"] = serde_json::to_value(&judged.figures).unwrap_or(Value::Null);
    value
}

fn write(value: &Value, out: &mut dyn Write) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, value)?;
    out.write_all(b"\n")
}
