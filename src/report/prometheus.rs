//! A scrape of every engine's `/metrics` at the end of a run, in Prometheus' text form.
//!
//! Names, buckets and meanings are vLLM's, so that dashboards and queries made for real engines
//! read a simulated one. What vLLM's counters leave out has names of our own beside them, with the
//! prefix `tonnage:`. The warm-up counts, as it would on a real engine.

use std::fmt::Write as _;
use std::io::{self, Write};

use crate::engine::metrics::EngineMetrics;
use crate::fleet::GatewayUse;
use crate::fleet::observer::{About, Observer};
use crate::observe::records::{CallOutcome, CallRecord, TaskRecord, TurnRecord};
use crate::sizing::case::Case;
use crate::stats::Buckets;
use crate::trace::record::Finish;
use crate::units::{Span, Tokens};

mod gateway;

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

/// What the calls that engines answered add up to, warm-up included.
#[derive(Debug)]
pub struct Scrape {
    engines: Vec<Answered>,
}

/// What one engine answered.
#[derive(Clone, Debug)]
struct Answered {
    prompt: u64,
    cached: u64,
    output: u64,
    prefilled: u64,
    recomputed: u64,
    /// By why they ended: a stop token, the limit.
    ended: [u64; 2],
    sizes: [Buckets; SIZES.len()],
    params_n: Buckets,
    times: [Buckets; TIMES.len()],
}

/// A number of tokens of a call.
type Size = fn(&CallRecord) -> Tokens;

/// A histogram of calls by tokens: name, meaning, value.
const SIZES: [(&str, &str, Size); 3] = [
    ("request_prompt_tokens", "Prompt tokens of a request.", |call| call.prompt),
    ("request_generation_tokens", "Generated tokens of a request.", |call| call.output),
    ("request_prefill_kv_computed_tokens", "Prompt tokens not found in the cache.", |call| {
        call.prompt - call.cached
    }),
];

/// A time of a call, if it has it.
type Time = fn(&CallRecord) -> Option<Span>;

/// A histogram of calls by time: name, meaning, bounds in milliseconds, value.
const TIMES: [(&str, &str, &[u64], Time); 7] = [
    ("time_to_first_token", "First token after arrival.", &TTFT_MS, |call| Some(call.ttft())),
    ("request_time_per_output_token", "Decode time per token.", &TOKEN_MS, |call| {
        call.itl_secs().map(Span::from_secs_f64)
    }),
    ("e2e_request_latency", "Last token after arrival.", &REQUEST_MS, |call| {
        Some(call.last_token - call.dispatched)
    }),
    ("request_queue_time", "First scheduled after queued.", &REQUEST_MS, |call| Some(call.queue())),
    ("request_inference_time", "Last token after first scheduled.", &REQUEST_MS, |call| {
        Some(call.last_token - call.scheduled)
    }),
    ("request_prefill_time", "First token after first scheduled.", &REQUEST_MS, |call| {
        Some(call.first_token - call.scheduled)
    }),
    ("request_decode_time", "Last token after the first.", &REQUEST_MS, |call| {
        Some(call.last_token - call.first_token)
    }),
];

impl Scrape {
    /// Nothing answered yet by any of the engines.
    #[must_use]
    pub fn new(engines: u32, max_model_len: Tokens) -> Self {
        let tokens = token_bounds(max_model_len.0);
        let nanos =
            |ms: &[u64]| -> Vec<u64> { ms.iter().map(|&ms| Span::from_millis(ms).0).collect() };
        let engine = Answered {
            prompt: 0,
            cached: 0,
            output: 0,
            prefilled: 0,
            recomputed: 0,
            ended: [0; 2],
            sizes: SIZES.map(|_| Buckets::new(&*tokens)),
            params_n: Buckets::new(PARAMS_N),
            times: TIMES.map(|(_, _, ms, _)| Buckets::new(nanos(ms))),
        };
        Self { engines: vec![engine; engines as usize] }
    }
}

impl Observer for Scrape {
    fn call(&mut self, call: &CallRecord, about: &About<'_>) {
        let replica = call.replica.filter(|_| call.outcome == CallOutcome::Completed);
        let Some(engine) = replica.and_then(|replica| self.engines.get_mut(replica.index())) else {
            return;
        };
        engine.prompt += call.prompt.0;
        engine.cached += call.cached.0;
        engine.output += call.output.0;
        engine.prefilled += call.prefilled.0;
        engine.recomputed += call.recomputed().0;
        let finish = about.plan.class(call.call).finish;
        engine.ended[usize::from(finish == Finish::Length)] += 1;
        for (buckets, (.., size)) in engine.sizes.iter_mut().zip(SIZES) {
            buckets.add(size(call).0);
        }
        engine.params_n.add(1);
        for (buckets, (.., time)) in engine.times.iter_mut().zip(TIMES) {
            if let Some(span) = time(call) {
                buckets.add(span.0);
            }
        }
    }

    fn turn(&mut self, _: &TurnRecord, _: &About<'_>) {}

    fn task(&mut self, _: &TaskRecord, _: &About<'_>) {}
}

/// Writes the metrics of all engines, what they counted and what they answered, and behind them
/// those of the gateway.
///
/// # Errors
/// If the output cannot be written.
pub fn write(
    case: &Case,
    engines: &[EngineMetrics],
    scrape: &Scrape,
    gateway: Option<&GatewayUse>,
    out: &mut dyn Write,
) -> io::Result<()> {
    let mut page = Page { text: String::new(), model: escaped(&case.scenario.serving.model.name) };
    let engines: Vec<Engine<'_>> = engines
        .iter()
        .zip(&scrape.engines)
        .map(|(metrics, answered)| Engine { metrics, answered })
        .collect();
    counters(&mut page, &engines);
    successes(&mut page, &engines);
    gauges(&mut page, &engines);
    histograms(&mut page, &engines);
    own(&mut page, &engines);
    if let Some(used) = gateway {
        gateway::write(used, &mut page.text);
    }
    out.write_all(page.text.as_bytes())
}

/// One engine's counters and the calls that it answered.
struct Engine<'a> {
    metrics: &'a EngineMetrics,
    answered: &'a Answered,
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
    fn histogram<'a>(
        &mut self,
        name: &str,
        help: &str,
        scale: f64,
        engines: &'a [Engine<'a>],
        buckets: impl Fn(&'a Engine<'a>) -> &'a Buckets,
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
    counter("prompt_tokens", "Prompt tokens, re-prefill apart.", &|engine| engine.answered.prompt);
    counter("prompt_tokens_cached", "Prompt tokens found in the cache.", &|engine| {
        engine.answered.cached
    });
    counter("generation_tokens", "Generated tokens.", &|engine| engine.answered.output);
}

fn successes(page: &mut Page, engines: &[Engine<'_>]) {
    page.head("vllm:request_success_total", "counter", "Requests by why they ended.");
    for (number, engine) in engines.iter().enumerate() {
        for (reason, count) in ["stop", "length"].into_iter().zip(engine.answered.ended) {
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

fn histograms<'a>(page: &mut Page, engines: &'a [Engine<'a>]) {
    const NANOS: f64 = 1e9;
    for (place, (name, help, _)) in SIZES.iter().enumerate() {
        page.histogram(&format!("vllm:{name}"), help, 1.0, engines, |engine| {
            &engine.answered.sizes[place]
        });
    }
    page.histogram("vllm:request_params_n", "Answers asked for.", 1.0, engines, |engine| {
        &engine.answered.params_n
    });
    page.histogram(
        "vllm:iteration_tokens_total",
        "Prompt tokens of first tokens, and tokens generated, by step.",
        1.0,
        engines,
        |engine| &engine.metrics.iteration_tokens,
    );
    page.histogram(
        "vllm:inter_token_latency_seconds",
        "Time between the tokens of a request.",
        NANOS,
        engines,
        |engine| &engine.metrics.inter_token_latency,
    );
    for (place, (name, help, ..)) in TIMES.iter().enumerate() {
        page.histogram(&format!("vllm:{name}_seconds"), help, NANOS, engines, |engine| {
            &engine.answered.times[place]
        });
    }
}

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
        engine.answered.prefilled
    });
    counter(
        "reprefilled_tokens",
        "Tokens prefilled although the fleet had computed them before.",
        &|engine| engine.answered.recomputed,
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
            let prompt = engine.answered.prompt.max(1) as f64;
            (1.0 - engine.answered.prefilled as f64 / prompt).max(0.0)
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
