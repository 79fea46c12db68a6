//! What a fleet carries, as text.

use std::io::{self, Write};

use comfy_table::Cell;

use super::{
    fleet_name, header, measured, percent, percent_or_dash, pools, right, short, short_or_dash,
    table, trust,
};
use crate::sizing::capacity::{BEND, Capacity, Unit};
use crate::sizing::case::Case;
use crate::sizing::figures::Figures;
use crate::sizing::replicates::{Fleet, Replicates};

const HOURS_PER_DAY: f64 = 24.0;

pub(super) fn show(
    replicates: &Replicates,
    capacity: &Capacity,
    out: &mut dyn Write,
) -> io::Result<()> {
    let case = replicates.case();
    header(case, &case.workload.counts, out)?;
    tried(case, capacity, out)?;
    answer(case, capacity, out)?;
    let shown = capacity.tried.get(&capacity.carried).or(capacity.tried.values().next());
    let Some(shown) = shown else { return Ok(()) };
    trust(case, shown.figures(), shown.runs.len(), out)
}

/// A row per load, since there are many of them.
fn tried(case: &Case, capacity: &Capacity, out: &mut dyn Write) -> io::Result<()> {
    let columns =
        [capacity.unit.name(), "met", "binding", "margin", "hit", "ceiling", "live/pool", "idle"];
    let mut table = table(&columns);
    for (units, fleet) in &capacity.tried {
        let binding = fleet.binding();
        let name = binding.map_or("-".into(), |at| case.targets[at].to_string());
        let mean = |figure: fn(&Figures) -> Option<f64>| fleet.mean(figure);
        table.add_row([
            Cell::new(load(capacity.unit, *units)),
            right(if fleet.met() { "yes" } else { "NO" }.to_owned()),
            right(name),
            right(percent_or_dash(binding.and_then(|at| fleet.verdict(at).margin))),
            right(percent_or_dash(mean(|figures| figures.hit.engine_counter))),
            right(percent_or_dash(mean(|figures| figures.hit.infinite_cache))),
            right(short_or_dash(mean(|figures| Some(figures.kv.live_context_over_pool)))),
            right(percent_or_dash(mean(|figures| Some(figures.gpu.idle)))),
        ]);
    }
    writeln!(out, "{table}\n")
}

fn answer(case: &Case, capacity: &Capacity, out: &mut dyn Write) -> io::Result<()> {
    let unit = capacity.unit;
    let fleet = capacity.tried.values().next().map(Fleet::figures);
    let name = fleet.map_or(String::new(), |figures| {
        let name = fleet_name(figures.replicas, figures.gpus);
        match figures.pools.is_empty() {
            true => name,
            false => format!("{name}, {},", pools::sizes(figures)),
        }
    });
    match capacity.carried {
        0 => writeln!(out, "Answer: {name} does not carry even {}.", with_unit(unit, 1))?,
        carried => {
            let a_day = match unit {
                Unit::SessionsPerHour(_) => {
                    format!(" ({} sessions a day)", short(unit.load(carried) * HOURS_PER_DAY))
                }
                _ => String::new(),
            };
            writeln!(out, "Answer: {name} carries {}{a_day}.", with_unit(unit, carried))?;
        }
    }
    if let Some((units, fleet)) = capacity.breaks.and_then(|at| capacity.tried.get_key_value(&at)) {
        let missed = (0..case.targets.len()).filter(|&at| !fleet.verdict(at).met);
        let missed: Vec<String> = missed
            .map(|at| (&case.targets[at], fleet.verdict(at)))
            .map(|(target, verdict)| format!("{target} ({})", measured(target, verdict)))
            .collect();
        let load = with_unit(unit, *units);
        writeln!(out, "  breaks       at {load}: {}", missed.join(", "))?;
    } else {
        writeln!(out, "  breaks       not up to the largest load that can be played")?;
    }
    for odd in capacity.not_monotone() {
        writeln!(
            out,
            "  NOT MONOTONE {} comes out the other way round: load does not decide alone; try \
             other seeds",
            with_unit(unit, odd)
        )?;
    }
    let band = |low: u32, high: u32| format!("{} to {}", load(unit, low), with_unit(unit, high));
    if let Some(seeds) = capacity.seeds {
        let band = band(seeds.low, seeds.high);
        writeln!(out, "  seeds        {band}: with all of the seeds, and with one")?;
    }
    if let Some(step) = capacity.step_time {
        let by = percent(capacity.step_time_by);
        let band = band(step.low, step.high);
        writeln!(out, "  step time    {band}: with steps {by} longer, and {by} shorter")?;
    }
    knee(capacity, out)?;
    writeln!(out)
}

fn knee(capacity: &Capacity, out: &mut dyn Write) -> io::Result<()> {
    let (unit, knee) = (capacity.unit, &capacity.knee);
    let light = with_unit(unit, knee.light);
    let lost = percent(BEND);
    match (knee.share, knee.at) {
        (None, _) => {
            writeln!(out, "  knee         there is none: nothing hits the cache at {light}")
        }
        (Some(share), Some(at)) => {
            let pool = capacity.tried.get(&at);
            let pool = pool
                .and_then(|fleet| fleet.mean(|figures| Some(figures.kv.live_context_over_pool)));
            writeln!(
                out,
                "  knee         {}: from there on the hit rate has lost more than {lost} of what \
                 it is at {light} ({} of its ceiling); live context / pool {}",
                with_unit(unit, at),
                percent(share),
                short_or_dash(pool),
            )
        }
        (Some(_), None) => writeln!(
            out,
            "  knee         not up to {}: the hit rate keeps within {lost} of what it is at {}",
            with_unit(unit, knee.looked_to),
            light,
        ),
    }
}

fn with_unit(unit: Unit, units: u32) -> String {
    format!("{} {}", load(unit, units), unit.name())
}

/// A load without its unit.
fn load(unit: Unit, units: u32) -> String {
    match unit {
        Unit::Developers => units.to_string(),
        Unit::SessionsPerHour(_) | Unit::TraceFactor(_) => short(unit.load(units)),
    }
}
