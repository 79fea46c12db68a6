//! One engine, or one small fleet, driven by hand through the library.

use std::collections::BTreeMap;

use tonnage::config::defaults::VllmVersion;
use tonnage::config::precision::{KvDtype, WeightPrecision};
use tonnage::config::scenario::Scenario;
use tonnage::config::{gpus, models};
use tonnage::engine::plain::PlainEngine;
use tonnage::engine::request::{Effect, Request, StepSummary};
use tonnage::engine::step_time::{StepCost, StepSetup};
use tonnage::engine::{Due, Engine, Stuck};
use tonnage::fleet::workload::Workload;
use tonnage::fleet::{self, Progress, Run, Setup};
use tonnage::trace::canonical;
use tonnage::units::{RequestId, Time, Tokens};
use tonnage::validate::recording::{
    Expected, RecordedConfig, RecordedFinish, RecordedRequest, Recording,
};

/// A roomy engine: blocks of 16 tokens, 100 of them, steps of 256 tokens, one after the other.
pub fn roomy() -> RecordedConfig {
    RecordedConfig {
        block_size: 16,
        num_gpu_blocks: 101,
        max_num_seqs: 16,
        max_num_batched_tokens: 256,
        long_prefill_token_threshold: 0,
        enable_prefix_caching: true,
        policy: "fcfs".to_owned(),
        max_model_len: 10_000,
        watermark: 0.0,
        scheduler_reserve_full_isl: true,
        async_scheduling: false,
    }
}

/// A request: its prompt in parts (segment, tokens), and the tokens that come out of it.
pub fn ask(prompt: &[(u64, u64)], out_seg: u64, output_len: u64) -> RecordedRequest {
    RecordedRequest {
        id: 0,
        arrival_step: 0,
        prompt: prompt.to_vec(),
        out_seg,
        output_len,
        finish: RecordedFinish::Length,
        priority: 0,
    }
}

/// The requests of a workload and the engine that it is for, as the library knows them.
pub fn recording(config: RecordedConfig, mut requests: Vec<RecordedRequest>) -> Recording {
    for (id, request) in (0..).zip(&mut requests) {
        request.id = id;
    }
    Recording { name: String::new(), config, requests, expected: Expected::default() }
}

pub fn cost(model: &str, tp: u32) -> StepCost {
    let model = models::find(model).unwrap();
    StepCost::new(&StepSetup {
        model: &model,
        gpu: gpus::find("h100-sxm").unwrap(),
        tp,
        dp: 1,
        weights: WeightPrecision::Fp8,
        kv_dtype: KvDtype::Bf16,
    })
    .unwrap()
}

/// An engine with the requests that it has not been given yet.
pub struct Rig {
    engine: PlainEngine,
    requests: std::vec::IntoIter<Request>,
    now: Time,
    pub effects: Vec<Effect>,
}

/// Things that an engine does before it is said to go on for ever.
const ADVANCES_MAX: usize = 200_000;

impl Rig {
    pub fn new(config: RecordedConfig, requests: Vec<RecordedRequest>) -> Self {
        let recording = recording(config, requests);
        Self {
            engine: PlainEngine::new(
                recording.engine(VllmVersion::default()),
                cost("Llama-3.1-8B", 1),
            ),
            requests: recording.workload().into_iter(),
            now: Time::ZERO,
            effects: Vec::new(),
        }
    }

    /// Hands over the next requests, and lets the engine run until it is idle or stuck.
    pub fn run(&mut self, requests: usize) -> Option<Stuck> {
        for request in self.requests.by_ref().take(requests) {
            self.engine.submit(self.now, request);
        }
        for _ in 0..ADVANCES_MAX {
            let Some(Due::StepEnds(at) | Due::StepStarts(at)) = self.engine.due() else {
                return None;
            };
            self.now = at;
            self.engine.advance(at, &mut self.effects);
            if let Some(stuck) = self.engine.stuck() {
                return Some(stuck);
            }
        }
        unreachable!("the engine goes on for ever");
    }

    /// Cached tokens of a request's admissions: the first one, then those after preemptions.
    pub fn cached(&self, request: u32) -> Vec<u64> {
        let cached = self.effects.iter().filter_map(|effect| match *effect {
            Effect::Admitted { request: which, cached, .. } if which == RequestId(request) => {
                Some(cached.0)
            }
            _ => None,
        });
        cached.collect()
    }

    pub fn finished(&self) -> Vec<(RequestId, Tokens)> {
        let finished = self.effects.iter().filter_map(|effect| match *effect {
            Effect::Finished { request, output, .. } => Some((request, output)),
            _ => None,
        });
        finished.collect()
    }

    pub fn preemptions(&self) -> usize {
        let preempted = |effect: &&Effect| matches!(effect, Effect::Preempted { .. });
        self.effects.iter().filter(preempted).count()
    }

    pub fn steps(&self) -> Vec<StepSummary> {
        let steps = self.effects.iter().filter_map(|effect| match effect {
            Effect::StepStarted(step) => Some(*step),
            _ => None,
        });
        steps.collect()
    }
}

/// A fleet of one replica, without host time, with these keys of a scenario.
pub fn fleet(keys: &[&str]) -> Setup {
    let base = [
        "engine.model=Llama-3.1-8B",
        "engine.gpu=h100-sxm",
        "api.request_ms=0",
        "api.prompt_token_us=0",
        "api.output_token_us=0",
    ];
    let keys: Vec<String> = base.iter().chain(keys).map(|&key| key.to_owned()).collect();
    Setup::of(&Scenario::parse("", "test", &keys).unwrap()).unwrap()
}

/// Plays a trace: `session,call,at_s,after,gap_s,cause,lane,base,kept_tokens,prompt_tokens,
/// output_tokens` without the columns that are the same for all.
pub fn play(setup: &Setup, rows: &str) -> Run {
    let header = "session,call,at_s,after,gap_s,cause,turn,lane,model,tenant,user,profile,base,\
                  kept_tokens,prompt_tokens,output_tokens,tools,status";
    let mut text = format!("{header}\n");
    for row in rows.split_whitespace() {
        let cells: Vec<&str> = row.split(',').collect();
        let [session, call, at, after, gap, cause, lane, base, kept, prompt, output] = cells[..]
        else {
            unreachable!("not eleven cells: {row}");
        };
        let status = if call.is_empty() { "" } else { "ok" };
        let turn = if call.is_empty() { "" } else { "0" };
        let model = if call.is_empty() { "" } else { "m" };
        text += &format!(
            "{session},{call},{at},{after},{gap},{cause},{turn},{lane},{model},,,,{base},{kept},\
             {prompt},{output},,{status}\n"
        );
    }
    let trace = canonical::read_from(std::io::Cursor::new(text), "test").unwrap();
    let workload = Workload::new(&trace, &BTreeMap::new());
    let engine = || PlainEngine::new(setup.engine.clone(), setup.cost.clone());
    fleet::run(setup, &workload, engine, &Progress::default())
}
