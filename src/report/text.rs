//! Results as text, for people.

use std::io::{self, Write};

use comfy_table::{Cell, CellAlignment, LineStyle, Table, TableStyle};

use super::Format;
use super::numbers::{grouped, percent, percent_or_dash, short, short_or_dash};
use super::trust::Trust;
use crate::config::scenario::LoadKind;
use crate::fleet::workload::Counts;
use crate::sizing::bootstrap::{INSIDE, Interval, RESAMPLES};
use crate::sizing::candidates::Comparison;
use crate::sizing::capacity::Capacity;
use crate::sizing::case::{Case, Judged};
use crate::sizing::explain::Explanation;
use crate::sizing::figures::{Figures, Losses, Percentiles};
use crate::sizing::replicates::Replicates;
use crate::sizing::slo::{Dimension, Slo, Verdict};
use crate::sizing::tally::Intervals;

mod capacity;
mod explain;
mod formulas;
mod gateway;
mod pools;
mod size;
mod time;

pub(super) use size::met;

/// A line under the header, nothing else.
const TABLE_STYLE: TableStyle =
    TableStyle::new().header_separator(LineStyle::none().fill('─').junction('─'));

/// Results as text.
#[derive(Clone, Copy, Debug)]
pub struct Text;

impl Format for Text {
    fn replay(&self, case: &Case, judged: &Judged, out: &mut dyn Write) -> io::Result<()> {
        header(case, &judged.counts, out)?;
        if let Some(at) = judged.interrupted {
            let at = hours(at.secs());
            writeln!(out, "PARTIAL: stopped after {at} of simulated time; figures up to there\n")?;
        }
        figures(&judged.figures, out)?;
        explain::bound(case, &judged.figures, out)?;
        targets(case, judged, out)?;
        formulas::table(case, &judged.figures, out)?;
        trust(case, &judged.figures, 1, out)
    }

    fn size(&self, comparison: &Comparison, out: &mut dyn Write) -> io::Result<()> {
        size::show(comparison, out)
    }

    fn capacity(
        &self,
        replicates: &Replicates,
        capacity: &Capacity,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        capacity::show(replicates, capacity, out)
    }

    fn explain(
        &self,
        replicates: &Replicates,
        explanation: &Explanation,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        explain::show(replicates, explanation, out)
    }
}

fn header(case: &Case, counts: &Counts, out: &mut dyn Write) -> io::Result<()> {
    let scenario = &case.scenario;
    let serving = &scenario.serving;
    let memory = &serving.memory;
    writeln!(out, "{} (seed {})", scenario.name, scenario.seed)?;
    let (ranks, each) = match serving.data_parallel_size {
        1 => (String::new(), ""),
        ranks => (format!("{ranks} ranks of "), "each rank "),
    };
    writeln!(
        out,
        "  replica   {} in {}, {} KV, on {ranks}{} x {}",
        serving.model.name,
        serving.weights.name(),
        serving.kv_dtype.name(),
        serving.tensor_parallel_size,
        serving.gpu.name,
    )?;
    writeln!(
        out,
        "  KV pool   {each}{} blocks of {} tokens = {} tokens; max_model_len {}",
        grouped(memory.usable_blocks().0 as i64),
        memory.block_size,
        grouped(memory.usable_blocks().tokens(memory.block_size).0 as i64),
        grouped(serving.max_model_len.0 as i64),
    )?;
    let load = match scenario.load.kind {
        LoadKind::Trace => "sessions at their recorded starts".to_owned(),
        LoadKind::Developers { developers } => format!("{developers} developers"),
        LoadKind::SessionsPerHour { rate, cv } => format!("{rate} sessions an hour, cv {cv}"),
    };
    writeln!(
        out,
        "  load      {load}, from {} sessions of {} calls; router {}",
        counts.sessions,
        grouped(counts.calls as i64),
        scenario.router_name(),
    )?;
    let told = [
        (counts.empty_outputs, "calls without output as recorded are sent for one token"),
        (counts.empty_prompts, "calls without a prompt as recorded are sent with one token"),
        (counts.failures_without_duration, "failures of unknown duration take no time"),
    ];
    for (count, what) in told.iter().filter(|(count, _)| *count > 0) {
        writeln!(out, "  note      {} {what}", grouped(*count as i64))?;
    }
    pools::header(scenario, out)?;
    if let Some(gateway) = &scenario.gateway {
        let config = gateway.config();
        let file = gateway.file.as_ref().map_or(String::new(), |file| format!(", as in {file}"));
        writeln!(
            out,
            "  gateway   replicas {}, workers of each {}, cores of each {}{file}",
            config.pods,
            config.workers,
            f64::from(config.pod_millicores) / 1e3,
        )?;
    }
    for warning in case.warnings() {
        writeln!(out, "  warning   {warning}")?;
    }
    for note in case.all_notes() {
        writeln!(out, "  note      {note}")?;
    }
    writeln!(out)
}

fn figures(figures: &Figures, out: &mut dyn Write) -> io::Result<()> {
    let units = &figures.units;
    let fleet = fleet_name(figures.replicas, figures.gpus);
    writeln!(out, "{fleet}; {} measured", hours(figures.window_s))?;
    writeln!(
        out,
        "  calls, turns, tasks: {}, {}, {} completed; {}, {}, {} failed; {}, {}, {} cut off",
        grouped(units.calls as i64),
        grouped(units.turns as i64),
        grouped(units.tasks as i64),
        grouped(units.calls_failed as i64),
        grouped(units.turns_failed as i64),
        grouped(units.tasks_failed as i64),
        grouped(units.calls_cut_off as i64),
        grouped(units.turns_cut_off as i64),
        grouped(units.tasks_cut_off as i64),
    )?;
    if units.calls_failed_as_recorded + units.calls_compacted > 0 {
        writeln!(
            out,
            "  {} calls had failed when recorded, {} were compacted to fit",
            units.calls_failed_as_recorded, units.calls_compacted
        )?;
    }
    let admission = &figures.admission;
    if admission.rejected > 0 {
        writeln!(
            out,
            "  {} calls were rejected: prompt and output exceed max_model_len. More replicas do \
             not help; a longer context or fleet.on_overflow = \"compact\" does",
            grouped(admission.rejected as i64)
        )?;
    }
    if admission.http_503 > 0 {
        writeln!(
            out,
            "  {} refusals (503) of {} calls, {} retries, {} calls refused for good; {} calls sent \
             per call made",
            grouped(admission.http_503 as i64),
            grouped(admission.offered as i64),
            grouped(admission.retries as i64),
            grouped(admission.refused as i64),
            short(admission.amplification),
        )?;
    }
    writeln!(out, "\n{}", latency_table(figures))?;
    writeln!(out, "\n{}", hit_table(figures))?;
    losses(&figures.hit.losses, out)?;
    if !figures.pools.is_empty() {
        writeln!(out, "\n{}", pools::table(&figures.pools))?;
    }
    if !figures.ttft_bands.is_empty() {
        writeln!(out, "\n{}", band_table(figures))?;
    }
    if let Some(gateway) = &figures.gateway {
        writeln!(out, "\n{}", gateway::counts(gateway))?;
    }
    let sets = [("pods", figures.gateway_scaling), ("replicas", figures.replica_scaling)];
    if let Some(table) = gateway::scaling(sets) {
        writeln!(out, "\n{table}")?;
    }
    if let Some(time) = &figures.time {
        writeln!(out, "\n{}", time::parts(time))?;
    }
    writeln!(out, "\n{}\n", use_table(figures))
}

fn latency_table(figures: &Figures) -> Table {
    let mut table = table(&["latency", "n", "mean", "p50", "p90", "p95", "p99", "max"]);
    let latency = &figures.latency;
    let rows: [(&str, Option<Percentiles>); 11] = [
        ("turn, s", latency.turn),
        ("turn_llm, s", latency.turn_llm),
        ("task, s", latency.task),
        ("task_llm, s", latency.task_llm),
        ("session, s", latency.session),
        ("stretch", latency.stretch),
        ("ttft, s", latency.ttft),
        ("engine ttft, s", latency.engine_ttft),
        ("queue, s", latency.queue),
        ("itl, s", latency.itl),
        ("e2e, s", latency.e2e),
    ];
    for (name, row) in rows {
        let Some(Percentiles { n, mean, p50, p90, p95, p99, max }) = row else { continue };
        let mut cells = vec![Cell::new(name), right(grouped(n as i64))];
        cells.extend([mean, p50, p90, p95, p99, max].map(|value| right(short(value))));
        table.add_row(cells);
    }
    table
}

fn hit_table(figures: &Figures) -> Table {
    let mut table = table(&["prefix-cache hit", "calls", "hit", "infinite cache"]);
    let hit = &figures.hit;
    table.add_row([
        Cell::new("all"),
        right(grouped(figures.units.calls as i64)),
        right(percent_or_dash(hit.engine_counter)),
        right(percent_or_dash(hit.infinite_cache)),
    ]);
    let groups = [("", &hit.segments), ("tenant ", &hit.tenants), ("model ", &hit.models)];
    for (kind, rows) in groups {
        for row in rows {
            table.add_row([
                Cell::new(format!("{kind}{}", row.name)),
                right(grouped(row.calls as i64)),
                right(percent(row.hit)),
                right(percent(row.infinite_cache)),
            ]);
        }
    }
    table
}

/// Why the cache held less than an infinite one would have, as shares of the prompt tokens.
fn losses(losses: &Losses, out: &mut dyn Write) -> io::Result<()> {
    let lost = losses.infinite_cache_tokens - losses.cached_tokens;
    if lost == 0 {
        return Ok(());
    }
    let causes = [
        (losses.evicted, "evicted"),
        (losses.under_way, "still being computed for another call"),
        (losses.elsewhere, "computed by other replicas only"),
        (losses.gone, "computed by processes that are gone"),
        (losses.uncached, "with prefix caching off"),
    ];
    let share = |tokens: u64| percent(tokens as f64 / losses.prompt_tokens as f64);
    let causes = causes.iter().filter(|(tokens, _)| *tokens > 0);
    let causes: Vec<String> =
        causes.map(|(tokens, cause)| format!("{} {cause}", share(*tokens))).collect();
    writeln!(out, " below the infinite cache: {} = {}", share(lost), causes.join(" + "))
}

fn band_table(figures: &Figures) -> Table {
    let mut table = table(&["ttft by prompt", "cached", "n", "p50, s", "p95, s", "p99, s"]);
    for band in &figures.ttft_bands {
        let mut cells = vec![Cell::new(band.prompt), Cell::new(band.cached)];
        cells.push(right(grouped(band.n as i64)));
        cells.extend([band.p50, band.p95, band.p99].map(|value| right(short(value))));
        table.add_row(cells);
    }
    table
}

fn use_table(figures: &Figures) -> Table {
    let mut table = table(&["use", "", ""]);
    let Figures { kv, gpu, throughput, interactivity, preemptions, .. } = figures;
    let mut row = |name: &str, value: String, note: &str| {
        table.add_row([Cell::new(name), right(value), Cell::new(note)]);
    };
    row("interactivity p50", short_or_dash(interactivity.p50), "tok/s = 1 / p50(itl)");
    row("interactivity p90", short_or_dash(interactivity.p90), "tok/s = 1 / p90(itl)");
    row("e2e interactivity p90", short_or_dash(interactivity.e2e_p90), "tok/s = 1 / p90(e2e/out)");
    row("jobs per hour and user", short_or_dash(interactivity.jobs_per_hour_per_user), "");
    row("true hit", percent_or_dash(figures.hit.true_hit), "re-prefill counts as a miss");
    row("recompute share", percent_or_dash(figures.hit.recompute_share), "of prefilled tokens");
    row("preemptions", grouped(preemptions.count as i64), "");
    row("tokens lost to them", grouped(preemptions.tokens_lost as i64), "");
    row("KV use p50", percent(kv.p50), "blocks held by requests");
    row("KV use p95", percent(kv.p95), "");
    row("KV use above 95 %", percent(kv.above_95), "of the time");
    row("live context / pool", short(kv.live_context_over_pool), "above 1: not all can stay");
    row("GPU idle", percent(gpu.idle), "of the time");
    row("decode share", percent_or_dash(gpu.decode_share), "of busy time");
    row("prefill share", percent_or_dash(gpu.prefill_share), "");
    row("mean decode batch", short(gpu.mean_decode_batch), "sequences a step");
    let seconds = [
        ("decode", gpu.decode_gpu_s_per_task),
        ("prefill", gpu.prefill_gpu_s_per_task),
        ("recompute", gpu.recompute_gpu_s_per_task),
    ];
    for (name, value) in seconds {
        row(&format!("GPU-s per task, {name}"), short_or_dash(value), "");
    }
    row("calls per hour", short(throughput.calls_per_hour), "");
    row("tasks per hour", short(throughput.tasks_per_hour), "");
    row("tasks per hour and GPU", short(throughput.tasks_per_hour_per_gpu), "");
    row("prompt tokens per s", short(throughput.prompt_tokens_per_s), "");
    row("output tokens per s", short(throughput.output_tokens_per_s), "");
    if let Some(burst) = &figures.burst {
        let note = format!("in the busiest minute, {} calls", burst.calls);
        row("queue p95 under burst, s", short(burst.queue_p95_s), &note);
        row("burst drained after, s", short_or_dash(burst.drain_s), "");
    }
    if let Some(cost) = &figures.cost {
        let note = format!("at {} USD per GPU-hour: {}", cost.usd_per_gpu_hour, cost.source);
        row("USD per hour", format!("{:.2}", cost.usd_per_hour), &note);
        let per_task = cost.usd_per_completed_task;
        row("USD per completed task", per_task.map_or("-".into(), |usd| format!("{usd:.4}")), "");
    }
    table
}

fn targets(case: &Case, judged: &Judged, out: &mut dyn Write) -> io::Result<()> {
    let mut table = table(&["target", "measured", "met", "margin"]);
    for (target, verdict) in case.targets.iter().zip(&judged.verdicts) {
        table.add_row([
            Cell::new(target.to_string()),
            right(measured(target, verdict)),
            Cell::new(if verdict.met { "yes" } else { "NO" }),
            right(percent_or_dash(verdict.margin)),
        ]);
    }
    writeln!(out, "{table}")?;
    if let Some(found) = &judged.intervals {
        intervals(&case.targets, found, out)?;
    }
    writeln!(out)
}

/// How far figures depend on which sessions were played.
fn intervals(targets: &[Slo], found: &Intervals, out: &mut dyn Write) -> io::Result<()> {
    let inside = percent(INSIDE).replace(".0", "");
    writeln!(out, "  sessions     drawn anew {RESAMPLES} times, {inside} of the figures lie in")?;
    for (target, interval) in targets.iter().zip(found) {
        let text = match interval {
            Err(unavailable) => format!("not available: {}", unavailable.why()),
            Ok(Interval { low, high, sessions }) => {
                let (low, high) = (measured_value(target, *low), measured_value(target, *high));
                format!("{low} to {high}, {sessions} sessions")
            }
        };
        writeln!(out, "               {target}: {text}")?;
    }
    Ok(())
}

/// What the answer rests on.
fn trust(case: &Case, figures: &Figures, seeds: usize, out: &mut dyn Write) -> io::Result<()> {
    let serving = &case.scenario.serving;
    let trust = Trust::of(case, figures);
    writeln!(out, "Trust: {}", trust.basis())?;
    writeln!(out, "  {}", trust.coverage())?;
    let units = &figures.units;
    writeln!(
        out,
        "  {} tasks completed in the window and {} were cut off by its end; {}. Not \
         modelled: {}speculative decoding, KV offload.",
        units.tasks,
        units.tasks_cut_off,
        if seeds == 1 { "one seed".to_owned() } else { format!("{seeds} seeds") },
        if case.scenario.gateway.is_none() { "the gateway, " } else { "" },
    )?;
    if units.calls == 0 {
        writeln!(out, "  WARNING: no call was answered in the window: nothing was measured.")?;
    }
    if units.calls > 0 && units.calls_cut_off * 20 > units.calls {
        writeln!(
            out,
            "  WARNING: {} calls were under way at the end, against {} answered: the fleet may be \
             falling behind, and what waits longest is in no percentile.",
            units.calls_cut_off, units.calls
        )?;
    }
    let longest = serving.max_model_len;
    let kv = serving.memory.sequence_bytes(longest);
    writeln!(
        out,
        "  KV of one sequence of {} tokens: {:.2} GiB ({:.2} GB); live contexts take {} of the \
         pool on average.",
        grouped(longest.0 as i64),
        kv.gib(),
        kv.gb(),
        percent(figures.kv.live_context_over_pool),
    )
}

pub(in crate::report) fn measured(target: &Slo, verdict: &Verdict) -> String {
    verdict.value.map_or_else(|| "no data".to_owned(), |value| measured_value(target, value))
}

fn measured_value(target: &Slo, value: f64) -> String {
    match target.metric.dimension() {
        Dimension::Share => percent(value),
        Dimension::Ratio => short(value),
        dimension => format!("{} {}", short(value), dimension.base_unit()),
    }
}

fn fleet_name(replicas: u32, gpus: u32) -> String {
    let plural = |number| if number == 1 { "" } else { "s" };
    format!("{replicas} replica{} ({gpus} GPU{})", plural(replicas), plural(gpus))
}

fn hours(seconds: f64) -> String {
    format!("{:.2} h", seconds / 3_600.0)
}

fn table(columns: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(TABLE_STYLE);
    let header = columns.iter().enumerate().map(|(position, name)| match position {
        0 => Cell::new(name),
        _ => right((*name).to_owned()),
    });
    table.set_header(header);
    table
}

fn right(text: String) -> Cell {
    Cell::new(text).set_alignment(CellAlignment::Right)
}
