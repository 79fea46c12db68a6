//! A scrape of every engine's `/metrics` at the end of a run, in Prometheus' text form.
//!
//! Names, buckets and meanings are vLLM's, so that dashboards and queries made for real engines
//! read a simulated one. What vLLM's counters leave out has names of our own beside them, with the
//! prefix `tonnage:`. The warm-up counts, as it would on a real engine.

use std::fmt::Write as _;
use std::io::{self, Write};

use crate::engine::metrics::EngineMetrics;
use crate::fleet::Run;
use crate::observe::records::{CallOutcome, CallRecord};
use crate::sizing::case::Case;
use crate::stats::Buckets;
use crate::trace::record::Finish;
use crate::units::{Span, Tokens};

/// Bounds of the time to first token, in milliseconds.
const TTFT_MS: [u64; 22] = [
    1, 5, 10, 20, 40, 60, 80, 100, 250, 500, 750, 1_000, 2_500, 5_000, 7_500, 10_000, 20_000,
    40_000, 80_000, 160_000, 640_000, 2_560_000,
];
/// Bounds of the time per output token, in milliseconds.
const TOKEN_MS: [u64; 19] = [
    10, 25, 50, 75, 100, 150, 200, 300, 400, 500, 750, 1_000, 2_500, 5_000, 7_500, 10_000, 20_000,
    40_000, 80_000,
];
/// Bounds of the phases of a request, in milliseconds.
const REQUEST_MS: [u64; 21] = [
    300, 500, 800, 1_000, 1_500, 2_000, 2_500, 5_000, 10_000, 15_000, 20_000, 30_000, 40_000,
    50_000, 60_000, 120_000, 240_000, 480_000, 960_000, 1_920_000, 7_680_000,
];
/// Bounds of the number of answers to one prompt.
const PARAMS_N: [u64; 5] = [1, 2, 5, 10, 20];

/// Writes the metrics of all engines.
///
/// # Errors
/// If the output cannot be written.
pub fn write(case: &Case, run: &Run, out: &mut dyn Write) -> io::Result<()> {
    let mut page = Page { text: String::new(), model: escaped(&case.scenario.serving.model.name) };
    let engines: Vec<Engine<'_>> =
        (0..run.engines.len()).map(|number| Engine::of(case, run, number)).collect();
    counters(&mut page, &engines);
    successes(&mut page, &engines);
    gauges(&mut page, &engines);
    histograms(&mut page, &engines, case.setup.engine.max_model_len);
    own(&mut page, &engines);
    out.write_all(page.text.as_bytes())
}

/// One engine's counters and the calls that it answered.
struct Engine<'a> {
    metrics: &'a EngineMetrics,
    calls: Vec<&'a CallRecord>,
    /// Why each of them ended.
    finishes: Vec<Finish>,
}

impl<'a> Engine<'a> {
    fn of(case: &Case, run: &'a Run, number: usize) -> Self {
        let answered = run.records.calls.iter().filter(|call| {
            call.outcome == CallOutcome::Completed
                && call.replica.is_some_and(|replica| replica.index() == number)
        });
        let calls: Vec<&CallRecord> = answered.collect();
        let finish = |call: &&CallRecord| {
            case.workload.sessions[call.session as usize].calls[call.call as usize].finish
        };
        let finishes = calls.iter().map(finish).collect();
        Self { metrics: &run.engines[number], calls, finishes }
    }

    fn sum(&self, tokens: impl Fn(&CallRecord) -> Tokens) -> u64 {
        self.calls.iter().map(|call| tokens(call).0).sum()
    }

    fn histogram(&self, bounds: &[u64], sample: impl Fn(&CallRecord) -> Option<u64>) -> Buckets {
        let mut buckets = Buckets::new(bounds);
        self.calls.iter().filter_map(|call| sample(call)).for_each(|sample| buckets.add(sample));
        buckets
    }
}

/// The page as it grows.
struct Page {
    text: String,
    model: String,
}

impl Page {
    fn head(&mut self, name: &str, kind: &str, help: &str) {
        let _ = writeln!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    fn sample(&mut self, name: &str, engine: usize, more: &str, value: impl std::fmt::Display) {
        let model = &self.model;
        let _ = writeln!(
            self.text,
            "{name}{{model_name=\"{model}\",engine=\"{engine}\"{more}}} {value}"
        );
    }

    /// A family of one sample an engine.
    fn family<T: std::fmt::Display>(
        &mut self,
        name: &str,
        kind: &str,
        help: &str,
        engines: &[Engine<'_>],
        value: impl Fn(&Engine<'_>) -> T,
    ) {
        self.head(name, kind, help);
        for (number, engine) in engines.iter().enumerate() {
            self.sample(name, number, "", value(engine));
        }
    }

    /// A histogram whose samples are `scale` to one of its unit.
    fn histogram(
        &mut self,
        name: &str,
        help: &str,
        scale: f64,
        engines: &[Engine<'_>],
        buckets: impl Fn(&Engine<'_>) -> Buckets,
    ) {
        self.head(name, "histogram", help);
        for (number, engine) in engines.iter().enumerate() {
            let buckets = buckets(engine);
            for (bound, upto) in buckets.cumulative() {
                let bound = bound.map_or("+Inf".to_owned(), |bound| number_text(bound, scale));
                self.sample(&format!("{name}_bucket"), number, &format!(",le=\"{bound}\""), upto);
            }
            self.sample(&format!("{name}_sum"), number, "", buckets.sum() as f64 / scale);
            self.sample(&format!("{name}_count"), number, "", buckets.count());
        }
    }
}

/// A bound in its unit, always with a decimal point as vLLM's client library writes it.
fn number_text(value: u64, scale: f64) -> String {
    let value = value as f64 / scale;
    if value.fract() == 0.0 { format!("{value:.1}") } else { value.to_string() }
}

fn escaped(name: &str) -> String {
    name.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

fn counters(page: &mut Page, engines: &[Engine<'_>]) {
    let mut counter = |name: &str, help: &str, value: &dyn Fn(&Engine<'_>) -> u64| {
        page.family(&format!("vllm:{name}_total"), "counter", help, engines, value);
    };
    counter("prefix_cache_queries", "Prefix cache queries, in tokens.", &|engine| {
        engine.metrics.prefix.queries
    });
    counter("prefix_cache_hits", "Prefix cache hits, in tokens.", &|engine| {
        engine.metrics.prefix.hits
    });
    counter("num_preemptions", "Preemptions.", &|engine| engine.metrics.num_preemptions);
    counter("prompt_tokens", "Prompt tokens, re-prefill apart.", &|engine| {
        engine.sum(|call| call.prompt)
    });
    counter("prompt_tokens_cached", "Prompt tokens found in the cache.", &|engine| {
        engine.sum(|call| call.cached)
    });
    counter("generation_tokens", "Generated tokens.", &|engine| engine.sum(|call| call.output));
}

fn successes(page: &mut Page, engines: &[Engine<'_>]) {
    page.head("vllm:request_success_total", "counter", "Requests by why they ended.");
    for (number, engine) in engines.iter().enumerate() {
        for (reason, finish) in [("stop", Finish::Stop), ("length", Finish::Length)] {
            let count = engine.finishes.iter().filter(|ended| **ended == finish).count();
            let label = format!(",finished_reason=\"{reason}\"");
            page.sample("vllm:request_success_total", number, &label, count);
        }
    }
}

fn gauges(page: &mut Page, engines: &[Engine<'_>]) {
    let mut gauge = |name: &str, help: &str, value: &dyn Fn(&EngineMetrics) -> f64| {
        page.family(&format!("vllm:{name}"), "gauge", help, engines, |engine| {
            value(engine.metrics)
        });
    };
    gauge("num_requests_running", "Requests in the running list at the end.", &|metrics| {
        metrics.num_requests_running as f64
    });
    gauge("num_requests_waiting", "Requests that wait at the end.", &|metrics| {
        metrics.num_requests_waiting as f64
    });
    gauge("kv_cache_usage_perc", "KV blocks held by requests; 1 is all.", &|metrics| {
        metrics.kv_cache_usage_perc
    });
}

fn histograms(page: &mut Page, engines: &[Engine<'_>], max_model_len: Tokens) {
    const NANOS: f64 = 1e9;
    let tokens = token_bounds(max_model_len.0);
    let mut sizes = |name: &str, help: &str, value: fn(&CallRecord) -> Tokens| {
        page.histogram(&format!("vllm:{name}"), help, 1.0, engines, |engine| {
            engine.histogram(&tokens, |call| Some(value(call).0))
        });
    };
    sizes("request_prompt_tokens", "Prompt tokens of a request.", |call| call.prompt);
    sizes("request_generation_tokens", "Generated tokens of a request.", |call| call.output);
    sizes("request_prefill_kv_computed_tokens", "Prompt tokens not found in the cache.", |call| {
        call.prompt - call.cached
    });
    page.histogram("vllm:request_params_n", "Answers asked for.", 1.0, engines, |engine| {
        engine.histogram(&PARAMS_N, |_| Some(1))
    });
    page.histogram(
        "vllm:iteration_tokens_total",
        "Prompt tokens of first tokens, and tokens generated, by step.",
        1.0,
        engines,
        |engine| engine.metrics.iteration_tokens.clone(),
    );
    page.histogram(
        "vllm:inter_token_latency_seconds",
        "Time between the tokens of a request.",
        NANOS,
        engines,
        |engine| engine.metrics.inter_token_latency.clone(),
    );
    let mut times = |name: &str, help: &str, ms: &[u64], value: Time| {
        let bounds: Vec<u64> = ms.iter().map(|&ms| Span::from_millis(ms).0).collect();
        page.histogram(&format!("vllm:{name}_seconds"), help, NANOS, engines, |engine| {
            engine.histogram(&bounds, |call| value(call).map(|span| span.0))
        });
    };
    times("time_to_first_token", "First token after arrival.", &TTFT_MS, |call| Some(call.ttft()));
    times("request_time_per_output_token", "Decode time per token.", &TOKEN_MS, |call| {
        call.itl_secs().map(Span::from_secs_f64)
    });
    times("e2e_request_latency", "Last token after arrival.", &REQUEST_MS, |call| {
        Some(call.last_token - call.dispatched)
    });
    times("request_queue_time", "First scheduled after queued.", &REQUEST_MS, |call| {
        Some(call.queue())
    });
    times("request_inference_time", "Last token after first scheduled.", &REQUEST_MS, |call| {
        Some(call.last_token - call.scheduled)
    });
    times("request_prefill_time", "First token after first scheduled.", &REQUEST_MS, |call| {
        Some(call.first_token - call.scheduled)
    });
    times("request_decode_time", "Last token after the first.", &REQUEST_MS, |call| {
        Some(call.last_token - call.first_token)
    });
}

/// A time of a call, if it has it.
type Time = fn(&CallRecord) -> Option<Span>;

/// 1, 2, 5, 10, 20, 50 and so on, up to the longest context.
fn token_bounds(max_model_len: u64) -> Vec<u64> {
    let decades = (0..).map(|exponent| 10u64.pow(exponent));
    let bounds = decades.flat_map(|decade| [1, 2, 5].map(|mantissa| mantissa * decade));
    bounds.take_while(|&bound| bound <= max_model_len).collect()
}

/// What vLLM's counters leave out.
fn own(page: &mut Page, engines: &[Engine<'_>]) {
    let mut counter = |name: &str, help: &str, value: &dyn Fn(&Engine<'_>) -> u64| {
        page.family(&format!("tonnage:{name}_total"), "counter", help, engines, value);
    };
    counter(
        "preempted_prefix_cache_queries",
        "Prefix cache queries of re-admissions after preemption, in tokens.",
        &|engine| engine.metrics.prefix.preempted_queries,
    );
    counter("preempted_prefix_cache_hits", "Their hits, in tokens.", &|engine| {
        engine.metrics.prefix.preempted_hits
    });
    counter("prefill_tokens", "Tokens prefilled, re-prefill included.", &|engine| {
        engine.sum(|call| call.prefilled)
    });
    counter(
        "reprefilled_tokens",
        "Tokens prefilled although the fleet had computed them before.",
        &|engine| engine.sum(CallRecord::recomputed),
    );
    counter("evicted_blocks", "KV blocks that lost cached content.", &|engine| {
        engine.metrics.evicted_blocks
    });
    page.family(
        "tonnage:prefix_cache_true_hit_ratio",
        "gauge",
        "1 - tokens prefilled / prompt tokens: re-prefill counts as a miss.",
        engines,
        |engine| {
            let prompt = engine.sum(|call| call.prompt).max(1) as f64;
            (1.0 - engine.sum(|call| call.prefilled) as f64 / prompt).max(0.0)
        },
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_bounds_go_up_to_the_context() {
        assert_eq!(token_bounds(1_000), [1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000]);
        assert_eq!(token_bounds(1_999).last(), Some(&1_000));
    }

    #[test]
    fn bounds_are_written_with_a_point() {
        assert_eq!(number_text(1_000_000, 1e9), "0.001");
        assert_eq!(number_text(2_560_000_000_000, 1e9), "2560.0");
        assert_eq!(number_text(16, 1.0), "16.0");
    }
}
