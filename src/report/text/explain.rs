//! What binds a fleet, and what each lever changes, as text.

use std::io::{self, Write};

use comfy_table::Cell;

use super::{fleet_name, header, hours, measured, right, table, time, trust};
use crate::report::numbers::{percent, percent_or_dash, short};
use crate::sizing::binding::{Binding, Resource};
use crate::sizing::case::Case;
use crate::sizing::explain::{Explanation, Moved};
use crate::sizing::figures::Figures;
use crate::sizing::replicates::{Fleet, Replicates};

pub(super) fn show(
    replicates: &Replicates,
    explanation: &Explanation,
    out: &mut dyn Write,
) -> io::Result<()> {
    let case = replicates.case();
    let base = &explanation.base;
    let figures = base.figures();
    header(case, &case.workload.counts, out)?;
    let fleet = fleet_name(figures.replicas, figures.gpus);
    writeln!(out, "{fleet}; {} measured", hours(figures.window_s))?;
    match &figures.time {
        Some(time) => writeln!(out, "\n{}\n", time::parts(time))?,
        None => writeln!(out, "  no task completed in the window\n")?,
    }
    if let Some(binding) = &explanation.binding {
        claims(binding, out)?;
        verdict(binding, out)?;
    }
    levers(case, explanation, out)?;
    trust(case, figures, base.runs.len(), out)
}

/// One line on what binds, for `replay`.
pub(super) fn bound(case: &Case, figures: &Figures, out: &mut dyn Write) -> io::Result<()> {
    match Binding::of(case, figures) {
        Some(binding) => verdict(&binding, out),
        None => Ok(()),
    }
}

fn claims(binding: &Binding, out: &mut dyn Write) -> io::Result<()> {
    let mut claimed = table(&["resource", "of a task, s", "of task_llm", "of session"]);
    for claim in &binding.claims {
        claimed.add_row([
            Cell::new(claim.resource.name()),
            right(short(claim.seconds)),
            right(percent_or_dash(claim.of_task_llm)),
            right(percent(claim.of_session)),
        ]);
    }
    writeln!(out, "{claimed}\n")?;
    let mut signs = table(&["sign of strain", "measured", "from", ""]);
    for sign in &binding.signs {
        signs.add_row([
            Cell::new(sign.name),
            right(short(sign.value)),
            right(short(sign.from)),
            Cell::new(if sign.is_strained() { "strained" } else { "" }),
        ]);
    }
    writeln!(out, "{signs}\n")
}

fn verdict(binding: &Binding, out: &mut dyn Write) -> io::Result<()> {
    let names = |resources: &[Resource]| match resources {
        [] => "nothing".to_owned(),
        some => some.iter().map(|resource| resource.name()).collect::<Vec<_>>().join(" or "),
    };
    writeln!(
        out,
        "Binds: {} in the fleet; {} in the whole session.",
        names(&binding.fleet),
        names(&binding.session)
    )?;
    for doubt in &binding.doubts {
        writeln!(out, "  doubt: {doubt}")?;
    }
    writeln!(out)
}

fn levers(case: &Case, explanation: &Explanation, out: &mut dyn Write) -> io::Result<()> {
    let base = &explanation.base;
    let target = base.binding();
    let named = target.map_or("target".to_owned(), |position| case.targets[position].to_string());
    let mut moved =
        table(&["one step of each lever", &named, "hit", "p90 task_llm, s", "USD per hour", "met"]);
    moved.add_row(row(case, "as it is", base, base, target));
    for Moved { lever, fleet } in &explanation.levers {
        if let Ok(fleet) = fleet {
            moved.add_row(row(case, &lever.name, base, fleet, target));
        }
    }
    writeln!(out, "{moved}\n")?;
    let refused = explanation
        .levers
        .iter()
        .filter_map(|moved| moved.fleet.as_ref().err().map(|why| (&moved.lever.name, why)));
    for (name, why) in refused {
        writeln!(out, "  cannot: {name}: {why}")?;
    }
    writeln!(
        out,
        "  Each lever by itself, on the same sessions, {}; in brackets the change.\n",
        match base.runs.len() {
            1 => "under one seed".to_owned(),
            seeds => format!("in the mean over {seeds} seeds (the target under the worst)"),
        }
    )
}

fn row(case: &Case, name: &str, base: &Fleet, fleet: &Fleet, target: Option<usize>) -> Vec<Cell> {
    let is_base = std::ptr::eq(base, fleet);
    let with = |text: String, change: Option<String>| match change.filter(|_| !is_base) {
        Some(change) => right(format!("{text} ({change})")),
        None => right(text),
    };
    let relative =
        |now: f64, was: f64| (was != 0.0).then(|| format!("{:+.1} %", (now / was - 1.0) * 1e2));
    let pair = |figure: fn(&Figures) -> Option<f64>| (fleet.mean(figure), base.mean(figure));
    let both = |(now, was): (Option<f64>, Option<f64>), show: &dyn Fn(f64) -> String| match now {
        Some(now) => with(show(now), was.and_then(|was| relative(now, was))),
        None => right("-".to_owned()),
    };
    let judged = target.map_or_else(
        || right("-".to_owned()),
        |position| {
            let (now, was) = (fleet.verdict(position), base.verdict(position));
            let change = now.value.zip(was.value).and_then(|(now, was)| relative(now, was));
            with(measured(&case.targets[position], now), change)
        },
    );
    let (hit, was) = pair(|figures| figures.hit.engine_counter);
    let points = hit.zip(was).map(|(hit, was)| format!("{:+.1}", (hit - was) * 1e2));
    vec![
        Cell::new(name),
        judged,
        with(percent_or_dash(hit), points),
        both(pair(|figures| figures.latency.task_llm.map(|llm| llm.p90)), &short),
        both(pair(|figures| figures.cost.as_ref().map(|cost| cost.usd_per_hour)), &|usd| {
            format!("{usd:.2}")
        }),
        Cell::new(if fleet.met() { "yes" } else { "NO" }),
    ]
}
