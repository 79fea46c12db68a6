//! The fast engine on the recorded workloads: in time, and beside the plain engine, which decides
//! as recorded.

use tonnage::config::defaults::VllmVersion;
use tonnage::engine::fast::FastEngine;
use tonnage::engine::metrics::EngineMetrics;
use tonnage::engine::plain::PlainEngine;
use tonnage::engine::request::{Effect, StepSummary};
use tonnage::engine::{Due, Engine};
use tonnage::units::Time;
use tonnage::validate::recording::Recording;

use super::conformance::recordings;
use super::reference::generate;
use super::rig::cost;

/// What an engine told, and what it counted.
#[derive(Debug, PartialEq)]
struct Told {
    effects: Vec<(Time, Effect)>,
    steps: Vec<(Time, StepSummary)>,
    metrics: EngineMetrics,
}

/// Hands the requests over at these times and lets the engine run until it is idle or stuck.
fn play(recording: &Recording, arrivals: &[Time], mut engine: impl Engine) -> Told {
    let (mut effects, mut steps, mut new) = (Vec::new(), Vec::new(), Vec::new());
    let mut requests = recording.workload().into_iter().zip(arrivals).peekable();
    while engine.stuck().is_none() {
        let arrival = requests.peek().map(|(_, at)| **at);
        let due = engine.due();
        let arrives_first = arrival.is_some_and(|arrival| match due {
            Some(Due::StepEnds(at)) => arrival < at,
            Some(Due::StepStarts(at)) => arrival <= at,
            None => true,
        });
        match (due, arrives_first) {
            (_, true) => {
                let (request, at) = requests.next().unwrap();
                engine.submit(*at, request);
            }
            (Some(Due::StepEnds(at) | Due::StepStarts(at)), false) => {
                engine.advance(at, &mut new);
                engine.take_runs(|run, levels| steps.extend(run.each(levels)));
                for effect in new.drain(..) {
                    match effect {
                        Effect::StepStarted(step) => steps.push((at, step)),
                        other => effects.push((at, other)),
                    }
                }
            }
            (None, false) => break,
        }
    }
    Told { effects, steps, metrics: engine.metrics() }
}

/// When the plain engine, given requests by step as recorded, has come so far.
fn arrivals(recording: &Recording, mut engine: PlainEngine) -> Vec<Time> {
    let mut times = Vec::new();
    let mut requests = recording.workload().into_iter().zip(&recording.requests).peekable();
    let (mut now, mut step, mut effects) = (Time::ZERO, 0, Vec::new());
    while requests.peek().is_some() && engine.stuck().is_none() {
        if engine.due().is_none() {
            step = step.max(requests.peek().unwrap().1.arrival_step);
        }
        while requests.peek().is_some_and(|(_, recorded)| recorded.arrival_step <= step) {
            engine.submit(now, requests.next().unwrap().0);
            times.push(now);
        }
        let Some(Due::StepEnds(at) | Due::StepStarts(at)) = engine.due() else { continue };
        now = at;
        engine.advance(now, &mut effects);
        step += u64::from(effects.iter().any(|e| matches!(e, Effect::StepStarted(_))));
        effects.clear();
    }
    times
}

fn agree(recording: &Recording, version: VllmVersion) {
    let (config, cost) = (recording.engine(version), cost("Llama-3.1-8B", 1));
    let times = arrivals(recording, PlainEngine::new(config.clone(), cost.clone()));
    let plain = play(recording, &times, PlainEngine::new(config.clone(), cost.clone()));
    let fast = play(recording, &times, FastEngine::new(config, cost));
    assert_eq!(plain, fast, "{}", recording.name);
}

#[test]
fn the_fast_engine_plays_every_recording_as_the_plain_one() {
    recordings().iter().for_each(|recording| agree(recording, VllmVersion::default()));
}

#[test]
fn the_fast_engine_plays_random_workloads_as_the_plain_one() {
    for seed in 0..1_000 {
        let name = ["0.29", "0.33"][(seed % 2) as usize];
        agree(&generate::workload(seed), VllmVersion::scheduler(name).unwrap());
    }
}
