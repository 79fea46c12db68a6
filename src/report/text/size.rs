//! The search for a size as text.

use std::io::{self, Write};

use comfy_table::Cell;

use super::{
    fleet_name, formulas, grouped, header, intervals, measured, percent, percent_or_dash, pools,
    right, short, short_or_dash, table, trust,
};
use crate::sizing::bands::{Band, Bands};
use crate::sizing::candidates::{Comparison, Sized};
use crate::sizing::case::Case;
use crate::sizing::cost::{Offer, pareto};
use crate::sizing::pods::Pods;
use crate::sizing::pool_sizes::PoolSizes;
use crate::sizing::replicates::Fleet;
use crate::sizing::search::{GaveUp, Search};
use crate::sizing::slo::Metric;

pub(super) fn show(comparison: &Comparison, out: &mut dyn Write) -> io::Result<()> {
    let Some(best) = comparison.sized.first() else { return Ok(()) };
    let (case, search) = (best.replicates.case(), &best.search);
    header(case, &case.workload.counts, out)?;
    if comparison.sized.len() + comparison.refused.len() > 1 {
        candidates(comparison, out)?;
        offers(comparison, out)?;
        writeln!(out, "The best candidate: {}\n", best.name)?;
    }
    tried(case, search, out)?;
    answer(best, out)?;
    let Some(shown) = search.answer().or(search.tried.last()) else { return Ok(()) };
    formulas::table(case, shown.figures(), out)?;
    trust(case, shown.figures(), shown.runs.len(), out)
}

/// A row per candidate, the best first.
fn candidates(comparison: &Comparison, out: &mut dyn Write) -> io::Result<()> {
    let columns = ["candidate", "replicas", "GPUs", "USD/h", "USD/task", "binding", "margin"];
    let mut table = table(&columns);
    for candidate in &comparison.sized {
        let Some(fleet) = candidate.search.answer() else {
            let largest = candidate.search.tried.last().map_or(0, |fleet| fleet.replicas);
            let most = largest.min(candidate.search.max_replicas);
            let missed = format!("none up to {most}");
            let binding = candidate.search.tried.last().and_then(Fleet::binding);
            let cells = [missed, "-".into(), "-".into(), "-".into()].map(right);
            let mut row = vec![Cell::new(&candidate.name)];
            row.extend(cells);
            row.push(right(binding.map_or("-".into(), |at| target(candidate, at))));
            row.push(right("-".into()));
            table.add_row(row);
            continue;
        };
        let offer = Offer::of(fleet);
        let binding = fleet.binding();
        table.add_row([
            Cell::new(&candidate.name),
            right(sizes(fleet)),
            right(offer.gpus.to_string()),
            right(offer.usd_per_hour.map_or("-".into(), |usd| format!("{usd:.2}"))),
            right(offer.usd_per_task.map_or("-".into(), |usd| format!("{usd:.4}"))),
            right(binding.map_or("-".into(), |at| target(candidate, at))),
            right(percent_or_dash(binding.and_then(|at| fleet.verdict(at).margin))),
        ]);
    }
    writeln!(out, "{table}")?;
    for refused in &comparison.refused {
        writeln!(out, "  cannot run   {}: {}", refused.name, refused.reason)?;
    }
    writeln!(out)
}

fn target(candidate: &Sized, position: usize) -> String {
    candidate.replicates.case().targets[position].to_string()
}

/// Every fleet that meets the targets: cost against how long tasks take and how fast tokens come.
fn offers(comparison: &Comparison, out: &mut dyn Write) -> io::Result<()> {
    let (names, offers) = met(comparison);
    if offers.is_empty() {
        return Ok(());
    }
    let columns = ["fleet", "USD/h", "USD/task", "task p90, s", "tok/s p90", "Pareto"];
    let mut table = table(&columns);
    for ((name, offer), on_front) in names.iter().zip(&offers).zip(pareto(&offers)) {
        table.add_row([
            Cell::new(name),
            right(offer.usd_per_hour.map_or("-".into(), |usd| format!("{usd:.2}"))),
            right(offer.usd_per_task.map_or("-".into(), |usd| format!("{usd:.4}"))),
            right(short_or_dash(offer.task_p90_s)),
            right(short_or_dash(offer.interactivity_p90)),
            right(if on_front { "yes" } else { "" }.to_owned()),
        ]);
    }
    writeln!(out, "{table}\n")
}

/// The fleets that meet every target, by cost.
pub(in crate::report) fn met(comparison: &Comparison) -> (Vec<String>, Vec<Offer>) {
    let fleets = comparison.sized.iter().flat_map(|candidate| {
        let most = candidate.search.max_replicas;
        let tried = candidate.search.tried.iter().filter(move |fleet| fleet.replicas <= most);
        let met = tried.filter(|fleet| fleet.met());
        met.map(|fleet| (format!("{} x {}", sizes(fleet), candidate.name), Offer::of(fleet)))
    });
    let mut fleets: Vec<(String, Offer)> = fleets.collect();
    let usd = |offer: &Offer| offer.usd_per_hour.unwrap_or(f64::INFINITY);
    fleets.sort_by(|a, b| usd(&a.1).total_cmp(&usd(&b.1)));
    fleets.into_iter().unzip()
}

/// Replicas of a fleet, those of its pools one by one: `2+3`.
fn sizes(fleet: &Fleet) -> String {
    match &fleet.figures().pools[..] {
        [] => fleet.replicas.to_string(),
        pools => pools.iter().map(|pool| pool.replicas.to_string()).collect::<Vec<_>>().join("+"),
    }
}

/// A column per simulated fleet, so that the table stays narrow whatever the targets are.
fn tried(case: &Case, search: &Search, out: &mut dyn Write) -> io::Result<()> {
    let fleets = || search.tried.iter();
    let mut columns = vec!["replicas".to_owned()];
    columns.extend(fleets().map(|fleet| fleet.replicas.to_string()));
    let names: Vec<&str> = columns.iter().map(String::as_str).collect();
    let mut table = table(&names);
    let mut row = |name: &str, value: &dyn Fn(&Fleet) -> String| {
        let mut cells = vec![Cell::new(name)];
        cells.extend(fleets().map(|fleet| right(value(fleet))));
        table.add_row(cells);
    };
    for (number, pool) in case.scenario.pools.iter().enumerate() {
        let replicas = |fleet: &Fleet| fleet.figures().pools[number].replicas.to_string();
        row(&format!("in {}", pool.name), &replicas);
    }
    row("GPUs", &|fleet| fleet.figures().gpus.to_string());
    if case.scenario.gateway.is_some() {
        row("gateway replicas", &|fleet| fleet.pods.map_or("-".into(), |pods| pods.to_string()));
    }
    for (position, target) in case.targets.iter().enumerate() {
        row(&target.to_string(), &|fleet| {
            let verdict = fleet.verdict(position);
            let mark = if verdict.met { "  " } else { " !" };
            format!("{}{mark}", measured(target, verdict))
        });
    }
    row("hit", &|fleet| percent_or_dash(fleet.mean(|figures| figures.hit.engine_counter)));
    let ceiling = |fleet: &Fleet| fleet.mean(|figures| figures.hit.infinite_cache);
    row("hit, infinite cache", &|fleet| percent_or_dash(ceiling(fleet)));
    let live = |fleet: &Fleet| fleet.mean(|figures| Some(figures.kv.live_context_over_pool));
    row("live context / pool", &|fleet| short_or_dash(live(fleet)));
    let preemptions = |fleet: &Fleet| {
        let counts = fleet.runs.iter().map(|run| run.figures.preemptions.count);
        grouped(counts.sum::<u64>() as i64)
    };
    row("preemptions", &preemptions);
    row("GPU idle", &|fleet| percent_or_dash(fleet.mean(|figures| Some(figures.gpu.idle))));
    let tasks = |fleet: &Fleet| fleet.mean(|figures| Some(figures.throughput.tasks_per_hour));
    row("tasks per hour", &|fleet| short_or_dash(tasks(fleet)));
    row("meets every target", &|fleet| if fleet.met() { "yes" } else { "NO" }.to_owned());
    writeln!(out, "{table}\n")
}

fn answer(sized: &Sized, out: &mut dyn Write) -> io::Result<()> {
    let (case, search) = (sized.replicates.case(), &sized.search);
    let Some(best) = search.answer() else { return no_answer(sized, out) };
    let figures = best.figures();
    let seeds = match best.runs.len() {
        1 => String::new(),
        seeds => format!(" under each of {seeds} seeds"),
    };
    let name = named(best);
    let behind = best.pods.map_or(String::new(), |pods| format!(" behind {}", pods_name(pods)));
    let meet = if figures.replicas == 1 { "meets" } else { "meet" };
    writeln!(out, "Answer: {name}{behind} {meet} every target{seeds}.")?;
    if let Some(position) = best.binding() {
        let (target, verdict) = (&case.targets[position], best.verdict(position));
        let margin = percent_or_dash(verdict.margin);
        let value = measured(target, verdict);
        writeln!(out, "  binding      {target}: {value}, a margin of {margin}")?;
    }
    match best.replicas.checked_sub(1).and_then(|below| search.of_size(below)) {
        _ if search.pools.is_some() => pool_neighbours(case, search, out)?,
        Some(below) => {
            let name = fleet_name(below.replicas, below.figures().gpus);
            writeln!(out, "  one less     {name} fails: {}", missed(case, below))?;
        }
        None => writeln!(out, "  one less     there is none: it is the smallest fleet possible")?,
    }
    for size in search.failing_above_answer() {
        writeln!(
            out,
            "  NOT MONOTONE {size} replicas fail although fewer pass: the size does not decide \
             alone; try other seeds"
        )?;
    }
    if let Some(pods) = &search.pods {
        gateway(case, pods, out)?;
    }
    bands(sized.bands.as_ref(), out)?;
    if let Some(found) = sized.bands.as_ref().and_then(|bands| bands.sessions.as_ref()) {
        intervals(&case.targets, found, out)?;
    }
    let above = match search.pools {
        None => search.of_size(best.replicas + 1),
        Some(_) => None,
    };
    if let Some(above) = above.filter(|above| above.met()) {
        let figures = above.figures();
        let name = fleet_name(above.replicas, figures.gpus);
        let cost = figures.cost.as_ref();
        let cost =
            cost.map_or(String::new(), |cost| format!(", {:.2} USD an hour", cost.usd_per_hour));
        writeln!(
            out,
            "  N+1          {name}{cost}: with one replica lost or in maintenance the answer is \
             left"
        )?;
    }
    if let Some(cost) = &figures.cost {
        let per_task = Offer::of(best).usd_per_task;
        let per_task = per_task.map_or("-".into(), |usd| format!("{usd:.3}"));
        writeln!(
            out,
            "  cost         {:.2} USD an hour, {per_task} USD a completed task ({} USD per \
             GPU-hour, {})",
            cost.usd_per_hour, cost.usd_per_gpu_hour, cost.source
        )?;
    }
    writeln!(out)
}

/// A fleet with the sizes of its pools, if it has any.
fn named(fleet: &Fleet) -> String {
    let figures = fleet.figures();
    let name = fleet_name(figures.replicas, figures.gpus);
    match figures.pools.is_empty() {
        true => name,
        false => format!("{name}, {},", pools::sizes(figures)),
    }
}

/// The answer with one replica less, and one more, in each pool.
fn pool_neighbours(case: &Case, search: &Search, out: &mut dyn Write) -> io::Result<()> {
    let Some(found) = &search.pools else { return Ok(()) };
    let pool_name = |pool: usize| &case.scenario.pools[pool].name;
    for (pool, fleet) in found.neighbours(-1) {
        let name = pool_name(pool);
        match fleet {
            Some(fleet) => {
                let missed = missed(case, fleet);
                writeln!(out, "  one less     in {name} fails: {missed}")?;
            }
            None => writeln!(out, "  one less     in {name} there is none: a pool has one")?,
        }
    }
    for sizes in found.failing_above_answer() {
        let sizes = sizes.iter().map(u32::to_string).collect::<Vec<_>>().join("+");
        writeln!(
            out,
            "  NOT MONOTONE {sizes} replicas fail although fewer in each pool pass: the sizes do \
             not decide alone; try other seeds"
        )?;
    }
    for (pool, fleet) in found.neighbours(1) {
        let Some(fleet) = fleet.filter(|fleet| fleet.met()) else { continue };
        let cost = fleet.figures().cost.as_ref();
        let cost =
            cost.map_or(String::new(), |cost| format!(", {:.2} USD an hour", cost.usd_per_hour));
        writeln!(
            out,
            "  N+1          {} in {} meet every target{cost}: with one of them lost or in \
             maintenance the answer is left",
            fleet.figures().pools[pool].replicas,
            pool_name(pool),
        )?;
    }
    Ok(())
}

/// The targets that a fleet misses, with their figures.
fn missed(case: &Case, fleet: &Fleet) -> String {
    let missed = (0..case.targets.len()).filter(|&at| !fleet.verdict(at).met);
    let missed: Vec<String> = missed
        .map(|at| (&case.targets[at], fleet.verdict(at)))
        .map(|(target, verdict)| format!("{target} ({})", measured(target, verdict)))
        .collect();
    missed.join(", ")
}

fn pods_name(pods: u32) -> String {
    format!("{pods} gateway replica{}", if pods == 1 { "" } else { "s" })
}

/// The neighbours of the number of pods.
fn gateway(case: &Case, pods: &Pods, out: &mut dyn Write) -> io::Result<()> {
    match pods.smallest.checked_sub(1).and_then(|below| Some((below, pods.of_number(below)?))) {
        Some((below, fleet)) => {
            writeln!(out, "  one pod less {} fails: {}", pods_name(below), missed(case, fleet))?;
        }
        None => writeln!(out, "  one pod less there is none: a gateway has one")?,
    }
    for number in pods.failing_above_answer() {
        let fleet = pods.of_number(number);
        writeln!(
            out,
            "  NOT MONOTONE {} fail although fewer pass: {}",
            pods_name(number),
            fleet.map_or(String::new(), |fleet| missed(case, fleet)),
        )?;
    }
    Ok(())
}

fn bands(bands: Option<&Bands>, out: &mut dyn Write) -> io::Result<()> {
    let Some(bands) = bands else { return Ok(()) };
    if let Some(band) = bands.seeds {
        let text = band_text(band);
        writeln!(out, "  seeds        {text}: for one of the seeds, and for all")?;
    }
    if let Some(band) = bands.step_time {
        let (text, by) = (band_text(band), percent(bands.step_time_by));
        writeln!(out, "  step time    {text}: with steps {by} shorter, and {by} longer")?;
    }
    Ok(())
}

fn band_text(band: Band) -> String {
    let replicas = |size: u32| format!("{size} replica{}", if size == 1 { "" } else { "s" });
    match (band.low, band.high) {
        (Some(low), Some(high)) if low == high => replicas(low),
        (Some(low), Some(high)) => format!("{low} to {}", replicas(high)),
        (Some(low), None) => format!("{} to more than were tried", replicas(low)),
        (None, _) => "no fleet of these sizes either".to_owned(),
    }
}

fn no_answer(sized: &Sized, out: &mut dyn Write) -> io::Result<()> {
    let (case, search) = (sized.replicates.case(), &sized.search);
    let Some(largest) = search.tried.last() else { return writeln!(out) };
    match (&search.gave_up, &search.pools) {
        (None, Some(found)) => no_sizes(case, search, found, out)?,
        (None, None) => {
            writeln!(
                out,
                "No fleet of up to {} replicas meets every target.",
                search.max_replicas
            )?;
        }
        (Some(gave_up), _) => stuck(case, largest, gave_up, out)?,
    }
    for (position, target) in case.targets.iter().enumerate() {
        let verdict = largest.verdict(position);
        if !verdict.met {
            let value = measured(target, verdict);
            writeln!(out, "  missed by {} replicas: {target} ({value})", largest.replicas)?;
        }
    }
    let rejected = largest.figures().admission.rejected;
    if rejected > 0 {
        writeln!(
            out,
            "  {} calls exceed max_model_len and are rejected by a fleet of any size",
            grouped(rejected as i64)
        )?;
    }
    bands(sized.bands.as_ref(), out)?;
    writeln!(out)
}

/// What was tried of pools, and what would be enough if the limit were further.
fn no_sizes(
    case: &Case,
    search: &Search,
    found: &PoolSizes,
    out: &mut dyn Write,
) -> io::Result<()> {
    write!(
        out,
        "No fleet of up to {} replicas was found that meets every target",
        search.max_replicas
    )?;
    if let Some(fleet) = found.beyond.as_ref().and_then(|sizes| found.of_sizes(sizes)) {
        let sizes = pools::sizes(fleet.figures());
        return writeln!(out, "; {} would do, {sizes}.", fleet.replicas);
    }
    let pools = case.scenario.pools.len();
    let each = search.tried.last().map_or(0, |fleet| fleet.replicas as usize / pools);
    writeln!(out, ", nor one with {each} in each of {pools} pools.")
}

/// Why larger fleets were not tried.
fn stuck(case: &Case, largest: &Fleet, gave_up: &GaveUp, out: &mut dyn Write) -> io::Result<()> {
    let target = &case.targets[gave_up.target];
    let figures = gave_up.figures.iter().map(|(_, value)| short_or_dash(*value));
    let sizes = gave_up.figures.iter().map(|(size, _)| size.to_string());
    writeln!(
        out,
        "No fleet meets every target; the search gave up at {} replicas.",
        largest.replicas
    )?;
    writeln!(
        out,
        "  binding      {target}: {} with {} replicas, which idle {} of the time: more of them \
         do not move it",
        figures.collect::<Vec<_>>().join(", "),
        sizes.collect::<Vec<_>>().join(", "),
        percent(gave_up.idle),
    )?;
    match target.metric {
        Metric::Itl | Metric::Interactivity | Metric::InteractivityE2e => {
            let (term, share, step) = slowest_term(case, largest);
            writeln!(
                out,
                "  step         one sequence alone decodes {} tok/s; {} of its step is {term}",
                short(1e3 / step),
                percent(share),
            )
        }
        _ => Ok(()),
    }
}

/// The largest term of a step in which one sequence of mean context decodes, its share, and the
/// step in milliseconds.
fn slowest_term(case: &Case, fleet: &Fleet) -> (&'static str, f64, f64) {
    let throughput = &fleet.figures().throughput;
    let tokens = throughput.prompt_tokens_per_s * 3_600.0 / throughput.calls_per_hour;
    let mut load = case.setup.cost.empty_load();
    load.add_decode(if tokens.is_finite() { (tokens as u64).max(1) } else { 1 });
    load.set_other_ranks(case.setup.cost.ranks() as u64 - 1);
    let step = case.setup.cost.cost(&load);
    let terms = [
        ("reading weights (bandwidth)", step.weights_ms),
        ("reading the KV cache (bandwidth)", step.kv_ms),
        ("multiplying (compute)", step.gemm_ms),
        ("all-reduces (network)", step.network_ms),
        ("host and fixed time", step.host_ms),
    ];
    let largest = terms.into_iter().max_by(|a, b| a.1.total_cmp(&b.1));
    let (name, ms) = largest.unwrap_or(("nothing", 0.0));
    (name, ms / step.total_ms(), step.total_ms())
}
