//! Results as JSON, for programs. Keys keep their order; times are in seconds, shares from 0 to 1.

use std::io::{self, Write};

use serde_json::{Value, json};

use super::Format;
use super::text::met;
use super::trust::Trust;
use crate::fleet::workload::Counts;
use crate::sizing::bands::{Band, Bands};
use crate::sizing::binding::{Binding, Resource};
use crate::sizing::bootstrap::{INSIDE, RESAMPLES, Unavailable};
use crate::sizing::candidates::{Comparison, Sized};
use crate::sizing::capacity::{Capacity, Unit};
use crate::sizing::case::{Case, Judged};
use crate::sizing::cost::pareto;
use crate::sizing::explain::{Explanation, Moved};
use crate::sizing::figures::Figures;
use crate::sizing::formulas::checks;
use crate::sizing::pods::Pods;
use crate::sizing::pool_sizes::PoolSizes;
use crate::sizing::replicates::{Fleet, Replicates};
use crate::sizing::slo::{Slo, Verdict};
use crate::sizing::tally::Intervals;

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
        value["intervals"] = intervals(case, judged.intervals.as_ref());
        value["binds"] = binds(Binding::of(case, &judged.figures).as_ref());
        value["formulas"] = formulas(case, &judged.figures);
        write(&value, out)
    }

    fn size(&self, comparison: &Comparison, out: &mut dyn Write) -> io::Result<()> {
        let Some(best) = comparison.sized.first() else { return write(&Value::Null, out) };
        let case = best.replicates.case();
        let mut value = header(case, &case.workload.counts);
        add_answer(&mut value, best);
        value["candidates"] = comparison.sized.iter().map(candidate).collect();
        let refused = comparison.refused.iter();
        value["refused"] = refused
            .map(|refused| json!({ "name": refused.name, "reason": refused.reason }))
            .collect();
        let (names, offers) = met(comparison);
        let front = pareto(&offers);
        let rows = names.iter().zip(&offers).zip(front);
        value["offers"] = rows
            .map(|((name, offer), on_front)| {
                json!({
                    "name": name,
                    "gpus": offer.gpus,
                    "usd_per_hour": offer.usd_per_hour,
                    "usd_per_completed_task": offer.usd_per_task,
                    "task_p90_s": offer.task_p90_s,
                    "interactivity_p90": offer.interactivity_p90,
                    "pareto": on_front,
                })
            })
            .collect();
        write(&value, out)
    }

    fn capacity(
        &self,
        replicates: &Replicates,
        capacity: &Capacity,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        let case = replicates.case();
        let unit = capacity.unit;
        let load = |units: u32| unit.load(units);
        let mut value = header(case, &case.workload.counts);
        value["met"] = json!(capacity.carried > 0);
        value["replicas"] = json!(case.scenario.replicas);
        value["unit"] = json!(unit.name());
        value["carried"] = json!(load(capacity.carried));
        if let Unit::SessionsPerHour(_) = unit {
            value["sessions_per_day"] = json!(load(capacity.carried) * 24.0);
        }
        value["breaks"] = json!(capacity.breaks.map(load));
        let breaking = capacity.breaks.and_then(|at| capacity.tried.get(&at));
        let binding = breaking.and_then(Fleet::binding);
        value["binding"] = json!(binding.map(|at| case.targets[at].to_string()));
        let odd = capacity.not_monotone();
        value["not_monotone"] = odd.into_iter().map(load).map(Value::from).collect();
        let band = |low: u32, high: u32| json!({ "low": load(low), "high": load(high) });
        value["bands"] = json!({
            "seeds": capacity.seeds.map(|seeds| band(seeds.low, seeds.high)),
            "step_time": capacity.step_time.map(|step| band(step.low, step.high)),
            "step_time_by": capacity.step_time_by,
        });
        let knee = &capacity.knee;
        value["knee"] = json!({
            "at": knee.at.map(load),
            "light": load(knee.light),
            "light_share_of_ceiling": knee.share,
            "looked_to": load(knee.looked_to),
        });
        let tried = capacity.tried.iter().map(|(units, fleet)| {
            let mut value = replicated(case, fleet);
            value["load"] = json!(load(*units));
            value
        });
        value["tried"] = tried.collect();
        write(&value, out)
    }

    fn explain(
        &self,
        replicates: &Replicates,
        explanation: &Explanation,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        let case = replicates.case();
        let base = &explanation.base;
        let mut value = header(case, &case.workload.counts);
        let binding = base.binding();
        value["binding"] = json!(binding.map(|position| case.targets[position].to_string()));
        value["binds"] = binds(explanation.binding.as_ref());
        value["seeds"] = json!(replicates.seeds());
        value["fleet"] = replicated(case, base);
        let levers = explanation.levers.iter();
        value["levers"] = levers.map(|lever| moved(case, base, lever)).collect();
        write(&value, out)
    }
}

/// What binds a fleet, and what that rests on.
fn binds(binding: Option<&Binding>) -> Value {
    let Some(binding) = binding else { return Value::Null };
    let names = |resources: &[Resource]| -> Value {
        resources.iter().map(|resource| Value::from(resource.name())).collect()
    };
    let claims = binding.claims.iter().map(|claim| {
        json!({
            "resource": claim.resource.name(),
            "seconds": claim.seconds,
            "of_task_llm": claim.of_task_llm,
            "of_session": claim.of_session,
        })
    });
    let signs = binding.signs.iter().map(|sign| {
        json!({
            "name": sign.name,
            "value": sign.value,
            "from": sign.from,
            "strained": sign.is_strained(),
        })
    });
    json!({
        "fleet": names(&binding.fleet),
        "session": names(&binding.session),
        "claims": claims.collect::<Vec<_>>(),
        "signs": signs.collect::<Vec<_>>(),
        "doubts": binding.doubts,
    })
}

fn moved(case: &Case, base: &Fleet, moved: &Moved) -> Value {
    let lever = &moved.lever;
    let mut value = json!({ "name": lever.name, "set": lever.assignment });
    match &moved.fleet {
        Ok(fleet) => {
            value["changed"] = changed(base, fleet);
            value["fleet"] = replicated(case, fleet);
        }
        Err(why) => value["cannot"] = json!(why),
    }
    value
}

/// What a lever changes, each as it is behind it less as it was.
fn changed(base: &Fleet, fleet: &Fleet) -> Value {
    let less = |now: Option<f64>, was: Option<f64>| now.zip(was).map(|(now, was)| now - was);
    let mean = |figure: fn(&Figures) -> Option<f64>| less(fleet.mean(figure), base.mean(figure));
    let target = base
        .binding()
        .and_then(|position| less(fleet.verdict(position).value, base.verdict(position).value));
    json!({
        "binding_target": target,
        "hit": mean(|figures| figures.hit.engine_counter),
        "p90_task_llm_s": mean(|figures| figures.latency.task_llm.map(|llm| llm.p90)),
        "usd_per_hour": mean(|figures| figures.cost.as_ref().map(|cost| cost.usd_per_hour)),
    })
}

/// What was found for the best candidate.
fn add_answer(value: &mut Value, best: &Sized) {
    let (case, search) = (best.replicates.case(), &best.search);
    let gpus = case.scenario.serving.gpus();
    let answer = search.answer();
    value["met"] = json!(search.smallest.is_some());
    value["replicas"] = json!(search.smallest);
    value["gpus"] = json!(search.smallest.map(|replicas| replicas * gpus));
    if let Some(most) = answer.and_then(Fleet::held_max) {
        value["replicas_held_max"] = json!(most);
    }
    if let Some(pods) = &search.pods {
        value["gateway_replicas"] = json!(pods.smallest);
        value["gateway"] = self::pods(case, pods);
    }
    let binding = answer.and_then(Fleet::binding);
    value["binding"] = json!(binding.map(|position| case.targets[position].to_string()));
    let spare = match search.pools {
        None => search.smallest.and_then(|size| search.of_size(size + 1)),
        Some(_) => None,
    };
    value["n_plus_1"] = json!(spare.filter(|fleet| fleet.met()).map(|fleet| fleet.replicas));
    value["failing_above_answer"] = json!(search.failing_above_answer());
    if let Some(found) = &search.pools {
        value["pools"] = pool_sizes(case, found);
        value["failing_above_answer"] = json!(found.failing_above_answer());
    }
    value["max_replicas"] = json!(search.max_replicas);
    value["gave_up"] = match &search.gave_up {
        None => Value::Null,
        Some(gave_up) => json!({
            "target": case.targets[gave_up.target].to_string(),
            "figures": gave_up
                .figures
                .iter()
                .map(|(replicas, value)| json!({ "replicas": replicas, "value": value }))
                .collect::<Vec<_>>(),
            "idle": gave_up.idle,
        }),
    };
    value["bands"] = best.bands.as_ref().map_or(Value::Null, |found| bands(case, found));
    value["seeds"] = json!(best.replicates.seeds());
    value["tried"] = search.tried.iter().map(|fleet| replicated(case, fleet)).collect();
    let shown = answer.or(search.tried.last());
    value["formulas"] = shown.map_or(Value::Null, |fleet| formulas(case, fleet.figures()));
}

/// The answer pool by pool, with one replica less and one more in each.
fn pool_sizes(case: &Case, found: &PoolSizes) -> Value {
    let neighbours = found.neighbours(-1).into_iter().zip(found.neighbours(1));
    let pools = case.scenario.pools.iter().zip(found.smallest.iter().flatten());
    let pools = pools.zip(neighbours).map(|((pool, replicas), ((_, less), (_, more)))| {
        json!({
            "name": pool.name,
            "replicas": replicas,
            "missed_with_one_less": less.map(|fleet| missed(case, fleet)),
            "met_with_one_more": more.map(Fleet::met),
        })
    });
    pools.collect()
}

/// The targets that a fleet misses.
fn missed(case: &Case, fleet: &Fleet) -> Vec<String> {
    let missed = (0..case.targets.len()).filter(|&at| !fleet.verdict(at).met);
    missed.map(|at| case.targets[at].to_string()).collect()
}

/// Numbers of the gateway's pods in front of the answer, and what each misses.
fn pods(case: &Case, pods: &Pods) -> Value {
    let tried = pods.tried.iter().map(|fleet| {
        let missed = missed(case, fleet);
        json!({ "gateway_replicas": fleet.pods, "met": fleet.met(), "missed": missed })
    });
    json!({
        "tried": tried.collect::<Vec<_>>(),
        "failing_above_answer": pods.failing_above_answer(),
        "max_replicas": pods.most,
    })
}

fn bands(case: &Case, bands: &Bands) -> Value {
    let band = |band: Band| json!({ "low": band.low, "high": band.high });
    json!({
        "seeds": bands.seeds.map(band),
        "step_time": bands.step_time.map(band),
        "step_time_by": bands.step_time_by,
        "sessions": intervals(case, bands.sessions.as_ref()),
    })
}

/// How far each target's figure depends on which sessions were played.
fn intervals(case: &Case, found: Option<&Intervals>) -> Value {
    let Some(found) = found else { return Value::Null };
    let pairs = case.targets.iter().zip(found);
    let targets = pairs.map(|(target, interval)| {
        let shown = interval.ok();
        json!({
            "target": target.to_string(),
            "low": shown.map(|interval| interval.low),
            "high": shown.map(|interval| interval.high),
            "sessions": shown.map(|interval| interval.sessions),
            "unavailable": interval.err().map(Unavailable::why),
        })
    });
    json!({ "share": INSIDE, "resamples": RESAMPLES, "targets": targets.collect::<Vec<_>>() })
}

fn candidate(sized: &Sized) -> Value {
    let answer = sized.search.answer();
    let shown = answer.or(sized.search.tried.last());
    let binding = shown.and_then(Fleet::binding);
    let mut value = json!({
        "name": sized.name,
        "met": answer.is_some(),
        "replicas": answer.map(|fleet| fleet.replicas),
        "gpus": answer.map(Fleet::gpus),
        "binding": binding.map(|at| sized.replicates.case().targets[at].to_string()),
        "largest_tried": sized.search.tried.last().map(|fleet| fleet.replicas),
    });
    if let Some(pods) = answer.and_then(|fleet| fleet.pods) {
        value["gateway_replicas"] = json!(pods);
    }
    value
}

/// A fleet under every seed: the targets are those of the worst seed, the figures the first's.
fn replicated(case: &Case, fleet: &Fleet) -> Value {
    let worst: Vec<Verdict> =
        (0..case.targets.len()).map(|position| *fleet.verdict(position)).collect();
    let mut value = judged(case, fleet.met(), &worst, fleet.figures());
    let more = if fleet.runs.len() > 1 { &fleet.runs[..] } else { &[] };
    let runs = more.iter().zip(case.scenario.seed..);
    let run = |(run, seed): (&Judged, u64)| {
        let mut value = self::fleet(case, run);
        value["seed"] = json!(seed);
        value
    };
    value["by_seed"] = runs.map(run).collect();
    if let Some(pods) = fleet.pods {
        value["gateway_replicas"] = json!(pods);
    }
    value
}

fn formulas(case: &Case, figures: &Figures) -> Value {
    let checks = checks(case, figures).into_iter().map(|check| {
        json!({
            "name": check.name,
            "formula": check.formula,
            "unit": check.unit,
            "closed": check.closed,
            "simulated": check.simulated,
            "ratio": check.ratio(),
            "broken": check.broken,
        })
    });
    checks.collect()
}

fn header(case: &Case, counts: &Counts) -> Value {
    let scenario = &case.scenario;
    let serving = &scenario.serving;
    let mut value = json!({
        "scenario": scenario.name,
        "seed": scenario.seed,
        "model": serving.model.name,
        "weights": serving.weights.name(),
        "kv_cache_dtype": serving.kv_dtype.name(),
        "gpu": serving.gpu.name,
        "tensor_parallel_size": serving.tensor_parallel_size,
        "router": scenario.router_name(),
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
        "warnings": case.warnings().map(ToString::to_string).collect::<Vec<_>>(),
        "notes": case.all_notes().collect::<Vec<_>>(),
    });
    if serving.data_parallel_size > 1 {
        value["data_parallel_size"] = json!(serving.data_parallel_size);
    }
    value
}

fn fleet(case: &Case, run: &Judged) -> Value {
    judged(case, run.met(), &run.verdicts, &run.figures)
}

fn judged(case: &Case, met: bool, verdicts: &[Verdict], figures: &Figures) -> Value {
    let pairs = case.targets.iter().zip(verdicts);
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
    let mut value = json!({ "met": met, "targets": targets });
    value["trust"] = Trust::of(case, figures).json();
    value["figures"] = serde_json::to_value(figures).unwrap_or(Value::Null);
    value
}

fn write(value: &Value, out: &mut dyn Write) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, value)?;
    out.write_all(b"\n")
}
