//! A run over time: hit rate, KV use, calls that run and calls that wait, what becomes of replicas,
//! and how many autoscalers want.

use super::{Axis, Figure, Panel, Point, Quantity, Role, Series};
use crate::fleet::Run;
use crate::observe::timeline::{HitsOverTime, STRETCHES_MAX, Stretches};
use crate::units::{Blocks, Span, Time};

mod changes;

use changes::Changes;

/// What one run did, for its figure.
struct OverTime {
    hits: Stretches<2>,
    replicas: Vec<Stretches<3>>,
    stretch: Span,
    end: Time,
}

/// Which of the sums over a replica's stretches.
#[derive(Clone, Copy)]
enum Level {
    Blocks = 0,
    Running = 1,
    Waiting = 2,
}

impl Figure {
    /// A run over time, of replicas with so many usable blocks each. `subtitle` says on what.
    #[must_use]
    pub fn of_run<O>(run: &Run<O>, hits: HitsOverTime, blocks: Blocks, subtitle: String) -> Self {
        let over_time = OverTime::of(run, hits);
        let hit = over_time.hit_points();
        let changes = Changes::of(run);
        let kv = over_time.points(&changes, Level::Blocks, 1.0 / blocks.0.max(1) as f64);
        let stretch_s = over_time.stretch.as_f64() / 1e9;
        let title = changes.title(stretch_s, |from, to| over_time.hit_between(from, to));
        let overall = over_time.hit_between(0.0, f64::INFINITY).map(|(hit, _)| hit);
        let title = title
            .or_else(|| changes.scaled_title(overall))
            .unwrap_or_else(|| plain_title(&hit, &kv));
        let line = |name: &str, quantity, points: Vec<Point>| {
            let series = Series::new("", points).of(Role::Trace(0));
            Panel::new(name, quantity).with(series)
        };
        let mut panels = vec![
            line("prefix-cache hit rate, all calls", Quantity::Share, hit),
            line("KV cache held by calls", Quantity::Share, kv),
            line(
                "calls running on a replica",
                Quantity::Number,
                over_time.points(&changes, Level::Running, 1.0),
            ),
            line(
                "calls waiting on a replica",
                Quantity::Number,
                over_time.points(&changes, Level::Waiting, 1.0),
            ),
        ];
        panels.extend(changes.panels());
        let last_s = over_time.end.0 as f64 / 1e9;
        let warmup_min = (run.window.from - Time::ZERO).as_f64() / 60e9;
        let note = note(over_time.replicas.len(), over_time.stretch, warmup_min);
        let axis = Axis::of_time("time since the start", last_s);
        Self { title, subtitle, axis, panels, marks: changes.marks(), note }
    }
}

impl OverTime {
    /// All with stretches of one length.
    fn of<O>(run: &Run<O>, hits: HitsOverTime) -> Self {
        let mut hits = hits.0;
        let kept = run.replicas.iter().filter_map(|replica| replica.over_time.as_ref());
        let mut replicas: Vec<Stretches<3>> = kept.map(|kept| kept.0.clone()).collect();
        let lengths = replicas.iter().map(Stretches::length).chain([hits.length()]);
        let stretch = lengths.max().unwrap_or(hits.length());
        hits.widen(stretch);
        replicas.iter_mut().for_each(|replica| replica.widen(stretch));
        Self { hits, replicas, stretch, end: run.window.until }
    }

    /// Every stretch: its number, its middle in seconds and its length in nanoseconds.
    fn stretches(&self) -> impl Iterator<Item = (usize, f64, f64)> {
        let bounds = (0..STRETCHES_MAX).map(|number| {
            let start = number as u64 * self.stretch.0;
            (number, start, self.end.0.min(start.saturating_add(self.stretch.0)))
        });
        let inside = bounds.take_while(|(_, start, end)| start < end);
        inside.map(|(number, start, end)| {
            (number, (start as f64 + end as f64) / 2e9, (end - start) as f64)
        })
    }

    /// A stretch in which no call was scheduled interrupts the line.
    fn hit_points(&self) -> Vec<Point> {
        let hit = |(number, x, _)| {
            let [cached, prompt] = self.hits.sums(number);
            Point::at(x, cached as f64 / prompt as f64)
        };
        self.stretches().map(hit).collect()
    }

    /// The hit rate of the stretches that lie between two instants as a whole, and how many seconds
    /// they are.
    fn hit_between(&self, from_s: f64, to_s: f64) -> Option<(f64, f64)> {
        let (from, to) = (from_s * 1e9, to_s * 1e9);
        let mut sums = [0, 0];
        let mut span_s = 0.0;
        for (number, _, nanos) in self.stretches() {
            let start = number as f64 * self.stretch.as_f64();
            if start < from || start + nanos > to {
                continue;
            }
            let [cached, prompt] = self.hits.sums(number);
            sums = [sums[0] + cached, sums[1] + prompt];
            span_s += nanos / 1e9;
        }
        (sums[1] > 0).then(|| (sums[0] as f64 / sums[1] as f64, span_s))
    }

    /// Means over time and over the replicas that took calls, times a factor, between the replica
    /// with the least and the one with the most.
    fn points(&self, changes: &Changes, level: Level, factor: f64) -> Vec<Point> {
        let point = |(number, x, nanos): (usize, f64, f64)| {
            let half = nanos / 2e9;
            let each = self.replicas.iter().enumerate().filter_map(|(replica, over_time)| {
                // One that drains still has calls.
                let sums = over_time.sums(number);
                let is_there = changes.is_up(replica, x - half, x + half) || sums != [0; 3];
                is_there.then(|| sums[level as usize] as f64 / nanos * factor)
            });
            let each: Vec<f64> = each.collect();
            let least = each.iter().copied().fold(f64::INFINITY, f64::min);
            let most = each.iter().copied().fold(0.0, f64::max);
            let y = each.iter().sum::<f64>() / each.len() as f64;
            Point { x, y, band: (each.len() > 1).then_some((least, most)) }
        };
        self.stretches().map(point).collect()
    }
}

/// What is to be seen: the least hit rate and the most KV use, once the caches are warm.
fn plain_title(hit: &[Point], kv: &[Point]) -> String {
    let finite = |points: &[Point]| -> Vec<Point> {
        points.iter().copied().filter(|point| point.y.is_finite()).collect()
    };
    let (hit, kv) = (finite(hit), finite(kv));
    // The first quarter of a run is left out: every cache begins empty.
    let warm = hit.get(hit.len() / 4..).unwrap_or_default();
    let lowest = warm.iter().min_by(|a, b| a.y.total_cmp(&b.y));
    let fullest = kv.iter().max_by(|a, b| a.y.total_cmp(&b.y));
    match (lowest, fullest) {
        (Some(lowest), Some(fullest)) => format!(
            "Hit rate of {} and more once warm, least after {}; KV cache up to {} held",
            Quantity::Share.said(lowest.y),
            Quantity::Seconds.said(lowest.x),
            Quantity::Share.said(fullest.y)
        ),
        _ => "A run over time".to_owned(),
    }
}

fn note(replicas: usize, stretch: Span, warmup_min: f64) -> String {
    let of = match replicas {
        1 => String::new(),
        _ => " of the replicas there were, bands from the least to the most of them".to_owned(),
    };
    let warmup = match warmup_min {
        none if none <= 0.0 => String::new(),
        minutes => format!(" Warm-up: the first {minutes:.0} min."),
    };
    format!(
        "Means over {}{of}. A call's hits stand where it was first scheduled.{warmup}",
        Quantity::Seconds.said(stretch.as_f64() / 1e9)
    )
}
