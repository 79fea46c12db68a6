//! Marks on the axis: where their labels stand, so that none covers another.

use super::Mark;
use super::canvas::{Align, Canvas, Type};
use super::style::{Face, INK, NOTE, SOFT};

const LOOK: Type = Type { face: Face::Regular, size: NOTE, colour: INK };
/// From one row of labels to the next.
const ROW: f64 = 13.0;
/// Rows beyond which labels are left out: their lines stay.
const ROWS_MAX: usize = 6;
/// From a mark's line to its label, and from a label to the next.
const SPACE: f64 = 4.0;

/// The labels of a figure's marks, from above the first panel down.
pub(super) struct Labels<'a> {
    placed: Vec<Placed<'a>>,
    rows: usize,
}

struct Placed<'a> {
    x: f64,
    /// Row and left end of the label; none where there is no room.
    label: Option<(usize, f64)>,
    name: &'a str,
}

impl<'a> Labels<'a> {
    /// Places the labels of marks at these places, of which none may reach beyond `right`.
    pub(super) fn new(marks: impl Iterator<Item = (f64, &'a Mark)>, right: f64) -> Self {
        let mut marks: Vec<(f64, &Mark)> = marks.collect();
        marks.sort_by(|a, b| a.0.total_cmp(&b.0));
        let mut ends = [f64::NEG_INFINITY; ROWS_MAX];
        let mut place = |(x, mark): (f64, &'a Mark)| {
            let width = LOOK.width(&mark.name);
            let left = (x + SPACE).min(right - width);
            let row = ends.iter().position(|end| *end <= left);
            let label = row.map(|row| {
                ends[row] = left + width + 2.0 * SPACE;
                (row, left)
            });
            Placed { x, label, name: &mark.name }
        };
        let placed: Vec<Placed<'a>> = marks.into_iter().map(&mut place).collect();
        let rows = placed.iter().filter_map(|placed| placed.label).map(|(row, _)| row + 1).max();
        Self { placed, rows: rows.unwrap_or(0) }
    }

    /// Height of all rows.
    pub(super) fn height(&self) -> f64 {
        ROW * self.rows as f64
    }

    /// Labels that there was no room for.
    pub(super) fn left_out(&self) -> usize {
        self.placed.iter().filter(|mark| mark.label.is_none()).count()
    }

    /// Draws the lines through a panel, the first panel's up to their labels.
    pub(super) fn lines(&self, canvas: &Canvas, (top, bottom): (f64, f64), is_first: bool) {
        for mark in &self.placed {
            let row = mark.label.map_or(self.rows, |(row, _)| row);
            let above = if is_first { ROW * (self.rows - row) as f64 } else { 0.0 };
            canvas.line(&[(mark.x, top - above), (mark.x, bottom)], SOFT, 0.75);
        }
    }

    /// Writes the labels above the first panel, which begins at `top`.
    pub(super) fn write(&self, canvas: &Canvas, top: f64) {
        for mark in &self.placed {
            let Some((row, left)) = mark.label else { continue };
            let middle = top - ROW * ((self.rows - row) as f64 - 0.5);
            let half = ROW / 2.0 - 0.5;
            let right = left + LOOK.width(mark.name);
            canvas.blank((left - 1.5, middle - half), (right + 1.5, middle + half));
            canvas.text(mark.name, (left, middle), Align::Left, &LOOK);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_that_would_touch_stand_below_each_other_and_none_leaves_the_sheet() {
        let marks = [Mark::new(0.0, "replica 0 lost"), Mark::new(1.0, "replica 0 back")];
        let at = |places: [f64; 2]| Labels::new(places.into_iter().zip(&marks), 700.0);
        assert_eq!(at([100.0, 400.0]).rows, 1);
        assert_eq!(at([100.0, 120.0]).rows, 2);
        let (row, left) = at([100.0, 690.0]).placed[1].label.unwrap();
        assert!(row == 0 && left < 690.0 && left + LOOK.width("replica 0 back") <= 700.0);
        let many = vec![Mark::new(0.0, "the same"); 9];
        let labels = Labels::new(many.iter().map(|mark| (50.0, mark)), 700.0);
        assert_eq!((labels.rows, labels.left_out()), (ROWS_MAX, 9 - ROWS_MAX));
    }
}
