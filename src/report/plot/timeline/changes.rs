//! Replicas that come and go, in a run over time.
//!
//! What was planned (a loss, an update) is marked; what autoscalers do is too much for marks and
//! gets panels of its own.

use super::super::{Mark, Panel, Point, Quantity, Role, Series};
use crate::fleet::Run;
use crate::observe::members::{Became, ReplicaChange, ScaleEvent, Scaled};
use crate::units::Time;

/// How far before and after an event hit rates are compared.
const NEAR_S: f64 = 600.0;
/// The longest stretches that tell what was before an event from what was after it.
const STRETCH_MAX_S: f64 = 60.0;
/// A change of the hit rate that is not worth a word.
const SLIGHT: f64 = 0.02;

/// What became of replicas and what autoscalers wanted.
pub(super) struct Changes<'a> {
    changes: Vec<ReplicaChange>,
    wanted: &'a [ScaleEvent],
    /// When each replica took calls, in seconds.
    up: Vec<Vec<(f64, f64)>>,
    scaled: bool,
    end: Time,
}

impl<'a> Changes<'a> {
    pub(super) fn of<O>(run: &'a Run<O>) -> Self {
        let end = run.window.until;
        let inside = run.changes.iter().filter(|change| change.at < end);
        let changes: Vec<ReplicaChange> = inside.copied().collect();
        let scaled = run.scaling.replicas.is_some();
        let up = when_up(&changes, run.replicas.len(), run.replicas_at_start, end);
        Self { changes, wanted: &run.scaling.events, up, scaled, end }
    }

    /// Whether a replica took calls at some time between two instants.
    pub(super) fn is_up(&self, replica: usize, from_s: f64, to_s: f64) -> bool {
        self.up[replica].iter().any(|(from, to)| *from < to_s && from_s < *to)
    }

    /// Replicas that took calls from the start.
    fn first_up(&self, replica: usize) -> bool {
        self.up[replica].first().is_some_and(|(from, _)| *from == 0.0)
    }

    /// A mark for everything that autoscalers do not do.
    pub(super) fn marks(&self) -> Vec<Mark> {
        let mut updating = false;
        let mut away: Vec<bool> = (0..self.up.len()).map(|at| !self.first_up(at)).collect();
        let mut planned = vec![false; self.up.len()];
        let mut marks = Vec::new();
        for ReplicaChange { at, replica, became } in &self.changes {
            let (number, x) = (replica.index(), at.0 as f64 / 1e9);
            let label = match became {
                Became::Lost => format!("replica {replica} lost"),
                Became::Drained => format!("replica {replica} drains"),
                Became::Updated if !std::mem::replace(&mut updating, true) => {
                    format!("update begins: {replica} drains")
                }
                Became::Updated => format!("{replica} drains"),
                Became::Up if self.scaled && !planned[number] => continue,
                Became::Up if updating => format!("{replica} back"),
                Became::Up if !away[number] || planned[number] => format!("replica {replica} back"),
                Became::Up => format!("replica {replica} added"),
                Became::ScaledIn => continue,
            };
            planned[number] = true;
            away[number] = *became != Became::Up;
            marks.push(Mark::new(x, label));
        }
        joined(marks)
    }

    /// How many replicas take calls and how many are wanted, and pods likewise, if they are scaled.
    pub(super) fn panels(&self) -> Vec<Panel> {
        let mut panels = Vec::new();
        if self.scaled {
            let name = "replicas that take calls, and wanted ones";
            let taking = Series::new("take calls", self.stairs(&self.taking()));
            let mut panel = Panel::new(name, Quantity::Count).with(taking.of(Role::Trace(0)));
            let wanted = self.wanted(Scaled::Replicas);
            let wanted = match &wanted[..] {
                [] => self.taking()[..1].to_vec(),
                _ => wanted,
            };
            let wanted = Series::new("wanted", self.stairs(&wanted));
            panel = panel.with(wanted.of(Role::Trace(0)));
            panels.push(panel);
        }
        let pods = self.wanted(Scaled::Pods);
        if !pods.is_empty() {
            let line = Series::new("", self.stairs(&pods)).of(Role::Trace(0));
            panels.push(Panel::new("gateway pods wanted", Quantity::Count).with(line));
        }
        panels
    }

    /// Replicas that take calls, from each instant on.
    fn taking(&self) -> Vec<(Time, u32)> {
        let mut up: Vec<bool> = (0..self.up.len()).map(|at| self.first_up(at)).collect();
        let count = |up: &[bool]| up.iter().filter(|up| **up).count() as u32;
        let mut counts = vec![(Time::ZERO, count(&up))];
        for change in &self.changes {
            up[change.replica.index()] = change.became == Became::Up;
            counts.push((change.at, count(&up)));
        }
        counts
    }

    /// Members that an autoscaler wants, from each instant on; nothing if that never changed.
    fn wanted(&self, what: Scaled) -> Vec<(Time, u32)> {
        let events = self.wanted.iter().filter(|event| event.what == what && event.at < self.end);
        let mut events = events.peekable();
        let first = events.peek().map(|event| (Time::ZERO, event.from));
        first.into_iter().chain(events.map(|event| (event.at, event.to))).collect()
    }

    /// Levels as points: two at every change.
    fn stairs(&self, levels: &[(Time, u32)]) -> Vec<Point> {
        let at = |time: Time, level: u32| Point::at(time.0 as f64 / 1e9, level.into());
        let ends = levels.iter().skip(1).map(|(time, _)| *time).chain([self.end]);
        let pair = |((from, level), to): (&(Time, u32), Time)| [at(*from, *level), at(to, *level)];
        levels.iter().zip(ends).flat_map(pair).collect()
    }

    /// Of a fleet that is scaled, how many replicas took calls.
    pub(super) fn scaled_title(&self, hit: Option<f64>) -> Option<String> {
        let taking = self.taking().into_iter().map(|(_, count)| count);
        let (least, most) = (taking.clone().min()?, taking.max()?);
        let hit = Quantity::Share.said(hit.filter(|_| self.scaled)?);
        let taking = match (least, most) {
            (1, 1) => "One replica takes calls all the time".to_owned(),
            _ if least == most => format!("{most} replicas take calls all the time"),
            _ => format!("{least} to {most} replicas take calls"),
        };
        Some(format!("{taking}, {hit} of the prompt tokens hit"))
    }

    /// What the first planned event does to the hit rate, which `hit` tells of whole stretches of
    /// this length between two instants, with how long they are together. None where the run is too
    /// short on either side, or its stretches too long.
    pub(super) fn title(
        &self,
        stretch_s: f64,
        hit: impl Fn(f64, f64) -> Option<(f64, f64)>,
    ) -> Option<String> {
        let event = self.changes.iter().find(|change| {
            matches!(change.became, Became::Lost | Became::Drained | Became::Updated)
        })?;
        let at = event.at.0 as f64 / 1e9;
        let end = self.end.0 as f64 / 1e9;
        if at < NEAR_S || at + NEAR_S > end || stretch_s > STRETCH_MAX_S {
            return None;
        }
        let ((was, before_s), (is, after_s)) = (hit(at - NEAR_S, at)?, hit(at, at + NEAR_S)?);
        let what = match event.became {
            Became::Lost => format!("replica {} is lost", event.replica),
            Became::Drained => format!("replica {} is drained", event.replica),
            _ => "replicas are updated".to_owned(),
        };
        let [before, after] = [before_s, after_s].map(|span| Quantity::Seconds.said(span));
        let percent = |share: f64| format!("{:.0} %", 100.0 * share);
        let how = match () {
            () if percent(was) == percent(is) => format!("stays at {}", percent(was)),
            () if (was - is).abs() < SLIGHT => {
                format!("hardly moves, from {} to {}", percent(was), percent(is))
            }
            () if is < was => format!("falls from {} to {}", percent(was), percent(is)),
            () => format!("rises from {} to {}", percent(was), percent(is)),
        };
        Some(format!("When {what} the hit rate {how}, {after} after against {before} before"))
    }
}

/// When each of so many replicas took calls, of which so many did from the start.
fn when_up(
    changes: &[ReplicaChange],
    all: usize,
    at_start: u32,
    end: Time,
) -> Vec<Vec<(f64, f64)>> {
    let end = end.0 as f64 / 1e9;
    let each = (0..all).map(|number| {
        let of_it = || changes.iter().filter(|change| change.replica.index() == number);
        // One whose first change is to take calls was not there before.
        let comes = of_it().next().is_some_and(|change| change.became == Became::Up);
        let mut since = (number < at_start as usize && !comes).then_some(0.0);
        let mut up = Vec::new();
        for change in of_it() {
            let at = change.at.0 as f64 / 1e9;
            up.extend(since.take().map(|from| (from, at)));
            since = (change.became == Became::Up).then_some(at);
        }
        up.extend(since.map(|from| (from, end)));
        up
    });
    each.collect()
}

/// Marks at one instant as one.
fn joined(marks: Vec<Mark>) -> Vec<Mark> {
    let mut all: Vec<Mark> = Vec::new();
    for mark in marks {
        match all.last_mut() {
            Some(last) if last.x == mark.x => {
                last.name.push_str(", ");
                last.name.push_str(&mark.name);
            }
            _ => all.push(mark),
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::{ReplicaId, Span};

    fn changes(list: &[(u64, u32, Became)], scaled: bool) -> Changes<'static> {
        let change = |&(at, replica, became): &(u64, u32, Became)| ReplicaChange {
            at: Time::ZERO + Span::from_secs(at),
            replica: ReplicaId(replica),
            became,
        };
        let end = Time::ZERO + Span::from_secs(100);
        let changes: Vec<ReplicaChange> = list.iter().map(change).collect();
        let up = when_up(&changes, 4, 3, end);
        Changes { changes, wanted: &[], up, scaled, end }
    }

    fn labels(changes: &Changes) -> Vec<(f64, String)> {
        changes.marks().into_iter().map(|mark| (mark.x, mark.name)).collect()
    }

    #[test]
    fn what_was_planned_is_marked() {
        let told =
            changes(&[(10, 1, Became::Lost), (20, 1, Became::Up), (20, 2, Became::Up)], false);
        let expected = [(10.0, "replica 1 lost"), (20.0, "replica 1 back, replica 2 added")];
        assert_eq!(labels(&told), expected.map(|(x, name)| (x, name.to_owned())));
        let scaled = changes(&[(10, 2, Became::Up), (30, 0, Became::ScaledIn)], true);
        assert_eq!(labels(&scaled), []);
    }

    #[test]
    fn replicas_that_take_calls_are_counted() {
        let scaled = changes(&[(10, 2, Became::Up), (30, 0, Became::ScaledIn)], true);
        let points = scaled.panels()[0].series[0].points.clone();
        let points: Vec<(f64, f64)> = points.iter().map(|point| (point.x, point.y)).collect();
        let expected =
            [(0.0, 2.0), (10.0, 2.0), (10.0, 3.0), (30.0, 3.0), (30.0, 2.0), (100.0, 2.0)];
        assert_eq!(points, expected);
        // The last one was never started, the third one was added.
        assert_eq!((scaled.up[0][0], scaled.up[2][0]), ((0.0, 30.0), (10.0, 100.0)));
        assert!(
            scaled.up[3].is_empty() && !scaled.is_up(0, 30.0, 40.0) && scaled.is_up(0, 29.0, 40.0)
        );
        let title = scaled.scaled_title(Some(0.5)).unwrap();
        assert_eq!(title, "2 to 3 replicas take calls, 50 % of the prompt tokens hit");
        let gone = [(0, 1, Became::ScaledIn), (0, 2, Became::ScaledIn)];
        let mut alone = changes(&gone, true);
        alone.up = when_up(&[], 1, 1, alone.end);
        alone.changes.clear();
        let title = alone.scaled_title(Some(0.5)).unwrap();
        assert_eq!(title, "One replica takes calls all the time, 50 % of the prompt tokens hit");
    }

    #[test]
    fn the_title_compares_before_and_after() {
        let hit =
            |from: f64, _: f64| Some(if from < 900.0 { (0.93, 592.0) } else { (0.71, 600.0) });
        let lost_at = |at: u64, end: u64, stretch_s: f64| {
            let mut lost = changes(&[(at, 1, Became::Lost)], false);
            lost.end = Time::ZERO + Span::from_secs(end);
            lost.title(stretch_s, hit)
        };
        assert_eq!(
            lost_at(900, 1_500, 16.0).unwrap(),
            "When replica 1 is lost the hit rate falls from 93 % to 71 %, 10 min after against 9.9 \
             min before"
        );
        // Neither side is cut short, and no stretch holds much of both.
        assert_eq!(lost_at(100, 1_500, 16.0), None);
        assert_eq!(lost_at(900, 1_400, 16.0), None);
        assert_eq!(lost_at(43_200, 86_400, 1_024.0), None);
        assert_eq!(changes(&[(10, 2, Became::Up)], true).title(16.0, hit), None);
    }
}
