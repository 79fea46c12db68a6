//! Sizes of a fleet: under which every target is met, and how far each is from its bound.

use super::axis::OF_BOUND;
use super::{Axis, Figure, Mark, Panel, Point, Quantity, Row, Series, Threshold};
use crate::diag::{Error, Result};
use crate::report::numbers::percent;
use crate::report::text::measured;
use crate::sizing::around::{Around, Size};
use crate::sizing::candidates::Sized;
use crate::sizing::replicates::Fleet;
use crate::sizing::slo::{Op, Slo, Verdict};

/// Targets beyond which lines cannot be told apart; those that are nearest to their bounds stay.
const MAX_LINES: usize = 7;

impl Figure {
    /// Refuses targets of which none can be drawn, before anything is simulated.
    ///
    /// # Errors
    /// Targets with a bound of 0 only: nothing is a share of it.
    pub fn check_targets(targets: &[Slo]) -> Result<()> {
        if targets.is_empty() || targets.iter().any(has_shares) {
            return Ok(());
        }
        let error = Error::found(&targets[0], "a target with a bound above 0");
        Err(error.in_field("--plot").help("values are drawn as shares of their bounds"))
    }

    /// The fleets around an answer, or up to where the search gave up.
    #[must_use]
    pub fn of_sizes(sized: &Sized, around: &Around) -> Self {
        let view = View::new(sized, around);
        let axis = Axis::of("replicas", view.replicas().map(f64::from));
        let search = &sized.search;
        let mut marks = Vec::new();
        if let Some(answer) = search.smallest {
            marks.push(Mark::new(answer.into(), format!("answer: {answer}")));
            let spare = search.of_size(answer + 1).filter(|above| above.met());
            marks.extend(
                spare.map(|above| {
                    Mark::new(above.replicas.into(), format!("N+1: {}", above.replicas))
                }),
            );
        }
        let panels = vec![view.met(), view.of_bounds()];
        Self {
            title: view.title(),
            subtitle: view.subtitle(),
            axis,
            panels,
            marks,
            note: view.note(),
        }
    }
}

/// Whether values of a target can be shares of its bound.
fn has_shares(target: &Slo) -> bool {
    target.bound > 0.0
}

/// What is drawn.
struct View<'a> {
    sized: &'a Sized,
    around: &'a Around,
    /// The targets that have lines.
    drawn: Vec<usize>,
}

impl<'a> View<'a> {
    fn new(sized: &'a Sized, around: &'a Around) -> Self {
        let targets = &sized.replicates.case().targets;
        let mut drawn: Vec<usize> =
            (0..targets.len()).filter(|&at| has_shares(&targets[at])).collect();
        // The size that is looked at: the answer, or the largest.
        let shown = sized.search.answer().or(sized.search.tried.last());
        if let Some(shown) = shown.filter(|_| drawn.len() > MAX_LINES) {
            let room = |at: &usize| shown.verdict(*at).margin.unwrap_or(f64::NEG_INFINITY);
            drawn.sort_by(|a, b| room(a).total_cmp(&room(b)));
            drawn.truncate(MAX_LINES);
            drawn.sort_unstable();
        }
        Self { sized, around, drawn }
    }

    fn targets(&self) -> &'a [Slo] {
        &self.sized.replicates.case().targets
    }

    fn seeds(&self) -> usize {
        self.sized.replicates.seeds().len()
    }

    fn replicas(&self) -> impl Iterator<Item = u32> + '_ {
        self.around.sizes.iter().map(|size| size.fleet.replicas)
    }

    /// Under which sizes every target is met: under all seeds, under one, and with steps that are
    /// off.
    fn met(&self) -> Panel {
        let row = |name: String, met: &dyn Fn(&Size) -> Option<bool>| {
            let sizes = self.around.sizes.iter();
            let holds =
                sizes.filter_map(|size| Some((size.fleet.replicas.into(), met(size)?))).collect();
            Row { name, holds }
        };
        let off = |size: &Size, which: usize| size.off.as_ref().map(|off| off[which].met());
        let by = Quantity::Share.said(self.around.step_time_by);
        let mut rows = match self.seeds() {
            1 => vec![row("as simulated".to_owned(), &|size| Some(size.fleet.met()))],
            seeds => vec![
                row(format!("each of {seeds} seeds"), &|size| Some(size.fleet.met())),
                row("one seed at least".to_owned(), &|size| Some(size.fleet.met_once())),
            ],
        };
        if self.around.step_time_by > 0.0 {
            rows.push(row(format!("steps {by} shorter"), &|size| off(size, 0)));
            rows.push(row(format!("steps {by} longer"), &|size| off(size, 1)));
        }
        let name = "every target met: disc yes, cross no";
        Panel { rows, ..Panel::new(name, Quantity::Number) }
    }

    /// Every target's value as a share of its bound, turned over where more is better.
    fn of_bounds(&self) -> Panel {
        let mut panel =
            Panel::new("value as a share of its bound: up to 100 % is met", Quantity::OfBound);
        for &at in &self.drawn {
            let target = &self.targets()[at];
            let points = self.around.sizes.iter().map(|size| point(target, at, size));
            panel = panel.with(Series::new(short_name(target), points.collect()));
        }
        panel.thresholds.push(Threshold { name: "the bound".to_owned(), y: 1.0 });
        panel
    }

    fn title(&self) -> String {
        with_signs(&self.finding())
    }

    /// What is to be seen.
    fn finding(&self) -> String {
        let (search, targets) = (&self.sized.search, self.targets());
        let all = match targets {
            [only] => format!("meet {only}"),
            _ => "meet every target".to_owned(),
        };
        let Some(answer) = search.answer() else {
            let most = search.tried.last().map_or(0, |fleet| fleet.replicas);
            let missed = search.tried.last().map(|fleet| missed(targets, fleet));
            let missed = missed.filter(|missed| !missed.is_empty()).unwrap_or_default();
            return format!("No fleet of up to {most} replicas does: {most} still miss {missed}");
        };
        let size = answer.replicas;
        let does = if size == 1 { all.replacen("meet", "meets", 1) } else { all };
        let does = format!("{} {does}", replicas(size));
        let below = size.checked_sub(1).and_then(|below| search.of_size(below));
        let why = match below {
            Some(below) => {
                let verb = if below.replicas == 1 { "misses" } else { "miss" };
                format!("{} {verb} {}", below.replicas, missed(targets, below))
            }
            None => match answer.binding().map(|at| (at, answer.verdict(at))) {
                Some((at, Verdict { margin: Some(margin), .. })) => {
                    format!("{} has the least room, {}", targets[at], percent(*margin))
                }
                _ => return does,
            },
        };
        let seen = format!("{does}, {why}");
        match self.failing_above(size, |_| true) {
            None => seen,
            Some(odd) => {
                let what = if targets.len() == 1 { "it" } else { "some" };
                format!("{seen}, though {odd} replicas miss {what}: size alone does not decide")
            }
        }
    }

    /// The sizes above an answer that miss a target nevertheless.
    fn failing_above(&self, answer: u32, of: impl Fn(&Size) -> bool) -> Option<String> {
        let odd = self.around.sizes.iter().filter(|other| {
            let fleet = &other.fleet;
            fleet.replicas > answer && !fleet.met() && of(other)
        });
        let odd: Vec<String> = odd.map(|other| other.fleet.replicas.to_string()).collect();
        (!odd.is_empty()).then(|| odd.join(", "))
    }

    fn subtitle(&self) -> String {
        let scenario = &self.sized.replicates.case().scenario;
        let serving = &scenario.serving;
        let gpus = match serving.gpus() {
            1 => serving.gpu.name.clone(),
            several => format!("{several} x {}", serving.gpu.name),
        };
        let name = match &*self.sized.name {
            "" => String::new(),
            name => format!(", the best candidate ({name})"),
        };
        format!(
            "{}: {} on {gpus} a replica, {}{name}",
            scenario.name,
            serving.model.name,
            scenario.router_name()
        )
    }

    fn note(&self) -> String {
        let mut said = Vec::new();
        let bands = match (self.seeds(), self.around.step_time_by > 0.0) {
            (1, false) => None,
            (1, true) => Some("steps that are off".to_owned()),
            (seeds, false) => Some(format!("{seeds} seeds")),
            (seeds, true) => Some(format!("{seeds} seeds and steps that are off")),
        };
        if let Some(bands) = bands {
            let worst = if self.seeds() > 1 { "Lines: the worst seed. " } else { "" };
            said.push(format!("{worst}Bands: least and most over {bands}."));
        }
        let of = |searched: bool| {
            let sizes = self.around.sizes.iter().filter(|size| size.is_searched == searched);
            sizes.map(|size| size.fleet.replicas.to_string()).collect::<Vec<_>>().join(", ")
        };
        let (searched, more) = (of(true), of(false));
        said.push(match &*more {
            "" => format!("Simulated by the search: {searched}."),
            more => format!("Simulated by the search: {searched}; for this plot: {more}."),
        });
        said.push("Nothing between them was.".to_owned());
        let answer = self.sized.search.smallest;
        let added = |answer| self.failing_above(answer, |size| !size.is_searched);
        if let Some(added) = answer.and_then(added) {
            said.push(format!(
                "That {added} fail above the answer is seen here, not in the report."
            ));
        }
        let targets = self.targets();
        let left = (0..targets.len()).filter(|at| !self.drawn.contains(at));
        let left: Vec<String> = left.map(|at| targets[at].to_string()).collect();
        if !left.is_empty() {
            said.push(format!("Without a line: {}.", with_signs(&left.join(", "))));
        }
        let panel = self.of_bounds();
        let points = || panel.series.iter().flat_map(|series| &series.points);
        if points().any(|point| !point.is_finite()) {
            said.push("A line is interrupted where its target has no sample.".to_owned());
        }
        if points().any(|point| point.y < OF_BOUND.0 || point.y >= OF_BOUND.1) {
            said.push("What lies beyond the axis is drawn at its end.".to_owned());
        }
        said.join(" ")
    }
}

/// A target as a label: it has no room for more.
fn short_name(target: &Slo) -> String {
    with_signs(&target.to_string())
}

fn with_signs(text: &str) -> String {
    text.replace("<=", "≤").replace(">=", "≥")
}

/// The worst seed, between the least and the most of all that was simulated of that size.
fn point(target: &Slo, at: usize, size: &Size) -> Point {
    let runs = size.fleet.runs.iter().chain(size.off.iter().flatten().flat_map(|off| &off.runs));
    let each: Vec<f64> = runs.filter_map(|run| of_bound(target, &run.verdicts[at])).collect();
    // What is infinitely far from its bound has a place all the same: the end of the axis.
    let finite = each.iter().copied().filter(|value| value.is_finite());
    let end = finite.fold(OF_BOUND.1, f64::max);
    let least = each.iter().copied().fold(end, f64::min);
    let most = each.iter().copied().fold(0.0, f64::max).min(end);
    let y = of_bound(target, size.fleet.verdict(at)).map_or(f64::NAN, |y| y.min(end));
    let band = (each.len() > 1 && y.is_finite()).then_some((least, most));
    Point { x: size.fleet.replicas.into(), y, band }
}

/// A value over its bound, or the bound over the value where more is better: infinite for 0.
fn of_bound(target: &Slo, verdict: &Verdict) -> Option<f64> {
    let value = verdict.value?;
    Some(match target.op {
        Op::AtMost => value / target.bound,
        Op::AtLeast => target.bound / value,
    })
}

fn replicas(size: u32) -> String {
    if size == 1 { "One replica".to_owned() } else { format!("{size} replicas") }
}

/// The target that a fleet misses by most, with its value, and how many others.
fn missed(targets: &[Slo], fleet: &Fleet) -> String {
    let Some(at) = fleet.binding() else { return String::new() };
    let others = (0..targets.len()).filter(|&other| other != at && !fleet.verdict(other).met);
    let value = measured(&targets[at], fleet.verdict(at));
    match others.count() {
        0 => format!("{} ({value})", targets[at]),
        others => format!("{} ({value}) and {others} more", targets[at]),
    }
}
