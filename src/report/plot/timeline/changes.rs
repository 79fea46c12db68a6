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
/// A change of the hit rate that is not worth a word.
const SLIGHT: f64 = 0.02;

/// What became of replicas and what autoscalers wanted.
pub(super) struct Changes<'a> {
    changes: Vec<ReplicaChange>,
    wanted: &'a [ScaleEvent],
    /// Replicas that took calls from the start, by number.
    first_up: Vec<bool>,
    scaled: bool,
    end: Time,
}

impl<'a> Changes<'a> {
    pub(super) fn of<O>(run: &'a Run<O>) -> Self {
        let end = run.window.until;
        let inside = run.changes.iter().filter(|change| change.at < end);
        let changes: Vec<ReplicaChange> = inside.copied().collect();
        // One whose first change is to take calls was not there before.
        let mut first_up = vec![true; run.replicas.len()];
        for change in run.changes.iter().rev() {
            first_up[change.replica.index()] = change.became != Became::Up;
        }
        let scaled = run.scaling.replicas.is_some();
        Self { changes, wanted: &run.scaling.events, first_up, scaled, end }
    }

    /// A mark for everything that autoscalers do not do.
    pub(super) fn marks(&self) -> Vec<Mark> {
        let mut updating = false;
        let mut away: Vec<bool> = self.first_up.iter().map(|up| !up).collect();
        let mut planned = vec![false; self.first_up.len()];
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
            let taking = Series::new("take calls", self.stairs(self.taking()));
            let mut panel = Panel::new(name, Quantity::Number).with(taking.of(Role::Trace(0)));
            let wanted = self.wanted(Scaled::Replicas);
            let wanted = match &wanted[..] {
                [] => vec![(Time::ZERO, self.first_up.iter().filter(|up| **up).count() as u32)],
                _ => wanted,
            };
            let wanted = Series::new("wanted", self.stairs(wanted));
            panel = panel.with(wanted.of(Role::Trace(0)));
            panels.push(panel);
        }
        let pods = self.wanted(Scaled::Pods);
        if !pods.is_empty() {
            let line = Series::new("", self.stairs(pods)).of(Role::Trace(0));
            panels.push(Panel::new("gateway pods wanted", Quantity::Number).with(line));
        }
        panels
    }

    /// Replicas that take calls, from each instant on.
    fn taking(&self) -> Vec<(Time, u32)> {
        let mut up = self.first_up.clone();
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
    fn stairs(&self, levels: Vec<(Time, u32)>) -> Vec<Point> {
        let at = |time: Time, level: u32| Point::at(time.0 as f64 / 1e9, level.into());
        let ends = levels.iter().skip(1).map(|(time, _)| *time).chain([self.end]);
        let pair = |((from, level), to): (&(Time, u32), Time)| [at(*from, *level), at(to, *level)];
        levels.iter().zip(ends).flat_map(pair).collect()
    }

    /// What the first planned event does to the hit rate, which `hit` tells between two instants.
    pub(super) fn title(&self, hit: impl Fn(f64, f64) -> Option<f64>) -> Option<String> {
        let event = self.changes.iter().find(|change| {
            matches!(change.became, Became::Lost | Became::Drained | Became::Updated)
        })?;
        let at = event.at.0 as f64 / 1e9;
        let (was, is) = (hit(at - NEAR_S, at)?, hit(at, at + NEAR_S)?);
        let what = match event.became {
            Became::Lost => format!("replica {} is lost", event.replica),
            Became::Drained => format!("replica {} is drained", event.replica),
            _ => "replicas are updated".to_owned(),
        };
        let minutes = NEAR_S / 60.0;
        let percent = |share: f64| format!("{:.0} %", 100.0 * share);
        let how = match () {
            () if percent(was) == percent(is) => format!("stays at {}", percent(was)),
            () if (was - is).abs() < SLIGHT => {
                format!("hardly moves, from {} to {}", percent(was), percent(is))
            }
            () if is < was => format!("falls from {} to {}", percent(was), percent(is)),
            () => format!("rises from {} to {}", percent(was), percent(is)),
        };
        Some(format!(
            "When {what} the hit rate {how}, {minutes:.0} minutes after against {minutes:.0} before"
        ))
    }
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
        let first_up = vec![true, true, false];
        let changes = list.iter().map(change).collect();
        Changes { changes, wanted: &[], first_up, scaled, end }
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
    }

    #[test]
    fn the_title_compares_before_and_after() {
        let lost = changes(&[(10, 1, Became::Lost)], false);
        let hit = |from: f64, _: f64| Some(if from < 0.0 { 0.93 } else { 0.71 });
        let title = lost.title(hit).unwrap();
        assert!(title.starts_with("When replica 1 is lost the hit rate falls from 93 % to 71 %"));
        assert_eq!(changes(&[(10, 2, Became::Up)], true).title(hit), None);
    }
}
