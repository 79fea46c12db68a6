//! Rows of a real proxy, played again: through the gateway, against servers of the rates that those
//! behind the proxy were set to.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use flate2::read::GzDecoder;
use tonnage::config::gateway::FrontEnd;
use tonnage::config::scenario::Scenario;
use tonnage::engine::metrics::EngineMetrics;
use tonnage::engine::request::{Effect, Request};
use tonnage::engine::{Due, Engine, Gauges, Stuck};
use tonnage::fleet::workload::Workload;
use tonnage::fleet::{Progress, Run, Setup, run};
use tonnage::observe::records::{CallOutcome, CallRecord};
use tonnage::trace::import::spendlogs::{Options, import};
use tonnage::trace::lineage::{BlockKey, Path as Content};
use tonnage::trace::record::{Call, Status, Trace};
use tonnage::units::{RequestId, Span, Time, Tokens};

use super::given::setup;

const BLOCK: u64 = 16;
/// Blocks that a server caches before it drops those used longest ago.
const CACHE_BLOCKS: usize = 9_000;
/// Before the first token, whatever the prompt.
const FIRST: Span = Span::from_millis(30);
/// Tokens a second that are not in the cache.
const PREFILL_PER_S: u64 = 12_000;
/// Each token of the answer.
const TOKEN: Span = Span::from_millis(11);

/// What becomes of a request next.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Next {
    Admitted(Tokens),
    FirstToken,
    Finished(Tokens, Tokens),
}

/// The servers that answered the proxy: every request at the same speed, whatever else they do.
#[derive(Default)]
struct Server {
    /// When each block was used last, and the blocks in that order.
    used: BTreeMap<BlockKey, u64>,
    order: BTreeMap<u64, BlockKey>,
    uses: u64,
    ahead: BTreeSet<(Time, RequestId, Next)>,
}

impl Server {
    fn found(&self, path: &Content, prompt: Tokens) -> Tokens {
        // The last token of a prompt is always computed.
        let whole = ((prompt.0 - 1) / BLOCK) as usize;
        let keys = path.block_keys(BLOCK).take(whole);
        Tokens(keys.take_while(|key| self.used.contains_key(key)).count() as u64 * BLOCK)
    }

    fn keep(&mut self, path: &Content, tokens: Tokens) {
        for key in path.block_keys(BLOCK).take((tokens.0 / BLOCK) as usize) {
            self.uses += 1;
            if let Some(before) = self.used.insert(key, self.uses) {
                self.order.remove(&before);
            }
            self.order.insert(self.uses, key);
        }
        while self.used.len() > CACHE_BLOCKS {
            let (_, key) = self.order.pop_first().unwrap();
            self.used.remove(&key);
        }
    }
}

impl Engine for Server {
    fn submit(&mut self, now: Time, request: Request) {
        let Request { id, path, prompt, output, .. } = request;
        let found = self.found(&path, prompt);
        self.keep(&path, prompt);
        let computed = prompt - found;
        let first = now + FIRST + Span(computed.0 * 1_000_000_000 / PREFILL_PER_S);
        self.ahead.insert((now, id, Next::Admitted(found)));
        self.ahead.insert((first, id, Next::FirstToken));
        let end = first + Span(TOKEN.0 * output.0);
        self.ahead.insert((end, id, Next::Finished(output, computed)));
    }

    fn abort(&mut self, _: Time, request: RequestId) {
        self.ahead.retain(|(_, id, _)| *id != request);
    }

    fn warm(&mut self, path: &Content, tokens: Tokens) {
        self.keep(path, tokens);
    }

    fn cached(&mut self, _: Time, path: &Content, prompt: Tokens) -> Tokens {
        self.found(path, prompt)
    }

    fn due(&self) -> Option<Due> {
        let (at, _, next) = self.ahead.first()?;
        Some(match next {
            Next::Admitted(_) => Due::StepStarts(*at),
            Next::FirstToken | Next::Finished(..) => Due::StepEnds(*at),
        })
    }

    fn advance(&mut self, now: Time, effects: &mut Vec<Effect>) {
        while self.ahead.first().is_some_and(|(at, ..)| *at <= now) {
            let (_, request, next) = self.ahead.pop_first().unwrap();
            effects.push(match next {
                Next::Admitted(cached) => Effect::Admitted { request, cached, resumed: false },
                Next::FirstToken => Effect::FirstToken { request },
                Next::Finished(output, prefilled) => {
                    Effect::Finished { request, output, prefilled }
                }
            });
        }
    }

    fn stuck(&self) -> Option<Stuck> {
        None
    }

    fn gauges(&mut self, _: Time) -> Gauges {
        Gauges::default()
    }

    fn metrics(&self) -> EngineMetrics {
        EngineMetrics::default()
    }
}

fn rows() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/spendlogs/set-a.csv.gz")
}

/// The middle of some numbers, in seconds.
fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers[numbers.len() / 2]
}

/// The gateway's own time in the rows that tell it, in milliseconds.
fn overheads_ms() -> Vec<f64> {
    let file = GzDecoder::new(std::fs::File::open(rows()).unwrap());
    let mut reader = csv::Reader::from_reader(file);
    let place = reader.headers().unwrap().iter().position(|name| name == "metadata").unwrap();
    let told = reader.records().filter_map(|row| {
        const KEY: &str = "\"litellm_overhead_time_ms\": ";
        let row = row.unwrap();
        let (_, after) = row[place].split_once(KEY)?;
        after.split([',', '}']).next()?.trim().parse().ok()
    });
    told.collect()
}

/// The proxy that wrote the rows: one worker, three replicas of a model and one of another.
fn proxy(request_ms: f64) -> FrontEnd {
    let folder = tempfile::tempdir().unwrap();
    let deployment = |model: &str, port: u32| {
        format!(
            "  - model_name: {model}\n    litellm_params:\n      model: hosted_vllm/{model}\n      \
             api_base: http://127.0.0.1:{port}/v1\n"
        )
    };
    let list: String = (9_101..9_104).map(|port| deployment("agents-30b", port)).collect();
    let last = deployment("small-8b", 9_104);
    let yaml = format!(
        "model_list:\n{list}{last}\
         router_settings:\n  optional_pre_call_checks: [session_affinity]\n"
    );
    let config = folder.path().join("config.yaml");
    std::fs::write(&config, yaml).unwrap();
    let text = format!(
        "[engine]\nmodel = 'Llama-3.1-8B'\ngpu = 'h100-sxm'\n[gateway]\nconfig = '{}'\n\
         request_cpu_ms = {request_ms}\n",
        config.display()
    );
    let scenario = Scenario::parse(&text, "rows.toml", &[]).unwrap();
    scenario.gateway.unwrap().before(4).unwrap()
}

fn played(trace: &Trace, request_ms: f64) -> Run {
    let gateway = Some(proxy(request_ms));
    let setup = Setup { replicas: 4, gateway, every_step: false, ..setup() };
    let workload = Workload::new(trace, &BTreeMap::new());
    run(&setup, &workload, Server::default, &Progress::default())
}

/// What the calls took that were answered both times: as recorded, and in the simulation.
fn both(
    trace: &Trace,
    run: &Run,
    recorded: fn(&Call) -> Option<Span>,
    simulated: fn(&CallRecord) -> Span,
) -> (f64, f64, usize) {
    let (mut before, mut now) = (Vec::new(), Vec::new());
    for record in &run.records.calls {
        let call = &trace.sessions[record.session as usize].calls[record.call as usize];
        let span = recorded(call).filter(|_| call.status == Status::Ok);
        if let Some(span) = span.filter(|_| record.outcome == CallOutcome::Completed) {
            before.push(span.secs());
            now.push(simulated(record).secs());
        }
    }
    let calls = now.len();
    (median(before), median(now), calls)
}

#[test]
fn rows_of_a_real_proxy_take_as_long_again() {
    let overheads = overheads_ms();
    let overhead = median(overheads.clone());
    assert_eq!((overheads.len(), overhead), (85, 18.899));
    let options = Options { turn_gap: Span::from_secs(4), ..Options::default() };
    let trace = import(&[rows()], &options).unwrap().trace;
    let run = played(&trace, overhead);
    let (before, now, calls) = both(&trace, &run, |call| call.seen_duration, CallRecord::e2e);
    let (first, first_now, streamed) = both(&trace, &run, |call| call.seen_ttft, CallRecord::ttft);
    assert_eq!((calls, streamed), (234, 195));
    assert!((now / before - 1.0).abs() < 0.10, "median duration {before} s, simulated {now} s");
    // What docs/gateway.md says of it.
    let page = include_str!("../../docs/gateway.md");
    let off = |now: f64, before: f64| format!("{:+.1} %", 100.0 * (now / before - 1.0));
    for row in [
        format!("| median duration | {before:.3} s | {now:.3} s | {} |", off(now, before)),
        format!("| median TTFT | {first:.3} s | {first_now:.3} s | {} |", off(first_now, first)),
    ] {
        assert!(page.contains(&row), "docs/gateway.md has not the row\n{row}");
    }
    let gateway = run.gateway.unwrap();
    let counts = gateway.counts;
    assert_eq!((gateway.open, counts.failed), (0, 0));
    // Only calls of another model than the one before go elsewhere.
    assert!(counts.stay_share().unwrap() > 0.98, "{counts:?}");
    let own = gateway.overhead.quantile(0.5).unwrap() / 1e6;
    assert!((own - overhead).abs() < 0.1 * overhead, "{own} ms in the gateway, rows {overhead}");
}
