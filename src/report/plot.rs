//! Plots: a [`Figure`] of panels over one common axis, as SVG and as PNG.
//!
//! The house style: the title states what the plot shows, lines are labelled where they end instead
//! of in a legend, colours can be told apart by colour-blind readers, bands are the spread over
//! seeds, and the face travels in the file. Coordinates are whole quarters of a pixel, so that
//! equal figures are equal bytes.
//!
//! ```
//! use tonnage::report::plot::{Axis, Figure, Mark, Panel, Point, Quantity, Series};
//!
//! let points = [(1.0, 0.95), (2.0, 0.71), (4.0, 0.2)].map(|(x, y)| Point::at(x, y));
//! let figure = Figure {
//!     title: "The hit rate collapses beyond one developer a replica".to_owned(),
//!     subtitle: "one replica, a made-up trace".to_owned(),
//!     axis: Axis::of("developers", [1.0, 2.0, 4.0]),
//!     panels: vec![Panel::new("prefix-cache hit rate", Quantity::Share)
//!         .with(Series::new("all calls", points.to_vec()))],
//!     marks: vec![Mark::new(2.0, "what we have")],
//!     note: String::new(),
//! };
//! let svg = figure.svg();
//! assert!(svg.contains("developers") && svg.contains("95 %") == false);
//! # Ok::<(), tonnage::diag::Error>(())
//! ```

mod axis;
mod canvas;
mod draw;
mod labels;
mod marks;
mod output;
pub mod sizes;
mod style;
pub mod sweep;
pub mod table;
mod timeline;

pub use axis::{Axis, Quantity, Scale};

/// Panels one above the other over one axis.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// What the plot shows, as a sentence.
    pub title: String,
    /// On what: fleet, model, trace.
    pub subtitle: String,
    /// What the points lie over.
    pub axis: Axis,
    /// From top to bottom.
    pub panels: Vec<Panel>,
    /// Places on the axis that mean something: thin lines through all panels.
    pub marks: Vec<Mark>,
    /// Where the figures come from; below the plot, may be empty.
    pub note: String,
}

/// One quantity over the figure's axis.
#[derive(Clone, Debug, PartialEq)]
pub struct Panel {
    /// What is shown.
    pub name: String,
    /// In what unit.
    pub quantity: Quantity,
    /// The lines, the first in front.
    pub series: Vec<Series>,
    /// Values to compare with.
    pub thresholds: Vec<Threshold>,
    /// What holds where, in place of values: a panel has lines or rows.
    pub rows: Vec<Row>,
}

/// What holds at which positions: a disc where it does, a cross where it does not.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Its label.
    pub name: String,
    /// In the order of the axis.
    pub holds: Vec<(f64, bool)>,
}

/// A place on the axis that means something, such as an event or an answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Mark {
    /// On the axis.
    pub x: f64,
    /// Its label.
    pub name: String,
}

/// One line.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// Its label.
    pub name: String,
    /// What it stands for.
    pub role: Role,
    /// In the order of the axis; a point that is not finite interrupts the line.
    pub points: Vec<Point>,
}

/// What a line stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Something measured: a coloured line with a mark at every point. Lines of one number have one
    /// colour in all panels.
    Measured(usize),
    /// Something measured at so many instants that marks would hide it.
    Trace(usize),
    /// A bound that nothing real exceeds: a grey broken line.
    Bound,
}

/// One value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// On the axis.
    pub x: f64,
    /// The value.
    pub y: f64,
    /// Least and most over seeds, where there are several.
    pub band: Option<(f64, f64)>,
}

/// A value that lines are compared with, such as a target.
#[derive(Clone, Debug, PartialEq)]
pub struct Threshold {
    /// Its label.
    pub name: String,
    /// The value.
    pub y: f64,
}

impl Panel {
    /// An empty panel.
    #[must_use]
    pub fn new(name: impl Into<String>, quantity: Quantity) -> Self {
        let (series, thresholds, rows) = (Vec::new(), Vec::new(), Vec::new());
        Self { name: name.into(), quantity, series, thresholds, rows }
    }

    /// With one more line. Lines get the colours in their order.
    #[must_use]
    pub fn with(mut self, mut series: Series) -> Self {
        let number = self.series.iter().filter(|other| other.role != Role::Bound).count();
        if let Role::Measured(colour) | Role::Trace(colour) = &mut series.role {
            *colour = number;
        }
        self.series.push(series);
        self
    }
}

impl Mark {
    /// A labelled place.
    #[must_use]
    pub fn new(x: f64, name: impl Into<String>) -> Self {
        Self { x, name: name.into() }
    }
}

impl Series {
    /// A measured line.
    #[must_use]
    pub fn new(name: impl Into<String>, points: Vec<Point>) -> Self {
        Self { name: name.into(), role: Role::Measured(0), points }
    }

    /// The same line as something else.
    #[must_use]
    pub fn of(mut self, role: Role) -> Self {
        self.role = role;
        self
    }
}

impl Point {
    /// A value without a band.
    #[must_use]
    pub fn at(x: f64, y: f64) -> Self {
        Self { x, y, band: None }
    }

    /// Whether it can be drawn.
    fn is_finite(&self) -> bool {
        self.x.is_finite() && self.y.is_finite()
    }
}
