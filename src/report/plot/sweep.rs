//! A sweep as a figure: what was measured over one of its keys, a line for each value of another.

use super::table::Table;
use super::{Axis, Figure, Panel, Point, Quantity, Role, Series};
use crate::diag::{Error, Result};

/// Lines of a panel beyond which it cannot be read.
const MAX_LINES: usize = 7;

/// What to draw of a sweep.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// The key on the axis; by default the one with the most values.
    pub x: Option<String>,
    /// The key whose values are lines; by default the other one, if there is one.
    pub by: Option<String>,
    /// Panels by name, or figures by their column.
    pub panels: Vec<String>,
    /// The title; by default what the first panel shows, in words.
    pub title: Option<String>,
    /// What stands below the title.
    pub subtitle: Option<String>,
}

/// A panel that has a name of its own.
struct Known {
    name: &'static str,
    /// What it says.
    title: &'static str,
    quantity: Quantity,
    /// Its lines: column and label. Several are only drawn where no key makes lines.
    lines: &'static [(&'static str, &'static str)],
    /// Column of a bound.
    bound: Option<(&'static str, &'static str)>,
}

const INFINITE: (&str, &str) = ("hit.infinite_cache", "infinite cache");

const fn one(
    name: &'static str,
    title: &'static str,
    quantity: Quantity,
    lines: &'static [(&'static str, &'static str)],
) -> Known {
    Known { name, title, quantity, lines, bound: None }
}

/// The panels that can be asked for by name.
const PANELS: [Known; 13] = [
    Known {
        bound: Some(INFINITE),
        ..one("hit", "prefix-cache hit rate", Quantity::Share, &[("hit.true_hit", "all calls")])
    },
    Known {
        bound: Some(INFINITE),
        ..one(
            "segments",
            "prefix-cache hit rate by segment",
            Quantity::Share,
            &[
                ("hit.true_hit", "all calls"),
                ("hit.segments.first_call.hit", "first call of a turn"),
                ("hit.segments.second_call.hit", "second call"),
                ("hit.segments.later_calls.hit", "later calls"),
                ("hit.segments.turn_boundary.hit", "after a human's pause"),
                ("hit.segments.model_switch.hit", "after a model switch"),
                ("hit.segments.subagent_first.hit", "first of a subagent"),
            ],
        )
    },
    one(
        "throughput",
        "tasks completed per hour",
        Quantity::Number,
        &[("throughput.tasks_per_hour", "all tasks")],
    ),
    one("task", "p90 task time", Quantity::Seconds, &[("latency.task.p90", "all tasks")]),
    one(
        "task_llm",
        "p90 task time without tools",
        Quantity::Seconds,
        &[("latency.task_llm.p90", "all tasks")],
    ),
    one(
        "stretch",
        "p90 stretch: task time against the task alone",
        Quantity::Number,
        &[("latency.stretch.p90", "all tasks")],
    ),
    one("ttft", "p95 time to first token", Quantity::Seconds, &[("latency.ttft.p95", "all calls")]),
    one("itl", "mean inter-token latency", Quantity::Seconds, &[("latency.itl.mean", "all calls")]),
    one(
        "interactivity",
        "p90 interactivity, tok/s per user",
        Quantity::Number,
        &[("interactivity.p90", "all calls")],
    ),
    one("queue", "p95 queue time", Quantity::Seconds, &[("latency.queue.p95", "all calls")]),
    one(
        "recompute",
        "prefilled tokens that had been cached before",
        Quantity::Share,
        &[("hit.recompute_share", "all calls")],
    ),
    one("idle", "GPU idle share", Quantity::Share, &[("gpu.idle", "all replicas")]),
    one(
        "cost",
        "USD per completed task",
        Quantity::Number,
        &[("cost.usd_per_completed_task", "all tasks")],
    ),
];

/// What is drawn unless something else is asked for.
const DEFAULT: [&str; 3] = ["hit", "throughput", "task"];

/// Names of the panels, for help and errors.
#[must_use]
pub fn panel_names() -> Vec<&'static str> {
    PANELS.iter().map(|panel| panel.name).collect()
}

impl Figure {
    /// Draws a sweep.
    ///
    /// # Errors
    /// A key or figure that the sweep does not have, a key that is in neither axis nor lines, or
    /// too many lines.
    pub fn of_sweep(table: &Table, wanted: &Wanted) -> Result<Self> {
        let layout = Layout::new(table, wanted)?;
        let names: Vec<&str> = match &wanted.panels[..] {
            [] => DEFAULT.to_vec(),
            names => names.iter().map(String::as_str).collect(),
        };
        let panels = names.iter().map(|name| layout.panel(name)).collect::<Result<Vec<_>>>()?;
        let finding = panels.first().and_then(|panel| finding(panel, &layout.axis));
        let title = wanted.title.clone().or(finding).unwrap_or_else(|| "A sweep".to_owned());
        let seeds = layout.table.column("run.seed").map_or(1, |seed| table.values(seed).len());
        let note = match seeds {
            0 | 1 => String::new(),
            _ => format!("Means of {seeds} seeds; bands from the least to the most of them."),
        };
        let subtitle = wanted.subtitle.clone().unwrap_or_default();
        let marks = Vec::new();
        Ok(Self { title, subtitle, axis: layout.axis, panels, marks, note })
    }
}

/// What lies where.
struct Layout<'a> {
    table: &'a Table,
    x: usize,
    /// Positions of the axis key's values.
    places: Vec<(&'a str, f64)>,
    axis: Axis,
    /// The key that makes lines, and its values.
    by: Option<(usize, Vec<&'a str>)>,
    /// What that is called, if its values alone say nothing.
    by_name: Option<&'a str>,
}

impl<'a> Layout<'a> {
    fn new(table: &'a Table, wanted: &Wanted) -> Result<Self> {
        let keys = table.keys();
        let columns = keys.iter().map(|key| table.key(key)).collect::<Result<Vec<_>>>()?;
        let varied = columns.iter().copied().filter(|column| table.values(*column).len() > 1);
        let varied: Vec<usize> = varied.collect();
        let by = wanted.by.as_deref().map(|by| table.key(by)).transpose()?;
        let most = |columns: &[usize]| {
            let others = columns.iter().copied().filter(|column| Some(*column) != by);
            others.rev().max_by_key(|column| table.values(*column).len())
        };
        let x = match &wanted.x {
            Some(x) => table.key(x)?,
            None => most(&varied).or(columns.first().copied()).ok_or_else(|| {
                Error::new("the sweep varies no key: there is nothing to draw over")
            })?,
        };
        let mut others = varied.iter().copied().filter(|column| *column != x);
        let by = by.or_else(|| others.clone().next());
        if let Some(left) = others.find(|column| Some(*column) != by) {
            let name = keys[columns.iter().position(|column| *column == left).unwrap_or(0)];
            return Err(Error::found(
                format!("{} values", table.values(left).len()),
                "one: a plot has one key on its axis and one for its lines",
            )
            .in_field(name)
            .help(format!("choose one of them: --where {name}={}", table.values(left)[0])));
        }
        let name = keys[columns.iter().position(|column| *column == x).unwrap_or(0)];
        let (places, axis) = places(name, table.values(x));
        let by = by.map(|by| (by, table.values(by)));
        // Numbers and truths are nothing without the key.
        let says_nothing =
            |value: &&str| value.parse::<f64>().is_ok() || value.parse::<bool>().is_ok();
        let by_name = by.as_ref().and_then(|(by, values)| {
            let name = keys[columns.iter().position(|column| column == by)?];
            let leaf = name.rsplit('.').next().unwrap_or(name);
            values.iter().all(says_nothing).then_some(leaf)
        });
        Ok(Self { table, x, places, axis, by, by_name })
    }

    fn panel(&self, name: &str) -> Result<Panel> {
        let Some(known) = PANELS.iter().find(|panel| panel.name == name) else {
            let column = self.table.column(name).ok_or_else(|| {
                let known: Vec<&str> =
                    panel_names().into_iter().chain(self.table.figures()).collect();
                Error::unknown("panel or figure", name, known.iter().copied())
            })?;
            let panel = Panel::new(name, quantity_of(name));
            return self.lines(panel, &[(column, name)], None);
        };
        let lines = known.lines.iter().filter_map(|(column, label)| {
            let column = self.table.column(column)?;
            self.has_values(column).then_some((column, *label))
        });
        let lines: Vec<(usize, &str)> = lines.collect();
        if lines.is_empty() {
            let error = Error::new(format!("the sweep has no figure of panel `{name}`"));
            return Err(error.in_field(known.lines[0].0));
        }
        if lines.len() > 1 && self.by.is_some() {
            let error = Error::found("a second key", "one key: its segments are the lines");
            return Err(error.in_field(format!("panel {name}")).help("use --where, or panel hit"));
        }
        let bound = known.bound.and_then(|(name, label)| Some((self.table.column(name)?, label)));
        self.lines(Panel::new(known.title, known.quantity), &lines, bound)
    }

    fn has_values(&self, column: usize) -> bool {
        self.table.rows().iter().any(|row| !row[column].is_empty())
    }

    fn lines(
        &self,
        mut panel: Panel,
        lines: &[(usize, &str)],
        bound: Option<(usize, &str)>,
    ) -> Result<Panel> {
        match &self.by {
            Some((_, values)) if values.len() > MAX_LINES => {
                return Err(Error::found(
                    format!("{} lines", values.len()),
                    format!("{MAX_LINES} or fewer: more cannot be told apart"),
                )
                .help("exchange --x and --by, or choose values with --where"));
            }
            Some((by, values)) => {
                for value in values {
                    let points = self.points(lines[0].0, Some((*by, value)))?;
                    let name = match self.by_name {
                        Some(key) => format!("{key} = {value}"),
                        None => (*value).to_owned(),
                    };
                    panel = panel.with(Series::new(name, points));
                }
            }
            None => {
                for (column, label) in lines {
                    let name = if lines.len() == 1 && bound.is_none() { "" } else { label };
                    panel = panel.with(Series::new(name, self.points(*column, None)?));
                }
            }
        }
        if let Some((column, label)) = bound {
            // One bound for all lines: the highest, which nothing in the panel can exceed.
            let mut points = self.points(column, None)?;
            for point in &mut points {
                point.y = point.band.take().map_or(point.y, |(_, high)| high);
            }
            panel = panel.with(Series::new(label, points).of(Role::Bound));
        }
        Ok(panel)
    }

    /// Means over seeds, with the least and the most.
    fn points(&self, column: usize, only: Option<(usize, &str)>) -> Result<Vec<Point>> {
        let points = self.places.iter().map(|(value, x)| {
            let rows = self.table.rows().iter().filter(|row| row[self.x] == *value);
            let rows = rows.filter(|row| only.is_none_or(|(by, value)| row[by] == value));
            let mut found = Vec::new();
            for row in rows {
                found.extend(self.table.number(row, column)?);
            }
            let mean = found.iter().sum::<f64>() / found.len() as f64;
            let least = found.iter().copied().fold(f64::INFINITY, f64::min);
            let most = found.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let band = (found.len() > 1).then_some((least, most));
            Ok(Point { x: *x, y: mean, band })
        });
        points.collect()
    }
}

/// The places of a key's values: numbers where they are, names one after another.
fn places<'a>(key: &str, values: Vec<&'a str>) -> (Vec<(&'a str, f64)>, Axis) {
    let label = key.to_owned();
    let numbers: Option<Vec<f64>> = values.iter().map(|value| value.parse().ok()).collect();
    match numbers {
        Some(numbers) => {
            let axis = Axis::of(label, numbers.iter().copied());
            let mut places: Vec<_> = values.into_iter().zip(numbers).collect();
            places.sort_by(|a, b| a.1.total_cmp(&b.1));
            (places, axis)
        }
        None => {
            let axis = Axis::of_names(label, values.iter().map(|value| (*value).into()).collect());
            (values.into_iter().zip((0u32..).map(f64::from)).collect(), axis)
        }
    }
}

/// What a figure is, by the name of its column.
fn quantity_of(column: &str) -> Quantity {
    match column {
        _ if column.starts_with("latency.stretch") => Quantity::Number,
        _ if column.starts_with("latency.") => Quantity::Seconds,
        _ if column.starts_with("hit.") && !column.ends_with(".calls") => Quantity::Share,
        "gpu.idle" | "gpu.decode_share" | "gpu.prefill_share" | "kv.p50" | "kv.p95" | "kv.max"
        | "kv.above_95" => Quantity::Share,
        _ => Quantity::Number,
    }
}

/// The first panel in words: how its lines change from one end of the axis to the other, the one
/// that changes most first.
fn finding(panel: &Panel, axis: &Axis) -> Option<String> {
    let (from, to) = (&axis.ticks.first()?.1, &axis.ticks.last()?.1);
    let key = axis.label.rsplit('.').next()?;
    let lines = panel.series.iter().filter(|series| series.role != Role::Bound);
    let mut changes: Vec<(&str, f64, f64)> = lines
        .filter_map(|series| {
            let mut finite = series.points.iter().filter(|point| point.is_finite());
            let first = finite.next()?;
            Some((&*series.name, first.y, finite.next_back().unwrap_or(first).y))
        })
        .collect();
    changes.sort_by(|a, b| (b.2 - b.1).abs().total_cmp(&(a.2 - a.1).abs()));
    let said = |&(_, first, last): &(&str, f64, f64)| {
        let (a, b) = (panel.quantity.said(first), panel.quantity.said(last));
        match () {
            () if a == b => format!("stays at {a}"),
            () if last < first => format!("falls from {a} to {b}"),
            () => format!("rises from {a} to {b}"),
        }
    };
    let name = capitalised(&panel.name);
    let over = format!("over {key} {from} to {to}");
    match &changes[..] {
        [] => None,
        [only] => Some(format!("{name} {} {over}", said(only))),
        [first, .., last] => Some(format!(
            "{name} {over}: {} with {}, {} with {}",
            said(first),
            first.0.replace('_', " "),
            said(last),
            last.0.replace('_', " ")
        )),
    }
}

fn capitalised(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |first| first.to_uppercase().chain(chars).collect())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const SWEEP: &str = "\
fleet.replicas,fleet.router,run.seed,cell,refused,met,p95 ttft <= 10 s,hit.true_hit,\
hit.infinite_cache,throughput.tasks_per_hour,latency.task.p90
1,session_affinity,1,a,,true,2,0.6,0.97,10,900
1,session_affinity,2,b,,true,2,0.7,0.96,12,800
2,session_affinity,1,c,,true,2,0.9,0.97,20,500
2,session_affinity,2,d,,true,2,0.9,0.96,20,500
1,random,1,e,,true,2,0.6,0.97,10,900
1,random,2,f,,true,2,0.6,0.96,10,900
2,random,1,g,,true,2,0.5,0.97,,700
2,random,2,h,,true,2,0.5,0.96,,700
4,random,,,does not fit,,,,,,
";

    fn table(text: &str) -> Table {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("results.csv"), text).unwrap();
        Table::read(folder.path()).unwrap()
    }

    #[test]
    fn a_key_is_the_axis_and_the_other_makes_lines() {
        let figure = Figure::of_sweep(&table(SWEEP), &Wanted::default()).unwrap();
        let hit = &figure.panels[0];
        let names: Vec<_> = hit.series.iter().map(|series| &*series.name).collect();
        assert_eq!(names, ["session_affinity", "random", "infinite cache"]);
        let first = hit.series[0].points[0];
        assert!((first.y - 0.65).abs() < 1e-12);
        assert_eq!(first.band, Some((0.6, 0.7)));
        assert_eq!(hit.series[2].points[1].y, 0.97);
        // No cell has this figure: there is no point.
        assert!(figure.panels[1].series[1].points[1].y.is_nan());
        assert_eq!(
            figure.title,
            "Prefix-cache hit rate over replicas 1 to 2: rises from 65 % to 90 % with session \
             affinity, falls from 60 % to 50 % with random"
        );
        assert!(figure.note.starts_with("Means of 2 seeds"));
    }

    #[test]
    fn what_cannot_be_drawn_is_said() {
        let drawn = |wanted: &Wanted| Figure::of_sweep(&table(SWEEP), wanted);
        let error = |wanted: Wanted| drawn(&wanted).unwrap_err().to_string();
        let x = |x: &str| Wanted { x: Some(x.to_owned()), ..Wanted::default() };
        assert!(error(x("replica")).contains("did you mean `replicas`?"));
        let panel = |name: &str| Wanted { panels: vec![name.to_owned()], ..Wanted::default() };
        assert!(error(panel("hits")).contains("did you mean `hit`?"));
        assert!(error(panel("ttft")).contains("no figure of panel `ttft`"));
        assert!(drawn(&panel("latency.task.p90")).is_ok());
        assert!(table(SWEEP).only("router", "randon").is_err());
        let only = table(SWEEP).only("router", "random").unwrap();
        let figure = Figure::of_sweep(&only, &Wanted::default()).unwrap();
        assert_eq!(figure.panels[0].series[0].name, "all calls");
    }
}
