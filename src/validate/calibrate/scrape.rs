//! Two scrapes of vLLM's `/metrics` and the time between them as a measurement.
//!
//! Counters and histograms tell sums: requests, their tokens, and their latencies. They do not tell
//! when requests came, so the first token, which hangs on that, has no part in a fit.

use std::collections::BTreeMap;
use std::path::Path;

use crate::diag::{Error, Result};
use crate::validate::runs::{Latencies, Offered, Run};

/// Bytes of the longest page that is read.
const MAX_BYTES: u64 = 1 << 26;

/// The samples of a page, over all label sets.
#[derive(Clone, Debug, PartialEq)]
pub struct Page {
    file: String,
    sums: BTreeMap<String, f64>,
    engines: usize,
    models: Vec<String>,
}

impl Page {
    /// Reads a page.
    ///
    /// # Errors
    /// What is no page of vLLM's metrics.
    pub fn read(path: &Path) -> Result<Self> {
        let size = std::fs::metadata(path).map_err(|error| Error::io(path, "open", &error))?.len();
        let file = path.display().to_string();
        if size > MAX_BYTES {
            return Err(Error::found(size, format!("at most {MAX_BYTES} bytes")).in_file(file));
        }
        let text =
            std::fs::read_to_string(path).map_err(|error| Error::io(path, "read", &error))?;
        Self::parse(&text, &file)
    }

    fn parse(text: &str, file: &str) -> Result<Self> {
        let mut page =
            Self { file: file.to_owned(), sums: BTreeMap::new(), engines: 0, models: Vec::new() };
        for (number, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let wrong = || {
                let text = format!("found `{line}`, allowed: a sample in Prometheus' text form");
                Error::new(text).in_file(file).at_line(number as u64 + 1)
            };
            let (name, labels, rest) = match line.split_once('{') {
                Some((name, rest)) => {
                    let (labels, value) = rest.rsplit_once('}').ok_or_else(wrong)?;
                    (name, labels, value)
                }
                None => {
                    line.split_once(' ').map(|(name, rest)| (name, "", rest)).ok_or_else(wrong)?
                }
            };
            let Some(name) = name.trim().strip_prefix("vllm:") else { continue };
            if name.ends_with("_bucket") || name.ends_with("_created") {
                continue;
            }
            let value = rest.split_whitespace().next().and_then(|value| value.parse().ok());
            let value: f64 = value.filter(|value: &f64| value.is_finite()).ok_or_else(wrong)?;
            *page.sums.entry(name.to_owned()).or_default() += value;
            page.engines += usize::from(name == "num_requests_running");
            page.note_model(labels);
        }
        if page.sums.is_empty() {
            return Err(Error::new("no metric of vLLM (vllm:...) in it").in_file(file));
        }
        Ok(page)
    }

    fn note_model(&mut self, labels: &str) {
        let Some((_, rest)) = labels.split_once("model_name=\"") else { return };
        let Some((model, _)) = rest.split_once('"') else { return };
        if !self.models.iter().any(|known| known == model) {
            self.models.push(model.to_owned());
        }
    }

    fn sum(&self, names: &[&str]) -> Option<f64> {
        names.iter().find_map(|name| self.sums.get(*name).copied())
    }
}

/// The measurement between two scrapes, `seconds` apart; `host` says what served.
///
/// # Errors
/// Pages that do not follow each other, or from which the load cannot be told.
pub fn between(first: &Page, second: &Page, seconds: f64, host: &Run) -> Result<Run> {
    let page = &second.file;
    let refuse = |text: String| Error::new(text).in_file(page);
    if second.engines > 1 {
        return Err(refuse(format!("{} engines in one page", second.engines))
            .help("scrape one engine: of several, the load of each is not known"));
    }
    let grown = |names: &[&str]| -> Result<f64> {
        let name = names.first().copied().unwrap_or_default();
        let later = second.sum(names).ok_or_else(|| refuse(format!("vllm:{name} is missing")))?;
        let grown = later - first.sum(names).unwrap_or(0.0);
        if grown < 0.0 {
            return Err(refuse(format!("vllm:{name} has become smaller since {}", first.file))
                .help("give the earlier scrape first; the engine must not restart between them"));
        }
        Ok(grown)
    };
    let requests = grown(&["e2e_request_latency_seconds_count"])?;
    if requests < 20.0 {
        let text = format!("{requests} requests ended between the scrapes, allowed: 20 or more");
        return Err(refuse(text).help("let more time pass between them"));
    }
    if grown(&["num_preemptions_total", "num_preemptions"])? > 0.0 {
        let text = "requests were preempted: what a step did then cannot be told from counters";
        return Err(refuse(text.to_owned()).help("scrape while the KV cache is large enough"));
    }
    let mean = |name: &str| -> Result<Option<f64>> {
        let (sum, count) = (format!("{name}_sum"), format!("{name}_count"));
        let count = grown(&[&count])?;
        Ok((count > 0.0).then_some(grown(&[&sum])? / count))
    };
    let e2e = mean("e2e_request_latency_seconds")?;
    let itl_name = ["inter_token_latency_seconds", "time_per_output_token_seconds"]
        .into_iter()
        .find(|name| second.sums.contains_key(&format!("{name}_sum")));
    let itl = match itl_name {
        Some(name) => mean(name)?,
        None => None,
    };
    let itl = itl.ok_or_else(|| refuse("vllm:inter_token_latency_seconds is missing".into()))?;
    let prompt = mean("request_prompt_tokens")?.unwrap_or(0.0).round().max(1.0);
    let output = mean("request_generation_tokens")?.unwrap_or(0.0).round().max(1.0);
    let queries = grown(&["prefix_cache_queries_total", "prefix_cache_queries"])?;
    let hits = grown(&["prefix_cache_hits_total", "prefix_cache_hits"])?;
    let hit = if queries > 0.0 { (hits / queries).min(1.0) } else { 0.0 };
    let rate = requests / seconds;
    check_steady(first, second, rate, e2e).map_err(refuse)?;
    let model = match (host.model.as_str(), second.models.as_slice()) {
        ("", [only]) => only.clone(),
        ("", _) => return Err(refuse("the model is not told: give --model".to_owned())),
        (given, _) => given.to_owned(),
    };
    Ok(Run {
        model,
        experiment: format!("{} to {page}", first.file),
        isl: prompt as u64,
        osl: output as u64,
        offered: Offered::Rate(rate),
        cached_prefix: (hit * prompt).floor() as u64,
        measured: Latencies { itl_ms: Some(itl * 1e3), ..Latencies::default() },
        ..host.clone()
    })
}

/// Requests in flight by Little's law against what both pages show.
fn check_steady(
    first: &Page,
    second: &Page,
    rate: f64,
    e2e: Option<f64>,
) -> std::result::Result<(), String> {
    let shown = |page: &Page| {
        let running = page.sum(&["num_requests_running"])?;
        Some(running + page.sum(&["num_requests_waiting"]).unwrap_or(0.0))
    };
    let (Some(before), Some(after), Some(e2e)) = (shown(first), shown(second), e2e) else {
        return Err("num_requests_running or e2e_request_latency_seconds is missing".to_owned());
    };
    let (mean, by_little) = ((before + after) / 2.0, rate * e2e);
    // Two snapshots of a small number scatter, so a few requests more or less mean nothing.
    if by_little > 2.0 * mean + 4.0 || mean > 2.0 * by_little + 4.0 {
        return Err(format!(
            "the load was not steady: {mean} requests in flight at the scrapes, {by_little:.1} by \
             rate and latency"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(requests: f64, running: f64) -> String {
        let tokens = requests * 200.0;
        format!(
            "# HELP vllm:num_requests_running x\nvllm:num_requests_running{{engine=\"0\",\
             model_name=\"Qwen/Qwen3-8B\"}} {running}\nvllm:num_requests_waiting 0\n\
             vllm:num_preemptions_total 0\nprocess_open_fds 5\n\
             vllm:e2e_request_latency_seconds_sum {}\nvllm:e2e_request_latency_seconds_count \
             {requests}\nvllm:inter_token_latency_seconds_sum {}\n\
             vllm:inter_token_latency_seconds_bucket{{le=\"0.1\"}} 1\n\
             vllm:inter_token_latency_seconds_count {tokens}\n\
             vllm:request_prompt_tokens_sum {}\nvllm:request_prompt_tokens_count {requests}\n\
             vllm:request_generation_tokens_sum {tokens}\n\
             vllm:request_generation_tokens_count {requests}\n\
             vllm:prefix_cache_queries_total {}\nvllm:prefix_cache_hits_total {}\n",
            requests * 2.0,
            tokens * 0.01,
            requests * 1_000.0,
            requests * 1_000.0,
            requests * 250.0,
        )
    }

    fn run(first: &str, second: &str) -> std::result::Result<Run, String> {
        let first = Page::parse(first, "a.txt").unwrap();
        let second = Page::parse(second, "b.txt").map_err(|error| error.to_string())?;
        let host = Run::bare("", "h100", "", "", 1);
        between(&first, &second, 60.0, &host).map_err(|error| error.to_string())
    }

    #[test]
    fn counters_give_load_lengths_and_the_time_between_tokens() {
        let run = run(&page(100.0, 8.0), &page(340.0, 9.0)).unwrap();
        assert_eq!((run.isl, run.osl, run.cached_prefix), (1_000, 200, 250));
        assert_eq!((run.offered, run.model.as_str()), (Offered::Rate(4.0), "Qwen/Qwen3-8B"));
        assert!((run.measured.itl_ms.unwrap() - 10.0).abs() < 1e-9);
        // When requests came is not known, so the first token says nothing.
        assert_eq!((run.measured.ttft_ms, run.measured.e2e_ms), (None, None));
    }

    #[test]
    fn what_cannot_be_told_is_refused() {
        let (early, late) = (page(100.0, 8.0), page(340.0, 9.0));
        let preempted = late.replace("preemptions_total 0", "preemptions_total 3");
        for (first, second, what) in [
            (&late, &early, "has become smaller since a.txt"),
            (&early, &page(110.0, 8.0), "10 requests ended"),
            (&early, &preempted, "requests were preempted"),
            (&early, &page(340.0, 90.0), "the load was not steady"),
            (&early, &"process_open_fds 5\n".to_owned(), "no metric of vLLM"),
            (&early, &"vllm:x{ 5\n".to_owned(), "b.txt:1: found"),
        ] {
            let error = run(first, second).unwrap_err();
            assert!(error.contains(what), "{what}: {error}");
        }
    }
}
