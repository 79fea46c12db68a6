//! Results of `vllm bench serve --save-result` as a measurement.

use std::path::Path;

use serde::Deserialize;

use crate::diag::{Error, Result};
use crate::validate::runs::{Latencies, Offered, Run};

/// Bytes of the longest file that is read.
const MAX_BYTES: u64 = 1 << 28;

/// What is read of a result. Times of single requests are there with `--save-detailed` only.
#[derive(Debug, Deserialize)]
struct Saved {
    model_id: Option<String>,
    completed: u64,
    #[serde(default)]
    failed: u64,
    total_input_tokens: u64,
    total_output_tokens: u64,
    request_throughput: Option<f64>,
    request_rate: Option<serde_json::Value>,
    burstiness: Option<f64>,
    max_concurrency: Option<u64>,
    mean_ttft_ms: Option<f64>,
    mean_tpot_ms: Option<f64>,
    mean_e2el_ms: Option<f64>,
    input_lens: Option<Vec<u64>>,
    output_lens: Option<Vec<u64>>,
}

/// Reads a result; `host` says what served. Without a model there, the result's own counts.
///
/// # Errors
/// A file that is no such result, or one that says too little.
pub fn read(path: &Path, host: &Run) -> Result<Run> {
    let file = path.display();
    let size = std::fs::metadata(path).map_err(|error| Error::io(path, "open", &error))?.len();
    if size > MAX_BYTES {
        return Err(Error::found(size, format!("at most {MAX_BYTES} bytes")).in_file(file));
    }
    let text = std::fs::read_to_string(path).map_err(|error| Error::io(path, "read", &error))?;
    parse(&text, host).map_err(|error| error.in_file(file))
}

fn parse(text: &str, host: &Run) -> Result<Run> {
    let saved: Saved = serde_json::from_str(text).map_err(|error| {
        Error::new(format!("no result of `vllm bench serve --save-result`: {error}"))
            .at_line(error.line() as u64)
            .at_column(error.column() as u64)
    })?;
    if saved.completed == 0 {
        return Err(Error::found(0, "at least one completed request").in_field("completed"));
    }
    if saved.failed > 0 {
        return Err(
            Error::found(saved.failed, "0: failed requests were load as well").in_field("failed")
        );
    }
    let mean = |total: u64| (total as f64 / saved.completed as f64).round().max(1.0) as u64;
    let model = if host.model.is_empty() { saved.model_id.clone() } else { None };
    let positive = |value: Option<f64>| value.filter(|value| value.is_finite() && *value > 0.0);
    Ok(Run {
        model: model.unwrap_or_else(|| host.model.clone()),
        isl: mean(saved.total_input_tokens),
        osl: mean(saved.total_output_tokens),
        offered: offered(&saved)?,
        requests: Some(saved.completed),
        lengths: lengths(&saved)?,
        measured: Latencies {
            ttft_ms: positive(saved.mean_ttft_ms),
            itl_ms: positive(saved.mean_tpot_ms),
            e2e_ms: positive(saved.mean_e2el_ms),
            rate_rps: positive(saved.request_throughput),
        },
        ..host.clone()
    })
}

/// Requests in flight if they are limited, else a rate, else all at once.
fn offered(saved: &Saved) -> Result<Offered> {
    let rate = match &saved.request_rate {
        None | Some(serde_json::Value::Null) => None,
        Some(value) if value.as_str() == Some("inf") => None,
        Some(value) => {
            let rate = value.as_f64().filter(|rate| *rate > 0.0);
            let allowed = || Error::found(value, "a rate above 0, or \"inf\"");
            Some(rate.ok_or_else(|| allowed().in_field("request_rate"))?)
        }
    };
    match (rate, saved.max_concurrency) {
        (None, seqs) => Ok(Offered::Concurrency(seqs.unwrap_or(saved.completed))),
        (Some(_), Some(_)) => {
            let text = "a rate and a limit of requests in flight at once are not modelled";
            Err(Error::new(text).in_field("max_concurrency"))
        }
        (Some(rate), None) if saved.burstiness.is_none_or(|shape| shape == 1.0) => {
            Ok(Offered::Random(rate))
        }
        (Some(rate), None) if saved.burstiness.is_some_and(f64::is_infinite) => {
            Ok(Offered::Rate(rate))
        }
        (Some(_), None) => {
            let found = saved.burstiness.unwrap_or_default();
            Err(Error::found(found, "1 (Poisson)").in_field("burstiness"))
        }
    }
}

/// Prompt and answer of each request, with `--save-detailed`.
fn lengths(saved: &Saved) -> Result<Vec<(u64, u64)>> {
    const MAX_TOKENS: u64 = 1 << 24;
    let (Some(inputs), Some(outputs)) = (&saved.input_lens, &saved.output_lens) else {
        return Ok(Vec::new());
    };
    if inputs.len() != outputs.len() || inputs.len() as u64 != saved.completed {
        let text = format!(
            "{} input_lens and {} output_lens, allowed: one each for the {} completed requests",
            inputs.len(),
            outputs.len(),
            saved.completed
        );
        return Err(Error::new(text).in_field("input_lens"));
    }
    let pairs = inputs.iter().copied().zip(outputs.iter().copied());
    let too_long = |(input, output): &(u64, u64)| *input > MAX_TOKENS || *output > MAX_TOKENS;
    if let Some((input, output)) = pairs.clone().find(too_long) {
        let found = input.max(output);
        return Err(Error::found(found, format!("at most {MAX_TOKENS}")).in_field("input_lens"));
    }
    Ok(pairs.map(|(input, output)| (input.max(1), output.max(1))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const RESULT: &str = r#"{"date": "20261101-101500", "model_id": "Qwen/Qwen3-8B",
        "num_prompts": 3, "completed": 3, "failed": 0, "request_rate": "inf",
        "burstiness": 1.0, "max_concurrency": 2, "duration": 5.0, "request_throughput": 0.6,
        "total_input_tokens": 300, "total_output_tokens": 60, "mean_ttft_ms": 30.5,
        "mean_tpot_ms": 8.25, "input_lens": [90, 100, 110], "output_lens": [20, 20, 20]}"#;

    fn host() -> Run {
        Run::bare("", "h100", "", "", 1)
    }

    #[test]
    fn a_result_is_a_closed_loop_with_its_lengths() {
        let run = parse(RESULT, &host()).unwrap();
        assert_eq!((run.isl, run.osl, run.offered), (100, 20, Offered::Concurrency(2)));
        assert_eq!(run.lengths, [(90, 20), (100, 20), (110, 20)]);
        assert_eq!((run.model.as_str(), run.measured.itl_ms), ("Qwen/Qwen3-8B", Some(8.25)));
        assert_eq!(run.measured.e2e_ms, None);
    }

    #[test]
    fn a_rate_is_random_arrivals() {
        let text = RESULT.replace(r#""inf""#, "4.0").replace(r#""max_concurrency": 2,"#, "");
        assert_eq!(parse(&text, &host()).unwrap().offered, Offered::Random(4.0));
        let error = parse(&RESULT.replace(r#""inf""#, "4.0"), &host()).unwrap_err().to_string();
        assert!(error.contains("max_concurrency: a rate and a limit"), "{error}");
    }

    #[test]
    fn what_says_too_little_is_refused() {
        for (from, to, what) in [
            (r#""completed": 3"#, r#""completed": 0"#, "at least one completed request"),
            (r#""failed": 0"#, r#""failed": 2"#, "failed requests were load as well"),
            ("[90, 100, 110]", "[90, 100]", "2 input_lens and 3 output_lens"),
            (r#""completed": 3,"#, "", "missing field `completed`"),
        ] {
            let error = parse(&RESULT.replace(from, to), &host()).unwrap_err().to_string();
            assert!(error.contains(what), "{error}");
        }
    }
}
