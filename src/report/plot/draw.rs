//! Lays a figure out and draws it.

use super::axis::{Axis, Values};
use super::canvas::{Align, Canvas, Type};
use super::labels::spread;
use super::marks::Labels;
use super::style::{
    BOUND, COLOURS, Face, GAP, GRID, INK, LABELS, LEADING, LEFT, LINE, MARGIN, MARK, NAME, NOTE,
    PANEL, ROW, SOFT, SUBTITLE, TARGET, TICK, TITLE, TO_LABEL, WIDTH,
};
use super::{Figure, Panel, Point, Role, Row, Series};
use plotters::style::RGBColor;

const HEADING: Type = Type { face: Face::Semibold, size: TITLE, colour: INK };
const BELOW: Type = Type { face: Face::Regular, size: SUBTITLE, colour: SOFT };
const PANEL_NAME: Type = Type { face: Face::Semibold, size: NAME, colour: INK };
const TICKS: Type = Type { face: Face::Regular, size: TICK, colour: SOFT };
const NOTES: Type = Type { face: Face::Regular, size: NOTE, colour: SOFT };

/// A figure drawn: the SVG document in drawing units, and its width and height in pixels.
pub(super) fn draw(figure: &Figure) -> (String, f64, f64) {
    let text_width = WIDTH - 2.0 * MARGIN;
    let title = HEADING.lines(&figure.title, text_width);
    let subtitle = BELOW.lines(&figure.subtitle, text_width);
    let height_of = |lines: &[String], look: &Type| lines.len() as f64 * look.size * LEADING;
    let (left, right) = (MARGIN + LEFT - 22.0, WIDTH - MARGIN - label_width(figure));
    let place = |x| left + figure.axis.scale.place(x, figure.axis.range) * (right - left);
    let marks = figure.marks.iter().map(|mark| (place(mark.x), mark));
    let marks = Labels::new(marks, WIDTH - MARGIN);
    let note = match marks.left_out() {
        0 => figure.note.clone(),
        1 => format!("{} One label of a mark had no room.", figure.note),
        left_out => format!("{} {left_out} labels of marks had no room.", figure.note),
    };
    let note = NOTES.lines(&note, text_width);
    let head = MARGIN + height_of(&title, &HEADING) + height_of(&subtitle, &BELOW);
    let top = head + 34.0 + marks.height();
    let heights = figure.panels.iter().map(height_of_panel);
    let gaps = GAP * (figure.panels.len().max(1) - 1) as f64;
    let bottom = top + heights.sum::<f64>() + gaps;
    let below = 44.0 + if note.is_empty() { 0.0 } else { height_of(&note, &NOTES) + 10.0 };
    let height = (bottom + below + MARGIN / 2.0).ceil();

    let mut svg = String::new();
    let canvas = Canvas::new(&mut svg, WIDTH, height);
    let mut y = paragraph(&canvas, &title, MARGIN, &HEADING);
    y = paragraph(&canvas, &subtitle, y + 2.0, &BELOW);
    debug_assert!(y <= top, "the panels begin below the title");
    let first = top;
    let mut top = top;
    for (position, panel) in figure.panels.iter().enumerate() {
        let frame = Frame { left, right, top, bottom: top + height_of_panel(panel) };
        let is_first = position == 0;
        let name = top - 17.0 - if is_first { marks.height() } else { 0.0 };
        canvas.text(&panel.name, (MARGIN, name), Align::Left, &PANEL_NAME);
        marks.lines(&canvas, (frame.top, frame.bottom), is_first);
        let last = position + 1 == figure.panels.len();
        draw_panel(&canvas, panel, &figure.axis, &frame, last);
        top = frame.bottom + GAP;
    }
    marks.write(&canvas, first);
    let label = ((left + right) / 2.0, bottom + 36.0);
    canvas.text(&figure.axis.label, label, Align::Centre, &Type { colour: INK, ..BELOW });
    paragraph(&canvas, &note, bottom + 54.0, &NOTES);
    canvas.finish();
    (svg, WIDTH, height)
}

/// Height of a panel between its lowest and its highest value.
fn height_of_panel(panel: &Panel) -> f64 {
    if panel.rows.is_empty() { PANEL } else { ROW * panel.rows.len() as f64 }
}

/// Draws lines of text from a height on; gives the height below them.
fn paragraph(canvas: &Canvas, lines: &[String], mut y: f64, look: &Type) -> f64 {
    for line in lines {
        let height = look.size * LEADING;
        canvas.text(line, (MARGIN, y + height / 2.0), Align::Left, look);
        y += height;
    }
    y
}

/// Room for the longest label of any line.
fn label_width(figure: &Figure) -> f64 {
    let names = figure.panels.iter().flat_map(|panel| {
        let rows = panel.rows.iter().map(|row| &row.name);
        let thresholds = panel.thresholds.iter().map(|threshold| &threshold.name);
        panel.series.iter().map(|series| &series.name).chain(rows).chain(thresholds)
    });
    let widest = names.map(|name| NOTES_OF_LINES.width(name)).fold(0.0, f64::max);
    (widest + TO_LABEL + 4.0).clamp(LABELS.0, LABELS.1)
}

const NOTES_OF_LINES: Type = Type { face: Face::Regular, size: NAME, colour: INK };

/// Where a panel's values lie.
struct Frame {
    left: f64,
    right: f64,
    top: f64,
    bottom: f64,
}

/// From values to places.
struct Map<'a> {
    frame: &'a Frame,
    axis: &'a Axis,
    values: &'a Values,
}

impl Map<'_> {
    fn x(&self, x: f64) -> f64 {
        let place = self.axis.scale.place(x, self.axis.range);
        self.frame.left + place * (self.frame.right - self.frame.left)
    }

    fn y(&self, y: f64) -> f64 {
        let place = self.values.scale.place(y, self.values.range).clamp(0.0, 1.0);
        self.frame.bottom - place * (self.frame.bottom - self.frame.top)
    }

    fn at(&self, point: &Point) -> (f64, f64) {
        (self.x(point.x), self.y(point.y))
    }
}

fn draw_panel(canvas: &Canvas, panel: &Panel, axis: &Axis, frame: &Frame, last: bool) {
    let points = panel.series.iter().flat_map(|series| &series.points);
    let each = points.flat_map(|point| {
        let (low, high) = point.band.unwrap_or((point.y, point.y));
        [point.y, low, high]
    });
    let all = each.chain(panel.thresholds.iter().map(|threshold| threshold.y));
    let values = Values::of(panel.quantity, all);
    let map = Map { frame, axis, values: &values };
    let has_values = panel.rows.is_empty();
    for (y, text) in values.ticks.iter().filter(|_| has_values) {
        let y = map.y(*y);
        canvas.line(&[(frame.left, y), (frame.right, y)], GRID, 1.0);
        canvas.text(text, (frame.left - 7.0, y), Align::Right, &TICKS);
    }
    let ticks = axis.ticks.iter().map(|(x, text)| (map.x(*x), text));
    for (x, text) in without_collisions(ticks) {
        canvas.line(&[(x, frame.bottom), (x, frame.bottom + 4.0)], SOFT, 1.0);
        if last {
            canvas.text(text, (x, frame.bottom + 14.0), Align::Centre, &TICKS);
        }
    }
    canvas.line(&[(frame.left, frame.bottom), (frame.right, frame.bottom)], SOFT, 1.0);
    for threshold in &panel.thresholds {
        let y = map.y(threshold.y);
        canvas.broken(&[(frame.left, y), (frame.right, y)], TARGET, 1.25);
    }
    for series in panel.series.iter().rev() {
        draw_series(canvas, series, &map);
    }
    draw_labels(canvas, panel, &map);
    for (number, row) in panel.rows.iter().enumerate() {
        draw_row(canvas, row, &map, frame.top + ROW * (number as f64 + 0.5));
    }
}

/// What holds where: a disc or a cross at every position, told apart by shape as well as colour.
fn draw_row(canvas: &Canvas, row: &Row, map: &Map, y: f64) {
    canvas.line(&[(map.frame.left, y), (map.frame.right, y)], GRID, 1.0);
    for (x, holds) in &row.holds {
        let (x, arm) = (map.x(*x), MARK * 0.95);
        if *holds {
            canvas.disc((x, y), MARK + 0.75, COLOURS[0]);
            continue;
        }
        canvas.blank((x - arm - 1.5, y - 1.5), (x + arm + 1.5, y + 1.5));
        for down in [arm, -arm] {
            canvas.line(&[(x - arm, y - down), (x + arm, y + down)], TARGET, 1.75);
        }
    }
    let label = (map.frame.right + TO_LABEL, y);
    canvas.text(&row.name, label, Align::Left, &NOTES_OF_LINES);
}

/// The ticks that can be written without covering each other.
fn without_collisions<'a>(
    ticks: impl Iterator<Item = (f64, &'a String)>,
) -> Vec<(f64, &'a String)> {
    let mut kept: Vec<(f64, &String)> = Vec::new();
    let mut end = f64::NEG_INFINITY;
    for (x, text) in ticks {
        let half = TICKS.width(text) / 2.0;
        if x - half >= end {
            kept.push((x, text));
            end = x + half + 8.0;
        }
    }
    kept
}

fn colour_of(role: Role) -> RGBColor {
    match role {
        Role::Measured(number) | Role::Trace(number) => COLOURS[number % COLOURS.len()],
        Role::Bound => BOUND,
    }
}

fn draw_series(canvas: &Canvas, series: &Series, map: &Map) {
    let colour = colour_of(series.role);
    for run in series.points.split(|point| !point.is_finite()).filter(|run| !run.is_empty()) {
        let banded: Vec<(&Point, (f64, f64))> =
            run.iter().filter_map(|point| Some((point, point.band?))).collect();
        if banded.len() > 1 {
            let upper = banded.iter().map(|(point, (_, high))| (map.x(point.x), map.y(*high)));
            let lower = banded.iter().rev();
            let lower = lower.map(|(point, (low, _))| (map.x(point.x), map.y(*low)));
            canvas.area(&upper.chain(lower).collect::<Vec<_>>(), colour);
        }
        let places: Vec<(f64, f64)> = run.iter().map(|point| map.at(point)).collect();
        match series.role {
            Role::Bound => canvas.broken(&places, colour, 1.5),
            Role::Measured(_) => canvas.line(&places, colour, LINE),
            Role::Trace(_) => canvas.line(&places, colour, 1.25),
        }
        if matches!(series.role, Role::Measured(_)) {
            for place in places {
                canvas.disc(place, MARK, colour);
            }
        }
    }
}

/// Every line's name where it ends, with a hair line to it where it had to move.
fn draw_labels(canvas: &Canvas, panel: &Panel, map: &Map) {
    let series = panel.series.iter().filter(|series| !series.name.is_empty());
    let series = series.filter_map(|series| {
        let end = series.points.iter().rev().find(|point| point.is_finite())?;
        Some((&series.name, colour_of(series.role), map.at(end)))
    });
    let thresholds = panel.thresholds.iter().map(|threshold| {
        let end = (map.frame.right - MARK, map.y(threshold.y));
        (&threshold.name, TARGET, end)
    });
    let ends: Vec<_> = series.chain(thresholds).collect();
    let wanted: Vec<f64> = ends.iter().map(|(.., (_, y))| *y).collect();
    let bounds = (map.frame.top - 4.0, map.frame.bottom);
    let places = spread(&wanted, NAME * 1.15, bounds);
    for ((name, colour, (x, y)), place) in ends.into_iter().zip(places) {
        let start = map.frame.right + TO_LABEL;
        if (place - y).abs() > 3.0 || x < map.frame.right - MARK - 1.0 {
            canvas.line(&[(x + MARK + 1.5, y), (start - 2.0, place)], colour, 0.5);
        }
        let look = Type { colour, ..NOTES_OF_LINES };
        canvas.text(name, (start, place), Align::Left, &look);
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Axis, Figure, Mark, Panel, Point, Quantity, Series, Threshold};
    use super::*;

    /// Hit rate and task time over replicas, for two routers.
    pub(in super::super) fn example() -> Figure {
        let line = |name: &str, ys: [f64; 5]| {
            let xs = [1.0, 2.0, 4.0, 8.0, 16.0];
            let points = xs.into_iter().zip(ys);
            let points = points.map(|(x, y)| Point { x, y, band: Some((0.97 * y, 1.02 * y)) });
            Series::new(name, points.collect())
        };
        let mut time = Panel::new("p90 task time", Quantity::Seconds)
            .with(line("session affinity", [900.0, 410.0, 180.0, 160.0, 155.0]))
            .with(line("random", [900.0, 600.0, 420.0, 380.0, 350.0]));
        time.thresholds.push(Threshold { name: "target 300 s".to_owned(), y: 300.0 });
        Figure {
            title: "Without session affinity every added replica costs hit rate: 16 replicas \
                    behind a random router keep a third of it"
                .to_owned(),
            subtitle: "eighty developers, Qwen3-Coder-30B on H100, 5 seeds".to_owned(),
            axis: Axis::of("replicas", [1.0, 2.0, 4.0, 8.0, 16.0]),
            panels: vec![
                Panel::new("prefix-cache hit rate", Quantity::Share)
                    .with(line("session affinity", [0.61, 0.88, 0.95, 0.96, 0.965]))
                    .with(line("random", [0.61, 0.62, 0.55, 0.43, 0.33]))
                    .with(line("infinite cache", [0.97; 5]).of(Role::Bound)),
                time,
            ],
            marks: vec![Mark::new(4.0, "answer: 4")],
            note: "A made-up example.".to_owned(),
        }
    }

    #[test]
    fn every_name_is_written_and_no_line_leaves_its_panel() {
        let svg = example().svg();
        for text in ["session affinity", "infinite cache", "p90 task time", "target 300 s", "50 %"]
        {
            assert!(svg.contains(text), "{text}");
        }
        assert_eq!(svg, example().svg());
        if let Some(path) = std::env::var_os("TONNAGE_PLOT_EXAMPLE") {
            std::fs::write(path, example().png().expect("it can be drawn")).expect("written");
        }
    }

    #[test]
    fn missing_values_interrupt_a_line() {
        let points = [(1.0, 0.5), (2.0, f64::NAN), (3.0, 0.6)].map(|(x, y)| Point::at(x, y));
        let mut figure = example();
        figure.panels[0] = Panel::new("hit", Quantity::Share).with(Series::new("a", points.into()));
        assert!(!figure.svg().contains("NaN"));
    }
}
