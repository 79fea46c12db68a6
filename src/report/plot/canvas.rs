//! Lines, areas and text on a plotters backend, in pixels with fractions.

use plotters::backend::SVGBackend;
use plotters::coord::Shift;
use plotters::drawing::{DrawingArea, IntoDrawingArea};
use plotters::element::{Circle, PathElement, Polygon, Text};
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{Color, FontStyle, IntoFont, RGBColor, ShapeStyle, TextStyle, register_font};

use super::style::{Face, REGULAR, SEMIBOLD};

/// Drawing units a pixel: the backend only knows whole coordinates.
pub(super) const UNITS: f64 = 4.0;
/// The backend's measure of a text, over the size that it writes.
const TEXT: f64 = 1.24;

/// Where text stands relative to its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Align {
    Left,
    Centre,
    Right,
}

/// How text looks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Type {
    pub(super) face: Face,
    pub(super) size: f64,
    pub(super) colour: RGBColor,
}

/// A sheet to draw on.
pub(super) struct Canvas<'a> {
    area: DrawingArea<SVGBackend<'a>, Shift>,
}

fn units(pixels: f64) -> i32 {
    (pixels * UNITS).round() as i32
}

/// Makes the face known; doing so again changes nothing.
fn register_faces() {
    for (face, bytes) in [(Face::Regular, REGULAR), (Face::Semibold, SEMIBOLD)] {
        // It only fails for bytes that are no face, which a test rules out.
        let _ = register_font(face.family(), FontStyle::Normal, bytes);
    }
}

impl Type {
    fn style(&self) -> TextStyle<'_> {
        register_faces();
        let font = (self.face.family(), self.size * UNITS * TEXT).into_font();
        TextStyle::from(font).color(&self.colour)
    }

    /// Width of a line of text in pixels.
    pub(super) fn width(&self, text: &str) -> f64 {
        let size = self.style().font.box_size(text);
        size.map_or(0.0, |(width, _)| f64::from(width) / UNITS)
    }

    /// The lines of a paragraph at most `width` pixels wide.
    pub(super) fn lines(&self, text: &str, width: f64) -> Vec<String> {
        let mut lines: Vec<String> = Vec::new();
        for word in words(text) {
            match lines.last_mut() {
                Some(line) if self.width(&format!("{line} {word}")) <= width => {
                    line.push(' ');
                    line.push_str(&word);
                }
                _ => lines.push(word),
            }
        }
        lines
    }
}

/// What a line may be broken between: a number stays with its unit.
fn words(text: &str) -> Vec<String> {
    const UNITS: [&str; 9] = ["%", "ms", "s", "min", "h", "d", "k", "M", "tok/s"];
    let mut words: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        let unit = word.trim_end_matches([',', ';', ':', '.', ')']);
        let number = |last: &String| last.ends_with(|end: char| end.is_ascii_digit());
        match words.last_mut().filter(|last| UNITS.contains(&unit) && number(last)) {
            Some(last) => *last = format!("{last} {word}"),
            None => words.push(word.to_owned()),
        }
    }
    words
}

impl<'a> Canvas<'a> {
    /// An empty white sheet.
    pub(super) fn new(svg: &'a mut String, width: f64, height: f64) -> Self {
        let size = (units(width) as u32, units(height) as u32);
        let canvas = Self { area: SVGBackend::with_string(svg, size).into_drawing_area() };
        drawn(canvas.area.fill(&plotters::style::WHITE));
        canvas
    }

    /// A line through places.
    pub(super) fn line(&self, places: &[(f64, f64)], colour: RGBColor, width: f64) {
        let stroke = ShapeStyle::from(&colour).stroke_width(units(width).max(1) as u32);
        drawn(self.area.draw(&PathElement::new(whole(places), stroke)));
    }

    /// A broken line between two places on one height.
    pub(super) fn broken(&self, places: &[(f64, f64)], colour: RGBColor, width: f64) {
        const DASH: f64 = 5.0;
        const SPACE: f64 = 4.0;
        for pair in places.windows(2) {
            let ((x0, y0), (x1, y1)) = (pair[0], pair[1]);
            let length = (x1 - x0).hypot(y1 - y0);
            let at = |distance: f64| {
                let part = (distance / length).min(1.0);
                (x0 + part * (x1 - x0), y0 + part * (y1 - y0))
            };
            let dashes = (length / (DASH + SPACE)).ceil() as u32;
            for dash in (0..dashes).map(|dash| f64::from(dash) * (DASH + SPACE)) {
                self.line(&[at(dash), at(dash + DASH)], colour, width);
            }
        }
    }

    /// A faint area.
    pub(super) fn area(&self, corners: &[(f64, f64)], colour: RGBColor) {
        drawn(self.area.draw(&Polygon::new(whole(corners), colour.mix(0.16))));
    }

    /// A white area, so that what is written on it can be read.
    pub(super) fn blank(&self, (left, top): (f64, f64), (right, bottom): (f64, f64)) {
        let corners = [(left, top), (right, top), (right, bottom), (left, bottom)];
        drawn(self.area.draw(&Polygon::new(whole(&corners), plotters::style::WHITE.filled())));
    }

    /// A disc with a white rim.
    pub(super) fn disc(&self, (x, y): (f64, f64), radius: f64, colour: RGBColor) {
        let at = (units(x), units(y));
        let white = plotters::style::WHITE.filled();
        drawn(self.area.draw(&Circle::new(at, units(radius + 1.25), white)));
        drawn(self.area.draw(&Circle::new(at, units(radius), colour.filled())));
    }

    /// A line of text whose middle is on the height `y`.
    pub(super) fn text(&self, text: &str, (x, y): (f64, f64), align: Align, look: &Type) {
        let side = match align {
            Align::Left => HPos::Left,
            Align::Centre => HPos::Center,
            Align::Right => HPos::Right,
        };
        let style = look.style().pos(Pos::new(side, VPos::Center));
        drawn(self.area.draw(&Text::new(text.to_owned(), (units(x), units(y)), style)));
    }

    /// Completes the sheet.
    pub(super) fn finish(self) {
        drawn(self.area.present());
    }
}

fn whole(places: &[(f64, f64)]) -> Vec<(i32, i32)> {
    places.iter().map(|&(x, y)| (units(x), units(y))).collect()
}

/// Drawing into a string cannot fail.
fn drawn<E: std::fmt::Debug>(result: Result<(), E>) {
    result.expect("a string takes everything");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_faces_measure_text() {
        let look = |face| Type { face, size: 12.0, colour: RGBColor(0, 0, 0) };
        let (plain, bold) = (look(Face::Regular), look(Face::Semibold));
        let width = plain.width("replicas");
        assert!((38.0..48.0).contains(&width), "{width}");
        assert!(bold.width("replicas") > width);
        assert!(plain.width("replicas and more") > 1.8 * width);
    }

    #[test]
    fn paragraphs_break_between_words() {
        let look = Type { face: Face::Regular, size: 12.0, colour: RGBColor(0, 0, 0) };
        let lines = look.lines("the hit rate collapses beyond one developer", 100.0);
        assert!(lines.len() > 2 && lines.iter().all(|line| look.width(line) <= 100.0), "{lines:?}");
        assert_eq!(lines.join(" "), "the hit rate collapses beyond one developer");
        assert_eq!(look.lines("unbreakable", 5.0), ["unbreakable"]);
        assert_eq!(look.lines("from 17 %, in 3 s", 5.0), ["from", "17 %,", "in", "3 s"]);
    }
}
